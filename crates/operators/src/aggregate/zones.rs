//! The *zones way* of aggregation: counts, minimum, maximum and "any value" of a row group whose rows all pass
//! the filter follow from its zone maps (minimum, maximum and NULL count per column), so that no row is read.

use super::aggregation::{Accumulator, Aggregation, Kind};
use super::store::Store;
use farpool_columns::{RowGroup, ZoneMap};
use farpool_model::{Fold, Literal, Pick};

/// Value of an accumulator over a row group, known from zone maps.
pub(crate) enum Known {
    Count(i64),
    /// Picked value (minimum, maximum or any value); `None` if all values are NULL.
    Pick(Option<Literal>),
}

/// Returns the value of each accumulator over all rows of `group`; `None` if one of them does not follow from zone
/// maps.
pub(super) fn known(aggregation: &Aggregation, group: &RowGroup) -> Option<Vec<Known>> {
    if !aggregation.keys.is_empty() {
        return None;
    }
    aggregation.accumulators.iter().map(|accumulator| known_of(aggregation, accumulator, group)).collect()
}

/// Adds the values of a row group to the accumulators of group 0, the only group.
pub(super) fn add(known: Vec<Known>, stores: &mut [Store]) {
    for (store, known) in stores.iter_mut().zip(known) {
        match known {
            Known::Count(count) => store.add_partial(0, count),
            Known::Pick(Some(value)) => store.keep(0, &value),
            Known::Pick(None) => {}
        }
    }
}

fn known_of(aggregation: &Aggregation, accumulator: &Accumulator, group: &RowGroup) -> Option<Known> {
    let Accumulator { kind, argument, condition: None } = accumulator else { return None };
    let Some(argument) = argument else {
        return (*kind == Kind::Count).then_some(Known::Count(group.rows as i64));
    };
    let chunk = &group.chunks[aggregation.arguments[*argument].compiled.as_column()?];
    let values = group.rows - chunk.null_count();
    let pick = |bound: fn(ZoneMap) -> Option<Literal>| match values {
        0 => Some(Known::Pick(None)),
        _ => bound(chunk.zone().into_owned()).map(|bound| Known::Pick(Some(bound))),
    };
    match kind {
        Kind::Count => Some(Known::Count(values as i64)),
        Kind::Sum | Kind::Fold(Fold::Bits(_)) | Kind::State(_) => None,
        Kind::Fold(Fold::Pick(Pick::Least | Pick::Any)) => pick(|zone| zone.min),
        Kind::Fold(Fold::Pick(Pick::Greatest)) => pick(|zone| zone.max),
    }
}
