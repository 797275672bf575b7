//! Writes every frame that passes a port to a pcapng file, with its direction.

use std::io::Write;
use std::path::Path;

use evenkeel_core::Nanos;

use super::{Direction, TraceEvent, Tracer, TxClock, wraps_inner};
use crate::capture_file::{CaptureWriter, Written};
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
        let file = CaptureWriter::file(path).map_err(failed)?;
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
        let interface = (inner.name().to_owned(), Some(inner.mac()));
        let mut writer = CaptureWriter::new(writer, &[interface], options.snap)?;
        let epoch = options.epoch.unwrap_or_else(realtime_minus_monotonic);
        let lost = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counted = std::sync::Arc::clone(&lost);
        let see: See = Box::new(move |event: TraceEvent<'_>| {
            let written = writer.write(&Written {
                interface: 0,
                outgoing: event.direction == Direction::Out,
                at: Nanos(event.at.0.saturating_add_signed(epoch)),
                original: event.bytes.len() as u32,
                bytes: event.bytes,
                partial_checksum: event.partial_checksum,
            });
            if written.is_err() {
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
