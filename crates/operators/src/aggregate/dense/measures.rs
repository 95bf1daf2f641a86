//! Measures: the masks, sums and folds that are computed per group, each distinct one once, and which of them
//! give each accumulator.

use crate::aggregate::aggregation::{Accumulator, Aggregation, Argument, Kind};
use crate::aggregate::extent::Extent;
use crate::aggregate::unfit::{Fit, NOT_ON_LANES, SUM_TOO_WIDE};
use crate::lanes::LaneId;
use farpool_model::Fold;

/// The measures of an aggregation over some rows.
#[derive(Clone, Debug)]
pub(crate) struct Measures {
    /// The distinct masks of sums and folds; the first one passes all rows.
    pub(crate) masks: Vec<Mask>,
    pub(crate) sums: Vec<SumOf>,
    pub(crate) folds: Vec<FoldOf>,
    /// For each accumulator, the measure that holds its partial value.
    pub(crate) sources: Vec<Source>,
}

/// Rows count if they pass a condition of `FILTER (WHERE …)` and none of some columns is NULL.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mask {
    pub(crate) condition: Option<usize>,
    pub(crate) nullable: Vec<usize>,
}

/// A sum per group: of a lane under a mask (its index), or of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SumOf {
    Lane(LaneId, usize),
    /// The number of rows that pass a mask (its index).
    Rows(usize),
}

/// A fold of a lane, under a mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FoldOf {
    pub(crate) lane: LaneId,
    pub(crate) mask: usize,
    pub(crate) fold: Fold,
}

/// The measure that holds the partial value of an accumulator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// The number of all rows of the group.
    AllRows,
    Sum(usize),
    /// A fold; valid if the sum that counts the rows of its mask (`None`: all rows) is not 0.
    Fold(usize, Option<usize>),
}

impl Measures {
    /// Returns the measures of `aggregation`; not applicable if an accumulator cannot run on lanes or a sum
    /// may exceed 64 bits.
    pub(crate) fn of(aggregation: &Aggregation, extent: &Extent<'_>) -> Fit<Measures> {
        if aggregation.accumulators.iter().any(|a| !may_run_on_lanes(aggregation, a)) {
            return Err(NOT_ON_LANES);
        }
        let mut measures = Measures {
            masks: vec![Mask::default()],
            sums: Vec::new(),
            folds: Vec::new(),
            sources: Vec::with_capacity(aggregation.accumulators.len()),
        };
        for accumulator in &aggregation.accumulators {
            let source = measures.source(aggregation, accumulator, extent)?;
            measures.sources.push(source);
        }
        Ok(measures)
    }

    /// Returns the lanes that sums and folds read.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        let summed = self.sums.iter().filter_map(|s| match s {
            SumOf::Lane(lane, _) => Some(*lane),
            SumOf::Rows(_) => None,
        });
        summed.chain(self.folds.iter().map(|f| f.lane))
    }

    fn source(
        &mut self,
        aggregation: &Aggregation,
        accumulator: &Accumulator,
        extent: &Extent<'_>,
    ) -> Fit<Source> {
        let argument = accumulator.argument.map(|a| &aggregation.arguments[a]);
        let nullable = argument.map_or(Vec::new(), |a| {
            let columns = a.compiled.columns().iter().copied();
            columns.filter(|column| (extent.nullable)(*column)).collect()
        });
        let mask = position(&mut self.masks, Mask { condition: accumulator.condition, nullable });
        let count = (mask != 0).then(|| position(&mut self.sums, SumOf::Rows(mask)));
        match accumulator.kind {
            Kind::Count => {
                // Where an expression is not valid on lanes, its NULLs are known only if it is a plain
                // column.
                let known = argument.is_none_or(|a| {
                    a.compiled.as_column().is_some() || a.lane.is_some_and(|l| (extent.interval)(l).is_some())
                });
                known.then_some(count.map_or(Source::AllRows, Source::Sum)).ok_or(NOT_ON_LANES)
            }
            Kind::Sum => {
                let (lane, (min, max)) = bounded(argument, extent)?;
                let largest = u128::from(min.unsigned_abs().max(max.unsigned_abs()));
                // One bit is left free, for the tag of a sum.
                let fits = largest * u128::from(extent.rows) <= i64::MAX as u128 / 2;
                fits.then(|| Source::Sum(position(&mut self.sums, SumOf::Lane(lane, mask))))
                    .ok_or(SUM_TOO_WIDE)
            }
            Kind::Fold(fold) => {
                let (lane, _) = bounded(argument, extent)?;
                Ok(Source::Fold(position(&mut self.folds, FoldOf { lane, mask, fold }), count))
            }
            Kind::State(_) => Err(NOT_ON_LANES),
        }
    }
}

/// Returns the lane of an argument, and its bounds.
fn bounded(argument: Option<&Argument>, extent: &Extent<'_>) -> Fit<(LaneId, (i64, i64))> {
    let lane = argument.and_then(|argument| argument.lane);
    lane.and_then(|lane| Some((lane, (extent.interval)(lane)?))).ok_or(NOT_ON_LANES)
}

/// Returns whether an accumulator can run on lanes in some row groups.
fn may_run_on_lanes(aggregation: &Aggregation, accumulator: &Accumulator) -> bool {
    let Some(index) = accumulator.argument else { return accumulator.kind == Kind::Count };
    let argument = &aggregation.arguments[index];
    argument.lane.is_some() || (accumulator.kind == Kind::Count && argument.compiled.as_column().is_some())
}

/// Returns the index of `item` in `items`, to which it is added if it is new.
fn position<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}
