//! Every kind of mistake in a scenario is told with its line; all at once; and no text panics.

use std::path::Path;

use evenkeel_scenario::Scenario;
use proptest::prelude::*;

/// Two sources, a router with classes by source, a sink. `CONFIG` and `REST` are put in.
const BASE: &str = r#"name = "t/base"
title = "base"
duration = "30s"
settle = "1s"
published = "numbers.toml#one"
[[host]]
name = "h1"
[[host]]
name = "h2"
[[host]]
name = "sink"
[[wire]]
ends = ["h1", "r1"]
[[wire]]
ends = ["h2", "r1"]
[[wire]]
ends = ["r1", "sink"]
[[router]]
name = "r1"
[[router.config.class]]
name = "rest"
[[router.config.class]]
name = "gold"
match = [{ source = "10.1.0.0/24" }]
[[router.config.class]]
name = "idle"
match = [{ dscp = [46] }]
[[router.config.link]]
port = "sink"
rate = "10Mbit/s"
[router.config.link.discipline]
kind = "lct"
[[traffic]]
name = "a"
from = "h1"
to = "sink"
rate = "5Mbit/s"
class = "gold"
[[traffic]]
name = "b"
from = "h2"
to = "sink"
rate = "5Mbit/s"
[[step]]
name = "x10"
at = "10s"
set = [{ link = "sink", knob = "x_delay", class = "gold", value = "10us" }]
[[expect]]
name = "grows"
claim = "It grows."
that = "delay(gold)@x10 > delay(gold)@start"
[[without]]
name = "no X"
set = [{ link = "sink", knob = "x_delay", class = "gold", value = "0us" }]
fails = ["grows"]
"#;

/// A folder with `published/numbers.toml` above a folder for scenarios.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("published")).unwrap();
    std::fs::create_dir_all(folder.path().join("deep/er")).unwrap();
    let numbers =
        "[one]\nratio = 2\nlist = [1, 2.5]\nsteps = [{ at_s = 7 }]\nclaim = \"It grows.\"\n";
    std::fs::write(folder.path().join("published/numbers.toml"), numbers).unwrap();
    folder
}

fn parse(text: &str) -> Result<Scenario, String> {
    let folder = folder();
    Scenario::parse(text, "s.toml", &folder.path().join("deep/er"))
        .map_err(|errors| errors.to_string())
}

/// The base with one replacement, and what must be said about it: one line, unless `wanted` has
/// more.
#[track_caller]
fn says(from: &str, to: &str, wanted: &[&str]) {
    assert!(BASE.contains(from), "{from}");
    let errors = parse(&BASE.replacen(from, to, 1)).expect_err("an error");
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!(lines.len(), wanted.len(), "\n{errors}");
    for (line, wanted) in lines.iter().zip(wanted) {
        assert!(line.contains(wanted), "\n  {line}\nlacks\n  {wanted}");
    }
}

#[test]
fn the_base_is_good() {
    let scenario = parse(BASE).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(scenario.published.unwrap().claim.as_deref(), Some("It grows."));
    assert_eq!(scenario.traffic[1].class.as_deref(), Some("rest"), "what the class rules give");
    let names: Vec<_> = scenario.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["start", "x10"]);
}

#[test]
fn nodes_and_wires() {
    says(
        "ends = [\"h2\", \"r1\"]",
        "ends = [\"h3\", \"r1\"]",
        &[
            "s.toml:8: host: no [[wire]] leads to \"h2\"",
            "s.toml:15: wire.ends: no host or router \"h3\"; did you mean \"h1\"?",
        ],
    );
    says(
        "ends = [\"h2\", \"r1\"]",
        "ends = [\"h2\"]",
        &["no [[wire]] leads to \"h2\"", "wire.ends: a wire has two ends, not 1"],
    );
    says(
        "ends = [\"r1\", \"sink\"]",
        "ends = [\"r1\", \"sink\"]\n[[wire]]\nends = [\"sink\", \"r1\"]",
        &["s.toml:19: wire.ends: \"sink\" and \"r1\" have a wire already"],
    );
    says(
        "[[host]]\nname = \"h2\"",
        "[[host]]\nname = \"h2\"\n[[host]]\nname = \"h2\"",
        &["s.toml:11: host.name: node \"h2\" is there twice"],
    );
    says(
        "name = \"h2\"",
        "name = \"lo\"",
        &[
            "no [[wire]] leads to \"lo\"",
            "\"lo\" cannot name a node",
            "no host or router \"h2\"",
            "traffic.from: \"h2\" is no host",
        ],
    );
    says(
        "ends = [\"h2\", \"r1\"]",
        "ends = [\"h2\", \"r1\"]\nsubnet = \"10.1.0.0/16\"",
        &["s.toml:16: wire.subnet: address clash: 10.1.0.0/16 overlaps"],
    );
    says(
        "ends = [\"h2\", \"r1\"]",
        "ends = [\"h2\", \"r1\"]\nsubnet = \"10.8.0.0/30\"",
        &["cannot be a wire's subnet; valid: IPv4, /8 to /29"],
    );
    says(
        "ends = [\"h2\", \"r1\"]",
        "ends = [\"h2\", \"r1\"]\nmtu = 9000",
        &["router.buffer_size is too small for the MTU of its wires, 9000"],
    );
}

#[test]
fn a_host_does_not_forward() {
    let text = BASE.replacen("ends = [\"h2\", \"r1\"]", "ends = [\"h2\", \"h1\"]", 1);
    let errors = parse(&text).unwrap_err();
    assert!(
        errors.contains("traffic.to: no path leads from \"h2\" to \"sink\" through routers"),
        "{errors}"
    );
}

#[test]
fn router_errors_have_their_own_lines() {
    says(
        "rate = \"10Mbit/s\"",
        "rate = \"0Mbit/s\"",
        &["s.toml:30: router.config.link.rate: 0bit/s is out of range; valid: 1kbit/s to \
             1000Gbit/s"],
    );
    says(
        "kind = \"lct\"",
        "kind = \"lct\"\nlimt = 3",
        &["s.toml:33: router.config.link.discipline.limt: unknown key; did you mean `limit`?"],
    );
    says(
        "port = \"sink\"",
        "port = \"sinc\"",
        &["router.config.link.port: no port \"sinc\"; did you mean \"sink\"?"],
    );
    says(
        "[[router]]\nname = \"r1\"",
        "[[router]]\nname = \"r1\"\nfile = \"x.toml\"",
        &["router.file: only one of `config` and `file` is possible"],
    );
}

#[test]
fn a_router_file_is_read_without_its_ports() {
    let folder = folder();
    let config = "[[port]]\nname = \"wan\"\ninterface = \"eth0\"\n[[link]]\nport = \"sink\"\nrate \
                  = \"5Mbit/s\"\n";
    std::fs::write(folder.path().join("router.toml"), config).unwrap();
    let begin = BASE.find("[[router.config.class]]").unwrap();
    let end = BASE.find("[[traffic]]").unwrap();
    let text = format!("{}file = \"router.toml\"\n{}", &BASE[..begin], &BASE[end..])
        .replace("class = \"gold\"\n", "");
    let text = &text[..text.find("[[step]]").unwrap()];
    let scenario =
        Scenario::parse(text, "s.toml", folder.path()).unwrap_or_else(|errors| panic!("{errors}"));
    let ports: Vec<_> =
        scenario.routers[0].config.ports.iter().map(|port| port.interface.as_str()).collect();
    assert_eq!(ports, ["h1", "h2", "sink"]);
    assert!(scenario.routers[0].config.link("sink").unwrap().core.rate.is_some());
    std::fs::write(folder.path().join("router.toml"), "[[link]]\nport = \"sink\"\nrat = 1\n")
        .unwrap();
    let errors = Scenario::parse(text, "s.toml", folder.path()).unwrap_err().to_string();
    assert!(
        errors.contains("router.toml:3: link.rat: unknown key; did you mean `rate`?"),
        "{errors}"
    );
}

#[test]
fn traffic() {
    says(
        "from = \"h1\"",
        "from = \"r1\"",
        &["traffic.from: \"r1\" is a router; traffic is between hosts"],
    );
    says("from = \"h1\"", "from = \"sink\"", &["traffic.to: a host does not send to itself"]);
    says(
        "rate = \"5Mbit/s\"",
        "rate = \"0bit/s\"",
        &["s.toml:37: traffic.rate: 0bit/s is out of range; valid: 1kbit/s to 100Gbit/s"],
    );
    says(
        "class = \"gold\"",
        "class = \"rest\"",
        &["traffic.class: the class rules of \"r1\" put this flow \
             (10.1.0.1:40001->10.3.0.1:5001/udp, dscp 0) into \"gold\", not \"rest\""],
    );
    says(
        "class = \"gold\"",
        "class = \"golt\"",
        &["router \"r1\" has no class \"golt\"; did you mean \"gold\"?"],
    );
    says(
        "class = \"gold\"",
        "class = \"gold\"\nsize = \"1600B\"",
        &[
            "traffic.size: 1600 bytes do not fit the wire h1–r1: its MTU is 1500",
            "do not fit the wire r1–sink",
        ],
    );
    says(
        "class = \"gold\"",
        "class = \"gold\"\nstart = \"31s\"",
        &["traffic.start: a flow starts before it stops"],
    );
    says(
        "class = \"gold\"",
        "class = \"gold\"\nport = 5002",
        &["traffic.port: another flow to \"sink\" has port 5002"],
    );
    says(
        "rate = \"5Mbit/s\"\n",
        "",
        &["traffic.rate: this required key is missing: a rate such as"],
    );
    says(
        "rate = \"5Mbit/s\"",
        "rate = \"5Mbit/s\"\nkind = \"tcp\"",
        &["s.toml:37: traffic.rate: TCP has no rate of its own"],
    );
    says(
        "rate = \"5Mbit/s\"",
        "kind = \"tcp\"\ntool = \"d-itg\"",
        &["s.toml:38: traffic.tool: a flow of kind = \"tcp\" is made by iperf3 on real packets"],
    );
    says(
        "rate = \"5Mbit/s\"",
        "kind = \"tcp\"\ncongestion = \"vegas\"",
        &["s.toml:38: traffic.congestion: expected one of `\"cubic\"`, `\"reno\"`"],
    );
    says(
        "rate = \"5Mbit/s\"",
        "rate = \"5Mbit/s\"\nbytes = \"1MiB\"",
        &["s.toml:38: traffic.bytes: only together with kind = \"tcp\""],
    );
    says(
        "class = \"gold\"",
        "class = \"gold\"\ntcp = true",
        &["traffic.tcp: only together with tool = \"iperf3\""],
    );
    says(
        "class = \"gold\"",
        "class = \"gold\"\nkind = \"burst\"",
        &["traffic.kind: expected one of `\"cbr\"`, `\"poisson\"`, `\"on-off\"`, `\"greedy\"`, \
             `\"flows\"`, `\"replay\"`, `\"tcp\"`, `\"tcp-flows\"`, `\"call\"`, \
             `\"game\"`, `\"video\"`, `\"web\"`, `\"update\"`, found \"burst\""],
    );
}

#[test]
fn what_people_send() {
    for (keys, wanted) in [
        ("kind = \"call\"\nrate = \"5Mbit/s\"", "traffic.rate: its model has its own rate"),
        ("kind = \"web\"\nrate = \"5Mbit/s\"", "traffic.rate: its model has its own rate"),
        ("kind = \"video\"", "traffic.rate: this required key is missing: a rate"),
        ("kind = \"video\"\nrate = \"5Mbit/s\"\nframe_rate = 0", "traffic.frame_rate: 0 is out"),
        ("kind = \"game\"\nframe_rate = 30", "frame_rate: only together with kind = \"video\""),
        ("kind = \"call\"\nusers = 3", "users: only together with kind = \"web\" or \"update\""),
        ("kind = \"web\"\nusers = 0", "traffic.users: 0 is out of range"),
        ("kind = \"web\"\nflows = 2", "traffic.flows: only together with a kind that is one flow"),
        ("kind = \"game\"\ndirection = \"left\"", "traffic.direction: expected one of"),
    ] {
        says("\nrate = \"5Mbit/s\"\nclass", &format!("\n{keys}\nclass"), &[wanted]);
    }
}

#[test]
fn marks() {
    let tcp = |keys: &str| format!("\nkind = \"tcp\"\n{keys}\n");
    for (keys, wanted) in [
        ("congestion = \"dctcp\"", "s.toml:33: traffic.ecn: dctcp answers to marks: give it ecn"),
        ("ecn = \"ect1\"", "traffic.ecn: ECT(1) is for congestion = \"dctcp\""),
        (
            "congestion = \"bbr\"\necn = \"ect1\"",
            "traffic.ecn: ECT(1) is for congestion = \"dctcp\"",
        ),
        ("ecn = \"ce\"", "traffic.ecn: expected one of `\"none\"`, `\"ect0\"`, `\"ect1\"`"),
    ] {
        says("\nrate = \"5Mbit/s\"\nclass", &format!("{}class", tcp(keys)), &[wanted]);
    }
    says(
        "class = \"gold\"",
        "class = \"gold\"\necn = \"ect0\"",
        &["traffic.ecn: only together with kind = \"tcp\" or \"tcp-flows\" or \
             \"web\" or \"update\""],
    );
}

#[test]
fn steps() {
    says("at = \"10s\"", "at = \"30s\"", &["step.at: the step is not before the end of the run"]);
    says(
        "[[expect]]",
        "[[step]]\nname = \"x5\"\nat = \"5s\"\n[[expect]]",
        &["s.toml:50: step.at: steps stand in order of time: this is not after \"x10\""],
    );
    says(
        "name = \"x10\"\nat = \"10s\"",
        "name = \"start\"\nat = \"10s\"",
        &["the step at 0 is named `start`"],
    );
    says(
        "value = \"10us\"",
        "value = \"10min\"",
        &["s.toml:47: step.set: x_delay: \"10min\" is not a length of time"],
    );
    says(
        "class = \"gold\", value = \"10us\"",
        "class = \"gould\", value = \"10us\"",
        &["no class \"gould\"; did you mean \"gold\"?"],
    );
    says(
        "knob = \"x_delay\", class = \"gold\", value = \"10us\"",
        "knob = \"weight\", class = \"gold\", value = 3",
        &["step.set.knob: the link's discipline is then lct, which has no weight"],
    );
    says(
        "link = \"sink\", knob = \"x_delay\", class = \"gold\", value = \"10us\"",
        "link = \"snik\", knob = \"x_delay\", class = \"gold\", value = \"10us\"",
        &["router \"r1\" has no link \"snik\"; did you mean \"sink\"?"],
    );
    says(
        "{ link = \"sink\", knob = \"x_delay\", class = \"gold\", value = \"10us\" }",
        "{ router = \"r2\", link = \"sink\", knob = \"x_delay\", class = \"gold\", value = \
         \"10us\" }",
        &["no router \"r2\"; did you mean \"r1\"?"],
    );
}

#[test]
fn a_swapped_discipline_changes_which_knobs_there_are() {
    let set = "set = [{ link = \"sink\", knob = \"x_delay\", class = \"gold\", value = \"10us\" }]";
    let swap = "set = [{ link = \"sink\", knob = \"discipline\", value = { kind = \"wfq-altq\", \
                weight = { gold = 3 } } }, { link = \"sink\", knob = \"weight\", class = \"gold\", \
                value = 3 }]";
    let scenario = parse(&BASE.replacen(set, swap, 1)).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(scenario.steps[1].set[0].value, "{ kind = \"wfq-altq\", weight = { gold = 3 } }");
}

#[test]
fn expectations() {
    let that =
        |that: &str, wanted: &[&str]| says("delay(gold)@x10 > delay(gold)@start", that, wanted);
    that(
        "delay(gold)@x11 > 1",
        &["s.toml:51: expect.that: at character 12: no step \"x11\"; did you mean \"x10\"?"],
    );
    that("delay(golt)@x10 > 1", &["at character 6: no class \"golt\"; did you mean \"gold\"?"]);
    that("dalay(gold)@x10 > 1", &["at character 1: no metric \"dalay\"; did you mean \"delay\"?"]);
    that("delay(idle)@x10 > 1", &["no traffic is of class \"idle\": nothing is measured"]);
    that("calls_none(h1)@x10 > 1", &["no traffic passes link \"h1\"; traffic passes r1/sink"]);
    that("delay(gold)@x10", &["a comparison is expected here"]);
    that("delay(gold)@x10 ~ 1", &["`within`, a number and `%` must follow"]);
    that("published.ratios > 1", &["nothing published under \"ratios\"; did you mean \"ratio\"?"]);
    that("published.list[2] > 1", &["\"list\" has 2 items, from 0 on"]);
    that("published.claim > 1", &["published.claim is a string, not a number"]);
    that(
        "delay(gold)@x10-delay(gold)@start > 0",
        &["for a difference write `@x10 - …` with spaces"],
    );
    says(
        "settle = \"1s\"",
        "settle = \"9.5s\"",
        &["step \"start\" is too short to be measured: settling and one sampling window do not \
             fit into 10s"],
    );
    says(
        "class = \"gold\"",
        "class = \"gold\"\nstop = \"10s\"",
        &["no traffic of class \"gold\" is sent during step \"x10\""],
    );
}

#[test]
fn delays_between_hosts_need_stamps() {
    let text = BASE.replacen("delay(gold)@x10", "e2e(gold)@x10", 1);
    assert!(parse(&text).is_ok());
    let errors =
        parse(&text.replacen("class = \"gold\"", "class = \"gold\"\ntool = \"iperf3\"", 1))
            .unwrap_err();
    assert!(
        errors.contains("e2e of class \"gold\" is not measured: only tool = \"evenkeel\" stamps"),
        "{errors}"
    );
}

#[test]
fn ablations() {
    says(
        "fails = [\"grows\"]",
        "fails = [\"grow\"]",
        &["without.fails: no expectation \"grow\"; did you mean \"grows\"?"],
    );
    says(
        "value = \"0us\"",
        "value = \"0us\", at = \"x11\"",
        &["without.set.at: no step \"x11\"; did you mean \"x10\"?"],
    );
    says(
        "claim = \"It grows.\"",
        "claim = \"It grows.\"\nreproduced = false",
        &[
            "a claim that is not reproduced needs a `note`",
            "\"grows\" is not reproduced: that it fails proves nothing",
        ],
    );
}

#[test]
fn published_entries() {
    says(
        "numbers.toml#one",
        "numbers.toml#two",
        &["s.toml:5: published: published/numbers.toml has no entry \"two\"; there are: one"],
    );
    says("numbers.toml#one", "../x.toml#one", &["is not the plain name of a file in published/"]);
    says("numbers.toml#one", "numbers.toml", &["expected \"file.toml#key\""]);
    says(
        "numbers.toml#one",
        "absent.toml#one",
        &["no file published/absent.toml beside or above the scenario"],
    );
}

#[test]
fn all_errors_come_at_once() {
    let text = BASE
        .replacen("title = ", "titel = ", 1)
        .replacen("rate = \"10Mbit/s\"", "rate = \"10Mbps\"", 1)
        .replacen("to = \"sink\"", "to = \"snik\"", 1)
        .replacen("at = \"10s\"", "at = 10", 1)
        .replacen("that = \"delay(gold)@x10 >", "that = \"delay(gold)@x10 > >", 1);
    let errors = parse(&text).unwrap_err();
    let lines: Vec<_> = errors.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    assert_eq!(
        lines,
        ["titel", "router.config.link.rate", "traffic.to", "step.at", "expect.that"],
        "\n{errors}"
    );
}

#[test]
fn an_unreadable_file_is_named() {
    let error = Scenario::load(Path::new("/nonexistent/s.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/s.toml: cannot be read: "), "{error}");
}

/// The base with lines left out, doubled, and moved, and pieces of lines swapped.
fn nearly_right() -> impl Strategy<Value = String> {
    let lines = BASE.lines().count();
    let edit = (0..lines, 0..lines, 0..4u8, "\\PC{0,6}");
    prop::collection::vec(edit, 0..6).prop_map(|edits| {
        let mut lines: Vec<String> = BASE.lines().map(str::to_owned).collect();
        for (a, b, what, text) in edits {
            let (a, b) = (a % lines.len(), b % lines.len());
            match what {
                0 if lines.len() > 1 => drop(lines.remove(a)),
                1 => lines.insert(b, lines[a].clone()),
                2 => lines.swap(a, b),
                _ => {
                    let half = lines[a].chars().count() / 2;
                    lines[a] = lines[a].chars().take(half).chain(text.chars()).collect();
                }
            }
        }
        lines.join("\n")
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = Scenario::parse(&text, "s.toml", Path::new("/nonexistent"));
    }

    #[test]
    fn no_nearly_right_text_panics(text in nearly_right()) {
        if let Err(errors) = Scenario::parse(&text, "s.toml", Path::new("/nonexistent")) {
            prop_assert!(!errors.0.is_empty());
        }
    }

    #[test]
    fn no_expression_panics(text in "([a-z_]{1,9}|[0-9.]{1,4}|\\(gold\\)@x10|[-+*/()<>=~%,\
                                     @.\\[\\]]| and | within |published){0,30}") {
        let text = BASE.replacen("delay(gold)@x10 > delay(gold)@start", &text, 1);
        let _ = Scenario::parse(&text, "s.toml", Path::new("/nonexistent"));
    }

    #[test]
    fn long_and_deep_expressions_are_refused(n in 1usize..4000,
        piece in prop::sample::select(vec!["(", "-", "1+", "min(", "1 < "])) {
        let text = BASE.replacen("delay(gold)@x10 > delay(gold)@start", &piece.repeat(n), 1);
        prop_assert!(Scenario::parse(&text, "s.toml", Path::new("/nonexistent")).is_err());
    }
}

#[test]
fn flows_of_expectations_are_known_and_have_what_is_asked() {
    let that = "that = \"delay(gold)@x10 > delay(gold)@start\"";
    let says_of = |with: &str, wanted: &str| says(that, &format!("that = \"{with}\""), &[wanted]);
    says_of("p50(fct(web)) < 1", "no traffic \"web\"; there are: a, b");
    says_of("p50(flow_goodput(z*)) < 1", "no traffic \"z*\"");
    says_of("p50(fct(a)) < 1", "\"a\" has no flows that end");
    says_of("fct(a) < 1", "fct is a number of each flow: say which you want, as in p99(fct(…))");
    says_of("worst(1, 2) < 1", "worst is one of many: worst(fct(…)), …(flow_goodput(…))");
    says_of("p50(delay(gold)@start) < 1", "p50 is one of many");
    says_of("p50(flow_loss(a)@x99) < 1", "no step \"x99\"");
    says_of("p50(flow_loss(a)@x10 + 1) < 1", "`)` is expected here");
    says_of("p50(flow_loss) < 1", "`(traffic)` must follow flow_loss");
    says_of("sum(sent(z*)@x10) < 1", "no class \"z*\"");
    says_of("sent(*)@x10 < 1", "no class \"*\"");
    for good in ["p99(flow_loss(a, b)@x10) < 1", "sum(sent(*)@x10) > mean(sent(sink/g*)@x10, 1)"] {
        let text = BASE.replacen(that, &format!("that = \"{good}\""), 1);
        assert!(parse(&text).is_ok(), "{good}: {}", parse(&text).unwrap_err());
    }
}
