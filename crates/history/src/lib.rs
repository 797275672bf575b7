//! The past of a router in a file of fixed size: windows of seconds and of minutes, and what
//! happened.
//!
//! ```text
//!  0        64                split                                   size
//!  | header | seconds: 1 of 8 | minutes and events: 7 of 8            |
//! ```
//!
//! Each part is a ring. A record begins at a multiple of 64 bytes with its checksum, its length,
//! its number and its time; its content is compressed JSON. The newest record overwrites the
//! oldest, so a file never grows, and how far back it reaches depends on how much there is to tell
//! of a router: `evenkeel history` says it.
//!
//! Whatever happens to the file, what can be read of it is right: a record counts if its checksum
//! does. One that was being written when the machine stopped is not there, nor is the one that it
//! was written over. Records are ordered by their numbers, so a clock that steps moves nothing.
#![forbid(unsafe_code)]

mod entry;
mod ring;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use evenkeel_control::rates::RouterRates;
use thiserror::Error;

pub use entry::{Happened, rfc3339};
use ring::{BLOCK, Kind, Place, Ring};

/// What a file is if nobody says how large: an hour of seconds and a month of minutes of a router
/// with a dozen classes.
pub const USUAL_SIZE: u64 = 64 << 20;
/// The smallest and the largest file.
pub const SIZES: std::ops::RangeInclusive<u64> = (64 << 10)..=(16 << 30);

const MAGIC: &[u8; 8] = b"EKHIST1\n";

/// Which windows are wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// One each interval of `evenkeel serve`, usually a second.
    Seconds,
    /// One each minute.
    Minutes,
}

/// Why a history cannot be used.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// The system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is something else.
    #[error("{path} is not a history of evenkeel: give another path, or remove it",
        path = .0.display())]
    NotAHistory(PathBuf),
    /// Somebody else writes it.
    #[error("{path} is written by another process: give this one a file of its own",
        path = .0.display())]
    InUse(PathBuf),
    /// It must be larger or smaller.
    #[error("a history of {0} bytes: valid are 64KiB to 16GiB")]
    Size(u64),
}

/// A file and what is known to be in it.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    file: File,
    seconds: Ring,
    minutes: Ring,
    number: u64,
}

impl History {
    /// Opens a history to write, or makes it; all of its room is taken from the disk now. One of
    /// another size is copied into the new size, the newest first to stay.
    ///
    /// # Errors
    /// See [`HistoryError`].
    pub fn open(path: &Path, size: u64) -> Result<Self, HistoryError> {
        if !SIZES.contains(&size) {
            return Err(HistoryError::Size(size));
        }
        let size = size - size % BLOCK;
        let failed = |source| HistoryError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let file = Self::lock(path)?;
        let present = size_of(&file).map_err(failed)?;
        match present {
            Present::Other => return Err(HistoryError::NotAHistory(path.to_owned())),
            Present::History(other) if other != size => return Self::resize(path, file, size),
            Present::Nothing | Present::History(_) => {}
        }
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size)
            .map_err(|error| failed(error.into()))?;
        file.set_len(size).map_err(failed)?;
        file.write_all_at(&header(size), 0).map_err(failed)?;
        Self::scan(path, file, size).map_err(failed)
    }

    /// Opens a history to read, while it may be written by another process.
    ///
    /// # Errors
    /// See [`HistoryError`].
    pub fn read_only(path: &Path) -> Result<Self, HistoryError> {
        let failed = |source| HistoryError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        match size_of(&file).map_err(failed)? {
            Present::History(size) => Self::scan(path, file, size).map_err(failed),
            Present::Nothing | Present::Other => Err(HistoryError::NotAHistory(path.to_owned())),
        }
    }

    fn lock(path: &Path) -> Result<File, HistoryError> {
        let failed = |source| HistoryError::Io { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o640);
        let file = options.open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(HistoryError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Copies a history into another of the new size, which takes its name: a machine that stops
    /// meanwhile has the old one.
    fn resize(path: &Path, former: File, size: u64) -> Result<Self, HistoryError> {
        let failed = |source| HistoryError::Io { path: path.to_owned(), source };
        let Present::History(old) = size_of(&former).map_err(failed)? else {
            return Err(HistoryError::NotAHistory(path.to_owned()));
        };
        let former = Self::scan(path, former, old).map_err(failed)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let beside = path.with_file_name(name);
        let _ = std::fs::remove_file(&beside);
        let mut resized = Self::open(&beside, size)?;
        let copied = resized.copy(&former).and_then(|()| resized.sync());
        if let Err(error) = copied.and_then(|()| std::fs::rename(&beside, path)) {
            let _ = std::fs::remove_file(&beside);
            return Err(failed(error));
        }
        resized.path = path.to_owned();
        Ok(resized)
    }

    fn copy(&mut self, from: &Self) -> io::Result<()> {
        for (ring, step) in [(&from.seconds, Step::Seconds), (&from.minutes, Step::Minutes)] {
            for place in ring.places() {
                if let Some(payload) = ring::read(&from.file, place)? {
                    self.put(step, place.kind, place.time_ms, &payload)?;
                }
            }
        }
        Ok(())
    }

    fn scan(path: &Path, file: File, size: u64) -> io::Result<Self> {
        let split = BLOCK + (size - BLOCK) / 8 / BLOCK * BLOCK;
        let seconds = Ring::scan(&file, BLOCK..split)?;
        let minutes = Ring::scan(&file, split..size - size % BLOCK)?;
        let number = seconds.newest().max(minutes.newest());
        Ok(Self { path: path.to_owned(), file, seconds, minutes, number })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes a window.
    ///
    /// # Errors
    /// What the system says; the record is then not there.
    pub fn window(&mut self, step: Step, rates: &RouterRates) -> io::Result<()> {
        let content = entry::packed(&entry::rounded(rates));
        self.put(step, Kind::Window, rates.time_ms, &content)
    }

    /// Notes something that happened.
    ///
    /// # Errors
    /// As [`History::window`].
    pub fn happened(&mut self, what: &Happened) -> io::Result<()> {
        let content = entry::packed(what);
        self.put(Step::Minutes, Kind::Happened, what.time_ms, &content)
    }

    fn put(&mut self, step: Step, kind: Kind, time_ms: u64, content: &[u8]) -> io::Result<()> {
        let ring = match step {
            Step::Seconds => &mut self.seconds,
            Step::Minutes => &mut self.minutes,
        };
        self.number += 1;
        ring.write(&self.file, Place::new(kind, self.number, time_ms, content), content)
    }

    /// Has the disk write what was noted.
    ///
    /// # Errors
    /// What the system says.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// When the oldest and the newest window of a step ended, ms since 1970.
    #[must_use]
    pub fn reach(&self, step: Step) -> Option<(u64, u64)> {
        let times = self.ring(step).places().filter(|place| place.kind == Kind::Window);
        let times = times.map(|place| place.time_ms);
        times.fold(None, |span: Option<(u64, u64)>, time| {
            let (from, to) = span.unwrap_or((time, time));
            Some((from.min(time), to.max(time)))
        })
    }

    fn ring(&self, step: Step) -> &Ring {
        match step {
            Step::Seconds => &self.seconds,
            Step::Minutes => &self.minutes,
        }
    }

    /// The windows of a step that ended within `from_ms..=to_ms`, oldest first. Where the clock was
    /// set back, what it showed before it came there again is left out.
    ///
    /// # Errors
    /// What the system says. Records that are not right are left out.
    pub fn windows(&self, step: Step, from_ms: u64, to_ms: u64) -> io::Result<Vec<RouterRates>> {
        let mut windows: Vec<RouterRates> = Vec::new();
        for place in self.ring(step).places() {
            let wanted = place.kind == Kind::Window && (from_ms..=to_ms).contains(&place.time_ms);
            let read = || ring::read(&self.file, place);
            if wanted && let Some(rates) = read()?.and_then(|content| entry::unpacked(&content)) {
                let rates: RouterRates = rates;
                while windows.last().is_some_and(|last| last.time_ms >= rates.time_ms) {
                    windows.pop();
                }
                windows.push(rates);
            }
        }
        Ok(windows)
    }

    /// What happened within `from_ms..=to_ms`, in the order in which it did.
    ///
    /// # Errors
    /// As [`History::windows`].
    pub fn events(&self, from_ms: u64, to_ms: u64) -> io::Result<Vec<Happened>> {
        let mut events = Vec::new();
        for place in self.minutes.places() {
            if place.kind == Kind::Happened && (from_ms..=to_ms).contains(&place.time_ms) {
                events.extend(
                    ring::read(&self.file, place)?.and_then(|content| entry::unpacked(&content)),
                );
            }
        }
        Ok(events)
    }
}

/// What a file holds.
enum Present {
    Nothing,
    /// Of this size.
    History(u64),
    Other,
}

fn header(size: u64) -> [u8; BLOCK as usize] {
    let mut header = [0; BLOCK as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&size.to_le_bytes());
    let sum = crc32fast::hash(&header[..16]);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    header
}

/// A header that is cut off or damaged is that of a history without records, if it begins like one:
/// there is nothing else that it could protect.
fn size_of(file: &File) -> io::Result<Present> {
    let length = file.metadata()?.len();
    if !file.metadata()?.is_file() {
        return Ok(Present::Other);
    }
    let mut bytes = [0; BLOCK as usize];
    let known = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    file.read_exact_at(&mut bytes[..known], 0)?;
    let begins = known.min(MAGIC.len());
    if bytes[..begins] != MAGIC[..begins] {
        return Ok(Present::Other);
    }
    let size = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let whole = bytes == header(size) && SIZES.contains(&size) && size.is_multiple_of(BLOCK);
    Ok(if whole { Present::History(size) } else { Present::Nothing })
}
