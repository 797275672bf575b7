//! The keys of `[[service]]`.

use super::{
    MATCH_DESTINATION, MATCH_DESTINATION_PORT, MATCH_DSCP, MATCH_PROTOCOL, MATCH_SOURCE,
    MATCH_SOURCE_PORT, NAME,
};
use evenkeel_core::settings::schema::{Key, Kind, Section};

/// Most services of a router.
pub const MAX: usize = 63;

/// `[[service]]`.
pub static SERVICE: Section = Section {
    heading: "[[service]]",
    doc: "Costly work done on the packets of the classes that name it, between route and link. \
          What it costs is measured per class: `evenkeel ctl show`.",
    own: &[
        Key::required("name", NAME, "Its name in this file and in counters. Unique."),
        Key::required("work", Kind::Variants(WORKS), "What is done."),
    ],
    parts: &[],
};

/// The services by their `kind`.
pub static WORKS: &[(&str, &Section)] = &[("esp", &ESP), ("acl", &ACL), ("spin", &SPIN)];

/// `kind = "esp"`.
pub static ESP: Section = Section {
    heading: "work = { kind = \"esp\", … }",
    doc: "Encryption into an ESP tunnel with AES-GCM (RFC 4303, RFC 4106), outbound. The packets \
          of the tunnel are routed to `remote`; class \
          and flow stay those of the packet inside. It takes 54 to 57 bytes of each packet's MTU \
          (IPv6: 74 to 77). See docs/fairdrop-router.md, also \
          on keys in files.",
    own: &[
        Key::required("local", Kind::Prefix, "Where the tunnel starts: an address of this router."),
        Key::required("remote", Kind::Prefix, "Where it ends. There must be a route to it."),
        Key::required(
            "spi",
            Kind::Integer { min: 256, max: u32::MAX as u64, unit: "" },
            "The security parameters index: how the receiver finds the key.",
        ),
        Key::required(
            "key",
            Kind::Text,
            "AES key of 16 or 32 bytes and the salt of 4, in hexadecimal, as `ip xfrm` takes it. \
             Use it nowhere else.",
        ),
        Key::defaulted(
            "esn",
            Kind::Switch,
            "false",
            "Sequence numbers of 64 bits. Without, the tunnel ends after 2^32 - 1 packets with the \
             reason `esp_exhausted`.",
        ),
        Key::defaulted(
            "df",
            Kind::Choice(&[
                ("copy", "as the packet inside has it"),
                ("set", "packets of the tunnel are never cut"),
                ("clear", "they may be"),
            ]),
            "\"copy\"",
            "The don't-fragment bit of the tunnel's packets (IPv4). A packet that then does not \
             fit is refused, and its sender \
                  told the MTU of the tunnel.",
        ),
        Key::optional(
            "dscp",
            Kind::Integer { min: 0, max: 63, unit: "" },
            "as the packet inside has it",
            "The DSCP of the tunnel's packets.",
        ),
        Key::defaulted(
            "ttl",
            Kind::Integer { min: 1, max: 255, unit: "hops" },
            "64",
            "The time to live of the tunnel's packets.",
        ),
    ],
    parts: &[],
};

const ACTION: Kind =
    Kind::Choice(&[("permit", "it passes"), ("deny", "it is dropped as `acl_denied`")]);

/// `kind = "acl"`.
pub static ACL: Section = Section {
    heading: "work = { kind = \"acl\", … }",
    doc: "A list of rules, looked through from the first to the one that fits: cost grows with the \
          place of that rule.",
    own: &[
        Key::optional(
            "rules",
            Kind::Tables { section: &ACL_RULE, min: 0, max: 65_536 },
            "none",
            "The rules in their order.",
        ),
        Key::defaulted(
            "default",
            ACTION,
            "\"permit\"",
            "What happens to a packet that no rule fits.",
        ),
        Key::defaulted(
            "fill",
            Kind::Integer { min: 0, max: 65_536, unit: "rules" },
            "0",
            "Rules before all others that no packet fits: for measuring what long lists cost. \
             Together with `rules` at most 65536.",
        ),
    ],
    parts: &[],
};

/// An entry of `rules`.
pub static ACL_RULE: Section = Section {
    heading: "rules = [{ … }]",
    doc: "A rule: everything it names must fit.",
    own: &[
        Key::required("action", ACTION, "What happens to a packet that fits."),
        MATCH_DSCP,
        MATCH_SOURCE,
        MATCH_DESTINATION,
        MATCH_PROTOCOL,
        MATCH_SOURCE_PORT,
        MATCH_DESTINATION_PORT,
    ],
    parts: &[],
};

/// `kind = "spin"`.
pub static SPIN: Section = Section {
    heading: "work = { kind = \"spin\", … }",
    doc: "Burns cycles and does nothing: for reproducing measurements.",
    own: &[Key::required(
        "cycles",
        Kind::Integer { min: 1, max: 100_000_000, unit: "cycles" },
        "Cycles per packet, by the time-stamp counter; nanoseconds where that cannot be trusted.",
    )],
    parts: &[],
};
