//! Advice about rules of classes that no packet reaches.

use evenkeel_config::{ClassConfig, RouterConfig};
use evenkeel_core::Prefix;
use evenkeel_core::class_map::Match;

/// Code points.
const DSCPS: u8 = 64;

pub(super) fn advice(config: &RouterConfig) -> Vec<String> {
    let rules: Vec<(&ClassConfig, usize, &Match)> = config
        .classes
        .iter()
        .flat_map(|class| class.rules.iter().enumerate().map(move |(at, rule)| (class, at, rule)))
        .collect();
    let mut said = Vec::new();
    for (index, (class, at, rule)) in rules.iter().enumerate() {
        let before = rules[..index].iter().find(|(_, _, first)| takes_all_of(first, rule));
        if let Some((other, first, _)) = before {
            said.push(format!(
                "class {}: rule {} is never reached: rule {} of class {} takes all that fits it",
                class.name,
                at + 1,
                first + 1,
                other.name
            ));
        }
    }
    said
}

/// Whether every packet that fits `later` fits `first`.
fn takes_all_of(first: &Match, later: &Match) -> bool {
    let dscp = first.dscp.is_none_or(|all| {
        (0..DSCPS).all(|dscp| {
            let fits = later.dscp.is_none_or(|set| set.contains(dscp));
            !fits || all.contains(dscp)
        })
    });
    let prefix = |first: &Option<Prefix>, later: &Option<Prefix>| match (first, later) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(first), Some(later)) => wider(first, later),
    };
    let ports = |first: &Option<std::ops::RangeInclusive<u16>>,
                 later: &Option<std::ops::RangeInclusive<u16>>| {
        let later = later.as_ref().map_or((0, u16::MAX), |range| (*range.start(), *range.end()));
        first.as_ref().is_none_or(|range| *range.start() <= later.0 && later.1 <= *range.end())
    };
    dscp && prefix(&first.source, &later.source)
        && prefix(&first.destination, &later.destination)
        && first.protocol.is_none_or(|protocol| later.protocol == Some(protocol))
        && ports(&first.source_port, &later.source_port)
        && ports(&first.destination_port, &later.destination_port)
}

fn wider(first: &Prefix, later: &Prefix) -> bool {
    first.len() <= later.len() && first.contains(later.address())
}
