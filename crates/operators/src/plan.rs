//! A program compiled for one table schema.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_columns::RowGroup;
use farpool_model::{Program, Result};
use std::ops::ControlFlow;

/// A compiled program: immutable, shared by all workers.
pub struct Plan {
    schema: SchemaRef,
}

/// What one worker changes while it runs a plan: scratch memory and partial aggregation.
pub struct State;

/// The partial states of all workers, to be brought together in independent tasks.
pub struct Merge;

/// What the zone maps of a row group say about the plan's filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No row can pass.
    None,
    /// Some rows may pass.
    Some,
    /// Every row passes.
    All,
}

/// What processing one row group cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows of the row group.
    pub rows_in: u64,
    /// Rows that passed the filter.
    pub rows_passed: u64,
    /// Encoded bytes of the column chunks that were read.
    pub bytes_read: u64,
}

impl Plan {
    /// Compiles `program` for a table with `table_schema`, which is canonical.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` when the program is not well typed or needs what no operator does.
    pub fn compile(_program: &Program, _table_schema: &SchemaRef) -> Result<Plan> {
        todo!()
    }

    /// The schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// An empty state for one worker.
    pub fn new_state(&self) -> State {
        todo!()
    }

    /// What the zone maps say: nothing is read.
    pub fn verdict(&self, _group: &RowGroup) -> Verdict {
        todo!()
    }

    /// Runs the plan over one row group; rows leave through `emit` until it breaks.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a value, `OverLimit` when the groups need too much memory.
    pub fn process(
        &self,
        _group: &RowGroup,
        _state: &mut State,
        _emit: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Work> {
        todo!()
    }

    /// Whether nothing leaves before [`Plan::merge`].
    pub fn is_blocking(&self) -> bool {
        todo!()
    }

    /// Takes the states of all workers, after all row groups.
    pub fn merge(&self, _states: Vec<State>) -> Merge {
        todo!()
    }
}

impl State {
    /// Bytes that the state holds.
    pub fn bytes(&self) -> usize {
        todo!()
    }
}

impl Merge {
    /// The number of independent tasks.
    pub fn tasks(&self) -> usize {
        todo!()
    }

    /// Runs one task on the calling thread; several may run at once.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub fn run(&self, _task: usize, _emit: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>) -> Result<()> {
        todo!()
    }
}
