//! Services: costly work done on the packets of a class between the route and the link.
//!
//! - [`esp`]: encryption into an ESP tunnel (AES-GCM);
//! - [`acl`]: a linear list of rules.
//!
//! The third service, `spin`, only burns cycles and so needs a clock: it lives with the router's
//! pipeline.

pub mod acl;
pub mod esp;
