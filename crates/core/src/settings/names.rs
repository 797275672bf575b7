//! Numbers that have names in configuration files.

/// Protocols above IP, as the registry of IANA and `/etc/protocols` name them.
pub const PROTOCOLS: &[(&str, u8)] = &[
    ("udp", 17),
    ("tcp", 6),
    ("icmp", 1),
    ("icmpv6", 58),
    ("sctp", 132),
    ("dccp", 33),
    ("udplite", 136),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipip", 4),
    ("ipv6", 41),
    ("l2tp", 115),
    ("igmp", 2),
    ("pim", 103),
    ("ospf", 89),
    ("vrrp", 112),
];

/// Code points of differentiated services (RFC 2474, RFC 2597, RFC 3246, RFC 5865, RFC 8622).
pub const DSCPS: &[(&str, u8)] = &[
    ("ef", 46),
    ("af41", 34),
    ("cs1", 8),
    ("le", 1),
    ("cs0", 0),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("cs6", 48),
    ("cs7", 56),
];

/// The number of a name, whatever its case.
#[must_use]
pub fn number_of(names: &[(&str, u8)], name: &str) -> Option<u8> {
    names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, number)| *number)
}
