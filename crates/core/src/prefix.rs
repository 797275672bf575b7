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
    /// What stands after the slash is not a number of bits from 0 to as many as the address has.
    Length {
        /// How many bits the address has: 32 (IPv4) or 128 (IPv6).
        most: u8,
    },
}

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("not an IPv4 or IPv6 address"),
            Self::Length { most } => write!(f, "no prefix length; valid: 0 to {most}"),
        }
    }
}

impl core::error::Error for ParsePrefixError {}

impl Prefix {
    /// Every IPv4 address: the default route.
    pub const ALL_V4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// Every IPv6 address: the default route.
    pub const ALL_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

    /// The prefix of `len` bits that `address` lies in. `None` if `len` is above 32 (IPv4) or 128
    /// (IPv6).
    #[must_use]
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        if len > most(address) {
            return None;
        }
        let address = match address {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
            }
        };
        Some(Self { address, len })
    }

    /// The prefix that holds this address only.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        Self { address, len: most(address) }
    }

    /// Address and length as a text has them, where parsing a prefix clears the bits beyond the
    /// length: an address, a slash and a number of bits. An address alone has all of its bits.
    ///
    /// # Errors
    /// The text is neither.
    pub fn split(text: &str) -> Result<(IpAddr, u8), ParsePrefixError> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_bad| ParsePrefixError::Address)?;
        let most = most(address);
        let len = match len {
            None => most,
            Some(len) => {
                let len = len.parse().ok().filter(|len| *len <= most);
                len.ok_or(ParsePrefixError::Length { most })?
            }
        };
        Ok((address, len))
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

    /// Whether it holds one address only.
    #[must_use]
    pub const fn is_host(&self) -> bool {
        self.len == most(self.address)
    }

    /// Whether `address` lies in it. Addresses of the other family never do.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.len).is_some_and(|p| p.address == self.address)
    }
}

/// How many bits an address has.
const fn most(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
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

    /// As [`Prefix::split`]. Bits beyond the length are cleared.
    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let (address, len) = Self::split(text)?;
        Self::new(address, len).ok_or(ParsePrefixError::Length { most: most(address) })
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
        assert_eq!("10.0.0.0/33".parse::<Prefix>(), Err(ParsePrefixError::Length { most: 32 }));
        assert_eq!("::/129".parse::<Prefix>(), Err(ParsePrefixError::Length { most: 128 }));
        assert_eq!("::/-1".parse::<Prefix>(), Err(ParsePrefixError::Length { most: 128 }));
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
