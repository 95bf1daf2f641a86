//! Limits the memory for lists and structs in rows that joins and UNNEST repeat.
//!
//! DataFusion 55.2 copies such a value into each output row and charges nothing to its memory pool: a list of 100,000
//! numbers in each of 5,000 rows is 4 GB in one batch. Therefore these operators emit small batches, and fail if a
//! batch might not fit the free memory. Strings are repeated as views, without a copy. This module is obsolete once
//! upstream charges the copies or shares them.

use super::function::{LONG, SLICE, bytes_of_constant};
use super::growth::range_bytes;
use crate::error;
use crate::interrupt::current;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use farpool_memory::size_text;
use farpool_model::Error;
use farpool_model::cast::u64_from;
use std::sync::Arc;

/// Maximum number of rows per batch of an operator that repeats lists or structs. Reason: each row may have a copy of a
/// long list.
pub const REPEATED_ROWS: usize = 64;

/// An operator that may copy list or struct values of its input into several output rows.
#[derive(Debug)]
pub enum Repeats {
    Join,
    /// UNNEST; these are the indexes of the list columns that become rows.
    Unnest(Vec<usize>),
}

impl Repeats {
    /// Classifies an operator. Returns `None` unless it is a join or an UNNEST that may copy list or struct values into
    /// several output rows.
    pub fn of(node: &dyn ExecutionPlan) -> Option<Repeats> {
        if let Some(unnest) = node.downcast_ref::<UnnestExec>() {
            let lists: Vec<usize> =
                unnest.list_column_indices().iter().map(|list| list.index_in_input_schema).collect();
            return has_nested(&unnest.input().schema(), &lists).then_some(Repeats::Unnest(lists));
        }
        let kind = node.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
        let kind = kind.or_else(|| node.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type()));
        let kind = kind.or_else(|| node.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type()));
        let is_join = node.is::<CrossJoinExec>() || kind.is_some_and(repeats_rows);
        let is_nested = || node.children().iter().any(|child| has_nested(&child.schema(), &[]));
        (is_join && is_nested()).then_some(Repeats::Join)
    }

    /// Checks that there is free memory for the output of `batch`, an input batch whose rows are repeated.
    ///
    /// # Errors
    /// `OverLimit` if there is not.
    pub fn check(&self, batch: &RecordBatch) -> Result<()> {
        let Some((scope, _)) = current::charged() else { return Ok(()) };
        let Some(memory) = scope.memory() else { return Ok(()) };
        // Offsets within a column are 32 bits wide, which also limits a batch.
        let room = match memory.memory_limit() {
            MemoryLimit::Finite(limit) => limit.saturating_sub(memory.reserved()) / self.batches(),
            _ => usize::MAX,
        };
        let room = room.min(i32::MAX as usize);
        let bytes = self.bytes(batch, room);
        if bytes <= room {
            return Ok(());
        }
        let (name, advice) = match self {
            Repeats::Join => ("a join", "leave its lists out, and join with them in the end"),
            Repeats::Unnest(_) => ("unnest", "leave the other lists out"),
        };
        let (bytes, room) = (size_text(u64_from(bytes)), size_text(u64_from(room)));
        let message =
            format!("{name} may make {bytes} of lists in one batch of rows, for which {room} are free");
        Err(error::wrap(
            Error::over_limit(message)
                .advise(format!("{advice}, or give the statement more memory (--work-memory)")),
        ))
    }

    /// Returns the number of output batches that are in memory at the same time, in the operator and those above it.
    fn batches(&self) -> usize {
        match self {
            Repeats::Join => 4,
            // An output batch of UNNEST lives only until the next one.
            Repeats::Unnest(_) => 2,
        }
    }

    /// Returns an upper bound for the bytes of lists and structs in an output batch. If a rough bound is at most
    /// `enough`, returns that one, since a tighter one would not change the decision.
    fn bytes(&self, batch: &RecordBatch, enough: usize) -> usize {
        let lists = match self {
            Repeats::Join => &[][..],
            Repeats::Unnest(lists) => lists,
        };
        let nested: Vec<&ArrayRef> = batch
            .columns()
            .iter()
            .enumerate()
            .filter(|(place, column)| !lists.contains(place) && column.data_type().is_nested())
            .map(|(_, column)| column)
            .collect();
        let within = |start: usize, rows: usize| -> usize {
            nested.iter().map(|column| range_bytes(column, start, rows)).sum()
        };
        let all = within(0, batch.num_rows());
        match self {
            Repeats::Join if all.saturating_mul(REPEATED_ROWS) <= enough => all,
            Repeats::Join => {
                let widest = (0..batch.num_rows()).map(|row| within(row, 1)).max().unwrap_or(0);
                widest.saturating_mul(REPEATED_ROWS)
            }
            Repeats::Unnest(lists) => {
                let rows_of = |row: usize| {
                    lists.iter().map(|list| length(batch.column(*list), row)).max().unwrap_or(0).max(1)
                };
                (0..batch.num_rows())
                    .fold(0_usize, |sum, row| sum.saturating_add(within(row, 1).saturating_mul(rows_of(row))))
            }
        }
    }
}

/// Returns the maximum number of rows per batch for an operator that copies constant lists, such as `range(0,
/// 1000000)`, into each row; `None` if a batch may have any number of rows.
pub fn rows_of_constant_lists(node: &dyn ExecutionPlan) -> Result<Option<usize>> {
    let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let mut bytes = 0_usize;
    for column in projection.expr() {
        column.expr.apply(|expr| {
            let call = expr.downcast_ref::<ScalarFunctionExpr>();
            let of_call = call.map(bytes_of_constant).transpose()?.flatten();
            bytes = bytes.saturating_add(of_call.unwrap_or(0));
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok((bytes > LONG).then(|| (SLICE / bytes).max(1)))
}

/// Returns whether the schema has lists or structs in columns other than those in `except`.
pub fn has_nested(schema: &Schema, except: &[usize]) -> bool {
    let fields = schema.fields().iter().enumerate();
    fields.filter(|(place, _)| !except.contains(place)).any(|(_, field)| field.data_type().is_nested())
}

/// Returns whether a join of this kind may return a row of its inputs more than once.
pub fn repeats_rows(kind: JoinType) -> bool {
    use JoinType::{Full, Inner, Left, Right};
    matches!(kind, Inner | Left | Right | Full)
}

/// Returns the number of elements of a list.
fn length(lists: &Arc<dyn Array>, row: usize) -> usize {
    match lists.data_type() {
        DataType::List(_) => usize::try_from(lists.as_list::<i32>().value_length(row)).unwrap_or(0),
        DataType::LargeList(_) => usize::try_from(lists.as_list::<i64>().value_length(row)).unwrap_or(0),
        DataType::FixedSizeList(_, size) => usize::try_from(*size).unwrap_or(0),
        _ => 1,
    }
}
