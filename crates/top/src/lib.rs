//! What a router does, on a terminal: links, classes, flows and subscribers with their rates,
//! delays and losses.
//!
//! - [`plain`]: a window as one table of text, for pipes.
//! - [`top`]: the same, live, with keys to sort and to filter; [`replay`]: from a recording.
#![forbid(unsafe_code)]

mod app;
mod lists;
mod recording;
mod rows;
mod words;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_control::look::Again;
use evenkeel_control::rates::RouterRates;
use evenkeel_control::{Client, ClientError};
use evenkeel_router::Snapshot;
use evenkeel_router::window::between;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use thiserror::Error;

use app::App;
use lists::{Listing, View};
pub use recording::{Recording, RecordingError, replay};
pub use rows::plain;

/// How often keys are looked for.
const KEYS: Duration = Duration::from_millis(50);
/// Between two attempts to reach a router that is silent.
const RETRY: Duration = Duration::from_secs(1);

/// Why there is nothing to see.
#[derive(Debug, Error)]
pub enum TopError {
    /// The router does not answer, or is of another version.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The terminal does not do what it should.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Reads a router's counters and makes windows of them.
#[derive(Debug)]
pub struct Reader {
    client: Client,
    before: Snapshot,
    people: Again,
}

impl Reader {
    /// Asks for its version, then for its counters.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn open(socket: &Path) -> Result<Self, ClientError> {
        let mut client = Client::connect(socket)?;
        client.version()?;
        let before = client.show()?;
        Ok(Self { client, before, people: Again::default() })
    }

    /// The router's name.
    #[must_use]
    pub fn router(&self) -> &str {
        &self.before.router
    }

    /// What happened since it was read last.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn window(&mut self) -> Result<RouterRates, ClientError> {
        let now = self.client.show()?;
        let rates = RouterRates::of(&between(&self.before, &now), 0);
        self.before = now;
        Ok(rates)
    }

    fn listing(&mut self, view: View) -> Result<Option<Listing>, ClientError> {
        Listing::of(view, &mut self.client, &mut self.people)
    }
}

/// What the reading thread found.
enum News {
    Window(String, RouterRates, View, Option<Listing>),
    Silent(String),
}

/// Shows a router's windows until `q` is pressed.
///
/// # Errors
/// [`TopError`]: the first reading fails, or the terminal does. A router that goes later is waited
/// for.
pub fn top(socket: &Path, interval: Duration) -> Result<(), TopError> {
    let reader = Reader::open(socket)?;
    let (tell, news) = channel();
    let path = socket.to_owned();
    // Nobody is asked for what is not shown.
    let view = Arc::new(AtomicU8::new(View::default() as u8));
    let shown = Arc::clone(&view);
    // It ends when nobody listens any more.
    thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || read(reader, &path, interval, &shown, &tell))?;
    let mut terminal = ratatui::init();
    let ended = show(&mut terminal, &news, &view, App::new(socket));
    ratatui::restore();
    ended
}

fn read(reader: Reader, socket: &Path, interval: Duration, shown: &AtomicU8, tell: &Sender<News>) {
    let mut reader = Ok(reader);
    let mut due = Instant::now();
    loop {
        due = (due + interval).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let number = usize::from(shown.load(Ordering::Relaxed));
        let view = View::ALL.get(number).copied().unwrap_or_default();
        let window = match &mut reader {
            Ok(open) => open.window().and_then(|rates| {
                let listing = open.listing(view)?;
                Ok(News::Window(open.router().to_owned(), rates, view, listing))
            }),
            Err(_) => Reader::open(socket).map(|open| {
                let name = open.router().to_owned();
                reader = Ok(open);
                News::Window(name, RouterRates::default(), view, None)
            }),
        };
        let news = window.unwrap_or_else(|error| {
            let text = error.to_string();
            reader = Err(error);
            thread::sleep(RETRY.saturating_sub(interval));
            News::Silent(text)
        });
        if tell.send(news).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    news: &Receiver<News>,
    view: &AtomicU8,
    mut app: App,
) -> Result<(), TopError> {
    loop {
        terminal.draw(|frame| app.draw(frame))?;
        match news.recv_timeout(KEYS) {
            Ok(News::Window(router, rates, view, listing)) => {
                app.window(router, rates);
                app.listed(view, listing);
            }
            Ok(News::Silent(text)) => app.silent(text),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind != KeyEventKind::Release && app.pressed(key) {
                return Ok(());
            }
            view.store(app.view() as u8, Ordering::Relaxed);
        }
    }
}
