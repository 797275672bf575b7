//! Wire formats, flow keys, forwarding tables and the ICMP answers of a router, without sockets.
