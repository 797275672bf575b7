//! What decides on a machine whether shaping can work, found before anything is changed.
//!
//! | step | module |
//! |---|---|
//! | read what the machine and its interfaces are, from `/proc`, `/sys` and the kernel | [`facts`] |
//! | count for a second how late it wakes, what others take of it, what is lost | [`second`] |
//! | judge, by rules that know nothing of where a fact comes from | [`mod@judge`] |
//!
//! Nothing needs a privilege. What cannot be seen without one is a finding, too.
#![forbid(unsafe_code)]

mod files;

pub mod facts;
pub mod finding;
pub mod judge;
pub mod line;
pub mod second;

use std::time::Duration;

pub use facts::{Facts, Machine, Nic};
pub use finding::{Finding, Level};
pub use judge::judge;
pub use line::Line;
pub use second::Second;

/// How long is measured.
pub const MEASURED: Duration = Duration::from_secs(1);

/// Looks at the machine and these interfaces, in the network namespace of the calling thread, and
/// measures for a second.
#[must_use]
pub fn examine(interfaces: &[String], lines: &[Line]) -> Vec<Finding> {
    let files = files::Files::of_this_machine();
    let facts = Facts::look(&files, interfaces);
    let second = Second::measure(&files, interfaces, MEASURED);
    judge(&facts, &second, lines)
}

/// Interfaces that are worth a look if none is named: those that are not the loopback, and up.
#[must_use]
pub fn usual_interfaces() -> Vec<String> {
    facts::usual_interfaces(&files::Files::of_this_machine())
}
