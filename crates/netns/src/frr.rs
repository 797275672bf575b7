//! FRR's routing daemons inside a namespace (Debian package `frr`), with nothing of it outside:
//! files, sockets and processes go with their owner.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::owner::left_behind_in;
use crate::shell::{self, ShellError};
use crate::{Namespaces, testing};

const DAEMONS: &str = "/usr/lib/frr";

/// `zebra` and routing daemons of one node.
#[derive(Debug)]
pub struct Frr {
    folder: PathBuf,
    daemons: Vec<Child>,
}

impl Frr {
    /// Whether FRR is installed. If not, says why `test` is skipped.
    #[must_use]
    pub fn available(test: &str) -> bool {
        testing::has_tool(test, "/usr/lib/frr/bgpd", "frr")
            && testing::has_tool(test, "vtysh", "frr")
    }

    /// Starts them in the namespace of `node`: the daemons named, as `bgpd` and `ospfd`, each with
    /// its configuration.
    ///
    /// # Errors
    /// A file could not be written, or a daemon did not come up within ten seconds: with what it
    /// logged.
    pub fn start(
        namespaces: &Namespaces,
        node: &str,
        daemons: &[(&str, &str)],
    ) -> io::Result<Self> {
        for name in left_behind_in(&std::env::temp_dir()) {
            let _ = std::fs::remove_dir_all(std::env::temp_dir().join(name));
        }
        let folder = std::env::temp_dir().join(namespaces.name_of(&format!("{node}-frr")));
        let mut frr = Self { folder, daemons: Vec::new() };
        std::fs::create_dir_all(&frr.folder)?;
        let daemons = [&[("zebra", "")], daemons].concat();
        for (daemon, config) in &daemons {
            std::fs::write(frr.folder.join(format!("{daemon}.conf")), config)?;
        }
        // The daemons give up root.
        let path = frr.path();
        shell::output(&["chown", "-R", "frr:frr", &path]).map_err(io::Error::other)?;
        for (daemon, _) in daemons {
            let line = format!(
                "{DAEMONS}/{daemon} -f {path}/{daemon}.conf -z {path}/zserv -i {path}/{daemon}.pid \
                 --vty_socket {path} -P 0 --log file:{path}/{daemon}.log"
            );
            let mut command = namespaces.command(node, &line);
            frr.daemons.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
            let end = Instant::now() + Duration::from_secs(10);
            let socket = frr.folder.join(format!("{daemon}.vty"));
            while !socket.exists() {
                if Instant::now() > end {
                    let log = std::fs::read_to_string(frr.folder.join(format!("{daemon}.log")));
                    return Err(io::Error::other(format!(
                        "{daemon} does not come up: {}",
                        log.unwrap_or_default()
                    )));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(frr)
    }

    fn path(&self) -> String {
        self.folder.to_string_lossy().into_owned()
    }

    /// What a command of FRR's shell prints.
    ///
    /// # Errors
    /// The daemons do not answer.
    pub fn show(&self, command: &str) -> Result<String, ShellError> {
        shell::output(&["vtysh", "--vty_socket", &self.path(), "-c", command])
    }

    /// Changes the running configuration by these lines.
    ///
    /// # Errors
    /// The daemons do not answer.
    pub fn configure(&self, lines: &[&str]) -> Result<String, ShellError> {
        let path = self.path();
        let mut words = vec!["vtysh", "--vty_socket", &path, "-c", "configure terminal"];
        lines.iter().for_each(|line| words.extend(["-c", *line]));
        shell::output(&words)
    }

    /// How the session with the BGP neighbour at `address` is.
    ///
    /// # Errors
    /// The daemons do not answer.
    pub fn session(&self, address: &str) -> Result<Session, ShellError> {
        let text = self.show(&format!("show bgp neighbors {address} json"))?;
        let number = |key: &str| value(&text, key).and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Session {
            established: value(&text, "bgpState") == Some("Established"),
            times_established: number("connectionsEstablished"),
            times_dropped: number("connectionsDropped"),
            prefixes: number("acceptedPrefixCounter"),
        })
    }

    /// Process numbers of `zebra` and the daemons, in the order in which they were named.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.daemons.iter().map(Child::id).collect()
    }
}

/// The first value of a key in JSON as FRR prints it, one key a line.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let rest = text.split_once(&format!("\"{key}\":"))?.1;
    Some(rest.split([',', '\n', '}']).next()?.trim().trim_matches('"'))
}

/// A session with a BGP neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Session {
    /// It is up.
    pub established: bool,
    /// How often it came up.
    pub times_established: u32,
    /// How often it went down.
    pub times_dropped: u32,
    /// Prefixes that the neighbour told of and that were accepted.
    pub prefixes: u32,
}

impl Drop for Frr {
    fn drop(&mut self) {
        for mut daemon in self.daemons.drain(..).rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs `ip -batch` with `lines` in the namespace of `node`.
///
/// # Errors
/// `ip` refuses a line.
pub fn ip_batch(namespaces: &Namespaces, node: &str, lines: &str, folder: &Path) -> io::Result<()> {
    let file = folder.join(format!("{node}.batch"));
    std::fs::write(&file, lines)?;
    let mut command: Command = namespaces.command(node, &format!("ip -batch {}", file.display()));
    let done = command.output()?;
    std::fs::remove_file(&file)?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn values_are_found_in_what_frr_prints() {
        let text = "{\n \"10.1.0.2\":{\n  \"bgpState\":\"Established\",\n  \
                    \"connectionsDropped\":0\n }\n}";
        assert_eq!(value(text, "bgpState"), Some("Established"));
        assert_eq!(value(text, "connectionsDropped"), Some("0"));
        assert_eq!(value(text, "uptime"), None);
    }
}
