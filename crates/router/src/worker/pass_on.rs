//! What a worker puts into a parcel for one of another process: see [`crate::passing`].

use evenkeel_config::Attach;
use evenkeel_core::Nanos;
use evenkeel_ports::parcel::Parcel;
use evenkeel_ports::{PortError, sys};

use super::Worker;
use crate::snapshot::Snapshot;

/// Which pieces of a port a parcel has, in this order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PassedPort {
    pub(crate) claim: bool,
    /// It is in use, and passed on.
    pub(crate) port: bool,
    pub(crate) hold: bool,
}

impl PassedPort {
    fn put(self, parcel: &mut Parcel) {
        let bits = [self.claim, self.port, self.hold];
        parcel.put(bits.iter().rev().fold(0, |word, bit| word << 1 | u64::from(*bit)));
    }

    pub(crate) fn take(parcel: &mut Parcel) -> Result<Self, PortError> {
        let bits = parcel.take()?;
        Ok(Self { claim: bits & 1 != 0, port: bits & 2 != 0, hold: bits & 4 != 0 })
    }
}

impl Worker {
    /// Puts all that it has into a parcel, of which the other process has to take everything:
    /// nothing is given up here. It has drained.
    pub(crate) fn pass_on(&mut self) -> Result<Parcel, PortError> {
        let mut parcel = Parcel::default();
        parcel.put(self.beater.heart().silent_since().0);
        let lent = self.ports.iter().any(|port| port.lent() > 0);
        if lent && !self.pipeline.pool_mut().umem().is_shareable() {
            let why = "its ports came to AF_XDP later, and the kernel has buffers that no other \
                       process can have";
            return Err(PortError::NotPassed(why));
        }
        for (attachment, port) in self.attachments.iter().zip(&mut self.ports) {
            if !attachment.in_use && attachment.attach != Attach::Route {
                return Err(PortError::NotPassed("an interface that is attached is missing"));
            }
            let has = PassedPort {
                claim: attachment.claim.is_some(),
                port: attachment.in_use,
                hold: attachment.in_use && attachment.guard.is_some(),
            };
            has.put(&mut parcel);
            if let Some(claim) = &attachment.claim {
                claim.pass_on(&mut parcel)?;
            }
            if has.port {
                port.pass_on(&mut parcel)?;
            }
            if let Some(hold) = attachment.guard.as_ref().filter(|_| has.hold) {
                hold.pass_on(&mut parcel)?;
            }
        }
        self.pipeline.pass_on(sys::monotonic_now(), &mut parcel);
        Ok(parcel)
    }

    /// Its last counters.
    pub(crate) fn last(&mut self, now: Nanos) -> Snapshot {
        self.snapshot(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_port_has_is_told_as_it_is() {
        for bits in 0..8 {
            let has = PassedPort { claim: bits & 1 != 0, port: bits & 2 != 0, hold: bits & 4 != 0 };
            let mut parcel = Parcel::default();
            has.put(&mut parcel);
            assert_eq!(PassedPort::take(&mut parcel).unwrap(), has);
        }
    }
}
