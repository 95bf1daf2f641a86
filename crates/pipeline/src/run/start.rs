//! Start of a run (an execution of a program): what it reads, by which plan, and the memory that it needs.

use super::joining::Joins;
use super::morsel_queue::MorselQueue;
use super::read_ahead::ReadAhead;
use super::{Phase, Run, RunOutput, RunState};
use crate::bound::{BoundProgram, Filtered};
use crate::memory_need::MemoryNeed;
use crate::pace::RowCost;
use crate::tally::Tally;
use farpool_columns::LiveRows;
use farpool_model::Result;
use farpool_operators::{Plan, Shared};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};

/// The input of a run, and the plan for it.
struct Source {
    /// Rows to read instead of those of the table; `None` except for a live table whose source of rows applies
    /// conjuncts of the filter itself.
    filtered: Option<Arc<dyn LiveRows>>,
    plan: Plan,
    columns: Vec<usize>,
}

impl Source {
    fn of(program: &BoundProgram, output: &RunOutput) -> Result<Source> {
        let filtered = match output {
            // A change of rows also needs the rows that do not pass the filter, because it re-encodes their row
            // groups.
            RunOutput::Change(_) => None,
            RunOutput::Batches | RunOutput::Shipped(_) | RunOutput::Fetched(_) | RunOutput::Collected(_) => {
                program.filtered()?
            }
        };
        let mut source = match filtered {
            Some(Filtered { rows, plan, columns }) => Source { filtered: Some(rows), plan, columns },
            None => Source {
                filtered: None,
                plan: program.plan()?,
                columns: program.columns().iter().copied().collect(),
            },
        };
        if let RunOutput::Change(row_change) = output {
            // A change also reads the columns that it replaces, for rows that keep their values.
            let columns = &mut source.columns;
            let more = row_change.columns().iter().filter(|column| !columns.contains(column)).copied();
            columns.extend(more.collect::<Vec<_>>());
        }
        Ok(source)
    }

    /// Returns the memory that the run needs outside the memory pool of the tables.
    fn need(&self, program: &BoundProgram, output: &RunOutput) -> Result<MemoryNeed> {
        let need = match program.joined() {
            None => MemoryNeed::of(program, &self.plan),
            Some(joined) => MemoryNeed::of_joined(program, joined)?,
        };
        Ok(match output {
            RunOutput::Change(row_change) => need.encoding(program.table(), row_change.columns()),
            RunOutput::Batches | RunOutput::Shipped(_) | RunOutput::Fetched(_) | RunOutput::Collected(_) => {
                need
            }
        })
    }
}

impl Run {
    /// Creates a run of `program`. Nothing is executed before the first [`Run::step`].
    ///
    /// # Errors
    /// `Invalid` when the program does not fit the table.
    pub fn start(program: &BoundProgram) -> Result<Arc<Self>> {
        Run::begin(program, RunOutput::Batches)
    }

    /// Creates a run that may return rows as [`super::Step::Encoded`].
    ///
    /// # Errors
    /// As [`Run::start`].
    pub fn start_shipping(program: &BoundProgram) -> Result<Arc<Self>> {
        let columns = match program.joined() {
            Some(_) => None,
            None => program.plan()?.plain_columns(),
        };
        let output = columns.map_or(RunOutput::Batches, RunOutput::Shipped);
        Run::begin(program, output)
    }

    /// Creates a run over all row groups.
    pub(super) fn begin(program: &BoundProgram, output: RunOutput) -> Result<Arc<Self>> {
        Run::begin_with(program, output, None)
    }

    /// Creates a run over all row groups or, if a list is given, over those with these indices.
    pub(super) fn begin_with(
        program: &BoundProgram,
        output: RunOutput,
        places: Option<Vec<usize>>,
    ) -> Result<Arc<Self>> {
        let (table, prepared) = (program.table(), program.prepared().clone());
        let source = Source::of(program, &output)?;
        let joins = Joins::of(program)?;
        let (budget, overflow) = (program.budget(), program.overflow());
        let need = source.need(program, &output)?;
        let Source { filtered, plan, columns } = source;
        let groups = || table.row_groups.iter().map(|group| &**group);
        let morsel_queue = MorselQueue::new(table, &columns, places.or_else(|| plan.favourable(groups())));
        let run = Arc::new_cyclic(|this: &Weak<Run>| Run {
            this: this.clone(),
            read_ahead: ReadAhead::new(),
            need,
            output,
            morsel_queue,
            sharing: OnceLock::new(),
            columns,
            filtered,
            plan,
            joins,
            shared: Shared::default(),
            budget,
            overflow,
            tally: Tally::default(),
            cost: RowCost::default(),
            rows_left: AtomicU64::new(prepared.effective.limit.unwrap_or(u64::MAX)),
            states: AtomicUsize::new(0),
            group_bytes: AtomicUsize::new(budget.state_bytes_max),
            threads_max: AtomicUsize::new(usize::MAX),
            threads: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            held: Mutex::new(RunState {
                phase: Phase::Scanning,
                table: Some(table.clone()),
                states: Vec::new(),
                rests: Vec::new(),
                awaited: BTreeMap::new(),
                reservation: None,
            }),
            on_change: Mutex::new(None),
            prepared,
        });
        // If there are no row groups, no completion ends the scan, so it is ended here.
        if run.morsel_queue.is_empty() {
            run.scan_complete();
        } else if run.limit_reached() {
            run.skip_unclaimed(table);
        }
        Ok(run)
    }
}
