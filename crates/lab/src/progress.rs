//! A progress bar on standard error: how much of all runs is over.

use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_core::Nanos;
use indicatif::{ProgressBar, ProgressStyle};

/// The bar, or nothing.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// Milliseconds of the runs that are over.
    over: AtomicU64,
}

impl Progress {
    /// A bar over runs of these names and lengths, or none unless `shown`.
    pub(crate) fn new(shown: bool, runs: &[(&str, Nanos)]) -> Self {
        let bar = shown.then(|| {
            let total = runs.iter().map(|(_, length)| length.0 / 1_000_000).sum();
            let bar = ProgressBar::new(total);
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}  [{elapsed}]");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, over: AtomicU64::new(0) }
    }

    /// Says what is going on.
    pub(crate) fn say(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// The current run has been going on for `time`.
    pub(crate) fn at(&self, time: Nanos) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.over.load(Ordering::Relaxed) + time.0 / 1_000_000);
        }
    }

    /// The current run, of this length, is over.
    pub(crate) fn next(&self, length: Nanos) {
        self.over.fetch_add(length.0 / 1_000_000, Ordering::Relaxed);
        self.at(Nanos::ZERO);
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
