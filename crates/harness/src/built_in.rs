//! What the harness must know of the disciplines that are there.

use evenkeel_core::schedule::afan::Afan;
use evenkeel_core::schedule::codel::Codel;
use evenkeel_core::schedule::drr::Drr;
use evenkeel_core::schedule::fifo::Fifo;
use evenkeel_core::schedule::fq_codel::FqCodel;
use evenkeel_core::schedule::lct::Lct;
use evenkeel_core::schedule::pdrr::Pdrr;
use evenkeel_core::schedule::pfq::Pfq;
use evenkeel_core::schedule::priority::Priority;
use evenkeel_core::schedule::qfq::Qfq;
use evenkeel_core::schedule::wfq_altq::{QueueSelect, WfqAltq};
use evenkeel_core::{Bytes, Packet as _};

use crate::{Subject, TestPacket};

macro_rules! subject_by_flow {
    ($($name:ident $drops:expr),+) => {$(
        impl Subject for $name<TestPacket> {
            fn queue_of(&self, packet: &TestPacket) -> usize {
                usize::from(packet.flow.source_port - 5000)
            }
            fn work_conserving(&self) -> bool {
                true
            }
            fn by_class(&self) -> bool {
                false
            }
            fn queues_are_counted(&self) -> bool {
                false
            }
            fn drops_at_the_head(&self) -> bool {
                let drops: fn(&Self) -> bool = $drops;
                drops(self)
            }
            fn counted(&self, packet: &TestPacket) -> Bytes {
                packet.wire_len()
            }
        }
    )+};
}
subject_by_flow!(
    Pfq | pfq | pfq.config().aqm.is_on(),
    Pdrr | pdrr | pdrr.config().aqm.is_on(),
    Afan | _ | false,
    Drr | _ | false,
    FqCodel | _ | true
);

macro_rules! subject_of_one_queue {
    ($($name:ident $drops:literal),+) => {$(
        impl Subject for $name<TestPacket> {
            fn queue_of(&self, _: &TestPacket) -> usize {
                0
            }
            fn work_conserving(&self) -> bool {
                true
            }
            fn by_class(&self) -> bool {
                false
            }
            fn drops_at_the_head(&self) -> bool {
                $drops
            }
        }
    )+};
}
subject_of_one_queue!(Fifo false, Codel true);

macro_rules! subject_by_class {
    ($($name:ident),+) => {$(
        impl Subject for $name<TestPacket> {
            fn queue_of(&self, packet: &TestPacket) -> usize {
                let classes = usize::from(self.config().classes);
                Some(packet.class.index()).filter(|class| *class < classes).unwrap_or(0)
            }
            fn work_conserving(&self) -> bool {
                true
            }
            fn by_class(&self) -> bool {
                true
            }
        }
    )+};
}
// Priority with a level for each class.
subject_by_class!(Priority, Qfq);

impl Subject for WfqAltq<TestPacket> {
    fn queue_of(&self, packet: &TestPacket) -> usize {
        let queues = usize::from(self.queues());
        match self.config().select.hash(&packet.flow) {
            None => Some(packet.class.index()).filter(|q| *q < queues).unwrap_or(0),
            Some(hash) => hash as usize % queues,
        }
    }
    fn work_conserving(&self) -> bool {
        true
    }
    fn by_class(&self) -> bool {
        self.config().select == QueueSelect::Class
    }
    fn drops_at_the_head(&self) -> bool {
        self.config().aqm.is_on()
    }
}

impl Subject for Lct<TestPacket> {
    fn queue_of(&self, packet: &TestPacket) -> usize {
        Some(packet.class.index()).filter(|k| *k < usize::from(self.classes())).unwrap_or(0)
    }
    fn work_conserving(&self) -> bool {
        !self.config().module2 && !self.config().multi_backlog.holds(false)
    }
    fn by_class(&self) -> bool {
        true
    }
}
