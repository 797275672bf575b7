//! Single subscribers changed while the router runs.

use std::path::Path;
use std::sync::Arc;

use evenkeel_core::schedule::tree::WEIGHT_UNIT;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_core::{BitRate, Prefix};
use evenkeel_settings::Diagnostics;
use evenkeel_settings::read::suggest;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::list::{
    Entry, L2_COLUMNS, Rates, Role, SubscriberList, column_of, l2_keys, prefixes, rate, weight,
};
use super::seen::tell_unseen;
use super::{Faults, SubscriberTree};
use crate::model::RouterConfig;

/// What can be set of a subscriber or a node.
pub const FIELDS: [&str; 10] = [
    "parent", "prefixes", "macs", "vlans", "sessions", "down", "up", "min_down", "min_up", "weight",
];

/// A change of a subscriber or a node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SubscriberChange {
    /// Fields of one that there is.
    Set {
        /// Its name.
        name: String,
        /// Field and value, as in a list.
        fields: Vec<(String, String)>,
    },
    /// A new one.
    Add {
        /// Its name.
        name: String,
        /// Field and value, as in a list; `tree`: where there are several.
        fields: Vec<(String, String)>,
    },
    /// One goes.
    Remove {
        /// Its name.
        name: String,
    },
}

/// Why a subscriber was not changed. Nothing changed.
#[derive(Debug, Error)]
pub enum SubscriberChangeError {
    /// Nobody has this name.
    #[error("no subscriber or node {0:?}")]
    Nobody(String),
    /// A tree has to be named.
    #[error("which tree? say tree=NAME; {0}")]
    Tree(String),
    /// Not a field.
    #[error("no field {0:?}; {1}")]
    Field(String, String),
    /// The list would have mistakes.
    #[error("{0}")]
    List(#[from] Diagnostics),
}

impl RouterConfig {
    /// The same with one subscriber changed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn with_subscriber(
        &self,
        change: &SubscriberChange,
    ) -> Result<Self, SubscriberChangeError> {
        let (SubscriberChange::Set { name, .. }
        | SubscriberChange::Add { name, .. }
        | SubscriberChange::Remove { name }) = change;
        let at = self.tree_of(change, name)?;
        let tree = &self.trees[at];
        let mut list = SubscriberList::clone(&tree.list);
        list.warnings.clear();
        let found = list.entries.iter().position(|entry| entry.name == *name);
        let mut faults = Faults::new(Path::new(&format!("subscriber {name}")));
        match (change, found) {
            (SubscriberChange::Set { fields, .. }, Some(at)) => {
                set(&mut list.entries[at], fields, &mut faults)?;
            }
            (SubscriberChange::Add { fields, .. }, _) => {
                let mut entry = Entry {
                    name: name.clone(),
                    parent: String::new(),
                    role: Role::Node,
                    down: Rates::default(),
                    up: Rates::default(),
                    weight: 0,
                    prefixes: Vec::new(),
                    l2: Vec::new(),
                    line: 0,
                };
                set(&mut entry, fields, &mut faults)?;
                list.entries.push(entry);
            }
            (SubscriberChange::Remove { .. }, Some(at)) => {
                list.entries.remove(at);
            }
            (_, None) => return Err(SubscriberChangeError::Nobody(name.clone())),
        }
        list.check(&mut faults);
        tell_unseen(&list, &tree.section, &self.ports, &mut faults);
        if !faults.is_empty() {
            return Err(faults.into_diagnostics().into());
        }
        let mut changed = self.clone();
        changed.trees[at] = SubscriberTree::of(tree.section.clone(), Arc::new(list), Some(tree));
        changed.plant();
        Ok(changed)
    }

    /// What these fields of a subscriber are, as they would be set.
    #[must_use]
    pub fn fields_of(&self, name: &str, fields: &[(String, String)]) -> Vec<(String, String)> {
        let entries = self.trees.iter().flat_map(|tree| &tree.list.entries);
        let Some(entry) = entries.into_iter().find(|entry| entry.name == name) else {
            return Vec::new();
        };
        let rate = |rate: Option<BitRate>| rate.map_or_else(|| "none".to_owned(), rate_text);
        let least = |rate: BitRate| if rate.0 == 0 { "0".to_owned() } else { rate_text(rate) };
        let value = |field: &str| match field {
            "parent" if entry.parent.is_empty() => "link".to_owned(),
            "parent" => entry.parent.clone(),
            "down" => rate(entry.down.cap),
            "up" => rate(entry.up.cap),
            "min_down" => least(entry.down.guarantee),
            "min_up" => least(entry.up.guarantee),
            "weight" if entry.weight == 0 => String::new(),
            "weight" => (f64::from(entry.weight) / f64::from(WEIGHT_UNIT)).to_string(),
            column if L2_COLUMNS.contains(&column) => entry.keys_of(column),
            _ => entry.prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>().join(" "),
        };
        fields.iter().map(|(field, _)| (field.clone(), value(field))).collect()
    }

    fn tree_of(
        &self,
        change: &SubscriberChange,
        name: &str,
    ) -> Result<usize, SubscriberChangeError> {
        let SubscriberChange::Add { fields, .. } = change else {
            let has = |tree: &SubscriberTree| tree.list.entries.iter().any(|own| own.name == name);
            let found = self.trees.iter().position(has);
            return found.ok_or_else(|| SubscriberChangeError::Nobody(name.to_owned()));
        };
        let said = fields.iter().find(|(field, _)| field == "tree").map(|(_, tree)| tree.as_str());
        let names: Vec<&str> = self.trees.iter().map(|tree| tree.section.name.as_str()).collect();
        match (said, names.len()) {
            (None, 1) => Ok(0),
            (said, _) => {
                let said = said.unwrap_or("");
                let found = names.iter().position(|name| *name == said);
                found.ok_or_else(|| SubscriberChangeError::Tree(suggest(said, &names)))
            }
        }
    }
}

fn set(
    entry: &mut Entry,
    fields: &[(String, String)],
    faults: &mut Faults,
) -> Result<(), SubscriberChangeError> {
    for (field, value) in fields {
        let value = value.trim();
        match field.as_str() {
            "parent" => {
                let is_link = matches!(value, "none" | "link");
                entry.parent = if is_link { String::new() } else { value.to_owned() };
            }
            "prefixes" => entry.prefixes = prefixes(value, 0, "prefixes", faults),
            column if L2_COLUMNS.contains(&column) => {
                entry.l2.retain(|key| column_of(key) != column);
                entry.l2.extend(l2_keys(value, 0, column, faults));
            }
            "down" => entry.down.cap = rate(value, 0, "down", faults),
            "up" => entry.up.cap = rate(value, 0, "up", faults),
            "min_down" => {
                entry.down.guarantee = rate(value, 0, "min_down", faults).unwrap_or_default();
            }
            "min_up" => entry.up.guarantee = rate(value, 0, "min_up", faults).unwrap_or_default(),
            "weight" => entry.weight = weight(value, 0, faults),
            "tree" => {}
            other => {
                let known = suggest(other, &FIELDS);
                return Err(SubscriberChangeError::Field(other.to_owned(), known));
            }
        }
    }
    let is_node = entry.prefixes.is_empty() && entry.l2.is_empty();
    entry.role = if is_node { Role::Node } else { Role::Subscriber };
    Ok(())
}
