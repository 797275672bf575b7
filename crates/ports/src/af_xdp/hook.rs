//! The program at the interface: in the driver itself, or in the generic hook behind it.

use std::io;
use std::net::IpAddr;

use super::options::AfXdpOptions;
use super::program;
use super::shared::Sockets;
use super::socket::{Patience, patiently};
use crate::bpf::{AttachType, Link, Map, MapKind, Program, ProgramKind, XDP_HAS_FRAGS};
use crate::classify::LocalAddresses;
use crate::error::PortError;
use crate::interface::Interface;
use crate::parcel::Parcel;

/// `XDP_FLAGS_DRV_MODE` and `XDP_FLAGS_SKB_MODE`.
const NATIVE: u32 = 4;
const GENERIC: u32 = 2;
/// In a parcel: how the program is attached, and whether frames come in pieces.
const NATIVELY: u64 = 1;
const IN_PIECES: u64 = 2;

/// The program at work, and what it looks into. Dropping it gives the kernel all frames again.
#[derive(Debug)]
pub(super) struct Hook {
    link: Link,
    station: Map,
    pub(super) local: LocalAddresses,
}

/// What a program is for.
pub(super) struct Site<'a> {
    pub(super) interface: &'a Interface,
    /// Receive queues, and among how many workers they are divided.
    pub(super) queues: u32,
    pub(super) workers: u32,
    /// Frames are longer than a buffer.
    pub(super) pieces: bool,
}

impl Hook {
    /// Runs the program in the driver if that can, else behind it.
    pub(super) fn attach(
        name: &str,
        site: &Site<'_>,
        local: &[IpAddr],
        options: &AfXdpOptions,
        patience: Patience,
    ) -> Result<(Self, Sockets), PortError> {
        let &Site { interface, queues, pieces, .. } = site;
        let sockets = Map::create(MapKind::XskMap, 4, 4, queues, 0)?;
        let (program, station, local) = load(site, &sockets, local, options)?;
        let taken =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
        let (link, native) = match patiently(patience.for_a_program(), || {
            program.link(interface.index, AttachType::Xdp, NATIVE)
        }) {
            Ok(link) => (link, true),
            Err(error) if taken(&error) => return Err(PortError::XdpTaken(name.to_owned())),
            Err(error) if options.native_only => return Err(refused(name, "in its driver", error)),
            Err(_) => match program.link(interface.index, AttachType::Xdp, GENERIC) {
                Ok(link) => (link, false),
                Err(error) if taken(&error) => return Err(PortError::XdpTaken(name.to_owned())),
                Err(error) => return Err(refused(name, "at all", error)),
            },
        };
        let sockets = Sockets { map: sockets, ifindex: interface.index, queues, native, pieces };
        Ok((Self { link, station, local }, sockets))
    }

    /// That of another process: its link gets a program that looks at the heart of `options`,
    /// which must beat, and the sockets stay in their map.
    pub(super) fn adopt(
        interface: &Interface,
        workers: u32,
        local: &[IpAddr],
        options: &AfXdpOptions,
        parcel: &mut Parcel,
    ) -> Result<(Self, Sockets), PortError> {
        let (queues, how) = (parcel.take()? as u32, parcel.take()?);
        let (native, pieces) = (how & NATIVELY != 0, how & IN_PIECES != 0);
        let map = Map::adopt(4, 4, parcel)?;
        let site = Site { interface, queues, workers, pieces };
        let (program, station, local) = load(&site, &map, local, options)?;
        let link = Link::adopt_for(parcel, &program)?;
        let sockets = Sockets { map, ifindex: interface.index, queues, native, pieces };
        Ok((Self { link, station, local }, sockets))
    }

    /// Puts it into a parcel for another process. It must be forgotten then: dropping it would
    /// detach the program.
    pub(super) fn pass_on(&self, sockets: &Sockets, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.put(sockets.queues.into());
        let native = if sockets.native { NATIVELY } else { 0 };
        parcel.put(native | if sockets.pieces { IN_PIECES } else { 0 });
        sockets.map.pass_on(parcel)?;
        self.link.pass_on(parcel)
    }

    /// Tells the program which hardware address is the interface's.
    pub(super) fn set_station(&self, mac: [u8; 6]) -> Result<(), PortError> {
        set_station(&self.station, mac)
    }
}

/// The program, and the maps that it looks into.
fn load(
    site: &Site<'_>,
    sockets: &Map,
    local: &[IpAddr],
    options: &AfXdpOptions,
) -> Result<(Program, Map, LocalAddresses), PortError> {
    let station = Map::create(MapKind::Array, 4, 8, 1, 0)?;
    set_station(&station, site.interface.mac)?;
    let local = LocalAddresses::create(local)?;
    let sampled = options.stamp_every > 1;
    let counter = sampled.then(|| Map::create(MapKind::PerCpuArray, 4, 8, 1, 0)).transpose()?;
    let stamped = counter.as_ref().map(|counter| (counter, options.stamp_every));
    let alive = options.heart.as_deref().map(|heart| (heart, site.workers));
    let code = program::assemble(&station, &local, sockets, stamped, alive, options.own);
    // Some drivers have another way for frames with this: only where it is needed.
    let flags = if site.pieces { XDP_HAS_FRAGS } else { 0 };
    let program = Program::load(ProgramKind::Xdp, "evenkeel_xdp", &code, flags)?;
    Ok((program, station, local))
}

fn refused(name: &str, place: &'static str, source: io::Error) -> PortError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            PortError::Privilege { what: format!("attaching an XDP program to interface {name}") }
        }
        _ => PortError::XdpRefused { interface: name.to_owned(), place, source },
    }
}

fn set_station(map: &Map, mac: [u8; 6]) -> Result<(), PortError> {
    let mut value = [0; 8];
    value[..6].copy_from_slice(&mac);
    map.insert(&0u32.to_ne_bytes(), &value)
        .map_err(|error| PortError::from_io("telling an XDP program the hardware address", error))
}
