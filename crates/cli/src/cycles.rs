//! `ctl show`: where the cycles went, what services did, whom FairDrop refused.

use std::fmt::Write as _;

use evenkeel_report::table::Table;
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{CycleSnapshot, FairDropSnapshot};

/// Whatever of it there is; empty for a router without.
pub(crate) fn show(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    if let Some(cycles) = &snapshot.cycles {
        text += &accounts(cycles);
    }
    if !snapshot.services.is_empty() {
        let mut table =
            Table::new(["service", "kind", "packets", "refused", "rules per packet", "sequence"]);
        for service in &snapshot.services {
            let per_packet = |visited: u64| {
                let packets = (service.packets + service.refused).max(1);
                format!("{:.1}", visited as f64 / packets as f64)
            };
            table.row([
                service.name.clone(),
                service.kind.clone(),
                service.packets.to_string(),
                service.refused.to_string(),
                service.rules_visited.map_or_else(|| "–".to_owned(), per_packet),
                service.sequence.map_or_else(|| "–".to_owned(), |sequence| sequence.to_string()),
            ]);
        }
        let _ = write!(text, "\n{}", table.render());
    }
    if let Some(fairdrop) = &snapshot.fairdrop {
        text += &droppers(fairdrop, snapshot);
    }
    text
}

fn accounts(cycles: &CycleSnapshot) -> String {
    let mut text = format!(
        "\ncycles: {}, {:.0} MHz, busy {:.3} s of them\n",
        cycles.source,
        cycles.hertz as f64 / 1e6,
        cycles.busy as f64 / cycles.hertz.max(1) as f64
    );
    let stages: Vec<_> = cycles
        .stages
        .iter()
        .filter(|stage| stage.packets > 0)
        .map(|stage| format!("{} {:.0}", stage.stage, stage.cycles as f64 / stage.packets as f64))
        .collect();
    let _ = writeln!(text, "per packet: {}", stages.join(", "));
    let mut table = Table::new([
        "class",
        "packets",
        "cycles each",
        "Mcycles",
        "share",
        "refused",
        "cycles each",
    ]);
    let each = |cycles: u64, packets: u64| match packets {
        0 => "–".to_owned(),
        packets => format!("{:.0}", cycles as f64 / packets as f64),
    };
    for class in &cycles.classes {
        let all = class.cycles + class.refused_cycles;
        table.row([
            class.name.clone(),
            class.packets.to_string(),
            each(class.cycles, class.packets),
            format!("{:.1}", all as f64 / 1e6),
            format!("{:.1} %", all as f64 / cycles.busy.max(1) as f64 * 100.0),
            class.refused_packets.to_string(),
            each(class.refused_cycles, class.refused_packets),
        ]);
    }
    text + &table.render()
}

fn droppers(fairdrop: &FairDropSnapshot, snapshot: &Snapshot) -> String {
    let mut text = format!("\nfairdrop: {}", if fairdrop.on { "on" } else { "off" });
    let rule = fairdrop.settings.iter().find(|(key, _)| key == "rule");
    if let Some((_, rule)) = rule {
        let _ = write!(text, ", rule {rule}");
    }
    let threshold = fairdrop
        .threshold
        .map_or_else(|| "none".to_owned(), |threshold| format!("{threshold} cycles"));
    let _ = writeln!(
        text,
        "; threshold {threshold}, {:.2} % of the core per flow, {} flows backlogged, {} packets \
         unplaced, {} measurements absurd",
        fairdrop.level_ppm as f64 / 1e4,
        fairdrop.backlogged,
        fairdrop.unplaced,
        fairdrop.absurd
    );
    let costs: Vec<_> =
        fairdrop.costs.iter().map(|(name, cost)| format!("{name} {cost}")).collect();
    if !costs.is_empty() {
        let _ = writeln!(
            text,
            "costs learnt: {}; busy cycles per cycle of cost: {:.3}",
            costs.join(", "),
            fairdrop.scale
        );
    }
    let mut table = Table::new(["class", "judged", "refused for cycles", "for bits"]);
    for class in &fairdrop.classes {
        table.row([
            class.name.clone(),
            class.judged.to_string(),
            class.refused_cpu.to_string(),
            class.refused_bandwidth.to_string(),
        ]);
    }
    text += &table.render();
    for link in &fairdrop.links {
        let name =
            snapshot.ports.get(usize::from(link.port)).map_or("?", |port| port.name.as_str());
        let _ = writeln!(
            text,
            "link {name}: {} judged, {} refused, {} flows backlogged with {} bytes",
            link.judged, link.refused, link.backlogged, link.backlog_bytes
        );
    }
    text
}
