//! Runs that collect their rows until the caller takes them, instead of returning them step by step.
//!
//! A *run* is an execution of a program.

use super::{Run, RunOutput};
use crate::bound::BoundProgram;
use arrow_array::RecordBatch;
use farpool_model::{Error, Result, limits};
use parking_lot::Mutex;
use std::sync::Arc;

/// Rows that the run has returned so far and the caller has not taken.
pub(super) struct Collected {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    rows_max: usize,
}

impl Collected {
    pub fn add(&mut self, batches: Vec<RecordBatch>, rows: usize) -> Result<()> {
        self.rows += rows;
        self.bytes += batches.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
        let bytes_max = limits::STREAM_WINDOW_BYTES;
        if self.rows > self.rows_max || self.bytes > bytes_max {
            self.batches.clear();
            let (most, mib) = (self.rows_max, bytes_max >> 20);
            let message =
                format!("more than {most} keys, or {mib} MiB of them, would be changed by one statement");
            return Err(
                Error::over_limit(message).advise("change fewer at a time, with a condition on the key")
            );
        }
        self.batches.extend(batches);
        Ok(())
    }
}

impl Run {
    /// Creates a run that collects its rows. It fails with `OverLimit` if there are more than `rows_max`.
    ///
    /// # Errors
    /// Errors of [`Run::start`].
    pub fn start_collecting(program: &BoundProgram, rows_max: usize) -> Result<Arc<Self>> {
        let collected = Collected { batches: Vec::new(), rows: 0, bytes: 0, rows_max };
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
