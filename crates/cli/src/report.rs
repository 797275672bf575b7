//! `evenkeel report`: pages from saved results.

use std::path::Path;

use evenkeel_report::compare::beside;
use evenkeel_report::saved::{self, LoadError};
use evenkeel_report::site::{self, Drawing, Title};
use evenkeel_sweep::Drawn;

use crate::args::{CompareArgs, ReportArgs};
use crate::failure::{Failure, Outcome};
use crate::out::print;

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::input(error)
    }
}

pub(crate) fn report(args: &ReportArgs) -> Outcome {
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
    let mut results = Vec::new();
    for folder in &args.folders {
        // The folder of a sweep has maps and charts, and need not hold a result.
        if saved::files(folder).is_ok() || !is_sweep(folder) {
            results.extend(saved::load_all(std::slice::from_ref(folder))?);
        }
    }
    let count = results.len();
    let index = site::write(&args.out, results, &drawings, &title)?;
    print(&format!(
        "{count} results, {} maps and charts; open {}\n",
        drawings.len(),
        index.display()
    ))
}

/// Whether a folder holds something that a sweep has drawn.
fn is_sweep(folder: &Path) -> bool {
    evenkeel_sweep::drawings(folder).is_ok_and(|drawn| !drawn.is_empty())
}

pub(crate) fn compare(args: &CompareArgs) -> Outcome {
    let name = |folder: &Path| folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let short: Vec<Option<String>> = args.folders.iter().map(|folder| name(folder)).collect();
    let mut named = Vec::new();
    for (folder, short_name) in args.folders.iter().zip(&short) {
        // Where folders are called alike, their paths tell them apart.
        let alone = short.iter().filter(|other| *other == short_name).count() == 1;
        let label = short_name.clone().filter(|_| alone);
        let label = label.unwrap_or_else(|| folder.display().to_string());
        named.push((label, saved::load_all(std::slice::from_ref(folder))?));
    }
    let labels: Vec<&str> = named.iter().map(|(label, _)| label.as_str()).collect();
    let title = args.title.clone().unwrap_or_else(|| labels.join(", "));
    let page = site::write_beside(&args.out, &beside(&title, named))?;
    print(&format!("open {}\n", page.display()))
}
