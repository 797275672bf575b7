//! Flows whose way is remembered are held to the long way: the same packets and the same changes of
//! tables give the same frames and the same counters, whatever is remembered. The choices come from
//! a fuzzer, or from random numbers. The harness is that of the router's tests.

use evenkeel_core::Nanos;
use evenkeel_net::fib::{NextHop, NextHops, Precedence, Route, RouteKind};
use evenkeel_net::{MacAddr, PortIndex};
use evenkeel_router::mirror::decode::KernelNeighbourState;
use evenkeel_router::pipeline::LinkState;

use crate::common::{Bed, Udp, host_mac, router_mac, udp, v4, v6};

const PORTS: usize = 3;

/// Choices by numbers, each of which is a part of 2^32; when these are over, so is the case.
pub(super) struct Choices<I> {
    numbers: I,
    are_over: bool,
}

impl<I: Iterator<Item = u32>> Choices<I> {
    pub(super) const fn new(numbers: I) -> Self {
        Self { numbers, are_over: false }
    }

    fn below(&mut self, end: u64) -> u64 {
        let number = self.numbers.next();
        self.are_over |= number.is_none();
        (u64::from(number.unwrap_or(0)) * end) >> 32
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A byte says what tables there are, one how many flows are remembered, and two each choice.
pub(super) fn run(bytes: &[u8]) {
    let [table, flows, choices @ ..] = bytes else { return };
    let (name, tables) = TABLES[usize::from(*table) % TABLES.len()];
    let numbers = choices.as_chunks::<2>().0.iter();
    let numbers = numbers.map(|pair| u32::from(u16::from_le_bytes(*pair)) << 16);
    let flows = [2, 16, 4_096][usize::from(*flows) % 3];
    let _ = hold_together((name, tables), flows, 300, &mut Choices::new(numbers));
}

/// What both routers are told beside the size of the memory: by name.
pub(super) const TABLES: [(&str, &str); 10] = [
    ("plain", ""),
    (
        "more classes than are counted together",
        "[[class]]\nname = \"rest\"\n[[class]]\nname = \"a\"\nmatch = [{ dscp = 46 }]\n\
         [[class]]\nname = \"b\"\nmatch = [{ dscp = 1 }]\n[[class]]\nname = \"c\"\nmatch = \
         [{ dscp = 2 }]\n[[class]]\nname = \"d\"\nmatch = [{ dscp = 3 }]\n[[class]]\nname = \
         \"e\"\nmatch = [{ dscp = 4 }]\n[[class]]\nname = \"f\"\nmatch = [{ dscp = 5 }]\n\
         [[class]]\nname = \"g\"\nmatch = [{ dscp = 6 }]\n[[class]]\nname = \"h\"\nmatch = \
         [{ dscp = 10 }]\n",
    ),
    (
        "classes and disciplines",
        "[[class]]\nname = \"rest\"\n[[class]]\nname = \"voice\"\nmatch = [{ dscp = 46 }]\n\
         [[class]]\nname = \"bulk\"\nmatch = [{ protocol = \"udp\", destination_port = 5001 }]\n\
         [[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\ndiscipline = { kind = \"wfq-altq\", weight \
         = { voice = 10 } }\n[[link]]\nport = \"p2\"\nrate = \"8Mbit/s\"\ndiscipline = { kind = \
         \"pdrr\" }\n",
    ),
    (
        "admission",
        "[[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\ndiscipline = { kind = \"pdrr\" }\nadmission \
         = { flows = 64 }\n",
    ),
    (
        "pinned paths",
        "[[link]]\nport = \"p0\"\nrate = \"9Mbit/s\"\ndiscipline = { kind = \"pdrr\" }\n\
         admission = { pinning = true }\n\
         [[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\ndiscipline = { kind = \"pdrr\" }\n\
         admission = { pinning = true }\n\
         [[link]]\nport = \"p2\"\nrate = \"2Mbit/s\"\ndiscipline = { kind = \"pdrr\" }\n\
         admission = { pinning = true }\n",
    ),
    (
        "more flows than the lists take",
        "[[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\ndiscipline = { kind = \"pdrr\", flows = 5 \
         }\nadmission = { flows = 8 }\n[[link]]\nport = \"p2\"\nrate = \"8Mbit/s\"\ndiscipline = \
         { kind = \"pfq\", flows = 5 }\n",
    ),
    (
        "FairDrop of a link that is full",
        "[fairdrop]\non = true\n[[link]]\nport = \"p1\"\nrate = \"1Mbit/s\"\n",
    ),
    (
        "queues that are too short",
        "[[link]]\nport = \"p0\"\nrate = \"20Mbit/s\"\nring = { slots = 2 }\n\
         discipline = { kind = \"pdrr\", buffer = 6, ack_filter = true }\n\
         [[link]]\nport = \"p1\"\nrate = \"20Mbit/s\"\ndequeue_time = \"50us\"\n\
         ring = { slots = 3, refill = \"whole-blocking\" }\n\
         discipline = { kind = \"pdrr\", buffer = 6 }\n\
         admission = { flows = 4, load_interval = \"1ms\" }\n\
         [[link]]\nport = \"p2\"\nrate = \"20Mbit/s\"\n\
         discipline = { kind = \"drr\", buffer = 8 }\n",
    ),
    (
        "queues that are kept short",
        "[[link]]\nport = \"p0\"\nrate = \"20Mbit/s\"\n\
         discipline = { kind = \"codel\", target = \"1ms\", interval = \"10ms\" }\n\
         [[link]]\nport = \"p1\"\nrate = \"20Mbit/s\"\ndiscipline = { kind = \"fq-codel\" }\n\
         [[link]]\nport = \"p2\"\nrate = \"20Mbit/s\"\n\
         discipline = { kind = \"pfq\", aqm = \"cobalt\" }\nadmission = { global_list = true }\n",
    ),
    (
        "admission to links without a rate",
        "[[link]]\nport = \"p0\"\ndiscipline = { kind = \"pdrr\", start_limit = \"1000B\" }\n\
         admission = { rate = \"10Mbit/s\" }\n[[link]]\nport = \"p1\"\ndiscipline = { kind = \
         \"pfq\" }\nadmission = { rate = \"1Mbit/s\", flows = 8 }\n[[link]]\nport = \"p2\"\n\
         discipline = { kind = \"pdrr\" }\nadmission = { rate = \"10Mbit/s\", budget = false }\n",
    ),
];

fn bed(tables: &str, flows: u32) -> Bed {
    Bed::new(PORTS, &format!("[router]\nflow_cache = {flows}\n{tables}"))
}

/// A frame of one of some flows; now and then there is something unusual about it.
fn frame(random: &mut Choices<impl Iterator<Item = u32>>) -> (usize, Vec<u8>) {
    let (from, to) = (random.below(PORTS as u64) as usize, random.below(PORTS as u64) as usize);
    let host = random.one(&[2, 2, 2, 2, 9, 1, 255]);
    let what = Udp {
        ttl: random.one(&[64, 64, 64, 64, 2, 1, 0]),
        payload: random.one(&[0, 18, 100, 100, 600, 1_472, 1_473, 3_000]),
        dscp: random.one(&[0, 0, 46, 10]),
        dont_fragment: random.below(2) == 0,
        port: 5_000 + random.below(6) as u16,
    };
    let macs =
        (host_mac(from), if random.below(30) == 0 { host_mac(to) } else { router_mac(from) });
    let mut frame = match random.below(8) {
        0 => udp(macs, v6(from, 2), v6(to, host), what),
        _ => udp(macs, v4(from, random.one(&[2, 2, 3])), v4(to, host), what),
    };
    match random.below(40) {
        0 => frame[24] ^= 0xff,
        1 => frame[20] |= 0x20,
        2 => frame[14] = 0x46,
        3 => frame[23] = random.one(&[6, 1, 89]),
        4 => frame.truncate(random.below(60) as usize),
        5 => frame[6..12].copy_from_slice(&router_mac(to).0),
        6 => frame.extend_from_slice(&[0; 30]),
        7 => frame[12..14].copy_from_slice(&[0x08, 0x06]),
        8 => frame[26] = 127,
        _ => {}
    }
    (from, frame)
}

/// Changes something that decides where packets go. The same for both.
fn change(random: &mut Choices<impl Iterator<Item = u32>>, beds: [&mut Bed; 2]) {
    let (what, port) = (random.below(9), random.below(PORTS as u64) as usize);
    let (mac, value) = (random.below(4) as u8, random.below(6));
    let mtu = random.one(&[1_500, 1_500, 600, 9_000]);
    for bed in beds {
        let index = PortIndex(port as u16);
        let elsewhere = PortIndex(((port + 1) % PORTS) as u16);
        match what {
            0 => {
                let state = match value {
                    0 => None,
                    1 => Some(KernelNeighbourState::Failed),
                    2 => Some(KernelNeighbourState::Stale(host_mac(port))),
                    3 => Some(KernelNeighbourState::Reachable(MacAddr([2, 0, 0, 0, 9, mac]))),
                    _ => Some(KernelNeighbourState::Reachable(host_mac(port))),
                };
                bed.pipeline.set_neighbour(bed.now, index, v4(port, 2), state);
            }
            1 => {
                let state = LinkState { mac: router_mac(port), mtu, up: value > 0 };
                bed.pipeline.set_link(bed.now, index, Some(state));
            }
            2 => {
                let route = match value {
                    0 => Route::of(RouteKind::Blackhole),
                    1 => Route::of(RouteKind::Local),
                    // By an interface that is no port: the kernel's to forward.
                    5 => Route::of(RouteKind::Elsewhere),
                    2 => Route::via(NextHop::gateway(elsewhere, v4(elsewhere.index(), 2)), 0),
                    3 => {
                        let hops = [index, elsewhere].map(|port| NextHop {
                            port,
                            gateway: Some(v4(port.index(), 2)),
                            weight: 1,
                        });
                        let hops = NextHops::new(hops.into()).unwrap();
                        Route::of(RouteKind::Unicast(hops))
                    }
                    _ => Route { mtu, ..Route::via(NextHop::connected(index), 0) },
                };
                bed.pipeline.fib_mut().insert(format!("10.0.{port}.2/32").parse().unwrap(), route);
            }
            3 => {
                let main = value > 1;
                bed.pipeline.fib_mut().remove(
                    format!("10.0.{port}.2/32").parse().unwrap(),
                    Precedence { main, metric: 0 },
                );
            }
            4 => drop(bed.pass(Nanos::from_millis(800))),
            _ => {}
        }
    }
}

/// Both get the same packets and changes. How many frames were forwarded.
pub(super) fn hold_together(
    (name, tables): (&str, &str),
    flows: u32,
    steps: u32,
    random: &mut Choices<impl Iterator<Item = u32>>,
) -> u64 {
    let (mut known, mut long) = (bed(tables, flows), bed(tables, 0));
    let mut forwarded = 0;
    for step in 0..steps {
        if random.are_over {
            break;
        }
        if random.below(40) == 0 {
            change(random, [&mut known, &mut long]);
        }
        for _ in 0..random.below(12) {
            let (from, frame) = frame(random);
            for bed in [&mut known, &mut long] {
                let _ = bed.hosts[from].inject(&frame);
            }
        }
        let pause = Nanos::from_micros(1 + random.below(3_000));
        assert_eq!(known.pass(pause), long.pass(pause), "{name}, {flows}: step {step}");
        let mut asked = [Vec::new(), Vec::new()];
        for (bed, asked) in [&mut known, &mut long].into_iter().zip(&mut asked) {
            bed.pipeline.drain_requests(bed.now, |request| asked.push(request));
        }
        assert_eq!(asked[0], asked[1], "{name}, {flows}: asked of the kernel, step {step}");
        for at in 0..PORTS {
            let (ours, theirs) = (known.received(at), long.received(at));
            assert_eq!(ours, theirs, "{name}, {flows} flows: port {at}, step {step}");
            forwarded += ours.len() as u64;
        }
        if step % 500 == 0 {
            let (ours, theirs) = (known.snapshot(), long.snapshot());
            assert_eq!(ours, theirs, "{name}, {flows}: step {step}");
            let [ours, theirs] =
                [&mut known, &mut long].map(|bed| bed.pipeline.busiest(bed.now, 100));
            assert_eq!(ours, theirs, "{name}, {flows}: busiest, step {step}");
        }
    }
    forwarded
}
