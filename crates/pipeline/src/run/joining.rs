//! The lookups of a run: the runs of their programs, the tables that are built of these runs' results, and the rows
//! that go through the lookups.
//!
//! A run with lookups first steps the runs of their programs, one after the other, and builds a table of each result.
//! Then it scans. What a step has scanned of a row group is joined before more of that row group is scanned: a batch at a
//! time, by any thread.
//!
//! Invariant: no row is scanned before all tables are built, and the tables do not change afterwards.

use super::collected::{text_bytes, too_many_looked_up, views};
use super::{Morsel, Run, Step};
use crate::bound::BoundProgram;
use crate::joined::{INDEX_COPIES, Joined};
use crate::pace::StepPace;
use arrow_array::{Array, ArrayRef, RecordBatch};
use farpool_columns::{Chunk, RowGroup, Table};
use farpool_model::{Clock, Error, Expr, Result, limits};
use farpool_operators::{HashKey, Lookup, LookupBuild, Pace, Plan, Probing, State};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

/// Maximum bytes of the strings of joined rows that are processed at once, unless a single row has more.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// The lookups of a run.
pub(super) struct Joins {
    joined: Arc<Joined>,
    /// For each lookup, the run of its program.
    sides: Vec<Arc<Run>>,
    hash_key: HashKey,
    /// For each lookup, the maximum number of bytes of its index.
    index_bytes_max: Vec<usize>,
    built: Mutex<Built>,
    /// The lookups over their tables; there are some from when all tables are built until the run ends.
    lookups: Mutex<Option<Arc<Vec<Lookup>>>>,
    /// Plan of the scan, without most rows that have no match; set when all tables are built.
    scan: OnceLock<Plan>,
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
        let collected: Vec<usize> = joined.collected_bytes(program.budget()).collect();
        let bytes = joined.sides.iter().zip(collected.iter().copied());
        let sides = bytes.map(|(side, bytes)| Run::start_looked_up(side, bytes)).collect::<Result<_>>()?;
        Ok(Some(Joins {
            joined: joined.clone(),
            sides,
            hash_key: program.budget().hash_key,
            index_bytes_max: collected.iter().map(|bytes| bytes.saturating_mul(INDEX_COPIES)).collect(),
            built: Mutex::default(),
            lookups: Mutex::default(),
            scan: OnceLock::new(),
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

    /// Returns the run whose result the next table is built of; `None` while a table is built, and when all are.
    pub fn side_in_progress(&self) -> Option<&Arc<Run>> {
        if self.are_built() {
            return None;
        }
        let built = self.built.try_lock()?;
        self.sides.get(built.count).filter(|_| built.current.is_none())
    }

    /// Returns whether all tables are built.
    pub fn are_built(&self) -> bool {
        self.scan.get().is_some()
    }

    /// Returns the plan of the scan; `None` before all tables are built.
    pub fn scan(&self) -> Option<&Plan> {
        self.scan.get()
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
        let is_built = !current.step()?;
        if current.index_bytes() > self.index_bytes_max[built.count] {
            return Err(too_many_looked_up(self.index_bytes_max[built.count]));
        }
        if !is_built {
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
            *self.lookups.lock() = Some(Arc::new(std::mem::take(&mut built.lookups)));
            let is_first = self.scan.set(scan).is_ok();
            assert!(is_first, "the tables of the lookups are built once");
        }
        Ok(Step::Worked)
    }

    /// Takes a step of joining rows that were scanned, which takes time in proportion to a batch. Returns rows behind all
    /// lookups; `None` if there are none yet.
    ///
    /// # Errors
    /// Errors of [`Lookup::next`]; `Cancelled` if the run has ended.
    fn join(&self, unjoined: &mut Unjoined) -> Result<Option<RecordBatch>> {
        let lookups = self.lookups.lock().clone().ok_or_else(Error::cancelled)?;
        let Unjoined { scanned, probing } = unjoined;
        let depth = probing.len();
        let Some(top) = probing.last_mut() else {
            let first = scanned.pop_front().map(|batch| lookups[0].probe(batch)).transpose()?;
            probing.extend(first);
            return Ok(None);
        };
        match (lookups[depth - 1].next(top)?, lookups.get(depth)) {
            (Some(batch), None) if batch.num_rows() > 0 => return Ok(Some(batch)),
            (Some(batch), Some(lookup)) if batch.num_rows() > 0 => probing.push(lookup.probe(batch)?),
            (Some(_), _) => {}
            (None, _) => drop(probing.pop()),
        }
        Ok(None)
    }

    /// Returns whether there are no tables, because the run has ended.
    #[cfg(test)]
    pub fn are_dropped(&self) -> bool {
        self.are_built() && self.lookups.lock().is_none() && self.built.lock().lookups.is_empty()
    }

    /// Drops the tables, because the run has ended.
    pub fn let_go(&self) {
        let lookups = self.lookups.lock().take();
        drop(lookups);
        // Whoever is building at present drops what it builds with the run.
        if let Some(mut built) = self.built.try_lock() {
            *built = Built { count: self.sides.len(), ..Built::default() };
        }
    }
}

impl Run {
    /// Scans further rows of a morsel, all of whose rows so far are joined, and joins them as far as the step allows.
    pub(super) fn scan_joined(
        &self,
        joins: &Joins,
        morsel: &mut Morsel,
        group: &RowGroup,
        (scanning, upper): (&mut State, &mut State),
        pace: &mut StepPace<'_>,
    ) -> Result<Vec<RecordBatch>> {
        let Morsel { progress, unjoined, .. } = &mut *morsel;
        let mut scanned = |batch: RecordBatch| {
            let firsts = (0..batch.num_rows()).step_by(limits::BATCH_ROWS);
            let piece = |first: usize| batch.slice(first, limits::BATCH_ROWS.min(batch.num_rows() - first));
            unjoined.scanned.extend(firsts.map(piece));
            ControlFlow::Continue(())
        };
        let work = self.scan_plan().process_part(group, progress, scanning, pace, &mut scanned)?;
        self.scan_plan().flush(scanning, &mut scanned)?;
        self.tally.scanned(work.rows_in, work.bytes_read);
        self.join_rows(joins, &mut morsel.unjoined, upper, pace)
    }

    /// Joins rows that were scanned, as far as the step allows, but at least a batch.
    pub(super) fn join_rows(
        &self,
        joins: &Joins,
        unjoined: &mut Unjoined,
        upper: &mut State,
        pace: &mut StepPace<'_>,
    ) -> Result<Vec<RecordBatch>> {
        let (mut batches, mut rows) = (Vec::new(), 0);
        while !unjoined.is_empty() {
            self.check()?;
            if let Some(joined) = joins.join(unjoined)? {
                for piece in pieces(&joined, joins.plan()) {
                    let group = row_group(&piece, joins.plan())?;
                    let mut accept = |batch: RecordBatch| {
                        rows += batch.num_rows();
                        self.accept(batch, &mut batches)
                    };
                    let work = joins.plan().process(&group, upper, &mut accept)?;
                    self.tally.bypassed(work.rows_bypassed);
                }
            }
            if self.limit_reached() {
                *unjoined = Unjoined::default();
            }
            // Results are given before there are many, so that a join with many matches waits for its reader.
            if pace.ends() || rows >= limits::BATCH_ROWS {
                break;
            }
        }
        Ok(batches)
    }
}

/// Divides joined rows so that the strings that `plan` reads take few bytes in each piece. Reason: they are copied, and a
/// long string of a looked-up row may be in every joined row.
fn pieces(rows: &RecordBatch, plan: &Plan) -> Vec<RecordBatch> {
    let columns = rows.columns().iter().enumerate();
    let texts: Vec<&[u128]> =
        columns.filter(|(column, _)| reads(plan, *column)).filter_map(|(_, values)| views(values)).collect();
    if texts.is_empty() {
        return vec![rows.clone()];
    }
    let (mut pieces, mut first, mut bytes) = (Vec::new(), 0, 0);
    for row in 0..rows.num_rows() {
        let of_row: usize = texts.iter().map(|views| text_bytes(views[row])).sum();
        if bytes + of_row > TEXT_BYTES_MAX && row > first {
            pieces.push(rows.slice(first, row - first));
            (first, bytes) = (row, 0);
        }
        bytes += of_row;
    }
    if first < rows.num_rows() {
        pieces.push(rows.slice(first, rows.num_rows() - first));
    }
    pieces
}

/// Returns whether `plan` reads a column.
fn reads(plan: &Plan, column: usize) -> bool {
    plan.filter_columns().contains(&column) || plan.output_columns().contains(&column)
}

/// Makes a row group of joined rows, with the columns that `plan` reads.
fn row_group(rows: &RecordBatch, plan: &Plan) -> Result<RowGroup> {
    let chunk = |(column, values): (usize, &ArrayRef)| {
        let chunk = match reads(plan, column) {
            true => Chunk::of_array(values),
            false => Chunk::of_nulls(values.data_type(), values.len()),
        };
        chunk.map(Arc::new)
    };
    let chunks = rows.columns().iter().enumerate().map(chunk).collect::<Result<_>>()?;
    Ok(RowGroup { rows: rows.num_rows(), chunks })
}
