//! Fragmenting IPv4 packets that exceed the next link's MTU (RFC 791, 3.2; RFC 1812, 5.2.6).

use evenkeel_core::Reason;

use crate::checksum;
use crate::frame::{ETHERNET_HEADER, Headers, IpVersion, MAX_VLAN_TAGS, VLAN_TAG};

const MAX_LINK_HEADER: usize = ETHERNET_HEADER + MAX_VLAN_TAGS * VLAN_TAG;
const MAX_IPV4_HEADER: usize = 60;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// One fragment: a whole frame in two pieces, to be put one behind the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FragmentFrame<'a> {
    /// Ethernet header with tags, and the fragment's own IPv4 header.
    pub header: &'a [u8],
    /// Its part of the payload, out of the frame that is fragmented.
    pub payload: &'a [u8],
}

impl FragmentFrame<'_> {
    /// Length of the whole frame.
    #[must_use]
    pub const fn frame_len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Writes the frame to the start of `buffer` and gives its length; `None`, and nothing written,
    /// if it does not fit.
    #[must_use]
    pub fn write_into(&self, buffer: &mut [u8]) -> Option<usize> {
        let (header, rest) =
            buffer.get_mut(..self.frame_len())?.split_at_mut_checked(self.header.len())?;
        header.copy_from_slice(self.header);
        rest.copy_from_slice(self.payload);
        Some(self.frame_len())
    }
}

/// Cuts the IPv4 packet in `frame` into fragments of at most `mtu` bytes each and gives them to
/// `sink` in order; how many there were is the result. A packet that fits is given as it is,
/// Ethernet padding removed.
///
/// Every fragment but the last carries a multiple of 8 bytes; options without the copy bit go with
/// the first fragment only. Fragments of fragments keep their place in the original. Transport
/// checksums must be whole ([`complete_l4`](checksum::complete_l4)) before. O(length); no
/// allocation.
///
/// # Errors
/// - [`Reason::TooBig`]: the packet exceeds `mtu` and may not be fragmented (DF set, or IPv6), or
///   `mtu` has no room for a header and 8 bytes;
/// - [`Reason::BadHeaderLength`]: its options are malformed, so that it cannot be known which to
///   copy;
/// - [`Reason::BadTotalLength`]: its offset and length pass the largest possible packet;
/// - [`Reason::Truncated`]: the frame is shorter than `headers` says;
/// - whatever `sink` returns, at once: fragments given before stay given.
pub fn fragment_ipv4(
    frame: &[u8],
    headers: &Headers,
    mtu: u32,
    mut sink: impl FnMut(FragmentFrame<'_>) -> Result<(), Reason>,
) -> Result<u32, Reason> {
    let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
    let (Some(original), Some(payload)) = (frame.get(..l4), frame.get(l4..headers.frame_len()))
    else {
        return Err(Reason::Truncated);
    };
    if headers.ip_len <= mtu {
        sink(FragmentFrame { header: original, payload })?;
        return Ok(1);
    }
    if headers.version != IpVersion::V4 || headers.dont_fragment {
        return Err(Reason::TooBig);
    }
    let mut first = Template::new(original, l3).ok_or(Reason::Truncated)?;
    let mut later = first.clone();
    later.keep_copied_options()?;

    let flags = first.flags();
    let place = usize::from(flags & OFFSET) * 8;
    if place + payload.len() > usize::from(u16::MAX) {
        return Err(Reason::BadTotalLength);
    }
    let mut rest = payload;
    let mut count = 0;
    loop {
        let template = if count == 0 { &mut first } else { &mut later };
        let room = (mtu as usize).saturating_sub(template.ip_header_len());
        if room < 8 {
            return Err(Reason::TooBig);
        }
        let offset = ((place + payload.len() - rest.len()) / 8) as u16;
        let (part, after) =
            if rest.len() <= room { (rest, &[][..]) } else { rest.split_at(room & !7) };
        let more = if after.is_empty() { flags & MORE_FRAGMENTS } else { MORE_FRAGMENTS };
        sink(FragmentFrame { header: template.fill(part.len(), more | offset), payload: part })?;
        count += 1;
        rest = after;
        if rest.is_empty() {
            return Ok(count);
        }
    }
}

/// The headers that fragments start with.
#[derive(Clone)]
struct Template {
    bytes: [u8; MAX_LINK_HEADER + MAX_IPV4_HEADER],
    l3: usize,
    len: usize,
}

impl Template {
    /// A copy of all headers of a packet. `None` if they are longer or shorter than such headers
    /// can be.
    fn new(headers: &[u8], l3: usize) -> Option<Self> {
        let mut bytes = [0; MAX_LINK_HEADER + MAX_IPV4_HEADER];
        let len = headers.len();
        let ip_header_len = len.checked_sub(l3)?;
        if l3 > MAX_LINK_HEADER || !(20..=MAX_IPV4_HEADER).contains(&ip_header_len) {
            return None;
        }
        bytes.get_mut(..len)?.copy_from_slice(headers);
        Some(Self { bytes, l3, len })
    }

    const fn ip_header_len(&self) -> usize {
        self.len - self.l3
    }

    /// The 16 bits that hold flags and fragment offset.
    fn flags(&self) -> u16 {
        u16::from_be_bytes([self.bytes[self.l3 + 6], self.bytes[self.l3 + 7]])
    }

    /// Leaves only the options that belong into every fragment, padded to a multiple of 4 bytes.
    fn keep_copied_options(&mut self) -> Result<(), Reason> {
        const END: u8 = 0;
        const NO_OPERATION: u8 = 1;
        const COPY: u8 = 0x80;
        let options = self.l3 + 20;
        let (mut read, mut write) = (options, options);
        while read < self.len {
            let kind = self.bytes[read];
            if kind == END {
                break;
            }
            if kind == NO_OPERATION {
                read += 1;
                continue;
            }
            let size = match self.bytes[..self.len].get(read + 1) {
                Some(&size) if size >= 2 && read + usize::from(size) <= self.len => {
                    usize::from(size)
                }
                _ => return Err(Reason::BadHeaderLength),
            };
            if kind & COPY != 0 {
                self.bytes.copy_within(read..read + size, write);
                write += size;
            }
            read += size;
        }
        let end = options + (write - options).next_multiple_of(4);
        self.bytes[write..end].fill(END);
        self.len = end;
        Ok(())
    }

    /// The headers of the fragment with these flags and offset and this many bytes behind the IP
    /// header.
    fn fill(&mut self, payload_len: usize, flags: u16) -> &[u8] {
        let header_len = self.ip_header_len();
        let ip = &mut self.bytes[self.l3..self.len];
        ip[0] = 0x40 | (header_len / 4) as u8;
        ip[2..4].copy_from_slice(&((header_len + payload_len) as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&flags.to_be_bytes());
        ip[10..12].fill(0);
        let checksum = checksum::sum(ip).checksum();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        &self.bytes[..self.len]
    }
}
