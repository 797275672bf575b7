//! What the command says, and ends with, when it is given what it cannot use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn evenkeel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

const GOOD: &str = r#"
[[port]]
name = "wan"
interface = "ek-not-there"

[[class]]
name = "rest"

[[class]]
name = "voice"
match = [{ dscp = [46] }]

[[link]]
port = "wan"
rate = "100Mbit/s"

[link.discipline]
kind = "lct"
limit = 50
x_delay = { rest = "200us" }
"#;

/// Checks `GOOD` with `was` replaced by `is`; both `check` and `run` must refuse it alike.
fn refused(was: &str, is: &str, line: usize, wanted: &[&str]) {
    let folder = Folder::new();
    assert!(GOOD.contains(was), "{was}");
    let file = folder.write("router.toml", &GOOD.replace(was, is));
    for command in ["check", "run"] {
        let output = evenkeel(&[command, file.to_str().unwrap()]);
        assert_eq!(code(&output), 2, "{command}: {}", errors(&output));
        let said = errors(&output);
        let place = format!("{}:{line}: ", file.display());
        assert!(said.lines().any(|l| l.starts_with(&place)), "{command}: no {place} in\n{said}");
        for part in wanted {
            assert!(said.contains(part), "{command}: no {part:?} in\n{said}");
        }
        assert_eq!(text(&output), "", "{command} printed on standard output");
    }
}

#[test]
fn an_unknown_key_is_named_with_the_nearest() {
    refused("interface =", "interfce =", 4, &["port.interfce", "unknown key", "interface"]);
    refused("limit = 50", "limt = 50", 19, &["limt", "limit"]);
}

#[test]
fn a_wrong_unit_is_named_with_the_valid_ones() {
    refused("100Mbit/s", "100MB", 15, &["rate", "Mbit/s"]);
    refused("200us", "200", 20, &["x_delay", "us"]);
}

#[test]
fn a_value_out_of_range_is_named_with_the_range() {
    refused("limit = 50", "limit = 0", 19, &["limit", "1", "65536"]);
    refused("200us", "100s", 20, &["x_delay", "range"]);
    refused("dscp = [46]", "dscp = [64]", 11, &["dscp", "63"]);
}

#[test]
fn an_unknown_class_or_port_is_named_with_the_nearest() {
    refused("port = \"wan\"", "port = \"wna\"", 14, &["wna", "wan"]);
    refused("rest = \"200us\"", "rst = \"200us\"", 20, &["rst", "rest"]);
}

#[test]
fn every_error_of_a_file_is_told_at_once() {
    let folder = Folder::new();
    let text = GOOD.replace("100Mbit/s", "fast").replace("limit = 50", "limit = 0");
    let file = folder.write("router.toml", &text);
    let said = errors(&evenkeel(&["check", file.to_str().unwrap()]));
    assert!(said.contains(":15: ") && said.contains(":19: "), "{said}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = Folder::new();
    let missing = folder.path().join("nothing.toml");
    let missing = missing.to_str().unwrap();
    for arguments in [
        vec!["check", missing],
        vec!["run", missing],
        vec!["lab", missing],
        vec!["scenario", "show", missing],
        vec!["scenario", "check", missing],
        vec!["check", folder.path().to_str().unwrap()],
    ] {
        let output = evenkeel(&arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", errors(&output));
        assert!(
            errors(&output).contains(arguments.last().unwrap()),
            "{arguments:?}: {}",
            errors(&output)
        );
    }
    let binary = folder.path().join("binary.toml");
    fs::write(&binary, b"\xff\xfe\x00name").unwrap();
    let output = evenkeel(&["check", binary.to_str().unwrap()]);
    assert_eq!(code(&output), 2, "{}", errors(&output));
}

#[test]
fn a_missing_interface_is_bad_input_where_routing_is_allowed() {
    let folder = Folder::new();
    let file = folder.write("router.toml", GOOD);
    let socket = folder.path().join("control.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["run", file.to_str().unwrap(), "--socket", socket.to_str().unwrap()])
        .env("EVENKEEL_RUNTIME_DIR", folder.path().join("state"))
        .output()
        .unwrap();
    let said = errors(&output);
    // Without the right to open packet sockets the privilege is what is missing first.
    match code(&output) {
        2 => {
            let place = format!("{}:4: port.interface: ", file.display());
            assert!(
                said.contains(&place) && said.contains("ek-not-there") && said.contains("lo"),
                "{said}"
            );
        }
        3 => assert!(said.contains("CAP_"), "{said}"),
        other => panic!("exit code {other}: {said}"),
    }
    assert!(!socket.exists());
}

/// A row of a table was 3,700 characters with 200 classes, and nothing but the discipline was said.
#[test]
fn many_ports_and_classes_are_rows_that_fit_a_terminal() {
    let folder = Folder::new();
    let mut toml = String::new();
    for at in 0..300 {
        let link = format!("[[link]]\nport = \"p{at}\"\nrate = \"{}Mbit/s\"\n", 10 + at);
        let port = format!("[[port]]\nname = \"p{at}\"\ninterface = \"ek-no{at}\"\n");
        toml += &(port + &link);
        toml += "[link.discipline]\nkind = \"pdrr\"\n[link.admission]\nmin_fair_rate = 0.02\n";
    }
    toml += "[[class]]\nname = \"rest\"\n";
    for at in 0..240 {
        let rule = format!("{{ destination = \"10.0.{at}.0/24\" }}");
        toml += &format!("[[class]]\nname = \"c{at}\"\nmatch = [{rule}]\n");
    }
    let file = folder.write("many.toml", &toml);
    let output = evenkeel(&["check", file.to_str().unwrap()]);
    let said = text(&output);
    assert_eq!(code(&output), 0, "{}", errors(&output));
    let rows: Vec<_> = said.lines().take_while(|line| !line.starts_with("memory")).collect();
    assert!(rows.iter().all(|row| row.chars().count() <= 120), "{said}");
    assert_eq!(
        rows.iter().filter(|row| row.starts_with('p') && row.contains("ek-no")).count(),
        300
    );
    assert_eq!(said.matches("min_fair_rate = 0.02").count(), 1, "said once: {said}");
    assert!(said.contains("c239   destination = \"10.0.239.0/24\""), "{said}");
    let all = evenkeel(&["check", "--all", file.to_str().unwrap()]);
    assert!(text(&all).contains("icmp_per_second = 100"), "{}", text(&all));
}

#[test]
fn a_good_file_is_explained() {
    let folder = Folder::new();
    let file = folder.write("router.toml", GOOD);
    let file = file.to_str().unwrap();
    let output = evenkeel(&["check", file]);
    assert_eq!(code(&output), 0, "{}", errors(&output));
    let said = text(&output);
    for part in ["wan", "ek-not-there", "100Mbit/s", "lct", "\"rest\" = \"200us\"", "voice", "dscp"]
    {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    let other = folder.write("new.toml", &GOOD.replace("200us", "300us"));
    let output = evenkeel(&["check", other.to_str().unwrap(), "--against", file]);
    assert!(text(&output).contains("200us becomes 300us"), "{}", text(&output));
}

#[test]
fn json_is_json_for_good_and_bad_files() {
    let folder = Folder::new();
    let good = folder.write("good.toml", GOOD);
    let bad = folder.write("bad.toml", &GOOD.replace("limit = 50", "limit = 0"));
    let read = |file: &Path, expected: i32| -> serde_json::Value {
        let output = evenkeel(&["check", "--json", file.to_str().unwrap()]);
        assert_eq!(code(&output), expected);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let value = read(&good, 0);
    assert_eq!(value["ok"], true);
    assert_eq!(value["links"][0]["rate_bps"], 100_000_000);
    assert_eq!(value["links"][0]["settings"]["limit.rest"], "50");
    let value = read(&bad, 2);
    assert_eq!(value["ok"], false);
    assert_eq!(value["errors"][0]["line"], 19);
}

#[test]
fn nobody_listening_is_said() {
    let folder = Folder::new();
    let socket = folder.path().join("none.sock");
    let output = evenkeel(&["ctl", "--socket", socket.to_str().unwrap(), "show"]);
    assert_eq!(code(&output), 1);
    assert!(errors(&output).contains("no router listens at"), "{}", errors(&output));
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for arguments in [
        &["rnu"][..],
        &[],
        &["ctl", "watch", "--interval", "1"],
        &["ctl", "watch", "--interval", "1us"],
        &["lab", "x.toml", "--time-scale", "fast"],
        &["lab", "x.toml", "--without", "a", "--all-without"],
    ] {
        assert_eq!(code(&evenkeel(arguments)), 2, "{arguments:?}");
    }
}

#[test]
fn a_scenario_with_errors_is_refused_before_anything_runs() {
    let folder = Folder::new();
    let file = folder.write("scenario.toml", "name = \"a\"\ntitel = \"b\"\n");
    for arguments in [vec!["lab"], vec!["scenario", "check"], vec!["scenario", "show"]] {
        let arguments: Vec<&str> = arguments.into_iter().chain([file.to_str().unwrap()]).collect();
        let output = evenkeel(&arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        let said = errors(&output);
        assert!(
            said.contains(&format!("{}:2: titel", file.display())) && said.contains("title"),
            "{said}"
        );
    }
}

#[test]
fn the_references_are_printed() {
    for (format, key) in [("router", "x_delay"), ("scenario", "time")] {
        let output = evenkeel(&["reference", format]);
        assert_eq!(code(&output), 0);
        assert!(text(&output).starts_with("# ") && text(&output).contains(key));
    }
}

#[test]
fn a_file_with_a_key_that_everybody_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let service = "\n[[service]]\nname = \"vpn\"\n[service.work]\nkind = \"esp\"\n\
                   local = \"10.0.0.1\"\nremote = \"10.0.0.2\"\nspi = 256\n\
                   key = \"0x4c80cdefbb5d10da906ac73c3613a6342e443b68\"\n";
    let file = folder.write("router.toml", &format!("{GOOD}{service}"));
    let run = |mode: u32| {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let folder = folder.path().display().to_string();
        let output = evenkeel(&["run", &file.display().to_string(), "--runtime-dir", &folder]);
        assert_ne!(code(&output), 0);
        errors(&output)
    };
    let said = run(0o644);
    assert!(said.contains("everybody may read it") && said.contains("chmod o="), "{said}");
    assert!(!said.contains("4c80"), "{said}");
    assert!(!run(0o640).contains("everybody may read it"));
}

/// AFAN with the published target gives 20 greedy flows 60 % of their fair rate, and a quantum
/// below a packet takes the meaning from shares: both are allowed, and told.
#[test]
fn check_advises_against_settings_that_do_not_keep_what_others_promise() {
    let folder = Folder::new();
    let advice_at = |interface: &str, discipline: &str| {
        let toml = format!(
            "[[port]]\nname = \"wan\"\ninterface = \"{interface}\"\n[[link]]\nport = \"wan\"\nrate \
             = \"10Mbit/s\"\ndiscipline = {{ {discipline} }}\nadmission = {{}}\n"
        );
        let file = folder.write("router.toml", &toml);
        let output = evenkeel(&["check", file.to_str().unwrap()]);
        assert_eq!(code(&output), 0, "{}", errors(&output));
        let json = text_of_json(&evenkeel(&["check", "--json", file.to_str().unwrap()]));
        let lines: Vec<String> = text(&output)
            .lines()
            .filter(|l| l.starts_with("advice: "))
            .map(str::to_owned)
            .collect();
        assert_eq!(json["advice"].as_array().map(Vec::len), Some(lines.len()));
        lines.join("\n")
    };
    let advice = |discipline: &str| advice_at("not-here0", discipline);
    assert_eq!(advice("kind = \"afan\""), "");
    assert!(advice("kind = \"afan\", afd = { target = 50 }").contains("or set it to 160"));
    assert_eq!(advice("kind = \"afan\", limit = 500, afd = { target = 160 }"), "");
    assert!(advice("kind = \"pdrr\", quantum = \"1000B\"").contains("quantum of 1000"));
    assert_eq!(advice("kind = \"pdrr\""), "");
    // 1538 was a packet whatever the port's MTU: here it is 65536, which each machine has.
    let long = advice_at("lo", "kind = \"pdrr\"");
    assert!(long.contains("a packet of 65536 bytes on the wire (65574B)"), "{long}");
}

/// A FIFO of 1000 packets at 20 Mbit/s is 615 ms, a ring of 128 is 79 ms: both are allowed, and
/// told, and so is what has no effect.
#[test]
fn check_says_where_packets_wait_long() {
    let folder = Folder::new();
    let advice = |link: &str| {
        let toml = format!(
            "[[port]]\nname = \"wan\"\ninterface = \"not-here0\"\n[[link]]\nport = \"wan\"\n\
             {link}\n"
        );
        let file = folder.write("router.toml", &toml);
        let output = evenkeel(&["check", file.to_str().unwrap()]);
        assert_eq!(code(&output), 0, "{}", errors(&output));
        let lines = text(&output);
        lines.lines().filter(|l| l.starts_with("advice: ")).collect::<Vec<_>>().join("\n")
    };
    let rate = "rate = \"20Mbit/s\"\n";
    let short = "discipline = { kind = \"pdrr\", max_delay = \"50ms\", aqm = \"cobalt\" }";
    assert_eq!(advice(rate), "");
    let fifo = advice(&format!("{rate}discipline = {{ kind = \"fifo\" }}"));
    assert!(fifo.contains("FIFO of 1000 packets everybody may wait for 615 ms"), "{fifo}");
    assert_eq!(advice(&format!("{rate}{short}")), "");
    assert_eq!(advice(&format!("{rate}discipline = {{ kind = \"fifo\", limit = 50 }}")), "");
    assert!(advice(&format!("{rate}{short}\nring = {{ slots = 128 }}")).contains("takes 78 ms"));
    assert!(advice(short).contains("without a rate max_delay bounds nothing"));
    assert!(advice("discipline = { kind = \"drr\" }").contains("where drr has no say"));
    let fq_codel = advice(&format!("{rate}discipline = {{ kind = \"fq-codel\" }}"));
    assert!(fq_codel.contains("10240 packets, and the router has 8192 buffers"), "{fq_codel}");
    let wfq = "discipline = { kind = \"wfq-altq\" }\nring = { slots = 51 }";
    assert!(
        advice(&format!("rate = \"1Gbit/s\"\n{wfq}")).contains("51 packets above queues of 50")
    );
    let shaped = "shaper = { rate = \"30Mbit/s\", burst = \"3000B\" }";
    assert!(advice(&format!("{rate}{short}\n{shaped}")).contains("not slower than the link"));
    let slow = "discipline = { kind = \"codel\", target = \"80ms\" }";
    assert!(advice(&format!("{rate}{slow}")).contains("less than two targets"));
}

/// The first rule that fits decides: one behind a wider one is never asked.
#[test]
fn check_says_which_rules_no_packet_reaches() {
    let folder = Folder::new();
    let advice = |rules: &str| {
        let toml = format!(
            "[[port]]\nname = \"wan\"\ninterface = \"not-here0\"\n[[class]]\nname = \"rest\"\n\
             [[class]]\nname = \"one\"\nmatch = [{rules}]\n[[class]]\nname = \"two\"\n\
             match = [{{ source = \"10.1.2.0/24\", protocol = \"udp\" }}]\n"
        );
        let file = folder.write("router.toml", &toml);
        let output = evenkeel(&["check", file.to_str().unwrap()]);
        assert_eq!(code(&output), 0, "{}", errors(&output));
        text(&output).lines().filter(|l| l.starts_with("advice: ")).collect::<Vec<_>>().join("\n")
    };
    let hidden = "class two: rule 1 is never reached: rule 1 of class one takes all that fits it";
    assert!(advice("{ source = \"10.1.0.0/16\" }").contains(hidden));
    assert!(advice("{ protocol = \"udp\" }, { dscp = 46 }").contains(hidden));
    for reached in [
        "{ source = \"10.1.0.0/16\", protocol = \"tcp\" }",
        "{ source = \"10.1.2.0/25\" }",
        "{ source = \"10.1.0.0/16\", destination_port = \"1-65535\" }",
        "{ source = \"10.1.0.0/16\", dscp = 46 }",
        "{ destination = \"10.1.0.0/16\" }",
    ] {
        assert_eq!(advice(reached), "", "{reached}");
    }
}

/// FairDrop measures its worker's core: where that is not its own, or not all there is, it is told.
#[test]
fn check_says_where_fairdrop_cannot_work() {
    let folder = Folder::new();
    let advice = |router: &str, fairdrop: &str| {
        let toml = format!(
            "[router]\n{router}\n[[port]]\nname = \"wan\"\ninterface = \"eth0\"\n[[link]]\nport \
             = \"wan\"\nrate = \"10Mbit/s\"\ndiscipline = {{ kind = \"pdrr\" \
             }}\n[fairdrop]\n{fairdrop}\n"
        );
        let file = folder.write("router.toml", &toml);
        let output = evenkeel(&["check", file.to_str().unwrap()]);
        assert_eq!(code(&output), 0, "{}", errors(&output));
        let lines = text(&output);
        lines.lines().filter(|l| l.starts_with("advice: ")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(advice("cpu = 1", "bandwidth = false"), "");
    assert_eq!(advice("", "on = false"), "");
    assert!(advice("", "bandwidth = false").contains("no cpu is named"));
    assert!(advice("cpu = 1", "").contains("set bandwidth = false"));
    assert!(advice("cpu = 1", "groups = \"class\"").contains("single class"));
    assert!(advice("cpu = 1", "rule = { kind = \"kappa\" }").contains("published rule"));
    let short = advice("cpu = 1\nio = \"af-xdp\"\nbuffers = 512", "bandwidth = false");
    assert!(short.contains("holds 256 frames") && short.contains("to 1024"), "{short}");
    assert_eq!(advice("cpu = 1\nio = \"af-xdp\"\nbuffers = 1024", "bandwidth = false"), "");
    assert_eq!(advice("cpu = 1\nio = \"af-packet\"\nbuffers = 512", "bandwidth = false"), "");
    let never = advice("cpu = 1", "rule = { kind = \"mimd-ring\", high = 5000 }");
    assert!(never.contains("never shrinks"), "{never}");
    let workers = advice("workers = 2\ncpus = [0, 1]", "bandwidth = false");
    assert!(workers.contains("each of 2 workers") && !workers.contains("no cpu"), "{workers}");
}

fn text_of_json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&text(output)).expect("it is JSON")
}
