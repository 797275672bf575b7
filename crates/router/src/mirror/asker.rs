//! The thread that asks the kernel.
//!
//! Reading what there is, and having a neighbour asked for, waits for a lock of the kernel's, which
//! a routing daemon that sets thousands of routes has for tenths of a second. Whoever follows
//! events must not wait with it: a change would be acted on as late. So questions have a thread of
//! their own, which answers in pieces. A piece may be older than events that were heard meanwhile:
//! [`super::state`] lets these stand.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use evenkeel_ports::sys::{self, Notifier};
use netlink_packet_route::AddressFamily;

use super::decode::{Fact, IfIndex};
use super::rules::KernelRule;
use super::socket::{Dumped, Questions};
use super::state::Tables;

/// Pieces that wait for the follower before the asker waits for it.
const PIECES: usize = 4;

/// What the kernel is to be asked.
#[derive(Debug)]
pub(super) enum Question {
    /// All that is mirrored.
    Everything,
    /// The rules.
    Rules,
    /// A neighbour, which the kernel is to ask for.
    Neighbour(IfIndex, IpAddr),
}

/// A piece of what the kernel said.
#[derive(Debug)]
pub(super) enum Piece {
    /// Links and addresses.
    Tables(Tables),
    /// All rules; `None`: the kernel refused to tell.
    Rules(Option<Vec<KernelRule>>),
    /// A part of a dump.
    Dumped(Dumped, Vec<Fact>),
    /// Everything has been read; or not, because the kernel refused something.
    End(io::Result<()>),
    /// The kernel does not ask for a neighbour.
    Refused(IpAddr, io::Error),
}

/// Reads everything, and hands it over in pieces. `between`: what to do after each; false ends it
/// early.
///
/// # Errors
/// The kernel refused something: it is out of memory, as a rule.
fn read_everything(
    questions: &mut Questions,
    mut hand_over: impl FnMut(&mut Questions, Piece) -> bool,
) -> io::Result<()> {
    let (tables, rules) = (questions.tables()?, questions.rules()?);
    if !(hand_over(questions, Piece::Tables(tables))
        && hand_over(questions, Piece::Rules(Some(rules))))
    {
        return Ok(());
    }
    let families = [AddressFamily::Inet, AddressFamily::Inet6].map(Dumped::Routes);
    for what in [Dumped::Neighbours].into_iter().chain(families) {
        questions.ask_for(what)?;
        let mut more = true;
        while more {
            let mut facts = Vec::new();
            more = questions.read_dump(&mut facts)?;
            if !hand_over(questions, Piece::Dumped(what, facts)) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The follower's end. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Asker {
    questions: Sender<Question>,
    pieces: Receiver<Piece>,
    undecodable: Arc<AtomicU64>,
}

impl Asker {
    /// Starts the thread; `wake` is notified of each piece.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn spawn(questions: Questions, wake: Notifier) -> io::Result<Self> {
        let (asks, asked) = channel();
        let (told, pieces) = sync_channel(PIECES);
        let undecodable = Arc::new(AtomicU64::new(questions.undecodable()));
        let counted = Arc::clone(&undecodable);
        let thread = Thread { asked, told, wake, undecodable: counted };
        std::thread::Builder::new().name("mirror-ask".into()).spawn(move || {
            // It may have inherited the CPU of a worker, and must not be kept waiting there.
            let _ = sys::drop_cpu_affinity();
            thread.run(questions);
        })?;
        Ok(Self { questions: asks, pieces, undecodable })
    }

    /// One without a thread: a test hears the questions, and answers as it likes.
    #[cfg(test)]
    pub(super) fn by_hand() -> (Self, Receiver<Question>, SyncSender<Piece>) {
        let (asks, asked) = channel();
        let (told, pieces) = sync_channel(PIECES);
        (Self { questions: asks, pieces, undecodable: Arc::default() }, asked, told)
    }

    /// # Errors
    /// The thread has ended, which it does of itself only by a defect.
    pub(super) fn ask(&self, question: Question) -> io::Result<()> {
        self.questions.send(question).map_err(ended)
    }

    /// The next piece, which is waited for.
    ///
    /// # Errors
    /// As [`Asker::ask`].
    pub(super) fn wait(&self) -> io::Result<Piece> {
        self.pieces.recv().map_err(ended)
    }

    /// The next piece, if there is one. Never waits.
    pub(super) fn piece(&self) -> Option<Piece> {
        self.pieces.try_recv().ok()
    }

    /// Messages that could not be decoded so far.
    pub(super) fn undecodable(&self) -> u64 {
        self.undecodable.load(Ordering::Relaxed)
    }
}

fn ended<E>(_: E) -> io::Error {
    io::Error::other("the thread that asks the kernel has ended")
}

struct Thread {
    asked: Receiver<Question>,
    told: SyncSender<Piece>,
    wake: Notifier,
    undecodable: Arc<AtomicU64>,
}

impl Thread {
    /// Until the follower has gone.
    fn run(self, mut questions: Questions) {
        while let Ok(question) = self.asked.recv() {
            let goes_on = match question {
                Question::Everything => self.everything(&mut questions),
                short => self.answer(&mut questions, short),
            };
            if !goes_on {
                return;
            }
        }
    }

    fn everything(&self, questions: &mut Questions) -> bool {
        let result = read_everything(questions, |questions, piece| {
            // What takes no time does not wait until all is read.
            let mut goes_on = self.tell(questions, piece);
            while goes_on && let Ok(question) = self.asked.try_recv() {
                goes_on = self.answer(questions, question);
            }
            goes_on
        });
        if result.is_err() {
            questions.reopen();
        }
        self.tell(questions, Piece::End(result))
    }

    fn answer(&self, questions: &mut Questions, question: Question) -> bool {
        let piece = match question {
            // It is asked for again when this one has ended.
            Question::Everything => return true,
            Question::Rules => Piece::Rules(questions.rules().ok()),
            Question::Neighbour(index, address) => match questions.use_neighbour(index, address) {
                Ok(()) => return true,
                Err(error) => Piece::Refused(address, error),
            },
        };
        self.tell(questions, piece)
    }

    fn tell(&self, questions: &Questions, piece: Piece) -> bool {
        self.undecodable.store(questions.undecodable(), Ordering::Relaxed);
        let sent = self.told.send(piece).is_ok();
        self.wake.notify();
        sent
    }
}
