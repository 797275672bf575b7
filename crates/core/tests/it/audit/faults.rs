//! Disciplines that are broken on purpose.

use evenkeel_core::schedule::{Backlog, DropSink, Meters, NodeAccount, Scheduler, Treated, Wake};
use evenkeel_core::settings::{Change, SettingError};
use evenkeel_core::{BitRate, Bytes, Class, FlowKey, Nanos, Packet};

use crate::common::TestPacket;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// This class is served only when no other waits.
    Starves(u16),
    /// After so many packets it gives nothing for a while, although some wait.
    Sleeps { every: u64, calls: u64 },
    /// One packet of so many is forgotten.
    Loses(u64),
    /// Asked for the time of this number it gives nothing, although some wait.
    Idles(u64),
    /// Of two that wait it gives the second first.
    Swaps,
    /// One packet more of the class in each round of so many.
    Favours { class: u16, every: u64 },
    /// Nodes of a tree are sent so many percent of the cap that they were told.
    LiftsCaps(u64),
    /// A node has so many percent of the weight that it was told.
    Weighs { place: u32, percent: u64 },
    /// Of packets with priority, those of this flow wait until nothing else does.
    SetsBack { port: u16 },
    /// So many packets of the flow besides, of each that it sends.
    FavoursFlow { port: u16, every: u64 },
}

/// A discipline with a fault.
#[derive(Clone, Debug)]
pub(crate) struct Broken<S> {
    pub(crate) inner: S,
    fault: Fault,
    aside: std::collections::VecDeque<TestPacket>,
    calls: u64,
    lost: u64,
}

impl<S> Broken<S> {
    pub(crate) fn new(inner: S, fault: Fault) -> Self {
        Self { inner, fault, aside: Default::default(), calls: 0, lost: 0 }
    }

    fn sets_aside(&self, packet: &TestPacket) -> bool {
        match self.fault {
            Fault::Starves(class) | Fault::Favours { class, .. } => packet.class == Class(class),
            Fault::FavoursFlow { port, .. } => packet.flow.source_port == port,
            _ => false,
        }
    }
}

impl<S: Scheduler<TestPacket>> Scheduler<TestPacket> for Broken<S> {
    fn enqueue(
        &mut self,
        now: Nanos,
        packet: TestPacket,
        dropped: &mut dyn DropSink<TestPacket>,
    ) -> Treated {
        // A part of the class goes through the discipline, a part past it.
        if self.sets_aside(&packet) && (self.aside.len() < 20 || packet.id.is_multiple_of(2)) {
            if self.aside.len() >= 40 {
                dropped.dropped(packet, evenkeel_core::Reason::QueueFull);
                return Treated::Dropped(evenkeel_core::Reason::QueueFull);
            }
            self.aside.push_back(packet);
            return Treated::Queued;
        }
        self.inner.enqueue(now, packet, dropped)
    }

    fn dequeue(
        &mut self,
        now: Nanos,
        dropped: &mut dyn DropSink<TestPacket>,
    ) -> Option<TestPacket> {
        self.calls += 1;
        match self.fault {
            Fault::Starves(_) => {
                self.inner.dequeue(now, dropped).or_else(|| self.aside.pop_front())
            }
            Fault::Favours { every, .. } | Fault::FavoursFlow { every, .. } => {
                let extra = self.calls.is_multiple_of(every).then(|| self.aside.pop_front());
                extra
                    .flatten()
                    .or_else(|| self.inner.dequeue(now, dropped))
                    .or_else(|| self.aside.pop_front())
            }
            Fault::Idles(time) if self.calls == time => None,
            Fault::SetsBack { port } => loop {
                match self.inner.dequeue(now, dropped) {
                    Some(packet) if packet.flow.source_port == port => self.aside.push_back(packet),
                    other => break other.or_else(|| self.aside.pop_front()),
                }
            },
            Fault::Swaps if !self.aside.is_empty() => self.aside.pop_front(),
            Fault::Swaps if self.inner.backlog().packets > 1 => {
                self.aside.extend(self.inner.dequeue(now, dropped));
                self.inner.dequeue(now, dropped)
            }
            Fault::Sleeps { every, calls } if self.calls % every < calls => None,
            Fault::Loses(every) if self.calls.is_multiple_of(every) => {
                self.lost += u64::from(self.inner.dequeue(now, dropped).is_some());
                self.inner.dequeue(now, dropped)
            }
            _ => self.inner.dequeue(now, dropped),
        }
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        if let Fault::Sleeps { .. } = self.fault {
            return Some(now + Nanos::from_micros(100));
        }
        self.inner.next_wake(now)
    }
    fn peek_len(&self, now: Nanos) -> Option<Bytes> {
        self.inner.peek_len(now)
    }
    fn set(&mut self, now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        self.inner.set(now, change)
    }
    fn drain(&mut self, into: &mut dyn FnMut(TestPacket)) {
        self.inner.drain(into);
        self.aside.drain(..).for_each(into);
    }
    fn meters(&self) -> Meters {
        let mut meters = self.inner.meters();
        meters.backlog.packets += self.aside.len() as u64;
        meters.backlog.bytes += self.aside.iter().map(Packet::ip_len).sum::<Bytes>();
        if let (Fault::SetsBack { .. }, Some(urgent)) = (self.fault, &mut meters.priority_backlog) {
            *urgent += self.aside.iter().map(Packet::wire_len).sum::<Bytes>();
        }
        meters
    }
    fn busy_queues(&self) -> usize {
        self.inner.busy_queues() + usize::from(!self.aside.is_empty())
    }
    fn class_backlog(&self, class: Class) -> Backlog {
        self.inner.class_backlog(class)
    }
    fn flow_backlog(&self, flow: &FlowKey, hash: u64) -> Bytes {
        self.inner.flow_backlog(flow, hash)
    }
    fn node_account(&self, place: u32) -> Option<NodeAccount> {
        let mut node = self.inner.node_account(place)?;
        match self.fault {
            Fault::LiftsCaps(percent) => {
                node.cap = node.cap.map(|cap| BitRate(cap.0 * 100 / percent));
            }
            Fault::Weighs { place: other, percent } if place == other => {
                node.weight = node.weight.map(|weight| weight * 100.0 / percent as f64);
            }
            _ => {}
        }
        Some(node)
    }
    fn node_places(&self) -> u32 {
        self.inner.node_places()
    }
    fn name(&self) -> &'static str {
        "broken"
    }
}
