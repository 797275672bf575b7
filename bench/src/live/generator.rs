//! The source of frames: as many as one CPU can make.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::af_xdp::{AfXdpOptions, AfXdpPort};
use evenkeel_ports::{Frame, FramePool, Port, sys};

/// Frames given to the kernel with one call.
const BURST: usize = 64;
/// Slots of the rings of an AF_XDP port, and buffers for it: those that it keeps to receive into,
/// and what is being sent.
const RING: u32 = 256;
const BUFFERS: usize = 1_024;

/// The cheapest way to send: AF_XDP, and packet sockets where there is none. Every buffer of the
/// pool holds one of `frames`, in turn.
fn open(interface: &str, frames: &[Vec<u8>]) -> (Box<dyn Port>, FramePool) {
    let filled = |buffers| {
        let mut pool = FramePool::new(buffers);
        let filled: Vec<Frame> = (0..buffers)
            .map(|i| {
                pool.alloc_from(&frames[i % frames.len()]).expect("there are that many buffers")
            })
            .collect();
        filled.into_iter().for_each(|frame| pool.release(frame));
        pool
    };
    let mut pool = filled(BUFFERS);
    let options = AfXdpOptions { ring: RING, ..AfXdpOptions::default() };
    if let Ok(port) = AfXdpPort::open(interface, options, &mut pool, &[]) {
        return (Box::new(port), pool);
    }
    let options =
        AfPacketOptions { qdisc_bypass: true, ring_frames: 64, ..AfPacketOptions::default() };
    let port = AfPacketPort::open(interface, options).expect("the interface is there");
    (Box::new(port), filled(BURST))
}

/// How often a generator that rests looks whether it should go on.
const REST: Duration = Duration::from_micros(500);

/// A thread that sends from `interface` in a namespace when it is told to, until it is dropped.
pub(crate) struct Generator {
    stop: Arc<AtomicBool>,
    sending: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    task: String,
}

impl Generator {
    /// Will send `frames` in turn, from CPU `cpu`; returns once it could.
    pub(crate) fn start(
        namespace: String,
        interface: &'static str,
        cpu: usize,
        frames: Vec<Vec<u8>>,
    ) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let sending = Arc::new(AtomicBool::new(false));
        let (ready, started) = sync_channel(1);
        let shared = (Arc::clone(&stop), Arc::clone(&sending), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            let (stop, sending, sent) = shared;
            sys::enter_netns(&namespace).expect("the namespace is there");
            sys::pin_to_cpu(cpu).expect("there are two CPUs");
            // A buffer that comes back still holds its frame: nothing is copied again.
            let (mut port, mut pool) = open(interface, &frames);
            let length = frames[0].len();
            let task = std::fs::read_link("/proc/thread-self").expect("/proc is mounted");
            ready.send(format!("/proc/{}", task.display())).expect("the starter waits");
            let mut burst = VecDeque::with_capacity(BURST);
            while !stop.load(Ordering::Relaxed) {
                if !sending.load(Ordering::Relaxed) {
                    std::thread::sleep(REST);
                    continue;
                }
                while burst.len() < BURST
                    && let Some(mut frame) = pool.alloc()
                {
                    pool.extend(&mut frame, length).expect("it fitted before");
                    burst.push_back(frame);
                }
                let taken = port.tx_burst(&mut pool, &mut burst);
                sent.fetch_add(taken as u64, Ordering::Relaxed);
            }
        });
        let task = started.recv().expect("the generator starts");
        Self { stop, sending, sent, thread: Some(thread), task }
    }

    /// Whether it sends: with all it has, or not at all.
    pub(crate) fn send(&self, on: bool) {
        self.sending.store(on, Ordering::Relaxed);
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
