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

/// All but the filter.
struct CompiledPlan {
    schema: SchemaRef,
    output: Operator,
}

/// What the workers of one run tell each other while they scan.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    threshold: Arc<Threshold>,
}

/// What one worker changes while it runs a plan: scratch memory, rows that wait until a batch is full, and
/// partial aggregation.
pub struct State {
    buffers: LaneBuffers,
    held: Held,
}

/// The states of all workers, to be brought together in independent tasks.
pub struct Merge {
    plan: Plan,
    work: MergeWork,
}

/// What grouping may use.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes that the groups of all workers together may take.
    pub bytes_max: usize,
    /// Workers that there will be.
    pub workers: usize,
    /// What hashes of groups depend on.
    pub hash_key: HashKey,
}

impl Memory {
    /// Bytes for each worker.
    pub fn share(self) -> usize {
        self.bytes_max / self.workers.max(1)
    }
}

/// Which fast paths a plan may take. All of them, except where a test compares them with their twins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    /// Predicates on encoded values and zone maps.
    pub(crate) encoded: bool,
    /// Aggregation on lanes and dense groups.
    pub(crate) fused: bool,
    /// Groups of one worker from which on rows may be partitioned: with more, the table of groups
    /// and two sums each leave the L2 cache.
    pub(crate) groups_direct_max: usize,
}

impl Paths {
    /// All.
    pub(crate) const ALL: Paths = Paths { encoded: true, fused: true, groups_direct_max: 32 << 10 };
}

/// What is known of the rows that a plan will read.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// Row groups of any table with the schema.
    #[cfg(test)]
    Any,
    /// These row groups and no others, in so much memory.
    Known(&'a [&'a RowGroup], Memory),
}

fn compile_filter(program: &Program, columns: Columns<'_>, paths: Paths) -> Result<Option<Filter>> {
    let filter = program.filter.as_ref().map(|f| Filter::new(f, columns)).transpose()?;
    Ok(filter.map(|f| if paths.encoded { f } else { f.plain() }))
}

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

impl Plan {
    /// Compiles `program` for `table`, whose row groups are the only ones that will be run: what their zone maps say
    /// may choose another way. Operators keep to `memory` if they can ([`Plan::fits`]).
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` when the program is not well typed or needs what no operator does.
    pub fn compile(program: &Program, table: &Table, memory: Memory) -> Result<Plan> {
        let groups: Vec<&RowGroup> = table.row_groups.iter().map(|group| &**group).collect();
        let columns = Columns::new(&table.schema, &table.statistics);
        Plan::compile_over(program, &table.schema, columns, Input::Known(&groups, memory), Paths::ALL)
    }

    /// Compiles `program` for `input`, with a choice of paths.
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

    /// This plan over the rows for which `conditions` hold as well. Only these are compiled; what was chosen by
    /// zone maps holds for fewer rows too.
    ///
    /// # Errors
    /// `Invalid` when the conditions are not well typed over `table_schema`, that of the plan.
    pub fn narrowed(&self, conditions: &Expr, table_schema: &SchemaRef) -> Result<Plan> {
        let filter = match &self.filter {
            Some(filter) => filter.narrowed(conditions, table_schema)?,
            None => Filter::new(conditions, table_schema)?,
        };
        Ok(Plan { filter: Some(Arc::new(filter)), compiled: self.compiled.clone() })
    }

    /// How aggregation runs and why, as the first of `groups` that may pass the filter has it; `None` where nothing is
    /// aggregated. Others may go another way.
    ///
    /// # Errors
    /// `Internal` when `groups` are of another table.
    pub fn way<'a>(&self, groups: impl IntoIterator<Item = &'a RowGroup>) -> Result<Option<ChosenWay>> {
        let Some(aggregation) = self.compiled.output.aggregation() else { return Ok(None) };
        let mut open = groups.into_iter().map(|group| (group, self.verdict(group)));
        let first = open.find(|(_, verdict)| *verdict != Verdict::None);
        first.map(|(group, verdict)| aggregation.explain(group, verdict == Verdict::All)).transpose()
    }

    /// Whether both share what was compiled for the rows that pass their filters.
    #[cfg(test)]
    pub(crate) fn shares_output_with(&self, other: &Plan) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled)
    }

    /// Whether the states of all workers surely keep within `memory`. If not, states that are given less
    /// room ([`State::set_room`]) let groups go early.
    pub fn fits(&self, memory: Memory) -> bool {
        self.group_bytes().is_some_and(|bytes| bytes <= memory.share())
    }

    /// The most bytes that the groups of one worker take; `None` when that cannot be told.
    pub fn group_bytes(&self) -> Option<usize> {
        self.compiled.output.aggregation().map_or(Some(0), FittedAggregation::bytes_bound)
    }

    /// Whether sums of decimals in any part of the rows keep within 38 digits.
    pub fn partial_sums_fit(&self) -> bool {
        self.compiled.output.aggregation().is_none_or(FittedAggregation::sums_fit)
    }

    /// Whether states of new groups fit `memory` until those that outgrow it can leave.
    pub fn partial_states_fit(&self, memory: Memory) -> bool {
        self.compiled.output.aggregation().is_none_or(|a| a.states_fit(memory.share()))
    }

    /// The schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.compiled.schema
    }

    /// An empty state for a lone worker.
    pub fn new_state(&self) -> State {
        self.new_state_in(&Shared::default())
    }

    /// An empty state for one worker of the run that has `shared`.
    pub fn new_state_in(&self, shared: &Shared) -> State {
        State { buffers: LaneBuffers::default(), held: self.compiled.output.new_held(&shared.threshold) }
    }

    /// What the zone maps say: nothing is read.
    pub fn verdict(&self, group: &RowGroup) -> Verdict {
        self.filter.as_ref().map_or(Verdict::All, |filter| filter.verdict(group))
    }

    /// Whether what the workers found so far rules `group` out, as its zone maps have it.
    pub fn is_beaten(&self, group: &RowGroup, shared: &Shared) -> bool {
        self.compiled.output.top().is_some_and(|top| top.is_beaten(group, &shared.threshold))
    }

    /// The order in which it is best to process `groups`, by their positions, if it matters.
    pub fn favourable<'a>(&self, groups: impl Iterator<Item = &'a RowGroup>) -> Option<Vec<usize>> {
        self.compiled.output.top().and_then(|top| top.favourable(groups))
    }

    /// The columns of the table that the result consists of, if it is nothing but columns as they are: then
    /// a row group all of whose rows pass may leave without being decoded.
    pub fn plain_columns(&self) -> Option<Vec<usize>> {
        self.compiled.output.projection().and_then(Projection::plain_columns)
    }

    /// Takes the states of all workers, after all row groups. Not only partial aggregations wait in them, but
    /// also rows that did not fill a batch.
    pub fn merge(&self, states: Vec<State>) -> Merge {
        let held = states.into_iter().map(|state| state.held);
        Merge { plan: self.clone(), work: self.compiled.output.merge(held, &self.compiled.schema) }
    }
}

impl State {
    /// Lets the groups of this state take `bytes` from now on. Those that outgrow it leave early, as partial
    /// results that whoever gets them has to merge; a plan that fits its memory needs no such thing.
    pub fn set_room(&mut self, bytes: usize) {
        if let Held::Aggregate(partial) = &mut self.held {
            partial.set_room(bytes);
        }
    }

    /// Bytes that the state holds.
    pub fn bytes(&self) -> usize {
        self.held.bytes() + self.buffers.bytes()
    }
}

impl Merge {
    /// The number of independent tasks.
    pub fn tasks(&self) -> usize {
        self.work.tasks()
    }

    /// Runs one task on the calling thread; several may run at once, each once.
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
