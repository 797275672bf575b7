//! Tests of the whole measurement in virtual time, on a device whose rate, queue, delay and faults
//! are known.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use evenkeel_ports::{Frame, FramePool, Port, PortCounters, PortState, RxFrame};

use super::*;

/// What each look at the clock takes.
const LOOK: Nanos = Nanos(5_000);
const TRIAL: Nanos = Nanos::from_millis(200);

/// A device that takes `time` for each frame, keeps `queue` of them, adds `delay`, and lets every
/// `faulty`-th fall (0: none).
#[derive(Clone, Copy)]
struct Kind {
    time: Nanos,
    queue: usize,
    delay: Nanos,
    faulty: u64,
}

struct Device {
    kind: Kind,
    now: Nanos,
    /// When it is done with what it has.
    free: Nanos,
    taken: u64,
    /// Instants of departure and contents.
    held: VecDeque<(Nanos, Vec<u8>)>,
}

impl Device {
    fn take(&mut self, frame: &[u8]) {
        self.taken += 1;
        let waiting = self.free.saturating_sub(self.now).0.div_ceil(self.kind.time.0);
        let fault = self.kind.faulty > 0 && self.taken.is_multiple_of(self.kind.faulty);
        if fault || waiting > self.kind.queue as u64 {
            return;
        }
        self.free = self.free.max(self.now) + self.kind.time;
        self.held.push_back((self.free + self.kind.delay, frame.to_vec()));
    }
}

/// Either end of the tester: it sends into the device and receives what has left it.
struct End(Arc<Mutex<Device>>);

impl End {
    fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap()
    }
}

impl Port for End {
    fn name(&self) -> &str {
        "simulated"
    }
    fn rx_burst(
        &mut self,
        pool: &mut FramePool,
        now: Nanos,
        out: &mut Vec<RxFrame>,
        max: usize,
    ) -> usize {
        let mut device = self.device();
        let mut count = 0;
        while count < max && device.held.front().is_some_and(|(at, _)| *at <= now) {
            let (arrival, bytes) = device.held.pop_front().unwrap();
            out.push(RxFrame::new(pool.alloc_from(&bytes).unwrap(), arrival));
            count += 1;
        }
        count
    }
    fn tx_burst(&mut self, pool: &mut FramePool, frames: &mut VecDeque<Frame>) -> usize {
        let mut device = self.device();
        let count = frames.len();
        for frame in frames.drain(..) {
            device.take(pool.bytes(&frame));
            pool.release(frame);
        }
        count
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn state(&self) -> PortState {
        PortState::Up
    }
    fn mac(&self) -> [u8; 6] {
        [2; 6]
    }
    fn mtu(&self) -> u32 {
        1_500
    }
    fn counters(&mut self) -> PortCounters {
        PortCounters::default()
    }
}

fn measured(kind: Kind) -> FrameResult {
    let device =
        Device { kind, now: Nanos::SECOND, free: Nanos::ZERO, taken: 0, held: VecDeque::new() };
    let device = Arc::new(Mutex::new(device));
    let looked_at = Arc::clone(&device);
    let clock = move || {
        let mut device = looked_at.lock().unwrap();
        device.now += LOOK;
        device.now
    };
    let ends = [End(Arc::clone(&device)), End(device)].map(Box::new);
    let addresses = Addresses {
        device: [4; 6],
        source: [198, 18, 0, 2].into(),
        destination: [198, 19, 0, 2].into(),
    };
    let [tx, rx] = ends;
    let mut tester = Tester::between(tx, rx, FramePool::new(1_024), addresses, Box::new(clock));
    let options = Options {
        binary: PathBuf::new(),
        frames: vec![64],
        trial: TRIAL,
        precision: 0.01,
        budget: Duration::from_secs(3_600),
    };
    let mut session = Session {
        tester: &mut tester,
        options: &options,
        frame: 64,
        end: Instant::now() + options.budget,
        allowance: Nanos::ZERO,
        disturbed: 0,
    };
    session.run().unwrap()
}

const PACED: Kind = Kind { time: Nanos(50_000), queue: 1_000, delay: Nanos(20_000), faulty: 0 };

#[test]
fn the_rate_of_a_paced_device_is_found_and_its_queue_does_not_count() {
    let found = measured(PACED);
    // 20 000 frames a second; one percent of a trial and an unloaded delay later its queue (50 ms
    // at this rate) is not yet empty.
    let most = 20_000.0 * 1.011;
    assert!((20_000.0 / 1.011..=most).contains(&found.ndr.rate), "{:?}", found.ndr);
    assert!(
        (found.ndr.rate..=most * 1.005).contains(&found.pdr.rate),
        "{:?} {:?}",
        found.ndr,
        found.pdr
    );
    assert!(found.ndr.above.is_some_and(|above| above <= found.ndr.rate * 1.01), "{:?}", found.ndr);
    let medians: Vec<Option<Nanos>> = found.latencies.iter().map(|latency| latency.p50).collect();
    // Below its rate a frame waits for itself, not for others: service, delay and at most one look
    // at the clock, to the histogram's grain.
    for median in medians {
        let median = median.unwrap().0;
        assert!((69_000..=80_000).contains(&median), "{median} ns");
    }
    assert_eq!(found.latencies.len(), 3);
    assert!(!found.out_of_time);
}

#[test]
fn a_device_that_loses_one_frame_in_a_thousand_has_a_pdr_and_no_ndr() {
    let found = measured(Kind { faulty: 1_000, ..PACED });
    assert!((19_700.0..=20_300.0).contains(&found.pdr.rate), "{:?}", found.pdr);
    // At rates so low that a trial is shorter than a thousand frames it may lose none.
    assert!(found.ndr.rate < 1_000.0 * 1e9 / TRIAL.0 as f64, "{:?}", found.ndr);
}

#[test]
fn a_device_faster_than_the_tester_is_not_called_slow() {
    let found = measured(Kind { time: Nanos(1), ..PACED });
    assert_eq!((found.ndr.above, found.pdr.above), (None, None));
    // A burst of 32 each time it looks at the clock.
    let fastest = 32.0 * 1e9 / LOOK.0 as f64;
    assert!((fastest * 0.99..=fastest * 1.01).contains(&found.ndr.rate), "{:?}", found.ndr);
}
