//! What a `router.toml` says, with types: every default filled in, every name resolved.

use evenkeel_core::admit::{AdmissionConfig, FlowsConfig, OnLink};
use evenkeel_core::class_map::{ClassMap, Match, Rule};
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::settings::{Kind, SettingError};
use evenkeel_core::{BitRate, Bytes, Class, Nanos, settings, words};

use crate::attach::Attach;
use crate::cluster::{BalancerSection, ClusterSection};
use crate::control::LinkControl;
use crate::membership::MembershipSection;
use crate::service::ServiceConfig;
use crate::subscribers::SubscriberTree;
use crate::tables::NAME;
use evenkeel_core::schedule::DisciplineConfig;

/// A whole `router.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterConfig {
    /// What concerns the router as a whole.
    pub router: RouterSection,
    /// What the admissions of all links share.
    pub flows: FlowsConfig,
    /// The ports, in the order of the file; at least one, names unique.
    pub ports: Vec<PortConfig>,
    /// The services, in the order of the file, names unique.
    pub services: Vec<ServiceConfig>,
    /// The classes, in the order of the file: the index is the core's `Class`. At least one; the
    /// first is the default.
    pub classes: Vec<ClassConfig>,
    /// One outgoing link for every port, in the order of the ports. A port without a `[[link]]` has
    /// a FIFO without a rate.
    pub links: Vec<LinkConfig>,
    /// `[fairdrop]`; `None`: the file has none.
    pub fairdrop: Option<FairDropConfig>,
    /// `[cluster]`: this router is a forwarder of a cluster.
    pub cluster: Option<ClusterSection>,
    /// `[balancer]`: this router is a balancer.
    pub balancer: Option<BalancerSection>,
    /// `[membership]`: parts of these come from etcd.
    pub membership: Option<MembershipSection>,
    /// The trees of subscribers, in the order of the file.
    pub trees: Vec<SubscriberTree>,
}

/// Most frame buffers of a worker.
pub(crate) const MOST_BUFFERS: u32 = 1_048_576;

settings! {
    /// The router as a whole. `control`, `monitor`, `heartbeat` and `seed` cannot change while it
    /// runs.
    pub struct RouterSection: "[router]" {
        /// Its name in counters, logs and the control protocol.
        reload name: String = "router".to_owned(), written NAME;
        /// How the worker waits for packets.
        reload mode: Mode = Mode::Event;
        /// Whether the workers precede ordinary threads of the machine (SCHED_RR), so that they
        /// send in time when processors are wanted elsewhere. Needs root, CAP_SYS_NICE or
        /// `LimitRTPRIO`; not with `mode = "busy"`, which the kernel would stop for 50 ms of each
        /// second. Forwarders and balancers of a cluster do so by their own `realtime`.
        fixed realtime: bool = false;
        /// In mode `adaptive`, how long the worker waits awake for the next frame before it sleeps.
        reload spin: Nanos = Nanos::from_micros(100), in 1_000..=10_000_000;
        /// With AF_XDP, workers have the driver bring frames, and its interrupts wait until none
        /// has asked for so long (preferred busy polling; Linux 5.11). What the kernel does for a
        /// frame is then done on the worker's CPU, in its turn, and never in place of its work.
        /// Not with `mode = "event"`: who sleeps after each frame would wait for interrupts.
        /// `evenkeel ctl show` says which ports are polled: since Linux 6.13 not those whose driver
        /// does not tell its NAPI instances (veth). Not with `[fairdrop]`, which must see what
        /// waits: it would wait in the driver.
        reload busy_poll: Option<Nanos> = None, in 10_000..=1_000_000,
            absent "interrupts bring frames";
        /// How frames are exchanged with the kernel, by the ports that do not say it themselves.
        /// `auto` takes packet sockets, which carry super-frames, where there is no hardware behind
        /// the interface (veth, tap, bridge, VLAN), else AF_XDP, else packet sockets; it says which
        /// and why. AF_XDP needs a `buffer_size` of 2048 or 4096, of which 256 bytes go to the
        /// kernel; from Linux 6.6 on longer frames come and go in several buffers. The simulator
        /// has no kernel and takes no notice.
        reload io: Io = Io::Auto;
        /// The Unix socket that `evenkeel ctl` talks to.
        fixed control: String = "/run/evenkeel/control.sock".to_owned(), written Kind::Path;
        /// A second Unix socket, where the router can be asked and not changed: for `evenkeel
        /// serve`, `evenkeel top` and who else only looks.
        fixed monitor: Option<String> = None, written Kind::Path, absent "there is none";
        /// The group, by name or number, whose members may connect to `monitor`, if there is one.
        fixed monitor_group: Option<String> = None, written NAME,
            absent "the group of the router's process";
        /// Frame buffers for all ports together. When none is free, frames are dropped with the
        /// reason `no_buffer`: have more than all queue limits together. If nothing is stated and
        /// links have trees of subscribers, 4,096 more than those may hold, at least 8,192.
        reload buffers: u32 = 8_192, in 256..=MOST_BUFFERS, counting "buffers";
        /// Length of one buffer, and 128 more than the longest frame that is received into one;
        /// longer ones take several, and more time. Memory taken: `buffers` times this.
        reload buffer_size: Bytes = Bytes(2_048), in 1_664..=65_536;
        /// Flows whose way is remembered (class, route, neighbour), so that only their first
        /// packets are looked up everywhere; the others are found by a few bytes of their headers.
        /// Each takes 40 bytes of each worker's memory, of a number rounded up to a power of two;
        /// more flows than these cost time, nothing else. 0: none is.
        reload flow_cache: u32 = 262_144, in 0..=16_777_216, counting "flows";
        /// What happens to a packet whose route leads back to the port it came from.
        reload hairpin: Hairpin = Hairpin::Forward;
        /// ICMP errors sent at most, per port and second. 0: none is ever sent.
        reload icmp_per_second: u32 = 100, in 0..=1_000_000, counting "messages";
        /// Packets that wait at most for one neighbour whose address is being asked for.
        reload neighbour_wait: u32 = 16, in 1..=1_024, counting "packets";
        /// When the worker comes back after a pause (another process had its CPU), links with a
        /// rate send at once what they could have sent in this time at most; the capacity of a
        /// longer pause is lost.
        reload max_catch_up: Nanos = Nanos::from_millis(5), in 100_000..=1_000_000_000;
        /// A super-frame (what a sender leaves to the device to cut) that takes a link longer than
        /// this, at its rate or its shaper's, is cut before it is queued, so that a short packet
        /// never waits behind 64 KiB; others stay whole, and cost as much as one packet. 0: all
        /// are cut. For ports with `attach = "inline"` or `"bridge"`; others have them cut by the
        /// kernel.
        reload split_above: Nanos = Nanos::from_millis(1), in 0..=100_000_000;
        /// What the kernel does with packets that it forwards, and does not do with those that go
        /// through ports with `attach = "route"`: where there is, `evenkeel run` does not start
        /// unless it stands here.
        reload bypass: Vec<Bypass> = Vec::new(), absent "nothing may be bypassed";
        /// Makes a bridge of the kernel's, without STP and snooping, for two ports with
        /// `attach = "bridge"` whose interfaces are in none. It stays when the router ends.
        reload make_bridge: bool = false;
        /// When no worker has given a sign of life for so long (the process was stopped, or hangs),
        /// the kernel forwards until one is back.
        fixed heartbeat: Nanos = Nanos::from_millis(200), in 20_000_000..=2_000_000_000_u64;
        /// The CPU that the only worker runs on, as `/proc/cpuinfo` numbers it.
        reload cpu: Option<u16> = None, in 0..=1_023, absent "whichever the kernel chooses";
        /// Threads that forward. Frames are spread over them by their flows; each has `buffers` of
        /// its own. They share links; but one with a tree of subscribers, `wfq-altq` by a hash,
        /// `lct` with `module2 = false`, `fair` as `source`, `destination` or `host-flow`, a
        /// control, a shaper or an admission's `flushing` of the most active is the first one's, to
        /// which the others hand their packets. The simulator has one worker and takes no notice.
        reload workers: u16 = 1, in 1..=64, counting "workers";
        /// The CPUs that the workers run on, one for each worker, in their order. Not together with
        /// `cpu`.
        reload cpus: Vec<u16> = Vec::new(), written CPUS, absent "whichever the kernel chooses";
        /// Whether cycles are measured, by stage and by class, also without `[fairdrop]`, which
        /// always does. It costs some 30 cycles per packet.
        reload cycles: bool = false;
        /// Seed of the flow hash, which chooses among equal routes, and of the tables of flows. Who
        /// knows it can make flows that fall together.
        fixed seed: Option<u64> = None,
            absent "another one at each start, and always the same in virtual time";
    }
}

/// A list of CPUs.
const CPUS: Kind = Kind::List(&Kind::Integer { min: 0, max: 1_023, unit: "" });

words! {
    /// How the worker waits for packets.
    pub enum Mode {
        /// Sleep until a port or a timer is ready.
        #[default]
        Event = "event",
        /// Ask the ports all the time: a whole CPU, no wake-up delay.
        Busy = "busy",
        /// As `busy` while frames come more often than every `spin` on average, else as `event`:
        /// near no CPU when idle, no wake-up delay under load.
        Adaptive = "adaptive",
    }
}

words! {
    /// What the kernel does with packets that it forwards.
    pub enum Bypass {
        /// Chains of nftables and iptables (also legacy) at prerouting, forward and postrouting:
        /// firewall and translation.
        #[default]
        Netfilter = "netfilter",
        /// Policies of IPsec.
        Xfrm = "xfrm",
        /// The kernel is told not to forward (`net.ipv4.ip_forward = 0`).
        IpForward = "ip_forward",
        /// Sources are checked as `rp_filter` says (1 and 2); named here, they are not.
        RpFilter = "rp_filter",
    }
}

words! {
    /// How frames are exchanged with the kernel.
    pub enum Io {
        /// Packet sockets at virtual interfaces, AF_XDP at NICs where it can be had.
        #[default]
        Auto = "auto",
        /// Packet sockets: with every driver and every kernel, one copy in and one out; with
        /// super-frames, so for TCP between Linux hosts faster than AF_XDP.
        AfPacket = "af-packet",
        /// AF_XDP (kernel 5.18 and newer), one copy in or none; the start fails with exit code 3
        /// where it cannot be had.
        AfXdp = "af-xdp",
    }
}

words! {
    /// What happens to a packet whose route leads back to the port it came from.
    pub enum Hairpin {
        /// Forward it, as RFC 1812 wants.
        #[default]
        Forward = "forward",
        /// Drop it with the reason `same_port`.
        Drop = "drop",
    }
}

settings! {
    /// A network interface that packets come from and go to.
    pub struct PortConfig: "[[port]]" {
        /// Its name in this file, in counters and in commands. Unique.
        reload name: String = String::new(), written NAME, is required;
        /// The network interface, as `ip link` names it. Unique.
        reload interface: String = String::new(), written Kind::Interface, is required;
        /// How its frames are exchanged with the kernel.
        reload io: Option<Io> = None, absent "as `[router]` says";
        /// What is taken over from the kernel.
        fixed attachment as attach: Attachment = Attachment::Route;
        /// The router starts without the interface, and uses it as soon as it is there: for
        /// tunnels, USB devices, interfaces that come late at boot. Such a port is routed
        /// (`attach = "route"`), by packet sockets where the interface was missing at the start.
        reload optional: bool = false;
        /// Also what the machine itself sends by the interface of a routed port, and what the
        /// kernel forwards there from interfaces that are no ports, goes through the port's link;
        /// without, it passes by the link, and by its rate. ARP and neighbour discovery never wait.
        /// Kernel 6.6 and newer.
        fixed own_traffic: bool = false;
    }
    plain {
        /// It is the other half of an inline port, which no file names: its link is the interface's
        /// ingress. Of a routed port: what the kernel sends by it.
        is_ingress: bool = false;
    }
}

words! {
    /// What is taken over from the kernel at an interface.
    pub enum Attachment {
        /// Packets are forwarded here, by the kernel's tables, from port to port.
        #[default]
        Route = "route",
        /// Only the queues, in both directions; the kernel routes, filters and translates as
        /// before. Such a port has two links: `[[link]]` with `port = "wan"` is what leaves by its
        /// interface, with `port = "wan-ingress"` what arrives there.
        Inline = "inline",
        /// Only the queues between this port and the other one with this word: every frame that
        /// comes in by one leaves by the other, unchanged. While the router does not run, a bridge
        /// of the kernel's that both interfaces are in passes them on.
        Bridge = "bridge",
    }
}

settings! {
    /// A class of traffic. Classes are asked in the order of the file; the first with a rule that
    /// fits takes the packet. What none takes goes to the first class.
    pub struct ClassConfig: "[[class]]" {
        /// Its name in this file, in counters and in commands. Unique.
        reload name: String = String::new(), written NAME, is required;
        /// Rules. One that fits is enough.
        reload rules as match: Vec<Match> = Vec::new(), in 0..=ClassMap::MAX_RULES,
            absent "no rule: only the first class gets packets";
        /// Nodes and subscribers of the `[[tree]]`s: packets to and from who is there, by their
        /// prefixes, that no rule of any class takes. The nearest one that is named decides, and
        /// who receives before who sends.
        reload nodes: Vec<String> = Vec::new(), absent "none";
        /// The `[[service]]` that its packets are sent through before they enter their link.
        reload service_name as service: Option<String> = None, written NAME, absent "none";
    }
    plain {
        /// The index of that service.
        service: Option<u16> = None;
    }
}

/// A `[[link]]`: the outgoing side of a port.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// The port's name.
    pub port: String,
    /// Other ports whose packets go through this link, too, and leave by them.
    pub also: Vec<String>,
    /// Wire, transmit ring and shaper.
    pub core: evenkeel_core::link::LinkConfig,
    /// The discipline and its knobs.
    pub discipline: DisciplineConfig,
    /// What turns the knobs while it runs; `None`: only commands do.
    pub control: Option<LinkControl>,
    /// Decides which flows may enter; `None`: all of them.
    pub admission: Option<AdmissionConfig>,
}

impl LinkConfig {
    /// What the link is to its admission, with the rate of the second one that this names.
    #[must_use]
    pub fn to_admission(&self, second_rate: Option<BitRate>) -> OnLink {
        let by_subscriber = matches!(self.discipline, DisciplineConfig::Tree(_));
        OnLink { rate: self.core.rate, second_rate, by_subscriber }
    }
}

impl RouterConfig {
    /// Whether workers precede ordinary threads, if the file says anything of it.
    #[must_use]
    pub fn realtime(&self) -> Option<bool> {
        let cluster = self.cluster.as_ref().map(|section| section.realtime);
        let role = cluster.or(self.balancer.as_ref().map(|section| section.realtime));
        if self.router.realtime { Some(true) } else { role }
    }

    /// How a port's frames are exchanged with the kernel.
    #[must_use]
    pub fn io_of(&self, port: &PortConfig) -> Io {
        if port.attach() != Attach::Route {
            return Io::AfPacket;
        }
        let io = port.io.unwrap_or(self.router.io);
        // Packet sockets know the VLAN of an exchange frame whatever the interface does.
        if io == Io::Auto && self.exchange_at(port).is_some() {
            return Io::AfPacket;
        }
        io
    }

    /// VLAN and Ethertype of the cluster's exchange frames, if they come by this port.
    #[must_use]
    pub fn exchange_at(&self, port: &PortConfig) -> Option<(u16, u16)> {
        let forwarder = self.cluster.as_ref().map(|section| {
            let framing = &section.config.framing;
            (section.port, framing.vlan, framing.ethertype)
        });
        let balancer = || {
            let section = self.balancer.as_ref()?;
            Some((section.port, section.vlan, evenkeel_cluster::Framing::default().ethertype))
        };
        let (at, vlan, ethertype) = forwarder.or_else(balancer)?;
        let exchange = self.ports.get(usize::from(at))?;
        (exchange.name == port.name).then_some((vlan, ethertype))
    }

    /// The names of the classes, in order of their index.
    #[must_use]
    pub fn class_names(&self) -> Vec<&str> {
        self.classes.iter().map(|class| class.name.as_str()).collect()
    }

    /// The link of the port with this name.
    #[must_use]
    pub fn link(&self, port: &str) -> Option<&LinkConfig> {
        self.links.iter().find(|link| link.port == port)
    }

    /// The link of the port with this name, to change it.
    pub fn link_mut(&mut self, port: &str) -> Option<&mut LinkConfig> {
        self.links.iter_mut().find(|link| link.port == port)
    }

    /// The admission of the link of the port with this name, complete for it; `None` if it has
    /// none.
    ///
    /// # Errors
    /// What contradicts what; not for what came out of this crate's parser.
    pub fn admission(&self, port: &str) -> Result<Option<AdmissionConfig>, SettingError> {
        let Some((link, admission)) =
            self.link(port).and_then(|link| Some((link, link.admission.as_ref()?)))
        else {
            return Ok(None);
        };
        let second =
            admission.second_link.port.as_ref().and_then(|port| self.link(&port.0)?.core.rate);
        admission.on_link(link.to_admission(second), &self.flows).map(Some)
    }

    /// The rules of all classes in the order of the file: the first that fits decides; none:
    /// class 0.
    #[must_use]
    pub fn class_map(&self) -> ClassMap {
        let of = |(class, config): (u16, &ClassConfig)| {
            let rules = config.rules.iter().cloned();
            rules.map(move |matching| Rule { matching, class: Class(class) }).collect::<Vec<_>>()
        };
        let rules: Vec<Rule> = (0..).zip(&self.classes).flat_map(of).collect();
        // The parser has checked what `ClassMap::new` checks.
        ClassMap::new(&rules).unwrap_or_default()
    }

    /// How many classes there are.
    #[must_use]
    pub fn class_count(&self) -> u16 {
        u16::try_from(self.classes.len()).expect("the parser admits far fewer classes than 65536")
    }
}
