//! The balancer: which forwarder gets a flow, and nothing but another destination address of the
//! frame.
//!
//! Spec 12.4: the time to live is the forwarder's to decrement. All parts of a fragmented packet go
//! where their addresses send them, so a flow whose packets are only sometimes fragmented is spread
//! over two forwarders at most.

use evenkeel_cluster::NodeId;
use evenkeel_cluster::balancer::{Balancer, State, Target};
use evenkeel_config::{BalancerForwarder, BalancerSection, ForwarderState};
use evenkeel_core::Nanos;
use evenkeel_core::settings::{SettingError, Settings as _};
use evenkeel_net::MacAddr;
use evenkeel_net::frame::{Fragment, Headers};
use evenkeel_net::hash::FlowHasher;

use crate::error::CommandError;
use crate::snapshot::{BalancerSnapshot, ForwarderSnapshot};

/// The role.
pub(super) struct BalancerRole {
    section: BalancerSection,
    balancer: Balancer,
    hasher: FlowHasher,
    /// By forwarder, in the order of the section: packets and their IP bytes.
    sent: Vec<(u64, u64)>,
}

impl BalancerRole {
    pub(super) fn new(section: &BalancerSection) -> Result<Self, CommandError> {
        let mut balancer = Balancer::new(section.seed, section.flows as usize, section.idle);
        set_targets(&mut balancer, &section.forwarders)?;
        Ok(Self {
            balancer,
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
        self.section = wanted.clone();
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

    pub(super) fn view(&self, now: Nanos) -> BalancerSnapshot {
        let shares = self.balancer.table().shares();
        let forwarder = |(forwarder, sent): (&BalancerForwarder, &(u64, u64))| {
            let id = NodeId(forwarder.id);
            let places = shares.iter().find(|(of, _)| *of == id).map_or(0, |(_, places)| *places);
            ForwarderSnapshot {
                id: forwarder.id,
                mac: MacAddr(forwarder.mac.0).to_string(),
                state: forwarder.state.name().to_owned(),
                places: places as u64,
                flows: self.balancer.flows(now, id) as u64,
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
