//! The balancer: which forwarder gets a flow, and nothing but another destination address of the frame.
//!
//! Spec 12.4: the time to live is the forwarder's to decrement. All parts of a fragmented packet go where their addresses send them, so a flow
//! whose packets are only sometimes fragmented is spread over two forwarders at most.

use evenkeel_cluster::NodeId;
use evenkeel_cluster::balancer::{Balancer, State, Target};
use evenkeel_config::{BalancerForwarder, BalancerSection, ForwarderState};
use evenkeel_core::admit::Pin;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::settings::Settings as _;
use evenkeel_core::{Nanos, Reason};
use evenkeel_net::fib::Decision;
use evenkeel_net::frame::{self, Fragment, Headers};
use evenkeel_net::hash::FlowHasher;
use evenkeel_net::{MacAddr, checksum, rewrite};

use super::Pipeline;
use super::ahead::PacketMeta;
use super::forward::{Packet, ResolvedHop};
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

    fn set_state(&mut self, id: u16, state: ForwarderState) -> Result<(), CommandError> {
        let mut forwarders = self.section.forwarders.clone();
        let Some(forwarder) = forwarders.iter_mut().find(|forwarder| forwarder.id == id) else {
            let known: Vec<_> = forwarders.iter().map(|forwarder| forwarder.id.to_string()).collect();
            let message = format!("no forwarder {id}: there are {}", known.join(", "));
            return Err(CommandError::Invalid(message));
        };
        forwarder.state = state;
        set_targets(&mut self.balancer, &forwarders)?;
        self.section.forwarders = forwarders;
        Ok(())
    }

    fn pick(&mut self, now: Nanos, headers: &Headers) -> Option<MacAddr> {
        let mut flow = headers.flow;
        if headers.fragment != Fragment::No {
            (flow.protocol, flow.source_port, flow.destination_port, flow.flow_label) = (0, 0, 0, 0);
        }
        let target = self.balancer.pick(now, self.hasher.hash(&flow))?;
        let at = self.section.forwarders.iter().position(|forwarder| forwarder.id == target.id.0)?;
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

fn set_targets(balancer: &mut Balancer, forwarders: &[BalancerForwarder]) -> Result<(), CommandError> {
    let target = |forwarder: &BalancerForwarder| {
        let state = match forwarder.state {
            ForwarderState::Active => State::Active(forwarder.weight),
            ForwarderState::Draining => State::Draining,
            ForwarderState::Out => return None,
        };
        Some(Target { id: NodeId(forwarder.id), mac: forwarder.mac.0, state })
    };
    let targets: Vec<_> = forwarders.iter().filter_map(target).collect();
    balancer.set_targets(&targets).map_err(|error| CommandError::Invalid(format!("balancer: {error}")))
}

impl Pipeline {
    /// A packet that came to the balancer: on to a forwarder, or to the machine itself.
    pub(super) fn balance(&mut self, packet: Packet, meta: &PacketMeta, at: Nanos) {
        let destination = meta.destination;
        let decision = self.decision(&packet, meta);
        if matches!(decision, Some(Decision::Local | Decision::Broadcast | Decision::Multicast))
            || frame::is_group(destination)
        {
            return self.punt(packet);
        }
        if let Some(reason) = meta.martian {
            return self.drop(packet, reason);
        }
        let Some(headers) = self.headers(&packet) else { return self.drop(packet, Reason::Truncated) };
        let Some(role) = &mut self.balancer else { return self.drop(packet, Reason::NoRoute) };
        let port = usize::from(role.section.port);
        let out = &self.ports[port];
        if !out.up {
            return self.drop(packet, Reason::LinkDown);
        }
        let out_mtu = out.mtu;
        if headers.ip_len > out_mtu {
            return self.drop(packet, Reason::TooBig);
        }
        let Some(mac) = role.pick(at, &headers) else { return self.drop(packet, Reason::NoRoute) };
        let flow = PackedFlow::new(&headers.flow);
        let hop = ResolvedHop {
            port,
            mac,
            mtu: out_mtu,
            flow: &flow,
            flow_hash: meta.flow_hash,
            class: meta.class,
            pin: Pin { next_hop: 0, ttl: headers.ttl },
            cluster: None,
        };
        self.forward_balanced(packet, &headers, &hop, at);
    }

    fn forward_balanced(&mut self, mut packet: Packet, headers: &Headers, hop: &ResolvedHop<'_>, at: Nanos) {
        let source = self.ports[hop.port].mac;
        self.pool.trim(&mut packet.frame, headers.frame_len());
        let bytes = self.pool.bytes_mut(&packet.frame);
        let rewritten = (|| {
            if packet.frame.partial_checksum() {
                checksum::complete_l4(bytes, headers)?;
            }
            rewrite::set_macs(bytes, source, hop.mac)
        })();
        if let Err(reason) = rewritten {
            return self.drop(packet, reason);
        }
        packet.frame.set_partial_checksum(false);
        self.meter.handed_on();
        self.ports[packet.port.index()].count.forwarded += 1;
        self.enqueue(packet.frame, packet.arrival, headers.ip_len, hop, at);
    }

    /// Takes over the forwarders. Flows of one that is not there any more go to others, as of one that is out.
    pub(super) fn reload_balancer(&mut self, wanted: Option<&BalancerSection>) -> Result<(), CommandError> {
        match (&mut self.balancer, wanted) {
            (None, None) => Ok(()),
            (Some(role), Some(wanted)) => {
                if role.section.keeps_fixed(wanted).is_err() || role.section.port != wanted.port {
                    return Err(CommandError::NeedsRestart {
                        what: "balancer".to_owned(),
                        why: "except for its forwarders: connections are placed by the rest",
                    });
                }
                set_targets(&mut role.balancer, &wanted.forwarders)?;
                let known = |forwarder: &BalancerForwarder| {
                    let at = role.section.forwarders.iter().position(|old| old.id == forwarder.id);
                    at.map_or((0, 0), |at| role.sent[at])
                };
                role.sent = wanted.forwarders.iter().map(known).collect();
                role.section = wanted.clone();
                Ok(())
            }
            _ => Err(CommandError::NeedsRestart {
                what: "balancer".to_owned(),
                why: "a router becomes a balancer when it starts",
            }),
        }
    }

    /// What a forwarder gets from now on. Established flows stay where they are, except those of one that is out.
    ///
    /// # Errors
    /// This router is no balancer, there is no such forwarder, or none would be left; nothing changed.
    pub fn set_forwarder(&mut self, id: u16, state: ForwarderState) -> Result<(), CommandError> {
        match &mut self.balancer {
            Some(role) => role.set_state(id, state),
            None => Err(CommandError::Invalid("this router is no balancer: it has no [balancer]".to_owned())),
        }
    }
}
