//! Evaluates conditions on columns of a key space (namespace of keys) in commands of the Redis protocol such as
//! `FP.SCAN`, by the operators that execute SQL.

use super::gather::ColumnSelection;
use super::{SpaceTable, plain_part};
use crate::caller::{Caller, Shape};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use farpool_columns::{Chunk, LiveGroup, LiveRows, RowGroup, Table};
use farpool_kv::{Keyspace, ReadEntry, Refusal, Space};
use farpool_model::limits::KV_PREDICATE_KEPT_BYTES_MAX;
use farpool_model::{Error, Expr, NamedExpr, Output, Program, Result, Version};
use farpool_pipeline::{BoundProgram, Step};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;

/// Maximum number of entries that are evaluated at once.
const ENTRIES_AT_ONCE: usize = 2048;

/// Bytes of entries for which memory is reserved when a condition is compiled; more bytes are evaluated correctly, too.
const BYTES: usize = 1 << 20;

/// A compiled condition on the entries of a space.
struct CompiledCondition {
    condition: Expr,
    /// Whether the compiled condition is too large to be cached between commands.
    is_large: bool,
    of: Option<Arc<Space>>,
    space: SpaceTable,
    columns: Vec<usize>,
    bound: BoundProgram,
    entries: Arc<EntryRows>,
}

/// A cache of one compiled condition, the latest of a client, which is likely to use it again.
#[derive(Default)]
pub(crate) struct LastCondition(Option<CompiledCondition>);

impl LastCondition {
    /// Evaluates a condition for each of `entries`, compiling it unless it is cached; returns one result per entry.
    ///
    /// # Errors
    /// Errors of [`CompiledCondition::new`] and [`CompiledCondition::judge`].
    pub fn judge(
        &mut self,
        (caller, keys): (&Caller, &Arc<Keyspace>),
        (condition, space): (&Expr, Option<&Arc<Space>>),
        entries: &[ReadEntry<'_>],
        now: u64,
    ) -> std::result::Result<Vec<bool>, Refusal> {
        let refused = |error: Error| Refusal(Cow::Owned(format!("ERR {}", error.message)));
        let judge = match self.0.take().filter(|judge| judge.is_for(space, condition)) {
            Some(judge) => judge,
            None => CompiledCondition::new(caller, keys, space, condition).map_err(refused)?,
        };
        self.0.insert(judge).judge(caller, entries, now).map_err(refused)
    }

    /// Returns whether a condition is cached.
    #[cfg(test)]
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Drops a condition that is too large to be cached between commands.
    pub fn end_command(&mut self) {
        self.0.take_if(|judge| judge.is_large);
    }
}

/// The rows of the entries to be evaluated, with the index of the entry as an additional last column.
#[derive(Debug, Default)]
pub(super) struct EntryRows(Mutex<Option<RowGroup>>);

impl EntryRows {
    /// Sets the rows on which the next execution evaluates the condition.
    pub fn set(&self, group: RowGroup) {
        *self.0.lock() = Some(group);
    }
}

impl LiveRows for EntryRows {
    fn row_group(&self, _: usize, _: &[usize]) -> Result<LiveGroup> {
        let entries = self.0.lock().take().ok_or_else(|| Error::internal("no entries to judge"))?;
        Ok(entries.into())
    }
}

impl CompiledCondition {
    /// Compiles a condition on the entries of a space (`None` for a space without a name).
    ///
    /// # Errors
    /// `Invalid` for a condition that cannot be evaluated.
    fn new(
        caller: &Caller,
        keyspace: &Arc<Keyspace>,
        of: Option<&Arc<Space>>,
        condition: &Expr,
    ) -> Result<CompiledCondition> {
        let space = match of {
            Some(space) => SpaceTable::named(keyspace, space),
            None => SpaceTable::selected(keyspace, 0),
        };
        let space = space.ok_or_else(|| Error::internal("a space without a name for a table"))?;
        let mut fields: Vec<_> = space.schema.fields().iter().cloned().collect();
        let place = fields.len();
        fields.push(Arc::new(Field::new("place", DataType::UInt32, false)));
        let schema = Arc::new(Schema::new(fields));
        let mut part = plain_part(&space.schema, ENTRIES_AT_ONCE, BYTES);
        part.bytes_plain.push(size_of::<u32>() * ENTRIES_AT_ONCE);
        let entries = Arc::new(EntryRows::default());
        let table = Arc::new(Table::live(schema, &[part], entries.clone()));
        let column = NamedExpr { name: "place".to_string(), expr: Expr::Column(place) };
        let program = Program {
            table: space.name.clone(),
            version: None,
            lookups: Vec::new(),
            filter: Some(condition.clone()),
            output: Output::Rows(vec![column]),
            having: None,
            order: Vec::new(),
            limit: None,
        };
        let bound = caller.prepare(&program, Version(0), table)?;
        if let Some(reason) = bound.prepared().answers.iter().find_map(|answer| answer.reason.clone()) {
            return Err(Error::invalid(format!("this condition cannot be carried out: {reason}")));
        }
        let mut columns = std::collections::BTreeSet::new();
        condition.collect_columns(&mut columns);
        let (of, columns) = (of.cloned(), columns.into_iter().collect());
        let is_large = condition.pattern_bytes() > KV_PREDICATE_KEPT_BYTES_MAX;
        Ok(CompiledCondition { condition: condition.clone(), is_large, of, space, columns, bound, entries })
    }

    /// Returns whether this is the compiled form of `condition` for the space `of`, so that the cache can be used.
    fn is_for(&self, of: Option<&Arc<Space>>, condition: &Expr) -> bool {
        let is_same = match (&self.of, of) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            _ => false,
        };
        is_same && self.condition == *condition
    }

    /// Evaluates the condition for each of `entries`; returns one result per entry.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` for a value that is not UTF-8 or too long; errors of the evaluation.
    fn judge(&self, caller: &Caller, entries: &[ReadEntry<'_>], now: u64) -> Result<Vec<bool>> {
        let mut passed = vec![false; entries.len()];
        for (at, some) in entries.chunks(ENTRIES_AT_ONCE).enumerate() {
            self.judge_some(caller, some, now, &mut passed[at * ENTRIES_AT_ONCE..])?;
        }
        Ok(passed)
    }

    fn judge_some(
        &self,
        caller: &Caller,
        entries: &[ReadEntry<'_>],
        now: u64,
        passed: &mut [bool],
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
                    for batch in batches {
                        let places = batch.column(0).as_primitive::<UInt32Type>();
                        places.values().iter().for_each(|place| passed[*place as usize] = true);
                    }
                }
                Step::Worked | Step::Busy => {}
                Step::Done | Step::Encoded(_) | Step::Fetched(..) => return Ok(()),
            }
        }
    }
}
