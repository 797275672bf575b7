//! Why a packet did not go out: one variant per rule, one counter per variant.
//!
//! Nothing disappears: for every box and at every instant, packets in = packets out + packets
//! held + the sum of drops by reason.

use core::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal,)+) => {
        /// Why a packet was dropped or refused.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Reason {
            /// Every reason, in the order of [`Reason::index`].
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// How many reasons there are: the length of an array of counters.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in counters, files and the control protocol: `snake_case`, stable.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// A sentence for people: the documentation of the variant.
            #[must_use]
            pub const fn describe(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc,)+),)+ }
            }
        }
    };
}

reasons! {
    /// The frame ends before its headers do.
    Truncated => "truncated",
    /// The IP version is not the one the Ethernet type promises.
    BadVersion => "bad_version",
    /// The header length field is impossible, or options do not fit it.
    BadHeaderLength => "bad_header_length",
    /// The total length field says more than the frame holds, or less than its header.
    BadTotalLength => "bad_total_length",
    /// The IPv4 header checksum is wrong.
    BadChecksum => "bad_checksum",
    /// The chain of IPv6 extension headers is malformed or too long to follow.
    BadExtensionHeader => "bad_extension_header",
    /// An IPv4 packet that names the routers on its way itself (RFC 7126, 4.3 and 4.4).
    SourceRouted => "source_routed",
    /// The source address can never be a source (RFC 1812, 5.3.7): unspecified, loopback,
    /// multicast, broadcast; or it is this machine's own.
    MartianSource => "martian_source",
    /// The destination address may never be forwarded: loopback, unspecified, link-local.
    MartianDestination => "martian_destination",
    /// The frame was sent by one of our own ports and has come back: there is a loop on the
    /// segment.
    OwnFrame => "own_frame",
    /// The frame is addressed to another station.
    OtherStation => "other_station",
    /// The route points back to the port of arrival and the configuration refuses such packets.
    SamePort => "same_port",
    /// The frame is longer than the port's buffers: jumbo, or a super-frame of an offload left on.
    /// Or it came in pieces and is longer than its interface has frames, because its end was lost.
    FrameTooLong => "frame_too_long",
    /// The time to live or hop limit ran out here.
    TtlExpired => "ttl_expired",
    /// No route leads to the destination.
    NoRoute => "no_route",
    /// A route says that packets to this destination are refused.
    RouteRefuses => "route_refuses",
    /// The next hop did not answer.
    HostUnreachable => "host_unreachable",
    /// Too many packets wait for the next hop to answer.
    NeighbourWaitFull => "neighbour_wait_full",
    /// The packet exceeds the next link's MTU and may not be fragmented.
    TooBig => "too_big",
    /// A rule of the access control list of its class refuses it.
    AclDenied => "acl_denied",
    /// The security association of its tunnel has used all of its sequence numbers: it needs a new
    /// key.
    EspExhausted => "esp_exhausted",
    /// The queue of its class is at its limit (tail drop).
    QueueFull => "queue_full",
    /// The link's total limit was passed and this packet stood at the head of the longest queue, by
    /// weight.
    LongestQueue => "longest_queue",
    /// The buffer was full and this packet stood at the head of the flow with the longest backlog
    /// (or at its tail, as configured).
    LongestFlow => "longest_flow",
    /// The buffer was full of priority packets when this packet arrived.
    PriorityFull => "priority_full",
    /// Its flow sends more than its share, and approximate fair dropping drew this packet.
    FairShare => "fair_share",
    /// Its queue stood: all of its packets had waited for longer than the target (CoDel).
    StandingQueue => "standing_queue",
    /// Its flow fills the buffer and answers to neither drops nor marks (BLUE).
    Unresponsive => "unresponsive",
    /// A later acknowledgement of its connection, which waits in the same queue, says all that it
    /// said (ACK filter).
    SuperfluousAck => "superfluous_ack",
    /// Its flow has used its fair share of the core's cycles (FairDrop).
    FairdropCpu => "fairdrop_cpu",
    /// Its flow has used its fair share of the outgoing link's bits (FairDrop).
    FairdropBandwidth => "fairdrop_bandwidth",
    /// A change of configuration left no room for what was queued.
    Reconfigured => "reconfigured",
    /// The outgoing link is down, or its port is gone.
    LinkDown => "link_down",
    /// The port refused the frame when it was to be sent.
    PortRefused => "port_refused",
    /// The frame is for this machine, but came past the kernel, which had not told yet that it is.
    MissedHost => "missed_host",
    /// It came while the router hung, and the kernel has forwarded it.
    KernelForwarded => "kernel_forwarded",
    /// No frame buffer was free.
    NoBuffer => "no_buffer",
    /// A fault injector dropped it on purpose.
    Injected => "injected",
    /// The router stopped while the packet was queued.
    Stopped => "stopped",
    /// Admission: the flow is new and the fair rate of the link is below the minimum.
    FairRateLow => "fair_rate_low",
    /// Admission: the flow is new and the priority load of the link is above the maximum.
    PriorityLoadHigh => "priority_load_high",
    /// Admission: the flow is new and the list of protected flows is full.
    FlowListFull => "flow_list_full",
    /// Admission: the flow is new and the first packets of others have used the budget until the
    /// next estimate.
    FirstPacketBudget => "first_packet_budget",
    /// Admission: the flow is new and its user had its share of new flows in this interval.
    UserQuota => "user_quota",
    /// Admission: the flow was cleared from the list of protected flows and is blocked for a while.
    FlowBlocked => "flow_blocked",
    /// Admission: the flow is new and flows that were cleared go first.
    PriorityAccess => "priority_access",
}

impl Reason {
    /// The place of this reason in an array of [`Reason::COUNT`] counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_dense_and_names_unique() {
        for (i, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
            assert!(reason.describe().trim().ends_with('.'));
            assert!(Reason::ALL.iter().filter(|r| r.name() == reason.name()).count() == 1);
        }
    }
}
