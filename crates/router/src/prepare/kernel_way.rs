//! What is said of the way frames are exchanged, and the way back to the kernel.

use evenkeel_config::{Attach, Io, PortConfig};
use evenkeel_ports::Port;
use evenkeel_ports::wrap::HandOver;

use super::WorkerBuilder;

impl WorkerBuilder<'_> {
    /// A routed port that can give packets back to the kernel, where that is possible.
    pub(super) fn with_kernel(&self, port: &PortConfig, opened: Box<dyn Port>) -> Box<dyn Port> {
        if port.attach() != Attach::Route {
            return opened;
        }
        match HandOver::new(opened, &port.interface) {
            Ok(opened) => Box::new(opened),
            Err((opened, error)) => {
                if let Some(report) = self.options.report
                    && self.number == 0
                {
                    report(&format!(
                        "port {}: packets for interfaces that are no ports are refused: {error}",
                        port.name
                    ));
                }
                opened
            }
        }
    }

    /// Says what `io = "auto"` has chosen by the kind of the interface.
    pub(super) fn say_why(&self, port: &PortConfig, io: Io) {
        let chosen = self.worker.config.io_of(port) == Io::Auto && io == Io::AfPacket;
        let driver = chosen.then(|| self.options.virtual_driver(port)).flatten();
        if let (Some(report), Some(driver)) = (self.options.report, driver)
            && self.number == 0
        {
            report(&format!(
                "port {}: packet sockets with super-frames: interface {} is virtual ({driver}); \
                 io = \"af-xdp\" is for many small packets",
                port.name, port.interface
            ));
        }
    }
}
