//! What comes out of a wire, in both directions, in a file that other programs read: the same in
//! virtual time and on real packets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use evenkeel_core::Nanos;
use evenkeel_ports::capture_file::{CaptureWriter, Written};
use evenkeel_scenario::Scenario;
use thiserror::Error;

/// Which wires are captured.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    /// By their nodes: `"r1/r2"`.
    pub wires: Vec<String>,
    /// Where the files go, `r1-r2.pcapng`; made if it is not there.
    pub folder: PathBuf,
}

/// Why a wire cannot be captured.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// There is no such wire.
    #[error("--capture: {0}")]
    NoWire(String),
    /// The scenario has no wires.
    #[error("--capture: the scenario has no wires: it is of a core that polls a ring")]
    NoWires,
    /// The file cannot be written.
    #[error("cannot write {file}: {source}", file = file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The file of a wire.
#[derive(Debug)]
pub struct WireCapture {
    /// The wire's number in the scenario.
    pub wire: usize,
    file: PathBuf,
    writer: CaptureWriter<BufWriter<File>>,
    failed: Option<io::Error>,
}

impl Captures {
    /// The numbers of the wires and their names, each wire once.
    ///
    /// # Errors
    /// There is no such wire.
    pub fn numbers(&self, scenario: &Scenario) -> Result<BTreeMap<usize, &str>, CaptureError> {
        if scenario.core.is_some() && !self.wires.is_empty() {
            return Err(CaptureError::NoWires);
        }
        let number = |name: &String| scenario.wire(name).map_err(CaptureError::NoWire);
        self.wires.iter().map(|name| Ok((number(name)?, name.as_str()))).collect()
    }

    /// Begins the files.
    ///
    /// # Errors
    /// There is no such wire, or a file cannot be written.
    pub fn begin(&self, scenario: &Scenario) -> Result<Vec<WireCapture>, CaptureError> {
        let wires = self.numbers(scenario)?;
        if wires.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |file: &Path, source| CaptureError::Write { file: file.to_owned(), source };
        std::fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, error))?;
        let begin = |(wire, name): (usize, &str)| {
            let ends = scenario.wires[wire].ends.each_ref().map(|end| end.node.as_str());
            let file = self.folder.join(format!("{}.pcapng", name.replace('/', "-")));
            let open = CaptureWriter::file(&file).map_err(|error| failed(&file, error))?;
            // A frame is one of the node that it comes to.
            let interfaces = ends.map(|node| (format!("to {node}"), None));
            let writer = CaptureWriter::new(open, &interfaces, WireCapture::SNAP as u32)
                .map_err(|error| failed(&file, io::Error::other(error)))?;
            Ok(WireCapture { wire, file, writer, failed: None })
        };
        wires.into_iter().map(begin).collect()
    }
}

impl WireCapture {
    /// Bytes of each frame that are kept: all headers, and what sinks measure by.
    pub const SNAP: usize = 128;

    /// A frame has come out of the wire at its end `end`, 0 or 1 as in the scenario, at `at`, since
    /// 1970 or since the run began; `head` is what there is of its `length` bytes.
    pub fn came(&mut self, end: usize, at: Nanos, head: &[u8], length: u32) {
        if self.failed.is_some() {
            return;
        }
        let frame = Written {
            interface: end as u32,
            outgoing: false,
            at,
            bytes: head,
            original: length,
            partial_checksum: false,
        };
        self.failed = self.writer.write(&frame).map_err(io::Error::other).err();
    }

    /// The file is complete.
    ///
    /// # Errors
    /// It could not be written to its end.
    pub fn end(mut self) -> Result<PathBuf, CaptureError> {
        let written = match self.failed {
            Some(error) => Err(error),
            None => self.writer.flush(),
        };
        match written {
            Ok(()) => Ok(self.file),
            Err(source) => Err(CaptureError::Write { file: self.file, source }),
        }
    }
}
