//! The admission of new flows: `[link.admission]` and `[flows]`.

use std::net::IpAddr;

use evenkeel_core::BitRate;
use evenkeel_core::Nanos;
use evenkeel_core::Prefix;
use evenkeel_core::admit::{
    AdmissionConfig, BudgetConfig, EccmConfig, EmergencyConfig, EmergencyRule, Flush, FlushConfig,
    PerUserConfig, PinningConfig, RouterListsConfig, SecondLinkConfig, SecondLinkPolicy,
};
use evenkeel_core::units::Ppm;

use crate::change::{ChangeError, concluded, node};
use crate::tables::flow_aware::ADMISSION;
use evenkeel_core::settings::quantity::{rate_text, time_text};
use evenkeel_settings::read::{Fields, Item, Reader, Value, parse_toml, suggest};

/// `[flows]`: what the admissions of all links share.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowsSection {
    /// The global list of streaming flows.
    pub lists: RouterListsConfig,
    /// Packets from here are of emergency flows.
    pub emergency_sources: Vec<Prefix>,
    /// Packets to here are of emergency flows.
    pub emergency_destinations: Vec<Prefix>,
}

/// What is done for emergency flows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Emergency {
    Off,
    Bypass,
    Thresholds,
}

/// The second link of a link, for flows that it has no room for (MFAN).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecondLink {
    /// Its port.
    pub port: String,
    /// The next router on it; `None`: the destination itself.
    pub via: Option<IpAddr>,
}

/// `[link.admission]`, defaults filled in. The knobs of mechanisms that are off are kept: switching one on later finds them as they were set.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkAdmission {
    /// Thresholds, intervals and sizes; its mechanisms are what the fields below say.
    plain: AdmissionConfig,
    /// The capacity, if it is not that of the link.
    rate: Option<BitRate>,
    budget: (bool, BudgetConfig),
    emergency: Emergency,
    emergency_min_fair_rate: Ppm,
    emergency_max_priority_load: Ppm,
    eccm: (bool, EccmConfig),
    per_user: (bool, PerUserConfig),
    flushing: (bool, FlushConfig),
    pinning: (bool, PinningConfig),
    second_link: Option<SecondLink>,
    second: SecondLinkConfig,
}

/// A change of one key of an admission, as text: what `ctl set LINK admission.KEY VALUE` says. Its value has been checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AdmissionChange {
    /// The key.
    pub key: &'static str,
    /// Its new value.
    pub value: String,
}

/// Valid everywhere, for reading keys that do not depend on the rate.
const SOME_RATE: BitRate = BitRate(1_000_000);

impl LinkAdmission {
    fn empty() -> Self {
        Self {
            plain: AdmissionConfig::new(SOME_RATE),
            rate: None,
            budget: (true, BudgetConfig::default()),
            emergency: Emergency::Bypass,
            emergency_min_fair_rate: Ppm(25_000),
            emergency_max_priority_load: Ppm::percent(80),
            eccm: (false, EccmConfig::default()),
            per_user: (false, PerUserConfig::default()),
            flushing: (false, FlushConfig::new(Flush::Efm)),
            pinning: (false, PinningConfig::default()),
            second_link: None,
            second: SecondLinkConfig::new(SOME_RATE),
        }
    }

    /// The core's form for a link with this `rate`; `second_rate` is that of its second link.
    ///
    /// # Errors
    /// What contradicts what, or that no capacity is known, in words.
    pub fn core(
        &self,
        rate: Option<BitRate>,
        second_rate: Option<BitRate>,
        flows: &FlowsSection,
    ) -> Result<AdmissionConfig, String> {
        let rate = self.rate.or(rate);
        let rate = rate.ok_or("the link has no rate: give admission a `rate` to hold thresholds against")?;
        let mut config = AdmissionConfig { rate, ..self.plain.clone() };
        config.budget = self.budget.0.then_some(self.budget.1);
        config.eccm = self.eccm.0.then_some(self.eccm.1);
        config.per_user = self.per_user.0.then_some(self.per_user.1);
        config.flushing = self.flushing.0.then_some(self.flushing.1);
        config.pinning = self.pinning.0.then_some(self.pinning.1);
        let rule = match self.emergency {
            Emergency::Off => None,
            Emergency::Bypass => Some(EmergencyRule::Bypass),
            Emergency::Thresholds => Some(EmergencyRule::Thresholds {
                min_fair_rate: self.emergency_min_fair_rate,
                max_priority_load: self.emergency_max_priority_load,
            }),
        };
        let nobody = flows.emergency_sources.is_empty() && flows.emergency_destinations.is_empty();
        config.emergency = rule.filter(|_| !nobody).map(|rule| EmergencyConfig {
            sources: flows.emergency_sources.clone(),
            destinations: flows.emergency_destinations.clone(),
            rule,
        });
        if self.second_link.is_some() {
            let rate = second_rate.ok_or("its second link has no rate")?;
            config.second_link = Some(SecondLinkConfig { rate, ..self.second });
        }
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }

    /// Whether flows are pinned to their paths.
    #[must_use]
    pub const fn pins(&self) -> bool {
        self.pinning.0
    }

    /// The second link, if there is one.
    #[must_use]
    pub fn second_link(&self) -> Option<&SecondLink> {
        self.second_link.as_ref()
    }

    /// The first of its mechanisms that needs all flows of the link in one place, and why: with several workers it is refused.
    #[must_use]
    pub fn for_one_worker(&self) -> Option<(&'static str, &'static str)> {
        if self.per_user.0 {
            return Some((
                "per_user = true",
                "flows of one user fall on several workers, and each would count its own",
            ));
        }
        if self.flushing.0 {
            return Some((
                "flushing",
                "the list is cleared at one instant, and each worker has a part of it",
            ));
        }
        if self.second_link.is_some() {
            return Some((
                "second_link",
                "the load of the second link is measured by whoever sends flows there",
            ));
        }
        None
    }

    /// With one key changed.
    ///
    /// # Errors
    /// The key does not change while the router runs.
    pub fn changed(&self, change: &AdmissionChange) -> Result<Self, ChangeError> {
        let mut changed = self.clone();
        let item = value_of(change.key, &change.value)?;
        if matches!(change.key, "second_link" | "second_via") {
            let message = format!("admission.{}: changes by reload only", change.key);
            return Err(ChangeError(message));
        }
        changed.put(change.key, &item.value);
        Ok(changed)
    }

    /// Takes over the value of a key, which was read by its declaration.
    fn put(&mut self, key: &str, value: &Value) {
        let plain = &mut self.plain;
        match (key, value) {
            ("rate", Value::Rate(rate)) => self.rate = Some(*rate),
            ("min_fair_rate", Value::Number(share)) => plain.min_fair_rate = ppm(*share),
            ("max_priority_load", Value::Number(share)) => plain.max_priority_load = ppm(*share),
            ("fair_rate_interval", Value::Time(time)) => plain.fair_rate_interval = *time,
            ("load_interval", Value::Time(time)) => plain.load_interval = *time,
            ("smoothing", Value::Number(share)) => plain.smoothing = ppm(*share),
            ("flow_timeout", Value::Time(time)) => plain.flow_timeout = *time,
            ("class_window", Value::Time(time)) => plain.class_window = some(*time),
            ("flows", Value::Integer(flows)) => plain.flows = whole(*flows),
            ("listing_chance", Value::Number(share)) => plain.listing_chance = ppm(*share),
            ("bypass_control", Value::Switch(on)) => plain.bypass_control = *on,
            ("probation", Value::Time(time)) => plain.probation = some(*time),
            ("history", Value::Integer(flows)) => plain.history = whole(*flows),
            ("global_list", Value::Switch(on)) => plain.global_list = *on,
            ("budget", Value::Switch(on)) => self.budget.0 = *on,
            ("budget_share", Value::Number(share)) => self.budget.1.share = ppm(*share),
            ("budget_burst", Value::Time(time)) => self.budget.1.burst = some(*time),
            ("flood_share", Value::Number(share)) => self.budget.1.flood_share = ppm(*share),
            ("emergency", Value::Text(word)) => {
                self.emergency = match word.as_str() {
                    "off" => Emergency::Off,
                    "thresholds" => Emergency::Thresholds,
                    _ => Emergency::Bypass,
                };
            }
            ("emergency_min_fair_rate", Value::Number(share)) => self.emergency_min_fair_rate = ppm(*share),
            ("emergency_max_priority_load", Value::Number(share)) => {
                self.emergency_max_priority_load = ppm(*share);
            }
            ("eccm", Value::Switch(on)) => self.eccm.0 = *on,
            ("max_accept_delay", Value::Time(time)) => self.eccm.1.max_accept_delay = *time,
            ("eccm_table", Value::Integer(flows)) => self.eccm.1.table = whole(*flows),
            ("per_user", Value::Switch(on)) => self.per_user.0 = *on,
            ("user_flows", Value::Integer(flows)) => self.per_user.1.flows = whole(*flows),
            ("user_ipv4_prefix", Value::Integer(bits)) => self.per_user.1.ipv4_prefix = whole(*bits) as u8,
            ("user_ipv6_prefix", Value::Integer(bits)) => self.per_user.1.ipv6_prefix = whole(*bits) as u8,
            ("users", Value::Integer(users)) => self.per_user.1.users = whole(*users),
            ("flushing", Value::Text(word)) => match flush(word) {
                None => self.flushing.0 = false,
                Some(kind) => {
                    self.flushing.0 = true;
                    self.flushing.1.kind = kind;
                }
            },
            ("flush_interval", Value::Time(time)) => self.flushing.1.interval = *time,
            ("active_time", Value::Time(time)) => self.flushing.1.active_time = *time,
            ("blocking_time", Value::Time(time)) => self.flushing.1.blocking_time = *time,
            ("priority_access_time", Value::Time(time)) => self.flushing.1.priority_access_time = *time,
            ("others_chance", Value::Number(share)) => self.flushing.1.others_chance = ppm(*share),
            ("most_active", Value::Integer(flows)) => self.flushing.1.most_active = whole(*flows),
            ("flush_table", Value::Integer(flows)) => self.flushing.1.table = whole(*flows),
            ("pinning", Value::Switch(on)) => self.pinning.0 = *on,
            ("cost_factor", Value::Integer(factor)) => self.pinning.1.cost_factor = whole(*factor),
            ("second_link", Value::Text(port)) => {
                self.second_link = Some(SecondLink { port: port.clone(), via: None });
            }
            ("second_via", Value::Prefix(address)) => {
                if let Some(second) = &mut self.second_link {
                    second.via = Some(address.address());
                }
            }
            ("second_link_policy", Value::Text(word)) => {
                self.second.policy = match word.as_str() {
                    "most-active" => SecondLinkPolicy::MostActive,
                    "oldest" => SecondLinkPolicy::Oldest,
                    _ => SecondLinkPolicy::Newest,
                };
            }
            ("second_link_max_load", Value::Number(share)) => self.second.max_load = ppm(*share),
            ("second_link_flows", Value::Integer(flows)) => self.second.flows = whole(*flows),
            _ => {}
        }
    }

    /// What differs from the defaults, as keys and values: for reports and differences.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let share = |share: Ppm| (f64::from(share.0) / 1e6).to_string();
        let optional = |time: Option<Nanos>| time_text(time.unwrap_or(Nanos::ZERO));
        let plain = &self.plain;
        let (eccm, user, flushing) = (&self.eccm.1, &self.per_user.1, &self.flushing.1);
        let mut all = vec![
            ("min_fair_rate", share(plain.min_fair_rate)),
            ("max_priority_load", share(plain.max_priority_load)),
            ("fair_rate_interval", time_text(plain.fair_rate_interval)),
            ("load_interval", time_text(plain.load_interval)),
            ("smoothing", share(plain.smoothing)),
            ("flow_timeout", time_text(plain.flow_timeout)),
            ("class_window", optional(plain.class_window)),
            ("flows", plain.flows.to_string()),
            ("listing_chance", share(plain.listing_chance)),
            ("bypass_control", plain.bypass_control.to_string()),
            ("budget", self.budget.0.to_string()),
            ("budget_share", share(self.budget.1.share)),
            ("budget_burst", optional(self.budget.1.burst)),
            ("flood_share", share(self.budget.1.flood_share)),
            ("probation", optional(plain.probation)),
            ("history", plain.history.to_string()),
            (
                "emergency",
                match self.emergency {
                    Emergency::Off => "off",
                    Emergency::Bypass => "bypass",
                    Emergency::Thresholds => "thresholds",
                }
                .to_owned(),
            ),
            ("emergency_min_fair_rate", share(self.emergency_min_fair_rate)),
            ("emergency_max_priority_load", share(self.emergency_max_priority_load)),
            ("eccm", self.eccm.0.to_string()),
            ("max_accept_delay", time_text(eccm.max_accept_delay)),
            ("eccm_table", eccm.table.to_string()),
            ("global_list", plain.global_list.to_string()),
            ("per_user", self.per_user.0.to_string()),
            ("user_flows", user.flows.to_string()),
            ("user_ipv4_prefix", user.ipv4_prefix.to_string()),
            ("user_ipv6_prefix", user.ipv6_prefix.to_string()),
            ("users", user.users.to_string()),
            ("flushing", if self.flushing.0 { flush_word(flushing.kind) } else { "off" }.to_owned()),
            ("flush_interval", time_text(flushing.interval)),
            ("active_time", time_text(flushing.active_time)),
            ("blocking_time", time_text(flushing.blocking_time)),
            ("priority_access_time", time_text(flushing.priority_access_time)),
            ("others_chance", share(flushing.others_chance)),
            ("most_active", flushing.most_active.to_string()),
            ("flush_table", flushing.table.to_string()),
            ("pinning", self.pinning.0.to_string()),
            ("cost_factor", self.pinning.1.cost_factor.to_string()),
            (
                "second_link_policy",
                match self.second.policy {
                    SecondLinkPolicy::Newest => "newest",
                    SecondLinkPolicy::MostActive => "most-active",
                    SecondLinkPolicy::Oldest => "oldest",
                }
                .to_owned(),
            ),
            ("second_link_max_load", share(self.second.max_load)),
            ("second_link_flows", self.second.flows.to_string()),
        ];
        all.extend(self.rate.map(|rate| ("rate", rate_text(rate))));
        if let Some(second) = &self.second_link {
            all.push(("second_link", second.port.clone()));
            all.extend(second.via.map(|via| ("second_via", via.to_string())));
        }
        all
    }

    /// The settings that differ from those of an empty `[link.admission]`.
    #[must_use]
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let defaults = Self::empty().settings();
        self.settings().into_iter().filter(|setting| !defaults.contains(setting)).collect()
    }
}

/// Reads the table; `None` after an error that the reader has taken note of.
pub(crate) fn admission_of(reader: &mut Reader, fields: &Fields) -> Option<LinkAdmission> {
    let mut admission = LinkAdmission::empty();
    for key in ADMISSION.keys() {
        if let Some(item) = fields.item(key.name) {
            admission.put(key.name, &item.value);
        }
    }
    if fields.given("second_via") && admission.second_link.is_none() {
        let message = "only together with `second_link`";
        reader.fail(&fields.span("second_via"), fields.path_of("second_via"), message);
        return None;
    }
    Some(admission)
}

/// Reads `[flows]`.
pub(crate) fn flows_of(fields: &Fields) -> Option<FlowsSection> {
    let prefixes = |key: &str| {
        fields
            .list(key)
            .iter()
            .filter_map(|item| match item.value {
                Value::Prefix(prefix) => Some(prefix),
                _ => None,
            })
            .collect()
    };
    Some(FlowsSection {
        lists: RouterListsConfig {
            flows: whole(fields.integer("global_list")?),
            flow_timeout: fields.time("global_timeout")?,
            k_add: whole(fields.integer("k_add")?),
        },
        emergency_sources: prefixes("emergency_sources"),
        emergency_destinations: prefixes("emergency_destinations"),
    })
}

/// Reads a change of a key of `[link.admission]`; `key` without the `admission.` before it.
pub(crate) fn parse(key: &str, value: &str) -> Result<AdmissionChange, ChangeError> {
    let Some(known) = ADMISSION.key(key) else {
        let names: Vec<_> = ADMISSION.keys().map(|key| key.name).collect();
        return Err(ChangeError(format!("admission has no {key:?}; {}", suggest(key, &names))));
    };
    value_of(known.name, value)?;
    Ok(AdmissionChange { key: known.name, value: value.trim().to_owned() })
}

/// Reads a whole admission from the text of an inline table; `on` stands for the empty one.
pub(crate) fn parse_table(text: &str) -> Result<LinkAdmission, ChangeError> {
    let text = if text == "on" { "{}" } else { text };
    let (table, mut reader) = parse_toml(&format!("admission = {text}"), "");
    let kind = evenkeel_core::settings::schema::Kind::Table(&ADMISSION);
    let admission = table.get("admission").and_then(|node| match reader.value(&kind, node, "admission") {
        Some(Item { value: Value::Table(fields), .. }) => admission_of(&mut reader, &fields),
        _ => None,
    });
    concluded(reader, admission)
}

fn value_of(key: &'static str, value: &str) -> Result<Item, ChangeError> {
    let (_, mut reader) = parse_toml("", "");
    let item = ADMISSION.key(key).and_then(|known| {
        let node = node(&known.kind, value.trim());
        reader.value(&known.kind, &node, &format!("admission.{key}"))
    });
    concluded(reader, item)
}

/// A time; zero stands for none.
fn some(time: Nanos) -> Option<Nanos> {
    (time > Nanos::ZERO).then_some(time)
}

fn ppm(share: f64) -> Ppm {
    // The ranges in the table keep it within 0 to 1.
    Ppm((share * 1e6 + 0.5) as u32)
}

/// The ranges in the table keep it within 32 bits.
fn whole(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

const FLUSHES: [(&str, Flush); 8] = [
    ("all", Flush::All),
    ("efm", Flush::Efm),
    ("efmp", Flush::Efmp),
    ("raef", Flush::Raef),
    ("rbaef", Flush::Rbaef),
    ("rpaef", Flush::Rpaef),
    ("ramaf", Flush::Ramaf),
    ("rmaef", Flush::Rmaef),
];

fn flush(word: &str) -> Option<Flush> {
    FLUSHES.iter().find(|(known, _)| *known == word).map(|(_, flush)| *flush)
}

fn flush_word(flush: Flush) -> &'static str {
    FLUSHES.iter().find(|(_, known)| *known == flush).map_or("off", |(word, _)| word)
}
