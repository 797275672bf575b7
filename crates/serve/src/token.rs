//! The token that who changes something must show.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use thiserror::Error;

/// Shortest token: with fewer characters it could be found by trying.
const SHORTEST: usize = 20;
/// Longest token.
const LONGEST: usize = 512;
/// Between two lines of the log about tokens that are none.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// What who changes something must know. It is in no log, no answer and no text of an error.
#[derive(Clone, Eq, PartialEq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why there is no token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token in {file}: {source}", file = file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others know it.
    #[error("{file} holds a secret, and others may read it: chmod 600 {file}", file = .0.display())]
    Open(PathBuf),
    /// It is not one.
    #[error(
        "the first line of {file} is no token: {SHORTEST} to {LONGEST} letters, digits and signs, \
         without spaces; make one with `openssl rand -hex 32`", file = .0.display()
    )]
    NoToken(PathBuf),
}

impl Token {
    /// The first line of a file that nobody else may read.
    ///
    /// # Errors
    /// See [`TokenError`]; none has what is in the file.
    pub fn read(file: &std::path::Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Io { file: file.to_owned(), source };
        let open = File::open(file).map_err(failed)?;
        if open.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(TokenError::Open(file.to_owned()));
        }
        let mut text = Vec::new();
        open.take(2 * LONGEST as u64).read_to_end(&mut text).map_err(failed)?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
        let fits = (SHORTEST..=LONGEST).contains(&line.len());
        match std::str::from_utf8(line) {
            Ok(token) if fits && line.iter().all(u8::is_ascii_graphic) => Ok(Self(token.into())),
            _ => Err(TokenError::NoToken(file.to_owned())),
        }
    }

    /// Whether this is it. Takes as long for all that are as long as it is.
    fn is(&self, told: &str) -> bool {
        let (own, told) = (self.0.as_bytes(), told.as_bytes());
        let differs = own.iter().zip(told).fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == told.len() && std::hint::black_box(differs) == 0
    }
}

/// Who may change something.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    token: Option<Token>,
    /// When it was logged last that somebody showed no token, and how often since.
    strangers: Mutex<(Option<Instant>, u64)>,
}

/// Why somebody may change nothing.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub(crate) enum NotAllowed {
    #[error("nothing can be changed here: evenkeel serve was not started with --allow-changes")]
    Nobody,
    #[error("only who shows the token may change something: Authorization: Bearer TOKEN")]
    Stranger,
}

impl Allowed {
    pub(crate) fn to(token: Option<Token>) -> Self {
        Self { token, ..Self::default() }
    }

    /// Whether who shows this may.
    pub(crate) fn check(&self, told: Option<&str>, peer: SocketAddr) -> Result<(), NotAllowed> {
        let token = self.token.as_ref().ok_or(NotAllowed::Nobody)?;
        if told.is_some_and(|told| token.is(told)) {
            return Ok(());
        }
        self.stranger(peer);
        Err(NotAllowed::Stranger)
    }

    /// Somebody showed no token or another: that is logged, but it does not fill the log.
    fn stranger(&self, peer: SocketAddr) {
        let mut strangers = evenkeel_router::lock(&self.strangers);
        strangers.1 += 1;
        if strangers.0.is_none_or(|last| last.elapsed() >= BETWEEN_LINES) {
            let times = strangers.1;
            tracing::warn!("refused: {peer} would change something without the token ({times})");
            *strangers = (Some(Instant::now()), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};

    fn read(text: &[u8], mode: u32) -> Result<Token, TokenError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        write(&file, text).unwrap();
        set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        Token::read(&file)
    }

    #[test]
    fn a_token_is_the_first_line_of_a_file_that_is_closed_to_others() {
        let good = "0123456789abcdef+/=-";
        let token = read(format!("{good} \r\nmore\n").as_bytes(), 0o400).unwrap();
        assert!(token.is(good));
        for other in ["", "0123456789abcdef+/=_", "0123456789abcdef+/=", "0123456789abcdef+/=-x"] {
            assert!(!token.is(other), "{other:?}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
        for mode in [0o640, 0o604, 0o620] {
            assert!(matches!(read(good.as_bytes(), mode), Err(TokenError::Open(_))), "{mode:o}");
        }
        let long = "x".repeat(LONGEST + 1);
        for bad in ["", "\n", "short", "0123456789 0123456789", &long, "é0123456789012345678"] {
            let error = read(bad.as_bytes(), 0o600).unwrap_err();
            assert!(matches!(error, TokenError::NoToken(_)), "{bad:?}");
            assert!(bad.trim().is_empty() || !error.to_string().contains(bad), "{error}");
        }
        assert!(matches!(read(b"\xff01234567890123456789", 0o600), Err(TokenError::NoToken(_))));
        assert!(matches!(
            Token::read(std::path::Path::new("/nowhere")),
            Err(TokenError::Io { .. })
        ));
    }
}
