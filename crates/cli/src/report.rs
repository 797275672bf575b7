//! `evenkeel report`: pages from saved results.

use evenkeel_report::saved::{self, LoadError};
use evenkeel_report::site::{self, Title};

use crate::args::ReportArgs;
use crate::failure::{Failure, Outcome};
use crate::out::print;

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::input(error)
    }
}

pub(crate) fn report(args: &ReportArgs) -> Outcome {
    let results = saved::load_all(&args.folders)?;
    let count = results.len();
    let mut title = Title::default();
    if let Some(text) = &args.title {
        title.title.clone_from(text);
    }
    let index = site::write(&args.out, results, &title)?;
    print(&format!("{count} results; open {}\n", index.display()))
}
