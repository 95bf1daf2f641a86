//! The order of a program as a `SortRel`, both ways.
//!
//! Invariant: the keys name columns of the program's result, wherever in the plan the sort stood.

use super::decode::not_done;
use super::encode::column;
use super::expressions::{Reader, Slot};
use super::proto::{self, SORT_DIRECTIONS, SortKind};
use super::read;
use bytes::Bytes;
use farpool_model::{Error, Result, SortKey, limits};
use prost::Message;

/// The relation that sorts `input`, whose columns are those of the result.
pub(super) fn write(order: &[SortKey], input: Bytes) -> proto::SortRel {
    let field = |key: &SortKey| {
        let wanted = (key.descending, key.nulls_first);
        let direction = SORT_DIRECTIONS.iter().find(|(_, down, nulls)| (*down, *nulls) == wanted);
        let sort_kind = direction.map(|(number, ..)| SortKind::Direction(*number));
        proto::SortField { expr: column(key.column), sort_kind }.encode_to_vec().into()
    };
    proto::SortRel { common: None, input, sorts: order.iter().map(field).collect(), advanced_extension: None }
}

/// The keys of a sort. `rows` are the columns that it sorts, if they are not those of an aggregation, of
/// which there are `width`.
pub(super) fn keys(
    reader: &Reader,
    sort: &proto::SortRel,
    rows: Option<&[Slot]>,
    width: usize,
) -> Result<Vec<SortKey>> {
    if sort.sorts.is_empty() || sort.sorts.len() > limits::SORT_KEYS_MAX {
        return Err(Error::over_limit(format!(
            "a sort may have 1 to {} keys, this one has {}",
            limits::SORT_KEYS_MAX,
            sort.sorts.len()
        )));
    }
    sort.sorts.iter().map(|bytes| key(reader, &read(bytes)?, rows, width)).collect()
}

fn key(reader: &Reader, field: &proto::SortField, rows: Option<&[Slot]>, width: usize) -> Result<SortKey> {
    let direction = match field.sort_kind {
        Some(SortKind::Direction(number)) => SORT_DIRECTIONS.iter().find(|(n, ..)| *n == number),
        _ => None,
    };
    let Some((_, descending, nulls_first)) = direction else {
        return Err(not_done("a sort without a direction, or by a function,"));
    };
    let mut place = reader.reference(&field.expr)?.filter(|place| *place < width);
    if let (None, Some(rows)) = (place, rows) {
        let expr = reader.expression(&field.expr, rows)?;
        place = rows.iter().position(|slot| slot.expr == expr);
    }
    let column = place.ok_or_else(|| not_done("a sort by something that is no column of the result"))?;
    Ok(SortKey { column, descending: *descending, nulls_first: *nulls_first })
}

/// The keys when only the columns at `places` go on, in this order. `same` tells whether two columns have
/// the same values: a projection gives its input's columns again before it leaves out the first ones.
pub(super) fn moved(
    order: &[SortKey],
    places: &[usize],
    same: impl Fn(usize, usize) -> bool,
) -> Result<Vec<SortKey>> {
    let moved = |key: &SortKey| {
        let column = places.iter().position(|place| *place == key.column || same(*place, key.column));
        let column = column.ok_or_else(|| not_done("leaving out a column that rows are sorted by"))?;
        Ok(SortKey { column, ..*key })
    };
    order.iter().map(moved).collect()
}
