//! The tunnels of a router. All of its workers have the same, those before and after a handover
//! too: the packets of an SA have one sequence of numbers, and no IV may come twice.

use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

use evenkeel_net::service::esp::{EspTunnel, Nonces, SaConfig, SaError};
use evenkeel_ports::sys::lock;

/// The tunnels that some worker has, and the IVs of all.
#[derive(Debug)]
pub struct Tunnels {
    pub(super) nonces: Nonces,
    /// A tunnel ends with the last worker that has it: its key is kept no longer.
    open: Mutex<Vec<Weak<EspTunnel>>>,
}

impl Tunnels {
    /// None yet. No other life of the router uses these IVs.
    #[must_use]
    pub fn with(ivs: Range<u64>) -> Arc<Self> {
        Arc::new(Self { nonces: Nonces::of(ivs), open: Mutex::default() })
    }

    /// The tunnel of an SA: another worker's, if one has it.
    ///
    /// # Errors
    /// As [`EspTunnel::new`].
    pub(super) fn of(&self, config: SaConfig) -> Result<Arc<EspTunnel>, SaError> {
        let mut open = lock(&self.open);
        open.retain(|tunnel| tunnel.strong_count() > 0);
        let mut theirs = open.iter().filter_map(Weak::upgrade);
        if let Some(tunnel) = theirs.find(|tunnel| *tunnel.config() == config) {
            return Ok(tunnel);
        }
        let tunnel = Arc::new(EspTunnel::new(config)?);
        open.push(Arc::downgrade(&tunnel));
        Ok(tunnel)
    }
}
