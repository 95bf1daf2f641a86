//! Encodes the sort order of a program as a `SortRel`, and decodes it.
//!
//! Invariant: the decoded sort keys are positions of columns in the program's result, wherever in the plan the sort
//! was.

use super::encode::column;
use super::expressions::Reader;
use super::proto::{self, SORT_DIRECTIONS, SortKind};
use super::read;
use bytes::Bytes;
use farpool_model::compose::{Refusal, Stack, not_done};
use farpool_model::{Error, Result, SortKey, limits};
use prost::Message;

/// Encodes a relation that sorts `input`, which has the columns of the program's result.
pub(super) fn write(order: &[SortKey], input: Bytes) -> proto::SortRel {
    let field = |key: &SortKey| {
        let wanted = (key.descending, key.nulls_first);
        let direction = SORT_DIRECTIONS.iter().find(|(_, down, nulls)| (*down, *nulls) == wanted);
        let sort_kind = direction.map(|(number, ..)| SortKind::Direction(*number));
        proto::SortField { expr: column(key.column), sort_kind }.encode_to_vec().into()
    };
    proto::SortRel { common: None, input, sorts: order.iter().map(field).collect(), advanced_extension: None }
}

/// Decodes the sort keys of a sort of `input`.
pub(super) fn keys(reader: &Reader, sort: &proto::SortRel, input: &Stack) -> Result<Vec<SortKey>> {
    if sort.sorts.is_empty() || sort.sorts.len() > limits::SORT_KEYS_MAX {
        return Err(Error::over_limit(format!(
            "a sort may have 1 to {} keys, this one has {}",
            limits::SORT_KEYS_MAX,
            sort.sorts.len()
        )));
    }
    sort.sorts.iter().map(|bytes| key(reader, &read(bytes)?, input)).collect()
}

fn key(reader: &Reader, field: &proto::SortField, input: &Stack) -> Result<SortKey> {
    let direction = match field.sort_kind {
        Some(SortKind::Direction(number)) => SORT_DIRECTIONS.iter().find(|(n, ..)| *n == number),
        _ => None,
    };
    let Some((_, descending, nulls_first)) = direction else {
        return Err(not_done("a sort without a direction, or by a function,"));
    };
    let mut place = reader.reference(&field.expr)?.filter(|place| *place < input.width());
    if let (None, Some(columns)) = (place, input.columns()) {
        place = input.place_of(&reader.expression(&field.expr, columns)?);
    }
    let column = place.ok_or_else(|| Refusal::SortByOther.into_error())?;
    Ok(SortKey { column, descending: *descending, nulls_first: *nulls_first })
}
