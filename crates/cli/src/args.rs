//! The command line.

mod audit;
mod doctor;
mod init;
mod live;
mod new;
mod report;
mod run;
mod scenario;
mod subscribers;
mod sweep;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use evenkeel_core::BitRate;
use evenkeel_core::link::FramingConfig;
use evenkeel_core::settings::quantity::parse_time;

pub(crate) use audit::{AuditArgs, AuditCommand};
pub(crate) use doctor::DoctorArgs;
pub(crate) use init::{InitArgs, Place};
pub(crate) use live::LiveArgs;
pub(crate) use new::{NewCommand, NewDisciplineArgs, NewScenarioArgs, NewSweepArgs};
pub(crate) use report::{CompareArgs, PackArgs, ReportArgs, RerunArgs};
pub(crate) use run::{RenewArgs, RunArgs, StartArgs};
pub(crate) use scenario::{ScenarioArgs, ScenarioCommand};
pub(crate) use subscribers::SubscriberCommand;
pub(crate) use sweep::{SweepArgs, SweepCommand};
pub(crate) use watch::{CaptureArgs, WatchArgs};

use crate::argument::{ArgumentError, confirmation, overhead, rate};
use crate::history::HistoryArgs;
use crate::serve::ServeArgs;
use crate::top::TopArgs;

/// Evenkeel: a software router that shares an outgoing link fairly, and shows that it does.
#[derive(Debug, Parser)]
#[command(
    name = "evenkeel",
    version,
    after_help = "Exit codes: 0 done, 1 an expectation failed or something broke, 2 bad input, 3 \
                  missing privilege or kernel feature.\nThe guide: the folder docs of the \
                  sources, /usr/share/doc/evenkeel of the package; `man evenkeel-COMMAND`."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the router of a router.toml until SIGTERM or Ctrl-C; SIGHUP reads the file again.
    Run(RunArgs),
    /// Have a running router read its file again; if this is another program than it runs, go on
    /// in its place without losing a packet. For service managers, which know its process.
    Renew(RenewArgs),
    /// Put fair queues before and behind a slow line: `evenkeel shape eth0 --down 95Mbit/s --up
    /// 19Mbit/s`. The kernel goes on routing; when this ends, all is as it was.
    Shape(ShapeArgs),
    /// Write a first router.toml, with comments, for a gateway, a bridge, an ISP or a lab. What no
    /// argument says is asked on a terminal.
    Init(InitArgs),
    /// Check a router.toml and say what it means.
    Check(CheckArgs),
    /// Look at what decides whether shaping can work here: rings and queues below, offloads,
    /// interrupts, firewall, limits, clock, hypervisor. Changes nothing and needs no privilege.
    Doctor(DoctorArgs),
    /// Show links, classes, flows and subscribers with rates, delays and drops; one table where no
    /// terminal is.
    Top(TopArgs),
    /// Offer what routers count over HTTP: metrics for Prometheus, JSON and a live page.
    Serve(ServeArgs),
    /// Print what a router did in the last hours and weeks, from a file of `evenkeel serve
    /// --history`.
    History(HistoryArgs),
    /// Ask or change a running router.
    Ctl(CtlArgs),
    /// Say what the links of a router were told and what they delivered, with every broken promise
    /// and its cause; sign it.
    Audit(AuditArgs),
    /// Forwarders and balancers of a cluster.
    Cluster {
        #[command(subcommand)]
        what: ClusterCommand,
    },
    /// Say what happened to packets: evenkeel explain flow '10.0.0.1:5000->10.0.1.1:80/udp'
    Explain(ExplainArgs),
    /// Run a scenario on real packets between network namespaces (needs root).
    Lab(LabArgs),
    /// Run a scenario in virtual time: the same router code, no privilege, the same bytes of output
    /// for the same seed.
    Sim(SimArgs),
    /// Show disciplines side by side (the LCT testbed), `fairdrop` or `cluster`: on real packets as
    /// root, else in the simulator.
    Demo(DemoArgs),
    /// Make pages from saved results: one for each scenario, with every world and seed in the same
    /// figures, and an index.
    Report(ReportArgs),
    /// Put own runs beside each other on one page, with shared axes, the distributions of their
    /// delays, and the claims that hold in each.
    Compare(CompareArgs),
    /// Put a result with everything that it was made from into one file, from which another machine
    /// runs it again (`rerun`).
    Pack(PackArgs),
    /// Run again what a file of `evenkeel pack` holds, and say what is the same: in the simulator
    /// every byte, on real packets the claims.
    Rerun(RerunArgs),
    /// Run a scenario over a grid of parameters and seeds, in the simulator on all cores.
    Sweep(SweepArgs),
    /// Look at scenario files.
    Scenario(ScenarioArgs),
    /// Write a first scenario, sweep or discipline, with comments, to be changed.
    New {
        #[command(subcommand)]
        what: NewCommand,
    },
    /// Measure what this machine, or a box, can forward (needs root).
    Bench(BenchArgs),
    /// Print what completes this command in a shell: evenkeel completions bash
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the man pages, one for each command, into a folder.
    Man {
        /// The folder.
        folder: PathBuf,
    },
    /// Print the reference of a file format as Markdown, or its JSON Schema.
    Reference {
        /// Which format.
        format: Format,
        /// Print the JSON Schema.
        #[arg(long)]
        json_schema: bool,
    },
}

/// What to do with a role in a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Open the ports of a role that has ended: they stay closed for what the kernel forwards when
    /// its process dies, so that nothing unscheduled takes the others' shares. Stop the router
    /// first.
    Leave {
        /// Its router.toml.
        file: PathBuf,
        /// Network namespace (a name under /run/netns) of the ports.
        #[arg(long, value_name = "NAME")]
        netns: Option<String>,
    },
}

/// Arguments of `explain`.
#[derive(ClapArgs, Debug)]
pub(crate) struct ExplainArgs {
    /// Control socket of the router.
    #[arg(long, global = true, value_name = "PATH", default_value = "/run/evenkeel/control.sock")]
    pub(crate) socket: PathBuf,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) what: Explained,
}

/// What to explain.
#[derive(Debug, Subcommand)]
pub(crate) enum Explained {
    /// Which rule let a flow's packets in or refused them, against which threshold and value.
    Flow {
        /// The flow: 10.0.0.1:5000->10.0.1.1:80/udp, IPv6 addresses in brackets. IPv6 flows whose
        /// sender labels them are known by their label: [fd00::1]->[fd00::2]/label:0x12345.
        /// Fragments have ports 0, and without a label in IPv6 protocol 44.
        flow: String,
        /// Only at this link.
        #[arg(long)]
        link: Option<String>,
    },
    /// What a subscriber's packets meet now, in both directions, and what limits them. Looks twice,
    /// a second apart.
    Subscriber {
        /// Its name in the list of the [[tree]].
        name: String,
    },
}

/// A file format.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// router.toml
    Router,
    /// scenario.toml
    Scenario,
    /// sweep.toml
    Sweep,
    /// scenario.toml with `[[case]]`: a cluster
    Cluster,
    /// scenario.toml with `[switch]`: a cluster of processes
    Live,
}

/// Arguments of `shape`.
#[derive(ClapArgs, Debug)]
pub(crate) struct ShapeArgs {
    /// The interface that the line is behind; of several together, the rates are those of all.
    #[arg(required = true, value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,
    /// The hosts are behind the interfaces, and the line is elsewhere: what comes in by them goes
    /// up the line. For the networks of a gateway: evenkeel shape lan guest --inside.
    #[arg(long)]
    pub(crate) inside: bool,
    /// Rate of what the line brings (it comes in by the interface), a little below the line's:
    /// 95Mbit/s.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) down: BitRate,
    /// Rate of what goes up the line, a little below the line's: 19Mbit/s.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) up: BitRate,
    /// What the line adds to each packet: ethernet, docsis (cable), ptm or pppoe-ptm (VDSL),
    /// adsl-pppoa or adsl-pppoe, or bytes.
    #[arg(long, value_name = "LINE", value_parser = overhead, default_value = "ethernet")]
    pub(crate) overhead: FramingConfig,
    /// The line's rate changes (LTE, satellite, cable): --down and --up are the most that it
    /// carries, and the rates follow it, down to this; without RATE to a tenth of them.
    #[arg(long, value_name = "RATE", value_parser = rate, num_args = 0..=1, require_equals = true)]
    pub(crate) follow: Option<Option<BitRate>>,
    /// Threads that receive and send, each of which has some of the flows.
    #[arg(long, value_name = "NUMBER", default_value = "1",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: u16,
    /// End after this time (60s), unless `evenkeel ctl confirm` comes before: for a first start
    /// over the very interface.
    #[arg(long, value_name = "TIME", value_parser = confirmation)]
    pub(crate) confirm: Option<Duration>,
    /// Print the router.toml that this stands for, and do nothing.
    #[arg(long)]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) start: StartArgs,
}

/// Arguments of `check`.
#[derive(ClapArgs, Debug)]
pub(crate) struct CheckArgs {
    /// The router.toml.
    pub(crate) file: PathBuf,
    /// Another router.toml: say what would change from that one to FILE.
    #[arg(long, value_name = "OLD")]
    pub(crate) against: Option<PathBuf>,
    /// Print every setting, also what is as by default, as a router.toml. Keys are in it.
    #[arg(long, conflicts_with = "json")]
    pub(crate) all: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `ctl`.
#[derive(ClapArgs, Debug)]
pub(crate) struct CtlArgs {
    /// Control socket of the router.
    #[arg(long, global = true, value_name = "PATH", default_value = "/run/evenkeel/control.sock")]
    pub(crate) socket: PathBuf,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

/// What to ask or change.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Show every counter.
    Show,
    /// Show the last lines of the router's log: what changed, who changed it, what failed.
    Journal {
        /// Go on with what it says from now on.
        #[arg(long, short)]
        follow: bool,
    },
    /// Show the flows that send most by each link, from a sample of its packets.
    Busiest {
        /// How many.
        #[arg(long, default_value_t = 20)]
        top: usize,
    },
    /// Tell what happens to packets, stage by stage, as it happens.
    Trace(WatchArgs),
    /// Write packets to a pcapng file here, each with what became of it as a comment: when it
    /// left, or why it was dropped.
    Capture(CaptureArgs),
    /// Change a knob: evenkeel ctl set wan x_delay bulk 200us
    #[command(override_usage = "evenkeel ctl set [OPTIONS] <LINK> <KNOB> [CLASS] <VALUE>")]
    Set {
        /// The link, named by its port.
        link: String,
        #[arg(help = live_settings())]
        knob: String,
        /// The value as in router.toml; before it, for knobs of a class, the class.
        #[arg(required = true, num_args = 1..=2, value_name = "VALUE")]
        class_and_value: Vec<String>,
    },
    /// QoStat: one row per class and interval; on a terminal a table with rates.
    Watch {
        /// How often to read the counters: 1s, 200ms.
        #[arg(long, default_value = "1s", value_parser = interval)]
        interval: Duration,
        /// Stop after so many intervals.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
        /// Only this link.
        #[arg(long)]
        link: Option<String>,
    },
    /// As `evenkeel explain flow`, which it was called before.
    #[command(hide = true)]
    Explain {
        /// The flow.
        flow: String,
        /// Only at this link.
        #[arg(long)]
        link: Option<String>,
    },
    /// Show the protected flows, busiest first.
    Flows {
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
        /// Only of this link.
        #[arg(long)]
        link: Option<String>,
    },
    /// Apply a file of `time command` lines: 25s set wan x_delay bulk 10us
    Script {
        /// The file.
        file: PathBuf,
    },
    /// Put another discipline on a link; what is queued is kept: evenkeel ctl discipline wan '{
    /// kind = "lct", limit = 50 }'
    Discipline {
        /// The link.
        link: String,
        /// Its kind, or its table as in router.toml.
        value: String,
    },
    /// Change the rate of a link: 50Mbit/s, or unpaced.
    Rate {
        /// The link.
        link: String,
        /// The rate.
        value: String,
    },
    /// Change the transmit ring of a link.
    Ring {
        /// The link.
        link: String,
        /// Slots.
        slots: u32,
        /// Refilled when `any` slot is free, or when the `whole` ring has been sent.
        #[arg(default_value = "any")]
        refill: String,
    },
    /// Change a key of [fairdrop]: evenkeel ctl fairdrop on true
    Fairdrop {
        /// on, cpu, bandwidth, flows, weight, groups, group_weight, cost, rule, theta, threshold or
        /// buffer.
        key: String,
        /// The value as in router.toml.
        value: String,
    },
    /// Change what a forwarder gets from this balancer: evenkeel ctl balancer 3 draining
    Balancer {
        /// The forwarder's id.
        forwarder: u16,
        /// active, draining (no new flows, those it has stay) or out (its flows go to others).
        state: String,
    },
    /// Wait until nothing is in this forwarder any more, after `evenkeel ctl balancer N out` on all
    /// balancers: then it may be stopped, and nothing is lost.
    Empty {
        /// Give up, with exit code 1, after this time.
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = interval)]
        within: Duration,
    },
    /// Make the running router as a router.toml says, without losing what waits in it.
    Reload {
        /// The file.
        file: PathBuf,
        /// Undo it after this time (30s), unless `evenkeel ctl confirm` comes before.
        #[arg(long, value_name = "TIME", value_parser = interval)]
        confirm: Option<Duration>,
        /// Also if a list of subscribers has become shorter by more than a tenth.
        #[arg(long)]
        yes: bool,
    },
    /// Show and change subscribers of a [[tree]]: evenkeel ctl subscriber show
    #[command(subcommand)]
    Subscriber(SubscriberCommand),
    /// Show the nodes of trees (sites, access points), what they send now, and who is at its cap.
    Tree,
    /// Keep what `reload --confirm` changed, or what `shape --confirm` started.
    Confirm,
    /// Print the configuration that runs, with every change since its file, as a router.toml.
    Running,
    /// Say what a reload of a router.toml would change, changes since the last file included.
    Diff {
        /// The file.
        file: PathBuf,
    },
    /// Write the configuration that runs into a file, which keeps its owner and mode; what was in
    /// it, comments too, stays beside it in FILE~.
    Save {
        /// The file [default: the one that the router was started with].
        file: Option<PathBuf>,
    },
}

/// Arguments of `bench`.
#[derive(ClapArgs, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchCommand,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Throughput without loss (NDR) and with 0.5 % loss (PDR), and latency below, after RFC 2544:
    /// of a router between veth pairs, or of a box that two interfaces of this machine are cabled
    /// to (--in, --out, --mac).
    Live(LiveArgs),
}

/// What `lab` and `sim` both take.
#[derive(ClapArgs, Debug)]
pub(crate) struct WorldArgs {
    /// The scenario.
    pub(crate) file: PathBuf,
    /// Multiply the times of steps, settling, windows and the whole run; never delays, rates or
    /// rings.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) time_scale: f64,
    /// Switch off the mechanism of the `without` entry of this name: the expectations it names must
    /// then fail.
    #[arg(long, value_name = "NAME", conflicts_with = "all_without")]
    pub(crate) without: Option<String>,
    /// One run for each `without` entry.
    #[arg(long)]
    pub(crate) all_without: bool,
    /// Folder for the results [default: out/NAME].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write congestion window and round-trip time of each TCP connection after each window:
    /// connections.csv, and a figure.
    #[arg(long)]
    pub(crate) connections: bool,
    /// Write what comes out of the wire between two nodes, such as r1/r2, in both directions,
    /// into a file beside the other results, r1-r2.pcapng: headers and times. As often as you like.
    #[arg(long, value_name = "NODE/NODE")]
    pub(crate) capture: Vec<String>,
    /// Print only what is not as expected.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Print the summary as JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `lab`.
#[derive(ClapArgs, Debug)]
pub(crate) struct LabArgs {
    #[command(flatten)]
    pub(crate) world: WorldArgs,
    /// Run it so many times, each with a seed of its own from the scenario's on, as `sim --seeds`
    /// does; one page shows all of them.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) repeat: u64,
}

/// Arguments of `sim`.
#[derive(ClapArgs, Debug)]
pub(crate) struct SimArgs {
    #[command(flatten)]
    pub(crate) world: WorldArgs,
    /// Seed of everything random, instead of the scenario's.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Run with so many seeds, from the first on; one page shows all of them.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
}

/// What the demo shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Shown {
    /// The LCT testbed: FIFO, WFQ/ALTQ and LCT-UC side by side.
    Disciplines,
    /// Two heavy flows among twenty on one core, without and with FairDrop.
    Fairdrop,
    /// Three forwarders behind a switch as one router: shares, loss, a stranger, a forwarder more,
    /// one less, a killed master.
    Cluster,
    /// An evening at a small ISP: 2,000 subscribers, three sites, a backhaul that is too small, a
    /// flood; without and with their plans. Simulated.
    Isp,
}

/// Arguments of `demo`.
#[derive(ClapArgs, Debug)]
pub(crate) struct DemoArgs {
    /// What to show.
    #[arg(default_value = "disciplines")]
    pub(crate) what: Shown,
    /// Folder for the results.
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    pub(crate) out: PathBuf,
    /// In the simulator, although there may be the privilege for real packets.
    #[arg(long)]
    pub(crate) sim: bool,
    /// Print nothing but the table.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Shortest interval of `watch`: below, reading the counters would disturb what they count.
const SHORTEST: Duration = Duration::from_millis(10);

fn interval(text: &str) -> Result<Duration, ArgumentError> {
    let time = Duration::from_nanos(parse_time(text)?.0);
    ArgumentError::within(time, text, time >= SHORTEST, "10ms or more")
}

/// What `ctl set` can change, from the declarations.
fn live_settings() -> String {
    format!(
        "{}, or admission.KEY for a key of `[link.admission]`",
        evenkeel_config::live_names().join(", ")
    )
}
