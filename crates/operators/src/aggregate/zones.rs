//! What needs no row: counts and picks of a row group that passes as a whole, from its zone maps; and
//! DISTINCT once every key that the zone maps allow has been seen.

use super::aggregation::{Accumulator, Aggregation, Kind};
use super::general::{Partial, Passed};
use farpool_columns::RowGroup;
use farpool_model::cast::u64_from;
use farpool_model::{Fold, Literal, Pick};

impl Aggregation {
    /// Adds all rows of `group` without reading them; `None` when that does not do.
    pub(super) fn run_zones(&self, group: &RowGroup, partial: &mut Partial) -> Option<Passed> {
        let passed = Passed { rows: u64_from(group.rows), bypassed: 0, unread: true };
        if !self.paths.fused || !self.keys.is_empty() {
            return None;
        }
        let known = |accumulator: &Accumulator| self.known(accumulator, group);
        let known: Vec<Known<'_>> = self.accumulators.iter().map(known).collect::<Option<_>>()?;
        for (store, known) in partial.stores.iter_mut().zip(known) {
            match known {
                Known::Count(count) => store.add_partial(0, count),
                Known::Pick(Some(value)) => store.keep(0, value),
                Known::Pick(None) => {}
            }
        }
        Some(passed)
    }

    /// Whether nothing in a row group of the table that `partial` is for can change it any more.
    pub(super) fn is_complete(&self, partial: &Partial) -> bool {
        let (Some(whole), Some(table)) = (&self.whole, &partial.whole) else { return false };
        whole.is_complete(table)
    }

    fn known<'g>(&self, accumulator: &Accumulator, group: &'g RowGroup) -> Option<Known<'g>> {
        let Accumulator { kind, argument, condition: None } = accumulator else { return None };
        let Some(argument) = argument else {
            return (*kind == Kind::Count).then_some(Known::Count(group.rows as i64));
        };
        let chunk = &group.chunks[self.arguments[*argument].compiled.as_column()?];
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
}

enum Known<'g> {
    Count(i64),
    /// `None` of no values.
    Pick(Option<&'g Literal>),
}
