//! The veth pair between the kernel and us.

use std::io;

use crate::error::PortError;
use crate::ethtool;
use crate::interface::Control;
use crate::netlink::{Message, NetlinkSocket, attributes};

pub(super) const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
/// No link-local address: the pair is nobody's link.
const GEN_MODE_NONE: u8 = 1;

/// The longest packet that the pair carries, bytes: super-frames are not cut on it.
const MTU: u32 = 65_535;

/// What the kernel would hand over uncut although the header of a packet socket cannot say how to
/// cut it: it is cut before it enters the pair.
const CUT_BEFORE: [&str; 10] = [
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-sctp-segmentation",
    "tx-esp-segmentation",
    "tx-gso-partial",
    "tx-gso-list",
];

/// What the alias of an end begins with; the interface follows that it belongs to.
const ALIAS: &str = "evenkeel: queues of ";

/// The names of the pair's ends: always the same ones for an interface, so that what a killed
/// process has left is found again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PairNames {
    /// The kernel's end.
    pub kernel: String,
    /// Our end.
    pub ours: String,
}

/// The pair of an interface; dropping it removes both ends.
#[derive(Debug)]
pub(super) struct Pair {
    names: PairNames,
    /// The kernel's numbers of the ends.
    pub(super) kernel: u32,
    pub(super) ours: u32,
    /// Of the namespace that it was made in, whichever the thread is in that drops it.
    route: NetlinkSocket,
}

impl Pair {
    /// Makes the pair for `interface`, in the place of one that a killed process has left.
    pub(super) fn make(interface: &str, names: PairNames) -> Result<Self, PortError> {
        let failed = |what: String| move |error| PortError::from_io(what, error);
        let mut route = NetlinkSocket::open().map_err(failed("opening rtnetlink".into()))?;
        let alias = format!("{ALIAS}{interface}");
        for name in [&names.kernel, &names.ours] {
            match found(&mut route, name) {
                Ok(None) => {}
                // An end without an alias was made by a process that was killed the moment after.
                Ok(Some(of)) if of.is_empty() || of == alias => {
                    remove(&mut route, name)
                        .map_err(failed(format!("removing {name}, left by a killed process")))?;
                }
                Ok(Some(_)) => {
                    return Err(PortError::NameTaken {
                        interface: interface.to_owned(),
                        name: name.clone(),
                    });
                }
                Err(error) => return Err(failed(format!("looking for {name}"))(error)),
            }
        }
        let what = format!("making the pair {} and {}", names.kernel, names.ours);
        create(&mut route, &names).map_err(failed(what.clone()))?;
        // From here on it goes with an error, too.
        let mut pair = Self { names, kernel: 0, ours: 0, route };
        let control = Control::open()?;
        for name in [&pair.names.kernel, &pair.names.ours] {
            configure(&mut pair.route, name, &alias).map_err(failed(what.clone()))?;
        }
        ethtool::set_features(&control, &pair.names.kernel, |name| {
            CUT_BEFORE.contains(&name).then_some(false)
        })?;
        pair.kernel = control.interface(&pair.names.kernel)?.index;
        pair.ours = control.interface(&pair.names.ours)?.index;
        Ok(pair)
    }
}

impl Pair {
    /// The pair that another process has made and passes on.
    pub(super) fn adopt(names: PairNames) -> Result<Self, PortError> {
        let route = NetlinkSocket::open()
            .map_err(|error| PortError::from_io("opening rtnetlink".to_owned(), error))?;
        let control = Control::open()?;
        let kernel = control.interface(&names.kernel)?.index;
        let ours = control.interface(&names.ours)?.index;
        Ok(Self { names, kernel, ours, route })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // What stays, the next start finds by its name.
        let _ = remove(&mut self.route, &self.names.kernel);
    }
}

/// `struct ifinfomsg`.
pub(super) fn ifinfomsg(flags: libc::c_int, change: libc::c_int) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}

pub(super) fn with_zero(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// What the kernel says of an interface, by its attributes or its number; `None`: there is no such
/// interface.
pub(super) fn look_up(
    route: &mut NetlinkSocket,
    by: &[(u16, &[u8])],
    index: u32,
) -> io::Result<Option<Vec<u8>>> {
    let mut head = ifinfomsg(0, 0);
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    let request = by.iter().fold(Message::new(RTM_GETLINK, 0, &head), |request, (kind, value)| {
        request.attribute(*kind, value)
    });
    match route.request(request) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        bodies => Ok(Some(bodies?.into_iter().next().unwrap_or_default())),
    }
}

/// The number and kind of what an interface is a member of.
pub(crate) fn master_of(
    route: &mut NetlinkSocket,
    name: &str,
) -> io::Result<Option<(u32, String)>> {
    let Some(body) = look_up(route, &[(IFLA_IFNAME, &with_zero(name))], 0)? else {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    };
    let master = attributes(body.get(16..).unwrap_or_default())
        .find(|(kind, _)| *kind == IFLA_MASTER)
        .and_then(|(_, value)| value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)));
    let Some(master) = master else { return Ok(None) };
    let found = look_up(route, &[], master)?.unwrap_or_default();
    let kind = attributes(found.get(16..).unwrap_or_default())
        .find(|(kind, _)| *kind == IFLA_LINKINFO)
        .and_then(|(_, info)| attributes(info).find(|(kind, _)| *kind == IFLA_INFO_KIND))
        .map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
    Ok(Some((master, kind.unwrap_or_default())))
}

/// The alias of an interface, empty if it has none; `None`: there is no such interface.
fn found(route: &mut NetlinkSocket, name: &str) -> io::Result<Option<String>> {
    let Some(body) = look_up(route, &[(IFLA_IFNAME, &with_zero(name))], 0)? else {
        return Ok(None);
    };
    let alias = attributes(body.get(16..).unwrap_or_default())
        .find(|(kind, _)| *kind == IFLA_IFALIAS)
        .map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
    Ok(Some(alias.unwrap_or_default()))
}

/// The interface whose pair has this end, if it is one.
pub(super) fn owner_of(route: &mut NetlinkSocket, name: &str) -> io::Result<Option<String>> {
    Ok(found(route, name)?.and_then(|alias| alias.strip_prefix(ALIAS).map(str::to_owned)))
}

fn create(route: &mut NetlinkSocket, names: &PairNames) -> io::Result<()> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let end = |message: Message, name: &str| {
        message.attribute(IFLA_IFNAME, &with_zero(name)).attribute(IFLA_MTU, &MTU.to_ne_bytes())
    };
    let message = end(Message::new(RTM_NEWLINK, flags, &ifinfomsg(0, 0)), &names.kernel);
    let message = message.nested(IFLA_LINKINFO, |info| {
        info.attribute(IFLA_INFO_KIND, b"veth\0").nested(IFLA_INFO_DATA, |data| {
            data.nested(VETH_INFO_PEER, |peer| end(peer.raw(&ifinfomsg(0, 0)), &names.ours))
        })
    });
    route.request(message).map(drop)
}

/// Names the interface that the pair belongs to, keeps addresses off, and takes the end up.
fn configure(route: &mut NetlinkSocket, name: &str, alias: &str) -> io::Result<()> {
    let wanted = libc::IFF_UP | libc::IFF_NOARP;
    let message = Message::new(RTM_NEWLINK, 0, &ifinfomsg(wanted, wanted))
        .attribute(IFLA_IFNAME, &with_zero(name))
        .attribute(IFLA_IFALIAS, alias.as_bytes());
    without_addresses(route, name);
    route.request(message).map(drop)
}

/// Keeps IPv6 from giving an interface an address of its own. A kernel without IPv6 has nothing to
/// keep off.
pub(super) fn without_addresses(route: &mut NetlinkSocket, name: &str) {
    let silent = Message::new(RTM_NEWLINK, 0, &ifinfomsg(0, 0))
        .attribute(IFLA_IFNAME, &with_zero(name))
        .nested(IFLA_AF_SPEC, |families| {
            families.nested(libc::AF_INET6 as u16, |v6| {
                v6.attribute(IFLA_INET6_ADDR_GEN_MODE, &[GEN_MODE_NONE])
            })
        });
    let _ = route.request(silent);
}

fn remove(route: &mut NetlinkSocket, name: &str) -> io::Result<()> {
    let message =
        Message::new(RTM_DELLINK, 0, &ifinfomsg(0, 0)).attribute(IFLA_IFNAME, &with_zero(name));
    match route.request(message) {
        // The other end has taken it with it.
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        result => result.map(drop),
    }
}
