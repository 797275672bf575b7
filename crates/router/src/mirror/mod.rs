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
//! for want of room, are counted ([`RefusedNeighbours`]), as is what of the kernel's messages could
//! not be read ([`MirrorFaults`]): where that ends a socket, the thread begins anew with another.
//! Whole prefixes that are local
//! (`ip route add local 10.0.0.0/8 dev lo`) are left to the kernel by the worker but dropped by the
//! guard.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_net::PortIndex;
use evenkeel_ports::sys::{self, Notifier, Poller};
use netlink_packet_route::AddressFamily;

pub mod decode;
mod faults;
pub mod names;
mod refused;
mod routes;
pub mod rules;
mod schedule;
mod socket;
pub mod state;
mod translations;

use decode::Fact;
pub use faults::MirrorFaults;
use names::TableNames;
pub use refused::RefusedNeighbours;
pub use rules::MirroredRules;
use schedule::{RuleReading, Schedule};
use socket::{Dumped, Kernel};
use state::{KernelCopy, Resync};
pub use state::{MirrorEvent, MirroredLink, MirroredNextHop, MirroredRoute};
use translations::Translations;

/// Events in one message to the worker: bounds the time it spends on them between two bursts.
const BATCH: usize = 256;
/// Messages that wait for the worker before this thread waits for it.
const BACKLOG: usize = 1024;
/// By how many steps the thread goes before the worker where they share a CPU: nine parts of ten
/// for what little it has to do.
const NICER: i32 = -10;
/// Datagrams read before the worker is told.
const DATAGRAMS_PER_ROUND: usize = 256;

/// From the failure of a socket to the next one.
const PAUSE: Duration = Duration::from_secs(1);

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
    /// Whether the mirror is to end.
    stop: Arc<AtomicBool>,
}

impl MirrorView {
    /// The next batch of events, if there is one. Never waits.
    ///
    /// # Errors
    /// The thread has ended, which it does of itself only by a defect: what is known grows old.
    pub fn poll(&self) -> io::Result<Option<Vec<MirrorEvent>>> {
        match self.events.try_recv() {
            Ok(batch) => Ok(Some(batch)),
            Err(TryRecvError::Empty) => Ok(None),
            // The first worker has gone, and the others are about to.
            Err(TryRecvError::Disconnected) if self.stop.load(Ordering::Relaxed) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(io::Error::other(
                "the thread that follows the kernel's routes and neighbours has ended",
            )),
        }
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
        let (mirror, initial, _none) = Self::start_for(interfaces, ready, &[], false, &[])?;
        Ok((mirror, initial))
    }

    /// As [`Mirror::start`], with further views that are told the same, each with a notifier of its
    /// own from `others`. A view may be dropped at any time. `translations`: also which hosts are
    /// behind translated connections, where the kernel can tell. `taken`: CPUs that it leaves to
    /// others, if there are more.
    ///
    /// # Errors
    /// As [`Mirror::start`].
    pub fn start_for(
        interfaces: Vec<String>,
        ready: Notifier,
        others: &[Notifier],
        translations: bool,
        taken: &[usize],
    ) -> io::Result<(Self, Vec<MirrorEvent>, Vec<MirrorView>)> {
        let (mut follower, views) = Follower::new(Kernel::open()?, interfaces, ready, others)?;
        follower.translated = translations;
        follower.follow_translations()?;
        let mut initial = Vec::new();
        let started = sys::monotonic_now();
        follower.copy.replace(follower.kernel.dump()?, &mut initial);
        let rules = follower.kernel.dump_rules()?;
        follower.copy.replace_rules(rules, TableNames::of_system(), &mut initial);
        follower.read_all(&mut initial, false)?;
        while follower.read_translations(&mut initial) {}
        follower.schedule.has_read(started, sys::monotonic_now());
        let (mirror, others) = follower.spawn(views, taken.to_vec())?;
        Ok((mirror, initial, others))
    }

    /// The first worker's end.
    #[must_use]
    pub fn view(&self) -> &MirrorView {
        &self.view
    }

    /// The next batch of events, if there is one. Never waits.
    ///
    /// # Errors
    /// As [`MirrorView::poll`].
    pub fn poll(&self) -> io::Result<Option<Vec<MirrorEvent>>> {
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
            while matches!(self.view.poll(), Ok(Some(_))) {}
            std::thread::sleep(Duration::from_millis(1));
        }
        // A panic of the thread has been printed by the panic hook; there is nothing to add here.
        let _ = thread.join();
    }
}

/// The thread.
struct Follower {
    kernel: Kernel,
    /// Whether translated connections are to be followed, and what follows them.
    translated: bool,
    translations: Option<Translations>,
    copy: KernelCopy,
    poller: Poller,
    requests: Receiver<NeighbourRequest>,
    subscribers: Vec<Subscriber>,
    wake: Notifier,
    stop: Arc<AtomicBool>,
    schedule: Schedule,
    rules: RuleReading,
    refused: RefusedNeighbours,
    faults: MirrorFaults,
    /// As the workers know them.
    told: MirrorFaults,
}

impl Follower {
    /// Knows nothing yet. The views are as many as the notifiers, in their order.
    fn new(
        kernel: Kernel,
        interfaces: Vec<String>,
        ready: Notifier,
        others: &[Notifier],
    ) -> io::Result<(Self, Vec<MirrorView>)> {
        let (asks, requests) = channel();
        let wake = Notifier::new()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (mut subscribers, mut views) = (Vec::new(), Vec::new());
        for ready in std::iter::once(ready).chain(others.iter().cloned()) {
            let (sender, events) = sync_channel(BACKLOG);
            subscribers.push(Subscriber { events: sender, ready: ready.clone() });
            let (requests, wake, stop) = (asks.clone(), wake.clone(), Arc::clone(&stop));
            views.push(MirrorView { events, requests, wake, ready, stop });
        }
        let follower = Self {
            poller: watching(&kernel, &wake)?,
            kernel,
            translated: false,
            translations: None,
            copy: KernelCopy::new(interfaces),
            requests,
            subscribers,
            wake,
            stop,
            schedule: Schedule::new(sys::monotonic_now()),
            rules: RuleReading::default(),
            refused: RefusedNeighbours::default(),
            faults: MirrorFaults::default(),
            told: MirrorFaults::default(),
        };
        Ok((follower, views))
    }

    /// Goes on in a thread, not on `taken` CPUs if there are others. The mirror has the first of
    /// the views.
    fn spawn(
        self,
        mut views: Vec<MirrorView>,
        taken: Vec<usize>,
    ) -> io::Result<(Mirror, Vec<MirrorView>)> {
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::Builder::new().name("mirror".into()).spawn(move || {
            // It has inherited the CPU of the worker that started it: who is busy there would keep
            // changes waiting, and it the worker while many routes change. And a change is little
            // work that others wait for. Where neither is allowed, it follows all the same.
            let _ = sys::drop_cpu_affinity(&taken);
            let _ = sys::change_nice(NICER);
            self.run();
        })?;
        Ok((Mirror { view: views.remove(0), stop, thread: Some(thread) }, views))
    }

    /// Until the workers have gone, or the mirror is dropped.
    fn run(mut self) {
        let mut changes = Vec::new();
        while let Err(_failed) = self.follow(&mut changes) {
            // Routes that nobody follows are worse than a second without: a socket that failed is
            // replaced, and everything is read again.
            self.faults.begun_again += 1;
            while !self.begin_anew() {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }

    /// # Errors
    /// A socket or the poller failed.
    fn follow(&mut self, changes: &mut Vec<MirrorEvent>) -> io::Result<()> {
        let (mut ready, mut facts) = (Vec::new(), Vec::new());
        while !self.stop.load(Ordering::Relaxed) {
            let wait =
                self.schedule.due().min(self.rules.due()).saturating_sub(sys::monotonic_now());
            self.poller.wait(&mut ready, Some(wait))?;
            let _ = self.wake.take();
            self.serve(changes);
            self.read(&mut facts, changes)?;
            self.read_translations(changes);
            if !self.tell(changes) {
                return Ok(());
            }
            if sys::monotonic_now() >= self.schedule.due() {
                self.resync(changes)?;
                if !self.tell(changes) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// New sockets, and everything is to be read. False: not now.
    fn begin_anew(&mut self) -> bool {
        let sockets = Kernel::open().and_then(|kernel| {
            let poller = watching(&kernel, &self.wake)?;
            Ok((kernel, poller))
        });
        let opened = sockets.is_ok();
        if let Ok((kernel, poller)) = sockets {
            self.faults.undecodable += self.kernel.undecodable;
            (self.kernel, self.poller) = (kernel, poller);
            self.translations = None;
            let _ = self.follow_translations();
            self.schedule = Schedule::new(sys::monotonic_now());
            self.schedule.want(sys::monotonic_now(), Resync::Now);
        }
        // Also where a new one was had: it may fail as the last one did.
        std::thread::sleep(PAUSE);
        opened
    }

    /// Follows translated connections, where it is to and the kernel tells them.
    ///
    /// # Errors
    /// The poller failed.
    fn follow_translations(&mut self) -> io::Result<()> {
        if self.translated
            && let Ok(translations) = Translations::open()
        {
            self.poller.add(translations.fd(), 2)?;
            self.translations = Some(translations);
        }
        Ok(())
    }

    /// True: there may be more. Should the socket fail, another is opened with what it missed.
    fn read_translations(&mut self, changes: &mut Vec<MirrorEvent>) -> bool {
        let Some(translations) = &mut self.translations else { return false };
        translations.read(changes).unwrap_or_else(|_failed| {
            self.translations = None;
            let _ = self.follow_translations();
            false
        })
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
        let undecodable = self.faults.undecodable + self.kernel.undecodable;
        let faults = MirrorFaults { undecodable, ..self.faults };
        if faults != self.told {
            changes.push(MirrorEvent::Faults(faults));
            self.told = faults;
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

/// Waits for events of the kernel, and for whoever wants something of the thread.
fn watching(kernel: &Kernel, wake: &Notifier) -> io::Result<Poller> {
    let poller = Poller::new()?;
    poller.add(kernel.fd(), 0)?;
    poller.add(wake.fd(), 1)?;
    Ok(poller)
}

#[cfg(test)]
mod tests {
    use evenkeel_core::Nanos;

    use super::*;

    /// F15: the thread ended at the first error, and the router forwarded by the routes of then.
    #[test]
    fn f15_a_socket_that_fails_is_replaced_and_everything_read_again() {
        let kernel = Kernel::open().unwrap();
        kernel.fails.store(true, Ordering::Relaxed);
        let ready = Notifier::new().unwrap();
        let (follower, views) = Follower::new(kernel, Vec::new(), ready, &[]).unwrap();
        let (mirror, _none) = follower.spawn(views, Vec::new()).unwrap();
        mirror.view.wake.notify();
        let begun_again = |event: &MirrorEvent| {
            matches!(event, MirrorEvent::Faults(MirrorFaults { begun_again: 1, .. }))
        };
        let is_route = |event: &MirrorEvent| matches!(event, MirrorEvent::Route { .. });
        let (mut told, mut read) = (false, false);
        let until = sys::monotonic_now() + Nanos::from_secs(30);
        while !(told && read) && sys::monotonic_now() < until {
            let batch = mirror.poll().unwrap().unwrap_or_default();
            // Nothing was known: what is read now is all there is. The loopback has a route.
            told |= batch.iter().any(begun_again);
            read |= batch.iter().any(is_route);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(told && read, "told: {told}, read again: {read}");
    }

    /// F15: that it had ended went unnoticed.
    #[test]
    fn f15_a_thread_that_ends_of_itself_is_noticed_and_one_that_is_to_end_is_not() {
        let (sender, events) = sync_channel(1);
        let (requests, _receiver) = channel();
        let (wake, ready) = (Notifier::new().unwrap(), Notifier::new().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let view = MirrorView { events, requests, wake, ready, stop: Arc::clone(&stop) };
        assert_eq!(view.poll().unwrap(), None);
        drop(sender);
        assert!(view.poll().unwrap_err().to_string().contains("has ended"));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(view.poll().unwrap(), None);
    }
}
