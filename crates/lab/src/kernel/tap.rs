//! Packet sockets at both sides of a router: what comes in is seen at its own interfaces, what
//! leaves a queue at the other end of the veth pair, where it arrives at once. The kernel stamps
//! both.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, atomic::Ordering};

use evenkeel_core::class_map::ClassMap;
use evenkeel_core::{Nanos, Prefix};
use evenkeel_net::frame::{Headers, IpVersion, Parsed, parse};
use evenkeel_ports::sys::lock;

use super::matched::{Arrival, Departure, Place};
use crate::LabError;
use crate::listeners::{Listeners, SWEEP, for_mtu};
use crate::stopping::Stopping;

const RING: u32 = 8_192;
/// Of a packet so many bytes say which it is: headers, sequence numbers, time stamps.
const TOLD_BY: usize = 128;
/// `ecn` of a packet that was marked.
const MARKED: u8 = 3;

/// Where a packet socket is.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// The namespace, and the interface in it.
    pub(super) at: (String, String),
    /// Largest IP packet there.
    pub(super) mtu: u16,
    /// The link whose packets arrive there; `None`: an interface of the router.
    pub(super) behind: Option<usize>,
}

/// Where packets go, and what class they are of.
pub(super) struct Ways {
    /// Subnets and the links that lead there, the longest prefix first.
    pub(super) to: Vec<(Prefix, usize)>,
    /// Addresses of the router itself.
    pub(super) own: Vec<IpAddr>,
    pub(super) classes: ClassMap,
}

impl Ways {
    /// Where a packet goes; `None`: it is for the router itself, or nowhere.
    fn place(&self, headers: &Headers) -> Option<Place> {
        let destination = headers.flow.destination;
        if self.own.contains(&destination) {
            return None;
        }
        let (_, link) = self.to.iter().find(|(prefix, _)| prefix.contains(destination))?;
        let class = self.classes.classify(&headers.flow, headers.dscp).index();
        Some(Place { link: *link, class })
    }
}

/// What was seen since the beginning.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) arrivals: Vec<Arrival>,
    pub(super) departures: Vec<Departure>,
    /// How many arrivals each place has.
    came: HashMap<Place, u64>,
    /// Frames that the sockets had no room for.
    pub(super) lost: u64,
}

/// The thread that looks. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Tap {
    log: Arc<Mutex<Log>>,
    thread: Stopping,
}

impl Tap {
    pub(super) fn start(spots: Vec<Spot>, ways: Ways) -> Result<Self, LabError> {
        let mut listeners = Listeners::default();
        for spot in spots {
            let (namespace, interface) = spot.at.clone();
            let options = for_mtu(spot.mtu, RING);
            listeners.listen(spot, (&namespace, &interface), options)?;
        }
        let log = Arc::new(Mutex::new(Log::default()));
        let told = Arc::clone(&log);
        let thread = Stopping::spawn("meter", move |stop| {
            while !stop.load(Ordering::Relaxed) {
                let seen = sweep(&mut listeners, &ways);
                let mut log = lock(&told);
                for arrival in &seen.arrivals {
                    *log.came.entry(arrival.place).or_default() += 1;
                }
                log.arrivals.extend(seen.arrivals);
                log.departures.extend(seen.departures);
                log.lost = seen.lost;
                drop(log);
                std::thread::sleep(SWEEP);
            }
        })?;
        Ok(Self { log, thread })
    }

    /// Packets that came in for a place.
    pub(super) fn came(&self, place: Place) -> u64 {
        lock(&self.log).came.get(&place).copied().unwrap_or_default()
    }

    /// Forgets what was seen so far.
    pub(super) fn begin(&self) {
        *lock(&self.log) = Log::default();
    }

    /// Ends looking: what was seen.
    pub(super) fn end(&mut self) -> Log {
        // What is in the rings is read first.
        std::thread::sleep(4 * SWEEP);
        self.thread.stop();
        std::mem::take(&mut lock(&self.log))
    }
}

/// Empties the rings. Nothing is held meanwhile.
fn sweep(listeners: &mut Listeners<Spot>, ways: &Ways) -> Log {
    let mut log = Log::default();
    log.lost = listeners.sweep(|spot, at, frame| see(&mut log, spot, at, frame, ways));
    log
}

fn see(log: &mut Log, spot: &Spot, at: Nanos, frame: &[u8], ways: &Ways) {
    let Ok(Parsed::Ip(headers)) = parse(frame) else { return };
    let key = key(frame, &headers);
    let marked = headers.ecn == MARKED;
    match spot.behind {
        Some(link) => log.departures.push(Departure { at, key, link, marked }),
        None => log.arrivals.extend(ways.place(&headers).map(|place| Arrival {
            at,
            key,
            place,
            bytes: headers.ip_len,
            marked,
        })),
    }
}

/// What a packet is known by: its first bytes, without those that routers change, and its length.
fn key(frame: &[u8], headers: &Headers) -> u64 {
    let packet = &frame[usize::from(headers.l3)..headers.frame_len()];
    let mut told = [0; TOLD_BY];
    let kept = packet.len().min(TOLD_BY);
    told[..kept].copy_from_slice(&packet[..kept]);
    // Traffic class, hop limit; type of service, time to live, checksum.
    let changed: &[usize] = match headers.version {
        IpVersion::V4 => &[1, 8, 10, 11],
        IpVersion::V6 => &[0, 1, 7],
    };
    changed.iter().for_each(|at| told[*at] = 0);
    let mut hasher = DefaultHasher::new();
    (told, packet.len()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet in a frame: 20 bytes of header, then `payload`.
    fn frame(ttl: u8, tos: u8, checksum: u16, payload: u8) -> Vec<u8> {
        let mut frame = vec![0; 14];
        frame[12] = 8;
        frame.extend([0x45, tos, 0, 40, 0, 1, 0, 0, ttl, 17]);
        frame.extend(checksum.to_be_bytes());
        frame.extend([10, 1, 0, 1, 10, 2, 0, 1, 0x9c, 0x41, 0x13, 0x89, 0, 20, 0, 0]);
        frame.extend([payload; 12]);
        frame
    }

    fn known_by(frame: &[u8]) -> u64 {
        // The checksum of the header is not what is tested.
        let headers = evenkeel_net::frame::parse_at(&checked(frame), 14).expect("a packet");
        key(frame, &headers)
    }

    /// With the right checksum.
    fn checked(frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        (frame[24], frame[25]) = (0, 0);
        let words = frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let [high, low] = (!sum as u16).to_be_bytes();
        (frame[24], frame[25]) = (high, low);
        frame
    }

    #[test]
    fn a_packet_is_known_again_behind_the_router_and_no_other_is_taken_for_it() {
        let before = known_by(&frame(64, 0x02, 0x1111, 5));
        assert_eq!(before, known_by(&frame(63, 0x03, 0x2222, 5)), "TTL, mark, checksum");
        assert_ne!(before, known_by(&frame(64, 0x02, 0x1111, 6)), "another payload");
    }
}
