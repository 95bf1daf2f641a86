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
        self.kept.lock().push(mine);
        if self.tasks_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let kept = std::mem::take(&mut *self.kept.lock());
            give(&self.top.cut(&self.schema, &kept)?, emit);
        }
        Ok(())
    }

    /// The first rows of what `task` gives, cut whenever many have come together.
    fn first_of(&self, task: impl FnOnce(&mut Emit<'_>) -> Result<()>) -> Result<RecordBatch> {
        let rows_max = (2 * self.top.rows).max(limits::ROW_GROUP_ROWS);
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
