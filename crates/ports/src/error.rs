//! What can go wrong with a port, in words that say what to do.

use std::io;

/// Why a port, a guard or an offload setting could not be had.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface does not exist in this network namespace.
    #[error("interface {0} does not exist here; `ip link` lists those that do")]
    NoInterface(String),
    /// The interface is not Ethernet.
    #[error(
        "interface {interface} is not Ethernet (hardware type {hardware_type}); only Ethernet ports are supported"
    )]
    NotEthernet {
        /// Name of the interface.
        interface: String,
        /// The kernel's ARPHRD number.
        hardware_type: u16,
    },
    /// The name is empty, too long (15 bytes) or holds a zero byte.
    #[error("{0:?} cannot be an interface name: 1 to 15 bytes, no zero byte")]
    BadName(String),
    /// The process may not do it.
    #[error("{what}: permission denied; run as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF")]
    Privilege {
        /// What was tried.
        what: String,
    },
    /// The kernel cannot do it.
    #[error("{what}: this kernel cannot do it ({source})")]
    Unsupported {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A setting is outside its range.
    #[error("{knob} = {value} is out of range {range}")]
    OutOfRange {
        /// Name of the setting.
        knob: &'static str,
        /// The value given.
        value: u64,
        /// The valid range, in words.
        range: &'static str,
    },
    /// The kernel's verifier refused a program.
    #[error("the kernel refused the {program} program: {source}\n{log}")]
    Verifier {
        /// Which program.
        program: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// The verifier's last words.
        log: String,
    },
    /// Another program has the interface's driver hook.
    #[error(
        "interface {0} has another XDP program already (`ip link show {0}` names it): detach it, or use io = \"af-packet\" for this port"
    )]
    XdpTaken(String),
    /// Another socket has the receive queue.
    #[error("queue {queue} of interface {interface} belongs to another AF_XDP socket")]
    QueueTaken {
        /// The interface.
        interface: String,
        /// The number of the queue.
        queue: u32,
    },
    /// The interface's packets do not fit the frame buffers.
    #[error(
        "interface {interface} has an MTU of {mtu}; with AF_XDP these buffers take up to {longest}: set [router] buffer_size = 4096 (up to 3822), lower the MTU, or use io = \"af-packet\" for this port"
    )]
    MtuTooLong {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The longest that fits.
        longest: u32,
    },
    /// The interface has another number of receive queues than was expected.
    #[error(
        "interface {interface} has {has} receive queues, not {wanted} (`ethtool -l {interface}` shows them)"
    )]
    QueueCount {
        /// The interface.
        interface: String,
        /// How many it has.
        has: u32,
        /// How many were expected.
        wanted: u32,
    },
    /// The interface has too few queues for each worker to have one.
    #[error(
        "interface {interface} has {has} receive and transmit queues for {workers} workers, and with AF_XDP each needs one: `ethtool -l {interface}` shows them, and `ethtool -L` makes more where the driver can; else use fewer workers, or io = \"af-packet\" for this port"
    )]
    FewQueues {
        /// The interface.
        interface: String,
        /// How many it has, of the kind that it has fewer of.
        has: u32,
        /// How many workers there are.
        workers: u32,
    },
    /// A worker that is not the first one opens its port before that one has its program at the interface.
    #[error("the first worker has no program at interface {0} yet")]
    NotAttached(String),
    /// The kernel may not lock the memory of the frame buffers.
    #[error("{what}: {bytes} bytes may not be locked; raise the limit (`ulimit -l`), or use fewer buffers")]
    LockedMemory {
        /// What was tried.
        what: String,
        /// How many bytes.
        bytes: u64,
    },
    /// A capture file is malformed.
    #[error("{file}: {what}")]
    Capture {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// Any other failure of a system call.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl PortError {
    /// Wraps the error of a system call, telling missing privilege and missing kernel support from the rest.
    pub(crate) fn from_io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Privilege { what },
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOPROTOOPT) => Self::Unsupported { what, source },
            _ => Self::Io { what, source },
        }
    }

    /// Whether privilege or a kernel feature is missing: what a command reports with exit code 3.
    #[must_use]
    pub fn is_missing_privilege_or_feature(&self) -> bool {
        matches!(self, Self::Privilege { .. } | Self::Unsupported { .. } | Self::Verifier { .. })
    }
}
