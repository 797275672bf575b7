//! `[cluster]` and `[balancer]` as text.

use evenkeel_config::{
    BalancerSection, ClusterMissing, ClusterRule, ClusterSection, ClusterVariant, PortConfig, key_text,
};
use evenkeel_core::Bytes;
use evenkeel_core::settings::{quantity::rate_text, quantity::size_text, quantity::time_text};
use toml::{Table, Value};

use super::{by_class, table};

fn named(ports: &[PortConfig], at: u16) -> Value {
    ports.get(usize::from(at)).map_or("", |port| port.name.as_str()).into()
}

pub(super) fn cluster(section: &ClusterSection, ports: &[PortConfig], classes: &[&str]) -> Value {
    let (variant, l, p) = match section.variant {
        // S-DS takes neither; the defaults are valid.
        ClusterVariant::Single => ("s-ds", 25, 0),
        ClusterVariant::Multiple { l, p } => ("m-ds", l, p),
        ClusterVariant::Lazy { l } => ("l-ds", l, 0),
        ClusterVariant::Pipelined { l, p } => ("p-ds", l, p),
    };
    let rule = match section.rule {
        ClusterRule::PerQueue => "a",
        ClusterRule::PerClass => "b",
        ClusterRule::Divided => "c",
    };
    let missing = match section.missing {
        ClusterMissing::Stale => "stale",
        ClusterMissing::Abstain => "abstain",
        ClusterMissing::Next => "next",
    };
    let whole = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let small = |number: u16| whole(u64::from(number));
    let links = section.links.iter().map(|link| {
        let mut entry: Table =
            [("name".to_owned(), link.name.as_str().into()), ("port".to_owned(), named(ports, link.port))]
                .into_iter()
                .collect();
        if !link.next_hops.is_empty() {
            let hops = link.next_hops.iter().map(|hop| hop.to_string().into());
            entry.insert("next_hops".into(), Value::Array(hops.collect()));
        }
        Value::Table(entry)
    });
    let mut entries = match table([
        ("node", small(section.node)),
        ("members", Value::Array(section.members.iter().map(|id| small(*id)).collect())),
        ("port", named(ports, section.port)),
        ("vlan", small(section.vlan.unwrap_or(0))),
        ("variant", variant.into()),
        ("l", small(l)),
        ("p", small(p)),
        ("rule", rule.into()),
        ("weight", by_class(classes, section.weights.iter().map(|weight| small(*weight)))),
        ("proposer", if section.forwarders_propose { "forwarders" } else { "links" }.into()),
        ("second_pass", section.second_pass.into()),
        ("round_bytes", size_text(Bytes(u64::from(section.round_bytes))).into()),
        ("missing", missing.into()),
        ("t_br", time_text(section.t_br).into()),
        ("long_wait", section.long_wait.into()),
        ("early_close", section.early_close.into()),
        ("min_cycle", time_text(section.min_cycle).into()),
        ("rate", rate_text(section.rate).into()),
        ("overhead", small(section.overhead)),
        ("per_packet", time_text(section.per_packet).into()),
        ("decision", time_text(section.decision).into()),
        ("guard", time_text(section.guard).into()),
        ("max_lag", size_text(section.max_lag).into()),
        ("checksum_every", small(section.checksum_every)),
        ("lost_after", small(section.lost_after)),
        ("mtu", small(section.mtu)),
        ("seed", whole(section.seed)),
        ("limit", whole(u64::from(section.limit))),
        ("link", Value::Array(links.collect())),
    ]) {
        Value::Table(entries) => entries,
        _ => Table::new(),
    };
    if let Some(key) = section.key {
        // The text of other keys begins with 0x.
        entries.insert("key".into(), key_text(&key).trim_start_matches("0x").into());
    }
    Value::Table(entries)
}

pub(super) fn balancer(section: &BalancerSection, ports: &[PortConfig]) -> Value {
    let forwarders = section.forwarders.iter().map(|one| {
        let mac: Vec<String> = one.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        table([
            ("id", i64::from(one.id).into()),
            ("mac", mac.join(":").into()),
            ("weight", i64::from(one.weight).into()),
            ("state", one.state.name().into()),
        ])
    });
    table([
        ("port", named(ports, section.port)),
        ("seed", Value::Integer(i64::try_from(section.seed).unwrap_or(i64::MAX))),
        ("flows", i64::from(section.flows).into()),
        ("idle", time_text(section.idle).into()),
        ("forwarder", Value::Array(forwarders.collect())),
    ])
}

#[cfg(test)]
mod tests {
    use evenkeel_config::RouterConfig;

    fn survives(text: &str) {
        let config = RouterConfig::parse(text, "router.toml").unwrap_or_else(|e| panic!("{e}"));
        let written = super::super::text(&config);
        let read = RouterConfig::parse(&written, "router.toml").unwrap_or_else(|e| panic!("{e}\n{written}"));
        // The node's own text of a section leaves most of it out.
        assert!(read.cluster == config.cluster && read.balancer == config.balancer, "{written}");
        assert_eq!(read, config, "{written}");
    }

    #[test]
    fn the_roles_of_the_examples_survive() {
        survives(include_str!("../../../../docs/examples/forwarder.toml"));
        survives(include_str!("../../../../docs/examples/balancer.toml"));
    }

    #[test]
    fn every_variant_and_rule_survives() {
        let base = include_str!("../../../../docs/examples/forwarder.toml");
        for (from, to) in [
            ("variant = \"p-ds\"", "variant = \"l-ds\""),
            ("variant = \"p-ds\"\nl = 20\np = 10", "variant = \"m-ds\"\nl = 3\np = 2"),
            ("rule = \"b\"", "rule = \"c\""),
            ("missing = \"abstain\"", "missing = \"stale\""),
            ("proposer = \"links\"", "proposer = \"forwarders\""),
            ("vlan = 3001", "vlan = 0"),
            ("next_hops = [\"10.7.0.23\"]", ""),
        ] {
            assert!(base.contains(from), "{from}");
            let text = base.replace(from, to);
            // What a variant has no use for is not kept.
            survives(&if to.contains("l-ds") { text.replace("p = 10", "p = 0") } else { text });
        }
    }
}
