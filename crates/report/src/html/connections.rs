//! What TCP senders thought of their way: congestion window and round-trip time, curve by curve.

use super::chart::{Line, SERIES, Scale};
use super::figures::Figures;
use super::panels::{canvas, grid, legend};
use crate::run::{ConnectionRow, Run};

/// A quantity of a connection: title, unit, value.
type Quantity = (&'static str, &'static str, fn(&ConnectionRow) -> Option<f64>);

const QUANTITIES: [Quantity; 2] = [
    ("Congestion window", "kB", |row| Some(row.cwnd_bytes as f64 / 1e3)),
    ("Smoothed round-trip time", "ms", |row| Some(row.rtt_us? / 1e3)),
];

/// A figure for each run of which it was asked for; nothing else.
pub(super) fn section(runs: &[Run], figures: &mut Figures) -> String {
    let asked: Vec<&Run> = runs.iter().filter(|run| !run.connections.is_empty()).collect();
    if asked.is_empty() {
        return String::new();
    }
    let drawn: String = asked.iter().map(|run| of_run(run, figures)).collect();
    format!("<section>\n<h2>TCP connections</h2>\n{drawn}</section>\n")
}

fn of_run(run: &Run, figures: &mut Figures) -> String {
    let mut known: Vec<(&str, u64)> = Vec::new();
    for row in &run.connections {
        let of = (row.traffic.as_str(), row.flow);
        if !known.contains(&of) {
            known.push(of);
        }
    }
    let left = known.len().saturating_sub(SERIES);
    known.truncate(SERIES);
    let names: Vec<String> =
        known.iter().map(|(traffic, flow)| format!("{traffic} {flow}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let panels: String = QUANTITIES.iter().map(|of| panel(run, of, &known)).collect();
    let more = if left > 0 {
        format!(" The first {SERIES} are drawn; {left} more are in connections.csv.")
    } else {
        String::new()
    };
    let of = if run.name.is_empty() { String::new() } else { format!(" of {}", run.name) };
    let caption = format!("TCP connections{of} as their senders see them.{more}");
    let panels = format!("{}{panels}</div>", grid(2));
    figures.figure(&panels, &legend(&names), 2, &super::text::escape(&caption))
}

fn panel(run: &Run, (title, unit, value): &Quantity, known: &[(&str, u64)]) -> String {
    let line = |(index, of): (usize, &(&str, u64))| {
        let rows = run.connections.iter().filter(|row| (row.traffic.as_str(), row.flow) == *of);
        Line { index, points: rows.map(|row| (row.t_s, value(row))).collect() }
    };
    let lines: Vec<Line> = known.iter().enumerate().map(line).collect();
    let values = lines.iter().flat_map(|line| &line.points).filter_map(|point| point.1);
    let scale = Scale::linear(values.fold(0.0, f64::max));
    canvas(run, 2).lines(title, unit, &scale, &lines, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_drawn_as_can_be_told_apart() {
        let row = |flow: u64, t: u64| ConnectionRow {
            traffic: "up".to_owned(),
            flow,
            t_s: t as f64,
            cwnd_bytes: 14_600 * (flow + t),
            rtt_us: (t > 1).then_some(20_000.0),
            retransmitted: 0,
        };
        let rows = (1..4).flat_map(|t| (0..10).map(move |flow| row(flow, t)));
        let run = Run { connections: rows.collect(), duration_s: 3.0, ..Run::default() };
        let html = section(&[run, Run::default()], &mut Figures::named("x"));
        // In both panels and in the legend; the file to be saved is packed.
        assert_eq!(html.matches("class=\"line l7\"").count(), 3, "{html}");
        assert!(html.contains("The first 8 are drawn; 2 more are in connections.csv."));
        assert_eq!(section(&[Run::default()], &mut Figures::named("x")), "");
    }
}
