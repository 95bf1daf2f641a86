//! The build side of a lookup: its rows, and the index by their join keys.

use super::column::ColumnCopy;
use super::hashed::HashedBuild;
use super::index::{Index, KeyRanges, Scratch};
use super::part::{Claim, Part};
use crate::failure;
use crate::group::{HashKey, lanes_of_array};
use crate::pace::{Pace, Unpaced};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, SchemaRef};
use arrow_select::filter::filter_record_batch;
use farpool_model::key_filter::KeyFilterBuilder;
use farpool_model::key_set::KeySetBuilder;
use farpool_model::{Error, Expr, KeyFilter, KeySet, Literal, Result, Value, limits, schema};
use farpool_statistics::keys;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bits per key of a Bloom filter of join keys, and the fewest if there are many. Reason: one row in 200 without a match
/// passes it, and one in 20.
const KEY_BITS: usize = 16;
const KEY_BITS_LEAST: usize = 8;

/// Maximum bytes of a set of join keys for each row, beside an index, and in place of one. Reason: an index by the hashes of
/// keys takes 16 bytes a row and more.
const SET_BYTES_PER_ROW: usize = 4;
const ONLY_SET_BYTES_PER_ROW: usize = 16;

/// Knowledge that a lookup needs of the rows of its build side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The matches of each row.
    Matches,
    /// Also a condition that few rows without a match pass, if one is possible.
    MatchesAndCondition,
    /// Whether a row has a match, by a condition alone if one is possible that is true for exactly these rows. Otherwise
    /// as [`Needs::MatchesAndCondition`].
    Existence {
        /// Whether a row must not have several matches for that.
        once: bool,
    },
}

/// Rows by their join keys, for [`super::Lookup`]; immutable.
pub struct LookupTable {
    rows: usize,
    /// The index; `None` if the test of keys is all that is needed.
    index: Option<Index>,
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    /// Positions of the join keys among the columns.
    keys: Vec<usize>,
    /// Whether some row of the build side has a NULL in a join key. Such rows are not in the table.
    has_null_keys: bool,
    key_test: Option<KeyTest>,
}

/// A quick test of whether rows may have a match, by their join keys alone.
enum KeyTest {
    /// The keys themselves.
    Set(KeySet),
    /// A Bloom filter of their hashes; and of several keys the values of each, where these are close together, which are
    /// quicker to test.
    Filter(KeyFilter, Vec<Option<KeySet>>),
}

/// A lookup table that is being built, in steps, by any number of threads. A step ends soon after its pace does, except
/// that a column of strings is copied in one step, and a set of keys is counted and moved in one step at its end.
///
/// First, rows without a key are dropped and the range of the keys is found, by one thread. Then the test of keys, the
/// index, and each column are independent tasks. If the test may be all that is needed, the others wait for it.
pub struct LookupBuild {
    schema: SchemaRef,
    keys: Vec<usize>,
    hash_key: HashKey,
    needs: Needs,
    preparation: Mutex<Preparation>,
    rows: OnceLock<Rows>,
    /// Whether the test of keys is all that is needed; set when that is known.
    is_exact: OnceLock<bool>,
    /// One task for the test of keys, one for the index, and one for each column.
    tasks: Vec<Part<Task>>,
    /// The hash table that is the index, if one is; set before the rows are.
    hashed: OnceLock<HashedBuild>,
    /// Bytes of the index, and those of a set of join keys beyond what a set may always have.
    index_bytes: AtomicUsize,
    set_bytes: AtomicUsize,
}

/// Outcome of a step of a [`LookupBuild`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStep {
    /// Something was done; there may be more to do.
    Worked,
    /// Other threads are doing all that can be done now.
    Busy,
    /// The table can be taken.
    Done,
}

/// The rows of the build side, of which some may still have NULLs in their keys.
struct Preparation {
    left: std::vec::IntoIter<RecordBatch>,
    ranges: KeyRanges,
    rows: Rows,
}

/// The rows of the build side whose keys are not NULL.
#[derive(Default)]
struct Rows {
    batches: Vec<RecordBatch>,
    /// For each batch, an array for every join key.
    keys: Vec<Vec<ArrayRef>>,
    count: usize,
    has_null_keys: bool,
}

/// A part of the table that is built independently of the others.
enum Task {
    /// The preparation is not done.
    Waiting,
    Index(Box<Index>),
    /// The index is a hash table, which is built apart.
    Hashed,
    /// Adds the keys of the batches from this number on.
    Test(TestBuilder, usize),
    Tested(Option<KeyTest>),
    Column(ColumnCopy),
    Taken,
}

/// A test of keys that is being built.
enum TestBuilder {
    Set(KeySetBuilder),
    Filter(KeyFilterBuilder, Vec<Option<KeySetBuilder>>),
    None,
}

impl LookupBuild {
    /// Begins to build a table of the rows of `batches`, which have the schema `schema`; `keys` are the positions of
    /// the join keys.
    ///
    /// # Errors
    /// `Invalid` without join keys or if there is no such column; `OverLimit` for 2^32 rows and more.
    pub fn new(
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        keys: &[usize],
        hash_key: HashKey,
        needs: Needs,
    ) -> Result<LookupBuild> {
        if keys.is_empty() || keys.iter().any(|key| *key >= schema.fields().len()) {
            return Err(Error::invalid("the join keys of a lookup are no columns of its rows"));
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows >= u32::MAX as usize {
            return Err(Error::over_limit(format!("a lookup may have {} rows", u32::MAX - 1)));
        }
        let types = keys.iter().map(|key| schema.field(*key).data_type().clone()).collect();
        let tasks = 2 + schema.fields().len();
        Ok(LookupBuild {
            schema,
            keys: keys.to_vec(),
            hash_key,
            needs,
            preparation: Mutex::new(Preparation {
                left: batches.into_iter().flat_map(pieces).collect::<Vec<RecordBatch>>().into_iter(),
                ranges: KeyRanges::new(types),
                rows: Rows::default(),
            }),
            rows: OnceLock::new(),
            is_exact: OnceLock::new(),
            tasks: (0..tasks).map(|_| Part::new(Task::Waiting)).collect(),
            hashed: OnceLock::new(),
            index_bytes: AtomicUsize::new(0),
            set_bytes: AtomicUsize::new(0),
        })
    }

    /// Takes one step, which ends soon after `pace` does.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub fn step(&self, pace: &mut dyn Pace) -> Result<BuildStep> {
        let Some(rows) = self.rows.get() else { return self.prepare(pace) };
        if self.is_exact.get().is_none() {
            return self.test(rows, pace);
        }
        let mut step = BuildStep::Done;
        for part in self.open_tasks() {
            match part.claim() {
                Claim::Mine(mut task) => {
                    task.advance(rows, pace)?;
                    if task.is_done(rows) {
                        part.finish();
                    }
                    if let Task::Index(index) = &*task {
                        self.index_bytes.store(index.bytes(), Ordering::Relaxed);
                    }
                    return Ok(BuildStep::Worked);
                }
                Claim::Busy => step = BuildStep::Busy,
                Claim::Done => {}
            }
        }
        match (self.is_exact.get(), self.hashed.get()) {
            (Some(false), Some(hashed)) => match hashed.step(&rows.keys, pace)? {
                BuildStep::Done => Ok(step),
                step => Ok(step),
            },
            _ => Ok(step),
        }
    }

    /// Returns the tasks that make what is needed.
    fn open_tasks(&self) -> &[Part<Task>] {
        if self.is_exact.get() == Some(&true) { &self.tasks[..1] } else { &self.tasks }
    }

    /// Goes on with the test of keys, which may be all that is needed.
    fn test(&self, rows: &Rows, pace: &mut dyn Pace) -> Result<BuildStep> {
        let Claim::Mine(mut task) = self.tasks[0].claim() else { return Ok(BuildStep::Busy) };
        task.advance(rows, pace)?;
        if task.is_done(rows)
            && let Task::Test(test, _) = &mut *task
        {
            let test = std::mem::replace(test, TestBuilder::None).finish();
            let is_exact = match (&test, self.needs) {
                _ if rows.count == 0 => true,
                (Some(KeyTest::Set(set)), Needs::Existence { once }) => {
                    !once || set.count() == rows.count as u64
                }
                _ => false,
            };
            *task = Task::Tested(test);
            let is_first = self.is_exact.set(is_exact).is_ok();
            assert!(is_first, "a test is completed once, by the thread that has the lock");
            self.tasks[0].finish();
        }
        Ok(BuildStep::Worked)
    }

    /// Drops rows with NULLs in their keys, and finds the range of the keys.
    fn prepare(&self, pace: &mut dyn Pace) -> Result<BuildStep> {
        let Some(mut preparation) = self.preparation.try_lock() else { return Ok(BuildStep::Busy) };
        let Preparation { left, ranges, rows } = &mut *preparation;
        for batch in left {
            rows.add(batch, &self.keys, ranges)?;
            if pace.ends() {
                return Ok(BuildStep::Worked);
            }
        }
        // Another thread may have been faster.
        if self.rows.get().is_none() {
            let rows = std::mem::take(rows);
            let test = TestBuilder::new(ranges, rows.count, self.needs);
            if let TestBuilder::Set(set) = &test {
                let more = set.bytes().saturating_sub(limits::KEY_SET_BYTES_MAX);
                self.set_bytes.store(more, Ordering::Relaxed);
            }
            if !matches!(self.needs, Needs::Existence { .. }) {
                let is_first = self.is_exact.set(false).is_ok();
                assert!(is_first, "no test is completed before the rows are prepared");
            }
            let index = Index::new(ranges, rows.count);
            if index.is_none() {
                let is_first = self.hashed.set(HashedBuild::new(self.hash_key, &rows.keys)).is_ok();
                assert!(is_first, "the index is begun once, by the thread that has the lock");
            }
            let fields = self.schema.fields().iter().enumerate();
            let columns = fields
                .map(|(column, field)| Task::Column(ColumnCopy::new(column, field.data_type(), rows.count)));
            let tasks =
                [Task::Test(test, 0), index.map_or(Task::Hashed, |index| Task::Index(Box::new(index)))]
                    .into_iter()
                    .chain(columns);
            for (place, task) in self.tasks.iter().zip(tasks) {
                // A test without keys is still to be completed, if that tells what is needed.
                if task.is_done(&rows) && (self.is_exact.get().is_some() || !matches!(task, Task::Test(..))) {
                    place.finish();
                }
                *place.work() = task;
            }
            let is_first = self.rows.set(rows).is_ok();
            assert!(is_first, "rows are prepared once, by the thread that has the lock");
        }
        Ok(BuildStep::Worked)
    }

    /// Returns the table, after a step was [`BuildStep::Done`]; `None` if it was returned before.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub fn take(&self) -> Result<Option<LookupTable>> {
        let (mut index, mut key_test, mut columns) = (None, None, Vec::new());
        for task in self.open_tasks() {
            match std::mem::replace(&mut *task.work(), Task::Taken) {
                Task::Index(built) => index = Some(*built),
                Task::Hashed => {
                    index = Some(Index::of_table(self.hashed.get().ok_or_else(not_built)?.take()?));
                }
                Task::Test(built, _) => key_test = built.finish(),
                Task::Tested(test) => key_test = test,
                Task::Column(copy) => columns.push(copy.finish().ok_or_else(not_built)?),
                Task::Taken => return Ok(None),
                Task::Waiting => return Err(not_built()),
            }
        }
        let rows = self.rows.get().ok_or_else(not_built)?;
        let (schema, keys) = (self.schema.clone(), self.keys.clone());
        let (rows, has_null_keys) = (rows.count, rows.has_null_keys);
        Ok(Some(LookupTable { rows, index, schema, columns, keys, has_null_keys, key_test }))
    }

    /// Takes all steps that are left, and returns the table.
    ///
    /// # Errors
    /// Errors of [`LookupBuild::step`].
    pub fn finish(self) -> Result<LookupTable> {
        while self.step(&mut Unpaced)? != BuildStep::Done {}
        self.take()?.ok_or_else(|| Error::internal("a lookup table is taken twice"))
    }

    /// Returns the bytes of memory that the index takes so far, and a large set of join keys.
    pub fn index_bytes(&self) -> usize {
        let of_table = self.hashed.get().map_or(0, HashedBuild::bytes);
        of_table + self.index_bytes.load(Ordering::Relaxed) + self.set_bytes.load(Ordering::Relaxed)
    }
}

impl Rows {
    /// Adds the rows of a batch whose keys are not NULL, and notes their keys in `ranges`.
    fn add(&mut self, batch: RecordBatch, keys: &[usize], ranges: &mut KeyRanges) -> Result<()> {
        let nulls = keys.iter().filter_map(|key| batch.column(*key).nulls()).cloned();
        let nulls = nulls.reduce(|nulls, more| both_valid(&nulls, &more));
        let batch = match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => batch,
            Some(nulls) => {
                self.has_null_keys = true;
                let valid = BooleanArray::new(nulls.into_inner(), None);
                filter_record_batch(&batch, &valid).map_err(failure::of_kernel)?
            }
        };
        let keys: Vec<ArrayRef> = keys.iter().map(|key| batch.column(*key).clone()).collect();
        ranges.add(&keys);
        self.count += batch.num_rows();
        self.keys.push(keys);
        self.batches.push(batch);
        Ok(())
    }
}

impl Task {
    /// Goes on with the task until it is done, or `pace` ends.
    fn advance(&mut self, rows: &Rows, pace: &mut dyn Pace) -> Result<()> {
        match self {
            Task::Index(index) => index.advance(&rows.keys, pace),
            Task::Test(TestBuilder::None, _) => Ok(()),
            Task::Test(test, next) => {
                while let Some(keys) = rows.keys.get(*next) {
                    test.add(keys)?;
                    *next += 1;
                    if pace.ends() {
                        break;
                    }
                }
                Ok(())
            }
            Task::Column(copy) => copy.advance(&rows.batches, pace),
            Task::Waiting | Task::Hashed | Task::Tested(_) | Task::Taken => Ok(()),
        }
    }

    /// Returns whether nothing is left to be done.
    fn is_done(&self, rows: &Rows) -> bool {
        match self {
            Task::Index(index) => index.is_done(),
            Task::Test(test, next) => *next == rows.keys.len() || matches!(test, TestBuilder::None),
            Task::Column(copy) => copy.is_done(),
            Task::Waiting => false,
            Task::Hashed | Task::Tested(_) | Task::Taken => true,
        }
    }
}

impl TestBuilder {
    /// Begins the test of `rows` keys; of no keys if none is needed, they are too many for a small one, or they are of
    /// types without a hash.
    fn new(ranges: &KeyRanges, rows: usize, needs: Needs) -> TestBuilder {
        let per_row = match needs {
            Needs::Matches => return TestBuilder::None,
            // If a key has several rows, an index is built as well.
            Needs::MatchesAndCondition | Needs::Existence { once: true } => SET_BYTES_PER_ROW,
            Needs::Existence { once: false } => ONLY_SET_BYTES_PER_ROW,
        };
        let of_rows = rows.saturating_mul(per_row).min(limits::LOOKUP_SET_BYTES_MAX);
        let bytes_max = of_rows.max(limits::KEY_SET_BYTES_MAX);
        let set = |key: usize, bytes_max: usize| {
            let of_type = &ranges.types()[key];
            // Values of these types need not fit a signed word.
            let is_word = schema::is_integer_like(of_type)
                && !matches!(of_type, DataType::Decimal128(..) | DataType::UInt64);
            let (first, last) = ranges.of(key).filter(|_| is_word)?;
            KeySetBuilder::within(first, last, bytes_max)
        };
        let count = ranges.types().len();
        if count == 1
            && let Some(set) = set(0, bytes_max)
        {
            return TestBuilder::Set(set);
        }
        let has_hash = |key: &DataType| schema::is_integer_like(key) || schema::is_bytes(key);
        match ranges.types().iter().all(has_hash) {
            true => {
                let room = limits::KEY_SET_BYTES_MAX * 8 / rows.max(1);
                let bits = KEY_BITS.min(room);
                let filter = (bits >= KEY_BITS_LEAST).then(|| KeyFilterBuilder::new(rows, bits)).flatten();
                let of_several = if count > 1 { 0..count } else { 0..0 };
                let sets = of_several.map(|key| set(key, limits::KEY_SET_BYTES_MAX / count)).collect();
                filter.map_or(TestBuilder::None, |filter| TestBuilder::Filter(filter, sets))
            }
            false => TestBuilder::None,
        }
    }

    fn add(&mut self, keys: &[ArrayRef]) -> Result<()> {
        match self {
            TestBuilder::Set(set) => keys.iter().try_for_each(|key| {
                set.insert(&lanes_of_array(key)?);
                Ok(())
            }),
            TestBuilder::Filter(filter, sets) => {
                filter.insert(&keys::of_rows(keys)?);
                let sets = sets.iter_mut().zip(keys).filter_map(|(set, key)| Some((set.as_mut()?, key)));
                sets.into_iter().try_for_each(|(set, key)| {
                    set.insert(&lanes_of_array(key)?);
                    Ok(())
                })
            }
            TestBuilder::None => Ok(()),
        }
    }

    fn finish(self) -> Option<KeyTest> {
        match self {
            TestBuilder::Set(set) => set.finish().map(KeyTest::Set),
            TestBuilder::Filter(filter, sets) => {
                let sets = sets.into_iter().map(|set| set.and_then(KeySetBuilder::finish));
                Some(KeyTest::Filter(filter.finish(), sets.collect()))
            }
            TestBuilder::None => None,
        }
    }
}

impl LookupTable {
    /// Returns the number of rows whose join keys are not NULL.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns whether [`LookupTable::condition`] is true for exactly the rows with a match, so that the table has nothing
    /// else. A [`super::Lookup`] then takes rows for which that was tested.
    pub fn is_exact(&self) -> bool {
        self.index.is_none()
    }

    /// Returns a condition on the join keys `keys` of other rows, which is true for every row with a match, and for few
    /// others; `None` if there are too many keys for a small one. It never fails. Where a key is NULL, it is not true. If it
    /// is an AND, each part may be left out.
    pub fn condition(&self, keys: Vec<Expr>) -> Option<Expr> {
        if self.rows() == 0 {
            return Literal::new(Value::Bool(false), DataType::Boolean).ok().map(Expr::Literal);
        }
        match (self.key_test.as_ref()?, &keys[..]) {
            (KeyTest::Set(set), [key]) => Some(Expr::InSet(Box::new(key.clone()), set.clone())),
            (KeyTest::Set(_), _) => None,
            (KeyTest::Filter(filter, sets), _) => {
                let of_set = |(key, set): (&Expr, &Option<KeySet>)| {
                    Some(Expr::InSet(Box::new(key.clone()), set.clone()?))
                };
                let of_sets = keys.iter().zip(sets).filter_map(of_set);
                Expr::all(of_sets.chain([Expr::InFilter(keys.clone(), filter.clone())]).collect())
            }
        }
    }

    /// Returns the bytes of memory that the table takes.
    pub fn bytes(&self) -> usize {
        let sets = match &self.key_test {
            Some(KeyTest::Set(set)) => set.bitmap_bytes(),
            Some(KeyTest::Filter(_, sets)) => sets.iter().flatten().map(KeySet::bitmap_bytes).sum(),
            None => 0,
        };
        self.index.as_ref().map_or(0, Index::bytes) + sets + bytes_of(&self.columns)
    }

    /// Returns the schema of the rows.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the columns of the rows.
    pub(super) fn columns(&self) -> &[ArrayRef] {
        &self.columns
    }

    /// Returns the index; `None` if the table is exact.
    pub(super) fn index(&self) -> Option<&Index> {
        self.index.as_ref()
    }

    /// Returns whether no two rows have equal join keys, and rows can be looked up by them.
    pub fn is_unique(&self) -> bool {
        self.index.as_ref().is_some_and(Index::is_unique)
    }

    /// Returns whether the build side has no rows, not even some with NULL keys.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0 && !self.has_null_keys
    }

    /// Returns whether some row of the build side has a NULL in a join key.
    pub fn has_null_keys(&self) -> bool {
        self.has_null_keys
    }

    /// Replaces `found` by the last row with each of these keys; see [`Index::find`].
    ///
    /// # Errors
    /// Fails only on a bug in this crate, or if the table is exact.
    pub(super) fn find(&self, keys: &[ArrayRef], found: &mut Vec<u32>) -> Result<()> {
        let index = self.index.as_ref().ok_or_else(|| Error::internal("an exact table has no index"))?;
        let columns: Vec<&ArrayRef> = self.keys.iter().map(|key| &self.columns[*key]).collect();
        index.find(keys, &columns, &mut Scratch::default(), found)
    }
}

/// Divides a batch into those of at most [`limits::BATCH_ROWS`] rows.
fn pieces(batch: RecordBatch) -> Vec<RecordBatch> {
    let rows = batch.num_rows();
    if rows <= limits::BATCH_ROWS {
        return vec![batch];
    }
    let firsts = (0..rows).step_by(limits::BATCH_ROWS);
    firsts.map(|first| batch.slice(first, limits::BATCH_ROWS.min(rows - first))).collect()
}

fn not_built() -> Error {
    Error::internal("a lookup table is taken before it is built")
}

fn bytes_of(columns: &[ArrayRef]) -> usize {
    columns.iter().map(|column| column.get_array_memory_size()).sum()
}

fn both_valid(left: &NullBuffer, right: &NullBuffer) -> NullBuffer {
    NullBuffer::new(left.inner() & right.inner())
}
