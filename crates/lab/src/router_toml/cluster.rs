//! `[cluster]` and `[balancer]` survive being written.

#[cfg(test)]
mod tests {
    use evenkeel_config::RouterConfig;

    fn survives(text: &str) {
        let config = RouterConfig::parse(text, "router.toml").unwrap_or_else(|e| panic!("{e}"));
        let written = super::super::text(&config);
        let read = RouterConfig::parse(&written, "router.toml")
            .unwrap_or_else(|e| panic!("{e}\n{written}"));
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
