//! A command of the operator's that is run for each alarm.
//!
//! One at a time, each for a bounded time, in a thread that was started before the process gave up
//! what it does not need: the command may do what its user may.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::alarms::Alarm;

/// Alarms that wait for the command; more are counted as failed.
const WAITING: usize = 64;
/// How long the command may take.
const WITHIN: Duration = Duration::from_secs(30);
/// How often it is looked after.
const LOOK: Duration = Duration::from_millis(50);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Hook {
    alarms: SyncSender<(String, Alarm)>,
    failed: Arc<AtomicU64>,
}

impl Hook {
    /// Starts the thread that runs `command` in a shell, with these in its environment:
    /// `EVENKEEL_ROUTER`, `EVENKEEL_ALARM`, `EVENKEEL_ABOUT` (a port or link, or nothing),
    /// `EVENKEEL_STATE` (`raised` or `cleared`) and `EVENKEEL_TEXT`.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(command: &str) -> io::Result<Self> {
        let (alarms, waiting) = sync_channel(WAITING);
        let failed = Arc::<AtomicU64>::default();
        let (command, counted) = (command.to_owned(), Arc::clone(&failed));
        thread::Builder::new()
            .name("hook".to_owned())
            .spawn(move || run_all(&command, &waiting, &counted))?;
        Ok(Self { alarms, failed })
    }

    /// Has the command run for an alarm.
    pub(crate) fn run(&self, router: &str, alarm: &Alarm) {
        if self.alarms.try_send((router.to_owned(), alarm.clone())).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often it failed, took too long, or was not run because too many waited.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

fn run_all(command: &str, waiting: &Receiver<(String, Alarm)>, failed: &AtomicU64) {
    for (router, alarm) in waiting {
        if let Err(why) = run_one(command, &router, &alarm) {
            failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("the hook for alarm {} of {router}: {why}", alarm.alarm);
        }
    }
}

/// # Errors
/// Why it did not do what it should, in words.
fn run_one(command: &str, router: &str, alarm: &Alarm) -> Result<(), String> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .env("EVENKEEL_ROUTER", router)
        .env("EVENKEEL_ALARM", alarm.alarm)
        .env("EVENKEEL_ABOUT", &alarm.about)
        .env("EVENKEEL_STATE", if alarm.raised { "raised" } else { "cleared" })
        .env("EVENKEEL_TEXT", &alarm.text)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let end = Instant::now() + WITHIN;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if Instant::now() < end => thread::sleep(LOOK),
            Ok(None) => {
                end_all(&mut child);
                return Err(format!("it took longer than {} s and was killed", WITHIN.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Ends a command with everything that it has started.
fn end_all(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}
