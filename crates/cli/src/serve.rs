//! `evenkeel serve`: what routers count, over HTTP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use evenkeel_core::settings::quantity::{parse_size, parse_time};
use evenkeel_serve::{Hook, Options, ServeError, Server, Token, Watched};

use crate::argument::ArgumentError;
use crate::confine;
use crate::failure::{Failure, Outcome};
use crate::log::Log;
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
    /// Keep the past in this folder, a file of fixed size for each router: NAME.history. Without,
    /// the last hour is remembered until this ends.
    #[arg(long, value_name = "FOLDER")]
    history: Option<PathBuf>,
    /// How large such a file is, 64KiB to 16GiB: 64MiB are an hour of seconds and a month of
    /// minutes of a router with a dozen classes.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size,
        requires = "history")]
    history_size: u64,
    /// Run this in a shell for each alarm that is raised or over; EVENKEEL_ROUTER, EVENKEEL_ALARM,
    /// EVENKEEL_ABOUT, EVENKEEL_STATE (raised, cleared) and EVENKEEL_TEXT say what it is.
    #[arg(long, value_name = "COMMAND")]
    hook: Option<String>,
    /// Whoever shows the token may change rates, knobs and subscribers' plans for a while, over
    /// HTTP. The sockets must be control sockets then, not those for monitoring.
    #[arg(long, requires = "token_file")]
    allow_changes: bool,
    /// The file whose first line is the token (20 to 512 characters); nobody else may read it.
    #[arg(long, value_name = "FILE", requires = "allow_changes")]
    token_file: Option<PathBuf>,
}

pub(crate) fn serve(args: &ServeArgs) -> Outcome {
    let log = Log::start().map_err(|error| Failure::new(1, error))?;
    let token = args.token_file.as_deref().map(Token::read).transpose();
    let token = token.map_err(Failure::input)?;
    // Before the others are confined: what the operator wants to be run may do what his user may.
    let hook = args.hook.as_deref().map(Hook::start).transpose();
    let hook = hook.map_err(|error| Failure::new(1, error))?;
    // Before the threads that talk to strangers: whoever breaks in can write no file but the past.
    let own: Vec<PathBuf> = args.history.iter().cloned().collect();
    confine::files(&own).unwrap_or_else(|why| tracing::warn!("{why}"));
    let options = Options {
        routers: args.routers.clone(),
        listen: args.listen,
        interval: args.interval,
        hosts: args.hosts.clone(),
        history: args.history.clone().map(|folder| (folder, args.history_size)),
        hook,
        token,
    };
    let server = Server::start(options).map_err(|error| match error {
        ServeError::Listen { .. } | ServeError::System(_) | ServeError::History(_) => {
            Failure::new(1, error)
        }
        ServeError::Twice(_) | ServeError::BadName(_) => Failure::input(error),
    })?;
    if !server.address().ip().is_loopback() {
        tracing::warn!("everybody who reaches {} can read", server.address());
        if args.allow_changes {
            tracing::warn!("the token comes in the clear: have a reverse proxy with TLS in front");
        }
    }
    let routers: Vec<String> = args
        .routers
        .iter()
        .map(|router| format!("router {} at {}\n", router.name, router.socket.display()))
        .collect();
    print(&format!("{}serving http://{}/ until Ctrl-C\n", routers.concat(), server.address()))?;
    server.wait();
    log.flush();
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

fn size(text: &str) -> Result<u64, ArgumentError> {
    let size = parse_size(text)?.0;
    let valid = evenkeel_history::SIZES;
    ArgumentError::within(size, text, valid.contains(&size), "64KiB to 16GiB")
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
