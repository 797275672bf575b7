//! A recording of `evenkeel serve --history`, window by window.

use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_control::rates::RouterRates;
use evenkeel_history::{History, HistoryError, Step, rfc3339};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind};
use thiserror::Error;

use crate::TopError;
use crate::app::App;

/// How long a window stays while they are played.
const PLAYED: Duration = Duration::from_millis(100);
/// How long it may stay otherwise: nothing changes but by keys.
const IDLE: Duration = Duration::from_secs(1);

/// The windows of a recording: minutes, and from where seconds are known, these.
#[derive(Debug)]
pub struct Recording {
    file: String,
    windows: Vec<RouterRates>,
}

/// Why there is nothing to replay.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file is none, or cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// There are no windows in it.
    #[error("{0}: no window in it yet")]
    Empty(String),
}

impl Recording {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or has no windows.
    pub fn open(file: &Path) -> Result<Self, RecordingError> {
        let history = History::read_only(file)?;
        let failed = |source| HistoryError::Io { path: file.to_owned(), source };
        let seconds = history.windows(Step::Seconds, 0, u64::MAX).map_err(failed)?;
        let first = seconds.first().map_or(u64::MAX, |window| window.time_ms);
        let mut windows = history.windows(Step::Minutes, 0, first).map_err(failed)?;
        windows.extend(seconds);
        let file = file.display().to_string();
        if windows.is_empty() {
            Err(RecordingError::Empty(file))
        } else {
            Ok(Self { file, windows })
        }
    }

    /// The newest window.
    #[must_use]
    pub fn last(&self) -> &RouterRates {
        self.windows.last().expect("an empty recording does not open")
    }
}

/// Shows a recording, from its end on, until `q` is pressed.
///
/// # Errors
/// The terminal fails.
pub fn replay(recording: Recording) -> Result<(), TopError> {
    let mut terminal = ratatui::init();
    let ended = show(&mut terminal, recording);
    ratatui::restore();
    ended
}

/// Where in a recording we are.
struct Position {
    at: usize,
    windows: usize,
    playing: bool,
}

impl Position {
    /// Moves as a key says; whether it was one of those.
    fn pressed(&mut self, key: KeyEvent) -> bool {
        let step: isize = match key.code {
            KeyCode::Left => -1,
            KeyCode::Right => 1,
            KeyCode::Char('[') => -60,
            KeyCode::Char(']') => 60,
            KeyCode::Char(' ') => {
                self.playing = !self.playing;
                return true;
            }
            _ => return false,
        };
        self.playing = false;
        self.at = self.at.saturating_add_signed(step).min(self.windows - 1);
        true
    }

    fn played(&mut self) {
        self.at = (self.at + usize::from(self.playing)).min(self.windows - 1);
        self.playing &= self.at + 1 < self.windows;
    }
}

fn show(terminal: &mut DefaultTerminal, recording: Recording) -> Result<(), TopError> {
    let Recording { file, windows } = recording;
    let mut app = App::new(Path::new(&file));
    let mut position = Position { at: windows.len() - 1, windows: windows.len(), playing: false };
    loop {
        let window = &windows[position.at];
        let (time, number) = (rfc3339(window.time_ms), position.at + 1);
        app.recorded(window.clone(), format!("{time} ({number} of {})", windows.len()));
        terminal.draw(|frame| app.draw(frame))?;
        let until = Instant::now() + if position.playing { PLAYED } else { IDLE };
        if !event::poll(until.saturating_duration_since(Instant::now()))? {
            position.played();
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        let ours = !app.is_typing() && key.kind != KeyEventKind::Release && position.pressed(key);
        if !ours && key.kind != KeyEventKind::Release && app.pressed(key) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_through_the_windows_and_stop_at_the_ends() {
        let mut position = Position { at: 99, windows: 100, playing: false };
        let mut press = |code| {
            assert!(position.pressed(KeyEvent::from(code)));
            position.at
        };
        assert_eq!(press(KeyCode::Right), 99);
        assert_eq!([press(KeyCode::Left), press(KeyCode::Char('['))], [98, 38]);
        assert_eq!(press(KeyCode::Char('[')), 0);
        assert_eq!(press(KeyCode::Char(' ')), 0);
        for _ in 0..200 {
            position.played();
        }
        assert_eq!((position.at, position.playing), (99, false));
        assert!(!position.pressed(KeyEvent::from(KeyCode::Char('s'))));
    }
}
