//! Changes of the admission of new flows, in text.

use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::settings::schema::Kind;
use evenkeel_core::settings::{Change, Settings};
use evenkeel_settings::read::{Item, Value, parse_toml};
use evenkeel_settings::{change_of, settings_of};

use crate::change::{ChangeError, concluded};

/// Reads a change of a key of `[link.admission]`; `key` without the `admission.` before it.
pub(crate) fn parse(key: &str, value: &str) -> Result<Change, ChangeError> {
    change_of(AdmissionConfig::SECTION, key, value, &[])
        .map_err(|errors| ChangeError::of(errors, "admission."))
}

/// Reads a whole admission from the text of an inline table; `on` stands for the empty one.
pub(crate) fn parse_table(text: &str) -> Result<AdmissionConfig, ChangeError> {
    let text = if text == "on" { "{}" } else { text };
    let (table, mut reader) = parse_toml(&format!("admission = {text}"), "");
    let kind = Kind::Table(AdmissionConfig::SECTION);
    let admission =
        table.get("admission").and_then(|node| match reader.value(&kind, node, "admission") {
            Some(Item { value: Value::Table(fields), .. }) => {
                settings_of(&mut reader, &fields, &[])
            }
            _ => None,
        });
    concluded(reader, admission)
}
