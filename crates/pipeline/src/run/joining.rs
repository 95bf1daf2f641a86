//! The lookups of a run: the runs of their programs, the tables that are built of these runs' results, and the rows
//! that go through the lookups.
//!
//! A run with lookups first steps the runs of their programs, and builds a table of each result; a thread that finds
//! nothing to do for one lookup turns to the next one. Then it scans. What a step has scanned of a row group is joined
//! before more of that row group is scanned: a batch at a time, by any thread.
//!
//! Invariant: no row is scanned before all tables are built, and the tables do not change afterwards.

use super::collected::{text_bytes, too_many_looked_up, views};
use super::{Morsel, Run, Step};
use crate::bound::BoundProgram;
use crate::joined::{ColumnForm, INDEX_COPIES, Joined};
use crate::pace::StepPace;
use arrow_array::{Array, ArrayRef, RecordBatch};
use farpool_columns::{Chunk, RowGroup, Table, pack_array};
use farpool_model::{Clock, Error, Expr, LookupReceipt, Result, TableName, cast, limits};
use farpool_operators::{
    BuildStep, Completion, HashKey, Lookup, LookupBuild, LookupTable, Memory, Pace, Plan, Probing, State,
    share_of_sample,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Maximum bytes of the strings of joined rows that are processed at once, unless a single row has more.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// Part of the rows of a scan from which on those that have no match are not worth a test: it costs as much as it saves where
/// a quarter of them have none, and a sample is rough.
const MOST: f64 = 0.85;

/// The lookups of a run.
pub(super) struct Joins {
    joined: Arc<Joined>,
    /// For each lookup, the run of its program.
    sides: Vec<Arc<Run>>,
    /// For each lookup, how far its table is built.
    stages: Vec<Mutex<Stage>>,
    hash_key: HashKey,
    /// For each lookup, the maximum number of bytes of its index.
    index_bytes_max: Vec<usize>,
    /// The lookups over their tables; there are some from when all tables are built until the run ends.
    lookups: Mutex<Option<Arc<Vec<Lookup>>>>,
    /// For each lookup, what its table took so far.
    usages: Vec<Usage>,
    /// Held by the thread that makes the lookups over their tables.
    completing: Mutex<()>,
    /// Plan of the scan, without most rows that have no match; set when all tables are built.
    scan: OnceLock<Scan>,
    /// Conditions that were added to the program, and the memory of its plans.
    conditions: Option<Expr>,
    memory: Memory,
}

/// The scan behind which rows are looked up.
struct Scan {
    plan: Plan,
    /// Whether no rows are looked up, because the lookups are conditions of the scan. It then makes the result.
    is_direct: bool,
    /// Plan of the upper stage with fewer group keys, and what completes its groups, if it is used.
    regrouped: Option<(Plan, Arc<Completion>)>,
}

/// The progress of the table of a lookup.
#[derive(Clone, Default)]
enum Stage {
    /// The program of the lookup runs.
    #[default]
    Running,
    Building(Arc<LookupBuild>),
    Built(Arc<LookupTable>),
    /// The table is in the lookups, or was dropped because the run has ended.
    Given,
}

/// Cost of the table of a lookup so far; the times are those of the clock.
#[derive(Default)]
struct Usage {
    begun_ns: AtomicU64,
    built_ns: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Usage {
    fn begin(&self, clock: &dyn Clock) {
        if self.begun_ns.load(Relaxed) == 0 {
            // The first of several threads is as good as any.
            self.begun_ns.store(clock.now_ns().max(1), Relaxed);
        }
    }

    fn built(&self, table: &LookupTable, now_ns: u64) {
        self.rows.store(cast::u64_from(table.rows()), Relaxed);
        self.bytes.store(cast::u64_from(table.bytes()), Relaxed);
        self.built_ns.store(now_ns, Relaxed);
    }

    fn receipt(&self, table: &TableName) -> LookupReceipt {
        LookupReceipt {
            table: table.as_str().to_string(),
            rows: self.rows.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            elapsed_ns: self.built_ns.load(Relaxed).saturating_sub(self.begun_ns.load(Relaxed)),
        }
    }
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
            stages: joined.sides.iter().map(|_| Mutex::default()).collect(),
            hash_key: program.budget().hash_key,
            index_bytes_max: collected.iter().map(|bytes| bytes.saturating_mul(INDEX_COPIES)).collect(),
            lookups: Mutex::default(),
            usages: joined.sides.iter().map(|_| Usage::default()).collect(),
            completing: Mutex::default(),
            scan: OnceLock::new(),
            conditions: program.conditions().cloned(),
            memory: program.budget().memory(),
        }))
    }

    /// Returns the plan that makes the result: of the rows behind the lookups, or of the scan if there are none to be looked
    /// up.
    pub fn plan(&self) -> &Plan {
        match self.scan.get() {
            Some(Scan { plan, is_direct: true, .. }) => plan,
            Some(Scan { regrouped: Some((plan, _)), .. }) => plan,
            _ => &self.joined.upper,
        }
    }

    /// Returns whether rows are grouped by fewer keys than the program says, and the groups completed.
    pub fn are_regrouped(&self) -> bool {
        self.scan.get().is_some_and(|scan| scan.regrouped.is_some())
    }

    /// Returns for each column behind the lookups how the plan that makes the result reads it.
    fn forms(&self) -> &[ColumnForm] {
        match self.joined.regrouped.as_ref().filter(|_| self.are_regrouped()) {
            Some(regrouped) => &regrouped.forms,
            None => &self.joined.forms,
        }
    }

    /// Returns whether rows are looked up: the tables are not built yet, or some lookup is no condition of the scan.
    pub fn looks_up(&self) -> bool {
        !self.scan.get().is_some_and(|scan| scan.is_direct)
    }

    /// Returns the runs of the lookups' programs.
    pub fn sides(&self) -> &[Arc<Run>] {
        &self.sides
    }

    /// Returns the runs of the lookups' programs, each with what its table took so far.
    pub fn receipts(&self) -> impl Iterator<Item = (&Arc<Run>, LookupReceipt)> {
        let tables = self.joined.lookups.iter().map(|lookup| &lookup.program.table);
        let usages = self.usages.iter().zip(tables).map(|(usage, table)| usage.receipt(table));
        self.sides.iter().zip(usages)
    }

    /// Returns whether no table can be worked on now, because the programs of all lookups that have none yet wait, as
    /// [`Run::waits`] says.
    pub fn wait(&self, waker: &std::task::Waker) -> bool {
        let waits = |(side, stage): (&Arc<Run>, &Mutex<Stage>)| {
            let stage = stage.lock().clone();
            match stage {
                Stage::Running => Some(side.waits(waker)),
                Stage::Building(_) => Some(false),
                Stage::Built(_) | Stage::Given => None,
            }
        };
        let mut waiting = self.sides.iter().zip(&self.stages).filter_map(waits).peekable();
        waiting.peek().is_some() && waiting.all(|waits| waits)
    }

    /// Returns whether all tables are built.
    pub fn are_built(&self) -> bool {
        self.scan.get().is_some()
    }

    /// Returns the plan of the scan; `None` before all tables are built.
    pub fn scan(&self) -> Option<&Plan> {
        self.scan.get().map(|scan| &scan.plan)
    }

    /// Takes a step towards the tables, of a program's run or of a table: of the first lookup of which no other thread
    /// does all that can be done. After the last one, `scan`, the plan of the scan and its table, is narrowed to rows
    /// that may have matches. Must not be called once all tables are built.
    ///
    /// # Errors
    /// Errors of the programs' runs, and of the lookups.
    pub fn step(&self, scan: (&Plan, &Table), clock: &dyn Clock, pace: &mut dyn Pace) -> Result<Step> {
        let mut tables = Vec::with_capacity(self.sides.len());
        for (place, side) in self.sides.iter().enumerate() {
            let stage = self.stages[place].lock().clone();
            match stage {
                Stage::Running => {
                    self.usages[place].begin(clock);
                    match side.step(clock)? {
                        Step::Busy => {}
                        Step::Done => return self.begin_building(place, scan.1),
                        step => return Ok(step),
                    }
                }
                Stage::Building(build) => match self.build(place, &build, clock, pace)? {
                    Step::Busy => {}
                    step => return Ok(step),
                },
                Stage::Built(table) => tables.push(table),
                // Another thread has completed the lookups.
                Stage::Given => return Ok(Step::Worked),
            }
        }
        if tables.len() < self.sides.len() {
            return Ok(Step::Busy);
        }
        self.complete(tables, scan)
    }

    /// Begins to build the table of the lookup at `place`, whose program's run is done.
    fn begin_building(&self, place: usize, table: &Table) -> Result<Step> {
        let mut stage = self.stages[place].lock();
        // Another thread may have been faster.
        if matches!(*stage, Stage::Running) {
            let keys: Vec<usize> = self.joined.lookups[place].keys.iter().map(|key| key.result).collect();
            let (schema, rows) = (self.sides[place].schema().clone(), self.sides[place].take_collected());
            let count = rows.iter().map(RecordBatch::num_rows).sum();
            let needs = self.joined.needs(place, count, table);
            let build = LookupBuild::new(schema, rows, &keys, self.hash_key, needs)?;
            *stage = Stage::Building(Arc::new(build));
        }
        Ok(Step::Worked)
    }

    /// Takes a step of building the table of the lookup at `place`.
    fn build(
        &self,
        place: usize,
        build: &LookupBuild,
        clock: &dyn Clock,
        pace: &mut dyn Pace,
    ) -> Result<Step> {
        let step = build.step(pace)?;
        if build.index_bytes() > self.index_bytes_max[place] {
            return Err(too_many_looked_up(self.index_bytes_max[place]));
        }
        match step {
            BuildStep::Worked => return Ok(Step::Worked),
            BuildStep::Busy => return Ok(Step::Busy),
            BuildStep::Done => {}
        }
        let now_ns = clock.now_ns();
        let mut stage = self.stages[place].lock();
        if matches!(*stage, Stage::Building(_))
            && let Some(table) = build.take()?
        {
            self.usages[place].built(&table, now_ns);
            *stage = Stage::Built(Arc::new(table));
        }
        Ok(Step::Worked)
    }

    /// Makes the lookups over their `tables`.
    fn complete(&self, tables: Vec<Arc<LookupTable>>, (scan, table): (&Plan, &Table)) -> Result<Step> {
        // No other lock is held meanwhile, because a run may be cancelled at any time.
        let Some(_completing) = self.completing.try_lock() else { return Ok(Step::Busy) };
        if self.are_built() {
            return Ok(Step::Worked);
        }
        let scan = self.narrowed(&tables, scan, table)?;
        let mut compiled: Vec<Lookup> = Vec::with_capacity(tables.len());
        for (place, table) in tables.into_iter().enumerate() {
            let row = compiled.last().map_or(&self.joined.scan_schema, Lookup::schema).clone();
            compiled.push(self.joined.compile_lookup(place, &row, table, scan.regrouped.is_some())?);
        }
        let mut lookups = self.lookups.lock();
        // The run may have ended: then nobody would drop the tables.
        if !self.stages.iter().all(|stage| matches!(*stage.lock(), Stage::Built(_))) {
            return Ok(Step::Worked);
        }
        *lookups = Some(Arc::new(compiled));
        let is_first = self.scan.set(scan).is_ok();
        assert!(is_first, "the lookups are completed once, by the thread that has the lock");
        self.stages.iter().for_each(|stage| *stage.lock() = Stage::Given);
        Ok(Step::Worked)
    }

    /// Returns the scan with the conditions that follow from the tables of the lookups.
    fn narrowed(&self, tables: &[Arc<LookupTable>], scan: &Plan, table: &Table) -> Result<Scan> {
        let direct = self.joined.direct.as_ref().filter(|_| tables.iter().all(|table| table.is_exact()));
        let direct = direct.map(|program| Plan::compile(program, table, self.memory)).transpose()?;
        let direct = direct.filter(|plan| self.fits(plan));
        let regrouped = self.joined.regrouped.as_ref().filter(|_| direct.is_none());
        let regrouped = regrouped.and_then(|regrouped| regrouped.plan(&self.joined.upper, tables));
        let regrouped = regrouped.filter(|(plan, _)| self.fits(plan));
        let mut conditions = Vec::new();
        for (place, of_lookup) in tables.iter().enumerate() {
            let Some(condition) = self.joined.condition(place, of_lookup) else { continue };
            let parts = match condition {
                Expr::And(parts) => parts,
                condition => vec![condition],
            };
            for part in parts {
                // Of an exact table, the condition is all that tells about a match.
                let pays = of_lookup.is_exact()
                    || share_of_sample(&part, table)?.is_none_or(|passing| passing < MOST);
                conditions.extend(pays.then_some(part));
            }
        }
        // The plan of the scan has the conditions that were added to the program.
        let added = self.conditions.clone().filter(|_| direct.is_some());
        conditions.extend(added);
        let conditions = Expr::all(conditions);
        let (is_direct, scan) = (direct.is_some(), direct.unwrap_or_else(|| scan.clone()));
        let plan = match conditions {
            Some(conditions) => scan.narrowed(&conditions, &table.schema)?,
            None => scan,
        };
        Ok(Scan { plan, is_direct, regrouped })
    }

    /// Returns whether the groups of `plan` fit the memory that is reserved for those of the upper stage.
    fn fits(&self, plan: &Plan) -> bool {
        match self.joined.upper.group_bytes() {
            Some(reserved) => plan.group_bytes().is_some_and(|bytes| bytes <= reserved),
            None => true,
        }
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
        let is_given = |stage: &Mutex<Stage>| matches!(*stage.lock(), Stage::Given);
        self.are_built() && self.lookups.lock().is_none() && self.stages.iter().all(is_given)
    }

    /// Returns whether the table of the lookup at `place` is being built.
    #[cfg(test)]
    pub fn is_building(&self, place: usize) -> bool {
        matches!(*self.stages[place].lock(), Stage::Building(_))
    }

    /// Drops the tables, because the run has ended.
    pub fn let_go(&self) {
        // The stages come first, so that no thread completes the lookups afterwards.
        let stages = self.stages.iter().map(|stage| std::mem::replace(&mut *stage.lock(), Stage::Given));
        drop(stages.collect::<Vec<Stage>>());
        let lookups = self.lookups.lock().take();
        drop(lookups);
        if let Some(Scan { regrouped: Some((_, completion)), .. }) = self.scan.get() {
            completion.let_go();
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
        let plan = self.scan_plan();
        let work = plan.process_part(group, progress, scanning, pace, &mut scanned)?;
        plan.flush(scanning, &mut scanned)?;
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
                for piece in pieces(&joined, joins.forms()) {
                    let group = row_group(&piece, joins.forms())?;
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

/// Divides joined rows so that the strings that the upper stage reads take few bytes in each piece. Reason: they are
/// copied, and a long string of a looked-up row may be in every joined row.
fn pieces(rows: &RecordBatch, forms: &[ColumnForm]) -> Vec<RecordBatch> {
    let columns = rows.columns().iter().zip(forms).filter(|(_, form)| **form != ColumnForm::Unread);
    let texts: Vec<&[u128]> = columns.filter_map(|(values, _)| views(values)).collect();
    let longest = |views: &&[u128]| views.iter().map(|view| text_bytes(*view)).max().unwrap_or(0);
    if texts.iter().map(longest).sum::<usize>().saturating_mul(rows.num_rows()) <= TEXT_BYTES_MAX {
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

/// Makes a row group of joined rows, whose columns have these forms.
fn row_group(rows: &RecordBatch, forms: &[ColumnForm]) -> Result<RowGroup> {
    let chunk = |(values, form): (&ArrayRef, &ColumnForm)| {
        let chunk = match form {
            ColumnForm::Unread => Chunk::of_nulls(values.data_type(), values.len()),
            ColumnForm::Values => Chunk::of_array(values),
            ColumnForm::Distinct => pack_array(values),
        };
        chunk.map(Arc::new)
    };
    let chunks = rows.columns().iter().zip(forms).map(chunk).collect::<Result<_>>()?;
    Ok(RowGroup { rows: rows.num_rows(), chunks })
}
