//! Upper bounds of the memory that the groups of an aggregation take in one worker thread, from zone maps,
//! dictionaries and limits.
//!
//! Invariant: a bound is never less than [`super::partial::Partial::bytes`] can become, so that an aggregation whose
//! bound is within its budget never has to return groups early.

use super::aggregation::{Accumulator, Aggregation, Key, Kind, StateOf};
use super::extent::bounds_of;
use super::radix::Shape;
use crate::evaluate::Compiled;
use crate::group::Groups;
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType};
use farpool_columns::RowGroup;
use farpool_model::cast::usize_saturating;
use farpool_model::{Result, limits, schema};
use farpool_statistics::States;

/// Bytes counted for a worker's hash tables while they have no groups.
const BYTES_EMPTY: usize = 64 << 10;

/// Maximum number of copies of one row's value that a sketch keeps: as minimum, as maximum, and as a frequent value.
const VALUES_KEPT_OF_A_ROW: usize = 3;

/// Maximum number of bytes of the frequent strings that one sketch keeps.
const BYTES_OF_TEXTS: usize = limits::SKETCH_TOP_MAX as usize * limits::SKETCH_VALUE_BYTES_MAX;

/// Maximum ratio of a growing vector's capacity to its length. Reason: vectors double their capacity.
const GROWTH: usize = 2;

/// Returns an upper bound of the bytes that the groups of `aggregation` over `groups` take in one worker; `None` if
/// none is known.
pub(super) fn bytes_of_groups(
    aggregation: &Aggregation,
    radix: Option<&Shape>,
    groups: &[&RowGroup],
) -> Option<usize> {
    let rows: usize = groups.iter().map(|group| group.rows).sum();
    let intervals = aggregation.lanes.intervals(|column| bounds_of(groups, column));
    let domain = |key: &Key| domain_of(key, &intervals, groups).unwrap_or(rows);
    let count = aggregation.keys.iter().map(domain).fold(1, usize::saturating_mul).min(rows);
    let mut fixed = Groups::bytes_per_group(&aggregation.key_types, aggregation.packing.is_some());
    let mut texts = 0_usize;
    // Packed strings are stored with the program, not per group. A string that is the only group key is stored once;
    // with other group keys, the same string may be in any number of groups.
    let in_keys = aggregation.keys.iter().filter(|_| aggregation.packing.is_none());
    for key in in_keys.filter(|key| schema::is_bytes(key.compiled.data_type())) {
        let distinct = aggregation.keys.len() == 1;
        texts = texts.saturating_add(text_bytes(&key.compiled, groups, distinct)?);
    }
    for state in aggregation.accumulators.iter().filter_map(|a| aggregation.state_of(a)) {
        fixed = fixed.saturating_add(States::bytes_per_group(state.function, &state.types).ok()?.1);
        // A sketch keeps the minimum, the maximum and the frequent values, each copied from one row.
        for argument in state.arguments.iter().map(|a| &aggregation.arguments[*a].compiled) {
            if schema::is_bytes(argument.data_type()) {
                let bytes = text_bytes(argument, groups, false)?.saturating_mul(VALUES_KEPT_OF_A_ROW);
                texts = texts.saturating_add(bytes);
            }
        }
    }
    for accumulator in &aggregation.accumulators {
        fixed += bytes_per_group(accumulator, aggregation.argument_type(accumulator));
        if let (Kind::Fold(_), Some(argument)) = (accumulator.kind, accumulator.argument)
            && schema::is_bytes(aggregation.arguments[argument].compiled.data_type())
        {
            let bytes = text_bytes(&aggregation.arguments[argument].compiled, groups, false)?;
            texts = texts.saturating_add(bytes);
        }
    }
    let partitioned = radix.map_or(0, Shape::bytes_bound);
    let empty = BYTES_EMPTY.saturating_add(partitioned);
    Some(empty.saturating_add(count.saturating_mul(fixed)).saturating_add(texts.saturating_mul(GROWTH)))
}

/// Returns an upper bound of the bytes of `states` in an aggregation without group keys, which has one group; `None` if
/// none is known.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(super) fn bytes_of_states(states: &[StateOf]) -> Result<Option<usize>> {
    let mut bytes = 0_usize;
    for state in states {
        let (_, most) = States::bytes_per_group(state.function, &state.types)?;
        let texts = state.types.iter().filter(|t| schema::is_bytes(t)).count();
        bytes = bytes.saturating_add(most).saturating_add(texts * BYTES_OF_TEXTS);
    }
    Ok(Some(bytes))
}

/// Returns the bytes of the states of as many new groups as a batch has rows.
pub(super) fn bytes_of_new_states(states: &[StateOf]) -> Option<usize> {
    let each =
        states.iter().map(|s| States::bytes_per_group(s.function, &s.types).ok().map(|(least, _)| least));
    let each = each.sum::<Option<usize>>()?;
    Some(each.saturating_mul(limits::BATCH_ROWS))
}

/// Returns whether the sum of each decimal argument fits 38 digits over any subset of the rows of `groups`.
pub(super) fn sums_fit(aggregation: &Aggregation, groups: &[&RowGroup]) -> bool {
    let rows: usize = groups.iter().map(|group| group.rows).sum();
    sums_of_rows_fit(aggregation, rows, |column| bounds_of(groups, column))
}

/// Returns whether the sum of each decimal argument fits 38 digits over at most `rows` rows, whose columns have the
/// least and greatest values `bounds`, if known.
pub(super) fn sums_of_rows_fit(
    aggregation: &Aggregation,
    rows: usize,
    bounds: impl Fn(usize) -> Option<(i64, i64)>,
) -> bool {
    let intervals = aggregation.lanes.intervals(bounds);
    let fits = |accumulator: &Accumulator| {
        let (Kind::Sum, Some(argument)) = (accumulator.kind, accumulator.argument) else { return true };
        let argument = &aggregation.arguments[argument];
        match argument.compiled.data_type() {
            // A row count times a value of 64 bits takes at most 127 bits, a little more than 38 digits hold.
            _ if argument.lane.is_some_and(|lane| intervals[lane].is_some()) => rows < 1 << 62,
            DataType::Decimal128(precision, _) => {
                let digits = rows.max(1).ilog10() + 1;
                u32::from(*precision) + digits <= u32::from(DECIMAL128_MAX_PRECISION)
            }
            _ => true,
        }
    };
    aggregation.accumulators.iter().all(fits)
}

/// Returns an upper bound of the number of distinct values of a group key, including NULL; `None` if none is known.
fn domain_of(key: &Key, intervals: &[Option<(i64, i64)>], groups: &[&RowGroup]) -> Option<usize> {
    if *key.compiled.data_type() == DataType::Boolean {
        return Some(3);
    }
    if let Some((min, max)) = key.lane.and_then(|lane| intervals[lane]) {
        return Some(usize_saturating(max.abs_diff(min)).saturating_add(2));
    }
    let column = key.compiled.as_column()?;
    let values = |group: &&RowGroup| {
        let chunk = &group.chunks[column];
        if chunk.null_count() == group.rows { Some(0) } else { chunk.dictionary_len() }
    };
    groups.iter().map(values).sum::<Option<usize>>()?.checked_add(1)
}

/// Returns the bytes of the strings of a group key or argument over `groups`; `None` if not known. With `distinct`, a
/// dictionary entry counts once per row group.
fn text_bytes(of: &Compiled, groups: &[&RowGroup], distinct: bool) -> Option<usize> {
    let column = of.as_column()?;
    let bytes = |group: &&RowGroup| {
        let chunk = &group.chunks[column];
        if distinct && chunk.dictionary_len().is_some() { chunk.bytes_encoded() } else { chunk.bytes_plain() }
    };
    Some(groups.iter().map(bytes).fold(0, usize::saturating_add))
}

fn bytes_per_group(accumulator: &Accumulator, argument: Option<&DataType>) -> usize {
    let floating = argument.is_some_and(DataType::is_floating);
    GROWTH
        * match (accumulator.kind, floating) {
            (Kind::Count, _) | (Kind::Sum | Kind::Fold(_), true) => 8,
            // The sum has 128 bits, and a count of carries 64.
            (Kind::Sum, false) => 24,
            (Kind::Fold(_), false) => 16,
            // Sketches and moments report their bytes themselves.
            (Kind::State(_), _) => 0,
        }
}
