//! Tests of the public interface, in one program: it links once.

mod admission_limits;
mod admission_links;
mod admission_rules;
mod admit;
mod closed_loop;
mod common;
mod control;
mod disciplines;
mod fairdrop;
mod fairdrop_shares;
mod fairdrop_workers;
mod flow_aware_link;
mod flow_aware_vectors;
mod lct;
mod link;
mod link_bypass;
mod link_properties;
mod no_alloc;
mod papers;
mod pfq_model;
mod pfq_overflow;
mod shared;
mod shared_flows;
mod wfq_altq;
mod wire;
mod workers;
