//! Sources: one thread and namespace for each balancer, the same load for every link and class.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_ports::sys::{self, NetNs};
use evenkeel_world::live::{FIRST_PORT, LiveScenario};

use super::segment::{Station, address, behind, name};
use crate::LabError;
use crate::stopping::Stopping;
use crate::world::World;

/// Source port of the first flow.
const FIRST_FLOW: u16 = 20_000;
/// The source's number stands above the packet's in a packet's id.
const SHIFT: u32 = 28;
/// What is overdue by more is not sent.
const BEHIND: Nanos = Nanos::from_millis(250);

/// A source. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Source {
    shared: Arc<Shared>,
    number: usize,
    _thread: Stopping,
}

#[derive(Debug, Default)]
struct Shared {
    /// Nanoseconds between two rounds of one packet for each link and class; 0: silence.
    pause: AtomicU64,
    /// Sets of flows in use.
    sets: AtomicU32,
    sent: AtomicU32,
    skipped: AtomicU64,
}

impl Source {
    pub(super) fn start(
        scenario: &LiveScenario,
        number: usize,
        world: &World,
    ) -> Result<Self, LabError> {
        let cannot = |source| LabError::System {
            what: format!("enter the namespace of source {number}"),
            source,
        };
        let namespace =
            NetNs::open(&world.namespace(&name(Station::Source, number))).map_err(cannot)?;
        let shared = Arc::new(Shared { sets: AtomicU32::new(1), ..Shared::default() });
        let told = Arc::clone(&shared);
        let (flows, classes, links) = (scenario.flows, scenario.classes.len(), scenario.nodes[2]);
        let payload = scenario.size.0 as usize - 28;
        let thread = Stopping::spawn("source", move |stop| {
            if namespace.enter().is_ok() {
                let to = (1..=links).flat_map(|link| {
                    (0..classes).map(move |class| (behind(link).1, FIRST_PORT + class as u16))
                });
                let to: Vec<_> = to.collect();
                send(&told, number, flows, &to, payload, stop);
            }
        })?;
        Ok(Self { shared, number, _thread: thread })
    }

    /// One packet for each link and class, so often.
    pub(super) fn offer(&self, pause: Nanos) {
        self.shared.pause.store(pause.0, Ordering::Relaxed);
    }

    /// Another set of flows.
    pub(super) fn begin_flows(&self) {
        self.shared.sets.fetch_add(1, Ordering::Relaxed);
    }

    /// The source ports of the newest set.
    pub(super) fn newest(&self, flows: u16) -> std::ops::Range<u16> {
        let set = self.shared.sets.load(Ordering::Relaxed).saturating_sub(1) as u16;
        FIRST_FLOW + set * flows..FIRST_FLOW + (set + 1) * flows
    }

    /// The id that the next packet gets.
    pub(super) fn next_id(&self) -> u32 {
        (self.number as u32) << SHIFT | self.shared.sent.load(Ordering::Relaxed)
    }

    /// Rounds left out because the thread was late.
    pub(super) fn skipped(&self) -> u64 {
        self.shared.skipped.load(Ordering::Relaxed)
    }
}

fn send(
    shared: &Shared,
    number: usize,
    flows: u16,
    to: &[(String, u16)],
    payload: usize,
    stop: &AtomicBool,
) {
    let mut sockets: Vec<UdpSocket> = Vec::new();
    let mut packet = vec![0; payload];
    let (mut round, mut due) = (0, sys::monotonic_now());
    while !stop.load(Ordering::Relaxed) {
        let pause = Nanos(shared.pause.load(Ordering::Relaxed));
        let now = sys::monotonic_now();
        if pause == Nanos::ZERO {
            std::thread::sleep(Duration::from_millis(2));
            due = now;
            continue;
        }
        if now < due {
            std::thread::sleep(Duration::from_nanos((due - now).0));
            continue;
        }
        if now - due > BEHIND {
            shared.skipped.fetch_add((now - due).0 / pause.0, Ordering::Relaxed);
            due = now;
        }
        due += pause;
        let wanted = usize::from(flows) * shared.sets.load(Ordering::Relaxed) as usize;
        while sockets.len() < wanted {
            let port = FIRST_FLOW + sockets.len() as u16;
            match UdpSocket::bind((address(Station::Source, number).as_str(), port)) {
                Ok(socket) => sockets.push(socket),
                Err(_) => return,
            }
        }
        let socket = &sockets[round % sockets.len()];
        round += 1;
        for (host, port) in to {
            let id = (number as u32) << SHIFT | shared.sent.load(Ordering::Relaxed);
            packet[..4].copy_from_slice(&id.to_be_bytes());
            if socket.send_to(&packet, (host.as_str(), *port)).is_ok() {
                shared.sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
