//! What is computed per group, each distinct thing once: masks, sums and folds, and which of them each
//! accumulator is made of.

use crate::aggregate::aggregation::{Accumulator, Aggregation, Argument, Kind};
use crate::aggregate::extent::Extent;
use crate::aggregate::unfit::{Fit, NOT_ON_LANES, SUM_TOO_WIDE};
use crate::lanes::LaneId;
use farpool_model::Fold;

/// The measures of an aggregation over some rows.
#[derive(Clone, Debug)]
pub(crate) struct Measures {
    /// Masks that rows can have besides being selected; the first lets all pass.
    pub(crate) masks: Vec<Mask>,
    pub(crate) sums: Vec<SumOf>,
    pub(crate) folds: Vec<FoldOf>,
    /// For each accumulator, where its partial value is found.
    pub(crate) sources: Vec<Source>,
}

/// A condition of `FILTER (WHERE …)` and columns that must not be NULL.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mask {
    pub(crate) condition: Option<usize>,
    pub(crate) nullable: Vec<usize>,
}

/// Something that is added up per group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SumOf {
    Lane(LaneId, usize),
    /// The rows that a mask lets pass.
    Rows(usize),
}

/// A fold of a lane, under a mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FoldOf {
    pub(crate) lane: LaneId,
    pub(crate) mask: usize,
    pub(crate) fold: Fold,
}

/// Where the partial value of an accumulator is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// The number of all rows of the group.
    AllRows,
    Sum(usize),
    /// A fold, if the sum that counts its mask (`None`: all rows) is not 0.
    Fold(usize, Option<usize>),
}

impl Measures {
    /// The measures of `aggregation`, if every accumulator can run on lanes and no sum can leave 64 bits.
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

    /// The lanes that sums and folds are made of.
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
                // Of an expression that lanes cannot hold here, only a plain column's NULLs are known.
                let known = argument.is_none_or(|a| {
                    a.compiled.as_column().is_some() || a.lane.is_some_and(|l| (extent.interval)(l).is_some())
                });
                known.then_some(count.map_or(Source::AllRows, Source::Sum)).ok_or(NOT_ON_LANES)
            }
            Kind::Sum => {
                let (lane, (min, max)) = bounded(argument, extent)?;
                let largest = u128::from(min.unsigned_abs().max(max.unsigned_abs()));
                // A bit is left over for whoever wants to mark a sum.
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

/// The lane of an argument, and its bounds.
fn bounded(argument: Option<&Argument>, extent: &Extent<'_>) -> Fit<(LaneId, (i64, i64))> {
    let lane = argument.and_then(|argument| argument.lane);
    lane.and_then(|lane| Some((lane, (extent.interval)(lane)?))).ok_or(NOT_ON_LANES)
}

/// Whether an accumulator can run on lanes somewhere.
fn may_run_on_lanes(aggregation: &Aggregation, accumulator: &Accumulator) -> bool {
    let Some(index) = accumulator.argument else { return accumulator.kind == Kind::Count };
    let argument = &aggregation.arguments[index];
    argument.lane.is_some() || (accumulator.kind == Kind::Count && argument.compiled.as_column().is_some())
}

/// The place of `item`, which is added if it is not there.
fn position<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}
