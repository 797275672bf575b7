//! Capture files as ports: a pcap or pcapng file whose Ethernet frames arrive one after the other.
//!
//! To write one, wrap any port in a [`crate::wrap::PcapTap`].

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::os::fd::BorrowedFd;
use std::path::Path;

use evenkeel_core::{Nanos, Reason};
pub use pcap_file::DataLink;
use pcap_file::TsResolution;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::error::{BadCapture, PortError};
use crate::pool::{Frame, FramePool};
use crate::port::{Port, PortCounters, PortState, RxFrame};

/// When the frames of a capture arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pace {
    /// As they were captured: the first one at the time of the first call, the others as much later
    /// as in the file.
    Captured,
    /// As fast as they are asked for.
    Fast,
}

enum Reader {
    Pcap(PcapReader<BufReader<File>>),
    PcapNg(PcapNgReader<BufReader<File>>),
}

/// A capture file, pcap or pcapng, packet by packet, whatever they were captured from.
pub struct Capture {
    name: String,
    reader: Reader,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A packet of a capture file.
#[derive(Clone, Debug, PartialEq)]
pub struct Captured {
    /// What begins it.
    pub link: DataLink,
    /// What was kept of it.
    pub bytes: Vec<u8>,
    /// How long it was when it was captured, bytes.
    pub original: u32,
    /// Since 1970.
    pub stamp: Nanos,
}

impl Captured {
    /// Whether it was longer when it was captured.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.original as usize > self.bytes.len()
    }
}

impl Capture {
    /// Opens a file, of whichever of the two formats.
    ///
    /// # Errors
    /// It cannot be read, or is not a capture.
    pub fn open(path: &Path) -> Result<Self, PortError> {
        let name = path.display().to_string();
        let io = |error| PortError::from_io(format!("reading {name}"), error);
        let bad = |what: BadCapture| PortError::Capture { file: name.clone(), what };
        let mut file = File::open(path).map_err(io)?;
        let mut magic = [0; 4];
        if let Err(error) = file.read_exact(&mut magic) {
            return Err(bad(BadCapture::TooShort(error)));
        }
        file.rewind().map_err(io)?;
        let file = BufReader::new(file);
        let reader = if magic == [0x0a, 0x0d, 0x0d, 0x0a] {
            Reader::PcapNg(PcapNgReader::new(file).map_err(|error| bad(error.into()))?)
        } else {
            Reader::Pcap(PcapReader::new(file).map_err(|error| bad(error.into()))?)
        };
        Ok(Self { name, reader })
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// The file is broken from here on.
    pub fn read(&mut self) -> Result<Option<Captured>, PortError> {
        let read = self.reader.read();
        read.map_err(|what| PortError::Capture { file: self.name.clone(), what })
    }
}

/// Reads a pcap or pcapng file of Ethernet frames, one frame ahead, so that a file larger than the
/// memory is no trouble. What is sent into it is counted as sent and dropped.
///
/// A frame that the capture holds only in part is dropped as [`Reason::Truncated`]. A file that
/// turns out to be malformed ends there: [`PcapReadPort::error`] tells.
pub struct PcapReadPort {
    name: String,
    capture: Capture,
    pace: Pace,
    next: Option<Captured>,
    /// The time of the first call, and the stamp of the first frame.
    origin: Option<(Nanos, Nanos)>,
    error: Option<PortError>,
    counters: PortCounters,
}

impl std::fmt::Debug for PcapReadPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapReadPort").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PcapReadPort {
    /// Opens a file, of whichever of the two formats.
    ///
    /// # Errors
    /// It cannot be read, is not a capture, or holds frames of another kind than Ethernet.
    pub fn open(path: &Path, pace: Pace) -> Result<Self, PortError> {
        let capture = Capture::open(path)?;
        if let Reader::Pcap(reader) = &capture.reader {
            ethernet(&capture.name, reader.header().datalink)?;
        }
        let mut port = Self {
            name: capture.name.clone(),
            capture,
            pace,
            next: None,
            origin: None,
            error: None,
            counters: PortCounters::default(),
        };
        port.advance();
        match port.error.take() {
            Some(error) => Err(error),
            None => Ok(port),
        }
    }

    /// Whether every frame has been handed over.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.next.is_none()
    }

    /// Why the file ended early, if it did.
    #[must_use]
    pub const fn error(&self) -> Option<&PortError> {
        self.error.as_ref()
    }

    /// As [`PcapReadPort::error`], for one who is done with the port.
    #[must_use]
    pub fn into_error(self) -> Option<PortError> {
        self.error
    }

    fn advance(&mut self) {
        let read = self.capture.read().and_then(|next| match next {
            Some(next) => ethernet(&self.name, next.link).map(|()| Some(next)),
            None => Ok(None),
        });
        self.next = read.unwrap_or_else(|error| {
            self.error = Some(error);
            None
        });
    }

    /// When the next frame arrives, if it is not to come as fast as possible.
    fn due(&self) -> Option<Nanos> {
        let next = self.next.as_ref()?;
        let (start, first) = self.origin?;
        Some(match self.pace {
            Pace::Captured => start + next.stamp.saturating_sub(first),
            Pace::Fast => Nanos::ZERO,
        })
    }
}

/// Refuses what is not Ethernet.
fn ethernet(file: &str, link: DataLink) -> Result<(), PortError> {
    if link == DataLink::ETHERNET {
        return Ok(());
    }
    Err(PortError::Capture { file: file.to_owned(), what: BadCapture::NotEthernet(link) })
}

impl Reader {
    fn read(&mut self) -> Result<Option<Captured>, BadCapture> {
        match self {
            // Raw: the library refuses packets that were cut when they were captured.
            Self::Pcap(reader) => {
                let header = reader.header();
                match reader.next_raw_packet() {
                    None => Ok(None),
                    Some(Err(error)) => Err(error.into()),
                    Some(Ok(packet)) => {
                        let unit = match header.ts_resolution {
                            TsResolution::MicroSecond => 1_000,
                            TsResolution::NanoSecond => 1,
                        };
                        let seconds = u64::from(packet.ts_sec) * 1_000_000_000;
                        Ok(Some(Captured {
                            link: header.datalink,
                            original: packet.orig_len,
                            stamp: Nanos(seconds + u64::from(packet.ts_frac) * unit),
                            bytes: packet.data.into_owned(),
                        }))
                    }
                }
            }
            Self::PcapNg(reader) => loop {
                let (interface, ticks, original, bytes) = match reader.next_block() {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(error.into()),
                    Some(Ok(Block::EnhancedPacket(packet))) => (
                        packet.interface_id as usize,
                        // The library takes the file's ticks for nanoseconds, whatever they are.
                        packet.timestamp.as_nanos(),
                        packet.original_len,
                        packet.data.into_owned(),
                    ),
                    Some(Ok(Block::SimplePacket(packet))) => {
                        (0, 0, packet.original_len, packet.data.into_owned())
                    }
                    Some(Ok(_)) => continue,
                };
                let Some(interface) = reader.interfaces().get(interface) else {
                    return Err(BadCapture::UnknownInterface(interface));
                };
                let link = interface.linktype;
                let resolution = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
                    _ => None,
                });
                let stamp = nanos(ticks, resolution.unwrap_or(6));
                return Ok(Some(Captured { link, bytes, original, stamp }));
            },
        }
    }
}

/// Ticks of a pcapng file in nanoseconds. The resolution is a negative power: of two with the
/// highest bit set, else of ten.
fn nanos(ticks: u128, resolution: u8) -> Nanos {
    let exponent = u32::from(resolution & 0x7f);
    let nanos = if resolution & 0x80 == 0 {
        match exponent {
            0..=9 => ticks.checked_mul(10u128.pow(9 - exponent)),
            10..=38 => Some(ticks / 10u128.pow(exponent - 9)),
            _ => Some(0),
        }
    } else {
        ticks.checked_mul(1_000_000_000).map(|n| n.checked_shr(exponent).unwrap_or(0))
    };
    Nanos(nanos.and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX))
}

impl Port for PcapReadPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        if let (None, Some(first)) = (self.origin, &self.next) {
            self.origin = Some((now, first.stamp));
        }
        let mut received = 0;
        for _ in 0..max {
            let Some(due) = self.due().filter(|due| *due <= now) else { break };
            let arrival = if self.pace == Pace::Captured { due } else { now };
            let Some(next) = &self.next else { break };
            if next.is_cut() {
                self.counters.drop_one(Reason::Truncated);
            } else if next.bytes.len() > pool.max_frame() {
                self.counters.drop_one(Reason::FrameTooLong);
            } else if let Some(frame) = pool.alloc_from(&next.bytes) {
                self.counters.rx_frames += 1;
                self.counters.rx_bytes += next.bytes.len() as u64;
                out.push(RxFrame::new(frame, arrival));
                received += 1;
            } else {
                self.counters.drop_one(Reason::NoBuffer);
            }
            self.advance();
        }
        received
    }

    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        let taken = frames.len();
        for frame in frames.drain(..) {
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += frame.len() as u64;
            pool.release(frame);
        }
        taken
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Up until the file has ended.
    fn state(&self) -> PortState {
        if self.is_finished() { PortState::Down } else { PortState::Up }
    }

    fn mac(&self) -> [u8; 6] {
        [0; 6]
    }

    fn mtu(&self) -> u32 {
        65_535
    }

    fn counters(&mut self) -> PortCounters {
        self.counters
    }

    fn next_due(&self) -> Option<Nanos> {
        match (&self.next, self.origin) {
            (Some(_), None) => Some(Nanos::ZERO),
            _ => self.due(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryOptions, MemoryPort};
    use crate::wrap::{PcapTap, PcapTapOptions, TxClock};
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    use std::time::Duration;

    fn drain(port: &mut PcapReadPort, now: Nanos) -> Vec<(Nanos, Vec<u8>)> {
        let mut pool = FramePool::new(16);
        let mut out = Vec::new();
        port.rx_burst(&mut pool, now, &mut out, 16);
        out.iter().map(|rx| (rx.arrival, pool.bytes(&rx.frame).to_vec())).collect()
    }

    /// A disk that is full after so many bytes.
    struct Full(usize);

    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn f15_a_capture_that_ends_early_shows_where_the_port_is_shown() {
        let (near, mut far) =
            MemoryPort::pair(MemoryOptions::default(), ("near", [2; 6]), ("far", [4; 6]));
        let mut tap = PcapTap::new(near, Full(400), PcapTapOptions::default()).unwrap();
        let (mut pool, mut out) = (FramePool::new(8), Vec::new());
        assert!(!tap.io().contains("missing"));
        for _ in 0..4 {
            assert!(far.inject(&[1; 100]));
        }
        tap.rx_burst(&mut pool, Nanos(1), &mut out, 4);
        assert_eq!(out.len(), 4, "what is not captured passes");
        assert!(tap.lost() > 0);
        assert!(tap.io().contains(&format!("{} frames missing", tap.lost())), "{}", tap.io());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no file with flags of its own")]
    fn what_a_tap_writes_is_read_back_with_its_times() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tap.pcapng");
        let (near, mut far) =
            MemoryPort::pair(MemoryOptions::default(), ("near", [2; 6]), ("far", [4; 6]));
        let options =
            PcapTapOptions { clock: TxClock::LastReceive, epoch: Some(0), ..Default::default() };
        let mut tap = PcapTap::create(near, &path, options).unwrap();
        let mut pool = FramePool::new(4);
        let mut out = Vec::new();
        assert!(far.inject_flagged(&[1; 61], true));
        tap.rx_burst(&mut pool, Nanos(1_000_000_007), &mut out, 4);
        let mut frames: VecDeque<_> = out.drain(..).map(|rx| rx.frame).collect();
        tap.rx_burst(&mut pool, Nanos(1_000_002_000), &mut out, 4);
        assert_eq!(tap.tx_burst(&mut pool, &mut frames), 1);
        assert_eq!(tap.lost(), 0);
        drop(tap);

        let mut port = PcapReadPort::open(&path, Pace::Captured).unwrap();
        assert_eq!(port.next_due(), Some(Nanos::ZERO));
        assert_eq!(drain(&mut port, Nanos(50)), [(Nanos(50), vec![1; 61])]);
        assert_eq!(port.next_due(), Some(Nanos(50 + 1_993)));
        assert_eq!(drain(&mut port, Nanos(2_042)), []);
        assert_eq!(drain(&mut port, Nanos(3_000)), [(Nanos(2_043), vec![1; 61])]);
        assert!(port.is_finished() && port.error().is_none() && port.next_due().is_none());
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        assert!(text.contains("left the transport checksum"));
    }

    #[test]
    fn a_pcap_file_is_read_as_fast_as_asked_and_cut_frames_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old.pcap");
        let mut writer = PcapWriter::new(File::create(&path).unwrap()).unwrap();
        for i in 0..3u8 {
            let stamp = Duration::from_micros(10 * u64::from(i));
            let original = if i == 1 { 100 } else { 60 };
            writer.write_packet(&PcapPacket::new(stamp, original, &[i; 60])).unwrap();
        }
        drop(writer);
        let mut port = PcapReadPort::open(&path, Pace::Fast).unwrap();
        let frames = drain(&mut port, Nanos(9));
        assert_eq!(frames, [(Nanos(9), vec![0; 60]), (Nanos(9), vec![2; 60])]);
        assert_eq!(port.counters().dropped_for(Reason::Truncated), 1);
        assert!(port.is_finished());
    }

    #[test]
    fn what_is_no_capture_of_ethernet_is_refused_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bad");
        let refusal = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            PcapReadPort::open(&path, Pace::Fast).unwrap_err().to_string()
        };
        assert!(refusal(b"").contains("too short"));
        assert!(refusal(b"just some text that is no capture").contains("bad: "));
        let mut raw = Vec::new();
        let header = PcapHeader { datalink: DataLink::RAW, ..Default::default() };
        PcapWriter::with_header(&mut raw, header).unwrap();
        assert!(refusal(&raw).contains("not Ethernet"));
        let missing = PcapReadPort::open(&directory.path().join("none"), Pace::Fast).unwrap_err();
        assert!(missing.to_string().contains("none"));
    }

    #[test]
    fn every_resolution_comes_out_in_nanoseconds() {
        assert_eq!(nanos(1_500_000, 6), Nanos(1_500_000_000));
        assert_eq!(nanos(1_500_000_000, 9), Nanos(1_500_000_000));
        assert_eq!(nanos(3_000, 12), Nanos(3));
        assert_eq!(nanos(3, 0x81), Nanos(1_500_000_000));
        assert_eq!(nanos(u128::MAX, 0), Nanos(u64::MAX));
        assert_eq!(nanos(1, 0xff), Nanos(0));
        assert_eq!(nanos(1, 0x7f), Nanos(0));
    }
}
