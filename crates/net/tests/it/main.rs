//! Tests of the public interface, in one program: it links once.

mod common;
mod fib;
mod fragment;
mod frame;
mod hash;
mod icmp;
mod neighbour;
mod no_alloc;
mod oracles;
mod policy;
mod rewrite;
mod service;
