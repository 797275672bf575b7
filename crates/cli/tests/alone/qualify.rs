//! `evenkeel bench live` on a paced link, whose rate is known beforehand. Needs root; says so and
//! passes otherwise. How exactly rates are found is tested in virtual time, with the measurement
//! itself.

use std::process::Command;

use evenkeel_netns::testing::{available, has_tool, text};
use serde_json::Value;

/// 10 Mbit/s in frames of 512 bytes and the 20 bytes more that each takes on a wire.
const FRAMES_PER_SECOND: f64 = 10e6 / ((512.0 + 20.0) * 8.0);

#[test]
fn a_paced_link_is_never_called_faster_than_it_is() {
    let test = "a_paced_link_is_never_called_faster_than_it_is";
    if !available(test) || !has_tool(test, "sysctl", "procps") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [json, html] = ["q.json", "q.html"].map(|name| folder.path().join(name));
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(["bench", "live", "--io", "af-packet", "--rate", "10Mbit/s", "--frame", "512"]);
    command
        .args(["--trial", "250ms", "--budget", "6", "--json"])
        .arg(&json)
        .arg("--html")
        .arg(&html);
    let output = command.output().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("receive ring of the device: 4096 frames"), "{said}");

    let found: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let frame = &found["frames"][0];
    let rate = |name: &str| frame[name]["rate"].as_f64().unwrap() / FRAMES_PER_SECOND;
    // A queue in front of the link must not make it look faster than it is; a machine in use may
    // make it look slower, and by any factor. What leaves the queue within the allowance after a
    // trial may be counted.
    let most = 1.02 + frame["allowance"].as_f64().unwrap() / 250e6;
    assert!(rate("pdr") > 0.0 && rate("pdr") <= most, "PDR {} of {most}: {said}", rate("pdr"));
    assert!(rate("ndr") <= rate("pdr"), "NDR {}: {said}", rate("ndr"));
    assert!(
        frame["ndr"]["not_reached"].is_number(),
        "the link was the limit, not the tester: {said}"
    );
    assert_eq!(frame["latency"].as_array().map(Vec::len), Some(3));
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("download=\"qualification.svg\""));
}

#[test]
fn bad_input_is_refused_before_anything_is_made() {
    for (arguments, expected) in [
        (&["--frame", "63"][..], "frames of 64 to 1518 bytes"),
        (&["--trial", "1ms"], "50ms to 60s"),
        (&["--in", "eth0"], "--out"),
        (&["--rate", "fast"], "rate"),
        (&["--discipline", "fastest"], "fastest"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        let output = command.args(["bench", "live"]).args(arguments).output().unwrap();
        let said = text(&output);
        // Without root that is what is told first.
        let code = output.status.code();
        assert!(
            code == Some(2) && said.contains(expected) || code == Some(3),
            "{arguments:?}: {code:?} {said}"
        );
    }
}
