//! The command on real interfaces. Needs root; says so and passes otherwise.

mod bridge;
mod chaos;
mod gateway;
mod hang;
mod kill;
mod log;
mod memory;
mod no_xdp;
mod privileges;
mod run;
mod shape;
mod worlds;
