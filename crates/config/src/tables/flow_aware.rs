//! The keys of flow-aware links: disciplines that tell streaming from elastic flows, and the admission of new flows.

use evenkeel_core::Bytes;
use evenkeel_core::admit;
use evenkeel_core::schedule::{afan, buffer, pdrr, pfq};

use super::{NAME, RATE, time};
use evenkeel_core::settings::schema::{Key, Kind, Presence, Section};

/// A whole number of a 64-bit range.
const fn whole(range: &std::ops::RangeInclusive<u64>, unit: &'static str) -> Kind {
    Kind::Integer { min: *range.start(), max: *range.end(), unit }
}

/// A whole number of a 32-bit range.
const fn whole32(range: &std::ops::RangeInclusive<u32>, unit: &'static str) -> Kind {
    Kind::Integer { min: *range.start() as u64, max: *range.end() as u64, unit }
}

/// A size within a range in bytes.
const fn size(range: &std::ops::RangeInclusive<u64>) -> Kind {
    Kind::Size { min: Bytes(*range.start()), max: Bytes(*range.end()) }
}

const BUFFER: Key = Key {
    name: "buffer",
    kind: whole32(&buffer::PACKETS_RANGE, "packets"),
    presence: Presence::Default("1000"),
    doc: "Most packets in all queues together. Changes live.",
};
const BUFFER_BYTES: Key = Key {
    name: "buffer_bytes",
    kind: size(&buffer::BYTES_RANGE),
    presence: Presence::Optional("`buffer` limits packets"),
    doc: "Most bytes in all queues together, instead of `buffer`. Changes live.",
};
const VICTIM: Key = Key {
    name: "victim",
    kind: Kind::Choice(&[("head", "the first: its sender notices a queue earlier"), ("tail", "the last")]),
    presence: Presence::Default("\"head\""),
    doc: "Which packet of the flow with the longest backlog goes when the buffer is full. Changes live.",
};
const FLOWS: Key = Key {
    name: "flows",
    kind: whole32(&buffer::FLOWS_RANGE, "flows"),
    presence: Presence::Default("10000"),
    doc: "Most flows that it keeps state of: those with packets inside, not those that are protected.",
};
const START_LIMIT: Key = Key {
    name: "start_limit",
    kind: size(&buffer::START_LIMIT_RANGE),
    presence: Presence::Optional("no bound, as published"),
    doc: "Bound of the peak of delay when many flows start at once: packets longer than an eighth of it have priority only while the \
          priority queue is not longer than this with them. Changes live; `none` takes it away.",
};

/// `kind = "pfq"`.
pub static PFQ: Section = Section {
    heading: "discipline = { kind = \"pfq\", … }",
    doc: "Priority fair queueing: every flow gets its fair share, and flows that send less than that go first. Logarithmic in the \
          number of flows. See docs/cross-protect.md.",
    keys: &[
        Key {
            name: "quantum",
            kind: size(&pfq::QUANTUM_RANGE),
            presence: Presence::Default("\"1500B\""),
            doc: "Bytes that a flow may put in with priority: the MTU. Changes live.",
        },
        BUFFER,
        BUFFER_BYTES,
        VICTIM,
        FLOWS,
        START_LIMIT,
    ],
};

/// `kind = "pdrr"`.
pub static PDRR: Section = Section {
    heading: "discipline = { kind = \"pdrr\", … }",
    doc: "Priority deficit round robin: as PFQ in constant time. See docs/cross-protect.md.",
    keys: &[
        Key {
            name: "quantum",
            kind: size(&pdrr::QUANTUM_RANGE),
            presence: Presence::Default("\"1500B\""),
            doc: "Bytes that a flow may send in a round, and put in with priority: at least the MTU. Changes live.",
        },
        BUFFER,
        BUFFER_BYTES,
        VICTIM,
        FLOWS,
        Key {
            name: "afl_linger",
            kind: time(&pdrr::AFL_LINGER_RANGE),
            presence: Presence::Default("\"0s\""),
            doc: "How long a flow whose queue is empty stays elastic, so that it does not change its class with every gap. 0: not \
                  at all, as published. Changes live.",
        },
        START_LIMIT,
    ],
};

/// `kind = "afan"`.
pub static AFAN: Section = Section {
    heading: "discipline = { kind = \"afan\", … }",
    doc: "Approximate flow-aware networking: one queue for streaming flows, one for elastic ones, shares by approximate fair \
          dropping. See docs/cross-protect.md.",
    keys: &[
        Key {
            name: "quantum",
            kind: size(&afan::QUANTUM_RANGE),
            presence: Presence::Default("\"1500B\""),
            doc: "Bytes of a flow that may wait with priority. Changes live.",
        },
        Key {
            name: "limit",
            kind: whole(&afan::LIMIT_RANGE, "packets"),
            presence: Presence::Default("500"),
            doc: "Most packets in each of the two queues. Changes live.",
        },
        FLOWS,
        Key {
            name: "window",
            kind: time(&afan::WINDOW_RANGE),
            presence: Presence::Default("\"500ms\""),
            doc: "Over which time elastic flows are counted for the fair rate: should be admission's `fair_rate_interval`. Changes live.",
        },
        Key {
            name: "afd",
            kind: Kind::Table(&AFD),
            presence: Presence::Default("{}"),
            doc: "The controller of approximate fair dropping. Changes live, all of it together.",
        },
        START_LIMIT,
    ],
};

/// `afd` of `kind = "afan"`.
pub static AFD: Section = Section {
    heading: "afd = { … }",
    doc: "Approximate fair dropping keeps the elastic queue at `target`: a flow with more packets in a sample of recent arrivals than the \
          fair number loses the part above it.",
    keys: &[
        Key {
            name: "shadow",
            kind: whole(&afan::SHADOW_RANGE, "packets"),
            presence: Presence::Default("1000"),
            doc: "Size of the sample.",
        },
        Key {
            name: "sample",
            kind: whole(&afan::SAMPLE_RANGE, "arrivals"),
            presence: Presence::Default("5"),
            doc: "One of so many arrivals is sampled.",
        },
        Key {
            name: "target",
            kind: whole(&afan::TARGET_RANGE, "packets"),
            presence: Presence::Default("50"),
            doc: "Length that the elastic queue is steered to.",
        },
        Key {
            name: "alpha",
            kind: Kind::Number { min: 0.0, max: 1000.0 },
            presence: Presence::Default("1.7"),
            doc: "Gain for the queue before.",
        },
        Key {
            name: "beta",
            kind: Kind::Number { min: 0.0, max: 1000.0 },
            presence: Presence::Default("1.8"),
            doc: "Gain for the queue now.",
        },
        Key {
            name: "interval",
            kind: time(&afan::INTERVAL_RANGE),
            presence: Presence::Default("\"6250us\""),
            doc: "Time between two steps of the controller.",
        },
    ],
};

static PREFIX: Kind = Kind::Prefix;

/// `[flows]`.
pub static LISTS: Section = Section {
    heading: "[flows]",
    doc: "What the admissions of all links share: the list of streaming flows that survive a change of path, and who may always enter.",
    keys: &[
        Key {
            name: "global_list",
            kind: whole(&admit::LIST_RANGE, "flows"),
            presence: Presence::Default("100000"),
            doc: "Size of the global list of protected flows (GPFL). Fixed while the router runs.",
        },
        Key {
            name: "global_timeout",
            kind: time(&admit::TIMEOUT_RANGE),
            presence: Presence::Default("\"20s\""),
            doc: "A flow that is silent for longer leaves the global list. Fixed while the router runs.",
        },
        Key {
            name: "k_add",
            kind: whole(&admit::K_ADD_RANGE, "packets"),
            presence: Presence::Default("1"),
            doc: "So many packets in a row with priority, and a flow is on the global list; the first without takes it off. Fixed while the \
                  router runs.",
        },
        Key {
            name: "emergency_sources",
            kind: Kind::List(&PREFIX),
            presence: Presence::Optional("none"),
            doc: "Packets from these prefixes are of emergency flows (ECM). Changes by reload.",
        },
        Key {
            name: "emergency_destinations",
            kind: Kind::List(&PREFIX),
            presence: Presence::Optional("none"),
            doc: "Packets to these prefixes are of emergency flows (ECM). Changes by reload.",
        },
    ],
};

const SHARE: Kind = Kind::Number { min: 0.0, max: 1.0 };
const SOME_SHARE: Kind = Kind::Number { min: 0.000_001, max: 1.0 };

/// `[link.admission]`.
pub static ADMISSION: Section = Section {
    heading: "[link.admission]",
    doc: "Who may enter a link: while it is congested (fair rate below the minimum, or priority load above the maximum), packets of flows that are \
          not on its list of protected flows are refused. Every key changes live, unless it says otherwise: \
          `evenkeel ctl set wan admission.max_accept_delay 2s`. See docs/cross-protect.md.",
    keys: &[
        Key {
            name: "rate",
            kind: RATE,
            presence: Presence::Optional("that of the link"),
            doc: "Capacity, counted in IP packets, that the two thresholds are shares of. Needed on links without a rate.",
        },
        Key {
            name: "min_fair_rate",
            kind: SHARE,
            presence: Presence::Default("0.05"),
            doc: "min_FR: below this share of the rate for one more flow, new flows are refused.",
        },
        Key {
            name: "max_priority_load",
            kind: SOME_SHARE,
            presence: Presence::Default("0.7"),
            doc: "max_PL: above this load by streaming flows, new flows are refused.",
        },
        Key {
            name: "fair_rate_interval",
            kind: time(&admit::FAIR_RATE_INTERVAL_RANGE),
            presence: Presence::Default("\"500ms\""),
            doc: "T_FR: how often the fair rate is estimated.",
        },
        Key {
            name: "load_interval",
            kind: time(&admit::LOAD_INTERVAL_RANGE),
            presence: Presence::Default("\"50ms\""),
            doc: "T_PL: how often the priority load is estimated.",
        },
        Key {
            name: "smoothing",
            kind: Kind::Number { min: 0.0, max: 0.99 },
            presence: Presence::Default("0"),
            doc: "Weight of the old fair rate in the new one. 0.1 is published for AFAN.",
        },
        Key {
            name: "flow_timeout",
            kind: time(&admit::TIMEOUT_RANGE),
            presence: Presence::Default("\"20s\""),
            doc: "A flow that is silent for longer loses its protection.",
        },
        Key {
            name: "class_window",
            kind: Kind::Time {
                min: evenkeel_core::Nanos(0),
                max: evenkeel_core::Nanos(*admit::TIMEOUT_RANGE.end()),
            },
            presence: Presence::Default("\"0s\""),
            doc: "A flow is elastic if a packet of it had no priority within this time. 0: within `fair_rate_interval`.",
        },
        Key {
            name: "flows",
            kind: whole(&admit::LIST_RANGE, "flows"),
            presence: Presence::Default("100000"),
            doc: "Size of the list of protected flows; a full list is congestion. Does not change live.",
        },
        Key {
            name: "listing_chance",
            kind: SOME_SHARE,
            presence: Presence::Default("1"),
            doc: "Chance that a flow that is let in is also listed; the others are asked again at their next packet.",
        },
        Key {
            name: "bypass_control",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether what keeps the network running needs no admission: ICMP, IGMP, RSVP, EIGRP, OSPF, PIM, VRRP, IS-IS, BGP (TCP port 179), RIP (UDP 520, 521), BFD (UDP 3784, 4784).",
        },
        Key {
            name: "budget",
            kind: Kind::Switch,
            presence: Presence::Default("true"),
            doc: "Whether first packets are limited between two estimates: to (max_PL - PL) C T_PL / 8 bytes.",
        },
        Key {
            name: "budget_share",
            kind: SOME_SHARE,
            presence: Presence::Default("1"),
            doc: "Most of the rate that first packets may take.",
        },
        Key {
            name: "budget_burst",
            kind: Kind::Time {
                min: evenkeel_core::Nanos(0),
                max: evenkeel_core::Nanos(*admit::LOAD_INTERVAL_RANGE.end()),
            },
            presence: Presence::Default("\"0s\""),
            doc: "How much of an interval's budget may be used ahead of time, as a time, from 100 us; shorter ones spread the admissions. 0: all.",
        },
        Key {
            name: "flood_share",
            kind: SOME_SHARE,
            presence: Presence::Default("0.03"),
            doc: "Most of the rate that first packets may take while few of the flows let in are ever seen again.",
        },
        Key {
            name: "probation",
            kind: Kind::Time {
                min: evenkeel_core::Nanos(0),
                max: evenkeel_core::Nanos(*admit::TIMEOUT_RANGE.end()),
            },
            presence: Presence::Default("\"1s\""),
            doc: "A flow of which only one packet was ever seen is given up after this time; at most `flow_timeout`. 0: no such rule.",
        },
        Key {
            name: "history",
            kind: whole(&admit::LIST_RANGE, "flows"),
            presence: Presence::Default("4096"),
            doc: "Flows, refused ones included, of which it is remembered what happened to them: what `ctl explain` tells, and how long \
                  they waited. Does not change live.",
        },
        Key {
            name: "emergency",
            kind: Kind::Choice(&[
                ("bypass", "they are always let in"),
                ("thresholds", "they have thresholds of their own"),
                ("off", "they are like others"),
            ]),
            presence: Presence::Default("\"bypass\""),
            doc: "ECM: what is done for emergency flows, as `[flows]` names them.",
        },
        Key {
            name: "emergency_min_fair_rate",
            kind: SHARE,
            presence: Presence::Default("0.025"),
            doc: "Their min_FR, with `emergency = \"thresholds\"`.",
        },
        Key {
            name: "emergency_max_priority_load",
            kind: SOME_SHARE,
            presence: Presence::Default("0.8"),
            doc: "Their max_PL, with `emergency = \"thresholds\"`.",
        },
        Key {
            name: "eccm",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "ECCM: a link that has been closed for `max_accept_delay` opens for half of T_FR; elastic flows that came in go again.",
        },
        Key {
            name: "max_accept_delay",
            kind: time(&admit::PERIOD_RANGE),
            presence: Presence::Default("\"6s\""),
            doc: "How long the link may stay closed with `eccm`. 6 s is ITU-T E.721's for local calls.",
        },
        Key {
            name: "eccm_table",
            kind: whole(&admit::LIST_RANGE, "flows"),
            presence: Presence::Default("4096"),
            doc: "Flows that one opening may let in.",
        },
        Key {
            name: "global_list",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "GPFL: streaming flows that are protected on any link of this router enter this one at once, congested or not.",
        },
        Key {
            name: "per_user",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "PUF: limits the flows that a user may start between two estimates of the fair rate.",
        },
        Key {
            name: "user_flows",
            kind: whole(&admit::QUOTA_RANGE, "flows"),
            presence: Presence::Default("2"),
            doc: "N: how many, with `per_user`.",
        },
        Key {
            name: "user_ipv4_prefix",
            kind: Kind::Integer { min: 1, max: 32, unit: "bits" },
            presence: Presence::Default("32"),
            doc: "Bits of an IPv4 source address that make a user.",
        },
        Key {
            name: "user_ipv6_prefix",
            kind: Kind::Integer { min: 1, max: 128, unit: "bits" },
            presence: Presence::Default("64"),
            doc: "Bits of an IPv6 source address that make a user: those a subscriber cannot choose.",
        },
        Key {
            name: "users",
            kind: whole(&admit::LIST_RANGE, "users"),
            presence: Presence::Default("16384"),
            doc: "Users told apart in an interval; beyond that users share counters.",
        },
        Key {
            name: "flushing",
            kind: Kind::Choice(&[
                ("off", "none"),
                ("all", "all flows"),
                ("efm", "elastic flows"),
                ("efmp", "elastic flows, which may then come back first"),
                ("raef", "elastic flows listed for `active_time`"),
                ("rbaef", "the same, blocked for `blocking_time`"),
                ("rpaef", "the same, which may then come back first"),
                ("ramaf", "the `most_active` elastic flows, which may then come back first"),
                ("rmaef", "the `most_active` elastic flows"),
            ]),
            presence: Presence::Default("\"off\""),
            doc: "Which flows lose their protection when a new one meets a congested link.",
        },
        Key {
            name: "flush_interval",
            kind: time(&admit::PERIOD_RANGE),
            presence: Presence::Default("\"5s\""),
            doc: "T_clear: least time between two such clearings.",
        },
        Key {
            name: "active_time",
            kind: time(&admit::PERIOD_RANGE),
            presence: Presence::Default("\"5s\""),
            doc: "Least time on the list of flows that `raef`, `rbaef` and `rpaef` take off.",
        },
        Key {
            name: "blocking_time",
            kind: time(&admit::PERIOD_RANGE),
            presence: Presence::Default("\"500ms\""),
            doc: "How long `rbaef` blocks.",
        },
        Key {
            name: "priority_access_time",
            kind: time(&admit::PERIOD_RANGE),
            presence: Presence::Default("\"1s\""),
            doc: "How long flows that may come back first are waited for.",
        },
        Key {
            name: "others_chance",
            kind: SHARE,
            presence: Presence::Default("0.03"),
            doc: "Chance of any other new flow meanwhile.",
        },
        Key {
            name: "most_active",
            kind: whole(&admit::MOST_ACTIVE_RANGE, "flows"),
            presence: Presence::Default("10"),
            doc: "K of `ramaf` and `rmaef`.",
        },
        Key {
            name: "flush_table",
            kind: whole(&admit::LIST_RANGE, "flows"),
            presence: Presence::Default("4096"),
            doc: "Size of the list of blocked or awaited flows.",
        },
        Key {
            name: "pinning",
            kind: Kind::Switch,
            presence: Presence::Default("false"),
            doc: "Path pinning: of the next hops of a route whose links all have it, a new flow takes the cheapest and stays there. A next hop costs 65536 / weight; those that cost the same share flows as without.",
        },
        Key {
            name: "cost_factor",
            kind: whole(&admit::COST_FACTOR_RANGE, ""),
            presence: Presence::Default("10"),
            doc: "k: how many times as much the link costs from an estimate that says congested until 3 T_FR after the last one.",
        },
        Key {
            name: "second_link",
            kind: NAME,
            presence: Presence::Optional("none"),
            doc: "MFAN: the port of a second link to the same next router, for flows that this one has no room for. Changes by reload.",
        },
        Key {
            name: "second_via",
            kind: Kind::Prefix,
            presence: Presence::Optional("the destination itself is the neighbour"),
            doc: "The next router's address on the second link. Changes by reload.",
        },
        Key {
            name: "second_link_policy",
            kind: Kind::Choice(&[
                ("newest", "the new one"),
                ("most-active", "the one with most bytes waiting"),
                ("oldest", "the one protected longest"),
            ]),
            presence: Presence::Default("\"newest\""),
            doc: "Which flow leaves for the second link when a new one meets congestion.",
        },
        Key {
            name: "second_link_max_load",
            kind: SOME_SHARE,
            presence: Presence::Default("0.9"),
            doc: "Above this load the second link takes no more flows.",
        },
        Key {
            name: "second_link_flows",
            kind: whole(&admit::LIST_RANGE, "flows"),
            presence: Presence::Default("16384"),
            doc: "Size of its list of flows.",
        },
    ],
};
