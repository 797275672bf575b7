//! Where the worker's cycles go: by stage, by class of traffic, and what refusing costs.
//!
//! The counter is read once per packet, and at every stage of one packet in `SAMPLE`; around
//! services always. What fetching and sending a burst takes, and looking ahead, is divided evenly
//! among its packets: fetching and looking ahead among all, sending among those that were handed to
//! a link.
//!
//! ```text
//! fetch ─┬─ look ahead ─ judge ── route ─ [service] ─ schedule ─┬─ transmit     look ahead: parse, flow hash, class, route (without FairDrop)
//!        │  (a vector)   └────────── one packet ──────────────┘ │               judge: FairDrop's questions; route: neighbour, rewrite
//!        └────────────── one round ─────────────────────────────┘
//! ```
//!
//! The clock is the worker's: a time-stamp counter, or in tests and simulations a [`VirtualCycles`]
//! that only moves when told to.

use evenkeel_core::drop::ProcessingClass;
use evenkeel_core::{Class, Cycles};

use crate::snapshot::{ClassCycles, CycleSnapshot, StageCycles};

/// One packet in so many is measured at every stage.
const SAMPLE: u32 = 16;

/// What takes a second divided by this is long enough to have been interrupted by another thread:
/// the kernel gives nobody less. Asking takes a hundredth of it.
const LONG: u64 = 20_000;
/// Rounds in a row that were interrupted for nobody knows how long, after which one counts all the
/// same: costs of packets that take longer than the thread may run are learnt, too.
const MOST_LEFT_OUT: u32 = 16;

/// What cycles are read from, and spent on.
pub trait CycleClock: Send {
    /// The counter now; never back.
    fn now(&mut self) -> Cycles;
    /// Lets this many cycles pass with work on nothing.
    fn spend(&mut self, cycles: Cycles);
    /// Cycles per second.
    fn hertz(&self) -> u64;
    /// Cycles that others had since the last call, while the thread was stopped for them: they are
    /// in the counter too. `None`: some, but nobody knows how many. Asked where something
    /// took long only.
    fn taken(&mut self) -> Option<Cycles> {
        Some(Cycles(0))
    }
    /// What it is, in words for people.
    fn source(&self) -> String;
}

/// Cycles of a machine that does not exist: they pass when they are spent, and when `step` says
/// what reading them takes.
#[derive(Clone, Copy, Debug)]
pub struct VirtualCycles {
    now: u64,
    step: u64,
    hertz: u64,
}

impl VirtualCycles {
    /// `hertz` cycles per second; every reading finds `step` cycles gone since the one before.
    #[must_use]
    pub const fn new(hertz: u64, step: u64) -> Self {
        Self { now: 0, step, hertz }
    }
}

impl Default for VirtualCycles {
    /// A machine of 2.6 GHz on which everything but services is free.
    fn default() -> Self {
        Self::new(2_600_000_000, 0)
    }
}

impl CycleClock for VirtualCycles {
    fn now(&mut self) -> Cycles {
        self.now += self.step;
        Cycles(self.now)
    }

    fn spend(&mut self, cycles: Cycles) {
        self.now += cycles.0;
    }

    fn hertz(&self) -> u64 {
        self.hertz
    }

    fn source(&self) -> String {
        "virtual".to_owned()
    }
}

/// What is told apart of a packet's way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    Fetch,
    Ahead,
    Judge,
    Route,
    Service,
    Schedule,
    Transmit,
}

impl Stage {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Fetch, "fetch"),
        (Self::Ahead, "look-ahead"),
        (Self::Judge, "judge"),
        (Self::Route, "route"),
        (Self::Service, "service"),
        (Self::Schedule, "schedule"),
        (Self::Transmit, "transmit"),
    ];
}

/// Packets and the cycles they took.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    cycles: u64,
}

impl Count {
    fn add(&mut self, packets: u64, cycles: u64) {
        self.packets += packets;
        self.cycles += cycles;
    }
}

/// Of one class of traffic in the present round.
#[derive(Clone, Copy, Debug, Default)]
struct InRound {
    admitted: Count,
    refused: Count,
}

/// Reads the clock and keeps the accounts.
pub(super) struct Meter {
    pub(super) clock: Box<dyn CycleClock>,
    /// Whether anything is measured; otherwise the clock is not read.
    on: bool,
    mark: u64,
    /// Cycles after which is asked whether others had some of them.
    long: u64,
    stages: [Count; Stage::ALL.len()],
    /// Packets until the next that is measured at every stage.
    until_sample: u32,
    /// Cycles of the present packet so far.
    packet: u64,
    /// Class of the present packet, and whether it got to a link.
    class: Option<Class>,
    handed_on: bool,
    round: Vec<InRound>,
    touched: Vec<u16>,
    classes: Vec<[Count; 2]>,
    /// What belongs to no class: frames for the host, drops before the class is known, sending what
    /// earlier rounds admitted.
    other: Count,
    fetch: u64,
    /// Cycles of the rounds since [`Meter::take_busy`].
    busy: u64,
    busy_total: u64,
    /// Others had unknown cycles of this round.
    lost_track: bool,
    /// Rounds in a row in which that was so, the last included.
    interrupted: u32,
    /// Cycles that others had while the thread was stopped for them.
    taken: u64,
    /// There was one since [`Meter::take_busy`].
    unknown: bool,
}

impl Meter {
    pub(super) fn new(on: bool, classes: usize) -> Self {
        Self {
            clock: Box::new(VirtualCycles::default()),
            on,
            mark: 0,
            long: u64::MAX,
            stages: [Count::default(); Stage::ALL.len()],
            until_sample: SAMPLE,
            packet: 0,
            class: None,
            handed_on: false,
            round: vec![InRound::default(); classes],
            touched: Vec::with_capacity(classes),
            classes: vec![[Count::default(); 2]; classes],
            other: Count::default(),
            fetch: 0,
            busy: 0,
            busy_total: 0,
            lost_track: false,
            interrupted: 0,
            taken: 0,
            unknown: false,
        }
    }

    pub(super) fn set_clock(&mut self, clock: Box<dyn CycleClock>) {
        self.long = clock.hertz() / LONG;
        self.clock = clock;
    }

    pub(super) const fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn switch(&mut self, on: bool) {
        self.on = on;
    }

    fn lap(&mut self) -> u64 {
        let now = self.clock.now().0;
        let took = now.saturating_sub(self.mark);
        self.mark = now;
        if took > self.long { self.own(took) } else { took }
    }

    /// What of so many cycles was not others'.
    #[cold]
    fn own(&mut self, took: u64) -> u64 {
        match self.clock.taken() {
            Some(taken) if taken.0 < took => {
                self.taken += taken.0;
                took - taken.0
            }
            _ => {
                self.lost_track = true;
                took
            }
        }
    }

    /// A round begins.
    #[inline]
    pub(super) fn round_begins(&mut self) {
        if self.on {
            // What others had while there was nothing to do is nobody's.
            let _ = self.lap();
            self.lost_track = false;
        }
    }

    /// All ports have been asked.
    #[inline]
    pub(super) fn fetched(&mut self, packets: usize) {
        if self.on {
            self.fetch = self.lap();
            if packets > 0 {
                self.stages[Stage::Fetch as usize].add(packets as u64, self.fetch);
            }
        }
    }

    /// A vector of packets has been looked at.
    #[inline]
    pub(super) fn looked_ahead(&mut self, packets: usize) {
        if self.on {
            let took = self.lap();
            self.fetch += took;
            self.stages[Stage::Ahead as usize].add(packets as u64, took);
        }
    }

    /// The class of the present packet is known.
    #[inline]
    pub(super) fn is_of(&mut self, class: Class) {
        if self.on {
            self.class = Some(class);
        }
    }

    /// The present packet has been handed to its link, or to whoever waits for its neighbour.
    #[inline]
    pub(super) fn handed_on(&mut self) {
        self.handed_on = true;
    }

    /// A stage of the present packet ends.
    #[inline]
    pub(super) fn stage(&mut self, stage: Stage) {
        if self.on && self.until_sample == 0 {
            self.ends(stage, true);
        }
    }

    /// A service begins: what was before it must not be taken for it.
    #[inline]
    pub(super) fn service_begins(&mut self) {
        if self.on {
            self.ends(Stage::Route, self.until_sample == 0);
        }
    }

    /// A service ends.
    #[inline]
    pub(super) fn service_ends(&mut self) {
        if self.on {
            self.ends(Stage::Service, true);
        }
    }

    fn ends(&mut self, stage: Stage, counts: bool) {
        let took = self.lap();
        self.packet += took;
        if counts {
            self.stages[stage as usize].add(1, took);
        }
    }

    /// The present packet is done with, wherever it has gone.
    #[inline]
    pub(super) fn packet_ends(&mut self) {
        if !self.on {
            return;
        }
        let took = self.lap();
        self.packet += took;
        if self.until_sample == 0 {
            if self.handed_on {
                self.stages[Stage::Schedule as usize].add(1, took);
            }
            self.until_sample = SAMPLE;
        }
        self.until_sample -= 1;
        match self.class.take() {
            Some(class) => {
                let at = class.index();
                let row = &mut self.round[at];
                if row.admitted.packets + row.refused.packets == 0 {
                    self.touched.push(class.0);
                }
                let count = if self.handed_on { &mut row.admitted } else { &mut row.refused };
                count.add(1, self.packet);
            }
            None => self.other.add(1, self.packet),
        }
        (self.packet, self.handed_on) = (0, false);
    }

    /// What left the links has been given to the ports. Fetching and sending are divided among the
    /// packets, and `measured` gets what those of each class took that were handed on.
    pub(super) fn round_ends(
        &mut self,
        received: usize,
        sent: usize,
        mut measured: impl FnMut(Class, u32, Cycles),
    ) {
        if !self.on {
            return;
        }
        let transmit = self.lap();
        if received == 0 && sent == 0 {
            // Nobody's cycles: an idle poll.
            self.lost_track = false;
            return;
        }
        let counts = self.counts();
        self.unknown |= !counts;
        self.stages[Stage::Transmit as usize].add(sent as u64, transmit);
        let admitted: u64 =
            self.touched.iter().map(|at| self.round[usize::from(*at)].admitted.packets).sum();
        let part = |whole: u64, of: u64, packets: u64| {
            whole.saturating_mul(packets).checked_div(of).unwrap_or(0)
        };
        let (fetch, received) = (self.fetch, received as u64);
        let mut accounted = 0;
        for at in self.touched.drain(..) {
            let InRound { admitted: mut passed, mut refused } =
                std::mem::take(&mut self.round[usize::from(at)]);
            accounted += part(fetch, received, passed.packets + refused.packets);
            passed.cycles +=
                part(fetch, received, passed.packets) + part(transmit, admitted, passed.packets);
            refused.cycles += part(fetch, received, refused.packets);
            self.busy += passed.cycles + refused.cycles;
            let totals = &mut self.classes[usize::from(at)];
            if !counts {
                // Whose packet it was that was in the works then is chance: what packets of the
                // class took otherwise is theirs.
                for (count, total) in [&mut passed, &mut refused].into_iter().zip(&*totals) {
                    if total.packets > 0 {
                        let usual = part(total.cycles, total.packets, count.packets);
                        self.other.cycles += count.cycles.saturating_sub(usual);
                        count.cycles = usual;
                    }
                }
            }
            totals[0].add(passed.packets, passed.cycles);
            totals[1].add(refused.packets, refused.cycles);
            if passed.packets > 0 && counts {
                measured(Class(at), passed.packets as u32, Cycles(passed.cycles));
            }
        }
        let left = fetch.saturating_sub(accounted) + if admitted == 0 { transmit } else { 0 };
        self.other.cycles += left;
        self.busy += left;
    }

    /// Whether it is known whose the cycles of the round were.
    fn counts(&mut self) -> bool {
        let interrupted = std::mem::take(&mut self.lost_track);
        self.interrupted = if interrupted { self.interrupted + 1 } else { 0 };
        self.interrupted.is_multiple_of(MOST_LEFT_OUT)
    }

    /// The counter, as it would be had others taken nothing: the time of the part of the core that
    /// there is to share out.
    pub(super) fn own_time(&mut self) -> Cycles {
        Cycles(self.clock.now().0.saturating_sub(self.taken))
    }

    /// Busy cycles since the last call; 0 if that is not known because others ran.
    pub(super) fn take_busy(&mut self) -> Cycles {
        let busy = std::mem::take(&mut self.busy);
        self.busy_total += busy;
        Cycles(if std::mem::take(&mut self.unknown) { 0 } else { busy })
    }

    /// Counts what `other` has counted too; `classes` says which class of this one stands for each
    /// of its.
    pub(super) fn take_over(&mut self, other: &Self, classes: &[Class]) {
        for (mine, theirs) in self.stages.iter_mut().zip(other.stages) {
            mine.add(theirs.packets, theirs.cycles);
        }
        for (theirs, at) in other.classes.iter().zip(classes) {
            for (mine, theirs) in self.classes[at.index()].iter_mut().zip(theirs) {
                mine.add(theirs.packets, theirs.cycles);
            }
        }
        self.other.add(other.other.packets, other.other.cycles);
        self.busy_total += other.busy_total + other.busy;
    }

    pub(super) fn view(&self, class_names: &[String]) -> Option<CycleSnapshot> {
        let of = |count: Count| (count.packets, count.cycles);
        self.on.then(|| CycleSnapshot {
            source: self.clock.source(),
            hertz: self.clock.hertz(),
            busy: self.busy_total + self.busy,
            other: self.other.cycles,
            stages: Stage::ALL
                .iter()
                .map(|(stage, name)| {
                    let (packets, cycles) = of(self.stages[*stage as usize]);
                    StageCycles { stage: (*name).to_owned(), packets, cycles }
                })
                .collect(),
            classes: class_names
                .iter()
                .zip(&self.classes)
                .map(|(name, [passed, refused])| ClassCycles {
                    name: name.clone(),
                    packets: passed.packets,
                    cycles: passed.cycles,
                    refused_packets: refused.packets,
                    refused_cycles: refused.cycles,
                })
                .collect(),
        })
    }
}

/// The class of processing of a packet: plain forwarding, or its service.
pub(super) fn processing_class(service: Option<u16>) -> ProcessingClass {
    // The parser admits 63 services.
    ProcessingClass(service.map_or(0, |at| (at + 1).min(63) as u8))
}
