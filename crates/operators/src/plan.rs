//! Plans: pushed-down programs (the part of a query over one table) compiled for the schema of the table.
//!
//! A *batch* is the rows that operators process at a time, some thousand. A *worker* is a thread that executes the
//! plan on some row groups.

mod operator;
mod process;

#[cfg(test)]
pub(crate) use process::PART_ROWS;
pub use process::Work;

use crate::aggregate::{ChosenWay, FittedAggregation};
use crate::group::HashKey;
use crate::lanes::LaneBuffers;
use crate::lookup::Completion;
use crate::project::{Emit, Projection};
use crate::select::Filter;
use crate::topk::Threshold;
use arrow_schema::SchemaRef;
use farpool_columns::{RowGroup, Table};
use farpool_model::{ColumnStatistics, Columns, Expr, Program, Result};
use operator::{Held, MergeWork, Operator, Source};
use std::fmt;
use std::sync::Arc;

/// A compiled program: immutable, shared by all workers.
#[derive(Clone)]
pub struct Plan {
    filter: Option<Arc<Filter>>,
    compiled: Arc<CompiledPlan>,
}

/// Everything of a compiled program except its filter. Plans that differ only in their filter share it.
struct CompiledPlan {
    schema: SchemaRef,
    output: Operator,
}

/// State that all workers of one execution share while they scan: the threshold of a top-k (`ORDER BY … LIMIT k`), a
/// sort key beyond which no row can be in the result.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    threshold: Arc<Threshold>,
}

/// Mutable state of one worker: scratch buffers, result rows that do not fill a batch yet, and the worker's partial
/// aggregation or its candidates of a top-k.
pub struct State {
    buffers: LaneBuffers,
    held: Held,
}

/// States of all workers, to be merged by independent tasks, which may run on any threads.
pub struct Merge {
    plan: Plan,
    work: MergeWork,
}

/// Memory limit and settings of GROUP BY.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Maximum number of bytes for the groups of all workers together.
    pub bytes_max: usize,
    /// Number of workers that execute the plan.
    pub workers: usize,
    /// Secret key of the hash function by which groups are found and rows are partitioned; see [`HashKey`].
    pub hash_key: HashKey,
}

impl Memory {
    /// Returns the maximum number of bytes for the groups of one worker.
    pub fn share(self) -> usize {
        self.bytes_max / self.workers.max(1)
    }
}

/// Fast paths that a plan may take. All are allowed, except in tests that compare a fast path with the general
/// implementation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    /// Whether the filter may use zone maps and test encoded values.
    pub(crate) encoded: bool,
    /// Whether aggregation may evaluate integer expressions as 64-bit integers (lanes), and compute array indices of
    /// groups from codes of the group keys.
    pub(crate) fused: bool,
    /// Maximum number of groups of one worker before its rows may be partitioned. Reason: with more groups, the hash
    /// table and two sums per group do not fit the L2 cache.
    pub(crate) groups_direct_max: usize,
}

impl Paths {
    /// All paths allowed.
    pub(crate) const ALL: Paths = Paths { encoded: true, fused: true, groups_direct_max: 32 << 10 };
}

/// Facts that are known at compile time about the row groups that a plan will read.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// Any row groups with the schema.
    Any(Memory),
    /// Exactly these row groups; the second field limits the memory for groups of GROUP BY.
    Known(&'a [&'a RowGroup], Memory),
}

fn compile_filter(program: &Program, columns: Columns<'_>, paths: Paths) -> Result<Option<Filter>> {
    let filter = program.filter.as_ref().map(|f| Filter::new(f, columns)).transpose()?;
    Ok(filter.map(|f| if paths.encoded { f } else { f.plain() }))
}

/// Verdict of the zone maps of a row group on a plan's filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No row can pass.
    None,
    /// Some rows may pass.
    Some,
    /// Every row passes.
    All,
}

impl Plan {
    /// Compiles `program` for `table`. The plan may run only on row groups of `table`, because their zone maps decide
    /// how it aggregates. [`Plan::fits`] tells whether its groups are sure to fit `memory`.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` if the program is not well typed or needs an unsupported operation.
    pub fn compile(program: &Program, table: &Table, memory: Memory) -> Result<Plan> {
        let groups: Vec<&RowGroup> = table.row_groups.iter().map(|group| &**group).collect();
        let columns = Columns::new(&table.schema, &table.statistics);
        Plan::compile_over(program, &table.schema, columns, Input::Known(&groups, memory), Paths::ALL)
    }

    /// Compiles `program`, without its lookups, for rows with the schema `schema`, of which only the statistics of
    /// columns are known (one entry for each, or none). The plan may run on any row groups with this schema and within
    /// these statistics.
    ///
    /// # Errors
    /// Errors of [`Plan::compile`].
    pub fn compile_rows(
        program: &Program,
        schema: &SchemaRef,
        statistics: &[ColumnStatistics],
        memory: Memory,
    ) -> Result<Plan> {
        Plan::compile_over(program, schema, Columns::new(schema, statistics), Input::Any(memory), Paths::ALL)
    }

    /// Compiles `program` for `input` with only the fast paths that `paths` allows.
    #[cfg(test)]
    pub(crate) fn compile_with(
        program: &Program,
        table_schema: &SchemaRef,
        input: Input<'_>,
        paths: Paths,
    ) -> Result<Plan> {
        Plan::compile_over(program, table_schema, Columns::from(table_schema), input, paths)
    }

    fn compile_over(
        program: &Program,
        table_schema: &SchemaRef,
        columns: Columns<'_>,
        input: Input<'_>,
        paths: Paths,
    ) -> Result<Plan> {
        let filter = compile_filter(program, columns, paths)?;
        let schema = program.result_schema(table_schema)?;
        let source = Source { schema: table_schema, columns, filter: filter.as_ref(), input, paths };
        let compiled = CompiledPlan { output: Operator::new(program, source, &schema)?, schema };
        Ok(Plan { filter: filter.map(Arc::new), compiled: Arc::new(compiled) })
    }

    /// Returns a plan for the rows that also satisfy `conditions`. Only the conditions are compiled; everything else is
    /// shared with this plan, since choices made by zone maps remain valid for fewer rows.
    ///
    /// # Errors
    /// `Invalid` when the conditions are not well typed over `table_schema`, which is the schema of the
    /// plan's table.
    pub fn narrowed(&self, conditions: &Expr, table_schema: &SchemaRef) -> Result<Plan> {
        let filter = match &self.filter {
            Some(filter) => filter.narrowed(conditions, table_schema)?,
            None => Filter::new(conditions, table_schema)?,
        };
        Ok(Plan { filter: Some(Arc::new(filter)), compiled: self.compiled.clone() })
    }

    /// Returns this plan, whose groups have some keys of those of `whole`, with its groups completed to theirs by
    /// `completion`; `None` if one of the two does not aggregate.
    pub fn completed(&self, whole: &Plan, completion: Arc<Completion>) -> Option<Plan> {
        let schema = completion.schema().clone();
        let output = self.compiled.output.completed(&whole.compiled.output, completion)?;
        Some(Plan { filter: self.filter.clone(), compiled: Arc::new(CompiledPlan { schema, output }) })
    }

    /// Returns this plan without its filter, for rows that were filtered before.
    #[must_use]
    pub fn without_filter(&self) -> Plan {
        Plan { filter: None, compiled: self.compiled.clone() }
    }

    /// Returns which implementation (way) of the aggregation is used, and why, for the first row group of `groups` that
    /// is in memory and may have rows that pass the filter. Returns `None` if there is no such row group, or the plan
    /// does not aggregate. Other row groups may take other ways.
    ///
    /// # Errors
    /// `Internal` when `groups` are of another table.
    pub fn way<'a>(&self, groups: impl IntoIterator<Item = &'a RowGroup>) -> Result<Option<ChosenWay>> {
        let Some(aggregation) = self.compiled.output.aggregation() else { return Ok(None) };
        let open = groups.into_iter().map(|group| (group, self.verdict(group)));
        // Row groups that are not in memory are skipped, because explaining a plan must not read from disk.
        let mut open = open.filter_map(|(group, verdict)| match verdict {
            Verdict::None => None,
            _ => Some((group.with_values(0..group.chunks.len()).ok()?, group, verdict)),
        });
        let explain = |(filled, group, verdict): (Option<RowGroup>, &RowGroup, Verdict)| {
            aggregation.explain(filled.as_ref().unwrap_or(group), verdict == Verdict::All)
        };
        open.next().map(explain).transpose()
    }

    /// Returns whether the two plans share their compiled output.
    #[cfg(test)]
    pub(crate) fn shares_output_with(&self, other: &Plan) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled)
    }

    /// Returns whether the groups of every worker are sure to fit `memory`. If not, each state must get a limit: by
    /// [`State::set_room`], when a worker's groups exceed it, they are emitted early, as partial results that the
    /// receiver must merge; by [`State::set_limit`], the plan fails.
    pub fn fits(&self, memory: Memory) -> bool {
        self.group_bytes().is_some_and(|bytes| bytes <= memory.share())
    }

    /// Returns an upper bound of the bytes that the groups of one worker take; `None` if none is known.
    pub fn group_bytes(&self) -> Option<usize> {
        self.compiled.output.aggregation().map_or(Some(0), FittedAggregation::bytes_bound)
    }

    /// Returns whether the sum of each decimal argument over any subset of the rows fits 38 digits. Otherwise sums
    /// cannot be returned as partial results.
    pub fn partial_sums_fit(&self) -> bool {
        self.compiled.output.aggregation().is_none_or(FittedAggregation::sums_fit)
    }

    /// Returns whether `memory` has room for the sketches and moments of as many new groups as one batch can have.
    /// Reason: groups that exceed the limit can be emitted only after the batch that added them.
    pub fn partial_states_fit(&self, memory: Memory) -> bool {
        self.compiled.output.aggregation().is_none_or(|a| a.states_fit(memory.share()))
    }

    /// Returns the schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.compiled.schema
    }

    /// Creates an empty state for an execution with a single worker.
    pub fn new_state(&self) -> State {
        self.new_state_in(&Shared::default())
    }

    /// Creates an empty state for one worker of the execution whose workers share `shared`.
    pub fn new_state_in(&self, shared: &Shared) -> State {
        State { buffers: LaneBuffers::default(), held: self.compiled.output.new_held(&shared.threshold) }
    }

    /// Returns whether all, some or no rows of `group` can pass the filter, according to its zone maps. Reads no values.
    pub fn verdict(&self, group: &RowGroup) -> Verdict {
        self.filter.as_ref().map_or(Verdict::All, |filter| filter.verdict(group))
    }

    /// Returns the columns that the filter reads.
    pub fn filter_columns(&self) -> &[usize] {
        self.filter.as_deref().map_or(&[], Filter::columns)
    }

    /// Returns the columns that are read for rows that pass the filter.
    pub fn output_columns(&self) -> &[usize] {
        self.compiled.output.columns()
    }

    /// Returns whether the result for `group` follows from its zone maps alone. All rows of `group` must pass the
    /// filter.
    pub fn is_told_by_zones(&self, group: &RowGroup) -> bool {
        self.compiled.output.aggregation().is_some_and(|aggregation| aggregation.is_told_by_zones(group))
    }

    /// Returns whether no row of `group` can be among the first k, according to its zone maps and the top-k threshold
    /// that the workers have reached.
    pub fn is_beaten(&self, group: &RowGroup, shared: &Shared) -> bool {
        self.compiled.output.top().is_some_and(|top| top.is_beaten(group, &shared.threshold))
    }

    /// Returns the order in which the row groups are best processed, as indices into `groups`; `None` if the order does
    /// not matter.
    pub fn favourable<'a>(&self, groups: impl Iterator<Item = &'a RowGroup>) -> Option<Vec<usize>> {
        self.compiled.output.top().and_then(|top| top.favourable(groups))
    }

    /// Returns the table column of each result column; `None` if a result column is computed. With plain columns, a
    /// row group whose rows all pass can be returned without being decoded.
    pub fn plain_columns(&self) -> Option<Vec<usize>> {
        self.compiled.output.projection().and_then(Projection::plain_columns)
    }

    /// Emits the result rows of a plan without aggregation and sort order that wait in `state` for a batch to be full.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub fn flush(&self, state: &mut State, emit: &mut Emit<'_>) -> Result<()> {
        match (&self.compiled.output, &mut state.held) {
            (Operator::Rows(projection), Held::Rows(pending)) => projection.finish(pending, emit).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Prepares the merge of the states of all workers. Must be called after the last row group. Besides partial
    /// aggregations, states may hold result rows that did not fill a batch.
    pub fn merge(&self, states: Vec<State>) -> Merge {
        let held = states.into_iter().map(|state| state.held);
        Merge { plan: self.clone(), work: self.compiled.output.merge(held, &self.compiled.schema) }
    }
}

impl State {
    /// Limits the groups of this state to `bytes` from now on. When the groups exceed the limit, all of them are
    /// emitted as partial results that the receiver must merge. Not needed if [`Plan::fits`] returns true.
    pub fn set_room(&mut self, bytes: usize) {
        if let Held::Aggregate(partial) = &mut self.held {
            partial.set_room(bytes);
        }
    }

    /// Limits the groups of this state to `bytes` from now on. When the groups exceed the limit, the plan fails with
    /// `OverLimit`; no group is emitted early. The groups that are merged at the same time have the same limit.
    pub fn set_limit(&mut self, bytes: usize) {
        if let Held::Aggregate(partial) = &mut self.held {
            partial.set_limit(bytes);
        }
    }

    /// Returns the bytes of memory that the state takes.
    pub fn bytes(&self) -> usize {
        self.held.bytes() + self.buffers.bytes()
    }
}

impl Merge {
    /// Returns the number of independent merge tasks.
    pub fn tasks(&self) -> usize {
        self.work.tasks()
    }

    /// Runs merge task number `task` on the calling thread. Tasks may run concurrently; each must run once.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type; `OverLimit` if the groups exceed the limit of [`State::set_limit`].
    pub fn run(&self, task: usize, emit: &mut Emit<'_>) -> Result<()> {
        self.plan.compiled.output.run_merge(&self.work, task, emit)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("schema", &self.compiled.schema).finish_non_exhaustive()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merge").field("tasks", &self.tasks()).finish_non_exhaustive()
    }
}
