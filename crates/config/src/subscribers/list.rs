//! What a list of subscribers holds, and what may not stand in it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use evenkeel_core::schedule::tree::{CAP_RANGE, MOST_LEVELS, WEIGHT_UNIT};
use evenkeel_core::settings::quantity::{parse_rate, rate_text};
use evenkeel_core::{BitRate, L2Key, ParseL2KeyError, Prefix};
use evenkeel_settings::read::nearest;

use super::{Faults, wrong};

/// The name of whom no line names.
pub(super) const UNKNOWN_NAME: &str = "unknown";
/// Longest name, bytes.
const LONGEST_NAME: usize = 128;
/// Warnings that are kept.
const WARNINGS: usize = 20;

/// What a line of a list is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// A site, an access point, whatever others are behind.
    Node,
    /// Somebody with addresses.
    Subscriber,
}

/// What somebody, or a site, has in one direction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rates {
    /// The most; `None`: as much as the parent.
    pub cap: Option<BitRate>,
    /// What there is before others share.
    pub guarantee: BitRate,
}

/// A line of a list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Unique.
    pub name: String,
    /// The name of the node it is behind; empty: the link.
    pub parent: String,
    /// What it is.
    pub role: Role,
    /// Towards it.
    pub down: Rates,
    /// From it.
    pub up: Rates,
    /// In thousandths; 0: by the cap.
    pub weight: u32,
    /// Its addresses.
    pub prefixes: Vec<Prefix>,
    /// Its stations, VLANs and sessions, which come before addresses.
    pub l2: Vec<L2Key>,
    /// Where it stands, from 1; 0: in no file.
    pub line: usize,
}

/// A whole list.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SubscriberList {
    /// In the order of the file.
    pub entries: Vec<Entry>,
    /// What is allowed, and hardly meant.
    pub warnings: Vec<String>,
}

/// A list that is in no file.
#[derive(Clone, Debug)]
pub struct GivenList {
    /// What `subscribers` of a `[[tree]]` calls it.
    pub name: String,
    /// Who there is; parents come before who is behind them.
    pub list: Arc<SubscriberList>,
}

/// The columns of keys of layer two.
pub(super) const L2_COLUMNS: [&str; 3] = ["macs", "vlans", "sessions"];

/// The column that a key stands in.
pub(super) const fn column_of(key: &L2Key) -> &'static str {
    let [macs, vlans, sessions] = L2_COLUMNS;
    match key {
        L2Key::Station(_) => macs,
        L2Key::Vlan { .. } => vlans,
        L2Key::Session { .. } => sessions,
    }
}

impl Entry {
    /// Its keys in a column of layer two, as they are written there.
    pub(super) fn keys_of(&self, column: &str) -> String {
        let keys = self.l2.iter().filter(|key| column_of(key) == column);
        keys.map(L2Key::to_string).collect::<Vec<_>>().join(" ")
    }

    /// What its packets are found by, in words.
    #[must_use]
    pub fn found_by(&self) -> Vec<String> {
        let word = |key: &L2Key| match key {
            L2Key::Session { .. } => format!("PPPoE session {key}"),
            L2Key::Vlan { .. } => format!("VLAN {key}"),
            L2Key::Station(_) => format!("station {key}"),
        };
        self.l2.iter().map(word).chain(self.prefixes.iter().map(Prefix::to_string)).collect()
    }
}

impl SubscriberList {
    /// How many subscribers there are.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.entries.iter().filter(|entry| entry.role == Role::Subscriber).count()
    }

    /// The list as CSV. The columns of layer two stand there if somebody has a field in them.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = "name,parent,prefixes,down,up,min_down,min_up,weight".to_owned();
        let has = |column: &&str| {
            self.entries.iter().flat_map(|entry| &entry.l2).any(|key| column_of(key) == *column)
        };
        let columns: Vec<&str> = L2_COLUMNS.into_iter().filter(has).collect();
        for column in &columns {
            text.push(',');
            text.push_str(column);
        }
        text.push('\n');
        let quoted = |name: &str| {
            let plain = !name.contains([',', '"', '#', '\n', '\r']) && name.trim() == name;
            if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
        };
        let rate = |rate: Option<BitRate>| {
            rate.filter(|rate| rate.0 > 0).map_or_else(String::new, rate_text)
        };
        for entry in &self.entries {
            let prefixes: Vec<String> = entry.prefixes.iter().map(Prefix::to_string).collect();
            let weight = match entry.weight {
                0 => String::new(),
                weight => (f64::from(weight) / f64::from(WEIGHT_UNIT)).to_string(),
            };
            let fields = [
                quoted(&entry.name),
                quoted(&entry.parent),
                prefixes.join(" "),
                rate(entry.down.cap),
                rate(entry.up.cap),
                rate(Some(entry.down.guarantee)),
                rate(Some(entry.up.guarantee)),
                weight,
            ];
            text.push_str(&fields.join(","));
            for column in &columns {
                text.push(',');
                text.push_str(&entry.keys_of(column));
            }
            text.push('\n');
        }
        text
    }

    /// Checks what no single line knows: names, parents, addresses. Mistakes go to `faults`.
    pub(super) fn check(&mut self, faults: &mut Faults) {
        let mut by_name: HashMap<&str, usize> = HashMap::with_capacity(self.entries.len());
        for (at, entry) in self.entries.iter().enumerate() {
            if let Some(first) = by_name.get(entry.name.as_str()) {
                let first = self.entries[*first].line;
                let message = format!("the name is that of line {first} too: it must be unique");
                faults.tell(entry.line, "name", wrong(&entry.name, message));
                continue;
            }
            by_name.insert(&entry.name, at);
        }
        let mut warnings = Warnings(std::mem::take(&mut self.warnings), 0);
        for entry in &self.entries {
            self.check_parent(entry, &by_name, faults, &mut warnings);
        }
        self.check_addresses(faults, &mut warnings);
        self.warnings = warnings.told();
    }

    fn check_parent(
        &self,
        entry: &Entry,
        by_name: &HashMap<&str, usize>,
        faults: &mut Faults,
        warnings: &mut Warnings,
    ) {
        let of = |name: &str| by_name.get(name).map(|at| &self.entries[*at]);
        let mut levels = 0;
        let mut at = entry;
        while !at.parent.is_empty() {
            let Some(parent) = of(&at.parent) else {
                if std::ptr::eq(at, entry) && !faults.are_many() {
                    let nodes = self.entries.iter().filter(|other| other.role == Role::Node);
                    let near = nearest(&at.parent, nodes.map(|node| node.name.as_str()));
                    let remedy = near.map_or_else(
                        || "no line has this name: add one without addresses".to_owned(),
                        |near| format!("no line has this name; did you mean {near:?}?"),
                    );
                    faults.tell(entry.line, "parent", wrong(&at.parent, remedy));
                } else if std::ptr::eq(at, entry) {
                    faults.tell(entry.line, "parent", "");
                }
                return;
            };
            if parent.role == Role::Subscriber {
                if std::ptr::eq(at, entry) {
                    let message = format!(
                        "line {} is a subscriber, with addresses: nobody can be behind it",
                        parent.line
                    );
                    faults.tell(entry.line, "parent", wrong(&at.parent, message));
                }
                return;
            }
            if std::ptr::eq(at, entry) {
                warn_of(entry, parent, warnings);
            }
            levels += 1;
            if levels > MOST_LEVELS {
                let message = format!("behind itself, or {MOST_LEVELS} nodes from the link");
                return faults.tell(entry.line, "parent", wrong(&entry.parent, message));
            }
            at = parent;
        }
    }

    fn check_addresses(&self, faults: &mut Faults, warnings: &mut Warnings) {
        let mut seen: HashMap<Prefix, usize> = HashMap::new();
        let mut keys: HashMap<L2Key, usize> = HashMap::new();
        for entry in &self.entries {
            for prefix in &entry.prefixes {
                if let Some(first) = seen.insert(*prefix, entry.line) {
                    let message = format!("line {first} has it too: whose is it?");
                    faults.tell(entry.line, "prefixes", wrong(&prefix.to_string(), message));
                }
            }
            for key in &entry.l2 {
                if let Some(first) = keys.insert(*key, entry.line) {
                    let message = format!("line {first} has it too: whose is it?");
                    faults.tell(entry.line, column_of(key), wrong(&key.to_string(), message));
                }
            }
            let unstated = entry.down.cap.is_none() && entry.up.cap.is_none();
            if unstated && entry.role == Role::Subscriber {
                warnings
                    .tell(entry.line, format!("{:?} has no cap in either direction", entry.name));
            }
        }
    }
}

fn warn_of(entry: &Entry, parent: &Entry, warnings: &mut Warnings) {
    for (word, own, above) in [("down", entry.down, parent.down), ("up", entry.up, parent.up)] {
        if let (Some(own), Some(above)) = (own.cap, above.cap)
            && own > above
        {
            let (own, above) = (rate_text(own), rate_text(above));
            let text =
                format!("{:?} has {word} {own}, {:?} above it {above}", entry.name, parent.name);
            warnings.tell(entry.line, text);
        }
    }
}

/// The first ones, and how many more there are.
struct Warnings(Vec<String>, usize);

impl Warnings {
    fn tell(&mut self, line: usize, text: String) {
        if self.0.len() < WARNINGS {
            self.0.push(format!("line {line}: {text}"));
        } else {
            self.1 += 1;
        }
    }

    fn told(mut self) -> Vec<String> {
        if self.1 > 0 {
            self.0.push(format!("and {} like these", self.1));
        }
        self.0
    }
}

/// What somebody is found by.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundBy {
    pub(super) prefixes: Vec<Prefix>,
    pub(super) l2: Vec<L2Key>,
}

impl FoundBy {
    pub(super) const fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.l2.is_empty()
    }

    /// What the fields of a line say. `role`: what the line is.
    pub(super) fn read(
        field: impl Fn(&str) -> String,
        line: usize,
        role: Option<Role>,
        faults: &mut Faults,
    ) -> Self {
        let mut l2 = Vec::new();
        for column in L2_COLUMNS {
            l2.extend(l2_keys(&field(column), line, column, faults));
        }
        let found = Self { prefixes: prefixes(&field("prefixes"), line, "prefixes", faults), l2 };
        if role == Some(Role::Node) && !found.is_empty() {
            let column = found.l2.first().map_or("prefixes", column_of);
            let message = "a node has no addresses: whoever has some is a subscriber";
            faults.tell(line, column, message);
        }
        found
    }
}

/// The texts of a line, as they stand under each other in every format.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Texts<'a> {
    pub(super) line: usize,
    pub(super) name: &'a str,
    pub(super) parent: &'a str,
    pub(super) down: &'a str,
    pub(super) up: &'a str,
    pub(super) min_down: &'a str,
    pub(super) min_up: &'a str,
    pub(super) weight: &'a str,
}

impl Texts<'_> {
    /// The entry that they say; `role` is what it is if not by its addresses.
    pub(super) fn entry(&self, found: FoundBy, role: Option<Role>, faults: &mut Faults) -> Entry {
        let mut rates = |cap: &str, min: &str, keys: [&str; 2]| {
            let cap = rate(cap, self.line, keys[0], faults);
            let guarantee = rate(min, self.line, keys[1], faults).unwrap_or_default();
            Rates { cap, guarantee }
        };
        let down = rates(self.down, self.min_down, ["down", "min_down"]);
        let up = rates(self.up, self.min_up, ["up", "min_up"]);
        let by_addresses = if found.is_empty() { Role::Node } else { Role::Subscriber };
        if self.name.is_empty() {
            faults.tell(self.line, "name", "is missing: each line needs one");
        } else if self.name.len() > LONGEST_NAME || self.name.chars().any(char::is_control) {
            let message = format!("a name has at most {LONGEST_NAME} bytes, none of control");
            faults.tell(self.line, "name", wrong(self.name, message));
        } else if self.name == UNKNOWN_NAME {
            let message = "this is the name of whoever has no line: take another";
            faults.tell(self.line, "name", wrong(self.name, message));
        }
        Entry {
            name: self.name.to_owned(),
            parent: self.parent.to_owned(),
            role: role.unwrap_or(by_addresses),
            down,
            up,
            weight: weight(self.weight, self.line, faults),
            prefixes: found.prefixes,
            l2: found.l2,
            line: self.line,
        }
    }
}

/// A rate with its unit, or a number of Mbit/s. Nothing: none is stated.
pub(super) fn rate(text: &str, line: usize, key: &str, faults: &mut Faults) -> Option<BitRate> {
    if text.is_empty() || text.eq_ignore_ascii_case("none") {
        return None;
    }
    let plain = text.parse::<f64>().ok().filter(|mbps| mbps.is_finite() && *mbps >= 0.0);
    let rate = match plain {
        Some(mbps) => BitRate((mbps * 1e6).round() as u64),
        None => match parse_rate(text) {
            Ok(rate) => rate,
            Err(error) => {
                let message = format!("{error}; a number alone is Mbit/s");
                faults.tell(line, key, wrong(text, message));
                return None;
            }
        },
    };
    if rate.0 == 0 && key.starts_with("min") {
        return None;
    }
    if !CAP_RANGE.contains(&rate.0) {
        let range = CAP_RANGE;
        let (least, most) = (rate_text(BitRate(*range.start())), rate_text(BitRate(*range.end())));
        faults.tell(line, key, wrong(text, format!("out of range: {least} to {most}")));
        return None;
    }
    Some(rate)
}

pub(super) fn weight(text: &str, line: usize, faults: &mut Faults) -> u32 {
    if text.is_empty() {
        return 0;
    }
    let weight = text.parse::<f64>().ok().filter(|weight| (0.001..=2e6).contains(weight));
    let Some(weight) = weight else {
        faults.tell(line, "weight", wrong(text, "a number from 0.001 to 2000000"));
        return 0;
    };
    (weight * f64::from(WEIGHT_UNIT)).round() as u32
}

/// What stands in a field, separated by whatever it uses to be.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ';', ' ', '\n', '\t', '|']).filter(|word| !word.is_empty())
}

/// The addresses that stand in a field.
pub(super) fn prefixes(text: &str, line: usize, key: &str, faults: &mut Faults) -> Vec<Prefix> {
    words(text).filter_map(|word| prefix(word, line, key, faults)).collect()
}

/// The keys of layer two that stand in a field of the column.
pub(super) fn l2_keys(text: &str, line: usize, column: &str, faults: &mut Faults) -> Vec<L2Key> {
    let read: fn(&str) -> Result<L2Key, ParseL2KeyError> = match column {
        "macs" => L2Key::station,
        "vlans" => L2Key::vlan,
        _ => L2Key::session,
    };
    let mut keys = Vec::new();
    for word in words(text) {
        match read(word) {
            Ok(key) => keys.push(key),
            Err(error) => faults.tell(line, column, wrong(word, error)),
        }
    }
    keys
}

fn prefix(word: &str, line: usize, key: &str, faults: &mut Faults) -> Option<Prefix> {
    let read = match Prefix::split(word) {
        Ok((address, len)) => Prefix::new(address, len).map(|prefix| (prefix, address)),
        Err(error) => {
            faults.tell(line, key, wrong(word, error));
            return None;
        }
    };
    let (prefix, address) = read?;
    if prefix.len() == 0 {
        faults.tell(line, key, wrong(word, "these are all addresses there are"));
        return None;
    }
    if prefix.address() != address {
        let message = format!("has bits beyond its length: {prefix} is meant?");
        faults.tell(line, key, wrong(word, message));
        return None;
    }
    let is_group = match address {
        IpAddr::V4(address) => address.is_multicast(),
        IpAddr::V6(address) => address.is_multicast(),
    };
    if is_group {
        faults.tell(line, key, wrong(word, "a group of hosts is nobody's"));
        return None;
    }
    Some(prefix)
}
