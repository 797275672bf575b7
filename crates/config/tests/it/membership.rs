//! `[membership]` and keys of etcd: what they change, and what is refused, with key, value and
//! valid range.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_cluster::NodeId;
use evenkeel_config::{ForwarderState, RouterConfig, overlay};

const FORWARDER: &str = "[[port]]\nname = \"sw\"\ninterface = \"e0\"\n[[class]]\nname = \
                         \"rest\"\n[[class]]\nname = \"voice\"\nmatch = [{ dscp = 46 }]\n\
     [cluster]\nnode = 2\nmembers = [1, 2]\nport = \"sw\"\nrate = \"10Mbit/s\"\nweight = { voice = \
     3 }\n[[cluster.link]]\nname = \"a\"\nport = \"sw\"\n";
const BALANCER: &str = "[[port]]\nname = \"sw\"\ninterface = \"e0\"\n[balancer]\nport = \
                        \"sw\"\n[[balancer.forwarder]]\nid = 1\nmac = \"02:00:00:00:00:01\"\n";

fn parse(text: &str) -> RouterConfig {
    RouterConfig::parse(text, "r.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

fn keys(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn three() -> Vec<(&'static str, &'static str)> {
    vec![
        ("members/1/mac", "02:00:00:00:00:01"),
        ("members/2/mac", "02:00:00:00:00:02"),
        ("members/3/mac", "02:00:00:00:00:03"),
        ("members/3/weight", "64"),
        ("members/2/state", "draining"),
        ("alive/forwarder/2", "f2"),
    ]
}

#[test]
fn keys_stand_in_the_place_of_what_the_file_says() {
    let base = parse(FORWARDER);
    assert_eq!(
        overlay(&base, &keys(&[]), &BTreeSet::new()).unwrap(),
        base,
        "nothing there: the file's"
    );
    let mut pairs = three();
    pairs.push(("weights/voice", "7"));
    let cluster = overlay(&base, &keys(&pairs), &BTreeSet::new()).unwrap().cluster.unwrap();
    assert_eq!(cluster.config.members, [1, 2, 3].map(NodeId));
    assert_eq!(cluster.config.weights().collect::<Vec<_>>(), [1, 7]);
    let gone = BTreeSet::from([3]);
    let balancer = overlay(&parse(BALANCER), &keys(&pairs), &gone).unwrap().balancer.unwrap();
    let said: Vec<_> =
        balancer.forwarders.iter().map(|one| (one.id, one.weight, one.state)).collect();
    use ForwarderState::{Active, Draining, Out};
    assert_eq!(said, [(1, 256, Active), (2, 256, Draining), (3, 64, Out)]);
}

#[test]
fn what_is_wrong_is_named_with_its_range() {
    for (pair, message) in [
        (
            ("weights/voice", "70000"),
            "weights/voice = \"70000\": 70000 is out of range; valid: 1 to 65535",
        ),
        (("weights/voise", "7"), "\"voice\""),
        (("members/1/weight", "0"), "members/1/weight = \"0\": 0 is out of range; valid: 1 to 256"),
        (("members/1/state", "gone"), "active"),
        (("members/1/mac", "01:00:00:00:00:01"), "expected the Ethernet address of a station"),
        (("members/1/rate", "7"), "no such key of a member"),
        (("members/99999/mac", "02:00:00:00:00:09"), "99999 is out of range; valid: 0 to 65535"),
        (("members/4/weight", "7"), "members/4/mac: missing"),
        (("member/1/mac", "x"), "valid: members/ID/mac"),
    ] {
        let mut all = keys(&three());
        all.insert(pair.0.to_owned(), pair.1.to_owned());
        let refused = overlay(&parse(FORWARDER), &all, &BTreeSet::new()).unwrap_err();
        let texts: Vec<_> = refused.0.iter().map(ToString::to_string).collect();
        assert!(texts.len() == 1 && texts[0].contains(message), "{pair:?}: {texts:?}");
    }
    let others = keys(&[("members/1/mac", "02:00:00:00:00:01")]);
    let refused = overlay(&parse(FORWARDER), &others, &BTreeSet::new()).unwrap_err();
    assert!(refused.0[0].to_string().contains("this node, 2, is not among [1]"), "{refused:?}");
    let refused = overlay(&parse(BALANCER), &others, &BTreeSet::from([1])).unwrap_err();
    assert!(refused.0[0].to_string().contains("all forwarders are out"), "{refused:?}");
}

#[test]
fn the_section_is_checked() {
    let with = |section: &str| {
        RouterConfig::parse(&format!("{FORWARDER}[membership]\n{section}"), "r.toml")
    };
    let section = with("endpoints = [\"http://10.0.0.1:2379\"]\nprefix = \"/one/\"\n")
        .unwrap()
        .membership
        .unwrap();
    assert_eq!((section.prefix.as_str(), section.lease.0), ("/one", 10_000_000_000));
    let all = "endpoints = [\"https://a\"]\nca = \"c\"\ncert = \"d\"\nkey = \"e\"\nuser = \
               \"f\"\npassword_file = \"g\"\n";
    assert_eq!(with(all).unwrap().membership.unwrap().password_file.as_deref(), Some("g"));
    for (section, message) in [
        ("", "endpoints"),
        ("endpoints = [\"10.0.0.1\"]\n", "expected http://HOST:PORT"),
        ("endpoints = [\"https://a\"]\n", "https:// needs `ca`"),
        ("endpoints = [\"https://a\", \"http://b\"]\nca = \"c\"\n", "valid is one"),
        (
            "endpoints = [\"http://a\"]\nuser = \"u\"\npassword_file = \"p\"\n",
            "membership.password_file: would not be safe: valid with https:// only",
        ),
        ("endpoints = [\"https://a\"]\nca = \"c\"\ncert = \"d\"\n", "`key` is missing"),
        ("endpoints = [\"https://a\"]\nca = \"c\"\npassword_file = \"d\"\n", "`user` is missing"),
        ("endpoints = [\"http://a\"]\nprefix = \"/\"\n", "give it a name"),
        ("endpoints = [\"http://a\"]\nlease = \"1ms\"\n", "1s to 3600s"),
    ] {
        let errors = with(section).unwrap_err().to_string();
        assert!(errors.contains(message), "{section}: {errors}");
    }
    let lonely = "[[port]]\nname = \"a\"\ninterface = \"e0\"\n[[port]]\nname = \"b\"\ninterface = \
                  \"e1\"\n[membership]\nendpoints = [\"http://a\"]\n";
    let errors = RouterConfig::parse(lonely, "r.toml").unwrap_err().to_string();
    assert!(errors.contains("neither [cluster] nor [balancer]"), "{errors}");
}
