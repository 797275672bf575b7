//! What happened to a flow, in sentences.

use std::fmt::Write as _;

use evenkeel_core::Nanos;
use evenkeel_core::admit::Explanation;

/// Writes what the admission of `link` tells of a flow; `worker`: of several, whose admission it is. `here`: the flow's packets take this link now.
pub(super) fn write(
    text: &mut String,
    link: &str,
    worker: Option<usize>,
    here: bool,
    told: &Explanation,
    now: Nanos,
) {
    let ago = |at: Nanos| now.saturating_sub(at);
    let way = if here { "its packets take this link now" } else { "its packets do not take this link now" };
    // Writing to a String cannot fail.
    let worker = worker.map_or(String::new(), |worker| format!(", worker {worker}"));
    let _ = writeln!(text, "link {link}{worker}: {way}");
    if told.emergency {
        let _ = writeln!(text, "  an emergency flow");
    }
    match told.protected {
        Some(flow) => {
            let class = if flow.elastic { "elastic" } else { "streaming" };
            let probation = if flow.probation { ", on probation until it comes again" } else { "" };
            let _ = writeln!(
                text,
                "  protected since {} ago, {class}{probation}; last packet {} ago, {} in this or the last interval",
                ago(flow.admitted),
                ago(flow.seen),
                flow.recent
            );
            if let Some(pin) = flow.pin {
                let _ = writeln!(
                    text,
                    "  pinned to this path: next hop {} of its route, TTL {} on arrival",
                    pin.next_hop, pin.ttl
                );
            }
        }
        None => {
            let _ =
                writeln!(text, "  not protected: its next packet is decided upon like that of a new flow");
        }
    }
    if told.diverted {
        let _ = writeln!(text, "  goes by the second link");
    }
    if let Some(until) = told.blocked_until {
        let _ = writeln!(text, "  blocked for {} more", until.saturating_sub(now));
    }
    if let Some(since) = told.waiting_since {
        let _ = writeln!(text, "  waits to be let in since {} ago", ago(since));
    }
    match told.first_seen {
        Some(first) => {
            let _ = writeln!(
                text,
                "  first seen {} ago, {} of its packets refused since",
                ago(first),
                told.refused
            );
        }
        None if told.decisions.is_empty() => {
            let _ = writeln!(text, "  nothing is remembered of it");
        }
        None => {}
    }
    for decision in &told.decisions {
        let _ = writeln!(text, "  {} ago: {decision}", ago(decision.last));
    }
}
