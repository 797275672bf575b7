//! F8: a router that is not allowed much memory refuses what it cannot have, and goes on.

use std::process::{Command, Stdio};
use std::time::Instant;

use evenkeel_control::{Client, Request};
use evenkeel_netns::testing::{eventually, text};

use crate::hang::longest_silence;
use crate::run::{CONFIG, Live, command};

/// Address space of the router: what its threads set aside, its buffers, and some hundred MiB for
/// tables.
const ALLOWED: &str = "--as=1150000000";
const CHANGES: u64 = 1_000;

/// Numbers that look random and are the same every time.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }

    pub(super) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A discipline that is allowed by its ranges.
fn discipline(random: &mut Random) -> String {
    let mut size = || 4_194_304 >> (random.below(6) * random.below(5));
    let (flows, buffer) = (size(), size());
    match random.below(6) {
        0 => format!("{{ kind = \"fifo\", limit = {} }}", buffer.min(65_536)),
        1 => "{ kind = \"wfq-altq\", limit = 65536 }".to_owned(),
        2 => format!("{{ kind = \"afan\", flows = {flows}, limit = {} }}", buffer.min(65_536)),
        3 => format!("{{ kind = \"pfq\", flows = {flows}, buffer = {buffer} }}"),
        _ => format!("{{ kind = \"pdrr\", flows = {flows}, buffer = {buffer} }}"),
    }
}

/// A change by command.
fn change(random: &mut Random) -> Request {
    let link = random.one(&["lan", "wan"]).to_owned();
    let set = |knob: &str, value: String| Request::Set {
        link: link.clone(),
        knob: knob.to_owned(),
        class: None,
        value,
    };
    match random.below(5) {
        0 => set("buffer", (1u64 << random.below(23)).to_string()),
        1 => set("limit", (1u64 << random.below(18)).to_string()),
        2 => set("admission.users", (16_777_216 >> random.below(12)).to_string()),
        _ => Request::Discipline { link, value: discipline(random) },
    }
}

/// A file that is allowed by its ranges, and asks for anything between little and all there is; now
/// and then one that is not.
fn file(random: &mut Random) -> String {
    let discipline = discipline(random);
    let mut text =
        CONFIG.replace("{ kind = \"lct\", x_delay = { bulk = \"1ms\" } }", &discipline).replace(
            "[[port]]\nname = \"lan\"",
            &format!(
                "[router]\nbuffers = {}\nworkers = {}\n[[port]]\nname = \"lan\"",
                256u64 << random.below(13),
                // Several workers at an interface with one queue: packet sockets.
                1 + random.below(2) * random.below(8)
            ),
        );
    if (discipline.contains("pdrr") || discipline.contains("pfq")) && random.below(2) == 0 {
        text += &format!(
            "[link.admission]\nflows = {}\nhistory = {}\n",
            16_777_216 >> random.below(12),
            16_777_216 >> random.below(16)
        );
    }
    if random.below(3) == 0 {
        text += &format!("[fairdrop]\non = true\nflows = {}\n", 64 << random.below(16));
    }
    if random.below(10) == 0 {
        text.truncate(random.below(text.len() as u64) as usize);
    }
    text
}

#[test]
fn f8_a_thousand_hostile_files_and_a_thousand_changes_at_a_memory_limit_stop_nothing() {
    let Some(mut live) = Live::prepared("memory_limit", CONFIG, 1) else { return };
    let plain = command(&live.net, &live.folder);
    let mut limited = Command::new("prlimit");
    // A capture keeps its port from being replaced.
    let arguments = plain.get_args().take_while(|argument| *argument != "--capture");
    limited.arg(ALLOWED).arg("--").arg(plain.get_program()).args(arguments);
    live.router = limited.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
    live.wait_until_it_forwards();

    let ping = live.net.start("a", "ping -D -n -c 800 -i 0.01 -W 1 10.2.0.2");
    let mut client = Client::connect(&live.folder.path().join("control.sock")).unwrap();
    let (mut random, mut done, mut too_large, mut invalid) = (Random(16), 0, 0, 0);
    let (mut slowest, began) = (0, Instant::now());
    for number in 0..2 * CHANGES {
        let request = match number % 2 {
            0 => change(&mut random),
            _ => Request::Reload {
                text: file(&mut random),
                file: "f".into(),
                confirm_ms: None,
                yes: false,
            },
        };
        let asked = Instant::now();
        let Err(error) = client.send(&request) else {
            done += 1;
            slowest = slowest.max(asked.elapsed().as_millis());
            continue;
        };
        let error = error.to_string();
        match error.contains("of memory, and") {
            true => too_large += 1,
            false => invalid += 1,
        }
        assert!(!error.contains("did not answer"), "{request:?}: {error}");
        assert!(live.router.try_wait().unwrap().is_none(), "it ended: {request:?}: {error}");
    }
    println!(
        "{done} done (slowest {slowest} ms), {too_large} too large, {invalid} invalid, in {:?}",
        began.elapsed()
    );
    assert!(done >= 200 && too_large >= 200, "{done} done, {too_large} too large");
    assert!(client.send(&Request::Show).is_ok());
    let output = ping.wait();
    let silence = longest_silence(&output);
    println!("longest silence {silence:.0} ms; {}", output.lines().rev().nth(1).unwrap_or(""));
    assert!(silence < 500.0, "{output}");

    // What is asked for last is what there is.
    let small = CONFIG
        .replace("[[port]]\nname = \"lan\"", "[router]\nbuffers = 512\n[[port]]\nname = \"lan\"");
    std::fs::write(live.folder.path().join("router.toml"), small).unwrap();
    let reloaded =
        live.ctl(&["reload", &live.folder.path().join("router.toml").display().to_string()]);
    assert!(reloaded.status.success(), "{}", text(&reloaded));
    live.ping();
    live.signal("-TERM");
    eventually("it ends", || live.router.try_wait().unwrap().is_some());
}

#[test]
fn f8_a_file_that_no_machine_has_memory_for_is_told_and_refused() {
    let Some(live) = Live::prepared("memory_start", CONFIG, 1) else { return };
    let path = live.folder.path().join("router.toml");
    let huge = CONFIG.replace(
        "[[port]]\nname = \"lan\"",
        "[router]\nbuffers = 1048576\nbuffer_size = \"64KiB\"\n[[port]]\nname = \"lan\"",
    );
    std::fs::write(&path, huge).unwrap();
    let checked =
        Command::new(env!("CARGO_BIN_EXE_evenkeel")).arg("check").arg(&path).output().unwrap();
    let said = text(&checked);
    assert!(said.contains("memory: at most 65"), "{said}");
    assert!(said.contains("would not start on this machine"), "{said}");

    let run = command(&live.net, &live.folder).output().unwrap();
    let said = text(&run);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains("of memory, and") && said.contains("are left"), "{said}");
}

#[test]
fn f8_tables_of_four_million_flows_are_built_while_packets_pass() {
    let Some(mut live) = Live::prepared("memory_build", CONFIG, 1) else { return };
    live.start_with(Stdio::null(), Stdio::null());
    let ping = live.net.start("a", "ping -D -n -c 800 -i 0.01 -W 1 10.2.0.2");
    for _ in 0..2 {
        for flows in [4_194_304, 10] {
            let wanted = format!("{{ kind = \"pdrr\", flows = {flows}, buffer = {flows} }}");
            let asked = Instant::now();
            let output = live.ctl(&["discipline", "wan", &wanted]);
            assert!(output.status.success(), "{}", text(&output));
            println!("{flows} flows: {:?}", asked.elapsed());
        }
    }
    let output = ping.wait();
    let silence = longest_silence(&output);
    println!("longest silence {silence:.0} ms");
    assert!(silence < 250.0, "it was 5.4 s: {output}");
}
