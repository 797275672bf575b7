//! The command on real interfaces. Needs root; says so and passes otherwise.

mod bridge;
mod hang;
mod log;
mod memory;
mod no_xdp;
mod privileges;
mod run;
mod shape;
mod worlds;
