//! Decides whether the group keys of a row fit one 64-bit word together, and the bit positions of each group key
//! in the word.
//!
//! The *code* of a string is its number among the distinct strings of the column in the whole table.

use super::aggregation::Aggregation;
use super::extent::{bounds_of, nullable};
use crate::group::{KeyBounds, Packing, TextCodes, text_bytes};
use arrow_array::ArrayRef;
use arrow_schema::DataType;
use farpool_columns::RowGroup;
use farpool_model::literal::integer_range;
use farpool_model::{Result, limits, schema};

/// Minimum ratio of rows to dictionary entries (summed over all row groups) for a string group key to get integer codes
/// for the whole table. Below it, building the codes costs more than packing the group key saves.
const ROWS_PER_TEXT_MIN: usize = 32;

/// Returns how the group keys of `aggregation` are packed into one 64-bit word; `None` if they may not fit, according
/// to the zone maps and dictionaries of `groups`.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(super) fn of(aggregation: &Aggregation, groups: &[&RowGroup]) -> Result<Option<Packing>> {
    let bounds = |column| bounds_of(groups, column);
    of_known(aggregation, &bounds, &|column| nullable(groups, column), &|column| dictionaries(groups, column))
}

/// Returns how the group keys of `aggregation` are packed for any rows whose columns have values within `bounds` or
/// NULL; `None` if they may not fit, or a group key is a string.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(super) fn of_rows(
    aggregation: &Aggregation,
    bounds: &dyn Fn(usize) -> Option<(i64, i64)>,
) -> Result<Option<Packing>> {
    of_known(aggregation, bounds, &|_| true, &|_| None)
}

/// Returns how the group keys are packed, given for each column its bounds, whether it may have NULLs, and its
/// dictionaries.
fn of_known(
    aggregation: &Aggregation,
    bounds: &dyn Fn(usize) -> Option<(i64, i64)>,
    nullable: &dyn Fn(usize) -> bool,
    dictionaries: &dyn Fn(usize) -> Option<Vec<ArrayRef>>,
) -> Result<Option<Packing>> {
    let intervals = aggregation.lanes.intervals(bounds);
    let mut known = Vec::with_capacity(aggregation.keys.len());
    for key in &aggregation.keys {
        let data_type = key.compiled.data_type().clone();
        let nullable = key.compiled.columns().iter().any(|column| nullable(*column));
        let column = key.compiled.as_column();
        let interval = key.lane.and_then(|lane| intervals[lane]);
        let of_texts = column.filter(|_| schema::is_bytes(&data_type));
        let texts = of_texts.and_then(dictionaries);
        let bounds = match (&texts, interval) {
            (Some(_), _) => Some((0, 0)),
            (None, Some(interval)) => Some(interval),
            (None, None) => bounds_of_type(&data_type),
        };
        let Some(bounds) = bounds else { return Ok(None) };
        // A computed group key may be NULL even if no column that it reads has a NULL.
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

/// Returns the least and the greatest integer that a group key of this type can have when it is computed as an integer
/// lane; `None` for types that do not fit 64 bits.
fn bounds_of_type(data_type: &DataType) -> Option<(i64, i64)> {
    match data_type {
        DataType::Boolean => Some((0, 1)),
        DataType::Float32 => Some((0, i64::from(u32::MAX))),
        // The least bit pattern is that of -0.0. Since -0.0 is the same group key as 0.0, this pattern is free to stand
        // for NULL.
        DataType::Float64 => Some((i64::MIN + 1, i64::MAX)),
        other => {
            let (min, max) = integer_range(other)?;
            Some((i64::try_from(min).ok()?, i64::try_from(max).ok()?))
        }
    }
}

/// Returns the dictionaries of a string column, one per row group that has values other than NULL. Returns `None` if
/// one of these row groups has no dictionary in memory, or the dictionaries have too many entries or bytes for codes.
fn dictionaries(groups: &[&RowGroup], column: usize) -> Option<Vec<ArrayRef>> {
    let chunks =
        groups.iter().map(|group| &group.chunks[column]).filter(|chunk| chunk.null_count() < chunk.rows());
    let values = chunks.map(|chunk| chunk.dictionary_values());
    let values = values.collect::<Option<Vec<ArrayRef>>>()?;
    let rows: usize = groups.iter().map(|group| group.rows).sum();
    let texts: usize = values.iter().map(|values| values.len()).sum();
    let are_few = texts > 0 && texts <= limits::TEXTS_NUMBERED_MAX.min(rows / ROWS_PER_TEXT_MIN);
    let are_small = || values.iter().map(text_bytes).sum::<usize>() <= limits::TEXTS_NUMBERED_BYTES_MAX;
    (are_few && are_small()).then_some(values)
}
