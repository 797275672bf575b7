//! `evenkeel serve`: what routers count, over HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use clap::Args as ClapArgs;
use evenkeel_core::settings::quantity::parse_time;
use evenkeel_serve::{Options, ServeError, Server, Watched};

use crate::argument::ArgumentError;
use crate::confine;
use crate::failure::{Failure, Outcome};
use crate::out::print;

/// Arguments of `serve`.
#[derive(ClapArgs, Debug)]
pub(crate) struct ServeArgs {
    /// Sockets of the routers, best those for monitoring (`monitor` of router.toml). What stands
    /// before a `=` is the router's name here; else that of the file is, and `router` for
    /// monitor.sock and control.sock.
    #[arg(value_name = "[NAME=]SOCKET", default_value = "/run/evenkeel/monitor.sock",
        value_parser = watched)]
    routers: Vec<Watched>,
    /// Where to listen. Everybody who can connect can read: other addresses than loopback only
    /// behind a reverse proxy that asks who it is.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = evenkeel_serve::LISTEN)]
    listen: SocketAddr,
    /// How often to read the counters, 200ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// A name by which browsers may ask, besides addresses and localhost; can be repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
}

pub(crate) fn serve(args: &ServeArgs) -> Outcome {
    // Before the first thread. Nothing here writes files: whoever breaks in cannot either.
    if let Err(why) = confine::files(&[]) {
        eprintln!("evenkeel: {why}");
    }
    let options = Options {
        routers: args.routers.clone(),
        listen: args.listen,
        interval: args.interval,
        hosts: args.hosts.clone(),
    };
    let server = Server::start(options).map_err(|error| match error {
        ServeError::Listen { .. } | ServeError::System(_) => Failure::new(1, error),
        ServeError::Twice(_) | ServeError::BadName(_) => Failure::input(error),
    })?;
    if !server.address().ip().is_loopback() {
        eprintln!("evenkeel: everybody who reaches {} can read", server.address());
    }
    let routers: Vec<String> = args
        .routers
        .iter()
        .map(|router| format!("router {} at {}\n", router.name, router.socket.display()))
        .collect();
    print(&format!("{}serving http://{}/ until Ctrl-C\n", routers.concat(), server.address()))?;
    server.wait();
    Ok(0)
}

fn watched(text: &str) -> Result<Watched, ArgumentError> {
    if let Some((name, socket)) = text.split_once('=') {
        return Ok(Watched { name: name.to_owned(), socket: socket.into() });
    }
    let stem = Path::new(text).file_stem().unwrap_or_default().to_string_lossy();
    let name = match stem.strip_suffix("-monitor").unwrap_or(&stem) {
        "monitor" | "control" => "router",
        other => other,
    };
    Ok(Watched { name: name.to_owned(), socket: text.into() })
}

fn interval(text: &str) -> Result<Duration, ArgumentError> {
    let time = Duration::from_nanos(parse_time(text)?.0);
    let valid = (Duration::from_millis(200)..=Duration::from_secs(60)).contains(&time);
    ArgumentError::within(time, text, valid, "200ms to 60s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_are_named_by_their_sockets_unless_told() {
        let name = |text: &str| watched(text).unwrap().name;
        assert_eq!(name("/run/evenkeel/monitor.sock"), "router");
        assert_eq!(name("/run/evenkeel/edge-monitor.sock"), "edge");
        assert_eq!(name("/run/evenkeel/edge.sock"), "edge");
        assert_eq!(name("north=/tmp/x.sock"), "north");
    }
}
