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
    keys: &[
        Key { name: "node", kind: ID, presence: Presence::Required, doc: "The id of this forwarder." },
        Key {
            name: "members",
            kind: Kind::List(&ID),
            presence: Presence::Required,
            doc: "The ids of all forwarders, ascending, 1 to 64 of them. The lowest that is alive is master. A member that is not there \
                  counts as empty.",
        },
        Key {
            name: "port",
            kind: NAME,
            presence: Presence::Required,
            doc: "The port of the exchange frames. It uses packet sockets: `io = \"auto\"` means `\"af-packet\"` there.",
        },
        Key {
            name: "vlan",
            kind: Kind::Integer { min: 0, max: 4094, unit: "" },
            presence: Presence::Default("3001"),
            doc: "The internal VLAN of the exchange frames, which carry its tag; 0: untagged.",
        },
        Key {
            name: "key",
            kind: Kind::Text,
            presence: Presence::Optional("not authenticated"),
            doc: "Key of the frames' authentication: 32 hexadecimal digits. Without it anybody on the segment can steer the schedule.",
        },
        Key {
            name: "variant",
            kind: Kind::Choice(&[
                ("s-ds", "one packet per exchange"),
                ("m-ds", "`l` packets announced, up to `l + p` rounds per exchange"),
                ("l-ds", "one decision and a burst of `l`·64 bytes per exchange"),
                ("p-ds", "as m-ds, but the next exchange runs while this window is sent"),
            ]),
            presence: Presence::Default("\"p-ds\""),
            doc: "How much is decided with one exchange.",
        },
        Key {
            name: "l",
            kind: Kind::Integer { min: 1, max: 800, unit: "packets" },
            presence: Presence::Default("25"),
            doc: "Packets announced per queue, or the length of a burst.",
        },
        Key {
            name: "p",
            kind: Kind::Integer { min: 0, max: 3_000, unit: "rounds" },
            presence: Presence::Default("0"),
            doc: "Rounds beyond `l` while what is announced lasts.",
        },
        Key {
            name: "rule",
            kind: Kind::Choice(&[
                ("a", "every queue of every forwarder has its class's weight"),
                ("b", "a class has its weight on a link, whichever forwarders hold it"),
                ("c", "a class's weight is divided among the forwarders that hold it"),
            ]),
            presence: Presence::Default("\"b\""),
            doc: "What a class's weight is of.",
        },
        Key {
            name: "weight",
            kind: Kind::ByClass(&WEIGHT, "1"),
            presence: Presence::Default("1"),
            doc: "The weight of each class on each link.",
        },
        Key {
            name: "proposer",
            kind: Kind::Choice(&[
                ("links", "each link gets the smallest finish time it can"),
                ("forwarders", "each forwarder sends the oldest packet it can"),
            ]),
            presence: Presence::Default("\"links\""),
            doc: "Which side proposes in the stable matching.",
        },
        Key {
            name: "second_pass",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether links and forwarders left idle are matched in a second pass.",
        },
        Key {
            name: "round_bytes",
            kind: Kind::Size { min: Bytes(0), max: Bytes(1 << 20) },
            presence: Presence::Default("\"0B\""),
            doc: "With several packets announced, a matched pair sends so many bytes in its round instead of one packet.",
        },
        Key {
            name: "missing",
            kind: Kind::Choice(&[
                ("abstain", "send nothing in this cycle if it matters"),
                ("next", "use the next packet that was announced, if there is one"),
                ("stale", "use what was last heard: two forwarders may then use one link"),
            ]),
            presence: Presence::Default("\"abstain\""),
            doc: "What to do about a frame that did not come.",
        },
        Key {
            name: "t_br",
            kind: Kind::Time { min: Nanos(1_000), max: Nanos(10_000_000_000) },
            presence: Presence::Default("\"2ms\""),
            doc: "Bound on the time from one node's sending to all others' hearing, waking up included.",
        },
        Key {
            name: "long_wait",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "Whether the master waits for twice `t_br`.",
        },
        Key {
            name: "early_close",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "Whether an exchange ends as soon as all members were heard.",
        },
        Key {
            name: "min_cycle",
            kind: SHORT,
            presence: Presence::Default("\"2ms\""),
            doc: "A cycle takes at least this long: the pause between exchanges when there is nothing to send.",
        },
        Key {
            name: "rate",
            kind: Kind::Rate { min: BitRate(1_000), max: BitRate(1_000_000_000_000) },
            presence: Presence::Required,
            doc: "The rate of each of the cluster's links.",
        },
        Key {
            name: "overhead",
            kind: Kind::Integer { min: 0, max: 65_535, unit: "bytes" },
            presence: Presence::Default("38"),
            doc: "What a packet takes on the wire beyond its IP length.",
        },
        Key {
            name: "per_packet",
            kind: SHORT,
            presence: Presence::Default("\"0ns\""),
            doc: "A packet takes at least this long.",
        },
        Key {
            name: "decision",
            kind: SHORT,
            presence: Presence::Default("\"1us\""),
            doc: "Set aside for the decision of each round.",
        },
        Key {
            name: "guard",
            kind: SHORT,
            presence: Presence::Default("\"1us\""),
            doc: "Left between rounds.",
        },
        Key {
            name: "max_lag",
            kind: Kind::Size { min: Bytes(1 << 16), max: Bytes(1 << 32) },
            presence: Presence::Default("\"1MiB\""),
            doc: "What a class that could not be served is owed at most.",
        },
        Key {
            name: "checksum_every",
            kind: Kind::Integer { min: 1, max: 65_535, unit: "cycles" },
            presence: Presence::Default("64"),
            doc: "How often the clocks are compared.",
        },
        Key {
            name: "lost_after",
            kind: Kind::Integer { min: 1, max: 100, unit: "cycles" },
            presence: Presence::Default("3"),
            doc: "A member unheard for so long counts as empty.",
        },
        Key {
            name: "mtu",
            kind: Kind::Integer { min: 256, max: 9_000, unit: "bytes" },
            presence: Presence::Default("1500"),
            doc: "Longest payload of an exchange frame; longer announcements are cut.",
        },
        Key {
            name: "seed",
            kind: Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            presence: Presence::Default("1"),
            doc: "Seed of the ties.",
        },
        Key {
            name: "limit",
            kind: Kind::Integer { min: 1, max: 1_000_000, unit: "packets" },
            presence: Presence::Default("1000"),
            doc: "What a queue holds; more is dropped as `queue_full`.",
        },
        Key {
            name: "link",
            kind: Kind::Tables { section: &LINK, min: 1, max: MAX },
            presence: Presence::Required,
            doc: "The outgoing links, in the same order on all forwarders.",
        },
    ],
};

/// `[[cluster.link]]`.
pub static LINK: Section = Section {
    heading: "[[cluster.link]]",
    doc: "An outgoing link of the cluster: what is sent by `port` to one of `next_hops`.",
    keys: &[
        Key { name: "name", kind: NAME, presence: Presence::Required, doc: "Its name." },
        Key {
            name: "port",
            kind: NAME,
            presence: Presence::Required,
            doc: "The port of this forwarder that leads to it; several links may share one.",
        },
        Key {
            name: "next_hops",
            kind: Kind::List(&ADDRESS),
            presence: Presence::Optional("all that no other link of the port names"),
            doc: "The addresses of the routers behind it.",
        },
    ],
};

/// `[balancer]`.
pub static BALANCER: Section = Section {
    heading: "[balancer]",
    doc: "This router is a balancer: every flow that comes to its Ethernet address goes on to one forwarder, by nothing but another destination \
          address of the frame. Packets for the machine itself stay. See docs/cluster-live.md.",
    keys: &[
        Key {
            name: "port",
            kind: NAME,
            presence: Presence::Required,
            doc: "The port that the forwarders are behind.",
        },
        Key {
            name: "seed",
            kind: Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
            presence: Presence::Default("1"),
            doc: "Seed of the flow hash and of the table; the same on all balancers of a router.",
        },
        Key {
            name: "flows",
            kind: Kind::Integer { min: 4, max: 1 << 24, unit: "flows" },
            presence: Presence::Default("65536"),
            doc: "Flows that are remembered, 16 bytes each; rounded up to a power of two.",
        },
        Key {
            name: "idle",
            kind: Kind::Time { min: Nanos(1_000_000), max: Nanos(86_400_000_000_000) },
            presence: Presence::Default("\"60s\""),
            doc: "A flow that was silent for so long may be forgotten.",
        },
        Key {
            name: "forwarder",
            kind: Kind::Tables { section: &FORWARDER, min: 1, max: MAX },
            presence: Presence::Required,
            doc: "The forwarders; the same on all balancers of a router.",
        },
    ],
};

/// `[[balancer.forwarder]]`.
pub static FORWARDER: Section = Section {
    heading: "[[balancer.forwarder]]",
    doc: "A forwarder.",
    keys: &[
        Key { name: "id", kind: ID, presence: Presence::Required, doc: "Its id, as `cluster.node` there." },
        Key {
            name: "mac",
            kind: Kind::Text,
            presence: Presence::Required,
            doc: "Its Ethernet address: 02:00:00:00:00:01.",
        },
        Key {
            name: "weight",
            kind: Kind::Integer { min: 1, max: 256, unit: "" },
            presence: Presence::Default("256"),
            doc: "Its part of the new flows in relation to others.",
        },
        Key {
            name: "state",
            kind: STATE,
            presence: Presence::Default("\"active\""),
            doc: "What it gets; changes live: `evenkeel ctl balancer ID STATE`.",
        },
    ],
};

/// `[membership]`.
pub static MEMBERSHIP: Section = Section {
    heading: "[membership]",
    doc: "Members, weights of classes and the balancers' forwarders come from etcd and change live; what this file says of them holds until etcd has \
          said something, and whenever that does not fit. Needs an evenkeel built with the feature `etcd`. See docs/cluster-live.md.",
    keys: &[
        Key {
            name: "endpoints",
            kind: Kind::List(&Kind::Text),
            presence: Presence::Required,
            doc: "Where etcd is: `[\"http://10.0.0.1:2379\"]`. The packet path never waits for it.",
        },
        Key {
            name: "prefix",
            kind: Kind::Text,
            presence: Presence::Default("\"/evenkeel\""),
            doc: "What the keys of this cluster begin with.",
        },
        Key {
            name: "lease",
            kind: Kind::Time { min: Nanos(1_000_000_000), max: Nanos(3_600_000_000_000) },
            presence: Presence::Default("\"10s\""),
            doc: "A router that is not heard of for so long is not alive: balancers send nothing to such a forwarder. Whole seconds.",
        },
    ],
};

/// The states of a forwarder at a balancer.
pub const STATE: Kind = Kind::Choice(&[
    ("active", "new flows and those it has"),
    ("draining", "those it has"),
    ("out", "nothing: its flows go to others"),
]);
