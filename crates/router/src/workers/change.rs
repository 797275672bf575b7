//! A change that all workers make: what it needs is counted, reserved and built here, in the thread
//! of whoever wants it, while they forward.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use evenkeel_ports::sys;

use super::{Members, WorkerHandle, told, wait};
use crate::command::{Command, Reply};
use crate::error::CommandError;
use crate::memory;
use crate::pipeline::{Blueprint, Parts};
use crate::worker::Message;

/// What is left for everything else that the process may allocate meanwhile: one part in so many.
const SPARE: u64 = 8;

impl WorkerHandle {
    fn ask_blueprint(&self) -> Result<Receiver<Blueprint>, CommandError> {
        let (reply, answer) = sync_channel(1);
        self.send(Message::Blueprint(reply))?;
        Ok(answer)
    }
}

impl Members {
    /// Has all workers carry out a change that the leader may refuse.
    pub(super) fn change(
        &self,
        command: &Command,
        timeout: Duration,
    ) -> Result<Reply, CommandError> {
        let mut parts = self.parts(command, timeout)?.into_iter();
        let mut part = || parts.next().unwrap_or_default();
        let (leader, followers) = self.handles.split_first().ok_or(CommandError::Stopped)?;
        let reply = wait(&leader.ask_with(command.clone(), part())?, timeout)?;
        let asked: Vec<_> =
            followers.iter().map(|worker| worker.ask_with(command.clone(), part())).collect();
        for answer in asked {
            wait(&answer?, timeout)?;
        }
        Ok(reply)
    }

    /// By worker, what is built for a change.
    fn parts(&self, command: &Command, timeout: Duration) -> Result<Vec<Parts>, CommandError> {
        let asked: Result<Vec<_>, _> =
            self.handles.iter().map(WorkerHandle::ask_blueprint).collect();
        let blueprints: Result<Vec<_>, _> =
            asked?.iter().map(|answer| told(answer, timeout)).collect();
        let blueprints = blueprints?;
        let bytes: u64 = blueprints.iter().map(|blueprint| blueprint.memory(command)).sum();
        if bytes > 0 {
            // What is below 32 MiB the allocator takes out of heaps, whose 64 MiB it reserves.
            let heaps = memory::THREAD * blueprints.len() as u64;
            memory::reserve_with(bytes + bytes / SPARE, heaps)?;
        }
        let now = sys::monotonic_now();
        Ok(blueprints.iter().map(|blueprint| blueprint.build(command, now)).collect())
    }
}
