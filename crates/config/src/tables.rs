//! The keys of `router.toml`: name, type, range, default, meaning. Everything else follows from these tables.

use evenkeel_core::link::LinkConfig as Link;
use evenkeel_core::queue::LIMIT_RANGE;
use evenkeel_core::schedule::{lct, wfq_altq};
use evenkeel_core::{Bytes, Nanos};

use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};

pub mod cluster;
pub mod control;
pub mod fairdrop;
pub mod flow_aware;
pub mod service;

pub use service::ACL_RULE;

/// Most characters of a name.
pub const NAME_LENGTH: usize = 32;
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
    keys: &[
        Key {
            name: "router",
            kind: Kind::Table(&ROUTER),
            presence: Presence::Default("{}"),
            doc: "What concerns the router as a whole.",
        },
        Key {
            name: "port",
            kind: Kind::Tables { section: &PORT, min: 1, max: MAX_PORTS },
            presence: Presence::Required,
            doc: "The network interfaces to forward between.",
        },
        SERVICES,
        FLOWS,
        CLASSES,
        LINKS,
        FAIRDROP,
        Key {
            name: "cluster",
            kind: Kind::Table(&cluster::CLUSTER),
            presence: Presence::Optional("none"),
            doc: "This router is a forwarder of a cluster.",
        },
        Key {
            name: "balancer",
            kind: Kind::Table(&cluster::BALANCER),
            presence: Presence::Optional("none"),
            doc: "This router is a balancer.",
        },
        Key {
            name: "membership",
            kind: Kind::Table(&cluster::MEMBERSHIP),
            presence: Presence::Optional("this file alone"),
            doc: "Members and weights come from etcd.",
        },
    ],
};

/// What a router's configuration holds where its ports come from elsewhere (the wires of a scenario).
pub static WITHOUT_PORTS: Section = Section {
    heading: "[router.config]",
    doc: "As in `router.toml`, but without `[[port]]`.",
    keys: &[
        Key {
            name: "router",
            kind: Kind::Table(&ROUTER),
            presence: Presence::Default("{}"),
            doc: "What concerns the router as a whole.",
        },
        SERVICES,
        FLOWS,
        CLASSES,
        LINKS,
        FAIRDROP,
    ],
};

const FLOWS: Key = Key {
    name: "flows",
    kind: Kind::Table(&flow_aware::LISTS),
    presence: Presence::Default("{}"),
    doc: "What the admissions of all links share.",
};

const SERVICES: Key = Key {
    name: "service",
    kind: Kind::Tables { section: &service::SERVICE, min: 0, max: service::MAX },
    presence: Presence::Optional("none"),
    doc: "Costly work that classes can be sent through.",
};

const FAIRDROP: Key = Key {
    name: "fairdrop",
    kind: Kind::Table(&fairdrop::FAIRDROP),
    presence: Presence::Optional("none"),
    doc: "Fair shares of cycles and bits by early dropping.",
};

const CLASSES: Key = Key {
    name: "class",
    kind: Kind::Tables { section: &CLASS, min: 0, max: Link::MAX_CLASSES as usize },
    presence: Presence::Optional("one class `default`"),
    doc: "The classes of traffic. The first is the default class: it gets what no rule takes.",
};

const LINKS: Key = Key {
    name: "link",
    kind: Kind::Tables { section: &LINK, min: 0, max: MAX_PORTS },
    presence: Presence::Optional("each port has a FIFO without a rate"),
    doc: "The outgoing sides of ports: rate, ring, discipline.",
};

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
    keys: &[
        Key {
            name: "name",
            kind: NAME,
            presence: Presence::Default("\"router\""),
            doc: "Its name in counters, logs and the control protocol.",
        },
        Key {
            name: "mode",
            kind: Kind::Choice(&[
                ("event", "sleep until a port or a timer is ready"),
                ("busy", "ask the ports all the time: a whole CPU, no wake-up delay"),
                (
                    "adaptive",
                    "as `busy` while frames come more often than every `spin` on average, else as `event`: near no CPU when idle, no \
                              wake-up delay under load",
                ),
            ]),
            presence: Presence::Default("\"event\""),
            doc: "How the worker waits for packets.",
        },
        Key {
            name: "spin",
            kind: Kind::Time { min: Nanos(1_000), max: Nanos::from_millis(10) },
            presence: Presence::Default("\"100us\""),
            doc: "In mode `adaptive`, how long the worker waits awake for the next frame before it sleeps.",
        },
        Key {
            name: "io",
            kind: IO,
            presence: Presence::Default("\"af-packet\""),
            doc: "How frames are exchanged with the kernel, by the ports that do not say it themselves. AF_XDP needs a `buffer_size` of 2048 or \
                  4096, of which 256 bytes go to the kernel. The simulator has no kernel and takes no notice.",
        },
        Key {
            name: "control",
            kind: Kind::Path,
            presence: Presence::Default("\"/run/evenkeel/control.sock\""),
            doc: "The Unix socket that `evenkeel ctl` talks to.",
        },
        Key {
            name: "buffers",
            kind: Kind::Integer { min: 256, max: 1_048_576, unit: "buffers" },
            presence: Presence::Default("8192"),
            doc: "Frame buffers for all ports together. When none is free, frames are dropped with the reason `no_buffer`: \
                  have more than all queue limits together.",
        },
        Key {
            name: "buffer_size",
            kind: Kind::Size { min: Bytes(1_664), max: Bytes(65_536) },
            presence: Presence::Default("\"2048B\""),
            doc: "Length of one buffer, and 128 more than the longest frame that can be received. \
                  Memory taken: `buffers` times this.",
        },
        Key {
            name: "hairpin",
            kind: Kind::Choice(&[
                ("forward", "forward it, as RFC 1812 wants"),
                ("drop", "drop it with the reason `same_port`"),
            ]),
            presence: Presence::Default("\"forward\""),
            doc: "What happens to a packet whose route leads back to the port it came from.",
        },
        Key {
            name: "icmp_per_second",
            kind: Kind::Integer { min: 0, max: 1_000_000, unit: "messages" },
            presence: Presence::Default("100"),
            doc: "ICMP errors sent at most, per port and second. 0: none is ever sent.",
        },
        Key {
            name: "neighbour_wait",
            kind: Kind::Integer { min: 1, max: 1_024, unit: "packets" },
            presence: Presence::Default("16"),
            doc: "Packets that wait at most for one neighbour whose address is being asked for.",
        },
        Key {
            name: "max_catch_up",
            kind: Kind::Time { min: Nanos(100_000), max: Nanos::SECOND },
            presence: Presence::Default("\"5ms\""),
            doc: "When the worker comes back after a pause (another process had its CPU), links with a rate send at once \
                  what they could have sent in this time at most; the capacity of a longer pause is lost.",
        },
        Key {
            name: "cpu",
            kind: Kind::Integer { min: 0, max: 1023, unit: "" },
            presence: Presence::Optional("whichever the kernel chooses"),
            doc: "The CPU that the only worker runs on, as `/proc/cpuinfo` numbers it.",
        },
        Key {
            name: "workers",
            kind: Kind::Integer { min: 1, max: 64, unit: "workers" },
            presence: Presence::Default("1"),
            doc: "Threads that forward. Frames are spread over them by their flows; each has `buffers` of its own. With more than one, links have \
                  `fifo`, `wfq-altq` by class, `pfq`, `pdrr` or `afan`, without control and shaper, admissions no `per_user`, `flushing` and \
                  `second_link`, and classes no `esp`. The simulator has one worker and takes no notice.",
        },
        Key {
            name: "cpus",
            kind: CPUS,
            presence: Presence::Optional("whichever the kernel chooses"),
            doc: "The CPUs that the workers run on, one for each worker, in their order. Not together with `cpu`.",
        },
        Key {
            name: "cycles",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "Whether cycles are measured, by stage and by class, also without `[fairdrop]`, which always does. It costs some 30 cycles per packet.",
        },
        Key {
            name: "seed",
            kind: Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            presence: Presence::Optional("another one at each start, and always the same in virtual time"),
            doc: "Seed of the flow hash, which chooses among equal routes, and of the tables of flows. Who knows it can make flows that \
                  fall together.",
        },
    ],
};

/// `[[port]]`.
pub static PORT: Section = Section {
    heading: "[[port]]",
    doc: "A network interface that packets come from and go to.",
    keys: &[
        Key {
            name: "name",
            kind: NAME,
            presence: Presence::Required,
            doc: "Its name in this file, in counters and in commands. Unique.",
        },
        Key {
            name: "interface",
            kind: Kind::Interface,
            presence: Presence::Required,
            doc: "The network interface, as `ip link` names it. Unique.",
        },
        Key {
            name: "io",
            kind: IO,
            presence: Presence::Optional("as `[router]` says"),
            doc: "How its frames are exchanged with the kernel.",
        },
    ],
};

/// `[[class]]`.
pub static CLASS: Section = Section {
    heading: "[[class]]",
    doc: "A class of traffic. Classes are asked in the order of the file; the first with a rule that fits takes the packet. \
          What none takes goes to the first class.",
    keys: &[
        Key {
            name: "name",
            kind: NAME,
            presence: Presence::Required,
            doc: "Its name in this file, in counters and in commands. Unique.",
        },
        Key {
            name: "match",
            kind: Kind::Tables { section: &MATCH, min: 0, max: 4096 },
            presence: Presence::Optional("no rule: only the first class gets packets"),
            doc: "Rules. One that fits is enough.",
        },
        Key {
            name: "service",
            kind: NAME,
            presence: Presence::Optional("none"),
            doc: "The `[[service]]` that its packets are sent through before they enter their link.",
        },
    ],
};

const MATCH_DSCP: Key = Key {
    name: "dscp",
    kind: Kind::List(&DSCP),
    presence: Presence::Optional("any"),
    doc: "The DSCP is one of these.",
};
const MATCH_SOURCE: Key = Key {
    name: "source",
    kind: Kind::Prefix,
    presence: Presence::Optional("any"),
    doc: "The source address lies in this prefix.",
};
const MATCH_DESTINATION: Key = Key {
    name: "destination",
    kind: Kind::Prefix,
    presence: Presence::Optional("any"),
    doc: "The destination address lies in this prefix.",
};
const MATCH_PROTOCOL: Key = Key {
    name: "protocol",
    kind: Kind::Protocol,
    presence: Presence::Optional("any"),
    doc: "The transport protocol.",
};
const MATCH_SOURCE_PORT: Key = Key {
    name: "source_port",
    kind: Kind::Ports,
    presence: Presence::Optional("any"),
    doc: "The source port. Packets without ports (ICMP, later fragments) have port 0.",
};
const MATCH_DESTINATION_PORT: Key = Key {
    name: "destination_port",
    kind: Kind::Ports,
    presence: Presence::Optional("any"),
    doc: "The destination port. Packets without ports (ICMP, later fragments) have port 0.",
};

static DSCP: Kind = Kind::Integer { min: 0, max: 63, unit: "" };

/// An entry of `match`.
pub static MATCH: Section = Section {
    heading: "match = [{ … }]",
    doc: "A rule: everything it names must fit.",
    keys: &[
        MATCH_DSCP,
        MATCH_SOURCE,
        MATCH_DESTINATION,
        MATCH_PROTOCOL,
        MATCH_SOURCE_PORT,
        MATCH_DESTINATION_PORT,
    ],
};

/// `[[link]]`.
pub static LINK: Section = Section {
    heading: "[[link]]",
    doc: "The outgoing side of a port: scheduler, shaper, transmit ring, paced wire.",
    keys: &[
        Key { name: "port", kind: NAME, presence: Presence::Required, doc: "The port's name." },
        Key {
            name: "rate",
            kind: RATE,
            presence: Presence::Optional("unpaced: as fast as the port takes frames"),
            doc: "The rate of the wire, with everything Ethernet adds to a packet (38 bytes). \
                  Set it a little below the real wire's, or queues build up behind the router, out of its hands.",
        },
        Key {
            name: "ring",
            kind: Kind::Table(&RING),
            presence: Presence::Default("{}"),
            doc: "The transmit ring between scheduler and wire. Used on links with a rate.",
        },
        Key {
            name: "dequeue_time",
            kind: Kind::Time { min: Nanos(0), max: Link::MAX_DEQUEUE_TIME },
            presence: Presence::Default("\"0s\""),
            doc: "How long one scheduler call takes while the ring is refilled; the next starts that much later. \
                  For reproducing slow machines.",
        },
        Key {
            name: "shaper",
            kind: Kind::Table(&SHAPER),
            presence: Presence::Optional("none"),
            doc: "A token bucket between scheduler and ring.",
        },
        Key {
            name: "discipline",
            kind: Kind::Variants(DISCIPLINES),
            presence: Presence::Default("{ kind = \"fifo\" }"),
            doc: "Which packet goes next, and which is dropped.",
        },
        Key {
            name: "control",
            kind: Kind::Variants(CONTROLS),
            presence: Presence::Optional("none: knobs stay as they are set"),
            doc: "What turns the knobs of the discipline from what is measured.",
        },
        Key {
            name: "admission",
            kind: Kind::Table(&flow_aware::ADMISSION),
            presence: Presence::Optional("none: all packets go to the discipline"),
            doc: "Which flows may enter. Needs a discipline that measures a fair rate: `pfq`, `pdrr` or `afan`.",
        },
    ],
};

/// `ring`.
pub static RING: Section = Section {
    heading: "ring = { … }",
    doc: "What is in the ring is out of the scheduler's hands: a ring that is large against the queues, refilled as a whole, \
          keeps any work-conserving discipline from telling classes apart.",
    keys: &[
        Key {
            name: "slots",
            kind: Kind::Integer { min: 1, max: Link::MAX_SLOTS as u64, unit: "packets" },
            presence: Presence::Default("2"),
            doc: "How many packets it holds, the one on the wire included.",
        },
        Key {
            name: "refill",
            kind: Kind::Choice(&[
                ("any", "whenever a slot is free"),
                ("whole", "a ring that was filled, not before all of it has been sent"),
            ]),
            presence: Presence::Default("\"any\""),
            doc: "When it is filled again.",
        },
    ],
};

/// `shaper`.
pub static SHAPER: Section = Section {
    heading: "shaper = { … }",
    doc: "Over no interval does more pass than `burst` plus what `rate` gives in that interval. Counts IP packets.",
    keys: &[
        Key { name: "rate", kind: RATE, presence: Presence::Required, doc: "The long-run rate." },
        Key {
            name: "burst",
            kind: Kind::Size { min: Link::MIN_BURST, max: Link::MAX_BURST },
            presence: Presence::Default("\"15000B\""),
            doc: "What may pass at once after a pause.",
        },
    ],
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
    keys: &[Key {
        name: "limit",
        kind: LIMIT,
        presence: Presence::Default("1000"),
        doc: "Most packets queued; what comes then is dropped. Changes live.",
    }],
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
    keys: &[
        Key {
            name: "weight",
            kind: Kind::ByClass(&WEIGHT, "100"),
            presence: Presence::Default("100"),
            doc: "The share of a class in relation to the others. Needs `select = \"class\"`. Changes live.",
        },
        Key {
            name: "select",
            kind: Kind::Choice(&[
                ("class", "one queue for each class"),
                ("hash-destination", "by a hash of the destination address"),
                ("hash-source", "by a hash of the source address"),
                ("hash-source-port", "by a hash of the source port"),
                ("hash-full", "by a hash of addresses, ports and protocol"),
            ]),
            presence: Presence::Default("\"class\""),
            doc: "How a packet finds its queue. Hashed flows may share one; IPv6 is hashed by its flow label, \
                  except by source port.",
        },
        Key {
            name: "queues",
            kind: Kind::Integer {
                min: *wfq_altq::QUEUES_RANGE.start() as u64,
                max: *wfq_altq::QUEUES_RANGE.end() as u64,
                unit: "queues",
            },
            presence: Presence::Optional("256 if hashed, else one for each class"),
            doc: "How many queues flows are hashed to.",
        },
        Key {
            name: "drop",
            kind: Kind::Choice(&[
                ("tail", "the arriving packet, when its queue is at `limit`"),
                (
                    "longest",
                    "the head of the queue with the most bytes by weight, when all hold more than `high_water`",
                ),
            ]),
            presence: Presence::Default("\"tail\""),
            doc: "Which packet goes when there are too many. `tail` is what the published measurements used, `longest` what \
                  ALTQ ships; it biases the shares.",
        },
        Key {
            name: "limit",
            kind: LIMIT,
            presence: Presence::Default("50"),
            doc: "Most packets in each queue, with `drop = \"tail\"`. Changes live.",
        },
        Key {
            name: "high_water",
            kind: Kind::Size {
                min: Bytes(*wfq_altq::HIGH_WATER_RANGE.start()),
                max: Bytes(*wfq_altq::HIGH_WATER_RANGE.end()),
            },
            presence: Presence::Default("\"64KiB\""),
            doc: "Most bytes in all queues together, with `drop = \"longest\"`. Changes live.",
        },
    ],
};

static X_DELAY: Kind = time(&lct::X_DELAY_RANGE);

/// `kind = "lct"`.
pub static LCT: Section = Section {
    heading: "discipline = { kind = \"lct\", … }",
    doc: "LCT-UC: a round robin in which each class waits a time of its own between two packets.",
    keys: &[
        Key {
            name: "x_delay",
            kind: Kind::ByClass(&X_DELAY, "\"0s\""),
            presence: Presence::Default("\"0s\""),
            doc: "The least time between two packets of a class. Give the class that needs delay least the largest, \
                  and the most urgent 0. Changes live.",
        },
        Key {
            name: "limit",
            kind: LIMIT,
            presence: Presence::Default("50"),
            doc: "Most packets queued in each class. Changes live.",
        },
        Key {
            name: "module2",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether a class is held until its time even when no other has packets: so it may not use idle capacity. \
                  Changes live.",
        },
        Key {
            name: "multi_backlog",
            kind: Kind::Choice(&[
                ("min-x", "the one with the smallest `x_delay`"),
                ("hold", "none: wait until the first is due"),
                ("earliest-due", "the one that is due first"),
            ]),
            presence: Presence::Default("\"min-x\""),
            doc: "Which class goes when several have packets and none is due. The paper leaves it open. Changes live.",
        },
        Key {
            name: "rearm_empty",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether an empty class that is visited past its time gets a new one, so that the first packet after a pause waits \
                  too. Changes live.",
        },
        Key {
            name: "timer_tick",
            kind: time(&lct::TIMER_TICK_RANGE),
            presence: Presence::Default("\"0s\""),
            doc: "Held packets are looked at again at multiples of this; 0 is exact, 10 ms is FreeBSD 2.2.",
        },
    ],
};

/// The controls by their `kind`.
pub static CONTROLS: &[(&str, &Section)] = &[("lct", &control::LCT)];

/// `kind = "own"`.
pub static OWN: Section = Section {
    heading: "discipline = { kind = \"own\", … }",
    doc: "A discipline that is not among those built in: see `docs/write-a-discipline.md`.",
    keys: &[
        Key {
            name: "name",
            kind: NAME,
            presence: Presence::Required,
            doc: "The name under which the program that runs it knows it.",
        },
        Key {
            name: "settings",
            kind: Kind::Foreign("table"),
            presence: Presence::Default("{}"),
            doc: "Whatever the discipline reads.",
        },
    ],
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
    &flow_aware::ADMISSION,
    &flow_aware::LISTS,
    &fairdrop::FAIRDROP,
    &fairdrop::LEVEL,
    &fairdrop::KAPPA,
    &fairdrop::FIXED,
    &fairdrop::MIMD_BATCH,
    &fairdrop::MIMD_RING,
    &cluster::CLUSTER,
    &cluster::LINK,
    &cluster::BALANCER,
    &cluster::MEMBERSHIP,
    &cluster::FORWARDER,
];
