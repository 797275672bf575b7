//! The clock of the day of one process, set while it runs: that of the machine belongs to
//! everybody. And a router whose clock is set.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_control::Client;
use evenkeel_netns::testing::{eventually, eventually_some, skip};

use crate::run::{CONFIG, Live, TWO_WORKERS, end, watched};

/// What processes call to know the time, in the page that the kernel maps into each of them.
const READS_THE_CLOCK: &str = "__vdso_clock_gettime";
/// ELF: a table of dynamic symbols.
const SHT_DYNSYM: u64 = 11;

/// Puts the clock of the day of a process this far ahead of the machine's, seconds; its other
/// clocks go on. False where this helper does not know the processor's instructions.
///
/// The process asks the kernel from then on, and adds. Written while it stands still, and with no
/// thread in the code that is replaced.
pub(super) fn set_clock(process: u32, ahead: i64) -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    let memory = File::options().read(true).write(true).open(format!("/proc/{process}/mem"));
    let memory = memory.unwrap();
    let (start, page) = vdso(process, &memory).unwrap();
    let code = start + symbol(&page, READS_THE_CLOCK).expect("the page names it");
    eventually("no thread reads the clock", || {
        signal(process, "-STOP");
        let quiet = threads_are_outside(process, start..start + page.len() as u64);
        if quiet {
            memory.write_all_at(&stub(ahead), code).unwrap();
        }
        signal(process, "-CONT");
        quiet
    });
    true
}

/// clock_gettime by a system call; what CLOCK_REALTIME gives is moved.
fn stub(ahead: i64) -> Vec<u8> {
    let mut code = vec![
        0xb8, 0xe4, 0, 0, 0, // mov eax, 228: clock_gettime(edi, rsi)
        0x0f, 0x05, // syscall
        0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
        0x75, 0x0d, // jne to the return
        0x48, 0xb9, // mov rcx, ahead
    ];
    code.extend(ahead.to_le_bytes());
    code.extend([0x48, 0x01, 0x0e]); // add [rsi], rcx
    code.push(0xc3); // ret
    code
}

/// Where the page begins, and what it holds.
fn vdso(process: u32, memory: &File) -> io::Result<(u64, Vec<u8>)> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).expect("it has one");
    let (from, rest) = line.split_once('-').unwrap();
    let to = rest.split(' ').next().unwrap();
    let at = |text| u64::from_str_radix(text, 16).unwrap();
    let mut page = vec![0; (at(to) - at(from)) as usize];
    memory.read_exact_at(&mut page, at(from))?;
    Ok((at(from), page))
}

/// Where a symbol of a shared object of 64 bits lies in it.
fn symbol(object: &[u8], name: &str) -> Option<u64> {
    let number = |at: u64, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&object[at as usize..][..bytes]);
        u64::from_le_bytes(word)
    };
    let (headers, size) = (number(40, 8), number(58, 2));
    let section = |index: u64| headers + index * size;
    let table = (0..number(60, 2)).map(section).find(|at| number(at + 4, 4) == SHT_DYNSYM)?;
    let names = number(section(number(table + 40, 4)) + 24, 8);
    let (first, length) = (number(table + 24, 8), number(table + 32, 8));
    let of = |at: &u64| object[(names + number(*at, 4)) as usize..].starts_with(name.as_bytes());
    let found = (first..first + length).step_by(24).find(of)?;
    Some(number(found + 8, 8))
}

/// Whether all threads stand still, and none in this code.
fn threads_are_outside(process: u32, code: Range<u64>) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks.flatten().all(|task| {
        // It ends with the instruction at which the thread goes on; `running` has none.
        let call = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        let next = call.trim().rsplit_once(" 0x").map(|(_, next)| u64::from_str_radix(next, 16));
        next.is_some_and(|next| next.is_ok_and(|next| !code.contains(&next)))
    })
}

fn signal(process: u32, name: &str) {
    let mut kill = Command::new("kill");
    assert!(kill.args([name, &process.to_string()]).status().unwrap().success());
}

/// What a line of the log is stamped with, milliseconds since 1970, once something is wrong with
/// the file.
fn logged(live: &Live) -> i64 {
    let mut client = Client::connect(&live.folder.path().join("control.sock")).unwrap();
    let last = client.journal(0).unwrap().last().map_or(0, |line| line.number);
    live.signal("-HUP");
    eventually_some("it is logged", || Some(client.journal(last).unwrap().first()?.time_ms as i64))
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Forward and back: packets pass, are as old as they are, and the log says what the clock says.
fn goes_on(test: &str, config: &str, queues: u16) {
    let Some(mut live) = Live::with(test, config, queues) else { return };
    if !set_clock(live.router.id(), 0) {
        return skip(test, "instructions of this processor are not known to it");
    }
    let (server, client) = live.load_for(120);
    fs::write(live.folder.path().join("router.toml"), "wrong").unwrap();
    let without_a_battery = 1_000 - now_ms() / 1_000;
    for ahead in [5, -5, 0, 3_600, -3_600, 9, without_a_battery, 0] {
        set_clock(live.router.id(), ahead);
        let shown = logged(&live) - now_ms() - ahead * 1_000;
        assert!(shown.abs() < 4_000, "{ahead} s ahead: {shown} ms from there");
        live.still_forwards();
        let (delay, sent) = watched(&live);
        assert!(sent > 0.0 && delay < 1_000_000.0, "{ahead} s ahead: {delay} us, {sent} packets");
    }
    end(client);
    end(server);
    live.signal("-TERM");
    assert!(live.router.wait().unwrap().success());
}

#[test]
fn a_clock_that_is_set_changes_nothing_for_packets_on_packet_sockets() {
    goes_on("clock_af_packet", CONFIG, 1);
}

#[test]
fn a_clock_that_is_set_changes_nothing_for_packets_on_af_xdp() {
    goes_on("clock_af_xdp", TWO_WORKERS, 4);
}
