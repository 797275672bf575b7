//! The balancer: which forwarder gets a flow, and nothing but another destination address of the
//! frame.
//!
//! Spec 12.4: the time to live is the forwarder's to decrement. All parts of a fragmented packet go
//! where their addresses send them, so a flow whose packets are only sometimes fragmented is spread
//! over two forwarders at most.
//!
//! Of several workers each has a table of the flows that come to it; the places of new ones are the
//! same in all. The first worker hears the forwarders, and the others follow it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_cluster::NodeId;
use evenkeel_cluster::balancer::{Balancer, Change, Condition, Health, State, Target};
use evenkeel_cluster::config::Framing;
use evenkeel_config::{BalancerForwarder, BalancerSection, ForwarderState};
use evenkeel_core::Nanos;
use evenkeel_core::settings::{SettingError, Settings as _};
use evenkeel_net::frame::{Fragment, Headers};
use evenkeel_net::hash::FlowHasher;
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_ports::{Frame, FramePool};

use super::cluster::has_kind;
use crate::error::CommandError;
use crate::snapshot::{BalancerSnapshot, ForwarderSnapshot};

/// Which forwarders get nothing, as the first of several workers has heard it from their frames,
/// for the tables of all.
#[derive(Debug)]
pub(super) struct Unusable {
    changes: AtomicU64,
    /// A bit for each number of a forwarder.
    out: Box<[AtomicU64]>,
}

impl Default for Unusable {
    fn default() -> Self {
        let words = (usize::from(u16::MAX) + 1) / 64;
        Self {
            changes: AtomicU64::new(0),
            out: std::iter::repeat_with(AtomicU64::default).take(words).collect(),
        }
    }
}

impl Unusable {
    fn set(&self, id: NodeId, usable: bool) {
        let (word, bit) = (&self.out[usize::from(id.0) / 64], 1 << (id.0 % 64));
        if usable {
            word.fetch_and(!bit, Ordering::Relaxed);
        } else {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn is_usable(&self, id: NodeId) -> bool {
        self.out[usize::from(id.0) / 64].load(Ordering::Relaxed) & 1 << (id.0 % 64) == 0
    }
}

/// The role.
pub(super) struct BalancerRole {
    section: BalancerSection,
    /// What workers share, and up to which change of it this one has followed.
    unusable: Option<Arc<Unusable>>,
    followed: u64,
    balancer: Balancer,
    /// Made when the port's address is known.
    health: Option<Health>,
    /// Of this life's frames.
    epoch: u64,
    news: Vec<Change>,
    outbox: Vec<Frame>,
    hasher: FlowHasher,
    /// By forwarder, in the order of the section: packets and their IP bytes.
    sent: Vec<(u64, u64)>,
}

impl BalancerRole {
    /// `unusable`: what several workers share.
    pub(super) fn new(
        section: &BalancerSection,
        unusable: Option<Arc<Unusable>>,
    ) -> Result<Self, CommandError> {
        let mut balancer = Balancer::new(section.seed, section.flows as usize, section.idle);
        set_targets(&mut balancer, &section.forwarders)?;
        Ok(Self {
            unusable,
            followed: 0,
            balancer,
            health: None,
            epoch: 1,
            news: Vec::new(),
            outbox: Vec::new(),
            hasher: FlowHasher::new(section.seed),
            sent: vec![(0, 0); section.forwarders.len()],
            section: section.clone(),
        })
    }

    pub(super) fn set_state(&mut self, id: u16, state: ForwarderState) -> Result<(), CommandError> {
        let mut forwarders = self.section.forwarders.clone();
        let Some(forwarder) = forwarders.iter_mut().find(|forwarder| forwarder.id == id) else {
            let known = forwarders.iter().map(|forwarder| forwarder.id).collect();
            return Err(CommandError::NoSuchForwarder { id, known });
        };
        forwarder.state = state;
        set_targets(&mut self.balancer, &forwarders)?;
        self.section.forwarders = forwarders;
        Ok(())
    }

    /// Takes over the forwarders. Flows of one that is not there any more go to others, as of one
    /// that is out.
    ///
    /// # Errors
    /// As [`BalancerRole::check`]; nothing changed.
    pub(super) fn reload(&mut self, wanted: &BalancerSection) -> Result<(), CommandError> {
        set_targets(&mut self.balancer, &wanted.forwarders)?;
        let sent = |forwarder: &BalancerForwarder| {
            let at = self.section.forwarders.iter().position(|old| old.id == forwarder.id);
            at.map_or((0, 0), |at| self.sent[at])
        };
        self.sent = wanted.forwarders.iter().map(sent).collect();
        if let Some(health) = &mut self.health {
            health.set_forwarders(&ids(wanted), wanted.silence);
        }
        self.section = wanted.clone();
        // Also of those that are new.
        self.followed = 0;
        Ok(())
    }

    /// Refuses what cannot change while the router runs, and forwarders that cannot be.
    pub(super) fn check(&self, wanted: &BalancerSection) -> Result<(), CommandError> {
        if let Err(SettingError::Fixed { key }) = self.section.keeps_fixed(wanted) {
            return Err(CommandError::fixed(format!("balancer.{key}")));
        }
        Ok(Balancer::check_targets(&targets(&wanted.forwarders))?)
    }

    /// The port that the forwarders are behind.
    pub(super) fn port(&self) -> usize {
        usize::from(self.section.port)
    }

    /// Of this life's frames: no other life of this balancer has had it. Before the port is up.
    pub(super) fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// The port is up and has this Ethernet address.
    pub(super) fn set_port_address(&mut self, now: Nanos, mac: [u8; 6]) {
        match &mut self.health {
            Some(health) => health.set_mac(mac),
            None => {
                let framing = (self.section.vlan, self.section.key);
                let (silence, from) = (self.section.silence, (mac, self.epoch));
                self.health = Some(Health::new(&ids(&self.section), framing, silence, from, now));
            }
        }
    }

    pub(super) fn is_exchange(&self, port: PortIndex, frame: &[u8]) -> bool {
        port.0 == self.section.port
            && has_kind(frame, self.section.vlan, Framing::default().ethertype)
    }

    /// Takes a frame of the exchange.
    pub(super) fn receive(&mut self, now: Nanos, frame: &[u8]) {
        if let Some(health) = &mut self.health {
            health.on_frame(now, frame);
        }
    }

    pub(super) fn next_wake(&self) -> Nanos {
        self.health.as_ref().map_or(Nanos::MAX, Health::next_timer)
    }

    /// Looks at the forwarders' health, and forgets flows that are idle.
    pub(super) fn run(&mut self, now: Nanos, pool: &mut FramePool) {
        self.balancer.sweep(now);
        self.follow(now);
        if let Some(health) = &mut self.health {
            health.runs(now);
        }
        let Some(health) = self.health.as_mut().filter(|health| health.next_timer() <= now) else {
            return;
        };
        let Self { balancer, news, outbox, unusable, .. } = self;
        let send = |frame: &[u8]| outbox.extend(pool.alloc_from(frame));
        health.on_timer(now, send, |change| {
            if let Change::Of(id, condition) = change {
                balancer.set_usable(now, id, condition.is_usable());
                if let Some(unusable) = unusable {
                    unusable.set(id, condition.is_usable());
                }
            }
            news.push(change);
        });
    }

    /// Takes over what the first worker has heard.
    fn follow(&mut self, now: Nanos) {
        // Who hears it itself knows it.
        let others = self.unusable.as_ref().filter(|_| self.health.is_none());
        let Some(unusable) = others else { return };
        let changes = unusable.changes.load(Ordering::Acquire);
        if changes != self.followed {
            self.followed = changes;
            for id in ids(&self.section) {
                self.balancer.set_usable(now, id, unusable.is_usable(id));
            }
        }
    }

    /// Frames to be broadcast, the last one first.
    pub(super) fn drain_outbox(&mut self) -> impl Iterator<Item = Frame> {
        self.outbox.drain(..).rev()
    }

    pub(super) fn has_outbox(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Reports once what has happened.
    pub(super) fn drain_news(&mut self, mut report: impl FnMut(&str)) {
        for change in self.news.drain(..) {
            report(&text(change));
        }
    }

    pub(super) fn pick(&mut self, now: Nanos, headers: &Headers) -> Option<MacAddr> {
        let mut flow = headers.flow;
        if headers.fragment != Fragment::No {
            (flow.protocol, flow.source_port, flow.destination_port, flow.flow_label) =
                (0, 0, 0, 0);
        }
        let target = self.balancer.pick(now, self.hasher.hash(&flow))?;
        let at =
            self.section.forwarders.iter().position(|forwarder| forwarder.id == target.id.0)?;
        let (packets, bytes) = &mut self.sent[at];
        *packets += 1;
        *bytes += u64::from(headers.ip_len);
        Some(MacAddr(target.mac))
    }

    pub(super) fn view(&self) -> BalancerSnapshot {
        let shares = self.balancer.table().shares();
        let forwarder = |(forwarder, sent): (&BalancerForwarder, &(u64, u64))| {
            let id = NodeId(forwarder.id);
            let places = shares.iter().find(|(of, _)| *of == id).map_or(0, |(_, places)| *places);
            ForwarderSnapshot {
                id: forwarder.id,
                mac: MacAddr(forwarder.mac.0).to_string(),
                state: forwarder.state.name().to_owned(),
                places: places as u64,
                health: self
                    .health
                    .as_ref()
                    .map_or("unknown", |health| health.condition(id).name())
                    .to_owned(),
                flows: self.balancer.flows(id) as u64,
                packets: sent.0,
                bytes: sent.1,
            }
        };
        BalancerSnapshot {
            counts: *self.balancer.counters(),
            forwarders: self.section.forwarders.iter().zip(&self.sent).map(forwarder).collect(),
        }
    }
}

fn ids(section: &BalancerSection) -> Vec<NodeId> {
    section.forwarders.iter().map(|forwarder| NodeId(forwarder.id)).collect()
}

fn text(change: Change) -> String {
    let (id, why) = match change {
        Change::Of(id, Condition::Silent) => {
            (id, "its exchange frames are silent: its flows go to others")
        }
        Change::Of(id, Condition::OtherConfiguration) => {
            (id, "it has another configuration than most others: its flows go to them")
        }
        Change::Of(id, Condition::Heard | Condition::Unknown) => {
            (id, "its exchange frames are heard: it gets flows")
        }
        Change::Deaf => {
            return "balancer: no forwarder's exchange frames are heard any more: all get their \
                    flows as before"
                .to_owned();
        }
        Change::NotDeaf => {
            return "balancer: exchange frames of forwarders are heard again".to_owned();
        }
    };
    format!("balancer: forwarder {}: {why}", id.0)
}

fn set_targets(
    balancer: &mut Balancer,
    forwarders: &[BalancerForwarder],
) -> Result<(), CommandError> {
    Ok(balancer.set_targets(&targets(forwarders))?)
}

/// The forwarders that get something.
fn targets(forwarders: &[BalancerForwarder]) -> Vec<Target> {
    let target = |forwarder: &BalancerForwarder| {
        let state = match forwarder.state {
            ForwarderState::Active => State::Active(forwarder.weight),
            ForwarderState::Draining => State::Draining,
            ForwarderState::Out => return None,
        };
        Some(Target { id: NodeId(forwarder.id), mac: forwarder.mac.0, state })
    };
    forwarders.iter().filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use evenkeel_config::StationAddress;

    use super::*;

    /// The worker answers `ctl show`: it stood still for 74 ms with 16 million places.
    #[test]
    fn who_looks_makes_the_worker_look_at_no_flow() {
        let forwarder = |id: u16| BalancerForwarder {
            id,
            mac: StationAddress([2, 0, 0, 0, 0, id as u8]),
            ..BalancerForwarder::default()
        };
        let section = BalancerSection {
            flows: 1 << 20,
            forwarders: (1..=64).map(forwarder).collect(),
            ..BalancerSection::default()
        };
        let mut role = BalancerRole::new(&section, None).unwrap();
        for flow in 0..10_000 {
            role.balancer.pick(Nanos::SECOND, evenkeel_cluster::mix64(flow));
        }
        let looked_at = role.balancer.looked_at();
        assert!(looked_at >= 10_000, "{looked_at}");
        let view = role.view();
        assert_eq!(view.forwarders.iter().map(|of| of.flows).sum::<u64>(), 10_000);
        assert_eq!(role.balancer.looked_at(), looked_at);
    }
}
