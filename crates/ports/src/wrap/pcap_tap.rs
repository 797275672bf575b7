//! Writes every frame that passes a port to a pcapng file, with its direction.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

use super::{Direction, TraceEvent, Tracer, TxClock, wraps_inner};
use crate::error::PortError;
use crate::parcel::Parcel;
use crate::port::Port;
use crate::sys::realtime_minus_monotonic;

/// How a capture is written.
#[derive(Clone, Copy, Debug)]
pub struct PcapTapOptions {
    /// Keep this many bytes of each frame; 0 keeps all.
    pub snap: u32,
    /// Where sent frames have their time from.
    pub clock: TxClock,
    /// What is added to each time, nanoseconds: the distance of CLOCK_REALTIME, so that readers
    /// show the time of day, unless given. Give 0 for a file that is the same with each run.
    pub epoch: Option<i64>,
}

impl Default for PcapTapOptions {
    fn default() -> Self {
        Self { snap: 0, clock: TxClock::Monotonic, epoch: None }
    }
}

/// Writes one frame.
type See = Box<dyn FnMut(TraceEvent<'_>) + Send>;

/// A port whose frames are also written to a file. A file that cannot be written any longer never
/// stops the port: what is lost is counted.
pub struct PcapTap<P: Port> {
    inner: Tracer<P, See>,
    lost: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl<P: Port> PcapTap<P> {
    /// Wraps a port and creates the file, or empties it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(inner: P, path: &Path, options: PcapTapOptions) -> Result<Self, PortError> {
        let failed = |error| PortError::from_io(format!("writing to {}", path.display()), error);
        // Packets of others are in it. A pipe that nobody reads would stop forwarding.
        let mut options_of_file = OpenOptions::new();
        options_of_file.write(true).create(true).truncate(true).mode(0o600);
        let file = options_of_file.custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("a capture is written to a file only")));
        }
        let file = BufWriter::new(file);
        Self::new(inner, file, options).map_err(|error| match error {
            pcap_file::PcapError::IoError(error) => failed(error),
            other => PortError::Capture { file: path.display().to_string(), what: other.into() },
        })
    }

    /// Wraps a port and writes to `writer`.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn new(
        inner: P,
        writer: impl Write + Send + 'static,
        options: PcapTapOptions,
    ) -> Result<Self, pcap_file::PcapError> {
        let mut writer = PcapNgWriter::new(writer)?;
        writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: options.snap,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(inner.name().to_owned())),
                InterfaceDescriptionOption::IfMacAddr(Cow::Owned(inner.mac().to_vec())),
                // Times are in nanoseconds.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        })?;
        let epoch = options.epoch.unwrap_or_else(realtime_minus_monotonic);
        let snap = if options.snap == 0 { usize::MAX } else { options.snap as usize };
        let lost = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counted = std::sync::Arc::clone(&lost);
        let see: See = Box::new(move |event: TraceEvent<'_>| {
            let direction = match event.direction {
                Direction::In => 1,
                Direction::Out => 2,
            };
            let mut options = vec![EnhancedPacketOption::Flags(direction)];
            if event.partial_checksum {
                let text = "the sender left the transport checksum to the hardware";
                options.push(EnhancedPacketOption::Comment(Cow::Borrowed(text)));
            }
            let block = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(event.at.0.saturating_add_signed(epoch)),
                original_len: event.bytes.len() as u32,
                data: Cow::Borrowed(&event.bytes[..event.bytes.len().min(snap)]),
                options,
            };
            if writer.write_pcapng_block(block).is_err() {
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        Ok(Self { inner: Tracer::new(inner, options.clock, see), lost })
    }

    /// How many frames could not be written.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The port inside.
    pub const fn inner(&mut self) -> &mut P {
        self.inner.inner()
    }

    /// The port without the wrapper; the file is complete afterwards.
    pub fn into_inner(self) -> P {
        self.inner.into_inner()
    }
}

impl<P: Port> std::fmt::Debug for PcapTap<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapTap").field("port", &self.inner.name()).finish_non_exhaustive()
    }
}

impl<P: Port> crate::port::PortWrapper for PcapTap<P> {
    wraps_inner!(Tracer<P, See>);

    /// Another process would begin the file again.
    fn pass_on(&mut self, _parcel: &mut Parcel) -> Result<(), PortError> {
        Err(PortError::NotPassed("its frames are being written to a file"))
    }

    /// A file that ends early says nothing by itself.
    fn io(&self) -> String {
        match self.lost() {
            0 => Port::io(&self.inner),
            lost => format!("{}; {lost} frames missing in the capture", Port::io(&self.inner)),
        }
    }
}
