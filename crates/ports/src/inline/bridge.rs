//! Two interfaces between which every frame passes: through the process while it lives, through a
//! bridge of the kernel's while it does not.

use std::io;

use super::pair::{RTM_NEWLINK, ifinfomsg, master_of, with_zero, without_addresses};
use super::program;
use crate::bpf::{AttachType, Link, Program, ProgramKind};
use crate::error::PortError;
use crate::heartbeat::Heartbeat;
use crate::interface::Control;
use crate::netlink::{Message, NetlinkSocket};
use crate::parcel::{Kind, Parcel};
use crate::words::Words;

const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_BR_STP_STATE: u16 = 5;
const IFLA_BR_GROUP_FWD_MASK: u16 = 9;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;

/// All link-local groups that a bridge can be told to forward: not STP, pause frames and LACP.
const FORWARD_GROUPS: u16 = 0xfff8;

/// Takes what arrives at an interface out of the kernel's way, while the heart beats. The kernel
/// removes it with the process.
#[derive(Debug)]
pub struct Bridged {
    link: Link,
    state: Words,
}

impl Bridged {
    /// Attaches the program to `interface`, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// There is no such interface; the process lacks CAP_BPF and CAP_NET_ADMIN; the kernel has no
    /// TCX.
    pub fn attach(interface: &str, heart: &Heartbeat) -> Result<Self, PortError> {
        let control = Control::open()?;
        let ifindex = control.interface(interface)?.index;
        let (state, program) = program_for(heart)?;
        let link = program
            .link(ifindex, AttachType::TcxIngress, 0)
            .map_err(|error| super::not_linked(&control, interface, ifindex, error))?;
        Ok(Self { link, state })
    }

    /// Takes over what another process has [passed on](Self::pass_on): its link gets a program
    /// that looks at `heart`, which must beat.
    ///
    /// # Errors
    /// Something else was passed on; or as [`Bridged::attach`].
    pub fn adopt(heart: &Heartbeat, parcel: &mut Parcel) -> Result<Self, PortError> {
        parcel.expect(Kind::Bridged)?;
        let (state, program) = program_for(heart)?;
        Ok(Self { link: Link::adopt_for(parcel, &program)?, state })
    }

    /// Puts into a parcel what another process needs to take it over. It must be forgotten then:
    /// dropping it would take it away.
    ///
    /// # Errors
    /// The process may have no more descriptors.
    pub fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.begin(Kind::Bridged);
        self.link.pass_on(parcel)
    }

    /// How many frames it has kept from the kernel.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.state.word(program::TAKEN_FRAMES).load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// The program of a bridged interface, and what it counts in.
fn program_for(heart: &Heartbeat) -> Result<(Words, Program), PortError> {
    let state = Words::create(program::STATE)?;
    let code = program::bridged(state.map(), heart);
    let program = Program::load(ProgramKind::SchedCls, "evenkeel_bridge", &code, 0)?;
    Ok((state, program))
}

/// Sees to it that two interfaces are in one bridge of the kernel, which goes on when this process
/// does not. `make`: the name of a bridge that is made for them if they are in none; it stays when
/// the process ends. A bridge that is there already stays as it is.
///
/// # Errors
/// They are in different bridges, or in a bond; or in none, and none is to be made.
pub fn join(interfaces: [&str; 2], make: Option<&str>) -> Result<(), PortError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error| PortError::from_io(what, error)
    };
    let mut route = NetlinkSocket::open().map_err(failed("opening rtnetlink"))?;
    let mut masters = [None, None];
    for (name, master) in interfaces.iter().zip(&mut masters) {
        *master = master_of(&mut route, name).map_err(failed(&format!("looking for {name}")))?;
    }
    let not_joined = |why: String| PortError::NotBridged {
        one: interfaces[0].to_owned(),
        other: interfaces[1].to_owned(),
        why,
    };
    match (masters, make) {
        ([Some((one, kind)), Some((other, _))], _) if one == other && kind == "bridge" => Ok(()),
        ([None, None], Some(name)) => {
            let what = format!("making the bridge {name}");
            create(&mut route, name).map_err(failed(&what))?;
            let index = Control::open()?.interface(name)?.index;
            for interface in interfaces {
                enslave(&mut route, interface, index)
                    .map_err(failed(&format!("putting {interface} into the bridge {name}")))?;
            }
            Ok(())
        }
        ([None, None], None) => Err(not_joined("they are in no bridge".to_owned())),
        (masters, _) => {
            let control = Control::open()?;
            let [one, other] = masters.map(|master| match master {
                None => "in none".to_owned(),
                Some((index, kind)) => {
                    let name = control.name_of(index).unwrap_or_else(|| index.to_string());
                    format!("in the {kind} {name}")
                }
            });
            Err(not_joined(format!("one is {one}, the other {other}")))
        }
    }
}

fn create(route: &mut NetlinkSocket, name: &str) -> io::Result<()> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let message = Message::new(RTM_NEWLINK, flags, &ifinfomsg(0, 0))
        .attribute(IFLA_IFNAME, &with_zero(name))
        .nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"bridge\0").nested(IFLA_INFO_DATA, |data| {
                data.attribute(IFLA_BR_STP_STATE, &0_u32.to_ne_bytes())
                    .attribute(IFLA_BR_MCAST_SNOOPING, &[0])
                    .attribute(IFLA_BR_GROUP_FWD_MASK, &FORWARD_GROUPS.to_ne_bytes())
            })
        });
    match route.request(message) {
        // One whose process was killed before it had members.
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
        made => drop(made?),
    }
    without_addresses(route, name);
    let up = Message::new(RTM_NEWLINK, 0, &ifinfomsg(libc::IFF_UP, libc::IFF_UP))
        .attribute(IFLA_IFNAME, &with_zero(name));
    route.request(up).map(drop)
}

fn enslave(route: &mut NetlinkSocket, name: &str, master: u32) -> io::Result<()> {
    let message = Message::new(RTM_NEWLINK, 0, &ifinfomsg(0, 0))
        .attribute(IFLA_IFNAME, &with_zero(name))
        .attribute(IFLA_MASTER, &master.to_ne_bytes());
    route.request(message).map(drop)
}
