//! The keys of flow-aware links: disciplines that tell streaming from elastic flows, and the admission of new flows.

use evenkeel_core::Bytes;
use evenkeel_core::schedule::{afan, buffer, pdrr, pfq};

use super::time;
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
