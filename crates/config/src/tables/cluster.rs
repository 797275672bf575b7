//! The keys of `[cluster]` and `[balancer]`.

use evenkeel_core::{BitRate, Bytes, Nanos};

use super::NAME;
use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};

/// Most forwarders, and most outgoing links.
pub const MAX: usize = 64;
/// Most classes of a cluster.
pub const MAX_CLASSES: usize = 8;

static ID: Kind = Kind::Integer { min: 0, max: 65_535, unit: "" };
static WEIGHT: Kind = Kind::Integer { min: 1, max: 65_535, unit: "" };
static ADDRESS: Kind = Kind::Prefix;
const SHORT: Kind = Kind::Time { min: Nanos::ZERO, max: Nanos(10_000_000_000) };

/// `[cluster]`.
pub static CLUSTER: Section = Section {
    heading: "[cluster]",
    doc: "This router is a forwarder of a cluster: what goes to the cluster's links waits in a queue for each link and class, and is sent when the \
          cycle grants it. All of it but `node`, `port`, `limit` and `link.port` must be the same on all forwarders; frames of a node with other \
          settings are refused. See docs/cluster-live.md.",
    own: &[
        Key::required("node", ID, "The id of this forwarder."),
        Key::required(
            "members",
            Kind::List(&ID),
            "The ids of all forwarders, ascending, 1 to 64 of them. The lowest that is alive is master. A member that is not there \
                  counts as empty.",
        ),
        Key::required(
            "port",
            NAME,
            "The port of the exchange frames. It uses packet sockets: `io = \"auto\"` means `\"af-packet\"` there.",
        ),
        Key::defaulted(
            "vlan",
            Kind::Integer { min: 0, max: 4094, unit: "" },
            "3001",
            "The internal VLAN of the exchange frames, which carry its tag; 0: untagged.",
        ),
        Key::optional(
            "key",
            Kind::Text,
            "not authenticated",
            "Key of the frames' authentication: 32 hexadecimal digits. Without it anybody on the segment can steer the schedule.",
        ),
        Key::defaulted(
            "variant",
            Kind::Choice(&[
                ("s-ds", "one packet per exchange"),
                ("m-ds", "`l` packets announced, up to `l + p` rounds per exchange"),
                ("l-ds", "one decision and a burst of `l`·64 bytes per exchange"),
                ("p-ds", "as m-ds, but the next exchange runs while this window is sent"),
            ]),
            "\"p-ds\"",
            "How much is decided with one exchange.",
        ),
        Key::defaulted(
            "l",
            Kind::Integer { min: 1, max: 800, unit: "packets" },
            "25",
            "Packets announced per queue, or the length of a burst.",
        ),
        Key::defaulted(
            "p",
            Kind::Integer { min: 0, max: 3_000, unit: "rounds" },
            "0",
            "Rounds beyond `l` while what is announced lasts.",
        ),
        Key::defaulted(
            "rule",
            Kind::Choice(&[
                ("a", "every queue of every forwarder has its class's weight"),
                ("b", "a class has its weight on a link, whichever forwarders hold it"),
                ("c", "a class's weight is divided among the forwarders that hold it"),
            ]),
            "\"b\"",
            "What a class's weight is of.",
        ),
        Key::defaulted(
            "weight",
            Kind::ByClass(&WEIGHT, Presence::Default("1")),
            "1",
            "The weight of each class on each link.",
        ),
        Key::defaulted(
            "proposer",
            Kind::Choice(&[
                ("links", "each link gets the smallest finish time it can"),
                ("forwarders", "each forwarder sends the oldest packet it can"),
            ]),
            "\"links\"",
            "Which side proposes in the stable matching.",
        ),
        Key::defaulted(
            "second_pass",
            Kind::Switch,
            "true",
            "Whether links and forwarders left idle are matched in a second pass.",
        ),
        Key::defaulted(
            "round_bytes",
            Kind::Size { min: Bytes(0), max: Bytes(1 << 20) },
            "\"0B\"",
            "With several packets announced, a matched pair sends so many bytes in its round instead of one packet.",
        ),
        Key::defaulted(
            "missing",
            Kind::Choice(&[
                ("abstain", "send nothing in this cycle if it matters"),
                ("next", "use the next packet that was announced, if there is one"),
                ("stale", "use what was last heard: two forwarders may then use one link"),
            ]),
            "\"abstain\"",
            "What to do about a frame that did not come.",
        ),
        Key::defaulted(
            "t_br",
            Kind::Time { min: Nanos(1_000), max: Nanos(10_000_000_000) },
            "\"2ms\"",
            "Bound on the time from one node's sending to all others' hearing, waking up included.",
        ),
        Key::defaulted("long_wait", Kind::Switch, "false", "Whether the master waits for twice `t_br`."),
        Key::defaulted(
            "early_close",
            Kind::Switch,
            "false",
            "Whether an exchange ends as soon as all members were heard.",
        ),
        Key::defaulted(
            "min_cycle",
            SHORT,
            "\"2ms\"",
            "A cycle takes at least this long: the pause between exchanges when there is nothing to send.",
        ),
        Key::required(
            "rate",
            Kind::Rate { min: BitRate(1_000), max: BitRate(1_000_000_000_000) },
            "The rate of each of the cluster's links.",
        ),
        Key::defaulted(
            "overhead",
            Kind::Integer { min: 0, max: 65_535, unit: "bytes" },
            "38",
            "What a packet takes on the wire beyond its IP length.",
        ),
        Key::defaulted("per_packet", SHORT, "\"0ns\"", "A packet takes at least this long."),
        Key::defaulted("decision", SHORT, "\"1us\"", "Set aside for the decision of each round."),
        Key::defaulted("guard", SHORT, "\"1us\"", "Left between rounds."),
        Key::defaulted(
            "max_lag",
            Kind::Size { min: Bytes(1 << 16), max: Bytes(1 << 32) },
            "\"1MiB\"",
            "What a class that could not be served is owed at most.",
        ),
        Key::defaulted(
            "checksum_every",
            Kind::Integer { min: 1, max: 65_535, unit: "cycles" },
            "64",
            "How often the clocks are compared.",
        ),
        Key::defaulted(
            "lost_after",
            Kind::Integer { min: 1, max: 100, unit: "cycles" },
            "3",
            "A member unheard for so long counts as empty.",
        ),
        Key::defaulted(
            "mtu",
            Kind::Integer { min: 256, max: 9_000, unit: "bytes" },
            "1500",
            "Longest payload of an exchange frame; longer announcements are cut.",
        ),
        Key::defaulted(
            "seed",
            Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            "1",
            "Seed of the ties.",
        ),
        Key::defaulted(
            "limit",
            Kind::Integer { min: 1, max: 1_000_000, unit: "packets" },
            "1000",
            "What a queue holds; more is dropped as `queue_full`.",
        ),
        Key::required(
            "link",
            Kind::Tables { section: &LINK, min: 1, max: MAX },
            "The outgoing links, in the same order on all forwarders.",
        ),
    ],
    parts: &[],
};

/// `[[cluster.link]]`.
pub static LINK: Section = Section {
    heading: "[[cluster.link]]",
    doc: "An outgoing link of the cluster: what is sent by `port` to one of `next_hops`.",
    own: &[
        Key::required("name", NAME, "Its name."),
        Key::required(
            "port",
            NAME,
            "The port of this forwarder that leads to it; several links may share one.",
        ),
        Key::optional(
            "next_hops",
            Kind::List(&ADDRESS),
            "all that no other link of the port names",
            "The addresses of the routers behind it.",
        ),
    ],
    parts: &[],
};

/// `[balancer]`.
pub static BALANCER: Section = Section {
    heading: "[balancer]",
    doc: "This router is a balancer: every flow that comes to its Ethernet address goes on to one forwarder, by nothing but another destination \
          address of the frame. Packets for the machine itself stay. See docs/cluster-live.md.",
    own: &[
        Key::required("port", NAME, "The port that the forwarders are behind."),
        Key::defaulted(
            "seed",
            Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            "1",
            "Seed of the flow hash and of the table; the same on all balancers of a router.",
        ),
        Key::defaulted(
            "flows",
            Kind::Integer { min: 4, max: 1 << 24, unit: "flows" },
            "65536",
            "Flows that are remembered, 16 bytes each; rounded up to a power of two.",
        ),
        Key::defaulted(
            "idle",
            Kind::Time { min: Nanos(1_000_000), max: Nanos(86_400_000_000_000) },
            "\"60s\"",
            "A flow that was silent for so long may be forgotten.",
        ),
        Key::required(
            "forwarder",
            Kind::Tables { section: &FORWARDER, min: 1, max: MAX },
            "The forwarders; the same on all balancers of a router.",
        ),
    ],
    parts: &[],
};

/// `[[balancer.forwarder]]`.
pub static FORWARDER: Section = Section {
    heading: "[[balancer.forwarder]]",
    doc: "A forwarder.",
    own: &[
        Key::required("id", ID, "Its id, as `cluster.node` there."),
        Key::required("mac", Kind::Text, "Its Ethernet address: 02:00:00:00:00:01."),
        Key::defaulted(
            "weight",
            Kind::Integer { min: 1, max: 256, unit: "" },
            "256",
            "Its part of the new flows in relation to others.",
        ),
        Key::defaulted(
            "state",
            STATE,
            "\"active\"",
            "What it gets; changes live: `evenkeel ctl balancer ID STATE`.",
        ),
    ],
    parts: &[],
};

/// `[membership]`.
pub static MEMBERSHIP: Section = Section {
    heading: "[membership]",
    doc: "Members, weights of classes and the balancers' forwarders come from etcd and change live; what this file says of them holds until etcd has \
          said something, and whenever that does not fit. Needs an evenkeel built with the feature `etcd`. See docs/cluster-live.md.",
    own: &[
        Key::required(
            "endpoints",
            Kind::List(&Kind::Text),
            "Where etcd is: `[\"http://10.0.0.1:2379\"]`. The packet path never waits for it.",
        ),
        Key::defaulted("prefix", Kind::Text, "\"/evenkeel\"", "What the keys of this cluster begin with."),
        Key::defaulted(
            "lease",
            Kind::Time { min: Nanos(1_000_000_000), max: Nanos(3_600_000_000_000) },
            "\"10s\"",
            "A router that is not heard of for so long is not alive: balancers send nothing to such a forwarder. Whole seconds.",
        ),
    ],
    parts: &[],
};

/// The states of a forwarder at a balancer.
pub const STATE: Kind = Kind::Choice(&[
    ("active", "new flows and those it has"),
    ("draining", "those it has"),
    ("out", "nothing: its flows go to others"),
]);
