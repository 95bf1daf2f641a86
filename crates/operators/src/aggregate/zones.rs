//! The zones way, which reads no row: counts and picks of a row group that passes as a whole, from its zone maps.

use super::aggregation::{Accumulator, Aggregation, Kind};
use super::store::Store;
use farpool_columns::RowGroup;
use farpool_model::{Fold, Literal, Pick};

/// What the zone maps of a row group tell of an accumulator.
pub(crate) enum Known<'g> {
    Count(i64),
    /// `None` of no values.
    Pick(Option<&'g Literal>),
}

/// What the zone maps of `group` tell of each accumulator over all its rows; `None` when they do not tell all.
pub(super) fn known<'g>(aggregation: &Aggregation, group: &'g RowGroup) -> Option<Vec<Known<'g>>> {
    if !aggregation.keys.is_empty() {
        return None;
    }
    aggregation.accumulators.iter().map(|accumulator| known_of(aggregation, accumulator, group)).collect()
}

/// Adds all rows of a row group, of which `known` is.
pub(super) fn add(known: Vec<Known<'_>>, stores: &mut [Store]) {
    for (store, known) in stores.iter_mut().zip(known) {
        match known {
            Known::Count(count) => store.add_partial(0, count),
            Known::Pick(Some(value)) => store.keep(0, value),
            Known::Pick(None) => {}
        }
    }
}

fn known_of<'g>(
    aggregation: &Aggregation,
    accumulator: &Accumulator,
    group: &'g RowGroup,
) -> Option<Known<'g>> {
    let Accumulator { kind, argument, condition: None } = accumulator else { return None };
    let Some(argument) = argument else {
        return (*kind == Kind::Count).then_some(Known::Count(group.rows as i64));
    };
    let chunk = &group.chunks[aggregation.arguments[*argument].compiled.as_column()?];
    let values = group.rows - chunk.null_count();
    let pick = |bound: &'g Option<Literal>| match bound {
        _ if values == 0 => Some(Known::Pick(None)),
        bound => bound.as_ref().map(|bound| Known::Pick(Some(bound))),
    };
    match kind {
        Kind::Count => Some(Known::Count(values as i64)),
        Kind::Sum | Kind::Fold(Fold::Bits(_)) | Kind::State(_) => None,
        Kind::Fold(Fold::Pick(Pick::Least | Pick::Any)) => pick(&chunk.zone().min),
        Kind::Fold(Fold::Pick(Pick::Greatest)) => pick(&chunk.zone().max),
    }
}
