//! Ethernet addresses.

use core::fmt;
use core::str::FromStr;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All stations of the segment.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether this names a group of stations (multicast or broadcast): the lowest bit of the first
    /// byte.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The bit of [`bits`](Self::bits) that [`is_group`](Self::is_group) tells.
    pub const GROUP_BIT: u64 = 1 << 40;

    /// As a number, the first byte highest: for comparing with many at once.
    #[must_use]
    pub const fn bits(self) -> u64 {
        let [a, b, c, d, e, g] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, g])
    }

    /// Whether this is all zeros, which no station has.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for MacAddr {
    /// `02:00:00:00:00:01`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six pairs of hexadecimal digits with colons between them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not an Ethernet address: write six pairs of hexadecimal digits, as 02:00:00:00:00:01",
        )
    }
}

impl core::error::Error for ParseMacError {}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(ParseMacError)?;
            if part.len() != 2 || !part.bytes().all(|c| c.is_ascii_hexdigit()) {
                return Err(ParseMacError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_not_hex| ParseMacError)?;
        }
        if parts.next().is_some() { Err(ParseMacError) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mac = MacAddr([0x02, 0, 0x5e, 0xff, 0x10, 0x01]);
        assert_eq!(mac.to_string(), "02:00:5e:ff:10:01");
        assert_eq!("02:00:5E:ff:10:01".parse(), Ok(mac));
        for bad in [
            "",
            "02:00:5e:ff:10",
            "02:00:5e:ff:10:01:02",
            "2:0:5e:ff:10:01",
            "+2:00:5e:ff:10:01",
            "é:00:00:00:00:00",
        ] {
            assert_eq!(bad.parse::<MacAddr>(), Err(ParseMacError), "{bad}");
        }
    }

    #[test]
    fn groups() {
        assert!(MacAddr::BROADCAST.is_group());
        assert!(MacAddr([0x33, 0x33, 0, 0, 0, 1]).is_group());
        assert!(!MacAddr([0x02, 0, 0, 0, 0, 1]).is_group());
        assert!(MacAddr::default().is_zero());
    }
}
