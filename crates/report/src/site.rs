//! Pages over a set of saved results: one for each scenario, with every world and seed in the same
//! figures, and an index.

use std::fs;
use std::path::{Path, PathBuf};

use crate::compare::{Comparison, WorldResults, group};
use crate::html::{self, IndexEntry, Report};
use crate::slug::slug;
use crate::{WriteError, columns};

/// Heading and introduction of the index.
#[derive(Clone, Debug)]
pub struct Title {
    /// The heading.
    pub title: String,
    /// Paragraphs of plain text, separated by empty lines.
    pub intro: String,
}

impl Default for Title {
    fn default() -> Self {
        Self {
            title: "Published figures, simulated and measured".to_owned(),
            intro: INTRO.to_owned(),
        }
    }
}

/// A drawing with a page of its own.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// Path-like: `maps/differentiation`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Paragraphs of plain text.
    pub notes: String,
    /// The whole SVG.
    pub svg: String,
    /// The table below it, its heading first; may be empty.
    pub rows: Vec<Vec<String>>,
}

const INTRO: &str = "\
Each card is one published figure or table, run again. The same scenario file runs in the \
simulator (virtual time) and, where it \
says lab, on real packets between network namespaces of one Linux machine; the code of the \
scheduler is the same in both.

A page shows the published number where there is one, the simulation as a line with its 95 % \
confidence band over several seeds, and \
the lab run over it. Below the figures stand the claims of the paper as expectations with the \
numbers behind each. “As expected” means that every claim \
came out as documented: a claim of the paper that is not reproduced says so on its page.";

/// Writes the pages on `reports` and `drawings` into `folder`, which is made if it is missing: a
/// page and its samples as CSV and Parquet for each scenario, and `index.html`. Returns the index.
///
/// # Errors
/// The file that could not be written, and why.
pub fn write(
    folder: &Path,
    reports: Vec<Report>,
    drawings: &[Drawing],
    title: &Title,
) -> Result<PathBuf, WriteError> {
    let put = |name: &str, content: &[u8]| put(folder, name, content);
    let (comparisons, alone) = group(reports);
    let mut entries = Vec::new();
    for comparison in &comparisons {
        let slug = comparison.slug();
        let data = put_samples(folder, comparison, &slug)?;
        let file = format!("{slug}.html");
        put(&file, html::comparison(comparison, &data).as_bytes())?;
        entries.push(entry(comparison, file));
    }
    for (number, report) in alone.iter().enumerate() {
        let file = format!("{}-{}.html", slug(&report.name), number + 1);
        put(&file, report.to_html().as_bytes())?;
        entries.push(IndexEntry {
            file,
            name: report.name.clone(),
            title: report.title.clone(),
            source: report.source.clone(),
            claim: String::new(),
            worlds: vec![(
                report.runs.first().map(|run| run.world.clone()).unwrap_or_default(),
                !report.failed(),
            )],
            figure: String::new(),
        });
    }
    for drawing in drawings {
        let name = slug(&drawing.name);
        let file = format!("{name}.html");
        let page =
            html::figure_page(&drawing.title, &drawing.notes, &name, &drawing.svg, &drawing.rows);
        put(&file, page.as_bytes())?;
        entries.push(IndexEntry {
            file,
            name: drawing.name.clone(),
            title: drawing.title.clone(),
            figure: drawing.svg.clone(),
            ..IndexEntry::default()
        });
    }
    put("index.html", html::index(&title.title, &title.intro, &entries).as_bytes())
}

/// Writes the page on runs beside each other ([`crate::compare::beside`]) and their samples into
/// `folder`, which is made if it is missing. Returns the page.
///
/// # Errors
/// The file that could not be written, and why.
pub fn write_beside(folder: &Path, comparison: &Comparison) -> Result<PathBuf, WriteError> {
    let data = put_samples(folder, comparison, "samples")?;
    put(folder, "index.html", html::beside(comparison, &data).as_bytes())
}

fn put(folder: &Path, name: &str, content: &[u8]) -> Result<PathBuf, WriteError> {
    let path = folder.join(name);
    let failed = |source| WriteError { path: path.clone(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    fs::write(&path, content).map_err(failed)?;
    Ok(path)
}

/// All samples of a comparison as CSV and Parquet; returns the names of the files.
fn put_samples(
    folder: &Path,
    comparison: &Comparison,
    name: &str,
) -> Result<[String; 2], WriteError> {
    let results: Vec<&Report> = comparison.results().collect();
    let samples = columns::samples(&results);
    let mut csv = Vec::new();
    samples.write_csv(&mut csv).expect("writing to memory does not fail");
    let data = [format!("{name}.csv"), format!("{name}.parquet")];
    put(folder, &data[0], &csv)?;
    put(folder, &data[1], &samples.to_parquet())?;
    Ok(data)
}

fn entry(comparison: &Comparison, file: String) -> IndexEntry {
    let head = comparison.head();
    let worlds = comparison.worlds.iter().map(|world: &WorldResults| {
        let n = world.results.len();
        let label =
            if n == 1 { world.label.clone() } else { format!("{}, {n} seeds", world.label) };
        (label, world.failed() == 0)
    });
    IndexEntry {
        file,
        name: comparison.name.clone(),
        title: head.map(|report| report.title.clone()).unwrap_or_default(),
        source: match &comparison.without {
            Some(without) => format!("without its mechanism: {without}"),
            None => head.map(|report| report.source.clone()).unwrap_or_default(),
        },
        claim: String::new(),
        worlds: worlds.collect(),
        figure: html::thumbnail(comparison),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_page_its_data_and_an_index_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let result = |seed| {
            let mut run = fixture::two_steps();
            run.world = "sim".to_owned();
            Report {
                name: "lct/fig4".to_owned(),
                title: "Title".to_owned(),
                time_scale: 1.0,
                seed: Some(seed),
                runs: vec![run],
                ..Report::default()
            }
        };
        let drawing = Drawing {
            name: "maps/a".to_owned(),
            title: "A <map>".to_owned(),
            notes: String::new(),
            svg: "<svg id=\"drawing\"></svg>".to_owned(),
            rows: [["x", "<y>"], ["1", "2 ± 1"]]
                .map(|row| row.map(str::to_owned).to_vec())
                .to_vec(),
        };
        let index = write(
            &folder.path().join("a/b"),
            vec![result(1), result(2)],
            &[drawing],
            &Title::default(),
        )
        .unwrap();
        let below = index.parent().unwrap();
        let mut names: Vec<_> = fs::read_dir(below)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["index.html", "lct-fig4.csv", "lct-fig4.html", "lct-fig4.parquet", "maps-a.html"]
        );
        let csv = fs::read_to_string(below.join("lct-fig4.csv")).unwrap();
        assert_eq!(csv.lines().count(), 1 + 2 * 16);
        assert!(csv.starts_with("scenario,without,seed,time_scale,run,world,"));
        let page = fs::read_to_string(&index).unwrap();
        assert!(page.contains("href=\"lct-fig4.html\"") && page.contains("simulation, 2 seeds"));
        assert!(page.contains("href=\"maps-a.html\"") && page.contains("A &lt;map&gt;"));
        assert!(page.matches("<svg").count() == 2, "small figures");
        let page = fs::read_to_string(below.join("maps-a.html")).unwrap();
        assert!(page.contains("<th>&lt;y&gt;</th>") && page.contains("<td>2 ± 1</td>"), "{page}");
    }
}
