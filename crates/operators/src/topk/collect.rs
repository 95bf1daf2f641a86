//! Top-k of groups: the tasks of a merge give theirs to one collector, and the last task lets the first go.
//!
//! Invariant: nothing leaves before every task has given what it has.

use super::{Top, give};
use crate::project::Emit;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_model::{Result, limits};
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the file's comment.
pub(crate) struct Collector {
    top: Top,
    schema: SchemaRef,
    kept: Mutex<Vec<RecordBatch>>,
    tasks_left: AtomicUsize,
}

impl Collector {
    /// For the result, of this schema, of `tasks` tasks.
    pub(crate) fn new(top: Top, schema: SchemaRef, tasks: usize) -> Self {
        Collector { top, schema, kept: Mutex::default(), tasks_left: AtomicUsize::new(tasks) }
    }

    /// Runs one task, which gives its groups to what it is called with.
    ///
    /// # Errors
    /// Those of the task.
    pub(crate) fn run(
        &self,
        task: impl FnOnce(&mut Emit<'_>) -> Result<()>,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let mine = self.first_of(task)?;
        self.keep(mine)?;
        if self.tasks_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let kept = std::mem::take(&mut *self.kept.lock());
            give(&self.top.cut(&self.schema, &kept)?, emit);
        }
        Ok(())
    }

    /// Keeps the first rows of a task; cuts those of several, outside the lock, when they are many.
    fn keep(&self, mine: RecordBatch) -> Result<()> {
        let many = {
            let mut kept = self.kept.lock();
            kept.push(mine);
            let rows: usize = kept.iter().map(RecordBatch::num_rows).sum();
            if rows < self.rows_max() {
                return Ok(());
            }
            std::mem::take(&mut *kept)
        };
        let cut = self.top.cut(&self.schema, &many)?;
        self.kept.lock().push(cut);
        Ok(())
    }

    /// Rows from which on they are cut.
    fn rows_max(&self) -> usize {
        (2 * self.top.rows).max(limits::ROW_GROUP_ROWS)
    }

    /// The first rows of what `task` gives, cut whenever many have come together.
    fn first_of(&self, task: impl FnOnce(&mut Emit<'_>) -> Result<()>) -> Result<RecordBatch> {
        let rows_max = self.rows_max();
        let (mut batches, mut rows, mut failed) = (Vec::new(), 0, None);
        task(&mut |batch: RecordBatch| {
            rows += batch.num_rows();
            batches.push(batch);
            if rows < rows_max {
                return ControlFlow::Continue(());
            }
            match self.top.cut(&self.schema, &batches) {
                Ok(cut) => {
                    rows = cut.num_rows();
                    batches = vec![cut];
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        match failed {
            Some(error) => Err(error),
            None => self.top.cut(&self.schema, &batches),
        }
    }
}
