//! Packet sockets at both ends of wires: what comes out of them, written to files. The kernel
//! stamps each frame.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_config::Io;
use evenkeel_core::Nanos;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::sys::{self, lock};
use evenkeel_ports::{FramePool, Port, RxFrame};
use evenkeel_report::Run;
use evenkeel_scenario::Scenario;
use evenkeel_world::capture::{CaptureError, Captures, WireCapture};

use crate::LabError;
use crate::stopping::Stopping;

/// How often the rings are emptied.
const SWEEP: Duration = Duration::from_millis(2);
const BURST: usize = 256;
const RING: u32 = 8_192;
/// Ethernet header and a tag.
const BEFORE_IP: u32 = 18;

impl From<CaptureError> for LabError {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Write { file, source } => Self::Write { path: file, source },
            other => Self::BadInput(other.to_string()),
        }
    }
}

/// What is kept of a frame: its file, the end of the wire, its head, its length.
type Kept = (usize, usize, Vec<u8>, u32);

/// A socket: whose file its frames go into, and at which end of the wire it is.
struct Seat {
    file: usize,
    end: usize,
    port: AfPacketPort,
}

/// The thread that writes. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Capturing {
    files: Arc<Mutex<Vec<WireCapture>>>,
    /// Frames that the sockets had no room for.
    lost: Arc<Mutex<u64>>,
    thread: Stopping,
}

impl Capturing {
    /// Begins, if any wire is to be captured. `namespace` gives the name that a node's has.
    ///
    /// # Errors
    /// No such wire, one whose frames no packet socket sees, a file that cannot be written.
    pub(crate) fn start(
        captures: &Captures,
        scenario: &Scenario,
        namespace: impl Fn(&str) -> String,
    ) -> Result<Option<Self>, LabError> {
        let files = captures.begin(scenario)?;
        if files.is_empty() {
            return Ok(None);
        }
        let (mut seats, mut longest) = (Vec::new(), 0);
        for (file, capture) in files.iter().enumerate() {
            let wire = &scenario.wires[capture.wire];
            longest = longest.max(usize::from(wire.mtu));
            let max_frame = (u32::from(wire.mtu) + BEFORE_IP).max(1_518);
            for (end, at) in wire.ends.iter().enumerate() {
                let options =
                    AfPacketOptions { ring_frames: RING, max_frame, ..AfPacketOptions::default() };
                let cannot = |source| LabError::System {
                    what: format!("capture at {} of {}", at.interface, at.node),
                    source,
                };
                let open = || AfPacketPort::open(&at.interface, options);
                let port = sys::in_netns(&namespace(&at.node), open)
                    .map_err(cannot)?
                    .map_err(|error| cannot(std::io::Error::other(error)))?;
                seats.push(Seat { file, end, port });
            }
        }
        let (files, lost) = (Arc::new(Mutex::new(files)), Arc::new(Mutex::new(0)));
        let (written, missed) = (Arc::clone(&files), Arc::clone(&lost));
        let thread = Stopping::spawn("capture", move |stop| {
            let mut pool = FramePool::for_frames_of(BURST, longest + 64);
            let epoch = sys::realtime_minus_monotonic();
            while !stop.load(Ordering::Relaxed) {
                *lock(&missed) = sweep(&mut seats, &mut pool, epoch, &mut lock(&written));
                std::thread::sleep(SWEEP);
            }
        })?;
        Ok(Some(Self { files, lost, thread }))
    }

    /// Ends it, and says so in the run's notes; returns a warning if frames are missing.
    ///
    /// # Errors
    /// A file could not be written to its end.
    pub(crate) fn end(mut self, run: &mut Run) -> Result<Option<String>, LabError> {
        // What is in the rings is read first.
        std::thread::sleep(4 * SWEEP);
        self.thread.stop();
        let files = std::mem::take(&mut *lock(&self.files));
        for file in files {
            let file = file.end()?;
            run.notes.push(format!("Captured: {}.", file.display()));
        }
        let lost = *lock(&self.lost);
        Ok((lost > 0).then(|| format!("{lost} frames are missing in what was captured")))
    }
}

/// Whether all that is to be captured can be: before anything is built.
///
/// # Errors
/// No such wire, or one whose frames no packet socket sees.
pub(crate) fn check(captures: &Captures, scenario: &Scenario) -> Result<(), LabError> {
    for wire in captures.numbers(scenario)?.into_keys() {
        let mut ends = scenario.wires[wire].ends.iter();
        ends.try_for_each(|at| packets_pass(scenario, &at.node, &at.interface))?;
    }
    Ok(())
}

/// AF_XDP takes frames before any packet socket sees them.
fn packets_pass(scenario: &Scenario, node: &str, interface: &str) -> Result<(), LabError> {
    let router = scenario.routers.iter().find(|router| router.name == node);
    let Some(config) = router.map(|router| &router.config) else { return Ok(()) };
    let port = config.ports.iter().find(|port| port.interface == interface);
    if port.is_some_and(|port| config.io_of(port) == Io::AfXdp) {
        return Err(LabError::BadInput(format!(
            "--capture: port {interface} of {node} has io = \"af-xdp\", which takes frames before \
             they can be captured: say io = \"af-packet\" there"
        )));
    }
    Ok(())
}

/// Empties the rings, in order of time; returns how many frames they had no room for until now.
fn sweep(seats: &mut [Seat], pool: &mut FramePool, epoch: i64, files: &mut [WireCapture]) -> u64 {
    let mut frames: Vec<RxFrame> = Vec::with_capacity(BURST);
    // By time; frames of one instant as they came.
    let mut seen: BTreeMap<(Nanos, usize), Kept> = BTreeMap::new();
    let mut lost = 0;
    for Seat { file, end, port } in seats {
        loop {
            let got = port.rx_burst(pool, sys::monotonic_now(), &mut frames, BURST);
            for received in frames.drain(..) {
                let bytes = pool.bytes(&received.frame);
                let kept = bytes[..bytes.len().min(WireCapture::SNAP)].to_vec();
                let row = (*file, *end, kept, bytes.len() as u32);
                seen.insert((received.arrival, seen.len()), row);
                pool.release(received.frame);
            }
            if got < BURST {
                break;
            }
        }
        let counters = port.counters();
        lost += counters.ring_loss + counters.dropped.iter().sum::<u64>();
    }
    for ((at, _), (file, end, bytes, length)) in seen {
        files[file].came(end, Nanos(at.0.saturating_add_signed(epoch)), &bytes, length);
    }
    lost
}
