//! The router on real interfaces between network namespaces, with real tools. Needs root; says so
//! and passes otherwise.
//!
//! One suite, run for each way to exchange frames with the kernel: nobody outside of the router may
//! notice which it is.

#[path = "../it/common/mod.rs"]
mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

mod elsewhere;
mod frr;
mod harm;
mod jumbo;
mod rules;
mod soak;
mod supers;
mod tables;

/// Held by a test that fills a worker's core: two at once would measure each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

mod packet_sockets {
    const IO: &str = "af-packet";
    include!("suite.rs");
    include!("workers.rs");
    include!("change.rs");
    mod fairdrop {
        include!("fairdrop.rs");
    }
}

mod xdp {
    const IO: &str = "af-xdp";
    include!("suite.rs");
    include!("workers.rs");
    include!("change.rs");
    mod fairdrop {
        include!("fairdrop.rs");
    }
    include!("queues.rs");
}
