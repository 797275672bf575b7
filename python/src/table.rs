//! Tables that other libraries read where they are: the Arrow PyCapsule interface.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use evenkeel_report::columns::{Columns, Values};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Rows of one kind. What it is and the unit of a column stand in the metadata of its field.
#[pyclass(frozen, module = "evenkeel")]
pub(crate) struct Table {
    batch: RecordBatch,
}

/// The unit and the meaning of columns, by their names.
pub(crate) type Meanings = HashMap<&'static str, (&'static str, &'static str)>;

/// The same from how columns are declared.
macro_rules! meanings {
    ($columns:expr) => {
        $columns.into_iter().map(|column| (column.name, (column.unit, column.help))).collect()
    };
}
pub(crate) use meanings;

impl Table {
    /// The columns go into Arrow's buffers here, once; whoever reads the table gets those.
    pub(crate) fn new(columns: &Columns, meanings: &Meanings) -> PyResult<Self> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (name, values) in columns.iter() {
            let (kind, array): (DataType, ArrayRef) = match values {
                Values::Text(texts) => {
                    (DataType::Utf8, Arc::new(texts.iter().collect::<StringArray>()))
                }
                Values::Whole(numbers) => {
                    (DataType::Int64, Arc::new(numbers.iter().collect::<Int64Array>()))
                }
                Values::Number(numbers) => {
                    (DataType::Float64, Arc::new(numbers.iter().collect::<Float64Array>()))
                }
            };
            let mut field = Field::new(name, kind, true);
            if let Some((unit, help)) = meanings.get(name) {
                let entries = [("unit", unit), ("description", help)];
                let entries = entries.map(|(key, text)| (key.to_owned(), (*text).to_owned()));
                field.set_metadata(HashMap::from(entries));
            }
            fields.push(field);
            arrays.push(array);
        }
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema, arrays).map_err(|error| failed(&error))?;
        Ok(Self { batch })
    }
}

fn failed(error: &ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!(
            "<evenkeel.Table of {} rows: {}>",
            self.batch.num_rows(),
            self.column_names().join(", ")
        )
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Unit and meaning of a column, as the reference has them.
    fn describe(&self) -> Vec<(String, String, String)> {
        let schema = self.batch.schema();
        let of = |field: &Arc<Field>| {
            let told = |key: &str| field.metadata().get(key).cloned().unwrap_or_default();
            (field.name().clone(), told("unit"), told("description"))
        };
        schema.fields().iter().map(of).collect()
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A wish that need not be granted: there is one form.
        let _ = requested_schema;
        let batches = std::iter::once(Ok(self.batch.clone()));
        let reader = RecordBatchIterator::new(batches, self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
