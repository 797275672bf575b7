//! Tests of the public interface, in one program: it links once.

mod errors;
mod linux;
mod scenario;
mod schema;
mod shipped;
mod subscribers;
