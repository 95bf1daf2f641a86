//! The build side of a lookup: its rows, and the index by their join keys.

use super::index::{Index, Scratch};
use crate::failure;
use crate::group::{HashKey, lanes_of_array};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat;
use arrow_select::filter::filter_record_batch;
use farpool_model::{Error, Expr, KeyFilter, KeySet, Literal, Result, Value, limits, schema};
use farpool_statistics::keys;

/// Bits per key of a Bloom filter of join keys. Reason: one row in 200 without a match passes it.
const KEY_BITS: usize = 16;

/// Rows by their join keys, for [`super::Lookup`]; immutable.
pub struct LookupTable {
    index: Index,
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    /// Whether some row of the build side has a NULL in a join key. Such rows are not in the table.
    has_null_keys: bool,
    key_test: Option<KeyTest>,
}

/// A quick test of whether rows may have a match, by their join keys alone.
enum KeyTest {
    /// The keys themselves.
    Set(KeySet),
    /// A Bloom filter of their hashes.
    Filter(KeyFilter),
}

/// A lookup table that is being built, in steps. Each step takes time in proportion to one batch, except one step per
/// column, which copies the column.
pub struct LookupBuild {
    index: Index,
    schema: SchemaRef,
    keys: Vec<Vec<ArrayRef>>,
    batches: Vec<RecordBatch>,
    next: usize,
    columns: Vec<ArrayRef>,
    has_null_keys: bool,
    key_test: Option<KeyTest>,
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
    ) -> Result<LookupBuild> {
        if keys.is_empty() || keys.iter().any(|key| *key >= schema.fields().len()) {
            return Err(Error::invalid("the join keys of a lookup are no columns of its rows"));
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows >= u32::MAX as usize {
            return Err(Error::over_limit(format!("a lookup may have {} rows", u32::MAX - 1)));
        }
        let mut has_null_keys = false;
        let mut whole = Vec::with_capacity(batches.len());
        for batch in batches {
            let nulls = keys.iter().filter_map(|key| batch.column(*key).nulls()).cloned();
            let nulls = nulls.reduce(|nulls, more| both_valid(&nulls, &more));
            whole.push(match nulls.filter(|nulls| nulls.null_count() > 0) {
                None => batch,
                Some(nulls) => {
                    has_null_keys = true;
                    let valid = BooleanArray::new(nulls.into_inner(), None);
                    filter_record_batch(&batch, &valid).map_err(failure::of_kernel)?
                }
            });
        }
        let of_batch =
            |batch: &RecordBatch| keys.iter().map(|key| batch.column(*key).clone()).collect::<Vec<_>>();
        let of_keys: Vec<Vec<ArrayRef>> = whole.iter().map(of_batch).collect();
        let key_types: Vec<_> = keys.iter().map(|key| schema.field(*key).data_type().clone()).collect();
        let index = Index::new(&key_types, &of_keys, hash_key);
        Ok(LookupBuild {
            index,
            schema,
            keys: of_keys,
            batches: whole,
            next: 0,
            columns: Vec::new(),
            has_null_keys,
            key_test: None,
        })
    }

    /// Takes one step. Returns whether there are more.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub fn step(&mut self) -> Result<bool> {
        if let Some(keys) = self.keys.get(self.next) {
            self.index.insert(keys)?;
            self.next += 1;
            return Ok(true);
        }
        if !self.keys.is_empty() {
            self.key_test = key_test(&std::mem::take(&mut self.keys))?;
            return Ok(true);
        }
        let column = self.columns.len();
        if column == self.schema.fields().len() {
            return Ok(false);
        }
        let arrays: Vec<&dyn Array> = self.batches.iter().map(|batch| &**batch.column(column)).collect();
        self.columns.push(match arrays.is_empty() {
            true => arrow_array::new_empty_array(self.schema.field(column).data_type()),
            false => concat(&arrays).map_err(failure::of_kernel)?,
        });
        Ok(true)
    }

    /// Takes all steps that are left, and returns the table.
    ///
    /// # Errors
    /// Errors of [`LookupBuild::step`].
    pub fn finish(mut self) -> Result<LookupTable> {
        while self.step()? {}
        let LookupBuild { index, schema, columns, has_null_keys, key_test, .. } = self;
        Ok(LookupTable { index, schema, columns, has_null_keys, key_test })
    }

    /// Returns the bytes of memory that the index takes so far.
    pub fn index_bytes(&self) -> usize {
        self.index.bytes()
    }
}

impl LookupTable {
    /// Returns the number of rows whose join keys are not NULL.
    pub fn rows(&self) -> usize {
        self.index.rows()
    }

    /// Returns a condition on the join keys `keys` of other rows, which is true for every row with a match, and for few
    /// others; `None` if there are too many keys for a small one. It never fails.
    pub fn condition(&self, keys: Vec<Expr>) -> Option<Expr> {
        if self.rows() == 0 {
            return Literal::new(Value::Bool(false), DataType::Boolean).ok().map(Expr::Literal);
        }
        match (self.key_test.as_ref()?, &keys[..]) {
            (KeyTest::Set(set), [key]) => Some(Expr::InSet(Box::new(key.clone()), set.clone())),
            (KeyTest::Set(_), _) => None,
            (KeyTest::Filter(filter), _) => Some(Expr::InFilter(keys, filter.clone())),
        }
    }

    /// Returns the bytes of memory that the table takes.
    pub fn bytes(&self) -> usize {
        self.index.bytes() + bytes_of(&self.columns)
    }

    /// Returns the schema of the rows.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the columns of the rows.
    pub(super) fn columns(&self) -> &[ArrayRef] {
        &self.columns
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// Returns whether the build side has no rows, not even some with NULL keys.
    pub(super) fn is_empty(&self) -> bool {
        self.rows() == 0 && !self.has_null_keys
    }

    pub(super) fn has_null_keys(&self) -> bool {
        self.has_null_keys
    }

    /// Replaces `found` by the last row with each of these keys; see [`Index::find`].
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn find(&self, keys: &[ArrayRef], found: &mut Vec<u32>) -> Result<()> {
        self.index.find(keys, &mut Scratch::default(), found)
    }
}

fn bytes_of(columns: &[ArrayRef]) -> usize {
    columns.iter().map(|column| column.get_array_memory_size()).sum()
}

fn both_valid(left: &NullBuffer, right: &NullBuffer) -> NullBuffer {
    NullBuffer::new(left.inner() & right.inner())
}

/// Returns a test of these join keys, given by batches with an array per key; `None` if they are too many for a small
/// one, or of types without a hash.
///
/// # Errors
/// Fails only on a bug in this crate.
fn key_test(batches: &[Vec<ArrayRef>]) -> Result<Option<KeyTest>> {
    let Some(first) = batches.first() else { return Ok(None) };
    if let [only] = &first[..]
        && schema::is_integer_like(only.data_type())
        // Values of these types need not fit a signed word.
        && !matches!(only.data_type(), DataType::Decimal128(..) | DataType::UInt64)
    {
        let mut keys = Vec::new();
        for batch in batches {
            keys.extend(lanes_of_array(&batch[0])?);
        }
        if let Some(set) = KeySet::new(&keys) {
            return Ok(Some(KeyTest::Set(set)));
        }
    }
    let has_hash =
        |key: &ArrayRef| schema::is_integer_like(key.data_type()) || schema::is_bytes(key.data_type());
    let rows: usize = batches.iter().map(|keys| keys[0].len()).sum();
    if !first.iter().all(has_hash) || rows > limits::KEY_SET_BYTES_MAX * 8 / KEY_BITS {
        return Ok(None);
    }
    let mut hashes = Vec::with_capacity(rows);
    for keys in batches {
        hashes.extend(keys::of_rows(keys)?);
    }
    Ok(KeyFilter::new(hashes, KEY_BITS).map(KeyTest::Filter))
}
