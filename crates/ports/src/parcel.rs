//! What a process passes on to another one on the same machine: numbers, bytes, and descriptors,
//! which stay the same open files, sockets and links in the hands of the other.
//!
//! Whoever fills a parcel and whoever empties it name the pieces in the same order. On a stream it
//! is three counts, then the descriptors, each group of them with a byte, then numbers and bytes.
//! Both processes run on one machine, so numbers have its byte order.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::error::PortError;

/// The kernel takes at most 253 descriptors at once.
const GROUP: usize = 64;
/// More of a kind is nothing that this program has written.
const MOST_FILES: u64 = 1 << 14;
const MOST_WORDS: u64 = 1 << 26;
const MOST_BYTES: u64 = 1 << 32;

/// See the module.
#[derive(Debug, Default)]
pub struct Parcel {
    words: VecDeque<u64>,
    files: VecDeque<OwnedFd>,
    bytes: Vec<u8>,
    /// How many of the bytes have been taken.
    taken: usize,
}

impl Parcel {
    /// Puts a number in.
    pub fn put(&mut self, word: u64) {
        self.words.push_back(word);
    }

    /// Puts a copy of a descriptor in.
    ///
    /// # Errors
    /// The process may have no more descriptors.
    pub fn put_file(&mut self, file: BorrowedFd<'_>) -> Result<(), PortError> {
        let copy = file.try_clone_to_owned().map_err(|error| {
            PortError::from_io("copying a descriptor for another process", error)
        })?;
        self.files.push_back(copy);
        Ok(())
    }

    /// Puts bytes in, after their number.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes what [`put_bytes`](Self::put_bytes) has put in.
    ///
    /// # Errors
    /// There is nothing of that kind.
    pub fn take_bytes(&mut self) -> Result<&[u8], PortError> {
        let length = self.take()?;
        let from = self.taken;
        let rest = (self.bytes.len() - from) as u64;
        if length > rest {
            return Err(PortError::NotPassed("bytes are missing"));
        }
        self.taken += length as usize;
        Ok(&self.bytes[from..self.taken])
    }

    /// Takes a text that was put in as bytes.
    ///
    /// # Errors
    /// There is nothing of that kind.
    pub fn take_text(&mut self) -> Result<String, PortError> {
        let bytes = self.take_bytes()?.to_vec();
        String::from_utf8(bytes).map_err(|_error| PortError::NotPassed("a text is none"))
    }

    /// The next number.
    ///
    /// # Errors
    /// There is none.
    pub fn take(&mut self) -> Result<u64, PortError> {
        self.words.pop_front().ok_or(PortError::NotPassed("a number is missing"))
    }

    /// The next descriptor.
    ///
    /// # Errors
    /// There is none.
    pub fn take_file(&mut self) -> Result<OwnedFd, PortError> {
        self.files.pop_front().ok_or(PortError::NotPassed("a descriptor is missing"))
    }

    /// Whether pieces of this kind come next.
    pub(crate) fn is_next(&self, kind: Kind) -> bool {
        self.words.front() == Some(&(kind as u64))
    }

    /// Puts in what says of which kind the following pieces are.
    pub(crate) fn begin(&mut self, kind: Kind) {
        self.put(kind as u64);
    }

    /// Goes past what [`begin`](Self::begin) has put in.
    pub(crate) fn expect(&mut self, kind: Kind) -> Result<(), PortError> {
        if self.take()? == kind as u64 {
            return Ok(());
        }
        Err(PortError::NotPassed("the other process has something else at this place"))
    }

    /// Sends it, descriptors included.
    ///
    /// # Errors
    /// The other end is gone, or has not taken it in the time that the stream gives it.
    pub fn send(&self, stream: &UnixStream) -> io::Result<()> {
        let counts = [self.words.len(), self.bytes.len(), self.files.len()];
        let head: Vec<u8> = counts.iter().flat_map(|count| (*count as u64).to_ne_bytes()).collect();
        let mut out = stream;
        out.write_all(&head)?;
        let files: Vec<BorrowedFd<'_>> = self.files.iter().map(AsFd::as_fd).collect();
        for group in files.chunks(GROUP) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GROUP))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            if !beside.push(SendAncillaryMessage::ScmRights(group)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let one = [IoSlice::new(&[0])];
            rustix::io::retry_on_intr(|| sendmsg(stream, &one, &mut beside, SendFlags::NOSIGNAL))?;
        }
        let words: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        out.write_all(&words)?;
        out.write_all(&self.bytes)
    }

    /// Receives one.
    ///
    /// # Errors
    /// The other end is gone or silent, or has sent something else.
    pub fn receive(stream: &UnixStream) -> io::Result<Self> {
        let strange = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut input = stream;
        let mut head = [0; 24];
        input.read_exact(&mut head)?;
        let count = |at: usize, most: u64| {
            let bytes = head[at..at + 8].try_into().expect("eight bytes");
            let count = u64::from_ne_bytes(bytes);
            if count <= most { Ok(count as usize) } else { Err(strange("no parcel of ours")) }
        };
        let (words, bytes, files) =
            (count(0, MOST_WORDS)?, count(8, MOST_BYTES)?, count(16, MOST_FILES)?);
        let mut parcel = Self::default();
        while parcel.files.len() < files {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GROUP))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let mut one = [IoSliceMut::new(&mut byte)];
            let received = rustix::io::retry_on_intr(|| {
                recvmsg(stream, &mut one, &mut beside, RecvFlags::CMSG_CLOEXEC)
            })?;
            let before = parcel.files.len();
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(group) = message {
                    parcel.files.extend(group);
                }
            }
            if received.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if parcel.files.len() == before {
                // The limit of descriptors keeps the kernel from giving them.
                return Err(strange("a descriptor could not be had: see LimitNOFILE"));
            }
        }
        let mut read = vec![0; words * 8];
        input.read_exact(&mut read)?;
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        parcel.words = read.chunks_exact(8).map(word).collect();
        parcel.bytes = vec![0; bytes];
        input.read_exact(&mut parcel.bytes)?;
        Ok(parcel)
    }
}

/// What pieces of a parcel belong to.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Kind {
    AfPacket = 1,
    Inline,
    AfXdp,
    HandOver,
    Guard,
    InlineHold,
    OwnTraffic,
    Bridged,
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _};

    use super::*;

    #[test]
    fn what_is_put_in_comes_out_in_order_and_files_are_the_same_files() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut parcel = Parcel::default();
        parcel.begin(Kind::Guard);
        parcel.put_bytes(b"name");
        parcel.put_bytes(&[7; 100_000]);
        let many = GROUP * 2 + 3;
        let mut files: Vec<File> = (0..many).map(|_| tempfile::tempfile().unwrap()).collect();
        for (number, file) in files.iter().enumerate() {
            parcel.put(number as u64);
            parcel.put_file(file.as_fd()).unwrap();
        }
        let sender = std::thread::spawn(move || parcel.send(&ours).unwrap());
        let mut received = Parcel::receive(&theirs).unwrap();
        sender.join().unwrap();
        assert!(received.expect(Kind::Inline).is_err(), "of another kind");
        assert_eq!(received.take_text().unwrap(), "name");
        assert_eq!(received.take_bytes().unwrap(), [7; 100_000]);
        for (number, file) in files.iter_mut().enumerate() {
            assert_eq!(received.take().unwrap(), number as u64);
            let mut passed = File::from(received.take_file().unwrap());
            passed.write_all(&[number as u8]).unwrap();
            file.rewind().unwrap();
            let mut read = Vec::new();
            file.read_to_end(&mut read).unwrap();
            assert_eq!(read, [number as u8], "the same open file");
        }
        assert!(received.take().is_err() && received.take_file().is_err());
        received.put(1);
        assert!(received.take_bytes().is_err(), "none are left");
    }

    #[test]
    fn something_else_on_the_stream_is_refused_and_not_waited_for() {
        for bytes in [vec![0xff; 24], vec![0; 5]] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(&bytes).unwrap();
            drop(ours);
            assert!(Parcel::receive(&theirs).is_err(), "{bytes:?}");
        }
    }
}
