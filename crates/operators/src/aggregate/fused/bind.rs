//! Whether a row group is eligible, and what is computed for it: each distinct thing once.

use super::DOMAIN_MAX;
use super::masks::Mask;
use crate::aggregate::compile::{Accumulator, Aggregation, Condition, Kind};
use crate::aggregate::keys::DenseKeys;
use crate::lanes::{BoundLanes, LaneId};
use crate::select::BoundFilter;
use farpool_columns::RowGroup;
use farpool_model::Result;
use std::cmp::Ordering;

/// An aggregation bound to one row group.
pub(crate) struct Fused<'a> {
    pub(super) group: &'a RowGroup,
    pub(super) lanes: BoundLanes<'a>,
    pub(super) keys: DenseKeys<'a>,
    pub(super) conditions: Vec<BoundFilter<'a>>,
    /// Masks that rows can have besides being selected; the first lets all pass.
    pub(super) masks: Vec<Mask>,
    pub(super) sums: Vec<SumOf>,
    pub(super) extremes: Vec<ExtremeOf>,
    /// For each accumulator, where its partial value is found.
    pub(super) sources: Vec<Source>,
    /// The lanes that sums and extremes are made of.
    pub(super) wanted: Vec<LaneId>,
}

/// Something that is added up per group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SumOf {
    Lane(LaneId, usize),
    /// The rows that a mask lets pass.
    Rows(usize),
}

/// An extreme of a lane, under a mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ExtremeOf {
    pub(super) lane: LaneId,
    pub(super) mask: usize,
    pub(super) wanted: Ordering,
}

/// Where the partial value of an accumulator is found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The number of all rows of the group.
    AllRows,
    Sum(usize),
    /// An extreme, if the sum that counts its mask (`None`: all rows) is not 0.
    Extreme(usize, Option<usize>),
}

impl<'a> Fused<'a> {
    /// Binds `aggregation` to `group`; `None` when it is not eligible.
    ///
    /// # Errors
    /// As binding a filter does.
    pub(crate) fn bind(aggregation: &'a Aggregation, group: &'a RowGroup) -> Result<Option<Fused<'a>>> {
        if !aggregation.paths.fused || aggregation.accumulators.iter().any(|a| !aggregation.may_fuse(a)) {
            return Ok(None);
        }
        let lanes = aggregation.lanes.bind(group);
        let limit = DOMAIN_MAX.min(group.rows.max(64));
        let Some(keys) = DenseKeys::bind(&aggregation.keys, &lanes, group, limit)? else {
            return Ok(None);
        };
        let mut fused = Fused {
            group,
            lanes,
            keys,
            conditions: Vec::new(),
            masks: vec![Mask::default()],
            sums: Vec::new(),
            extremes: Vec::new(),
            sources: Vec::new(),
            wanted: Vec::new(),
        };
        for accumulator in &aggregation.accumulators {
            match fused.source(aggregation, accumulator) {
                Some(source) => fused.sources.push(source),
                None => return Ok(None),
            }
        }
        let bind = |c: &'a Condition| c.filter.bind(group);
        fused.conditions = aggregation.conditions.iter().map(bind).collect::<Result<_>>()?;
        let lanes = fused.sums.iter().filter_map(|s| match s {
            SumOf::Lane(lane, _) => Some(*lane),
            SumOf::Rows(_) => None,
        });
        fused.wanted = lanes.chain(fused.extremes.iter().map(|e| e.lane)).chain(fused.keys.lanes()).collect();
        Ok(Some(fused))
    }

    fn source(&mut self, aggregation: &Aggregation, accumulator: &Accumulator) -> Option<Source> {
        let argument = accumulator.argument.map(|a| &aggregation.arguments[a]);
        let nullable = argument.map_or(Vec::new(), |a| {
            let columns = a.compiled.columns().iter().copied();
            columns.filter(|column| self.group.chunks[*column].null_count() > 0).collect()
        });
        let mask = position(&mut self.masks, Mask { condition: accumulator.condition, nullable });
        let count = (mask != 0).then(|| position(&mut self.sums, SumOf::Rows(mask)));
        if accumulator.kind == Kind::Count {
            // Of an expression that lanes cannot hold here, only a plain column's NULLs are known.
            let known = argument.is_none_or(|a| {
                a.compiled.as_column().is_some() || a.lane.is_some_and(|l| self.lanes.interval(l).is_some())
            });
            return known.then_some(count.map_or(Source::AllRows, Source::Sum));
        }
        let lane = argument?.lane?;
        let (min, max) = self.lanes.interval(lane)?;
        if accumulator.kind == Kind::Sum {
            let largest = u128::from(min.unsigned_abs().max(max.unsigned_abs()));
            let room = largest * self.group.rows as u128;
            let fits = room <= i64::MAX as u128;
            return fits.then(|| Source::Sum(position(&mut self.sums, SumOf::Lane(lane, mask))));
        }
        let wanted = if accumulator.kind == Kind::Min { Ordering::Less } else { Ordering::Greater };
        let extreme = ExtremeOf { lane, mask, wanted };
        Some(Source::Extreme(position(&mut self.extremes, extreme), count))
    }
}

impl Aggregation {
    /// Whether an accumulator can run on lanes in some row group.
    fn may_fuse(&self, accumulator: &Accumulator) -> bool {
        accumulator.argument.is_none_or(|index| {
            let argument = &self.arguments[index];
            argument.lane.is_some()
                || (accumulator.kind == Kind::Count && argument.compiled.as_column().is_some())
        })
    }
}

/// The place of `item`, which is added if it is not there.
fn position<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}
