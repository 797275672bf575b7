//! Packets for links that are the first worker's are handed to it by the others.
//!
//! What schedules a link as a whole (a tree of subscribers, LCT-UC, a dynamic control, a shaper, a
//! limit per user) is in one place, and is exact there. The others receive, classify and route,
//! and hand over copies of packets: in batches, one in each of their rounds, in the form in which
//! they go to another process ([`pass_on`](super::pass_on)). The first worker takes them before
//! what it has received itself. Packets of one flow come by one worker, so their order stays.
//!
//! **Bounds.** A worker has [`BATCHES`] batches under way at most, and keeps back another
//! [`MOST`] packets; what comes then is lost and counted (`handed_lost`), as at a ring that is
//! full. What is under way is nobody's: `handed_on − handed_in − handed_lost`, over all workers.
//!
//! **Sleep.** Whoever hands over wakes the first worker if that sleeps.
//!
//! The subscriber that a packet was found to be of is told by its place in the list, which is the
//! same for all workers as long as they have carried out the same commands; else it is looked for
//! again, by address.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};

use evenkeel_core::Nanos;
use evenkeel_core::admit::Pin;
use evenkeel_core::schedule::tree::UNKNOWN;
use evenkeel_ports::parcel::Parcel;
use evenkeel_ports::sys::{Notifier, lock};

use super::Pipeline;
use super::packet::{BURST, QueuedPacket};
use super::pass_on::Names;
use super::sharing::WorkerShares;

/// The worker that has the links which cannot be shared.
pub(super) const OWNER: usize = 0;
/// Batches that one worker has under way.
const BATCHES: usize = 8;
/// Bytes that say what a packet is, beside its frame.
const DESCRIBED: u64 = 256;
/// Packets of a batch.
const MOST: usize = 4 * BURST;

/// Packets on their way to the first worker.
#[derive(Debug, Default)]
pub(super) struct Batch {
    parcel: Parcel,
    packets: usize,
    /// How many commands the worker had carried out when the first of them was put in.
    commands: u64,
}

/// What all workers have in common for it.
#[derive(Debug)]
pub(crate) struct Handing {
    full: SyncSender<Batch>,
    /// The first worker's end.
    taken: Mutex<Receiver<Batch>>,
    /// Batches to be used again, so that nothing is allocated for long.
    empty: Mutex<Vec<Batch>>,
    /// How many batches are under way.
    waiting: AtomicUsize,
    /// The first worker sleeps, or is about to.
    asleep: AtomicBool,
    waker: OnceLock<Notifier>,
}

impl Handing {
    /// What one worker has under way and keeps back at most, bytes, if its frames fit buffers of
    /// `buffer` bytes.
    pub(crate) fn memory(buffer: u64) -> u64 {
        (BATCHES + 1) as u64 * MOST as u64 * (buffer + DESCRIBED)
    }

    pub(super) fn new(workers: usize) -> Self {
        let (full, taken) = sync_channel(BATCHES * workers);
        Self {
            full,
            taken: Mutex::new(taken),
            empty: Mutex::default(),
            waiting: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            waker: OnceLock::new(),
        }
    }

    /// What wakes the first worker.
    fn set_waker(&self, waker: &Notifier) {
        let _ = self.waker.set(waker.clone());
    }

    /// The first worker wants to sleep. `false`: something waits for it.
    fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        // Whoever hands over says that it has before it looks whether the other sleeps.
        let may = self.waiting.load(Ordering::SeqCst) == 0;
        if !may {
            self.asleep.store(false, Ordering::SeqCst);
        }
        may
    }

    fn is_awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Hands a batch over; gives it back if too many are under way.
    fn put(&self, batch: Batch) -> Result<Batch, Batch> {
        // Counted first: the first worker may be done with it before this goes on.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
            self.full.try_send(batch)
        {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(batch);
        }
        if self.asleep.swap(false, Ordering::SeqCst)
            && let Some(waker) = self.waker.get()
        {
            waker.notify();
        }
        // Nobody waits for a lock here: an empty one is made as soon as one is found.
        let used = self.empty.try_lock().ok().and_then(|mut empty| empty.pop());
        Ok(used.unwrap_or_default())
    }

    fn take(&self) -> Option<Batch> {
        let batch = lock(&self.taken).try_recv().ok()?;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(batch)
    }

    fn give_back(&self, batch: Batch) {
        if let Ok(mut empty) = self.empty.try_lock() {
            empty.push(batch);
        }
    }
}

/// A worker's end of it.
#[derive(Debug)]
pub(super) struct Hand {
    handing: Arc<Handing>,
    /// It is the first worker's end.
    takes: bool,
    pending: Batch,
    /// Commands that this worker has carried out.
    commands: u64,
    /// All workers have the same ports and classes.
    names: Option<Names>,
}

impl Hand {
    pub(super) fn new(shares: &WorkerShares, classes: usize, ports: usize) -> Self {
        Self {
            handing: Arc::clone(shares.handing()),
            takes: shares.worker() == OWNER,
            pending: Batch::default(),
            commands: 0,
            names: Some(Names::own(classes, ports)),
        }
    }

    /// A command was carried out.
    pub(super) fn changed(&mut self) {
        self.commands += 1;
    }
}

impl Pipeline {
    /// Hands a packet for the link of `port` to the first worker.
    #[cold]
    pub(super) fn hand_on(&mut self, port: usize, queued: QueuedPacket, pin: Pin) {
        let count = &mut self.ports[port].count;
        count.handed_on += 1;
        let hand = self.hand.as_mut().filter(|hand| hand.pending.packets < MOST);
        let Some(Hand { pending, commands, .. }) = hand else {
            count.handed_lost += 1;
            return self.pool.release(queued.into_frame());
        };
        if pending.packets == 0 {
            pending.commands = *commands;
        }
        let subscriber = if pending.commands == *commands { queued.subscriber } else { UNKNOWN };
        pending.packets += 1;
        let parcel = &mut pending.parcel;
        parcel.put(port as u64 | u64::from(subscriber) << 32);
        parcel.put(u64::from(pin.next_hop) | u64::from(pin.ttl) << 8);
        queued.pass_on(&self.pool, parcel);
        self.pool.release(queued.into_frame());
    }

    /// What was handed on in this round is on its way now, if there is room.
    pub(super) fn flush_handed(&mut self) {
        let Some(hand) = self.hand.as_mut().filter(|hand| hand.pending.packets > 0) else { return };
        let (Ok(batch) | Err(batch)) = hand.handing.put(std::mem::take(&mut hand.pending));
        hand.pending = batch;
    }

    /// What wakes this worker when others have handed something on.
    pub(crate) fn set_waker(&self, waker: &Notifier) {
        if let Some(hand) = self.hand.as_ref().filter(|hand| hand.takes) {
            hand.handing.set_waker(waker);
        }
    }

    /// This worker wants to sleep. `false`: others have handed something on.
    pub(crate) fn may_sleep(&self) -> bool {
        let takes = self.hand.as_ref().filter(|hand| hand.takes);
        takes.is_none_or(|hand| hand.handing.may_sleep())
    }

    /// It has slept.
    pub(crate) fn is_awake(&self) {
        if let Some(hand) = self.hand.as_ref().filter(|hand| hand.takes) {
            hand.handing.is_awake();
        }
    }

    /// Takes what other workers have handed on, as having arrived when it came to them; how many
    /// packets.
    pub(crate) fn take_handed(&mut self, now: Nanos) -> usize {
        let Some(hand) = self.hand.as_mut().filter(|hand| hand.takes) else { return 0 };
        let Some(names) = hand.names.take() else { return 0 };
        let mut all = 0;
        while let Some(mut batch) = self.hand.as_ref().and_then(|hand| hand.handing.take()) {
            let commands = self.hand.as_ref().map_or(0, |hand| hand.commands);
            all += batch.packets;
            for _ in 0..std::mem::take(&mut batch.packets) {
                let knows = batch.commands == commands;
                self.take_one(now, &mut batch.parcel, &names, knows);
            }
            batch.parcel.clear();
            if let Some(hand) = &self.hand {
                hand.handing.give_back(batch);
            }
        }
        if let Some(hand) = &mut self.hand {
            hand.names = Some(names);
        }
        all
    }

    fn take_one(&mut self, now: Nanos, parcel: &mut Parcel, names: &Names, knows: bool) {
        // What workers of this process put in is whole.
        let (Ok(place), Ok(pin)) = (parcel.take(), parcel.take()) else { return };
        let port = place as u32 as usize;
        let pin = Pin { next_hop: pin as u8, ttl: (pin >> 8) as u8 };
        let Ok(Ok(mut queued)) = self.take_packet(parcel, names, Some(port)) else {
            self.ports[port].count.handed_lost += 1;
            return;
        };
        let subscriber = (place >> 32) as u32;
        if knows && subscriber != UNKNOWN {
            queued.subscriber = subscriber;
        }
        self.ports[port].count.handed_in += 1;
        let arrival = queued.arrival.min(now);
        self.enqueue_at(port, queued, pin, arrival);
    }
}
