//! Subscribers and nodes, looked at twice: their rates, and what limits whom.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_config::subscribers::SubscriberChange;
use evenkeel_core::schedule::tree::NodeMeters;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_core::{BitRate, Nanos};
use evenkeel_router::NodeQuery;
use evenkeel_router::snapshot::NodeSnapshot;

use crate::client::{Client, ClientError};

/// Between the two looks that rates are made of.
const LOOK: Duration = Duration::from_secs(1);
/// So many times its caps a subscriber is given at most.
const MOST_TIMES: f64 = 1_000.0;
/// A look that is older tells nothing of now.
const RECENT: Duration = Duration::from_secs(30);

/// A node now, and what it did between the two looks.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Now.
    pub now: NodeSnapshot,
    /// Of what is counted, what came since the first look.
    pub since: NodeSnapshot,
    /// How long ago that was.
    pub over: Duration,
}

impl Seen {
    fn of(was: &NodeSnapshot, now: NodeSnapshot, over: Duration) -> Self {
        let since = NodeSnapshot {
            sent_packets: now.sent_packets.saturating_sub(was.sent_packets),
            sent_bytes: now.sent_bytes.saturating_sub(was.sent_bytes),
            overflow: now.overflow.saturating_sub(was.overflow),
            standing: now.standing.saturating_sub(was.standing),
            marked: now.marked.saturating_sub(was.marked),
            own_cap: now.own_cap.saturating_sub(was.own_cap),
            turns_over: now.turns_over.saturating_sub(was.turns_over),
            delays: now.delays.iter().zip(&was.delays).map(|(a, b)| a.saturating_sub(*b)).collect(),
            ..NodeSnapshot::default()
        };
        Self { now, since, over }
    }

    /// So many in each second.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.over.as_secs_f64().max(1e-3)
    }

    /// What it sent, of bytes on the wire.
    #[must_use]
    pub fn rate(&self) -> BitRate {
        BitRate(self.per_second(self.since.sent_bytes * 8) as u64)
    }

    /// The time that so many hundredths of the packets waited at most; `Some(None)`: more than is
    /// told apart; `None`: none left.
    #[must_use]
    pub fn delay(&self, hundredths: u64) -> Option<Option<Nanos>> {
        let all: u64 = self.since.delays.iter().sum();
        let mut before = 0;
        let bucket = self.since.delays.iter().position(|packets| {
            before += packets;
            before * 100 >= all * hundredths
        })?;
        (all > 0).then(|| NodeMeters::bucket_end(bucket))
    }

    /// Whether its own cap is what it meets.
    #[must_use]
    pub fn is_at_cap(&self) -> bool {
        self.now.capped || self.since.own_cap * 4 > self.since.sent_packets.max(1)
    }

    /// Whether it has, or had, more to send than was its turn.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.now.backlog_packets > 0 || self.since.turns_over > 0
    }
}

/// What limits a subscriber or node, of whom it is known what it is behind: the first that is at
/// its cap, itself or another, if it waits at all.
#[must_use]
pub fn limit_of<'a>(way: &[&'a Seen]) -> Option<&'a Seen> {
    let own = way.first()?;
    let mut way = way.iter().copied();
    way.find(|one| one.is_at_cap() && (one.now.name == own.now.name || own.waits()))
}

/// Two looks at the same nodes, a second apart.
///
/// # Errors
/// Any [`ClientError`].
pub fn look(client: &mut Client, query: &NodeQuery) -> Result<Vec<Seen>, ClientError> {
    let before = all(client, query)?;
    thread::sleep(LOOK);
    Ok(between(&before, all(client, query)?, LOOK))
}

/// What they did between two looks; who was not there at the first is left out.
#[must_use]
pub fn between(before: &[NodeSnapshot], after: Vec<NodeSnapshot>, over: Duration) -> Vec<Seen> {
    let known: HashMap<_, _> =
        before.iter().map(|node| ((node.link.as_str(), node.name.as_str()), node)).collect();
    let seen = after.into_iter().filter_map(|now| {
        let was = known.get(&(now.link.as_str(), now.name.as_str()))?;
        Some(Seen::of(was, now, over))
    });
    seen.collect()
}

/// One of those that sent most.
#[derive(Clone, Debug)]
pub struct Busy {
    /// What it did.
    pub seen: Seen,
    /// What limits it: its own name, that of a node that it is behind, or `the link`; `None`: it
    /// asks for no more.
    pub limit: Option<String>,
}

/// All subscribers, whatever the link; the first is the one that sent most.
///
/// # Errors
/// Any [`ClientError`].
pub fn busiest(client: &mut Client) -> Result<Vec<Busy>, ClientError> {
    Ok(busy(look(client, &NodeQuery::From(0))?))
}

/// Somebody who looks at all subscribers again and again: each look but the first costs the router
/// one telling of the list, and is of the time since the look before.
#[derive(Debug, Default)]
pub struct Again {
    before: Option<(Instant, Vec<NodeSnapshot>)>,
}

impl Again {
    /// As [`busiest`].
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn busiest(&mut self, client: &mut Client) -> Result<Vec<Busy>, ClientError> {
        let query = NodeQuery::From(0);
        let fresh = |(at, _): &(Instant, _)| (LOOK..RECENT).contains(&at.elapsed());
        let (then, before) = match self.before.take().filter(fresh) {
            Some(before) => before,
            None => {
                let first = (Instant::now(), all(client, &query)?);
                thread::sleep(LOOK);
                first
            }
        };
        let now = Instant::now();
        let nodes = all(client, &query)?;
        self.before = Some((now, nodes.clone()));
        Ok(busy(between(&before, nodes, now - then)))
    }
}

fn busy(seen: Vec<Seen>) -> Vec<Busy> {
    let limits = limits(&seen);
    let busy = seen.into_iter().zip(limits).map(|(seen, limit)| Busy { seen, limit });
    let mut busy: Vec<Busy> = busy.filter(|one| one.seen.now.subscriber).collect();
    busy.sort_by_key(|one| Reverse(one.seen.since.sent_bytes));
    busy
}

/// What limits each of them.
fn limits(seen: &[Seen]) -> Vec<Option<String>> {
    let nodes: HashMap<_, _> = seen
        .iter()
        .filter(|one| !one.now.subscriber)
        .map(|one| ((one.now.link.as_str(), one.now.name.as_str()), one))
        .collect();
    let limit = |own: &Seen| {
        let mut way = vec![own];
        // No tree is deeper than its nodes.
        while let Some(up) =
            nodes.get(&(own.now.link.as_str(), way[way.len() - 1].now.parent.as_str()))
            && way.len() <= nodes.len()
        {
            way.push(up);
        }
        let limit = limit_of(&way).map(|limit| limit.now.name.clone());
        limit.or_else(|| own.waits().then(|| "the link".to_owned()))
    };
    seen.iter().map(limit).collect()
}

/// The change that gives a subscriber or node so many times its caps.
///
/// # Errors
/// Any [`ClientError`]; refused: it has no cap that could be raised.
pub fn boost(client: &mut Client, name: &str, by: f64) -> Result<SubscriberChange, ClientError> {
    if !(by > 0.0 && by <= MOST_TIMES) {
        let why = format!("{by} times its caps: more than 0, at most {MOST_TIMES}");
        return Err(ClientError::Refused(why));
    }
    let nodes = client.nodes(NodeQuery::Name(name.to_owned()))?;
    let own = nodes.iter().filter(|node| node.name == name);
    let more = |node: &NodeSnapshot| {
        let field = if node.down { "down" } else { "up" };
        let cap = BitRate((node.cap_bps? as f64 * by) as u64);
        Some((field.to_owned(), rate_text(cap)))
    };
    let fields: Vec<_> = own.filter_map(more).collect();
    if fields.is_empty() {
        return Err(ClientError::Refused(format!("{name} has no cap that could be raised")));
    }
    Ok(SubscriberChange::Set { name: name.to_owned(), fields })
}

/// What is asked for; everybody page by page.
fn all(client: &mut Client, query: &NodeQuery) -> Result<Vec<NodeSnapshot>, ClientError> {
    match query {
        NodeQuery::From(0) => NodeQuery::everybody(|page| client.nodes(page)),
        query => client.nodes(query.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, capped: bool, backlog_packets: u64) -> Seen {
        let now =
            NodeSnapshot { name: name.into(), capped, backlog_packets, ..NodeSnapshot::default() };
        Seen { now, ..Seen::default() }
    }

    #[test]
    fn what_limits_is_the_first_that_is_full_on_the_way_up() {
        let limit =
            |ann: &Seen, north: &Seen| limit_of(&[ann, north]).map(|limit| limit.now.name.clone());
        assert_eq!(limit(&seen("ann", true, 3), &seen("north", true, 0)).as_deref(), Some("ann"));
        assert_eq!(
            limit(&seen("ann", false, 3), &seen("north", true, 0)).as_deref(),
            Some("north")
        );
        // A full site is no limit for who asks for no more.
        assert_eq!(limit(&seen("ann", false, 0), &seen("north", true, 0)), None);
        assert_eq!(limit(&seen("ann", false, 3), &seen("north", false, 0)), None);
    }

    #[test]
    fn half_of_the_packets_wait_no_longer_than_their_bucket() {
        let mut one = Seen::default();
        assert_eq!(one.delay(50), None);
        one.since.delays = vec![6, 3, 0, 1];
        assert_eq!(one.delay(50), Some(NodeMeters::bucket_end(0)));
        assert_eq!(one.delay(95), Some(NodeMeters::bucket_end(3)));
    }
}
