//! Settings: what can be told to an algorithm, declared once beside it.

pub mod quantity;
pub mod schema;
