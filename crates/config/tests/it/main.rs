//! Tests of the public interface, in one program: it links once.

mod admission;
mod attach;
mod cluster;
mod control;
mod errors;
mod group;
mod membership;
mod reference;
mod router;
mod sections;
mod settings;
mod subscribers;
