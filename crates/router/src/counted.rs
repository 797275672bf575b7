//! Counters that the core declares, as fields of JSON.

use std::collections::BTreeMap;

use evenkeel_core::measure::Tally;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serializer};

/// What stands under a name: a count, or something that others read.
#[derive(Deserialize)]
#[serde(untagged)]
enum Read {
    Count(u64),
    Other(IgnoredAny),
}

pub(crate) fn serialize<T: Tally, S: Serializer>(
    counters: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(T::COUNTERS.iter().map(|of| (of.name, counters.value(of.name))))
}

/// A counter that is not told, because the other program is older, has counted nothing.
pub(crate) fn deserialize<'de, T: Tally + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let mut counters = T::default();
    for (name, read) in BTreeMap::<String, Read>::deserialize(deserializer)? {
        if let Read::Count(count) = read {
            counters.set_value(&name, count);
        }
    }
    Ok(counters)
}
