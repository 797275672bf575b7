//! What a declaration promises, on a declaration made for it.

use core::net::IpAddr;

use super::*;
use crate::prefix::Prefix;
use crate::units::{Bytes, Nanos, Ppm, Thousandths, Weight};
use crate::{settings, variants, words};

words! {
    /// Which packet goes.
    enum Rule {
        /// The one that arrives.
        #[default]
        Tail = "tail",
        /// The first of the longest.
        Longest = "longest",
    }
}

settings! {
    /// Numbers of flows.
    struct Flows: "" {
        /// Most flows.
        fixed flows: u32 = 100, in 1..=1_000, counting "flows";
    }
    plain {
        /// Seed of the hash.
        seed: u64 = 7;
    }
}

settings! {
    /// A queue.
    struct Queue: "queue = { kind = \"trial\", … }" {
        /// Weights.
        live weight: PerClass<Weight> = PerClass::all(Weight(100)), in 1..=10_000;
        /// Which packet goes.
        fixed rule: Rule = Rule::Tail;
        /// Most packets.
        live limit: u32 = 50, in 1..=500, counting "packets", with rule ["tail"];
        /// Most bytes.
        live high: Option<Bytes> = None, in 100..=1_000, absent "no bound", instead_of time;
        /// Most time.
        live time: Option<Nanos> = None, in 1..=1_000_000, absent "no bound", instead_of high;
        /// A share.
        live share: Ppm = Ppm::percent(5), between 0.01..=0.5;
    }
    parts {
        /// Flows.
        flows: Flows,
    }
    check Queue::fits
}

impl Queue {
    fn fits(&self) -> Result<(), SettingError> {
        if self.limit == 500 && self.share == Ppm::percent(50) {
            let message = "not 500 at half".into();
            return Err(SettingError::Contradiction { key: "limit", message });
        }
        Ok(())
    }
}

fn set(queue: &mut Queue, change: Change) -> Result<(), SettingError> {
    queue.set(&change, 2)
}

#[test]
fn every_key_is_read_back_as_it_was_put() {
    let mut queue = Queue::default();
    let values: [(&str, Value); 5] = [
        ("weight", Weight(3).into()),
        ("limit", 60_u32.into()),
        ("high", Bytes(200).into()),
        ("share", Ppm::percent(10).into()),
        ("flows", 12_u32.into()),
    ];
    for (key, value) in values {
        assert_eq!(queue.put(key, None, &value), Some(true), "{key}");
        assert_eq!(queue.get(key).map(|held| held.of_class(9).clone()), Some(value), "{key}");
    }
    assert_eq!((queue.flows.flows, queue.flows.seed), (12, 7));
    assert_eq!((queue.get("seed"), queue.put("seed", None, &1_u64.into())), (None, None));
}

#[test]
fn a_refused_change_changes_nothing() {
    let mut queue = Queue::default();
    for change in [
        Change::new("limit", 0_u32),
        Change::new("limit", 501_u32),
        Change::new("limit", true),
        Change::of("limit", Class(0), 5_u32),
        Change::of("weight", Class(2), Weight(5)),
        Change::of("weight", Class(0), Weight(0)),
        Change::new("flows", 0_u32),
        Change::new("share", Ppm::percent(60)),
        Change::new("nothing", 1_u32),
    ] {
        assert!(set(&mut queue, change.clone()).is_err(), "{change:?}");
        assert_eq!(queue, Queue::default(), "{change:?}");
    }
}

#[test]
fn settings_know_what_they_go_with() {
    let mut queue = Queue::default();
    set(&mut queue, Change::new("rule", Rule::Longest)).unwrap();
    let refused = set(&mut queue, Change::new("limit", 5_u32)).unwrap_err();
    assert_eq!(refused.to_string(), "limit: only together with rule = \"tail\"");
    set(&mut queue, Change::new("high", Bytes(100))).unwrap();
    set(&mut queue, Change::new("time", Nanos(10))).unwrap();
    assert_eq!((queue.high, queue.time), (None, Some(Nanos(10))), "one instead of the other");
    set(&mut queue, Change::new("time", None::<Nanos>)).unwrap();
    assert_eq!(queue.time, None);
    set(&mut queue, Change::new("rule", Rule::Tail)).unwrap();
    set(&mut queue, Change::new("limit", 500_u32)).unwrap();
    let refused = set(&mut queue, Change::new("share", Ppm::percent(50))).unwrap_err();
    assert_eq!(refused.to_string(), "limit: not 500 at half");
}

#[test]
fn fixed_settings_do_not_change_live() {
    let mut queue = Queue::default();
    let refused = queue.set_live(&Change::new("rule", Rule::Longest), 2).unwrap_err();
    assert_eq!(refused, SettingError::Fixed { key: "rule" });
    assert!(queue.set_live(&Change::new("limit", 5_u32), 2).is_ok());
}

#[test]
fn classes_have_their_own_values() {
    let mut queue = Queue::default();
    set(&mut queue, Change::of("weight", Class(1), Weight(30))).unwrap();
    assert_eq!([0, 1, 2].map(|class| queue.weight.get(class)), [100, 30, 100].map(Weight));
    let text = queue.get("weight").unwrap().inline(&["voice", "bulk"]);
    assert_eq!(text, "{ \"voice\" = 100, \"bulk\" = 30 }");
    set(&mut queue, Change::new("weight", Weight(7))).unwrap();
    assert_eq!(queue.weight, PerClass::all(Weight(7)));
}

#[test]
fn the_declaration_tells_all_there_is() {
    let names: Vec<_> = Queue::SECTION.keys().map(|key| key.name).collect();
    assert_eq!(names, ["weight", "rule", "limit", "high", "time", "share", "flows"]);
    let limit = Queue::SECTION.key("limit").unwrap();
    assert_eq!((limit.doc, limit.kind.range()), ("Most packets.", "1 to 500 packets".to_owned()));
    assert_eq!(limit.presence.default_text().unwrap(), "50");
    assert_eq!(Queue::SECTION.name(), "trial");
    assert_eq!(Queue::default().check(), Ok(()));
    assert_eq!(from_table::<Queue>(&table_of(&Queue::default())), Some(Queue::default()));
}

settings! {
    /// A threshold that stays.
    struct Still: "rule = { kind = \"still\", … }" {
        /// Where.
        live at: Thousandths = Thousandths(1_500), between 1.0..=2.0;
    }
}

settings! {
    /// A threshold that moves.
    struct Moving: "rule = { kind = \"moving\", … }" {
        /// From here.
        live low: u32 = 1;
        /// To here.
        live high: u32 = 5, in 1..=9;
    }
    check |moving: &Self| match moving.low <= moving.high {
        true => Ok(()),
        false => Err(SettingError::Contradiction { key: "low", message: "above high".into() }),
    }
}

variants! {
    /// A threshold.
    enum Threshold {
        /// It stays.
        Still(Still) = "still",
        /// It moves.
        Moving(Moving) = "moving",
    }
}

settings! {
    /// Who may pass.
    struct Gate: "[gate]" {
        /// When.
        live threshold: Threshold = Threshold::Still(Still::default());
        /// Who.
        reload who as from: Vec<Prefix> = Vec::new(), absent "nobody";
        /// Where to.
        fixed to: Option<Name> = None, absent "nowhere";
    }
}

#[test]
fn tables_of_several_kinds_are_values() {
    let mut gate = Gate::default();
    let moving = Threshold::Moving(Moving { low: 2, high: 3 });
    gate.set_live(&Change::new("threshold", moving.clone()), 1).unwrap();
    assert_eq!(gate.threshold, moving);
    let held = gate.get("threshold").unwrap();
    assert_eq!(held.inline(&[]), "{ kind = \"moving\", low = 2, high = 3 }");
    assert_eq!(Threshold::from_value(&held), Some(moving.clone()));
    for wrong in [
        Threshold::Still(Still { at: Thousandths(999) }),
        Threshold::Moving(Moving { low: 2, high: 10 }),
        Threshold::Moving(Moving { low: 4, high: 3 }),
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
        assert!(gate.set(&Change::new("threshold", wrong), 1).is_err());
        assert_eq!(gate.threshold, moving);
    }
    let unknown = Value::Table([(KIND, Value::Text("other".into()))].into());
    assert!(gate.set(&Change { key: "threshold", class: None, value: unknown }, 1).is_err());
    assert_eq!(
        Threshold::KINDS.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        ["still", "moving"]
    );
    assert_eq!(moving.name(), "moving");
}

#[test]
fn fields_may_be_called_otherwise_in_files_and_change_by_reload() {
    let mut gate = Gate::default();
    assert_eq!(gate.get("from"), Some(Value::Absent));
    assert_eq!(gate.get("who"), None);
    let change = Change::new("from", alloc::vec![Prefix::ALL_V4]);
    assert_eq!(gate.set_live(&change, 1), Err(SettingError::ByReload { key: "from" }));
    gate.set(&change, 1).unwrap();
    assert_eq!(gate.who, [Prefix::ALL_V4]);
    assert_eq!(gate.get("from").unwrap().inline(&[]), "[\"0.0.0.0/0\"]");
    let mut wanted = gate.clone();
    wanted.who.clear();
    assert_eq!(gate.keeps_fixed(&wanted), Ok(()));
    wanted.to = Some(Name("wan".into()));
    assert_eq!(gate.keeps_fixed(&wanted), Err(SettingError::Fixed { key: "to" }));
}

settings! {
    /// A door.
    struct Door: "[[door]]" {
        /// Its name.
        fixed name: String = String::new(), written Kind::Name(8), is required;
        /// Who is behind it.
        reload hosts: Vec<IpAddr> = Vec::new(), absent "nobody";
    }
}

settings! {
    /// A house of doors.
    struct House: "[house]" {
        /// The doors.
        reload door: Vec<Door> = Vec::new(), in 1..=2, is required;
        /// The prefixes that may come in.
        stated open: Vec<Prefix> = Vec::new(), absent "all";
    }
    parts {
        /// A queue, which has parts.
        queue: Queue,
    }
}

#[test]
fn tables_and_lists_are_settings() {
    let door =
        |name: &str| Door { name: name.to_owned(), hosts: vec!["10.0.0.1".parse().unwrap()] };
    let mut house = House::default();
    assert!(house.check().is_err(), "a door is required");
    house.set(&Change::new("door", vec![door("a"), door("b")]), 1).unwrap();
    assert_eq!(house.door, [door("a"), door("b")]);
    let many = Change::new("door", vec![door("a"), door("b"), door("c")]);
    assert_eq!(
        house.set(&many, 1).unwrap_err().to_string(),
        "door: 3 is out of range; valid: 1 to 2 of them"
    );
    let text = house.get("door").unwrap().inline(&[]);
    assert_eq!(
        text,
        r#"[{ name = "a", hosts = ["10.0.0.1"] }, { name = "b", hosts = ["10.0.0.1"] }]"#
    );
    let prefixes: Vec<Prefix> = vec!["10.0.0.0/8".parse().unwrap()];
    house.set(&Change::new("open", prefixes.clone()), 1).unwrap();
    house.set(&Change::new("flows", 5_u32), 1).unwrap();
    assert_eq!((house.open, house.queue.flows.flows), (prefixes, 5), "a part's part");
    assert_eq!(Vec::<Prefix>::new().to_value(), Value::Absent);
}

#[test]
fn a_declaration_tells_when_a_key_changes_and_whether_it_must_be_there() {
    let key = |name| House::SECTION.key(name).unwrap();
    assert!(matches!(key("door").presence, Presence::Required));
    assert_eq!([key("door").change, key("open").change, key("limit").change], {
        [ChangeTime::Reload, ChangeTime::Untold, ChangeTime::Live]
    });
    assert!(matches!(Door::SECTION.key("name").unwrap().kind, Kind::Name(8)));
    assert!(matches!(Door::SECTION.key("hosts").unwrap().kind, Kind::List(Kind::Address)));
    let even =
        Key::required("even", Kind::Form("an even text", |text| text.len() % 2 == 0), "Even.");
    assert!(even.admits(&Value::Text("ab".into())).is_ok());
    assert!(even.admits(&Value::Text("abc".into())).is_err());
    assert!(matches!(key("door").kind, Kind::Tables { min: 1, max: 2, .. }));
}
