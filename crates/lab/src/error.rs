//! Why a lab run did not come to its end.

use std::io;
use std::path::PathBuf;

use evenkeel_netns::ShellError;
use evenkeel_scenario::ScenarioError;

/// What went wrong. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The process may not make namespaces.
    #[error(
        "the lab makes network namespaces and needs root: run it with sudo, or in a container with \
         CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    NotRoot,
    /// The kernel refused something that only a kernel feature or a capability gives.
    #[error(
        "the kernel refused to {what}: {said}; the lab needs network namespaces and veth \
         (CONFIG_NET_NS, CONFIG_VETH) and the capability CAP_SYS_ADMIN"
    )]
    Kernel {
        /// What was tried.
        what: String,
        /// What it said.
        said: String,
    },
    /// The kernel has not the queueing discipline that a link asks for.
    #[error("{place}: `tc {line}`: {said}; this kernel has {has}")]
    NoQdisc {
        /// Where it stands, `file:line`.
        place: String,
        /// What `tc` was told.
        line: String,
        /// What it said.
        said: String,
        /// The disciplines that the kernel has.
        has: String,
    },
    /// Programs are not installed.
    #[error("programs are missing: {programs}: apt-get install {packages}")]
    MissingTools {
        /// Their names, and what the lab does with each.
        programs: String,
        /// The Debian packages that have them.
        packages: String,
    },
    /// The scenario or an option asks for what cannot be.
    #[error("{0}")]
    BadInput(String),
    /// A command of the lab failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command as it could be typed.
        command: String,
        /// Its standard error.
        said: String,
    },
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A router process did not start, or ended during the run.
    #[error("router {router} {what}\n{log}")]
    Router {
        /// Its name in the scenario.
        router: String,
        /// What it did.
        what: String,
        /// The end of what it printed.
        log: String,
        /// Its exit code, if it ended with one.
        code: Option<u8>,
    },
    /// A router answered a command with an error.
    #[error("router {router} refused {command}: {said}")]
    Refused {
        /// Its name in the scenario.
        router: String,
        /// What it was asked.
        command: String,
        /// What it said.
        said: String,
    },
    /// The check before or after the measurement found that the numbers would not mean what they
    /// say.
    #[error("check failed: {0}")]
    Check(String),
    /// The user or the system asked the lab to stop.
    #[error("interrupted; everything was torn down")]
    Interrupted,
    /// A result file could not be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl From<ShellError> for LabError {
    fn from(error: ShellError) -> Self {
        match error {
            ShellError::Start { command, source } => {
                Self::System { what: format!("run `{command}`"), source }
            }
            ShellError::Failed { command, said } => Self::Command { command, said },
        }
    }
}

impl From<ScenarioError> for LabError {
    fn from(error: ScenarioError) -> Self {
        Self::BadInput(error.to_string())
    }
}

impl LabError {
    /// Something in the file that the lab cannot do: where (`file:line`), in what, why.
    pub(crate) fn refused(place: &str, name: &str, why: &str) -> Self {
        let before = if place.is_empty() { String::new() } else { format!("{place}: ") };
        Self::BadInput(format!("{before}{name}: {why}"))
    }

    /// The exit code a command should end with: 2 for bad input, 3 for missing privilege, program
    /// or kernel feature, 130 when interrupted, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BadInput(_) | Self::Refused { .. } => 2,
            Self::NotRoot
            | Self::Kernel { .. }
            | Self::NoQdisc { .. }
            | Self::MissingTools { .. } => 3,
            Self::Router { code: Some(code @ (2 | 3)), .. } => *code,
            Self::Interrupted => 130,
            Self::Command { .. }
            | Self::System { .. }
            | Self::Router { .. }
            | Self::Check(_)
            | Self::Write { .. } => 1,
        }
    }
}

impl From<evenkeel_world::sampling::NoPath> for LabError {
    fn from(error: evenkeel_world::sampling::NoPath) -> Self {
        Self::BadInput(error.to_string())
    }
}
