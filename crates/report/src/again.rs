//! Results beside those of a second run of the same scenario: what is the same, and what is not.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::judge::{Judgement, Verdict};
use crate::numbers::measured;
use crate::saved::{self, LoadError};
use crate::table::Table;

/// What a second run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Again {
    /// Results that there are, one for each seed and mechanism.
    pub results: usize,
    /// Results that are the same, byte for byte.
    pub identical: usize,
    /// Claims that were judged otherwise, in words.
    pub changed: Vec<String>,
    /// Claims that were judged alike.
    pub alike: usize,
    /// The numbers behind claims, of results that are not identical.
    pub numbers: Vec<Number>,
}

/// A number behind a claim, in both.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// The claim.
    pub claim: String,
    /// The number: `delay(calls)@start`.
    pub term: String,
    /// As texts with units.
    pub values: [String; 2],
    /// The part of the first by which the second differs.
    pub differs: Option<f64>,
}

impl Again {
    /// Whether every result is the same, byte for byte.
    #[must_use]
    pub fn is_identical(&self) -> bool {
        self.identical == self.results && self.changed.is_empty()
    }

    /// The numbers as a table, those that differ most first.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new(["claim", "number", "then", "now", "differs"]);
        let mut sorted: Vec<&Number> = self.numbers.iter().collect();
        let by = |number: &Number| number.differs.map_or(f64::INFINITY, f64::abs);
        sorted.sort_by(|a, b| by(b).total_cmp(&by(a)));
        for number in sorted {
            let [then, now] = number.values.clone();
            let differs =
                number.differs.map_or(String::new(), |part| format!("{:+.1} %", part * 100.0));
            table.row([number.claim.clone(), number.term.clone(), then, now, differs]);
        }
        table.render()
    }
}

/// Sets the results below `now` against those below `then`.
///
/// # Errors
/// A result that cannot be read, or a folder without any.
pub fn again(then: &Path, now: &Path) -> Result<Again, LoadError> {
    let (first, mut second) = (results(then)?, results(now)?);
    let mut all = Again { results: first.len(), ..Again::default() };
    for (name, old) in first {
        let Some(new) = second.remove(&name) else {
            all.changed.push(format!("{}: was not made again", name.display()));
            continue;
        };
        let read = |path: &Path| {
            let error = |error| LoadError { path: path.to_owned(), what: format!("{error}") };
            fs::read(path).map_err(error)
        };
        if read(&old)? == read(&new)? {
            all.identical += 1;
            continue;
        }
        compare(&mut all, &saved::load(&old)?.judgements, &saved::load(&new)?.judgements);
    }
    all.changed.extend(second.keys().map(|name| format!("{}: is new", name.display())));
    Ok(all)
}

fn compare(all: &mut Again, then: &[Judgement], now: &[Judgement]) {
    for old in then {
        let same = |new: &&Judgement| (&new.run, &new.name) == (&old.run, &old.name);
        let Some(new) = now.iter().find(same) else {
            all.changed.push(format!("{}: is no longer claimed", old.name));
            continue;
        };
        if new.verdict == old.verdict {
            all.alike += 1;
        } else {
            let why = if new.verdict == Verdict::NotJudged { &new.note } else { "" };
            let (was, is) = (old.verdict.text(), new.verdict.text());
            all.changed.push(format!("{}: {was} then, {is} now {why}", old.name).trim().to_owned());
        }
        for (a, b) in old.measured.iter().zip(&new.measured) {
            let values = a.value.zip(b.value);
            all.numbers.push(Number {
                claim: old.name.clone(),
                term: a.text.clone(),
                values: [measured(a), measured(b)],
                differs: values.filter(|(a, _)| *a != 0.0).map(|(a, b)| (b - a) / a.abs()),
            });
        }
    }
}

/// The results below a folder, by their places in it.
fn results(folder: &Path) -> Result<BTreeMap<PathBuf, PathBuf>, LoadError> {
    let files = saved::files(folder)?;
    let named = files.into_iter().map(|file| {
        let name = file.strip_prefix(folder).unwrap_or(&file).to_owned();
        (name, file)
    });
    Ok(named.collect())
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::Term;

    use super::*;
    use crate::{Report, fixture};

    fn report(value: f64, verdict: Verdict) -> Report {
        let judgement = Judgement {
            run: String::new(),
            name: "short".to_owned(),
            claim: "it is short".to_owned(),
            expression: String::new(),
            measured: vec![Term { text: "delay(a)".to_owned(), value: Some(value), unit: "us" }],
            published: Vec::new(),
            verdict,
            note: String::new(),
        };
        let runs = vec![fixture::two_steps()];
        Report { judgements: vec![judgement], runs, ..Report::default() }
    }

    #[test]
    fn what_differs_is_told_by_claim_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let put = |place: &str, report: &Report| {
            let to = folder.path().join(place);
            fs::create_dir_all(&to).unwrap();
            fs::write(to.join(saved::FILE), saved::to_json(report)).unwrap();
        };
        put("then/seed-1", &report(100.0, Verdict::Holds));
        put("now/seed-1", &report(100.0, Verdict::Holds));
        let compare = || again(&folder.path().join("then"), &folder.path().join("now")).unwrap();
        assert!(compare().is_identical());
        put("then/seed-2", &report(100.0, Verdict::Holds));
        assert_eq!(compare().changed, ["seed-2/result.json: was not made again"]);
        put("now/seed-2", &report(110.0, Verdict::Holds));
        let found = compare();
        assert!(!found.is_identical() && found.changed.is_empty());
        assert_eq!((found.results, found.identical, found.alike), (2, 1, 1));
        assert!(found.table().contains("+10.0 %"), "{}", found.table());
        put("now/seed-2", &report(110.0, Verdict::Fails));
        assert_eq!(compare().changed, ["short: holds then, fails now"]);
    }
}
