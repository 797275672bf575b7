//! What forwarding needs to know of a frame, found out once.

use std::net::IpAddr;

use evenkeel_core::class_map::ClassMap;
use evenkeel_core::flow_table::PackedFlow;
use evenkeel_core::{Class, FlowKey, Reason};
use evenkeel_net::below;
use evenkeel_net::fib::Decision;
use evenkeel_net::frame::{self, Headers, IpVersion};
use evenkeel_net::hash::FlowHasher;
use evenkeel_net::usual::UsualFlow;

use super::flow_cache::Probe;
use super::node_classes::NodeClasses;

/// What forwarding needs of a packet's headers. The few packets that need more are
/// parsed again.
pub(super) struct PacketMeta {
    pub(super) flow: PackedFlow,
    pub(super) flow_hash: u64,
    pub(super) destination: IpAddr,
    /// What the tables say of the destination; `None`: it has not been looked up yet.
    pub(super) route: Option<Option<Decision>>,
    pub(super) ip_len: u32,
    pub(super) class: Class,
    /// Where the IP header is.
    pub(super) l3: u16,
    pub(super) version: IpVersion,
    pub(super) ttl: u8,
    pub(super) dont_fragment: bool,
    /// Why its addresses or its options may not be forwarded, if so.
    pub(super) martian: Option<Reason>,
}

impl PacketMeta {
    /// Bytes of the frame up to the end of the IP packet.
    pub(super) const fn frame_len(&self) -> usize {
        self.l3 as usize + self.ip_len as usize
    }
}

/// What parsing a frame gave.
pub(super) enum Parsed {
    /// An IP packet.
    Ip(PacketMeta),
    /// A packet of a flow whose way is known.
    Known(Probe),
    /// Nothing that is forwarded: for the kernel.
    Other,
    /// A broken packet.
    Invalid(Reason),
}

/// Which class and which hash a packet has.
pub(super) struct Classifier {
    classes: ClassMap,
    /// What no rule takes, where classes are chosen by nodes.
    nodes: Option<NodeClasses>,
    hasher: FlowHasher,
}

impl Classifier {
    pub(super) fn new(classes: ClassMap, seed: u64) -> Self {
        Self { classes, nodes: None, hasher: FlowHasher::new(seed) }
    }

    pub(super) fn set_classes(&mut self, classes: ClassMap) {
        self.classes = classes;
    }

    pub(super) fn set_nodes(&mut self, nodes: Option<NodeClasses>) -> Option<NodeClasses> {
        std::mem::replace(&mut self.nodes, nodes)
    }

    /// The class of a flow's packets that have this DSCP.
    #[inline]
    pub(super) fn class(&self, flow: &FlowKey, dscp: u8) -> Class {
        self.ruled_or_of_node(self.classes.ruled(flow, dscp), || *flow)
    }

    /// The class and the hash of a usual flow.
    #[inline]
    pub(super) fn of_usual(&self, flow: UsualFlow) -> (Class, u64) {
        let (addresses, ports, protocol) = flow.parts();
        let ruled = self.classes.ruled_v4(addresses, ports, protocol, flow.dscp());
        let class = self.ruled_or_of_node(ruled, || flow.key());
        (class, self.hasher.v4(addresses, ports, protocol))
    }

    #[inline]
    fn ruled_or_of_node(&self, ruled: Option<Class>, flow: impl FnOnce() -> FlowKey) -> Class {
        match (ruled, &self.nodes) {
            (Some(class), _) => class,
            (None, Some(nodes)) => nodes.class(&flow()),
            (None, None) => Class(0),
        }
    }

    #[inline]
    pub(super) fn hash(&self, flow: &FlowKey) -> u64 {
        self.hasher.hash(flow)
    }

    /// Parses, hashes and classifies a frame. `hashed` is told the hash before the packet is
    /// classified, so that what is read of its flow arrives meanwhile.
    #[inline]
    pub(super) fn parse(&self, bytes: &[u8], hashed: impl FnOnce(u64)) -> Parsed {
        match frame::parse_usual(bytes) {
            Some(headers) => Parsed::Ip(self.metadata(&headers, hashed)),
            None => self.parse_unusual(bytes, hashed),
        }
    }

    #[cold]
    fn parse_unusual(&self, bytes: &[u8], hashed: impl FnOnce(u64)) -> Parsed {
        match frame::parse(bytes) {
            Ok(frame::Parsed::Ip(headers)) if headers.is_untagged() => {
                let mut meta = self.metadata(&headers, hashed);
                meta.martian = meta.martian.or_else(|| headers.check_options(bytes).err());
                Parsed::Ip(meta)
            }
            // Another VLAN than the port's. Routed it would keep its tag, and a trunk behind the
            // next port would take it into a VLAN that its sender has no access to.
            Ok(frame::Parsed::Ip(_) | frame::Parsed::Other { .. }) => Parsed::Other,
            Err(reason) => Parsed::Invalid(reason),
        }
    }

    /// As [`Classifier::parse`], of the IP packet that a frame carries below other headers.
    #[cold]
    pub(super) fn parse_below(&self, bytes: &[u8]) -> Option<PacketMeta> {
        below::parse_below(bytes).map(|headers| self.metadata(&headers, |_hash| {}))
    }

    /// Inlined also where the headers have just been made, so that most of them never are.
    #[inline(always)]
    fn metadata(&self, headers: &Headers, hashed: impl FnOnce(u64)) -> PacketMeta {
        let id = headers.flow_id();
        let flow_hash = self.hasher.hash(&id);
        hashed(flow_hash);
        PacketMeta {
            flow: PackedFlow::new(&id),
            flow_hash,
            destination: headers.flow.destination,
            route: None,
            ip_len: headers.ip_len,
            class: self.class(&headers.flow, headers.dscp),
            l3: headers.l3,
            version: headers.version,
            ttl: headers.ttl,
            dont_fragment: headers.dont_fragment,
            martian: headers.check_transit().err(),
        }
    }
}
