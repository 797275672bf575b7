//! Ground that does not bear: no privileges, folders that cannot be written to. What is wrong is
//! said, with the remedy, and nothing is half done. Needs root; says so and passes otherwise.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use evenkeel_netns::testing::{has_tool, text};

use super::run::{CONFIG, Live};

const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all";

/// A line of a shell in the router's namespace, with the folder of the test as `$F` and the command
/// as `$E`; mounts are gone afterwards.
fn shell(live: &Live, line: &str) -> Output {
    let folder = live.folder.path();
    let script =
        format!("set -e\nF={}\nE={}\n{line}\n", folder.display(), env!("CARGO_BIN_EXE_evenkeel"));
    std::fs::write(folder.join("script"), script).unwrap();
    live.net.run("r", &format!("unshare --mount sh {}", folder.join("script").display()))
}

fn prepared(test: &str) -> Option<Live> {
    let live = Live::prepared(test, CONFIG, 1)?;
    if !has_tool(test, "setpriv", "util-linux") {
        return None;
    }
    std::fs::set_permissions(live.folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    Some(live)
}

#[test]
fn without_privileges_a_router_names_those_that_it_needs() {
    let Some(live) = prepared("no privileges") else { return };
    let said = shell(
        &live,
        &format!("{NOBODY} $E run $F/router.toml --socket $F/control.sock --runtime-dir $F/run"),
    );
    let told = text(&said);
    assert_eq!(said.status.code(), Some(3), "{told}");
    assert!(told.contains("CAP_BPF"), "{told}");
    assert!(!live.folder.path().join("control.sock").exists());
}

#[test]
fn a_doctor_without_root_says_what_it_could_not_see() {
    let Some(live) = prepared("doctor without root") else { return };
    let said = shell(&live, &format!("{NOBODY} $E doctor wan"));
    let told = text(&said);
    assert!(matches!(said.status.code(), Some(0 | 1)), "{told}");
    assert!(told.contains("wan"), "{told}");
}

#[test]
fn folders_that_cannot_be_written_to_are_named() {
    let Some(live) = prepared("read-only") else { return };
    let ro = "mkdir -p $F/ro && mount --bind $F/ro $F/ro && mount -o remount,bind,ro $F/ro";
    for line in [
        "$E init --gateway --wan wan --down 20Mbit/s --up 5Mbit/s $F/ro/new.toml",
        "$E run $F/router.toml --socket $F/ro/control.sock --runtime-dir $F/run",
    ] {
        let said = shell(&live, &format!("{ro}\n{line}"));
        let told = text(&said);
        assert!(told.contains("/ro") && told.contains("Read-only"), "{line}: {told}");
        assert!(!said.status.success(), "{line}");
    }
    // The interfaces are as they were.
    assert!(!live.net.output("r", "ip -d link show wan").contains("xdp"));
    live.ping();
}
