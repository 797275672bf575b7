//! `evenkeel demo isp`: an evening at a small ISP, without and with a tree of subscribers.

use std::fmt::Write as _;

use evenkeel_report::table::Table;
use evenkeel_sim::isp::{Evening, Had, TOWN, evening, hundredths};

use crate::args::DemoArgs;
use crate::failure::Outcome;
use crate::out::print;

/// Runs both evenings, and says what is to be seen.
pub(crate) fn demo(args: &DemoArgs) -> Outcome {
    if !args.quiet {
        print(&introduction())?;
    }
    let (without, with) = (evening(false), evening(true));
    print(&table(&without, &with).render())?;
    if !args.quiet {
        print(&picture(&without, &with))?;
        print(&sentences(&without, &with))?;
    }
    Ok(0)
}

fn introduction() -> String {
    let mut text = "An evening at a small ISP, simulated in virtual time with the router's own \
                    scheduler.\n"
        .to_owned();
    for (name, mbps, people) in TOWN {
        let _ = writeln!(text, "  {name}: {people} subscribers behind a backhaul of {mbps} Mbit/s");
    }
    text + "  Plans of 20, 50, 100 and 300 Mbit/s; calls, films of 4 Mbit/s, downloads. North \
            asks for more than its\n  backhaul has, and one customer there, with a plan of 50 \
            Mbit/s, is sent a flood of 400.\n  Without: what comes is sent on. With: a [[tree]] \
            with the plans and the backhauls.\n\n"
}

/// A name, and what it is of a site.
type Row = (&'static str, fn(&Had) -> String);

const ROWS: [Row; 5] = [
    ("calls: half waited, ms", |had| format!("{:.1}", had.wait(50))),
    ("calls: 99 of 100 waited, ms", |had| format!("{:.1}", had.wait(99))),
    ("calls: packets lost, %", |had| format!("{:.1}", hundredths(had.lost))),
    ("films: pieces too late, %", |had| format!("{:.0}", hundredths(had.late))),
    ("downloads: Mbit/s, least to most", |had| {
        let least = had.downloads.iter().copied().fold(f64::MAX, f64::min);
        let most = had.downloads.iter().copied().fold(0.0, f64::max);
        format!("{least:.0} to {most:.0}")
    }),
];

fn table(without: &Evening, with: &Evening) -> Table {
    let mut header = vec!["".to_owned()];
    for (name, ..) in TOWN {
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
fn picture(without: &Evening, with: &Evening) -> String {
    let mut text = "\nWaits of calls in North, how many of 100 packets:\n".to_owned();
    let part = |had: &Had, from: f64, to: f64| {
        let among = had.calls.iter().filter(|wait| (from..to).contains(*wait)).count();
        among * 100 / had.calls.len().max(1)
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

fn sentences(without: &Evening, with: &Evening) -> String {
    let (before, after) = (&without.sites[0], &with.sites[0]);
    format!(
        "\nWithout, the flooded customer takes {:.0} Mbit/s of North's backhaul, calls there lose \
         {:.1} % and wait up to {:.0} ms (99 of 100),\nand {:.0} % of the pieces of films are \
         late. With the tree he has {:.0} Mbit/s, the part of his plan; calls lose {:.1} % and \
         wait {:.1} ms, and {:.0} % of\nthe pieces are late. Nobody had more than {:.0} % of his \
         plan; without, {:.0} %.\n",
        without.flood,
        hundredths(before.lost),
        before.wait(99),
        hundredths(before.late),
        with.flood,
        hundredths(after.lost),
        after.wait(99),
        hundredths(after.late),
        with.most * 100.0,
        without.most * 100.0
    )
}
