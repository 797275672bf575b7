//! New workers that take over from running ones, for another configuration.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, sync_channel};
use std::thread::JoinHandle;

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_ports::sys::{self, lock};

use super::{
    Members, Running, SpawnContext, StartingWorker, ThreadResult, WorkerHandle, WorkerPool,
    abort_all, by_worker, join, not_possible, roles, spawn_thread,
};
use crate::attachment::Guarded;
use crate::command::Reply;
use crate::error::{CommandError, StartError, WorkerError};
use crate::handover::{HandoverPlan, PortDrain, PortTransition};
use crate::memory::Footprint;
use crate::pipeline::{Buffers, WorkerShares};
use crate::prepare::{Handover, HandoverStep, WorkerBuffers, configure_thread};
use crate::worker::{DrainRequest, Message, Worker, WorkerExit};

impl WorkerPool {
    /// Replaces the workers by new ones for another configuration. On an error the present ones
    /// go on.
    pub(super) fn hand_over(
        &self,
        members: &mut Members,
        config: RouterConfig,
        plan: &HandoverPlan,
    ) -> Result<Reply, CommandError> {
        members.check_handover(&config, plan)?;
        let mut needed = Footprint::of(&config);
        if plan.buffers == Buffers::Kept {
            needed.buffers = 0;
        }
        needed.reserve()?;
        let shares = by_worker(WorkerShares::for_workers(&config)?);
        let config = members.config.followed_by(config);
        let (xdp_common, fanout_groups) =
            (plan.xdp_common(&members.xdp_common), plan.fanout_groups(&members.fanout_groups));
        let context = SpawnContext {
            config: &config,
            options: &members.options,
            guarded: Arc::new(Guarded::none(config.config.ports.len())),
            xdp_common: Arc::clone(&xdp_common),
            fanout_groups: Arc::clone(&fanout_groups),
            heart: Arc::clone(&members.heart),
            tunnels: Arc::clone(&members.tunnels),
        };
        let new = members.spawn_replacements(&context, shares, plan).map_err(not_possible)?;

        // From here on until the new workers run, no worker forwards.
        let mut running = lock(&self.running);
        let Running::Threads(threads) = &mut *running else {
            abort_all(new);
            return Err(CommandError::Stopped);
        };
        let cut = members.drain(&plan.drains);
        let drained = match join_drained(threads) {
            Ok(drained) => drained,
            Err(error) => {
                // There is nothing to take over, and the router ends as it would have.
                *running = Running::ended(error);
                members.handles.clear();
                abort_all(new);
                return Err(CommandError::Stopped);
            }
        };
        if plan.transitions.contains(&PortTransition::Reopened)
            && let Some(error) =
                new.iter().find_map(|worker| worker.step(HandoverStep::OpenPorts).err())
        {
            abort_all(new);
            match members.resume(drained) {
                Ok(resumed) => *threads = resumed,
                Err(refused) => {
                    members.handles.clear();
                    *running = Running::ended(refused.into());
                }
            }
            return Err(not_possible(error));
        }
        members.heart.vouch(new.len());
        let (handles, result) = start_replacements(new, drained, cut, plan.buffers, threads);
        self.count.store(handles.len(), Ordering::Relaxed);
        members.heart.retire(handles.len());
        members.handles = handles;
        members.config = config;
        (members.xdp_common, members.fanout_groups) = (xdp_common, fanout_groups);
        result.map(|()| Reply::Done).map_err(not_possible)
    }
}

/// The workers that were asked to drain, once they have; an error if one had ended before.
pub(super) fn join_drained(
    threads: &mut Vec<JoinHandle<ThreadResult>>,
) -> Result<Vec<Worker>, WorkerError> {
    let mut drained = Vec::with_capacity(threads.len());
    let mut broken = None;
    for thread in threads.drain(..) {
        match join(thread) {
            Ok(WorkerExit::Drained(worker)) => drained.push(*worker),
            Ok(WorkerExit::Stopped(_)) => broken = Some(WorkerError::Stopped),
            Err(error) => broken = Some(error),
        }
    }
    if let Some((first, others)) = drained.split_first_mut() {
        // What was under way to it, and what the others have kept back.
        let now = sys::monotonic_now();
        first.pipeline.take_handed(now);
        for other in others {
            other.pipeline.flush_handed();
            first.pipeline.take_handed(now);
        }
    }
    broken.map_or(Ok(drained), Err)
}

/// Has the new workers take over from the drained ones, which are dealt out to them in turn.
fn start_replacements(
    new: Vec<StartingWorker>,
    drained: Vec<Worker>,
    cut: Nanos,
    buffers: Buffers,
    threads: &mut Vec<JoinHandle<ThreadResult>>,
) -> (Vec<WorkerHandle>, Result<(), StartError>) {
    let mut dealt: Vec<Vec<Worker>> = new.iter().map(|_| Vec::new()).collect();
    let count = dealt.len();
    for (number, worker) in drained.into_iter().enumerate() {
        dealt[number % count].push(worker);
    }
    let mut handles = Vec::with_capacity(count);
    let mut result = Ok(());
    for (worker, from) in new.into_iter().zip(dealt) {
        match worker.step(HandoverStep::TakeOver(Handover {
            workers: from,
            cut,
            buffers,
            passed: None,
        })) {
            Ok(umem) => {
                let (handle, thread) = worker.into_handle(umem);
                handles.push(handle);
                threads.push(thread);
            }
            // Its thread has panicked: whoever looks is told that the router has ended.
            Err(error) => {
                threads.push(worker.thread);
                result = Err(error);
            }
        }
    }
    (handles, result)
}

impl Members {
    /// Refuses a handover that cannot work, before anything is opened for it.
    fn check_handover(
        &self,
        config: &RouterConfig,
        plan: &HandoverPlan,
    ) -> Result<(), CommandError> {
        self.options.disciplines.check(config)?;
        let captures = &self.options.captures;
        if let Some(name) = plan.captured(|port| captures.contains_key(port), config) {
            let why = "the port's frames are being written to a file";
            return Err(CommandError::NeedsRestart { what: format!("port {name}"), why });
        }
        Ok(())
    }

    /// Starts the new workers up to where they need what the present ones have. On an error none
    /// of them is left.
    fn spawn_replacements(
        &self,
        context: &SpawnContext<'_>,
        shares: Vec<Option<WorkerShares>>,
        plan: &HandoverPlan,
    ) -> Result<Vec<StartingWorker>, StartError> {
        let roles = roles(shares.len())?;
        let kept = plan.buffers == Buffers::Kept;
        let of = |number: usize| match kept {
            true => WorkerBuffers::Kept(self.handles[number].umem.clone()),
            false => WorkerBuffers::Own,
        };
        context.spawn_all(shares.into_iter().zip(roles), plan, of)
    }

    /// Has all workers drain their ports and end. Gives the instant up to which they read.
    pub(super) fn drain(&self, drains: &Arc<[PortDrain]>) -> Nanos {
        let ask = |worker: &WorkerHandle| {
            let (stopped, has_stopped) = sync_channel(1);
            let (cut_sender, cut) = channel();
            let request = DrainRequest { drains: Arc::clone(drains), stopped, cut };
            // A worker that has ended already is found out when it is joined.
            let _ = worker.messages.send(Message::Drain(request));
            worker.control.notify();
            (has_stopped, cut_sender)
        };
        let asked: Vec<_> = self.handles.iter().map(ask).collect();
        for (has_stopped, _) in &asked {
            let _ = has_stopped.recv();
        }
        let cut = sys::monotonic_now();
        for (_, cut_sender) in asked {
            let _ = cut_sender.send(cut);
        }
        cut
    }

    /// Drained workers go on after all.
    pub(super) fn resume(
        &self,
        drained: Vec<Worker>,
    ) -> Result<Vec<JoinHandle<ThreadResult>>, StartError> {
        let resumed = drained.into_iter().enumerate().map(|(number, mut worker)| {
            let (config, options) = (self.config.config.clone(), self.options.clone());
            spawn_thread(number, move || {
                configure_thread(&config, &options, number)?;
                worker.resume();
                Ok(worker.run()?)
            })
        });
        resumed.collect()
    }
}
