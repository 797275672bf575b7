//! What the admission of a link saw and did: fair rate, priority load, and how long flows waited to
//! be let in.

use evenkeel_scenario::Metric;

use super::chart::{Hover, Line, Scale};
use super::panels::{Quantity, canvas, grid};
use crate::numbers::{grouped, micros};
use crate::run::{AdmissionSample, Run};

/// How flows of each class fared, as their sources saw it.
pub(super) const ACCEPTANCE: [Quantity; 2] = [
    Quantity {
        title: "Acceptance delay of flows let in",
        unit: "ms",
        shows: Some((Metric::Accept, 1e-3)),
        value: |s| {
            let delays = s.acceptance.as_ref().filter(|delays| delays.count > 0)?;
            Some(delays.sum_ns as f64 / delays.count as f64 / 1e6)
        },
        text: |ms| format!("{} ms", micros(ms * 1e3)),
        log_from: None,
    },
    Quantity {
        title: "Flows that wait",
        unit: "flows",
        shows: Some((Metric::Waiting, 1.0)),
        value: |s| s.waiting.map(|flows| flows as f64),
        text: grouped,
        log_from: None,
    },
];

/// A number of a link as a whole.
pub(super) struct Meter {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) value: fn(&AdmissionSample) -> f64,
    pub(super) text: fn(f64) -> String,
}

/// What decisions are held against.
pub(super) const METERS: [Meter; 2] = [
    Meter {
        title: "Fair rate",
        unit: "Mbit/s",
        value: |seen| seen.fair_rate_bps / 1e6,
        text: |rate| format!("{rate:.3} Mbit/s"),
    },
    Meter {
        title: "Priority load",
        unit: "% of the link",
        value: |seen| seen.priority_load * 100.0,
        text: |load| format!("{load:.1} %"),
    },
];

/// Whether a link has an admission in a run.
pub(super) fn has_admission(run: &Run, (router, link): (&str, &str)) -> bool {
    run.calls.iter().any(|row| row.router == router && row.link == link && row.admission.is_some())
}

/// Whether the waiting times of a link's flows were measured.
pub(super) fn is_waited_for(run: &Run, (router, link): (&str, &str)) -> bool {
    run.samples.iter().any(|s| s.router == router && s.link == link && s.acceptance.is_some())
}

/// The windows of a link: end, length, what a meter shows.
pub(super) fn metered(
    run: &Run,
    (router, link): (&str, &str),
    meter: &Meter,
) -> Vec<(f64, f64, Option<f64>)> {
    let here = run.calls.iter().filter(|row| row.router == router && row.link == link);
    here.map(|row| (row.t_s, row.window_s, row.admission.as_ref().map(meter.value))).collect()
}

/// The panels of the meters of one link, a column per run; two columns for one run.
pub(super) fn meters(runs: &[Run], on: (&str, &str)) -> String {
    let runs: Vec<&Run> = runs.iter().filter(|run| has_admission(run, on)).collect();
    let columns = if runs.len() == 1 { 2 } else { runs.len() };
    let mut html = grid(columns);
    for meter in &METERS {
        let rows: Vec<_> = runs.iter().map(|run| metered(run, on, meter)).collect();
        let highest = rows.iter().flatten().filter_map(|row| row.2).fold(0.0, f64::max);
        for (run, rows) in runs.iter().zip(rows) {
            let hovers: Vec<Hover> = rows
                .iter()
                .filter_map(|(t_s, window_s, value)| {
                    let (from_s, to_s, value) = (t_s - window_s, *t_s, (*value)?);
                    let text = format!("{from_s:.1}–{to_s:.1} s: {}", (meter.text)(value));
                    Some(Hover { from_s, to_s, text })
                })
                .collect();
            let points = rows
                .into_iter()
                .map(|(t_s, window_s, value)| (t_s - window_s / 2.0, value))
                .collect();
            let line = Line { index: 0, points };
            html += &canvas(run, columns).lines(
                meter.title,
                meter.unit,
                &Scale::linear(highest),
                &[line],
                &hovers,
            );
        }
    }
    html + "</div>"
}
