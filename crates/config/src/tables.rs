//! The keys of `router.toml`: name, type, range, default, meaning. Everything else follows from
//! these tables.

use evenkeel_core::link::LinkConfig as Link;
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::{Bytes, Nanos};

use crate::cluster::{BalancerSection, ClusterSection};
use crate::control::LinkControl;
use crate::membership::MembershipSection;
use evenkeel_core::admit::{AdmissionConfig, FlowsConfig};
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::settings::Settings;
use evenkeel_core::settings::schema::{Key, Kind, Section};

pub mod service;

pub use service::ACL_RULE;

/// Most characters of a name.
pub const NAME_LENGTH: usize = evenkeel_core::settings::Name::LENGTH;
/// Most ports of a router.
pub const MAX_PORTS: usize = 64;

/// A name of up to [`NAME_LENGTH`] characters.
pub const NAME: Kind = Kind::Name(NAME_LENGTH);
/// A rate that a wire or shaper can have.
pub const RATE: Kind = Kind::Rate { min: Link::MIN_RATE, max: Link::MAX_RATE };

/// What a file holds.
pub static FILE: Section = Section {
    heading: "router.toml",
    doc: "One `[[port]]` is enough: it forwards first in, first out, as fast as the port takes \
          frames. \
          Addresses and routes are the kernel's (`ip address`, `ip route`, a routing daemon).",
    own: &[
        Key::defaulted(
            "router",
            Kind::Table(&ROUTER),
            "{}",
            "What concerns the router as a whole.",
        ),
        Key::required(
            "port",
            Kind::Tables { section: &PORT, min: 1, max: MAX_PORTS },
            "The network interfaces to forward between.",
        ),
        SERVICES,
        FLOWS,
        CLASSES,
        LINKS,
        FAIRDROP,
        Key::optional(
            "cluster",
            Kind::Table(ClusterSection::SECTION),
            "none",
            "This router is a forwarder of a cluster.",
        ),
        Key::optional(
            "balancer",
            Kind::Table(BalancerSection::SECTION),
            "none",
            "This router is a balancer.",
        ),
        Key::optional(
            "membership",
            Kind::Table(MembershipSection::SECTION),
            "this file alone",
            "Members and weights come from etcd.",
        ),
    ],
    parts: &[],
};

/// What a router's configuration holds where its ports come from elsewhere (the wires of a
/// scenario).
pub static WITHOUT_PORTS: Section = Section {
    heading: "[router.config]",
    doc: "As in `router.toml`, but without `[[port]]`.",
    own: &[
        Key::defaulted(
            "router",
            Kind::Table(&ROUTER),
            "{}",
            "What concerns the router as a whole.",
        ),
        SERVICES,
        FLOWS,
        CLASSES,
        LINKS,
        FAIRDROP,
    ],
    parts: &[],
};

const FLOWS: Key = Key::defaulted(
    "flows",
    Kind::Table(FlowsConfig::SECTION),
    "{}",
    "What the admissions of all links share.",
);

const SERVICES: Key = Key::optional(
    "service",
    Kind::Tables { section: &service::SERVICE, min: 0, max: service::MAX },
    "none",
    "Costly work that classes can be sent through.",
);

const FAIRDROP: Key = Key::optional(
    "fairdrop",
    Kind::Table(FairDropConfig::SECTION),
    "none",
    "Fair shares of cycles and bits by early dropping.",
);

const CLASSES: Key = Key::optional(
    "class",
    Kind::Tables { section: &CLASS, min: 0, max: Link::MAX_CLASSES as usize },
    "one class `default`",
    "The classes of traffic. The first is the default class: it gets what no rule takes.",
);

const LINKS: Key = Key::optional(
    "link",
    Kind::Tables { section: &LINK, min: 0, max: MAX_PORTS },
    "each port has a FIFO without a rate",
    "The outgoing sides of ports: rate, ring, discipline.",
);

/// Ways to exchange frames with the kernel.
const IO: Kind = Kind::Choice(&[
    ("af-packet", "packet sockets: with every driver and every kernel, one copy in and one out"),
    (
        "af-xdp",
        "AF_XDP (kernel 5.18 and newer), one copy in or none; the start fails with exit code 3 \
         where it cannot be had",
    ),
    ("auto", "AF_XDP, and packet sockets where it cannot be had"),
]);

/// A list of CPUs.
const CPUS: Kind = Kind::List(&Kind::Integer { min: 0, max: 1023, unit: "" });

/// `[router]`.
pub static ROUTER: Section = Section {
    heading: "[router]",
    doc: "The router as a whole. `control`, `heartbeat` and `seed` cannot change while it runs.",
    own: &[
        Key::defaulted(
            "name",
            NAME,
            "\"router\"",
            "Its name in counters, logs and the control protocol.",
        ),
        Key::defaulted(
            "mode",
            Kind::Choice(&[
                ("event", "sleep until a port or a timer is ready"),
                ("busy", "ask the ports all the time: a whole CPU, no wake-up delay"),
                (
                    "adaptive",
                    "as `busy` while frames come more often than every `spin` on average, else as \
                     `event`: near no CPU when idle, no \
                              wake-up delay under load",
                ),
            ]),
            "\"event\"",
            "How the worker waits for packets.",
        ),
        Key::defaulted(
            "spin",
            Kind::Time { min: Nanos(1_000), max: Nanos::from_millis(10) },
            "\"100us\"",
            "In mode `adaptive`, how long the worker waits awake for the next frame before it \
             sleeps.",
        ),
        Key::defaulted(
            "io",
            IO,
            "\"af-packet\"",
            "How frames are exchanged with the kernel, by the ports that do not say it themselves. \
             AF_XDP needs a `buffer_size` of 2048 or \
                  4096, of which 256 bytes go to the kernel. The simulator has no kernel and takes \
                  no notice.",
        ),
        Key::defaulted(
            "control",
            Kind::Path,
            "\"/run/evenkeel/control.sock\"",
            "The Unix socket that `evenkeel ctl` talks to.",
        ),
        Key::defaulted(
            "buffers",
            Kind::Integer { min: 256, max: 1_048_576, unit: "buffers" },
            "8192",
            "Frame buffers for all ports together. When none is free, frames are dropped with the \
             reason `no_buffer`: \
                  have more than all queue limits together.",
        ),
        Key::defaulted(
            "buffer_size",
            Kind::Size { min: Bytes(1_664), max: Bytes(65_536) },
            "\"2048B\"",
            "Length of one buffer, and 128 more than the longest frame that can be received. \
                  Memory taken: `buffers` times this.",
        ),
        Key::defaulted(
            "hairpin",
            Kind::Choice(&[
                ("forward", "forward it, as RFC 1812 wants"),
                ("drop", "drop it with the reason `same_port`"),
            ]),
            "\"forward\"",
            "What happens to a packet whose route leads back to the port it came from.",
        ),
        Key::defaulted(
            "icmp_per_second",
            Kind::Integer { min: 0, max: 1_000_000, unit: "messages" },
            "100",
            "ICMP errors sent at most, per port and second. 0: none is ever sent.",
        ),
        Key::defaulted(
            "neighbour_wait",
            Kind::Integer { min: 1, max: 1_024, unit: "packets" },
            "16",
            "Packets that wait at most for one neighbour whose address is being asked for.",
        ),
        Key::defaulted(
            "max_catch_up",
            Kind::Time { min: Nanos(100_000), max: Nanos::SECOND },
            "\"5ms\"",
            "When the worker comes back after a pause (another process had its CPU), links with a \
             rate send at once \
                  what they could have sent in this time at most; the capacity of a longer pause \
                  is lost.",
        ),
        Key::defaulted(
            "heartbeat",
            Kind::Time { min: Nanos::from_millis(20), max: Nanos::from_millis(2000) },
            "\"200ms\"",
            "When no worker has given a sign of life for so long (the process was stopped, or \
             hangs), the kernel forwards until one is back.",
        ),
        Key::optional(
            "cpu",
            Kind::Integer { min: 0, max: 1023, unit: "" },
            "whichever the kernel chooses",
            "The CPU that the only worker runs on, as `/proc/cpuinfo` numbers it.",
        ),
        Key::defaulted(
            "workers",
            Kind::Integer { min: 1, max: 64, unit: "workers" },
            "1",
            "Threads that forward. Frames are spread over them by their flows; each has `buffers` \
             of its own. With more than one, links have \
                  `fifo`, `wfq-altq` by class, `pfq`, `pdrr` or `afan`, without control and \
                  shaper, admissions no `per_user`, `flushing` and \
                  `second_link`, and classes no `esp`. The simulator has one worker and takes no \
                  notice.",
        ),
        Key::optional(
            "cpus",
            CPUS,
            "whichever the kernel chooses",
            "The CPUs that the workers run on, one for each worker, in their order. Not together \
             with `cpu`.",
        ),
        Key::defaulted(
            "cycles",
            Kind::Switch,
            "false",
            "Whether cycles are measured, by stage and by class, also without `[fairdrop]`, which \
             always does. It costs some 30 cycles per packet.",
        ),
        Key::optional(
            "seed",
            Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            "another one at each start, and always the same in virtual time",
            "Seed of the flow hash, which chooses among equal routes, and of the tables of flows. \
             Who knows it can make flows that \
                  fall together.",
        ),
    ],
    parts: &[],
};

/// `[[port]]`.
pub static PORT: Section = Section {
    heading: "[[port]]",
    doc: "A network interface that packets come from and go to.",
    own: &[
        Key::required("name", NAME, "Its name in this file, in counters and in commands. Unique."),
        Key::required(
            "interface",
            Kind::Interface,
            "The network interface, as `ip link` names it. Unique.",
        ),
        Key::optional(
            "io",
            IO,
            "as `[router]` says",
            "How its frames are exchanged with the kernel.",
        ),
    ],
    parts: &[],
};

/// `[[class]]`.
pub static CLASS: Section = Section {
    heading: "[[class]]",
    doc: "A class of traffic. Classes are asked in the order of the file; the first with a rule \
          that fits takes the packet. \
          What none takes goes to the first class.",
    own: &[
        Key::required("name", NAME, "Its name in this file, in counters and in commands. Unique."),
        Key::optional(
            "match",
            Kind::Tables { section: &MATCH, min: 0, max: 4096 },
            "no rule: only the first class gets packets",
            "Rules. One that fits is enough.",
        ),
        Key::optional(
            "service",
            NAME,
            "none",
            "The `[[service]]` that its packets are sent through before they enter their link.",
        ),
    ],
    parts: &[],
};

const MATCH_DSCP: Key =
    Key::optional("dscp", Kind::List(&DSCP), "any", "The DSCP is one of these.");
const MATCH_SOURCE: Key =
    Key::optional("source", Kind::Prefix, "any", "The source address lies in this prefix.");
const MATCH_DESTINATION: Key = Key::optional(
    "destination",
    Kind::Prefix,
    "any",
    "The destination address lies in this prefix.",
);
const MATCH_PROTOCOL: Key =
    Key::optional("protocol", Kind::Protocol, "any", "The transport protocol.");
const MATCH_SOURCE_PORT: Key = Key::optional(
    "source_port",
    Kind::Ports,
    "any",
    "The source port. Packets without ports (ICMP, later fragments) have port 0.",
);
const MATCH_DESTINATION_PORT: Key = Key::optional(
    "destination_port",
    Kind::Ports,
    "any",
    "The destination port. Packets without ports (ICMP, later fragments) have port 0.",
);

static DSCP: Kind = Kind::Integer { min: 0, max: 63, unit: "" };

/// An entry of `match`.
pub static MATCH: Section = Section {
    heading: "match = [{ … }]",
    doc: "A rule: everything it names must fit.",
    own: &[
        MATCH_DSCP,
        MATCH_SOURCE,
        MATCH_DESTINATION,
        MATCH_PROTOCOL,
        MATCH_SOURCE_PORT,
        MATCH_DESTINATION_PORT,
    ],
    parts: &[],
};

/// `[[link]]`.
pub static LINK: Section = Section {
    heading: "[[link]]",
    doc: "The outgoing side of a port: scheduler, shaper, transmit ring, paced wire.",
    own: &[
        Key::required("port", NAME, "The port's name."),
        Key::defaulted(
            "discipline",
            Kind::Variants(DISCIPLINES),
            "{ kind = \"fifo\" }",
            "Which packet goes next, and which is dropped.",
        ),
        Key::optional(
            "control",
            Kind::Variants(CONTROLS),
            "none: knobs stay as they are set",
            "What turns the knobs of the discipline from what is measured.",
        ),
        Key::optional(
            "admission",
            Kind::Table(AdmissionConfig::SECTION),
            "none: all packets go to the discipline",
            "Which flows may enter. Needs a discipline that measures a fair rate: `pfq`, `pdrr` or \
             `afan`.",
        ),
    ],
    parts: &[Link::SECTION],
};

/// The disciplines by their `kind`: those of the core, and the user's own.
pub static DISCIPLINES: &[(&str, &Section)] = &{
    const BUILT_IN: usize = DisciplineConfig::BUILT_IN.len();
    let mut all = [("own", &OWN); BUILT_IN + 1];
    let mut at = 0;
    while at < BUILT_IN {
        all[at] = DisciplineConfig::BUILT_IN[at];
        at += 1;
    }
    all
};

/// The controls by their `kind`.
pub static CONTROLS: &[(&str, &Section)] = &[("lct", LinkControl::SECTION)];

/// `kind = "own"`.
pub static OWN: Section = Section {
    heading: "discipline = { kind = \"own\", … }",
    doc: "A discipline that is not among those built in: see `docs/write-a-discipline.md`.",
    own: &[
        Key::required("name", NAME, "The name under which the program that runs it knows it."),
        Key::defaulted("settings", Kind::Foreign("table"), "{}", "Whatever the discipline reads."),
    ],
    parts: &[],
};

/// Every table of `router.toml`, in the order of the reference: each before those that stand in it.
#[must_use]
pub fn all() -> Vec<&'static Section> {
    let mut found = Vec::new();
    visit(&FILE, &mut found);
    found
}

fn visit(section: &'static Section, found: &mut Vec<&'static Section>) {
    if found.iter().any(|known| std::ptr::eq(*known, section)) {
        return;
    }
    found.push(section);
    for key in section.keys() {
        visit_kind(&key.kind, found);
    }
}

fn visit_kind(kind: &Kind, found: &mut Vec<&'static Section>) {
    match kind {
        Kind::Table(section) | Kind::Tables { section, .. } => visit(section, found),
        Kind::Variants(variants) => variants.iter().for_each(|(_, section)| visit(section, found)),
        Kind::List(of) | Kind::ByClass(of, _) => visit_kind(of, found),
        _single => {}
    }
}
