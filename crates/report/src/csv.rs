//! Samples as CSV (RFC 4180): the QoStat columns, one row per window, link and class.

use std::io::{self, Write};

use crate::run::Run;

/// Writes `samples.csv`. Several runs go into one file, told apart by the column `run`.
///
/// # Errors
/// Whatever `out` says.
pub fn write_samples(out: &mut impl Write, runs: &[Run]) -> io::Result<()> {
    todo!()
}

/// Writes `calls.csv`: scheduler calls that found none, one or several queues with packets.
///
/// # Errors
/// Whatever `out` says.
pub fn write_calls(out: &mut impl Write, runs: &[Run]) -> io::Result<()> {
    todo!()
}
