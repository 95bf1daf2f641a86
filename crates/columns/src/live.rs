//! Tables whose rows change during reads: each row group is generated from the current rows on demand.
//!
//! Programs are compiled against *stand-ins*: chunks without values and bounds, whose sizes are upper bounds. The
//! actual bounds and numbers of NULLs are those of the generated row group.

use crate::body::{Body, EncodingKind};
use crate::chunk::{Chunk, RowGroup};
use crate::distinct::Distinct;
use crate::encode::{check_rows, encode_as_is, fixed_bytes};
use crate::outline::Outline;
use crate::residence::{HeldValues, ValueReader, ValueSource, not_in_memory};
use crate::row_groups::RowGroups;
use crate::strings;
use crate::sums::Sums;
use crate::table::Table;
use crate::zone::ZoneMap;
use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::{DataType, SchemaRef};
use farpool_model::literal::integer_range;
use farpool_model::{Expr, Result, TenantName, schema};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Rows that are made into row groups when these are wanted. They are those of one moment: a row group has the same
/// rows whenever it is made.
pub trait LiveRows: Any + fmt::Debug + Send + Sync {
    /// Makes the row group at index `place` with the values of `columns`; those of other columns are unspecified.
    ///
    /// # Errors
    /// Errors of the rows: `Stale` if they are no longer kept, `OverLimit` if a value is too long for a table, `Busy`
    /// if another thread has locked them for long: see [`LiveRows::poll_ready`].
    fn row_group(&self, place: usize, columns: &[usize]) -> Result<LiveGroup>;

    /// Resolves when row groups can be made; until then, the waker of `context` is kept, to be woken when that may have
    /// changed.
    fn poll_ready(&self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Returns the same rows without some of those for which `condition`, a boolean over the columns, is not true: its
    /// row groups are at the same places, and have no rows that these do not have. `None` where nothing is gained by
    /// it.
    fn filtered(&self, _condition: &Expr) -> Option<FilteredLiveRows> {
        None
    }
}

/// A row group that was made.
#[derive(Debug)]
pub struct LiveGroup {
    /// The rows; of live rows that are filtered, not all that were read.
    pub group: RowGroup,
    /// Number of rows that were read and are not in the row group.
    pub rows_dropped: usize,
    /// Bytes that were read to judge rows, before any of them were copied.
    pub bytes_judged: usize,
}

impl From<RowGroup> for LiveGroup {
    fn from(group: RowGroup) -> Self {
        LiveGroup { group, rows_dropped: 0, bytes_judged: 0 }
    }
}

/// Live rows without some of those for which a condition is not true.
#[derive(Clone, Debug)]
pub struct FilteredLiveRows {
    /// The rows.
    pub rows: Arc<dyn LiveRows>,
    /// Whether they have none for which it is not true, so that it need not be evaluated again.
    pub is_exact: bool,
}

/// Upper bounds of one row group of a live table.
#[derive(Clone, Debug)]
pub struct LiveGroupBounds {
    /// Number of rows.
    pub rows: usize,
    /// For each column, the size of its values as a plain Arrow array, in bytes.
    pub bytes_plain: Vec<usize>,
}

impl Table {
    /// Creates a table whose row groups `rows` makes: as many as there are `parts`, each within its bounds.
    pub fn live(schema: SchemaRef, parts: &[LiveGroupBounds], rows: Arc<dyn LiveRows>) -> Table {
        let nothing: Arc<dyn ValueSource> = Arc::new(Nothing(TenantName::default()));
        let (mut groups, mut sums) = (RowGroups::default(), Sums::new(schema.fields().len()));
        let bodies: Vec<Body> = schema.fields().iter().map(|field| Body::nulls(field.data_type())).collect();
        let mut last: Option<Arc<RowGroup>> = None;
        for part in parts {
            // With two rows at least, one of which is said to be NULL, nothing can be concluded from their number.
            let count = part.rows.max(2);
            let stand_in = |(at, field): (usize, &arrow_schema::FieldRef)| {
                let bytes = part.bytes_plain[at];
                // Most parts are as large as the one before.
                let same = last.as_ref().map(|last| &last.chunks[at]);
                let same = same.filter(|last| last.rows() == count && last.bytes_plain() == bytes);
                same.cloned().unwrap_or_else(|| {
                    Arc::new(Chunk::stand_in((field.data_type(), &bodies[at]), count, bytes, &nothing))
                })
            };
            let chunks = schema.fields().iter().enumerate().map(stand_in).collect();
            let group = Arc::new(RowGroup { rows: count, chunks });
            last = Some(group.clone());
            sums.add(&group);
            groups.push(group);
        }
        let distinct = vec![Distinct::Unknown; schema.fields().len()];
        Table::new(schema, groups, sums, distinct).with_live_rows(rows)
    }
}

impl Chunk {
    fn stand_in(
        (data_type, body): (&DataType, &Body),
        rows: usize,
        bytes_plain: usize,
        nothing: &Arc<dyn ValueSource>,
    ) -> Chunk {
        let kind = if schema::is_bytes(data_type) { EncodingKind::PlainBytes } else { EncodingKind::Plain };
        let outline = Outline {
            data_type: data_type.clone(),
            rows,
            bytes_plain,
            bytes_encoded: bytes_plain,
            kind,
            integers: integers_of_type(data_type),
            distinct: None,
        };
        let zone = ZoneMap { null_count: 1, ..ZoneMap::default() };
        Chunk::without_values(outline, zone, nothing.clone(), body.clone())
    }

    /// Encodes `array`, which must have a canonical type, without looking for a small form: for values that are read
    /// once.
    ///
    /// # Errors
    /// `OverLimit` when there are more than [`farpool_model::limits::ROW_GROUP_ROWS`] rows, or strings are too long.
    pub fn of_array(array: &ArrayRef) -> Result<Chunk> {
        encode_as_is(array)
    }

    /// Makes a chunk of strings or binaries that are consecutive in `data`; `ends` has the end of each. A NULL may have
    /// any length.
    ///
    /// # Errors
    /// `Invalid` when the ends do not ascend to the length of `data`, or a string is not UTF-8; `OverLimit` when a
    /// value, or all of them together, are too long.
    pub fn of_bytes(
        data_type: &DataType,
        data: Vec<u8>,
        ends: &[u32],
        nulls: Option<&NullBuffer>,
    ) -> Result<Chunk> {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        if nulls.is_some_and(|nulls| nulls.null_count() == ends.len()) {
            return Chunk::of_nulls(data_type, ends.len());
        }
        let bytes_plain = data.len() + ends.len() * size_of::<i32>();
        let body = strings::of_bytes(data_type, Buffer::from_vec(data), ends)?;
        let null_count = nulls.map_or(0, NullBuffer::null_count);
        let validity = nulls.map(|nulls| BooleanBuffer::new(nulls.inner().sliced(), 0, ends.len()));
        let zone = ZoneMap { null_count, ..ZoneMap::default() };
        Ok(Chunk::new(data_type.clone(), ends.len(), validity, zone, body, bytes_plain))
    }

    /// Makes a chunk of NULLs.
    ///
    /// # Errors
    /// As [`Chunk::of_array`].
    pub fn of_nulls(data_type: &DataType, rows: usize) -> Result<Chunk> {
        check_rows(rows)?;
        let zone = ZoneMap { null_count: rows, ..ZoneMap::default() };
        let bytes_plain = fixed_bytes(data_type, rows, rows > 0);
        Ok(Chunk::new(data_type.clone(), rows, None, zone, Body::nulls(data_type), bytes_plain))
    }
}

/// Returns the bounds of all values of an integer type that fits a signed 64-bit integer.
fn integers_of_type(data_type: &DataType) -> Option<(i64, i64)> {
    let (low, high) = integer_range(data_type)?;
    Some((i64::try_from(low).ok()?, i64::try_from(high).ok()?))
}

/// The values of stand-ins: there are none.
#[derive(Debug)]
struct Nothing(TenantName);

impl ValueSource for Nothing {
    fn tenant(&self) -> &TenantName {
        &self.0
    }

    fn fetch(&self, _: Vec<Arc<Chunk>>, reader: Box<dyn ValueReader>) {
        let outcome: Result<HeldValues> = Err(not_in_memory());
        reader.arrived(outcome);
    }
}
