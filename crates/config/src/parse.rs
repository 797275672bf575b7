//! From the text of `router.toml` to [`RouterConfig`].

use std::path::Path;

use crate::diagnostic::Diagnostics;
use crate::model::RouterConfig;

impl RouterConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All that is wrong with it; also that it cannot be read.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let _ = path;
        todo!()
    }

    /// Checks a text; `file` is the name that errors say.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        let _ = (text, file);
        todo!()
    }
}
