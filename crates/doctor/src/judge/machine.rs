//! What the machine as a whole means for shaping.

use crate::facts::Machine;
use crate::finding::{Finding, Findings};
use crate::line::Line;
use crate::second::Second;

/// The first Linux with TCX, by which interfaces are attached inline.
const INLINE: (u32, u32) = (6, 6);
/// A thread that wakes later than this, in one of a hundred times, leaves a fast line idle, us.
const LATE: u128 = 500;
/// Parts of a thousand that a hypervisor may give to others unnoticed.
const STOLEN: u64 = 10;
/// Bytes that AF_XDP's buffers lock, more or less.
const LOCKED: u64 = 64 << 20;
/// A table that is fuller than this, percent, is full soon.
const FULL: usize = 75;

pub(super) fn judge(machine: &Machine, second: &Second, lines: &[Line]) -> Vec<Finding> {
    let mut out = Findings::about("machine");
    kernel(machine, &mut out);
    privileges(machine, &mut out);
    time(machine, second, &mut out);
    processors(machine, second, &mut out);
    bypassed(machine, lines, &mut out);
    tables(machine, &mut out);
    memory(machine, &mut out);
    out.found
}

fn kernel(machine: &Machine, out: &mut Findings<'_>) {
    match machine.kernel {
        Some(version @ (major, minor)) if version < INLINE => out.mind(
            "kernel",
            format!("Linux {major}.{minor} cannot attach an interface inline or as a bridge"),
            "install Linux 6.6 or newer, or route with `attach = \"route\"`",
        ),
        Some((major, minor)) => out.fine("kernel", format!("Linux {major}.{minor}")),
        None => out.unseen("kernel", "it does not say which Linux it is"),
    }
    if !machine.read_only.is_empty() {
        out.mind(
            "file systems",
            format!("read-only: {}", machine.read_only.join(", ")),
            "mount a tmpfs on /run/evenkeel; or name other folders with --runtime-dir and \
             --state-dir",
        );
    }
}

fn privileges(machine: &Machine, out: &mut Findings<'_>) {
    if machine.lacks.is_empty() {
        out.fine("privileges", "all that a router needs");
    } else {
        out.mind(
            "privileges",
            format!("this process lacks {}: a router could not start from here", {
                machine.lacks.join(", ")
            }),
            "the packaged unit gives them to the service; by hand, run as root",
        );
    }
    match machine.locked {
        Some(limit) if limit < LOCKED => out.mind(
            "locked memory",
            format!("this process may lock {} KiB: too little for AF_XDP", limit >> 10),
            "LimitMEMLOCK=infinity in the unit (the packaged one has it), or CAP_IPC_LOCK",
        ),
        _ => out.fine("locked memory", "enough may be locked"),
    }
}

fn time(machine: &Machine, second: &Second, out: &mut Findings<'_>) {
    match machine.clock.as_deref() {
        None => out.unseen("clock", "the kernel does not say what it reads the time from"),
        Some(slow @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies")) => out.mind(
            "clock",
            format!("the time is read from {slow}, which takes a microsecond and more each time"),
            "clocksource=tsc on the kernel's command line, if its TSC can be trusted (dmesg)",
        ),
        Some(clock) => out.fine("clock", format!("the time is read from {clock}")),
    }
    let Some([half, most, worst]) = second.late.map(|times| times.map(|t| t.as_micros())) else {
        out.unseen("wake-ups", "no time was measured");
        return;
    };
    let what = format!(
        "a thread that sleeps for 1 ms wakes {half} us too late (median), {most} us in 99 of 100, \
         {worst} us at worst"
    );
    if most > LATE {
        out.mind(
            "wake-ups",
            format!("{what}: what a link could have sent beyond max_catch_up (5 ms) is lost"),
            "mode = \"adaptive\" (or \"busy\"), realtime = true, a processor of its own (cpus)",
        );
    } else {
        out.fine("wake-ups", what);
    }
}

fn processors(machine: &Machine, second: &Second, out: &mut Findings<'_>) {
    let count = machine.processors;
    let plural = if count == 1 { "" } else { "s" };
    match machine.governor.as_deref() {
        Some(slow @ ("powersave" | "conservative")) => out.mind(
            "processors",
            format!("{count} processor{plural}, made slow when little is to do ({slow})"),
            "cpupower frequency-set -g performance",
        ),
        _ => out.fine("processors", format!("{count} processor{plural}")),
    }
    match (&machine.hypervisor, second.stolen) {
        (Some(of), Some(stolen)) if stolen > STOLEN => out.mind(
            "virtual machine",
            format!(
                "{of}: others had {}.{} % of the processors' time in this second, which no \
                 scheduler in here can give back",
                stolen / 10,
                stolen % 10
            ),
            "give the machine processors of its own",
        ),
        (Some(of), _) => out.fine(
            "virtual machine",
            format!("{of}: rates are kept, delays depend on its other guests"),
        ),
        (None, _) => out.fine("virtual machine", "none that can be seen"),
    }
    if second.backlog_drops > 0 {
        out.mind(
            "backlog",
            format!("the kernel dropped {} packets before anybody saw them", second.backlog_drops),
            "sysctl -w net.core.netdev_max_backlog=5000",
        );
    } else if second.squeezed > 0 {
        out.mind(
            "backlog",
            format!("{} times a processor left frames waiting in a ring", second.squeezed),
            "sysctl -w net.core.netdev_budget=600; spread receive queues over more processors",
        );
    } else {
        out.fine("backlog", "nothing was dropped in the kernel's backlogs in this second");
    }
}

/// What the kernel does with packets on their way, and does not do with those that are routed here.
fn bypassed(machine: &Machine, lines: &[Line], out: &mut Findings<'_>) {
    let keeps = !lines.is_empty() && lines.iter().all(|line| line.inline);
    let chains = match &machine.chains {
        Some(Ok(chains)) => chains.as_slice(),
        Some(Err(error)) => {
            out.unseen("firewall and NAT", format!("the kernel does not tell: {error}"));
            return;
        }
        None => return,
    };
    let ipsec = machine.ipsec.filter(|policies| *policies > 0);
    let mut rules = chains.to_vec();
    rules.extend(ipsec.map(|policies| format!("{policies} policies of IPsec")));
    match rules.len() {
        0 => out.fine("firewall and NAT", "forwarded packets pass no rules"),
        count if keeps => out.fine("firewall and NAT", format!("{count} found, and kept (inline)")),
        count => out.mind(
            "firewall and NAT",
            format!(
                "forwarded packets pass {}{}",
                rules[0],
                if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
            ),
            "attach = \"inline\" or `evenkeel shape` keep them; routed packets pass by, so that \
             a router does not start unless `bypass` names them",
        ),
    }
    if !machine.forwards {
        out.mind(
            "forwarding",
            "net.ipv4.ip_forward is 0: without a router running nothing is forwarded",
            "sysctl -w net.ipv4.ip_forward=1, if this machine is to route",
        );
    }
}

fn tables(machine: &Machine, out: &mut Findings<'_>) {
    match machine.neighbours {
        None => out.unseen("neighbours", "the kernel does not say how many it keeps"),
        Some((known, most)) if known * 100 >= most * FULL => out.bad(
            "neighbours",
            format!("{known} of at most {most}: beyond, hosts of this network get no packets"),
            format!("sysctl -w net.ipv4.neigh.default.gc_thresh3={}", (2 * known).max(8_192)),
        ),
        Some((known, most)) => out.fine("neighbours", format!("{known} of at most {most}")),
    }
    match machine.connections {
        Some((known, most)) if u128::from(known) * 100 >= u128::from(most) * FULL as u128 => out
            .mind(
                "connections",
                format!("{known} of at most {most} are tracked: beyond, new ones are dropped"),
                format!("sysctl -w net.netfilter.nf_conntrack_max={}", 2 * most),
            ),
        Some((known, most)) => {
            out.fine("connections", format!("{known} of at most {most} tracked"));
        }
        None => {}
    }
}

fn memory(machine: &Machine, out: &mut Findings<'_>) {
    match machine.available {
        None => out.unseen("memory", "the kernel does not say what is left"),
        Some(left) if left < 128 << 20 => out.mind(
            "memory",
            format!("{} MiB are left", left >> 20),
            "`evenkeel check` says what a configuration takes; `buffers` of [router] is most of it",
        ),
        Some(left) => out.fine("memory", format!("{} MiB are left", left >> 20)),
    }
    if machine.router {
        out.fine("router", "one has run here, or runs: `evenkeel ctl show` asks it");
    }
}
