//! Whether keys are packed, and the packed keys of the rows of one row group.

use crate::aggregate::aggregation::{Aggregation, Key};
use crate::aggregate::valid::valid_bits;
use crate::aggregate::whole::{bounds_of, nullable};
use crate::bits;
use crate::evaluate::Frame;
use crate::group::{KeyBounds, Packing, TextCodes, lanes_of_array, text_bytes};
use crate::lanes::{BoundLanes, LaneBuffers, LaneId, RowSet};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use farpool_columns::{Chunk, Integers, RowGroup};
use farpool_model::literal::integer_range;
use farpool_model::{Error, Result, limits, schema};
use std::sync::Arc;

/// Rows for each string in the dictionaries of a key from which on these are numbered for the whole table: there is
/// less to be saved in small tables.
const ROWS_PER_TEXT_MIN: usize = 32;

/// The keys of an aggregation that are packed, bound to a row group.
pub(crate) struct PackedKeys<'a> {
    packing: &'a Packing,
    keys: Vec<(&'a Key, Source<'a>)>,
    codes: Vec<i64>,
    /// The numbers of strings.
    numbers: Vec<i64>,
}

/// Where the values of a key come from.
enum Source<'a> {
    Lane(LaneId),
    /// The number of each code of a dictionary.
    Texts(Integers<'a>, Vec<i64>),
    /// Booleans or floats.
    Column(&'a Chunk),
    /// Computed of other columns.
    Computed,
    /// NULL in all rows.
    Null,
}

impl<'a> PackedKeys<'a> {
    /// The keys of `aggregation` over `group`, if they are packed.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn bind(
        aggregation: &'a Aggregation,
        lanes: &BoundLanes<'a>,
        group: &'a RowGroup,
    ) -> Result<Option<Self>> {
        let Some(packing) = aggregation.packing.as_deref() else { return Ok(None) };
        let source =
            |(index, key): (usize, &'a Key)| Ok((key, source_of(packing, index, key, lanes, group)?));
        let keys = aggregation.keys.iter().enumerate().map(source).collect::<Result<_>>()?;
        Ok(Some(PackedKeys { packing, keys, codes: Vec::new(), numbers: Vec::new() }))
    }

    /// The lanes that keys are read from.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.keys.iter().filter_map(|(_, source)| match source {
            Source::Lane(lane) => Some(*lane),
            _ => None,
        })
    }

    /// The columns that keys are computed from.
    pub(crate) fn decoded(&self) -> impl Iterator<Item = usize> + '_ {
        let computed = self.keys.iter().filter(|(_, source)| matches!(source, Source::Computed));
        computed.flat_map(|(key, _)| key.compiled.columns().iter().copied())
    }

    /// The packed key of each row; `frame` has what [`PackedKeys::decoded`] tells.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn codes(
        &mut self,
        group: &RowGroup,
        rows: RowSet<'_>,
        frame: &Frame,
        lanes: &LaneBuffers,
    ) -> Result<&[i64]> {
        let PackedKeys { codes, numbers, .. } = self;
        codes.clear();
        codes.resize(rows.len(), 0);
        for (index, (key, source)) in self.keys.iter().enumerate() {
            match source {
                Source::Lane(lane) => {
                    self.packing.add_values(index, &lanes.values(*lane)[..rows.len()], codes);
                }
                Source::Texts(integers, of_code) => {
                    match rows {
                        RowSet::Range(start, end) => integers.unpack(start..end, numbers),
                        RowSet::Rows(rows) => integers.gather(rows, numbers),
                    }
                    numbers.iter_mut().for_each(|number| *number = of_code[*number as usize]);
                    self.packing.add_values(index, numbers, codes);
                }
                Source::Column(chunk) => {
                    let values = match rows {
                        RowSet::Range(start, end) => chunk.decode(start..end)?,
                        RowSet::Rows(rows) => chunk.gather(rows)?,
                    };
                    self.packing.add_values(index, &lanes_of_array(&values)?, codes);
                }
                Source::Computed => {
                    let values = key.compiled.array(frame)?;
                    self.packing.add_values(index, &lanes_of_array(&values)?, codes);
                    if let Some(nulls) = values.nulls() {
                        let nulls = (0..rows.len()).filter(|row| nulls.is_null(*row));
                        self.packing.set_nulls(index, nulls, codes);
                    }
                    continue;
                }
                Source::Null => {
                    self.packing.set_nulls(index, 0..rows.len(), codes);
                    continue;
                }
            }
            if let Some(valid) = valid_bits(group, key.compiled.columns(), rows) {
                let nulls = (0..rows.len()).filter(|row| !bits::get(&valid, *row));
                self.packing.set_nulls(index, nulls, codes);
            }
        }
        Ok(codes)
    }
}

fn source_of<'a>(
    packing: &Packing,
    index: usize,
    key: &Key,
    lanes: &BoundLanes<'a>,
    group: &'a RowGroup,
) -> Result<Source<'a>> {
    if let Some(lane) = key.lane.filter(|lane| lanes.interval(*lane).is_some()) {
        return Ok(Source::Lane(lane));
    }
    let Some(column) = key.compiled.as_column() else { return Ok(Source::Computed) };
    let chunk: &Chunk = &group.chunks[column];
    match packing.texts(index) {
        _ if chunk.null_count() == group.rows => Ok(Source::Null),
        None => Ok(Source::Column(chunk)),
        Some(texts) => {
            let dictionary = chunk.dictionary().ok_or_else(|| Error::internal("strings without numbers"))?;
            Ok(Source::Texts(dictionary.codes(), texts.numbers(dictionary.values())?))
        }
    }
}

/// How the keys of `aggregation` are packed, if the zone maps and dictionaries of `groups` say that they fit 64 bits.
///
/// # Errors
/// None but defects.
pub(crate) fn packing(aggregation: &Aggregation, groups: &[&RowGroup]) -> Result<Option<Packing>> {
    let intervals = aggregation.lanes.intervals(|column| bounds_of(groups, column));
    let mut known = Vec::with_capacity(aggregation.keys.len());
    for key in &aggregation.keys {
        let data_type = key.compiled.data_type().clone();
        let nullable = key.compiled.columns().iter().any(|column| nullable(groups, *column));
        let column = key.compiled.as_column();
        let interval = key.lane.and_then(|lane| intervals[lane]);
        let of_texts = column.filter(|_| schema::is_bytes(&data_type));
        let texts = of_texts.and_then(|column| dictionaries(groups, column));
        let bounds = match (&texts, interval) {
            (Some(_), _) => Some((0, 0)),
            (None, Some(interval)) => Some(interval),
            (None, None) => bounds_of_type(&data_type),
        };
        let Some(bounds) = bounds else { return Ok(None) };
        // What is computed may be NULL where no column is.
        let nullable = nullable || (column.is_none() && interval.is_none());
        known.push((KeyBounds { data_type, bounds, nullable, texts: None }, texts.unwrap_or_default()));
    }
    for (key, dictionaries) in &mut known {
        key.texts = TextCodes::of(dictionaries)?;
        if let Some(texts) = &key.texts {
            key.bounds.1 = texts.len() as i64 - 1;
        }
    }
    Ok(Packing::of(known.into_iter().map(|(key, _)| key)))
}

/// The least and the greatest value that a key of up to 64 bits can have on a lane.
fn bounds_of_type(data_type: &DataType) -> Option<(i64, i64)> {
    match data_type {
        DataType::Boolean => Some((0, 1)),
        DataType::Float32 => Some((0, i64::from(u32::MAX))),
        // The least of all bits are those of -0.0, which is the key 0.0: that leaves a place for NULL.
        DataType::Float64 => Some((i64::MIN + 1, i64::MAX)),
        other => {
            let (min, max) = integer_range(other)?;
            Some((i64::try_from(min).ok()?, i64::try_from(max).ok()?))
        }
    }
}

/// The dictionaries of a column, if they are small and all row groups that have strings have one.
fn dictionaries(groups: &[&RowGroup], column: usize) -> Option<Vec<ArrayRef>> {
    let chunks =
        groups.iter().map(|group| &group.chunks[column]).filter(|chunk| chunk.null_count() < chunk.rows());
    let values = chunks.map(|chunk| chunk.dictionary().map(|dictionary| Arc::clone(dictionary.values())));
    let values = values.collect::<Option<Vec<ArrayRef>>>()?;
    let rows: usize = groups.iter().map(|group| group.rows).sum();
    let texts: usize = values.iter().map(|values| values.len()).sum();
    let are_few = texts > 0 && texts <= limits::TEXTS_NUMBERED_MAX.min(rows / ROWS_PER_TEXT_MIN);
    let are_small = || values.iter().map(text_bytes).sum::<usize>() <= limits::TEXTS_NUMBERED_BYTES_MAX;
    (are_few && are_small()).then_some(values)
}
