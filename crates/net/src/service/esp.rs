//! ESP in tunnel mode with AES-GCM: a whole IP packet becomes the encrypted payload of another.
//!
//! Sources: RFC 4303 (ESP), RFC 4106 (AES-GCM in ESP), RFC 4301, 5.1.2 (what the outer header takes
//! from the inner), RFC 6040 (ECN, normal mode), RFC 6864 (identification), RFC 8221 (AES-GCM with
//! 16-byte ICV must be there).
//!
//! ```text
//!  link header │ outer IP header │ SPI │ sequence │ IV │ inner packet │ 1 2 3 … │ pad length │ next header │ ICV
//!              │     20 or 40    │  4  │    4     │ 8  └──────────── encrypted, a multiple of 4 ───────────┘ 16
//!                                └── authenticated ─┘
//! ```
//!
//! **Nonces.** A nonce that is used twice with a key breaks AES-GCM. The nonce is the salt of the
//! SA and a 64-bit IV; all IVs of a router come from one counter ([`Nonces`]), for which each life
//! of the router reserves a part on the disk. So two SAs with the same key (by mistake) do not
//! share nonces, and neither do two lives of the router, whatever the clock says. Sequence numbers
//! start at 1 with every SA: a receiver that checks for replays needs a new SA after a restart, as
//! RFC 4303 wants.
//!
//! **Several workers** seal for one SA at the same time: it has one counter of sequence numbers, of
//! which each packet draws the next. What two of them have drawn may leave in the other order,
//! within what a worker has under way; so it may behind any link whose queues are of flows.
//!
//! **Not implemented**: the inbound direction, key exchange (IKE), UDP encapsulation, traffic flow
//! confidentiality padding.
//!
//! Cost: one pass of AES-CTR and one of GHASH over the packet, with the processor's instructions
//! where it has them. No allocation.

use core::fmt;
use core::net::IpAddr;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit};
use evenkeel_core::{FlowKey, Reason};

use crate::checksum;
use crate::frame::{Fragment, Headers, IpVersion, ethertype};

const ESP: u8 = 50;
const ESP_HEADER: usize = 8;
const IV: usize = 8;
const ICV: usize = 16;
/// Pad length and next header.
const TRAILER: usize = 2;
const SALT: usize = 4;

/// The don't-fragment bit of an outer IPv4 header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DontFragment {
    /// As the inner packet's; set for IPv6.
    Copy,
    /// Always set.
    Set,
    /// Never set: the tunnel's packets may be cut.
    Clear,
}

/// A security association, outbound.
#[derive(Clone, Eq, PartialEq)]
pub struct SaConfig {
    /// Where the tunnel starts: an address of this router.
    pub local: IpAddr,
    /// Where it ends; of the same family.
    pub remote: IpAddr,
    /// Security parameters index, at least 256 (smaller ones are reserved, RFC 4303, 2.1).
    pub spi: u32,
    /// AES key of 16 or 32 bytes and the salt of 4, as RFC 4106, 8.1 has keying material (and
    /// `ip xfrm`).
    pub key: Vec<u8>,
    /// Whether sequence numbers have 64 bits, of which the packet carries the lower 32.
    pub extended_sequence: bool,
    /// The outer DF bit.
    pub dont_fragment: DontFragment,
    /// The outer DSCP, 0 to 63; `None`: the inner packet's.
    pub dscp: Option<u8>,
    /// The outer time to live or hop limit, at least 1.
    pub ttl: u8,
}

impl fmt::Debug for SaConfig {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaConfig")
            .field("local", &self.local)
            .field("remote", &self.remote)
            .field("spi", &format_args!("{:#x}", self.spi))
            .field("key", &format_args!("{} bytes", self.key.len()))
            .field("extended_sequence", &self.extended_sequence)
            .field("dont_fragment", &self.dont_fragment)
            .field("dscp", &self.dscp)
            .field("ttl", &self.ttl)
            .finish()
    }
}

/// What is wrong with an [`SaConfig`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SaError {
    /// The ends are of different IP versions.
    MixedFamilies,
    /// The SPI is reserved.
    ReservedSpi,
    /// The key with its salt has neither 20 nor 36 bytes.
    KeyLength(usize),
    /// All bytes of the key are the same.
    WeakKey,
    /// The DSCP is above 63.
    Dscp(u8),
    /// The time to live is 0.
    Ttl,
}

impl fmt::Display for SaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MixedFamilies => {
                f.write_str("the ends of the tunnel are of different IP versions")
            }
            Self::ReservedSpi => {
                f.write_str("the SPI must be 256 to 4294967295: smaller ones are reserved")
            }
            Self::KeyLength(bytes) => write!(
                f,
                "the key has {bytes} bytes: it must be 20 (AES-128) or 36 (AES-256), of which the \
                 last 4 are the salt"
            ),
            Self::WeakKey => f.write_str(
                "all bytes of the key are the same: make one with `openssl rand -hex 20`",
            ),
            Self::Dscp(dscp) => write!(f, "DSCP {dscp}: it must be 0 to 63"),
            Self::Ttl => f.write_str("a time to live of 0 goes nowhere"),
        }
    }
}

impl core::error::Error for SaError {}

/// A counter from which several threads draw, none the same number.
///
/// By itself in its cache lines: what lies beside it is read for each packet.
#[derive(Debug)]
#[repr(align(128))]
struct Counter(AtomicU64);

impl Counter {
    const fn at(first: u64) -> Self {
        Self(AtomicU64::new(first))
    }

    /// So many numbers below `end` that nobody had, or as many as are left.
    fn draw(&self, count: u64, end: u64) -> Range<u64> {
        let to = |at: u64| at.saturating_add(count).min(end);
        let next = |at: u64| (at < end).then(|| to(at));
        // No other memory is told of by it: that no two are the same is all that is asked.
        let drawn = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        drawn.map_or(end..end, |at| at..to(at))
    }

    /// How many numbers below it have been drawn, or were never to be.
    fn drawn(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// IVs that a worker draws at once: cores that encrypt do not wait for each other at every packet.
const DRAWN: u64 = 256;

/// The counter that all IVs of a router come from: see the module.
#[derive(Debug)]
pub struct Nonces {
    next: Counter,
    end: u64,
}

impl Nonces {
    /// These IVs, which no other life of the router has.
    #[must_use]
    pub const fn of(ivs: Range<u64>) -> Self {
        Self { next: Counter::at(ivs.start), end: ivs.end }
    }
}

/// IVs that a worker has drawn and not used; the others are without them.
#[derive(Debug, Default)]
pub struct Drawn(Range<u64>);

impl Drawn {
    /// An IV that was not given before; `None` when all have been.
    #[inline]
    fn take(&mut self, all: &Nonces) -> Option<[u8; IV]> {
        if self.0.is_empty() {
            self.0 = all.next.draw(DRAWN, all.end);
        }
        self.0.next().map(u64::to_be_bytes)
    }
}

enum Cipher {
    Aes128(Box<Aes128Gcm>),
    Aes256(Box<Aes256Gcm>),
}

impl Cipher {
    /// `None`: the key has neither 16 nor 32 bytes.
    fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Aes128Gcm::new_from_slice(key).ok().map(|cipher| Self::Aes128(Box::new(cipher))),
            32 => Aes256Gcm::new_from_slice(key).ok().map(|cipher| Self::Aes256(Box::new(cipher))),
            _ => None,
        }
    }

    /// Encrypts `text` and gives the tag.
    fn seal(
        &self,
        nonce: [u8; 12],
        associated: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; ICV], Reason> {
        let sealed = match self {
            Self::Aes128(cipher) => {
                cipher.encrypt_in_place_detached(&nonce.into(), associated, text)
            }
            Self::Aes256(cipher) => {
                cipher.encrypt_in_place_detached(&nonce.into(), associated, text)
            }
        };
        // The only error there is: more than 64 GiB at once.
        sealed.map(Into::into).map_err(|_too_long| Reason::TooBig)
    }
}

/// Room that a packet needs to be put into the tunnel, and what becomes of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Growth {
    /// Bytes before the frame.
    pub front: usize,
    /// Bytes behind it.
    pub back: usize,
    /// Length of the outer IP packet.
    pub ip_len: u32,
}

/// One end of a tunnel, outbound: an SA and its state. All workers of a router have the same.
pub struct EspTunnel {
    config: SaConfig,
    cipher: Cipher,
    salt: [u8; SALT],
    /// Packets sealed so far: the last sequence number used.
    sealed: Counter,
}

impl fmt::Debug for EspTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EspTunnel")
            .field("config", &self.config)
            .field("sequence", &self.sequence())
            .finish()
    }
}

impl EspTunnel {
    /// A tunnel through which nothing has gone.
    ///
    /// # Errors
    /// [`SaError`].
    pub fn new(config: SaConfig) -> Result<Self, SaError> {
        if config.local.is_ipv4() != config.remote.is_ipv4() {
            return Err(SaError::MixedFamilies);
        }
        if config.spi < 256 {
            return Err(SaError::ReservedSpi);
        }
        if let Some(dscp) = config.dscp.filter(|dscp| *dscp > 63) {
            return Err(SaError::Dscp(dscp));
        }
        if config.ttl == 0 {
            return Err(SaError::Ttl);
        }
        let length = SaError::KeyLength(config.key.len());
        let (key, salt) = config.key.split_last_chunk::<SALT>().ok_or(length)?;
        let (cipher, salt) = (Cipher::new(key).ok_or(length)?, *salt);
        if key.iter().all(|byte| *byte == key[0]) {
            return Err(SaError::WeakKey);
        }
        Ok(Self { config, cipher, salt, sealed: Counter::at(0) })
    }

    /// What it was made from.
    #[must_use]
    pub const fn config(&self) -> &SaConfig {
        &self.config
    }

    /// Where its packets go: this is what has to be routed.
    #[must_use]
    pub const fn remote(&self) -> IpAddr {
        self.config.remote
    }

    /// The flow that its packets are: what a path is chosen by, so that they stay in order.
    #[must_use]
    pub const fn outer_flow(&self) -> FlowKey {
        FlowKey {
            source: self.config.local,
            destination: self.config.remote,
            protocol: ESP,
            source_port: 0,
            destination_port: 0,
            flow_label: 0,
        }
    }

    /// The last sequence number used: packets sealed so far.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sealed.drawn()
    }

    const fn outer_header(&self) -> usize {
        if self.config.remote.is_ipv4() { 20 } else { 40 }
    }

    /// The room that an IP packet of `ip_len` bytes needs.
    #[must_use]
    pub const fn growth(&self, ip_len: u32) -> Growth {
        let front = self.outer_header() + ESP_HEADER + IV;
        let inner = ip_len as usize;
        let back = (inner + TRAILER).next_multiple_of(4) - inner + ICV;
        Growth { front, back, ip_len: (front + inner + back) as u32 }
    }

    /// The longest inner packet whose outer one has at most `mtu` bytes: the MTU of the tunnel. 0
    /// if none has.
    #[must_use]
    pub const fn inner_mtu(&self, mtu: u32) -> u32 {
        let fixed = (self.outer_header() + ESP_HEADER + IV + ICV) as u32;
        ((mtu.saturating_sub(fixed)) & !3).saturating_sub(TRAILER as u32)
    }

    /// Whether the outer packet of an inner one may be cut on its way.
    #[must_use]
    pub const fn outer_dont_fragment(&self, inner: &Headers) -> bool {
        !self.config.remote.is_ipv4()
            || match self.config.dont_fragment {
                DontFragment::Copy => inner.dont_fragment,
                DontFragment::Set => true,
                DontFragment::Clear => false,
            }
    }

    /// Puts a packet into the tunnel and gives the headers of the outer one.
    ///
    /// `frame` holds [`Growth::front`] bytes of anything, the frame of `headers` cut to its IP
    /// packet, and [`Growth::back`] bytes of anything. Its time to live has been decremented and
    /// its checksums are whole.
    ///
    /// # Errors
    /// - [`Reason::EspExhausted`]: the SA has used all of its sequence numbers, or the router all
    ///   of its IVs: never again with this key;
    /// - [`Reason::TooBig`]: the outer packet exceeds what an IP header can say;
    /// - [`Reason::Truncated`]: `frame` is not as described.
    pub fn seal(
        &self,
        frame: &mut [u8],
        headers: &Headers,
        (drawn, nonces): (&mut Drawn, &Nonces),
    ) -> Result<Headers, Reason> {
        let growth = self.growth(headers.ip_len);
        let (l3, inner_len) = (usize::from(headers.l3), headers.ip_len as usize);
        let fits = if self.config.remote.is_ipv4() { growth.ip_len } else { growth.ip_len - 40 };
        if fits > u32::from(u16::MAX) {
            return Err(Reason::TooBig);
        }
        if frame.len() != l3 + growth.ip_len as usize {
            return Err(Reason::Truncated);
        }
        let limit = if self.config.extended_sequence { u64::MAX } else { u32::MAX.into() };
        let sequence = self.sealed.draw(1, limit).next().ok_or(Reason::EspExhausted)? + 1;
        let iv = drawn.take(nonces).ok_or(Reason::EspExhausted)?;

        frame.copy_within(growth.front..growth.front + l3, 0);
        let (link, packet) = frame.split_at_mut(l3);
        let (outer, esp) = packet.split_at_mut(self.outer_header());
        let (version, kind) = match self.config.remote {
            IpAddr::V4(_) => (IpVersion::V4, ethertype::IPV4),
            IpAddr::V6(_) => (IpVersion::V6, ethertype::IPV6),
        };
        if let Some(link_type) = link.last_chunk_mut::<2>() {
            *link_type = kind.to_be_bytes();
        }
        let dscp = self.config.dscp.unwrap_or(headers.dscp);
        let dont_fragment = self.outer_dont_fragment(headers);
        // Unique among the tunnel's packets, as long as any of them is under way.
        let identification = sequence as u16;
        let traffic_class = dscp << 2 | headers.ecn;
        self.write_outer(outer, growth.ip_len, traffic_class, (identification, dont_fragment));

        let (head, rest) = esp.split_at_mut(ESP_HEADER + IV);
        head[..4].copy_from_slice(&self.config.spi.to_be_bytes());
        head[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
        head[8..].copy_from_slice(&iv);
        let (text, icv) = rest.split_at_mut(inner_len + growth.back - ICV);
        let padding = text.len() - inner_len - TRAILER;
        for (at, byte) in text[inner_len..].iter_mut().enumerate() {
            *byte = at as u8 + 1;
        }
        let next = if headers.version == IpVersion::V4 { 4 } else { 41 };
        text[inner_len + padding..].copy_from_slice(&[padding as u8, next]);
        icv.copy_from_slice(&self.seal_text(sequence, iv, text)?);

        Ok(Headers {
            l3: headers.l3,
            l4: headers.l3 + self.outer_header() as u16,
            ip_len: growth.ip_len,
            version,
            dscp,
            ecn: headers.ecn,
            ttl: self.config.ttl,
            protocol: ESP,
            flow: self.outer_flow(),
            dont_fragment,
            fragment: Fragment::No,
            vlan: headers.vlan,
            link_group: headers.link_group,
        })
    }

    /// Encrypts payload and trailer under a sequence number (RFC 4106, 3 to 5).
    fn seal_text(&self, sequence: u64, iv: [u8; IV], text: &mut [u8]) -> Result<[u8; ICV], Reason> {
        let mut nonce = [0; 12];
        nonce[..SALT].copy_from_slice(&self.salt);
        nonce[SALT..].copy_from_slice(&iv);
        let mut associated = [0; 12];
        associated[..4].copy_from_slice(&self.config.spi.to_be_bytes());
        let associated = if self.config.extended_sequence {
            associated[4..].copy_from_slice(&sequence.to_be_bytes());
            &associated[..]
        } else {
            associated[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
            &associated[..8]
        };
        self.cipher.seal(nonce, associated, text)
    }

    fn write_outer(
        &self,
        header: &mut [u8],
        ip_len: u32,
        traffic_class: u8,
        (identification, dont_fragment): (u16, bool),
    ) {
        match (self.config.local, self.config.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                header.fill(0);
                header[0] = 0x45;
                header[1] = traffic_class;
                header[2..4].copy_from_slice(&(ip_len as u16).to_be_bytes());
                header[4..6].copy_from_slice(&identification.to_be_bytes());
                header[6] = if dont_fragment { 0x40 } else { 0 };
                header[8] = self.config.ttl;
                header[9] = ESP;
                header[12..16].copy_from_slice(&local.octets());
                header[16..20].copy_from_slice(&remote.octets());
                let checksum = checksum::sum(header).checksum();
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            (local, remote) => {
                let octets = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                let start = 6 << 28 | u32::from(traffic_class) << 20;
                header[..4].copy_from_slice(&start.to_be_bytes());
                header[4..6].copy_from_slice(&((ip_len - 40) as u16).to_be_bytes());
                header[6] = ESP;
                header[7] = self.config.ttl;
                header[8..24].copy_from_slice(&octets(local));
                header[24..40].copy_from_slice(&octets(remote));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn tunnel(key: &str, extended_sequence: bool) -> EspTunnel {
        EspTunnel::new(SaConfig {
            local: "192.0.2.1".parse().unwrap(),
            remote: "192.0.2.2".parse().unwrap(),
            spi: 0x4321,
            key: bytes(key),
            extended_sequence,
            dont_fragment: DontFragment::Copy,
            dscp: None,
            ttl: 64,
        })
        .unwrap()
    }

    /// The first packet of the collection of GCM test vectors for ESP (draft-mcgrew-gcm-test-01,
    /// section 3): AES-128, sequence number with 64 bits.
    #[test]
    fn the_known_answer_for_aes_128_with_extended_sequence_numbers() {
        let tunnel = tunnel("4c80cdefbb5d10da906ac73c3613a634 2e443b68", true);
        let mut text = bytes(
            "45000048 699a0000 80114db7 c0a80102 c0a80101 0a9bf156 38d30100 00010000 00000000 \
             045f7369
             70045f75 64700373 69700963 79626572 63697479 02646b00 00210001 01020201",
        );
        let iv = bytes("4956ed7e3b244cfe").try_into().unwrap();
        let icv = tunnel.seal_text(0x8765_4321_0000_0000, iv, &mut text).unwrap();
        let expected = bytes(
            "fecf537e 729d5b07 dc30df52 8dd22b76 8d1b9873 6696a6fd 348509fa 13ceac34 cfa2436f \
             14a3f3cf
             65925bf1 f4a13c5d 15b21e18 84f5ff62 47aeabb7 86b93bce 61bc17d7 68fd9732",
        );
        assert_eq!(text, expected);
        assert_eq!(icv[..], bytes("45901814 8f6cbe72 2fd04796 562dfdb4"));
    }

    #[test]
    fn a_sequence_number_or_an_iv_is_never_used_twice() {
        let headers = Headers {
            l3: 14,
            l4: 34,
            ip_len: 20,
            version: IpVersion::V4,
            dscp: 0,
            ecn: 0,
            ttl: 9,
            protocol: 17,
            flow: tunnel("4c80cdefbb5d10da906ac73c3613a634 2e443b68", false).outer_flow(),
            dont_fragment: false,
            fragment: Fragment::No,
            vlan: None,
            link_group: false,
        };
        let mut sa = tunnel("4c80cdefbb5d10da906ac73c3613a634 2e443b68", false);
        let mut frame = vec![0; 14 + sa.growth(20).ip_len as usize];
        let (nonces, mut drawn) = (Nonces::of(7..100), Drawn::default());
        let mut seal = |sa: &EspTunnel| sa.seal(&mut frame, &headers, (&mut drawn, &nonces));
        sa.sealed = Counter::at(u64::from(u32::MAX) - 1);
        assert!(seal(&sa).is_ok());
        assert_eq!(seal(&sa).unwrap_err(), Reason::EspExhausted);
        let mut sa = tunnel("4c80cdefbb5d10da906ac73c3613a634 2e443b68", true);
        sa.sealed = Counter::at(u32::MAX.into());
        assert!(seal(&sa).is_ok(), "64 bits go on");
        assert_eq!(drawn.0.start, 9, "a refused packet takes no IV");
        let (nonces, mut drawn) = (Nonces::of(u64::MAX - 1..u64::MAX), Drawn::default());
        let mut seal = |sa: &EspTunnel| sa.seal(&mut frame, &headers, (&mut drawn, &nonces));
        assert!(seal(&sa).is_ok());
        assert_eq!(seal(&sa).unwrap_err(), Reason::EspExhausted);
        assert_eq!(seal(&sa).unwrap_err(), Reason::EspExhausted);
    }

    /// Where reading and counting are two steps, four threads use thousands twice.
    #[test]
    fn threads_that_draw_together_draw_each_number_once() {
        let (counter, end) = (Counter::at(5), 200_000);
        let some = |count| Some(counter.draw(count, end)).filter(|drawn| !drawn.is_empty());
        let draw = || (1..).map_while(|n| some(n % 3 + 1)).flatten().collect::<Vec<u64>>();
        let mut drawn: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        drawn.sort_unstable();
        assert!(drawn.into_iter().eq(5..end));
    }

    #[test]
    fn a_key_of_equal_bytes_is_refused() {
        let weak = SaConfig {
            key: vec![0; 20],
            ..tunnel("4c80cdefbb5d10da906ac73c3613a634 2e443b68", true).config
        };
        assert!(matches!(EspTunnel::new(weak), Err(SaError::WeakKey)));
    }

    #[test]
    fn the_key_is_not_printed() {
        let text = format!("{:?}", tunnel("4c80cdefbb5d10da906ac73c3613a634 2e443b68", true));
        assert!(
            text.contains("20 bytes") && !text.contains("76, 128") && !text.contains("4c80"),
            "{text}"
        );
    }
}
