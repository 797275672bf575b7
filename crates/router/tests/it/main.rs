//! Tests of the public interface, in one program: it links once.

mod admission;
mod all_or_nothing;
mod cluster;
mod common;
mod control;
mod corpus;
mod counters;
mod fairdrop;
mod group;
mod handover;
mod known_flows;
mod line;
mod memory;
mod no_alloc;
mod order;
mod pipeline;
mod refused;
mod subscribers;
mod through;
mod tunnels;
mod watched;
mod workers;
mod workers_closed;
mod workers_hand;
