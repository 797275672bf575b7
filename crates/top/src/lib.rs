//! What a router does, on a terminal: links and classes with their rates, delays and losses.
//!
//! - [`plain`]: a window as one table of text, for pipes.
//! - [`top`]: the same, live, with keys to sort and to filter; [`replay`]: from a recording.
#![forbid(unsafe_code)]

mod app;
mod recording;
mod rows;
mod words;

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_control::rates::RouterRates;
use evenkeel_control::{Client, ClientError};
use evenkeel_router::Snapshot;
use evenkeel_router::window::between;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use thiserror::Error;

use app::App;
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
        Ok(Self { client, before })
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
}

/// What the reading thread found.
enum News {
    Window(String, RouterRates),
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
    // It ends when nobody listens any more.
    thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || read(reader, &path, interval, &tell))?;
    let mut terminal = ratatui::init();
    let ended = show(&mut terminal, &news, App::new(socket));
    ratatui::restore();
    ended
}

fn read(reader: Reader, socket: &Path, interval: Duration, tell: &Sender<News>) {
    let mut reader = Ok(reader);
    let mut due = Instant::now();
    loop {
        due = (due + interval).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let window = match &mut reader {
            Ok(open) => open.window().map(|rates| News::Window(open.router().to_owned(), rates)),
            Err(_) => Reader::open(socket).map(|open| {
                let name = open.router().to_owned();
                reader = Ok(open);
                News::Window(name, RouterRates::default())
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
    mut app: App,
) -> Result<(), TopError> {
    loop {
        terminal.draw(|frame| app.draw(frame))?;
        match news.recv_timeout(KEYS) {
            Ok(News::Window(router, rates)) => app.window(router, rates),
            Ok(News::Silent(text)) => app.silent(text),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind != KeyEventKind::Release && app.pressed(key) {
                return Ok(());
            }
        }
    }
}
