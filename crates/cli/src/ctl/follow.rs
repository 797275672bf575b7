//! What a rate that follows its line did, and why.

use std::fmt::Write as _;

use evenkeel_core::BitRate;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_router::snapshot::FollowSnapshot;

pub(super) fn view(seen: &FollowSnapshot, now_ns: u64) -> String {
    let mut text = String::new();
    let does = if seen.on { "follows" } else { "would follow (it is off)" };
    let waits = match seen.waits_ns {
        Some(waits) => format!("packets wait {:.1} ms on it", waits as f64 / 1e6),
        None => "no packet has come back from it yet: the rate stays".to_owned(),
    };
    let _ = writeln!(text, "its rate {does} the line: {waits}; {} steps", seen.steps);
    if seen.silent > 0 {
        let _ = writeln!(
            text,
            "  in {} intervals the link was busy and nothing came back: the rate stayed",
            seen.silent
        );
    }
    for step in &seen.latest {
        let ago = now_ns.saturating_sub(step.at_ns) as f64 / 1e9;
        let [from, to] = [step.from_bps, step.to_bps].map(|bps| rate_text(BitRate(bps)));
        let _ = writeln!(text, "  {ago:.1} s ago from {from} to {to}: {}", step.why);
    }
    text
}
