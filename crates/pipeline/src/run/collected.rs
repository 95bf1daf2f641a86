//! Runs that collect their rows until the caller takes them, instead of returning them step by step.
//!
//! A *run* is an execution of a program.

use super::{Run, RunOutput};
use crate::bound::BoundProgram;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use farpool_model::{Error, Result, limits};
use parking_lot::Mutex;
use std::sync::Arc;

/// Rows that the run has returned so far and the caller has not taken.
pub(super) struct Collected {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    rows_max: usize,
    bytes_max: usize,
    /// Returns the error if there are more rows or bytes than these maxima.
    refusal: fn(usize, usize) -> Error,
}

impl Collected {
    pub fn add(&mut self, batches: Vec<RecordBatch>, rows: usize) -> Result<()> {
        self.rows += rows;
        self.bytes += batches.iter().flat_map(RecordBatch::columns).map(bytes_of).sum::<usize>();
        if self.rows > self.rows_max || self.bytes > self.bytes_max {
            self.batches.clear();
            return Err((self.refusal)(self.rows_max, self.bytes_max));
        }
        self.batches.extend(batches);
        Ok(())
    }
}

/// Returns the bytes of the values of an array. Buffers that several arrays share, such as those of a chunk, count in
/// proportion.
fn bytes_of(array: &ArrayRef) -> usize {
    let of_values = match views(array) {
        Some(views) => views.iter().map(|view| size_of::<u128>() + text_bytes(*view)).sum(),
        None => array.data_type().primitive_width().unwrap_or(1) * array.len(),
    };
    of_values + array.len().div_ceil(8)
}

/// Returns the views of an array of strings or binaries; `None` for other types.
pub(super) fn views(array: &ArrayRef) -> Option<&[u128]> {
    match array.data_type() {
        DataType::Utf8View => Some(array.as_string_view().views()),
        DataType::BinaryView => Some(array.as_binary_view().views()),
        _ => None,
    }
}

/// Returns the bytes of a string, given its view, whose lowest 32 bits are the length.
pub(super) fn text_bytes(view: u128) -> usize {
    view as u32 as usize
}

fn too_many_keys(rows: usize, bytes: usize) -> Error {
    let message =
        format!("more than {rows} keys, or {} MiB of them, would be changed by one statement", bytes >> 20);
    Error::over_limit(message).advise("change fewer at a time, with a condition on the key")
}

/// Returns the error for a lookup that takes more than `bytes` bytes of memory.
pub(super) fn too_many_looked_up(bytes: usize) -> Error {
    let mib = bytes.div_ceil(1 << 20);
    Error::over_limit(format!("the rows that a lookup would hold in memory take more than {mib} MiB"))
        .advise("join fewer rows or columns, or let the engine join them")
}

impl Run {
    /// Creates a run that collects its rows. It fails with `OverLimit` if there are more than `rows_max`.
    ///
    /// # Errors
    /// Errors of [`Run::start`].
    pub fn start_collecting(program: &BoundProgram, rows_max: usize) -> Result<Arc<Self>> {
        let bytes_max = limits::STREAM_WINDOW_BYTES;
        Run::start_collected(program, rows_max, bytes_max, too_many_keys)
    }

    /// Creates the run of a lookup's program, which collects its rows. It fails with `OverLimit` if they take more than
    /// `bytes_max`.
    ///
    /// # Errors
    /// Errors of [`Run::start`].
    pub(super) fn start_looked_up(program: &BoundProgram, bytes_max: usize) -> Result<Arc<Self>> {
        Run::start_collected(program, usize::MAX, bytes_max, |_, bytes| too_many_looked_up(bytes))
    }

    fn start_collected(
        program: &BoundProgram,
        rows_max: usize,
        bytes_max: usize,
        refusal: fn(usize, usize) -> Error,
    ) -> Result<Arc<Self>> {
        let collected = Collected { batches: Vec::new(), rows: 0, bytes: 0, rows_max, bytes_max, refusal };
        Run::begin(program, RunOutput::Collected(Mutex::new(collected)))
    }

    /// Takes the rows of a finished run that [`Run::start_collecting`] created; later calls return none.
    pub fn take_collected(&self) -> Vec<RecordBatch> {
        match &self.output {
            RunOutput::Collected(collected) => std::mem::take(&mut collected.lock().batches),
            _ => Vec::new(),
        }
    }
}
