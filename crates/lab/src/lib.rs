//! Scenarios on real packets between network namespaces.
