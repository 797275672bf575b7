//! Frames written.

use super::{Auth, ETHERNET, FrameKind, Header, MIN_PAYLOAD, TAG, V1_CLOCK, V2_HEADER};
use super::{auth_bytes, fragment_bytes, v1_checksum};
use crate::config::{ClusterConfig, Version};

const PRIORITY: u16 = 7 << 13;

/// Writes the frames of one node. Allocates when made, never later.
#[derive(Clone, Debug)]
pub struct Builder {
    version: Version,
    config: ClusterConfig,
    hash: u32,
    chunk: usize,
    /// The frame; its Ethernet header is written once.
    frame: Vec<u8>,
    ethertype: u16,
    begin: usize,
}

impl Builder {
    /// For the node with address `mac`. The configuration must be [valid](ClusterConfig::validate).
    #[must_use]
    pub fn new(config: &ClusterConfig, mac: [u8; 6]) -> Self {
        let framing = &config.framing;
        let mut frame =
            Vec::with_capacity(ETHERNET + TAG + usize::from(framing.mtu).max(MIN_PAYLOAD));
        frame.extend([0xff; 6]);
        frame.extend(mac);
        if framing.vlan > 0 {
            frame.extend(0x8100_u16.to_be_bytes());
            frame.extend((PRIORITY | framing.vlan).to_be_bytes());
        }
        let v1 = framing.version == Version::V1;
        frame.extend((framing.ethertype + u16::from(!v1)).to_be_bytes());
        let begin = frame.len();
        let chunk = if v1 { usize::from(framing.mtu) } else { fragment_bytes(config) };
        Self {
            version: framing.version,
            config: config.clone(),
            hash: config.hash(),
            chunk,
            frame,
            ethertype: framing.ethertype,
            begin,
        }
    }

    /// This node's port has another address from now on.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        self.frame[6..12].copy_from_slice(&mac);
    }

    /// Frames that a body of so many bytes takes.
    #[must_use]
    pub fn fragments(&self, body: usize) -> u16 {
        match self.version {
            Version::V1 => 1,
            Version::V2 => body.div_ceil(self.chunk).max(1) as u16,
        }
    }

    /// Writes `body` as one or several frames and hands each to `send`. `fragment`, `fragments` of
    /// `header` are set here.
    pub fn build(
        &mut self,
        header: &Header,
        body: &[u8],
        mut auth: Option<&mut Auth>,
        mut send: impl FnMut(&[u8]),
    ) {
        let proof = header.kind == FrameKind::Proof;
        let version = if proof { Version::V2 } else { self.version };
        let fragments = if proof { 1 } else { self.fragments(body.len()) };
        let kind = self.ethertype + u16::from(version == Version::V2);
        self.frame.truncate(self.begin);
        self.frame[self.begin - 2..].copy_from_slice(&kind.to_be_bytes());
        for fragment in 0..fragments {
            let part = match version {
                Version::V1 => body,
                Version::V2 => {
                    let from = usize::from(fragment) * self.chunk;
                    &body[from..body.len().min(from + self.chunk)]
                }
            };
            self.frame.truncate(self.begin);
            match version {
                Version::V1 => self.v1(header, part),
                Version::V2 => self.v2(&Header { fragment, fragments, ..*header }, part),
            }
            if let Some(auth) = auth.as_deref_mut() {
                let trailer = auth.sign(&self.frame[6..12], &self.frame[self.begin..]);
                self.frame.extend(trailer);
            }
            let least = self.begin + MIN_PAYLOAD;
            if self.frame.len() < least {
                self.frame.resize(least, 0);
            }
            send(&self.frame);
        }
    }

    fn v1(&mut self, header: &Header, body: &[u8]) {
        let id = if header.kind == FrameKind::Clock { V1_CLOCK } else { header.from.0 as u8 };
        let flags = u8::from(header.master) << 7 | u8::from(header.resync) << 6;
        self.frame.extend([header.cycle as u8, flags | id]);
        self.frame.extend(body);
        if header.kind == FrameKind::State && v1_checksum(&self.config, header.cycle, header.master)
        {
            self.frame.extend(header.checksum.unwrap_or(0).to_be_bytes());
        }
    }

    fn v2(&mut self, header: &Header, part: &[u8]) {
        let kind = match header.kind {
            FrameKind::State => 1,
            FrameKind::Clock => 2,
            FrameKind::Proof => 3,
        };
        let ready = u8::from(header.ready.is_some()) << 5;
        let flags = u8::from(header.master) << 7 | u8::from(header.resync) << 6 | ready;
        self.frame.extend([2, kind, flags, self.config.classes() as u8]);
        for word in [
            self.config.links as u16,
            self.config.depth() as u16,
            header.from.0,
            header.fragment,
            header.fragments,
            part.len() as u16,
        ] {
            self.frame.extend(word.to_be_bytes());
        }
        self.frame.extend(header.cycle.to_be_bytes());
        self.frame.extend(self.hash.to_be_bytes());
        self.frame.extend(header.ready.or(header.checksum).unwrap_or(0).to_be_bytes());
        self.frame.extend(header.members.unwrap_or(0).to_be_bytes());
        debug_assert_eq!(self.frame.len(), self.begin + V2_HEADER, "the header of version 2");
        self.frame.extend(part);
    }

    /// Bytes of the frame that a state body of this configuration takes on the wire, with check
    /// sequence, preamble and gap, over all its fragments.
    #[must_use]
    pub fn state_wire_bytes(&self) -> usize {
        let body = super::state_bytes(&self.config);
        let header = if self.version == Version::V1 { super::V1_HEADER } else { V2_HEADER };
        let fixed = self.begin + header + auth_bytes(&self.config) + 24;
        let fragments = usize::from(self.fragments(body));
        (fragments * fixed + body).max(fragments * (self.begin + MIN_PAYLOAD + 24))
    }
}
