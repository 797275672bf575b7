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
use crate::fields::{self, Column, Row, Value};
use crate::html::Report;

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

    /// Writes them as CSV (RFC 4180); numbers with as many digits as it takes to read the same
    /// number back.
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
                    write::<ByteArrayType>(
                        &mut group,
                        values.iter().map(|value| value.as_ref().map(bytes)),
                    )?;
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

/// The samples of all runs of reports as columns: those of `samples.csv`, unrounded.
#[must_use]
pub fn samples(reports: &[&Report]) -> Columns {
    let rows: Vec<Row> = reports.iter().copied().flat_map(Row::of).collect();
    table(&fields::samples(), &rows)
}

/// The flows of all runs of reports as columns: those of `flows.csv`, unrounded.
#[must_use]
pub fn flows(reports: &[&Report]) -> Columns {
    let rows: Vec<_> = reports.iter().copied().flat_map(Report::flows).collect();
    table(&fields::flows(), &rows)
}

/// The TCP connections of all runs of reports as columns: those of `connections.csv`, unrounded.
#[must_use]
pub fn connections(reports: &[&Report]) -> Columns {
    let rows: Vec<_> = reports.iter().copied().flat_map(Report::connections).collect();
    table(&fields::connections(), &rows)
}

/// The subscribers of all runs of reports as columns: those of `subscribers.csv`, unrounded.
#[must_use]
pub fn subscribers(reports: &[&Report]) -> Columns {
    let rows: Vec<_> = reports.iter().copied().flat_map(Report::subscribers).collect();
    table(&fields::subscribers(), &rows)
}

fn table<R>(columns: &[Column<R>], rows: &[R]) -> Columns {
    let mut table = Columns::default();
    for column in columns {
        match column.value {
            Value::Text(of) => table.push(column.name, Values::Text(rows.iter().map(of).collect())),
            Value::Whole(of) => table.count(column.name, rows.iter().map(of)),
            Value::Number(_, of) => table.number(column.name, rows.iter().map(of)),
            Value::Counter(counter, of) => {
                table.count(column.name, rows.iter().map(|row| of(row, counter.name)));
            }
        }
    }
    table
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
