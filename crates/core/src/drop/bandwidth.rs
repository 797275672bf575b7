//! FairDrop for the bits of one outgoing link.
//!
//! Source: as [`fairdrop`](super::fairdrop), bandwidth mode. The shadow is drained *before* packets
//! are judged, by the time since the last batch; nothing is refused while all shadow queues
//! together would fit the link's buffer. (The published code drains after the batch, so after an
//! idle spell or for one large burst it drops although the link is free.)
//!
//! A packet is refused if its flow's shadow queue is above both the threshold and the flow's part
//! of the buffer (by weight, among backlogged flows), and all queues together exceed the buffer. If
//! they do, some flow is above its part; so a link that is overloaded refuses packets of those
//! flows only that hold more than their part, however small `threshold` is.
//!
//! | symbol | field | unit |
//! |---|---|---|
//! | VQ_i | shadow queue | bits on the wire |
//! | TH | `threshold` | bits |
//! | theta C | `rate`, `theta` | bits per second |
//!
//! Several workers that send on one link judge together: see `together.rs`.
//!
//! Complexity: as the shadow's; with several workers, a batch reads three cells of each for each
//! group, and a packet writes as many. Lengths count what the wire takes: header, check sequence,
//! preamble and gap included.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::config::{BandwidthConfig, FlowTableConfig, ShareId};
use super::shadow::FlowView;
use super::shadow::{FRACTION, Group, Looked, MAX_CREDIT, Shadow};
use super::table::Ticket;
use super::together::{Known, SharedShadow, level};
use crate::reason::Reason;
use crate::settings::SettingError;
use crate::units::{BitRate, Bytes, Nanos};

/// Counters of a link's dropper.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BandwidthView {
    /// Packets judged.
    pub judged: u64,
    /// Packets charged: judged, admitted by all.
    pub charged: u64,
    /// Packets refused.
    pub refused: u64,
    /// Packets of flows that found no place in the table and were charged to the common entry.
    pub unplaced: u64,
    /// Flows with a shadow backlog.
    pub backlogged: u32,
    /// The shadow queues together.
    pub backlog: Bytes,
}

/// The dropper of one outgoing link.
///
/// ```
/// use evenkeel_core::drop::{BandwidthConfig, BandwidthFairDrop, ShareId};
/// use evenkeel_core::{BitRate, Bytes, Nanos};
///
/// let mut dropper = BandwidthFairDrop::new(BandwidthConfig::new(BitRate::from_mbps(100)))?;
/// // For two seconds, flow 1 offers 90 Mbit/s and flow 2 offers 30: the link carries 100.
/// let (mut admitted, mut now) = ([0; 2], 0);
/// while now < 2_000_000_000 {
///     now += 400_000;
///     dropper.begin_batch(Nanos(now));
///     for flow in [1, 2, 1, 1] {
///         let passed = dropper.admit(flow << 32 | flow, ShareId(0), Bytes(1_500)).is_ok();
///         admitted[flow as usize - 1] += u64::from(passed && now > 1_000_000_000);
///     }
/// }
/// let mbps = admitted.map(|packets| packets * 1_500 * 8 / 1_000_000);
/// assert!((69..=71).contains(&mbps[0]) && (29..=30).contains(&mbps[1]), "{mbps:?}");
/// # Ok::<(), evenkeel_core::settings::SettingError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BandwidthFairDrop {
    config: BandwidthConfig,
    shadow: Shadow,
    last: Option<Nanos>,
    /// Work below the last digit of the fixed point: bits x 2^16 x 10^12 that were not served yet.
    rest: u64,
    /// All queues together may be this long, bits with [`FRACTION`] bits.
    buffer: u128,
    /// The workers' shadows of the link, and whose this is.
    peers: Option<(Arc<SharedShadow>, usize)>,
    /// What is known of each of the others, as of this batch: group by group.
    elsewhere: Vec<Known>,
    /// How many others there are.
    others: usize,
    /// What is left there of all that.
    work_elsewhere: u128,
    /// By group, what has come here, wrapping.
    came: Vec<u64>,
    judged: u64,
    charged: u64,
    refused: u64,
}

/// Nanoseconds in a second, thousandths in one.
const SCALE: u128 = 1_000_000_000_000;

impl BandwidthFairDrop {
    /// A dropper with an empty shadow system. Allocates all it will ever need.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn new(config: BandwidthConfig) -> Result<Self, SettingError> {
        config.check()?;
        let shadow = Shadow::new(&config.table);
        let buffer = u128::from(config.buffer.0 * 8) << FRACTION;
        let (last, rest, peers) = (None, 0, None);
        let (elsewhere, came) = (Vec::new(), Vec::new());
        Ok(Self {
            config,
            shadow,
            last,
            rest,
            buffer,
            peers,
            elsewhere,
            others: 0,
            work_elsewhere: 0,
            came,
            judged: 0,
            charged: 0,
            refused: 0,
        })
    }

    /// From now on it judges for one of several workers that send on the link: its flows have their
    /// shares of it among all of theirs. The first worker, 0, says the rate.
    pub fn share(&mut self, shadows: Arc<SharedShadow>, worker: usize) {
        shadows.tell_rate(worker, self.config.rate);
        let groups = self.shadow.groups.len();
        self.others = shadows.others();
        self.elsewhere = alloc::vec![Known::default(); self.others * groups];
        // What came before is known to the others.
        self.came = (0..groups).map(|group| shadows.said(worker, group).came).collect();
        self.peers = Some((shadows, worker));
    }

    /// Before the first [`judge`](Self::judge) of a batch: the shadow is served up to `now`. The
    /// first call sets the start.
    pub fn begin_batch(&mut self, now: Nanos) {
        let last = self.last.replace(now).unwrap_or(now);
        // More than an hour empties everything that fits.
        let time = now.saturating_sub(last).0.min(3_600 * Nanos::SECOND.0);
        if let Some(rate) = self.peers.as_ref().and_then(|(shadows, _)| shadows.rate()) {
            self.config.rate = rate;
        }
        let per_time =
            (u128::from(self.config.rate.0) * u128::from(self.config.theta.0)) << FRACTION;
        let work = per_time * u128::from(time) + u128::from(self.rest);
        self.rest = (work % SCALE) as u64;
        let work = work / SCALE;
        if self.peers.is_some() {
            self.serve_part(now, work);
        } else {
            self.shadow.drain(u64::try_from(work).unwrap_or(u64::MAX));
        }
        let threshold = self.config.threshold.0 << (3 + FRACTION);
        let groups = 0..self.shadow.groups.len();
        let backlogged = groups.clone().filter(|at| self.weights(*at) > 0);
        let total = backlogged.map(|at| self.shadow.groups[at].weight).sum::<u64>().max(1);
        for at in groups {
            let group = &self.shadow.groups[at];
            let all = u128::from(total) * u128::from(self.weights(at).max(1));
            let due = self.buffer * u128::from(group.weight) / all;
            self.shadow.groups[at].limit = threshold.max(u64::try_from(due).unwrap_or(u64::MAX));
        }
    }

    /// What the backlogged flows of a group weigh, at all workers.
    fn weights(&self, group: usize) -> u64 {
        let elsewhere = &self.elsewhere[group * self.others..][..self.others];
        let elsewhere = elsewhere.iter().map(Known::backlogged);
        self.shadow.groups[group].weights + elsewhere.sum::<u64>()
    }

    /// Of `work`, which the link had for all workers since the last batch, serves what the flows of
    /// this one are due.
    fn serve_part(&mut self, now: Nanos, work: u128) {
        let Self { shadow, peers: Some((shadows, worker)), elsewhere, work_elsewhere, .. } = self
        else {
            return;
        };
        let others = self.others;
        for at in 0..shadow.groups.len() {
            shadows.hear(*worker, at, &mut elsewhere[at * others..][..others]);
        }
        let needs = |(at, group): (usize, &Group)| {
            let elsewhere = elsewhere[at * others..][..others].iter();
            let needs = elsewhere.map(|known| u128::from(known.needs)).sum::<u128>();
            (group.weight, group.backlog + needs)
        };
        let of_groups = level(work, shadow.groups.iter().enumerate().map(needs));
        shadows.tell_time(*worker, now);
        *work_elsewhere = 0;
        for at in 0..shadow.groups.len() {
            let group = &shadow.groups[at];
            let elsewhere = &mut elsewhere[at * others..][..others];
            let needs = elsewhere.iter().map(|known| (known.weights, known.needs.into()));
            let needs = needs.chain([(group.weights, group.backlog)]);
            let level = level(of_groups * u128::from(group.weight), needs);
            let part = group.backlog.min(level * u128::from(group.weights));
            shadow.serve(at, part.min(u128::from(MAX_CREDIT)) as u64);
            shadows.tell(*worker, at, shadow.groups[at].told(self.came[at]));
            for known in elsewhere {
                known.served(level);
                *work_elsewhere += u128::from(known.needs);
            }
        }
    }

    /// Whether a packet of this flow is within its share. Charges nothing: a packet that is
    /// admitted by all must be charged before the next one is judged. Admits whatever comes while
    /// the link is not backlogged.
    ///
    /// # Errors
    /// [`Reason::FairdropBandwidth`]: refuse it.
    #[inline]
    pub fn judge(&mut self, flow_hash: u64, share: ShareId) -> Result<Ticket, Reason> {
        let Looked { index, ahead, limit } = self.shadow.look(flow_hash, share);
        self.judged += 1;
        if ahead <= limit || self.shadow.work() + self.work_elsewhere <= self.buffer {
            return Ok(Ticket::of(index, ahead, false));
        }
        let flow = &mut self.shadow.table.flows[index as usize];
        flow.refused = flow.refused.saturating_add(1);
        self.refused += 1;
        Err(Reason::FairdropBandwidth)
    }

    /// The packet is admitted by all: its flow pays for its length on the wire.
    #[inline]
    pub fn charge(&mut self, ticket: Ticket, wire_len: Bytes) {
        self.charged += 1;
        let work = wire_len.0.min(1 << 20) << (3 + FRACTION);
        self.shadow.charge_looked_up(ticket.index(), ticket.ahead(), work);
        if let Some((shadows, worker)) = &self.peers {
            let group = usize::from(self.shadow.share(ticket.index()).group);
            self.came[group] = self.came[group].wrapping_add(work);
            shadows.tell(*worker, group, self.shadow.groups[group].told(self.came[group]));
        }
    }

    /// [`judge`](Self::judge) and [`charge`](Self::charge) in one.
    ///
    /// # Errors
    /// [`Reason::FairdropBandwidth`]: refuse it.
    #[inline]
    pub fn admit(&mut self, flow_hash: u64, share: ShareId, wire_len: Bytes) -> Result<(), Reason> {
        let ticket = self.judge(flow_hash, share)?;
        self.charge(ticket, wire_len);
        Ok(())
    }

    /// Rate, theta, threshold and buffer are others from `now` on; the table is left as it is.
    ///
    /// # Errors
    /// A value out of its range; nothing changes then.
    pub fn set(&mut self, now: Nanos, config: &BandwidthConfig) -> Result<(), SettingError> {
        let changed = BandwidthConfig { table: self.config.table.clone(), ..config.clone() };
        changed.check()?;
        self.begin_batch(now);
        self.buffer = u128::from(changed.buffer.0 * 8) << FRACTION;
        self.config = changed;
        if let Some((shadows, worker)) = &self.peers {
            shadows.tell_rate(*worker, self.config.rate);
        }
        Ok(())
    }

    /// The link has another rate from `now` on.
    ///
    /// # Errors
    /// A rate out of its range; nothing changes then.
    pub fn set_rate(&mut self, now: Nanos, rate: BitRate) -> Result<(), SettingError> {
        let changed = BandwidthConfig { rate, ..self.config.clone() };
        self.set(now, &changed)
    }

    /// Changes weights of flows and groups, whatever their backlogs.
    ///
    /// # Errors
    /// A value out of its range, or another number of groups; nothing changes then.
    pub fn set_shares(&mut self, table: &FlowTableConfig) -> Result<(), SettingError> {
        let table = FlowTableConfig { flows: self.config.table.flows, ..table.clone() };
        table.check()?;
        self.shadow.reweigh(&table)?;
        self.config.table = table;
        Ok(())
    }

    /// The configuration as it is now.
    #[must_use]
    pub fn config(&self) -> &BandwidthConfig {
        &self.config
    }

    /// Counters.
    #[must_use]
    pub fn view(&self) -> BandwidthView {
        BandwidthView {
            judged: self.judged,
            charged: self.charged,
            refused: self.refused,
            unplaced: self.shadow.table.unplaced,
            backlogged: self.shadow.backlogged(),
            backlog: Bytes(self.shadow.backlog() / 8),
        }
    }

    /// The flows of the table, in the order of their places.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.shadow.views()
    }
}
