//! What the kernel says of its tables, in the bytes of its own messages and as events that it could
//! mean, between packets: nothing disappears, whatever the tables say.

use evenkeel_core::Prefix;
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_router::mirror::MirrorEvent;
use evenkeel_router::mirror::decode::{KernelNeighbourState, KernelRouteKind, decode};
use evenkeel_router::mirror::state::{KernelCopy, MirroredLink, MirroredNextHop, MirroredRoute};

use crate::common::{Bed, Udp, v4};

/// Messages and events, each behind its length.
pub(super) fn run(bytes: &[u8]) {
    let mut bed = Bed::new(3, "[router]\nbuffers = 256");
    let mut copy = KernelCopy::new((0..3).map(|port| format!("eth{port}")).collect());
    let mut events = Vec::new();
    let mut rest = bytes;
    for _ in 0..256 {
        let [kind, high, low, more @ ..] = rest else { break };
        let (part, after) =
            more.split_at(more.len().min(usize::from(*high) << 8 | usize::from(*low)));
        rest = after;
        if kind & 1 == 0 {
            let mut facts = Vec::new();
            decode(part, &mut facts);
            for fact in facts {
                let _ = copy.apply(fact, &mut events);
            }
        } else {
            events.extend(event(part));
        }
        for event in events.drain(..) {
            match event {
                MirrorEvent::Link { port, link } => {
                    bed.pipeline.set_link(bed.now, port, link.map(Into::into));
                }
                event => bed.pipeline.apply(bed.now, event),
            }
        }
        if kind & 2 != 0 {
            bed.send(usize::from(kind >> 2) % 3, usize::from(kind >> 4) % 3, Udp::default());
            bed.round();
        }
    }
    bed.pass(evenkeel_core::Nanos::from_secs(5));
    bed.snapshot();
}

/// An event that the bytes stand for.
fn event(bytes: &[u8]) -> Option<MirrorEvent> {
    let [kind, number, a, b, len, how] = *bytes.first_chunk::<6>()?;
    let port = PortIndex(u16::from(number % 3));
    let address = v4(usize::from(a % 4), b % 4);
    let prefix = Prefix::new(address, len % 33)?;
    let mac = MacAddr([2, 0, 0, 0, a, b]);
    Some(match kind % 4 {
        0 => MirrorEvent::Link {
            port,
            link: (how & 1 == 0).then(|| MirroredLink {
                index: u32::from(a),
                mac,
                mtu: 68 + u32::from(len) * 40,
                up: how & 2 == 0,
            }),
        },
        1 => MirrorEvent::Local {
            address,
            prefix_len: len % 33,
            port: (how & 2 == 0).then_some(port),
            present: how & 1 == 0,
        },
        2 => MirrorEvent::Neighbour {
            port,
            address,
            state: [
                None,
                Some(KernelNeighbourState::Reachable(mac)),
                Some(KernelNeighbourState::Stale(mac)),
                Some(KernelNeighbourState::Incomplete),
                Some(KernelNeighbourState::Failed),
            ][usize::from(how % 5)],
        },
        _ => {
            let hops = bytes[6..].iter().take(8).map(|hop| MirroredNextHop {
                port: (hop & 3 < 3).then_some(PortIndex(u16::from(hop & 3))),
                gateway: (hop & 4 != 0).then(|| v4(usize::from(hop >> 3) % 4, hop >> 6)),
                weight: 1 + u16::from(*hop),
            });
            let kind =
                [KernelRouteKind::Unicast, KernelRouteKind::Local, KernelRouteKind::Blackhole]
                    [usize::from(how % 3)];
            let route = MirroredRoute {
                kind,
                metric: u32::from(number),
                mtu: (how & 64 != 0).then_some(u32::from(len) * 64),
                next_hops: hops.collect(),
            };
            let table = if how & 32 == 0 { 254 } else { u32::from(a) };
            MirrorEvent::Route { table, prefix, route: (how & 128 == 0).then_some(route) }
        }
    })
}
