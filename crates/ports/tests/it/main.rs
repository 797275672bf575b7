//! Tests of the public interface, in one program: it links once.

mod af_packet;
mod af_xdp;
mod af_xdp_pieces;
mod bridge;
mod busy_poll;
mod common;
mod gate;
mod guard;
mod inline;
mod offload;
mod segments;
mod time_namespace;
