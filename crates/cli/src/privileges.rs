//! What a router gives up before its first thread starts: every capability that it will not need,
//! and for good, also for whatever it might be made to start.
//!
//! It still needs some while it runs, because interfaces come and go: sockets and programs of one
//! that is back are made anew. As root it keeps the right to files of other users, where its own
//! socket, captures and configuration may lie; run it as a user of its own (packaging/) to be rid
//! of that too.

use caps::{CapSet, Capability, CapsHashSet};
use evenkeel_ports::sys;

use crate::failure::Failure;

/// Sockets past the protocol stack; interfaces, queues, offloads, routes; programs and maps; frame
/// buffers that the kernel keeps in memory; turning the verifier's log on and reading clocks.
const NEEDED: [Capability; 5] = [
    Capability::CAP_NET_RAW,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_IPC_LOCK,
];

/// What some routers need besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeps {
    /// Workers enter a namespace.
    pub(crate) namespace: bool,
    /// Workers precede other threads.
    pub(crate) realtime: bool,
    /// A socket is given to a group.
    pub(crate) group: bool,
}

/// Gives up what is not needed. Call it while the process has one thread.
///
/// # Errors
/// The kernel refuses, which it does to nobody who gives something up.
pub(crate) fn give_up(keeps: &Keeps) -> Result<(), Failure> {
    let failed = |error| Failure::new(1, format!("giving up privileges: {error}"));
    let mut kept: CapsHashSet = NEEDED.into_iter().collect();
    if keeps.namespace {
        // Each worker enters it, also those that take over later.
        kept.insert(Capability::CAP_SYS_ADMIN);
    }
    if keeps.realtime {
        // Each worker asks for its priority, also those that take over later.
        kept.insert(Capability::CAP_SYS_NICE);
    }
    if sys::is_root() {
        kept.insert(Capability::CAP_DAC_OVERRIDE);
        if keeps.group {
            kept.insert(Capability::CAP_CHOWN);
        }
    }
    let bounds = caps::read(None, CapSet::Bounding).map_err(failed)?;
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).map_err(failed)? {
        for capability in bounds.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *capability).map_err(failed)?;
        }
    }
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let left: CapsHashSet = permitted.intersection(&kept).copied().collect();
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).map_err(failed)?;
    caps::set(None, CapSet::Effective, &left).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &left).map_err(failed)?;
    sys::gain_no_privileges()
        .map_err(|error| Failure::new(1, format!("giving up new privileges: {error}")))
}
