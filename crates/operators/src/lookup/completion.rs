//! Completes groups: GROUP BY often has columns that others determine, such as the name and the address of a customer
//! beside the key. Rows are then grouped by the key alone, and the other columns are looked up for each group.

use super::NONE;
use super::build::LookupTable;
use crate::failure;
use crate::topk::compact;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::take::take;
use farpool_model::Result;
use parking_lot::Mutex;
use std::sync::Arc;

/// Maximum bytes of the strings that are looked up for one group. Reason: the memory for groups bounds their number, not what
/// they are completed with, and a step completes some thousand groups.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Origin of a key of a completed group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The key at this index by which rows are grouped.
    Group(usize),
    /// A column of the row that a step of the completion finds.
    LookedUp {
        /// Index of the step.
        step: usize,
        /// Index of the column in its table.
        column: usize,
    },
}

/// The lookups that complete groups, in steps: each finds one row by what is known before it.
pub struct Completion {
    /// For each step, its join keys.
    steps: Vec<Vec<Origin>>,
    /// The keys of completed groups, and the number of keys by which rows are grouped.
    keys: Vec<Origin>,
    keys_grouped: usize,
    /// Schema of completed groups.
    schema: SchemaRef,
    /// For each step, its table; `None` after [`Completion::let_go`].
    tables: Mutex<Option<Arc<[Arc<LookupTable>]>>>,
}

impl Completion {
    /// Creates a completion with these steps, each with the table of its lookup, in which keys must be unique. Completed
    /// groups have the keys `keys`, then the aggregates, in `schema`. Returns `None` if groups may be completed with long
    /// strings.
    pub fn new(
        steps: Vec<(Arc<LookupTable>, Vec<Origin>)>,
        keys: Vec<Origin>,
        keys_grouped: usize,
        schema: SchemaRef,
    ) -> Option<Completion> {
        let (tables, steps): (Vec<Arc<LookupTable>>, Vec<_>) = steps.into_iter().unzip();
        let text_bytes = |key: &Origin| match *key {
            Origin::Group(_) => 0,
            Origin::LookedUp { step, column } => longest(&tables[step].columns()[column]),
        };
        if keys.iter().map(text_bytes).sum::<usize>() > TEXT_BYTES_MAX {
            return None;
        }
        Some(Completion { steps, keys, keys_grouped, schema, tables: Mutex::new(Some(tables.into())) })
    }

    /// Drops the tables, because nothing more is completed.
    pub fn let_go(&self) {
        let tables = self.tables.lock().take();
        drop(tables);
    }

    /// Returns the schema of completed groups.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Completes groups: the keys by which rows are grouped, then the aggregates. After [`Completion::let_go`] returns none,
    /// because nobody wants them.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn complete(&self, groups: &RecordBatch) -> Result<RecordBatch> {
        let Some(tables) = self.tables.lock().clone() else {
            return Ok(RecordBatch::new_empty(self.schema.clone()));
        };
        let mut rows: Vec<UInt32Array> = Vec::with_capacity(tables.len());
        for (table, keys) in tables.iter().zip(&self.steps) {
            let keys = keys.iter().map(|key| column(groups, (&tables, &rows), *key));
            let mut found = Vec::new();
            table.find(&keys.collect::<Result<Vec<_>>>()?, &mut found)?;
            // A row that a lookup keeps without a match has NULLs.
            rows.push(found.into_iter().map(|row| (row != NONE).then_some(row)).collect());
        }
        let keys = self.keys.iter().map(|key| column(groups, (&tables, &rows), *key));
        let aggregates = groups.columns()[self.keys_grouped..].iter().cloned().map(Ok);
        let columns = keys.chain(aggregates).collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new(self.schema.clone(), columns).map_err(failure::of_kernel)
    }
}

/// Returns the bytes of the longest string of an array; 0 if it has none.
fn longest(array: &ArrayRef) -> usize {
    let longest = match array.data_type() {
        DataType::Utf8View => array.as_string_view().lengths().max(),
        DataType::BinaryView => array.as_binary_view().lengths().max(),
        _ => None,
    };
    longest.map_or(0, |bytes| bytes as usize)
}

/// Returns a key of groups; `rows` are those that the steps so far have found.
fn column(
    groups: &RecordBatch,
    (tables, rows): (&[Arc<LookupTable>], &[UInt32Array]),
    origin: Origin,
) -> Result<ArrayRef> {
    match origin {
        Origin::Group(key) => Ok(groups.column(key).clone()),
        Origin::LookedUp { step, column } => {
            let values = take(&tables[step].columns()[column], &rows[step], None);
            // Strings are copied, so that groups do not keep those of the whole table.
            values.map(compact).map_err(failure::of_kernel)
        }
    }
}
