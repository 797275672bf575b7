//! The command on real interfaces. Needs root; says so and passes otherwise.

mod bridge;
mod chaos;
mod containers;
mod gateway;
mod hang;
mod hosts;
mod kill;
mod log;
mod memory;
mod no_xdp;
mod office;
mod outage;
mod own;
mod privileges;
mod run;
mod running;
mod seen;
mod shape;
mod shape_refused;
mod short_queues;
mod tagged;
mod worlds;
