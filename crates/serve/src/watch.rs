//! A router watched by a thread: its counters each interval; found again after a restart.

use std::thread;
use std::time::{Duration, Instant};

use evenkeel_control::{Client, ClientError};

use crate::state::{State, Status};

/// Between two attempts to reach a router.
const RETRY: Duration = Duration::from_secs(1);

/// Watches the router at this place until the server stops.
pub(crate) fn watch(state: &State, at: usize) {
    while !state.is_stopping() {
        if let Err(error) = follow(state, at) {
            state.is(at, Status::Silent { error: error.to_string() });
        }
        thread::sleep(RETRY.min(state.interval));
    }
}

/// Reads its counters as long as it answers. Intervals are kept from the start, so that windows do
/// not drift; what a late answer has used up is not made good.
fn follow(state: &State, at: usize) -> Result<(), ClientError> {
    let mut client = Client::connect(&state.routers[at].watched.socket)?;
    let version = client.version()?;
    let mut due = Instant::now();
    while !state.is_stopping() {
        state.read(at, client.show()?, &version);
        if let Some(after) = state.journal_after(at) {
            match client.journal(after) {
                Ok(lines) => state.said(at, Some(lines)),
                // One that keeps none, or of an older version.
                Err(ClientError::Refused(_)) => state.said(at, None),
                Err(error) => return Err(error),
            }
        }
        due = (due + state.interval).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}
