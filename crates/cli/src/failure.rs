//! How a command ends when it cannot do what it was asked.

use evenkeel_settings::Diagnostics;

/// The message for standard error, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Empty: nothing to print.
    pub(crate) text: String,
    /// The exit code.
    pub(crate) code: u8,
}

/// Result of a command: its exit code, or why it could not be carried out.
pub(crate) type Outcome = Result<u8, Failure>;

impl Failure {
    /// A failure that says what is wrong.
    pub(crate) fn new(code: u8, text: impl std::fmt::Display) -> Self {
        Self { text: format!("evenkeel: {text}"), code }
    }

    /// Bad input.
    pub(crate) fn input(text: impl std::fmt::Display) -> Self {
        Self::new(2, text)
    }
}

/// Errors of a file begin with its name and line, so that editors find the place.
impl From<Diagnostics> for Failure {
    fn from(errors: Diagnostics) -> Self {
        Self { text: errors.to_string(), code: 2 }
    }
}
