//! `summary.json`: per-step statistics and judged expectations for programs.
//!
//! Times in seconds, delays in microseconds (keys end in `_us`), counts per second (`_per_s`),
//! `null` where nothing was measured. Of flows, `low` and `high` are the ends of 95 % intervals by
//! bootstrap ([`crate::bootstrap`]).

use serde_json::{Value, json};

use crate::flow_stats::{FlowStats, flow_stats};
use crate::html::Report;
use crate::run::Run;
use crate::stats::{ClassStats, DelayStats, LinkStats};
use crate::subscribers;

/// The whole summary as a JSON value.
#[must_use]
pub fn summary(report: &Report) -> Value {
    json!({
        "scenario": report.name,
        "title": report.title,
        "source": report.source,
        "seed": report.seed,
        "time_scale": report.time_scale,
        "passed": !report.failed(),
        "runs": report.runs.iter().map(run).collect::<Vec<_>>(),
        "expectations": report.judgements.iter().map(|j| json!({
            "run": j.run,
            "name": j.name,
            "claim": j.claim,
            "that": j.expression,
            "verdict": j.verdict.name(),
            "bad": j.verdict.is_bad(),
            "note": j.note,
            "measured": j.measured.iter()
                .map(|t| json!({ "term": t.text, "value": t.value, "unit": t.unit }))
                    .collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn run(run: &Run) -> Value {
    json!({
        "name": run.name,
        "world": run.world,
        "sample_s": run.sample_s,
        "settle_s": run.settle_s,
        "duration_s": run.duration_s,
        "notes": run.notes,
        "warnings": run.warnings,
        "wires": run.wires,
        "audits": run.audits,
        "flows": flow_stats(run).iter().map(FlowStats::json).collect::<Vec<_>>(),
        "subscribers": subscribers::summary(run),
        "parameters": run.parameters.iter()
            .map(|p| json!({ "group": p.group, "name": p.name, "value": p.value }))
                .collect::<Vec<_>>(),
        "steps": run.steps.iter().zip(run.step_stats()).map(|(mark, stats)| json!({
            "name": mark.name,
            "at_s": mark.at_s,
            "changes": mark.changes,
            "from_s": stats.from_s,
            "to_s": stats.to_s,
            "classes": stats.classes.iter().map(class).collect::<Vec<_>>(),
            "links": stats.links.iter().map(link).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn class(class: &ClassStats) -> Value {
    json!({
        "router": class.router,
        "link": class.link,
        "class": class.class,
        "seconds": class.seconds,
        "offered_per_s": class.offered,
        "sent_per_s": class.sent,
        "sent_bit_per_s": class.sent_bits,
        "dropped_per_s": class.dropped,
        "dropped_by": class.dropped_by.iter().cloned().collect::<std::collections::BTreeMap<_,
            _>>(),
        "qlen": class.qlen,
        "goodput_bit_per_s": class.goodput,
        "transit_delay": class.transit.map(delay),
        "end_to_end_delay": class.end_to_end.map(delay),
    })
}

fn delay(d: DelayStats) -> Value {
    json!({ "mean_us": d.mean_us, "p50_us": d.p50_us, "p99_us": d.p99_us, "max_us": d.max_us,
        "packets": d.count })
}

fn link(link: &LinkStats) -> Value {
    json!({
        "router": link.router,
        "link": link.link,
        "calls_per_s": link.calls,
        "calls_none": link.none,
        "calls_one": link.one,
        "calls_many": link.many,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_program_finds_every_number_of_a_step() {
        let report =
            Report { runs: vec![fixture::two_steps()], time_scale: 1.0, ..Report::default() };
        let value = summary(&report);
        let step = &value["runs"][0]["steps"][1];
        assert_eq!(step["name"], "x10");
        assert_eq!(step["classes"][1]["class"], "class3");
        assert_eq!(step["classes"][1]["sent_per_s"], 500.0);
        assert_eq!(step["classes"][1]["dropped_by"]["queue_full"], 700.0);
        assert_eq!(step["classes"][1]["transit_delay"]["mean_us"], 400.0);
        assert_eq!(step["classes"][1]["end_to_end_delay"], Value::Null);
        assert_eq!(step["links"][0]["calls_many"], 0.7);
        assert_eq!(value["passed"], true);
        assert_eq!(value["runs"][0]["audits"][0]["by_cause"], json!([["ring", 3]]));
    }
}
