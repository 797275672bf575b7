//! Tests of the public interface, in one program: it links once.

mod common;
mod frame;
mod oracles;
mod rewrite;
