//! Capture files: a port that reads one.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::path::Path;

use evenkeel_core::Nanos;

use crate::error::PortError;
use crate::pool::{Frame, FramePool};
use crate::port::{Port, PortCounters, PortState, RxFrame};

/// When the frames of a capture arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pace {
    /// As they were captured: the first one at the time of the first call, the others as much later as in the file.
    Captured,
    /// As fast as they are asked for.
    Fast,
}

/// Reads a pcap or pcapng file of Ethernet frames; what is sent into it is counted and dropped.
#[derive(Debug)]
pub struct PcapReadPort {
    name: String,
}

impl PcapReadPort {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, is not a capture, or holds no Ethernet frames.
    pub fn open(path: &Path, pace: Pace) -> Result<Self, PortError> {
        let _ = pace;
        Err(PortError::Capture { file: path.display().to_string(), what: String::new() })
    }

    /// Whether every frame has been handed over.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        true
    }
}

impl Port for PcapReadPort {
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
        PortState::Up
    }
    fn mac(&self) -> [u8; 6] {
        [0; 6]
    }
    fn mtu(&self) -> u32 {
        65_535
    }
    fn counters(&mut self) -> PortCounters {
        PortCounters::default()
    }
}
