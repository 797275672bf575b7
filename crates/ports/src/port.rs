//! What a port is: bursts of frames in, bursts of frames out, and everything that did not arrive
//! counted.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use evenkeel_core::{Nanos, PortIndex, Reason};

use crate::error::PortError;
use crate::parcel::Parcel;
use crate::pool::{Frame, FramePool};

/// A frame as it was received. A receiver of several ports knows by it which one that was, without
/// another copy of it.
#[derive(Debug)]
pub struct RxFrame {
    /// The frame, from the Ethernet header on. A VLAN tag that the kernel had taken out is back in
    /// its place.
    pub frame: Frame,
    /// When it arrived, in the time of the `now` given to [`Port::rx_burst`], and never later than
    /// that `now`. The kernel's receive stamp where the back end has one, else `now`.
    pub arrival: Nanos,
    /// The port it came by, or for whose frame it was made: the receiver's to set. A port knows no
    /// number, and leaves 0.
    pub port: PortIndex,
    /// Made by the receiver, not received.
    pub originated: bool,
}

const _: () = assert!(size_of::<RxFrame>() == 32);

impl RxFrame {
    /// What a port gives.
    #[inline]
    #[must_use]
    pub const fn new(frame: Frame, arrival: Nanos) -> Self {
        Self { frame, arrival, port: PortIndex(0), originated: false }
    }
}

/// What the link of a port can do at the moment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PortState {
    /// Frames pass.
    Up,
    /// The interface is there, but it is down or has no carrier.
    Down,
    /// The interface has vanished; [`Port::reopen`] looks for it again.
    Gone,
}

impl PortState {
    /// The name used in counters and the control protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Gone => "gone",
        }
    }
}

/// What waits in the receive queues of a port.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RxWaiting {
    /// Frames, in all of them; of frames that come in pieces, the pieces.
    pub frames: u32,
    /// Frames that would wait if all were as full as the fullest: where frames are lost, it is
    /// there.
    pub fullest: u32,
}

impl RxWaiting {
    /// Of a port with one receive queue.
    #[must_use]
    pub const fn one(frames: u32) -> Self {
        Self { frames, fullest: frames }
    }
}

/// What a port has counted since it was opened; kept over [`Port::reopen`].
///
/// `rx_frames` counts what was handed over, `tx_frames` what was sent. Frames that the port itself
/// let fall are in `dropped` and in neither of the two. `ring_loss` are frames that the kernel
/// could not put into the receive ring because it was full: their contents were never seen here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortCounters {
    /// Frames handed over by [`Port::rx_burst`].
    pub rx_frames: u64,
    /// Their bytes, Ethernet header included, frame check sequence not; of super-frames those of
    /// their segments.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Of super-frames handed over whole, the segments beyond one each.
    pub rx_more: u64,
    /// Of super-frames sent whole, the segments beyond one each.
    pub tx_more: u64,
    /// Super-frames that were cut here.
    pub cut: u64,
    /// Frames lost in the kernel because the receive ring was full.
    pub ring_loss: u64,
    /// Calls of [`Port::tx_burst`] that had to leave frames with the caller.
    pub tx_blocked: u64,
    /// Frames the port let fall, by [`Reason::index`].
    pub dropped: [u64; Reason::COUNT],
}

impl Default for PortCounters {
    fn default() -> Self {
        Self {
            rx_frames: 0,
            rx_bytes: 0,
            tx_frames: 0,
            tx_bytes: 0,
            rx_more: 0,
            tx_more: 0,
            cut: 0,
            ring_loss: 0,
            tx_blocked: 0,
            dropped: [0; Reason::COUNT],
        }
    }
}

impl PortCounters {
    /// Counts one frame that was let fall.
    pub const fn drop_one(&mut self, reason: Reason) {
        self.dropped[reason.index()] += 1;
    }

    /// Adds what another port, which this one took the place of, has counted.
    pub fn add(&mut self, other: &Self) {
        self.rx_frames += other.rx_frames;
        self.rx_bytes += other.rx_bytes;
        self.tx_frames += other.tx_frames;
        self.tx_bytes += other.tx_bytes;
        self.rx_more += other.rx_more;
        self.tx_more += other.tx_more;
        self.cut += other.cut;
        self.ring_loss += other.ring_loss;
        self.tx_blocked += other.tx_blocked;
        for (mine, theirs) in self.dropped.iter_mut().zip(other.dropped) {
            *mine += theirs;
        }
    }

    /// How many frames were let fall for `reason`.
    #[must_use]
    pub const fn dropped_for(&self, reason: Reason) -> u64 {
        self.dropped[reason.index()]
    }
}

/// Declares [`Port`] and, from the same lines, [`PortWrapper`]: a method that is added here goes to
/// the inner port of every wrapper, and of `Box`, without a line there.
macro_rules! port {
    (
        $(#[$about:meta])*
        trait Port;
        reads { $(
            $(#[$read_doc:meta])*
            fn $read:ident(&self) -> $value:ty $(= $read_default:expr)?;
        )* }
        changes { $(
            $(#[$doc:meta])*
            fn $change:ident(&mut self $(,
                $argument:ident: $kind:ty)*) -> $result:ty $(= $default:expr)?;
        )* }
    ) => {
        $(#[$about])*
        pub trait Port: Send {
            $( port!(@method $(#[$read_doc])* [fn $read(&self) -> $value] [] $($read_default)?); )*
            $( port!(@method $(#[$doc])* [fn $change(&mut self $(, $argument: $kind)*) -> $result]
                [$($argument)*] $($default)?); )*
        }

        /// A [`Port`] around another one: what it does not do itself the inner one does.
        ///
        /// Implement it by its path: with both traits in scope every method has two candidates.
        pub trait PortWrapper: Send {
            /// The inner port.
            type Inner: Port + ?Sized;

            /// The inner port.
            fn inner(&self) -> &Self::Inner;

            /// The inner port.
            fn inner_mut(&mut self) -> &mut Self::Inner;
            $(
                #[doc = concat!("As [`Port::", stringify!($read), "`].")]
                fn $read(&self) -> $value {
                    self.inner().$read()
                }
            )*
            $(
                #[doc = concat!("As [`Port::", stringify!($change), "`].")]
                #[allow(clippy::missing_errors_doc, reason = "the trait Port tells them")]
                fn $change(&mut self $(, $argument: $kind)*) -> $result {
                    self.inner_mut().$change($($argument),*)
                }
            )*
        }

        impl<W: PortWrapper> Port for W {
            $( fn $read(&self) -> $value { PortWrapper::$read(self) } )*
            $( fn $change(&mut self $(, $argument: $kind)*) -> $result {
                PortWrapper::$change(self $(, $argument)*)
            } )*
        }
    };
    (@method $(#[$doc:meta])* [$($head:tt)*] [$($argument:ident)*]) => {
        $(#[$doc])*
        $($head)*;
    };
    (@method $(#[$doc:meta])* [$($head:tt)*] [$($unused:ident)*] $default:expr) => {
        $(#[$doc])*
        $($head)* {
            $(let _ = $unused;)*
            $default
        }
    };
}

port! {
    /// A source and a sink of frames.
    ///
    /// A port belongs to one thread at a time. It holds frames in no place of its own, except where
    /// its documentation says so: every frame it takes from the kernel is handed over or counted as
    /// dropped, and every frame given to [`Port::tx_burst`] is sent, counted as dropped, or still
    /// with the caller.
    trait Port;

    reads {
        /// The name: that of the interface, or one given at construction.
        fn name(&self) -> &str;

        /// How frames are exchanged, in words, for logs and views.
        fn io(&self) -> String = String::new();

        /// How many buffers of the pool the kernel has: to receive into, or being sent.
        fn lent(&self) -> usize = 0;

        /// A descriptor that becomes readable when frames wait; `None` if the port can only be
        /// polled by calling.
        fn fd(&self) -> Option<BorrowedFd<'_>>;

        /// What the link can do, as far as the last call noticed.
        fn state(&self) -> PortState;

        /// The port's hardware address.
        fn mac(&self) -> [u8; 6];

        /// The longest IP packet, bytes.
        fn mtu(&self) -> u32;

        /// How many frames [`Port::tx_burst`] could take now, as far as the port knows.
        fn tx_room(&self) -> usize = usize::MAX;

        /// Whether it sends super-frames, and frames whose checksum is left to the device, as they
        /// are, if what the kernel says of them [is kept](Frame::is_described) with them.
        fn takes_whole(&self) -> bool = false;

        /// How many frames it has taken from the kernel and not handed over yet; of the last one
        /// segments may be left. The next bursts of at most so many take no others.
        fn held(&self) -> usize = 0;

        /// Whether the kernel can be given packets that it is to forward itself.
        fn hands_over(&self) -> bool = false;

        /// What waits to be received; `None` if the port cannot tell. Every port to a real network
        /// can: FairDrop depends on it.
        fn rx_waiting(&self) -> Option<RxWaiting> = None;

        /// How many frames can wait to be received before some are lost, all receive queues
        /// together; `None` if the port cannot tell.
        fn rx_ring(&self) -> Option<u32> = None;

        /// When to call [`Port::rx_burst`] although the descriptor is not readable: for ports that
        /// hold frames back.
        fn next_due(&self) -> Option<Nanos> = None;

        /// Whether the kernel's own stack receives every frame too that is handed over here. If
        /// not, what the machine itself should receive never comes here, as far as
        /// [`Port::set_local`] has told what that is.
        fn kernel_has_copy(&self) -> bool = true;

        /// Whether calls can have the driver bring frames, as far as known yet.
        fn knows_napi(&self) -> bool = false;
    }

    changes {
        /// Does without frames that came in this span of time: the kernel has forwarded its copies,
        /// because the router hung. A port whose frames the kernel never has, has nothing to do.
        fn passed_by(&mut self, span: Range<Nanos>) -> () = ();

        /// From now on hands super-frames over whole that take the wire at most `longest` bytes,
        /// with check sequences, preambles and gaps; longer ones it cuts. For ports that can send
        /// them as they come.
        fn keep_whole(&mut self, longest: usize) -> () = ();

        /// Receives up to `max` frames into buffers of `pool` and appends them to `out`, in order
        /// of arrival. Returns how many were appended. Never waits. `now` is the time of the call,
        /// monotonic.
        ///
        /// Frames longer than a buffer are dropped as [`Reason::FrameTooLong`]; when the pool is
        /// empty, frames are dropped as [`Reason::NoBuffer`]. Both count against `max`.
        fn rx_burst(
            &mut self,
            pool: &mut FramePool,
            now: Nanos,
            out: &mut Vec<RxFrame>,
            max: usize
        ) -> usize;

        /// Sends from the front of `frames` what can be sent without waiting, and releases the
        /// buffers of what was sent to `pool`. Returns how many frames were taken. What stays in
        /// `frames` was not sent: try again later.
        ///
        /// A frame that can never be sent (longer than the interface allows) is dropped as
        /// [`Reason::PortRefused`].
        fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize;

        /// Gives the kernel packets that came by this port, as if they arrived only now, for it to
        /// forward; their buffers go back to `pool`. Returns how many it did not take.
        fn hand_over(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize = {
            let lost = frames.len();
            pool.release_first(frames, lost);
            lost
        };

        /// What was counted since the port was opened.
        fn counters(&mut self) -> PortCounters;

        /// Tells a port whose frames the kernel does not see too which addresses the machine itself
        /// receives: those of *all* its interfaces, and the broadcast addresses of their networks.
        ///
        /// # Errors
        /// There are more than [`MAX_LOCAL`](crate::guard::MAX_LOCAL); nothing is changed then.
        fn set_local(&mut self, addresses: &[IpAddr]) -> Result<(), PortError> = Ok(());

        /// Looks at the interface again: after a change that netlink reported, or to come back
        /// after it had vanished; called in the network namespace in which the port was opened.
        /// Returns true if the descriptor of [`Port::fd`] is a new one and must be registered
        /// again.
        ///
        /// # Errors
        /// The interface is not there (the state is then [`PortState::Gone`]), or it cannot be
        /// opened.
        fn reopen(&mut self) -> Result<bool, PortError> = Ok(false);

        /// Puts into a parcel what another process needs to go on exchanging frames where this port
        /// stops: its sockets, and how far their rings are. From then on this port must not be
        /// used, unless the other process never does.
        ///
        /// # Errors
        /// It cannot be passed on.
        fn pass_on(&mut self, parcel: &mut Parcel) -> Result<(), PortError> = {
            let _ = parcel;
            Err(PortError::NotPassed("a port of this kind has nothing to pass on"))
        };

        /// From now on no frame is received any more, as far as the kernel can be told: what it has
        /// handed over already can still be fetched. For a port that is about to be closed.
        /// [`Port::reopen`] takes it back.
        fn stop_receiving(&mut self) -> () = ();

        /// Gives the kernel the interface back, and `pool` every buffer that the kernel had, where
        /// it had some: the port is [`PortState::Gone`] then, until [`Port::reopen`]. A port whose
        /// buffers are its own stays as it is.
        fn close(&mut self, pool: &mut FramePool) -> () = ();
    }
}

impl<P: Port + ?Sized> PortWrapper for Box<P> {
    type Inner = P;

    fn inner(&self) -> &P {
        self
    }

    fn inner_mut(&mut self) -> &mut P {
        self
    }
}
