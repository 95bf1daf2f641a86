//! An aggregation over groups in an array, bound to the chunks of one row group. The array index of a group is
//! its group number. A *lane* is a column or an expression evaluated as 64-bit integers.

use super::keys::{DenseKeys, KeyFrame};
use super::measures::Measures;
use crate::aggregate::aggregation::{Aggregation, Condition};
use crate::aggregate::extent::Extent;
use crate::aggregate::unfit::Fit;
use crate::lanes::{BoundLanes, LaneId};
use crate::select::{BoundFilter, FilterMemo};
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::u64_from;
use std::borrow::Cow;

/// An aggregation bound to one row group.
pub(crate) struct DenseRows<'a> {
    pub(super) group: &'a RowGroup,
    pub(crate) lanes: BoundLanes<'a>,
    pub(crate) keys: DenseKeys<'a>,
    pub(super) conditions: Vec<BoundFilter<'a>>,
    pub(crate) measures: Cow<'a, Measures>,
    /// Lanes that measures and group keys read and that can be evaluated for the row group.
    pub(super) wanted: Vec<LaneId>,
}

impl<'a> DenseRows<'a> {
    /// Binds `aggregation`, except its FILTER conditions, to `group`. Group numbers are less than `limit`, and are
    /// valid only within this row group.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn bind(
        aggregation: &'a Aggregation,
        group: &'a RowGroup,
        limit: usize,
    ) -> Result<Fit<DenseRows<'a>>> {
        let lanes = aggregation.lanes.bind(group);
        let keys = match DenseKeys::bind(&aggregation.keys, &lanes, group, limit)? {
            Ok(keys) => keys,
            Err(unfit) => return Ok(Err(unfit)),
        };
        let extent = Extent {
            rows: u64_from(group.rows),
            nullable: &|column| group.chunks[column].null_count() > 0,
            interval: &|lane| lanes.interval(lane),
        };
        let measures = Measures::of(aggregation, &extent);
        Ok(measures.map(|measures| DenseRows::new(group, lanes, keys, Cow::Owned(measures))))
    }

    /// Binds `aggregation`, except its FILTER conditions, to a row group of the table for which `frames` and
    /// `measures` were made. Group numbers are valid in the whole table.
    ///
    /// # Errors
    /// `Internal` when the row group is of another table.
    pub(crate) fn within(
        aggregation: &'a Aggregation,
        frames: &[KeyFrame],
        measures: &'a Measures,
        group: &'a RowGroup,
    ) -> Result<DenseRows<'a>> {
        let lanes = aggregation.lanes.bind(group);
        let keys = DenseKeys::within(&aggregation.keys, frames, &lanes, group)?;
        Ok(DenseRows::new(group, lanes, keys, Cow::Borrowed(measures)))
    }

    fn new(
        group: &'a RowGroup,
        lanes: BoundLanes<'a>,
        keys: DenseKeys<'a>,
        measures: Cow<'a, Measures>,
    ) -> DenseRows<'a> {
        let holds = |lane: &LaneId| lanes.interval(*lane).is_some();
        let wanted = measures.lanes().filter(holds).chain(keys.lanes()).collect();
        DenseRows { group, lanes, keys, conditions: Vec::new(), measures, wanted }
    }

    /// Binds the FILTER conditions. `memos` have the results of these conditions on the dictionaries of the row
    /// group.
    ///
    /// # Errors
    /// Errors of binding a filter.
    pub(crate) fn with_conditions(
        mut self,
        aggregation: &'a Aggregation,
        memos: &'a [FilterMemo],
    ) -> Result<DenseRows<'a>> {
        let bind = |(c, memo): (&'a Condition, &'a FilterMemo)| c.filter.bind(self.group, memo);
        self.conditions = aggregation.conditions.iter().zip(memos).map(bind).collect::<Result<_>>()?;
        Ok(self)
    }
}
