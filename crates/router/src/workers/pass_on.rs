//! The workers of a router go on in another process: see [`crate::passing`].

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use evenkeel_ports::parcel::Parcel;
use evenkeel_ports::sys::{self, lock};

use super::replace::join_drained;
use super::{Members, Running, StartingWorker, WorkerHandle, WorkerPool, abort_all};
use crate::error::{CommandError, StartError};
use crate::handover::PortDrain;
use crate::merge::merged;
use crate::passing::{BUILDING, Likeness, Predecessor, TAKING};
use crate::pipeline::Buffers;
use crate::prepare::{Handover, HandoverStep};
use crate::worker::Worker;

impl WorkerPool {
    /// Passes everything on to the process that listens at `place`. On an error the workers go on,
    /// as if nobody had asked.
    pub(crate) fn pass_on(&self, place: &Path) -> Result<(), CommandError> {
        let broken = |error: std::io::Error| CommandError::NotPassedOn(error.to_string());
        let stream = UnixStream::connect(place).map_err(broken)?;
        stream.set_write_timeout(Some(TAKING)).map_err(broken)?;
        stream.set_read_timeout(Some(BUILDING)).map_err(broken)?;
        let (is, memory) = {
            let members = lock(&self.members);
            members.can_pass_on()?;
            (Likeness::of(&members.config.config), members.memory()?)
        };
        is.put().send(&stream).map_err(broken)?;
        memory.iter().try_for_each(|parcel| parcel.send(&stream)).map_err(broken)?;
        drop(memory);
        // It builds its tables, and then says that it is ready.
        Parcel::receive(&stream).map_err(broken)?;
        stream.set_read_timeout(Some(TAKING)).map_err(broken)?;

        let mut members = lock(&self.members);
        if Likeness::of(&members.config.config) != is {
            return Err(CommandError::NotPassedOn("the router was changed meanwhile".to_owned()));
        }
        let mut running = lock(&self.running);
        let Running::Threads(threads) = &mut *running else {
            return Err(CommandError::Stopped);
        };
        members.drain(&vec![PortDrain::PassOn; is.ports()].into());
        let mut drained = match join_drained(threads) {
            Ok(drained) => drained,
            Err(error) => {
                *running = Running::ended(error);
                members.handles.clear();
                return Err(CommandError::Stopped);
            }
        };
        match send(&mut drained, &stream) {
            Ok(()) => {
                let now = sys::monotonic_now();
                let last = drained.iter_mut().map(|worker| worker.last(now)).collect();
                *running = Running::Ended(Box::new(Ok(merged(last))));
                members.handles.clear();
                // What they hold is the other process's. Dropping it would take it away there, and
                // this process is about to end.
                drained.into_iter().for_each(std::mem::forget);
                *lock(&self.successor) = Some(stream);
                Ok(())
            }
            Err(error) => {
                match members.resume(drained) {
                    Ok(resumed) => *threads = resumed,
                    Err(refused) => {
                        members.handles.clear();
                        *running = Running::ended(refused.into());
                    }
                }
                Err(CommandError::NotPassedOn(error))
            }
        }
    }

    /// Whether another process goes on with what this one had.
    pub(crate) fn has_passed_on(&self) -> bool {
        lock(&self.successor).is_some()
    }

    /// Waits until that process has said that this one may end, or has ended itself.
    pub(crate) fn await_successor(&self, at_most: Duration) {
        if let Some(stream) = lock(&self.successor).take() {
            let _ = stream.set_read_timeout(Some(at_most));
            let _ = Parcel::receive(&stream);
        }
    }

    /// The new workers take over from those of another process.
    pub(super) fn take_over(
        &self,
        new: Vec<StartingWorker>,
        predecessor: Predecessor,
    ) -> Result<(), StartError> {
        let passed = predecessor.go(new.len()).and_then(|parcels| {
            predecessor.taken()?;
            Ok(parcels)
        });
        let parcels = match passed {
            Ok(parcels) => parcels,
            Err(error) => {
                abort_all(new);
                return Err(error);
            }
        };
        let mut result = Ok(());
        self.heart.vouch(new.len());
        for (worker, passed) in new.into_iter().zip(parcels) {
            let handover = Handover {
                workers: Vec::new(),
                cut: sys::monotonic_now(),
                buffers: Buffers::Copied,
                passed: Some(passed),
            };
            match worker.step(HandoverStep::TakeOver(handover)) {
                Ok(umem) => self.add(worker, umem),
                Err(error) => {
                    worker.abort();
                    result = Err(error);
                }
            }
        }
        *lock(&self.predecessor) = Some(predecessor);
        result
    }

    /// The process that this one took over from may end.
    pub(crate) fn release_predecessor(&self) {
        drop(lock(&self.predecessor).take());
    }
}

impl Members {
    /// By worker, the memory of its buffers, for who needs the same.
    fn memory(&self) -> Result<Vec<Parcel>, CommandError> {
        let memory = |worker: &WorkerHandle| {
            let mut parcel = Parcel::default();
            parcel.put(worker.umem.is_shareable().into());
            worker.umem.pass_on(&mut parcel).map(|_has| parcel)
        };
        let all = self.handles.iter().map(memory).collect::<Result<_, _>>();
        all.map_err(|error| CommandError::NotPassedOn(error.to_string()))
    }

    /// Refuses what cannot go on elsewhere.
    fn can_pass_on(&self) -> Result<(), CommandError> {
        let refused = |why: &str| Err(CommandError::NotPassedOn(why.to_owned()));
        let config = &self.config.config;
        if self.handles.is_empty() {
            return Err(CommandError::Stopped);
        }
        if config.cluster.is_some() || config.balancer.is_some() {
            return refused("the members of its cluster know this process: restart it");
        }
        if !self.options.captures.is_empty() {
            return refused("frames of a port are being written to a file: restart it");
        }
        Ok(())
    }
}

/// Sends what the workers had, and waits until it was taken.
fn send(drained: &mut [Worker], stream: &UnixStream) -> Result<(), String> {
    for worker in drained {
        let parcel = worker.pass_on().map_err(|error| error.to_string())?;
        parcel.send(stream).map_err(|error| error.to_string())?;
    }
    Parcel::receive(stream).map(drop).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the new process has ended".to_owned(),
        _ => format!("the new process does not answer: {error}"),
    })
}
