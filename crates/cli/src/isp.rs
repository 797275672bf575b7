//! `evenkeel demo isp`: an evening at a small ISP, without and with a tree of subscribers; as root
//! a short form of it on real packets too.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use evenkeel_lab::LabOptions;
use evenkeel_ports::sys;
use evenkeel_report::table::{self, Table};
use evenkeel_report::{FlowRow, Judgement, Report, Run};
use evenkeel_scenario::Scenario;
use evenkeel_sim::SimOptions;

use crate::args::DemoArgs;
use crate::failure::{Failure, Outcome};
use crate::out::print;
use crate::runs::{own_path, progress};

const EVENING: (&str, &str) = (
    "scenarios/subscribers/evening.toml",
    include_str!("../../../scenarios/subscribers/evening.toml"),
);
const PLANS: (&str, &str) =
    ("scenarios/subscribers/plans.toml", include_str!("../../../scenarios/subscribers/plans.toml"));
/// The mechanism without which the evening is shown first.
const TREE: &str = "tree";
/// The sites, as the table has them and as the scenario does; the first is the full one.
const SITES: [(&str, &str); 3] = [("North", "north"), ("South", "south"), ("East", "east")];
/// The way of a packet without queues, microseconds.
const WAY: f64 = 10_000.0;
/// A piece of a film that takes longer is late, seconds.
const PIECE: f64 = 2.0;

/// Runs both evenings, and says what is to be seen; then the plans on real packets, as root.
pub(crate) fn demo(args: &DemoArgs) -> Outcome {
    if !args.quiet {
        print(INTRODUCTION)?;
    }
    let scenario = built_in(EVENING)?;
    let sim = |without: Option<&str>| {
        let options = SimOptions { without: without.map(str::to_owned), ..SimOptions::default() };
        evenkeel_sim::run(&scenario, &options)
    };
    let (mut without, mut with) = (sim(Some(TREE))?, sim(None)?);
    "without".clone_into(&mut without.run.name);
    "with".clone_into(&mut with.run.name);
    let evenings = [&without.run, &with.run].map(Evening::of);
    print(&told(&evenings).render())?;
    if !args.quiet {
        print(&picture(&evenings))?;
        print(&sentences(&evenings))?;
    }
    let judged: Vec<Judgement> = without.judgements.into_iter().chain(with.judgements).collect();
    let mut failed = !evenkeel_report::judge::bad(&judged).is_empty();
    let report = Report::of_scenario(&scenario, vec![without.run, with.run], judged);
    let files = evenkeel_report::write_all(&args.out, &report)?;
    if let Some(page) = files.last() {
        print(&format!("report: {}\n", page.display()))?;
    }
    if sys::is_root() && !args.sim {
        failed |= real_packets(args)? != 0;
    } else {
        print(
            "As root (sudo evenkeel demo isp) the plans of forty people follow on real packets.\n",
        )?;
    }
    Ok(u8::from(failed))
}

/// The short form.
fn real_packets(args: &DemoArgs) -> Outcome {
    let scenario = built_in(PLANS)?;
    if !args.quiet {
        print(&format!("\nOn real packets, between namespaces: {}.\n", scenario.title))?;
    }
    let outcome = evenkeel_lab::run(
        &scenario,
        &LabOptions {
            out_dir: args.out.join("real-packets"),
            binary: own_path()?,
            progress: progress(args.quiet),
            quiet: true,
            time_scale: 1.0,
            without: None,
            connections: false,
            captures: Vec::new(),
        },
    )?;
    print(&table::judgements(&outcome.judgements))?;
    if let Some(page) = outcome.files.last() {
        print(&format!("report: {}\n", page.display()))?;
    }
    Ok(outcome.exit_code())
}

fn built_in((file, text): (&str, &str)) -> Result<Scenario, Failure> {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    Scenario::parse(text, file, folder).map_err(Failure::input)
}

const INTRODUCTION: &str = "\
An evening at a small ISP, simulated in virtual time with the router's own pipeline.
  North: 700 subscribers behind a backhaul of 300 Mbit/s
  South: 700 subscribers behind a backhaul of 900 Mbit/s
  East: 600 subscribers behind a backhaul of 900 Mbit/s
  Plans of 20, 50, 100 and 300 Mbit/s, 4 Mbit/s of each guaranteed; calls, films of 4 Mbit/s,
  downloads. North asks for more than its backhaul has, and somebody there is sent a flood of
  400 Mbit/s. Without: what comes is sent on. With: a [[tree]] of plans and backhauls.

";

/// What the people of a site had.
struct Had {
    /// Waits of packets of calls: the least of the bucket in milliseconds, and how many.
    waits: Vec<(f64, u64)>,
    /// Packets of calls that were lost, of so many.
    lost: (u64, u64),
    /// Pieces of films that came too late, of so many.
    late: (u64, u64),
    /// Mbit/s of everybody who downloads, ascending.
    downloads: Vec<f64>,
}

/// What an evening came to: by site, and what of the flood came through, Mbit/s.
struct Evening {
    sites: [Had; 3],
    flood: f64,
}

impl Evening {
    fn of(run: &Run) -> Self {
        let rate = |row: &FlowRow| row.goodput_bps().unwrap_or(0.0) / 1e6;
        let flood = run.flows.iter().filter(|row| row.traffic == "flood").map(rate).sum();
        Self { sites: SITES.map(|(_, site)| Had::of(run, site)), flood }
    }
}

impl Had {
    fn of(run: &Run, site: &str) -> Self {
        let rows = |what: &str| {
            let traffic = format!("{what}-{site}");
            run.flows.iter().filter(move |row| row.traffic == traffic)
        };
        let lost = rows("calls").fold((0, 0), |(lost, sent), row| {
            (lost + row.lost_packets, sent + row.sent_packets.unwrap_or(0))
        });
        let begun = rows("films").filter(|row| row.start_s >= run.settle_s);
        let late = begun.fold((0, 0), |(late, all), row| {
            let in_time = row.completion_s().is_some_and(|seconds| seconds <= PIECE);
            (late + u64::from(!in_time), all + 1)
        });
        let mut people: BTreeMap<&str, f64> = BTreeMap::new();
        for row in rows("downloads") {
            let address = row.destination.rsplit_once(':').map_or("", |(address, _)| address);
            *people.entry(address).or_default() += row.goodput_bps().unwrap_or(0.0) / 1e6;
        }
        let mut downloads: Vec<f64> = people.into_values().collect();
        downloads.sort_by(f64::total_cmp);
        Self { waits: waits(run, &format!("calls-{site}")), lost, late, downloads }
    }

    /// What so many hundredths of the packets of calls waited at most, milliseconds.
    fn wait(&self, hundredths: u64) -> f64 {
        let all: u64 = self.waits.iter().map(|(_, packets)| packets).sum();
        let mut before = 0;
        let found = self.waits.iter().find(|(_, packets)| {
            before += packets;
            before * 100 >= all * hundredths
        });
        found.map_or(0.0, |(wait, _)| *wait)
    }
}

/// Waits of the packets of a class from host to host, settling left out.
fn waits(run: &Run, class: &str) -> Vec<(f64, u64)> {
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    let of_class = run.samples.iter().filter(|sample| {
        sample.class == class && sample.router == "town" && sample.t_s > run.settle_s
    });
    for (least, packets) in
        of_class.filter_map(|sample| sample.end_to_end.as_ref()).flat_map(|delays| &delays.buckets)
    {
        *buckets.entry(*least).or_default() += packets;
    }
    let wait = |(least, packets)| (f64::max(least as f64 / 1e3 - WAY, 0.0) / 1e3, packets);
    buckets.into_iter().map(wait).collect()
}

fn hundredths((part, of): (u64, u64)) -> f64 {
    if of == 0 { 0.0 } else { part as f64 * 100.0 / of as f64 }
}

/// A name, and what it is of a site.
type Row = (&'static str, fn(&Had) -> String);

const ROWS: [Row; 5] = [
    ("calls: half waited, ms", |had| format!("{:.1}", had.wait(50))),
    ("calls: 99 of 100 waited, ms", |had| format!("{:.1}", had.wait(99))),
    ("calls: packets lost, %", |had| format!("{:.1}", hundredths(had.lost))),
    ("films: pieces too late, %", |had| format!("{:.0}", hundredths(had.late))),
    ("downloads: Mbit/s, least to most", |had| {
        let [least, most] = [had.downloads.first(), had.downloads.last()].map(|end| end.copied());
        format!("{:.0} to {:.0}", least.unwrap_or(0.0), most.unwrap_or(0.0))
    }),
];

fn told([without, with]: &[Evening; 2]) -> Table {
    let mut header = vec![String::new()];
    for (name, _) in SITES {
        header.extend([format!("{name} without"), format!("{name} with")]);
    }
    let mut table = Table::new(header);
    for (name, of) in ROWS {
        let mut row = vec![name.to_owned()];
        for (before, after) in without.sites.iter().zip(&with.sites) {
            row.extend([of(before), of(after)]);
        }
        table.row(row);
    }
    table
}

/// Waits of calls as bars: a mark for each power of two of milliseconds.
fn picture([without, with]: &[Evening; 2]) -> String {
    let mut text = "\nWaits of calls in North, how many of 100 packets:\n".to_owned();
    let part = |had: &Had, from: f64, to: f64| {
        let among = had.waits.iter().filter(|(wait, _)| (from..to).contains(wait));
        let all: u64 = had.waits.iter().map(|(_, packets)| packets).sum();
        (among.map(|(_, packets)| packets).sum::<u64>() * 100 / all.max(1)) as usize
    };
    let mut from = 0.0;
    for to in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, f64::MAX] {
        let [before, after] = [without, with].map(|evening| part(&evening.sites[0], from, to));
        let label = if to == f64::MAX {
            format!("{from:>3.0} and more")
        } else {
            format!("{from:>3.0} to {to:<3.0}ms")
        };
        let bar = |hundredths: usize| "#".repeat(hundredths.div_ceil(3));
        let _ = writeln!(
            text,
            "  {label}  without {before:>3} {:<34}  with {after:>3} {}",
            bar(before),
            bar(after)
        );
        from = to;
    }
    text
}

fn sentences([without, with]: &[Evening; 2]) -> String {
    let (before, after) = (&without.sites[0], &with.sites[0]);
    format!(
        "\nWithout, the flood takes {:.0} Mbit/s of North's backhaul, calls there lose {:.1} % and \
         wait {:.0} ms (99 of 100),\nand {:.0} % of the pieces of films are late. With the tree \
         the flood has {:.0} Mbit/s, the part of one\nplan; calls lose {:.1} % and wait {:.1} ms, \
         and {:.0} % of the pieces are late.\n",
        without.flood,
        hundredths(before.lost),
        before.wait(99),
        hundredths(before.late),
        with.flood,
        hundredths(after.lost),
        after.wait(99),
        hundredths(after.late),
    )
}
