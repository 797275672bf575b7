//! What classes and ports of one pipeline are in another.

use evenkeel_core::Class;
use evenkeel_ports::PortError;

/// What the pieces of a parcel mean here.
#[derive(Debug)]
pub(super) struct Names {
    /// By class of the other pipeline.
    pub(super) classes: Vec<Class>,
    /// By port of the other pipeline; `None`: there is none of its name.
    pub(super) ports: Vec<Option<usize>>,
}

impl Names {
    /// Of a parcel of this pipeline, or one like it.
    pub(super) fn own(classes: usize, ports: usize) -> Self {
        let classes = (0..classes as u16).map(Class).collect();
        Self { classes, ports: (0..ports).map(Some).collect() }
    }

    pub(super) fn port(&self, number: u64) -> Result<Option<usize>, PortError> {
        let port = usize::try_from(number).ok().and_then(|at| self.ports.get(at));
        port.copied().ok_or(PortError::NotPassed("a port has no name"))
    }

    pub(super) fn class(&self, number: u64) -> Class {
        let class = usize::try_from(number).ok().and_then(|at| self.classes.get(at));
        class.copied().unwrap_or_default()
    }
}
