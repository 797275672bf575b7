//! The `evenkeel` command with one more discipline: strict priority.

use std::process::ExitCode;

use evenkeel::core::queue::{LIMIT_RANGE, PacketQueue};
use evenkeel::core::schedule::{Backlog, DropSink, Meters, Scheduler, Treated, Wake};
use evenkeel::core::settings::{Change, SettingError, Settings as _};
use evenkeel::core::{Bytes, Class, Nanos, Packet, Reason, settings};
use evenkeel::{Disciplines, OwnError, Setup};
use serde::Deserialize;

/// What the file may say under `settings`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// All classes, the most urgent first.
    order: Vec<String>,
    /// Most packets queued in each class.
    limit: u32,
}

settings! {
    /// What changes while it runs.
    struct Live: "settings = { … }" {
        /// Most packets queued in each class.
        live limit: u32 = 50, in LIMIT_RANGE, counting "packets";
    }
}

/// One queue per class. A packet goes when all more urgent queues are empty.
#[derive(Clone, Debug)]
struct StrictPriority<P> {
    live: Live,
    /// By class.
    queues: Vec<PacketQueue<P>>,
    /// Classes, the most urgent first.
    order: Vec<usize>,
    busy: usize,
}

impl<P: Packet> StrictPriority<P> {
    const NAME: &str = "strict-priority";

    fn new(setup: &Setup<'_>) -> Result<Self, OwnError> {
        let settings: Settings = setup.settings()?;
        let mut order = Vec::new();
        for name in &settings.order {
            let class = setup.class(name)?;
            if order.contains(&class) {
                return Err(format!("settings.order: {name:?} is there twice").into());
            }
            order.push(class);
        }
        if order.len() < setup.classes().len() {
            return Err(format!(
                "settings.order: name all classes: {}",
                setup.classes().join(", ")
            )
            .into());
        }
        let live = Live { limit: settings.limit };
        live.check()?;
        Ok(Self::empty(order, live))
    }

    fn empty(order: Vec<usize>, live: Live) -> Self {
        let queues = order.iter().map(|_| PacketQueue::new(live.limit)).collect();
        Self { live, queues, order, busy: 0 }
    }

    /// The most urgent class that has packets.
    fn first(&self) -> Option<usize> {
        self.order.iter().copied().find(|class| !self.queues[*class].is_empty())
    }
}

impl<P: Packet> Scheduler<P> for StrictPriority<P> {
    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
        let queue = &mut self.queues[packet.class().index()];
        let was_empty = queue.is_empty();
        match queue.push(packet) {
            Ok(()) => {
                self.busy += usize::from(was_empty);
                Treated::Queued
            }
            Err(packet) => {
                dropped.dropped(packet, Reason::QueueFull);
                Treated::Dropped(Reason::QueueFull)
            }
        }
    }

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut dyn DropSink<P>) -> Option<P> {
        let queue = self.first().map(|class| &mut self.queues[class])?;
        let packet = queue.pop();
        self.busy -= usize::from(queue.is_empty());
        packet
    }

    fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        (self.busy > 0).then_some(now)
    }

    fn peek_len(&self, _now: Nanos) -> Option<Bytes> {
        self.queues[self.first()?].head().map(Packet::ip_len)
    }

    fn set(&mut self, _now: Nanos, change: &Change) -> Result<Wake, SettingError> {
        self.live.set_live(change, 1)?;
        for queue in &mut self.queues {
            queue.set_limit(self.live.limit);
        }
        Ok(Wake::No)
    }

    fn drain(&mut self, into: &mut dyn FnMut(P)) {
        for queue in &mut self.queues {
            while let Some(packet) = queue.pop() {
                into(packet);
            }
        }
        self.busy = 0;
    }

    fn meters(&self) -> Meters {
        let mut backlog = Backlog::default();
        for queue in &self.queues {
            backlog.packets += queue.backlog().packets;
            backlog.bytes += queue.backlog().bytes;
        }
        Meters { backlog, ..Meters::default() }
    }

    fn busy_queues(&self) -> usize {
        self.busy
    }

    fn class_backlog(&self, class: Class) -> Backlog {
        self.queues.get(class.index()).map(PacketQueue::backlog).unwrap_or_default()
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }
}

fn main() -> ExitCode {
    let own = Disciplines::default()
        .with("strict-priority", |setup| Ok(Box::new(StrictPriority::new(setup)?)));
    evenkeel::main(own)
}

#[cfg(test)]
mod tests {
    use evenkeel_harness::{Subject, TestPacket, ops, run};
    use proptest::prelude::*;

    use super::*;

    impl Subject for StrictPriority<TestPacket> {
        fn queue_of(&self, packet: &TestPacket) -> usize {
            packet.class.index()
        }
        fn work_conserving(&self) -> bool {
            true
        }
        fn by_class(&self) -> bool {
            true
        }
    }

    proptest! {
        #[test]
        fn it_keeps_the_contract(
            order in Just((0..10).collect::<Vec<usize>>()).prop_shuffle(),
            limit in 1u32..20,
            ops in ops(200),
        ) {
            run(StrictPriority::empty(order, Live { limit }), ops);
        }
    }
}
