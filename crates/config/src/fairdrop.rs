//! `[fairdrop]`: fair shares of cycles and bits by early dropping.

use evenkeel_core::drop::{FairDropConfig, FlowTableConfig};
use evenkeel_core::settings::{Change, Settings};
use evenkeel_settings::read::{Fields, Reader};
use evenkeel_settings::{change_of, settings_of};

use crate::change::ChangeError;

/// Reads a change of a key of `[fairdrop]`; the value as it would stand in `router.toml` without
/// quotes. `classes` are the names of the classes.
///
/// # Errors
/// No such key (with the nearest), or a value out of its range (with the range).
pub fn parse_fairdrop(key: &str, value: &str, classes: &[&str]) -> Result<Change, ChangeError> {
    change_of(FairDropConfig::SECTION, key, value, classes)
        .map_err(|errors| ChangeError::of(errors, "fairdrop."))
}

/// Reads the table; `None` after an error that the reader has taken note of.
pub(crate) fn fairdrop_of(
    reader: &mut Reader,
    fields: &Fields,
    classes: &[&str],
) -> Option<FairDropConfig> {
    let config: FairDropConfig = settings_of(reader, fields, classes)?;
    if config.is_grouped(classes.len()) && classes.len() > FlowTableConfig::MAX_GROUPS {
        let message = format!(
            "{} classes: at most {} can be groups",
            classes.len(),
            FlowTableConfig::MAX_GROUPS
        );
        reader.fail_at(fields, "groups", message);
        return None;
    }
    Some(config)
}
