//! What holds for every discipline, and how sequences are done to one.

use evenkeel_core::schedule::afan::{Afan, AfanConfig};
use evenkeel_core::schedule::buffer::{Buffer, KnownFlows};
use evenkeel_core::schedule::codel::{Codel, CodelConfig};
use evenkeel_core::schedule::drr::{Drr, DrrConfig};
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::fq_codel::{FqCodel, FqCodelConfig};
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::lct::{Lct, LctConfig};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::priority::{Priority, PriorityConfig};
use evenkeel_core::schedule::qfq::{Qfq, QfqConfig};
use evenkeel_core::schedule::wfq_altq::WfqAltq;
use evenkeel_core::settings::PerClass;
use evenkeel_core::{Bytes, Nanos, Weight};

use super::judges::{FLOWS, Judge};
use super::{World, all, is_found};
use crate::audit::faults::{Broken, Fault};
use crate::common::{Harness, Op, Outcome, Subject, TestPacket, longest, tail, weighted};

/// What is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// So many packets of a flow, which is a class too, and of this IP length.
    Arrive(u8, u32, u32),
    /// So many times the link asks for a packet.
    Send(u32),
    /// Time passes.
    Wait(Nanos),
}

/// A discipline, and who judges what it sends.
#[derive(Clone)]
pub(super) struct Judged<S, J> {
    harness: Harness<S>,
    judge: J,
    waiting: [u32; FLOWS],
}

impl<S: Subject, J: Judge> Judged<S, J> {
    pub(super) fn new(scheduler: S, judge: J) -> Self {
        Self { harness: Harness::new(scheduler), judge, waiting: [0; FLOWS] }
    }
}

impl<S: Subject, J: Judge> World for Judged<S, J> {
    type Op = Step;

    fn take(&mut self, step: Step) {
        match step {
            Step::Wait(time) => drop(self.harness.step(Op::Wait(time))),
            Step::Arrive(flow, length, packets) => {
                for _ in 0..packets {
                    self.harness.step(Op::Arrive { class: flow.into(), length, flow });
                    self.waiting[usize::from(flow)] += 1;
                }
            }
            Step::Send(packets) => {
                for _ in 0..packets {
                    let sent = self.harness.step(Op::Send);
                    if let Outcome::Sent(Some(packet)) = sent {
                        let of = packet.class.index();
                        let waited = self.waiting.map(|packets| packets > 0);
                        // Where packets are dropped nobody counts, and nobody judges.
                        self.waiting[of] = self.waiting[of].saturating_sub(1);
                        self.judge.sent(self.harness.now, of, &packet, waited);
                    }
                }
            }
        }
    }
}

/// Packets of two lengths from three flows, and a link that asks.
const ONE_BY_ONE: [Step; 7] = [
    Step::Arrive(0, 100, 1),
    Step::Arrive(1, 100, 1),
    Step::Arrive(2, 100, 1),
    Step::Arrive(0, 1000, 1),
    Step::Arrive(1, 1000, 1),
    Step::Arrive(2, 1000, 1),
    Step::Send(1),
];

/// All disciplines with buffers of four packets, so that they overflow within the sequence.
fn all_keep_the_contract(depth: u32) {
    let mut tried = 0;
    let mut holds = |name: &str, count: u64| {
        println!("{name}: {count} sequences of {depth}");
        tried += count;
    };
    macro_rules! each {
        ($($name:literal $scheduler:expr),+ $(,)?) => {$(
            holds($name, all(&Judged::new($scheduler.unwrap(), ()), &ONE_BY_ONE, depth));
        )+};
    }
    let classes = FLOWS as u16;
    let (buffer, flows) = (Buffer::packets(4), KnownFlows::up_to(2));
    let quantum = Bytes(500);
    each! {
        "fifo" Fifo::new(FifoConfig::packets(4)),
        "wfq-altq" WfqAltq::new(weighted(&[30, 100, 300], tail(2))),
        "wfq-altq, longest" WfqAltq::new(weighted(&[30, 100, 300], longest(1_600))),
        "lct" Lct::new(LctConfig {
            limit: PerClass::all(2),
            ..LctConfig::with_delays([Nanos::ZERO, Nanos(500), Nanos(700)])
        }),
        "pfq" Pfq::new(PfqConfig { quantum, buffer, flows, ..PfqConfig::default() }),
        "pdrr" Pdrr::new(PdrrConfig { quantum, buffer, flows, ..PdrrConfig::default() }),
        "pdrr, hosts" Pdrr::new(PdrrConfig {
            quantum, buffer, flows, fair: Fair::Source, ..PdrrConfig::default()
        }),
        "pdrr, hosts and flows" Pdrr::new(PdrrConfig {
            quantum, buffer, flows, fair: Fair::HostFlow, ..PdrrConfig::default()
        }),
        "pfq, hosts and flows" Pfq::new(PfqConfig {
            quantum, buffer, flows, fair: Fair::HostFlow, ..PfqConfig::default()
        }),
        "afan" Afan::new(AfanConfig { quantum, limit: 4, flows, ..AfanConfig::default() }),
        "drr" Drr::new(DrrConfig { quantum, queues: 4, buffer: 4 }),
        "qfq" Qfq::new(QfqConfig {
            weight: PerClass::new([30, 100, 300].map(Weight).to_vec(), Weight(100)),
            limit: 2,
            classes,
        }),
        "priority" Priority::new(PriorityConfig {
            level: PerClass::new(vec![2, 0, 1], 0), limit: 2, classes,
        }),
        "codel" Codel::new(CodelConfig { limit: 4, ..CodelConfig::default() }),
        "fq-codel" FqCodel::new(FqCodelConfig {
            quantum, queues: 4, buffer: 4, ..FqCodelConfig::default()
        }),
    }
    println!("{tried} sequences");
}

#[test]
fn short_sequences_keep_the_contract_of_every_discipline() {
    all_keep_the_contract(4);
}

#[test]
#[ignore = "two minutes, optimised: make prove"]
fn all_sequences_of_eight_keep_the_contract_of_every_discipline() {
    all_keep_the_contract(8);
}

impl Subject for Broken<Fifo<TestPacket>> {
    fn queue_of(&self, packet: &TestPacket) -> usize {
        self.inner.queue_of(packet)
    }
    fn work_conserving(&self) -> bool {
        true
    }
    fn by_class(&self) -> bool {
        false
    }
}

#[test]
fn lost_packets_idle_links_and_wrong_order_are_found() {
    for fault in [Fault::Loses(3), Fault::Idles(3), Fault::Swaps] {
        let fifo = Fifo::new(FifoConfig::packets(4)).unwrap();
        let faulty = Judged::new(Broken::new(fifo, fault), ());
        is_found(&format!("{fault:?}"), &faulty, &ONE_BY_ONE, 7);
    }
}
