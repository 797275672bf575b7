//! `[membership]`, and what keys of etcd change in a configuration. No etcd here: keys and values are given.
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

use evenkeel_core::Nanos;

use crate::change::node;
use crate::cluster::{BalancerForwarder, ForwarderState, mac_of};
use crate::model::RouterConfig;
use crate::tables::cluster::{CLUSTER, FORWARDER, MAX};
use evenkeel_core::settings::schema::{Kind, Section};
use evenkeel_settings::read::{Fields, Reader, Value, suggest};
use evenkeel_settings::scalar::scalar;

/// `[membership]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MembershipSection {
    /// URLs of etcd.
    pub endpoints: Vec<String>,
    /// What its keys begin with, without a slash at the end.
    pub prefix: String,
    /// How long a router that is silent counts as alive; whole seconds.
    pub lease: Nanos,
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
    let mut endpoints = Vec::new();
    let mut wrong = None;
    for (endpoint, at) in fields.texts("endpoints") {
        if !endpoint.starts_with("http://") {
            wrong = Some((at.clone(), format!("{endpoint:?}: expected http://HOST:PORT")));
        }
        endpoints.push(endpoint.to_owned());
    }
    if let Some((at, message)) = wrong {
        reader.fail(&at, fields.path_of("endpoints"), message);
    }
    let prefix = fields.text("prefix")?.trim_end_matches('/');
    if prefix.is_empty() {
        reader.fail(&fields.span("prefix"), fields.path_of("prefix"), "all keys of etcd: give it a name");
    }
    Some(MembershipSection { endpoints, prefix: prefix.to_owned(), lease: fields.time("lease")? })
}

/// A value as the same key of a file would have it.
fn value_of(section: &Section, key: &str, text: &str) -> Result<Value, String> {
    let kind = section.key(key).map_or(Kind::Text, |key| match key.kind {
        Kind::ByClass(of, _) | Kind::List(of) => *of,
        kind => kind,
    });
    scalar(&kind, &node(&kind, text).data)
}

#[derive(Default)]
struct Member {
    mac: Option<[u8; 6]>,
    weight: Option<u16>,
    state: Option<ForwarderState>,
}

impl Member {
    fn set(&mut self, field: &str, text: &str) -> Result<(), String> {
        if !["mac", "weight", "state"].contains(&field) {
            return Err(format!("no such key of a member; {}", suggest(field, &["mac", "weight", "state"])));
        }
        let value = value_of(&FORWARDER, field, text)?;
        match (field, &value) {
            ("weight", Value::Integer(weight)) => self.weight = u16::try_from(*weight).ok(),
            ("state", Value::Text(word)) => self.state = ForwarderState::from_name(word),
            _ => {
                let expected = || "no Ethernet address of a station: expected 02:00:00:00:00:01".to_owned();
                self.mac = Some(mac_of(text).ok_or_else(expected)?);
            }
        }
        Ok(())
    }
}

/// The configuration `base` with what these keys (after the prefix and its slash) say in place of its own. Forwarders in `gone` get nothing from
/// balancers, whatever their state. Without any member there, those of `base` stay; so do weights of classes that are not there.
///
/// # Errors
/// All keys that are wrong; then nothing of them may be used.
pub fn overlay(
    base: &RouterConfig,
    keys: &BTreeMap<String, String>,
    gone: &BTreeSet<u16>,
) -> Result<RouterConfig, Vec<Refusal>> {
    let mut refused = Vec::new();
    let mut members: BTreeMap<u16, Member> = BTreeMap::new();
    let mut config = base.clone();
    let classes = base.class_names();
    for (key, value) in keys {
        let parts: Vec<&str> = key.split('/').collect();
        let result = match parts.as_slice() {
            ["members", id, field] => value_of(&CLUSTER, "node", id).and_then(|id| match id {
                Value::Integer(id) => {
                    members.entry(u16::try_from(id).unwrap_or(u16::MAX)).or_default().set(field, value)
                }
                _ => Ok(()),
            }),
            ["weights", class] => match classes.iter().position(|name| name == class) {
                // What a class is called is the forwarders' matter.
                _ if base.cluster.is_none() => Ok(()),
                None => Err(format!("no class {class:?}; {}", suggest(class, &classes))),
                Some(at) => value_of(&CLUSTER, "weight", value).map(|weight| {
                    if let (Some(cluster), Value::Integer(weight)) = (&mut config.cluster, weight) {
                        cluster.weights[at] = u16::try_from(weight).unwrap_or(u16::MAX);
                    }
                }),
            },
            ["alive", "forwarder" | "balancer", _] => Ok(()),
            _ => {
                let valid =
                    "members/ID/mac, members/ID/weight, members/ID/state, weights/CLASS, alive/ROLE/NAME";
                Err(format!("no such key; valid: {valid}"))
            }
        };
        if let Err(message) = result {
            refused.push(Refusal { key: key.clone(), value: value.clone(), message });
        }
    }
    let without = members.iter().filter(|(_, member)| member.mac.is_none());
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
    if members.len() > MAX {
        fail(format!("{} members; valid: 1 to {MAX}", members.len()));
    }
    if let (Some(cluster), false) = (&mut config.cluster, members.is_empty()) {
        cluster.members = members.keys().copied().collect();
        if !cluster.members.contains(&cluster.node) {
            fail(format!("this node, {}, is not among {:?}", cluster.node, cluster.members));
        }
    }
    if let (Some(balancer), false) = (&mut config.balancer, members.is_empty()) {
        let forwarder = |(id, member): (&u16, &Member)| {
            let state = if gone.contains(id) { Some(ForwarderState::Out) } else { member.state };
            Some(BalancerForwarder {
                id: *id,
                mac: member.mac?,
                weight: member.weight.unwrap_or(256),
                state: state.unwrap_or(ForwarderState::Active),
            })
        };
        balancer.forwarders = members.iter().filter_map(forwarder).collect();
        if balancer.forwarders.iter().all(|forwarder| forwarder.state == ForwarderState::Out) {
            fail("all forwarders are out or not alive".to_owned());
        }
    }
    if refused.is_empty() { Ok(config) } else { Err(refused) }
}
