//! What a router on real interfaces says it was told and delivered, and a certificate of it that a
//! script verifies which knows nothing but the key. Needs root.

use std::path::Path;
use std::process::{Command, Output};

use evenkeel_netns::testing::{eventually, text};
use serde_json::Value;

use crate::run::Live;

/// Two classes that share 8 Mbit/s as 3 to 1.
const CONFIG: &str = r#"
[[port]]
name = "lan"
interface = "lan"
[[port]]
name = "wan"
interface = "wan"
[[class]]
name = "rest"
[[class]]
name = "gold"
match = [{ protocol = "udp", destination_port = 5002 }]
[[link]]
port = "wan"
rate = "8Mbit/s"
discipline = { kind = "wfq-altq", weight = { rest = 100, gold = 300 } }
"#;

/// The script of docs/audit.md.
fn script() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/audit.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, after) = page.split_once("```python\n").expect("the page has the script");
    after.split_once("```").expect("it ends").0.to_owned()
}

fn evenkeel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(arguments).output().unwrap()
}

fn audit(live: &Live) -> Value {
    let show = live.show();
    let links = show["links"].as_array().unwrap();
    links.iter().find(|link| link["port"] == "wan").unwrap()["audit"].clone()
}

#[test]
fn a_certificate_says_what_was_told_and_delivered_and_a_script_believes_only_the_key() {
    let Some(live) = Live::with("certificate", CONFIG, 1) else { return };
    let path = |name: &str| live.folder.path().join(name).display().to_string();
    let (key, file, socket) = (path("key"), path("today.json"), path("control.sock"));
    let made = evenkeel(&["audit", "keygen", &key]);
    assert!(made.status.success(), "{}", text(&made));
    let public = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    // Both classes send more than the link has.
    let flood = "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
                 end=time.time()+20\nwhile time.time()<end:\n for port in (5001,5002)*8:\n  \
                 s.sendto(bytes(1000),('10.2.0.2',port))\n time.sleep(0.001)";
    let script_of_load = path("flood.py");
    std::fs::write(&script_of_load, flood).unwrap();
    let load = live.net.start("a", &format!("python3 {script_of_load}"));
    eventually("the audit has watched", || audit(&live)["watched_ns"].as_u64() > Some(500_000_000));
    let signed = evenkeel(&[
        "audit", "certify", "--socket", &socket, "--for", "2s", "--key", &key, "--out", &file,
    ]);
    assert!(signed.status.success(), "{}", text(&signed));
    let said = evenkeel(&["audit", "--socket", &socket]);
    println!("{}\n{}", text(&said), text(&signed));
    assert!(
        text(&said).contains("class gold") && text(&said).contains("75.0 %"),
        "{}",
        text(&said)
    );
    let verified = evenkeel(&["audit", "verify", &file, "--key", &public, "--json"]);
    assert!(verified.status.success(), "{}", text(&verified));
    let payload: Value = serde_json::from_slice(&verified.stdout).unwrap();
    let wan = &payload["links"].as_array().unwrap().iter().find(|l| l["link"] == "wan").unwrap();
    let gold = &wan["classes"][1];
    assert_eq!(gold["told_ppm"], 750_000, "{payload:#}");
    // What the worker missed on a busy machine it says; shares hold all the same.
    let names =
        |of: &str| -> Vec<String> { wan[of].as_object().unwrap().keys().cloned().collect() };
    let (breaches, causes) = (names("by_breach"), names("by_cause"));
    let missed = |cause: &String| cause == "worker_late" || cause == "burst";
    let idled = breaches.iter().all(|breach| breach == "under_rate");
    assert!(idled || causes.iter().all(missed), "{payload:#}");
    if causes.is_empty() {
        let delivered = gold["delivered_ppm"].as_u64().unwrap();
        assert!((740_000..760_000).contains(&delivered), "{payload:#}");
    }
    // The script of the book, and what it refuses.
    let verifier = path("verify.py");
    std::fs::write(&verifier, script()).unwrap();
    let python = |file: &str, key: &str| {
        // Where the Debian packages are, whatever comes first in PATH.
        Command::new("/usr/bin/python3").args([&verifier, file, key]).output().unwrap()
    };
    let believed = python(&file, &public);
    assert!(believed.status.success(), "{}", text(&believed));
    let kept = payload["kept"].as_bool().unwrap();
    assert_eq!(text(&believed).trim(), if kept { "True" } else { "False" });
    let another = path("another");
    let made = evenkeel(&["audit", "keygen", &another]);
    let other = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert!(!python(&file, &other).status.success());
    assert_eq!(evenkeel(&["audit", "verify", &file, "--key", &other]).status.code(), Some(1));
    let changed = std::fs::read_to_string(&file).unwrap().replace("750000", "760000");
    std::fs::write(&file, changed).unwrap();
    assert!(!python(&file, &public).status.success());
    assert_eq!(evenkeel(&["audit", "verify", &file, "--key", &public]).status.code(), Some(1));
    drop(load);
}
