//! A core that polls a ring of packets, in virtual time: the model of `[core]`, lean enough for 15
//! million packets per second.
//!
//! Packets are numbers of flows; time is counted in cycles. The core fetches up to a burst from the
//! ring, judges every packet with the router's own droppers ([`evenkeel_core::drop`]), pays for
//! polling, refusing and processing, and fetches again. What arrives while the ring is full is lost
//! there.

mod arrivals;
mod meters;
mod outcome;

use evenkeel_core::drop::{
    BandwidthConfig, BandwidthFairDrop, CpuConfig, CpuFairDrop, CyclesVerdict, FlowTableConfig,
    Poll, ProcessingClass, Share, ShareId,
};
use evenkeel_core::settings::SettingError;
use evenkeel_core::{Bytes, Cycles, Nanos};
use evenkeel_scenario::core_model::{CoreFlows, CoreLink, CoreModel};

use arrivals::Arrivals;
use meters::Meters;
pub(crate) use outcome::run;

/// Fate of the packets of one flow, from the start on. Every count but `cycles` and `waited` is
/// packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FlowCounts {
    /// Arrived at the ring.
    pub offered: u64,
    /// Found the ring full.
    pub lost_at_ring: u64,
    /// Refused for the sake of the core's cycles.
    pub refused_cpu: u64,
    /// Refused for the sake of the link's bits.
    pub refused_link: u64,
    /// Processed, but found the link's buffer full.
    pub lost_at_link: u64,
    /// Processed and sent.
    pub forwarded: u64,
    /// Cycles of processing.
    pub cycles: u64,
    /// Cycles that processed packets waited, from their arrival to the start of their processing.
    pub waited: u64,
}

/// A flow as the loop sees it.
#[derive(Clone, Copy, Debug)]
struct Flow {
    hash: u64,
    share: u8,
    /// Class of processing before and after its change, and when it changes (cycles).
    class: [u8; 2],
    changes: u64,
    wire: Bytes,
}

/// The outgoing link: bytes on their way, drained at the link's rate.
#[derive(Debug)]
struct Out {
    fair: Option<BandwidthFairDrop>,
    /// Bits that wait, times the clock, so that a cycle drains `rate` of them.
    waiting: u128,
    rate: u64,
    buffer: u128,
    drained: u64,
}

/// The core, its ring, its droppers and what arrives.
#[derive(Debug)]
pub struct PolledCore {
    clock: u64,
    now: u64,
    /// Cycles of the round before.
    busy: u64,
    batch: usize,
    costs: Vec<u64>,
    poll: u64,
    refuse: u64,
    round: u64,
    ring: Ring,
    arrivals: Arrivals,
    dropper: Option<CpuFairDrop>,
    /// Instead of a dropper.
    meters: Option<Meters>,
    out: Option<Out>,
    flows: Vec<Flow>,
    counts: Vec<FlowCounts>,
    burst: Vec<(u32, u64)>,
    /// Packets and cycles of each class in this round.
    measured: Vec<(u32, u64)>,
    idle: u64,
    overhead: u64,
}

/// A ring of packets, each the number of its flow and when it came.
#[derive(Debug)]
struct Ring {
    slots: Vec<(u32, u64)>,
    head: usize,
    len: usize,
}

impl Ring {
    fn push(&mut self, flow: u32, at: u64) -> bool {
        if self.len == self.slots.len() {
            return false;
        }
        let place = (self.head + self.len) % self.slots.len();
        self.slots[place] = (flow, at);
        self.len += 1;
        true
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        if self.len == 0 {
            return None;
        }
        let flow = self.slots[self.head];
        self.head = (self.head + 1) % self.slots.len();
        self.len -= 1;
        Some(flow)
    }
}

/// The flows of a model, with the costs and the shares that are different among them: a flow names
/// its own by their places.
struct Flows {
    costs: Vec<u64>,
    shares: Vec<Share>,
    flows: Vec<Flow>,
}

impl Flows {
    fn of(model: &CoreModel, seed: u64) -> Self {
        let (mut costs, mut shares, mut flows) = (Vec::new(), Vec::new(), Vec::new());
        let mut hash = seed;
        for kind in &model.flows {
            let class = place_of(&mut costs, kind.cost);
            let (later, changes) = match kind.change {
                Some((at, cost)) => (place_of(&mut costs, cost), in_cycles(at, model.clock)),
                None => (class, u64::MAX),
            };
            let share = place_of(&mut shares, Share { weight: kind.weight, group: 0 });
            for _ in 0..kind.flows {
                hash = mixed(hash.wrapping_add(0x9e37_79b9_7f4a_7c15));
                let class = [class, later];
                flows.push(Flow { hash, share, class, changes, wire: wire(kind.size) });
            }
        }
        Self { costs, shares, flows }
    }
}

/// The place of `item` in a list of different ones; it is added if it is new.
fn place_of<T: PartialEq>(all: &mut Vec<T>, item: T) -> u8 {
    let known = all.iter().position(|known| *known == item);
    let place = known.unwrap_or(all.len());
    if known.is_none() {
        all.push(item);
    }
    place as u8
}

fn in_cycles(at: Nanos, clock: u64) -> u64 {
    (u128::from(at.0) * u128::from(clock) / 1_000_000_000) as u64
}

/// Bytes on the wire for a frame: preamble and gap besides.
fn wire(frame: Bytes) -> Bytes {
    frame + Bytes(20)
}

impl PolledCore {
    /// The model at rest. `seed` draws phases, random spacing and hashes.
    ///
    /// # Errors
    /// A value that the droppers refuse.
    pub fn new(model: &CoreModel, seed: u64) -> Result<Self, SettingError> {
        let Flows { costs, shares, flows } = Flows::of(model, seed);
        // As in a router: rare is the flow that finds no place of its own.
        let places = FlowTableConfig::default().flows.max(8 * flows.len() as u32);
        let table = FlowTableConfig { flows: places, shares, groups: vec![1] };
        let dropper = model.rule.map(|rule| {
            CpuFairDrop::new(CpuConfig {
                table: table.clone(),
                costs: costs.iter().map(|cost| Cycles(*cost)).collect(),
                clock: model.clock,
                batch: model.batch,
                ring: model.ring,
                rule,
            })
        });
        let out = model.link.map(|link| Out::new(&link, model.clock, table)).transpose()?;
        Ok(Self {
            clock: model.clock,
            now: 0,
            busy: 0,
            batch: model.batch.into(),
            measured: vec![(0, 0); costs.len()],
            costs,
            poll: model.poll.into(),
            refuse: model.refuse.into(),
            round: model.round.into(),
            ring: Ring { slots: vec![(0, 0); model.ring as usize], head: 0, len: 0 },
            arrivals: Arrivals::new(&model.flows, model.clock, seed),
            dropper: dropper.transpose()?,
            meters: None,
            out,
            counts: vec![FlowCounts::default(); flows.len()],
            flows,
            burst: Vec::with_capacity(model.batch.into()),
            idle: 0,
            overhead: 0,
        })
    }

    /// The model at rest with an oracle instead of its dropper: the flow of each number may have
    /// `shares[number]` packets per second.
    ///
    /// # Errors
    /// A value that the dropper of the link refuses.
    pub fn with_oracle(model: &CoreModel, seed: u64, shares: &[f64]) -> Result<Self, SettingError> {
        let core = Self::new(&CoreModel { rule: None, ..model.clone() }, seed)?;
        Ok(Self { meters: Some(Meters::new(shares, model.clock, model.batch)), ..core })
    }

    /// Runs until `until`, or a little longer: a round that began is finished.
    pub fn run_until(&mut self, until: Nanos) {
        let until = in_cycles(until, self.clock);
        while self.now < until {
            let (ring, counts) = (&mut self.ring, &mut self.counts);
            self.arrivals.until(self.now, |flow, at| {
                let counts = &mut counts[flow as usize];
                counts.offered += 1;
                counts.lost_at_ring += u64::from(!ring.push(flow, at));
            });
            if self.ring.len == 0 {
                // Polls that find nothing, up to the first that finds something.
                let next = self
                    .arrivals
                    .next()
                    .map_or(until, |at| at.clamp(self.now + 1, until.max(self.now + 1)));
                self.idle += next - self.now;
                self.now = next;
                continue;
            }
            self.one_round();
        }
    }

    fn one_round(&mut self) {
        self.burst.clear();
        let most = match (&self.dropper, &mut self.meters) {
            (Some(dropper), _) => dropper.burst().into(),
            (None, Some(meters)) => meters.burst_after(self.busy),
            (None, None) => self.batch,
        };
        while self.burst.len() < most
            && let Some(packet) = self.ring.pop()
        {
            self.burst.push(packet);
        }
        if let Some(dropper) = &mut self.dropper {
            dropper.begin_batch(&Poll {
                now: Cycles(self.now),
                busy: Cycles(self.busy),
                polled: self.burst.len() as u32,
                waiting: self.ring.len as u32,
                queued: self.ring.len as u32,
            });
        }
        if let Some(out) = &mut self.out {
            out.drain(self.now, self.clock);
        }
        let mut spent = self.round + self.poll * self.burst.len() as u64;
        self.overhead += spent;
        for (flow, arrived) in &self.burst {
            let counts = &mut self.counts[*flow as usize];
            if self.meters.as_mut().is_some_and(|meters| !meters.admits(*flow, self.now)) {
                counts.refused_cpu += 1;
                spent += self.refuse;
                self.overhead += self.refuse;
                continue;
            }
            let flow = &self.flows[*flow as usize];
            let ticket = match &mut self.dropper {
                Some(dropper) => match dropper.judge(flow.hash, ShareId(flow.share)) {
                    Ok(ticket) => Some(ticket),
                    Err(_) => {
                        counts.refused_cpu += 1;
                        spent += self.refuse;
                        self.overhead += self.refuse;
                        continue;
                    }
                },
                None => None,
            };
            if let Some(fair) = self.out.as_mut().and_then(|out| out.fair.as_mut()) {
                match fair.judge(flow.hash, ShareId(flow.share)) {
                    Ok(ticket) => fair.charge(ticket, flow.wire),
                    Err(_) => {
                        counts.refused_link += 1;
                        spent += self.refuse;
                        self.overhead += self.refuse;
                        continue;
                    }
                }
            }
            let class = flow.class[usize::from(self.now >= flow.changes)];
            if let (Some(dropper), Some(ticket)) = (&mut self.dropper, ticket) {
                dropper.charge(ticket, ProcessingClass(class));
            }
            let cost = self.costs[usize::from(class)];
            let measured = &mut self.measured[usize::from(class)];
            *measured = (measured.0 + 1, measured.1 + cost);
            counts.waited += (self.now + spent).saturating_sub(*arrived);
            spent += cost;
            counts.cycles += cost;
            let fits = self.out.as_mut().is_none_or(|out| out.take(flow.wire, self.clock));
            *(if fits { &mut counts.forwarded } else { &mut counts.lost_at_link }) += 1;
        }
        for (class, measured) in self.measured.iter_mut().enumerate() {
            let (packets, cycles) = std::mem::take(measured);
            if let Some(dropper) = self.dropper.as_mut().filter(|_| packets > 0) {
                dropper.measured(ProcessingClass(class as u8), packets, Cycles(cycles));
            }
        }
        self.busy = spent;
        self.now += spent.max(1);
    }

    /// What the dropper's audit of the core's shares has found; `None`: there is no dropper.
    #[must_use]
    pub fn verdict(&self) -> Option<CyclesVerdict> {
        self.dropper.as_ref().map(CpuFairDrop::verdict)
    }

    /// What became of each flow's packets so far.
    #[must_use]
    pub fn counts(&self) -> &[FlowCounts] {
        &self.counts
    }

    /// Cycles since the start; those in which nothing waited; those for polling and refusing.
    #[must_use]
    pub fn cycles(&self) -> [Cycles; 3] {
        [self.now, self.idle, self.overhead].map(Cycles)
    }

    /// Packets that wait in the ring.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.ring.len as u64
    }

    /// The core's dropper.
    #[must_use]
    pub fn dropper(&self) -> Option<&CpuFairDrop> {
        self.dropper.as_ref()
    }
}

impl Out {
    fn new(link: &CoreLink, clock: u64, table: FlowTableConfig) -> Result<Self, SettingError> {
        let fair = link.fair.then(|| {
            let config = BandwidthConfig { table, ..BandwidthConfig::new(link.rate) };
            BandwidthFairDrop::new(BandwidthConfig { buffer: Bytes(link.buffer.0 / 2), ..config })
        });
        Ok(Self {
            fair: fair.transpose()?,
            waiting: 0,
            rate: link.rate.0,
            buffer: u128::from(link.buffer.0 * 8) * u128::from(clock),
            drained: 0,
        })
    }

    fn drain(&mut self, now: u64, clock: u64) {
        let gone = u128::from(now - self.drained) * u128::from(self.rate);
        self.waiting = self.waiting.saturating_sub(gone);
        self.drained = now;
        if let Some(fair) = &mut self.fair {
            fair.begin_batch(Nanos((u128::from(now) * 1_000_000_000 / u128::from(clock)) as u64));
        }
    }

    fn take(&mut self, wire: Bytes, clock: u64) -> bool {
        let bits = u128::from(wire.0 * 8) * u128::from(clock);
        let fits = self.waiting + bits <= self.buffer;
        self.waiting += if fits { bits } else { 0 };
        fits
    }
}

/// Which of the kinds of flows the flow with this number is.
fn kind_of(flows: &[CoreFlows], number: usize) -> usize {
    let ends = flows.iter().scan(0, |end, kind| {
        *end += kind.flows as usize;
        Some(*end)
    });
    ends.take_while(|end| *end <= number).count()
}

/// SplitMix64: numbers to hashes.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
