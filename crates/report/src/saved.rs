//! Results on disk: `result.json` holds a whole [`Report`], every sample with its distribution of
//! delays included, and is read back for pages on several worlds and seeds.
//!
//! The form is `{"format": "evenkeel-result", "version": 1, "report": {…}}`. Fields may be added
//! within a version; what older programs need is neither renamed nor removed.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_scenario::{Metric, Term};
use serde::{Deserialize, Serialize};

use crate::html::Report;

/// The file in a folder of results.
pub const FILE: &str = "result.json";

const FORMAT: &str = "evenkeel-result";
const VERSION: u32 = 1;

/// A result could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}", path = path.display())]
pub struct LoadError {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong, and what would be right.
    pub what: String,
}

#[derive(Serialize)]
struct Out<'a> {
    format: &'a str,
    version: u32,
    report: &'a Report,
}

#[derive(Deserialize)]
struct In {
    format: String,
    version: u32,
    report: Report,
}

/// The content of `result.json`.
#[must_use]
pub fn to_json(report: &Report) -> Vec<u8> {
    let out = Out { format: FORMAT, version: VERSION, report };
    let mut text = serde_json::to_vec(&out).expect("a report is plain data");
    text.push(b'\n');
    text
}

/// Reads a `result.json`.
///
/// # Errors
/// It cannot be read, or is no result, or of a version that this program does not know.
pub fn load(path: &Path) -> Result<Report, LoadError> {
    let fail = |what: String| LoadError { path: path.to_owned(), what };
    let text = fs::read(path).map_err(|error| fail(format!("cannot read: {error}")))?;
    let read: In = serde_json::from_slice(&text)
        .map_err(|error| fail(format!("no result of evenkeel (or cut off): {error}")))?;
    if read.format != FORMAT || read.version != VERSION {
        let what = format!(
            "{} version {}; this program reads {FORMAT} version {VERSION}",
            read.format, read.version
        );
        return Err(fail(what));
    }
    Ok(read.report)
}

/// Every result in or below the folders given, in order of their paths. A path may also name a
/// `result.json` itself.
///
/// # Errors
/// A path that is not there, a result that cannot be read, a folder without any.
pub fn load_all(paths: &[PathBuf]) -> Result<Vec<Report>, LoadError> {
    let mut reports = Vec::new();
    for path in paths {
        for file in files(path)? {
            reports.push(load(&file)?);
        }
    }
    Ok(reports)
}

/// The files of all results in or below a folder, in order of their paths.
///
/// # Errors
/// It is not there, or holds none.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let mut files = Vec::new();
    find(path, &mut files).map_err(|error| LoadError {
        path: path.to_owned(),
        what: format!("cannot read: {error}"),
    })?;
    files.sort();
    if files.is_empty() {
        let what = format!(
            "holds no {FILE}: give a folder that `evenkeel sim` or `evenkeel lab` has written"
        );
        return Err(LoadError { path: path.to_owned(), what });
    }
    Ok(files)
}

fn find(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if fs::metadata(path)?.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), files)?;
        } else if entry.file_name() == FILE {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Terms, whose units are names known to the program.
pub(crate) mod terms {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Metric, Term};

    #[derive(Deserialize, Serialize)]
    struct Saved {
        text: String,
        value: Option<f64>,
        unit: String,
    }

    pub(crate) fn serialize<S: Serializer>(
        terms: &[Term],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let saved = terms.iter().map(|term| Saved {
            text: term.text.clone(),
            value: term.value,
            unit: term.unit.to_owned(),
        });
        saved.collect::<Vec<_>>().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Term>, D::Error> {
        let known = |unit: &str| {
            let of_flows = evenkeel_scenario::FlowMetric::ALL.iter().map(|metric| metric.unit());
            let subscribers = evenkeel_scenario::SubscriberMetric::ALL.iter();
            let of_flows = of_flows.chain(subscribers.map(|metric| metric.unit()));
            let known = Metric::all().map(Metric::unit).chain(of_flows);
            known.into_iter().find(|known| *known == unit).unwrap_or_default()
        };
        let saved = Vec::<Saved>::deserialize(deserializer)?;
        Ok(saved
            .into_iter()
            .map(|term| Term { unit: known(&term.unit), text: term.text, value: term.value })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::judge::{Judgement, Verdict};

    fn report() -> Report {
        let judgement = Judgement {
            run: String::new(),
            name: "a".to_owned(),
            claim: "b".to_owned(),
            expression: "delay(class3)@x10 > 1".to_owned(),
            measured: vec![Term {
                text: "delay(class3)@x10".to_owned(),
                value: Some(0.1 + 0.2),
                unit: "us",
            }],
            published: vec![],
            verdict: Verdict::NotReproduced,
            note: String::new(),
        };
        Report {
            name: "lct/fig4".to_owned(),
            time_scale: 0.06,
            seed: Some(7),
            runs: vec![fixture::two_steps()],
            judgements: vec![judgement],
            ..Report::default()
        }
    }

    #[test]
    fn what_is_read_back_is_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let report = report();
        fs::write(below.join(FILE), to_json(&report)).unwrap();
        let back = load_all(&[folder.path().to_owned()]).unwrap();
        assert_eq!(back.len(), 1);
        assert_eq!(to_json(&back[0]), to_json(&report));
        assert_eq!(back[0].judgements, report.judgements);
        assert_eq!(back[0].to_html(), report.to_html());
    }

    #[test]
    fn a_file_that_was_cut_off_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let whole = to_json(&report());
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("result.json: no result of evenkeel (or cut off)"), "{error}");
        fs::write(
            &path,
            String::from_utf8(whole).unwrap().replacen("\"version\":1", "\"version\":9", 1),
        )
        .unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("version 9"));
        fs::remove_file(&path).unwrap();
        assert!(
            load_all(&[folder.path().to_owned()])
                .unwrap_err()
                .to_string()
                .contains("holds no result.json")
        );
    }
}
