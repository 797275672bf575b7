//! Batches of packets on their way from other workers to the first one: see
//! `pipeline/hand_on.rs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, OnceLock};

use evenkeel_core::admit::Pin;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::packet::Ecn;
use evenkeel_core::{Class, Nanos};
use evenkeel_net::PortIndex;
use evenkeel_ports::pool::Known;
use evenkeel_ports::sys::{Notifier, lock};

/// The worker that has the links which cannot be shared.
pub(crate) const OWNER: usize = 0;
/// Batches that one worker has under way.
const BATCHES: usize = 8;
/// Packets of a batch.
pub(crate) const MOST: usize = 1_024;

/// All of a packet but the bytes of its frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    /// The port whose link it is for.
    pub(crate) link: u16,
    /// The port by which it leaves.
    pub(crate) port: PortIndex,
    pub(crate) pin: Pin,
    pub(crate) class: Class,
    pub(crate) flow: PackedFlow,
    pub(crate) flow_hash: u64,
    pub(crate) arrival: Nanos,
    pub(crate) ip_len: u32,
    pub(crate) wire_len: u32,
    pub(crate) subscriber: u32,
    pub(crate) originated: bool,
    pub(crate) ecn: Ecn,
    pub(crate) marked: bool,
    pub(crate) frame: Known,
    pub(crate) frame_len: u32,
}

/// Packets on their way to the first worker.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) packets: Vec<Handed>,
    /// Of their frames, one after the other.
    pub(crate) bytes: Vec<u8>,
    /// How many commands the worker had carried out when the first of them was put in.
    pub(crate) commands: u64,
}

impl Batch {
    /// Empties it; its room stays.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
    }
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
        (BATCHES + 1) as u64 * MOST as u64 * (buffer + size_of::<Handed>() as u64)
    }

    pub(crate) fn new(workers: usize) -> Self {
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
    pub(crate) fn set_waker(&self, waker: &Notifier) {
        let _ = self.waker.set(waker.clone());
    }

    /// The first worker wants to sleep. `false`: something waits for it.
    pub(crate) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        // Whoever hands over says that it has before it looks whether the other sleeps.
        let may = self.waiting.load(Ordering::SeqCst) == 0;
        if !may {
            self.asleep.store(false, Ordering::SeqCst);
        }
        may
    }

    pub(crate) fn is_awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Hands a batch over; gives it back if too many are under way.
    pub(crate) fn put(&self, batch: Batch) -> Result<Batch, Batch> {
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

    pub(crate) fn take(&self) -> Option<Batch> {
        let batch = lock(&self.taken).try_recv().ok()?;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(batch)
    }

    pub(crate) fn give_back(&self, batch: Batch) {
        if let Ok(mut empty) = self.empty.try_lock() {
            empty.push(batch);
        }
    }
}
