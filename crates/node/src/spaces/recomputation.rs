//! Recomputes an UPDATE or DELETE for rows of a space that clients have changed since the statement read them.
//!
//! If clients change the rows all the time, a statement would never find a moment without a change. So the condition
//! and the new values are computed again for rows that have changed, under the locks of their shards. If the condition
//! is no longer true for one of these rows, the whole statement begins again, because the number of rows that it
//! affects has already been reported.

use super::condition::EntryRows;
use super::gather::ColumnSelection;
use super::{SpaceTable, plain_part};
use crate::caller::{Caller, Shape};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use farpool_columns::{Chunk, Table};
use farpool_kv::{KeyState, ReadEntry};
use farpool_model::{Error, Expr, NamedExpr, Output, Program, Result, Version};
use farpool_pipeline::{BoundProgram, Step};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of rows that are computed at once.
const ROWS_AT_ONCE: usize = 2048;

/// Bytes of rows for which memory is reserved when the change is compiled; more bytes are computed correctly, too.
const BYTES: usize = 1 << 20;

/// A compiled change, applied to rows that are passed to it.
pub(super) struct Recomputation {
    space: SpaceTable,
    /// Columns that the condition and the values read, and columns to set; without any, rows are removed.
    columns: Vec<usize>,
    targets: Vec<usize>,
    bound: BoundProgram,
    entries: Arc<EntryRows>,
}

impl Recomputation {
    /// Compiles the change that a program makes of rows; its outputs are the new values of `targets`.
    ///
    /// # Errors
    /// Fails only on a bug: the program was compiled for the same columns before.
    pub fn new(
        caller: &Caller,
        space: &SpaceTable,
        program: &Program,
        targets: &[usize],
    ) -> Result<Recomputation> {
        let Output::Rows(outputs) = &program.output else {
            return Err(Error::internal("a change that is no rows"));
        };
        let mut fields: Vec<_> = space.schema.fields().iter().cloned().collect();
        let place = fields.len();
        fields.push(Arc::new(Field::new("place", DataType::UInt32, false)));
        let mut part = plain_part(&space.schema, ROWS_AT_ONCE, BYTES);
        part.bytes_plain.push(size_of::<u32>() * ROWS_AT_ONCE);
        let entries = Arc::new(EntryRows::default());
        let table = Arc::new(Table::live(Arc::new(Schema::new(fields)), &[part], entries.clone()));
        let mut columns = BTreeSet::new();
        program.filter.iter().for_each(|filter| filter.collect_columns(&mut columns));
        outputs.iter().for_each(|output| output.expr.collect_columns(&mut columns));
        let at = NamedExpr { name: "place".to_string(), expr: Expr::Column(place) };
        let outputs = std::iter::once(at).chain(outputs.iter().cloned()).collect();
        let program = Program { version: None, output: Output::Rows(outputs), ..program.clone() };
        let bound = caller.prepare(&program, Version(0), table)?;
        if let Some(reason) = bound.prepared().answers.iter().find_map(|answer| answer.reason.clone()) {
            return Err(Error::internal(format!("a change cannot be carried out again: {reason}")));
        }
        let (space, columns) = (space.clone(), columns.into_iter().collect());
        Ok(Recomputation { space, columns, targets: targets.to_vec(), bound, entries })
    }

    /// Returns the change of each entry; `None` for an entry for which the condition is not true.
    ///
    /// # Errors
    /// Errors of computing the condition and the values.
    pub fn states(
        &self,
        caller: &Caller,
        entries: &[ReadEntry<'_>],
        now: u64,
    ) -> Result<Vec<Option<KeyState>>> {
        let mut states = vec![None; entries.len()];
        for (some, states) in entries.chunks(ROWS_AT_ONCE).zip(states.chunks_mut(ROWS_AT_ONCE)) {
            self.states_of(caller, some, now, states)?;
        }
        Ok(states)
    }

    fn states_of(
        &self,
        caller: &Caller,
        entries: &[ReadEntry<'_>],
        now: u64,
        states: &mut [Option<KeyState>],
    ) -> Result<()> {
        let mut group = self.space.gather(entries.len(), now, ColumnSelection::of(&self.columns), |f| {
            f(entries);
            Ok(())
        })?;
        let places: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..group.rows as u32));
        group.chunks.push(Arc::new(Chunk::of_array(&places)?));
        self.entries.set(group);
        let run = caller.start(&self.bound, None, Shape::Batches)?;
        loop {
            match run.step(&**caller.clock())? {
                Step::Batches(batches) => {
                    batches.iter().try_for_each(|batch| self.read(batch, now, states))?;
                }
                Step::Worked | Step::Busy => {}
                Step::Done | Step::Encoded(_) | Step::Fetched(..) => return Ok(()),
            }
        }
    }

    fn read(&self, batch: &RecordBatch, now: u64, states: &mut [Option<KeyState>]) -> Result<()> {
        let places = batch.column(0).as_primitive::<UInt32Type>();
        for (row, place) in places.values().iter().enumerate() {
            let state = match self.targets.is_empty() {
                true => KeyState::Remove,
                false => self.space.updated(self.targets.iter().zip(&batch.columns()[1..]), row, now)?,
            };
            states[*place as usize] = Some(state);
        }
        Ok(())
    }
}
