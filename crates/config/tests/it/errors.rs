//! Every kind of mistake names file, line, key, what is wrong, the valid range, the nearest valid
//! key; all at once.

use evenkeel_config::RouterConfig;
use evenkeel_settings::Diagnostics;
use proptest::prelude::*;

fn errors(text: &str) -> Diagnostics {
    RouterConfig::parse(text, "r.toml").expect_err("the text has errors")
}

/// The file with a good port, and `rest` from line 4 on.
fn with_port(rest: &str) -> String {
    format!("[[port]]\nname = \"lan\"\ninterface = \"eth1\"\n{rest}")
}

#[track_caller]
fn says(text: &str, wanted: &[&str]) {
    let printed = errors(text).to_string();
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), wanted.len(), "{printed}");
    for (line, wanted) in lines.iter().zip(wanted) {
        assert!(line.contains(wanted), "\n  {line}\nlacks\n  {wanted}");
    }
}

#[test]
fn unknown_keys_name_the_nearest() {
    says(
        &with_port("[router]\nmod = \"busy\""),
        &["r.toml:5: router.mod: unknown key; did you mean `mode`?"],
    );
    says(&with_port("[routr]"), &["r.toml:4: routr: unknown key; did you mean `router`?"]);
    says(
        &with_port("[[link]]\nport = \"lan\"\nzzz = 1"),
        &["r.toml:6: link.zzz: unknown key; valid keys: port, also, discipline, control, \
             admission, rate, ring, dequeue_time, shaper"],
    );
}

#[test]
fn a_misspelt_required_key_is_one_error() {
    says(
        "[[port]]\nname = \"lan\"\ninterfce = \"eth1\"",
        &["r.toml:3: port.interfce: unknown key; did you mean `interface`?"],
    );
}

#[test]
fn missing_keys_say_what_is_wanted() {
    says("", &["r.toml:1: port: this required key is missing: tables [[port]]"]);
    says(
        "[[port]]\nname = \"lan\"",
        &["r.toml:1: port.interface: this required key is missing: the name of a network"],
    );
    says(
        &with_port("[[link]]\nport = \"lan\"\nshaper = {}"),
        &["r.toml:6: link.shaper.rate: this required key is missing: a rate such as"],
    );
    says(
        &with_port("[[link]]\nport = \"lan\"\ndiscipline = { limit = 3 }"),
        &["r.toml:6: link.discipline.kind: this required key is missing: kind = `\"fifo\"`, kind \
             = `\"wfq-altq\"`"],
    );
}

#[test]
fn wrong_types_say_what_is_wanted_and_what_is_there() {
    says(
        &with_port("[router]\nbuffers = \"many\""),
        &["r.toml:5: router.buffers: expected a whole number, 256 to 1048576 buffers, found \
             \"many\""],
    );
    says(
        &with_port("[[link]]\nport = \"lan\"\nrate = 100"),
        &["link.rate: expected a rate such as \"100Mbit/s\" (units: bit/s, kbit/s, Mbit/s, \
             Gbit/s), found the whole number 100"],
    );
    says(
        &with_port("[port2]\n[class]\nname = \"x\""),
        &["port2", "r.toml:5: class: expected tables [[class]], found a table"],
    );
    says("port = 3", &["r.toml:1: port: expected tables [[port]], found the whole number 3"]);
}

#[test]
fn wrong_units_name_the_right_ones() {
    says(
        &with_port("[[link]]\nport = \"lan\"\nrate = \"100Mbps\""),
        &["r.toml:6: link.rate: \"100Mbps\" is not a rate: unit \"Mbps\" is not known here, \
             write `Mbit/s`"],
    );
    says(
        &with_port("[[link]]\nport = \"lan\"\ndequeue_time = \"5\""),
        &["link.dequeue_time: \"5\" is not a length of time: its unit is missing"],
    );
}

#[test]
fn values_out_of_range_name_the_range() {
    says(
        &with_port("[[link]]\nport = \"lan\"\nring = { slots = 0 }"),
        &["r.toml:6: link.ring.slots: 0 is out of range; valid: 1 to 4096 packets"],
    );
    says(
        &with_port("[[link]]\nport = \"lan\"\nrate = \"1bit/s\""),
        &["link.rate: 1bit/s is out of range; valid: 1kbit/s to 1000Gbit/s"],
    );
    says(
        &with_port("[[link]]\nport = \"lan\"\ndiscipline = { kind = \"lct\", x_delay = \"61s\" }"),
        &["link.discipline.x_delay: 61s is out of range; valid: 0s to 60s"],
    );
    says(
        &with_port("[[link]]\nport = \"lan\"\ndiscipline = { kind = \"lct\", limit = -1 }"),
        &["link.discipline.limit: -1 is out of range; valid: 1 to 65536 packets"],
    );
}

#[test]
fn names_must_be_unique_and_known() {
    let two = "[[port]]\nname = \"a\"\ninterface = \"eth1\"\n[[port]]\nname = \"a\"\ninterface = \
               \"eth1\"";
    says(
        two,
        &[
            "r.toml:5: port.name: port \"a\" is there twice",
            "r.toml:6: port.interface: interface \"eth1\" is there twice",
        ],
    );
    says(
        &with_port("[[link]]\nport = \"lam\""),
        &["r.toml:5: link.port: no port \"lam\"; did you mean \"lan\"?"],
    );
    says(
        &with_port("[[link]]\nport = \"lan\"\n[[link]]\nport = \"lan\""),
        &["r.toml:7: link.port: a link of port \"lan\" is there twice"],
    );
    says(
        &with_port(
            "[[class]]\nname = \"rest\"\n[[class]]\nname = \"voice\"\n[[link]]\nport = \
             \"lan\"\n[link.discipline]\nkind = \"lct\"\nx_delay = { voise = \"1us\" }",
        ),
        &["r.toml:12: link.discipline.x_delay.voise: no class \"voise\"; did you mean \"voice\"?"],
    );
}

#[test]
fn knobs_of_other_disciplines_say_whose_they_are() {
    says(
        &with_port(
            "[[link]]\nport = \"lan\"\n[link.discipline]\nkind = \"fifo\"\nx_delay = \"1us\"",
        ),
        &["r.toml:8: link.discipline.x_delay: fifo has no such knob; it is one of lct"],
    );
    says(
        &with_port("[[link]]\nport = \"lan\"\ndiscipline = { kind = \"red\" }"),
        &["link.discipline.kind: \"red\" is not a kind; there are: fifo, wfq-altq, lct, pfq, \
             pdrr, afan"],
    );
    says(
        &with_port(
            "[[link]]\nport = \"lan\"\ndiscipline = { kind = \"wfq-altq\", high_water = \"64KiB\", \
             select = \"hash-full\", weight = 3 }",
        ),
        &[
            "link.discipline.weight: only together with select = \"class\"",
            "link.discipline.high_water: only together with drop = \"longest\"",
        ],
    );
}

#[test]
fn rules_that_fit_nothing_or_everything_are_errors() {
    let class = |rule: &str| with_port(&format!("[[class]]\nname = \"x\"\nmatch = [{rule}]"));
    says(&class("{}"), &["r.toml:6: class.match: an empty rule would fit every packet"]);
    says(&class("{ dscp = [] }"), &["class.match.dscp: the list is empty"]);
    says(&class("{ dscp = [64] }"), &["class.match.dscp: 64 is out of range; valid: 0 to 63"]);
    says(&class("{ source = \"10.0.0.0/8\", destination = \"::/0\" }"), &["different IP versions"]);
    says(&class("{ source = \"10.0.0.1/8\" }"), &["did you mean \"10.0.0.0/8\"?"]);
    says(&class("{ source = \"10.0.0/8\" }"), &["found \"10.0.0/8\": \"10.0.0\" is no IP address"]);
    says(&class("{ source = \"::/\" }"), &["\"\" is no prefix length; valid: 0 to 128"]);
    says(&class("{ source = \"10.0.0.0/33\" }"), &["\"33\" is no prefix length; valid: 0 to 32"]);
    says(&class("{ destination_port = \"20-10\" }"), &["expected a port or a range of ports"]);
    says(&class("{ protocol = \"ucp\" }"), &["expected a protocol"]);
}

#[test]
fn all_errors_come_at_once_in_order_of_their_lines() {
    let text = "[router]\nmodus = 1\nbuffers = 1\n[[port]]\nname = \"lan\"\n[[link]]\nport = \
                \"wan\"\nrate = \"fast\"\n";
    says(text, &["r.toml:2:", "r.toml:3:", "r.toml:4:", "r.toml:7:", "r.toml:8:"]);
}

#[test]
fn protocols_and_code_points_have_their_names() {
    let class = |rule: &str| {
        format!(
            "[[port]]\nname = \"a\"\ninterface = \"a0\"\n\
             [[class]]\nname = \"x\"\nmatch = [{rule}]\n"
        )
    };
    let read = |rule: &str| {
        let config = RouterConfig::parse(&class(rule), "r.toml");
        config.unwrap_or_else(|errors| panic!("{rule}: {errors}"))
    };
    let rules = |rule: &str| read(rule).classes[0].rules.clone();
    let numbers = "{ protocol = 132, dscp = [46, 34] }, { protocol = 47, dscp = [1] }";
    let names = "{ protocol = \"sctp\", dscp = [\"EF\", \"af41\"] }, \
                 { protocol = \"GRE\", dscp = \"LE\" }";
    assert_eq!(rules(numbers), rules(names));
    // They are told by name, those that have one; what is told can be read again.
    let told = read("{ protocol = 132, dscp = [46, 47] }, { protocol = 200 }").short_text();
    assert!(told.contains(r#"dscp = ["ef", 47], protocol = "sctp""#), "{told}");
    assert!(told.contains("protocol = 200"), "{told}");
    assert_eq!(RouterConfig::parse(&told, "r.toml").unwrap().short_text(), told);
    for (wrong, why) in [
        ("{ protocol = \"sctpp\" }", "a protocol: its number, 0 to 255, or a name such as \"udp\""),
        ("{ dscp = [\"AF44\"] }", "a DSCP: its number, 0 to 63, or a name such as \"ef\""),
        ("{ dscp = [64] }", "0 to 63"),
        ("{ dscp = [\"64\"] }", "0 to 63"),
        ("{ protocol = 256 }", "0 to 255"),
    ] {
        let printed = RouterConfig::parse(&class(wrong), "r.toml").unwrap_err().to_string();
        assert!(printed.contains("r.toml:6: class.match.") && printed.contains(why), "{printed}");
    }
}

#[test]
fn syntax_errors_have_a_line_and_hide_nothing() {
    let printed = errors("[[port]]\nname = = 3\ninterfac = \"eth1\"\n").to_string();
    assert!(printed.contains("r.toml:2: "), "{printed}");
    assert!(printed.contains("r.toml:3: port.interfac: unknown key"), "{printed}");
    assert!(
        errors("[router]\nmode = \"busy\"\nmode = \"busy\"").to_string().contains("r.toml:3: "),
        "duplicate keys"
    );
    // One mistake is one line.
    let printed = errors("x = = 3\n[[port]]\nname = \"a\"\ninterface = \"a0\"\n").to_string();
    assert_eq!(printed.matches("r.toml:1: ").count(), 1, "{printed}");
}

#[test]
fn an_unreadable_file_is_named() {
    let error =
        RouterConfig::load(std::path::Path::new("/nonexistent/r.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/r.toml: cannot be read: "), "{error}");
}

/// Pieces that make texts which get past the syntax.
fn nearly_right() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "[router]",
        "[[port]]",
        "[[class]]",
        "[[link]]",
        "[link.discipline]",
        "[link.ring]",
        "name = \"a\"",
        "name = 1",
        "interface = \"eth0\"",
        "port = \"a\"",
        "rate = \"1Mbit/s\"",
        "rate = \"1us\"",
        "kind = \"lct\"",
        "kind = \"wfq-altq\"",
        "kind = 3",
        "weight = { a = 1, b = \"x\" }",
        "weight = -1",
        "x_delay = \"5us\"",
        "x_delay = { a = 1 }",
        "limit = 99999999999999999999",
        "match = [{ dscp = [1, 2] }, {}, 3]",
        "match = {}",
        "ring = 3",
        "slots = 1.5",
        "shaper = { rate = \"1Gbit/s\" }",
        "select = \"hash-full\"",
        "queues = 5",
        "drop = \"longest\"",
        "[",
        "]]",
        "= =",
        "\"",
        "router = []",
        "link.a.b = 1",
    ]);
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.join("\n"))
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = RouterConfig::parse(&text, "r.toml");
    }

    #[test]
    fn no_nearly_right_text_panics(text in nearly_right()) {
        if let Err(errors) = RouterConfig::parse(&text, "r.toml") {
            prop_assert!(!errors.0.is_empty());
            let lines = text.lines().count().max(1) + 1;
            prop_assert!(errors.0.iter().all(|error| (1..=lines).contains(&error.line)),
                "{errors}");
        }
    }
}

/// A file of this and a port has an error there that says so.
fn refused(text: &str, key: &str, line: usize, says: &str) {
    let text = format!("{text}\n[[port]]\nname = \"a\"\ninterface = \"eth0\"\n");
    let errors = RouterConfig::parse(&text, "r.toml").unwrap_err();
    let found = errors
        .0
        .iter()
        .any(|error| error.line == line && error.key == key && error.message.contains(says));
    assert!(found, "{errors}");
}

#[test]
fn what_several_workers_cannot_share_is_refused_with_its_line() {
    let link = |rest: &str| {
        format!("[router]\nworkers = 2\n[[link]]\nport = \"a\"\nrate = \"1Gbit/s\"\n{rest}")
    };
    let pinning = "discipline = { kind = \"pdrr\" }\n[link.admission]\nflushing = \"ramaf\"\n\
                   pinning = true";
    refused(&link(pinning), "router.workers", 2, "pinning does not work with several workers");
    // What cannot be shared is the first worker's.
    for rest in [
        "discipline = { kind = \"lct\", module2 = false }",
        "discipline = { kind = \"wfq-altq\", select = \"hash-full\" }",
        "discipline = { kind = \"pdrr\" }\n[link.admission]\nflushing = \"ramaf\"",
        "discipline = { kind = \"pdrr\" }\n[link.admission]\nflushing = \"rmaef\"",
        "shaper = { rate = \"1Mbit/s\", burst = \"3KiB\" }",
        "control = { kind = \"latency\", min = \"1Mbit/s\", max = \"1Gbit/s\" }\n[fairdrop]\n",
        "discipline = { kind = \"pfq\" }",
    ] {
        let text = format!("{}\n[[port]]\nname = \"a\"\ninterface = \"eth0\"\n", link(rest));
        let config = RouterConfig::parse(&text, "r.toml").unwrap();
        assert_eq!(config.unshared_links()[0].is_none(), rest.contains("pfq"), "{rest}");
    }
    for shared in ["fifo", "wfq-altq", "lct", "afan", "priority", "qfq", "drr", "codel", "fq-codel"]
    {
        let rest = link(&format!("discipline = {{ kind = {shared:?} }}"));
        let text = format!("{rest}\n[[port]]\nname = \"a\"\ninterface = \"eth0\"\n");
        let config = RouterConfig::parse(&text, "r.toml").unwrap();
        assert_eq!(config.unshared_links(), [None], "{shared}");
    }
    // A clearing is one event of all, and so is the load of a second link, which is shared as well.
    for flushing in ["off", "all", "efm", "efmp", "raef", "rbaef", "rpaef"] {
        let rest = link(&format!(
            "discipline = {{ kind = \"pdrr\" }}\n[link.admission]\nflushing = {flushing:?}\n\
             second_link = \"b\"\n[[link]]\nport = \"b\"\nrate = \"1Gbit/s\"\n"
        ));
        let text = ["a", "b"].iter().fold(rest, |text, port| {
            text + &format!("[[port]]\nname = {port:?}\ninterface = \"eth-{port}\"\n")
        });
        let config = RouterConfig::parse(&text, "r.toml").unwrap();
        assert_eq!(config.unshared_links(), [None, None], "{flushing}");
    }
    // Users are counted by all together, and flows that keep their paths are each worker's.
    let rest =
        link("discipline = { kind = \"pdrr\" }\n[link.admission]\nper_user = true\npinning = true");
    let text = format!("{rest}\n[[port]]\nname = \"a\"\ninterface = \"eth0\"\n");
    let config = RouterConfig::parse(&text, "r.toml").unwrap();
    assert_eq!(config.unshared_links(), [None]);
    // By hosts: those whose flows wait apart, and count on one side.
    for kind in ["pdrr", "pfq"] {
        for (fair, shared) in [
            ("flow", true),
            ("source-flow", true),
            ("destination-flow", true),
            ("source", false),
            ("destination", false),
            ("host-flow", false),
        ] {
            let rest = link(&format!("discipline = {{ kind = {kind:?}, fair = {fair:?} }}"));
            let text = format!("{rest}\n[[port]]\nname = \"a\"\ninterface = \"eth0\"\n");
            let found = RouterConfig::parse(&text, "r.toml").unwrap().unshared_links();
            let what = found[0].as_ref().map(|part| part.what.to_owned());
            assert_eq!(what, (!shared).then(|| format!("fair = {fair:?}")), "{kind} {fair}");
        }
    }
    let classes = "[router]\nworkers = 2\n[[class]]\nname = \"x\"\n[[class]]\nname = \"y\"\n";
    let groups = "[fairdrop]\ngroups = \"class\"\n[[port]]\nname = \"a\"\ninterface = \"eth0\"";
    RouterConfig::parse(&format!("{classes}{groups}"), "r.toml").unwrap();
    refused("[router]\nworkers = 2\ncpu = 1", "router.cpu", 3, "cpus");
    refused("[router]\nworkers = 2\ncpus = [1]", "router.cpus", 3, "one for each");
    refused("[router]\nworkers = 65", "router.workers", 2, "1 to 64");

    let text = "[router]\nworkers = 2\ncpus = [0, 1]\n[[port]]\nname = \"a\"\ninterface = \
                \"eth0\"\n\
                [[link]]\nport = \"a\"\nrate = \"1Gbit/s\"\ndiscipline = { kind = \"wfq-altq\" }\n\
                [fairdrop]\nbandwidth = false\n";
    let config = RouterConfig::parse(text, "r.toml").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!((config.router.workers, config.router.cpus), (2, vec![0, 1]));
    // What they share by flows.
    for kind in ["fifo", "pfq", "pdrr", "afan"] {
        let admission =
            if kind == "fifo" { "" } else { "[link.admission]\neccm = true\nglobal_list = true\n" };
        let text = link(&format!("discipline = {{ kind = {kind:?} }}\n{admission}"));
        let text = text + "[[port]]\nname = \"a\"\ninterface = \"eth0\"\n[fairdrop]\n";
        RouterConfig::parse(&text, "r.toml").unwrap_or_else(|errors| panic!("{errors}"));
    }
}

/// Later fragments left in clear.
#[test]
fn a_class_that_is_encrypted_is_not_chosen_by_ports() {
    let file = |rule: &str, key: &str| {
        format!(
            r#"[[port]]
name = "wan"
interface = "eth0"
[[service]]
name = "vpn"
[service.work]
kind = "esp"
local = "10.0.0.1"
remote = "10.0.0.2"
spi = 256
key = "0x{key}"
[[class]]
name = "rest"
[[class]]
name = "secret"
service = "vpn"
match = [{{ {rule} }}]
"#
        )
    };
    let key = "4c80cdefbb5d10da906ac73c3613a6342e443b68";
    for rule in ["protocol = \"udp\", destination_port = 5000", "source_port = 1"] {
        let said = errors(&file(rule, key)).to_string();
        assert!(said.contains("fragments after the first have no ports"), "{said}");
        assert!(said.contains(":17:"), "{said}");
    }
    let fits = file("protocol = \"udp\", destination = \"10.9.0.0/16\"", key);
    RouterConfig::parse(&fits, "router.toml").unwrap();
}

#[test]
fn busy_polling_is_refused_where_it_is_of_no_use_or_does_harm() {
    let with = |rest: &str| format!("[router]\nbusy_poll = \"50us\"\n{rest}");
    refused(&with("[fairdrop]"), "router.busy_poll", 2, "valid: one of the two");
    refused(&with("io = \"af-packet\""), "router.busy_poll", 2, "ports with AF_XDP");
    refused(&with("mode = \"event\""), "router.busy_poll", 2, "\"adaptive\" or \"busy\"");
    refused(&with(""), "router.busy_poll", 2, "\"adaptive\" or \"busy\"");
    let port = "[[port]]\nname = \"a\"\ninterface = \"eth0\"\n";
    for mode in ["busy", "adaptive"] {
        let text = format!("{}{port}", with(&format!("mode = {mode:?}\n")));
        RouterConfig::parse(&text, "r.toml").unwrap_or_else(|errors| panic!("{errors}"));
    }
    refused("[router]\nbusy_poll = \"5us\"", "router.busy_poll", 2, "10us to 1ms");
    refused("[router]\nbusy_poll = \"2ms\"", "router.busy_poll", 2, "10us to 1ms");
}
