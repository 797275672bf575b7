//! Middleware around any port: see every frame, write it to a capture file, or do it harm on
//! purpose.
//!
//! Wrappers nest: `Tracer<FaultInjector<AfPacketPort>>` traces what the faults left over.

mod fault;
mod hand_over;
mod late;
mod pcap_tap;
mod tracer;

pub use fault::{FaultCounters, FaultInjector, FaultOptions, Faults};
pub use hand_over::HandOver;
pub(crate) use hand_over::{HANDED_OVER, unmark};
pub use late::LatePort;
pub use pcap_tap::{PcapTap, PcapTapOptions};
pub use tracer::{TraceEvent, Tracer};

use evenkeel_core::Nanos;

use crate::sys::monotonic_now;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Direction {
    /// It was received.
    In,
    /// It was sent.
    Out,
}

/// Where a wrapper has the time of sent frames from; received ones carry their own.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TxClock {
    /// CLOCK_MONOTONIC, read once per burst.
    #[default]
    Monotonic,
    /// The `now` of the last [`crate::Port::rx_burst`]: nothing but what the caller says, so that
    /// runs are repeatable.
    LastReceive,
}

impl TxClock {
    fn read(self, last_receive: Nanos) -> Nanos {
        match self {
            Self::Monotonic => monotonic_now(),
            Self::LastReceive => last_receive,
        }
    }
}

/// What every wrapper here says to [`crate::port::PortWrapper`]: where its inner port is.
macro_rules! wraps_inner {
    ($port:ty) => {
        type Inner = $port;

        fn inner(&self) -> &$port {
            &self.inner
        }

        fn inner_mut(&mut self) -> &mut $port {
            &mut self.inner
        }
    };
}
use wraps_inner;
