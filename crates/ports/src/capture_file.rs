//! Capture files that are written: pcapng, times in nanoseconds.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use evenkeel_core::Nanos;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

/// A frame to be written.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// Which of the file's interfaces saw it.
    pub interface: u32,
    /// Whether it left there, or came in.
    pub outgoing: bool,
    /// When, since 1970.
    pub at: Nanos,
    /// What there is of it, from the Ethernet header on; no more than the file keeps is written.
    pub bytes: &'a [u8],
    /// Its whole length.
    pub original: u32,
    /// Whether its transport checksum was left to the hardware.
    pub partial_checksum: bool,
}

/// A pcapng file of Ethernet frames that is being written.
pub struct CaptureWriter<W: Write> {
    writer: PcapNgWriter<W>,
    snap: usize,
}

impl<W: Write> std::fmt::Debug for CaptureWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureWriter").field("snap", &self.snap).finish_non_exhaustive()
    }
}

impl CaptureWriter<BufWriter<File>> {
    /// Creates a file, or empties it: readable by its owner alone, for packets of others are in it.
    ///
    /// # Errors
    /// It cannot be written, or is no file: a pipe that nobody reads would stop who writes.
    pub fn file(path: &Path) -> io::Result<BufWriter<File>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("a capture is written to a file only"));
        }
        Ok(BufWriter::new(file))
    }
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a file that frames of these interfaces, with their addresses, go into; of each frame
    /// `snap` bytes are kept, with 0 all.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn new(
        writer: W,
        interfaces: &[(String, Option<[u8; 6]>)],
        snap: u32,
    ) -> Result<Self, pcap_file::PcapError> {
        let mut writer = PcapNgWriter::new(writer)?;
        for (name, mac) in interfaces {
            let mut options = vec![InterfaceDescriptionOption::IfName(Cow::Borrowed(name))];
            options.extend(
                mac.map(|mac| InterfaceDescriptionOption::IfMacAddr(Cow::Owned(mac.to_vec()))),
            );
            options.push(InterfaceDescriptionOption::IfTsResol(9));
            writer.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: snap,
                options,
            })?;
        }
        Ok(Self { writer, snap: if snap == 0 { usize::MAX } else { snap as usize } })
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, frame: &Written<'_>) -> Result<(), pcap_file::PcapError> {
        let direction = if frame.outgoing { 2 } else { 1 };
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        if frame.partial_checksum {
            let text = "the sender left the transport checksum to the hardware";
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(text)));
        }
        let block = EnhancedPacketBlock {
            interface_id: frame.interface,
            timestamp: Duration::from_nanos(frame.at.0),
            original_len: frame.original,
            data: Cow::Borrowed(&frame.bytes[..frame.bytes.len().min(self.snap)]),
            options,
        };
        self.writer.write_pcapng_block(block).map(|_| ())
    }

    /// Writes what is still held back.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }
}
