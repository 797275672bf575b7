//! Whether the numbers will mean, and did mean, what they say.
//!
//! Before: some packets of each flow are sent, and the router's own counters must show them; so it
//! was the router, and not the kernel beside it, that forwarded. None may arrive twice. After:
//! nothing disappeared, at each port, on each link, and from host to host.

use std::time::{Duration, Instant};

use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_ports::sys;
use evenkeel_traffic::{Process, SourceConfig};
use evenkeel_world::SOURCE_PORTS;
use evenkeel_world::sampling::ClassAtLink;

use crate::LabError;
use crate::flow::{FlowSpec, Sender, Sink};
use crate::node::RouterNode;
use crate::schedule::Schedule;
pub(crate) use evenkeel_world::checks::{conservation, lost};

/// Packets of the check.
const PROBES: u64 = 10;
/// How often they are sent again where the machine was too busy to send any in time.
const TRIES: u64 = 10;
/// Length of each: enough for a stamp behind IPv6 headers.
const PROBE_LEN: Bytes = Bytes(128);
/// How long the last of them may take. A class may be held for long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends some packets of a flow and compares what the routers on its path counted with what
/// arrived. Returns the packets that the routers forwarded. Of a flow that is encrypted on its way
/// nothing `arrives` that a sink could read. The packets are UDP's, so those for a connection may
/// be of another class than it, if rules look at that: unless `same_class`, all of the link count.
///
/// # Errors
/// [`LabError::Check`] if a router did not forward them, none arrived, or more arrived than were
/// sent.
pub(crate) fn router_forwards(
    spec: &FlowSpec,
    along: &[ClassAtLink],
    arrives: bool,
    same_class: bool,
    routers: &mut [RouterNode],
) -> Result<u64, LabError> {
    let before = counted(along, same_class, routers)?;
    let spec = &probe_of(spec);
    let sink = Sink::start(spec, None)?;
    let (mut sent, mut arrived) = (0, 0);
    for _ in 0..TRIES {
        (sent, arrived) = send_probes(spec, &sink, arrives)?;
        if sent > 0 {
            break;
        }
    }
    let after = counted(along, same_class, routers)?;
    let arrived = if arrives { arrived } else { sent };
    verdict(&spec.name, along, sent, arrived, &before, &after)
}

/// Sends probe packets; how many were sent, and how many arrived.
fn send_probes(spec: &FlowSpec, sink: &Sink, arrives: bool) -> Result<(u64, u64), LabError> {
    // A busy machine takes a while to start the sender, and what is overdue by then is not sent.
    let now = sys::monotonic_now() + Nanos::from_millis(30);
    let config = SourceConfig {
        start: now,
        // One packet each millisecond.
        stop: now + Nanos::from_millis(PROBES),
        random_phase: false,
        ..SourceConfig::new(
            Process::Cbr { jitter_ppm: 0 },
            BitRate(PROBE_LEN.0 * 8 * 1_000),
            PROBE_LEN,
        )
    };
    let schedule = Schedule::flow(config).map_err(|error| LabError::Check(error.to_string()))?;
    let sender = Sender::start(spec, schedule, None)?;
    let begin = Instant::now();
    let mut arrived = 0;
    loop {
        std::thread::sleep(Duration::from_millis(20));
        arrived += sink.take().packets;
        let done = sender.is_finished() && (!arrives || arrived >= sender.sent().packets);
        if done || begin.elapsed() > PATIENCE {
            break;
        }
    }
    // A second copy made by the kernel would have come by now, or comes within this.
    std::thread::sleep(Duration::from_millis(20));
    arrived += sink.take().packets;
    Ok((sender.sent().packets, arrived))
}

/// The flow that is sent to find out: from another port, so that a router with admission does not
/// know the flow that is measured.
fn probe_of(spec: &FlowSpec) -> FlowSpec {
    let mut probe = spec.clone();
    let (from, _) = evenkeel_world::ports_of_flow(
        spec.source.port(),
        spec.destination.port(),
        SOURCE_PORTS / 2,
    );
    probe.source.set_port(from);
    probe
}

/// Packets that each place's class, or else all of its link, was offered so far.
fn counted(
    along: &[ClassAtLink],
    by_class: bool,
    routers: &mut [RouterNode],
) -> Result<Vec<u64>, LabError> {
    along
        .iter()
        .map(|place| {
            let router =
                routers.iter_mut().find(|router| router.name() == place.router).ok_or_else(
                    || LabError::Check(format!("router {} of the path does not run", place.router)),
                )?;
            let snapshot = router.snapshot()?;
            let classes = snapshot.link(&place.link).map_or(&[][..], |link| &link.classes);
            let counts = classes.iter().filter(|class| !by_class || class.name == place.class);
            Ok(counts.map(|class| class.in_packets).sum())
        })
        .collect()
}

fn verdict(
    flow: &str,
    along: &[ClassAtLink],
    sent: u64,
    arrived: u64,
    before: &[u64],
    after: &[u64],
) -> Result<u64, LabError> {
    let mut forwarded = 0;
    for ((place, before), after) in along.iter().zip(before).zip(after) {
        let ClassAtLink { router, link, class } = place;
        let count = after.saturating_sub(*before);
        if count < sent {
            let who = if arrived > 0 { "the kernel forwarded the others" } else { "none arrived" };
            return Err(LabError::Check(format!(
                "{flow}: router {router} counted {count} of {sent} probe packets in class {class} \
                 of link {link}; {who}"
            )));
        }
        forwarded += count;
    }
    if arrived == 0 {
        return Err(LabError::Check(format!("{flow}: none of {sent} probe packets arrived")));
    }
    if arrived > sent {
        return Err(LabError::Check(format!(
            "{flow}: {arrived} packets arrived of {sent} probe packets: the kernel forwards a \
             second copy"
        )));
    }
    Ok(forwarded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> [ClassAtLink; 1] {
        [ClassAtLink { router: "r1".into(), link: "sink".into(), class: "c".into() }]
    }

    #[test]
    fn probes_tell_who_forwarded() {
        let check =
            |sent, arrived, after: u64| verdict("a", &place(), sent, arrived, &[5], &[5 + after]);
        assert_eq!(check(10, 10, 10).expect("as it should be"), 10);
        assert_eq!(check(10, 9, 12).expect("a drop and foreign packets are no error"), 12);
        let text =
            |result: Result<u64, LabError>| result.expect_err("it must be noticed").to_string();
        assert!(text(check(10, 10, 0)).contains("the kernel forwarded"));
        assert!(text(check(10, 0, 0)).contains("none arrived"));
        assert!(text(check(10, 0, 10)).contains("none of 10"));
        assert!(text(check(10, 20, 10)).contains("second copy"));
    }
}
