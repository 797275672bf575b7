//! Admission to an outgoing link, between the choice of the link and its scheduler.
//!
//! ```text
//!  class ─▶ admission: estimates due? ─▶ decide ─ pass ──▶ scheduler ─▶ treated (priority or not)
//!                                          ├─ divert ────▶ scheduler of the second link
//!                                          └─ refuse ────▶ dropped, counted at the link by reason
//! ```
//!
//! Estimates are taken in the order of virtual time between arrivals and completions, as those of
//! the dynamic control: the link advances to the instant of an estimate before its meters are read,
//! however late the worker comes. A link without admission asks one `Option`.
//!
//! **Conservation.** A packet that is refused counts as offered to its link and as dropped there,
//! by reason, in its class; one that is diverted counts at the second link only. So the identities
//! of the [pipeline](super) hold unchanged, and per link
//! `packets = Σ passed + Σ refused + diverted` of [`AdmissionSnapshot`].

use evenkeel_core::Nanos;
use evenkeel_core::admit::{Admission, FlowsConfig, Observed, RouterLists};
use evenkeel_core::packet::Places;
use evenkeel_core::schedule::{AnyScheduler, Scheduler};
use evenkeel_core::settings::SettingError;

use super::egress::OutgoingLink;
use super::flow_cache::Probe;
use super::packet::{QueuedPacket, VECTOR};
use super::port::PortSlot;
use super::store::Store;
use super::subscribers::Behind;
use crate::snapshot::AdmissionSnapshot;

/// More missed estimates than this are one.
const PAUSE: u64 = 16;

/// What the admissions of all links share.
pub(super) struct Admissions {
    /// As configured.
    pub(super) section: FlowsConfig,
    pub(super) lists: RouterLists,
    /// Whether some link pins flows to their paths.
    pub(super) pins: bool,
}

impl Admissions {
    pub(super) fn new(section: &FlowsConfig) -> Result<Self, SettingError> {
        let lists = RouterLists::unused(section.lists)?;
        Ok(Self { section: section.clone(), lists, pins: false })
    }

    /// Some link uses the lists now: they take their memory, unless they have.
    pub(super) fn provide(
        &mut self,
        built: Option<RouterLists>,
        seed: u64,
    ) -> Result<(), SettingError> {
        if self.lists.is_unused() {
            let built = built.filter(|built| *built.config() == self.section.lists);
            self.lists = built.map_or_else(|| RouterLists::new(self.section.lists, seed), Ok)?;
        }
        Ok(())
    }

    /// The lists of another pipeline, if they have the size that is wanted here.
    pub(super) fn take_over(&mut self, old: Self) {
        if self.section.lists == old.section.lists && !old.lists.is_unused() {
            self.lists = old.lists;
        }
    }
}

impl PortSlot {
    /// Lets the admission of the link do what is due up to `now`, each at its own instant.
    #[inline]
    pub(super) fn admit_until(&mut self, now: Nanos, pool: &mut Store) {
        // Asked for every packet, and rarely due: only then is it worth moving it out.
        if self.estimates_by(now) {
            self.estimate_now(now, pool);
        }
    }

    #[inline]
    pub(super) fn estimates_by(&self, now: Nanos) -> bool {
        self.admission_due().is_some_and(|due| due <= now)
    }

    #[cold]
    fn estimate_now(&mut self, now: Nanos, pool: &mut Store) {
        let Some(mut admission) = self.admission.take() else { return };
        while admission.next_tick() <= now {
            let at = late_tick(&admission, now);
            let (link, mut egress) = self.outgoing(pool);
            link.advance(at, &mut egress);
            admission.tick(at, &observed(link, at));
        }
        self.admission = Some(admission);
    }

    /// Where admission and scheduler look up the flow of a packet, as things are.
    #[inline]
    pub(super) fn tables(&self) -> FlowTables<'_> {
        let looks = self.link.looks_up_flows();
        FlowTables {
            admission: self.admission.as_deref(),
            scheduler: looks.then_some(self.link.scheduler()),
        }
    }

    /// When the admission of the link has something to do.
    pub(super) fn admission_due(&self) -> Option<Nanos> {
        self.admission.as_ref().map(|admission| admission.next_tick())
    }

    /// The link went down or came up.
    pub(super) fn notify_admission(&mut self, now: Nanos, up: bool) {
        let Some(admission) = &mut self.admission else { return };
        if up {
            admission.link_up(now, &observed(&self.link, now));
        } else {
            admission.link_down(now);
        }
    }
}

/// What a link will look up of the flow of a packet.
#[derive(Clone, Copy)]
pub(super) struct FlowTables<'a> {
    admission: Option<&'a Admission>,
    scheduler: Option<&'a AnyScheduler<QueuedPacket>>,
}

impl FlowTables<'_> {
    /// Whether anybody will look for a flow.
    #[inline]
    pub(super) fn are_asked(self) -> bool {
        self.admission.is_some() || self.scheduler.is_some()
    }

    /// Prefetches the flow of this hash where it may be, or else what finds it. Whether there is
    /// more to [prefetch](Self::prefetch) then.
    #[inline(always)] // a part of two loops over packets
    pub(super) fn begin(self, flow_hash: u64, places: Places) -> bool {
        let listed = self.admission.is_some_and(|admission| {
            begin(places.listed, admission.places_ahead(), || admission.prefetch_bucket(flow_hash))
        });
        let queued = self.scheduler.is_some_and(|scheduler| {
            begin(
                places.queue,
                |place| scheduler.prefetch_place(place),
                || scheduler.prefetch_bucket(flow_hash),
            )
        });
        listed | queued
    }

    /// The same of known flows.
    #[inline(never)] // so that it has the registers for itself
    pub(super) fn begin_all<'a>(self, probes: impl Iterator<Item = &'a Probe>) -> bool {
        // Where the list lies and which discipline it is, is asked once.
        let listed = self.admission.map(Admission::places_ahead);
        let (mut queued, mut count, mut more) = ([0; VECTOR], 0, false);
        for Probe { hash, places, .. } in probes {
            if let (Some(admission), Some(ahead)) = (self.admission, &listed) {
                more |= begin(places.listed, ahead, || find_listed(admission, *hash));
            }
            let Some(scheduler) = self.scheduler else { continue };
            match queued.get_mut(count) {
                Some(place) if places.queue != Places::NOWHERE => {
                    *place = places.queue;
                    count += 1;
                }
                _ => {
                    scheduler.prefetch_bucket(*hash);
                    more = true;
                }
            }
        }
        if let Some(scheduler) = self.scheduler {
            scheduler.prefetch_places(&queued[..count]);
        }
        more
    }

    /// Prefetches what is kept of the flow of this hash, where that was not known to begin with,
    /// once what finds it has come.
    #[inline]
    pub(super) fn prefetch(self, flow_hash: u64, places: Places) {
        if let Some(admission) = self.admission
            && places.listed == Places::NOWHERE
        {
            admission.prefetch(flow_hash);
        }
        if let Some(scheduler) = self.scheduler
            && places.queue == Places::NOWHERE
        {
            scheduler.prefetch(flow_hash);
        }
    }
}

/// Prefetches what finds a flow in the list.
#[inline(never)] // or where that lies is asked for every flow of a loop over packets
fn find_listed(admission: &Admission, flow_hash: u64) {
    admission.prefetch_bucket(flow_hash);
}

/// Prefetches the flow that may be at a place, or else what finds it. Whether that is so.
#[inline(always)] // two of each are all that there is in a loop over packets
fn begin(place: u32, prefetch: impl FnOnce(u32), find: impl FnOnce()) -> bool {
    if place == Places::NOWHERE {
        find();
        return true;
    }
    prefetch(place);
    false
}

/// When to take the next estimate at `now`: when it was due, or, after a pause of many intervals,
/// just now, one for all of them. Each sweeps a part of the list, and hundreds would hold up what
/// has come.
fn late_tick(admission: &Admission, now: Nanos) -> Nanos {
    let due = admission.next_tick();
    let pause = Nanos(admission.config().load_interval.0.saturating_mul(PAUSE));
    if now.saturating_sub(due) > pause { now } else { due }
}

/// What scheduler and wire have done up to `at`, to which the link has advanced. For a link that
/// several workers share: what all of them have done.
fn observed(link: &OutgoingLink, at: Nanos) -> Observed {
    Observed::new(&link.scheduler().meters(), link.idle_time(at), at)
}

impl PortSlot {
    /// The admission of the link as plain data.
    pub(super) fn admission_view(&self) -> Option<AdmissionSnapshot> {
        let name = |place: u32| {
            let of = |behind: &Behind| behind.name_of(place).to_owned();
            self.behind.as_deref().map_or_else(|| place.to_string(), of)
        };
        self.admission.as_ref().map(|admission| AdmissionSnapshot::of(&admission.view(), name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reload may bring the first link that uses the lists, and a pipeline with it.
    #[test]
    fn lists_that_nobody_used_do_not_replace_those_that_somebody_does() {
        let section = FlowsConfig::default();
        let new = || Admissions::new(&section).unwrap();
        let (mut used, unused) = (new(), new());
        used.provide(None, 1).unwrap();
        used.take_over(unused);
        assert!(!used.lists.is_unused());
        let mut next = new();
        next.take_over(used);
        assert!(!next.lists.is_unused(), "what is known of flows goes on");
    }
}
