//! Requests for neighbours that the kernel refuses: counted, and put into words with what to do
//! about it.

use std::io;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Requests for neighbours that the kernel refused, since the start, by its reason.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct RefusedNeighbours {
    /// Its table of IPv4 neighbours is full.
    pub ipv4_full: u64,
    /// Its table of IPv6 neighbours is full.
    pub ipv6_full: u64,
    /// Anything else: mostly an interface that has just gone, or gone down.
    pub other: u64,
}

impl RefusedNeighbours {
    /// A request for `address` was refused.
    pub(crate) fn count(&mut self, address: IpAddr, error: &io::Error) {
        *match (error.raw_os_error(), address) {
            (Some(TABLE_FULL), IpAddr::V4(_)) => &mut self.ipv4_full,
            (Some(TABLE_FULL), IpAddr::V6(_)) => &mut self.ipv6_full,
            _ => &mut self.other,
        } += 1;
    }

    /// What was refused before and what was refused since.
    #[must_use]
    pub fn plus(self, since: Self) -> Self {
        Self {
            ipv4_full: self.ipv4_full + since.ipv4_full,
            ipv6_full: self.ipv6_full + since.ipv6_full,
            other: self.other + since.other,
        }
    }

    /// For people, a text for each reason that there was.
    pub fn words(self) -> impl Iterator<Item = String> {
        let full = |version: u8, refused: u64| {
            let text = format!(
                "{refused} of IPv{version}: the kernel's table of them is full, so packets to \
                 those that are not in it wait in vain: raise \
                 net.ipv{version}.neigh.default.gc_thresh3, and gc_thresh2 with it (they hold for \
                 the whole machine)"
            );
            (refused > 0).then_some(text)
        };
        let other = (self.other > 0)
            .then(|| format!("{} while their interface was not in use", self.other));
        [full(4, self.ipv4_full), full(6, self.ipv6_full), other].into_iter().flatten()
    }
}

/// `ENOBUFS`, with which the kernel refuses an entry beyond `gc_thresh3`.
const TABLE_FULL: i32 = 105;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_is_told_by_family_from_an_interface_that_has_gone() {
        let (four, six): (IpAddr, IpAddr) =
            ("10.0.0.9".parse().unwrap(), "2001:db8::9".parse().unwrap());
        let mut refused = RefusedNeighbours::default();
        assert_eq!(refused.words().count(), 0);
        for (address, code, times) in [(four, 105, 3), (six, 105, 2), (four, 19, 1), (six, 100, 1)]
        {
            (0..times).for_each(|_| refused.count(address, &io::Error::from_raw_os_error(code)));
        }
        assert_eq!(refused, RefusedNeighbours { ipv4_full: 3, ipv6_full: 2, other: 2 });
        let words: Vec<String> = refused.plus(refused).words().collect();
        assert!(
            words[0].starts_with("6 of IPv4")
                && words[0].contains("net.ipv4.neigh.default.gc_thresh3")
        );
        assert!(
            words[1].starts_with("4 of IPv6")
                && words[1].contains("net.ipv6.neigh.default.gc_thresh3")
        );
        assert_eq!(words[2], "4 while their interface was not in use");
    }
}
