//! Two of the router's AF_XDP ports and nothing between them: what its input and output take, as
//! testpmd's `io` mode is for DPDK's drivers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use evenkeel_ports::af_xdp::{AfXdpOptions, AfXdpPort};
use evenkeel_ports::{FramePool, Port, sys};

use super::bed::{Bed, ROUTER_CPU};

/// Frames received at once.
const BURST: usize = 64;
/// As many buffers as the router has.
const BUFFERS: usize = 8_192;

/// A thread that forwards from `in` to `out` until it is dropped.
pub(crate) struct Bare {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    task: String,
}

impl Bare {
    /// Returns once it forwards.
    pub(crate) fn start(bed: &Bed) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = sync_channel(1);
        let (stopped, namespace) = (Arc::clone(&stop), bed.router());
        let thread = std::thread::spawn(move || {
            let opened = sys::enter_netns(&namespace).and_then(|()| sys::pin_to_cpu(ROUTER_CPU));
            let mut pool = FramePool::new(BUFFERS);
            let ports = opened.map_err(|error| error.to_string()).and_then(|()| {
                // As a router in mode `busy` has them.
                let mut open = |name| {
                    let stamp_every = AfXdpOptions::STAMP_WHEN_POLLED;
                    let options = AfXdpOptions { stamp_every, ..AfXdpOptions::default() };
                    AfXdpPort::open(name, options, &mut pool, &[])
                        .map_err(|error| error.to_string())
                };
                Ok((open("in")?, open("out")?))
            });
            let (mut from, mut to) = match ports {
                Ok(ports) => ports,
                Err(why) => return ready.send(Err(why)).expect("the starter waits"),
            };
            let task = std::fs::read_link("/proc/thread-self").expect("/proc is mounted");
            ready.send(Ok(format!("/proc/{}", task.display()))).expect("the starter waits");
            let (mut received, mut frames) =
                (Vec::with_capacity(BURST), VecDeque::with_capacity(4 * BURST));
            while !stopped.load(Ordering::Relaxed) {
                let now = sys::monotonic_now();
                if frames.len() <= BURST {
                    from.rx_burst(&mut pool, now, &mut received, BURST);
                    frames.extend(received.drain(..).map(|received| received.frame));
                }
                if !frames.is_empty() {
                    to.tx_burst(&mut pool, &mut frames);
                }
                to.rx_burst(&mut pool, now, &mut received, BURST);
                received.drain(..).for_each(|received| pool.release(received.frame));
            }
        });
        let task = started.recv().map_err(|error| error.to_string())??;
        Ok(Self { stop, thread: Some(thread), task })
    }

    /// Its folder under `/proc`.
    pub(crate) fn task(&self) -> &str {
        &self.task
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}
