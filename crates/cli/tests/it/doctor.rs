//! `evenkeel doctor` on this machine, whatever it is.

use std::process::Command;

use serde_json::Value;

fn doctor(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    let output = command.arg("doctor").args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

#[test]
fn it_looks_at_an_interface_and_says_each_finding_with_its_remedy() {
    let (code, text) = doctor(&["lo", "--json"]);
    let found: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let about = |topic: &str| found.iter().find(|finding| finding["topic"] == topic);
    for topic in ["kernel", "clock", "wake-ups", "privileges", "neighbours", "traffic"] {
        assert!(about(topic).is_some(), "{topic}: {text}");
    }
    let bad = found.iter().any(|finding| finding["level"] == "bad");
    assert_eq!(code, Some(i32::from(bad)), "{text}");
    for finding in &found {
        let to_do = finding["level"] == "bad" || finding["level"] == "mind";
        assert_eq!(finding["remedy"].is_string(), to_do, "{finding}");
    }
}

#[test]
fn what_does_not_exist_is_an_answer_and_not_a_failure() {
    let (code, text) = doctor(&["no-such-if", "--quiet"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("BAD    interface"), "{text}");
    assert!(!text.contains("\n  ok "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 101), "{text}");
    let (code, text) = doctor(&["--file", "/no/such/router.toml"]);
    assert_eq!(code, Some(2), "{text}");
}
