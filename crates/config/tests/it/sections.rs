//! Every declared setting of every section can be set to another value; that is written, read back
//! as the same, told by the difference, and named in reference and schema.

use evenkeel_config::cluster::{BalancerForwarder, ClusterLink};
use evenkeel_config::subscribers::TreeSection;
use evenkeel_config::{
    BalancerSection, ClassConfig, ClusterSection, LatencyControl, LctControl, MembershipSection,
    PortConfig, RouterConfig, RouterSection, ServiceConfig, diff, reference_markdown,
    router_schema, tables,
};
use evenkeel_core::admit::{AdmissionConfig, FlowsConfig};
use evenkeel_core::class_map::Match;
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::link;
use evenkeel_core::settings::{Key, Kind, Presence, Section, Settings, Value};
use evenkeel_core::{BitRate, Bytes, Nanos};

/// Where keys of a section can stand.
struct Case {
    section: &'static Section,
    /// What stands before the keys.
    before: String,
    /// What stands in the section besides, in turns: with one of these a key must go.
    bases: &'static [&'static [(&'static str, &'static str)]],
}

const PORTS: &str = "[[port]]\nname = \"wan\"\ninterface = \"eth0\"\n[[port]]\nname = \
                     \"spare\"\ninterface = \"eth1\"\n[[port]]\nname = \"third\"\ninterface = \
                     \"eth2\"\n[[service]]\nname = \"spare\"\nwork = { kind = \"spin\", cycles = 7 \
                     }\n[[class]]\nname = \"voice\"\n[[class]]\nname = \"bulk\"\n[[link]]\nport = \
                     \"spare\"\nrate = \"2Mbit/s\"\n";
/// A list of subscribers.
const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/subscribers.csv");
/// Keys of `[[tree]]` that name files, and say what these are: tests of lists have them.
const OF_LISTS: [&str; 3] = ["subscribers", "nodes", "format"];
const WAN: &str = "[[link]]\nport = \"wan\"\nrate = \"10Mbit/s\"\n";
const CLUSTER: &str = "[cluster]\nnode = 1\nport = \"wan\"\nmembers = [1, 2]\n\
                       rate = \"10Mbit/s\"\nvlan = 5\n\
                       [[cluster.link]]\nname = \"out\"\nport = \"third\"\n";

fn case(
    section: &'static Section,
    before: &str,
    bases: &'static [&'static [(&'static str, &'static str)]],
) -> Case {
    Case { section, before: format!("{PORTS}{before}"), bases }
}

fn of<S: Settings>(
    before: &str,
    bases: &'static [&'static [(&'static str, &'static str)]],
) -> Case {
    case(S::SECTION, before, bases)
}

/// The section of a nested table: of the key `key` of `S`, with `kind` where there are several.
fn nested(section: &'static Section, key: &str, kind: &str) -> &'static Section {
    match section.key(key).map(|key| &key.kind) {
        Some(Kind::Table(section) | Kind::Tables { section, .. }) => section,
        Some(Kind::Variants(all)) => all.iter().find(|(name, _)| *name == kind).unwrap().1,
        other => panic!("{key}: {other:?}"),
    }
}

fn cases() -> Vec<Case> {
    let work = |kind| nested(ServiceConfig::SECTION, "work", kind);
    let rule = |kind| nested(FairDropConfig::SECTION, "rule", kind);
    let esp: &[(&str, &str)] = &[
        ("local", "\"10.0.0.1\""),
        ("remote", "\"10.0.0.2\""),
        ("spi", "300"),
        ("key", "\"0x000102030405060708090a0b0c0d0e0f10111213\""),
    ];
    let esp: &'static [_] = Box::leak(Box::new([&*Box::leak(esp.to_vec().into_boxed_slice())]));
    let mut all = vec![
        of::<RouterSection>("[router]\n", &[&[], &[("workers", "2")], &[("mode", "\"adaptive\"")]]),
        of::<PortConfig>("[[port]]\n", &[&[("name", "\"last\""), ("interface", "\"eth3\"")]]),
        of::<ClassConfig>("[[class]]\n", &[&[("name", "\"last\"")]]),
        of::<Match>("[[class]]\nname = \"last\"\n[[class.match]]\n", &[&[("protocol", "17")]]),
        of::<ServiceConfig>(
            "[[service]]\n",
            &[&[("name", "\"last\""), ("work", "{ kind = \"spin\", cycles = 3 }")]],
        ),
        case(
            work("spin"),
            "[[service]]\nname = \"last\"\n[service.work]\nkind = \"spin\"\n",
            &[&[("cycles", "5")]],
        ),
        case(work("acl"), "[[service]]\nname = \"last\"\n[service.work]\nkind = \"acl\"\n", &[&[]]),
        case(work("esp"), "[[service]]\nname = \"last\"\n[service.work]\nkind = \"esp\"\n", esp),
        case(
            nested(work("acl"), "rules", ""),
            "[[service]]\nname = \"last\"\n[service.work]\nkind = \
             \"acl\"\n[[service.work.rules]]\n",
            &[&[("action", "\"permit\""), ("protocol", "17")]],
        ),
        of::<FlowsConfig>("[flows]\n", &[&[]]),
        of::<link::LinkConfig>("[[link]]\nport = \"third\"\n", &[&[], &[("rate", "\"5Mbit/s\"")]]),
        case(
            nested(link::LinkConfig::SECTION, "ring", ""),
            "[[link]]\nport = \"third\"\nrate = \"5Mbit/s\"\n[link.ring]\n",
            &[&[("slots", "5")]],
        ),
        case(
            nested(link::LinkConfig::SECTION, "shaper", ""),
            "[[link]]\nport = \"third\"\n[link.shaper]\n",
            &[&[("rate", "\"4Mbit/s\""), ("burst", "\"5000B\"")]],
        ),
        of::<LctControl>(
            &format!("{WAN}discipline = {{ kind = \"lct\" }}\n[link.control]\nkind = \"lct\"\n"),
            &[&[], &[("delay_degraded", "\"60s\"")], &[("x_min", "\"1ns\"")]],
        ),
        of::<LatencyControl>(
            &format!("{WAN}[link.control]\nkind = \"latency\"\n"),
            &[&[("min", "\"1Mbit/s\""), ("max", "\"20Mbit/s\""), ("line", "\"third\"")]],
        ),
        of::<AdmissionConfig>(
            &format!("{WAN}discipline = {{ kind = \"pdrr\" }}\n[link.admission]\n"),
            &[&[], &[("second_link", "\"spare\"")]],
        ),
        of::<FairDropConfig>("[fairdrop]\n", &[&[], &[("groups", "\"class\"")]]),
        of::<ClusterSection>(
            "[cluster]\n",
            &[&[
                ("node", "1"),
                ("port", "\"wan\""),
                ("members", "[1, 2, 65535]"),
                ("vlan", "5"),
                ("rate", "\"10Mbit/s\""),
                ("link", "[{ name = \"out\", port = \"third\" }]"),
            ]],
        ),
        of::<ClusterLink>(
            "[cluster]\nnode = 1\nport = \"wan\"\nmembers = [1, 2]\nrate = \"10Mbit/s\"\n\
             vlan = 5\n[[cluster.link]]\n",
            &[&[("name", "\"out\""), ("port", "\"third\"")]],
        ),
        of::<BalancerSection>(
            "[balancer]\n",
            &[&[("port", "\"wan\""), ("forwarder", "[{ id = 1, mac = \"02:00:00:00:00:01\" }]")]],
        ),
        of::<BalancerForwarder>(
            "[balancer]\nport = \"wan\"\n[[balancer.forwarder]]\nid = 9\nmac = \
             \"02:00:00:00:00:09\"\n[[balancer.forwarder]]\n",
            &[&[("id", "1"), ("mac", "\"02:00:00:00:00:01\"")]],
        ),
        of::<MembershipSection>(
            &format!("{CLUSTER}[membership]\n"),
            &[
                &[("endpoints", "[\"http://127.0.0.1:1\"]")],
                &[
                    ("endpoints", "[\"https://127.0.0.1:1\"]"),
                    ("ca", "\"ca.pem\""),
                    ("cert", "\"me.pem\""),
                    ("key", "\"me.key\""),
                    ("user", "\"me\""),
                    ("password_file", "\"word\""),
                ],
            ],
        ),
    ];
    let list: &'static str = Box::leak(format!("{LIST:?}").into_boxed_str());
    let tree: &'static [_] = Box::leak(Box::new([("subscribers", list), ("down", "\"wan\"")]));
    all.push(of::<TreeSection>(&format!("{WAN}[[tree]]\n"), Box::leak(Box::new([tree]))));
    // `own` and `linux` have required keys of their own, and tests of their own.
    let built_in = |(kind, _): &&(&str, &_)| !["own", "linux"].contains(kind);
    for (kind, section) in tables::DISCIPLINES.iter().filter(built_in) {
        let tree = format!("[[tree]]\nsubscribers = {LIST:?}\ndown = \"wan\"\n");
        let tree = if *kind == "tree" { tree } else { String::new() };
        let before = format!("{tree}{WAN}[link.discipline]\nkind = {kind:?}\n");
        all.push(case(
            section,
            &before,
            &[&[], &[("select", "\"hash-flow\"")], &[("drop", "\"longest\"")]],
        ));
        for key in section.keys() {
            if let Kind::Table(inner) = key.kind {
                all.push(case(inner, &format!("{before}[link.discipline.{}]\n", key.name), &[&[]]));
            }
        }
    }
    for kind in ["level", "kappa", "fixed", "mimd-batch", "mimd-ring"] {
        let before = format!("[fairdrop]\n[fairdrop.rule]\nkind = {kind:?}\n");
        all.push(case(
            rule(kind),
            &before,
            &[&[], &[("high", "4096")], &[("low", "1")], &[("min", "1")], &[("max", "1000000000")]],
        ));
    }
    all
}

/// Values that a key of this kind may hold, as in a file.
fn values(kind: &Kind) -> Vec<String> {
    let said = |values: Vec<Value>| values.iter().map(|value| value.inline(&[])).collect();
    let texts = |texts: &[&str]| texts.iter().map(|text| format!("{text:?}")).collect();
    match kind {
        Kind::Switch => said(vec![true.into(), false.into()]),
        Kind::Integer { min, max, .. } => {
            said([*min, *max, min + 1, min + 2].map(Value::from).to_vec())
        }
        Kind::Number { min, max } => said(
            [*min, *max, (min + max) / 2.0, min + (max - min) / 1_000.0]
                .map(Value::Number)
                .to_vec(),
        ),
        Kind::Time { min, max } => {
            let (min, max) = (min.0, max.0);
            let second = 1_000_000_000;
            let times = [min, max, max / 64, max / 1_024, min + 1, 2 * second, second / 8];
            said(times.map(|time| Nanos(time).into()).to_vec())
        }
        Kind::Rate { min, max } => said([*min, *max, BitRate(min.0 + 1)].map(Value::from).to_vec()),
        Kind::Size { min, max } => {
            said([*min, *max, Bytes(min.0 + 1), Bytes(4_096)].map(Value::from).to_vec())
        }
        Kind::Choice(words) => words.iter().rev().map(|(word, _)| format!("{word:?}")).collect(),
        Kind::Prefix => texts(&["10.9.0.0/16", "2001:db8:9::/48"]),
        Kind::Address => texts(&["10.9.0.1"]),
        Kind::Name(_) => texts(&["spare", "third", "another"]),
        Kind::Interface => texts(&["eth9"]),
        Kind::Path => texts(&["/tmp/another"]),
        Kind::Text => texts(&["http://127.0.0.2:2", "/another"]),
        Kind::Form(..) => texts(&["02:00:00:00:00:77"]),
        Kind::Secret(..) => {
            texts(&[&"ab".repeat(16), &format!("{}ab", "0c".repeat(19)), &"4c80cdef".repeat(5)])
        }
        Kind::Named { names, .. } => texts(&[names[0].0, names[1].0]),
        Kind::Ports => texts(&["7-9", "53"]),
        Kind::List(of) => values(of).iter().map(|one| format!("[{one}]")).collect(),
        Kind::Table(section) => tables_of(section, ""),
        Kind::Tables { section, .. } => {
            tables_of(section, "").iter().map(|one| format!("[{one}]")).collect()
        }
        Kind::Variants(all) => all
            .iter()
            .flat_map(|(kind, section)| tables_of(section, &format!("kind = {kind:?}")))
            .collect(),
        Kind::ByClass(of, _) => {
            values(of).iter().map(|one| format!("{{ bulk = {one} }}")).collect()
        }
        Kind::Foreign(_) => Vec::new(),
    }
}

/// Tables with what is required, and with one key besides.
fn tables_of(section: &'static Section, kind: &str) -> Vec<String> {
    let line = |key: &Key| format!("{} = {}", key.name, values(&key.kind)[0]);
    let required = section.keys().filter(|key| matches!(key.presence, Presence::Required));
    let kind = Some(kind.to_owned()).filter(|kind| !kind.is_empty());
    let required: Vec<_> = kind.into_iter().chain(required.map(line)).collect();
    let with = |key: &Key| {
        let more = (!matches!(key.presence, Presence::Required)).then(|| line(key));
        format!("{{ {} }}", required.iter().cloned().chain(more).collect::<Vec<_>>().join(", "))
    };
    section.keys().map(with).collect()
}

impl Case {
    fn file(&self, base: &[(&str, &str)], key: &Key, value: Option<&str>) -> String {
        let mut text = self.before.clone();
        let apart = |name: &str| name == key.name || key.instead_of == Some(name);
        let with = key.with.filter(|(other, _)| base.iter().all(|(name, _)| name != other));
        for (name, value) in base.iter().filter(|(name, _)| value.is_none() || !apart(name)) {
            text.push_str(&format!("{name} = {value}\n"));
        }
        if let Some((other, words)) = with {
            text.push_str(&format!("{other} = {:?}\n", words[0]));
        }
        value.iter().for_each(|value| text.push_str(&format!("{} = {value}\n", key.name)));
        text
    }

    /// Two configurations that differ in this key only, and what was tried in vain.
    fn differing(&self, key: &Key) -> Result<(RouterConfig, RouterConfig), String> {
        let mut refused = String::new();
        for base in self.bases {
            let before = self.file(base, key, None);
            let before = match RouterConfig::parse(&before, "r.toml") {
                Ok(before) => before,
                Err(errors) => {
                    refused = format!("{errors}\n{before}");
                    continue;
                }
            };
            for value in values(&key.kind) {
                let text = self.file(base, key, Some(&value));
                match RouterConfig::parse(&text, "r.toml") {
                    Ok(after) if after != before => return Ok((before, after)),
                    Ok(_) => {}
                    Err(errors) => refused = format!("{errors}\n{text}"),
                }
            }
        }
        Err(refused)
    }
}

fn survives(config: &RouterConfig) {
    let text = config.text();
    let read = RouterConfig::parse(&text, "r.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(read, *config, "{text}");
    let text = config.short_text();
    let read = RouterConfig::parse(&text, "r.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(read, *config, "{text}");
}

#[test]
fn every_setting_of_every_section_is_written_read_told_and_documented() {
    let (page, schema) = (reference_markdown(), router_schema());
    let cases = cases();
    let mut wrong = Vec::new();
    for case in &cases {
        let documented = page.split("\n## ").filter(|one| {
            one.starts_with(&format!("`{}`", case.section.heading))
                || case.section.heading.is_empty()
        });
        let documented: String = documented.collect();
        for key in case.section.keys().filter(|key| !OF_LISTS.contains(&key.name)) {
            let name = format!("{} {}", case.section.name(), key.name);
            let (before, after) = match case.differing(key) {
                Ok(pair) => pair,
                Err(tried) => {
                    wrong.push(format!("{name}: no other value\n{tried}"));
                    continue;
                }
            };
            survives(&before);
            survives(&after);
            let told = diff(&before, &after).join("\n");
            // A list that differs is told as a whole, and what is new as such.
            let whole = ["other rules", "other work", "is new", "become", "global list"];
            if !told.contains(key.name) && !whole.iter().any(|words| told.contains(words)) {
                wrong.push(format!("{name}: not told, but {told:?}"));
            }
            if !documented.contains(&format!("| `{}` |", key.name)) {
                wrong.push(format!("{name}: not in the reference"));
            }
            if !schema.contains(&format!("\"{}\": {{", key.name)) {
                wrong.push(format!("{name}: not in the schema"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let names = |one: &Section| one.keys().map(|key| key.name).collect::<Vec<_>>();
    // The file itself and its links are tables of these; disciplines of the user's own and of the
    // kernel have none.
    let without = ["router.toml", "[[link]]", tables::OWN.heading, tables::LINUX.heading];
    for section in tables::all() {
        let apart = without.contains(&section.heading);
        let same = |one: &Section| one.heading == section.heading && names(one) == names(section);
        let tried = cases.iter().any(|case| same(case.section));
        assert!(apart || tried, "no case for {}", section.heading);
    }
}
