//! The lookups of a run: the runs of their programs, the tables that are built of these runs' results, and the rows
//! that go through the lookups.
//!
//! A run with lookups first steps the runs of their programs, one after the other, and builds a table of each result.
//! Then it scans. What a step of the scan returns is joined before the scan goes on, a batch at a time, by any thread.
//!
//! Invariant: no row is scanned before all tables are built, and the tables do not change afterwards.

use super::{Morsel, Run, Step};
use crate::bound::BoundProgram;
use crate::joined::Joined;
use crate::pace::StepPace;
use arrow_array::{Array, ArrayRef, RecordBatch};
use farpool_columns::{Chunk, RowGroup, Table};
use farpool_model::{Clock, Error, Expr, Result};
use farpool_operators::{HashKey, Lookup, LookupBuild, Pace, Plan, Probing, State};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

/// The lookups of a run.
pub(super) struct Joins {
    joined: Arc<Joined>,
    /// For each lookup, the run of its program.
    sides: Vec<Arc<Run>>,
    hash_key: HashKey,
    built: Mutex<Built>,
    /// The lookups over their tables, and the plan of the scan; set when all tables are built.
    ready: OnceLock<Ready>,
}

/// The lookups of a run whose tables are built.
struct Ready {
    lookups: Vec<Lookup>,
    /// Plan of the scan, without most rows that have no match.
    scan: Plan,
}

/// The tables that are built so far.
#[derive(Default)]
struct Built {
    lookups: Vec<Lookup>,
    /// Number of lookups whose tables are built.
    count: usize,
    /// Conditions on the table that is scanned, which are true for all rows with matches.
    conditions: Vec<Expr>,
    /// The table of the next lookup, while it is built.
    current: Option<LookupBuild>,
}

/// Rows of a morsel that are scanned and not joined yet.
#[derive(Default)]
pub(super) struct Unjoined {
    scanned: VecDeque<RecordBatch>,
    /// Batches that are being joined: at index 0 one of the scan, at the next ones what the lookups before gave.
    probing: Vec<Probing>,
}

impl Unjoined {
    /// Returns whether all rows that were scanned are joined.
    pub fn is_empty(&self) -> bool {
        self.scanned.is_empty() && self.probing.is_empty()
    }
}

impl Joins {
    /// Creates the lookups of a run of `program`; `None` if it has none.
    ///
    /// # Errors
    /// Errors of [`Run::start`].
    pub fn of(program: &BoundProgram) -> Result<Option<Joins>> {
        let Some(joined) = program.joined() else { return Ok(None) };
        let bytes = joined.sides.iter().zip(joined.collected_bytes(program.budget()));
        let sides = bytes.map(|(side, bytes)| Run::start_looked_up(side, bytes)).collect::<Result<_>>()?;
        Ok(Some(Joins {
            joined: joined.clone(),
            sides,
            hash_key: program.budget().hash_key,
            built: Mutex::default(),
            ready: OnceLock::new(),
        }))
    }

    /// Returns the plan of the rows behind the lookups.
    pub fn plan(&self) -> &Plan {
        &self.joined.upper
    }

    /// Returns the runs of the lookups' programs.
    pub fn sides(&self) -> &[Arc<Run>] {
        &self.sides
    }

    /// Returns whether all tables are built.
    pub fn are_built(&self) -> bool {
        self.ready.get().is_some()
    }

    /// Returns the plan of the scan; `None` before all tables are built.
    pub fn scan(&self) -> Option<&Plan> {
        self.ready.get().map(|ready| &ready.scan)
    }

    /// Takes a step towards the tables, of a program's run or of a table. Must not be called once all are built.
    ///
    /// # Errors
    /// Errors of the programs' runs, and of the lookups.
    pub fn step(&self, scan: (&Plan, &Table), clock: &dyn Clock) -> Result<Step> {
        let next = match self.built.try_lock() {
            Some(built) if built.current.is_none() => built.count,
            Some(mut built) => return self.build(&mut built, scan),
            None => return Ok(Step::Busy),
        };
        let Some(side) = self.sides.get(next) else { return Ok(Step::Worked) };
        match side.step(clock)? {
            Step::Done => {}
            step => return Ok(step),
        }
        let Some(mut built) = self.built.try_lock() else { return Ok(Step::Busy) };
        // Another thread may have been faster.
        if built.count == next && built.current.is_none() {
            let lookup = &self.joined.lookups[next];
            let keys: Vec<usize> = lookup.keys.iter().map(|key| key.result).collect();
            let rows = side.take_collected();
            built.current = Some(LookupBuild::new(side.schema().clone(), rows, &keys, self.hash_key)?);
        }
        Ok(Step::Worked)
    }

    /// Takes a step of the table that is being built. After the last one, `scan`, the plan of the scan and its table, is
    /// narrowed to rows that may have matches.
    fn build(&self, built: &mut Built, (scan, table): (&Plan, &Table)) -> Result<Step> {
        let Some(current) = &mut built.current else { return Ok(Step::Worked) };
        if current.step()? {
            return Ok(Step::Worked);
        }
        let Some(current) = built.current.take() else { return Ok(Step::Worked) };
        let of_lookup = Arc::new(current.finish()?);
        built.conditions.extend(self.joined.condition(built.count, &of_lookup, table));
        let row = match built.lookups.last() {
            Some(before) => before.schema().clone(),
            None => self.joined.scan_schema.clone(),
        };
        built.lookups.push(self.joined.compile_lookup(built.count, &row, of_lookup)?);
        built.count += 1;
        if built.count == self.sides.len() {
            let scan = match Expr::all(std::mem::take(&mut built.conditions)) {
                Some(conditions) => scan.narrowed(&conditions, &table.schema)?,
                None => scan.clone(),
            };
            let ready = Ready { lookups: std::mem::take(&mut built.lookups), scan };
            let is_first = self.ready.set(ready).is_ok();
            assert!(is_first, "the tables of the lookups are built once");
        }
        Ok(Step::Worked)
    }

    /// Takes a step of joining rows that were scanned. It takes time in proportion to a batch.
    ///
    /// # Errors
    /// Errors of [`Lookup::next`].
    fn join(&self, unjoined: &mut Unjoined) -> Result<Joining> {
        let ready = self.ready.get().ok_or_else(|| Error::internal("rows before the tables of lookups"))?;
        let lookups = &ready.lookups;
        let Unjoined { scanned, probing } = unjoined;
        let depth = probing.len();
        let Some(top) = probing.last_mut() else {
            let Some(batch) = scanned.pop_front() else { return Ok(Joining::Done) };
            probing.push(lookups[0].probe(batch)?);
            return Ok(Joining::Worked);
        };
        match (lookups[depth - 1].next(top)?, lookups.get(depth)) {
            (Some(batch), None) if batch.num_rows() > 0 => return Ok(Joining::Rows(batch)),
            (Some(batch), Some(lookup)) if batch.num_rows() > 0 => probing.push(lookup.probe(batch)?),
            (Some(_), _) => {}
            (None, _) => drop(probing.pop()),
        }
        Ok(Joining::Worked)
    }
}

/// Outcome of a step of joining.
enum Joining {
    /// Rows behind all lookups.
    Rows(RecordBatch),
    /// There may be more rows.
    Worked,
    /// All rows that were scanned are joined.
    Done,
}

impl Run {
    /// Joins rows of a morsel and, when none of those that were scanned are left, scans further. Ends with the step.
    pub(super) fn scan_joined(
        &self,
        joins: &Joins,
        morsel: &mut Morsel,
        group: &RowGroup,
        (scanning, upper): (&mut State, &mut State),
        pace: &mut StepPace<'_>,
    ) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        let mut has_scanned = false;
        loop {
            match joins.join(&mut morsel.unjoined)? {
                Joining::Rows(rows) => {
                    let rows = row_group(&rows, joins.plan())?;
                    let work =
                        joins.plan().process(&rows, upper, &mut |batch| self.accept(batch, &mut batches))?;
                    self.tally.bypassed(work.rows_bypassed);
                }
                Joining::Worked => {}
                Joining::Done if has_scanned || morsel.progress.is_done() => return Ok(batches),
                Joining::Done => {
                    has_scanned = true;
                    let Morsel { progress, unjoined, .. } = morsel;
                    let mut scanned = |batch: RecordBatch| {
                        unjoined.scanned.push_back(batch);
                        ControlFlow::Continue(())
                    };
                    let work =
                        self.scan_plan().process_part(group, progress, scanning, pace, &mut scanned)?;
                    self.scan_plan().flush(scanning, &mut scanned)?;
                    self.tally.scanned(work.rows_in, work.bytes_read);
                }
            }
            if self.limit_reached() {
                morsel.unjoined = Unjoined::default();
                return Ok(batches);
            }
            if pace.ends() && !has_scanned {
                return Ok(batches);
            }
            self.check()?;
        }
    }
}

/// Makes a row group of joined rows, with the columns that `plan` reads.
fn row_group(rows: &RecordBatch, plan: &Plan) -> Result<RowGroup> {
    let reads =
        |column: &usize| plan.filter_columns().contains(column) || plan.output_columns().contains(column);
    let chunk = |(column, values): (usize, &ArrayRef)| {
        let chunk = match reads(&column) {
            true => Chunk::of_array(values),
            false => Chunk::of_nulls(values.data_type(), values.len()),
        };
        chunk.map(Arc::new)
    };
    let chunks = rows.columns().iter().enumerate().map(chunk).collect::<Result<_>>()?;
    Ok(RowGroup { rows: rows.num_rows(), chunks })
}
