//! Tables of named columns, written as CSV and as Parquet.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::csv;
use crate::html::Report;
use crate::run::{CallsSample, Delays, Run, Sample};
use crate::stats::DelayStats;

/// The values of a column; `None` where there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Texts.
    Text(Vec<Option<String>>),
    /// Whole numbers.
    Whole(Vec<Option<i64>>),
    /// Numbers.
    Number(Vec<Option<f64>>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Whole(values) => values.len(),
            Self::Number(values) => values.len(),
        }
    }

    fn text(&self, row: usize) -> String {
        match self {
            Self::Text(values) => values[row].clone().unwrap_or_default(),
            Self::Whole(values) => values[row].map_or_else(String::new, |value| value.to_string()),
            Self::Number(values) => values[row].map_or_else(String::new, |value| value.to_string()),
        }
    }
}

/// Columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    columns: Vec<(String, Values)>,
}

impl Columns {
    /// Adds a column.
    ///
    /// # Panics
    /// If it is not as long as the others.
    pub fn push(&mut self, name: impl Into<String>, values: Values) {
        if let Some((_, first)) = self.columns.first() {
            assert_eq!(first.len(), values.len(), "columns of a table are of equal length");
        }
        self.columns.push((name.into(), values));
    }

    /// Adds a column of texts.
    pub fn text<S: Into<String>>(&mut self, name: &str, values: impl IntoIterator<Item = S>) {
        self.push(name, Values::Text(values.into_iter().map(|value| Some(value.into())).collect()));
    }

    /// Adds a column of counts.
    pub fn count(&mut self, name: &str, values: impl IntoIterator<Item = Option<u64>>) {
        let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.push(name, Values::Whole(values.into_iter().map(|value| value.map(whole)).collect()));
    }

    /// Adds a column of numbers.
    pub fn number(&mut self, name: &str, values: impl IntoIterator<Item = Option<f64>>) {
        self.push(name, Values::Number(values.into_iter().collect()));
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, values)| values.len())
    }

    /// The columns in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Values)> {
        self.columns.iter().map(|(name, values)| (name.as_str(), values))
    }

    /// Writes them as CSV (RFC 4180); numbers with as many digits as it takes to read the same number back.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let names: Vec<&str> = self.iter().map(|(name, _)| name).collect();
        csv::row(out, &names)?;
        for row in 0..self.rows() {
            let cells: Vec<String> = self.iter().map(|(_, values)| values.text(row)).collect();
            csv::row(out, &cells.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// The bytes of a Parquet file: one row group, Snappy; the same columns give the same bytes.
    ///
    /// # Panics
    /// Never: writing to memory does not fail, and the schema is made from the columns.
    #[must_use]
    pub fn to_parquet(&self) -> Vec<u8> {
        self.parquet().expect("columns of equal length, written to memory")
    }

    fn parquet(&self) -> Result<Vec<u8>, ParquetError> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut out = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut out, self.schema()?, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for (_, values) in &self.columns {
            match values {
                Values::Text(values) => {
                    let bytes = |text: &String| ByteArray::from(text.as_str());
                    write::<ByteArrayType>(&mut group, values.iter().map(|value| value.as_ref().map(bytes)))?;
                }
                Values::Whole(values) => write::<Int64Type>(&mut group, values.iter().copied())?,
                Values::Number(values) => write::<DoubleType>(&mut group, values.iter().copied())?,
            }
        }
        group.close()?;
        writer.close()?;
        Ok(out)
    }

    fn schema(&self) -> Result<TypePtr, ParquetError> {
        let mut fields = Vec::new();
        for (name, values) in &self.columns {
            let (physical, logical) = match values {
                Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
                Values::Whole(_) => (Physical::INT64, None),
                Values::Number(_) => (Physical::DOUBLE, None),
            };
            let field = Type::primitive_type_builder(name, physical)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(logical)
                .build()?;
            fields.push(Arc::new(field));
        }
        Ok(Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?))
    }
}

/// Writes the next column of a row group.
fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let mut levels = Vec::new();
    let mut present = Vec::new();
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("more columns than the schema has".to_owned()));
    };
    column.typed::<T>().write_batch(&present, Some(&levels), None)?;
    column.close()
}

/// The samples of all runs of reports as columns: those of `samples.csv`, unrounded, which report they come from, and the calls of the same
/// link and window.
#[must_use]
pub fn samples(reports: &[&Report]) -> Columns {
    let mut from: Vec<&Report> = Vec::new();
    let mut rows: Vec<(&Run, &Sample)> = Vec::new();
    for report in reports {
        for run in &report.runs {
            from.extend(run.samples.iter().map(|_| report));
            rows.extend(run.samples.iter().map(|sample| (run, sample)));
        }
    }
    let each = || rows.iter().copied();
    let mut table = Columns::default();
    table.text("scenario", from.iter().map(|report| report.name.as_str()));
    table.push("without", Values::Text(from.iter().map(|report| report.without.clone()).collect()));
    table.count("seed", from.iter().map(|report| report.seed));
    table.number("time_scale", from.iter().map(|report| Some(report.time_scale)));
    table.text("run", each().map(|(run, _)| run.name.as_str()));
    table.text("world", each().map(|(run, _)| run.world.as_str()));
    table.number("t_s", each().map(|(_, s)| Some(s.t_s)));
    table.number("window_s", each().map(|(_, s)| Some(s.window_s)));
    table.text("step", each().map(|(run, s)| run.step_of_window(s.t_s, s.window_s)));
    table.text("router", each().map(|(_, s)| s.router.as_str()));
    table.text("link", each().map(|(_, s)| s.link.as_str()));
    table.text("class", each().map(|(_, s)| s.class.as_str()));
    let transit: Vec<Option<DelayStats>> = each().map(|(_, s)| s.transit.stats()).collect();
    let end_to_end: Vec<Option<DelayStats>> =
        each().map(|(_, s)| s.end_to_end.as_ref().and_then(Delays::stats)).collect();
    delays(&mut table, ["mean_delay_us", "delay_p50_us", "delay_p99_us", "delay_max_us"], &transit);
    table.count("offered", each().map(|(_, s)| s.offered));
    table.count("sent", each().map(|(_, s)| Some(s.sent)));
    table.count("sent_bytes", each().map(|(_, s)| Some(s.sent_bytes)));
    table.count("dropped", each().map(|(_, s)| Some(s.dropped_total())));
    table.count("qlen", each().map(|(_, s)| Some(s.qlen)));
    delays(&mut table, ["e2e_mean_us", "e2e_p50_us", "e2e_p99_us", "e2e_max_us"], &end_to_end);
    table.count("goodput_bytes", each().map(|(_, s)| s.goodput_bytes));
    table.number("ci_delay", each().map(|(_, s)| s.control.map(|control| control.ci_delay)));
    table.number("ci_loss", each().map(|(_, s)| s.control.map(|control| control.ci_loss)));
    table.number("x_delay_us", each().map(|(_, s)| s.control.map(|control| control.x_delay_us)));
    table.count("cycles", each().map(|(_, s)| s.cycles.map(|cycles| cycles.spent)));
    table.count("passed", each().map(|(_, s)| s.cycles.map(|cycles| cycles.passed)));
    table.count("refused", each().map(|(_, s)| s.cycles.map(|cycles| cycles.refused)));
    table.number("fair_cycles", each().map(|(_, s)| s.core.map(|core| core.fair_cycles)));
    table.count("flows", each().map(|(_, s)| s.core.map(|core| core.flows.into())));
    let accepted: Vec<Option<DelayStats>> =
        each().map(|(_, s)| s.acceptance.as_ref().and_then(Delays::stats)).collect();
    let accept = ["accept_mean_us", "accept_p50_us", "accept_p99_us", "accept_max_us"];
    delays(&mut table, accept, &accepted);
    table.count("accepted", each().map(|(_, s)| s.acceptance.as_ref().map(|delays| delays.count)));
    table.count("waiting", each().map(|(_, s)| s.waiting));
    let calls: Vec<Option<&CallsSample>> = each().map(|(run, sample)| calls_of(run, sample)).collect();
    for (i, name) in ["calls_none", "calls_one", "calls_many"].into_iter().enumerate() {
        table.count(name, calls.iter().map(|row| row.map(|c| [c.none, c.one, c.many][i])));
    }
    let admission = || calls.iter().map(|row| row.and_then(|c| c.admission.as_ref()));
    table.number("fair_rate_bps", admission().map(|row| row.map(|a| a.fair_rate_bps)));
    table.number("priority_load", admission().map(|row| row.map(|a| a.priority_load)));
    table.count("congested", admission().map(|row| row.map(|a| u64::from(a.congested))));
    table.count("protected", admission().map(|row| row.map(|a| a.protected)));
    table.count("turned_away", admission().map(|row| row.map(|a| a.refused)));
    table
}

/// The scheduler calls of a sample's window. Rows of a run come in order of time, in its calls as in its samples.
fn calls_of<'r>(run: &'r Run, sample: &Sample) -> Option<&'r CallsSample> {
    let from = run.calls.partition_point(|c| c.t_s < sample.t_s);
    let mut window = run.calls[from..].iter().take_while(|c| c.t_s == sample.t_s);
    window.find(|c| c.router == sample.router && c.link == sample.link)
}

fn delays(table: &mut Columns, names: [&str; 4], stats: &[Option<DelayStats>]) {
    let parts: [fn(DelayStats) -> f64; 4] = [|d| d.mean_us, |d| d.p50_us, |d| d.p99_us, |d| d.max_us];
    for (name, part) in names.into_iter().zip(parts) {
        table.number(name, stats.iter().map(|stats| stats.map(part)));
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::fixture;

    #[test]
    fn a_parquet_reader_finds_the_samples_again() {
        let run = fixture::two_steps();
        let report = Report { seed: Some(7), runs: vec![run.clone()], ..Report::default() };
        let bytes = samples(&[&report]).to_parquet();
        assert_eq!(bytes, samples(&[&report]).to_parquet());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let names: Vec<String> = reader
            .metadata()
            .file_metadata()
            .schema_descr()
            .columns()
            .iter()
            .map(|column| column.name().to_owned())
            .collect();
        let at = |name: &str| names.iter().position(|known| known == name).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), run.samples.len());
        let last = rows.last().unwrap();
        assert_eq!(last.get_long(at("seed")).unwrap(), 7);
        assert_eq!(last.get_string(at("class")).unwrap(), "class3");
        assert_eq!(last.get_string(at("step")).unwrap(), "x10");
        assert_eq!(last.get_long(at("sent")).unwrap(), 500);
        assert_eq!(last.get_double(at("mean_delay_us")).unwrap(), 400.0);
        assert_eq!(last.get_long(at("calls_many")).unwrap(), 70);
        assert!(last.get_double(at("e2e_mean_us")).is_err(), "not measured");
    }

    #[test]
    fn numbers_in_csv_are_read_back_as_they_were() {
        let mut table = Columns::default();
        table.number("a", [Some(0.1 + 0.2), None]);
        table.text("b", ["x,y", "z"]);
        table.count("c", [None, Some(3)]);
        let mut out = Vec::new();
        table.write_csv(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "a,b,c\n0.30000000000000004,\"x,y\",\n,z,3\n");
    }
}
