//! Tests of the public interface, in one program: it links once.

mod published;
mod sweep;
