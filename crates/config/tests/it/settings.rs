//! Every key of a section can be set, is read back, and appears in files and differences.

use std::fmt::Debug;

use evenkeel_config::{RouterConfig, diff};
use evenkeel_core::admit::{AdmissionConfig, FlowsConfig};
use evenkeel_core::drop::{FairDropConfig, Groups};
use evenkeel_core::settings::{Key, Kind, Name, Settings, Value};
use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_settings::{change_of, changes, entries};

const CLASSES: [&str; 2] = ["voice", "bulk"];

/// Values that a key of this kind may hold, as a command line says them.
fn values(kind: &Kind) -> Vec<String> {
    let said = |values: [Value; 4]| values.map(|value| value.plain(&[])).to_vec();
    match kind {
        Kind::Switch => said([true.into(), false.into(), true.into(), false.into()]),
        Kind::Integer { min, max, .. } => said([*min, *max, min + 1, min + 2].map(Value::from)),
        Kind::Number { min, max } => {
            said([*min, *max, (min + max) / 2.0, min + (max - min) / 1_000.0].map(Value::Number))
        }
        Kind::Time { min, max } => {
            let [min, max] = [min.0, max.0];
            said([min, max, max / 64, max / 1_024].map(|time| Nanos(time).into()))
        }
        Kind::Rate { min, max } => said([*min, *max, BitRate(min.0 + 1), *max].map(Value::from)),
        Kind::Size { min, max } => said([*min, *max, Bytes(min.0 + 1), *max].map(Value::from)),
        Kind::Choice(words) => words.iter().map(|(word, _)| (*word).to_owned()).collect(),
        Kind::Variants(kinds) => {
            kinds.iter().map(|(kind, _)| format!("{{ kind = {kind:?} }}")).collect()
        }
        Kind::Prefix => vec!["10.9.0.0/16".to_owned()],
        Kind::Address => vec!["10.9.0.1".to_owned()],
        Kind::Name(_) => vec!["spare".to_owned()],
        Kind::List(of) => values(of).iter().map(|one| format!("[{one:?}]")).collect(),
        Kind::ByClass(of, _) => {
            values(of).iter().map(|one| format!("{{ bulk = {one} }}")).collect()
        }
        other => panic!("no values for {other:?}"),
    }
}

/// Sets every key of `base` but one to something else: `read` makes a file of what is written,
/// `differs` says what differs from the file of `base`.
fn every_key<S: Settings + Debug>(
    base: &S,
    without: &str,
    read: impl Fn(&str) -> RouterConfig,
    of: impl Fn(RouterConfig) -> S,
) {
    let text = |settings: &S| -> String {
        entries(settings, &CLASSES)
            .into_iter()
            .map(|(key, value)| format!("{key} = {value}\n"))
            .collect()
    };
    let before = read(&text(base));
    assert_eq!(of(before.clone()), *base);
    for key in S::SECTION.keys().filter(|key| key.name != without) {
        let changed = another(base, key);
        let after = read(&text(&changed));
        assert_eq!(of(after.clone()), changed, "{}", key.name);
        assert_eq!(of(read(&text(base))), *base);
        let told: Vec<_> =
            changes(base, &changed, &CLASSES).iter().map(|told| told.key.name).collect();
        assert_eq!(told, [key.name]);
        assert!(!diff(&before, &after).is_empty(), "{}", key.name);
    }
}

/// The same with another value for one key.
fn another<S: Settings + Debug>(base: &S, key: &Key) -> S {
    let values = values(&key.kind);
    let with = |value: &String| {
        let change = change_of(S::SECTION, key.name, value, &CLASSES).ok()?;
        let mut changed = base.clone();
        changed.set(&change, 2).ok()?;
        let other = changed != *base;
        assert_eq!(changed.get(key.name), Some(change.value), "{}", key.name);
        other.then_some(changed)
    };
    values.iter().find_map(with).unwrap_or_else(|| panic!("{}: none of {values:?}", key.name))
}

/// A file with two ports and two classes.
fn file(rest: &str) -> RouterConfig {
    let text = format!(
        "[[port]]\nname = \"wan\"\ninterface = \"eth0\"\n[[port]]\nname = \"spare\"\ninterface = \
         \"eth1\"\n\
         [[class]]\nname = \"voice\"\n[[class]]\nname = \"bulk\"\n[[link]]\nport = \"spare\"\nrate \
         = \"2Mbit/s\"\n\
         [[link]]\nport = \"wan\"\nrate = \"10Mbit/s\"\ndiscipline = {{ kind = \"pdrr\" }}\n{rest}"
    );
    RouterConfig::parse(&text, "r.toml").unwrap_or_else(|errors| panic!("{errors}\n{rest}"))
}

#[test]
fn every_key_of_an_admission() {
    let mut base = AdmissionConfig::default();
    base.second_link.port = Some(Name("spare".to_owned()));
    let read = |body: &str| file(&format!("[link.admission]\n{body}"));
    let of =
        |config: RouterConfig| config.link("wan").and_then(|link| link.admission.clone()).unwrap();
    every_key(&base, "second_link", read, of);
    every_key(&AdmissionConfig::default(), "second_via", read, of);
}

#[test]
fn every_key_of_fairdrop() {
    let read = |body: &str| file(&format!("[fairdrop]\n{body}"));
    let of = |config: RouterConfig| config.fairdrop.unwrap();
    every_key(&FairDropConfig::default(), "group_weight", read, of);
    every_key(&FairDropConfig { groups: Groups::Class, ..FairDropConfig::default() }, "", read, of);
}

#[test]
fn every_key_of_the_flows() {
    every_key(
        &FlowsConfig::default(),
        "",
        |body| file(&format!("[flows]\n{body}")),
        |config| config.flows,
    );
}
