//! `[[service]]`: costly work that a class of traffic can be sent through.

use std::net::IpAddr;

use evenkeel_core::Cycles;
use evenkeel_core::class_map::Match;

use crate::parse::{Unique, rule_of};
use crate::tables;
use evenkeel_settings::read::{Fields, Reader, suggest};

/// A `[[service]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// Its name.
    pub name: String,
    /// What it does.
    pub work: Work,
}

/// Most rules of a list.
const ACL_RULES: usize = 65_536;

/// What a service does with a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Encryption into an ESP tunnel.
    Esp(EspConfig),
    /// A linear list of rules.
    Acl(AclConfig),
    /// Nothing, for this many cycles.
    Spin(Cycles),
}

/// `work = { kind = "esp" }`: an outbound security association.
#[derive(Clone, Eq, PartialEq)]
pub struct EspConfig {
    /// Where the tunnel starts.
    pub local: IpAddr,
    /// Where it ends.
    pub remote: IpAddr,
    /// Security parameters index.
    pub spi: u32,
    /// Key and salt, 20 or 36 bytes.
    pub key: Vec<u8>,
    /// Sequence numbers of 64 bits.
    pub esn: bool,
    /// The outer DF bit.
    pub df: OuterDf,
    /// The outer DSCP; `None`: the inner.
    pub dscp: Option<u8>,
    /// The outer time to live.
    pub ttl: u8,
}

/// The don't-fragment bit of a tunnel's packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OuterDf {
    /// The inner packet's.
    Copy,
    /// Set.
    Set,
    /// Not set.
    Clear,
}

impl std::fmt::Debug for EspConfig {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { local, remote, spi, key, esn, df, dscp, ttl } = self;
        write!(
            f,
            "EspConfig {{ {local} to {remote}, spi {spi:#x}, key of {} bytes, esn {esn}, df \
             {df:?}, dscp {dscp:?}, ttl {ttl} }}",
            key.len()
        )
    }
}

/// `work = { kind = "acl" }`.
#[derive(Clone, Debug, PartialEq)]
pub struct AclConfig {
    /// The rules in their order: whether what fits may pass.
    pub rules: Vec<(Match, bool)>,
    /// Rules before those that no packet fits.
    pub fill: u32,
    /// Whether a packet that no rule fits may pass.
    pub permit: bool,
}

/// The services of a file.
pub(crate) fn services_of(reader: &mut Reader, file: &Fields) -> Vec<ServiceConfig> {
    let mut names = Unique::new("service");
    let mut services = Vec::new();
    for fields in file.tables("service") {
        names.check(reader, fields, "name");
        let work = fields.table("work").and_then(|work| work_of(reader, work));
        if let (Some(name), Some(work)) = (fields.text("name"), work) {
            services.push(ServiceConfig { name: name.to_owned(), work });
        }
    }
    services
}

/// The place of the service that a class names, among `names` (those of the file, also of services
/// with mistakes).
pub(crate) fn service_of_class(
    reader: &mut Reader,
    class: &Fields,
    names: &[&str],
    services: &[ServiceConfig],
) -> Option<u16> {
    let name = class.text("service")?;
    if !names.contains(&name) {
        let message = format!("no service {name:?}; {}", suggest(name, names));
        reader.fail(&class.span("service"), class.path_of("service"), message);
    }
    let at = services.iter().position(|service| service.name == name)?;
    u16::try_from(at).ok()
}

fn work_of(reader: &mut Reader, fields: &Fields) -> Option<Work> {
    match fields.kind {
        Some("esp") => esp_of(reader, fields).map(Work::Esp),
        Some("acl") => {
            let rules = fields.tables("rules").filter_map(|rule| {
                Some((rule_of(reader, rule, &tables::ACL_RULE)?, rule.text("action")? == "permit"))
            });
            let rules: Vec<_> = rules.collect();
            let fill = u32::try_from(fields.integer("fill")?).ok()?;
            if rules.len() + fill as usize > ACL_RULES {
                let message = format!(
                    "{} rules and {fill} to fill up: at most {ACL_RULES} together",
                    rules.len()
                );
                reader.fail(&fields.span("fill"), fields.path_of("fill"), message);
            }
            Some(Work::Acl(AclConfig { rules, fill, permit: fields.text("default")? == "permit" }))
        }
        _ => Some(Work::Spin(Cycles(fields.integer("cycles")?))),
    }
}

fn esp_of(reader: &mut Reader, fields: &Fields) -> Option<EspConfig> {
    let mut end = |key: &str| {
        let end = fields.prefix(key)?;
        if !end.is_host() {
            let message = format!("{end} is a network: the end of a tunnel is one address");
            reader.fail(&fields.span(key), fields.path_of(key), message);
        }
        Some(end.address())
    };
    let (local, remote) = (end("local"), end("remote"));
    let (local, remote) = (local?, remote?);
    if local.is_ipv4() != remote.is_ipv4() {
        let message = "local and remote are of different IP versions";
        reader.fail(&fields.span("remote"), fields.path_of("remote"), message);
    }
    let key = key_of(fields.text("key")?).unwrap_or_else(|message| {
        reader.fail(&fields.span("key"), fields.path_of("key"), message);
        Vec::new()
    });
    Some(EspConfig {
        local,
        remote,
        spi: u32::try_from(fields.integer("spi")?).ok()?,
        key,
        esn: fields.switch("esn")?,
        df: match fields.text("df")? {
            "set" => OuterDf::Set,
            "clear" => OuterDf::Clear,
            _ => OuterDf::Copy,
        },
        dscp: fields.integer("dscp").and_then(|dscp| u8::try_from(dscp).ok()),
        ttl: u8::try_from(fields.integer("ttl")?).ok()?,
    })
}

/// The bytes of a key in hexadecimal. Messages do not repeat it: they end up in logs.
fn key_of(text: &str) -> Result<Vec<u8>, String> {
    let valid = "valid: 40 hexadecimal digits (AES-128) or 72 (AES-256), of which the last 8 are \
                 the salt; 0x before them is allowed";
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("the key holds something that is no hexadecimal digit; {valid}"));
    }
    if ![40, 72].contains(&digits.len()) {
        return Err(format!("the key has {} digits; {valid}", digits.len()));
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
    let key = (0..digits.len())
        .step_by(2)
        .map(byte)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    if key[..key.len() - 4].iter().all(|byte| *byte == key[0]) {
        return Err(
            "all bytes of the key are the same: make one with `openssl rand -hex 20`".into()
        );
    }
    Ok(key)
}

/// A key as a file has it.
#[must_use]
pub fn key_text(key: &[u8]) -> String {
    key.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}
