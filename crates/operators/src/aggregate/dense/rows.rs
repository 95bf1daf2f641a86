//! Whether a row group is eligible, and what is computed for it.

use super::keys::DenseKeys;
use super::measures::{Extent, Measures};
use crate::aggregate::aggregation::{Aggregation, Condition};
use crate::aggregate::fused::DOMAIN_MAX;
use crate::aggregate::whole::Whole;
use crate::group::Packing;
use crate::lanes::{BoundLanes, LaneId};
use crate::select::{BoundFilter, FilterMemo};
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::u64_from;
use std::borrow::Cow;

/// An aggregation bound to one row group.
pub(crate) struct Fused<'a> {
    pub(crate) group: &'a RowGroup,
    pub(crate) lanes: BoundLanes<'a>,
    pub(crate) keys: DenseKeys<'a>,
    pub(crate) packing: Option<&'a Packing>,
    pub(crate) conditions: Vec<BoundFilter<'a>>,
    pub(crate) measures: Cow<'a, Measures>,
    /// The lanes that measures and keys are made of, where they hold.
    pub(crate) wanted: Vec<LaneId>,
}

impl<'a> Fused<'a> {
    /// Binds `aggregation`, all but its conditions, to `group` with group numbers that mean something in it
    /// alone; `None` when it is not eligible.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn bind(aggregation: &'a Aggregation, group: &'a RowGroup) -> Result<Option<Fused<'a>>> {
        if !aggregation.paths.fused {
            return Ok(None);
        }
        let lanes = aggregation.lanes.bind(group);
        let limit = DOMAIN_MAX.min(group.rows.max(64));
        let Some(keys) = DenseKeys::bind(&aggregation.keys, &lanes, group, limit)? else {
            return Ok(None);
        };
        let extent = Extent {
            rows: u64_from(group.rows),
            nullable: &|column| group.chunks[column].null_count() > 0,
            interval: &|lane| lanes.interval(lane),
        };
        let Some(measures) = Measures::of(aggregation, &extent) else { return Ok(None) };
        Ok(Some(Fused::new(aggregation, group, lanes, keys, Cow::Owned(measures))))
    }

    /// Binds `aggregation`, all but its conditions, to a row group of the table that `whole` is for, with the
    /// table's group numbers.
    ///
    /// # Errors
    /// `Internal` when the row group is of another table.
    pub(crate) fn bind_whole(
        aggregation: &'a Aggregation,
        whole: &'a Whole,
        group: &'a RowGroup,
    ) -> Result<Fused<'a>> {
        let lanes = aggregation.lanes.bind(group);
        let keys = DenseKeys::within(&aggregation.keys, whole.keys(), &lanes, group)?;
        Ok(Fused::new(aggregation, group, lanes, keys, Cow::Borrowed(whole.measures())))
    }

    fn new(
        aggregation: &'a Aggregation,
        group: &'a RowGroup,
        lanes: BoundLanes<'a>,
        keys: DenseKeys<'a>,
        measures: Cow<'a, Measures>,
    ) -> Fused<'a> {
        let holds = |lane: &LaneId| lanes.interval(*lane).is_some();
        let wanted = measures.lanes().filter(holds).chain(keys.lanes()).collect();
        let packing = aggregation.packing.as_deref();
        Fused { group, lanes, keys, packing, conditions: Vec::new(), measures, wanted }
    }

    /// Binds the conditions too, whose dictionaries were asked.
    ///
    /// # Errors
    /// As binding a filter does.
    pub(crate) fn with_conditions(
        mut self,
        aggregation: &'a Aggregation,
        memos: &'a [FilterMemo],
    ) -> Result<Fused<'a>> {
        let bind = |(c, memo): (&'a Condition, &'a FilterMemo)| c.filter.bind(self.group, memo);
        self.conditions = aggregation.conditions.iter().zip(memos).map(bind).collect::<Result<_>>()?;
        Ok(self)
    }
}
