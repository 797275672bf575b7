//! The keys of flow-aware links: disciplines that tell streaming from elastic flows, and the admission of new flows.

use evenkeel_core::Bytes;
use evenkeel_core::admit;
use evenkeel_core::schedule::{afan, buffer, pdrr, pfq};

use super::{NAME, RATE, time};
use evenkeel_core::settings::schema::{Key, Kind, Section};

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

const BUFFER: Key = Key::defaulted(
    "buffer",
    whole32(&buffer::PACKETS_RANGE, "packets"),
    "1000",
    "Most packets in all queues together. Changes live.",
);
const BUFFER_BYTES: Key = Key::optional(
    "buffer_bytes",
    size(&buffer::BYTES_RANGE),
    "`buffer` limits packets",
    "Most bytes in all queues together, as packets take them on the wire, instead of `buffer`. Changes live.",
);
const VICTIM: Key = Key::defaulted(
    "victim",
    Kind::Choice(&[("head", "the first: its sender notices a queue earlier"), ("tail", "the last")]),
    "\"head\"",
    "Which packet of the flow with the longest backlog goes when the buffer is full. Changes live.",
);
const FLOWS: Key = Key::defaulted(
    "flows",
    whole32(&buffer::FLOWS_RANGE, "flows"),
    "10000",
    "Most flows that it keeps state of: those with packets inside, not those that are protected.",
);
const START_LIMIT: Key = Key::optional(
    "start_limit",
    size(&buffer::START_LIMIT_RANGE),
    "no bound, as published",
    "Bound of the peak of delay when many flows start at once: packets longer than an eighth of it have priority only while the \
          priority queue is not longer than this with them. Changes live; `none` takes it away.",
);

/// `kind = "pfq"`.
pub static PFQ: Section = Section {
    heading: "discipline = { kind = \"pfq\", … }",
    doc: "Priority fair queueing: every flow gets its fair share, and flows that send less than that go first. Logarithmic in the \
          number of flows. See docs/cross-protect.md.",
    own: &[
        Key::defaulted(
            "quantum",
            size(&pfq::QUANTUM_RANGE),
            "\"1538B\"",
            "Bytes that a flow may put in with priority: an IP packet of 1500 bytes and what the wire adds to it. Changes live.",
        ),
        BUFFER,
        BUFFER_BYTES,
        VICTIM,
        FLOWS,
        START_LIMIT,
    ],
    parts: &[],
};

/// `kind = "pdrr"`.
pub static PDRR: Section = Section {
    heading: "discipline = { kind = \"pdrr\", … }",
    doc: "Priority deficit round robin: as PFQ in constant time. See docs/cross-protect.md.",
    own: &[
        Key::defaulted(
            "quantum",
            size(&pdrr::QUANTUM_RANGE),
            "\"1538B\"",
            "Bytes that a flow may send in a round, and put in with priority: at least the longest frame on the wire, which is the MTU and 38 bytes. Changes live.",
        ),
        BUFFER,
        BUFFER_BYTES,
        VICTIM,
        FLOWS,
        Key::defaulted(
            "afl_linger",
            time(&pdrr::AFL_LINGER_RANGE),
            "\"0s\"",
            "How long a flow whose queue is empty stays elastic, so that it does not change its class with every gap. 0: not \
                  at all, as published. Changes live.",
        ),
        START_LIMIT,
    ],
    parts: &[],
};

/// `kind = "afan"`.
pub static AFAN: Section = Section {
    heading: "discipline = { kind = \"afan\", … }",
    doc: "Approximate flow-aware networking: one queue for streaming flows, one for elastic ones, shares by approximate fair \
          dropping. See docs/cross-protect.md.",
    own: &[
        Key::defaulted(
            "quantum",
            size(&afan::QUANTUM_RANGE),
            "\"1538B\"",
            "Bytes of a flow that may wait with priority, as they are on the wire. Changes live.",
        ),
        Key::defaulted(
            "limit",
            whole(&afan::LIMIT_RANGE, "packets"),
            "500",
            "Most packets in each of the two queues. Changes live.",
        ),
        FLOWS,
        Key::defaulted(
            "window",
            time(&afan::WINDOW_RANGE),
            "\"500ms\"",
            "Over which time elastic flows are counted for the fair rate: should be admission's `fair_rate_interval`. Changes live.",
        ),
        Key::defaulted(
            "afd",
            Kind::Table(&AFD),
            "{}",
            "The controller of approximate fair dropping. Changes live, all of it together.",
        ),
        START_LIMIT,
    ],
    parts: &[],
};

/// `afd` of `kind = "afan"`.
pub static AFD: Section = Section {
    heading: "afd = { … }",
    doc: "Approximate fair dropping keeps the elastic queue at `target`: a flow with more packets in a sample of recent arrivals than the \
          fair number loses the part above it.",
    own: &[
        Key::defaulted("shadow", whole(&afan::SHADOW_RANGE, "packets"), "1000", "Size of the sample."),
        Key::defaulted(
            "sample",
            whole(&afan::SAMPLE_RANGE, "arrivals"),
            "5",
            "One of so many arrivals is sampled.",
        ),
        Key::defaulted(
            "target",
            whole(&afan::TARGET_RANGE, "packets"),
            "50",
            "Length that the elastic queue is steered to.",
        ),
        Key::defaulted("alpha", Kind::Number { min: 0.0, max: 1000.0 }, "1.7", "Gain for the queue before."),
        Key::defaulted("beta", Kind::Number { min: 0.0, max: 1000.0 }, "1.8", "Gain for the queue now."),
        Key::defaulted(
            "interval",
            time(&afan::INTERVAL_RANGE),
            "\"6250us\"",
            "Time between two steps of the controller.",
        ),
    ],
    parts: &[],
};

static PREFIX: Kind = Kind::Prefix;

/// `[flows]`.
pub static LISTS: Section = Section {
    heading: "[flows]",
    doc: "What the admissions of all links share: the list of streaming flows that survive a change of path, and who may always enter.",
    own: &[
        Key::defaulted(
            "global_list",
            whole(&admit::LIST_RANGE, "flows"),
            "100000",
            "Size of the global list of protected flows (GPFL). Fixed while the router runs.",
        ),
        Key::defaulted(
            "global_timeout",
            time(&admit::TIMEOUT_RANGE),
            "\"20s\"",
            "A flow that is silent for longer leaves the global list. Fixed while the router runs.",
        ),
        Key::defaulted(
            "k_add",
            whole(&admit::K_ADD_RANGE, "packets"),
            "1",
            "So many packets in a row with priority, and a flow is on the global list; the first without takes it off. Fixed while the \
                  router runs.",
        ),
        Key::optional(
            "emergency_sources",
            Kind::List(&PREFIX),
            "none",
            "Packets from these prefixes are of emergency flows (ECM). Changes by reload.",
        ),
        Key::optional(
            "emergency_destinations",
            Kind::List(&PREFIX),
            "none",
            "Packets to these prefixes are of emergency flows (ECM). Changes by reload.",
        ),
    ],
    parts: &[],
};

const SHARE: Kind = Kind::Number { min: 0.0, max: 1.0 };
const SOME_SHARE: Kind = Kind::Number { min: 0.000_001, max: 1.0 };

/// `[link.admission]`.
pub static ADMISSION: Section = Section {
    heading: "[link.admission]",
    doc: "Who may enter a link: while it is congested (fair rate below the minimum, or priority load above the maximum), packets of flows that are \
          not on its list of protected flows are refused. Every key changes live, unless it says otherwise: \
          `evenkeel ctl set wan admission.max_accept_delay 2s`. See docs/cross-protect.md.",
    own: &[
        Key::optional(
            "rate",
            RATE,
            "that of the link",
            "Capacity, counted in IP packets, that the two thresholds are shares of. Needed on links without a rate.",
        ),
        Key::defaulted(
            "min_fair_rate",
            SHARE,
            "0.05",
            "min_FR: below this share of the rate for one more flow, new flows are refused.",
        ),
        Key::defaulted(
            "max_priority_load",
            SOME_SHARE,
            "0.7",
            "max_PL: above this load by streaming flows, new flows are refused.",
        ),
        Key::defaulted(
            "fair_rate_interval",
            time(&admit::FAIR_RATE_INTERVAL_RANGE),
            "\"500ms\"",
            "T_FR: how often the fair rate is estimated.",
        ),
        Key::defaulted(
            "load_interval",
            time(&admit::LOAD_INTERVAL_RANGE),
            "\"50ms\"",
            "T_PL: how often the priority load is estimated.",
        ),
        Key::defaulted(
            "smoothing",
            Kind::Number { min: 0.0, max: 0.99 },
            "0",
            "Weight of the old fair rate in the new one. 0.1 is published for AFAN.",
        ),
        Key::defaulted(
            "flow_timeout",
            time(&admit::TIMEOUT_RANGE),
            "\"20s\"",
            "A flow that is silent for longer loses its protection.",
        ),
        Key::defaulted(
            "class_window",
            Kind::Time {
                min: evenkeel_core::Nanos(0),
                max: evenkeel_core::Nanos(*admit::TIMEOUT_RANGE.end()),
            },
            "\"0s\"",
            "A flow is elastic if a packet of it had no priority within this time. 0: within `fair_rate_interval`.",
        ),
        Key::defaulted(
            "flows",
            whole(&admit::LIST_RANGE, "flows"),
            "100000",
            "Size of the list of protected flows; a full list is congestion. Does not change live.",
        ),
        Key::defaulted(
            "listing_chance",
            SOME_SHARE,
            "1",
            "Chance that a flow that is let in is also listed; the others are asked again at their next packet.",
        ),
        Key::defaulted(
            "bypass_control",
            Kind::Switch,
            "true",
            "Whether what keeps the network running needs no admission: ICMP, IGMP, RSVP, EIGRP, OSPF, PIM, VRRP, IS-IS, BGP (TCP port 179), RIP (UDP 520, 521), BFD (UDP 3784, 4784).",
        ),
        Key::defaulted(
            "budget",
            Kind::Switch,
            "true",
            "Whether first packets are limited between two estimates: to (max_PL - PL) C T_PL / 8 bytes.",
        ),
        Key::defaulted("budget_share", SOME_SHARE, "1", "Most of the rate that first packets may take."),
        Key::defaulted(
            "budget_burst",
            Kind::Time {
                min: evenkeel_core::Nanos(0),
                max: evenkeel_core::Nanos(*admit::LOAD_INTERVAL_RANGE.end()),
            },
            "\"0s\"",
            "How much of an interval's budget may be used ahead of time, as a time, from 100 us; shorter ones spread the admissions. 0: all.",
        ),
        Key::defaulted(
            "flood_share",
            SOME_SHARE,
            "0.03",
            "Most of the rate that first packets may take while few of the flows let in are ever seen again.",
        ),
        Key::defaulted(
            "probation",
            Kind::Time {
                min: evenkeel_core::Nanos(0),
                max: evenkeel_core::Nanos(*admit::TIMEOUT_RANGE.end()),
            },
            "\"1s\"",
            "A flow of which only one packet was ever seen is given up after this time; at most `flow_timeout`. 0: no such rule.",
        ),
        Key::defaulted(
            "history",
            whole(&admit::LIST_RANGE, "flows"),
            "4096",
            "Flows, refused ones included, of which it is remembered what happened to them: what `ctl explain` tells, and how long \
                  they waited. Does not change live.",
        ),
        Key::defaulted(
            "emergency",
            Kind::Choice(&[
                ("bypass", "they are always let in"),
                ("thresholds", "they have thresholds of their own"),
                ("off", "they are like others"),
            ]),
            "\"bypass\"",
            "ECM: what is done for emergency flows, as `[flows]` names them.",
        ),
        Key::defaulted(
            "emergency_min_fair_rate",
            SHARE,
            "0.025",
            "Their min_FR, with `emergency = \"thresholds\"`.",
        ),
        Key::defaulted(
            "emergency_max_priority_load",
            SOME_SHARE,
            "0.8",
            "Their max_PL, with `emergency = \"thresholds\"`.",
        ),
        Key::defaulted(
            "eccm",
            Kind::Switch,
            "false",
            "ECCM: a link that has been closed for `max_accept_delay` opens for half of T_FR; elastic flows that came in go again.",
        ),
        Key::defaulted(
            "max_accept_delay",
            time(&admit::PERIOD_RANGE),
            "\"6s\"",
            "How long the link may stay closed with `eccm`. 6 s is ITU-T E.721's for local calls.",
        ),
        Key::defaulted(
            "eccm_table",
            whole(&admit::LIST_RANGE, "flows"),
            "4096",
            "Flows that one opening may let in.",
        ),
        Key::defaulted(
            "global_list",
            Kind::Switch,
            "false",
            "GPFL: streaming flows that are protected on any link of this router enter this one at once, congested or not.",
        ),
        Key::defaulted(
            "per_user",
            Kind::Switch,
            "false",
            "PUF: limits the flows that a user may start between two estimates of the fair rate.",
        ),
        Key::defaulted(
            "user_flows",
            whole(&admit::QUOTA_RANGE, "flows"),
            "2",
            "N: how many, with `per_user`.",
        ),
        Key::defaulted(
            "user_ipv4_prefix",
            Kind::Integer { min: 1, max: 32, unit: "bits" },
            "32",
            "Bits of an IPv4 source address that make a user.",
        ),
        Key::defaulted(
            "user_ipv6_prefix",
            Kind::Integer { min: 1, max: 128, unit: "bits" },
            "64",
            "Bits of an IPv6 source address that make a user: those a subscriber cannot choose.",
        ),
        Key::defaulted(
            "users",
            whole(&admit::LIST_RANGE, "users"),
            "16384",
            "Users told apart in an interval; beyond that users share counters.",
        ),
        Key::defaulted(
            "flushing",
            Kind::Choice(&[
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
            "\"off\"",
            "Which flows lose their protection when a new one meets a congested link.",
        ),
        Key::defaulted(
            "flush_interval",
            time(&admit::PERIOD_RANGE),
            "\"5s\"",
            "T_clear: least time between two such clearings.",
        ),
        Key::defaulted(
            "active_time",
            time(&admit::PERIOD_RANGE),
            "\"5s\"",
            "Least time on the list of flows that `raef`, `rbaef` and `rpaef` take off.",
        ),
        Key::defaulted("blocking_time", time(&admit::PERIOD_RANGE), "\"500ms\"", "How long `rbaef` blocks."),
        Key::defaulted(
            "priority_access_time",
            time(&admit::PERIOD_RANGE),
            "\"1s\"",
            "How long flows that may come back first are waited for.",
        ),
        Key::defaulted("others_chance", SHARE, "0.03", "Chance of any other new flow meanwhile."),
        Key::defaulted(
            "most_active",
            whole(&admit::MOST_ACTIVE_RANGE, "flows"),
            "10",
            "K of `ramaf` and `rmaef`.",
        ),
        Key::defaulted(
            "flush_table",
            whole(&admit::LIST_RANGE, "flows"),
            "4096",
            "Size of the list of blocked or awaited flows.",
        ),
        Key::defaulted(
            "pinning",
            Kind::Switch,
            "false",
            "Path pinning: of the next hops of a route whose links all have it, a new flow takes the cheapest and stays there. A next hop costs 65536 / weight; those that cost the same share flows as without.",
        ),
        Key::defaulted(
            "cost_factor",
            whole(&admit::COST_FACTOR_RANGE, ""),
            "10",
            "k: how many times as much the link costs from an estimate that says congested until 3 T_FR after the last one.",
        ),
        Key::optional(
            "second_link",
            NAME,
            "none",
            "MFAN: the port of a second link to the same next router, for flows that this one has no room for. Changes by reload.",
        ),
        Key::optional(
            "second_via",
            Kind::Prefix,
            "the destination itself is the neighbour",
            "The next router's address on the second link. Changes by reload.",
        ),
        Key::defaulted(
            "second_link_policy",
            Kind::Choice(&[
                ("newest", "the new one"),
                ("most-active", "the one with most bytes waiting"),
                ("oldest", "the one protected longest"),
            ]),
            "\"newest\"",
            "Which flow leaves for the second link when a new one meets congestion.",
        ),
        Key::defaulted(
            "second_link_max_load",
            SOME_SHARE,
            "0.9",
            "Above this load the second link takes no more flows.",
        ),
        Key::defaulted(
            "second_link_flows",
            whole(&admit::LIST_RANGE, "flows"),
            "16384",
            "Size of its list of flows.",
        ),
    ],
    parts: &[],
};
