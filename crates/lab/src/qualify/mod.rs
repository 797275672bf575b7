//! Qualification of a router or a box: throughput without loss (NDR), with little loss (PDR), and
//! latency below that.
//!
//! After RFC 2544, and the vocabulary of FD.io's CSIT: the **non-drop rate** is the highest at
//! which at most [`NDR_LOSS`] of the frames get lost, the **partial drop rate** that for
//! [`PDR_LOSS`]; latency is measured at 10, 50 and 90 % of the partial drop rate. One direction,
//! UDP over IPv4, 64 flows. A frame counts as lost if it does not arrive within what an unloaded
//! device takes and one percent of the trial's time after the last one was sent: what fills a queue
//! was not forwarded.
//!
//! What is measured stands either in namespaces of its own ([`Subject::Bed`]) or is a box with
//! cables ([`Subject::Box`]). The tester is one thread: it is told when it, and not the device, was
//! the limit.

mod bed;
mod noise;
mod options;
mod outcome;
mod search;
#[cfg(test)]
mod simulated;
mod tester;

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Instant;

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_core::measure::Histogram;
use evenkeel_ports::af_packet::AfPacketOptions;
use evenkeel_ports::{PortError, sys};

use crate::LabError;
use bed::Bed;
pub use noise::{CpuTime, calibrate, is_steady};
pub use options::Options;
pub use outcome::{FrameResult, Latency, Qualification};
pub use search::{Found, NDR_LOSS, PDR_LOSS, Point, known, search};
pub use tester::{Addresses, PortPlace, Tester, Trial, parse_mac};

/// Lengths of frames that can be measured, bytes, frame check sequence included.
pub const FRAMES: RangeInclusive<u16> = 64..=1518;
/// Parts of the partial drop rate at which latency is measured, percent.
const LOADS: [u8; 3] = [10, 50, 90];
/// CPU of the tester, and of the router.
const TESTER_CPU: usize = 0;
const ROUTER_CPU: u16 = 1;
/// A trial in which the tester waited for its CPU longer than this part of the time was disturbed.
const DISTURBED: f64 = 0.03;
/// Loss up to this is not believed at once: the trial is run again.
const DOUBTED: f64 = 0.02;
/// A trial that fails is repeated so often.
const REPEATS: u32 = 1;

/// What is measured.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A router with this configuration, between veth pairs. Packets enter at its first port and
    /// leave at its second.
    Bed(Box<RouterConfig>),
    /// A box whose ports are cabled to two interfaces of this machine.
    Box {
        /// The interface that sends.
        tx: String,
        /// The interface that receives.
        rx: String,
        /// Hardware address of the box's port that `tx` is cabled to.
        mac: [u8; 6],
        /// Addresses of the packets. The box must have a route, and a neighbour, for the
        /// destination.
        source: Ipv4Addr,
        /// See `source`.
        destination: Ipv4Addr,
    },
}

/// Measures.
///
/// # Errors
/// No root, no such interface, the router does not start, or nothing at all comes through.
pub fn run(subject: &Subject, options: &Options) -> Result<Qualification, LabError> {
    if !sys::is_root() {
        return Err(LabError::NotRoot);
    }
    if let Some(frame) = options.frames.iter().find(|frame| !FRAMES.contains(frame)) {
        let (low, high) = (FRAMES.start(), FRAMES.end());
        return Err(LabError::BadInput(format!(
            "--frame {frame}: frames of {low} to {high} bytes, check sequence included"
        )));
    }
    // On a thread of its own, which is pinned and ends.
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| measure(subject, options)).join();
        measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn port_error(error: PortError) -> LabError {
    match error {
        PortError::NoInterface(_) => LabError::BadInput(error.to_string()),
        other => LabError::System {
            what: "open the tester's ports".into(),
            source: std::io::Error::other(other),
        },
    }
}

fn measure(subject: &Subject, options: &Options) -> Result<Qualification, LabError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut place = Place::of(subject, options, cpus)?;
    // An interface of a machine in use keeps its packets: no XDP program is put there.
    let mut tester = Tester::open(&place.tx, &place.rx, place.addresses, place.bed.is_some())
        .map_err(port_error)?;
    let _ = sys::set_timer_slack(Nanos(1));
    sys::pin_to_cpu(TESTER_CPU)
        .map_err(|source| LabError::System { what: "pin the tester to a CPU".into(), source })?;

    let begin = Instant::now();
    let device = place.device()?;
    let mut frames = Vec::new();
    for (number, &frame) in options.frames.iter().enumerate() {
        let share = options.budget * (number as u32 + 1) / options.frames.len() as u32;
        let mut session = Session {
            tester: &mut tester,
            options,
            frame,
            end: begin + share,
            allowance: Nanos::ZERO,
            disturbed: 0,
        };
        frames.push(session.run()?);
    }
    let mut notes = Vec::new();
    if cpus < 2 {
        notes.push("tester and router share one CPU: rates are those of both together".to_owned());
    }
    if let Some((bed, _)) = &mut place.bed {
        let lost: u64 = bed.snapshot()?.ports.iter().map(|port| port.ring_loss).sum();
        notes.push(format!(
            "the router's receive rings had no room for {lost} frames, in all trials together"
        ));
    }
    let frames_in_ring = AfPacketOptions::default().ring_frames;
    Ok(Qualification {
        device,
        tester: tester.io(),
        ring: place.bed.map(|(_, config)| outcome::rings(&config, frames_in_ring)),
        trial: options.trial,
        precision: options.precision,
        frames,
        notes,
    })
}

/// The subject in its place, and where the tester's two ports are.
struct Place {
    tx: PortPlace,
    rx: PortPlace,
    addresses: Addresses,
    /// The namespaces and the router in them, with its configuration; `None` for a box.
    bed: Option<(Bed, RouterConfig)>,
}

impl Place {
    fn of(subject: &Subject, options: &Options, cpus: usize) -> Result<Self, LabError> {
        match subject {
            Subject::Bed(config) => {
                if config.ports.len() < 2 {
                    let why = "the router has one port: two are measured between";
                    return Err(LabError::BadInput(why.into()));
                }
                let mut config = (**config).clone();
                if cpus > 1 {
                    config.router.cpu = Some(ROUTER_CPU);
                }
                let bed = Bed::new(&config, options)?;
                let (tx, rx, addresses) = (bed.tx.clone(), bed.rx.clone(), bed.addresses);
                Ok(Self { tx, rx, addresses, bed: Some((bed, config)) })
            }
            Subject::Box { tx, rx, mac, source, destination } => {
                let [tx, rx] =
                    [tx, rx].map(|name| PortPlace { namespace: None, interface: name.clone() });
                let addresses =
                    Addresses { device: *mac, source: *source, destination: *destination };
                Ok(Self { tx, rx, addresses, bed: None })
            }
        }
    }

    /// What is measured, in words.
    fn device(&mut self) -> Result<String, LabError> {
        let Some((bed, _)) = &mut self.bed else {
            return Ok(format!("a box between {} and {}", self.tx.interface, self.rx.interface));
        };
        let ports = bed.snapshot()?.ports;
        let io: Vec<String> =
            ports.iter().take(2).map(|port| format!("{}: {}", port.name, port.io)).collect();
        Ok(format!("evenkeel, {}", io.join("; ")))
    }
}

/// The measurement with frames of one length.
struct Session<'a> {
    tester: &'a mut Tester,
    options: &'a Options,
    frame: u16,
    end: Instant,
    /// How long after the last frame was sent one may arrive.
    allowance: Nanos,
    disturbed: u32,
}

impl Session<'_> {
    fn run(&mut self) -> Result<FrameResult, LabError> {
        let mut speeds = vec![calibrate()];
        let base = self.latency_at(200.0)?;
        // What an unloaded device takes, and one percent of the trial.
        self.allowance = base + Nanos(self.options.trial.0 / 100);
        let fastest = self.trial(f64::INFINITY);
        let mut points = vec![point(&fastest)];
        let precision = self.options.precision;
        let mut found = [PDR_LOSS, NDR_LOSS].map(|_| Found { rate: 0.0, above: None });
        for (found, tolerated) in found.iter_mut().zip([PDR_LOSS, NDR_LOSS]) {
            *found =
                search(&mut points, tolerated, precision, |rate| self.believed(rate, tolerated));
            speeds.push(calibrate());
        }
        // The second search may have reached a rate that the first gave up.
        let [pdr, ndr] = [known(&points, PDR_LOSS), found[1]];
        let mut latencies = Vec::new();
        for load in LOADS {
            let rate = pdr.rate * f64::from(load) / 100.0;
            if rate > 0.0 {
                let trial = self.trial(rate);
                latencies.push(Latency::of(load, rate, &trial.latency));
            }
        }
        speeds.push(calibrate());
        let out_of_time = Instant::now() > self.end;
        Ok(FrameResult {
            frame: self.frame,
            ndr,
            pdr,
            latencies,
            points,
            allowance: self.allowance,
            speeds,
            disturbed: self.disturbed,
            out_of_time,
        })
    }

    fn trial(&mut self, rate: f64) -> Trial {
        let trial = self.tester.trial(self.frame, rate, self.options.trial, self.allowance);
        if trial.waited.as_secs_f64() > DISTURBED * trial.time.as_secs_f64()
            || trial.tester_lost > 0
        {
            self.disturbed += 1;
        }
        trial
    }

    /// A trial, run again if it fails by so little that the machine may be at fault. `None`: no
    /// time is left.
    fn believed(&mut self, rate: f64, tolerated: f64) -> Option<Point> {
        let mut best: Option<Point> = None;
        for _ in 0..=REPEATS {
            if Instant::now() > self.end {
                break;
            }
            let new = point(&self.trial(rate));
            best = Some(best.filter(|best| best.loss <= new.loss).unwrap_or(new));
            if new.loss <= tolerated || new.loss > DOUBTED {
                break;
            }
        }
        best
    }

    /// The median delay of some frames sent slowly.
    fn latency_at(&mut self, rate: f64) -> Result<Nanos, LabError> {
        let slow =
            self.tester.trial(self.frame, rate, Nanos::from_millis(100), Nanos::from_millis(500));
        slow.latency.quantile(0.5).ok_or_else(|| {
            LabError::Check(format!(
                "of {} frames of {} bytes sent slowly none arrived: is there a route, a neighbour, \
                 a cable?",
                slow.sent, self.frame
            ))
        })
    }
}

fn point(trial: &Trial) -> Point {
    let offered = trial.sent as f64 / trial.time.as_secs_f64().max(1e-9);
    let lost = trial.sent.saturating_sub(trial.received);
    Point { offered, loss: if trial.sent == 0 { 1.0 } else { lost as f64 / trial.sent as f64 } }
}

impl Latency {
    fn of(load: u8, rate: f64, latency: &Histogram) -> Self {
        Self {
            load,
            rate,
            p50: latency.quantile(0.5),
            p99: latency.quantile(0.99),
            frames: latency.count(),
        }
    }
}
