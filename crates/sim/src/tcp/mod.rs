//! TCP in virtual time: one connection, one direction of data, as two
//! [`Endpoint`](crate::Endpoint)s.
//!
//! # What it is
//!
//! | part | after |
//! |---|---|
//! | segments, handshake, options (MSS, SACK, window scale, time stamps in microseconds) | RFC 9293, RFC 2018, RFC 7323 |
//! | slow start (bytes counted, two segments per acknowledgement at most), initial window of 10 segments | RFC 5681, RFC 3465, RFC 6928 |
//! | congestion avoidance [Reno](Congestion::Reno): one segment per window acknowledged | RFC 5681 3.1, RFC 3465 |
//! | congestion avoidance [CUBIC](Congestion::Cubic) | RFC 9438 |
//! | congestion avoidance [DCTCP](Congestion::Dctcp), the window reduced by the part of the bytes that came marked | RFC 8257 |
//! | ECN, if asked for: agreed upon in the handshake, data marked as capable, not what is sent again | RFC 3168, RFC 9331 |
//! | loss detection, pipe, recovery | RFC 6675, with the segment instead of the octet as its unit |
//! | retransmission time-out, round-trip time | RFC 6298, one sample per acknowledgement of new data |
//! | acknowledgements: every second segment or after a while; at once when a segment is missing or a gap is filled | RFC 5681 4.2 |
//!
//! Segments are real heads of IP packets: routers parse, classify, rewrite and trace them. Payload
//! is not made ([`crate::host`]), and so not stored: a connection takes one byte of memory per
//! segment in flight, and a few hundred besides.
//!
//! # What it is not
//!
//! The application at the receiving end takes bytes as they come, so the window never closes.
//! Connections are not closed: one that has sent its last byte is done when that is acknowledged.
//! No pacing, no RACK, no F-RTO: a retransmission that is lost again waits for the
//! time-out, as it does in RFC 6675 and as the response functions suppose that are held against
//! this model.
//!
//! # Why not smoltcp
//!
//! The choice would have been a kept stack over a model. smoltcp 0.14 was run in virtual time over
//! random loss, one packet per poll, with 2 MiB buffers: its Reno got 0.6 times what RFC 5348 gives
//! at a loss of 1 % and 10 ms, 3 times at 0.1 % and 10 ms, 4.7 times at 0.1 % and 100 ms. Its
//! sender does not use selective acknowledgements, leaves recovery with the first acknowledgement
//! of new data, and waits a second at least before a time-out; none of that can be configured. It
//! also stores payload, in buffers of fixed size. This model stays within 13 % of the functions:
//! `tests/it/tcp_response.rs`.
mod alarm;
mod congestion;
mod endpoint;
mod receiver;
mod rtt;
mod scoreboard;
mod segment;
mod sender;

pub use congestion::Congestion;
pub use endpoint::{Addresses, TcpReceiver, TcpSender};
pub use receiver::{EcnEcho, Receiver, ReceiverConfig};
pub use segment::{Codepoint, Flags, Segment};
pub use sender::{Sender, SenderConfig, SenderCounts};
