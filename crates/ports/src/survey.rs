//! What there is at an interface and below it, for whoever only looks: nothing is changed, and no
//! privilege is needed.

use std::io;

use crate::error::PortError;
use crate::ethtool::{driver, features, queues};
use crate::inline::master_of;
use crate::interface::Control;
use crate::netlink::{Message, NetlinkSocket, attributes};
use crate::offload::makes_super_frames;
use crate::sys::{limit_of_locked_memory, may_lock_beyond_limit};

const GET_RINGS: u32 = 0x10;

const RTM_GETLINK: u16 = 18;
const RTM_GETQDISC: u16 = 38;
const TCA_KIND: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;

/// An interface as its driver describes it. `None`: the driver does not say.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Survey {
    /// Name of the driver.
    pub driver: Option<String>,
    /// Slots of the rings of each queue: receive and transmit.
    pub rings: Option<Rings>,
    /// Queues: receive and transmit.
    pub queues: Option<(u32, u32)>,
    /// Offloads that are on and hand over super-frames, by the kernel's names.
    pub super_frames: Vec<String>,
    /// The queueing disciplines of the kernel, that at the root first.
    pub qdiscs: Vec<Qdisc>,
    /// An XDP program is attached.
    pub xdp: bool,
    /// What it is a member of: `bridge`, `bond`, `team`.
    pub member_of: Option<String>,
}

/// The slots of the rings of each queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rings {
    /// Receive ring, and the most that it may have.
    pub receive: (u32, u32),
    /// Transmit ring.
    pub transmit: (u32, u32),
}

/// A queueing discipline of the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Qdisc {
    /// `fq_codel`, `htb`, `clsact`.
    pub kind: String,
    /// It is the root of what the interface sends.
    pub root: bool,
}

/// Looks at an interface of the calling thread's network namespace.
///
/// # Errors
/// There is no such interface.
pub fn survey(interface: &str) -> Result<Survey, PortError> {
    let control = Control::open()?;
    let index = match control.interface(interface) {
        Ok(found) => found.index,
        // Tunnels have queues, too.
        Err(PortError::NotEthernet { .. }) => control.index_of(interface)?,
        Err(error) => return Err(error),
    };
    let on = features(&control, interface).unwrap_or_default();
    let on = on.into_iter().filter(|feature| feature.on && makes_super_frames(&feature.name));
    let mut route = NetlinkSocket::open()
        .map_err(|error| PortError::from_io("opening rtnetlink".to_owned(), error))?;
    Ok(Survey {
        driver: driver(&control, interface).ok().filter(|name| !name.is_empty()),
        rings: rings(&control, interface).ok(),
        queues: queues(&control, interface).ok().map(|known| (known.receive, known.transmit)),
        super_frames: on.map(|feature| feature.name).collect(),
        qdiscs: qdiscs(&mut route, index).unwrap_or_default(),
        xdp: has_xdp(&mut route, interface).unwrap_or(false),
        member_of: master_of(&mut route, interface).ok().flatten().map(|(_, kind)| kind),
    })
}

fn rings(control: &Control, interface: &str) -> Result<Rings, PortError> {
    // struct ethtool_ringparam: command; maxima of rx, rx mini, rx jumbo, tx; the same as set.
    let mut data = [GET_RINGS, 0, 0, 0, 0, 0, 0, 0, 0];
    control.ethtool(interface, &mut data)?;
    Ok(Rings { receive: (data[5], data[1]), transmit: (data[8], data[4]) })
}

fn qdiscs(route: &mut NetlinkSocket, index: u32) -> io::Result<Vec<Qdisc>> {
    // struct tcmsg: family, interface, handle, parent, info.
    let dump = Message::new(RTM_GETQDISC, libc::NLM_F_DUMP, &[0; 20]);
    let word = |body: &[u8], at: usize| {
        body.get(at..at + 4).and_then(|bytes| bytes.first_chunk().copied()).map(u32::from_ne_bytes)
    };
    let of = |body: Vec<u8>| {
        // Some kernels send those of all interfaces.
        if word(&body, 4) != Some(index) {
            return None;
        }
        let (_, kind) = attributes(body.get(20..)?).find(|(kind, _)| *kind == TCA_KIND)?;
        let kind = String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned();
        Some(Qdisc { kind, root: word(&body, 12) == Some(ROOT) })
    };
    let mut found: Vec<_> = route.request(dump)?.into_iter().filter_map(of).collect();
    found.sort_by_key(|qdisc| !qdisc.root);
    Ok(found)
}

fn has_xdp(route: &mut NetlinkSocket, interface: &str) -> io::Result<bool> {
    let mut name = interface.as_bytes().to_vec();
    name.push(0);
    let message = Message::new(RTM_GETLINK, 0, &[0; 16]).attribute(IFLA_IFNAME, &name);
    let bodies = route.request(message)?;
    let within = |bytes, wanted| attributes(bytes).find(|(kind, _)| *kind == wanted);
    let body = bodies.first().and_then(|body| body.get(16..)).unwrap_or_default();
    let attached = within(body, IFLA_XDP).and_then(|(_, xdp)| within(xdp, IFLA_XDP_ATTACHED));
    Ok(attached.is_some_and(|(_, mode)| mode.first().is_some_and(|mode| *mode != 0)))
}

/// How many bytes this process may lock in memory; `None`: without limit.
#[must_use]
pub fn locked_memory() -> Option<u64> {
    limit_of_locked_memory().filter(|_| !may_lock_beyond_limit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_a_queue_and_no_rings_and_what_is_missing_is_named() {
        let lo = survey("lo").unwrap();
        assert_eq!((lo.rings, lo.xdp, lo.member_of), (None, false, None));
        assert!(lo.qdiscs.iter().all(|qdisc| !qdisc.kind.is_empty()), "{:?}", lo.qdiscs);
        assert!(matches!(survey("no-such-if"), Err(PortError::NoInterface(_))));
    }
}
