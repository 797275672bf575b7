//! Services between route and link: what a class of traffic is sent through.

use std::sync::Arc;

use evenkeel_config::{AclAction, AclRule, EspConfig, OuterDf, RouterConfig, ServiceConfig, Work};
use evenkeel_core::{Class, Cycles, Reason};
use evenkeel_net::frame::Headers;
use evenkeel_net::service::acl::{self, Acl, Action};
use evenkeel_net::service::esp::{DontFragment, Drawn, EspTunnel, Nonces, SaConfig};
use evenkeel_ports::{Frame, FramePool};

use super::cycles::Meter;
use super::tunnels::Tunnels;
use crate::error::{CommandError, ServiceError};
use crate::snapshot::ServiceSnapshot;

/// Zeros to put before a frame: outer IPv6 header, ESP header, IV.
const FRONT: [u8; 56] = [0; 56];

/// A service and its state.
enum State {
    Esp(Arc<EspTunnel>),
    Acl(Acl),
    Spin(Cycles),
}

struct Service {
    config: ServiceConfig,
    state: State,
    packets: u64,
    refused: u64,
}

/// The services as they are to be.
pub(super) struct ServicesPlan {
    /// With its state if it is new.
    list: Vec<(ServiceConfig, Option<State>)>,
    by_class: Vec<Option<u16>>,
}

/// The services of a router, and which class goes through which.
pub(super) struct Services {
    list: Vec<Service>,
    by_class: Vec<Option<u16>>,
    tunnels: Arc<Tunnels>,
    /// Of the IVs of all, those that this worker has drawn.
    ivs: Drawn,
}

impl Services {
    /// The services of `config`, with the tunnels among `tunnels`.
    pub(super) fn new(config: &RouterConfig, tunnels: Arc<Tunnels>) -> Result<Self, CommandError> {
        let mut services =
            Self { list: Vec::new(), by_class: Vec::new(), tunnels, ivs: Drawn::default() };
        let plan = services.plan(config)?;
        services.apply(plan);
        Ok(services)
    }

    /// Goes on with the tunnels that the other workers have. Before the first packet.
    pub(super) fn share(&mut self, tunnels: Arc<Tunnels>) -> Result<(), CommandError> {
        for service in &mut self.list {
            if let State::Esp(tunnel) = &mut service.state {
                let shared = tunnels.of(tunnel.config().clone());
                let name = service.config.name.clone();
                *tunnel =
                    shared.map_err(|error| CommandError::Service { name, source: error.into() })?;
            }
        }
        (self.tunnels, self.ivs) = (tunnels, Drawn::default());
        Ok(())
    }

    /// The services as `config` has them, with new ones built. Those that stay the same keep their
    /// state: a tunnel its sequence numbers.
    ///
    /// # Errors
    /// A service is refused; nothing changed.
    pub(super) fn plan(&self, config: &RouterConfig) -> Result<ServicesPlan, CommandError> {
        let build = |wanted: &ServiceConfig| {
            if self.list.iter().any(|service| service.config == *wanted) {
                return Ok((wanted.clone(), None));
            }
            match state(&wanted.work, &self.tunnels) {
                Ok(state) => Ok((wanted.clone(), Some(state))),
                Err(source) => Err(CommandError::Service { name: wanted.name.clone(), source }),
            }
        };
        Ok(ServicesPlan {
            list: config.services.iter().map(build).collect::<Result<_, _>>()?,
            by_class: config.classes.iter().map(|class| class.service).collect(),
        })
    }

    /// Puts planned services in place.
    pub(super) fn apply(&mut self, plan: ServicesPlan) {
        let mut old = std::mem::take(&mut self.list);
        for (config, state) in plan.list {
            let kept = old.iter().position(|service| service.config == config);
            match (kept, state) {
                (Some(kept), _) => self.list.push(old.swap_remove(kept)),
                (None, Some(state)) => {
                    self.list.push(Service { config, state, packets: 0, refused: 0 });
                }
                // A service without new state is one of the old ones.
                (None, None) => {}
            }
        }
        self.by_class = plan.by_class;
    }

    /// Those that another pipeline has with the same settings go on with the state that they have
    /// there. Their counters are added. Tunnels are the router's, and go on by themselves.
    pub(super) fn take_over(&mut self, other: Self) {
        for theirs in other.list {
            let Some(mine) = self.list.iter_mut().find(|mine| mine.config == theirs.config) else {
                continue;
            };
            (mine.packets, mine.refused) =
                (mine.packets + theirs.packets, mine.refused + theirs.refused);
            mine.state = theirs.state;
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// What packets of a class are sent through.
    #[inline]
    pub(super) fn of(&self, class: Class) -> Option<u16> {
        self.by_class.get(class.index()).copied().flatten()
    }

    /// The tunnel that service `at` is, if it is one.
    #[inline]
    pub(super) fn tunnel(&self, at: u16) -> Option<&EspTunnel> {
        match self.list.get(usize::from(at)).map(|service| &service.state) {
            Some(State::Esp(tunnel)) => Some(tunnel),
            _ => None,
        }
    }

    /// Does the work of service `at` on a packet whose frame ends with it; gives the headers it has
    /// then.
    pub(super) fn serve(
        &mut self,
        at: u16,
        pool: &mut FramePool,
        frame: &mut Frame,
        headers: &Headers,
        meter: &mut Meter,
    ) -> Result<Headers, Reason> {
        let Self { list, tunnels, ivs, .. } = self;
        let Some(service) = list.get_mut(usize::from(at)) else { return Ok(*headers) };
        meter.service_begins();
        let result = match &mut service.state {
            State::Spin(cycles) => {
                meter.clock.spend(*cycles);
                Ok(*headers)
            }
            State::Acl(acl) => acl.check(&headers.flow, headers.dscp).map(|()| *headers),
            State::Esp(tunnel) => seal(tunnel, (ivs, &tunnels.nonces), pool, frame, headers),
        };
        meter.service_ends();
        match result {
            Ok(_) => service.packets += 1,
            Err(_) => service.refused += 1,
        }
        result
    }

    pub(super) fn view(&self) -> Vec<ServiceSnapshot> {
        self.list.iter().map(Service::view).collect()
    }
}

fn seal(
    tunnel: &EspTunnel,
    nonces: (&mut Drawn, &Nonces),
    pool: &mut FramePool,
    frame: &mut Frame,
    headers: &Headers,
) -> Result<Headers, Reason> {
    let growth = tunnel.growth(headers.ip_len);
    if !pool.prepend(frame, &FRONT[..growth.front]) || pool.extend(frame, growth.back).is_none() {
        return Err(Reason::FrameTooLong);
    }
    tunnel.seal(pool.bytes_mut(frame), headers, nonces)
}

fn state(work: &Work, tunnels: &Tunnels) -> Result<State, ServiceError> {
    Ok(match work {
        Work::Spin(spin) => State::Spin(spin.cycles),
        Work::Acl(config) => {
            let action = |action| match action {
                AclAction::Permit => Action::Permit,
                AclAction::Deny => Action::Deny,
            };
            let rule = |rule: &AclRule| acl::Rule {
                matching: rule.matching.clone(),
                action: action(rule.action),
            };
            let rules =
                (0..config.fill).map(acl::filler).chain(config.rules.iter().map(rule)).collect();
            State::Acl(Acl::new(rules, action(config.default_action))?)
        }
        Work::Esp(config) => State::Esp(tunnels.of(association(config))?),
    })
}

fn association(config: &EspConfig) -> SaConfig {
    SaConfig {
        local: config.local,
        remote: config.remote,
        spi: config.spi,
        key: config.key.0.clone(),
        extended_sequence: config.esn,
        dont_fragment: match config.df {
            OuterDf::Copy => DontFragment::Copy,
            OuterDf::Set => DontFragment::Set,
            OuterDf::Clear => DontFragment::Clear,
        },
        dscp: config.dscp,
        ttl: config.ttl,
    }
}

impl Service {
    fn view(&self) -> ServiceSnapshot {
        let (kind, rules_visited, sequence) = match &self.state {
            State::Esp(tunnel) => ("esp", None, Some(tunnel.sequence())),
            State::Acl(acl) => ("acl", Some(acl.visited()), None),
            State::Spin(_) => ("spin", None, None),
        };
        ServiceSnapshot {
            name: self.config.name.clone(),
            kind: kind.to_owned(),
            packets: self.packets,
            refused: self.refused,
            rules_visited,
            sequence,
        }
    }
}
