//! What passes the switch and what arrives: packet sockets at the bridge's ports of balancers and
//! forwarders, and at the next hops.

use std::sync::{Arc, Mutex};

use evenkeel_core::Nanos;
use evenkeel_ports::af_packet::AfPacketOptions;
use evenkeel_ports::sys::lock;
use evenkeel_world::live::{FIRST_PORT, LiveScenario, PORT};

use super::segment::{SWITCH, Station, name};
use crate::LabError;
use crate::listeners::{Listeners, SWEEP};
use crate::stopping::Stopping;
use crate::world::World;

const RING: u32 = 4_096;

/// A packet or exchange frame, and when it was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: Nanos,
    pub(super) what: What,
}

/// What was seen where. Forwarders, links and classes count from 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// From a balancer on its way to a forwarder.
    To { forwarder: usize, packet: Packet },
    /// From a forwarder on its way to a next hop.
    From { forwarder: usize, packet: Packet },
    /// At a next hop.
    Arrived { packet: Packet },
    /// The first fragment of a forwarder's state.
    Exchange { forwarder: usize, cycle: u64, master: bool },
}

/// A packet of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) id: u32,
    pub(super) link: usize,
    pub(super) class: usize,
    pub(super) bytes: u64,
    /// Source address's last byte, and source port.
    pub(super) source: (u8, u16),
}

impl Packet {
    /// What flow it is of.
    pub(super) fn flow(&self) -> (u8, u16, usize, usize) {
        (self.source.0, self.source.1, self.link, self.class)
    }
}

/// A thread that captures. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Capture {
    seen: Arc<Mutex<Vec<Seen>>>,
    lost: Arc<Mutex<u64>>,
    _thread: Stopping,
}

#[derive(Clone, Copy, Debug)]
enum CapturePoint {
    Balancer,
    Forwarder(usize),
    NextHop,
}

impl Capture {
    pub(super) fn start(scenario: &LiveScenario, world: &World) -> Result<Self, LabError> {
        let [balancers, forwarders, hops] = scenario.nodes;
        let mut places = Vec::new();
        let of_switch = |kind, number| (world.namespace(SWITCH), name(kind, number));
        for number in 1..=balancers {
            places.push((CapturePoint::Balancer, of_switch(Station::Balancer, number)));
        }
        for number in 1..=forwarders {
            places
                .push((CapturePoint::Forwarder(number - 1), of_switch(Station::Forwarder, number)));
        }
        for number in 1..=hops {
            places.push((
                CapturePoint::NextHop,
                (world.namespace(&name(Station::NextHop, number)), PORT.1.to_owned()),
            ));
        }
        let mut listeners = Listeners::default();
        for (place, (namespace, interface)) in places {
            let options = AfPacketOptions {
                promiscuous: true,
                ring_frames: RING,
                ..AfPacketOptions::default()
            };
            listeners.listen(place, (&namespace, &interface), options)?;
        }
        let (seen, lost) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (told, told_lost) = (Arc::clone(&seen), Arc::clone(&lost));
        let (classes, links) = (scenario.classes.len(), hops);
        let thread = Stopping::spawn("capture", move |stop| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut new = Vec::new();
                let dropped = listeners.sweep(|place, at, frame| {
                    let what = read(*place, frame, links, classes);
                    new.extend(what.map(|what| Seen { at, what }));
                });
                lock(&told).append(&mut new);
                *lock(&told_lost) = dropped;
                std::thread::sleep(SWEEP);
            }
        })?;
        Ok(Self { seen, lost, _thread: thread })
    }

    /// What was seen since the last call, each place's in order.
    pub(super) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut lock(&self.seen))
    }

    /// How much has been seen since the last [`Capture::take`].
    pub(super) fn count(&self) -> usize {
        lock(&self.seen).iter().filter(|seen| !matches!(seen.what, What::Exchange { .. })).count()
    }

    /// Frames that the capture itself lost.
    pub(super) fn lost(&self) -> u64 {
        *lock(&self.lost)
    }
}

/// A number of two bytes.
fn two(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

fn read(place: CapturePoint, frame: &[u8], links: usize, classes: usize) -> Option<What> {
    const IPV4: u16 = 0x0800;
    let behind_tag = if two(frame, 12)? == 0x8100 { 16 } else { 12 };
    if let CapturePoint::Forwarder(forwarder) = place
        && two(frame, behind_tag)? == STATES
    {
        return exchange(forwarder, frame.get(behind_tag + 2..)?);
    }
    if two(frame, 12)? != IPV4 || frame.get(23) != Some(&17) {
        return None;
    }
    let class = usize::from(two(frame, 36)?.checked_sub(FIRST_PORT)?);
    let link = usize::from(frame.get(31)?.checked_sub(101)?);
    let id = frame.get(42..46)?;
    if class >= classes || link >= links {
        return None;
    }
    let packet = Packet {
        id: u32::from_be_bytes([id[0], id[1], id[2], id[3]]),
        link,
        class,
        bytes: u64::from(two(frame, 16)?),
        source: (*frame.get(29)?, two(frame, 34)?),
    };
    match place {
        // The last byte of its address tells the forwarder.
        CapturePoint::Balancer => {
            Some(What::To { forwarder: usize::from(frame.get(5)?.checked_sub(1)?), packet })
        }
        CapturePoint::Forwarder(forwarder) => Some(What::From { forwarder, packet }),
        CapturePoint::NextHop => Some(What::Arrived { packet }),
    }
}

/// Ethertype of exchange frames of version 2.
pub(super) const STATES: u16 = 0x88b6;

/// The header of version 2, from its first byte on.
fn exchange(forwarder: usize, header: &[u8]) -> Option<What> {
    const STATE: u8 = 1;
    let cycle: [u8; 8] = header.get(16..24)?.try_into().ok()?;
    let first = header.get(1) == Some(&STATE) && two(header, 10)? == 0;
    let (cycle, master) = (u64::from_be_bytes(cycle), header.get(2)? & 0x80 != 0);
    first.then_some(What::Exchange { forwarder, cycle, master })
}
