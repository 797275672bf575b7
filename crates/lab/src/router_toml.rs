//! What the lab starts `evenkeel run` with is what the scenario says.

mod cluster;

use evenkeel_config::RouterConfig;

fn text(config: &RouterConfig) -> String {
    config.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use evenkeel_core::Bytes;
    use evenkeel_core::shape::ShaperConfig;

    fn survives(config: &RouterConfig) {
        let written = text(config);
        let read = RouterConfig::parse(&written, "router.toml")
            .unwrap_or_else(|e| panic!("{e}\n{written}"));
        assert_eq!(&read, config, "{written}");
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for router in fixture::scenario().routers {
            survives(&router.config);
        }
    }

    #[test]
    fn every_flow_aware_link_survives() {
        let config = RouterConfig::parse(
            r#"
            [[port]]
            name = "a"
            interface = "eth0"
            [[port]]
            name = "true"
            interface = "eth1"
            [flows]
            k_add = 3
            emergency_sources = ["10.1.0.0/16", "fd00::/8"]
            [[link]]
            port = "a"
            rate = "10Mbit/s"
            discipline = { kind = "pdrr", afl_linger = "100ms", start_limit = "4500B", buffer_bytes = "250000B" }
            admission = { rate = "9.6Mbit/s", eccm = true, max_accept_delay = "2s", flushing = "rbaef", second_link = "true", second_via = "10.2.0.1", per_user = true, min_fair_rate = 0.049, emergency = "thresholds", class_window = "1s" }
            [[link]]
            port = "true"
            rate = "2Mbit/s"
            discipline = { kind = "afan", afd = { alpha = 1.234, shadow = 500 } }
            admission = { smoothing = 0.1 }
            "#,
            "router.toml",
        )
        .unwrap_or_else(|e| panic!("{e}"));
        survives(&config);
        let mut other = config;
        other.links[1].discipline =
            evenkeel_config::parse_discipline("{ kind = \"pfq\" }", &[]).unwrap();
        survives(&other);
    }

    #[test]
    fn every_service_survives() {
        let file = r#"
            [[port]]
            name = "lan"
            interface = "eth0"
            [[service]]
            name = "burn"
            work = { kind = "spin", cycles = 3190 }
            [[service]]
            name = "list"
            work = { kind = "acl", fill = 7, default = "deny", rules = [{ action = "permit", protocol = "udp", destination_port = 53 }] }
            [[service]]
            name = "vpn"
            [service.work]
            kind = "esp"
            local = "2001:db8::1"
            remote = "2001:db8::2"
            spi = 4294967295
            key = "0x000102030405060708090a0b0c0d0e0f10111213"
            esn = true
            df = "clear"
            dscp = 46
            ttl = 255
            [[class]]
            name = "light"
            [[class]]
            name = "heavy"
            service = "vpn"
            match = [{ dscp = 10 }]
        "#;
        let config = RouterConfig::parse(file, "router.toml").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.classes[1].service, Some(2));
        survives(&config);
    }

    #[test]
    fn every_rule_of_fairdrop_survives() {
        let rules = [
            "",
            "on = false\ncpu = false\nweight = { heavy = 1000 }\ngroups = \"class\"\ngroup_weight \
             = { light = 7 }",
            "rule = { kind = \"kappa\", kappa = 1.234 }\ntheta = 0.95\nbandwidth = false",
            "rule = { kind = \"fixed\" }\nflows = 8\ncost = 350",
            "rule = { kind = \"mimd-batch\", up = 9.999 }\nthreshold = \"1538B\"",
            "rule = { kind = \"mimd-ring\", low = 512, high = 512 }\nbuffer = \"0B\"",
        ];
        for rule in rules {
            let file = format!(
                "[router]\ncycles = true\ncpu = 1\n[[port]]\nname = \"a\"\ninterface = \
                 \"a\"\n[[class]]\nname = \"light\"\n\
                 [[class]]\nname = \"heavy\"\n[fairdrop]\n{rule}"
            );
            survives(&RouterConfig::parse(&file, "router.toml").unwrap_or_else(|e| panic!("{e}")));
        }
    }

    #[test]
    fn every_choice_of_every_discipline_survives() {
        let mut config = fixture::scenario().routers.remove(1).config;
        let variants = [
            r#"{ kind = "fifo", limit = 7 }"#,
            r#"{ kind = "wfq-altq", weight = 1000, drop = "tail", limit = 65536 }"#,
            r#"{ kind = "wfq-altq", drop = "longest", high_water = "65537B" }"#,
            r#"{ kind = "wfq-altq", select = "hash-destination" }"#,
            r#"{ kind = "wfq-altq", select = "hash-source", queues = 2 }"#,
            r#"{ kind = "wfq-altq", select = "hash-source-port" }"#,
            r#"{ kind = "lct", x_delay = "1ns", multi_backlog = "earliest-due", rearm_empty = false }"#,
            r#"{ kind = "lct", x_delay = { marked = "20ms" }, multi_backlog = "min-x", module2 = true }"#,
            r#"{ kind = "own", name = "mine" }"#,
            r#"{ kind = "own", name = "mine", settings = { list = [1, 2.5], order = { rest = "5us" } } }"#,
        ];
        for variant in variants {
            let names = ["rest", "marked"];
            let discipline = evenkeel_config::parse_discipline(variant, &names);
            config.links[0].discipline = discipline.unwrap_or_else(|e| panic!("{variant}: {e}"));
            survives(&config);
        }
        for control in [
            "",
            "on = false, limits = false, aggregate = \"mean\", delay_weight = 0.3, gain = 0.001, \
             step = 0.015625",
            "preset = \"voice\", loss_normal = { rest = 0.0123 }, delay_degraded = { marked = \
             \"1.5s\" }",
        ] {
            let text = format!(
                "[[port]]\nname = \"a\"\ninterface = \"a\"\n[[class]]\nname = \
                 \"rest\"\n[[class]]\nname = \"marked\"\n\
                 [[link]]\nport = \"a\"\ndiscipline = {{ kind = \"lct\" }}\ncontrol = {{ kind = \
                 \"lct\", {control} }}"
            );
            let parsed = RouterConfig::parse(&text, "r.toml").unwrap_or_else(|e| panic!("{e}"));
            config.links[0].discipline = parsed.links[0].discipline.clone();
            config.links[0].control = parsed.links[0].control.clone();
            survives(&config);
        }
        config.links[0].core.rate = None;
        config.links[0].core.shaper =
            Some(ShaperConfig { rate: evenkeel_core::BitRate(1_234_567), burst: Bytes(1501) });
        config.router.mode = evenkeel_config::Mode::Busy;
        config.router.hairpin = evenkeel_config::Hairpin::Drop;
        survives(&config);
    }
}
