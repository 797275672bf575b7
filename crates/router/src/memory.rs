//! The memory that a configuration takes, and whether it can be had.
//!
//! Tables are allocated whole when they are built, and an allocation that fails ends the process.
//! So what a change needs is counted first, and reserved where it can still be refused. The counts
//! are upper bounds: `tests/it/memory.rs` holds them to what is really allocated.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_config::subscribers::SubscriberTree;
use evenkeel_config::{DisciplineConfig, LinkConfig, RouterConfig};
use evenkeel_core::admit::{AdmissionConfig, FlowsConfig, Flush};
use evenkeel_core::share::Users;
use evenkeel_ports::pool::FramePool;

use crate::error::CommandError;
use crate::handing::Handing;
use crate::pipeline::{FlowCache, QueuedPacket, Store, Translations};

/// A flow on a list of flows.
const LISTED: u64 = 80;
/// The place of a flow on such a list.
const PLACE: u64 = 8;
/// What is remembered of a flow that was refused.
const REMEMBERED: u64 = 272;
/// A flow of FairDrop's shadow.
const SHADOW: u64 = 32;
/// A prefix of a subscriber, or another key that it is found by.
const DIRECTED: u64 = 128;
/// Everything of a link whose size no setting says.
const LINK: u64 = 1 << 20;
/// Everything of a worker whose size no setting says.
const WORKER: u64 = 4 << 20;
/// What a socket of a worker at a port takes for its rings.
const RINGS: u64 = 12 << 20;

/// Addresses that a thread sets aside, used or not: its stack, and the 64 MiB which the allocator
/// of the C library keeps together for it. Only a limit of the address space counts them.
pub(crate) const THREAD: u64 = 66 << 20;

/// What a configuration takes, in bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Footprint {
    /// Buffers for frames, of all workers.
    pub buffers: u64,
    /// By link: its port, and what its discipline and its admission take, of all workers.
    pub links: Vec<(String, u64)>,
    /// The rest.
    pub rest: u64,
    workers: u64,
}

impl Footprint {
    /// What `config` takes.
    #[must_use]
    pub fn of(config: &RouterConfig) -> Self {
        let router = &config.router;
        let (workers, ports) = (u64::from(router.workers.max(1)), config.ports.len() as u64);
        let classes = config.classes.len();
        let of_link = |link: &LinkConfig| {
            let of_worker = link.admission.as_ref().map_or(0, admission);
            let of_all = link.admission.as_ref().filter(|_| workers > 1).map_or(0, users);
            let of_worker = LINK + discipline(&link.discipline, classes) + of_worker;
            (link.port.clone(), workers * of_worker + of_all)
        };
        let pool = FramePool::memory(router.buffers as usize, router.buffer_size.0 as usize);
        let fairdrop =
            config.fairdrop.as_ref().map_or(0, |own| shadows(own.flows, config.links.len()));
        let known = FlowCache::memory(router.flow_cache);
        let known = known + Translations::memory(config);
        let keys = |tree: &SubscriberTree| {
            let entries = tree.list.entries.iter();
            entries.map(|entry| (entry.prefixes.len() + entry.l2.len()) as u64).sum::<u64>()
        };
        let directories = config.trees.iter().map(keys).sum::<u64>() * DIRECTED;
        let records = Store::memory(router.buffers as usize);
        let lists = if use_lists(&config.links) { lists(&config.flows) } else { 0 };
        let per_worker = WORKER + records + directories + known + ports * RINGS + fairdrop + lists;
        let under_way = if config.hands_on() {
            (workers - 1) * Handing::memory(router.buffer_size.0)
        } else {
            0
        };
        Self {
            buffers: workers * pool,
            links: config.links.iter().map(of_link).collect(),
            rest: workers * per_worker + under_way,
            workers,
        }
    }

    /// Refuses it if there is no memory for it. See [`reserve_with`].
    ///
    /// # Errors
    /// [`CommandError::Memory`].
    pub(crate) fn reserve(&self) -> Result<(), CommandError> {
        reserve_with(self.total(), self.workers * THREAD)
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.buffers + self.rest + self.links.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }
}

/// What a discipline allocates.
pub(crate) fn discipline(config: &DisciplineConfig, classes: usize) -> u64 {
    config.memory(classes as u16, size_of::<QueuedPacket>() as u64)
}

/// What an admission allocates.
pub(crate) fn admission(config: &AdmissionConfig) -> u64 {
    let listed = |on: bool, flows: u32| if on { u64::from(flows) * LISTED } else { 0 };
    listed(true, config.flows)
        + u64::from(config.history) * REMEMBERED
        + listed(config.per_user.on, config.per_user.users)
        + listed(config.flushing.kind != Flush::Off, config.flushing.table)
        + if config.eccm.on { u64::from(config.eccm.table) * PLACE } else { 0 }
        + listed(config.second_link.port.is_some(), config.second_link.flows)
}

/// What the admissions of several workers allocate together.
pub(crate) fn users(config: &AdmissionConfig) -> u64 {
    if config.per_user.on { Users::memory(config.per_user.users) } else { 0 }
}

/// Whether some link uses the lists of all links together.
pub(crate) fn use_lists(links: &[LinkConfig]) -> bool {
    links.iter().filter_map(|link| link.admission.as_ref()).any(|own| own.global_list)
}

/// What the lists of all links together allocate, where they are used.
pub(crate) fn lists(config: &FlowsConfig) -> u64 {
    u64::from(config.lists.flows) * LISTED
}

/// What FairDrop's tables take, one for the cycles and one for each link.
pub(crate) fn shadows(flows: u32, links: usize) -> u64 {
    u64::from(flows).next_power_of_two() * SHADOW * (1 + links as u64)
}

/// Refuses what there is no memory for: see [`reserve_with`].
///
/// # Errors
/// [`CommandError::Memory`].
pub(crate) fn reserve(bytes: u64) -> Result<(), CommandError> {
    reserve_with(bytes, 0)
}

/// Refuses what there is no memory for; `addresses` more are needed without memory behind them.
/// What is said to be there is given back at once, to whoever asks next: which is the caller.
///
/// # Errors
/// [`CommandError::Memory`].
pub(crate) fn reserve_with(bytes: u64, addresses: u64) -> Result<(), CommandError> {
    let refused = |available: Option<u64>| CommandError::Memory {
        needed: mebibytes(bytes),
        available: available.map(mebibytes),
    };
    if let Some(available) = available().filter(|available| *available < bytes) {
        return Err(refused(Some(available)));
    }
    // Limits of the process are not told; the allocator is refused by them.
    let wanted = usize::try_from(bytes + addresses).unwrap_or(usize::MAX);
    Vec::<u8>::new().try_reserve_exact(wanted).map_err(|_too_much| refused(None))
}

/// An amount of memory in words, rounded up.
#[must_use]
pub fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// How much memory the machine and the control groups of the process have left; `None` where
/// neither is told.
#[must_use]
pub fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    });
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::/")).map(PathBuf::from);
    let group = group.as_deref().and_then(|group| left_of(Path::new("/sys/fs/cgroup"), group));
    machine.into_iter().chain(group).min()
}

/// What is left in a control group: the least of it and of those around it.
fn left_of(root: &Path, group: &Path) -> Option<u64> {
    let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let left = |folder: PathBuf| {
        let limit = number(folder.join("memory.max"))?;
        Some(limit.saturating_sub(number(folder.join("memory.current"))?))
    };
    group.ancestors().filter_map(|group| left(root.join(group))).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let put = |folder: &Path, max: &str, current: &str| {
            fs::write(folder.join("memory.max"), max).unwrap();
            fs::write(folder.join("memory.current"), current).unwrap();
        };
        put(&inner, "max\n", "5\n");
        assert_eq!(left_of(root.path(), Path::new("outer/inner")), None);
        put(&root.path().join("outer"), "1000\n", "400\n");
        assert_eq!(left_of(root.path(), Path::new("outer/inner")), Some(600));
        put(&inner, "300\n", "400\n");
        assert_eq!(left_of(root.path(), Path::new("outer/inner")), Some(0));
    }

    #[test]
    fn what_no_machine_has_is_refused_and_what_every_machine_has_is_not() {
        reserve(1 << 16).unwrap();
        let error = reserve(1 << 60).unwrap_err().to_string();
        assert!(error.contains("memory"), "{error}");
    }
}
