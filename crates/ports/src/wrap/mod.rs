//! Middleware around any port: see every frame, write it to a capture file, or do it harm on purpose.
//!
//! Wrappers nest: `Tracer<FaultInjector<AfPacketPort>>` traces what the faults left over.

mod fault;
mod pcap_tap;
mod tracer;

pub use fault::{FaultCounters, FaultInjector, FaultOptions, Faults};
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
    /// The `now` of the last [`crate::Port::rx_burst`]: nothing but what the caller says, so that runs are repeatable.
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

/// The parts of [`crate::Port`] that a wrapper passes on as they are.
macro_rules! pass_on {
    ($($method:ident)*) => { $(pass_on!(@ $method);)* };
    (@ name) => { fn name(&self) -> &str { self.inner.name() } };
    (@ fd) => { fn fd(&self) -> Option<std::os::fd::RawFd> { self.inner.fd() } };
    (@ state) => { fn state(&self) -> $crate::PortState { self.inner.state() } };
    (@ mac) => { fn mac(&self) -> [u8; 6] { self.inner.mac() } };
    (@ mtu) => { fn mtu(&self) -> u32 { self.inner.mtu() } };
    (@ counters) => { fn counters(&mut self) -> $crate::PortCounters { self.inner.counters() } };
    (@ tx_room) => { fn tx_room(&self) -> usize { self.inner.tx_room() } };
    (@ rx_waiting) => { fn rx_waiting(&self) -> Option<u32> { self.inner.rx_waiting() } };
    (@ rx_ring) => { fn rx_ring(&self) -> Option<u32> { self.inner.rx_ring() } };
    (@ next_due) => { fn next_due(&self) -> Option<evenkeel_core::Nanos> { self.inner.next_due() } };
    (@ reopen) => {
        fn io(&self) -> String { self.inner.io() }
        fn lent(&self) -> usize { self.inner.lent() }
        fn kernel_has_copy(&self) -> bool { self.inner.kernel_has_copy() }
        fn set_local(&mut self, addresses: &[std::net::IpAddr]) -> Result<(), $crate::PortError> {
            self.inner.set_local(addresses)
        }
        fn reopen(&mut self) -> Result<bool, $crate::PortError> { self.inner.reopen() }
        fn stop_receiving(&mut self) { self.inner.stop_receiving(); }
        fn close(&mut self, pool: &mut $crate::FramePool) { self.inner.close(pool); }
    };
}
use pass_on;
