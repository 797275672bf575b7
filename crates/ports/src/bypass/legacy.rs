//! The rules of iptables as it was before nftables: tables of its own, read by socket options.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`; those of IPv6 have the same numbers.
const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;

/// Length of a table's name, bytes.
const NAME: usize = 32;
/// Hooks that forwarded packets pass, by their numbers.
const HOOKS: [(usize, &str); 3] = [(0, "PREROUTING"), (2, "FORWARD"), (4, "POSTROUTING")];
const HOOK_COUNT: usize = 5;
/// The verdict that drops, as a policy carries it.
const DROP: i32 = -1;

/// One of the two families.
struct Family {
    /// What the command is called.
    command: &'static str,
    /// The tables that the namespace has.
    names: &'static str,
    family: AddressFamily,
    level: libc::c_int,
    /// Where an entry says where its target is.
    target: usize,
}

const FAMILIES: [Family; 2] = [
    Family {
        command: "iptables",
        names: "/proc/thread-self/net/ip_tables_names",
        family: AddressFamily::INET,
        level: libc::SOL_IP,
        target: 88,
    },
    Family {
        command: "ip6tables",
        names: "/proc/thread-self/net/ip6_tables_names",
        family: AddressFamily::INET6,
        level: libc::SOL_IPV6,
        target: 140,
    },
];

/// `struct ipt_getinfo`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Info {
    name: [u8; NAME],
    valid_hooks: u32,
    entry: [u32; HOOK_COUNT],
    underflow: [u32; HOOK_COUNT],
    entries: u32,
    size: u32,
}

/// Chains of the tables that forwarded packets pass and that have rules, or drop what none takes:
/// `iptables-legacy table filter: chain FORWARD, policy drop`.
pub(super) fn chains() -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for family in &FAMILIES {
        // Asking for a table that is not there would make it.
        let names = match fs::read_to_string(family.names) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if names.trim().is_empty() {
            continue;
        }
        let flags = SocketFlags::CLOEXEC;
        let socket: OwnedFd =
            socket_with(family.family, SocketType::RAW, flags, Some(rustix::net::ipproto::RAW))?;
        for name in names.lines().map(str::trim).filter(|name| !name.is_empty()) {
            found.extend(chains_of(&socket, family, name)?);
        }
    }
    Ok(found)
}

fn chains_of(socket: &OwnedFd, family: &Family, table: &str) -> io::Result<Vec<String>> {
    let mut name = [0; NAME];
    let length = table.len().min(NAME - 1);
    name[..length].copy_from_slice(&table.as_bytes()[..length]);
    let mut info = [0; size_of::<Info>()];
    info[..NAME].copy_from_slice(&name);
    get(std::os::fd::AsFd::as_fd(socket), family.level, GET_INFO, &mut info)?;
    let word = |bytes: &[u8], at: usize| {
        bytes
            .get(at..at + 4)
            .map_or(0, |word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
    };
    let valid = word(&info, NAME);
    let entry = |hook: usize| word(&info, NAME + 4 + 4 * hook);
    let underflow = |hook: usize| word(&info, NAME + 4 + 4 * (HOOK_COUNT + hook));
    let size = word(&info, size_of::<Info>() - 4) as usize;
    // Name and size stand before the entries, which are aligned to 8 bytes.
    let head = (NAME + 4).next_multiple_of(8);
    let mut all = vec![0; head + size];
    all[..NAME].copy_from_slice(&name);
    all[NAME..NAME + 4].copy_from_slice(&(size as u32).to_ne_bytes());
    get(std::os::fd::AsFd::as_fd(socket), family.level, GET_ENTRIES, &mut all)?;
    let entries = &all[head..];
    let mut found = Vec::new();
    for (hook, chain) in HOOKS {
        if valid & 1 << hook == 0 {
            continue;
        }
        let policy = underflow(hook) as usize;
        let target = entries.get(policy + family.target..policy + family.target + 2);
        let target = target.map_or(0, |half| usize::from(u16::from_ne_bytes([half[0], half[1]])));
        // The verdict stands behind the 32 bytes of the target's head.
        let drops = word(entries, policy + target + 32) as i32 == DROP;
        let rules = entry(hook) != underflow(hook);
        if rules || drops {
            let has = if rules { ", with rules" } else { "" };
            let policy = if drops { ", policy drop" } else { "" };
            let command = family.command;
            found.push(format!("{command}-legacy table {table}: chain {chain}{has}{policy}"));
        }
    }
    Ok(found)
}

/// Reads a socket option whose value says what is wanted.
fn get(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &mut [u8],
) -> io::Result<()> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: `value` is writable for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
