//! `[membership]`, and what keys of etcd change in a configuration. No etcd here: keys and values
//! are given.
//!
//! ```text
//! PREFIX/members/ID/mac       Ethernet address of a forwarder: with this key it is a member
//! PREFIX/members/ID/weight    its part of new flows at balancers    (default 256)
//! PREFIX/members/ID/state     active, draining or out               (default active)
//! PREFIX/weights/CLASS        weight of a class in the cluster      (default: the file's)
//! PREFIX/alive/ROLE/NAME      written by the routers themselves, on a lease; ROLE is forwarder or balancer
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use evenkeel_cluster::NodeId;
use evenkeel_cluster::config::MAX_NODES;
use evenkeel_core::settings::schema::Kind;
use evenkeel_core::settings::{Change, Held as _, SettingError, Settings, Value};
use evenkeel_core::{Class, Nanos, settings};
use evenkeel_settings::read::{Fields, Reader, suggest};
use evenkeel_settings::scalar::scalar;
use evenkeel_settings::typed::{held, node};
use evenkeel_settings::{ValueError, settings_of};
use thiserror::Error;

use crate::cluster::{BalancerForwarder, ClusterSection, ForwarderState};
use crate::model::RouterConfig;

settings! {
    /// Members, weights of classes and the balancers' forwarders come from etcd and change live;
    /// what this file says of them holds until etcd has said something, and whenever that does not
    /// fit. Needs an evenkeel built with the feature `etcd`. See docs/cluster-live.md.
    #[derive(Eq)]
    pub struct MembershipSection: "[membership]" {
        /// Where etcd is: `["https://10.0.0.1:2379"]`, or with `http://` where nobody else can
        /// reach it. The packet path never waits for it.
        fixed endpoints: Vec<String> = Vec::new(), is required;
        /// What the keys of this cluster begin with.
        fixed prefix: String = "/evenkeel".to_owned();
        /// A router that is not heard of for so long is not alive: balancers send nothing to such a
        /// forwarder. Whole seconds.
        fixed lease: Nanos = Nanos::from_secs(10), in 1_000_000_000..=3_600_000_000_000_u64;
        /// File with the certificates (PEM) of those whom it believes who etcd is. Files of this
        /// table are read again with each new connection.
        fixed ca: Option<String> = None, absent "needed with `https://`";
        /// File with this router's certificate (PEM), where etcd asks for one.
        fixed cert: Option<String> = None, absent "none is shown";
        /// File with the private key (PEM) of `cert`; not readable by others.
        fixed key: Option<String> = None, absent "with `cert` only";
        /// User of etcd's authentication.
        fixed user: Option<String> = None, absent "etcd does not ask who it is";
        /// File whose first line is the user's password; not readable by others.
        fixed password_file: Option<String> = None, absent "with `user` only";
    }
}

/// A key of etcd that says something that cannot be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The key, after the prefix and its slash.
    pub key: String,
    /// Its value; empty if the key itself is wrong or missing.
    pub value: String,
    /// What would be valid.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "{}: {}", self.key, self.message),
            value => write!(f, "{} = {value:?}: {}", self.key, self.message),
        }
    }
}

/// Why nothing of what etcd says is used: all keys that are wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OverlayError(pub Vec<Refusal>);

impl fmt::Display for OverlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("etcd says what cannot be, and none of it is used: ")?;
        for (at, refusal) in self.0.iter().enumerate() {
            write!(f, "{}{refusal}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for OverlayError {}

/// Reads `[membership]`; `None` after an error that the reader has taken note of.
pub(crate) fn membership_of(
    reader: &mut Reader,
    fields: &Fields,
    has_role: bool,
) -> Option<MembershipSection> {
    if !has_role {
        let message = "there is neither [cluster] nor [balancer] that could have members";
        reader.fail(&fields.at, fields.path.clone(), message);
    }
    let mut section: MembershipSection = settings_of(reader, fields, &[])?;
    let known = |url: &str| url.starts_with("http://") || url.starts_with("https://");
    if let Some((wrong, at)) = fields.texts("endpoints").find(|(url, _)| !known(url)) {
        let message = format!("{wrong:?}: expected http://HOST:PORT or https://HOST:PORT");
        reader.fail(at, fields.path_of("endpoints"), message);
    }
    check_safety(reader, fields, &section);
    section.prefix.truncate(section.prefix.trim_end_matches('/').len());
    if section.prefix.is_empty() {
        reader.fail_at(fields, "prefix", "all keys of etcd: give it a name");
    }
    Some(section)
}

/// What goes with what: secrets only to an etcd that has shown who it is.
fn check_safety(reader: &mut Reader, fields: &Fields, section: &MembershipSection) {
    let safe = section.endpoints.iter().filter(|url| url.starts_with("https://")).count();
    let all = safe == section.endpoints.len();
    if safe > 0 && !all {
        reader.fail_at(fields, "endpoints", "some with http://, some with https://: valid is one");
    } else if safe > 0 && section.ca.is_none() {
        let message = "https:// needs `ca`, the certificates of those whom it believes";
        reader.fail_at(fields, "endpoints", message);
    }
    for (key, given) in [
        ("ca", section.ca.is_some()),
        ("cert", section.cert.is_some()),
        ("key", section.key.is_some()),
        ("user", section.user.is_some()),
        ("password_file", section.password_file.is_some()),
    ] {
        if given && !all {
            reader.fail_at(fields, key, "would not be safe: valid with https:// only");
        }
    }
    let pairs = [
        ("cert", section.cert.is_some(), "key", section.key.is_some()),
        ("user", section.user.is_some(), "password_file", section.password_file.is_some()),
    ];
    for (one, has_one, other, has_other) in pairs {
        if has_one != has_other {
            let (given, missing) = if has_one { (one, other) } else { (other, one) };
            reader.fail_at(fields, given, format!("`{missing}` is missing: both or none"));
        }
    }
}

/// What a text says that stands where a file has the value of `key`.
fn value_of<S: Settings>(key: &str, text: &str) -> Result<Value, ValueError> {
    let kind = S::SECTION.key(key).map_or(Kind::Text, |key| match key.kind {
        Kind::ByClass(of, _) | Kind::List(of) => *of,
        kind => kind,
    });
    scalar(&kind, &node(&kind, text).data).map(|value| held(&value))
}

/// What the keys of a member say; without its Ethernet address it is none yet.
#[derive(Default)]
struct Member {
    has_address: bool,
    forwarder: BalancerForwarder,
}

/// What is wrong with a key or its value.
#[derive(Debug, Error)]
enum KeyError {
    #[error("{0}")]
    Value(#[from] ValueError),
    #[error("{0}")]
    Setting(#[from] SettingError),
    #[error("no such key of a member; {hint}")]
    NoMemberKey { hint: String },
    #[error("no class {class:?}; {hint}")]
    NoClass { class: String, hint: String },
    #[error(
        "no such key; valid: members/ID/mac, members/ID/weight, members/ID/state, weights/CLASS, \
         alive/ROLE/NAME"
    )]
    Unknown,
}

impl Member {
    fn set(&mut self, field: &str, text: &str) -> Result<(), KeyError> {
        let known = ["mac", "weight", "state"];
        let Some(key) = known.into_iter().find(|known| *known == field) else {
            return Err(KeyError::NoMemberKey { hint: suggest(field, &known) });
        };
        let value = value_of::<BalancerForwarder>(key, text)?;
        let change = Change { key, class: None, value };
        self.forwarder.set(&change, 0)?;
        self.has_address |= key == "mac";
        Ok(())
    }
}

/// The configuration `base` with what these keys (after the prefix and its slash) say in place of
/// its own. Forwarders in `gone` get nothing from balancers, whatever their state. Without any
/// member there, those of `base` stay; so do weights of classes that are not there.
///
/// # Errors
/// All keys that are wrong; then nothing of them may be used.
pub fn overlay(
    base: &RouterConfig,
    keys: &BTreeMap<String, String>,
    gone: &BTreeSet<u16>,
) -> Result<RouterConfig, OverlayError> {
    let mut refused = Vec::new();
    let mut members: BTreeMap<u16, Member> = BTreeMap::new();
    let mut config = base.clone();
    let classes = base.class_names();
    for (key, value) in keys {
        let parts: Vec<&str> = key.split('/').collect();
        let result = match parts.as_slice() {
            ["members", id, field] => {
                value_of::<ClusterSection>("node", id).map_err(KeyError::from).and_then(|id| {
                    // Its range is that of the type.
                    let id = u16::from_value(&id).unwrap_or(u16::MAX);
                    members.entry(id).or_default().set(field, value)
                })
            }
            ["weights", class] => match classes.iter().position(|name| name == class) {
                // What a class is called is the forwarders' matter.
                _ if base.cluster.is_none() => Ok(()),
                None => Err(KeyError::NoClass {
                    class: (*class).to_owned(),
                    hint: suggest(class, &classes),
                }),
                Some(at) => value_of::<ClusterSection>("weight", value)
                    .map_err(KeyError::from)
                    .and_then(|value| {
                        let Some(cluster) = &mut config.cluster else { return Ok(()) };
                        let class = u16::try_from(at).ok().map(Class);
                        let change = Change { key: "weight", class, value };
                        Ok(cluster.set(&change, u16::MAX)?)
                    }),
            },
            ["alive", "forwarder" | "balancer", _] => Ok(()),
            _ => Err(KeyError::Unknown),
        };
        if let Err(error) = result {
            let message = error.to_string();
            refused.push(Refusal { key: key.clone(), value: value.clone(), message });
        }
    }
    let without = members.iter().filter(|(_, member)| !member.has_address);
    for (id, _) in without {
        let key = format!("members/{id}/mac");
        // A wrong one was named already.
        if !keys.contains_key(&key) {
            let message = "missing: a member has an Ethernet address".to_owned();
            refused.push(Refusal { key, value: String::new(), message });
        }
    }
    let mut fail = |message: String| {
        refused.push(Refusal { key: "members".to_owned(), value: String::new(), message });
    };
    if members.len() > MAX_NODES {
        fail(format!("{} members; valid: 1 to {MAX_NODES}", members.len()));
    }
    if let (Some(cluster), false) = (&mut config.cluster, members.is_empty()) {
        cluster.config.members = members.keys().map(|id| NodeId(*id)).collect();
        if !members.contains_key(&cluster.node) {
            let known: Vec<_> = members.keys().collect();
            fail(format!("this node, {}, is not among {known:?}", cluster.node));
        }
    }
    if let (Some(balancer), false) = (&mut config.balancer, members.is_empty()) {
        let forwarder = |(id, member): (&u16, &Member)| {
            let state =
                if gone.contains(id) { ForwarderState::Out } else { member.forwarder.state };
            BalancerForwarder { id: *id, state, ..member.forwarder }
        };
        balancer.forwarders = members.iter().map(forwarder).collect();
        if balancer.forwarders.iter().all(|forwarder| forwarder.state == ForwarderState::Out) {
            fail("all forwarders are out or not alive".to_owned());
        }
    }
    if refused.is_empty() { Ok(config) } else { Err(OverlayError(refused)) }
}
