//! Whole runs between namespaces: what they find, and that nothing is left behind however they end.
//! Needs root, else skipped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::{LabError, LabOptions, Outcome, run};
use evenkeel_netns::testing::{available, has_tool};
use evenkeel_ports::sys;
use evenkeel_scenario::Scenario;

/// Two classes that want 8 Mbit/s each of 10; from the middle on the weights are 1 to 10.
const SHARES: &str = r#"
name = "test/shares"
title = "weights take effect while packets flow"
seed = 1
sample = "200ms"
settle = "400ms"
duration = "3s"

[[host]]
name = "h1"
[[host]]
name = "h2"
[[host]]
name = "sink"
[[router]]
name = "r1"
[[router.config.class]]
name = "low"
[[router.config.class]]
name = "high"
match = [{ dscp = 46 }]
[[router.config.link]]
port = "sink"
rate = "10Mbit/s"
[router.config.link.discipline]
kind = "wfq-altq"
limit = 50
[[wire]]
ends = ["h1", "r1"]
[[wire]]
ends = ["h2", "r1"]
[[wire]]
ends = ["r1", "sink"]
[[traffic]]
name = "a"
from = "h1"
to = "sink"
kind = "cbr"
rate = "8Mbit/s"
size = "1000B"
jitter = 0.5
class = "low"
[[traffic]]
name = "b"
from = "h2"
to = "sink"
kind = "poisson"
rate = "8Mbit/s"
size = "1000B"
class = "high"
dscp = 46
ipv6 = true
[[step]]
name = "weighted"
at = "1.5s"
set = [{ router = "r1", link = "sink", knob = "weight", class = "high", value = "1000" }]
[[expect]]
name = "equal"
claim = "without weights both get the same"
that = "sent(high)@start / sent(low)@start ~ 1 within 15%"
[[expect]]
name = "unequal"
claim = "with weights of 10 to 1 one gets all it wants"
that = "sent(high)@weighted > 2 * sent(low)@weighted"
[[expect]]
name = "hosts-agree"
claim = "what leaves the wire arrives"
that = "goodput(low)@start / (sent(low)@start * 8000) ~ 1 within 5%"
[[expect]]
name = "offered"
claim = "the sources offer what they were told to"
that = "offered(low)@start ~ 1000 within 5%"
[[expect]]
name = "whole-flows"
claim = "what the link carries in 3 s is what its flows got, less headers and its 38 bytes of frame"
that = "sum(flow_bytes(*)) * 8 / 3 ~ 9_250_000 within 5%"
[[expect]]
name = "losers"
claim = "the flow without weight loses more than twice as much"
that = "mean(flow_loss(a)) > 2 * mean(flow_loss(b)) > 0"
[[without]]
name = "weights"
set = [{ router = "r1", link = "sink", knob = "weight", class = "high", value = "100", at = "always" }]
fails = ["unequal"]
"#;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml", Path::new(".")).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The command: what `EVENKEEL` names, else built, beside the folder of this test.
fn evenkeel() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if let Some(given) = std::env::var_os("EVENKEEL") {
                return given.into();
            }
            let deps = std::env::current_exe().expect("this program has a path");
            let folder = deps.ancestors().nth(2).expect("target/<profile>/deps/<program>");
            let profile =
                folder.file_name().and_then(|name| name.to_str()).expect("a profile's folder");
            let profile = if profile == "debug" { "dev" } else { profile };
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--package", "evenkeel", "--profile", profile]);
            assert!(build.status().expect("cargo runs").success(), "the command can be built");
            folder.join("evenkeel")
        })
        .clone()
}

fn options(out: &Path, binary: PathBuf) -> LabOptions {
    LabOptions {
        time_scale: 1.0,
        without: None,
        out_dir: out.to_owned(),
        binary,
        progress: false,
        quiet: true,
        connections: false,
        captures: Vec::new(),
    }
}

/// Namespaces and folders of labs run by the process `pid`.
fn traces(pid: u32) -> Vec<PathBuf> {
    let head = format!("ekl{pid}-");
    [PathBuf::from("/run/netns"), std::env::temp_dir()]
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&head))
        })
        .collect()
}

/// Namespaces of this test's own labs, each run of which has another number; the tests of this file
/// run side by side.
fn own_namespaces_of(node: &str) -> Vec<String> {
    let names = traces(std::process::id()).into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?.to_owned();
        (path.starts_with("/run/netns") && name.ends_with(&format!("-{node}"))).then_some(name)
    });
    names.collect()
}

fn pids_in(namespace: &str) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "pids", namespace]).output().expect("ip runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let own = std::process::id().to_string();
    text.split_whitespace().filter(|pid| *pid != own).map(str::to_owned).collect()
}

/// The router that runs inside; not the commands that pass through while the namespace is set up.
fn router_in(namespace: &str) -> Option<String> {
    let is_router = |pid: &String| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.trim() == "evenkeel")
    };
    pids_in(namespace).into_iter().find(is_router)
}

fn kill(signal: &str, pid: &str) {
    let done = Command::new("kill").args([signal, pid]).status().expect("kill runs");
    assert!(done.success(), "kill {signal} {pid}");
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(30), "waited too long for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn verdicts(outcome: &Outcome) -> Vec<String> {
    let told =
        outcome.judgements.iter().map(|j| format!("{}: {:?} {:?}", j.name, j.verdict, j.measured));
    told.collect()
}

#[test]
fn a_run_finds_what_is_so_and_writes_it_down() {
    if !available("a_run_finds_what_is_so_and_writes_it_down") {
        return;
    }
    let out = tempfile::tempdir().expect("a folder");
    let outcome = run(&scenario(SHARES), &options(out.path(), evenkeel())).expect("it runs");
    assert!(outcome.passed(), "{:#?}", verdicts(&outcome));
    assert_eq!(outcome.judgements.len(), 6);
    for file in ["samples.csv", "calls.csv", "summary.json", "report.html"] {
        assert!(
            out.path().join(file).metadata().is_ok_and(|file| file.len() > 0),
            "{file} is written"
        );
    }
    let steps: Vec<_> = outcome.run.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(steps, ["start", "weighted"]);
    // 15 windows of two classes; only the link that flows pass.
    assert_eq!(outcome.run.samples.len(), 30);
    assert!(
        outcome.run.samples.iter().all(|sample| sample.link == "sink" && sample.offered.is_some())
    );
    let conservation: Vec<_> =
        outcome.run.warnings.iter().filter(|text| text.contains("!=")).collect();
    assert!(conservation.is_empty(), "{conservation:?}");
    let flows: Vec<_> = outcome.run.flows.iter().map(|row| row.traffic.as_str()).collect();
    assert_eq!(flows, ["a", "b"]);
}

#[test]
fn switched_off_a_mechanism_makes_its_expectation_fail_and_time_can_be_shortened() {
    if !available("switched_off_a_mechanism_makes_its_expectation_fail_and_time_can_be_shortened") {
        return;
    }
    let out = tempfile::tempdir().expect("a folder");
    let mut options = options(out.path(), evenkeel());
    options.without = Some("weights".into());
    options.time_scale = 0.8;
    let outcome = run(&scenario(SHARES), &options).expect("it runs");
    assert_eq!(outcome.judgements.len(), 1, "only what must fail is judged");
    assert!(outcome.passed(), "{:#?}", verdicts(&outcome));
    assert!((outcome.run.duration_s - 2.4).abs() < 1e-9);
    assert_eq!(outcome.run.name, "weights");

    options.without = Some("weigths".into());
    let error = run(&scenario(SHARES), &options).expect_err("there is none of that name");
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("weights"), "{error}");
}

#[test]
fn real_tools_go_through_the_router() {
    if !available("real_tools_go_through_the_router") {
        return;
    }
    let test = "real_tools_go_through_the_router";
    if !has_tool(test, "iperf3", "iperf3") || !has_tool(test, "ITGSend", "d-itg") {
        return;
    }
    let text = SHARES
        .replace("class = \"low\"\n", "class = \"low\"\ntool = \"iperf3\"\n")
        .replace("class = \"high\"\n", "class = \"high\"\ntool = \"d-itg\"\n")
        .replace("kind = \"poisson\"", "kind = \"cbr\"")
        .replace("ipv6 = true\n", "");
    let text = &text[..text.find("[[step]]").expect("the steps are left out")];
    let out = tempfile::tempdir().expect("a folder");
    let outcome = run(&scenario(text), &options(out.path(), evenkeel())).expect("it runs");
    for class in ["low", "high"] {
        let samples = outcome.run.samples.iter().filter(|sample| sample.class == class);
        let sent: u64 = samples.clone().map(|sample| sample.sent_packets).sum();
        assert!(sent > 300, "{class}: {sent} packets");
        assert!(
            samples.clone().all(|sample| sample.offered.is_none()),
            "the lab does not count what tools send"
        );
    }
    let notes = outcome.run.notes.join("\n");
    assert!(notes.contains("a: iperf3 says:") && notes.contains("packets lost"), "{notes}");
    let [row] = &*outcome.run.flows else { panic!("iperf3's: {:?}", outcome.run.flows) };
    assert_eq!((row.traffic.as_str(), row.transport.as_str()), ("a", "udp"));
    assert!(row.sent_packets > Some(row.lost_packets), "{row:?}");
    assert!(row.goodput_bps().is_some_and(|rate| (1e6..8e6).contains(&rate)), "{row:?}");
}

#[test]
fn a_router_that_does_not_start_is_named_with_what_it_said() {
    if !available("a_router_that_does_not_start_is_named_with_what_it_said") {
        return;
    }
    let out = tempfile::tempdir().expect("a folder");
    let script = out.path().join("not-a-router");
    std::fs::write(&script, "#!/bin/sh\necho no such feature >&2\nexit 3\n").expect("written");
    let mut mode = std::fs::metadata(&script).expect("it is there").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&script, mode).expect("it may be run");
    let error = run(&scenario(SHARES), &options(out.path(), script)).expect_err("it is no router");
    assert!(matches!(&error, LabError::Router { router, .. } if router == "r1"), "{error}");
    assert_eq!(error.exit_code(), 3, "the router's own exit code is passed on");
    assert!(error.to_string().contains("no such feature"), "{error}");
}

#[test]
fn a_router_that_is_killed_ends_the_run_and_nothing_is_left() {
    if !available("a_router_that_is_killed_ends_the_run_and_nothing_is_left") {
        return;
    }
    let out = tempfile::tempdir().expect("a folder");
    // A router of another name, so that the other tests' runs are told from this one.
    let text = SHARES.replace("\"r1\"", "\"victim\"").replace("3s", "20s");
    let options = options(out.path(), evenkeel());
    let lab = thread::spawn(move || run(&scenario(&text), &options));
    let mut router = None;
    wait_for("the router to run", || {
        router = own_namespaces_of("victim").iter().find_map(|name| router_in(name));
        router.is_some() && own_namespaces_of("victim").len() == 1
    });
    let namespace = own_namespaces_of("victim").pop().expect("it is there");
    let prefix = namespace.trim_end_matches("victim").to_owned();
    thread::sleep(Duration::from_secs(2));
    kill("-9", &router.expect("found above"));
    let error = lab.join().expect("no panic").expect_err("the router is gone");
    assert!(matches!(error, LabError::Router { .. }), "{error}");
    let left: Vec<_> = traces(std::process::id())
        .into_iter()
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// `evenkeel lab` in a process of its own, already forwarding.
fn started(folder: &Path) -> (Child, String) {
    let file = folder.join("long.toml");
    std::fs::write(&file, SHARES.replace("3s", "60s")).expect("written");
    let mut command = Command::new(evenkeel());
    command.arg("lab").arg(&file).arg("--out").arg(folder.join("out"));
    sys::die_with_parent(&mut command);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let pid = child.id();
    let mut namespace = String::new();
    wait_for("the router to run", || {
        let names = traces(pid);
        let router = names.iter().find(|path| path.to_string_lossy().ends_with("-r1"));
        namespace = router
            .map(|path| path.file_name().unwrap_or_default().to_string_lossy().into())
            .unwrap_or_default();
        !namespace.is_empty() && router_in(&namespace).is_some()
    });
    (child, namespace)
}

#[test]
fn ctrl_c_tears_everything_down() {
    if !available("ctrl_c_tears_everything_down") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, _) = started(folder.path());
    let pid = child.id();
    thread::sleep(Duration::from_millis(1500));
    kill("-INT", &pid.to_string());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "interrupted");
    assert!(traces(pid).is_empty(), "{:?}", traces(pid));
}

#[test]
fn a_killed_lab_takes_its_routers_along_and_the_next_one_sweeps_up() {
    if !available("a_killed_lab_takes_its_routers_along_and_the_next_one_sweeps_up") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, namespace) = started(folder.path());
    let pid = child.id();
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    wait_for("the routers to end", || pids_in(&namespace).is_empty());
    assert!(!traces(pid).is_empty(), "a killed process cannot tear down");
    let out = tempfile::tempdir().expect("a folder");
    let refused = run(&scenario(SHARES), &options(out.path(), "/bin/false".into()));
    assert!(refused.is_err(), "/bin/false is no router");
    assert!(traces(pid).is_empty(), "{:?}", traces(pid));
}

/// [`SHARES`] where the kernel forwards, by what `tc` is told.
fn of_linux(command: &str) -> String {
    let (head, rest) = SHARES.split_once("rate = \"10Mbit/s\"\n").expect("the link's rate");
    let (_, traffic) = rest.split_once("limit = 50\n").expect("the end of its discipline");
    let traffic = &traffic[..traffic.find("[[step]]").expect("the steps are left out")];
    let discipline = "[router.config.link.discipline]\nkind = \"linux\"\ncommand = ";
    format!("{head}{discipline}\"\"\"{command}\"\"\"\n{traffic}")
}

#[test]
fn the_kernels_disciplines_are_measured_as_ours_and_agree_with_its_counters() {
    if !available("the_kernels_disciplines_are_measured_as_ours_and_agree_with_its_counters") {
        return;
    }
    // 16 Mbit/s come; no more than 50 packets of 1000 bytes wait: 41 ms.
    let text = of_linux("tbf rate 10mbit burst 3000 limit 50700");
    let text = text
        + "[[step]]\nname = \"late\"\nat = \"1.5s\"\nset = [{ link = \"sink\", \
        knob = \"discipline\", value = { kind = \"linux\", command = \"htb default 1\\nclass \
        parent 1: classid 1:1 htb rate 20mbit\" } }]\n\
        [[expect]]\nname = \"full\"\nclaim = \"it waits where it does not fit\"\n\
        that = \"30000 < delay(low)@start < 50000 and delay(high)@start > 30000\"\n\
        [[expect]]\nname = \"rest\"\nclaim = \"what does not fit is dropped\"\n\
        that = \"sent(low)@start + sent(high)@start ~ 1233 within 5% and dropped(low)@start > \
        100\"\n\
        [[expect]]\nname = \"queue\"\nclaim = \"Little's law\"\nthat = \"qlen(low)@start + \
        qlen(high)@start ~ 48 within 10%\"\n[[expect]]\nname = \"wide\"\nclaim = \"with 20 Mbit/s \
        hardly anything waits\"\nthat = \"delay(low)@late < 10000 and dropped(low)@late < 1\"\n";
    let out = tempfile::tempdir().expect("a folder");
    let outcome =
        run(&scenario(&text), &options(out.path(), "/bin/false".into())).expect("it runs");
    assert!(outcome.passed(), "{:#?} {:?}", verdicts(&outcome), outcome.run.warnings);
    assert_eq!(outcome.judgements.len(), 4);
    assert!(outcome.run.calls.is_empty(), "nobody counts the calls of a kernel");
    let notes = outcome.run.notes.join("\n");
    let told = "r1 (tbf rate 10mbit burst 3000 limit 50700, then htb default 1) counted";
    assert!(notes.contains(told), "{notes}");
}

#[test]
fn a_discipline_that_the_kernel_has_not_is_refused_with_those_that_it_has() {
    if !available("a_discipline_that_the_kernel_has_not_is_refused_with_those_that_it_has") {
        return;
    }
    let out = tempfile::tempdir().expect("a folder");
    let refused = |command: &str| {
        run(&scenario(&of_linux(command)), &options(out.path(), "/bin/false".into()))
            .expect_err("no kernel takes it")
    };
    let missing = refused("no_such_qdisc");
    assert_eq!(missing.exit_code(), 3, "{missing}");
    assert!(missing.to_string().starts_with("test.toml:"), "{missing}");
    assert!(
        missing.to_string().contains("this kernel has ") && missing.to_string().contains("pfifo")
    );
    let wrong = refused("pfifo limit many");
    assert_eq!(wrong.exit_code(), 2, "{wrong}");
    assert!(wrong.to_string().contains("pfifo limit many"), "{wrong}");
}
