//! A port of a simulated router: two queues in the same thread, frames as heads.
//!
//! Only the first bytes of a frame travel ([`SimFrame`]): headers, and what sinks measure by. The
//! buffers of a router get frames of their full length, whose payloads are whatever the buffer held
//! before; nothing reads them.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use evenkeel_core::packet::{ETHERNET_MIN_PAYLOAD, ETHERNET_WIRE_OVERHEAD};
use evenkeel_core::{Bytes, Nanos, Reason};
use evenkeel_ports::{Frame, FramePool, Port, PortCounters, PortState, RxFrame};

use crate::host::HEAD;

/// Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of a frame that travel.
pub(crate) const FRAME_HEAD: usize = ETHERNET + HEAD;

/// A frame on its way between two nodes. It lies in two lines of memory, not in parts of three.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct SimFrame {
    /// Its first bytes.
    pub(crate) bytes: [u8; FRAME_HEAD],
    /// How many of them mean something.
    pub(crate) head: u16,
    /// Length of the whole frame.
    pub(crate) len: u32,
}

impl SimFrame {
    /// What travels of a frame.
    #[inline(always)] // so that it is copied once, to where it stays
    fn of(frame: &[u8]) -> Self {
        let len = frame.len() as u32;
        match frame.first_chunk() {
            Some(head) => Self { bytes: *head, head: FRAME_HEAD as u16, len },
            None => {
                let mut bytes = [0; FRAME_HEAD];
                bytes[..frame.len()].copy_from_slice(frame);
                Self { bytes, head: len as u16, len }
            }
        }
    }

    /// The bytes that mean something.
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..usize::from(self.head)]
    }

    /// What it takes on a wire: with Ethernet header, padding, frame check sequence, preamble and
    /// gap.
    pub(crate) fn wire_len(&self) -> Bytes {
        let payload = Bytes(u64::from(self.len).saturating_sub(ETHERNET as u64));
        payload.max(ETHERNET_MIN_PAYLOAD) + ETHERNET_WIRE_OVERHEAD
    }
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    frames: u64,
    bytes: u64,
}

/// A port of a router. Always up, never without room. What a frame needs of it lies in two lines of
/// memory.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct SimPort {
    name: String,
    mac: [u8; 6],
    mtu: u32,
    /// Frames that have arrived.
    pub(crate) rx: Vec<SimFrame>,
    /// Frames that have left.
    pub(crate) tx: Vec<SimFrame>,
    received: Carried,
    sent: Carried,
    /// What was dropped.
    lost: Box<PortCounters>,
}

impl SimPort {
    pub(crate) fn new(name: &str, mac: [u8; 6], mtu: u32) -> Self {
        let (rx, tx, nothing) = (Vec::new(), Vec::new(), Carried::default());
        let (received, sent, lost) = (nothing, nothing, Box::default());
        Self { name: name.to_owned(), mac, mtu, rx, tx, received, sent, lost }
    }

    /// The interface's name.
    pub(crate) fn interface(&self) -> &str {
        &self.name
    }

    /// Longest IP packet, bytes.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    fn receive(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        let mut taken = 0;
        for arrived in self.rx.iter().take(max) {
            taken += 1;
            let Some(mut frame) = pool.alloc() else {
                self.lost.drop_one(Reason::NoBuffer);
                continue;
            };
            let Some(bytes) = pool.extend(&mut frame, arrived.len as usize) else {
                self.lost.drop_one(Reason::FrameTooLong);
                pool.release(frame);
                continue;
            };
            // Most frames are longer than what travels of them, which is quickly copied then.
            match bytes.first_chunk_mut() {
                Some(head) => *head = arrived.bytes,
                None => bytes.copy_from_slice(&arrived.bytes[..bytes.len()]),
            }
            self.received.frames += 1;
            self.received.bytes += u64::from(arrived.len);
            out.push(RxFrame::new(frame, now));
        }
        if taken < self.rx.len() {
            self.rx.drain(..taken);
        } else {
            self.rx.clear();
        }
        taken
    }
}

impl Port for SimPort {
    fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        // Every port is asked in every round, and few have something.
        if self.rx.is_empty() { 0 } else { self.receive(pool, now, out, max) }
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        let (taken, mut bytes) = (frames.len(), 0);
        while let Some(frame) = frames.pop_front() {
            let sent = pool.bytes(&frame);
            bytes += sent.len() as u64;
            // Extended by one: with a push it would be copied twice.
            self.tx.extend(Some(SimFrame::of(sent)));
            pool.release(frame);
        }
        self.sent.bytes += bytes;
        self.sent.frames += taken as u64;
        taken
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn state(&self) -> PortState {
        PortState::Up
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn counters(&mut self) -> PortCounters {
        PortCounters {
            rx_frames: self.received.frames,
            rx_bytes: self.received.bytes,
            tx_frames: self.sent.frames,
            tx_bytes: self.sent.bytes,
            ..*self.lost
        }
    }
}
