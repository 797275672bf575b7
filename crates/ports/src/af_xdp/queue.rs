//! A receive queue: which buffers the kernel has of ours, and how they change hands.

use evenkeel_core::Nanos;

use super::program;
use super::shared::Sockets;
use super::socket::{POLL_BUDGET, XdpSocket};
use crate::error::PortError;
use crate::parcel::Parcel;
use crate::pool::{Frame, FramePool};

/// A receive queue and the socket that serves it.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: XdpSocket,
    /// Which buffers the kernel has, a bit for each.
    lent: Vec<u64>,
    /// How many of them are in the fill ring or hold frames not yet fetched.
    pub(super) filled: u32,
    /// How many of them are to be sent.
    pub(super) sending: u32,
    /// What has not been fetched yet came after this, as far as known.
    pub(super) since: Nanos,
    /// The program knows the socket: frames of the queue come to it, and no longer to the kernel.
    pub(super) seated: bool,
    /// Whether the kernel knows by which instance of NAPI frames come here: from the start (Linux
    /// 6.14), from the first frame on (before 6.13), or never, if the driver does not say it.
    /// `None`: it may yet. Interrupts bring frames unless it is `Some(true)`.
    pub(super) napi: Option<bool>,
    /// What comes up to the end of a frame belongs to one that the ring could not hold.
    pub(super) endless: bool,
}

/// Which buffer an address lies in, and where in it. Both sizes that there are (2048 and 4096
/// bytes) are powers of two, and each frame would wait for a division.
const fn place(address: u64, buffer: usize) -> (u32, usize) {
    ((address >> buffer.trailing_zeros()) as u32, address as usize & (buffer - 1))
}

impl Queue {
    /// A queue whose socket has been opened, for a pool of so many buffers.
    pub(super) fn new(socket: XdpSocket, buffers: usize) -> Self {
        let lent = vec![0; buffers.div_ceil(64)];
        Self {
            socket,
            lent,
            filled: 0,
            sending: 0,
            since: Nanos::ZERO,
            seated: false,
            napi: Some(false),
            endless: false,
        }
    }

    /// The queue of another process, for a pool of so many buffers.
    pub(super) fn of_passed(
        ring: u32,
        buffers: usize,
        parcel: &mut Parcel,
    ) -> Result<Self, PortError> {
        let socket = XdpSocket::adopt(ring, parcel)?;
        let (filled, sending) = (parcel.take()? as u32, parcel.take()? as u32);
        let (since, seated) = (Nanos(parcel.take()?), parcel.take()? != 0);
        let words = parcel.take()?;
        if words != buffers.div_ceil(64) as u64 {
            return Err(PortError::NotPassed("it has other buffers"));
        }
        let lent = (0..words).map(|_| parcel.take()).collect::<Result<_, _>>()?;
        let napi = Some(false);
        Ok(Self { socket, lent, filled, sending, since, seated, napi, endless: false })
    }

    pub(super) fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        self.socket.pass_on(parcel)?;
        parcel.put(self.filled.into());
        parcel.put(self.sending.into());
        parcel.put(self.since.0);
        parcel.put(self.seated.into());
        parcel.put(self.lent.len() as u64);
        self.lent.iter().for_each(|word| parcel.put(*word));
        Ok(())
    }

    /// The numbers of the buffers that the kernel has.
    pub(super) fn lent_buffers(&self) -> impl Iterator<Item = u32> {
        self.lent.iter().enumerate().flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word as u32 * 64 + bit)
        })
    }

    /// How many buffers the kernel has.
    pub(super) fn lent(&self) -> usize {
        self.lent.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Closes the socket; gives the buffers that the kernel had until then.
    pub(super) fn close(self) -> impl Iterator<Item = u32> {
        let lent: Vec<u32> = self.lent_buffers().collect();
        drop(self.socket);
        lent.into_iter()
    }

    /// The kernel gets a buffer.
    pub(super) fn lend(&mut self, index: u32) {
        self.lent[index as usize / 64] |= 1 << (index % 64);
    }

    /// Has the program hand over what comes by queue `number`.
    pub(super) fn seat(
        &mut self,
        sockets: &Sockets,
        name: &str,
        number: u32,
    ) -> Result<(), PortError> {
        if !self.seated {
            sockets.seat(name, number, &self.socket)?;
            self.seated = true;
        }
        Ok(())
    }

    /// The kernel has given a buffer back.
    pub(super) fn returned(&mut self, index: u32) {
        self.lent[index as usize / 64] &= !(1 << (index % 64));
    }

    /// The frame that the kernel has written into one of its buffers, and its stamp.
    #[inline(always)] // a call for each frame otherwise, since the burst is compiled twice
    pub(super) fn adopt(
        &mut self,
        pool: &FramePool,
        buffer: usize,
        received: libc::xdp_desc,
    ) -> (Frame, Option<Nanos>) {
        let (index, offset) = place(received.addr, buffer);
        self.returned(index);
        let Some(frame) = pool.adopt(index, offset, received.len as usize) else {
            unreachable!("the kernel writes inside the buffers it was given");
        };
        let stamp = pool.before(&frame, program::STAMP).and_then(program::stamp).map(Nanos);
        (frame, stamp)
    }

    /// When a frame came, where only some have a stamp. The next frame in this buffer may come
    /// without one, and must not be given this one's.
    #[inline(always)] // as `adopt`
    pub(super) fn sampled(
        &mut self,
        pool: &mut FramePool,
        frame: &Frame,
        stamp: Option<Nanos>,
        now: Nanos,
    ) -> Nanos {
        if let (Some(_), Some(bytes)) = (stamp, pool.before_mut(frame, program::STAMP)) {
            bytes.fill(0);
        }
        self.since = stamp.map_or(self.since, |stamp| stamp.max(self.since)).min(now);
        self.since
    }

    /// Asks whether the driver can be polled; a socket that has no frame yet may not know.
    pub(super) fn look_for_napi(&mut self) {
        self.napi = self.socket.knows_napi().then_some(true);
    }

    /// Has the driver bring frames until `enough` wait, or it has no more.
    #[inline(always)] // as `adopt`
    pub(super) fn poll_driver(&mut self, enough: u32) {
        if self.napi.is_none() && self.socket.rx.waiting() > 0 {
            self.napi = Some(self.socket.knows_napi());
        }
        if self.napi != Some(true) {
            return;
        }
        let mut waiting = self.socket.rx.waiting();
        while waiting < enough {
            self.socket.poll();
            let before = std::mem::replace(&mut waiting, self.socket.rx.waiting());
            if waiting < before + POLL_BUDGET {
                break;
            }
        }
    }

    /// Gives the kernel buffers to receive into, as many as the ring takes.
    pub(super) fn refill(&mut self, pool: &mut FramePool, buffer: usize, ring: u32) {
        let wanted = ring - self.filled;
        // Exchanging cache lines for every few frames costs more than a ring that is a little less
        // full.
        if wanted < ring / 8 {
            return;
        }
        let room = self.socket.fill.room(wanted).min(wanted);
        let mut given = 0;
        while given < room
            && let Some(index) = pool.lend()
        {
            self.socket.fill.push(u64::from(index) * buffer as u64);
            self.lend(index);
            given += 1;
        }
        if given > 0 {
            self.filled += given;
            self.socket.fill.publish();
            if self.socket.fill.wants_wakeup() {
                self.socket.poll();
            }
        }
    }

    /// Takes back the buffers of frames that have been sent.
    pub(super) fn reclaim(&mut self, pool: &mut FramePool, buffer: usize) {
        if self.sending == 0 {
            return;
        }
        let mut taken = 0;
        while let Some(address) = self.socket.completion.next() {
            let (index, _) = place(address, buffer);
            self.returned(index);
            pool.returned(index);
            taken += 1;
        }
        if taken > 0 {
            self.sending -= taken;
            self.socket.completion.release();
        }
    }
}
