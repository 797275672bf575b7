//! The keys of `router.toml`: name, type, range, default, meaning. Everything else follows from these tables.

use evenkeel_core::link::LinkConfig as Link;
use evenkeel_core::queue::LIMIT_RANGE;
use evenkeel_core::schedule::{lct, wfq_altq};
use evenkeel_core::{Bytes, Nanos};

use crate::cluster::{BalancerForwarder, BalancerSection, ClusterLink, ClusterSection};
use crate::membership::MembershipSection;
use evenkeel_core::admit::{AdmissionConfig, FlowsConfig};
use evenkeel_core::settings::Settings;
use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};

pub mod control;
pub mod fairdrop;
pub mod flow_aware;
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
/// A limit of a queue.
const LIMIT: Kind =
    Kind::Integer { min: *LIMIT_RANGE.start() as u64, max: *LIMIT_RANGE.end() as u64, unit: "packets" };
/// A length of time within a range in nanoseconds.
const fn time(range: &std::ops::RangeInclusive<u64>) -> Kind {
    Kind::Time { min: Nanos(*range.start()), max: Nanos(*range.end()) }
}

/// What a file holds.
pub static FILE: Section = Section {
    heading: "router.toml",
    doc: "One `[[port]]` is enough: it forwards first in, first out, as fast as the port takes frames. \
          Addresses and routes are the kernel's (`ip address`, `ip route`, a routing daemon).",
    own: &[
        Key::defaulted("router", Kind::Table(&ROUTER), "{}", "What concerns the router as a whole."),
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

/// What a router's configuration holds where its ports come from elsewhere (the wires of a scenario).
pub static WITHOUT_PORTS: Section = Section {
    heading: "[router.config]",
    doc: "As in `router.toml`, but without `[[port]]`.",
    own: &[
        Key::defaulted("router", Kind::Table(&ROUTER), "{}", "What concerns the router as a whole."),
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
    Kind::Table(&fairdrop::FAIRDROP),
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
        "AF_XDP (kernel 5.18 and newer), one copy in or none; the start fails with exit code 3 where it cannot be had",
    ),
    ("auto", "AF_XDP, and packet sockets where it cannot be had"),
]);

/// A list of CPUs.
const CPUS: Kind = Kind::List(&Kind::Integer { min: 0, max: 1023, unit: "" });

/// `[router]`.
pub static ROUTER: Section = Section {
    heading: "[router]",
    doc: "The router as a whole. `control` and `seed` cannot change while it runs.",
    own: &[
        Key::defaulted("name", NAME, "\"router\"", "Its name in counters, logs and the control protocol."),
        Key::defaulted(
            "mode",
            Kind::Choice(&[
                ("event", "sleep until a port or a timer is ready"),
                ("busy", "ask the ports all the time: a whole CPU, no wake-up delay"),
                (
                    "adaptive",
                    "as `busy` while frames come more often than every `spin` on average, else as `event`: near no CPU when idle, no \
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
            "In mode `adaptive`, how long the worker waits awake for the next frame before it sleeps.",
        ),
        Key::defaulted(
            "io",
            IO,
            "\"af-packet\"",
            "How frames are exchanged with the kernel, by the ports that do not say it themselves. AF_XDP needs a `buffer_size` of 2048 or \
                  4096, of which 256 bytes go to the kernel. The simulator has no kernel and takes no notice.",
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
            "Frame buffers for all ports together. When none is free, frames are dropped with the reason `no_buffer`: \
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
            "When the worker comes back after a pause (another process had its CPU), links with a rate send at once \
                  what they could have sent in this time at most; the capacity of a longer pause is lost.",
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
            "Threads that forward. Frames are spread over them by their flows; each has `buffers` of its own. With more than one, links have \
                  `fifo`, `wfq-altq` by class, `pfq`, `pdrr` or `afan`, without control and shaper, admissions no `per_user`, `flushing` and \
                  `second_link`, and classes no `esp`. The simulator has one worker and takes no notice.",
        ),
        Key::optional(
            "cpus",
            CPUS,
            "whichever the kernel chooses",
            "The CPUs that the workers run on, one for each worker, in their order. Not together with `cpu`.",
        ),
        Key::defaulted(
            "cycles",
            Kind::Switch,
            "false",
            "Whether cycles are measured, by stage and by class, also without `[fairdrop]`, which always does. It costs some 30 cycles per packet.",
        ),
        Key::optional(
            "seed",
            Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            "another one at each start, and always the same in virtual time",
            "Seed of the flow hash, which chooses among equal routes, and of the tables of flows. Who knows it can make flows that \
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
        Key::required("interface", Kind::Interface, "The network interface, as `ip link` names it. Unique."),
        Key::optional("io", IO, "as `[router]` says", "How its frames are exchanged with the kernel."),
    ],
    parts: &[],
};

/// `[[class]]`.
pub static CLASS: Section = Section {
    heading: "[[class]]",
    doc: "A class of traffic. Classes are asked in the order of the file; the first with a rule that fits takes the packet. \
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

const MATCH_DSCP: Key = Key::optional("dscp", Kind::List(&DSCP), "any", "The DSCP is one of these.");
const MATCH_SOURCE: Key =
    Key::optional("source", Kind::Prefix, "any", "The source address lies in this prefix.");
const MATCH_DESTINATION: Key =
    Key::optional("destination", Kind::Prefix, "any", "The destination address lies in this prefix.");
const MATCH_PROTOCOL: Key = Key::optional("protocol", Kind::Protocol, "any", "The transport protocol.");
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
        Key::optional(
            "rate",
            RATE,
            "unpaced: as fast as the port takes frames",
            "The rate of the wire, with everything Ethernet adds to a packet (38 bytes). \
                  Set it a little below the real wire's, or queues build up behind the router, out of its hands.",
        ),
        Key::defaulted(
            "ring",
            Kind::Table(&RING),
            "{}",
            "The transmit ring between scheduler and wire. Used on links with a rate.",
        ),
        Key::defaulted(
            "dequeue_time",
            Kind::Time { min: Nanos(0), max: Link::MAX_DEQUEUE_TIME },
            "\"0s\"",
            "How long one scheduler call takes while the ring is refilled; the next starts that much later. \
                  For reproducing slow machines.",
        ),
        Key::optional("shaper", Kind::Table(&SHAPER), "none", "A token bucket between scheduler and ring."),
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
            "Which flows may enter. Needs a discipline that measures a fair rate: `pfq`, `pdrr` or `afan`.",
        ),
    ],
    parts: &[],
};

/// `ring`.
pub static RING: Section = Section {
    heading: "ring = { … }",
    doc: "What is in the ring is out of the scheduler's hands: a ring that is large against the queues, refilled as a whole, \
          keeps any work-conserving discipline from telling classes apart.",
    own: &[
        Key::defaulted(
            "slots",
            Kind::Integer { min: 1, max: Link::MAX_SLOTS as u64, unit: "packets" },
            "2",
            "How many packets it holds, the one on the wire included.",
        ),
        Key::defaulted(
            "refill",
            Kind::Choice(&[
                ("any", "whenever a slot is free"),
                ("whole", "a ring that was filled, not before all of it has been sent"),
            ]),
            "\"any\"",
            "When it is filled again.",
        ),
    ],
    parts: &[],
};

/// `shaper`.
pub static SHAPER: Section = Section {
    heading: "shaper = { … }",
    doc: "Over no interval does more pass than `burst` plus what `rate` gives in that interval. Counts IP packets.",
    own: &[
        Key::required("rate", RATE, "The long-run rate."),
        Key::defaulted(
            "burst",
            Kind::Size { min: Link::MIN_BURST, max: Link::MAX_BURST },
            "\"15000B\"",
            "What may pass at once after a pause.",
        ),
    ],
    parts: &[],
};

/// The disciplines by their `kind`.
pub static DISCIPLINES: &[(&str, &Section)] = &[
    ("fifo", &FIFO),
    ("wfq-altq", &WFQ_ALTQ),
    ("lct", &LCT),
    ("pfq", &flow_aware::PFQ),
    ("pdrr", &flow_aware::PDRR),
    ("afan", &flow_aware::AFAN),
    ("own", &OWN),
];

/// `kind = "fifo"`.
pub static FIFO: Section = Section {
    heading: "discipline = { kind = \"fifo\", … }",
    doc: "First in, first out: one queue for all classes.",
    own: &[Key::defaulted(
        "limit",
        LIMIT,
        "1000",
        "Most packets queued; what comes then is dropped. Changes live.",
    )],
    parts: &[],
};

static WEIGHT: Kind = Kind::Integer {
    min: *wfq_altq::WEIGHT_RANGE.start() as u64,
    max: *wfq_altq::WEIGHT_RANGE.end() as u64,
    unit: "",
};

/// `kind = "wfq-altq"`.
pub static WFQ_ALTQ: Section = Section {
    heading: "discipline = { kind = \"wfq-altq\", … }",
    doc: "Weighted fair queueing as ALTQ has it: a round robin of byte quotas, 512 bytes per visit at weight 100.",
    own: &[
        Key::defaulted(
            "weight",
            Kind::ByClass(&WEIGHT, Presence::Default("100")),
            "100",
            "The share of a class in relation to the others. Needs `select = \"class\"`. Changes live.",
        ),
        Key::defaulted(
            "select",
            Kind::Choice(&[
                ("class", "one queue for each class"),
                ("hash-destination", "by a hash of the destination address"),
                ("hash-source", "by a hash of the source address"),
                ("hash-source-port", "by a hash of the source port"),
                ("hash-full", "by a hash of addresses, ports and protocol"),
            ]),
            "\"class\"",
            "How a packet finds its queue. Hashed flows may share one; IPv6 is hashed by its flow label, \
                  except by source port.",
        ),
        Key::optional(
            "queues",
            Kind::Integer {
                min: *wfq_altq::QUEUES_RANGE.start() as u64,
                max: *wfq_altq::QUEUES_RANGE.end() as u64,
                unit: "queues",
            },
            "256 if hashed, else one for each class",
            "How many queues flows are hashed to.",
        ),
        Key::defaulted(
            "drop",
            Kind::Choice(&[
                ("tail", "the arriving packet, when its queue is at `limit`"),
                (
                    "longest",
                    "the head of the queue with the most bytes by weight, when all hold more than `high_water`",
                ),
            ]),
            "\"tail\"",
            "Which packet goes when there are too many. `tail` is what the published measurements used, `longest` what \
                  ALTQ ships; it biases the shares.",
        ),
        Key::defaulted(
            "limit",
            LIMIT,
            "50",
            "Most packets in each queue, with `drop = \"tail\"`. Changes live.",
        ),
        Key::defaulted(
            "high_water",
            Kind::Size {
                min: Bytes(*wfq_altq::HIGH_WATER_RANGE.start()),
                max: Bytes(*wfq_altq::HIGH_WATER_RANGE.end()),
            },
            "\"64KiB\"",
            "Most bytes in all queues together, with `drop = \"longest\"`. Changes live.",
        ),
    ],
    parts: &[],
};

static X_DELAY: Kind = time(&lct::X_DELAY_RANGE);

/// `kind = "lct"`.
pub static LCT: Section = Section {
    heading: "discipline = { kind = \"lct\", … }",
    doc: "LCT-UC: a round robin in which each class waits a time of its own between two packets.",
    own: &[
        Key::defaulted(
            "x_delay",
            Kind::ByClass(&X_DELAY, Presence::Default("\"0s\"")),
            "\"0s\"",
            "The least time between two packets of a class, with `module2` and the default of `multi_backlog`. \
                  Give the class that needs delay least the largest, and the most urgent 0. Changes live.",
        ),
        Key::defaulted("limit", LIMIT, "50", "Most packets queued in each class. Changes live."),
        Key::defaulted(
            "module2",
            Kind::Switch,
            "true",
            "Whether a class is held until its time even when no other has packets: so it may not use idle capacity. \
                  Changes live.",
        ),
        Key::defaulted(
            "multi_backlog",
            Kind::Choice(&[
                (
                    "hold-with-module2",
                    "with `module2` as `hold`, without it as `round-robin`: so `module2` alone says whether \
                     classes are held",
                ),
                ("round-robin", "the next in the order of classes, as the paper's chart is drawn"),
                ("min-x", "the one with the smallest `x_delay`"),
                ("hold", "none, with `module2` or without: wait until the first is due"),
                ("earliest-due", "the one that is due first"),
            ]),
            "\"hold-with-module2\"",
            "Which class goes when several have packets and none is due. The paper leaves it open: docs/lct.md \
                  sets each rule against what it says. Changes live.",
        ),
        Key::defaulted(
            "rearm_empty",
            Kind::Switch,
            "true",
            "Whether an empty class that is visited past its time gets a new one, so that the first packet after a pause waits \
                  too. Changes live.",
        ),
        Key::defaulted(
            "timer_tick",
            time(&lct::TIMER_TICK_RANGE),
            "\"0s\"",
            "Held packets are looked at again at multiples of this; 0 is exact, 10 ms is FreeBSD 2.2.",
        ),
    ],
    parts: &[],
};

/// The controls by their `kind`.
pub static CONTROLS: &[(&str, &Section)] = &[("lct", &control::LCT)];

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

/// Every table of `router.toml`, in the order of the reference.
pub static ALL: &[&Section] = &[
    &FILE,
    &ROUTER,
    &PORT,
    &service::SERVICE,
    &service::ESP,
    &service::ACL,
    &ACL_RULE,
    &service::SPIN,
    &CLASS,
    &MATCH,
    &LINK,
    &RING,
    &SHAPER,
    &FIFO,
    &WFQ_ALTQ,
    &LCT,
    &flow_aware::PFQ,
    &flow_aware::PDRR,
    &flow_aware::AFAN,
    &flow_aware::AFD,
    &OWN,
    &control::LCT,
    AdmissionConfig::SECTION,
    FlowsConfig::SECTION,
    &fairdrop::FAIRDROP,
    &fairdrop::LEVEL,
    &fairdrop::KAPPA,
    &fairdrop::FIXED,
    &fairdrop::MIMD_BATCH,
    &fairdrop::MIMD_RING,
    ClusterSection::SECTION,
    ClusterLink::SECTION,
    BalancerSection::SECTION,
    MembershipSection::SECTION,
    BalancerForwarder::SECTION,
];
