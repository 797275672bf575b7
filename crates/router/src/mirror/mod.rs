//! The kernel's links, addresses, routes and neighbours, followed live: the kernel is the control
//! plane.
//!
//! A thread of its own reads netlink and sends the worker what changed. Whatever sets routes (`ip`,
//! a routing daemon) works unchanged. Decoding ([`decode`]) and bookkeeping ([`state`]) are pure;
//! only [`socket`](self) and the thread touch the system.
//!
//! Netlink loses events without saying so, and the kernel removes routes without an event when a
//! link goes down. So events are taken as hints that are acted on at once, and the truth is read
//! again: at once after an overrun, 20 ms after a change of links or addresses, 300 ms after routes
//! have changed, and every 10 s. Reading a table of 100,000 routes takes some 0.2 s of this thread;
//! it then waits at least ten times as long before it reads again. While it reads, it goes on to
//! follow: a change of a route is not held up by a table of a million.
//!
//! What is mirrored: all tables with their routes (the smallest metric of a prefix, multipath next
//! hops, routes that refuse or `throw`, their MTU), and the [rules] that choose among them, routing
//! domains (VRFs) included. As long as the rules are the kernel's own, the tables local and main
//! are told as one. Next-hop objects come with their next hops written out
//! (`net.ipv4.nexthop_compat_mode`, on by default). What packets in transit meet in the kernel and
//! not here is told once ([`decode::NotFollowed`]). Neighbours that the kernel refuses to ask for,
//! for want of room, are counted ([`RefusedNeighbours`]). Whole prefixes that are local
//! (`ip route add local 10.0.0.0/8 dev lo`) are left to the kernel by the worker but dropped by the
//! guard.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use evenkeel_core::Nanos;
use evenkeel_net::PortIndex;
use evenkeel_ports::sys::{self, Notifier, Poller};
use netlink_packet_route::AddressFamily;

pub mod decode;
pub mod names;
mod refused;
mod routes;
pub mod rules;
mod socket;
pub mod state;

use decode::Fact;
use names::TableNames;
pub use refused::RefusedNeighbours;
pub use rules::MirroredRules;
use socket::{Dumped, Kernel};
use state::{KernelCopy, Resync};
pub use state::{MirrorEvent, MirroredLink, MirroredNextHop, MirroredRoute};

/// Events in one message to the worker: bounds the time it spends on them between two bursts.
const BATCH: usize = 256;
/// Messages that wait for the worker before this thread waits for it.
const BACKLOG: usize = 1024;
/// By how many steps the thread goes before the worker where they share a CPU: nine parts of ten
/// for what little it has to do.
const NICER: i32 = -10;
/// Datagrams read before the worker is told.
const DATAGRAMS_PER_ROUND: usize = 256;

const SOON: Nanos = Nanos::from_millis(20);
const LATER: Nanos = Nanos::from_millis(300);
/// A burst without a pause may put the re-reading off for so long.
const LATEST: Nanos = Nanos::from_secs(2);
const PERIOD: Nanos = Nanos::from_secs(10);

/// What the worker asks of the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NeighbourRequest {
    /// The port it is behind.
    pub port: PortIndex,
    /// Its address.
    pub address: IpAddr,
}

/// The mirror and a worker's end of it. Dropping it ends the thread.
#[derive(Debug)]
pub struct Mirror {
    view: MirrorView,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A worker's end of the mirror.
#[derive(Debug)]
pub struct MirrorView {
    events: Receiver<Vec<MirrorEvent>>,
    requests: Sender<NeighbourRequest>,
    wake: Notifier,
    ready: Notifier,
}

impl MirrorView {
    /// The next batch of events, if there is one. Never waits.
    #[must_use]
    pub fn poll(&self) -> Option<Vec<MirrorEvent>> {
        self.events.try_recv().ok()
    }

    /// The descriptor that becomes readable when there are events.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ready.fd()
    }

    /// Has the kernel resolve a neighbour, or confirm one that is stale. Never waits; the answer is
    /// an event.
    pub fn ask(&self, request: NeighbourRequest) {
        // The thread has ended if nobody receives: then nothing can be asked for any more.
        if self.requests.send(request).is_ok() {
            self.wake.notify();
        }
    }
}

/// Where the events of a worker go.
struct Subscriber {
    events: SyncSender<Vec<MirrorEvent>>,
    ready: Notifier,
}

impl Mirror {
    /// Reads everything once and starts following, in the network namespace of the calling thread.
    /// `interfaces` are those of the ports, in their order; one that does not exist yet is waited
    /// for. `ready` is notified when there are events. Returns the mirror and all that is known
    /// now.
    ///
    /// # Errors
    /// The kernel refused a socket or a dump.
    pub fn start(interfaces: Vec<String>, ready: Notifier) -> io::Result<(Self, Vec<MirrorEvent>)> {
        let (mirror, initial, _none) = Self::start_for(interfaces, ready, &[])?;
        Ok((mirror, initial))
    }

    /// As [`Mirror::start`], with further views that are told the same, each with a notifier of its
    /// own from `others`. A view may be dropped at any time.
    ///
    /// # Errors
    /// As [`Mirror::start`].
    pub fn start_for(
        interfaces: Vec<String>,
        ready: Notifier,
        others: &[Notifier],
    ) -> io::Result<(Self, Vec<MirrorEvent>, Vec<MirrorView>)> {
        let mut kernel = Kernel::open()?;
        let mut copy = KernelCopy::new(interfaces);
        let mut initial = Vec::new();
        let started = sys::monotonic_now();
        copy.replace(kernel.dump()?, &mut initial);
        copy.replace_rules(kernel.dump_rules()?, TableNames::of_system(), &mut initial);

        let (requests, request_receiver) = channel();
        let wake = Notifier::new()?;
        let stop = Arc::new(AtomicBool::new(false));
        let poller = Poller::new()?;
        poller.add(kernel.fd(), 0)?;
        poller.add(wake.fd(), 1)?;
        let mut subscribers = Vec::with_capacity(1 + others.len());
        let mut subscribe = |ready: Notifier| {
            let (sender, events) = sync_channel(BACKLOG);
            subscribers.push(Subscriber { events: sender, ready: ready.clone() });
            MirrorView { events, requests: requests.clone(), wake: wake.clone(), ready }
        };
        let view = subscribe(ready);
        let views = others.iter().cloned().map(subscribe).collect();
        let mut follower = Follower {
            kernel,
            copy,
            poller,
            requests: request_receiver,
            subscribers,
            wake,
            stop: Arc::clone(&stop),
            schedule: Schedule::new(started),
            rules: RuleReading::default(),
            refused: RefusedNeighbours::default(),
        };
        follower.read_all(&mut initial, false)?;
        follower.schedule.has_read(started, sys::monotonic_now());
        let thread = std::thread::Builder::new().name("mirror".into()).spawn(move || {
            // It has inherited the CPU of the worker that started it: who is busy there would keep
            // changes waiting. And a change is little work that others wait for. Where neither is
            // allowed, it follows all the same.
            let _ = sys::drop_cpu_affinity();
            let _ = sys::change_nice(NICER);
            follower.run();
        })?;
        Ok((Self { view, stop, thread: Some(thread) }, initial, views))
    }

    /// The first worker's end.
    #[must_use]
    pub fn view(&self) -> &MirrorView {
        &self.view
    }

    /// The next batch of events, if there is one. Never waits.
    #[must_use]
    pub fn poll(&self) -> Option<Vec<MirrorEvent>> {
        self.view.poll()
    }

    /// The descriptor that becomes readable when there are events.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.view.fd()
    }

    /// Has the kernel resolve a neighbour, or confirm one that is stale. Never waits; the answer is
    /// an event.
    pub fn ask(&self, request: NeighbourRequest) {
        self.view.ask(request);
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.view.wake.notify();
        // The thread may be waiting for room in the channel: taking what is there lets it go on to
        // see the flag.
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            while self.view.poll().is_some() {}
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // A panic of the thread has been printed by the panic hook; there is nothing to add here.
        let _ = thread.join();
    }
}

/// When to read everything again.
#[derive(Debug)]
struct Schedule {
    due: Nanos,
    /// The first request for a re-reading that has not been served.
    first: Option<Nanos>,
    not_before: Nanos,
}

impl Schedule {
    /// Everything is being read from now on.
    fn new(now: Nanos) -> Self {
        Self { due: now + PERIOD, first: None, not_before: now }
    }

    /// Everything has been read.
    fn has_read(&mut self, began: Nanos, now: Nanos) {
        self.due = self.due.min(now + PERIOD);
        self.not_before = now.saturating_add((now - began) * 10);
    }

    fn want(&mut self, now: Nanos, resync: Resync) {
        let due = match resync {
            Resync::No | Resync::Rules => return,
            Resync::Now => now,
            Resync::Soon => now + SOON,
            Resync::Later => {
                let first = *self.first.get_or_insert(now);
                // A change of links has asked for an earlier time: routes that follow do not put it
                // off.
                if self.due < now + SOON {
                    return;
                }
                (now + LATER).min(first + LATEST)
            }
        };
        self.due = if resync == Resync::Later { due } else { due.min(self.due) };
    }

    fn due(&self) -> Nanos {
        self.due.max(self.not_before)
    }
}

/// When to read the rules again: at once after each change, but a change of thousands of rules one
/// by one costs no more than a tenth of one core's time.
#[derive(Debug, Default)]
struct RuleReading {
    wanted: bool,
    not_before: Nanos,
}

impl RuleReading {
    fn due(&self) -> Nanos {
        if self.wanted { self.not_before } else { Nanos::MAX }
    }

    fn has_read(&mut self, began: Nanos, now: Nanos) {
        self.wanted = false;
        self.not_before = now.saturating_add((now - began) * 10);
    }
}

/// The thread.
struct Follower {
    kernel: Kernel,
    copy: KernelCopy,
    poller: Poller,
    requests: Receiver<NeighbourRequest>,
    subscribers: Vec<Subscriber>,
    wake: Notifier,
    stop: Arc<AtomicBool>,
    schedule: Schedule,
    rules: RuleReading,
    refused: RefusedNeighbours,
}

impl Follower {
    fn run(mut self) {
        let mut ready = Vec::new();
        let mut facts = Vec::new();
        let mut changes = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let wait =
                self.schedule.due().min(self.rules.due()).saturating_sub(sys::monotonic_now());
            if self.poller.wait(&mut ready, Some(wait)).is_err() {
                return;
            }
            let _ = self.wake.take();
            self.serve(&mut changes);
            if self.read(&mut facts, &mut changes).is_err() || !self.tell(&mut changes) {
                return;
            }
            if sys::monotonic_now() >= self.schedule.due()
                && (self.resync(&mut changes).is_err() || !self.tell(&mut changes))
            {
                return;
            }
        }
    }

    /// Passes on what the workers ask of the kernel, and tells them what it refuses.
    fn serve(&mut self, changes: &mut Vec<MirrorEvent>) {
        let before = self.refused;
        while let Ok(request) = self.requests.try_recv() {
            if let Some(index) = self.copy.index_of(request.port)
                && let Err(error) = self.kernel.use_neighbour(index, request.address)
            {
                self.refused.count(request.address, &error);
            }
        }
        if self.refused != before {
            changes.push(MirrorEvent::RefusedNeighbours(self.refused));
        }
    }

    fn read(&mut self, facts: &mut Vec<Fact>, changes: &mut Vec<MirrorEvent>) -> io::Result<()> {
        for _ in 0..DATAGRAMS_PER_ROUND {
            if !self.kernel.read_events(facts)? {
                break;
            }
            let now = sys::monotonic_now();
            for fact in facts.drain(..) {
                let resync = self.copy.apply(fact, changes);
                self.rules.wanted |= resync == Resync::Rules;
                self.schedule.want(now, resync);
            }
        }
        let now = sys::monotonic_now();
        if self.rules.due() <= now {
            self.read_rules(changes);
            self.rules.has_read(now, sys::monotonic_now());
        }
        Ok(())
    }

    /// Reads all rules; one that the kernel refuses to tell (it is out of memory) is read again
    /// with everything else.
    fn read_rules(&mut self, changes: &mut Vec<MirrorEvent>) {
        if let Ok(rules) = self.kernel.dump_rules() {
            self.copy.replace_rules(rules, TableNames::of_system(), changes);
        }
    }

    fn resync(&mut self, changes: &mut Vec<MirrorEvent>) -> io::Result<()> {
        let started = sys::monotonic_now();
        self.schedule = Schedule::new(started);
        // A dump that the kernel refuses (it is out of memory): what is known stands, and the next
        // dump repairs it.
        if let Ok(tables) = self.kernel.dump() {
            self.copy.replace(tables, changes);
        }
        self.read_rules(changes);
        self.read_all(changes, true)?;
        self.schedule.has_read(started, sys::monotonic_now());
        Ok(())
    }

    /// Reads all neighbours and routes. If it is to `follow`, it does so between two datagrams.
    fn read_all(&mut self, changes: &mut Vec<MirrorEvent>, follow: bool) -> io::Result<()> {
        self.copy.begin_neighbours();
        let complete = self.read_dump(Dumped::Neighbours, changes, follow)?;
        self.copy.end_neighbours(complete, changes);
        self.copy.begin_routes();
        let mut routes = true;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            routes &= self.read_dump(Dumped::Routes(family), changes, follow)?;
        }
        self.copy.end_routes(routes, changes);
        if !(complete && routes) {
            self.schedule.want(sys::monotonic_now(), Resync::Later);
        }
        Ok(())
    }

    /// Reads one dump to its end. False: it is not complete, because a change interrupted it, the
    /// kernel refused it, or all is to stop.
    fn read_dump(
        &mut self,
        what: Dumped,
        changes: &mut Vec<MirrorEvent>,
        follow: bool,
    ) -> io::Result<bool> {
        let (mut facts, mut complete) = (Vec::new(), true);
        let mut sequence = match self.kernel.ask_for(what) {
            Ok(sequence) => Some(sequence),
            Err(error) if !follow => return Err(error),
            Err(_refused) => return Ok(false),
        };
        while let Some(of) = sequence {
            match self.kernel.read_dump(of, &mut facts) {
                Ok(true) => {}
                Ok(false) => sequence = None,
                Err(error) if !follow => return Err(error),
                Err(_refused) => (sequence, complete) = (None, false),
            }
            for fact in facts.drain(..) {
                complete &= fact != Fact::Interrupted;
                match what {
                    Dumped::Neighbours => self.copy.dumped_neighbour(fact, changes),
                    Dumped::Routes(_) => self.copy.dumped_route(fact, changes),
                }
            }
            if follow {
                let _ = self.wake.take();
                self.serve(changes);
                self.read(&mut facts, changes)?;
                if !self.tell(changes) || self.stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
            }
        }
        Ok(complete)
    }

    /// Sends changes to the workers. False: all have gone.
    fn tell(&mut self, changes: &mut Vec<MirrorEvent>) -> bool {
        while !changes.is_empty() {
            let rest = changes.split_off(changes.len().min(BATCH));
            let batch = std::mem::replace(changes, rest);
            // The last one takes the batch itself: a single worker's is never copied.
            let mut batch = Some(batch);
            let mut left = self.subscribers.len();
            self.subscribers.retain(|to| {
                left -= 1;
                let batch = if left == 0 { batch.take() } else { batch.clone() };
                let sent = batch.is_some_and(|batch| to.events.send(batch).is_ok());
                if sent {
                    to.ready.notify();
                }
                sent
            });
            if self.subscribers.is_empty() {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_routes_is_read_again_when_it_has_calmed_down_but_not_too_late() {
        let start = Nanos::from_secs(100);
        let mut schedule = Schedule::new(start);
        schedule.want(start + Nanos::from_secs(1), Resync::Later);
        assert_eq!(schedule.due(), start + Nanos::from_secs(1) + LATER);
        for tenths in 11..40 {
            schedule.want(start + Nanos::from_millis(tenths * 100), Resync::Later);
        }
        assert_eq!(schedule.due(), start + Nanos::from_secs(1) + LATEST);
    }

    #[test]
    fn a_change_of_links_is_not_put_off_by_routes() {
        let start = Nanos::from_secs(100);
        let mut schedule = Schedule::new(start);
        schedule.want(start, Resync::Soon);
        schedule.want(start + Nanos(1), Resync::Later);
        assert_eq!(schedule.due(), start + SOON);
        schedule.want(start + Nanos(2), Resync::Now);
        assert_eq!(schedule.due(), start + Nanos(2));
    }

    #[test]
    fn reading_takes_at_most_a_tenth_of_the_time() {
        let start = Nanos::from_secs(100);
        let mut schedule = Schedule::new(start);
        // What is asked for while it is read is not forgotten.
        schedule.want(start + Nanos::from_millis(100), Resync::Soon);
        schedule.has_read(start, start + Nanos::from_millis(200));
        assert_eq!(schedule.due(), start + Nanos::from_millis(2_200));
    }

    #[test]
    fn nothing_happening_it_is_read_periodically() {
        let start = Nanos::from_secs(100);
        assert_eq!(Schedule::new(start).due(), start + PERIOD);
    }
}
