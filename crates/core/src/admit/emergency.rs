//! ECM: emergency connections, told by their addresses.
//!
//! Source: Domzal et al., "Click-based tests of QoS mechanisms for flow-based router"
//! (GLOBECOM 2020): a classifier right before the look-up of the protected flow list sends packets
//! of listed sources straight to the scheduler. The second rule, a pair of thresholds of their own,
//! is that of differentiated blocking (IEEE Communications Letters 2007).
//!
//! Lists are sorted by prefix length; a look-up searches one sorted run per length that occurs:
//! O(lengths * log prefixes), two or three steps for usual lists. Nothing is kept per flow.
//!
//! Not implemented: emergency calls told by other header fields (DSCP): use classes for these.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::packet::FlowKey;
use crate::prefix::Prefix;
use crate::units::Ppm;
use crate::{settings, words};

words! {
    /// What is done for emergency flows (ECM).
    pub enum EmergencyRule {
        /// they are always let in: no admission, no state (the published prototype)
        #[default]
        Bypass = "bypass",
        /// they have thresholds of their own
        Thresholds = "thresholds",
        /// they are like others
        Off = "off",
    }
}

settings! {
    /// ECM: emergency flows by address.
    pub struct EmergencyConfig: "" {
        /// ECM: what is done for emergency flows, as `[flows]` names them.
        live rule as emergency: EmergencyRule = EmergencyRule::Bypass;
        /// Their min_FR, with `emergency = "thresholds"`. Half of the others' is usual.
        live min_fair_rate as emergency_min_fair_rate: Ppm = Ppm(25_000);
        /// Their max_PL, with `emergency = "thresholds"`. Ten points more than the others' is
        /// usual.
        live max_priority_load as emergency_max_priority_load: Ppm = Ppm::percent(80),
            between 0.000_001..=1.0;
    }
    plain {
        /// Flows from these prefixes.
        sources: Vec<Prefix> = Vec::new();
        /// Flows to these prefixes.
        destinations: Vec<Prefix> = Vec::new();
    }
}

/// The classifier.
#[derive(Clone, Debug)]
pub(super) struct Emergency {
    sources: PrefixList,
    destinations: PrefixList,
    pub(super) rule: EmergencyRule,
    /// min_FR and max_PL for them, with [`EmergencyRule::Thresholds`].
    pub(super) thresholds: (Ppm, Ppm),
}

impl Emergency {
    /// `None`: no flow is treated otherwise.
    pub(super) fn new(config: &EmergencyConfig) -> Option<Self> {
        let nobody = config.sources.is_empty() && config.destinations.is_empty();
        (config.rule != EmergencyRule::Off && !nobody).then(|| Self {
            sources: PrefixList::new(&config.sources),
            destinations: PrefixList::new(&config.destinations),
            rule: config.rule,
            thresholds: (config.min_fair_rate, config.max_priority_load),
        })
    }

    /// Whether a flow is an emergency flow.
    #[inline]
    pub(super) fn matches(&self, flow: &FlowKey) -> bool {
        self.sources.contains(flow.source) || self.destinations.contains(flow.destination)
    }
}

/// Prefixes of one family and length.
#[derive(Clone, Debug)]
struct Run {
    ipv4: bool,
    len: u8,
    networks: Vec<u128>,
}

/// A set of prefixes.
#[derive(Clone, Debug)]
pub(super) struct PrefixList {
    runs: Vec<Run>,
}

impl PrefixList {
    pub(super) fn new(prefixes: &[Prefix]) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for prefix in prefixes {
            let (ipv4, len) = (prefix.address().is_ipv4(), prefix.len());
            let network = network(prefix.address(), len);
            let at = match runs.iter().position(|run| run.ipv4 == ipv4 && run.len == len) {
                Some(at) => at,
                None => {
                    runs.push(Run { ipv4, len, networks: Vec::new() });
                    runs.len() - 1
                }
            };
            runs[at].networks.push(network);
        }
        for run in &mut runs {
            run.networks.sort_unstable();
            run.networks.dedup();
        }
        Self { runs }
    }

    #[inline]
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.runs.iter().any(|run| {
            run.ipv4 == address.is_ipv4()
                && run.networks.binary_search(&network(address, run.len)).is_ok()
        })
    }
}

/// The first `len` bits of an address, at the top of 128.
pub(super) fn network(address: IpAddr, len: u8) -> u128 {
    let bits = match address {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    };
    let rest = 128 - u32::from(len.min(128));
    bits.checked_shr(rest).and_then(|bits| bits.checked_shl(rest)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn prefixes_of_all_lengths_and_both_families() {
        let prefix = |addr: &str, len| Prefix::new(addr.parse().unwrap(), len).unwrap();
        let prefixes = vec![
            prefix("10.1.0.0", 16),
            prefix("10.2.3.4", 32),
            prefix("2001:db8::", 32),
            prefix("192.0.2.7", 25),
        ];
        let list = PrefixList::new(&prefixes);
        for text in [
            "10.1.255.1",
            "10.2.3.4",
            "10.2.3.5",
            "2001:db8:ffff::1",
            "2001:db9::1",
            "192.0.2.1",
            "::",
        ] {
            let address: IpAddr = text.parse().unwrap();
            let expected = prefixes.iter().any(|prefix| prefix.contains(address));
            assert_eq!(list.contains(address), expected, "{text}");
        }
        let all = PrefixList::new(&[prefix("0.0.0.0", 0)]);
        assert!(all.contains("255.1.2.3".parse().unwrap()));
        assert!(!all.contains("::1".parse().unwrap()));
        assert!(!PrefixList::new(&[]).contains("::1".parse().unwrap()));
    }
}
