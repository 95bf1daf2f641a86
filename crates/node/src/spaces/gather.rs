//! Copies entries into a row group.

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
use std::sync::Arc;

/// The values of one column.
struct Values {
    data_type: DataType,
    /// Numbers, or one byte for each boolean, or the bytes of strings.
    data: MutableBuffer,
    /// Where each string ends.
    ends: Vec<u32>,
    /// Bytes of a number; 0 for strings.
    width: usize,
    valid: BooleanBufferBuilder,
    nulls: usize,
}

impl Values {
    fn new(data_type: &DataType, rows: usize) -> Values {
        let width = match data_type {
            DataType::Boolean => 1,
            other => other.primitive_width().unwrap_or(0),
        };
        Values {
            data_type: data_type.clone(),
            data: MutableBuffer::with_capacity(width * rows),
            ends: Vec::with_capacity(if width == 0 { rows } else { 0 }),
            width,
            valid: BooleanBufferBuilder::new(rows),
            nulls: 0,
        }
    }

    #[inline]
    fn push(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) if self.width == 0 || value.len() == self.width => self.data.extend_from_slice(value),
            _ => self.data.extend_zeros(self.width),
        }
        if self.width == 0 {
            self.ends.push(u32_checked(self.data.len()));
        }
        self.valid.append(value.is_some());
        self.nulls += usize::from(value.is_none());
    }

    fn finish(mut self) -> Result<Chunk> {
        let rows = self.valid.len();
        let nulls = (self.nulls > 0).then(|| NullBuffer::new(self.valid.finish()));
        if self.width == 0 {
            let data = self.data.as_slice().to_vec();
            return Chunk::of_bytes(&self.data_type, data, &self.ends, nulls.as_ref());
        }
        if rows == 0 {
            return Chunk::of_nulls(&self.data_type, 0);
        }
        let data = match self.data_type {
            DataType::Boolean => {
                let bytes = self.data.as_slice();
                MutableBuffer::collect_bool(rows, |row| bytes[row] != 0)
            }
            _ => self.data,
        };
        let array = ArrayData::builder(self.data_type).len(rows).add_buffer(data.into()).nulls(nulls).build();
        let array = array.map_err(|error| Error::internal(error.to_string()))?;
        Chunk::of_array(&make_array(array))
    }
}

/// A value that a column cannot show.
#[derive(Clone, Copy)]
enum Refused {
    TooLong(usize),
    NotText,
    NoKey,
}

impl SpaceTable {
    /// Makes a row group of the entries that `read` gives, about `entries`, at a moment; columns that are not wanted are
    /// NULL.
    ///
    /// # Errors
    /// `Invalid` and `OverLimit`, with the key, for a value that is no text or too long; those of `read`.
    pub fn gather(
        &self,
        entries: usize,
        now: u64,
        columns: &[usize],
        read: impl FnOnce(&mut dyn FnMut(ReadEntry<'_>)) -> Result<()>,
    ) -> Result<RowGroup> {
        let fields = self.schema.fields();
        let mut values: Vec<(usize, Values)> =
            columns.iter().map(|at| (*at, Values::new(fields[*at].data_type(), entries))).collect();
        let (mut rows, mut refused) = (0, None);
        read(&mut |entry: ReadEntry<'_>| {
            if refused.is_some() {
                return;
            }
            rows += 1;
            for (at, values) in &mut values {
                if let Err(why) = self.push(*at, entry, now, values) {
                    refused = Some((why, *at, entry.key().to_vec()));
                    return;
                }
            }
        })?;
        if let Some((why, at, key)) = refused {
            return Err(self.refused(why, at, &key));
        }
        let mut chunks: Vec<Option<Arc<Chunk>>> = vec![None; fields.len()];
        for (at, values) in values {
            chunks[at] = Some(Arc::new(values.finish()?));
        }
        let chunks = chunks.into_iter().zip(fields).map(|(chunk, field)| match chunk {
            Some(chunk) => Ok(chunk),
            None => Chunk::of_nulls(field.data_type(), rows).map(Arc::new),
        });
        Ok(RowGroup { rows, chunks: chunks.collect::<Result<_>>()? })
    }

    #[inline]
    fn push(
        &self,
        at: usize,
        entry: ReadEntry<'_>,
        now: u64,
        values: &mut Values,
    ) -> std::result::Result<(), Refused> {
        let Some(schema) = &self.rows else {
            match at {
                0 => values.push(Some(checked(entry.key(), values)?)),
                1 => match entry.string() {
                    Some(value) => values.push(Some(checked(value, values)?)),
                    None => values.push(None),
                },
                // In seconds, as TTL tells it.
                _ => match entry.expiry() {
                    Some(expiry) => {
                        values.push(Some(&((expiry.saturating_sub(now) + 500) / 1000).to_le_bytes()));
                    }
                    None => values.push(None),
                },
            }
            return Ok(());
        };
        match at.checked_sub(1) {
            None => {
                let rest = entry.key().get(self.prefix.len()..).unwrap_or_default();
                match schema.key().kind.width() {
                    None => values.push(Some(checked(rest, values)?)),
                    Some(_) => values.push(Some(&schema.key_value(rest).ok_or(Refused::NoKey)?)),
                }
            }
            Some(at) => {
                let field = entry.row().and_then(|row| schema.field(row, at));
                if field.is_some_and(|field| field.len() > STRING_BYTES_MAX) {
                    return Err(Refused::TooLong(field.map_or(0, <[u8]>::len)));
                }
                values.push(field);
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

/// Checks that a value is one of the column's type, and not longer than a column may have.
#[inline]
fn checked<'a>(value: &'a [u8], values: &Values) -> std::result::Result<&'a [u8], Refused> {
    if value.len() > STRING_BYTES_MAX {
        return Err(Refused::TooLong(value.len()));
    }
    if values.data_type == DataType::Utf8View && std::str::from_utf8(value).is_err() {
        return Err(Refused::NotText);
    }
    Ok(value)
}
