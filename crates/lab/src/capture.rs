//! Packet sockets at both ends of wires: what comes out of them, written to files. The kernel
//! stamps each frame.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use evenkeel_config::Io;
use evenkeel_core::Nanos;
use evenkeel_ports::sys::{self, lock};
use evenkeel_report::Run;
use evenkeel_scenario::Scenario;
use evenkeel_world::capture::{CaptureError, Captures, WireCapture};

use crate::LabError;
use crate::listeners::{Listeners, SWEEP, for_mtu};
use crate::stopping::Stopping;

const RING: u32 = 8_192;

impl From<CaptureError> for LabError {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Write { file, source } => Self::Write { path: file, source },
            other => Self::BadInput(other.to_string()),
        }
    }
}

/// What is kept of a frame: its seat, its head, its length.
type Kept = (Seat, Vec<u8>, u32);

/// Whose file the frames of a socket go into, and at which end of the wire it is.
#[derive(Clone, Copy, Debug)]
struct Seat {
    file: usize,
    end: usize,
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
        let mut listeners = Listeners::default();
        for (file, capture) in files.iter().enumerate() {
            let wire = &scenario.wires[capture.wire];
            for (end, at) in wire.ends.iter().enumerate() {
                let place = (namespace(&at.node), at.interface.as_str());
                let options = for_mtu(wire.mtu, RING);
                listeners.listen(Seat { file, end }, (&place.0, place.1), options)?;
            }
        }
        let (files, lost) = (Arc::new(Mutex::new(files)), Arc::new(Mutex::new(0)));
        let (written, missed) = (Arc::clone(&files), Arc::clone(&lost));
        let thread = Stopping::spawn("capture", move |stop| {
            let epoch = sys::realtime_minus_monotonic();
            while !stop.load(Ordering::Relaxed) {
                *lock(&missed) = sweep(&mut listeners, epoch, &mut lock(&written));
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
fn sweep(listeners: &mut Listeners<Seat>, epoch: i64, files: &mut [WireCapture]) -> u64 {
    // Frames of one instant as they came.
    let mut seen: BTreeMap<(Nanos, usize), Kept> = BTreeMap::new();
    let lost = listeners.sweep(|seat, at, frame| {
        let kept = frame[..frame.len().min(WireCapture::SNAP)].to_vec();
        seen.insert((at, seen.len()), (*seat, kept, frame.len() as u32));
    });
    for ((at, _), (Seat { file, end }, head, length)) in seen {
        files[file].came(end, Nanos(at.0.saturating_add_signed(epoch)), &head, length);
    }
    lost
}
