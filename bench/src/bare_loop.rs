//! What the sockets alone carry: frames pass between two interfaces as they come, super-frames
//! whole, with nothing between. What a router adds is held against it.

use std::collections::VecDeque;
use std::process::ExitCode;

use evenkeel_core::Nanos;
use evenkeel_ports::af_packet::{AfPacketOptions, AfPacketPort};
use evenkeel_ports::sys::{Poller, in_netns, monotonic_now};
use evenkeel_ports::{FramePool, Port};

const BURST: usize = 256;
const BUFFERS: usize = 8_192;
/// When a device had no room.
const AGAIN: Nanos = Nanos::from_micros(50);

/// Until it is ended.
pub(crate) fn run(netns: &str, interfaces: [&str; 2]) -> ExitCode {
    match passed_on(netns, interfaces) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("loop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn passed_on(netns: &str, interfaces: [&str; 2]) -> Result<(), Box<dyn std::error::Error>> {
    let options = AfPacketOptions { promiscuous: true, whole: true, ..AfPacketOptions::default() };
    let open = |interface| AfPacketPort::open(interface, options);
    let [left, right] = in_netns(netns, || interfaces.map(open))?;
    let mut ports = [left?, right?];
    let mut pool = FramePool::new(BUFFERS);
    let poller = Poller::new()?;
    for (at, port) in ports.iter_mut().enumerate() {
        port.keep_whole(usize::MAX);
        poller.add(port.fd().ok_or("a port that cannot be waited for")?, at as u64)?;
    }
    let (mut burst, mut ready) = (Vec::with_capacity(BURST), Vec::new());
    let mut queues = [VecDeque::new(), VecDeque::new()];
    loop {
        let mut came = 0;
        for (from, to) in [(0, 1), (1, 0)] {
            came += ports[from].rx_burst(&mut pool, monotonic_now(), &mut burst, BURST);
            queues[to].extend(burst.drain(..).map(|received| received.frame));
            ports[to].tx_burst(&mut pool, &mut queues[to]);
        }
        if came == 0 {
            let waits = queues.iter().any(|queue| !queue.is_empty());
            poller.wait(&mut ready, waits.then_some(AGAIN))?;
        }
    }
}
