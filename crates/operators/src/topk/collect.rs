//! Top-k (`ORDER BY … LIMIT k`) of groups: the tasks that merge the groups of all workers pass them to one
//! collector. The task that ends last emits the first k.
//!
//! Invariant: nothing is emitted before every task has handed over its groups.

use super::{Top, give};
use crate::project::Emit;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_model::{Result, limits};
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Collects the groups of all merge tasks and emits the first k of them.
pub(crate) struct Collector {
    top: Top,
    schema: SchemaRef,
    kept: Mutex<Vec<RecordBatch>>,
    tasks_left: AtomicUsize,
}

impl Collector {
    /// Creates a collector for `tasks` tasks whose results have `schema`.
    pub(crate) fn new(top: Top, schema: SchemaRef, tasks: usize) -> Self {
        Collector { top, schema, kept: Mutex::default(), tasks_left: AtomicUsize::new(tasks) }
    }

    /// Runs `task` and keeps the first k of the groups that it emits. The last task to end then emits the first k of
    /// all tasks.
    ///
    /// # Errors
    /// Errors of the task.
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

    /// Adds the first k rows of a task to those of other tasks. Reduces them to the first k when many have
    /// accumulated, without holding the lock meanwhile.
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

    /// Returns the number of collected rows at which they are reduced to the first k.
    fn rows_max(&self) -> usize {
        (2 * self.top.rows).max(limits::ROW_GROUP_ROWS)
    }

    /// Runs `task` and returns the first k of the rows that it emits. Reduces them to k whenever many have accumulated.
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
