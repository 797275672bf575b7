//! Lists of subscribers: what is read, what is told, and who keeps which place.

use std::fs;
use std::path::Path;

use evenkeel_config::subscribers::{Entry, Role, SubscriberChange};
use evenkeel_config::{DisciplineConfig, RouterConfig, diff};
use evenkeel_core::schedule::tree::{Kind, LINK, UNKNOWN, Within};
use evenkeel_core::settings::PerClass;
use evenkeel_core::{BitRate, Weight};

const ROUTER: &str = "
[[port]]
name = \"lan\"
interface = \"eth1\"
[[port]]
name = \"wan\"
interface = \"eth0\"
[[link]]
port = \"lan\"
rate = \"1Gbit/s\"
[[link]]
port = \"wan\"
rate = \"500Mbit/s\"
[[tree]]
subscribers = \"LIST\"
down = \"lan\"
up = \"wan\"
";

const LIST: &str = "\u{feff}name,parent,prefixes,down,up,min_down,weight\r
north,,,200Mbit/s,100,,\r
\"ann, \"\"the first\"\"\",north,10.1.0.1 2001:db8:1::/56,50Mbit/s,10Mbit/s,5,\r
# a remark\r
bob,north,10.1.0.2;10.1.1.0/24,20,5,,3\r
eve,,10.2.0.0/24,,,,\r
";

fn load(folder: &Path, router: &str) -> Result<RouterConfig, String> {
    let file = folder.join("router.toml");
    fs::write(&file, router).unwrap();
    RouterConfig::load(&file)
        .map_err(|errors| errors.to_string().replace(&format!("{}/", folder.display()), ""))
}

fn with_list(list: &str) -> Result<RouterConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("list.csv"), list).unwrap();
    load(folder.path(), &ROUTER.replace("LIST", "list.csv"))
}

/// Who shares what a subscriber has is who receives on the way down, and who sends on the way up.
#[test]
fn hosts_or_classes_share_a_plan() {
    let within = |rest: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("list.csv"), LIST).unwrap();
        let router = format!("{}{rest}", ROUTER.replace("LIST", "list.csv"));
        let config = load(folder.path(), &router)?;
        Ok(["lan", "wan"].map(|link| {
            let DisciplineConfig::Tree(tree) = &config.link(link).unwrap().discipline else {
                panic!("{link} has no tree")
            };
            tree.within.clone()
        }))
    };
    assert_eq!(within(""), Ok([Within::Flows, Within::Flows]));
    let hosts = [false, true].map(|send| Within::Hosts { send });
    assert_eq!(within("fair = \"host\"\n"), Ok(hosts));
    let classes = "fair = \"class\"\nweight = { voice = 400 }\n\
                   [[class]]\nname = \"rest\"\n[[class]]\nname = \"voice\"\n";
    let weights = PerClass::new([100, 400].map(Weight), Weight(100));
    let weights = Within::Classes(weights);
    assert_eq!(within(classes), Ok([weights.clone(), weights]));
    let wrong: Result<_, String> = within("fair = \"class\"\nweight = { vioce = 400 }\n");
    assert!(wrong.unwrap_err().contains("vioce"));
    let idle: Result<_, String> = within("fair = \"host\"\nweight = 400\n");
    assert!(idle.unwrap_err().contains("only together with fair = \"class\""));
}

#[test]
fn a_list_becomes_trees_on_two_links() {
    let config = with_list(LIST).unwrap();
    let tree = &config.trees[0];
    assert_eq!((tree.list.entries.len(), tree.list.subscribers()), (4, 3));
    let ann = "ann, \"the first\"";
    let place = tree.place(ann).unwrap();
    for (link, cap, guarantee) in [("lan", 50, 5), ("wan", 10, 0)] {
        let DisciplineConfig::Tree(discipline) = &config.link(link).unwrap().discipline else {
            panic!("{link} has no tree")
        };
        let node = discipline.plan.nodes()[place as usize];
        assert_eq!((node.kind, node.parent), (Kind::Leaf, tree.place("north").unwrap()));
        assert_eq!(node.cap, Some(BitRate(cap * 1_000_000)));
        assert_eq!(node.guarantee, BitRate(guarantee * 1_000_000));
        assert_eq!(discipline.plan.check(), Ok(()));
    }
    let entry = tree.list.entries.iter().find(|entry| entry.name == "bob").unwrap();
    assert_eq!((entry.prefixes.len(), entry.weight, entry.line), (2, 3_000, 5));
    // A number alone is Mbit/s; `eve` has no cap, which is told.
    assert_eq!(entry.down.cap, Some(BitRate(20_000_000)));
    assert!(tree.list.warnings[0].contains("\"eve\" has no cap"), "{:?}", tree.list.warnings);
    // What is written is read again as the same.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("list.csv"), tree.list.csv()).unwrap();
    let again = load(folder.path(), &ROUTER.replace("LIST", "list.csv")).unwrap();
    assert!(diff(&config, &again).is_empty(), "{:?}", diff(&config, &again));
    // And the file itself.
    let written = load(folder.path(), &config.short_text()).unwrap();
    assert!(diff(&config, &written).is_empty(), "{:?}", diff(&config, &written));
}

#[test]
fn every_mistake_is_told_with_its_line_and_a_remedy() {
    let list = "name,parent,prefixes,down,upp
a,,10.0.0.1,1Mbit/s,
b,a,10.0.0.2,1Mbit/s,
a,,10.0.0.3,1Mbit/s,
c,nrth,10.0.0.1,fast,
d,,10.0.0.9/24,1Mbit/s,
e,,300.0.0.1,4kbit/s,
north,,,1Mbit/s,
f,,10.0.0.7
unknown,,10.0.0.8,0,
";
    let told = with_list(list).unwrap_err();
    for (line, what) in [
        (1, "\"upp\": no such column; did you mean \"up\"?"),
        (3, "parent: \"a\": line 2 is a subscriber"),
        (4, "name: \"a\": the name is that of line 2 too"),
        (5, "parent: \"nrth\": no line has this name; did you mean \"north\"?"),
        (5, "prefixes: \"10.0.0.1/32\": line 2 has it too"),
        (5, "down: \"fast\": "),
        (6, "prefixes: \"10.0.0.9/24\": has bits beyond its length: 10.0.0.0/24 is meant?"),
        (7, "prefixes: \"300.0.0.1\": not an IPv4 or IPv6 address"),
        (7, "down: \"4kbit/s\": out of range"),
        (9, "3 fields for 5 columns"),
        (10, "name: \"unknown\""),
    ] {
        let said = told
            .lines()
            .any(|said| said.starts_with(&format!("list.csv:{line}: ")) && said.contains(what));
        assert!(said, "line {line}: {what}\nin\n{told}");
    }
}

#[test]
fn of_ten_thousand_mistakes_the_first_and_a_count_are_told() {
    let mut list = "name,parent,prefixes\n".to_owned();
    for number in 0..10_000 {
        list += &format!("s{number},nowhere,10.0.0.0/33\n");
    }
    let told = with_list(&list).unwrap_err();
    assert_eq!(told.lines().count(), 21, "{told}");
    assert!(told.contains("mistakes more: only the first 20 are told"), "{told}");
}

#[test]
fn nodes_in_a_circle_and_files_of_nothing_are_refused() {
    let circle = "name,parent,prefixes\na,b,\nb,a,\nc,a,10.0.0.1\n";
    assert!(with_list(circle).unwrap_err().contains("behind itself"));
    assert!(with_list("").unwrap_err().contains("the column is missing"));
    assert!(with_list("name,prefixes\nsite,\n").unwrap_err().contains("there is no subscriber"));
    let folder = tempfile::tempdir().unwrap();
    let missing = load(folder.path(), &ROUTER.replace("LIST", "none.csv")).unwrap_err();
    assert!(missing.contains("none.csv: cannot be read"), "{missing}");
    fs::write(folder.path().join("latin.csv"), b"name,prefixes\nj\xf6rg,10.0.0.1\n").unwrap();
    let latin = load(folder.path(), &ROUTER.replace("LIST", "latin.csv")).unwrap_err();
    assert!(latin.contains("latin.csv:2: not UTF-8"), "{latin}");
}

#[test]
fn what_a_tree_cannot_be_together_with_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("list.csv"), LIST).unwrap();
    let router = ROUTER.replace("LIST", "list.csv");
    let refused = |more: &str| load(folder.path(), &format!("{router}{more}")).unwrap_err();
    assert!(refused("[fairdrop]\n").contains("not together with [fairdrop]"));
    let people = "[fairdrop]\nbandwidth = false\ngroups = \"subscriber\"\n";
    let (without, _) = ROUTER.split_once("[[tree]]").unwrap();
    let alone = load(folder.path(), &format!("{without}{people}")).unwrap_err();
    assert!(alone.contains("fairdrop.groups: \"subscriber\" needs a [[tree]]"), "{alone}");
    let other =
        router.replace("rate = \"1Gbit/s\"", "rate = \"1Gbit/s\"\ndiscipline = { kind = \"pfq\" }");
    let told = load(folder.path(), &other).unwrap_err();
    assert!(told.contains("which needs the discipline \"tree\""), "{told}");
    let nobody = "[[port]]\nname = \"lan\"\ninterface = \"eth1\"\n[[link]]\nport = \"lan\"\n\
                  discipline = { kind = \"tree\" }\n";
    assert!(load(folder.path(), nobody).unwrap_err().contains("no [[tree]] names this link"));
    let settings = router.replace(
        "rate = \"1Gbit/s\"",
        "rate = \"1Gbit/s\"\ndiscipline = { kind = \"tree\", quantum = \"3000B\" }",
    );
    load(folder.path(), &settings).unwrap();
    let nowhere = router.replace("down = \"lan\"", "down = \"lann\"");
    assert!(load(folder.path(), &nowhere).unwrap_err().contains("no port \"lann\""));
}

#[test]
fn json_means_the_same_as_csv() {
    let folder = tempfile::tempdir().unwrap();
    let json = r#"[
        {"name": "north", "down": "200Mbit/s", "up": 100},
        {"name": "ann, \"the first\"", "parent": "north", "prefixes": ["10.1.0.1", "2001:db8:1::/56"],
         "down": 50, "up": "10Mbit/s", "min_down": 5},
        {"name": "bob", "parent": "north", "prefixes": ["10.1.0.2", "10.1.1.0/24"], "down": 20,
         "up": 5, "weight": 3},
        {"name": "eve", "prefixes": ["10.2.0.0/24"]}
    ]"#;
    fs::write(folder.path().join("list.json"), json).unwrap();
    let config = load(folder.path(), &ROUTER.replace("LIST", "list.json")).unwrap();
    let csv = with_list(LIST).unwrap();
    let changes: Vec<_> =
        diff(&csv, &config).into_iter().filter(|change| !change.contains("subscribers:")).collect();
    assert!(changes.is_empty(), "{changes:?}");
}

#[test]
fn the_files_of_libreqos_are_read_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let devices = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,\
                   Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment
1,\"968 Circle St., Gurnee\",1,Device 1,AP_A,,\"100.64.0.1, 100.64.0.14\",,25,5,155,20,
2,31 Marconi Street,2,Device 2,AP_A,,100.64.0.2,fdd7:b724:0:100::/56,25,5,105,18,
2,31 Marconi Street,3,Camera,AP_A,,100.64.0.15/28,,25,5,105,18,a second device
3,31 Marconi Street,4,Device 4,none,aa:bb:cc:dd:ee:ff,100.64.0.64,,1,1,9.5,2.5,
";
    let network = r#"{
        "Site_1": {"downloadBandwidthMbps": 1000, "uploadBandwidthMbps": 500, "type": "Site",
            "children": {"AP_A": {"downloadBandwidthMbps": 300, "uploadBandwidthMbps": 100}}},
        "Site_2": {"downloadBandwidthMbps": 500, "uploadBandwidthMbps": 500}
    }"#;
    fs::write(folder.path().join("ShapedDevices.csv"), devices).unwrap();
    fs::write(folder.path().join("network.json"), network).unwrap();
    let router = ROUTER
        .replace("LIST", "ShapedDevices.csv")
        .replace("down =", "nodes = \"network.json\"\nformat = \"libreqos\"\ndown =");
    let config = load(folder.path(), &router).unwrap();
    let list = &config.trees[0].list;
    let entry = |name: &str| list.entries.iter().find(|entry| entry.name == name).unwrap();
    let marconi = entry("31 Marconi Street");
    let prefixes: Vec<_> = marconi.prefixes.iter().map(ToString::to_string).collect();
    assert_eq!(prefixes, ["100.64.0.2/32", "fdd7:b724:0:100::/56", "100.64.0.0/28"]);
    assert_eq!(marconi.parent, "AP_A");
    assert_eq!(
        (marconi.down.cap, marconi.down.guarantee),
        (Some(BitRate(105_000_000)), BitRate(25_000_000))
    );
    // A second circuit of that name is told apart by its number.
    let third = entry("31 Marconi Street (3)");
    assert_eq!((third.parent.as_str(), third.up.cap), ("", Some(BitRate(2_500_000))));
    assert_eq!((entry("AP_A").parent.as_str(), entry("AP_A").role), ("Site_1", Role::Node));
    assert_eq!(entry("Site_1").up.cap, Some(BitRate(500_000_000)));
    assert_eq!(entry("968 Circle St., Gurnee").prefixes.len(), 2);
}

#[test]
fn who_stays_keeps_the_place_and_who_comes_takes_none_of_those_just_left() {
    let first = with_list(LIST).unwrap();
    let mut second = with_list(
        "name,parent,prefixes,down\neve,south,10.2.0.0/24,\nsouth,,,100\nzoe,south,10.9.0.1,10\n",
    )
    .unwrap();
    second.keep_places(&first);
    let (was, is) = (&first.trees[0], &second.trees[0]);
    assert_eq!(was.place("eve"), is.place("eve"));
    let taken: Vec<_> = was.places().to_vec();
    for name in ["south", "zoe"] {
        let place = is.place(name).unwrap();
        assert!(place > UNKNOWN && !taken.contains(&place), "{name} is at {place}");
    }
    let DisciplineConfig::Tree(discipline) = &second.link("lan").unwrap().discipline else {
        panic!("no tree")
    };
    assert_eq!(discipline.plan.check(), Ok(()));
    let north = was.place("north").unwrap();
    assert_eq!(discipline.plan.nodes()[north as usize].kind, Kind::Free);
    // What is free by now is given away next time.
    let mut third = with_list(&format!("{LIST}new,,10.3.0.0/24,1,1,,\n")).unwrap();
    third.keep_places(&second);
    assert_eq!(third.trees[0].place("eve"), was.place("eve"));
    assert!(third.trees[0].places().iter().any(|place| taken.contains(place)));
}

#[test]
fn single_subscribers_are_changed_added_and_taken_out() {
    let config = with_list(LIST).unwrap();
    let fields = |fields: &[(&str, &str)]| {
        fields.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
    };
    let set = |name: &str, of: &[(&str, &str)]| SubscriberChange::Set {
        name: name.to_owned(),
        fields: fields(of),
    };
    let faster =
        config.with_subscriber(&set("bob", &[("down", "90Mbit/s"), ("parent", "link")])).unwrap();
    let tree = &faster.trees[0];
    let place = tree.place("bob").unwrap();
    assert_eq!(place, config.trees[0].place("bob").unwrap());
    let (plan, _) = tree.plan_of("lan").unwrap();
    assert_eq!(
        (plan.nodes()[place as usize].cap, plan.nodes()[place as usize].parent),
        (Some(BitRate(90_000_000)), LINK)
    );
    assert_eq!(diff(&config, &faster), ["tree subscribers: \"bob\" changes"]);
    let add = SubscriberChange::Add {
        name: "kim".to_owned(),
        fields: fields(&[("prefixes", "10.7.0.1"), ("parent", "north"), ("down", "5")]),
    };
    let more = faster.with_subscriber(&add).unwrap();
    assert_eq!(more.trees[0].list.subscribers(), 4);
    let refused = [
        (set("nobody", &[("down", "1")]), "no subscriber or node \"nobody\""),
        (set("bob", &[("dwn", "1")]), "no field \"dwn\"; did you mean \"down\"?"),
        (set("bob", &[("prefixes", "10.2.0.0/24")]), "whose is it?"),
        (set("bob", &[("parent", "nowhere")]), "no line has this name"),
        (SubscriberChange::Remove { name: "north".to_owned() }, "no line has this name"),
        (add, "it must be unique"),
    ];
    for (change, why) in refused {
        let told = more.with_subscriber(&change).unwrap_err().to_string();
        assert!(told.contains(why), "{change:?}: {told}");
    }
    let fewer = more.with_subscriber(&SubscriberChange::Remove { name: "kim".to_owned() }).unwrap();
    assert_eq!(fewer.trees[0].list.entries, faster.trees[0].list.entries);
}

/// People who are found by what stands below the addresses.
const ACCESS: &str = "name,prefixes,macs,vlans,sessions,down
ann,,02:00:00:00:00:01 02:00:00:00:00:02,,,10
bob,10.1.0.2,,7.100 8,,10
kim,,,,17@02:00:00:00:00:01;18,10
";

/// The file with both ports attached so.
fn attached(how: &str) -> String {
    ROUTER.replace("interface = ", &format!("attach = {how:?}\ninterface = "))
}

#[test]
fn stations_vlans_and_sessions_are_read_written_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("list.csv"), ACCESS).unwrap();
    let router = attached("bridge").replace("LIST", "list.csv");
    let config = load(folder.path(), &router).unwrap();
    let list = &config.trees[0].list;
    assert_eq!(list.subscribers(), 3);
    let found: Vec<_> = list.entries.iter().map(|entry| entry.found_by().join(", ")).collect();
    assert_eq!(
        found,
        [
            "station 02:00:00:00:00:01, station 02:00:00:00:00:02",
            "VLAN 7.100, VLAN 8, 10.1.0.2/32",
            "PPPoE session 17@02:00:00:00:00:01, PPPoE session 18",
        ]
    );
    fs::write(folder.path().join("list.csv"), list.csv()).unwrap();
    let again = load(folder.path(), &router).unwrap();
    assert!(diff(&config, &again).is_empty(), "{}", list.csv());
    let json = r#"[
        {"name": "ann", "macs": ["02:00:00:00:00:01", "02:00:00:00:00:02"], "down": 10},
        {"name": "bob", "prefixes": ["10.1.0.2"], "vlans": ["7.100", 8], "down": 10},
        {"name": "kim", "sessions": ["17@02:00:00:00:00:01", 18], "down": 10}
    ]"#;
    fs::write(folder.path().join("list.json"), json).unwrap();
    let json = load(folder.path(), &attached("bridge").replace("LIST", "list.json")).unwrap();
    let entries = |config: &RouterConfig| {
        let entries = config.trees[0].list.entries.iter().cloned();
        entries.map(|entry| Entry { line: 0, ..entry }).collect::<Vec<_>>()
    };
    assert_eq!(entries(&json), entries(&config));

    let set = |name: &str, field: &str, value: &str| {
        let fields = vec![(field.to_owned(), value.to_owned())];
        let change = SubscriberChange::Set { name: name.to_owned(), fields: fields.clone() };
        let was = config.fields_of(name, &fields)[0].1.clone();
        let now = config.with_subscriber(&change).map_err(|error| error.to_string());
        (was, now.map(|now| now.fields_of(name, &fields)[0].1.clone()))
    };
    let (was, now) = set("bob", "vlans", "9");
    assert_eq!((was.as_str(), now.unwrap().as_str()), ("7.100 8", "9"));
    let (was, now) = set("kim", "macs", "02:00:00:00:00:09");
    assert_eq!((was.as_str(), now.unwrap().as_str()), ("", "02:00:00:00:00:09"));
    let (_, taken) = set("kim", "macs", "02:00:00:00:00:02");
    assert!(taken.unwrap_err().contains("whose is it?"));
}

#[test]
fn wrong_keys_of_layer_two_are_told_with_their_line_and_column() {
    let list = "name,prefixes,macs,vlans,sessions
a,,ff:ff:ff:ff:ff:ff,,
b,,02-00-00-00-00-01,,
c,,,4095,
d,,,1.2.3,
e,,,,0
f,,,,5@x
g,,,9,
h,,,9,
";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("list.csv"), list).unwrap();
    let told = load(folder.path(), &attached("bridge").replace("LIST", "list.csv")).unwrap_err();
    for (line, what) in [
        (2, "macs: \"ff:ff:ff:ff:ff:ff\": not the address of a station"),
        (3, "macs: \"02-00-00-00-00-01\": not the address of a station"),
        (4, "vlans: \"4095\": not a VLAN: write 1 to 4094"),
        (5, "vlans: \"1.2.3\": not a VLAN"),
        (6, "sessions: \"0\": not a session of PPPoE: write 1 to 65534"),
        (7, "sessions: \"5@x\": not a session of PPPoE"),
        (9, "vlans: \"9\": line 8 has it too: whose is it?"),
    ] {
        let said = told.lines().any(|said| said.starts_with(&format!("list.csv:{line}: {what}")));
        assert!(said, "line {line}: {what}\nin\n{told}");
    }
}

#[test]
fn what_the_frames_of_a_port_do_not_say_is_refused_there() {
    let folder = tempfile::tempdir().unwrap();
    let told = |list: &str, router: &str| {
        fs::write(folder.path().join("list.csv"), list).unwrap();
        load(folder.path(), &router.replace("LIST", "list.csv")).err()
    };
    let stations = "name,macs\nann,02:00:00:00:00:01\n";
    let tagged = "name,vlans\nann,7\n";
    let sessions = "name,sessions\nann,7\n";
    // Routed, a frame has a station, and no tag.
    assert_eq!(told(stations, ROUTER), None);
    for list in [tagged, sessions] {
        let why = told(list, ROUTER).unwrap();
        assert!(
            why.contains("not seen at `down = \"lan\"`: a routed port takes no frames"),
            "{why}"
        );
        assert_eq!(why.lines().count(), 1, "once, not for both links: {why}");
    }
    // On an inline port the subscribers' side alone.
    let inline = |down: &str, up: &str| {
        format!(
            "[[port]]\nname = \"lan\"\ninterface = \"eth1\"\nattach = \"inline\"\n\
             [[link]]\nport = \"lan\"\nrate = \"1Gbit/s\"\n\
             [[tree]]\nsubscribers = \"LIST\"\ndown = {down:?}\nup = {up:?}\n"
        )
    };
    for list in [stations, tagged, sessions] {
        assert_eq!(told(list, &attached("bridge")), None);
        assert_eq!(told(list, &inline("lan", "lan-ingress")), None);
        let why = told(list, &inline("lan-ingress", "lan")).unwrap();
        assert!(why.contains("not seen at `down = \"lan-ingress\"`: the kernel routes"), "{why}");
    }
    // Nor can a change bring it in.
    let config = with_list("name,prefixes\nann,10.0.0.1\n").unwrap();
    let fields = vec![("vlans".to_owned(), "7".to_owned())];
    let change = SubscriberChange::Set { name: "ann".to_owned(), fields };
    let why = config.with_subscriber(&change).unwrap_err().to_string();
    assert!(why.contains("a routed port takes no frames"), "{why}");
}

/// The router with classes, and a list with two sites.
fn classes_of(list: &str, classes: &str) -> Result<RouterConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("list.csv"), list).unwrap();
    load(folder.path(), &format!("{}{classes}", ROUTER.replace("LIST", "list.csv")))
}

const SITES: &str = "name,parent,prefixes,down\nann,hill,10.1.0.1,8\nnorth,,,20\nhill,north,,9\n\
                     bob,north,10.1.0.2 2001:db8::/64,8\neve,,10.2.0.0/24,8\n";
const CLASSES: &str = "[[class]]\nname = \"rest\"\n[[class]]\nname = \"n\"\nnodes = [\"north\"]\n\
                       [[class]]\nname = \"h\"\nnodes = [\"hill\", \"eve\"]\n";

#[test]
fn classes_name_nodes_and_the_nearest_one_decides() {
    let config = classes_of(SITES, CLASSES).unwrap();
    let told: Vec<_> = config.classes_of_nodes();
    let told: Vec<_> = told.iter().map(|(prefix, class)| (prefix.to_string(), class.0)).collect();
    let of = |prefix: &str, class| (prefix.to_owned(), class);
    let all = [of("10.1.0.1/32", 2), of("10.1.0.2/32", 1), of("2001:db8::/64", 1)];
    assert_eq!(told[..3], all);
    assert_eq!(told[3..], [of("10.2.0.0/24", 2)]);
    let wrong = |list: &str, classes: &str| classes_of(list, classes).unwrap_err();
    let said = wrong(SITES, &CLASSES.replace("hill\", \"eve", "nort\", \"eve"));
    assert!(said.contains("class.nodes: nobody is called \"nort\"; did you mean"), "{said}");
    let said = wrong(SITES, &CLASSES.replace("hill\", \"eve", "north\", \"eve"));
    assert!(said.contains("\"north\" is of class \"n\" already"), "{said}");
    let stations =
        SITES.replace(",down\n", ",down,macs\n").replace("8\n", "8,\n").replace("20\n", "20,\n");
    let stations = stations.replace(",9\n", ",9,\n") + "kim,hill,,8,02:00:00:00:00:09\n";
    let said = wrong(&stations, CLASSES);
    assert!(said.contains("\"kim\" has no prefix"), "{said}");
    let said = wrong(&SITES.replace("10.1.0.2 ", "10.1.0.300 "), CLASSES);
    assert!(!said.contains("nobody is called"), "what is wrong is the list alone: {said}");
    // Written and read again it is the same.
    let text = config.text();
    assert!(text.contains("nodes = [\"hill\", \"eve\"]"), "{text}");
}

#[test]
fn a_list_on_no_link_is_there_for_classes_and_clusters() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("list.csv"), SITES).unwrap();
    let loose = ROUTER.replace("LIST", "list.csv").replace("down = \"lan\"\nup = \"wan\"\n", "");
    let said = load(folder.path(), &loose).unwrap_err();
    assert!(said.contains("it is on no link") && said.contains("[[class]]"), "{said}");
    let cluster = "[cluster]\nnode = 1\nmembers = [1, 2]\nport = \"lan\"\nrate = \"1Gbit/s\"\n\
                   [[cluster.link]]\nname = \"up\"\nport = \"wan\"\n";
    let config = load(folder.path(), &format!("{loose}{CLASSES}{cluster}")).unwrap();
    assert_eq!(config.cluster.as_ref().unwrap().config.classes, 3);
    assert_eq!(config.classes_of_nodes().len(), 4);
    let said = classes_of(SITES, &format!("{CLASSES}{cluster}")).unwrap_err();
    assert!(said.contains("not together with [cluster]") && said.contains("`nodes`"), "{said}");
    let fairdrop = "[fairdrop]\ngroups = \"subscriber\"\n";
    let said = load(folder.path(), &format!("{loose}{CLASSES}{fairdrop}")).unwrap_err();
    assert!(said.contains("needs a [[tree]] on a link"), "{said}");
}

#[test]
fn admission_goes_with_a_tree_but_for_what_takes_from_others() {
    let admit = |keys: &str| {
        let router = ROUTER.replace(
            "rate = \"1Gbit/s\"",
            &format!("rate = \"1Gbit/s\"\nadmission = {{ {keys} }}"),
        );
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("list.csv"), SITES).unwrap();
        load(folder.path(), &router.replace("LIST", "list.csv"))
    };
    let config = admit("per_user = true, user = \"subscriber\"").unwrap();
    assert!(config.admission("lan").unwrap().unwrap().by_subscriber);
    for (keys, key) in
        [("flushing = \"efm\"", "flushing"), ("second_link = \"wan\"", "second_link")]
    {
        let said = admit(keys).unwrap_err();
        assert!(
            said.contains(&format!("admission.{key}: not on a link with a [[tree]]")),
            "{said}"
        );
    }
    let plain = "[[port]]\nname = \"lan\"\ninterface = \"eth1\"\n[[link]]\nport = \"lan\"\n\
                 rate = \"9Mbit/s\"\ndiscipline = { kind = \"pfq\" }\n\
                 admission = { per_user = true, user = \"subscriber\" }\n";
    let said = RouterConfig::parse(plain, "r.toml").unwrap_err().to_string();
    assert!(said.contains("\"subscriber\" needs a [[tree]] on this link"), "{said}");
}
