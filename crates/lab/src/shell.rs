//! Running the system's own programs: `ip`, `ping`, `ethtool`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::LabError;

/// The programs that every run needs, what for, and the Debian package that has each.
pub(crate) const ALWAYS: [(&str, &str, &str); 3] = [
    ("ip", "namespaces, veth pairs, addresses, routes", "iproute2"),
    ("ping", "checking the wires before the run", "iputils-ping"),
    ("ethtool", "switching off the offloads of hosts", "ethtool"),
];

/// Whether `program` stands in one of the folders where programs are.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(Into::into);
    std::env::split_paths(&path).chain(system).any(|folder| folder.join(program).is_file())
}

/// Finds out whether a program is there.
///
/// # Errors
/// [`LabError::MissingTool`] with the package to install.
pub(crate) fn require(
    (program, what_for, package): (&'static str, &'static str, &'static str),
) -> Result<(), LabError> {
    if is_installed(program) { Ok(()) } else { Err(LabError::MissingTool { program, what_for, package }) }
}

/// A command that looks for its program where system programs are, also when `PATH` lacks `/sbin`.
pub(crate) fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().expect("a command has at least its program");
    let found =
        ["/usr/sbin", "/sbin"].iter().map(|folder| Path::new(folder).join(program)).find(|p| p.is_file());
    let mut command = Command::new(found.unwrap_or_else(|| program.into()));
    command.args(arguments);
    command
}

/// Runs a command to its end and returns what it printed.
///
/// # Errors
/// It could not be started, or its exit code is not 0.
pub(crate) fn output(words: &[&str]) -> Result<String, LabError> {
    let done = command(words).stdin(Stdio::null()).output().map_err(|source| start_error(words, source))?;
    finished(words, &done)
}

/// Runs a command to its end, giving it `input`.
///
/// # Errors
/// As [`output`].
pub(crate) fn feed(words: &[&str], input: &str) -> Result<String, LabError> {
    let mut child = command(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| start_error(words, source))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early says why in its exit code and standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let done = child.wait_with_output().map_err(|source| start_error(words, source))?;
    finished(words, &done)
}

fn start_error(words: &[&str], source: std::io::Error) -> LabError {
    LabError::System { what: format!("run `{}`", words.join(" ")), source }
}

fn finished(words: &[&str], done: &Output) -> Result<String, LabError> {
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let mut said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if said.is_empty() {
        said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    }
    if said.is_empty() {
        said = done.status.to_string();
    }
    Err(LabError::Command { command: words.join(" "), said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_says_is_kept() {
        assert_eq!(output(&["echo", "a b"]).expect("echo works"), "a b\n");
        assert_eq!(feed(&["cat"], "x\ny\n").expect("cat works"), "x\ny\n");
        let error = output(&["sh", "-c", "echo no such link >&2; exit 4"]).expect_err("it fails");
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().ends_with("failed: no such link"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = require(("no-such-program-here", "testing", "no-package")).expect_err("it is missing");
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("apt-get install no-package"), "{error}");
        require(("sh", "testing", "dash")).expect("a shell is always there");
    }
}
