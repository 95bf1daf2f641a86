//! A program compiled for one table schema.

use crate::aggregate::{Aggregation, Merging, Partial};
use crate::lanes::LaneBuffers;
use crate::project::{Pending, Projection};
use crate::select::{BoundFilter, Filter};
use crate::selection::Selection;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use farpool_columns::RowGroup;
use farpool_model::{Error, Output, Program, Result, cast, limits};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A compiled program: immutable, shared by all workers.
#[derive(Clone)]
pub struct Plan {
    compiled: Arc<CompiledPlan>,
}

struct CompiledPlan {
    schema: SchemaRef,
    filter: Option<Filter>,
    output: Operator,
    columns: Vec<usize>,
}

enum Operator {
    Rows(Projection),
    Aggregate(Aggregation),
}

/// What one worker changes while it runs a plan: scratch memory, rows that wait until a batch is full, and
/// partial aggregation.
pub struct State {
    buffers: LaneBuffers,
    held: Held,
}

enum Held {
    Rows(Pending),
    Aggregate(Partial),
}

/// The states of all workers, to be brought together in independent tasks.
pub struct Merge {
    plan: Plan,
    work: MergeWork,
}

enum MergeWork {
    /// Each task takes its own.
    Rows(Vec<Mutex<Pending>>),
    Aggregate(Merging),
}

/// Which fast paths a plan may take. All of them, except where a test compares them with their twins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    /// Predicates on encoded values and zone maps.
    pub(crate) encoded: bool,
    /// Aggregation on lanes and dense groups.
    pub(crate) fused: bool,
}

impl Paths {
    /// All.
    pub(crate) const ALL: Paths = Paths { encoded: true, fused: true };
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
    pub fn compile(program: &Program, table_schema: &SchemaRef) -> Result<Plan> {
        Plan::compile_with(program, table_schema, Paths::ALL)
    }

    /// The same with a choice of paths.
    pub(crate) fn compile_with(program: &Program, table_schema: &SchemaRef, paths: Paths) -> Result<Plan> {
        let schema = program.result_schema(table_schema)?;
        let filter = program.filter.as_ref().map(|f| Filter::new(f, table_schema)).transpose()?;
        let filter = filter.map(|f| if paths.encoded { f } else { f.plain() });
        let output = match &program.output {
            Output::Rows(columns) => {
                Operator::Rows(Projection::new(columns, table_schema, schema.clone(), program.limit)?)
            }
            Output::Aggregate { keys, aggregates } => {
                let aggregation = Aggregation::new(keys, aggregates, table_schema, schema.clone())?;
                Operator::Aggregate(aggregation.with_paths(paths))
            }
        };
        let columns = match &output {
            Operator::Rows(projection) => projection.columns().to_vec(),
            Operator::Aggregate(aggregation) => aggregation.columns().to_vec(),
        };
        Ok(Plan { compiled: Arc::new(CompiledPlan { schema, filter, output, columns }) })
    }

    /// The schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.compiled.schema
    }

    /// An empty state for one worker.
    pub fn new_state(&self) -> State {
        let held = match &self.compiled.output {
            Operator::Rows(projection) => Held::Rows(projection.pending()),
            Operator::Aggregate(aggregation) => Held::Aggregate(aggregation.partial()),
        };
        State { buffers: LaneBuffers::default(), held }
    }

    /// What the zone maps say: nothing is read.
    pub fn verdict(&self, group: &RowGroup) -> Verdict {
        self.compiled.filter.as_ref().map_or(Verdict::All, |filter| filter.verdict(group))
    }

    /// The columns of the table that the result consists of, if it is nothing but columns as they are: then
    /// a row group all of whose rows pass may leave without being decoded.
    pub fn plain_columns(&self) -> Option<Vec<usize>> {
        match &self.compiled.output {
            Operator::Rows(projection) => projection.plain_columns(),
            Operator::Aggregate(_) => None,
        }
    }

    /// Runs the plan over one row group; rows leave through `emit` until it breaks.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a value, `OverLimit` when the groups need too much memory.
    pub fn process(
        &self,
        group: &RowGroup,
        state: &mut State,
        emit: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Work> {
        let mut work = Work { rows_in: cast::u64_from(group.rows), ..Work::default() };
        let filter = match (&self.compiled.filter, self.verdict(group)) {
            (_, Verdict::None) => return Ok(work),
            (Some(filter), Verdict::Some) => Some(filter.bind(group)?),
            _ => None,
        };
        work.rows_passed = match (&self.compiled.output, &mut state.held) {
            (Operator::Rows(projection), Held::Rows(pending)) => {
                run_rows(projection, group, filter.as_ref(), &mut state.buffers, pending, emit)?
            }
            (Operator::Aggregate(aggregation), Held::Aggregate(partial)) => {
                aggregation.run(group, filter.as_ref(), &mut state.buffers, partial)?
            }
            _ => return Err(Error::internal("the state of another plan")),
        };
        work.bytes_read = self.bytes_read(group, filter.is_some(), work.rows_passed > 0);
        if state.bytes() > limits::GROUP_BYTES_MAX {
            return Err(Error::over_limit(format!(
                "the groups take {} MiB, {} MiB are allowed",
                state.bytes() >> 20,
                limits::GROUP_BYTES_MAX >> 20
            ))
            .advise("filter more, group by fewer values, or run the query without push-down"));
        }
        Ok(work)
    }

    /// Whether no row leaves before [`Plan::merge`].
    pub fn is_blocking(&self) -> bool {
        matches!(self.compiled.output, Operator::Aggregate(_))
    }

    /// Takes the states of all workers, after all row groups. Not only partial aggregations wait in them, but
    /// also rows that did not fill a batch.
    pub fn merge(&self, states: Vec<State>) -> Merge {
        let work = match &self.compiled.output {
            Operator::Rows(_) => {
                let pending = states.into_iter().filter_map(|s| match s.held {
                    Held::Rows(pending) if !pending.is_empty() => Some(Mutex::new(pending)),
                    _ => None,
                });
                MergeWork::Rows(pending.collect())
            }
            Operator::Aggregate(aggregation) => {
                let partials = states.into_iter().filter_map(|s| match s.held {
                    Held::Aggregate(partial) => Some(partial),
                    Held::Rows(_) => None,
                });
                MergeWork::Aggregate(Merging::new(aggregation, partials.collect()))
            }
        };
        Merge { plan: self.clone(), work }
    }

    fn bytes_read(&self, group: &RowGroup, filtered: bool, passed: bool) -> u64 {
        let mut read = BTreeSet::new();
        if let (Some(filter), true) = (&self.compiled.filter, filtered) {
            read.extend(filter.columns());
        }
        if passed {
            read.extend(&self.compiled.columns);
        }
        read.into_iter().map(|column: &usize| cast::u64_from(group.chunks[*column].bytes_encoded())).sum()
    }
}

fn run_rows(
    projection: &Projection,
    group: &RowGroup,
    filter: Option<&BoundFilter<'_>>,
    buffers: &mut LaneBuffers,
    pending: &mut Pending,
    emit: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
) -> Result<u64> {
    let mut passed = 0;
    for selection in batches(group, filter) {
        let selection = selection(buffers)?;
        passed += cast::u64_from(selection.count);
        if selection.count > 0 && projection.push(group, &selection, pending, emit)?.is_break() {
            return Ok(passed);
        }
    }
    // Whether the caller wants more shows at its next batch.
    let _ = projection.end_group(group, pending, emit)?;
    Ok(passed)
}

/// The selections of the batches of a row group, in order, each made when it is asked for.
pub(crate) fn batches<'a>(
    group: &'a RowGroup,
    filter: Option<&'a BoundFilter<'a>>,
) -> impl Iterator<Item = impl FnOnce(&mut LaneBuffers) -> Result<Selection> + 'a> + 'a {
    (0..group.rows).step_by(limits::BATCH_ROWS).map(move |start| {
        let all = Selection::all(start..group.rows.min(start + limits::BATCH_ROWS));
        move |buffers: &mut LaneBuffers| match filter {
            Some(filter) => filter.select(&all, buffers),
            None => Ok(all),
        }
    })
}

impl State {
    /// Bytes that the state holds.
    pub fn bytes(&self) -> usize {
        let held = match &self.held {
            Held::Rows(pending) => pending.bytes(),
            Held::Aggregate(partial) => partial.bytes(),
        };
        held + self.buffers.bytes()
    }
}

impl Merge {
    /// The number of independent tasks.
    pub fn tasks(&self) -> usize {
        match &self.work {
            MergeWork::Rows(pending) => pending.len(),
            MergeWork::Aggregate(merging) => merging.tasks(),
        }
    }

    /// Runs one task on the calling thread; several may run at once, each once.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub fn run(&self, task: usize, emit: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>) -> Result<()> {
        match (&self.plan.compiled.output, &self.work) {
            (Operator::Rows(projection), MergeWork::Rows(pending)) => {
                projection.finish(&mut pending[task].lock(), emit).map(|_| ())
            }
            (Operator::Aggregate(aggregation), MergeWork::Aggregate(merging)) => {
                merging.run(aggregation, task, emit)
            }
            _ => Err(Error::internal("the states of another plan")),
        }
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
