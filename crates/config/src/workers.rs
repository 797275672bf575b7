//! What several workers of a router can have together, and what one of them has for all.
//!
//! Workers share the rate of a link, and the shares of its classes or flows
//! (`evenkeel_core::share`). Whatever else keeps state for a link as a whole would keep it in each
//! worker for itself, and be wrong by as much as there are workers: such a link is the first
//! worker's, and the others hand it their packets.

use evenkeel_core::admit::AdmissionConfig;

use evenkeel_settings::read::{Fields, Reader};
use thiserror::Error;

use crate::model::{Io, LinkConfig, Mode, RouterConfig};

/// The part of a link that several workers cannot share: the first one has the link for all.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{what}: {why}")]
pub struct UnsharedPart {
    /// What it is.
    pub what: &'static str,
    /// What stands in the way.
    pub why: &'static str,
}

/// A configuration that several workers cannot run.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum WorkersError {
    /// Flows keep their paths on a link that is one worker's.
    #[error(
        "link {link}: pinning does not work with several workers on this link, which is the first \
         one's ({part}): which path a flow has is asked where it comes in"
    )]
    Pinning {
        /// The link.
        link: String,
        /// Why it is one worker's.
        part: UnsharedPart,
    },
}

/// Busy polling, where it is of use and does no harm.
pub(crate) fn check_busy_poll(reader: &mut Reader, fields: &Fields, config: &RouterConfig) {
    let Some(section) = fields.table("router").filter(|_| config.router.busy_poll.is_some()) else {
        return;
    };
    if config.fairdrop.is_some() {
        let message = "with [fairdrop] frames must wait where it sees them, in the receive ring \
                       of a port, and with busy polling they wait in the driver; valid: one of \
                       the two";
        reader.fail_at(section, "busy_poll", message);
    }
    if config.router.mode == Mode::Event {
        let message = "with mode = \"event\" the worker sleeps and does not poll; valid: with \
                       mode = \"adaptive\" or \"busy\"";
        reader.fail_at(section, "busy_poll", message);
    }
    if config.ports.iter().all(|port| config.io_of(port) == Io::AfPacket) {
        let message = "it is for ports with AF_XDP, and there is none: io = \"auto\" or \
                       \"af-xdp\", and attach = \"route\"";
        reader.fail_at(section, "busy_poll", message);
    }
}

/// What keeps several workers from sharing a link: `None`: nothing, each has its part of it.
#[must_use]
pub fn unshared_part(link: &LinkConfig) -> Option<UnsharedPart> {
    let part = |(what, why)| UnsharedPart { what, why };
    if let Some(found) = link.discipline.for_one_worker() {
        return Some(part(found));
    }
    if link.core.shaper.is_some() {
        return Some(part((
            "a shaper",
            "each worker would fill a bucket of its own; the rate of the link is shared",
        )));
    }
    if link.control.is_some() {
        return Some(part((
            "a dynamic control",
            "each worker would measure and turn its own part only",
        )));
    }
    link.admission.as_ref().and_then(of_one_worker).map(part)
}

/// The first mechanism of an admission that needs all flows of the link in one place, and why.
fn of_one_worker(admission: &AdmissionConfig) -> Option<(&'static str, &'static str)> {
    admission.flushing.kind.most_active().then_some((
        "flushing = \"ramaf\" or \"rmaef\"",
        "which flows are the most active is known only where all of them are",
    ))
}

impl RouterConfig {
    /// By link, why of several workers the first one has it for all; `None`: all share it.
    #[must_use]
    pub fn unshared_links(&self) -> Vec<Option<UnsharedPart>> {
        let followed = UnsharedPart {
            what: "the rate of a link follows its line",
            why: "round trips are measured by the worker that sends there",
        };
        let exchange = UnsharedPart {
            what: "it carries what the cluster grants",
            why: "a forwarder is one voice in the exchange, whatever workers it has",
        };
        let of_cluster = |at: usize| {
            self.cluster.as_ref().is_some_and(|section| {
                let mut ports = section.links.iter().map(|link| link.port);
                usize::from(section.port) == at || ports.any(|port| usize::from(port) == at)
            })
        };
        let lines: Vec<_> = (0..self.links.len()).map(|at| self.followed_line(at)).collect();
        let part = |(at, link)| {
            unshared_part(link)
                .or_else(|| of_cluster(at).then(|| exchange.clone()))
                .or_else(|| lines.contains(&Some(at)).then(|| followed.clone()))
        };
        self.links.iter().enumerate().map(part).collect()
    }

    /// The port whose line the link at `at` follows; `None`: none.
    fn followed_line(&self, at: usize) -> Option<usize> {
        let control = self.links[at].control.as_ref()?.latency()?;
        let find = |name: &str| self.links.iter().position(|link| link.port == name);
        Some(control.line_of(at, self.ports[at].attach(), self.peer_of(at), find))
    }

    /// Whether workers hand something on to the first one: packets for its links, or frames of a
    /// cluster's exchange.
    #[must_use]
    pub fn hands_on(&self) -> bool {
        self.balancer.is_some() || self.unshared_links().iter().any(Option::is_some)
    }

    /// Whether this many workers can have all of this: for configurations that change while they
    /// run, or were not read from a file.
    ///
    /// # Errors
    /// The first thing that they cannot.
    pub fn check_workers(&self) -> Result<(), WorkersError> {
        if self.router.workers == 1 {
            return Ok(());
        }
        for (link, part) in self.links.iter().zip(self.unshared_links()) {
            let pins = link.admission.as_ref().is_some_and(|admission| admission.pinning.on);
            if let Some(part) = part.filter(|_| pins) {
                return Err(WorkersError::Pinning { link: link.port.clone(), part });
            }
        }
        Ok(())
    }
}

/// Tells the reader what several workers cannot have, and where it stands.
pub(crate) fn check(reader: &mut Reader, file: &Fields, config: &RouterConfig) {
    let Some(section) = file.table("router") else { return };
    let cpus = &config.router.cpus;
    if section.given("cpus") && section.given("cpu") {
        reader.fail_at(section, "cpus", "not together with `cpu`".to_owned());
    }
    let workers = usize::from(config.router.workers);
    if section.given("cpus") && cpus.len() != workers {
        let message = format!("{} of them for {workers} worker(s): one for each", cpus.len());
        reader.fail_at(section, "cpus", message);
    }
    if workers == 1 {
        return;
    }
    if section.given("cpu") {
        let message = "workers that share a CPU gain nothing: use `cpus`".to_owned();
        reader.fail_at(section, "cpu", message);
    }
    if let Err(error) = config.check_workers() {
        reader.fail_at(section, "workers", error.to_string());
    }
}
