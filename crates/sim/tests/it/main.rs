//! Tests of the public interface, in one program: it links once.

mod cluster;
mod fairdrop;
mod fairdrop_sweep;
mod golden;
mod properties;
mod short_queues;
mod tcp;
mod tcp_response;
