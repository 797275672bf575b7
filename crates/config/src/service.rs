//! `[[service]]`: costly work that a class of traffic can be sent through.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use evenkeel_core::class_map::Match;
use evenkeel_core::settings::{Held, Kind, SettingError, Value};
use evenkeel_core::{Cycles, settings, variants, words};

use crate::parse::Unique;
use crate::tables::NAME;
use evenkeel_settings::read::{Fields, Reader, suggest};
use evenkeel_settings::settings_of;

settings! {
    /// Costly work done on the packets of the classes that name it, between route and link. What it
    /// costs is measured per class: `evenkeel ctl show`.
    pub struct ServiceConfig: "[[service]]" {
        /// Its name in this file and in counters. Unique.
        reload name: String = String::new(), written NAME, is required;
        /// What is done.
        reload work: Work = Work::Spin(SpinConfig::default()), is required;
    }
}

impl ServiceConfig {
    /// Most services of a router.
    pub const MAX: usize = 63;
}

variants! {
    /// What a service does with a packet.
    pub enum Work {
        /// Encryption into an ESP tunnel.
        Esp(EspConfig) = "esp",
        /// A linear list of rules.
        Acl(AclConfig) = "acl",
        /// Nothing, for some cycles.
        Spin(SpinConfig) = "spin",
    }
}

settings! {
    /// Encryption into an ESP tunnel with AES-GCM (RFC 4303, RFC 4106), outbound. The packets of
    /// the tunnel are routed to `remote`; class and flow stay those of the packet inside. It takes
    /// 54 to 57 bytes of each packet's MTU (IPv6: 74 to 77). See docs/fairdrop-router.md, also on
    /// keys in files.
    #[derive(Eq)]
    pub struct EspConfig: "work = { kind = \"esp\", … }" {
        /// Where the tunnel starts: an address of this router.
        reload local: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED), is required;
        /// Where it ends. There must be a route to it.
        reload remote: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED), is required;
        /// The security parameters index: how the receiver finds the key.
        reload spi: u32 = 256, in 256..=u32::MAX, is required;
        /// AES key of 16 or 32 bytes and the salt of 4, as `ip xfrm` takes it. Use it nowhere else.
        reload key: EspKey = EspKey(Vec::new()), is required;
        /// Sequence numbers of 64 bits. Without, the tunnel ends after 2^32 - 1 packets with the
        /// reason `esp_exhausted`.
        reload esn: bool = false;
        /// The don't-fragment bit of the tunnel's packets (IPv4). A packet that then does not fit
        /// is refused, and its sender told the MTU of the tunnel.
        reload df: OuterDf = OuterDf::Copy;
        /// The DSCP of the tunnel's packets.
        reload dscp: Option<u8> = None, in 0..=63, absent "as the packet inside has it";
        /// The time to live of the tunnel's packets.
        reload ttl: u8 = 64, in 1..=255, counting "hops";
    }
    check Self::is_sound
}

words! {
    /// The don't-fragment bit of a tunnel's packets.
    pub enum OuterDf {
        /// As the packet inside has it.
        #[default]
        Copy = "copy",
        /// Packets of the tunnel are never cut.
        Set = "set",
        /// They may be.
        Clear = "clear",
    }
}

settings! {
    /// A list of rules, looked through from the first to the one that fits: cost grows with the
    /// place of that rule.
    pub struct AclConfig: "work = { kind = \"acl\", … }" {
        /// The rules in their order.
        reload rules: Vec<AclRule> = Vec::new(), in 0..=ACL_RULES, absent "none";
        /// What happens to a packet that no rule fits.
        reload default_action as default: AclAction = AclAction::Permit;
        /// Rules before all others that no packet fits: for measuring what long lists cost.
        /// Together with `rules` at most 65536.
        reload fill: u32 = 0, in 0..=ACL_RULES, counting "rules";
    }
    check Self::is_short_enough
}

settings! {
    /// A rule: everything it names must fit.
    pub struct AclRule: "rules = [{ … }]" {
        /// What happens to a packet that fits.
        reload action: AclAction = AclAction::Permit, is required;
    }
    parts {
        /// Which packets fit.
        matching: Match,
    }
}

words! {
    /// What happens to a packet that a rule fits.
    pub enum AclAction {
        /// It passes.
        #[default]
        Permit = "permit",
        /// It is dropped as `acl_denied`.
        Deny = "deny",
    }
}

settings! {
    /// Burns cycles and does nothing: for reproducing measurements.
    #[derive(Copy)]
    pub struct SpinConfig: "work = { kind = \"spin\", … }" {
        /// Cycles per packet, by the time-stamp counter; nanoseconds where that cannot be trusted.
        reload cycles: Cycles = Cycles(1), in 1..=100_000_000, is required;
    }
}

/// Most rules of a list.
const ACL_RULES: usize = 65_536;

impl AclConfig {
    fn is_short_enough(&self) -> Result<(), SettingError> {
        let Self { rules, fill, .. } = self;
        if rules.len() + *fill as usize <= ACL_RULES {
            return Ok(());
        }
        let message =
            format!("{} rules and {fill} to fill up: at most {ACL_RULES} together", rules.len());
        Err(SettingError::Contradiction { key: "fill", message })
    }
}

impl EspConfig {
    fn is_sound(&self) -> Result<(), SettingError> {
        let EspKey(key) = &self.key;
        if key.len() > 4 && key[..key.len() - 4].iter().all(|byte| *byte == key[0]) {
            let message = "all bytes of the key are the same: make one with `openssl rand -hex 20`";
            return Err(SettingError::Contradiction { key: "key", message: message.to_owned() });
        }
        if self.local.is_ipv4() == self.remote.is_ipv4() {
            return Ok(());
        }
        let message = "local and remote are of different IP versions".to_owned();
        Err(SettingError::Contradiction { key: "remote", message })
    }
}

/// Key and salt of a tunnel, 20 or 36 bytes.
#[derive(Clone, Eq, PartialEq)]
pub struct EspKey(pub Vec<u8>);

impl fmt::Debug for EspKey {
    /// Without what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key of {} bytes", self.0.len())
    }
}

impl Held for EspKey {
    const KIND: Kind = Kind::Secret(
        "a key of 40 hexadecimal digits (AES-128) or 72 (AES-256), of which the last 8 are the \
         salt; 0x before them is allowed",
        |text| Self::from_text(text).is_some(),
    );

    fn to_value(&self) -> Value {
        let digits = self.0.iter().map(|byte| format!("{byte:02x}"));
        Value::Text(format!("0x{}", digits.collect::<String>()))
    }

    fn from_value(value: &Value) -> Option<Self> {
        value.as_text().and_then(Self::from_text)
    }
}

impl EspKey {
    fn from_text(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if ![40, 72].contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
        (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>().map(Self)
    }
}

/// The services of a file.
pub(crate) fn services_of(reader: &mut Reader, file: &Fields) -> Vec<ServiceConfig> {
    let mut names = Unique::new("service");
    let mut services = Vec::new();
    for fields in file.tables("service") {
        names.check(reader, fields, "name");
        let service = settings_of::<ServiceConfig>(reader, fields, &[]);
        if let (Some(_), Some(_)) = (fields.text("name"), fields.table("work")) {
            services.extend(service);
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
        reader.fail_at(class, "service", message);
    }
    let at = services.iter().position(|service| service.name == name)?;
    u16::try_from(at).ok()
}
