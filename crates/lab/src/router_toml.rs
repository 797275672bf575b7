//! A router's configuration as the text of a `router.toml`: what the lab starts `evenkeel run`
//! with.
//!
//! Every value is written out, defaults too, so that the file says what was measured.

#[cfg(test)]
mod cluster;

use std::fmt::Display;

use evenkeel_config::{
    DisciplineConfig, Hairpin, LinkConfig, OuterDf, RouterConfig, ServiceConfig, Work, key_text,
    own_settings,
};
use evenkeel_core::class_map::Match;
use evenkeel_core::settings::Settings;
use evenkeel_core::settings::{quantity::size_text, quantity::time_text};
use evenkeel_settings::entries;
use evenkeel_settings::typed::table_of;
use toml::{Table, Value};

/// The text that `evenkeel_config` reads as `config`.
pub(crate) fn text(config: &RouterConfig) -> String {
    let names = config.class_names();
    let mut file = Table::new();
    file.insert("router".into(), Value::Table(router(config)));
    file.insert("flows".into(), written(entries(&config.flows, &[])));
    let ports = config.ports.iter().map(|port| {
        let io = port.io.map(|io| ("io".to_owned(), Value::from(io.name())));
        let names = [("name", &port.name), ("interface", &port.interface)];
        let names = names.map(|(key, value)| (key.to_owned(), Value::from(value.as_str())));
        Value::Table(names.into_iter().chain(io).collect())
    });
    file.insert("port".into(), Value::Array(ports.collect()));
    let classes = config.classes.iter().map(|class| {
        let mut entry = Table::new();
        entry.insert("name".into(), class.name.as_str().into());
        if !class.rules.is_empty() {
            let rules = class.rules.iter().map(|one| Value::Table(rule(&one.matching)));
            entry.insert("match".into(), Value::Array(rules.collect()));
        }
        if let Some(service) = class.service.and_then(|at| config.services.get(usize::from(at))) {
            entry.insert("service".into(), service.name.as_str().into());
        }
        Value::Table(entry)
    });
    if !config.services.is_empty() {
        let services = config.services.iter().map(service);
        file.insert("service".into(), Value::Array(services.collect()));
    }
    file.insert("class".into(), Value::Array(classes.collect()));
    file.insert(
        "link".into(),
        Value::Array(config.links.iter().map(|l| link(l, &names)).collect()),
    );
    if let Some(fairdrop) = &config.fairdrop {
        file.insert("fairdrop".into(), written(entries(fairdrop, &names)));
    }
    if let Some(section) = &config.cluster {
        file.insert("cluster".into(), written(entries(section, &names)));
    }
    if let Some(section) = &config.balancer {
        file.insert("balancer".into(), written(entries(section, &names)));
    }
    file.to_string()
}

/// A table of keys and their values as a file has them.
fn written(entries: impl IntoIterator<Item = (impl Display, String)>) -> Value {
    let body: String =
        entries.into_iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    Value::Table(body.parse().expect("every entry is a key and its value in TOML"))
}

fn table<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn router(config: &RouterConfig) -> Table {
    let section = &config.router;
    let hairpin = match section.hairpin {
        Hairpin::Forward => "forward",
        Hairpin::Drop => "drop",
    };
    let cpu = section.cpu.map(|cpu| ("cpu", i64::from(cpu).into()));
    let list = || Value::Array(section.cpus.iter().map(|cpu| i64::from(*cpu).into()).collect());
    let cpus = (!section.cpus.is_empty()).then(|| ("cpus", list()));
    [
        ("name", section.name.as_str().into()),
        ("mode", section.mode.name().into()),
        ("spin", time_text(section.spin).into()),
        ("workers", i64::from(section.workers).into()),
        ("io", section.io.name().into()),
        ("cycles", section.cycles.into()),
        ("control", section.control.to_string_lossy().into_owned().into()),
        ("buffers", i64::from(section.buffers).into()),
        ("buffer_size", size_text(section.buffer_size).into()),
        ("hairpin", hairpin.into()),
        ("icmp_per_second", i64::from(section.icmp_per_second).into()),
        ("neighbour_wait", i64::from(section.neighbour_wait).into()),
        ("max_catch_up", time_text(section.max_catch_up).into()),
        ("heartbeat", time_text(section.heartbeat).into()),
    ]
    .into_iter()
    .chain(cpu)
    .chain(cpus)
    // TOML has no numbers above 2^63; the seed of a hash loses nothing by one bit.
    .chain(section.seed.map(|seed| ("seed", ((seed & i64::MAX as u64) as i64).into())))
    .map(|(key, value): (&str, Value)| (key.to_owned(), value))
    .collect()
}

fn service(service: &ServiceConfig) -> Value {
    let work = match &service.work {
        Work::Spin(cycles) => {
            table([("kind", "spin".into()), ("cycles", (cycles.0 as i64).into())])
        }
        Work::Acl(acl) => {
            let action = |permit: bool| Value::from(if permit { "permit" } else { "deny" });
            let rules = acl.rules.iter().map(|(matching, permit)| {
                let mut entry = rule(matching);
                entry.insert("action".into(), action(*permit));
                Value::Table(entry)
            });
            table([
                ("kind", "acl".into()),
                ("rules", Value::Array(rules.collect())),
                ("fill", i64::from(acl.fill).into()),
                ("default", action(acl.permit)),
            ])
        }
        Work::Esp(esp) => {
            let df = match esp.df {
                OuterDf::Copy => "copy",
                OuterDf::Set => "set",
                OuterDf::Clear => "clear",
            };
            let mut entry = [
                ("kind", Value::from("esp")),
                ("local", esp.local.to_string().into()),
                ("remote", esp.remote.to_string().into()),
                ("spi", i64::from(esp.spi).into()),
                ("key", key_text(&esp.key).into()),
                ("esn", esp.esn.into()),
                ("df", df.into()),
                ("ttl", i64::from(esp.ttl).into()),
            ]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect::<Table>();
            if let Some(dscp) = esp.dscp {
                entry.insert("dscp".into(), i64::from(dscp).into());
            }
            Value::Table(entry)
        }
    };
    table([("name", service.name.as_str().into()), ("work", work)])
}

fn rule(matching: &Match) -> Table {
    let Match { dscp, source, destination, protocol, source_port, destination_port } = matching;
    let mut entry = Table::new();
    if let Some(set) = dscp {
        let values =
            (0..64u8).filter(|value| set.contains(*value)).map(|value| i64::from(value).into());
        entry.insert("dscp".into(), Value::Array(values.collect()));
    }
    let prefixes = [("source", source), ("destination", destination)];
    for (key, prefix) in
        prefixes.iter().filter_map(|(key, prefix)| prefix.map(|prefix| (key, prefix)))
    {
        entry.insert((*key).into(), prefix.to_string().into());
    }
    if let Some(protocol) = protocol {
        entry.insert("protocol".into(), i64::from(*protocol).into());
    }
    for (key, range) in [("source_port", source_port), ("destination_port", destination_port)] {
        if let Some(range) = range {
            entry.insert(key.into(), format!("{}-{}", range.start(), range.end()).into());
        }
    }
    entry
}

fn link(link: &LinkConfig, classes: &[&str]) -> Value {
    let mut entry = table_of(link.core.entries(), classes);
    entry.insert("port".into(), link.port.as_str().into());
    entry.insert("discipline".into(), discipline(&link.discipline, classes));
    if let Some(turned) = &link.control {
        let kind = ("kind", "\"lct\"".to_owned());
        entry.insert("control".into(), written([kind].into_iter().chain(entries(turned, classes))));
    }
    if let Some(admission) = &link.admission {
        entry.insert("admission".into(), written(entries(admission, &[])));
    }
    Value::Table(entry)
}

fn discipline(discipline: &DisciplineConfig, classes: &[&str]) -> Value {
    let mut entry = table_of(discipline.entries(), classes);
    entry.insert("kind".into(), discipline.name().into());
    if let DisciplineConfig::Own(own) = discipline {
        let settings: Table = own_settings(own).expect("the parser has read a table");
        entry.insert("name".into(), own.name.as_str().into());
        entry.insert("settings".into(), Value::Table(settings));
    }
    Value::Table(entry)
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
        config.router.hairpin = Hairpin::Drop;
        survives(&config);
    }
}
