//! Copies entries (key and value) of key spaces, namespaces of keys that SQL reads as tables, into row groups, for
//! programs to read.

use super::SpaceTable;
use arrow_array::make_array;
use arrow_buffer::{BooleanBufferBuilder, MutableBuffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use farpool_columns::{Chunk, RowGroup};
use farpool_kv::ReadEntry;
use farpool_model::cast::u32_checked;
use farpool_model::limits::STRING_BYTES_MAX;
use farpool_model::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Number of entries of which one column is copied before the next column, so that the entries stay in the CPU cache.
const ENTRIES_TOGETHER: usize = 64;

/// The columns that are copied, and those that are only checked.
#[derive(Clone, Copy)]
pub(super) struct ColumnSelection<'a> {
    /// Indices of the columns whose values are copied.
    pub columns: &'a [usize],
    /// Columns by which the entries were filtered. Their values are checked to be of the type of the column, even if
    /// they are not copied, unless that was done before.
    pub judged: &'a [usize],
}

impl<'a> ColumnSelection<'a> {
    /// Selects columns to copy, for entries that were not filtered.
    pub fn of(columns: &'a [usize]) -> Self {
        ColumnSelection { columns, judged: &[] }
    }
}

/// Collects the values of one column.
struct ColumnBuilder {
    data_type: DataType,
    data: ColumnData,
    valid: BooleanBufferBuilder,
    nulls: usize,
}

enum ColumnData {
    /// The bytes of numbers, and the width of a number in bytes; a boolean takes one byte.
    Numbers(MutableBuffer, usize),
    /// The bytes of strings, one after the other, and the end of each.
    Strings(Vec<u8>, Vec<u32>),
}

impl ColumnBuilder {
    fn new(data_type: &DataType, rows: usize) -> ColumnBuilder {
        let width = match data_type {
            DataType::Boolean => Some(1),
            other => other.primitive_width(),
        };
        let data = match width {
            Some(width) => ColumnData::Numbers(MutableBuffer::with_capacity(width * rows), width),
            None => ColumnData::Strings(Vec::new(), Vec::with_capacity(rows)),
        };
        let (data_type, valid) = (data_type.clone(), BooleanBufferBuilder::new(rows));
        ColumnBuilder { data_type, data, valid, nulls: 0 }
    }

    #[inline]
    fn push(&mut self, value: Option<&[u8]>) {
        match &mut self.data {
            ColumnData::Numbers(data, width) => match value {
                Some(value) if value.len() == *width => data.extend_from_slice(value),
                _ => data.extend_zeros(*width),
            },
            ColumnData::Strings(data, ends) => {
                data.extend_from_slice(value.unwrap_or_default());
                ends.push(u32_checked(data.len()));
            }
        }
        self.valid.append(value.is_some());
        self.nulls += usize::from(value.is_none());
    }

    /// Appends the values of the numeric field with index `at` of some rows; `place` is its range in each row.
    fn push_numbers(&mut self, rows: &[&[u8]], at: usize, place: &Range<usize>) {
        let ColumnData::Numbers(data, width) = &mut self.data else { return };
        let copied = match width {
            1 => copy_numbers::<1>(data, rows, at, place.start),
            2 => copy_numbers::<2>(data, rows, at, place.start),
            4 => copy_numbers::<4>(data, rows, at, place.start),
            _ => copy_numbers::<8>(data, rows, at, place.start),
        };
        if copied == u64::MAX >> (ENTRIES_TOGETHER - rows.len()) {
            return self.valid.append_n(rows.len(), true);
        }
        (0..rows.len()).for_each(|row| self.valid.append(copied >> row & 1 == 1));
        self.nulls += rows.len() - copied.count_ones() as usize;
    }

    fn finish(mut self) -> Result<Chunk> {
        let rows = self.valid.len();
        let nulls = (self.nulls > 0).then(|| NullBuffer::new(self.valid.finish()));
        let data = match self.data {
            ColumnData::Strings(data, ends) => {
                return Chunk::of_bytes(&self.data_type, data, &ends, nulls.as_ref());
            }
            _ if rows == 0 => return Chunk::of_nulls(&self.data_type, 0),
            ColumnData::Numbers(data, _) if self.data_type == DataType::Boolean => {
                let bytes = data.as_slice();
                MutableBuffer::collect_bool(rows, |row| bytes[row] != 0)
            }
            ColumnData::Numbers(data, _) => data,
        };
        let array = ArrayData::builder(self.data_type).len(rows).add_buffer(data.into()).nulls(nulls).build();
        let array = array.map_err(|error| Error::internal(error.to_string()))?;
        Chunk::of_array(&make_array(array))
    }
}

/// Appends numbers from rows to `data`, zeros for NULLs; returns a bitmap of the rows whose number is not NULL.
fn copy_numbers<const BYTES: usize>(
    data: &mut MutableBuffer,
    rows: &[&[u8]],
    at: usize,
    offset: usize,
) -> u64 {
    let start = data.len();
    data.extend_zeros(BYTES * rows.len());
    let places = data.as_slice_mut()[start..].chunks_exact_mut(BYTES);
    let mut valid = 0;
    for (row, (bytes, place)) in rows.iter().zip(places).enumerate() {
        let is_set = bytes.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
        if let Some(number) = bytes.get(offset..).and_then(|rest| rest.first_chunk::<BYTES>())
            && is_set
        {
            place.copy_from_slice(number);
            valid |= 1 << row;
        }
    }
    valid
}

/// The reason why a value of an entry cannot be shown in its column.
#[derive(Clone, Copy)]
enum Refused {
    TooLong(usize),
    NotText,
    NoKey,
}

impl SpaceTable {
    /// Makes a row group of the entries that `read` passes on, about `entries`, as of `now`; columns that are not
    /// requested are NULL.
    ///
    /// # Errors
    /// `Invalid` and `OverLimit`, with the key, for a value that is not text or too long; errors of `read`.
    pub fn gather(
        &self,
        entries: usize,
        now: u64,
        wanted: ColumnSelection<'_>,
        read: impl FnOnce(&mut dyn FnMut(&[ReadEntry<'_>])) -> Result<()>,
    ) -> Result<RowGroup> {
        let fields = self.schema.fields();
        let values = |at: &usize| (*at, ColumnBuilder::new(fields[*at].data_type(), entries));
        let mut values: Vec<(usize, ColumnBuilder)> = wanted.columns.iter().map(values).collect();
        // Numbers in rows need no check, because they were checked when they were written.
        let is_number = |at: usize| self.rows.as_ref().is_some_and(|schema| schema.place_of(at).is_some());
        let is_checked =
            |at: &usize| !wanted.columns.contains(at) && !at.checked_sub(1).is_some_and(is_number);
        let checked: Vec<usize> = wanted.judged.iter().copied().filter(is_checked).collect();
        let (mut rows, mut refused) = (0, None);
        read(&mut |all: &[ReadEntry<'_>]| {
            if values.is_empty() && checked.is_empty() {
                rows += all.len();
                return;
            }
            for some in all.chunks(ENTRIES_TOGETHER) {
                if refused.is_some() {
                    return;
                }
                rows += some.len();
                let mut bytes: [&[u8]; ENTRIES_TOGETHER] = [&[]; ENTRIES_TOGETHER];
                if self.rows.is_some() {
                    bytes
                        .iter_mut()
                        .zip(some)
                        .for_each(|(row, entry)| *row = entry.row().unwrap_or_default());
                }
                let bytes = &bytes[..some.len()];
                let pushed = values
                    .iter_mut()
                    .try_for_each(|(at, values)| self.push_all(*at, some, bytes, now, values));
                let pushed =
                    pushed.and_then(|()| checked.iter().try_for_each(|at| self.check_all(*at, some, now)));
                refused = pushed.err();
            }
        })?;
        if let Some((why, at, key)) = refused {
            return Err(self.refused(why, at, &key));
        }
        let mut chunks: Vec<Option<Arc<Chunk>>> = vec![None; fields.len()];
        for (at, values) in values {
            chunks[at] = Some(Arc::new(values.finish()?));
        }
        // Columns that are not requested share a chunk of NULLs per type.
        let mut absent: Vec<(&DataType, Arc<Chunk>)> = Vec::new();
        let chunks = chunks.into_iter().zip(fields).map(|(chunk, field)| {
            let data_type = field.data_type();
            let same = absent.iter().find(|(other, _)| *other == data_type).map(|(_, chunk)| chunk.clone());
            if let Some(chunk) = chunk.or(same) {
                return Ok(chunk);
            }
            let chunk = Arc::new(Chunk::of_nulls(data_type, rows)?);
            absent.push((data_type, chunk.clone()));
            Ok(chunk)
        });
        Ok(RowGroup { rows, chunks: chunks.collect::<Result<_>>()? })
    }

    /// Appends the values of a column of some entries, whose rows are `rows`.
    fn push_all(
        &self,
        at: usize,
        entries: &[ReadEntry<'_>],
        rows: &[&[u8]],
        now: u64,
        values: &mut ColumnBuilder,
    ) -> std::result::Result<(), (Refused, usize, Vec<u8>)> {
        let field = self.rows.as_ref().zip(at.checked_sub(1));
        if let Some((schema, of_row)) = field
            && let Some(place) = schema.place_of(of_row)
        {
            values.push_numbers(rows, of_row, &place);
            return Ok(());
        }
        for entry in entries {
            self.with_value(at, *entry, now, |value| values.push(value))
                .map_err(|why| (why, at, entry.key().to_vec()))?;
        }
        Ok(())
    }

    /// Checks the values of a column of some entries without copying them.
    fn check_all(
        &self,
        at: usize,
        entries: &[ReadEntry<'_>],
        now: u64,
    ) -> std::result::Result<(), (Refused, usize, Vec<u8>)> {
        for entry in entries {
            self.with_value(at, *entry, now, |_| ()).map_err(|why| (why, at, entry.key().to_vec()))?;
        }
        Ok(())
    }

    /// Calls `f` with the value of a column.
    #[inline]
    fn with_value(
        &self,
        at: usize,
        entry: ReadEntry<'_>,
        now: u64,
        f: impl FnOnce(Option<&[u8]>),
    ) -> std::result::Result<(), Refused> {
        let is_text = *self.schema.field(at).data_type() == DataType::Utf8View;
        let Some(schema) = &self.rows else {
            match at {
                0 => f(Some(checked(entry.key(), is_text)?)),
                1 => f(entry.string().map(|value| checked(value, is_text)).transpose()?),
                // The remaining time to live in seconds, as `TTL` reports it.
                _ => {
                    let seconds = |expiry: u64| ((expiry.saturating_sub(now) + 500) / 1000).to_le_bytes();
                    f(entry.expiry().map(seconds).as_ref().map(|seconds| &seconds[..]));
                }
            }
            return Ok(());
        };
        match at.checked_sub(1) {
            None => {
                let rest = entry.key().get(self.prefix.len()..).unwrap_or_default();
                match schema.key().kind.width() {
                    None => f(Some(checked(rest, is_text)?)),
                    Some(_) => f(Some(&schema.key_value(rest).ok_or(Refused::NoKey)?)),
                }
            }
            Some(at) => {
                let field = entry.row().and_then(|row| schema.field(row, at));
                if field.is_some_and(|field| field.len() > STRING_BYTES_MAX) {
                    return Err(Refused::TooLong(field.map_or(0, <[u8]>::len)));
                }
                f(field);
            }
        }
        Ok(())
    }

    fn refused(&self, why: Refused, at: usize, key: &[u8]) -> Error {
        let key = key[..key.len().min(256)].escape_ascii();
        let (column, name) = (self.schema.field(at).name(), self.name.as_str());
        match why {
            Refused::TooLong(bytes) => Error::over_limit(format!(
                "the {column} of key '{key}' in space {name:?} has {bytes} bytes, a column of a table at most \
                 {STRING_BYTES_MAX}"
            ))
            .advise(format!("leave the column {column} out, or the key (WHERE key <> ...)")),
            Refused::NotText => {
                Error::invalid(format!("the {column} of key '{key}' in space {name:?} is not text in UTF-8"))
                    .advise("give such keys a space of their own: FP.SPACE CREATE name BINARY")
            }
            Refused::NoKey => {
                let kind = self.rows.as_ref().map_or("", |schema| schema.key().kind.name());
                Error::invalid(format!("the key '{key}' in space {name:?} has no {kind} for {column}"))
            }
        }
    }
}

/// Checks that a value matches the type of the column and does not exceed the maximum length.
#[inline]
fn checked(value: &[u8], is_text: bool) -> std::result::Result<&[u8], Refused> {
    if value.len() > STRING_BYTES_MAX {
        return Err(Refused::TooLong(value.len()));
    }
    if is_text && std::str::from_utf8(value).is_err() {
        return Err(Refused::NotText);
    }
    Ok(value)
}
