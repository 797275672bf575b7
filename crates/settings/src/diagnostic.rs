//! Errors of a file: where, which key, what is wrong, what would be right.

use std::fmt;
use std::ops::Range;

use evenkeel_core::settings::quantity::QuantityError;

/// One error in a file. Prints `file:line: key: what is wrong; valid range; did you mean`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnostic {
    /// The file, as it was named by the caller.
    pub file: String,
    /// Line, from 1. 0: the file as a whole.
    pub line: usize,
    /// The path of the key, `link.discipline.x_delay.bulk`; empty where there is none.
    pub key: String,
    /// What is wrong, with the valid range or the nearest valid key.
    pub message: String,
}

/// All errors of a file, in order of their lines. Prints one per line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}
impl std::error::Error for Diagnostics {}

/// Where something stands in the text: a range of bytes.
pub type Span = Range<usize>;

/// Why a value is not one of its kind: what was expected and what was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ValueError(pub(crate) String);

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

impl From<QuantityError> for ValueError {
    fn from(error: QuantityError) -> Self {
        Self(error.0)
    }
}
