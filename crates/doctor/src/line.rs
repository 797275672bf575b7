//! What a router.toml wants of an interface, as far as the machine below decides whether it can be.

use evenkeel_config::{Attach, DisciplineConfig, RouterConfig};
use evenkeel_core::BitRate;
use evenkeel_core::schedule::wfq_altq::weight_and_sum;

/// A link of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The interface that it sends by.
    pub interface: String,
    /// How fast it sends at most; `None`: as fast as the interface takes packets.
    pub rate: Option<BitRate>,
    /// Under WFQ by class: the heaviest weight, the sum of all, and the most packets that the
    /// heaviest class's queue holds.
    pub weights: Option<(u64, u64, u32)>,
    /// The kernel goes on routing, and its rules hold.
    pub inline: bool,
}

impl Line {
    /// The links of a configuration.
    #[must_use]
    pub fn of(config: &RouterConfig) -> Vec<Self> {
        let of = |port: &evenkeel_config::PortConfig| {
            let link = config.link(&port.name)?;
            let weights = match &link.discipline {
                DisciplineConfig::WfqAltq(own) => weight_and_sum(own),
                _ => None,
            };
            Some(Self {
                interface: port.interface.clone(),
                rate: link.core.slowest(),
                weights,
                inline: port.attach() != Attach::Route,
            })
        };
        config.ports.iter().filter_map(of).collect()
    }
}
