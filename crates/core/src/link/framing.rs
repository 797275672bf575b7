//! What a line adds to the packets that it carries.
//!
//! A rate is that of the line, and a modem adds more or less than Ethernet does. Whoever counts the
//! wrong length gives the line too much, so that the modem queues, or too little.
//!
//! | `overhead` | bytes more | at least | cells |
//! |---|---|---|---|
//! | `ethernet` | 38 | 84 | – |
//! | `docsis` | 18 | 64 | – |
//! | `pppoe-ptm` (VDSL) | 30 | – | 65 bytes for 64 |
//! | `ptm` (VDSL without PPP) | 22 | – | 65 bytes for 64 |
//! | `adsl-pppoa` (VC-MUX) | 10 | – | ATM: 53 bytes for each 48, the last one filled |
//! | `adsl-pppoe` (LLC/SNAP) | 40 | – | ATM |
//!
//! Source: tc-cake(8), whose keywords have the same numbers; ITU-T I.363.5 (AAL5), IEEE 802.3, 61
//! (64/65 octets).

use core::ops::RangeInclusive;

use crate::packet::{ETHERNET_MIN_PAYLOAD, ETHERNET_WIRE_OVERHEAD};
use crate::settings::SettingError;
use crate::units::Bytes;
use crate::{settings, words};

/// Bytes that a line may add to a packet.
const BYTES_RANGE: RangeInclusive<u64> = 0..=256;
/// The shortest that a line may carry, bytes.
const LEAST_RANGE: RangeInclusive<u64> = 0..=256;

words! {
    /// What the line adds to a packet.
    pub enum Overhead {
        /// Header, check sequence, preamble and gap of Ethernet: 38 bytes.
        #[default]
        Ethernet = "ethernet",
        /// A cable modem: 18 bytes, 64 at least.
        Docsis = "docsis",
        /// VDSL with PPPoE: 30 bytes, 65 for each 64.
        PppoePtm = "pppoe-ptm",
        /// VDSL without PPP: 22 bytes, 65 for each 64.
        Ptm = "ptm",
        /// ADSL with PPPoA over VC-MUX: 10 bytes, in ATM cells.
        AdslPppoa = "adsl-pppoa",
        /// ADSL with PPPoE over LLC/SNAP: 40 bytes, in ATM cells.
        AdslPppoe = "adsl-pppoe",
        /// As `overhead_bytes`, `overhead_least` and `cells` say.
        Bytes = "bytes",
    }
}

words! {
    /// What packets are cut into on the line.
    pub enum Cells {
        /// Nothing.
        #[default]
        None = "none",
        /// ATM: 53 bytes for each 48, the last one filled.
        Atm = "atm",
        /// PTM: 65 bytes for each 64.
        Ptm = "ptm",
    }
}

settings! {
    /// What the line adds to an IP packet; rate, fair rate, priority load and caps count with it.
    #[derive(Copy, Eq)]
    pub struct FramingConfig: "" {
        /// What the line behind the port adds to a packet.
        reload overhead: Overhead = Overhead::Ethernet;
        /// Bytes that it adds to an IP packet.
        reload overhead_bytes: Bytes = ETHERNET_WIRE_OVERHEAD, in BYTES_RANGE,
            with overhead ["bytes"];
        /// The least that it carries, with what it adds.
        reload overhead_least: Bytes = ETHERNET_MIN_PAYLOAD + ETHERNET_WIRE_OVERHEAD,
            in LEAST_RANGE, with overhead ["bytes"];
        /// What packets are cut into.
        reload cells: Cells = Cells::None, with overhead ["bytes"];
    }
    check Self::takes_something
}

impl FramingConfig {
    /// A packet that takes nothing would be sent in no time.
    fn takes_something(&self) -> Result<(), SettingError> {
        let taken = self.overhead_bytes.max(self.overhead_least);
        if self.overhead != Overhead::Bytes || taken > Bytes::ZERO {
            return Ok(());
        }
        Err(SettingError::Contradiction {
            key: "overhead_bytes",
            message: "with overhead_least = 0 an empty packet would take nothing".into(),
        })
    }

    /// The lengths that come of it.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        let (bytes, least, cells) = match self.overhead {
            Overhead::Ethernet => return Framing::ETHERNET,
            Overhead::Docsis => (18, 64, Cells::None),
            Overhead::PppoePtm => (30, 0, Cells::Ptm),
            Overhead::Ptm => (22, 0, Cells::Ptm),
            Overhead::AdslPppoa => (10, 0, Cells::Atm),
            Overhead::AdslPppoe => (40, 0, Cells::Atm),
            Overhead::Bytes => (self.overhead_bytes.0, self.overhead_least.0, self.cells),
        };
        Framing { bytes, least, cells }
    }
}

/// Lengths on a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Framing {
    /// Added to each packet.
    bytes: u64,
    /// The least that a packet takes, with that.
    least: u64,
    cells: Cells,
}

impl Framing {
    /// Ethernet's.
    pub const ETHERNET: Self = Self {
        bytes: ETHERNET_WIRE_OVERHEAD.0,
        least: ETHERNET_MIN_PAYLOAD.0 + ETHERNET_WIRE_OVERHEAD.0,
        cells: Cells::None,
    };

    /// What the line takes for a packet of `length` bytes from its IP header (or its first tag) on.
    #[inline(always)] // an addition and a comparison, mostly
    #[must_use]
    pub fn of(self, length: u64) -> Bytes {
        let plain = (length + self.bytes).max(self.least);
        Bytes(match self.cells {
            Cells::None => plain,
            Cells::Atm => plain.div_ceil(48) * 53,
            Cells::Ptm => plain + plain.div_ceil(64),
        })
    }

    /// The same for `count` packets of `length` bytes in all, of equal length but for the last:
    /// not less than they take, but for the padding of a short last one, and at most a cell more
    /// for each.
    #[inline]
    #[must_use]
    pub fn of_all(self, length: u64, count: u64) -> Bytes {
        let plain = (length + count * self.bytes).max(count * self.least);
        Bytes(match self.cells {
            Cells::None => plain,
            Cells::Atm => (plain + count * 47) / 48 * 53,
            Cells::Ptm => plain + (plain + count * 63) / 64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(overhead: Overhead) -> Framing {
        FramingConfig { overhead, ..FramingConfig::default() }.framing()
    }

    #[test]
    fn each_line_adds_what_its_standard_says() {
        // An acknowledgement of 40 bytes, a call's packet of 200, and a full one.
        for (overhead, wanted) in [
            (Overhead::Ethernet, [84, 238, 1538]),
            (Overhead::Docsis, [64, 218, 1518]),
            (Overhead::PppoePtm, [72, 234, 1554]),
            (Overhead::Ptm, [63, 226, 1546]),
            // Two cells, five and thirty-two.
            (Overhead::AdslPppoa, [106, 265, 1696]),
            (Overhead::AdslPppoe, [106, 265, 1749]),
        ] {
            let have = [40, 200, 1500].map(|length| of(overhead).of(length).0);
            assert_eq!(have, wanted, "{overhead:?}");
        }
    }

    #[test]
    fn segments_of_a_super_frame_take_at_least_what_each_takes() {
        for overhead in [Overhead::Ethernet, Overhead::PppoePtm, Overhead::AdslPppoe] {
            let framing = of(overhead);
            for last in [46, 700, 1500] {
                let each = 43 * framing.of(1500).0 + framing.of(last).0;
                let all = framing.of_all(43 * 1500 + last, 44).0;
                assert!((each..each + 44 * 53 + 84).contains(&all), "{overhead:?} {last}: {all}");
            }
            assert_eq!(framing.of_all(1500, 1), framing.of(1500));
        }
    }

    #[test]
    fn what_makes_packets_of_nothing_is_refused() {
        use crate::settings::Settings as _;
        let mut config = FramingConfig { overhead: Overhead::Bytes, ..FramingConfig::default() };
        config.overhead_bytes = Bytes::ZERO;
        config.check().unwrap();
        config.overhead_least = Bytes::ZERO;
        assert!(config.check().unwrap_err().to_string().contains("overhead_bytes"));
        config.overhead_bytes = Bytes(257);
        assert!(config.check().is_err());
    }
}
