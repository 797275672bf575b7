//! What an interface, and what is below it, means for shaping.

use evenkeel_core::BitRate;
use evenkeel_core::schedule::wfq_altq::least_queue;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_ports::af_xdp::longest_mtu;

use crate::facts::{Machine, Nic, processors_of};
use crate::finding::{Finding, Findings};
use crate::line::Line;
use crate::second::Traffic;

/// A full packet on the wire, bytes.
const PACKET: u64 = 1_538;
/// From this version of Linux on a frame of AF_XDP may have several buffers.
const IN_PIECES: (u32, u32) = (6, 6);
/// Disciplines of the kernel that shape: two shapers in a row hide each other.
const SHAPERS: [&str; 6] = ["htb", "hfsc", "tbf", "cake", "netem", "cbq"];
/// Weights to judge by where no configuration says them: 10 to 1.
const EXAMPLE: (u64, u64) = (10, 11);

pub(super) fn judge(
    nic: &Nic,
    traffic: Option<&Traffic>,
    line: Option<&Line>,
    machine: &Machine,
) -> Vec<Finding> {
    let mut out = Findings::about(&nic.name);
    wire(nic, line, &mut out);
    below(nic, line, &mut out);
    offloads(nic, &mut out);
    mtu(nic, machine, &mut out);
    queues(nic, line, &mut out);
    placement(nic, machine, &mut out);
    if let Some(traffic) = traffic {
        counted(traffic, &mut out);
    }
    out.found
}

fn wire(nic: &Nic, line: Option<&Line>, out: &mut Findings<'_>) {
    match nic.state.as_deref() {
        Some("down" | "lowerlayerdown" | "notpresent" | "dormant") => {
            let name = &nic.name;
            out.mind("wire", "it is down", format!("ip link set {name} up; look at the cable"));
            return;
        }
        None => return out.unseen("wire", "the kernel does not say whether it is up"),
        _ => {}
    }
    if nic.duplex.as_deref() == Some("half") {
        let name = &nic.name;
        return out.bad(
            "wire",
            "half duplex: what arrives keeps it from sending, whatever a scheduler wants",
            format!("ethtool -s {name} autoneg on, at both ends"),
        );
    }
    let speed = nic.speed.map(BitRate);
    match (line.and_then(|line| line.rate), speed) {
        (Some(rate), Some(speed)) if rate >= speed => out.bad(
            "rate",
            format!(
                "the link's rate of {} is not below the wire's {}: what waits, waits below, where \
                 nothing orders it",
                rate_text(rate),
                rate_text(speed)
            ),
            format!("rate = \"{}\" at most", rate_text(BitRate(speed.0 / 100 * 98))),
        ),
        (_, Some(speed)) => out.fine("wire", format!("{}, {}", rate_text(speed), duplex(nic))),
        (_, None) => {
            let of = nic.survey.driver.as_deref().unwrap_or("its driver");
            out.fine("wire", format!("up; {of} says no speed"));
        }
    }
}

fn duplex(nic: &Nic) -> &str {
    match nic.duplex.as_deref() {
        Some("full") => "full duplex",
        _ => "duplex unknown",
    }
}

/// Rings and byte limits below: they decide whether a scheduler above can differentiate at all.
fn below(nic: &Nic, line: Option<&Line>, out: &mut Findings<'_>) {
    const TOPIC: &str = "ring below";
    let Some((slots, most)) = nic.survey.rings.map(|rings| rings.transmit) else {
        return match nic.survey.driver.as_deref() {
            Some(driver @ ("veth" | "tun" | "bridge" | "dummy" | "ifb")) => {
                out.fine(TOPIC, format!("none ({driver})"));
            }
            _ => out.unseen(TOPIC, "the driver does not say how long its rings are"),
        };
    };
    // What BQL lets in counts, where it is less.
    let limited = nic.bytes_below.iter().max().map(|bytes| bytes.div_ceil(PACKET));
    let packets = limited.map_or(u64::from(slots), |limit| limit.min(u64::from(slots)));
    let what = match limited {
        Some(limit) if limit < u64::from(slots) => {
            format!("{slots} packets, of which BQL lets in {limit} now")
        }
        Some(_) => format!("{slots} packets, and BQL does not hold them back now"),
        None => format!("{slots} packets, and the driver has no BQL"),
    };
    let time = nic.speed.map(|speed| packets * PACKET * 8 * 1_000_000 / speed.max(1));
    let time = time.map_or_else(String::new, |micros| format!(" ({micros} us of the wire)"));
    let (heaviest, sum, limit) = match line.and_then(|line| line.weights) {
        Some((heaviest, sum, limit)) => (heaviest, sum, Some(u64::from(limit))),
        None => (EXAMPLE.0, EXAMPLE.1, None),
    };
    let needed = least_queue(packets, heaviest, sum);
    let (name, short) = (&nic.name, (slots / 8).clamp(64, most.max(64)));
    let paced = line.is_some_and(|line| line.rate.is_some());
    let rule = "Q >= R * w_max / sum(w)";
    match limit {
        _ if paced => {
            out.fine(TOPIC, format!("{what}{time}; it stays empty, because the link has a rate"));
        }
        Some(limit) if limit >= needed => out.fine(
            TOPIC,
            format!("{what}{time}; queues of {limit} hold the {needed} that weights need ({rule})"),
        ),
        Some(limit) => out.bad(
            TOPIC,
            format!(
                "{what}{time}: weights are not followed, because queues of {limit} packets are \
                 less than the {needed} that one refill takes ({rule})"
            ),
            format!(
                "a `rate` a little below the wire's; or limit = {needed}; or ethtool -G {name} tx \
                 {short}"
            ),
        ),
        None => out.mind(
            TOPIC,
            format!(
                "{what}{time}: without a `rate` it fills first, and weights of 10 : 1 are \
                 followed only by queues of {needed} packets and more ({rule})"
            ),
            format!(
                "a `rate` a little below the wire's keeps it empty; or ethtool -G {name} tx {short}"
            ),
        ),
    }
}

fn offloads(nic: &Nic, out: &mut Findings<'_>) {
    let on = &nic.survey.super_frames;
    let name = &nic.name;
    if on.iter().any(|feature| feature == "rx-lro") {
        return out.mind(
            "offloads",
            "the hardware merges packets (LRO) in a way that cannot be undone",
            format!("a router switches it off while it runs; for good: ethtool -K {name} lro off"),
        );
    }
    if on.is_empty() {
        out.fine("offloads", "none that merges packets");
    } else {
        out.fine("offloads", format!("{} merge packets: super-frames are cut when due", on.len()));
    }
}

/// Whether AF_XDP has frames that are longer than a buffer.
fn mtu(nic: &Nic, machine: &Machine, out: &mut Findings<'_>) {
    const SIZES: [usize; 2] = [2_048, 4_096];
    let [one, large] = SIZES.map(|buffer| longest_mtu(buffer, false));
    let Some(mtu) = nic.mtu.filter(|mtu| *mtu > one) else { return };
    match machine.kernel {
        Some(version) if version < IN_PIECES => out.mind(
            "MTU",
            format!(
                "{mtu}: before Linux 6.6 AF_XDP takes up to {one}, or {large} with buffer_size = \
                 \"4096B\""
            ),
            "a newer kernel, a smaller MTU, or packet sockets, which io = \"auto\" takes then",
        ),
        _ => out.fine("MTU", format!("{mtu}: with AF_XDP long frames take several buffers each")),
    }
}

/// Who else has a hand in the queues of this interface.
fn queues(nic: &Nic, line: Option<&Line>, out: &mut Findings<'_>) {
    let name = &nic.name;
    let shaping = nic.survey.qdiscs.iter().find(|qdisc| SHAPERS.contains(&qdisc.kind.as_str()));
    match (shaping, nic.survey.qdiscs.first()) {
        (Some(qdisc), _) => out.bad(
            "other queues",
            format!("{} shapes here already: the slower of two shapers decides", qdisc.kind),
            format!("tc qdisc del dev {name} root"),
        ),
        (None, Some(root)) => {
            out.fine("other queues", format!("{}, which does not shape", root.kind));
        }
        (None, None) => out.fine("other queues", "none of the kernel's"),
    }
    if nic.survey.xdp {
        out.mind(
            "XDP",
            "a program is attached: what it takes, no router sees, and AF_XDP has no place",
            format!("if it is not a router's: ip link set dev {name} xdp off"),
        );
    }
    let inline = line.is_some_and(|line| line.inline);
    match nic.survey.member_of.as_deref() {
        Some("bridge") if !inline => out.mind(
            "member of a bridge",
            "routed ports are no members of bridges",
            "attach = \"bridge\" for its two ports; or take the bridge itself, inline",
        ),
        Some(kind @ ("bond" | "team")) => out.mind(
            "member",
            format!("it belongs to a {kind}, which sends by it as it likes"),
            format!("take the {kind} itself"),
        ),
        _ => {}
    }
}

/// Which processors its interrupts go to.
fn placement(nic: &Nic, machine: &Machine, out: &mut Findings<'_>) {
    const TOPIC: &str = "interrupts";
    if nic.interrupts.is_empty() {
        return match nic.survey.driver.as_deref() {
            Some("veth" | "bridge" | "tun" | "dummy" | "ifb") => {}
            _ => out.unseen(TOPIC, "none that bears its name"),
        };
    }
    let lists: Vec<&str> =
        nic.interrupts.iter().filter_map(|interrupt| interrupt.to.as_deref()).collect();
    if lists.is_empty() {
        return out.unseen(TOPIC, "the kernel does not say where they go");
    }
    let mut to: Vec<usize> = lists.iter().flat_map(|list| processors_of(list)).collect();
    to.sort_unstable();
    to.dedup();
    let list = to.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let receive = nic.survey.queues.map_or(1, |(receive, _)| receive);
    let queues = if receive == 1 { "1 queue".to_owned() } else { format!("{receive} queues") };
    if let ([one], true) = (&*to, machine.processors > 1)
        && nic.spread == 0
    {
        let other = (0..machine.processors).find(|processor| processor != one).unwrap_or(0);
        return out.mind(
            TOPIC,
            format!("{queues}, and all interrupts go to processor {one}"),
            format!("keep the worker off it: cpus = [{other}]"),
        );
    }
    out.fine(TOPIC, format!("{queues}, interrupts go to processors {list}"));
}

fn counted(traffic: &Traffic, out: &mut Findings<'_>) {
    let (received, sent) = traffic.bits;
    let megabits = |bits: u64| format!("{:.2}", bits as f64 / 1e6);
    let (received, sent) = (megabits(received), megabits(sent));
    let rates = format!("{received} Mbit/s in, {sent} Mbit/s out in this second");
    match traffic.lost {
        (0, 0) => out.fine("traffic", format!("{rates}, nothing lost")),
        (received, sent) => out.mind(
            "traffic",
            format!("{rates}; {received} frames lost on the way in, {sent} on the way out"),
            format!("ethtool -S {} says which; longer receive rings: ethtool -G", traffic.name),
        ),
    }
}
