//! Running the system's own programs: `ip`, `ping`, `ethtool`.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A command did not do what it was for.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// It could not be started.
    #[error("cannot run `{command}`: {source}")]
    Start {
        /// The command as it could be typed.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// Its exit code is not 0.
    #[error("`{command}` failed: {said}")]
    Failed {
        /// The command as it could be typed.
        command: String,
        /// Its standard error; else its standard output; else how it ended.
        said: String,
    },
}

/// Whether `program` stands in one of the folders where programs are.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(Into::into);
    std::env::split_paths(&path).chain(system).any(|folder| folder.join(program).is_file())
}

/// A command that looks for its program where system programs are, also when `PATH` lacks `/sbin`.
///
/// # Panics
/// If `words` is empty.
#[must_use]
pub fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().expect("a command has at least its program");
    let found = ["/usr/sbin", "/sbin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|p| p.is_file());
    let mut command = Command::new(found.unwrap_or_else(|| program.into()));
    command.args(arguments);
    command
}

/// Runs a command to its end and returns what it printed.
///
/// # Errors
/// It could not be started, or its exit code is not 0.
///
/// # Panics
/// If `words` is empty.
pub fn output(words: &[&str]) -> Result<String, ShellError> {
    let done = command(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| start_error(words, source))?;
    finished(words, &done)
}

/// Runs a command to its end, giving it `input`, and returns what it printed.
///
/// # Errors
/// As [`output`].
///
/// # Panics
/// If `words` is empty.
pub fn feed(words: &[&str], input: &str) -> Result<String, ShellError> {
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

fn start_error(words: &[&str], source: io::Error) -> ShellError {
    ShellError::Start { command: words.join(" "), source }
}

fn finished(words: &[&str], done: &Output) -> Result<String, ShellError> {
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
    Err(ShellError::Failed { command: words.join(" "), said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_says_is_kept() {
        assert_eq!(output(&["echo", "a b"]).expect("echo works"), "a b\n");
        assert_eq!(feed(&["cat"], "x\ny\n").expect("cat works"), "x\ny\n");
        let error = output(&["sh", "-c", "echo no such link >&2; exit 4"]).expect_err("it fails");
        assert!(error.to_string().ends_with("failed: no such link"), "{error}");
        let error = output(&["no-such-program-here"]).expect_err("it is missing");
        assert!(error.to_string().starts_with("cannot run `no-such-program-here`"), "{error}");
    }

    #[test]
    fn programs_are_found_also_without_a_path_to_them() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program-here"));
    }
}
