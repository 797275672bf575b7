//! The guard as a classic filter: a clsact qdisc and a direct-action BPF classifier at its ingress,
//! set by netlink.
//!
//! It outlives the process that set it, unlike a TCX link; its program finds no
//! heartbeat then. A filter that a killed process left behind passes everything, and the next start
//! replaces it, since both have the same place.

use std::io;
use std::os::fd::AsRawFd;

use crate::bpf::Program;
use crate::error::PortError;
use crate::netlink::{Message, NetlinkSocket};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;

/// `TC_H_CLSACT`, and the handle that the kernel gives its qdisc.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

/// Where our filter stands among those of the interface: early, and always the same place.
const PRIORITY: u32 = 29;
const HANDLE: u32 = 1;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const DIRECT_ACTION: u32 = 1;

/// `struct tcmsg`.
fn tcmsg(ifindex: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    for (i, word) in [0, ifindex, handle, parent, info].into_iter().enumerate() {
        bytes[i * 4..][..4].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Priority and protocol (all of them), as tcm_info carries them.
fn info() -> u32 {
    PRIORITY << 16 | u32::from((libc::ETH_P_ALL as u16).to_be())
}

/// The filter at an interface's ingress; dropping it removes it.
#[derive(Debug)]
pub(super) struct Filter {
    ifindex: u32,
    /// The clsact qdisc was not there before.
    qdisc_is_ours: bool,
    netns: crate::sys::NetNs,
}

impl Filter {
    pub(super) fn attach(ifindex: u32, program: &Program) -> Result<Self, PortError> {
        let netns = crate::sys::NetNs::current().map_err(failed("opening the namespace"))?;
        let mut route = NetlinkSocket::open().map_err(failed("opening rtnetlink"))?;
        // Left behind by a killed process: nobody's but ours if nothing else hangs on it.
        let qdisc_is_ours = add_qdisc(&mut route, ifindex)?
            || others(&mut route, ifindex, INGRESS).is_ok_and(|others| !others);
        add(&mut route, ifindex, INGRESS, program, b"evenkeel-guard\0")?;
        Ok(Self { ifindex, qdisc_is_ours, netns })
    }

    fn remove(&self) -> io::Result<()> {
        remove(&mut NetlinkSocket::open()?, self.ifindex, INGRESS, self.qdisc_is_ours)
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> PortError {
    move |error| PortError::from_io(what, error)
}

/// Puts the program at the interface's egress, where it stays when this process is gone.
pub(crate) fn close(ifindex: u32, program: &Program) -> Result<(), PortError> {
    let mut route = NetlinkSocket::open().map_err(failed("opening rtnetlink"))?;
    add_qdisc(&mut route, ifindex)?;
    add(&mut route, ifindex, EGRESS, program, b"evenkeel-gate\0")
}

/// Takes it away; whether it was there.
pub(crate) fn open(ifindex: u32) -> io::Result<bool> {
    match remove(&mut NetlinkSocket::open()?, ifindex, EGRESS, true) {
        Ok(()) => Ok(true),
        // No filter, or no qdisc for one.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether the clsact qdisc was not there before.
fn add_qdisc(route: &mut NetlinkSocket, ifindex: u32) -> Result<bool, PortError> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let qdisc = Message::new(RTM_NEWQDISC, flags, &tcmsg(ifindex, CLSACT_HANDLE, CLSACT, 0))
        .attribute(TCA_KIND, b"clsact\0");
    match route.request(qdisc) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        Err(error) => Err(PortError::from_io("adding a clsact qdisc", error)),
    }
}

/// Our filter, in place of the one that may be there.
fn add(
    route: &mut NetlinkSocket,
    ifindex: u32,
    parent: u32,
    program: &Program,
    name: &[u8],
) -> Result<(), PortError> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let filter = Message::new(RTM_NEWTFILTER, flags, &tcmsg(ifindex, HANDLE, parent, info()))
        .attribute(TCA_KIND, b"bpf\0")
        .nested(TCA_OPTIONS, |options| {
            options
                .attribute(TCA_BPF_FD, &program.as_fd().as_raw_fd().to_ne_bytes())
                .attribute(TCA_BPF_NAME, name)
                .attribute(TCA_BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes())
        });
    route.request(filter).map(drop).map_err(failed("adding a filter"))
}

/// Removes our filter, and the qdisc if it is ours and nothing hangs on it any more.
fn remove(
    route: &mut NetlinkSocket,
    ifindex: u32,
    parent: u32,
    qdisc_is_ours: bool,
) -> io::Result<()> {
    let filter = tcmsg(ifindex, HANDLE, parent, info());
    route.request(Message::new(RTM_DELTFILTER, 0, &filter).attribute(TCA_KIND, b"bpf\0"))?;
    if qdisc_is_ours && !others(route, ifindex, parent)? {
        let qdisc = tcmsg(ifindex, CLSACT_HANDLE, CLSACT, 0);
        route.request(Message::new(RTM_DELQDISC, 0, &qdisc))?;
    }
    Ok(())
}

/// Whether filters other than ours at `own` hang on the clsact qdisc.
fn others(route: &mut NetlinkSocket, ifindex: u32, own: u32) -> io::Result<bool> {
    for parent in [INGRESS, EGRESS] {
        let dump = Message::new(RTM_GETTFILTER, libc::NLM_F_DUMP, &tcmsg(ifindex, 0, parent, 0));
        for body in route.request(dump)? {
            let info = body.get(16..20).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
            if parent != own || info.is_none_or(|info| info >> 16 != PRIORITY) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl Drop for Filter {
    fn drop(&mut self) {
        // In the namespace it was made in, whichever the dropping thread is in. If it fails, the
        // interface is gone, and with it the filter; or the filter stays, and turns inert with the
        // heartbeat.
        let _ = std::thread::scope(|scope| {
            scope.spawn(|| self.netns.enter().and_then(|()| self.remove())).join()
        });
    }
}
