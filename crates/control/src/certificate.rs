//! A certificate: what the links of a router were told and what they delivered in a period, signed.
//!
//! The file is JSON with four texts. `payload` is itself JSON, and the very bytes that are signed:
//! who verifies needs no rule how to write JSON. The signature is Ed25519 (RFC 8032) over
//! [`FORMAT`], a newline and the payload. The payload names the public key, the period and the
//! SHA-256 of the configuration that ran.
//!
//! A certificate says what the router saw of itself. The key says whose router; that nobody has
//! changed it, the signature; that it is the router that the customer's packets went through,
//! nothing here can.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::{
    AuditSnapshot, ClusterAuditSnapshot, CyclesSnapshot, Drops, LagSnapshot, LinkSnapshot,
    NodeSnapshot, ViolationSnapshot,
};
use evenkeel_router::window::between;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::look::Seen;

/// The format, and what separates these signatures from all others that the key may make.
pub const FORMAT: &str = "evenkeel-certificate-1";
/// How the file of a key begins.
const KEY: &str = "evenkeel-key-1 ";

/// Why there is no certificate, or no valid one.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The key's file may be read by others.
    #[error("{path}: others may read it (mode {mode:o}): a key is its owner's alone; \
             chmod 600 {path}", path = path.display())]
    OpenKey {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A text that is not what it should be.
    #[error("{what}: {why}")]
    Malformed {
        /// The file, or what of it.
        what: String,
        /// What was expected.
        why: &'static str,
    },
    /// Signed by another key than expected, or changed since.
    #[error("the signature is not valid: another key has signed it, or it was changed")]
    BadSignature,
    /// The router was started anew within the period.
    #[error("the router was started anew within the period: it cannot answer for all of it")]
    Restarted,
    /// No link, and no core, has been audited.
    #[error(
        "no link of the router has a rate, and no core is shared: there is nothing that it was \
         told to deliver"
    )]
    Unaudited,
}

type Result<T> = std::result::Result<T, CertificateError>;

/// The signed part.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Payload {
    /// [`FORMAT`].
    pub format: String,
    /// The router's name.
    pub router: String,
    /// The version of its program.
    pub program: String,
    /// The key that signs, hexadecimal.
    pub public_key: String,
    /// When the period began: seconds since 1970.
    pub from_unix_s: f64,
    /// Its length, seconds.
    pub seconds: f64,
    /// SHA-256 of the configuration that ran at its end, as `evenkeel ctl running` prints it.
    pub configuration_sha256: String,
    /// Whether it was another one at its beginning.
    pub configuration_changed: bool,
    /// Whether every audited link kept every promise.
    pub kept: bool,
    /// Of each link.
    pub links: Vec<LinkRecord>,
    /// Of the cores, where FairDrop shares them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<CyclesSnapshot>,
    /// Of the subscribers that were asked for, on each link of their tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<SubscriberRecord>,
    /// Of the cluster, at this forwarder of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterAuditSnapshot>,
}

/// One link in the period.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LinkRecord {
    /// Its port.
    pub link: String,
    /// Its discipline.
    pub discipline: String,
    /// The rate that it was told, bit/s on the wire.
    pub told_bps: Option<u64>,
    /// What left it, bit/s of IP packets.
    pub delivered_bps: u64,
    /// Whether it was audited: it has a rate.
    pub audited: bool,
    /// For how long shares were judged, seconds.
    pub judged_s: f64,
    /// Promises broken.
    pub violations: u64,
    /// By the promise.
    pub by_breach: Drops,
    /// By the cause.
    pub by_cause: Drops,
    /// The last one, if there was one in the period.
    pub last: Option<ViolationSnapshot>,
    /// The furthest that it was behind its rate since the start of the router, bytes, and the bound
    /// with what the audit cannot tell.
    pub rate_lag_bytes: [u64; 2],
    /// Of a tree, the same of what a node was sent beyond its cap, and of how far one was behind
    /// the share of a sibling; `None`: none was compared.
    #[serde(default)]
    pub cap_excess_bytes: Option<[u64; 2]>,
    /// See there.
    #[serde(default)]
    pub sibling_lag_bytes: Option<[u64; 2]>,
    /// Of a discipline of flows, the same of how much flows that always wait differ, of those
    /// sampled, and of how far packets with priority are behind going first; `None`: no promise.
    #[serde(default)]
    pub flow_lag_bytes: Option<[u64; 2]>,
    /// See there. Divided by the rate it bounds what a packet with priority waits besides those of
    /// its kind before it.
    #[serde(default)]
    pub priority_lag_bytes: Option<[u64; 2]>,
    /// Of each class.
    pub classes: Vec<ClassRecord>,
}

/// One class of a link in the period.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ClassRecord {
    /// Its name.
    pub class: String,
    /// Its part of the link while all classes of its level wait, millionths; `None`: none is told.
    pub told_ppm: Option<u64>,
    /// Its part of what left the link, millionths.
    pub delivered_ppm: u64,
    /// What left, bit/s of IP packets.
    pub delivered_bps: u64,
    /// What came, bit/s of IP packets.
    pub offered_bps: u64,
    /// Packets dropped, by reason.
    pub dropped: Drops,
    /// Mean and longest delay in the router, us; `None`: nothing left.
    pub delay_us: Option<[f64; 2]>,
    /// The furthest that it was behind its share since the start of the router, bytes, and the
    /// bound with what the audit cannot tell; `None`: none is promised.
    pub lag_bytes: Option<[u64; 2]>,
}

/// One subscriber on one link in the period.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SubscriberRecord {
    /// The name in the list.
    pub subscriber: String,
    /// The link.
    pub link: String,
    /// The link leads towards the subscriber.
    pub down: bool,
    /// The cap at the end of the period, bit/s on the wire; `None`: that of what it is behind.
    pub told_bps: Option<u64>,
    /// What was guaranteed then, bit/s.
    pub guaranteed_bps: u64,
    /// Whether cap or guarantee were others at the beginning.
    pub changed: bool,
    /// What was sent, bit/s on the wire.
    pub delivered_bps: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets dropped because there was no room for them.
    pub overflow: u64,
    /// Packets dropped because their queue stood.
    pub standing: u64,
    /// What half of the packets waited at most, and 99 of 100, us, by a histogram whose steps
    /// double; `None`: nothing was sent, or more than it tells apart.
    pub wait_us: [Option<u64>; 2],
    /// How often it had to wait for its own cap.
    pub own_cap: u64,
}

impl SubscriberRecord {
    /// Of the nodes of one name at the beginning, and what they did until the end.
    #[must_use]
    pub fn of(was: &[NodeSnapshot], seen: &[Seen]) -> Vec<Self> {
        let record = |seen: &Seen| {
            let Seen { now, since, .. } = seen;
            let before = was.iter().find(|was| was.link == now.link && was.tree == now.tree);
            let told = |node: &NodeSnapshot| (node.cap_bps, node.guarantee_bps);
            let wait = |hundredths| seen.delay(hundredths).flatten().map(|wait| wait.0 / 1_000);
            Self {
                subscriber: now.name.clone(),
                link: now.link.clone(),
                down: now.down,
                told_bps: now.cap_bps,
                guaranteed_bps: now.guarantee_bps,
                changed: before.is_none_or(|before| told(before) != told(now)),
                delivered_bps: seen.rate().0,
                sent_packets: since.sent_packets,
                overflow: since.overflow,
                standing: since.standing,
                wait_us: [wait(50), wait(99)],
                own_cap: since.own_cap,
            }
        };
        seen.iter().filter(|seen| seen.now.subscriber).map(record).collect()
    }
}

/// The file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`FORMAT`].
    pub format: String,
    /// The signed text.
    pub payload: String,
    /// 32 bytes, hexadecimal.
    pub public_key: String,
    /// 64 bytes, hexadecimal.
    pub signature: String,
}

/// What a period is about.
#[derive(Clone, Copy, Debug)]
pub struct Period<'a> {
    /// The counters at its beginning.
    pub earlier: &'a Snapshot,
    /// At its end.
    pub later: &'a Snapshot,
    /// The text of the configuration at its beginning.
    pub before: &'a str,
    /// At its end.
    pub after: &'a str,
    /// When it began: seconds since 1970.
    pub from_unix_s: f64,
}

impl Period<'_> {
    /// What is to be signed.
    ///
    /// # Errors
    /// [`CertificateError::Restarted`], [`CertificateError::Unaudited`].
    pub fn payload(&self, key: &SigningKey) -> Result<Payload> {
        let window = between(self.earlier, self.later);
        let elapsed = self.later.time_ns.saturating_sub(self.earlier.time_ns);
        if window.length_ns < elapsed || elapsed == 0 {
            return Err(CertificateError::Restarted);
        }
        let seconds = window.length_ns as f64 / 1e9;
        let links: Vec<_> =
            window.counted.links.iter().map(|link| LinkRecord::new(link, seconds)).collect();
        let shared = window.counted.fairdrop.as_ref().filter(|fairdrop| fairdrop.on);
        let cycles = shared.map(|fairdrop| fairdrop.cycles.clone());
        let cluster = window.counted.cluster.as_ref().map(|cluster| cluster.audit.clone());
        if !links.iter().any(|link| link.audited) && cycles.is_none() && cluster.is_none() {
            return Err(CertificateError::Unaudited);
        }
        Ok(Payload {
            format: FORMAT.to_owned(),
            router: self.later.router.clone(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            public_key: hex(key.verifying_key().as_bytes()),
            from_unix_s: self.from_unix_s,
            seconds,
            configuration_sha256: hex(&Sha256::digest(self.after)),
            configuration_changed: self.before != self.after,
            kept: links.iter().all(|link| link.violations == 0)
                && cycles.as_ref().is_none_or(|cycles| cycles.violations == 0)
                && cluster.as_ref().is_none_or(|cluster| cluster.violations == 0),
            links,
            cycles,
            subscribers: Vec::new(),
            cluster,
        })
    }
}

fn per_second(bytes: u64, seconds: f64) -> u64 {
    (bytes as f64 * 8.0 / seconds) as u64
}

/// The worst, and the bound with what the audit cannot tell.
fn worst(lag: &LagSnapshot) -> [u64; 2] {
    [lag.worst_bytes, lag.bound_bytes + lag.within_bytes]
}

fn judged(lag: &LagSnapshot) -> Option<[u64; 2]> {
    (lag.bound_bytes > 0).then(|| worst(lag))
}

impl LinkRecord {
    fn new(link: &LinkSnapshot, seconds: f64) -> Self {
        let none = AuditSnapshot::default();
        let audit = link.audit.as_ref().unwrap_or(&none);
        let sent: u64 = link.classes.iter().map(|class| class.sent_bytes.0).sum();
        let classes = link.classes.iter().map(|class| {
            let judged = audit.classes.iter().find(|judged| judged.name == class.name);
            let mean = class.delay_mean_us();
            ClassRecord {
                class: class.name.clone(),
                told_ppm: judged.map(|judged| judged.told_ppm),
                delivered_ppm: class.sent_bytes.0 * 1_000_000 / sent.max(1),
                delivered_bps: per_second(class.sent_bytes.0, seconds),
                offered_bps: per_second(class.in_bytes.0, seconds),
                dropped: class.dropped.clone(),
                delay_us: mean.map(|mean| [mean, class.delay_max_ns as f64 / 1e3]),
                lag_bytes: judged.map(|judged| worst(&judged.lag)),
            }
        });
        Self {
            link: link.port.clone(),
            discipline: link.discipline.clone(),
            told_bps: link.rate_bps,
            delivered_bps: per_second(sent, seconds),
            audited: link.audit.is_some(),
            judged_s: audit.watched_ns as f64 / 1e9,
            violations: audit.violations,
            by_breach: audit.by_breach.clone(),
            by_cause: audit.by_cause.clone(),
            last: audit.last.clone().filter(|_| audit.violations > 0),
            rate_lag_bytes: worst(&audit.rate),
            cap_excess_bytes: judged(&audit.caps),
            sibling_lag_bytes: judged(&audit.siblings),
            flow_lag_bytes: judged(&audit.flows),
            priority_lag_bytes: judged(&audit.priority),
            classes: classes.collect(),
        }
    }
}

/// The bytes that are signed.
fn signed(payload: &str) -> Vec<u8> {
    format!("{FORMAT}\n{payload}").into_bytes()
}

impl Certificate {
    /// Signs.
    #[must_use]
    pub fn new(payload: &Payload, key: &SigningKey) -> Self {
        let payload = serde_json::to_string(payload).expect("numbers and texts only");
        Self {
            format: FORMAT.to_owned(),
            public_key: hex(key.verifying_key().as_bytes()),
            signature: hex(&key.sign(&signed(&payload)).to_bytes()),
            payload,
        }
    }

    /// What was signed, if `trusted` has signed it. The key that the file names is not believed.
    ///
    /// # Errors
    /// The signature is another's, or the file is none of these.
    pub fn verify(&self, trusted: &VerifyingKey) -> Result<Payload> {
        let signature =
            bytes::<64>(&self.signature).ok_or_else(|| CertificateError::Malformed {
                what: "signature".to_owned(),
                why: "64 bytes in hexadecimal were expected",
            })?;
        let payload = signed(&self.payload);
        trusted
            .verify_strict(&payload, &Signature::from_bytes(&signature))
            .map_err(|_invalid| CertificateError::BadSignature)?;
        serde_json::from_str(&self.payload)
            .ok()
            .filter(|payload: &Payload| payload.format == FORMAT)
            .ok_or_else(|| CertificateError::Malformed {
                what: "payload".to_owned(),
                why: "it is signed, but not by a program that writes this format",
            })
    }
}

/// Makes a key in a new file that only its owner may read.
///
/// # Errors
/// The file is there already, or cannot be written.
pub fn generate(path: &Path) -> Result<VerifyingKey> {
    let failed = |source| CertificateError::Io { path: path.to_owned(), source };
    let mut seed = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut seed))
        .map_err(failed)?;
    let key = SigningKey::from_bytes(&seed);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    writeln!(file, "{KEY}{}", hex(&seed)).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(key.verifying_key())
}

/// Reads a key that [`generate`] has made.
///
/// # Errors
/// Others may read the file, or it holds no key.
pub fn read_key(path: &Path) -> Result<SigningKey> {
    let failed = |source| CertificateError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(CertificateError::OpenKey { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    let seed = text.strip_prefix(KEY).and_then(|hex| bytes::<32>(hex.trim_end()));
    seed.map(|seed| SigningKey::from_bytes(&seed)).ok_or_else(|| CertificateError::Malformed {
        what: path.display().to_string(),
        why: "a key made by `evenkeel audit keygen` was expected",
    })
}

/// A public key in hexadecimal.
///
/// # Errors
/// It is none.
pub fn public_key(text: &str) -> Result<VerifyingKey> {
    let key = bytes::<32>(text.trim()).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
    key.ok_or_else(|| CertificateError::Malformed {
        what: format!("key {text:?}"),
        why: "the 32 bytes of an Ed25519 public key in hexadecimal were expected",
    })
}

/// In hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |at: usize| (digits[at] as char).to_digit(16).map(|digit| digit as u8);
    let mut all = [0; N];
    for (at, byte) in all.iter_mut().enumerate() {
        *byte = digit(2 * at)? << 4 | digit(2 * at + 1)?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A second of a router with a link that this audit has found of.
    fn second(audit: Option<AuditSnapshot>, key: &SigningKey) -> Result<Payload> {
        let link = LinkSnapshot { port: "wan".to_owned(), audit, ..LinkSnapshot::default() };
        let at = |ns| Snapshot {
            time_ns: ns,
            uptime_ns: ns,
            links: vec![link.clone()],
            ..Snapshot::default()
        };
        let (earlier, later) = (at(5), at(1_000_000_005));
        Period { earlier: &earlier, later: &later, before: "a", after: "b", from_unix_s: 7.0 }
            .payload(key)
    }

    fn signed_one(key: &SigningKey) -> Certificate {
        let payload = second(Some(AuditSnapshot::default()), key).expect("one life");
        assert!(payload.configuration_changed && payload.kept);
        Certificate::new(&payload, key)
    }

    #[test]
    fn what_was_changed_or_signed_by_another_is_refused() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let other = SigningKey::from_bytes(&[8; 32]);
        let good = signed_one(&key);
        assert_eq!(good.verify(&key.verifying_key()).expect("valid").seconds, 1.0);
        assert!(matches!(good.verify(&other.verifying_key()), Err(CertificateError::BadSignature)));
        let mut changed = good.clone();
        changed.payload = changed.payload.replace("\"kept\":true", "\"kept\":false");
        assert_ne!(changed, good);
        assert!(matches!(
            changed.verify(&key.verifying_key()),
            Err(CertificateError::BadSignature)
        ));
        changed = Certificate { signature: good.signature[2..].to_owned(), ..good };
        assert!(matches!(
            changed.verify(&key.verifying_key()),
            Err(CertificateError::Malformed { .. })
        ));
    }

    #[test]
    fn where_nothing_was_audited_nothing_was_kept() {
        let key = SigningKey::from_bytes(&[7; 32]);
        assert!(matches!(second(None, &key), Err(CertificateError::Unaudited)));
    }

    #[test]
    fn a_restart_within_the_period_is_no_period() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let earlier = Snapshot { time_ns: 5_000, uptime_ns: 5_000, ..Snapshot::default() };
        let later = Snapshot { time_ns: 9_000, uptime_ns: 100, ..Snapshot::default() };
        let period =
            Period { earlier: &earlier, later: &later, before: "", after: "", from_unix_s: 0.0 };
        assert!(matches!(period.payload(&key), Err(CertificateError::Restarted)));
    }

    #[test]
    fn a_key_is_its_owners_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let public = generate(&path).expect("a new file");
        assert_eq!(read_key(&path).expect("its own").verifying_key(), public);
        assert_eq!(public_key(&hex(public.as_bytes())).expect("its own"), public);
        assert!(matches!(generate(&path), Err(CertificateError::Io { .. })), "kept");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("ours");
        assert!(matches!(read_key(&path), Err(CertificateError::OpenKey { mode: 0o640, .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        std::fs::write(&path, "evenkeel-key-1 00ff").expect("ours");
        assert!(matches!(read_key(&path), Err(CertificateError::Malformed { .. })));
        assert!(public_key("zz").is_err());
    }
}
