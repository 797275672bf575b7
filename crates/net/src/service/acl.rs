//! An access control list, looked through from its first rule to the one that fits.
//!
//! Linear on purpose: this is how short lists are done everywhere, and how long ones become the
//! costly work that a fair dropper has to know about. Cost: one comparison of addresses, protocol
//! and ports per rule visited, and [`Acl::visited`] counts them. For choosing classes, where cost
//! must not grow, see [`ClassMap`](evenkeel_core::class_map::ClassMap).

use evenkeel_core::class_map::{ClassMapError, Match};
use evenkeel_core::{FlowKey, Prefix, Reason};

/// What a rule does with packets that fit it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// They pass.
    Permit,
    /// They are dropped as [`Reason::AclDenied`].
    Deny,
}

/// A rule of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What is asked for.
    pub matching: Match,
    /// What happens to packets that have it.
    pub action: Action,
}

/// A list and what it has counted.
#[derive(Clone, Debug)]
pub struct Acl {
    rules: Vec<Rule>,
    default: Action,
    visited: u64,
}

impl Acl {
    /// Most rules of a list.
    pub const MAX_RULES: usize = 65_536;

    /// A list of `rules`, the first of which has precedence; `default` is for packets that none
    /// fits.
    ///
    /// # Errors
    /// A rule that no packet can fit: a prefix longer than its address, addresses of two families,
    /// an empty range of ports; or more than [`Acl::MAX_RULES`].
    pub fn new(rules: Vec<Rule>, default: Action) -> Result<Self, ClassMapError> {
        if rules.len() > Self::MAX_RULES {
            return Err(ClassMapError::TooManyRules { rules: rules.len() });
        }
        for (index, rule) in rules.iter().enumerate() {
            rule.matching.check(index)?;
        }
        Ok(Self { rules, default, visited: 0 })
    }

    /// Lets a packet pass or not. O(rules).
    ///
    /// # Errors
    /// [`Reason::AclDenied`].
    pub fn check(&mut self, flow: &FlowKey, dscp: u8) -> Result<(), Reason> {
        let found = self.rules.iter().position(|rule| rule.matching.holds(flow, dscp));
        self.visited += found.map_or(self.rules.len(), |at| at + 1) as u64;
        match found.map_or(self.default, |at| self.rules[at].action) {
            Action::Permit => Ok(()),
            Action::Deny => Err(Reason::AclDenied),
        }
    }

    /// How many rules were looked at for all packets so far.
    #[must_use]
    pub const fn visited(&self) -> u64 {
        self.visited
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is no rule: everything gets the default.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// A rule that no packet on the wire fits, but that costs as much to look at as one that might: for
/// measuring what long lists cost. Its source is of 192.0.2.0/24 (documentation, RFC 5737) and its
/// protocol 255 (reserved).
#[must_use]
pub fn filler(number: u32) -> Rule {
    let source = core::net::Ipv4Addr::new(192, 0, 2, number as u8);
    let matching = Match {
        source: Some(Prefix::host(source.into())),
        protocol: Some(255),
        source_port: Some(number as u16..=u16::MAX),
        ..Match::default()
    };
    Rule { matching, action: Action::Deny }
}
