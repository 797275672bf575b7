//! Counters of a class as fields of a sample in JSON: each by the name of its column.

use std::collections::BTreeMap;

use evenkeel_core::measure::{ClassCounters, Counter, Tally};
use serde::{Deserialize, Deserializer, Serializer};
use serde_json::Value;

/// Those that samples hold.
pub(crate) fn told() -> impl Iterator<Item = &'static Counter> {
    ClassCounters::COUNTERS.iter().filter(|counter| !counter.column.is_empty())
}

pub(crate) fn serialize<S: Serializer>(
    counts: &ClassCounters,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(told().map(|of| (of.column, counts.value(of.name))))
}

/// A counter that the result does not have, because it is older, has counted nothing.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ClassCounters, D::Error> {
    let fields = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let mut counts = ClassCounters::default();
    for of in told() {
        if let Some(count) = fields.get(of.column).and_then(Value::as_u64) {
            counts.set_value(of.name, count);
        }
    }
    Ok(counts)
}
