//! What the machine and its interfaces are.

use evenkeel_ports::bypass;
use evenkeel_ports::survey::{self, Survey};

use crate::files::Files;

/// Capabilities that a router needs, by number: what it says when they lack.
const NEEDED: [(u32, &str); 5] = [
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (39, "CAP_BPF"),
    (38, "CAP_PERFMON"),
    (14, "CAP_IPC_LOCK"),
];
/// Where a router keeps what must survive.
const FOLDERS: [&str; 3] = ["/run/evenkeel", "/var/lib/evenkeel", "/etc/evenkeel"];

/// What was read. `None` everywhere: the machine does not say.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The machine.
    pub machine: Machine,
    /// The interfaces that were asked about.
    pub nics: Vec<Nic>,
    /// Interfaces that were asked about and are not there, and which there are.
    pub missing: Vec<(String, Vec<String>)>,
}

/// The machine as a whole.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Version of Linux: major and minor number.
    pub kernel: Option<(u32, u32)>,
    /// The hypervisor or its product, where this is a virtual machine.
    pub hypervisor: Option<String>,
    /// What the kernel reads the time from.
    pub clock: Option<String>,
    /// How many processors are online.
    pub processors: usize,
    /// What sets their speed.
    pub governor: Option<String>,
    /// Capabilities that this process lacks.
    pub lacks: Vec<&'static str>,
    /// Bytes that this process may lock in memory; `None`: any number.
    pub locked: Option<u64>,
    /// Bytes of memory that are left.
    pub available: Option<u64>,
    /// Chains of the firewall that forwarded packets pass; or why they could not be asked for.
    pub chains: Option<Result<Vec<String>, String>>,
    /// Policies of IPsec that forwarded packets are compared with.
    pub ipsec: Option<usize>,
    /// The kernel forwards IPv4.
    pub forwards: bool,
    /// Neighbours that are known, and how many may be.
    pub neighbours: Option<(usize, usize)>,
    /// Connections that are tracked, and how many may be.
    pub connections: Option<(u64, u64)>,
    /// Folders of a router that are on a read-only file system.
    pub read_only: Vec<&'static str>,
    /// A control socket is where a router has it.
    pub router: bool,
}

/// An interrupt of an interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The processors that may take it: `0`, `0-3`.
    pub to: Option<String>,
}

/// An interface.
#[derive(Clone, Debug, Default)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// What its driver and the kernel say of it; or why they do not.
    pub survey: Survey,
    /// The longest IP packet, bytes.
    pub mtu: Option<u32>,
    /// `up`, `down`, `unknown`.
    pub state: Option<String>,
    /// Bits per second of the wire.
    pub speed: Option<u64>,
    /// `full`, `half`.
    pub duplex: Option<String>,
    /// By transmit queue, how many bytes may be below the kernel (BQL); empty: the driver has no
    /// such limit.
    pub bytes_below: Vec<u64>,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
    /// Receive queues whose packets are spread to other processors (RPS).
    pub spread: usize,
}

impl Facts {
    pub(crate) fn look(files: &Files, interfaces: &[String]) -> Self {
        let mut facts = Self { machine: Machine::look(files), ..Self::default() };
        for name in interfaces {
            match survey::survey(name) {
                Ok(survey) => facts.nics.push(Nic { survey, ..Nic::look(files, name) }),
                Err(_) => facts.missing.push((name.clone(), files.names("/sys/class/net"))),
            }
        }
        let asked = bypass::chains().map_err(|error| error.to_string());
        facts.machine.chains = Some(asked);
        facts.machine.ipsec = bypass::ipsec_policies().ok();
        facts.machine.forwards = bypass::kernel_forwards();
        facts.machine.locked = survey::locked_memory();
        facts
    }
}

impl Machine {
    fn look(files: &Files) -> Self {
        let of_memory = |key: &str| field(&files.text("/proc/meminfo")?, key)?.parse().ok();
        let neighbours = files.text("/proc/net/arp").map_or(0, |text| text.lines().count());
        let most = files.number("/proc/sys/net/ipv4/neigh/default/gc_thresh3");
        let tracked = "/proc/sys/net/netfilter/nf_conntrack_";
        let connections =
            files.number(&format!("{tracked}count")).zip(files.number(&format!("{tracked}max")));
        Self {
            kernel: files.text("/proc/sys/kernel/osrelease").and_then(|text| version(&text)),
            hypervisor: hypervisor(files),
            clock: files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            processors: files
                .text("/sys/devices/system/cpu/online")
                .map_or(1, |list| processors_of(&list).len()),
            governor: files.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            lacks: lacks(files),
            available: of_memory("MemAvailable:").map(|kibibytes: u64| kibibytes << 10),
            // The first line of the table is its head.
            neighbours: most.map(|most| (neighbours.saturating_sub(1), most)),
            connections,
            read_only: read_only(files),
            router: !files.names("/run/evenkeel").is_empty()
                && files.names("/run/evenkeel").iter().any(|name| name == "control.sock"),
            ..Self::default()
        }
    }
}

impl Nic {
    fn look(files: &Files, name: &str) -> Self {
        let at = |what: &str| format!("/sys/class/net/{name}/{what}");
        let queues = files.names(&at("queues"));
        let sent = queues.iter().filter(|queue| queue.starts_with("tx-"));
        // Where the driver does not count, the limit's ceiling is there and its limit stays 0.
        let bytes_below = sent
            .filter_map(|queue| {
                files.number(&at(&format!("queues/{queue}/byte_queue_limits/limit")))
            })
            .filter(|limit| *limit > 0)
            .collect();
        let spread = queues.iter().filter(|queue| queue.starts_with("rx-")).filter(|queue| {
            let mask = files.text(&at(&format!("queues/{queue}/rps_cpus"))).unwrap_or_default();
            mask.bytes().any(|digit| digit.is_ascii_hexdigit() && digit != b'0')
        });
        let speed = files.number::<i64>(&at("speed")).filter(|megabits| *megabits > 0);
        Self {
            name: name.to_owned(),
            mtu: files.number(&at("mtu")),
            state: files.text(&at("operstate")),
            speed: speed.map(|megabits| megabits.unsigned_abs() * 1_000_000),
            duplex: files.text(&at("duplex")).filter(|text| text != "unknown"),
            bytes_below,
            interrupts: interrupts(files, name),
            spread: spread.count(),
            survey: Survey::default(),
        }
    }
}

pub(crate) fn usual_interfaces(files: &Files) -> Vec<String> {
    let up = |name: &String| {
        let state = files.text(&format!("/sys/class/net/{name}/operstate"));
        name != "lo" && state.is_some_and(|state| state == "up")
    };
    files.names("/sys/class/net").into_iter().filter(up).collect()
}

/// The first word behind a key of a file with one in each line.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether the processor says that something is below the machine, and what calls itself so.
fn hypervisor(files: &Files) -> Option<String> {
    let processor = files.text("/proc/cpuinfo")?;
    let flags = processor.lines().find(|line| line.starts_with("flags"))?;
    flags.split_whitespace().any(|flag| flag == "hypervisor").then(|| {
        let of = |name| files.text(&format!("/sys/class/dmi/id/{name}"));
        let words: Vec<_> = [of("sys_vendor"), of("product_name")].into_iter().flatten().collect();
        if words.is_empty() { "unnamed".to_owned() } else { words.join(" ") }
    })
}

fn lacks(files: &Files) -> Vec<&'static str> {
    let status = files.text("/proc/self/status").unwrap_or_default();
    let held = field(&status, "CapEff:").and_then(|set| u64::from_str_radix(set, 16).ok());
    let held = held.unwrap_or(0);
    NEEDED.iter().filter(|(bit, _)| held >> bit & 1 == 0).map(|(_, name)| *name).collect()
}

/// The folders of a router whose file system is mounted read-only.
fn read_only(files: &Files) -> Vec<&'static str> {
    let mounts = files.text("/proc/self/mounts").unwrap_or_default();
    let mounts: Vec<(&str, bool)> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (at, options) = (words.next()?, words.nth(1)?);
            Some((at, options.split(',').any(|option| option == "ro")))
        })
        .collect();
    let within = |folder: &str, at: &str| {
        at == "/"
            || folder == at
            || folder.strip_prefix(at).is_some_and(|rest| rest.starts_with('/'))
    };
    let is = |folder: &&&str| {
        let of = mounts.iter().filter(|(at, _)| within(folder, at));
        // The last of equally long ones is on top.
        of.max_by_key(|(at, _)| at.len()).is_some_and(|(_, read_only)| *read_only)
    };
    FOLDERS.iter().filter(is).copied().collect()
}

/// The numbers in a list such as `0-3,8`.
pub(crate) fn processors_of(list: &str) -> Vec<usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// The interrupts that a device of the interface has, or that are named after it.
fn interrupts(files: &Files, name: &str) -> Vec<Interrupt> {
    let device = format!("/sys/class/net/{name}/device");
    let mut numbers: Vec<u32> = Vec::new();
    // A virtio device has those of the PCI device above it.
    for folder in [format!("{device}/msi_irqs"), format!("{device}/../msi_irqs")] {
        numbers.extend(files.names(&folder).iter().filter_map(|name| name.parse::<u32>().ok()));
    }
    let table = files.text("/proc/interrupts").unwrap_or_default();
    let named = |line: &&str| {
        line.split_whitespace().any(|word| word == name || word.starts_with(&format!("{name}-")))
    };
    let number = |line: &str| line.trim_start().split(':').next()?.parse::<u32>().ok();
    numbers.extend(table.lines().filter(named).filter_map(number));
    numbers.sort_unstable();
    numbers.dedup();
    // Those that are in use.
    let used = |wanted: &u32| table.lines().any(|line| number(line) == Some(*wanted));
    let of = |number| Interrupt {
        number,
        to: files.text(&format!("/proc/irq/{number}/smp_affinity_list")),
    };
    numbers.into_iter().filter(used).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tree(&[
            ("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu hypervisor tsc\n"),
            ("/sys/class/dmi/id/sys_vendor", "QEMU\n"),
            ("/sys/devices/system/cpu/online", "0-3,6\n"),
            ("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   2048 kB\n"),
            ("/proc/net/arp", "IP address\n10.0.0.1 x\n10.0.0.2 x\n"),
            ("/proc/sys/net/ipv4/neigh/default/gc_thresh3", "1024\n"),
            ("/proc/sys/net/netfilter/nf_conntrack_count", "12\n"),
            ("/proc/sys/net/netfilter/nf_conntrack_max", "65536\n"),
            ("/proc/self/status", "Name: x\nCapEff:\t0000000000003000\n"),
            ("/proc/self/mounts", "/dev/a / ext4 ro,noatime 0 0\ntmpfs /run tmpfs rw 0 0\n"),
        ]);
        let machine = Machine::look(&Files::below(root.path()));
        assert_eq!(machine.kernel, Some((6, 1)));
        assert_eq!(machine.hypervisor.as_deref(), Some("QEMU"));
        assert_eq!(machine.processors, 5);
        assert_eq!(machine.available, Some(2 << 20));
        assert_eq!(machine.neighbours, Some((2, 1024)));
        assert_eq!(machine.connections, Some((12, 65_536)));
        assert_eq!(machine.lacks, ["CAP_BPF", "CAP_PERFMON", "CAP_IPC_LOCK"]);
        assert_eq!(machine.read_only, ["/var/lib/evenkeel", "/etc/evenkeel"]);
    }

    #[test]
    fn an_interface_is_read_from_its_files_and_a_machine_without_any_is_no_error() {
        let root = tree(&[
            ("/sys/class/net/eth0/operstate", "up\n"),
            ("/sys/class/net/eth0/speed", "1000\n"),
            ("/sys/class/net/eth0/mtu", "9000\n"),
            ("/sys/class/net/eth0/duplex", "full\n"),
            ("/sys/class/net/eth0/queues/tx-0/byte_queue_limits/limit", "30280\n"),
            ("/sys/class/net/eth0/queues/tx-1/byte_queue_limits/limit", "0\n"),
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00,00000002\n"),
            ("/proc/interrupts", "  CPU0\n 31: 7 PCI-MSI 1-edge eth0-rx-0\n 32: 7 x eth01\n"),
            ("/proc/irq/31/smp_affinity_list", "0\n"),
            ("/sys/class/net/wlan0/operstate", "down\n"),
            ("/sys/class/net/lo/operstate", "up\n"),
        ]);
        let files = Files::below(root.path());
        let nic = Nic::look(&files, "eth0");
        assert_eq!(nic.speed, Some(1_000_000_000));
        assert_eq!(nic.bytes_below, [30_280]);
        assert_eq!((nic.spread, nic.mtu), (1, Some(9_000)));
        assert_eq!(nic.interrupts, [Interrupt { number: 31, to: Some("0".to_owned()) }]);
        assert_eq!(usual_interfaces(&files), ["eth0"]);
        let nothing = Machine::look(&Files::below("/no/such/folder"));
        assert_eq!((nothing.kernel, nothing.processors), (None, 1));
    }
}
