//! FairDrop: fair shares of a core's cycles and of a link's bits, by refusing packets early.
//!
//! A dropper beside a plain FIFO: a *shadow system* receives the packets that the real one receives
//! and serves them as an ideal fair fluid would. A packet that would exceed its flow's share there
//! is refused here, before it costs anything. One shadow counts cycles of one worker's core
//! ([`CpuFairDrop`]), one counts bits of one outgoing link ([`BandwidthFairDrop`]); a packet must
//! be admitted by both, and is charged to both only then.
//!
//! ```text
//! burst ─ begin_batch ─ parse ─ cpu.judge ─ route ─ link.judge ─ both admit: cpu.charge, link.charge ─ service ─ schedule
//!                                   │                   │                                                │
//!                                fairdrop_cpu    fairdrop_bandwidth                cpu.measured(class, packets, cycles)
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | knobs, ranges, errors |
//! | [`fairdrop`] | the core's cycles: rules of the threshold |
//! | `cost` | what a class's packets take, learnt online |
//! | [`bandwidth`] | a link's bits |
//! | `audit` | whether flows had their shares of the core |

mod audit;
pub mod bandwidth;
pub mod config;
mod cost;
mod departures;
pub mod fairdrop;
mod level;
mod shadow;
mod table;
#[cfg(test)]
mod tests;
mod together;
mod wait;

pub use audit::{CyclesVerdict, CyclesViolation};
pub use bandwidth::{BandwidthFairDrop, BandwidthView};
pub use config::{
    BandwidthConfig, CpuConfig, FairDropConfig, Fixed, FlowTableConfig, Groups, Kappa, MimdBatch,
    MimdRing, ProcessingClass, Rule, Share, ShareId, WaterLevel,
};
pub use fairdrop::{CpuFairDrop, CpuView, Poll};
pub use shadow::FlowView;
pub use table::Ticket;
pub use together::SharedShadow;
