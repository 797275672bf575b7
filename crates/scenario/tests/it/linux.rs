//! Links with a queueing discipline of Linux: what is read, and what is refused with its line.

use std::path::Path;

use evenkeel_scenario::Scenario;

const LINUX: &str = r#"name = "t/linux"
title = "t"
duration = "2s"
[[host]]
name = "h"
[[host]]
name = "sink"
[[wire]]
ends = ["h", "r1"]
[[wire]]
ends = ["r1", "sink"]
[[router]]
name = "r1"
[[router.config.link]]
port = "sink"
discipline = { kind = "linux", command = "tbf rate 10mbit burst 3000 limit 30000" }
[[traffic]]
name = "a"
from = "h"
to = "sink"
rate = "5Mbit/s"
"#;

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, "s.toml", Path::new(".")).map_err(|errors| errors.to_string())
}

/// What is said of the text with one replacement.
#[track_caller]
fn said(from: &str, to: &str) -> String {
    assert!(LINUX.contains(from), "{from}");
    parse(&LINUX.replacen(from, to, 1)).expect_err("an error")
}

#[test]
fn the_kernel_forwards_where_a_link_has_one_and_the_text_is_written_as_it_was_read() {
    let scenario = parse(LINUX).unwrap_or_else(|errors| panic!("{errors}"));
    let router = &scenario.routers[0];
    assert!(router.is_kernel());
    assert!(router.config.text().contains("tbf rate 10mbit burst 3000 limit 30000"));
    let lines = "htb default 1 # the root\n\nclass parent 1: classid 1:1 htb rate 1mbit";
    let text = LINUX.replacen("tbf rate 10mbit burst 3000 limit 30000\"", "X\"", 1);
    let several = text.replacen("\"X\"", &format!("\"\"\"{lines}\"\"\""), 1);
    let several = parse(&several).unwrap_or_else(|errors| panic!("{errors}"));
    let link = several.routers[0].config.link("sink").expect("it is there");
    let linux = evenkeel_scenario::linux_of(&link.discipline).expect("it is one of Linux");
    let lines = evenkeel_config::tc_lines(&linux.command, "eth0").expect("two lines");
    let lines: Vec<String> = lines.iter().map(|line| line.join(" ")).collect();
    let wanted = [
        "qdisc add dev eth0 root handle 1: htb default 1",
        "class add dev eth0 parent 1: classid 1:1 htb rate 1mbit",
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn what_tc_cannot_be_told_is_refused_with_its_line() {
    let command = "tbf rate 10mbit burst 3000 limit 30000";
    for (told, why) in [
        ("", "it says no discipline"),
        ("class parent 1: classid 1:1 htb", "the first line is the root discipline"),
        ("htb dev eth1", "leave `dev` and `root` out"),
        ("htb\\npfifo limit 5", "further lines begin with `class`, `qdisc` or `filter`"),
    ] {
        let said = said(command, told);
        assert!(said.starts_with("s.toml:16:") && said.contains(why), "{told}: {said}");
    }
}

#[test]
fn what_only_our_router_does_is_refused_beside_it() {
    let link = "port = \"sink\"\n";
    let rate = said(link, "port = \"sink\"\nrate = \"10Mbit/s\"\n");
    assert!(rate.contains("of link \"sink\"") && rate.contains("say the rate in"), "{rate}");
    let other =
        said(link, "port = \"h\"\nrate = \"1Mbit/s\"\n[[router.config.link]]\nport = \"sink\"\n");
    assert!(other.contains("of link \"h\""), "{other}");
    let fairdrop =
        said("[[router.config.link]]", "[router.config.fairdrop]\n[[router.config.link]]");
    assert!(fairdrop.contains("fairdrop: link \"sink\""), "{fairdrop}");
}

#[test]
fn a_step_puts_in_another_of_linux_and_nothing_else() {
    let step = |set: &str| {
        let set = format!("set = [{{ link = \"sink\", {set} }}]\n");
        parse(&format!("{LINUX}[[step]]\nname = \"s\"\nat = \"1s\"\n{set}"))
    };
    step("knob = \"discipline\", value = { kind = \"linux\", command = \"pfifo limit 9\" }")
        .unwrap_or_else(|errors| panic!("{errors}"));
    for set in [
        "knob = \"discipline\", value = { kind = \"fifo\" }",
        "knob = \"rate\", value = \"1Mbit/s\"",
    ] {
        let said = step(set).expect_err("the kernel does not");
        assert!(said.contains("the kernel of this router forwards"), "{said}");
    }
    let ours = LINUX.replacen(
        "discipline = { kind = \"linux\", command = \"tbf rate 10mbit burst 3000 limit 30000\" }",
        "rate = \"10Mbit/s\"",
        1,
    );
    let to_linux = "[[step]]\nname = \"s\"\nat = \"1s\"\nset = [{ link = \"sink\", knob = \
                    \"discipline\", value = { kind = \"linux\", command = \"pfifo\" } }]\n";
    let said = parse(&format!("{ours}{to_linux}")).expect_err("it forwards itself");
    assert!(said.contains("cannot become the kernel"), "{said}");
}
