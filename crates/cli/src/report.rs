//! `evenkeel report`: pages from saved results.

use evenkeel_report::saved::{self, LoadError};
use evenkeel_report::site::{self, Drawing, Title};
use evenkeel_sweep::Drawn;

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
    let mut drawings = Vec::new();
    for folder in args.folders.iter().filter(|folder| folder.is_dir()) {
        let drawn = evenkeel_sweep::drawings(folder)?;
        drawings.extend(drawn.into_iter().map(|Drawn { name, title, notes, svg, rows }| Drawing {
            name,
            title,
            notes,
            svg,
            rows,
        }));
    }
    let index = site::write(&args.out, results, &drawings, &title)?;
    print(&format!(
        "{count} results, {} maps and charts; open {}\n",
        drawings.len(),
        index.display()
    ))
}
