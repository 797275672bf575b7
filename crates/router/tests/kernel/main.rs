//! The router on real interfaces between network namespaces, with real tools. Needs root; says so
//! and passes otherwise.
//!
//! One suite, run for each way to exchange frames with the kernel: nobody outside of the router may
//! notice which it is.

#[path = "../it/common/mod.rs"]
mod common;

mod frr;
mod rules;
mod soak;
mod tables;

mod packet_sockets {
    const IO: &str = "af-packet";
    include!("suite.rs");
    include!("workers.rs");
    include!("change.rs");
}

mod xdp {
    const IO: &str = "af-xdp";
    include!("suite.rs");
    include!("workers.rs");
    include!("change.rs");
    include!("queues.rs");
}
