//! Fair packet scheduling, dropping and measuring as pure state machines.
//!
//! Nothing here reads a clock, does I/O or allocates per packet: `now` is an argument, and whatever
//! is dropped is handed back with a [`Reason`]. A router, a simulator, a bench and a fuzzer run the
//! same code.
//!
//! Two classes share a 10 Mbit/s link by weight, in virtual time:
//!
//! ```
//! use evenkeel_core::link::{Link, LinkConfig};
//! use evenkeel_core::packet::Descriptor;
//! use evenkeel_core::schedule::wfq_altq::{WfqAltq, WfqAltqConfig};
//! use evenkeel_core::{BitRate, Bytes, Class, Nanos, Weight};
//!
//! let wfq = WfqAltq::new(WfqAltqConfig::with_weights([Weight(100), Weight(300)]))?;
//! let mut link = Link::new(LinkConfig::paced(BitRate::from_mbps(10)), wfq, 2)?;
//! // Each class alone offers twice what the link can carry, for ten seconds.
//! for n in 0..16_000 {
//!     let now = Nanos::from_micros(n * 615);
//!     for class in [Class(0), Class(1)] {
//!         let _ = link.enqueue(now, Descriptor::new(class, Bytes(1500), now), &mut ());
//!     }
//! }
//! let sent = [0, 1].map(|class| link.qostat().class(Class(class)).sent_packets);
//! println!("sent {sent:?}: 1 : {:.2}", sent[1] as f64 / sent[0] as f64);
//! # assert!((2.95..3.05).contains(&(sent[1] as f64 / sent[0] as f64)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`schedule`] | the interface of a discipline, and the disciplines: FIFO, WFQ/ALTQ, LCT-UC, PFQ, PDRR, AFAN, and baselines |
//! | [`link`] | scheduler, shaper, transmit ring and paced wire as one machine of events |
//! | [`measure`] | QoStat meters per class and per scheduler call, histograms of delay |
//! | [`control`] | knobs turned from what was measured, so that all classes are hit alike |
//! | [`admit`] | who may enter: admission of new flows to an outgoing link |
//! | [`aqm`] | active queue management: queues that stand are told so |
//! | [`audit`] | whether a link delivers what it was told, while it runs |
//! | [`class_map`] | rules that give each packet its class |
//! | [`drop`](mod@drop) | FairDrop: cycles of a core and bits of a link shared fairly by refusing early |
//! | [`settings`](mod@settings) | what can be told to an algorithm: names, types, ranges, defaults, said once |
//! | [`shape`] | the token bucket |
//! | [`share`] | one link shared by several workers, without a lock |
//! | [`queue`] | bounded queues of packets |
//! | [`flow_table`] | tables of flows of fixed size |
//! | [`reference`](mod@reference) | ideal systems to compare with |
//! | [`units`], [`reason`], [`packet`] | the words all of them use |
#![cfg_attr(not(test), no_std)]
// Allowed in `prefetch` alone: scripts/purity.sh looks.
#![deny(unsafe_code)]

extern crate alloc;

pub mod admit;
pub mod aqm;
pub mod audit;
pub mod class_map;
pub mod control;
pub mod drop;
pub mod flow_table;
mod l2_key;
pub mod link;
mod mac;
pub mod measure;
mod out_of_range;
pub mod packet;
mod prefetch;
mod prefix;
pub mod queue;
pub mod reason;
pub mod reference;
pub mod schedule;
pub mod settings;
pub mod shape;
pub mod share;
pub mod units;

pub use l2_key::{L2Key, ParseL2KeyError};
pub use mac::{MacAddr, ParseMacError};
pub use out_of_range::OutOfRange;
pub use packet::{Class, FlowKey, Packet, PortIndex};
pub use prefetch::existing as read_ahead;
pub use prefix::{ParsePrefixError, Prefix};
pub use reason::Reason;
pub use schedule::{DropSink, Scheduler};
pub use units::{BitRate, Bytes, Cycles, Fraction, Nanos, Ppm, Thousandths, Weight};
