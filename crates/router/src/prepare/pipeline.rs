//! The pipeline of a worker that begins, with what no other life of the router has had.

use std::sync::Arc;

use evenkeel_config::{Attach, Io, RouterConfig, Work};
use evenkeel_core::Nanos;
use evenkeel_ports::{FramePool, huge_pages, sys};

use super::{WorkerBuffers, epoch, ivs};
use crate::clock::TscClock;
use crate::error::StartError;
use crate::options::Options;
use crate::passing::not_taken;
use crate::pipeline::{Pipeline, Tunnels, WorkerShares};

/// The tunnels of this life of the router, with IVs that no other has.
pub(crate) fn tunnels_of(
    config: &RouterConfig,
    options: &Options,
) -> Result<Arc<Tunnels>, StartError> {
    let realtime = realtime(sys::monotonic_now());
    let file = options.state_dir().join("esp-ivs");
    let ivs = ivs::reserve(&file, realtime).or_else(|source| {
        if !config.services.iter().any(|service| matches!(service.work, Work::Esp(_))) {
            // Should a change bring a tunnel, its packets are refused as `esp_exhausted`.
            return Ok(0..0);
        }
        let what = format!(
            "{}: ESP needs IVs that were never used, and keeps there how far they were (see \
             --state-dir)",
            file.display()
        );
        Err(StartError::System { what, source })
    })?;
    Ok(Tunnels::with(ivs))
}

/// Nanoseconds since 1970.
fn realtime(now: Nanos) -> u64 {
    now.0.saturating_add_signed(sys::realtime_minus_monotonic())
}

/// Whether the kernel may be given the buffers of frames: another process that goes on with them
/// needs the same memory.
fn takes_xdp(config: &RouterConfig, options: &Options) -> bool {
    let mut routed = config.ports.iter().filter(|port| port.attach() == Attach::Route);
    routed.any(|port| options.io_here(config, port) != Io::AfPacket)
}

/// The pipeline of a worker, with its clock and its buffers, and empty tables.
pub(super) fn build_pipeline(
    config: &RouterConfig,
    now: Nanos,
    options: &Options,
    shares: Option<WorkerShares>,
    buffers: Option<&mut WorkerBuffers>,
    tunnels: Arc<Tunnels>,
) -> Result<Pipeline, StartError> {
    let mut pipeline = Pipeline::for_worker(config, now, options.disciplines.clone(), shares)?;
    let section = &config.router;
    let (count, size) = (section.buffers as usize, section.buffer_size.0 as usize);
    let is_own = match buffers {
        Some(WorkerBuffers::Kept(_)) => false,
        Some(WorkerBuffers::Passed(parcel)) => {
            let has = parcel.take().map_err(not_taken)? != 0;
            if has {
                let passed = FramePool::of_passed(count, size, parcel);
                *pipeline.pool_mut() = passed.map_err(not_taken)?;
            }
            !has
        }
        Some(WorkerBuffers::Own) | None => true,
    };
    if is_own {
        if takes_xdp(config, options) {
            *pipeline.pool_mut() = FramePool::shareable(count, size);
        }
        pipeline.pool_mut().prefault();
    }
    // FairDrop can be switched on, and services can be added, while the router runs.
    let clock = Box::new(TscClock::calibrate(options.report));
    pipeline.set_surroundings(clock, tunnels)?;
    if config.cluster.is_some() || config.balancer.is_some() {
        let who = config.cluster.as_ref().map_or("balancer".to_owned(), |own| own.node.to_string());
        let file = options.state_dir().join(format!("cluster-epoch-{who}"));
        let epoch = epoch::next(&file, realtime(now) / 1_000, |text| {
            options.report.iter().for_each(|report| report(text));
        });
        pipeline.begin_epoch(epoch);
    }
    pipeline.set_max_catch_up(Some(config.router.max_catch_up));
    huge_pages::gather();
    Ok(pipeline)
}
