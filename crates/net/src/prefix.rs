//! Address prefixes.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An address prefix in canonical form: the bits beyond its length are zero.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// The text is not an address prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ParsePrefixError {
    /// What stands before the slash is not an IPv4 or IPv6 address.
    Address,
    /// What stands after the slash is not a number of bits from 0 to 32 (IPv4) or 128 (IPv6).
    Length,
}

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "not an IPv4 or IPv6 address",
            Self::Length => "prefix length out of range: 0 to 32 for IPv4, 0 to 128 for IPv6",
        })
    }
}

impl core::error::Error for ParsePrefixError {}

impl Prefix {
    /// Every IPv4 address: the default route.
    pub const ALL_V4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// Every IPv6 address: the default route.
    pub const ALL_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

    /// The prefix of `len` bits that `address` lies in. `None` if `len` is above 32 (IPv4) or 128 (IPv6).
    #[must_use]
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(a) if len <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
            }
            IpAddr::V6(a) if len <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
            }
            _ => return None,
        };
        Some(Self { address, len })
    }

    /// The prefix that holds this address only.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        let len = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Self { address, len }
    }

    /// The first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits are fixed.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a length in bits, not a number of elements")]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Whether `address` lies in it. Addresses of the other family never do.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.len).is_some_and(|p| p.address == self.address)
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self::host(address)
    }
}

impl fmt::Display for Prefix {
    /// `192.0.2.0/24`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    /// An address, a slash and a number of bits; an address alone means that address only. Bits beyond the length
    /// are cleared.
    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_bad| ParsePrefixError::Address)?;
        let Some(len) = len else {
            return Ok(Self::host(address));
        };
        if len.starts_with('+') {
            return Err(ParsePrefixError::Length);
        }
        let len = len.parse().map_err(|_bad| ParsePrefixError::Length)?;
        Self::new(address, len).ok_or(ParsePrefixError::Length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn host_bits_are_cleared() {
        assert_eq!(prefix("192.0.2.77/24").to_string(), "192.0.2.0/24");
        assert_eq!(prefix("2001:db8:1:2::3/32").to_string(), "2001:db8::/32");
        assert_eq!(prefix("192.0.2.77/0"), Prefix::ALL_V4);
        assert_eq!(prefix("::1/0"), Prefix::ALL_V6);
        assert_eq!(prefix("192.0.2.1"), prefix("192.0.2.1/32"));
        assert_eq!(prefix("::1"), prefix("::1/128"));
    }

    #[test]
    fn lengths_out_of_range_are_refused() {
        assert_eq!("10.0.0.0/33".parse::<Prefix>(), Err(ParsePrefixError::Length));
        assert_eq!("::/129".parse::<Prefix>(), Err(ParsePrefixError::Length));
        assert_eq!("::/+1".parse::<Prefix>(), Err(ParsePrefixError::Length));
        assert_eq!("10.0.0/8".parse::<Prefix>(), Err(ParsePrefixError::Address));
    }

    #[test]
    fn containment_keeps_families_apart() {
        assert!(prefix("10.0.0.0/8").contains("10.255.0.1".parse().unwrap()));
        assert!(!prefix("10.0.0.0/8").contains("11.0.0.1".parse().unwrap()));
        assert!(!Prefix::ALL_V4.contains("::1".parse().unwrap()));
        assert!(Prefix::ALL_V6.contains("::1".parse().unwrap()));
        assert!(!prefix("::/64").contains("10.0.0.1".parse().unwrap()));
    }
}
