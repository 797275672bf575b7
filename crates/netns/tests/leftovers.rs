//! What is left behind, by whom, and who removes it. Needs root, else skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use evenkeel_netns::testing::{TestNet, available, eventually};
use evenkeel_netns::{Namespaces, sweep};

/// Tells the child which test it is to be killed in.
const CHILD: &str = "EVENKEEL_TEST_TO_BE_KILLED";

fn path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

#[test]
fn a_set_takes_its_namespaces_and_what_runs_inside_along() {
    if !available("a_set_takes_its_namespaces") {
        return;
    }
    let net = TestNet::new(&["a", "b"]);
    net.wire(("a", "left"), ("b", "right"));
    net.ip("a", "address add 10.0.0.1/24 dev left");
    assert!(net.output("a", "ip address show dev left").contains("10.0.0.1/24"));
    assert!(
        !net.try_output("b", "ip address show dev left").0,
        "the other end is in the other namespace"
    );
    let names = [net.name("a"), net.name("b")];
    assert!(names.iter().all(|name| path(name).exists()));
    let mut child = net.command("a", "sleep 1000").spawn().expect("it starts");
    eventually("sleep is inside", || {
        let inside =
            Command::new("ip").args(["netns", "pids", &names[0]]).output().expect("ip runs");
        !inside.stdout.is_empty()
    });
    drop(net);
    assert!(!child.wait().expect("it has ended").success(), "it was killed");
    assert!(names.iter().all(|name| !path(name).exists()));
}

#[test]
fn a_panic_removes_them_too() {
    if !available("a_panic_removes_them_too") {
        return;
    }
    let name = std::sync::Mutex::new(String::new());
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let net = TestNet::new(&["a"]);
        *name.lock().unwrap() = net.name("a");
        net.ip("a", "link set no-such-link up");
    }));
    let panic = *result.expect_err("there is no such link").downcast::<String>().expect("a text");
    assert!(panic.contains("no-such-link"), "{panic}");
    let name = name.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert!(!name.is_empty() && !path(&name).exists());
}

#[test]
fn what_a_killed_process_left_is_swept_and_what_a_living_one_has_is_not() {
    if !available("what_a_killed_process_left_is_swept") {
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        let mut namespaces = Namespaces::new();
        namespaces.add("left").expect("made");
        println!("\nmade {}", namespaces.name_of("left"));
        loop {
            std::thread::park();
        }
    }
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child.args([
        "--exact",
        "--nocapture",
        "what_a_killed_process_left_is_swept_and_what_a_living_one_has_is_not",
    ]);
    let mut child = child.env(CHILD, "1").stdout(Stdio::piped()).spawn().expect("it starts");
    let lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("a pipe")));
    let name =
        lines.map_while(Result::ok).find_map(|line| line.strip_prefix("made ").map(str::to_owned));
    let name = name.expect("it says what it made");
    let own = TestNet::new(&["own"]);

    sweep();
    assert!(path(&name).exists(), "its owner lives");
    assert!(path(&own.name("own")).exists(), "we live");

    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    // Another test's sweep may be at work on it.
    eventually("it is swept", || {
        sweep();
        !path(&name).exists()
    });
    assert!(path(&own.name("own")).exists(), "we live");
}
