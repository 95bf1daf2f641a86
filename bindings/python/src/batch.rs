//! Batches of statements, which are planned and run together.

use crate::errors;
use crate::process::Owned;
use crate::query::NativeQuery;
use crate::runtime;
use farpool::{Batch, Error};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// A batch of statements, whose queries are taken in order.
#[pyclass(frozen, name = "Batch", module = "farpool._farpool")]
pub struct NativeBatch(Mutex<Owned<Batch>>);

impl NativeBatch {
    pub fn new(batch: Batch) -> Self {
        NativeBatch(Mutex::new(Owned::new(batch)))
    }
}

#[pymethods]
impl NativeBatch {
    /// Returns the query of the next statement; `None` after the last one.
    fn next(&self, py: Python<'_>) -> PyResult<Option<NativeQuery>> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken = errors::checked(py, taken)?;
        let mut batch = taken
            .ok_or_else(|| errors::raised(py, &Error::invalid("the batch is asked by somebody else")))?;
        let (next, batch) = runtime::wait(py, async move {
            let next = batch.next().await;
            Ok((next, batch))
        })?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(batch);
        Ok(errors::checked(py, next.transpose())?.map(NativeQuery::new))
    }
}
