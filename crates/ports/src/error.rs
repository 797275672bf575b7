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
        "interface {interface} is not Ethernet (hardware type {hardware_type}); only Ethernet \
         ports are supported: take the interface below it, by which it sends"
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
    /// Busy polling is of no use at the interface.
    #[error(
        "the driver of {0} does not tell the kernel by which NAPI instance frames come (veth has \
         not since Linux 6.13): interrupts bring them"
    )]
    NoNapi(String),
    /// The process may not do it.
    #[error(
        "{what}: permission denied; run as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"
    )]
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
    /// What another process has passed on is not what is expected, or this cannot be passed on.
    #[error("it cannot go on in another process: {0}")]
    NotPassed(&'static str),
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
        "interface {0} has another XDP program already (`ip link show {0}` names it): detach it, \
         or use io = \"af-packet\" for this port, which gets what that \
         program lets pass"
    )]
    XdpTaken(String),
    /// Another socket has the receive queue.
    #[error(
        "queue {queue} of interface {interface} belongs to another AF_XDP socket: end the program \
         that has it (`ss --xdp --processes` names it), or use \
         io = \"af-packet\" for this port"
    )]
    QueueTaken {
        /// The interface.
        interface: String,
        /// The number of the queue.
        queue: u32,
    },
    /// The interface's packets do not fit the frame buffers.
    #[error(
        "interface {interface} has an MTU of {mtu}; with AF_XDP these buffers take up to \
         {longest}{}: {}lower the MTU, or use io = \"af-packet\" for this port",
        whole_only(refused.as_ref()),
        larger_buffers(*mtu, refused.is_some())
    )]
    MtuTooLong {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The longest that fits.
        longest: u32,
        /// Why a frame must fit one buffer: the kernel's answer. `None`: it may take several.
        refused: Option<io::Error>,
    },
    /// The interface has another number of receive queues than was expected.
    #[error(
        "interface {interface} has {has} receive queues, not {wanted}: `ethtool -L {interface} \
         combined {wanted}` changes that where the driver can, \
         `ethtool -l {interface}` shows them; else ask for {has}, or use io = \"af-packet\" for \
         this port"
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
        "interface {interface} has {has} receive and transmit queues for {workers} workers, and \
         with AF_XDP each needs one: `ethtool -l {interface}` shows them, and `ethtool -L` makes \
         more where the driver can; else use fewer workers, or io = \"af-packet\" for this port"
    )]
    FewQueues {
        /// The interface.
        interface: String,
        /// How many it has, of the kind that it has fewer of.
        has: u32,
        /// How many workers there are.
        workers: u32,
    },
    /// A worker that is not the first one opens its port before that one has its program at the
    /// interface.
    #[error("the first worker has no program at interface {0} yet")]
    NotAttached(String),
    /// The kernel has no such sockets.
    #[error(
        "interface {interface}: this kernel has no AF_XDP ({source}): boot one that has (Linux \
         5.18 or newer, CONFIG_XDP_SOCKETS), or use \
         io = \"af-packet\" for this port"
    )]
    NoXdpSockets {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The interface takes no XDP program: neither in its driver nor behind it, or not where it was
    /// asked for.
    #[error(
        "interface {interface} takes no XDP program {place} ({source}): another driver or a newer \
         kernel may (Linux 5.18 or newer), or use \
         io = \"af-packet\" for this port"
    )]
    XdpRefused {
        /// The interface.
        interface: String,
        /// Where, in words.
        place: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel may not lock the memory of the frame buffers.
    #[error(
        "interface {interface}: the frame buffers take {} that must be locked, for each receive \
         queue of each AF_XDP port anew, and this process may lock {} \
         in all: raise that limit (`ulimit -l unlimited`, in a unit of systemd \
         LimitMEMLOCK=infinity), give the process CAP_IPC_LOCK, lower `buffers` under \
         [router], or use io = \"af-packet\" for this port",
        kibibytes(*bytes),
        limit.map_or_else(|| "any amount, which the machine does not have".to_owned(), kibibytes)
    )]
    LockedMemory {
        /// The interface.
        interface: String,
        /// How many bytes one queue takes.
        bytes: u64,
        /// How many bytes the process may lock; `None`: there is no limit.
        limit: Option<u64>,
    },
    /// An interface of another's has the name that is needed.
    #[error(
        "interface {interface} cannot be attached inline: there is an interface {name} already \
         that is not ours; rename it (`ip link set {name} name ...`)"
    )]
    NameTaken {
        /// The interface that was to be attached.
        interface: String,
        /// The name.
        name: String,
    },
    /// The kernel has no TCX.
    #[error(
        "interface {interface}: this kernel links no programs to the queues of interfaces \
         ({source}): boot Linux 6.6 or newer, or use attach = \"route\""
    )]
    NoTcx {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Somebody else shapes the interface.
    #[error(
        "interface {interface} is shaped by the kernel already (qdisc {kind}): packets would wait \
         twice; remove it (`tc qdisc del dev {interface} root`), and what puts it there"
    )]
    Shaped {
        /// The interface.
        interface: String,
        /// The kind of its qdisc.
        kind: String,
    },
    /// The interface is a member of one that takes what it receives.
    #[error(
        "interface {interface} is a member of the {kind} {master}, which takes what comes in \
         before the kernel routes it: take it out (`ip link set {interface} nomaster`), or attach \
         {master}, or, for a bridge, set attach = \"bridge\" for two of its members"
    )]
    Member {
        /// The interface.
        interface: String,
        /// The kind of its master.
        kind: String,
        /// The master's name.
        master: String,
    },
    /// The interface is an end of a pair of ours.
    #[error("interface {interface} is an end of the pair that {of} is attached by: name {of}")]
    OwnPair {
        /// The interface.
        interface: String,
        /// The interface that the pair belongs to.
        of: String,
    },
    /// Two interfaces are not in the same bridge of the kernel's.
    #[error(
        "interfaces {one} and {other} are to be bridged, but {why}: while this process does not \
         run a bridge of the kernel forwards between them; put both into one (`ip link add br0 \
         type bridge`, `ip link set {one} master br0`, `ip link set {other} master br0`), or take \
         them out and set make_bridge = true under [router]"
    )]
    NotBridged {
        /// One interface.
        one: String,
        /// The other one.
        other: String,
        /// What they are in.
        why: String,
    },
    /// A capture file is malformed.
    #[error("{file}: {what}")]
    Capture {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: BadCapture,
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

/// What is wrong with a capture file.
#[derive(Debug, thiserror::Error)]
pub enum BadCapture {
    /// It ends before it says what it is.
    #[error("too short to be a capture, pcap or pcapng ({0})")]
    TooShort(io::Error),
    /// Its frames are of another kind.
    #[error("holds {0:?} frames, not Ethernet")]
    NotEthernet(pcap_file::DataLink),
    /// A packet refers to an interface that the file does not describe.
    #[error("a packet of interface {0}, which is not described")]
    UnknownInterface(usize),
    /// Its structure is broken, or it could not be read to the end.
    #[error(transparent)]
    Malformed(#[from] pcap_file::PcapError),
}

/// Why frames are not in several buffers, if they must not be.
fn whole_only(refused: Option<&io::Error>) -> String {
    let why = |error| {
        format!(" (frames in several take Linux 6.6 or newer, and a driver that does it: {error})")
    };
    refused.map(why).unwrap_or_default()
}

/// The remedy that buffers of 4096 bytes are, for an MTU that is beyond those which there are: if
/// these are shorter, and it is not beyond those, too.
const fn larger_buffers(mtu: u32, one_each: bool) -> &'static str {
    match (mtu, one_each) {
        (..=3822, true) => "set buffer_size = \"4096B\" under [router] (up to 3822), ",
        (..=65_535, false) => "set buffer_size = \"4096B\" under [router] (up to 65535), ",
        _ => "",
    }
}

fn kibibytes(bytes: u64) -> String {
    format!("{} KiB", bytes / 1024)
}

impl PortError {
    /// Wraps the error of a system call, telling missing privilege and missing kernel support from
    /// the rest.
    pub(crate) fn from_io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Privilege { what },
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOPROTOOPT) => {
                Self::Unsupported { what, source }
            }
            _ => Self::Io { what, source },
        }
    }

    /// Whether the interface itself cannot be a port, by whatever means: it is not there, or not
    /// Ethernet.
    #[must_use]
    pub const fn is_of_the_interface(&self) -> bool {
        matches!(self, Self::NoInterface(_) | Self::NotEthernet { .. } | Self::BadName(_))
    }

    /// Whether privilege or a kernel feature is missing: what a command reports with exit code 3.
    #[must_use]
    pub fn is_missing_privilege_or_feature(&self) -> bool {
        matches!(
            self,
            Self::Privilege { .. }
                | Self::Unsupported { .. }
                | Self::Verifier { .. }
                | Self::NoXdpSockets { .. }
                | Self::NoTcx { .. }
                | Self::XdpRefused { .. }
                | Self::LockedMemory { .. }
        )
    }
}
