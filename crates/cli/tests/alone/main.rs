//! The command on real interfaces, where what is measured needs a core for each test that runs: no
//! more of them at once than there are cores, and nothing else beside. Needs root; says so and
//! passes otherwise.

mod cluster;
mod qualify;
