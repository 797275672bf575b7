//! Frames read: nothing is believed before all of it was checked.

use super::{
    AUTH, Auth, ETHERNET, FrameError, FrameKind, Header, MIN_PAYLOAD, PROOF, Stamp, TAG, V1_CLOCK,
    V1_HEADER, V2_HEADER,
};
use super::{clock_bytes, fragment_bytes, most_refunds, state_bytes, v1_checksum};
use crate::config::{ClusterConfig, Version};
use crate::types::NodeId;

/// An accepted frame.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'f> {
    /// What it says.
    pub header: Header,
    /// Index of the sender among the members; of no use in a proof, which any node may send.
    pub member: usize,
    /// The sender's Ethernet address.
    pub source: [u8; 6],
    /// Its body, or the part of it that this fragment holds.
    pub body: &'f [u8],
    /// Where in the whole body that part begins.
    pub offset: usize,
    /// The hash of the sender's configuration; version 1 does not say it.
    pub configuration: u32,
    /// The stamp of its authentication.
    pub stamp: Option<Stamp>,
}

/// Reads frames of one cluster.
#[derive(Clone, Debug)]
pub struct Parser {
    config: ClusterConfig,
    hash: u32,
}

impl Parser {
    /// The configuration must be [valid](ClusterConfig::validate).
    #[must_use]
    pub fn new(config: &ClusterConfig) -> Self {
        Self { config: config.clone(), hash: config.hash() }
    }

    /// Reads a whole Ethernet frame (without check sequence).
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn parse<'f>(
        &self,
        frame: &'f [u8],
        auth: Option<&Auth>,
    ) -> Result<Parsed<'f>, FrameError> {
        let (source, version, payload) = self.payload(frame)?;
        let auth_bytes = if auth.is_some() { AUTH } else { 0 };
        let length = match version {
            Version::V1 => self.v1(payload, auth_bytes)?.0,
            Version::V2 => v2_length(payload, auth_bytes)?,
        };
        // Before anything that it says is believed, reported or answered.
        let stamp = match auth {
            Some(auth) => {
                let (content, trailer) = payload[..length].split_at(length - AUTH);
                Some(auth.verify(&source, content, trailer)?)
            }
            None => None,
        };
        let (mut header, offset) = match version {
            Version::V1 => (self.v1(payload, auth_bytes)?.1, 0),
            Version::V2 => self.v2(payload, stamp)?,
        };
        let v1 = version == Version::V1;
        let configuration = match payload.get(24..28) {
            Some(hash) if !v1 => u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]),
            Some(_) | None => self.hash,
        };
        let begin = if v1 { V1_HEADER } else { V2_HEADER };
        let checksum =
            usize::from(v1 && header.kind == FrameKind::State && header.checksum.is_some()) * 4;
        let body = &payload[begin..length - auth_bytes - checksum];
        if header.kind == FrameKind::Clock && v1 {
            header.from = NodeId(u16::from_be_bytes([body[0], body[1]]));
        }
        let id = header.from;
        // One that has yet to become a member may show that it lives.
        let stranger = header.kind == FrameKind::Proof;
        let member = self.config.index_of(id).or(stranger.then_some(usize::MAX));
        let member = member.ok_or(FrameError::Stranger(id.0))?;
        Ok(Parsed { header, member, source, body, offset, configuration, stamp })
    }

    /// The source address, the version by the ethertype, and what follows that.
    fn payload<'f>(&self, frame: &'f [u8]) -> Result<([u8; 6], Version, &'f [u8]), FrameError> {
        let short = FrameError::Short { found: frame.len(), needed: ETHERNET };
        let (head, mut rest) = frame.split_at_checked(ETHERNET).ok_or(short)?;
        let source = [head[6], head[7], head[8], head[9], head[10], head[11]];
        let mut ethertype = u16::from_be_bytes([head[12], head[13]]);
        let vlan = self.config.framing.vlan;
        if vlan > 0 {
            let (tag, after) = rest.split_at_checked(TAG).ok_or(FrameError::Foreign)?;
            if ethertype != 0x8100 || u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff != vlan {
                return Err(FrameError::Foreign);
            }
            ethertype = u16::from_be_bytes([tag[2], tag[3]]);
            rest = after;
        }
        let framing = &self.config.framing;
        let version = match ethertype.wrapping_sub(framing.ethertype) {
            0 if framing.version == Version::V1 => Version::V1,
            // Proofs are frames of version 2 in any cluster.
            1 if framing.version == Version::V2 || framing.key.is_some() => Version::V2,
            _ => return Err(FrameError::Foreign),
        };
        if head[..6] != [0xff; 6] {
            return Err(FrameError::Foreign);
        }
        Ok((source, version, rest))
    }

    /// The length of what is not padding, and the header.
    fn v1(&self, payload: &[u8], auth: usize) -> Result<(usize, Header), FrameError> {
        let [cycle, second, ..] = *payload else {
            return Err(FrameError::Short { found: payload.len(), needed: V1_HEADER });
        };
        let (master, resync, id) = (second & 0x80 != 0, second & 0x40 != 0, second & 0x3f);
        let kind = if id == V1_CLOCK { FrameKind::Clock } else { FrameKind::State };
        let mut checksum = None;
        let body = if kind == FrameKind::Clock {
            self.clock_length(payload, V1_HEADER)?
        } else {
            let records = state_bytes(&self.config);
            if v1_checksum(&self.config, cycle.into(), master) {
                let at = V1_HEADER + records;
                let needed = at + 4;
                let found = payload.get(at..needed);
                let word = found.ok_or(FrameError::Short { found: payload.len(), needed })?;
                checksum = Some(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
            }
            records + 4 * usize::from(checksum.is_some())
        };
        let length = V1_HEADER + body + auth;
        check_length(payload, length)?;
        let header = Header {
            kind,
            from: NodeId(id.into()),
            cycle: cycle.into(),
            master,
            resync,
            fragment: 0,
            fragments: 1,
            checksum,
            ready: None,
            members: None,
        };
        Ok((length, header))
    }

    /// Bytes of a clock body, from the number of refunds in it.
    fn clock_length(&self, payload: &[u8], begin: usize) -> Result<usize, FrameError> {
        let needed = begin + 4;
        let word = payload.get(begin + 2..needed);
        let word = word.ok_or(FrameError::Short { found: payload.len(), needed })?;
        let refunds = usize::from(u16::from_be_bytes([word[0], word[1]]));
        if refunds > most_refunds(&self.config) {
            return Err(FrameError::Dimensions);
        }
        Ok(clock_bytes(&self.config, refunds))
    }

    /// The header, and where in the whole body this part begins.
    fn v2(&self, payload: &[u8], stamp: Option<Stamp>) -> Result<(Header, usize), FrameError> {
        let short = FrameError::Short { found: payload.len(), needed: V2_HEADER };
        let head = payload.first_chunk::<V2_HEADER>().ok_or(short)?;
        let short_at = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let word_at =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long_at = |at: usize| u64::from(word_at(at)) << 32 | u64::from(word_at(at + 4));
        let (from, fragment, fragments) = (short_at(8), short_at(10), short_at(12));
        let theirs = word_at(24);
        let part = usize::from(short_at(14));
        if head[1] == 3 {
            if part > PROOF || (fragment, fragments) != (0, 1) {
                return Err(FrameError::Dimensions);
            }
            return Ok((proof_header(NodeId(from)), 0));
        }
        if self.config.framing.version == Version::V1 {
            return Err(FrameError::Foreign);
        }
        if theirs != self.hash {
            return Err(FrameError::OtherConfiguration { node: from, theirs, stamp });
        }
        let config = &self.config;
        let (kind, most) = match head[1] {
            1 => (FrameKind::State, state_bytes(config)),
            2 => (FrameKind::Clock, clock_bytes(config, most_refunds(config))),
            kind => return Err(FrameError::Kind(kind)),
        };
        let fits = usize::from(head[3]) == config.classes()
            && usize::from(short_at(4)) == config.links
            && usize::from(short_at(6)) == config.depth();
        let chunk = fragment_bytes(config);
        let offset = usize::from(fragment) * chunk;
        if fragment >= fragments {
            return Err(FrameError::Dimensions);
        }
        let last = fragment + 1 == fragments;
        let whole =
            kind == FrameKind::Clock || usize::from(fragments) == most.div_ceil(chunk).max(1);
        // All fragments but the last are full; the last of a state ends where the state does.
        let sized = if last { part <= chunk } else { part == chunk };
        let ends =
            offset + part <= most && (kind == FrameKind::Clock || !last || offset + part == most);
        if !(fits && whole && sized && ends) {
            return Err(FrameError::Dimensions);
        }
        let ready = head[2] & 0x20 != 0;
        let header = Header {
            kind,
            from: NodeId(from),
            cycle: long_at(16),
            master: head[2] & 0x80 != 0,
            resync: head[2] & 0x40 != 0,
            fragment,
            fragments,
            checksum: (!ready).then(|| word_at(28)),
            ready: ready.then(|| word_at(28)),
            members: Some(long_at(32)),
        };
        Ok((header, offset))
    }
}

/// The header of a proof, as it is used.
pub(crate) const fn proof_header(from: NodeId) -> Header {
    Header {
        kind: FrameKind::Proof,
        from,
        cycle: 0,
        master: false,
        resync: false,
        fragment: 0,
        fragments: 1,
        checksum: None,
        ready: None,
        members: None,
    }
}

/// The length of what is not padding, as a frame of version 2 has it.
fn v2_length(payload: &[u8], auth: usize) -> Result<usize, FrameError> {
    let version = *payload.first().ok_or(FrameError::Short { found: 0, needed: V2_HEADER })?;
    if version != 2 {
        return Err(FrameError::Version(version));
    }
    let short = FrameError::Short { found: payload.len(), needed: V2_HEADER };
    let head = payload.first_chunk::<V2_HEADER>().ok_or(short)?;
    let length = V2_HEADER + usize::from(u16::from_be_bytes([head[14], head[15]])) + auth;
    check_length(payload, length)?;
    Ok(length)
}

/// The payload is `length` long, or shorter than Ethernet allows and padded with zeros.
fn check_length(payload: &[u8], length: usize) -> Result<(), FrameError> {
    if payload.len() < length {
        return Err(FrameError::Short { found: payload.len(), needed: length });
    }
    let padding = &payload[length..];
    if payload.len() > length.max(MIN_PAYLOAD) || padding.iter().any(|byte| *byte != 0) {
        return Err(FrameError::Long { found: payload.len(), allowed: length.max(MIN_PAYLOAD) });
    }
    Ok(())
}
