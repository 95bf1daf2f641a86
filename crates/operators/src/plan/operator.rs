//! Operators that produce the result of a program (rows, groups, or a top-k, which is `ORDER BY … LIMIT k`), the
//! state that each worker thread has of them, and the merge of these states.

use super::{Input, Paths, Verdict};
use crate::aggregate::{Aggregation, FittedAggregation, Merging, Partial};
use crate::evaluate::{Compiled, Frame, truth};
use crate::failure;
use crate::lookup::Completion;
use crate::project::{Emit, Pending, Projection};
use crate::select::Filter;
use crate::topk::{Candidates, Collector, Threshold, Top, TopRows, compact};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use farpool_columns::RowGroup;
use farpool_model::{Columns, Error, Output, Program, Result};
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Operator that turns the rows which pass the filter into the result.
pub(super) enum Operator {
    Rows(Projection),
    Aggregate(Grouping),
    Top(Box<TopRows>),
}

/// An aggregation, and what is done with its groups.
#[derive(Clone)]
pub(super) struct Grouping {
    aggregation: Arc<FittedAggregation>,
    /// Completes the groups first.
    completion: Option<Arc<Completion>>,
    /// Drops groups for which a condition is not true; there is none if groups are emitted in parts.
    having: Option<Arc<Compiled>>,
    /// Keeps the first groups of a sort order.
    top: Option<Top>,
}

/// State of one worker, by kind of operator.
pub(super) enum Held {
    Rows(Pending),
    Aggregate(Box<Partial>),
    Top(Candidates),
}

/// States of all workers, prepared for merging by independent tasks.
pub(super) enum MergeWork {
    /// Result rows of each worker that did not fill a batch: one task per worker.
    Rows(Vec<Mutex<Pending>>),
    Aggregate(Box<Merging>, Option<Collector>),
    Top(Vec<RecordBatch>),
}

/// Inputs of the compilation of an operator: the schema and columns of the table, the filter, the row groups, and the
/// allowed fast paths.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) schema: &'a SchemaRef,
    pub(super) columns: Columns<'a>,
    pub(super) filter: Option<&'a Filter>,
    pub(super) input: Input<'a>,
    pub(super) paths: Paths,
}

impl Operator {
    /// Compiles the operator of `program`; `schema` is that of the result.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` if the program is not well typed or needs an unsupported operation.
    pub(super) fn new(program: &Program, source: Source<'_>, schema: &SchemaRef) -> Result<Operator> {
        let schema = schema.clone();
        Ok(match (&program.output, Top::of(program)?) {
            (Output::Rows(columns), Some(top)) => {
                let is_encoded = source.paths.encoded;
                let (known, table_schema) = (source.columns, source.schema);
                Operator::Top(Box::new(TopRows::new(top, columns, known, table_schema, schema, is_encoded)?))
            }
            (Output::Rows(columns), None) => {
                Operator::Rows(Projection::new(columns, source.columns, schema, program.limit)?)
            }
            (Output::Aggregate { keys, aggregates }, top) => {
                let aggregation = Aggregation::new(keys, aggregates, source.columns, schema.clone())?;
                let aggregation = Arc::new(fitted(aggregation.with_paths(source.paths), source)?);
                let having = program.having.as_ref().map(|having| Compiled::new(having, schema.as_ref()));
                let having = having.transpose()?.map(Arc::new);
                Operator::Aggregate(Grouping { aggregation, completion: None, having, top })
            }
        })
    }

    pub(super) fn projection(&self) -> Option<&Projection> {
        if let Operator::Rows(projection) = self { Some(projection) } else { None }
    }

    pub(super) fn aggregation(&self) -> Option<&FittedAggregation> {
        if let Operator::Aggregate(grouping) = self { Some(&grouping.aggregation) } else { None }
    }

    /// Returns this aggregation with its groups completed, and then filtered and cut as those of `whole`; `None` if one of the
    /// two does not aggregate.
    pub(super) fn completed(&self, whole: &Operator, completion: Arc<Completion>) -> Option<Operator> {
        let (Operator::Aggregate(grouping), Operator::Aggregate(whole)) = (self, whole) else { return None };
        let aggregation = grouping.aggregation.clone();
        Some(Operator::Aggregate(Grouping { aggregation, completion: Some(completion), ..whole.clone() }))
    }

    pub(super) fn top(&self) -> Option<&TopRows> {
        if let Operator::Top(top) = self { Some(top) } else { None }
    }

    /// Returns the table columns that the operator reads for rows that pass the filter.
    pub(super) fn columns(&self) -> &[usize] {
        match self {
            Operator::Rows(projection) => projection.columns(),
            Operator::Aggregate(grouping) => grouping.aggregation.columns(),
            Operator::Top(top) => top.columns(),
        }
    }

    /// Creates the empty state of a worker. All workers of one execution must pass the same `threshold`.
    pub(super) fn new_held(&self, threshold: &Arc<Threshold>) -> Held {
        match self {
            Operator::Rows(projection) => Held::Rows(projection.pending()),
            Operator::Aggregate(grouping) => Held::Aggregate(Box::new(grouping.aggregation.new_partial())),
            Operator::Top(top) => Held::Top(top.candidates(threshold.clone())),
        }
    }

    /// Prepares the states of all workers for merging; `schema` is that of the result.
    pub(super) fn merge(&self, held: impl Iterator<Item = Held>, schema: &SchemaRef) -> MergeWork {
        match self {
            Operator::Rows(_) => {
                let pending = held.filter_map(|held| match held {
                    Held::Rows(pending) if !pending.is_empty() => Some(Mutex::new(pending)),
                    _ => None,
                });
                MergeWork::Rows(pending.collect())
            }
            Operator::Aggregate(Grouping { aggregation, top, .. }) => {
                let partials = held.filter_map(|held| match held {
                    Held::Aggregate(partial) => Some(*partial),
                    _ => None,
                });
                let merging = Merging::new(aggregation, partials.collect());
                let collector = |top: &Top| Collector::new(top.clone(), schema.clone(), merging.tasks());
                let collector = top.as_ref().map(collector);
                MergeWork::Aggregate(Box::new(merging), collector)
            }
            Operator::Top(_) => {
                let rows = held.flat_map(|held| match held {
                    Held::Top(candidates) => candidates.into_rows(),
                    _ => Vec::new(),
                });
                MergeWork::Top(rows.collect())
            }
        }
    }

    /// Runs one merge task.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub(super) fn run_merge(&self, work: &MergeWork, task: usize, emit: &mut Emit<'_>) -> Result<()> {
        match (self, work) {
            (Operator::Rows(projection), MergeWork::Rows(pending)) => {
                projection.finish(&mut pending[task].lock(), emit).map(|_| ())
            }
            (Operator::Aggregate(grouping), MergeWork::Aggregate(merging, collector)) => {
                let merge = |emit: &mut Emit<'_>| merging.run(&grouping.aggregation, task, emit);
                let groups = |emit: &mut Emit<'_>| grouping.passing(emit, merge);
                match collector {
                    Some(collector) => collector.run(groups, emit),
                    None => groups(emit),
                }
            }
            (Operator::Top(top), MergeWork::Top(held)) => top.finish(held, emit),
            _ => Err(Error::internal("the states of another plan")),
        }
    }
}

impl Grouping {
    pub(super) fn aggregation(&self) -> &FittedAggregation {
        &self.aggregation
    }

    /// Completes the groups that `produce` emits, which may be parts of groups, and passes them to `emit`.
    ///
    /// # Errors
    /// Errors of `produce`, and of [`Completion::complete`].
    pub(super) fn completing<T>(
        &self,
        emit: &mut Emit<'_>,
        produce: impl FnOnce(&mut Emit<'_>) -> Result<T>,
    ) -> Result<T> {
        match &self.completion {
            Some(completion) => changing(|groups| completion.complete(&groups), emit, produce),
            None => produce(emit),
        }
    }

    /// Completes the groups that `produce` emits, and passes those to `emit` for which the condition on groups is true.
    ///
    /// # Errors
    /// Errors of [`Grouping::completing`]; `Invalid` if the condition fails on a group.
    fn passing<T>(&self, emit: &mut Emit<'_>, produce: impl FnOnce(&mut Emit<'_>) -> Result<T>) -> Result<T> {
        match &self.having {
            Some(having) => {
                changing(|groups| kept(having, &groups), emit, |emit| self.completing(emit, produce))
            }
            None => self.completing(emit, produce),
        }
    }
}

/// Passes the batches that `produce` emits to `emit`, changed by `change`.
fn changing<T>(
    change: impl Fn(RecordBatch) -> Result<RecordBatch>,
    emit: &mut Emit<'_>,
    produce: impl FnOnce(&mut Emit<'_>) -> Result<T>,
) -> Result<T> {
    let mut failed = None;
    let produced = produce(&mut |batch| match change(batch) {
        Ok(batch) => emit(batch),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(produced), Err)
}

/// Returns the groups for which the condition is true.
fn kept(condition: &Compiled, groups: &RecordBatch) -> Result<RecordBatch> {
    let column = |column: &usize| (*column, groups.column(*column).clone());
    let columns = condition.columns().iter().map(column).collect();
    let passing = truth(&condition.array(&Frame::new(groups.num_rows(), columns))?);
    let kept = filter_record_batch(groups, &passing).map_err(failure::of_kernel)?;
    if kept.num_rows() > groups.num_rows() / 2 {
        return Ok(kept);
    }
    // Few groups do not keep the strings of all.
    let columns = kept.columns().iter().cloned().map(compact).collect();
    RecordBatch::try_new(kept.schema(), columns).map_err(failure::of_kernel)
}

impl Held {
    /// Returns the bytes of memory that the state takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Held::Rows(pending) => pending.bytes(),
            Held::Aggregate(partial) => partial.bytes(),
            Held::Top(candidates) => candidates.bytes(),
        }
    }
}

impl MergeWork {
    /// Returns the number of merge tasks.
    pub(super) fn tasks(&self) -> usize {
        match self {
            MergeWork::Rows(pending) => pending.len(),
            MergeWork::Aggregate(merging, _) => merging.tasks(),
            MergeWork::Top(held) => usize::from(!held.is_empty()),
        }
    }
}

/// Adapts the aggregation to the row groups that may have rows which pass the filter; other row groups are never
/// read.
fn fitted(mut aggregation: Aggregation, source: Source<'_>) -> Result<FittedAggregation> {
    match source.input {
        Input::Any(memory) => {
            aggregation.set_hash_key(memory.hash_key);
            FittedAggregation::of_rows(aggregation, |column| source.columns.integer_bounds(column))
        }
        Input::Known(groups, memory) => {
            let is_open =
                |group: &&&RowGroup| source.filter.is_none_or(|f| f.verdict(group) != Verdict::None);
            let groups: Vec<&RowGroup> = groups.iter().filter(is_open).copied().collect();
            aggregation.set_hash_key(memory.hash_key);
            FittedAggregation::of_table(aggregation, &groups, memory.share())
        }
    }
}
