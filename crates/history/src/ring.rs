//! A part of the file as a ring of records.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Records begin at multiples of this, bytes.
pub(crate) const BLOCK: u64 = 64;
/// What stands before a record's content: `EKHR`, the checksum of all that follows, the length of
/// the content, its kind, its number, its time.
const HEAD: usize = 32;
const MARK: &[u8; 4] = b"EKHR";

/// What a record tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Kind {
    Window = 1,
    Happened = 2,
}

/// A record and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    at: u64,
    length: u32,
    pub(crate) kind: Kind,
    /// They count up through both rings.
    number: u64,
    pub(crate) time_ms: u64,
}

/// Records by age, and where the next one goes.
#[derive(Debug)]
pub(crate) struct Ring {
    part: Range<u64>,
    /// The oldest first.
    places: VecDeque<Place>,
    next: u64,
}

impl Place {
    pub(crate) fn new(kind: Kind, number: u64, time_ms: u64, content: &[u8]) -> Self {
        Self { at: 0, length: content.len() as u32, kind, number, time_ms }
    }

    /// Bytes in the file, up to the next record.
    fn room(self) -> u64 {
        (HEAD as u64 + u64::from(self.length)).next_multiple_of(BLOCK)
    }

    fn end(self) -> u64 {
        self.at + self.room()
    }

    fn head(self, content: &[u8]) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(MARK);
        head[8..12].copy_from_slice(&self.length.to_le_bytes());
        head[12] = self.kind as u8;
        head[16..24].copy_from_slice(&self.number.to_le_bytes());
        head[24..].copy_from_slice(&self.time_ms.to_le_bytes());
        let sum = checksum(&head, content);
        head[4..8].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// What a head says, if it is one.
    fn parse(head: &[u8], at: u64) -> Option<Self> {
        let word = |at: usize| head.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let kind = match head.get(12)? {
            1 => Kind::Window,
            2 => Kind::Happened,
            _ => return None,
        };
        let length = u32::from_le_bytes(head.get(8..12)?.try_into().ok()?);
        let place = Self { at, length, kind, number: word(16)?, time_ms: word(24)? };
        (&head[..4] == MARK).then_some(place)
    }
}

fn checksum(head: &[u8], content: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&head[8..HEAD]);
    sum.update(content);
    sum.finalize()
}

/// Whether a record is as it was written; `bytes` begin with its head.
fn is_whole(bytes: &[u8]) -> bool {
    let (head, content) = bytes.split_at(HEAD);
    head[4..8] == checksum(head, content).to_le_bytes()
}

/// The content of a record; `None` if it is not there any more.
pub(crate) fn read(file: &File, place: &Place) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; HEAD + place.length as usize];
    match file.read_exact_at(&mut bytes, place.at) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let same = Place::parse(&bytes, place.at).is_some_and(|now| now.number == place.number);
    Ok((same && is_whole(&bytes)).then(|| bytes.split_off(HEAD)))
}

impl Ring {
    /// Looks for the records in a part of a file. What is missing at its end has none.
    pub(crate) fn scan(file: &File, part: Range<u64>) -> io::Result<Self> {
        let length = file.metadata()?.len().min(part.end).saturating_sub(part.start);
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, part.start)?;
        let mut places = Vec::new();
        let mut at = 0;
        while at + HEAD <= bytes.len() {
            let found = Place::parse(&bytes[at..at + HEAD], part.start + at as u64);
            let found = found.filter(|place| {
                let record = bytes.get(at..at + HEAD + place.length as usize);
                record.is_some_and(is_whole)
            });
            at += found.map_or(BLOCK, Place::room) as usize;
            places.extend(found);
        }
        places.sort_unstable_by_key(|place| place.number);
        let next = places.last().map_or(part.start, |newest| newest.end());
        Ok(Self { part, places: places.into(), next })
    }

    /// The number of the newest record.
    pub(crate) fn newest(&self) -> u64 {
        self.places.back().map_or(0, |place| place.number)
    }

    /// The oldest first.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.iter()
    }

    /// Writes a record over the oldest ones.
    pub(crate) fn write(&mut self, file: &File, place: Place, content: &[u8]) -> io::Result<()> {
        if place.room() > self.part.end - self.part.start {
            return Err(io::Error::other("the history is too small for one record"));
        }
        let wraps = self.next + place.room() > self.part.end;
        let place = Place { at: if wraps { self.part.start } else { self.next }, ..place };
        // What it overwrites, and what it leaves behind at the end of the ring, is the oldest.
        let lost = |old: &Place| {
            (old.at < place.end() && place.at < old.end()) || (wraps && old.at >= self.next)
        };
        while self.places.front().is_some_and(lost) {
            self.places.pop_front();
        }
        let mut bytes = place.head(content).to_vec();
        bytes.extend_from_slice(content);
        file.write_all_at(&bytes, place.at)?;
        self.next = place.end();
        self.places.push_back(place);
        Ok(())
    }
}
