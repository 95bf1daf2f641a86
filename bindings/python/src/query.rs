//! A planned statement, the stream of its rows, and batches of rows in memory.

use crate::arrow_stream::{self, Reader};
use crate::errors;
use crate::process::Owned;
use crate::{runtime, texts, values};
use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::datatypes::SchemaRef;
use farpool::model::{cast, sql_name};
use farpool::{BatchStream, Error, Query};
use futures::{StreamExt, TryStreamExt, stream};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;

/// Number of batches that a thread converts before it checks whether more are needed.
const AT_ONCE: usize = 16;

/// A planned statement.
#[pyclass(frozen, name = "Query", module = "farpool._farpool")]
pub struct NativeQuery {
    schema: SchemaRef,
    query: Owned<Arc<Query>>,
}

impl NativeQuery {
    pub fn new(query: Query) -> Self {
        NativeQuery { schema: query.schema().clone(), query: Owned::new(Arc::new(query)) }
    }

    fn query(&self, py: Python<'_>) -> PyResult<&Arc<Query>> {
        let query = errors::checked(py, self.query.get())?;
        query.ok_or_else(|| errors::raised(py, &Error::internal("a statement is gone")))
    }
}

#[pymethods]
impl NativeQuery {
    /// Returns whether the statement changes something and returns no rows.
    fn is_command(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.query(py)?.is_command())
    }

    /// Returns the names and SQL types of the result columns.
    fn columns(&self) -> Vec<(String, String)> {
        columns(&self.schema)
    }

    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.query(py)?.explain())
    }

    /// Returns a text that compares the estimates with the actual figures of the runs so far.
    fn outcome(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.query(py)?.outcome())
    }

    /// Returns the execution statistics of the runs that have ended, as JSON.
    fn receipt(&self, py: Python<'_>) -> PyResult<String> {
        let receipt = serde_json::to_string(&self.query(py)?.receipt());
        receipt.map_err(|error| errors::raised(py, &Error::internal(error.to_string())))
    }

    /// Starts the statement. If it changes something, it is complete when this returns.
    fn execute(&self, py: Python<'_>) -> PyResult<NativeRows> {
        let query = self.query(py)?.clone();
        let started = runtime::wait(py, async move { query.execute().await })?;
        Ok(NativeRows { schema: self.schema.clone(), batches: Mutex::new(Owned::new(started)) })
    }

    /// Starts the statement. Returns its first rows, as `Rows.next` does, and the stream of the remaining rows, if
    /// there are any.
    fn fetch(
        &self,
        py: Python<'_>,
        rows_min: Option<usize>,
    ) -> PyResult<(NativeBatches, Option<NativeRows>)> {
        let query = self.query(py)?.clone();
        let (batches, rest) =
            runtime::wait(py, async move { next_batches(query.execute().await?, rows_min).await })?;
        let schema = self.schema.clone();
        let rest =
            rest.map(|rest| NativeRows { schema: schema.clone(), batches: Mutex::new(Owned::new(rest)) });
        Ok((NativeBatches { schema, batches }, rest))
    }

    /// Returns a result without rows that has the columns of the statement. It keeps no memory of the pool.
    fn schema(&self) -> NativeBatches {
        NativeBatches { schema: self.schema.clone(), batches: Vec::new() }
    }
}

/// The rows of a running statement.
#[pyclass(frozen, name = "Rows", module = "farpool._farpool")]
pub struct NativeRows {
    schema: SchemaRef,
    batches: Mutex<Owned<BatchStream>>,
}

impl NativeRows {
    fn take(&self, py: Python<'_>) -> PyResult<BatchStream> {
        let taken = self.batches.lock().unwrap_or_else(PoisonError::into_inner).take();
        errors::checked(py, taken)?
            .ok_or_else(|| errors::raised(py, &Error::invalid("these rows were taken by somebody else")))
    }
}

#[pymethods]
impl NativeRows {
    /// Returns the next batches, until they have `rows_min` rows or all rows were returned, and whether more rows may
    /// follow.
    fn next(&self, py: Python<'_>, rows_min: Option<usize>) -> PyResult<(NativeBatches, bool)> {
        let stream = self.take(py)?;
        let (batches, rest) = runtime::wait(py, next_batches(stream, rows_min))?;
        let has_more = rest.is_some();
        let rest = rest.unwrap_or_else(|| Box::pin(stream::empty()));
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).put(rest);
        Ok((NativeBatches { schema: self.schema.clone(), batches }, has_more))
    }

    /// Returns the remaining rows as a stream of batches without string views, which some consumers cannot read.
    fn with_offsets(&self, py: Python<'_>) -> PyResult<NativeRows> {
        let schema = texts::schema_with_offsets(&self.schema);
        let to = schema.clone();
        let converted =
            move |batch| texts::with_offsets(&batch, &to).map(|parts| stream::iter(parts).map(Ok));
        let batches = self.take(py)?.map(move |batch| batch.and_then(&converted)).try_flatten().boxed();
        Ok(NativeRows { schema, batches: Mutex::new(Owned::new(batches)) })
    }

    /// Cancels the statement.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.take(py).map(drop)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // By the interface, a consumer that requests other types must cast by itself.
        drop(requested_schema);
        let reader = Reader::new(self.schema.clone(), self.take(py)?);
        arrow_stream::exported(py, Box::new(reader))
    }
}

/// Rows in memory.
#[pyclass(frozen, name = "Batches", module = "farpool._farpool")]
pub struct NativeBatches {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl NativeBatches {
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Returns the bytes of memory of the rows.
    fn nbytes(&self) -> u64 {
        cast::u64_from(self.batches.iter().map(RecordBatch::get_array_memory_size).sum())
    }

    /// Returns the same rows without string views, converted by several threads.
    fn with_offsets(&self, py: Python<'_>) -> PyResult<NativeBatches> {
        let schema = texts::schema_with_offsets(&self.schema);
        if schema == self.schema {
            return Ok(NativeBatches { schema, batches: self.batches.clone() });
        }
        let parts: Vec<Vec<RecordBatch>> = self.batches.chunks(AT_ONCE).map(<[_]>::to_vec).collect();
        let to = schema.clone();
        let batches = runtime::wait(py, async move {
            let converted = stream::iter(parts).map(|part| {
                let to = to.clone();
                runtime::blocking(move || {
                    let batches = part.iter().map(|batch| texts::with_offsets(batch, &to));
                    Ok(batches.collect::<farpool::Result<Vec<_>>>()?.concat())
                })
            });
            converted.buffered(Handle::current().metrics().num_workers()).try_concat().await
        })?;
        Ok(NativeBatches { schema, batches })
    }

    /// Returns `count` rows (or all remaining rows) from index `start` on, as tuples.
    #[pyo3(signature = (start=0, count=None))]
    fn rows<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        count: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let (mut skip, mut left) = (start, count.unwrap_or(usize::MAX));
        let mut rows = Vec::new();
        for batch in &self.batches {
            let begin = skip.min(batch.num_rows());
            let length = left.min(batch.num_rows() - begin);
            skip -= begin;
            left -= length;
            if length > 0 {
                rows.extend(values::rows(py, &batch.slice(begin, length))?);
            }
        }
        Ok(rows)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = self.batches.clone().into_iter().map(Ok);
        arrow_stream::exported(py, Box::new(RecordBatchIterator::new(batches, self.schema.clone())))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow_stream::exported_schema(py, &self.schema)
    }
}

/// Takes batches until they have `rows_min` rows or the stream ends. Also returns the stream, if it has not ended.
async fn next_batches(
    mut stream: BatchStream,
    rows_min: Option<usize>,
) -> farpool::Result<(Vec<RecordBatch>, Option<BatchStream>)> {
    let (mut batches, mut rows) = (Vec::new(), 0);
    while rows_min.is_none_or(|min| rows < min) {
        let Some(batch) = stream.try_next().await? else { return Ok((batches, None)) };
        rows += batch.num_rows();
        batches.push(batch);
    }
    Ok((batches, Some(stream)))
}

fn columns(schema: &SchemaRef) -> Vec<(String, String)> {
    schema.fields().iter().map(|field| (field.name().clone(), sql_name(field.data_type()))).collect()
}
