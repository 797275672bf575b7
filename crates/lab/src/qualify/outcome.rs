//! What a qualification found, as a table, bars, JSON and a page.

use std::fmt::Write as _;

use evenkeel_config::{Io, RouterConfig};
use evenkeel_core::Nanos;
use evenkeel_ports::af_xdp::AfXdpOptions;
use evenkeel_report::html::{Curve, Plot, curves_page};
use evenkeel_report::table::Table;
use serde_json::{Value, json};

use super::noise::is_steady;
use super::search::{Found, NDR_LOSS, PDR_LOSS, Point};

/// What Ethernet adds to a frame on a wire: preamble, start of frame, gap; bytes.
const WIRE: f64 = 20.0;
/// Width of the longest bar, characters.
const BAR: f64 = 50.0;

/// Latency at one load.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Percent of the partial drop rate.
    pub load: u8,
    /// Frames per second.
    pub rate: f64,
    /// Median, from just before the tester sends to the kernel's receive stamp; `None` if nothing
    /// arrived.
    pub p50: Option<Nanos>,
    /// The 99th percentile.
    pub p99: Option<Nanos>,
    /// Frames measured.
    pub frames: u64,
}

/// What was found with frames of one length.
#[derive(Clone, Debug)]
pub struct FrameResult {
    /// Bytes, frame check sequence included.
    pub frame: u16,
    /// The non-drop rate, frames per second.
    pub ndr: Found,
    /// The partial drop rate.
    pub pdr: Found,
    /// Latency at parts of the partial drop rate.
    pub latencies: Vec<Latency>,
    /// Every trial of the searches; the first was as fast as the tester could.
    pub points: Vec<Point>,
    /// How long after the last frame of a trial was sent one could still arrive; later ones count
    /// as lost.
    pub allowance: Nanos,
    /// Nanoseconds per step of the calibration loop before, between and after.
    pub speeds: Vec<f64>,
    /// Trials in which the tester had to wait for its CPU, or had no room for frames.
    pub disturbed: u32,
    /// Whether the searches ended because time had run out.
    pub out_of_time: bool,
}

impl FrameResult {
    /// Bits per second on a wire, at a rate in frames per second.
    #[must_use]
    pub fn bits(&self, rate: f64) -> f64 {
        rate * (f64::from(self.frame) + WIRE) * 8.0
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Qualification {
    /// What was measured.
    pub device: String,
    /// What measured it.
    pub tester: String,
    /// The device's receive rings, where they are known.
    pub ring: Option<String>,
    /// How long a trial sent.
    pub trial: Nanos,
    /// How exactly rates were looked for.
    pub precision: f64,
    /// By length of frames.
    pub frames: Vec<FrameResult>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

/// The receive rings of a router.
pub(super) fn rings(config: &RouterConfig, packet: u32) -> String {
    let xdp = AfXdpOptions::default().ring;
    match config.router.io {
        Io::AfPacket => format!("{packet} frames (packet socket)"),
        Io::AfXdp => format!("{xdp} frames per queue (AF_XDP)"),
        Io::Auto => format!("{xdp} frames per queue (AF_XDP) or {packet} (packet socket)"),
    }
}

fn kpps(rate: f64) -> String {
    format!("{:.*}", if rate < 99_950.0 { 2 } else { 0 }, rate / 1e3)
}

fn micros(time: Option<Nanos>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.1}", time.0 as f64 / 1e3))
}

/// A rate, with a sign before it where the tester was the limit.
fn rate(found: &Found) -> String {
    if found.rate == 0.0 {
        return "none".to_owned();
    }
    let sign = if found.above.is_none() { "≥ " } else { "" };
    format!("{sign}{}", kpps(found.rate))
}

impl Qualification {
    /// What to know before a number is quoted.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for result in &self.frames {
            let frame = result.frame;
            if !is_steady(&result.speeds) {
                warnings.push(format!(
                    "{frame} bytes: the machine changed its speed meanwhile (calibration loop {} \
                     ns): measure again",
                    result
                        .speeds
                        .iter()
                        .map(|speed| format!("{speed:.2}"))
                        .collect::<Vec<_>>()
                        .join(", ")
                ));
            }
            if result.disturbed > 0 {
                warnings.push(format!(
                    "{frame} bytes: in {} trials something else ran on the tester's CPU, or it had \
                     no room for frames",
                    result.disturbed
                ));
            }
            if result.out_of_time {
                warnings.push(format!(
                    "{frame} bytes: time ran out before the rates were known as exactly as was \
                     asked"
                ));
            }
            if result.pdr.above.is_none() {
                warnings.push(format!(
                    "{frame} bytes: the tester was the limit (≥): at {} kpps, as fast as it sends, \
                     the device lost too little to tell",
                    kpps(result.pdr.rate)
                ));
            }
        }
        warnings
    }

    /// Everything as text: table, bars, notes.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\ntester: {}\n", self.device, self.tester);
        if let Some(ring) = &self.ring {
            let _ = writeln!(text, "receive ring of the device: {ring}");
        }
        let _ = writeln!(
            text,
            "NDR: loss ≤ {NDR_LOSS:e}, PDR: loss ≤ {:.1} %; trials of {:.2} s, rates to {:.1} %; \
             latency in us at parts of PDR\n",
            PDR_LOSS * 100.0,
            self.trial.as_secs_f64(),
            self.precision * 100.0
        );
        let mut table = Table::new([
            "frame, B",
            "NDR, kpps",
            "PDR, kpps",
            "NDR, Mbit/s",
            "p50 10 %",
            "p99 10 %",
            "p50 50 %",
            "p99 50 %",
            "p50 90 %",
            "p99 90 %",
        ]);
        for result in &self.frames {
            let mut row = vec![
                result.frame.to_string(),
                rate(&result.ndr),
                rate(&result.pdr),
                format!("{:.1}", result.bits(result.ndr.rate) / 1e6),
            ];
            row.extend(
                result
                    .latencies
                    .iter()
                    .flat_map(|latency| [micros(latency.p50), micros(latency.p99)]),
            );
            table.row(row);
        }
        text += &table.render();
        let most = self.frames.iter().map(|result| result.pdr.rate).fold(1.0, f64::max);
        text.push('\n');
        for result in &self.frames {
            for (name, found) in [("NDR", &result.ndr), ("PDR", &result.pdr)] {
                let bar = "#".repeat((found.rate / most * BAR).round() as usize);
                let _ = writeln!(text, "{:>5} B {name} {bar} {}", result.frame, rate(found));
            }
        }
        for line in &self.notes {
            let _ = writeln!(text, "{line}");
        }
        for line in self.warnings() {
            let _ = writeln!(text, "warning: {line}");
        }
        text
    }

    /// Everything as JSON: rates in frames per second, times in nanoseconds.
    #[must_use]
    pub fn json(&self) -> Value {
        let found = |found: &Found| json!({ "rate": found.rate, "not_reached": found.above });
        let frames: Vec<Value> = self
            .frames
            .iter()
            .map(|result| {
                let latency = |l: &Latency| {
                    let nanos = |time: Option<Nanos>| time.map(|time| time.0);
                    json!({ "load_percent": l.load, "rate": l.rate, "p50": nanos(l.p50),
                        "p99": nanos(l.p99), "frames": l.frames })
                };
                let trial = |point: &Point| json!({ "offered": point.offered, "loss": point.loss });
                json!({
                    "frame": result.frame,
                    "ndr": found(&result.ndr),
                    "pdr": found(&result.pdr),
                    "latency": result.latencies.iter().map(latency).collect::<Vec<_>>(),
                    "trials": result.points.iter().map(trial).collect::<Vec<_>>(),
                    "allowance": result.allowance.0,
                    "calibration": result.speeds,
                    "disturbed": result.disturbed,
                    "out_of_time": result.out_of_time,
                })
            })
            .collect();
        json!({
            "device": self.device,
            "tester": self.tester,
            "ring": self.ring,
            "ndr_loss": NDR_LOSS,
            "pdr_loss": PDR_LOSS,
            "trial_s": self.trial.as_secs_f64(),
            "precision": self.precision,
            "frames": frames,
            "notes": self.notes,
            "warnings": self.warnings(),
        })
    }

    /// Everything as a page with drawings that can be saved as SVG.
    #[must_use]
    pub fn html(&self) -> String {
        let name = |result: &FrameResult| format!("{} bytes", result.frame);
        let curve = |result: &FrameResult, mut points: Vec<(f64, f64)>| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve { name: name(result), points }
        };
        let delivered = self.frames.iter().map(|result| {
            let points =
                result.points.iter().map(|point| (point.offered / 1e3, point.delivered() / 1e3));
            curve(result, points.collect())
        });
        let latency = |of: fn(&Latency) -> Option<Nanos>| {
            let curves = self.frames.iter().map(|result| {
                let points = result.latencies.iter().filter_map(|latency| {
                    of(latency).map(|time| (f64::from(latency.load), time.0 as f64 / 1e3))
                });
                curve(result, points.collect())
            });
            curves.collect::<Vec<_>>()
        };
        let plots = [
            Plot {
                title: "Delivered",
                unit: "kpps",
                axis: "offered, kpps",
                curves: delivered.collect(),
            },
            Plot {
                title: "Latency, median",
                unit: "us",
                axis: "percent of PDR",
                curves: latency(|l| l.p50),
            },
            Plot {
                title: "Latency, 99th percentile",
                unit: "us",
                axis: "percent of PDR",
                curves: latency(|l| l.p99),
            },
        ];
        curves_page("Qualification", &self.text(), "qualification", &plots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qualification() -> Qualification {
        let found = |rate, above| Found { rate, above };
        Qualification {
            device: "evenkeel".into(),
            tester: "one thread".into(),
            ring: Some("4096 frames".into()),
            trial: Nanos::SECOND,
            precision: 0.01,
            frames: vec![FrameResult {
                frame: 512,
                ndr: found(2_350.0, Some(2_370.0)),
                pdr: found(2_362.0, None),
                latencies: vec![Latency {
                    load: 10,
                    rate: 236.0,
                    p50: Some(Nanos(5_040)),
                    p99: None,
                    frames: 236,
                }],
                points: vec![Point { offered: 500_000.0, loss: 0.99 }],
                allowance: Nanos(10_000_000),
                speeds: vec![1.0, 1.5],
                disturbed: 2,
                out_of_time: true,
            }],
            notes: vec![],
        }
    }

    #[test]
    fn the_text_says_rates_latency_and_what_was_wrong() {
        let text = qualification().text();
        assert!(
            text.contains("2.35") && text.contains("≥ 2.36") && text.contains("10.0"),
            "{text}"
        );
        assert!(text.contains("5.0") && text.contains("4096 frames"), "{text}");
        for warning in ["changed its speed", "in 2 trials", "time ran out", "tester was the limit"]
        {
            assert!(text.contains(warning), "{warning}: {text}");
        }
    }

    #[test]
    fn the_page_draws_and_the_json_keeps_units() {
        let qualification = qualification();
        let page = qualification.html();
        assert_eq!(page.matches("<svg x=").count(), 3, "three panels");
        assert!(page.contains("offered, kpps") && page.contains("512 bytes"));
        let json = qualification.json();
        assert_eq!(json["frames"][0]["ndr"]["rate"], 2_350.0);
        assert_eq!(json["frames"][0]["latency"][0]["p50"], 5_040);
        assert_eq!(json["frames"][0]["pdr"]["not_reached"], Value::Null);
    }
}
