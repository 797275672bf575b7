//! What the kernel would do with packets on their way through the machine, and does not do with
//! those that are forwarded past it.

mod legacy;

use std::fs;
use std::io;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_XFRM};

use crate::netlink::{Message, NetlinkSocket, attributes};

/// `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_GETCHAIN`.
const GET_CHAIN: u16 = 10 << 8 | 4;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const HOOK_NUMBER: u16 = 1;
/// Families whose hooks see forwarded packets of IP.
const FAMILIES: [(u8, &str); 3] = [(1, "inet"), (2, "ip"), (10, "ip6")];
/// Hooks that forwarded packets pass.
const HOOKS: [(u32, &str); 3] = [(0, "prerouting"), (2, "forward"), (4, "postrouting")];
/// `NF_DROP`.
const POLICY_DROP: u32 = 0;

const GET_POLICY: u16 = 0x15;
/// Where the direction is in `struct xfrm_userpolicy_info`; in, out and forward are below 3, above
/// are those of single sockets.
const DIRECTION: usize = 160;

/// Chains of nftables and of iptables, also of that before nftables, which forwarded packets pass
/// and that have rules, or drop what none takes: `table inet firewall: gate at forward, 3 rules`.
///
/// # Errors
/// The kernel does not tell.
pub fn chains() -> io::Result<Vec<String>> {
    // Any family, version 0, no resource.
    let chains = dump(NETLINK_NETFILTER, GET_CHAIN, &[0; 4])?.unwrap_or_default();
    let mut found: Vec<_> = chains.iter().filter_map(|chain| chain_of(chain)).collect();
    found.extend(legacy::chains()?);
    Ok(found)
}

fn chain_of(body: &[u8]) -> Option<String> {
    let family = FAMILIES.iter().find(|(number, _)| Some(number) == body.first())?.1;
    let find = |bytes, wanted| attributes(bytes).find(|(kind, _)| *kind == wanted);
    let of = |wanted| find(body.get(4..)?, wanted).map(|(_, value)| value);
    let number = |value: &[u8]| value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let text = |value: &[u8]| String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
    let hook = find(of(CHAIN_HOOK)?, HOOK_NUMBER).and_then(|(_, value)| number(value))?;
    let hook = HOOKS.iter().find(|(number, _)| *number == hook)?.1;
    let rules = of(CHAIN_USE).and_then(number).unwrap_or(0);
    let drops = of(CHAIN_POLICY).and_then(number) == Some(POLICY_DROP);
    if rules == 0 && !drops {
        return None;
    }
    let (table, name) = (text(of(CHAIN_TABLE)?), text(of(CHAIN_NAME)?));
    let policy = if drops { ", policy drop" } else { "" };
    let plural = if rules == 1 { "" } else { "s" };
    Some(format!("table {family} {table}: chain {name} at {hook}, {rules} rule{plural}{policy}"))
}

/// How many policies of IPsec forwarded packets are compared with.
///
/// # Errors
/// The kernel does not tell.
pub fn ipsec_policies() -> io::Result<usize> {
    let policies = dump(NETLINK_XFRM, GET_POLICY, &[0; 64])?.unwrap_or_default();
    let concerns = |policy: &&Vec<u8>| policy.get(DIRECTION).is_some_and(|way| *way < 3);
    Ok(policies.iter().filter(concerns).count())
}

/// Whether the kernel of the calling thread's namespace forwards IPv4.
#[must_use]
pub fn kernel_forwards() -> bool {
    number("/proc/sys/net/ipv4/ip_forward") != Some(0)
}

/// How the kernel checks the sources of what comes in by an interface.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ReversePath {
    /// Not at all.
    #[default]
    Off,
    /// It would send to them by that interface (`rp_filter = 1`).
    Strict,
    /// It would send to them by some interface (`rp_filter = 2`).
    Loose,
}

/// How the kernel of the calling thread's namespace checks sources at an interface.
#[must_use]
pub fn reverse_path(interface: &str) -> ReversePath {
    let of = |name: &str| number(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
    match of("all").max(of(interface)) {
        Some(1) => ReversePath::Strict,
        Some(2) => ReversePath::Loose,
        _ => ReversePath::Off,
    }
}

/// `/proc/sys/net` is that of the thread which opens a file there.
fn number(file: &str) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// What a dump gives; `None`: the kernel does not have such a thing.
fn dump(protocol: isize, kind: u16, body: &[u8]) -> io::Result<Option<Vec<Vec<u8>>>> {
    let absent = |error: &io::Error| {
        let code = error.raw_os_error();
        matches!(code, Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP | libc::EINVAL))
    };
    let asked = NetlinkSocket::open_to(protocol)
        .and_then(|mut socket| socket.request(Message::new(kind, libc::NLM_F_DUMP, body)));
    match asked {
        Err(error) if absent(&error) => Ok(None),
        answer => answer.map(Some),
    }
}
