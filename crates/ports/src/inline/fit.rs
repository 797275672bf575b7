//! Whether an interface can be attached inline, beside what others have made of it.

use std::io;

use super::pair::{self, master_of};
use crate::error::PortError;
use crate::netlink::{Message, NetlinkSocket, attributes};

const RTM_GETQDISC: u16 = 38;
const TCA_KIND: u16 = 1;
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;
/// Kinds of qdiscs that make packets wait by a rate of their own.
const SHAPERS: [&str; 7] = ["htb", "hfsc", "tbf", "cake", "netem", "cbq", "cake_mq"];
/// Masters that take what their members receive before the kernel routes it.
const TAKES_ALL: [&str; 5] = ["bridge", "bond", "team", "openvswitch", "ovs-system"];

/// Refuses an interface whose packets would wait twice, or not pass whole.
pub(super) fn check(interface: &str, index: u32) -> Result<(), PortError> {
    let failed = |error| PortError::from_io(format!("asking about {interface}"), error);
    let mut route = NetlinkSocket::open().map_err(failed)?;
    if let Some(of) = pair::owner_of(&mut route, interface).map_err(failed)? {
        return Err(PortError::OwnPair { interface: interface.to_owned(), of });
    }
    alone(&mut route, interface)?;
    match root_qdisc(&mut route, index).map_err(failed)? {
        Some(kind) if SHAPERS.contains(&kind.as_str()) => {
            Err(PortError::Shaped { interface: interface.to_owned(), kind })
        }
        _ => Ok(()),
    }
}

/// Refuses an interface that is a member of something which takes what arrives there, its
/// neighbours' answers included, in the network namespace of the calling thread. One that is
/// missing is none.
///
/// # Errors
/// [`PortError::Member`], or the kernel does not tell.
pub fn check_alone(interface: &str) -> Result<(), PortError> {
    let failed = |error| PortError::from_io(format!("asking about {interface}"), error);
    alone(&mut NetlinkSocket::open().map_err(failed)?, interface)
}

fn alone(route: &mut NetlinkSocket, interface: &str) -> Result<(), PortError> {
    let master = match master_of(route, interface) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
        master => master
            .map_err(|error| PortError::from_io(format!("asking about {interface}"), error))?,
    };
    let Some((master, kind)) = master.filter(|(_, kind)| TAKES_ALL.contains(&kind.as_str())) else {
        return Ok(());
    };
    let control = crate::interface::Control::open()?;
    let master = control.name_of(master).unwrap_or_else(|| master.to_string());
    Err(PortError::Member { interface: interface.to_owned(), kind, master })
}

/// The kind of what is at the root of an interface.
fn root_qdisc(route: &mut NetlinkSocket, index: u32) -> io::Result<Option<String>> {
    // struct tcmsg: family, padding, index, handle, parent, info.
    let mut head = [0; 20];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes)
    };
    let all = route.request(Message::new(RTM_GETQDISC, libc::NLM_F_DUMP, &head))?;
    let found = all
        .into_iter()
        .find(|body| word(body, 4) == Some(index) && word(body, 12) == Some(ROOT))
        .and_then(|body| {
            let kind = attributes(body.get(20..)?).find(|(kind, _)| *kind == TCA_KIND)?.1;
            Some(String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned())
        });
    Ok(found)
}
