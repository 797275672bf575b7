//! `[link.admission]`, `[flows]` and the flow-aware disciplines: defaults, what contradicts what,
//! live changes.

use evenkeel_config::{DisciplineConfig, LinkChange, RouterConfig, diff, parse_change};
use evenkeel_core::admit::{
    AdmissionConfig, EmergencyRule, Flush, OnLink, RouterListsConfig, SecondLinkPolicy,
};
use evenkeel_core::schedule::afan::AfanConfig;
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::pfq::PfqConfig;
use evenkeel_core::settings::{self, Settings};
use evenkeel_core::units::Ppm;
use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_settings::changes;

const PORTS: &str = "[[port]]\nname = \"wan\"\ninterface = \"eth0\"\n[[port]]\nname = \
                     \"spare\"\ninterface = \"eth1\"\n";

fn parse(rest: &str) -> Result<RouterConfig, String> {
    RouterConfig::parse(&format!("{PORTS}{rest}"), "r.toml").map_err(|errors| errors.to_string())
}

fn link(rest: &str) -> String {
    format!("[[link]]\nport = \"wan\"\nrate = \"10Mbit/s\"\n{rest}")
}

/// What is not as by default.
fn given(admission: &AdmissionConfig) -> Vec<(String, String)> {
    let changed = changes(&AdmissionConfig::default(), admission, &[]);
    changed.into_iter().map(|changed| (changed.name, changed.is)).collect()
}

#[test]
fn an_empty_table_is_the_default_of_the_core() {
    let config = parse(&link("discipline = { kind = \"pdrr\" }\nadmission = {}")).unwrap();
    assert_eq!(
        config.admission("wan").unwrap(),
        Some(AdmissionConfig::new(BitRate::from_mbps(10)))
    );
    assert_eq!(config.admission("spare").unwrap(), None);
    assert!(
        config
            .link("wan")
            .unwrap()
            .admission
            .as_ref()
            .is_some_and(|one| *one == AdmissionConfig::default())
    );
    let RouterListsConfig { flows, flow_timeout, k_add } = config.flows.lists;
    assert_eq!((flows, flow_timeout, k_add), (100_000, Nanos::from_secs(20), 1));
    for (kind, default) in [
        ("pfq", DisciplineConfig::Pfq(PfqConfig::default())),
        ("pdrr", DisciplineConfig::Pdrr(PdrrConfig::default())),
        ("afan", DisciplineConfig::Afan(AfanConfig::default())),
    ] {
        let config = parse(&link(&format!("discipline = {{ kind = {kind:?} }}"))).unwrap();
        assert_eq!(config.link("wan").unwrap().discipline, default);
    }
}

#[test]
fn every_mechanism_arrives_in_the_core() {
    let config = parse(&format!(
        "[flows]\nemergency_sources = [\"10.1.0.0/16\"]\n{}\n[[link]]\nport = \"spare\"\nrate = \
         \"2Mbit/s\"",
        link(
            "discipline = { kind = \"pfq\" }\n[link.admission]\nrate = \"9Mbit/s\"\neccm = \
             true\nmax_accept_delay = \"2s\"\n\
             global_list = true\nper_user = true\nuser_flows = 3\nflushing = \"rbaef\"\nemergency \
             = \"thresholds\"\n\
             second_link = \"spare\"\nsecond_link_policy = \"oldest\"\nprobation = \"0s\"\nbudget \
             = false"
        )
    ))
    .unwrap();
    let core = config.admission("wan").unwrap().unwrap();
    assert_eq!(core.rate, BitRate::from_mbps(9));
    assert_eq!(core.eccm.max_accept_delay, Nanos::from_secs(2));
    assert_eq!((core.global_list, core.per_user.flows), (true, 3));
    assert_eq!(core.flushing.kind, Flush::Rbaef);
    let emergency = core.emergency;
    assert_eq!(emergency.sources.len(), 1);
    assert_eq!(emergency.rule, EmergencyRule::Thresholds);
    assert_eq!(
        (emergency.min_fair_rate, emergency.max_priority_load),
        (Ppm(25_000), Ppm::percent(80))
    );
    let second = core.second_link;
    assert_eq!(
        (second.rate, second.policy),
        (Some(BitRate::from_mbps(2)), SecondLinkPolicy::Oldest)
    );
    assert!(core.eccm.on && core.per_user.on && !core.budget.on);
    assert_eq!(core.probation, Nanos::ZERO);
}

#[test]
fn what_makes_no_sense_is_refused_with_its_line_and_reason() {
    for (text, hint) in [
        (
            link("discipline = { kind = \"fifo\" }\nadmission = {}"),
            "r.toml:11: link.admission.min_fair_rate: discipline \"fifo\" measures no fair rate",
        ),
        (
            "[[link]]\nport = \"wan\"\ndiscipline = { kind = \"pfq\" }\nadmission = {}".to_owned(),
            "give admission a `rate`",
        ),
        (
            link("discipline = { kind = \"pfq\" }\nadmission = { min_fair_rate = 1.2 }"),
            "1.2 is out of range; valid: 0 to 1",
        ),
        (
            link("discipline = { kind = \"pfq\" }\nadmission = { probation = \"30s\" }"),
            "admission.probation: above flow_timeout",
        ),
        (
            link("discipline = { kind = \"pfq\" }\nadmission = { second_link = \"wan\" }"),
            "not its own second link",
        ),
        (
            link("discipline = { kind = \"pfq\" }\nadmission = { second_link = \"spar\" }"),
            "did you mean \"spare\"?",
        ),
        (
            link("discipline = { kind = \"pfq\" }\nadmission = { second_link = \"spare\" }"),
            "its second link has no rate",
        ),
        (
            link("discipline = { kind = \"pfq\" }\nadmission = { second_via = \"10.0.0.1\" }"),
            "only together with `second_link`",
        ),
        (
            link("discipline = { kind = \"pdrr\", buffer = 9, buffer_bytes = \"9000B\" }"),
            "only one of `buffer` and `buffer_bytes`",
        ),
        (
            link("discipline = { kind = \"pfq\", afl_linger = \"1s\" }"),
            "pfq has no such knob; it is one of pdrr",
        ),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(hint), "{text}\n{error}");
    }
}

#[test]
fn knobs_change_while_packets_flow() {
    let change = |knob: &str, value: &str| parse_change(knob, None, value, &[]);
    let config = parse(&link("discipline = { kind = \"pdrr\" }\nadmission = {}")).unwrap();
    let mut admission = config.link("wan").unwrap().admission.clone().unwrap();
    for (key, value) in [
        ("eccm", "false"),
        ("max_accept_delay", "2s"),
        ("min_fair_rate", "0.049"),
        ("flushing", "efm"),
    ] {
        let LinkChange::Admission(change) = change(&format!("admission.{key}"), value).unwrap()
        else {
            panic!("{key}")
        };
        admission.set_live(&change, 1).unwrap();
        assert!(given(&admission).contains(&(key.to_owned(), value.to_owned())), "{key}");
    }
    assert_eq!(given(&admission).len(), 4, "{:?}", given(&admission));
    let on_link = OnLink { rate: Some(BitRate::from_mbps(10)), ..OnLink::default() };
    let core = admission.on_link(on_link, &config.flows).unwrap();
    assert_eq!(core.min_fair_rate, Ppm(49_000));
    for (key, value) in [("second_link", "spare"), ("flows", "5")] {
        let LinkChange::Admission(change) = change(&format!("admission.{key}"), value).unwrap()
        else {
            panic!("{key}")
        };
        assert!(admission.set_live(&change, 1).is_err(), "{key}");
    }
    assert!(matches!(change("admission", "off"), Ok(LinkChange::WholeAdmission(None))));
    let Ok(LinkChange::WholeAdmission(Some(whole))) = change("admission", "{ eccm = false }")
    else {
        panic!()
    };
    assert_eq!(given(&whole), [("eccm".to_owned(), "false".to_owned())]);
    let setting =
        |key, value: settings::Value| Ok(LinkChange::Setting(settings::Change::new(key, value)));
    assert_eq!(change("start_limit", "none"), setting("start_limit", settings::Value::Absent));
    assert_eq!(change("start_limit", "4500B"), setting("start_limit", Bytes(4_500).into()));
    assert_eq!(change("buffer", "64"), setting("buffer", 64_u32.into()));
    let mut discipline = config.link("wan").unwrap().discipline.clone();
    discipline.set_live(&settings::Change::new("afl_linger", Nanos::from_millis(100)), 1).unwrap();
    assert!(matches!(
        discipline,
        DisciplineConfig::Pdrr(PdrrConfig { afl_linger: Nanos(100_000_000), .. })
    ));
    let mut other = config.clone();
    other.link_mut("wan").unwrap().admission = Some(admission);
    assert_eq!(diff(&config, &other).len(), 4, "{:?}", diff(&config, &other));
    other.link_mut("wan").unwrap().admission = None;
    assert_eq!(diff(&config, &other), ["link wan: admission: on becomes none"]);
}
