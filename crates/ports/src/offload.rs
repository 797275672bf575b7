//! Switches off the offloads that hand over super-frames, and restores them.
//!
//! A router must see the frames that the wire carries. Three things glue them together before a
//! packet socket sees them:
//!
//! - *receive offloads* of the interface (GRO, LRO, GRO in hardware): switched off;
//! - *the other end of a veth pair*, when it is a container or a namespace: its stack leaves
//!   segmentation (TSO, UDP segmentation) to the "hardware", which is our end, and 64 KiB arrive as
//!   one frame, whatever our own offloads say. A driver-mode XDP program at our end makes the
//!   kernel take segmentation away from the other end, since XDP programs want real frames. So a
//!   program that passes everything is linked there; the link ends with the process, and the other
//!   end has its offloads back.
//! - *segmentation offloads of the interface itself* do nothing to what is received; they are
//!   switched off so that what the machine itself sends there consists of frames too.
//!
//! What was switched off is written to a file first. A stop restores it; after `kill -9` the next
//! start finds the file and knows what was there originally, rather than taking the leftovers for
//! it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::bpf::{Assembler, AttachType, Link, Program, ProgramKind, Reg, XDP_HAS_FRAGS};
use crate::error::PortError;
use crate::ethtool::{driver, features, set_features};
use crate::interface::Control;
use crate::note::Note;

/// Whether a feature, by the kernel's name, glues frames together. Newer kernels have more of them.
pub(crate) fn makes_super_frames(name: &str) -> bool {
    name.starts_with("rx-gro")
        || name == "rx-lro"
        || name == "rx-udp-gro-forwarding"
        || (name.starts_with("tx-") && name.ends_with("-segmentation"))
}

/// `XDP_FLAGS_DRV_MODE`: in the driver or not at all.
const DRIVER_MODE: u32 = 4;
const XDP_PASS: i32 = 2;

/// The offloads of one interface, switched off; dropping it restores them.
#[derive(Debug)]
pub struct Offloads {
    interface: String,
    control: Control,
    ifindex: u32,
    /// Names of what was on at first.
    on: BTreeSet<String>,
    note: Note,
    peer: Option<Link>,
    warning: Option<String>,
    restored: bool,
}

impl Offloads {
    /// Switches off what makes frames longer than the wire's on `interface`, in the network
    /// namespace of the calling thread, and keeps in the directory `runtime` (made if missing) what
    /// it was, so that the next start can restore it should this process be killed.
    ///
    /// # Errors
    /// There is no such interface, the process lacks CAP_NET_ADMIN, or `runtime` cannot be written.
    pub fn disable(interface: &str, runtime: &Path) -> Result<Self, PortError> {
        Self::with_hook(interface, runtime, false)
    }

    /// As [`Offloads::disable`], for an interface whose driver runs an XDP program already, which
    /// makes the other end of a veth pair segment: that of an
    /// [`AfXdpPort`](crate::af_xdp::AfXdpPort) in native mode.
    ///
    /// # Errors
    /// As [`Offloads::disable`].
    pub fn disable_beside_xdp(interface: &str, runtime: &Path) -> Result<Self, PortError> {
        Self::with_hook(interface, runtime, true)
    }

    /// Switches off what hands over super-frames that cannot be told from others: merging in
    /// hardware (LRO). For a port that receives super-frames. What a router that was killed has
    /// left switched off is switched on again. `None`: there was nothing to do.
    ///
    /// # Errors
    /// As [`Offloads::disable`].
    pub fn keep(interface: &str, runtime: &Path) -> Result<Option<Self>, PortError> {
        let (mut this, left) = Self::look(interface, runtime)?;
        let is_lro = |name: &str| name == "rx-lro";
        if !left && !this.on.contains("rx-lro") {
            this.restored = true;
            return Ok(None);
        }
        this.note.remember(&this.on)?;
        this.set(|name| this.on.contains(name) && !is_lro(name))?;
        Ok(Some(this))
    }

    fn with_hook(interface: &str, runtime: &Path, hooked: bool) -> Result<Self, PortError> {
        let (mut this, _) = Self::look(interface, runtime)?;
        this.note.remember(&this.on)?;
        let ours = if hooked {
            Ok(None)
        } else {
            segment_at_the_other_end(&this.control, interface, this.ifindex)
        };
        match ours {
            Ok(peer) => this.peer = peer,
            Err(error) => {
                this.warning = Some(format!(
                    "{interface}: {error}; super-frames of the other end will be dropped as \
                     frame_too_long unless they are switched off there (`ethtool -K <other end> \
                     tso off gso off`)"
                ));
            }
        }
        // After the program, because attaching it switches GRO on.
        this.set(|_| false)?;
        Ok(this)
    }

    /// What is on at an interface, or was before a router was killed that had switched it off; and
    /// whether there was one. Nothing is changed yet.
    fn look(interface: &str, runtime: &Path) -> Result<(Self, bool), PortError> {
        let control = Control::open()?;
        let ifindex = control.interface(interface)?.index;
        let now_on: BTreeSet<String> = features(&control, interface)?
            .into_iter()
            .filter(|feature| feature.on && feature.changeable)
            .map(|feature| feature.name)
            .filter(|name| makes_super_frames(name))
            .collect();
        let note = Note::of("offloads", (interface, ifindex), runtime)?;
        let left = note.recall().map(BTreeSet::from_iter);
        let this = Self {
            interface: interface.to_owned(),
            control,
            ifindex,
            on: left.clone().unwrap_or(now_on),
            note,
            peer: None,
            warning: None,
            restored: false,
        };
        Ok((this, left.is_some()))
    }

    /// What was on before and is restored at the end, by the kernel's names, as `ethtool -k` shows
    /// them.
    pub fn switched_off(&self) -> impl Iterator<Item = &str> {
        self.on.iter().map(String::as_str)
    }

    /// Whether the interface is an end of a veth pair whose other end was made to segment what it
    /// sends.
    #[must_use]
    pub const fn other_end_segments(&self) -> bool {
        self.peer.is_some()
    }

    /// What could not be done, and what to do about it; for the log.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Restores what was switched off. Dropping does the same and does not tell of a failure.
    ///
    /// # Errors
    /// The interface refuses; one that has vanished is no error.
    pub fn restore(mut self) -> Result<(), PortError> {
        self.undo()
    }

    fn set(&self, on: impl Fn(&str) -> bool) -> Result<(), PortError> {
        set_features(&self.control, &self.interface, |name| {
            makes_super_frames(name).then(|| on(name))
        })
    }

    fn undo(&mut self) -> Result<(), PortError> {
        if self.restored {
            return Ok(());
        }
        self.restored = true;
        self.peer = None;
        // An interface of the same name that came later has its own offloads.
        match self.control.interface(&self.interface) {
            Ok(found) if found.index == self.ifindex => self.set(|name| self.on.contains(name))?,
            _ => {}
        }
        // Should it stay, the next start finds it and restores the same again.
        self.note.forget();
        Ok(())
    }
}

impl Drop for Offloads {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

/// Links the program that makes the other end of a veth pair segment; `None` if the interface is of
/// another kind.
fn segment_at_the_other_end(
    control: &Control,
    interface: &str,
    ifindex: u32,
) -> Result<Option<Link>, PortError> {
    if driver(control, interface)? != "veth" {
        return Ok(None);
    }
    let mut asm = Assembler::default();
    asm.set(Reg(0), XDP_PASS).exit();
    let code = asm.finish();
    // With fragments allowed the interface may have any MTU; kernels before 6.3 do not know the
    // flag or do not heed it.
    let mut refused = None;
    for flags in [XDP_HAS_FRAGS, 0] {
        let attached =
            Program::load(ProgramKind::Xdp, "evenkeel_pass", &code, flags).and_then(|program| {
                let what = "making the other end of the veth pair segment by an XDP program";
                program
                    .link(ifindex, AttachType::Xdp, DRIVER_MODE)
                    .map_err(|error| PortError::from_io(what, error))
            });
        match attached {
            Ok(link) => return Ok(Some(link)),
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    refused.map_or(Ok(None), Err)
}
