//! Export and import of record batches by Arrow's C stream interface, in Python capsules
//! (<https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>). Buffers are shared, not copied.

#![expect(unsafe_code, reason = "the interface passes a pointer")]

use crate::process::Owned;
use crate::runtime;
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::FFI_ArrowSchema;
use arrow::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use farpool::{BatchStream, Error};
use futures::TryStreamExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Returns a capsule with the batches as an Arrow C stream.
pub fn exported(
    py: Python<'_>,
    batches: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(batches), c"arrow_array_stream")
}

/// Returns a capsule with the schema.
pub fn exported_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema =
        FFI_ArrowSchema::try_from(schema).map_err(|error| PyValueError::new_err(error.to_string()))?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// Returns the stream of an object that has `__arrow_c_stream__`.
///
/// # Errors
/// `TypeError` for other objects.
pub fn imported(object: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name contains an ArrowArrayStream, which is moved out and marked as released.
    let reader = unsafe { ArrowArrayStreamReader::from_raw(stream.as_ptr().cast()) };
    reader.map_err(|error| PyTypeError::new_err(format!("this is no stream of Arrow batches: {error}")))
}

/// The batches of a stream, for readers by Arrow's C interface.
pub struct Reader {
    schema: SchemaRef,
    batches: Owned<BatchStream>,
}

impl Reader {
    pub fn new(schema: SchemaRef, batches: BatchStream) -> Self {
        Reader { schema, batches: Owned::new(batches) }
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut next = || {
            let taken = self.batches.take()?;
            let mut batches = taken.ok_or_else(|| Error::invalid("the rows after an error are not there"))?;
            let (batch, batches) = runtime::wait_anywhere(async move {
                let batch = batches.try_next().await?;
                Ok((batch, batches))
            })?;
            self.batches.put(batches);
            Ok(batch)
        };
        let next: farpool::Result<_> = next();
        next.map_err(|error| ArrowError::ExternalError(Box::new(error))).transpose()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
