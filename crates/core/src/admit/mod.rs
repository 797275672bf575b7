//! Who may enter: admission of new flows to an outgoing link (flow-aware networking,
//! "cross-protect").
//!
//! Source: Oueslati, Roberts (US 7 646 715 B2; cross-protect) and Domzal et al., "Click-based tests
//! of QoS mechanisms for flow-based router" (IEEE GLOBECOM 2020) with the papers it builds on; each
//! mechanism's file names its own. A flow that is on the list of protected flows passes whatever
//! the state of the link; a new one is refused while the link is congested:
//!
//! ```text
//! congested  <=>  FR < min_FR  or  PL > max_PL  or  the list is full       (strict comparisons)
//! ```
//!
//! | symbol | here | unit |
//! |---|---|---|
//! | C, min_FR, max_PL, T_FR, T_PL | [`AdmissionConfig`] | bit/s, shares of C, ns |
//! | FR, PL | [`AdmissionView::fair_rate`], [`AdmissionView::priority_load`]; see [`estimate`] | bit/s, share of C |
//! | PFL | the list of protected flows, 64 bytes per flow | flows |
//!
//! **Order of operations** for a packet whose outgoing link is known; every step can be off:
//!
//! 1. the router's own control packets pass, in a bucket of their own; ECM: emergency flows pass
//!    ([`EmergencyConfig`]);
//! 2. MFAN: flows of the second link go there; protected flows pass;
//! 3. RBAEF: blocked flows are refused;
//! 4. congested, or as many flows expected as min_FR has room for: ECCM may open the link, or the
//!    flushing family clears the list;
//! 5. still congested: flows of the GPFL enter; MFAN sends a flow to the second link; newcomers
//!    enter as guests while there is a place; others are refused;
//! 6. not congested: awaited flows first (RPAEF, RAMAF), PUF, the budget of first packets; then the
//!    flow is listed and passes;
//! 7. the scheduler takes the packet in and [`Admission::treated`] learns its class, which keeps
//!    flow classes and the GPFL.
//!
//! Where several refuse, the first in this order is the [`Reason`].
//! `packets = passed by rule + diverted + refused by reason` at every instant.
//!
//! **Time.** Estimates happen at timer instants: the caller calls [`Admission::tick`] at
//! [`Admission::next_tick`], also while nothing arrives. A caller that is late gets one estimate
//! over the longer interval.
//!
//! **Subscribers.** Where a tree shares the link between them, each has a fair rate of its own, and
//! is closed to new flows or open for itself (`plans.rs`): step 4 asks that, and neither FR nor PL
//! of the link.
//!
//! **Several workers** of one link have an admission each, for the flows that they meet: lists,
//! and histories are a worker's own; estimates, the budget, what has been let in since the last
//! estimate, places of guests, ECCM's windows, clearings of the flushing family and the load of
//! MFAN's second link are the link's ([`Admission::share`]), as are users ([`share_users`]). All
//! open and close within an interval of the estimate of each other. RAMAF and RMAEF need one.
//!
//! [`share_users`]: Admission::share_users
//!
//! **Memory and cost.** All tables have their size from the configuration. Constant expected time
//! per packet; no allocation, except by `new`, `set`, `view` and `explain`. A clearing passes over
//! the whole list. Hashes are seeded by the caller.
//!
//! **Attacks.** A flood of one-packet flows meets the [budget](BudgetConfig) and the probation
//! time-out; a source that cycles ports meets PUF; a full list is congestion, and is left by
//! probation. What a flood of flows of several packets takes is said there; one whose flows come
//! again after two intervals of the load is believed.
//!
//! Not implemented: AFAN's alternative estimator from m_fair (a matter of the scheduler's meter),
//! and what the files of the mechanisms name.

mod budget;
mod clearing;
pub mod config;
mod congestion;
mod decide;
mod eccm;
mod emergency;
pub mod estimate;
mod flush;
mod global;
mod history;
mod look_ahead;
mod newcomers;
mod peers;
mod per_user;
mod pinning;
mod plans;
mod protected;
mod runs;
mod second_link;
pub mod view;

use alloc::sync::Arc;
use alloc::vec::Vec;

pub use budget::{BudgetConfig, CALM, FLOOD_FLOWS, MATURE};
pub use config::{AdmissionConfig, FlowsConfig, OWN_BURST, OWN_SHARE, OnLink};
pub use eccm::EccmConfig;
pub use emergency::{EmergencyConfig, EmergencyRule};
pub use flush::{Flush, FlushConfig};
pub use global::{RouterLists, RouterListsConfig};
pub use per_user::{Owner, PerUserConfig, USERS_TOLD, UserBy};
pub use pinning::PinningConfig;
pub use runs::ProtectedRun;
pub use second_link::{SecondLinkConfig, SecondLinkPolicy};
pub use view::*;

use crate::flow_table::{EntryId, PackedFlow, fold};
use crate::measure::Histogram;
use crate::packet::FlowKey;
use crate::reason::Reason;
use crate::schedule::{Meters, Sharing, Treated};
use crate::settings::{SettingError, Settings};
use crate::shape::{Shaper, ShaperConfig};
use crate::share::SharedLink;
use crate::units::{BitRate, Bytes, Nanos, Ppm};
use budget::Budget;
use eccm::Eccm;
use emergency::Emergency;
use estimate::Estimates;
use flush::Flushing;
use history::{Decided, History};
use newcomers::Newcomers;
use peers::Peers;
use per_user::PerUser;
use protected::ProtectedList;
use second_link::SecondLink;

/// What the scheduler and the wire were measured to have done, as of now. All are cumulated and
/// monotone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Observed {
    /// Bytes that a fictitious flow that always has packets would have been sent; `None`: the
    /// discipline does not tell, and the fair rate counts as C.
    pub fair_bytes: Option<Bytes>,
    /// Bytes that the scheduler took as priority.
    pub priority_bytes: Option<Bytes>,
    /// Time the wire was idle.
    pub idle: Nanos,
    /// Elastic flows that wait just now; `None`: the discipline does not tell.
    pub elastic_flows: Option<u32>,
}

impl Observed {
    /// From a discipline's meters and the idle time of its wire, as of `now`. Where several workers
    /// share the link, both are of all workers, and the wire of one of them does not count.
    #[must_use]
    pub fn new(meters: &Meters, idle: Nanos, now: Nanos) -> Self {
        let idle = meters.busy.map_or(idle, |busy| now.saturating_sub(busy));
        let Meters { fair_bytes, priority_bytes, elastic_flows, .. } = *meters;
        Self { fair_bytes, priority_bytes, idle, elastic_flows }
    }
}

/// What a decision asks the scheduler.
pub trait Waiting {
    /// How many bytes wait of a flow; asked only when the most active flows are looked for.
    fn of_flow(&self, flow: &FlowKey) -> Bytes;

    /// What the flows of a subscriber share; asked only for new flows, where subscribers share the
    /// link.
    fn sharing(&self, _subscriber: u32) -> Option<Sharing> {
        None
    }
}

impl<F: Fn(&FlowKey) -> Bytes> Waiting for F {
    fn of_flow(&self, flow: &FlowKey) -> Bytes {
        self(flow)
    }
}

/// The scheduler of the link, as far as decisions ask it.
pub type Backlogs<'a> = &'a dyn Waiting;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Verdict {
    /// It goes to the scheduler.
    Pass,
    /// It is dropped.
    Refuse(Reason),
    /// It goes to the second link (MFAN).
    Divert,
}

/// FR is forced to min_FR.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Forced {
    until: Nanos,
    by_eccm: bool,
    /// ECCM's table is full: nothing more enters before the estimate that ends the window.
    closed: bool,
}

/// The flow of the last packet decided upon: what [`Admission::treated`] is told is about it, and
/// it need not be looked up again.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// Not listed, and not asked for.
    Nothing,
    /// Its place on the list, and its hash.
    Listed(EntryId, u64),
    /// It is not listed, but may be on the GPFL.
    Unlisted(PackedFlow, u64),
}

/// Admission control of one outgoing link. See the [module](self).
///
/// The caller keeps this order: [`tick`](Self::tick) whenever [`next_tick`](Self::next_tick) has
/// come (before a packet of the same instant), [`decide`](Self::decide) for each packet whose
/// outgoing link is known, and for a packet that passed, after the scheduler took it in,
/// [`treated`](Self::treated). Times are monotonic.
#[derive(Clone, Debug)]
pub struct Admission {
    config: AdmissionConfig,
    seed: u64,
    random: u64,
    /// min_FR: what the configuration comes to, asked several times for each new flow.
    min_fair: BitRate,
    estimates: Estimates,
    /// Other workers that let flows in to the same link.
    peers: Option<Peers>,
    fair_due: Nanos,
    load_due: Nanos,
    /// See [`Admission::next_tick`].
    due: Nanos,
    forced: Option<Forced>,
    /// Until when the link counts as congested for the choice of paths.
    costly_until: Nanos,
    down_since: Option<Nanos>,
    list: ProtectedList,
    last: Last,
    /// What the router itself sends without being admitted.
    own: Shaper,
    history: History,
    newcomers: Newcomers,
    budget: Option<Budget>,
    emergency: Option<Emergency>,
    eccm: Option<Eccm>,
    per_user: Option<PerUser>,
    flushing: Option<Flushing>,
    second: Option<SecondLink>,
    counts: AdmissionCounts,
    passed: [u64; Rule::ALL.len()],
    refused: [u64; Reason::COUNT],
    removed: [u64; Removal::ALL.len()],
    accept_delay: Histogram,
}

impl Admission {
    /// An admission control that starts at `now`: FR = C, PL = 0, nothing listed. What it observes
    /// is taken to have counted nothing yet; otherwise say so with [`link_up`](Self::link_up).
    /// `seed` should be random per boot.
    ///
    /// # Errors
    /// [`SettingError`]: a value out of its range, or values that contradict each other.
    pub fn new(config: AdmissionConfig, seed: u64, now: Nanos) -> Result<Self, SettingError> {
        config.check_on_link()?;
        let nothing = Observed {
            fair_bytes: Some(Bytes::ZERO),
            priority_bytes: Some(Bytes::ZERO),
            ..Observed::default()
        };
        let mut admission = Self {
            seed,
            random: fold(seed, 1),
            min_fair: BitRate(config.min_fair_bits()),
            estimates: Estimates::new(config.rate, now, &nothing),
            peers: None,
            fair_due: now.saturating_add(config.fair_rate_interval),
            load_due: now.saturating_add(config.load_interval),
            due: Nanos::ZERO,
            forced: None,
            costly_until: Nanos::ZERO,
            down_since: None,
            list: ProtectedList::new(&config, fold(seed, 2))?,
            last: Last::Nothing,
            own: Shaper::new(own_bucket(&config), now),
            history: History::new(config.history, fold(seed, 3))?,
            newcomers: Newcomers::new(),
            budget: None,
            emergency: None,
            eccm: None,
            per_user: None,
            flushing: None,
            second: None,
            counts: AdmissionCounts::default(),
            passed: [0; Rule::ALL.len()],
            refused: [0; Reason::COUNT],
            removed: [0; Removal::ALL.len()],
            accept_delay: Histogram::new(),
            config: config.clone(),
        };
        admission.configure(now, config)?;
        Ok(admission)
    }

    /// Builds, changes or drops what the mechanisms need. What can be refused is built before
    /// anything changes.
    fn configure(&mut self, now: Nanos, config: AdmissionConfig) -> Result<(), SettingError> {
        let (users, flush, other) = (&config.per_user, config.flushing, &config.second_link);
        let same_users = self.per_user.as_ref().is_some_and(|built| built.config == *users);
        let mut per_user = (users.on && !same_users)
            .then(|| PerUser::new(users.clone(), fold(self.seed, 4)))
            .transpose()?;
        let same_flush =
            self.flushing.as_ref().map(|built| (built.config.kind, built.config.table))
                == Some((flush.kind, flush.table));
        let flushing = (flush.kind != Flush::Off && !same_flush)
            .then(|| Flushing::new(flush, fold(self.seed, 5), now))
            .transpose()?;
        let same_flows =
            self.second.as_ref().is_some_and(|built| built.config.flows == other.flows);
        let second = (other.rate.is_some() && !same_flows)
            .then(|| SecondLink::new(other.clone(), fold(self.seed, 6), now))
            .transpose()?;
        // From here on nothing is refused.
        if let (Some(new), Some(old)) = (&mut per_user, &self.per_user) {
            new.follow(old);
        }
        self.per_user = per_user.or(self.per_user.take().filter(|_| users.on));
        self.flushing = flushing.or(self.flushing.take().filter(|_| flush.kind != Flush::Off));
        if let Some(flushing) = &mut self.flushing {
            flushing.configure(flush);
        }
        self.second = second.or(self.second.take().filter(|_| other.rate.is_some()));
        if let Some(second) = &mut self.second {
            second.config = other.clone();
            if !same_flows {
                second.share(self.peers.clone());
            }
        }
        let wanted = config.eccm;
        self.eccm = match self.eccm.take() {
            _ if !wanted.on => None,
            Some(mut built) if built.config.table == wanted.table => {
                built.config = wanted;
                Some(built)
            }
            _ => Some(Eccm::new(wanted)),
        };
        if self.eccm.is_none() && self.forced.is_some_and(|forced| forced.by_eccm) {
            // The window ends without its estimate: it is taken at the next tick.
            self.fair_due = self.fair_due.min(now);
            self.forced = None;
        }
        self.emergency = Emergency::new(&config.emergency);
        let free = Ppm(config.max_priority_load.0.saturating_sub(self.estimates.load.0));
        self.budget = match self.budget.take() {
            _ if !config.budget.on => None,
            Some(mut built) => {
                built.configure(config.budget);
                Some(built)
            }
            None => Some(Budget::new(config.budget, now, config.load_interval, config.rate, free)),
        };
        if let Some(budget) = &mut self.budget {
            budget.share(self.peers.clone());
        }
        self.estimates.fair = self.estimates.fair.min(config.rate);
        self.fair_due = self.fair_due.min(now.saturating_add(config.fair_rate_interval));
        self.load_due = self.load_due.min(now.saturating_add(config.load_interval));
        self.list.configure(&config);
        self.own.reconfigure(now, own_bucket(&config));
        self.min_fair = BitRate(config.min_fair_bits());
        self.config = config;
        let congested = self.fair() < self.min_fair();
        if let Some(eccm) = &mut self.eccm {
            eccm.estimated(now, congested, false);
        }
        self.due = self.when_due();
        Ok(())
    }

    /// From now on it decides about the flows of this worker of several: what the others let in
    /// counts against the budget of first packets; `None`: about all flows. Fair rate and priority
    /// load are those of the whole link if what is [`Observed`] is, as the disciplines of
    /// `schedule::shared_flows` have it.
    pub fn share(&mut self, place: Option<(Arc<SharedLink>, usize)>) {
        self.peers = place.map(|(link, worker)| Peers::new(link, worker));
        if let Some(budget) = &mut self.budget {
            budget.share(self.peers.clone());
        }
        if let Some(second) = &mut self.second {
            second.share(self.peers.clone());
        }
        self.share_clearings();
    }

    /// Changes knobs while packets flow: pass a changed copy of [`config`](Self::config).
    /// Thresholds hold at once, intervals from the next estimate on; mechanisms that are switched
    /// off forget their lists. Allocates where lists change their size.
    ///
    /// # Errors
    /// [`SettingError`]; nothing changed then.
    pub fn set(&mut self, now: Nanos, config: AdmissionConfig) -> Result<(), SettingError> {
        config.check_on_link()?;
        self.config.keeps_fixed(&config)?;
        self.configure(now, config)
    }

    /// What it was told.
    #[must_use]
    pub fn config(&self) -> &AdmissionConfig {
        &self.config
    }

    /// Learns how the scheduler treated the packet that [`decide`](Self::decide) has just passed:
    /// the flow's class, and the GPFL. Before the next decision.
    #[inline]
    pub fn treated(&mut self, now: Nanos, treated: Treated, lists: &mut RouterLists) {
        let elastic = match treated {
            Treated::Priority => false,
            Treated::Queued => true,
            Treated::Dropped(_) => return,
        };
        if let Last::Listed(id, _) = self.last {
            self.list.treated(id, now, elastic);
        }
        if self.config.global_list {
            self.tell_all(now, elastic, lists);
        }
    }

    /// Tells the router's list how the flow was treated.
    #[inline(never)] // few links ask for it
    fn tell_all(&self, now: Nanos, elastic: bool, lists: &mut RouterLists) {
        let (key, hash) = match &self.last {
            Last::Nothing => return,
            Last::Listed(id, hash) => (self.list.key(*id), *hash),
            Last::Unlisted(key, hash) => (key, *hash),
        };
        if elastic {
            lists.elastic(hash, key);
        } else {
            lists.priority(now, hash, key);
        }
    }

    /// Looks at some places of the list and takes off what is stale.
    fn sweep(&mut self, now: Nanos, places: u32) {
        let mut left = places;
        while let Some((id, removal, silent, allowed)) = self.list.next_stale(now, &mut left) {
            self.remove(now, id, removal, Measure::Time, (silent.0, allowed.0));
        }
    }

    /// Takes a flow off the list.
    fn remove(
        &mut self,
        now: Nanos,
        id: EntryId,
        removal: Removal,
        measure: Measure,
        held: (u64, u64),
    ) {
        let key = *self.list.key(id);
        self.list.remove(id);
        if let Last::Listed(at, hash) = self.last
            && at == id
        {
            self.last =
                if self.config.global_list { Last::Unlisted(key, hash) } else { Last::Nothing };
        }
        self.removed[removal as usize] += 1;
        let (value, threshold) = held;
        // A one-packet flow that is gone is no news: it must not push out records of flows that
        // wait.
        if removal != Removal::OnePacket {
            let _ = self.history.note(
                now,
                &key,
                Decided { event: Event::Removed(removal), measure, value, threshold },
            );
        }
    }

    /// The link went down: what is listed stays, so that a fast repair is not noticed.
    pub fn link_down(&mut self, now: Nanos) {
        self.down_since = self.down_since.or(Some(now));
    }

    /// The link came up, or what is observed starts anew: FR = C and PL = 0 until the next
    /// estimates. If it was down for longer than the flow time-out, all flows are given up.
    pub fn link_up(&mut self, now: Nanos, observed: &Observed) {
        if let Some(since) = self.down_since.take()
            && now.saturating_sub(since) > self.config.flow_timeout
        {
            let down = now.saturating_sub(since).0;
            for place in 0..self.list.capacity() {
                if let Some(id) = self.list.selected(place, now, true, Nanos::ZERO) {
                    let held = (down, self.config.flow_timeout.0);
                    self.remove(now, id, Removal::LinkDown, Measure::Time, held);
                }
            }
        }
        self.estimates = Estimates::new(self.config.rate, now, observed);
        self.forced = None;
        self.fair_due = now.saturating_add(self.config.fair_rate_interval);
        self.load_due = now.saturating_add(self.config.load_interval);
        if let Some(eccm) = &mut self.eccm {
            eccm.estimated(now, false, true);
        }
        self.due = self.when_due();
    }

    /// The state now. Allocates for the list of users.
    #[must_use]
    pub fn view(&self) -> AdmissionView {
        let config = &self.config;
        let memory = self.list.memory()
            + self.history.memory()
            + Newcomers::memory()
            + self.eccm.as_ref().map_or(0, Eccm::memory)
            + self.per_user.as_ref().map_or(0, PerUser::memory)
            + self.flushing.as_ref().map_or(0, Flushing::memory)
            + self.second.as_ref().map_or(0, SecondLink::memory);
        AdmissionView {
            fair_rate: self.fair(),
            min_fair_rate: self.min_fair(),
            priority_load: self.estimates.load,
            max_priority_load: config.max_priority_load,
            congested: self.cause(self.min_fair(), config.max_priority_load),
            forced_until: self.forced.map(|forced| forced.until),
            protected: self.list.len(),
            streaming: self.list.len() - self.list.elastic(),
            elastic: self.list.elastic(),
            probation: self.list.unproved(),
            capacity: self.list.capacity(),
            diverted: self.second.as_ref().map_or(0, SecondLink::len),
            counts: AdmissionCounts {
                class_flips: self.list.flips(),
                forgotten: self.history.forgotten(),
                ..self.counts.clone()
            },
            passed: self.passed,
            refused: self.refused,
            removed: self.removed,
            by_subscriber: config.by_subscriber,
            flood: self.budget.as_ref().is_some_and(Budget::flood),
            accept_delay: self.accept_delay.clone(),
            users: self.per_user.as_ref().map_or_else(Vec::new, PerUser::busiest),
            memory,
        }
    }

    /// Every protected flow with what is known of it, in no order. Flows that are stale and not
    /// found yet are among them.
    pub fn flows(&self, now: Nanos) -> impl Iterator<Item = (FlowKey, ProtectedFlow)> + '_ {
        self.list.flows(now).map(|(key, flow)| (key.unpack(), self.without_pin(flow)))
    }

    /// Goes on protecting a flow that another process protected, whose hash is `hash`, as far as
    /// there is room: since when it is listed, what it has sent of late and its path stay.
    pub fn go_on(&mut self, now: Nanos, hash: u64, flow: &FlowKey, known: &ProtectedFlow) {
        let key = PackedFlow::new(flow);
        if self.list.find(hash, &key).is_none() {
            self.list.go_on(hash, key, known, now);
        }
    }

    fn without_pin(&self, flow: ProtectedFlow) -> ProtectedFlow {
        ProtectedFlow { pin: flow.pin.filter(|_| self.config.pinning.on), ..flow }
    }

    /// What happened to the packets of a flow, whose hash is `hash`; also of refused ones, as long
    /// as the history remembers.
    #[must_use]
    pub fn explain(&self, now: Nanos, flow: &FlowKey, hash: u64) -> Explanation {
        let key = PackedFlow::new(flow);
        let live = self.list.find(hash, &key).filter(|id| self.list.expired(*id, now).is_none());
        let record = self.history.find(&key);
        Explanation {
            flow: *flow,
            emergency: self.emergency.as_ref().is_some_and(|emergency| emergency.matches(flow)),
            protected: live.map(|id| self.without_pin(self.list.describe(id, now))),
            diverted: self
                .second
                .as_ref()
                .is_some_and(|second| second.lists(key.hash(self.seed), &key)),
            blocked_until: self
                .flushing
                .as_ref()
                .and_then(|f| f.blocked(now, key.hash(self.seed), &key)),
            first_seen: record.map(|record| record.first_seen),
            waiting_since: record.and_then(|record| record.waiting_since),
            refused: record.map_or(0, |record| record.refused),
            decisions: record.map_or_else(Vec::new, |record| record.decisions().copied().collect()),
        }
    }

    /// A number from 0 to 999 999 (splitmix64).
    fn draw(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((u128::from(fold(self.random, self.seed)) * 1_000_000) >> 64) as u32
    }
}

/// What bounds the router's own control packets.
fn own_bucket(config: &AdmissionConfig) -> ShaperConfig {
    ShaperConfig { rate: BitRate(OWN_SHARE.of(config.rate.0)), burst: OWN_BURST }
}
