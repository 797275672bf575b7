//! (internal)
