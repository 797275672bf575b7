//! What a frame says of whose it is below its IP addresses.

use core::fmt;

use crate::MacAddr;

/// The VLANs that there are: 0 says none, 4095 is reserved (IEEE 802.1Q, 9.6).
const VLANS: core::ops::RangeInclusive<u16> = 1..=4_094;
/// The sessions that there are: 0 is that of discovery, the last one reserved (RFC 2516, 4).
const SESSIONS: core::ops::RangeInclusive<u16> = 1..=0xfffe;

/// A key of layer two: somebody is found by it in frames that carry it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum L2Key {
    /// A session of PPPoE (RFC 2516).
    Session {
        /// Its number.
        id: u16,
        /// The subscriber's end: concentrators may give a number twice, to two stations.
        station: Option<MacAddr>,
    },
    /// A VLAN, with the one inside of it (QinQ), if it matters.
    Vlan {
        /// That of the first tag.
        outer: u16,
        /// That of the second one; `None`: whatever it is.
        inner: Option<u16>,
    },
    /// The station at the subscriber's end.
    Station(MacAddr),
}

/// A text is not such a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ParseL2KeyError {
    /// Not the address of one station.
    Station,
    /// Not a VLAN, or a pair.
    Vlan,
    /// Not a session.
    Session,
}

impl fmt::Display for ParseL2KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Station => {
                "not the address of a station: write six pairs of hexadecimal digits, as \
                 02:00:00:00:00:01"
            }
            Self::Vlan => {
                "not a VLAN: write 1 to 4094, with QinQ the outer and the inner, as 7.100"
            }
            Self::Session => {
                "not a session of PPPoE: write 1 to 65534, or with the subscriber's station, as \
                 17@02:00:00:00:00:01"
            }
        })
    }
}

impl core::error::Error for ParseL2KeyError {}

/// A number in this range, in digits alone.
fn number(text: &str, range: core::ops::RangeInclusive<u16>) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && range.contains(number))
}

impl L2Key {
    /// Reads a station, as `02:00:00:00:00:01`.
    ///
    /// # Errors
    /// It is none, or names a group or nobody.
    pub fn station(text: &str) -> Result<Self, ParseL2KeyError> {
        let mac = text.parse::<MacAddr>().ok().filter(|mac| !mac.is_group() && !mac.is_zero());
        mac.map(Self::Station).ok_or(ParseL2KeyError::Station)
    }

    /// Reads a VLAN, as `100`, or an outer and an inner one, as `7.100`.
    ///
    /// # Errors
    /// It is none.
    pub fn vlan(text: &str) -> Result<Self, ParseL2KeyError> {
        let vlan = |text| number(text, VLANS).ok_or(ParseL2KeyError::Vlan);
        match text.split_once('.') {
            Some((outer, inner)) => {
                Ok(Self::Vlan { outer: vlan(outer)?, inner: Some(vlan(inner)?) })
            }
            None => Ok(Self::Vlan { outer: vlan(text)?, inner: None }),
        }
    }

    /// Reads a session, as `17`, or with the subscriber's station, as `17@02:00:00:00:00:01`.
    ///
    /// # Errors
    /// It is none.
    pub fn session(text: &str) -> Result<Self, ParseL2KeyError> {
        let (id, station) = match text.split_once('@') {
            Some((id, station)) => match Self::station(station) {
                Ok(Self::Station(mac)) => (id, Some(mac)),
                _ => return Err(ParseL2KeyError::Session),
            },
            None => (text, None),
        };
        let id = number(id, SESSIONS).ok_or(ParseL2KeyError::Session)?;
        Ok(Self::Session { id, station })
    }
}

impl fmt::Display for L2Key {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session { id, station: None } => write!(f, "{id}"),
            Self::Session { id, station: Some(mac) } => write!(f, "{id}@{mac}"),
            Self::Vlan { outer, inner: None } => write!(f, "{outer}"),
            Self::Vlan { outer, inner: Some(inner) } => write!(f, "{outer}.{inner}"),
            Self::Station(mac) => write!(f, "{mac}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn keys_are_read_as_they_are_written() {
        for text in ["1", "4094", "7.100", "4094.1"] {
            assert_eq!(L2Key::vlan(text).unwrap().to_string(), text);
        }
        for text in ["1", "65534", "17@02:00:00:00:00:01"] {
            assert_eq!(L2Key::session(text).unwrap().to_string(), text);
        }
        let text = "02:00:00:00:00:01";
        assert_eq!(L2Key::station(text).unwrap().to_string(), text);
    }

    #[test]
    fn what_names_nobody_is_no_key() {
        for text in ["0", "4095", "", "+7", "7.", ".7", "7.0", "7.8.9", "eth0.7"] {
            assert_eq!(L2Key::vlan(text), Err(ParseL2KeyError::Vlan), "{text}");
        }
        for text in ["0", "65535", "65536", "", "7@", "@02:00:00:00:00:01", "7@01:00:00:00:00:01"] {
            assert_eq!(L2Key::session(text), Err(ParseL2KeyError::Session), "{text}");
        }
        for text in ["ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "33:33:00:00:00:01", "7"] {
            assert_eq!(L2Key::station(text), Err(ParseL2KeyError::Station), "{text}");
        }
    }
}
