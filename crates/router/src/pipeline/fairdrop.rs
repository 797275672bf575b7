//! FairDrop in the pipeline: one dropper for the worker's cycles, one for the bits of each link
//! with a rate. Of several workers each has its own core, and all together share the bits.
//!
//! ```text
//! burst ─ begin ─ parse ─ cycles? ─ route ─ bits? ─ both charged ─ service ─ link
//!                           │                 │
//!                     fairdrop_cpu    fairdrop_bandwidth
//! ```
//!
//! Frames for the host are never judged to their harm: the kernel has its own copy of them. Packets
//! that are made here (ICMP answers) and those that waited for a neighbour are not judged again.

use evenkeel_config::LinkConfig;
use evenkeel_core::drop::{
    BandwidthFairDrop, CpuFairDrop, FairDropConfig, Groups, Poll, ProcessingClass, ShareId, Ticket,
};
use evenkeel_core::settings::SettingError;
use evenkeel_core::{BitRate, Bytes, Class, Cycles, Nanos, Reason};

use evenkeel_ports::RxWaiting;
use evenkeel_settings::entries;

use super::cycles::Meter;
use super::sharing::WorkerShares;
use crate::snapshot::{FairDropClass, FairDropLink, FairDropSnapshot};

/// What the droppers have to know of the worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Machine {
    /// Cycles per second.
    pub(super) hertz: u64,
    /// Frames that the receive ring of a port holds.
    pub(super) ring: u32,
    /// Most frames fetched in a round.
    pub(super) batch: u16,
    /// Services there are.
    pub(super) services: usize,
}

/// The droppers of one worker.
pub(super) struct FairDrop {
    config: FairDropConfig,
    cpu: Option<CpuFairDrop>,
    links: Vec<Option<BandwidthFairDrop>>,
    shares: Option<WorkerShares>,
    /// Most frames fetched from a port in a round, whatever they cost.
    batch: usize,
    /// Packets of each class refused for cycles and for bits, and all that were judged.
    classes: Vec<[u64; 3]>,
}

impl FairDrop {
    /// Droppers in which nothing waits.
    pub(super) fn new(
        config: &FairDropConfig,
        machine: Machine,
        classes: usize,
        links: &[LinkConfig],
        shares: Option<&WorkerShares>,
    ) -> Result<Self, SettingError> {
        let mut fairdrop = Self {
            config: config.clone(),
            cpu: None,
            links: Vec::new(),
            shares: shares.cloned(),
            batch: usize::from(machine.batch),
            classes: vec![[0; 3]; classes],
        };
        if config.on && config.cpu {
            let Machine { hertz, ring, batch, services } = machine;
            fairdrop.cpu =
                Some(CpuFairDrop::new(config.cpu(classes, services, hertz, batch, ring))?);
        }
        for (at, link) in links.iter().enumerate() {
            let dropper = fairdrop.for_link(at, link.core.rate)?;
            fairdrop.links.push(dropper);
        }
        Ok(fairdrop)
    }

    fn for_link(
        &self,
        at: usize,
        rate: Option<BitRate>,
    ) -> Result<Option<BandwidthFairDrop>, SettingError> {
        let Some(rate) = rate.filter(|_| self.config.on && self.config.bandwidth) else {
            return Ok(None);
        };
        let mut dropper = BandwidthFairDrop::new(self.config.link(self.classes.len(), rate))?;
        if let Some(shares) = &self.shares {
            dropper.share(shares.shadow(at), shares.worker());
        }
        Ok(Some(dropper))
    }

    pub(super) fn config(&self) -> &FairDropConfig {
        &self.config
    }

    /// Takes over what was counted before a change.
    pub(super) fn counts_from(&mut self, before: &Self) {
        self.classes.clone_from(&before.classes);
        self.take_over(before);
    }

    /// Counts what another pipeline's has counted too; `classes` says which class of this one
    /// stands for each of its.
    pub(super) fn counts_from_other(&mut self, other: &Self, classes: &[Class]) {
        for (theirs, at) in other.classes.iter().zip(classes) {
            for (mine, theirs) in self.classes[at.index()].iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
        self.take_over(other);
    }

    fn take_over(&mut self, before: &Self) {
        if let (Some(cpu), Some(before)) = (&mut self.cpu, &before.cpu) {
            cpu.take_over(&before.verdict());
        }
    }

    /// Whether packets are judged at all.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.config.on
    }

    /// How many frames to fetch from a port at most.
    #[inline]
    pub(super) fn burst(&self) -> usize {
        self.cpu.as_ref().map_or(self.batch, |cpu| cpu.burst().into())
    }

    /// Only the rule changes: flows keep what they are charged for.
    pub(super) fn set_rule(&mut self, config: &FairDropConfig) -> Result<(), SettingError> {
        if let Some(cpu) = &mut self.cpu {
            cpu.set_rule(config.rule)?;
        }
        self.config = config.clone();
        Ok(())
    }

    /// Whether a link can have this rate.
    pub(super) fn check_rate(&self, rate: BitRate) -> Result<(), SettingError> {
        if self.config.on && self.config.bandwidth {
            self.config.link(self.classes.len(), rate).check()?;
        }
        Ok(())
    }

    /// Whether subscribers share the cycles, and not flows.
    pub(super) fn is_by_subscriber(&self) -> bool {
        self.config.on && self.config.groups == Groups::Subscriber
    }

    /// By what rate a link is judged.
    pub(super) fn rate(&self, at: usize) -> Option<BitRate> {
        Some(self.links.get(at)?.as_ref()?.config().rate)
    }

    /// A link has another rate.
    pub(super) fn set_rate(
        &mut self,
        now: Nanos,
        at: usize,
        rate: Option<BitRate>,
    ) -> Result<(), SettingError> {
        let dropper = match (self.links.get_mut(at).and_then(Option::take), rate) {
            (Some(mut known), Some(rate)) => {
                known.set_rate(now, rate)?;
                Some(known)
            }
            _ => self.for_link(at, rate)?,
        };
        if let Some(slot) = self.links.get_mut(at) {
            *slot = dropper;
        }
        Ok(())
    }

    /// A burst has been fetched, of which `waiting` more are in the rings.
    pub(super) fn begin(
        &mut self,
        now: Nanos,
        polled: usize,
        waiting: RxWaiting,
        meter: &mut Meter,
    ) {
        if let Some(cpu) = &mut self.cpu {
            let busy = meter.take_busy();
            cpu.begin_batch(&Poll {
                now: meter.own_time(),
                busy,
                polled: polled as u32,
                waiting: waiting.fullest,
                queued: waiting.frames,
            });
        }
        for link in self.links.iter_mut().flatten() {
            link.begin_batch(now);
        }
    }

    /// The hash of a packet that may be judged is known: what is read of its flow then arrives
    /// while the packet is classified.
    #[inline]
    pub(super) fn prefetch(&self, flow_hash: u64) {
        if let Some(cpu) = &self.cpu {
            cpu.prefetch(flow_hash);
        }
    }

    /// May the flow have more cycles?
    #[inline]
    pub(super) fn judge_cpu(
        &mut self,
        flow_hash: u64,
        class: Class,
    ) -> Result<Option<Ticket>, Reason> {
        let counts = &mut self.classes[class.index()];
        counts[2] += 1;
        let Some(cpu) = &mut self.cpu else { return Ok(None) };
        cpu.judge(flow_hash, share(class)).map(Some).inspect_err(|_| counts[0] += 1)
    }

    /// May the flow have more bits of link `at`? If so, it is charged for them, and for the cycles
    /// that `ticket` is for.
    #[inline]
    pub(super) fn judge_link(
        &mut self,
        at: usize,
        flow_hash: u64,
        class: Class,
        wire_len: Bytes,
        ticket: Option<Ticket>,
        processing: ProcessingClass,
    ) -> Result<(), Reason> {
        if let Some(Some(link)) = self.links.get_mut(at) {
            link.admit(flow_hash, share(class), wire_len)
                .inspect_err(|_| self.classes[class.index()][1] += 1)?;
        }
        if let (Some(cpu), Some(ticket)) = (&mut self.cpu, ticket) {
            cpu.charge(ticket, processing);
        }
        Ok(())
    }

    /// `packets` of a class of processing took `cycles`.
    pub(super) fn measured(&mut self, processing: ProcessingClass, packets: u32, cycles: Cycles) {
        if let Some(cpu) = &mut self.cpu {
            cpu.measured(processing, packets, cycles);
        }
    }

    pub(super) fn view(
        &self,
        class_names: &[String],
        service_names: &[String],
    ) -> FairDropSnapshot {
        let names: Vec<_> = class_names.iter().map(String::as_str).collect();
        let settings = entries(&self.config, &names).into_iter();
        let mut view = FairDropSnapshot {
            on: self.config.on,
            settings: settings.map(|(key, value)| (key.to_owned(), value)).collect(),
            classes: class_names
                .iter()
                .zip(&self.classes)
                .map(|(name, [cpu, bandwidth, judged])| FairDropClass {
                    name: name.clone(),
                    judged: *judged,
                    refused_cpu: *cpu,
                    refused_bandwidth: *bandwidth,
                })
                .collect(),
            ..FairDropSnapshot::default()
        };
        if let Some(cpu) = &self.cpu {
            let seen = cpu.view();
            view.unplaced = seen.unplaced;
            view.backlogged = seen.backlogged.into();
            view.threshold = (seen.threshold != u64::MAX).then_some(seen.threshold);
            view.level_ppm = seen.level.into();
            view.scale = f64::from(seen.scale) / 1_000.0;
            view.absurd = seen.absurd;
            view.cycles = super::audit::cycles(&cpu.verdict(), class_names);
            let names =
                std::iter::once("forwarding").chain(service_names.iter().map(String::as_str));
            view.costs = names.map(str::to_owned).zip(seen.costs).collect();
        }
        let links = self.links.iter().enumerate();
        view.links = links
            .filter_map(|(at, link)| {
                let seen = link.as_ref()?.view();
                Some(FairDropLink {
                    port: at as u16,
                    judged: seen.judged,
                    refused: seen.refused,
                    unplaced: seen.unplaced,
                    backlogged: seen.backlogged.into(),
                    backlog_bytes: seen.backlog.0,
                })
            })
            .collect();
        view
    }
}

/// The row of the table of shares: one for each class, those beyond the table share the last.
fn share(class: Class) -> ShareId {
    ShareId(class.0.min(255) as u8)
}
