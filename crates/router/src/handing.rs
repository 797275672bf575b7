//! Batches of packets on their way from other workers to the first one: see
//! `pipeline/hand_on.rs`.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};

use evenkeel_core::admit::Pin;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::measure::round_trips::Stamp;
use evenkeel_core::packet::Ecn;
use evenkeel_core::share::wake::Wake;
use evenkeel_core::{Class, FlowKey, Nanos};
use evenkeel_net::PortIndex;
use evenkeel_ports::pool::Known;
use evenkeel_ports::sys::{Notifier, lock};

/// The worker that has the links which cannot be shared.
pub(crate) const OWNER: usize = 0;
/// Batches that one worker has under way.
const BATCHES: usize = 8;
/// Packets of a batch.
pub(crate) const MOST: usize = 1_024;

/// What the first worker gets, but for the bytes of its frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    /// The port whose link it is for, or by which a frame of the exchange came.
    pub(crate) port: u16,
    pub(crate) frame_len: u32,
    /// `None`: it is a frame of the cluster's exchange.
    pub(crate) packet: Option<HandedPacket>,
}

/// Where the first worker puts a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Taker {
    /// The link of the port, if its admission lets it in.
    Link,
    /// The link of the port, which is the second one of another, whose admission has decided.
    SecondLink,
    /// This link of the cluster.
    Cluster(u16),
}

/// All of a packet but the bytes of its frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandedPacket {
    pub(crate) taker: Taker,
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
}

/// Bytes of a frame that say by which tags, session and stations it came.
const ACCESS: usize = 48;

/// A packet has brought a stamp back that left by the link of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) port: u16,
    /// When it came.
    pub(crate) at: Nanos,
    pub(crate) stamp: Stamp,
    pub(crate) flow: FlowKey,
    frame: [u8; ACCESS],
    frame_len: u8,
}

impl Answer {
    pub(crate) fn new(port: usize, at: Nanos, stamp: Stamp, flow: FlowKey, bytes: &[u8]) -> Self {
        let mut frame = [0; ACCESS];
        let len = bytes.len().min(ACCESS);
        frame[..len].copy_from_slice(&bytes[..len]);
        Self { port: port as u16, at, stamp, flow, frame, frame_len: len as u8 }
    }

    /// How its frame begins.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.frame[..usize::from(self.frame_len)]
    }
}

/// Packets on their way to the first worker. It takes no more than it was made for.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    packets: Vec<Handed>,
    /// Of their frames, one after the other.
    bytes: Vec<u8>,
    answers: Vec<Answer>,
    /// How many commands the worker had carried out when the first of them was put in.
    pub(crate) commands: u64,
}

impl Batch {
    fn new(buffer: usize) -> Self {
        let (packets, bytes) = (Vec::with_capacity(MOST), Vec::with_capacity(MOST * buffer));
        Self { packets, bytes, answers: Vec::with_capacity(MOST), commands: 0 }
    }

    /// Puts an answer in, if there is room: without it a round trip is not known.
    pub(crate) fn tell(&mut self, answer: Answer) {
        if self.answers.len() < self.answers.capacity() {
            self.answers.push(answer);
        }
    }

    pub(crate) fn answers(&self) -> &[Answer] {
        &self.answers
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.answers.is_empty()
    }

    /// How many packets there are.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Puts something in; `false`: there is no room for it.
    pub(crate) fn put(&mut self, packet: Handed, bytes: &[u8]) -> bool {
        let fits = self.packets.len() < self.packets.capacity()
            && self.bytes.len() + bytes.len() <= self.bytes.capacity();
        if fits {
            self.packets.push(packet);
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    /// The packets with their bytes, in order.
    pub(crate) fn packets(&self) -> impl Iterator<Item = (&Handed, &[u8])> {
        let mut rest = &self.bytes[..];
        self.packets.iter().map(move |packet| {
            let (bytes, after) = rest.split_at(packet.frame_len as usize);
            rest = after;
            (packet, bytes)
        })
    }

    /// Empties it; its room stays.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
        self.answers.clear();
    }
}

/// What all workers have in common for it.
#[derive(Debug)]
pub(crate) struct Handing {
    full: SyncSender<Batch>,
    /// The first worker's end.
    taken: Mutex<Receiver<Batch>>,
    /// Batches to be used: all that there are but those under way, and one of each worker.
    empty: Mutex<Vec<Batch>>,
    wake: Wake,
    waker: OnceLock<Notifier>,
}

impl Handing {
    /// What one worker has under way and keeps back at most, bytes, if its frames fit buffers of
    /// `buffer` bytes.
    pub(crate) fn memory(buffer: u64) -> u64 {
        (BATCHES + 1) as u64
            * MOST as u64
            * (buffer + (size_of::<Handed>() + size_of::<Answer>()) as u64)
    }

    /// Of so many workers, whose buffers have so many bytes. What is needed is allocated here, and
    /// nothing later. `is_used`: something is handed on.
    pub(crate) fn new(workers: usize, buffer: usize, is_used: bool) -> Self {
        let batches = if is_used { (BATCHES + 1) * (workers - 1) } else { 0 };
        let (full, taken) = sync_channel(batches.max(1));
        Self {
            full,
            taken: Mutex::new(taken),
            empty: Mutex::new((0..batches).map(|_| Batch::new(buffer)).collect()),
            wake: Wake::default(),
            waker: OnceLock::new(),
        }
    }

    /// A batch to begin with: none that takes anything where no link is the first worker's.
    pub(crate) fn first(&self) -> Batch {
        lock(&self.empty).pop().unwrap_or_default()
    }

    /// What wakes the first worker.
    pub(crate) fn set_waker(&self, waker: &Notifier) {
        let _ = self.waker.set(waker.clone());
    }

    /// The first worker wants to sleep. `false`: something waits for it.
    pub(crate) fn may_sleep(&self) -> bool {
        self.wake.may_sleep()
    }

    pub(crate) fn is_awake(&self) {
        self.wake.awake();
    }

    /// Hands a batch over, for an empty one; gives it back if all others are under way.
    pub(crate) fn put(&self, batch: Batch) -> Batch {
        // Nobody waits for a lock here: what does not go now goes with the next packets.
        let Some(next) = self.empty.try_lock().ok().and_then(|mut empty| empty.pop()) else {
            return batch;
        };
        self.wake.comes();
        // There is a place for each that there is.
        if self.full.try_send(batch).is_err() {
            self.wake.gone();
        }
        if self.wake.wakes()
            && let Some(waker) = self.waker.get()
        {
            waker.notify();
        }
        next
    }

    pub(crate) fn take(&self) -> Option<Batch> {
        let batch = lock(&self.taken).try_recv().ok()?;
        self.wake.gone();
        Some(batch)
    }

    pub(crate) fn give_back(&self, batch: Batch) {
        lock(&self.empty).push(batch);
    }
}
