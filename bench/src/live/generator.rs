//! The source of frames: as many as one CPU can make.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::{Frame, FramePool, Port, sys};

/// Frames given to the kernel with one call.
const BURST: usize = 64;

/// A thread that sends from `interface` in a namespace until it is dropped.
pub(crate) struct Generator {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    task: String,
}

impl Generator {
    /// Sends `frames` in turn, from CPU `cpu`; returns once it does.
    pub(crate) fn start(
        namespace: String,
        interface: &'static str,
        cpu: usize,
        frames: Vec<Vec<u8>>,
    ) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ready, started) = sync_channel(1);
        let shared = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            let (stop, sent) = shared;
            sys::enter_netns(&namespace).expect("the namespace is there");
            sys::pin_to_cpu(cpu).expect("there are two CPUs");
            let options =
                AfPacketOptions { qdisc_bypass: true, ring_frames: 64, ..AfPacketOptions::default() };
            let mut port = AfPacketPort::open(interface, options).expect("the interface is there");
            let mut pool = FramePool::new(BURST);
            // A buffer that comes back still holds its frame: nothing is copied again.
            let filled: Vec<Frame> = (0..BURST)
                .map(|i| pool.alloc_from(&frames[i % frames.len()]).expect("there are that many buffers"))
                .collect();
            let length = filled[0].len();
            filled.into_iter().for_each(|frame| pool.release(frame));
            let task = std::fs::read_link("/proc/thread-self").expect("/proc is mounted");
            ready.send(format!("/proc/{}", task.display())).expect("the starter waits");
            let mut burst = VecDeque::with_capacity(BURST);
            while !stop.load(Ordering::Relaxed) {
                while let Some(mut frame) = pool.alloc() {
                    pool.extend(&mut frame, length).expect("it fitted before");
                    burst.push_back(frame);
                }
                let taken = port.tx_burst(&mut pool, &mut burst);
                sent.fetch_add(taken as u64, Ordering::Relaxed);
            }
        });
        let task = started.recv().expect("the generator starts");
        Self { stop, sent, thread: Some(thread), task }
    }

    /// Frames that the interface has taken so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Its folder under `/proc`.
    pub(crate) fn task(&self) -> &str {
        &self.task
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}
