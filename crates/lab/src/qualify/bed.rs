//! What is measured: a router between veth pairs in namespaces of its own, or a box that the
//! tester's interfaces are cabled to.
//!
//! ```text
//!  tester: out ──veth── router: in 198.18.0.1, out 198.19.0.1 ──veth── sink: in
//! ```
//!
//! No station has the destination's hardware address, so the sink's kernel drops each frame as one
//! for another station, behind the tester's packet socket: the cheapest end there is.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use evenkeel_config::{Bypass, RouterConfig};
use evenkeel_netns::Namespaces;
use evenkeel_router::Snapshot;
use evenkeel_scenario::Router;

use super::options::Options;
use super::tester::{Addresses, PortPlace, parse_mac};
use crate::LabError;
use crate::router_process::RouterProcess;
use crate::world::refused;

/// The router of this command, and its namespaces.
pub(super) struct Bed {
    router: RouterProcess,
    /// Removed after the router was stopped.
    _net: Namespaces,
    folder: PathBuf,
    /// The tester's ports.
    pub(super) tx: PortPlace,
    pub(super) rx: PortPlace,
    pub(super) addresses: Addresses,
}

impl Bed {
    /// Makes it and starts the router.
    pub(super) fn new(config: &RouterConfig, options: &Options) -> Result<Self, LabError> {
        let [first, last] = [0, 1].map(|index| config.ports[index].interface.clone());
        let veth = |error| refused("make a veth pair".into(), error);
        evenkeel_netns::sweep();
        let mut net = Namespaces::new();
        for node in ["t", "r", "s"] {
            net.add(node).map_err(|error| refused("make a network namespace".into(), error))?;
            let quiet =
                "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
            // A kernel without IPv6 has nothing to switch off.
            let _ = net.exec(node, quiet);
        }
        net.wire(("t", "out"), ("r", &first)).map_err(veth)?;
        net.wire(("r", &last), ("s", "in")).map_err(veth)?;
        // Further ports of a user's file have interfaces that lead nowhere.
        for (number, port) in config.ports.iter().enumerate().skip(2) {
            net.ip(
                "r",
                &format!("link add {} type veth peer name evk-peer{number}", port.interface),
            )?;
        }
        net.ip("r", &format!("address add 198.18.0.1/24 dev {first}"))?;
        net.ip("r", &format!("address add 198.19.0.1/24 dev {last}"))?;
        net.ip(
            "r",
            &format!("neighbour add 198.19.0.2 lladdr 02:00:00:00:00:99 nud permanent dev {last}"),
        )?;
        net.ip(
            "r",
            &format!("neighbour add 198.18.0.2 lladdr 02:00:00:00:00:98 nud permanent dev {first}"),
        )?;
        // Frames that the router does not forward stay unforwarded.
        net.exec("r", "sysctl -qw net.ipv4.ip_forward=0")?;
        let mac = net.exec("r", &format!("cat /sys/class/net/{first}/address"))?;
        let device = parse_mac(mac.trim())
            .ok_or_else(|| LabError::Check(format!("{first} has no Ethernet address: {mac}")))?;

        let folder = std::env::temp_dir().join(net.name_of("qualify"));
        fs::create_dir_all(&folder)
            .map_err(|source| LabError::Write { path: folder.clone(), source })?;
        let mut config = config.clone();
        config.router.bypass.push(Bypass::IpForward);
        let router = Router { name: "router".to_owned(), config };
        let started = RouterProcess::start(&router, &net.name_of("r"), &folder, &options.binary);
        let router = match started {
            Ok(router) => router,
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                return Err(error);
            }
        };
        let addresses = Addresses {
            device,
            source: Ipv4Addr::new(198, 18, 0, 2),
            destination: Ipv4Addr::new(198, 19, 0, 2),
        };
        let tx = PortPlace { namespace: Some(net.name_of("t")), interface: "out".to_owned() };
        let rx = PortPlace { namespace: Some(net.name_of("s")), interface: "in".to_owned() };
        Ok(Self { router, _net: net, folder, tx, rx, addresses })
    }

    /// The router's counters.
    pub(super) fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        self.router.snapshot()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.router.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
