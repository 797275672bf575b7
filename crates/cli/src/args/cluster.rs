//! Arguments of `evenkeel cluster`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::interval;

/// What to do with a role in a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Open the ports of a role that has ended: they stay closed for what the kernel forwards when
    /// its process dies, so that nothing unscheduled takes the others' shares. Stop the router
    /// first.
    Leave {
        /// Its router.toml.
        file: PathBuf,
        /// Network namespace (a name under /run/netns) of the ports.
        #[arg(long, value_name = "NAME")]
        netns: Option<String>,
    },
    /// On a balancer: no new flows for a forwarder; wait until it has none any more, or the time is
    /// over; then `out`: what it still has goes to others, and it may be stopped. `evenkeel ctl
    /// balancer ID active` gives it flows again.
    Drain {
        /// The forwarder's id.
        forwarder: u16,
        /// How long its flows may take to end.
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = interval)]
        wait: Duration,
        /// Control socket of the balancer.
        #[arg(long, value_name = "PATH", default_value = "/run/evenkeel/control.sock")]
        socket: PathBuf,
    },
    /// Whether this machine does its part: exit code 0 if a balancer can give flows to some
    /// forwarder, or a forwarder is in step with its master; 1 with the reason if not. For what
    /// announces a balancer to the routers before it.
    Health {
        /// Control socket of the router.
        #[arg(long, value_name = "PATH", default_value = "/run/evenkeel/control.sock")]
        socket: PathBuf,
    },
}
