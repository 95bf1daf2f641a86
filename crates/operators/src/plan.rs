//! A program compiled for one table schema.

mod operator;
mod process;

#[cfg(test)]
pub(crate) use process::PART_ROWS;
pub use process::Work;

use crate::aggregate::{ChosenWay, FittedAggregation};
use crate::group::HashKey;
use crate::lanes::LaneBuffers;
use crate::project::{Emit, Projection};
use crate::select::Filter;
use crate::topk::Threshold;
use arrow_schema::SchemaRef;
use farpool_columns::{RowGroup, Table};
use farpool_model::{Columns, Expr, Program, Result};
use operator::{Held, MergeWork, Operator, Source};
use std::fmt;
use std::sync::Arc;

/// A compiled program: immutable, shared by all workers.
#[derive(Clone)]
pub struct Plan {
    filter: Option<Arc<Filter>>,
    compiled: Arc<CompiledPlan>,
}

/// The compiled program without its filter; shared by plans that differ in the filter only.
struct CompiledPlan {
    schema: SchemaRef,
    output: Operator,
}

/// State that the workers of one run share while they scan: the threshold of a top-k.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    threshold: Arc<Threshold>,
}

/// Mutable state of one worker: scratch buffers, rows that do not fill a batch yet, and its partial
/// aggregation or candidates of a top-k.
pub struct State {
    buffers: LaneBuffers,
    held: Held,
}

/// The states of all workers, to be merged in independent tasks.
pub struct Merge {
    plan: Plan,
    work: MergeWork,
}

/// Resources that grouping may use.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes that the groups of all workers together may take.
    pub bytes_max: usize,
    /// Number of workers that will run the plan.
    pub workers: usize,
    /// Key of the hashes by which groups are looked up and partitioned.
    pub hash_key: HashKey,
}

impl Memory {
    /// Bytes for the groups of one worker.
    pub fn share(self) -> usize {
        self.bytes_max / self.workers.max(1)
    }
}

/// Fast paths that a plan may take: all of them, except in tests that compare a fast path with its plain
/// twin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    /// Predicates on encoded values and zone maps.
    pub(crate) encoded: bool,
    /// Aggregation on lanes and dense groups.
    pub(crate) fused: bool,
    /// Number of groups of one worker above which rows may be partitioned: with more, the table of groups and
    /// two sums per group do not fit the L2 cache.
    pub(crate) groups_direct_max: usize,
}

impl Paths {
    /// All paths allowed.
    pub(crate) const ALL: Paths = Paths { encoded: true, fused: true, groups_direct_max: 32 << 10 };
}

/// Information at compile time on the row groups that a plan will read.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// Row groups of any table with the schema.
    #[cfg(test)]
    Any,
    /// Exactly these row groups, with this memory for groups.
    Known(&'a [&'a RowGroup], Memory),
}

fn compile_filter(program: &Program, columns: Columns<'_>, paths: Paths) -> Result<Option<Filter>> {
    let filter = program.filter.as_ref().map(|f| Filter::new(f, columns)).transpose()?;
    Ok(filter.map(|f| if paths.encoded { f } else { f.plain() }))
}

/// Outcome of a plan's filter for a whole row group, according to its zone maps.
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
    /// Compiles `program` for `table`. The plan may run only on the row groups of `table`, since their zone
    /// maps decide how it aggregates. Groups keep within `memory` if possible ([`Plan::fits`]).
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` if the program is not well typed or needs an unsupported operation.
    pub fn compile(program: &Program, table: &Table, memory: Memory) -> Result<Plan> {
        let groups: Vec<&RowGroup> = table.row_groups.iter().map(|group| &**group).collect();
        let columns = Columns::new(&table.schema, &table.statistics);
        Plan::compile_over(program, &table.schema, columns, Input::Known(&groups, memory), Paths::ALL)
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

    /// Returns this plan restricted to the rows for which `conditions` hold as well. Only the conditions are compiled;
    /// the choices made by zone maps remain valid for fewer rows, and are shared with this plan.
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

    /// This plan for rows that were filtered before.
    #[must_use]
    pub fn without_filter(&self) -> Plan {
        Plan { filter: None, compiled: self.compiled.clone() }
    }

    /// Tells which way aggregation takes and why, for the first of `groups` that may have rows that pass the filter and
    /// is in memory; `None` where nothing is aggregated, or nothing is in memory. Other row groups may take other ways.
    ///
    /// # Errors
    /// `Internal` when `groups` are of another table.
    pub fn way<'a>(&self, groups: impl IntoIterator<Item = &'a RowGroup>) -> Result<Option<ChosenWay>> {
        let Some(aggregation) = self.compiled.output.aggregation() else { return Ok(None) };
        let open = groups.into_iter().map(|group| (group, self.verdict(group)));
        // Values that are not in memory are not read for this.
        let mut open = open.filter_map(|(group, verdict)| match verdict {
            Verdict::None => None,
            _ => Some((group.with_values(0..group.chunks.len()).ok()?, group, verdict)),
        });
        let explain = |(filled, group, verdict): (Option<RowGroup>, &RowGroup, Verdict)| {
            aggregation.explain(filled.as_ref().unwrap_or(group), verdict == Verdict::All)
        };
        open.next().map(explain).transpose()
    }

    /// Returns whether both plans share everything that was compiled apart from their filters.
    #[cfg(test)]
    pub(crate) fn shares_output_with(&self, other: &Plan) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled)
    }

    /// Returns whether the groups of every worker are guaranteed to keep within `memory`. If not, give each state a
    /// limit by [`State::set_room`]; groups beyond it leave early, as parts.
    pub fn fits(&self, memory: Memory) -> bool {
        self.group_bytes().is_some_and(|bytes| bytes <= memory.share())
    }

    /// Returns an upper bound of the bytes that the groups of one worker take; `None` when it is not known.
    pub fn group_bytes(&self) -> Option<usize> {
        self.compiled.output.aggregation().map_or(Some(0), FittedAggregation::bytes_bound)
    }

    /// Returns whether the sum of a decimal argument over any subset of the rows fits 38 digits.
    pub fn partial_sums_fit(&self) -> bool {
        self.compiled.output.aggregation().is_none_or(FittedAggregation::sums_fit)
    }

    /// Returns whether `memory` has room for the states of sketches and moments of one batch's new groups; groups
    /// beyond the limit can leave only after such a batch.
    pub fn partial_states_fit(&self, memory: Memory) -> bool {
        self.compiled.output.aggregation().is_none_or(|a| a.states_fit(memory.share()))
    }

    /// Returns the schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.compiled.schema
    }

    /// Returns an empty state for a run with a single worker.
    pub fn new_state(&self) -> State {
        self.new_state_in(&Shared::default())
    }

    /// Returns an empty state for one worker of the run whose workers share `shared`.
    pub fn new_state_in(&self, shared: &Shared) -> State {
        State { buffers: LaneBuffers::default(), held: self.compiled.output.new_held(&shared.threshold) }
    }

    /// Returns the verdict of the zone maps of `group` on the filter; no values are read.
    pub fn verdict(&self, group: &RowGroup) -> Verdict {
        self.filter.as_ref().map_or(Verdict::All, |filter| filter.verdict(group))
    }

    /// Returns the columns that the filter reads.
    pub fn filter_columns(&self) -> &[usize] {
        self.filter.as_deref().map_or(&[], Filter::columns)
    }

    /// Returns the columns that are read of rows that pass the filter.
    pub fn output_columns(&self) -> &[usize] {
        self.compiled.output.columns()
    }

    /// Returns whether the zone maps of `group`, all of whose rows pass, tell all that is asked of it.
    pub fn is_told_by_zones(&self, group: &RowGroup) -> bool {
        self.compiled.output.aggregation().is_some_and(|aggregation| aggregation.is_told_by_zones(group))
    }

    /// Returns whether the threshold that the workers have found so far excludes every row of `group`, according to its
    /// zone maps.
    pub fn is_beaten(&self, group: &RowGroup, shared: &Shared) -> bool {
        self.compiled.output.top().is_some_and(|top| top.is_beaten(group, &shared.threshold))
    }

    /// Returns the order in which `groups` are best processed, as positions in them; `None` if the order does
    /// not matter.
    pub fn favourable<'a>(&self, groups: impl Iterator<Item = &'a RowGroup>) -> Option<Vec<usize>> {
        self.compiled.output.top().and_then(|top| top.favourable(groups))
    }

    /// Returns the table column that each column of the result is, if all are columns without computation: then a row
    /// group whose rows all pass can leave without being decoded.
    pub fn plain_columns(&self) -> Option<Vec<usize>> {
        self.compiled.output.projection().and_then(Projection::plain_columns)
    }

    /// Takes the states of all workers after the last row group. Besides partial aggregations they may hold
    /// rows that did not fill a batch.
    pub fn merge(&self, states: Vec<State>) -> Merge {
        let held = states.into_iter().map(|state| state.held);
        Merge { plan: self.clone(), work: self.compiled.output.merge(held, &self.compiled.schema) }
    }
}

impl State {
    /// Limits the groups of this state to `bytes` from now on. When they exceed it, all of them leave early,
    /// as parts that the receiver has to merge. Not needed for a plan that fits its memory.
    pub fn set_room(&mut self, bytes: usize) {
        if let Held::Aggregate(partial) = &mut self.held {
            partial.set_room(bytes);
        }
    }

    /// Bytes that the state takes.
    pub fn bytes(&self) -> usize {
        self.held.bytes() + self.buffers.bytes()
    }
}

impl Merge {
    /// Returns the number of independent tasks.
    pub fn tasks(&self) -> usize {
        self.work.tasks()
    }

    /// Runs one task on the calling thread. Tasks may run concurrently; each runs once.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
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
