//! What forwards at a router of a scenario: our process, or the kernel.

use std::time::Duration;

use evenkeel_router::Snapshot;
use evenkeel_router::snapshot::NodeSnapshot;
use evenkeel_scenario::SetChange;

use crate::LabError;
use crate::kernel::KernelRouter;
use crate::router_process::RouterProcess;

/// A router that runs.
#[derive(Debug)]
pub(crate) enum RouterNode {
    /// `evenkeel run`.
    Ours(RouterProcess),
    /// The kernel, with its own queueing disciplines.
    Kernel(KernelRouter),
}

impl RouterNode {
    /// Its name in the scenario.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Ours(process) => &process.name,
            Self::Kernel(kernel) => &kernel.name,
        }
    }

    /// Every counter, at one instant.
    ///
    /// # Errors
    /// The router is gone or does not answer.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        match self {
            Self::Ours(process) => process.snapshot(),
            Self::Kernel(kernel) => Ok(kernel.snapshot()),
        }
    }

    /// Every subscriber and node of its trees; a kernel has none.
    ///
    /// # Errors
    /// The router is gone or does not answer.
    pub(crate) fn nodes(&mut self) -> Result<Vec<NodeSnapshot>, LabError> {
        match self {
            Self::Ours(process) => process.nodes(),
            Self::Kernel(_) => Ok(Vec::new()),
        }
    }

    /// # Errors
    /// [`LabError::Router`] if the process has ended. A kernel does not.
    pub(crate) fn check_alive(&mut self) -> Result<(), LabError> {
        match self {
            Self::Ours(process) => process.check_alive(),
            Self::Kernel(_) => Ok(()),
        }
    }

    /// Applies one change of a step.
    ///
    /// # Errors
    /// As [`RouterProcess::set`] and [`KernelRouter::set`].
    pub(crate) fn set(&mut self, change: &SetChange) -> Result<(), LabError> {
        match self {
            Self::Ours(process) => process.set(change),
            Self::Kernel(kernel) => kernel.set(change),
        }
    }

    /// Processor time used so far; that of a kernel is nobody's.
    pub(crate) fn cpu_time(&self) -> Duration {
        match self {
            Self::Ours(process) => process.cpu_time(),
            Self::Kernel(_) => Duration::ZERO,
        }
    }

    /// The kernel, if it is one.
    pub(crate) fn kernel(&mut self) -> Option<&mut KernelRouter> {
        match self {
            Self::Ours(_) => None,
            Self::Kernel(kernel) => Some(kernel),
        }
    }
}
