//! What is left of a router's rights once it runs, as the kernel shows it for each thread.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use evenkeel_netns::testing::{eventually, has_tool, text};

use crate::run::{CONFIG, Live, TWO_WORKERS};

/// Numbers of the capabilities that it may keep here: as root, with `--netns`.
const KEPT: [u32; 7] = [
    1,  // DAC_OVERRIDE
    12, // NET_ADMIN
    13, // NET_RAW
    14, // IPC_LOCK
    21, // SYS_ADMIN
    38, // PERFMON
    39, // BPF
];

#[test]
fn every_thread_has_given_up_what_it_does_not_need_and_interfaces_still_come_back() {
    for (test, config, queues) in
        [("privileges", CONFIG, 1), ("privileges_of_two_workers", TWO_WORKERS, 4)]
    {
        let Some(mut live) = Live::prepared(test, config, queues) else { return };
        live.start_with(Stdio::null(), Stdio::null());
        let kept = KEPT.iter().fold(0u64, |kept, number| kept | 1 << number);
        let mut threads = 0;
        for task in fs::read_dir(format!("/proc/{}/task", live.router.id())).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let field = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(name)).unwrap();
                line.split_whitespace().nth(1).unwrap()
            };
            for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
                let has = u64::from_str_radix(field(set), 16).unwrap();
                assert_eq!(has & !kept, 0, "{set} {has:x}\n{status}");
            }
            assert_eq!(field("NoNewPrivs:"), "1", "{status}");
            assert_eq!(field("Seccomp:"), "2", "system calls are filtered: {status}");
            threads += 1;
        }
        assert!(threads >= 4, "{threads} threads: workers, control, log");
        // Sockets, programs and offloads are made anew without what was given up.
        live.interface_leaves("wan", "10.2.0.1/24");
        live.still_forwards();
        // New workers, with sockets, programs, maps and clocks of their own.
        let file = live.folder.path().join("more.toml");
        let more = config.replacen("[[port]]", "[[class]]\nname = \"more\"\n[[port]]", 1);
        fs::write(&file, more).unwrap();
        let output = live.ctl(&["reload", &file.display().to_string()]);
        assert!(output.status.success() || text(&output).contains("captured"), "{}", text(&output));
        live.still_forwards();
        live.signal("-TERM");
        assert!(live.router.wait().unwrap().success(), "offloads and files are put back");
    }
}

/// How many threads of a process are real-time ones of `SCHED_RR`.
fn first_in_turn(process: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let policy = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The name, in brackets, may hold spaces; behind it is field 3, and the policy is field 41.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().nth(38).map(str::to_owned)
    };
    tasks.flatten().filter_map(policy).filter(|policy| policy == "2").count()
}

/// The right to real-time priority went with the others before workers asked for it: none of a
/// cluster's ever had it.
#[test]
fn workers_that_ask_for_it_precede_others_although_rights_were_given_up() {
    let test = "workers_that_ask_for_it_precede_others_although_rights_were_given_up";
    let one = format!("[router]\nrealtime = true\n{CONFIG}");
    let two = TWO_WORKERS.replace("workers = 2", "workers = 2\nrealtime = true");
    for (config, queues, workers) in [(CONFIG, 1, 0), (&one, 1, 1), (&two, 4, 2)] {
        let Some(live) = Live::with(test, config, queues) else { return };
        eventually("workers precede", || first_in_turn(live.router.id()) == workers);
    }
}

/// Of each thread with this name whether it may run on CPU 0.
fn on_the_first_cpu(process: u32, name: &str) -> Vec<bool> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let of_name = tasks.filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let may_run = of_name.filter_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(allowed.trim().starts_with('0'))
    });
    may_run.collect()
}

/// A worker waited for up to 60 ms while a table of routes was read: the thread that reads it,
/// which goes before others, was on the worker's CPU.
#[test]
fn who_follows_the_kernel_leaves_workers_their_cpus() {
    let test = "who_follows_the_kernel_leaves_workers_their_cpus";
    let config = format!("[router]\ncpu = 0\n{CONFIG}");
    let Some(live) = Live::with(test, &config, 1) else { return };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let is_so = || {
        on_the_first_cpu(live.router.id(), "worker") == [true]
            && on_the_first_cpu(live.router.id(), "mirror") == [cpus == 1]
    };
    eventually("the threads are where they should be", is_so);
    // So are new ones, although rights have been given up meanwhile.
    let file = live.folder.path().join("more.toml");
    let more = config.replacen("[[port]]", "[[class]]\nname = \"more\"\n[[port]]", 1);
    fs::write(&file, more).unwrap();
    let output = live.ctl(&["reload", &file.display().to_string()]);
    assert!(output.status.success() || text(&output).contains("captured"), "{}", text(&output));
    eventually("new threads are, too", is_so);
}

/// Nobody could say how much the unit leaves open: without any of it a router has 9.6 of 10.
#[test]
fn f11_the_unit_leaves_as_little_open_as_the_page_says() {
    if !has_tool("unit", "systemd-analyze", "systemd") {
        return;
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unit = top.join("packaging/evenkeel.service");
    let rated = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--no-pager"])
        .arg(&unit)
        .output()
        .unwrap();
    let said = text(&rated);
    let (_, level) = said.split_once("Overall exposure level for evenkeel.service: ").unwrap();
    let level: f64 = level.split(' ').next().unwrap().parse().unwrap();
    // Versions of systemd know more or fewer measures.
    assert!(level <= 3.0, "{said}");
    let page = fs::read_to_string(top.join("SECURITY.md")).unwrap();
    assert!(page.contains("rates it 2.7 of 10"), "{level}");
}
