//! What a router on real interfaces says of its configuration, and what it does with it.

use evenkeel_netns::testing::{eventually, text};

use crate::run::{CONFIG, Live};

/// `ctl set` and `ctl rate` were in no file, the next reload dropped them without a word, and
/// SIGHUP did not say which file it had read.
#[test]
fn what_runs_is_told_saved_and_read_again_as_no_change() {
    let Some(live) = Live::with("what_runs", CONFIG, 1) else { return };
    let said = |arguments: &[&str]| {
        let output = live.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let path = |name: &str| live.folder.path().join(name).display().to_string();
    let (file, other) = (path("router.toml"), path("other.toml"));
    let rate = || {
        let show = live.show();
        let links = show["links"].as_array().unwrap().clone();
        links.iter().find(|link| link["port"] == "wan").unwrap()["rate_bps"].clone()
    };
    said(&["rate", "wan", "33Mbit/s"]);
    said(&["set", "wan", "x_delay", "bulk", "2ms"]);
    let told = said(&["diff", &file]);
    assert!(told.contains("rate: 33Mbit/s becomes 20Mbit/s"), "{told}");
    assert!(told.contains("x_delay.bulk: 2ms becomes 1ms"), "{told}");
    // What waits takes nothing else, and gives everything back.
    std::fs::write(&other, CONFIG.replace("20Mbit/s", "44Mbit/s")).unwrap();
    let told = said(&["reload", &other, "--confirm", "1s"]);
    assert!(told.contains(&other) && told.contains(&format!("instead of {file}")), "{told}");
    let refused = live.ctl(&["rate", "wan", "1Mbit/s"]);
    // On a machine that slept for a second the change is undone, and the rate is taken.
    assert!(refused.status.code() == Some(2) || rate() == 1_000_000, "{}", text(&refused));
    if refused.status.code() == Some(2) {
        eventually("the change is undone", || rate() == 33_000_000);
    }
    said(&["rate", "wan", "33Mbit/s"]);
    let told = said(&["save"]);
    assert!(told.contains(&format!("{file} written")), "{told}");
    assert_eq!(std::fs::read_to_string(format!("{file}~")).unwrap(), CONFIG);
    live.signal("-HUP");
    let log = || std::fs::read_to_string(live.folder.path().join("router.log")).unwrap();
    eventually("the log names the file", || log().contains(&format!("{file}: no change")));
    let log = log();
    for change in ["rate: 20Mbit/s becomes 33Mbit/s", "x_delay.bulk: 1ms becomes 2ms", &other] {
        assert!(log.contains(change), "{change} in {log}");
    }
    assert_eq!(rate(), 33_000_000);
    live.ping();
}
