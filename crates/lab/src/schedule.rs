//! When a sender sends what: one flow, many alike, flows that come and go, or a recording.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_core::{Bytes, Nanos};
use evenkeel_scenario::{Scenario, Traffic};
use evenkeel_traffic::{
    Emission, FLOW_STREAMS, FlowArrivals, Replay, Source, SourceConfig, SourceError,
};
use evenkeel_world::payload::SHORTEST;
use evenkeel_world::{SOURCE_PORTS, SourceKind, recording, source_of};

use crate::LabError;

/// Overdue packets are sent late up to this much, then left out.
const CATCH_UP: Nanos = Nanos::from_millis(20);

/// One packet to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Due {
    /// When.
    pub(crate) at: Nanos,
    /// Length of the IP packet.
    pub(crate) ip_len: Bytes,
    /// Which of the flows it is of, below [`SOURCE_PORTS`].
    pub(crate) flow: u64,
}

/// What says when the next packet comes.
#[derive(Debug)]
pub(crate) struct Schedule {
    packets: Packets,
    skipped: u64,
    /// The longest packet there can be.
    longest: Bytes,
    /// How many flows there can be at most.
    flows: u64,
    /// Of a recording, what was read and what was left out.
    told: Option<String>,
}

#[derive(Debug)]
enum Packets {
    Many(Many),
    Flows(Box<FlowArrivals>),
    Replay(Replay),
}

/// Flows alike, each with a source of its own.
#[derive(Debug)]
struct Many {
    sources: Vec<Source>,
    next: BinaryHeap<Reverse<(Nanos, usize, Bytes)>>,
}

impl Many {
    fn new(sources: Vec<Source>) -> Self {
        let mut many = Self { next: BinaryHeap::with_capacity(sources.len()), sources };
        for flow in 0..many.sources.len() {
            many.ask(flow);
        }
        many
    }

    fn ask(&mut self, flow: usize) {
        // What is overdue is left out by the schedule, not by each source.
        if let Some(Emission { at, ip_len, .. }) = self.sources[flow].next(Nanos::ZERO) {
            self.next.push(Reverse((at, flow, ip_len)));
        }
    }
}

impl Schedule {
    /// One flow.
    ///
    /// # Errors
    /// A value outside of its range.
    pub(crate) fn flow(config: SourceConfig) -> Result<Self, SourceError> {
        let source = Source::new(config)?;
        let packets = Packets::Many(Many::new(vec![source]));
        Ok(Self { packets, skipped: 0, longest: config.ip_len, flows: 1, told: None })
    }

    /// That of a `[[traffic]]` with this number; times count from `start`. `None` if the lab's own
    /// sources do not make its packets.
    ///
    /// # Errors
    /// [`LabError::BadInput`] for values out of range, and a recording that cannot be read or does
    /// not fit the wires.
    pub(crate) fn of(
        scenario: &Scenario,
        traffic: &Traffic,
        number: u32,
        start: Nanos,
    ) -> Result<Option<Self>, LabError> {
        let refused = |why: String| LabError::refused(&traffic.place, &traffic.name, &why);
        let invalid = |error: SourceError| refused(error.to_string());
        let mut told = None;
        let (packets, longest, flows) = match source_of(scenario, traffic, u64::from(number), start)
        {
            SourceKind::Tcp | SourceKind::Connections(_) => return Ok(None),
            SourceKind::Flow(config) => {
                // The first flow has the randomness that the simulator's has, and each of the
                // others too.
                let sources = (0..u64::from(traffic.flows)).map(|flow| {
                    Source::new(SourceConfig {
                        stream: config.stream + flow * FLOW_STREAMS,
                        ..config
                    })
                });
                let sources = sources.collect::<Result<_, _>>().map_err(invalid)?;
                (Packets::Many(Many::new(sources)), traffic.size, u64::from(traffic.flows))
            }
            SourceKind::Flows(config) => {
                let flows = FlowArrivals::new(config).map_err(invalid)?;
                (Packets::Flows(Box::new(flows)), traffic.size, SOURCE_PORTS)
            }
            SourceKind::Recording => {
                let path =
                    traffic.recording.as_deref().ok_or_else(|| refused("no recording".into()))?;
                let recording =
                    recording::read(path).map_err(|error| refused(error.to_string()))?;
                told = Some(recording.told(path));
                let (packets, flows) = (recording.packets, recording.flows.min(SOURCE_PORTS));
                let longest = packets.iter().map(|packet| packet.ip_len).max().unwrap_or(SHORTEST);
                let mtu = least_mtu(scenario, traffic);
                if longest > mtu {
                    let path = path.display();
                    return Err(refused(format!(
                        "{path} holds packets of {longest}, and the MTU on the way is {mtu}"
                    )));
                }
                let at = |time: Nanos| start.saturating_add(time);
                let replay = Replay::new(packets, at(traffic.start), at(traffic.stop));
                (Packets::Replay(replay), longest, flows)
            }
        };
        Ok(Some(Self { packets, skipped: 0, longest: longest.max(SHORTEST), flows, told }))
    }

    /// The next packet; those that are overdue by more than 20 ms are left out and counted, because
    /// a burst of them would not be the traffic that was asked for.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Due> {
        loop {
            let (at, ip_len, flow) = match &mut self.packets {
                Packets::Many(many) => {
                    let Reverse((at, flow, ip_len)) = many.next.pop()?;
                    many.ask(flow);
                    (at, ip_len, flow as u64)
                }
                Packets::Flows(flows) => {
                    flows.next().map(|e| (e.at, e.ip_len, e.flow % SOURCE_PORTS))?
                }
                Packets::Replay(replay) => {
                    replay.next().map(|e| (e.at, e.ip_len, e.flow % SOURCE_PORTS))?
                }
            };
            if at.saturating_add(CATCH_UP) >= now {
                return Some(Due { at, ip_len: ip_len.max(SHORTEST), flow });
            }
            self.skipped += 1;
        }
    }

    /// Packets left out because the caller came too late for them.
    pub(crate) const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The longest packet there can be.
    pub(crate) const fn longest(&self) -> Bytes {
        self.longest
    }

    /// Of a recording, what was read and what was left out.
    pub(crate) fn told(&self) -> Option<&String> {
        self.told.as_ref()
    }

    /// How many flows there can be at most.
    pub(crate) const fn flows(&self) -> u64 {
        self.flows
    }
}

/// The smallest MTU of the wires on the way of a flow.
fn least_mtu(scenario: &Scenario, traffic: &Traffic) -> Bytes {
    let path = scenario.path_between(&traffic.from, &traffic.to).unwrap_or_default();
    let mtus = path.windows(2).filter_map(|pair| {
        let joins = |wire: &&evenkeel_scenario::Wire| {
            wire.from_node(&pair[0]).is_some_and(|(_, far)| far.node == pair[1])
        };
        Some(scenario.wires.iter().find(joins)?.mtu)
    });
    Bytes(mtus.min().unwrap_or(u16::MAX).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use evenkeel_core::BitRate;
    use evenkeel_traffic::Process;

    fn all(mut schedule: Schedule) -> Vec<Due> {
        std::iter::from_fn(|| schedule.next(Nanos::ZERO)).collect()
    }

    #[test]
    fn many_flows_send_as_many_packets_as_each_alone_in_the_order_of_time() {
        let mut scenario = fixture::scenario();
        scenario.traffic[0].flows = 5;
        let (traffic, start) = (&scenario.traffic[0], Nanos::from_secs(7));
        let schedule = Schedule::of(&scenario, traffic, 0, start).expect("valid").expect("our own");
        assert_eq!(schedule.flows(), 5);
        let together = all(schedule);
        assert!(together.windows(2).all(|pair| pair[0].at <= pair[1].at));
        for flow in 0..5 {
            let SourceKind::Flow(config) =
                source_of(&scenario, traffic, flow * FLOW_STREAMS, start)
            else {
                panic!("it is one flow at a time");
            };
            let alone: Vec<_> =
                all(Schedule::flow(config).expect("valid")).iter().map(|due| due.at).collect();
            let among: Vec<_> =
                together.iter().filter(|due| due.flow == flow).map(|due| due.at).collect();
            assert_eq!(among, alone, "flow {flow}");
        }
    }

    #[test]
    fn what_is_overdue_is_left_out_and_counted() {
        let config = SourceConfig {
            random_phase: false,
            stop: Nanos::from_millis(100),
            // One packet each millisecond.
            ..SourceConfig::new(Process::Cbr { jitter_ppm: 0 }, BitRate(8_000_000), Bytes(1_000))
        };
        let mut schedule = Schedule::flow(config).expect("valid");
        assert_eq!(schedule.next(Nanos::ZERO).expect("the first").at, Nanos::ZERO);
        let late = schedule.next(Nanos::from_millis(50)).expect("there are more");
        assert_eq!(late.at, Nanos::from_millis(30), "late by no more than 20 ms");
        assert_eq!(schedule.skipped(), 29);
    }

    #[test]
    fn a_recording_that_does_not_fit_the_wires_is_refused_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("one.pcap");
        std::fs::write(&path, fixture::capture(&[(0, 100), (3_000, 1_450)])).expect("written");
        let text = fixture::TEXT.replace(
            "to = \"sink\"\nkind = \"poisson\"\nrate = \"4Mbit/s\"\nsize = \"500B\"",
            &format!(
                "to = \"sink\"\nkind = \"replay\"\nfile = {:?}\nsize = \"500B\"",
                path.display().to_string()
            ),
        );
        let scenario = fixture::parse(&text);
        let error = Schedule::of(&scenario, &scenario.traffic[1], 1, Nanos::ZERO)
            .expect_err("1400 is less");
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(
            text.starts_with("row.toml:") && text.contains("1450 B") && text.contains("1400 B"),
            "{text}"
        );

        std::fs::write(&path, fixture::capture(&[(0, 30), (3_000, 1_400)])).expect("written");
        let schedule = Schedule::of(&scenario, &scenario.traffic[1], 1, Nanos::from_secs(1));
        let packets = all(schedule.expect("it fits now").expect("our own"));
        // The shorter one is filled up so that a stamp fits.
        assert_eq!(packets.iter().map(|due| due.ip_len.0).collect::<Vec<_>>(), [72, 1_400]);
        assert_eq!(packets[1].at - packets[0].at, Nanos::from_millis(3));
    }
}
