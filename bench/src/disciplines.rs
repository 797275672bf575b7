//! The disciplines alone, in memory: one packet out and one in, with a standing backlog in every
//! class.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use evenkeel_core::audit::Told;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::link::{Link, LinkConfig, LinkSink, Refill, RingConfig};
use evenkeel_core::packet::Places;
use evenkeel_core::schedule::buffer::{Buffer, KnownFlows};
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::lct::{Lct, LctConfig};
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_core::schedule::wfq_altq::{WfqAltq, WfqAltqConfig};
use evenkeel_core::schedule::{AnyScheduler, DisciplineConfig};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{Class, FlowKey, Nanos, Reason, Scheduler, Weight};

use crate::flows;
use crate::handle::{Handle, Record, Spare};

/// Packets that wait in each class while packets are exchanged.
const DEPTH: u16 = 8;
/// Nanoseconds between two exchanges, so that clocks and due times advance: 10 Mpps.
const SPACING: u64 = 100;

fn record(class: u16, number: u64) -> Record {
    let address = |last: u64| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | last as u32));
    Record {
        flow: PackedFlow::new(&FlowKey {
            source: address(u64::from(class)),
            destination: address(0x1_0000 + number),
            protocol: 17,
            source_port: 5000,
            destination_port: 5001,
            flow_label: 0,
        }),
        hash: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        arrival: Nanos::ZERO,
        places: Places::UNKNOWN,
        subscriber: UNKNOWN,
        len: 46 + (number % 1400) as u16,
        class: Class(class),
    }
}

/// A discipline with `classes` classes, by its name in configuration files; `lct` once with all
/// classes due at once and once (`lct-delay`) with one class at `X_DELAY` 0 and the others at 10 to
/// 200 us.
fn scheduler(kind: &str, classes: u16) -> AnyScheduler<Handle> {
    let limit = u32::from(DEPTH) * 2;
    let lct = |x_delay: Vec<Nanos>| {
        let config = LctConfig { limit: PerClass::all(limit), ..LctConfig::with_delays(x_delay) };
        AnyScheduler::Lct(Lct::new(config).expect("the knobs are in range"))
    };
    match kind {
        "fifo" => AnyScheduler::Fifo(
            Fifo::new(FifoConfig::packets(limit * u32::from(classes)))
                .expect("the limit is in range"),
        ),
        "wfq-altq" => {
            let weights: Vec<_> =
                (0..classes).map(|c| Weight(30 + 970 * u32::from(c % 4) / 3)).collect();
            let limit = PerClass::all(limit);
            let config = WfqAltqConfig { limit, ..WfqAltqConfig::with_weights(weights) };
            AnyScheduler::WfqAltq(WfqAltq::new(config).expect("the knobs are in range"))
        }
        "lct" => lct(vec![Nanos::ZERO; usize::from(classes)]),
        "lct-delay" => lct((0..classes)
            .map(|c| Nanos::from_micros([0, 10, 50, 200][usize::from(c % 4)]))
            .collect()),
        other => unreachable!("no such case: {other}"),
    }
}

/// The cases: name of the discipline and number of classes.
pub(crate) const CASES: [(&str, u16); 8] = [
    ("fifo", 4),
    ("fifo", 256),
    ("wfq-altq", 4),
    ("wfq-altq", 256),
    ("lct", 4),
    ("lct", 256),
    ("lct-delay", 4),
    ("lct-delay", 256),
];

/// A discipline with its backlog, ready to exchange packets.
pub(crate) struct Exchange {
    scheduler: AnyScheduler<Handle>,
    now: Nanos,
}

impl Exchange {
    /// Fills every class to [`DEPTH`] packets.
    pub(crate) fn new(kind: &str, classes: u16) -> Self {
        let mut scheduler = scheduler(kind, classes);
        for number in 0..u64::from(classes) * u64::from(DEPTH) {
            let packet = record((number % u64::from(classes)) as u16, number);
            let packet = Handle(Box::new(packet));
            let treated = scheduler.enqueue(Nanos::ZERO, packet, &mut |_, reason: Reason| {
                unreachable!("the backlog fits: {reason}");
            });
            let _ = black_box(treated);
        }
        Self { scheduler, now: Nanos::ZERO }
    }

    /// Takes the next packet out and puts it in again, `times` times.
    pub(crate) fn run(&mut self, times: u64) {
        for _ in 0..times {
            self.now += Nanos(SPACING);
            let mut lost = |_, reason: Reason| unreachable!("nothing is dropped: {reason}");
            if let Some(mut packet) = self.scheduler.dequeue(self.now, &mut lost) {
                packet.0.arrival = self.now;
                let _ = black_box(self.scheduler.enqueue(self.now, packet, &mut lost));
            }
        }
    }

    /// Nanoseconds per packet (one `dequeue` and one `enqueue`) over `times` packets.
    pub(crate) fn time(&mut self, times: u64) -> f64 {
        let begin = Instant::now();
        self.run(times);
        begin.elapsed().as_nanos() as f64 / times as f64
    }
}

/// A whole outgoing link (meters, ring and paced wire too) that is kept busy by two classes at
/// twice its rate.
pub(crate) struct BusyLink {
    link: Link<Handle, AnyScheduler<Handle>>,
    now: Nanos,
    sink: Counted,
    number: u64,
}

#[derive(Default)]
struct Counted {
    sent: u64,
    dropped: u64,
    spare: Spare,
}

impl LinkSink<Handle> for Counted {
    fn transmitted(&mut self, _at: Nanos, packet: Handle) {
        self.sent += 1;
        self.spare.take(packet);
    }
    fn dropped(&mut self, _at: Nanos, packet: Handle, _reason: Reason) {
        self.dropped += 1;
        self.spare.take(packet);
    }
}

impl BusyLink {
    /// A 10 Gbit/s link with a 64-slot ring.
    pub(crate) fn new(kind: &str, classes: u16) -> Self {
        let config = LinkConfig {
            rate: Some(evenkeel_core::BitRate::from_mbps(10_000)),
            ring: RingConfig { slots: 64, refill: Refill::AnySlot },
            ..LinkConfig::default()
        };
        let link =
            Link::new(config, scheduler(kind, classes), classes).expect("the link is in range");
        Self { link, now: Nanos::ZERO, sink: Counted::default(), number: 0 }
    }

    /// `times` arrivals of 746-byte packets (on average), each in half its time on the wire.
    pub(crate) fn run(&mut self, times: u64) {
        let classes = 4;
        for _ in 0..times {
            self.now += Nanos(313);
            self.number += 1;
            let record = record((self.number % classes) as u16, self.number);
            let packet = self.sink.spare.packet(Record { arrival: self.now, ..record });
            let _ = black_box(self.link.enqueue(self.now, packet, &mut self.sink));
        }
    }

    /// Nanoseconds per arriving packet, half of which are dropped.
    pub(crate) fn time(&mut self, times: u64) -> f64 {
        let begin = Instant::now();
        self.run(times);
        let elapsed = begin.elapsed().as_nanos() as f64;
        assert!(self.sink.sent > 0 && self.sink.dropped > 0, "the link was not overloaded");
        elapsed / times as f64
    }
}

/// A link that is just full of packets of many flows, served by PDRR; audited or not.
pub(crate) struct FullLink {
    link: Link<Handle, AnyScheduler<Handle>>,
    now: Nanos,
    sink: Counted,
    number: u32,
}

/// What it is named by [`FullLink::new`], and whether it is audited.
pub(crate) const FULL_LINKS: [(&str, bool); 2] =
    [("link:pdrr, 64 k flows, not audited", false), ("link:pdrr, 64 k flows, audited", true)];
/// Its flows.
const MANY: u32 = 1 << 16;

impl FullLink {
    /// A 10 Gbit/s link. What waits at first is sent while it runs.
    pub(crate) fn new(audited: bool) -> Self {
        let core = LinkConfig::paced(evenkeel_core::BitRate::from_mbps(10_000));
        let buffer = Buffer::packets(2 * MANY);
        let flows = KnownFlows::up_to(MANY);
        let pdrr = DisciplineConfig::Pdrr(PdrrConfig { buffer, flows, ..PdrrConfig::default() });
        let scheduler = pdrr.build(1).expect("the configuration is in range");
        let mut link = Link::new(core, scheduler, 1).expect("the link is in range");
        if audited {
            link.tell(Nanos::ZERO, Told { link: core, promise: pdrr.promise(1) });
        }
        let mut full = Self { link, now: Nanos::ZERO, sink: Counted::default(), number: 0 };
        full.arrive(MANY.into(), Nanos::ZERO);
        full
    }

    fn arrive(&mut self, times: u64, apart: Nanos) {
        for _ in 0..times {
            self.now += apart;
            self.number = self.number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let record = Record { arrival: self.now, ..flows::record(self.number >> 16) };
            let packet = self.sink.spare.packet(record);
            let _ = black_box(self.link.enqueue(self.now, packet, &mut self.sink));
        }
    }

    /// `times` arrivals, as many as leave.
    pub(crate) fn run(&mut self, times: u64) {
        // 1,038 bytes.
        self.arrive(times, Nanos(830));
    }
}
