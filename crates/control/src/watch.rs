//! QoStat: reads every counter each interval and writes one row per class and window.

use std::io::{self, Write};

use crate::window::Window;

/// How rows are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// CSV with a header line.
    Csv,
    /// One JSON object per line.
    Json,
}

/// Writes windows as rows `t,link,class,mean_delay_us,p50_us,p99_us,sent,dropped,qlen,none,one,many`.
#[derive(Debug)]
pub struct RowWriter<W> {
    out: W,
    format: Format,
}

impl<W: Write> RowWriter<W> {
    /// A writer; writes the header line at once where the format has one.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn new(out: W, format: Format) -> io::Result<Self> {
        todo!()
    }

    /// Writes the rows of one window that ended `t_s` seconds after the start, of `link` alone if given.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write(&mut self, t_s: f64, window: &Window, link: Option<&str>) -> io::Result<()> {
        todo!()
    }
}
