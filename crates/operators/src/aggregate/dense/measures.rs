//! Measures: sums and folds (such as minimum) that an aggregation computes for each group, and masks (the
//! conditions under which a row counts in them). Equal measures are computed once; the running values of several
//! aggregate functions may be derived from one of them.
//!
//! A *lane* is a column or an expression evaluated as 64-bit integers.

use crate::aggregate::aggregation::{Accumulator, Aggregation, Argument, Kind};
use crate::aggregate::extent::Extent;
use crate::aggregate::unfit::{Fit, NOT_ON_LANES, SUM_TOO_WIDE};
use crate::lanes::LaneId;
use farpool_model::Fold;

/// Measures of an aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Measures {
    /// Masks of the sums and folds, without duplicates. The first mask passes all rows.
    pub(crate) masks: Vec<Mask>,
    pub(crate) sums: Vec<SumOf>,
    pub(crate) folds: Vec<FoldOf>,
    /// For each accumulator, the measure that has its value over the rows of one row group.
    pub(crate) sources: Vec<Source>,
}

/// Condition under which a row counts in a measure: it passes `condition`, that of a `FILTER (WHERE …)`, and has no
/// NULL in the listed columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mask {
    pub(crate) condition: Option<usize>,
    pub(crate) nullable: Vec<usize>,
}

/// A sum per group: of a lane's values, or a number of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SumOf {
    Lane(LaneId, usize),
    /// Number of rows that pass the mask with this index.
    Rows(usize),
}

/// A fold (such as a minimum) of a lane's values over the rows that pass a mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FoldOf {
    pub(crate) lane: LaneId,
    pub(crate) mask: usize,
    pub(crate) fold: Fold,
}

/// The measure that has the value of an accumulator over the rows of one row group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Number of all rows of the group.
    AllRows,
    Sum(usize),
    /// A fold, by index. It has a value only if the sum with the second index, which counts the rows that pass the
    /// fold's mask, is not 0. The second index is `None` if the mask passes all rows.
    Fold(usize, Option<usize>),
}

impl Measures {
    /// Returns the measures of `aggregation`. Returns [`Unfit`] if an accumulator needs decoded values, or a sum may
    /// exceed 64 bits.
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
                // If an expression cannot be evaluated as a lane, its NULLs are known only if it is a plain column.
                let known = argument.is_none_or(|a| {
                    a.compiled.as_column().is_some() || a.lane.is_some_and(|l| (extent.interval)(l).is_some())
                });
                known.then_some(count.map_or(Source::AllRows, Source::Sum)).ok_or(NOT_ON_LANES)
            }
            Kind::Sum => {
                let (lane, (min, max)) = bounded(argument, extent)?;
                let largest = u128::from(min.unsigned_abs().max(max.unsigned_abs()));
                // A bit is left free: the whole-table way doubles a sum and sets its lowest bit, to tell 0 from "no
                // rows".
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

/// Returns the lane of an argument, with its least and greatest value.
fn bounded(argument: Option<&Argument>, extent: &Extent<'_>) -> Fit<(LaneId, (i64, i64))> {
    let lane = argument.and_then(|argument| argument.lane);
    lane.and_then(|lane| Some((lane, (extent.interval)(lane)?))).ok_or(NOT_ON_LANES)
}

/// Returns whether an accumulator can be computed from lanes, at least in some row groups.
fn may_run_on_lanes(aggregation: &Aggregation, accumulator: &Accumulator) -> bool {
    let Some(index) = accumulator.argument else { return accumulator.kind == Kind::Count };
    let argument = &aggregation.arguments[index];
    argument.lane.is_some() || (accumulator.kind == Kind::Count && argument.compiled.as_column().is_some())
}

/// Returns the index of `item` in `items`; appends it if it is new.
fn position<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}
