//! Finds the groups of rows whose group keys have few possible combinations. An array maps the number of each
//! combination (the group number, computed from dictionary codes or integers) to a group id, so that each combination
//! is looked up in the hash table only once per row group.

use super::keys::{KeyForm, KeyInput, KeyLookup};
use crate::aggregate::aggregation::Aggregation;
use crate::aggregate::dense::{DenseKeys, KeyBuffers};
use crate::aggregate::radix;
use crate::group::{Groups, Packing};
use crate::lanes::{BoundLanes, LaneId};
use farpool_columns::RowGroup;
use farpool_model::Result;
use std::collections::BTreeSet;

/// Maximum ratio of possible combinations to rows of the row group for which the array pays.
const NUMBERS_PER_ROW_MAX: usize = 4;

/// As [`NUMBERS_PER_ROW_MAX`], if all group keys of a row are packed into one integer: looking that up in the hash
/// table costs little more than the array.
const NUMBERS_PER_ROW_MAX_PACKED: usize = 1;

/// Minimum row count in these ratios: row groups with fewer rows count as having this many.
const ROWS_MIN: usize = 64;

/// Entry of a group number whose group has not been looked up yet.
const UNKNOWN: u32 = u32::MAX;
/// Entry of a group number whose group is being looked up.
const ASKED: u32 = u32::MAX - 1;

/// Group numbers of the rows of a row group, and the group ids that are known so far.
pub(crate) struct DenseNumbers<'a> {
    keys: DenseKeys<'a>,
    packing: Option<&'a Packing>,
    groups: Vec<u32>,
    buffers: KeyBuffers,
    numbers: Vec<u32>,
}

impl<'a> DenseNumbers<'a> {
    /// Binds the group keys of `aggregation` to `group`; `None` if they have many more possible combinations than there
    /// are rows.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn bind(
        aggregation: &'a Aggregation,
        lanes: &BoundLanes<'a>,
        group: &'a RowGroup,
    ) -> Result<Option<Self>> {
        let packing = aggregation.packing.as_deref();
        let per_row = if packing.is_some() { NUMBERS_PER_ROW_MAX_PACKED } else { NUMBERS_PER_ROW_MAX };
        let limit = group.rows.max(ROWS_MIN) * per_row;
        let keys = DenseKeys::bind(&aggregation.keys, lanes, group, limit)?.ok();
        Ok(keys.map(|keys| DenseNumbers {
            groups: vec![UNKNOWN; keys.domain],
            keys,
            packing,
            buffers: KeyBuffers::default(),
            numbers: Vec::new(),
        }))
    }
}

impl KeyLookup for DenseNumbers<'_> {
    fn form(&self) -> KeyForm {
        KeyForm::Dense
    }

    fn lanes(&self, lanes: &mut Vec<LaneId>) {
        lanes.extend(self.keys.lanes());
    }

    fn decoded(&self, _: &mut BTreeSet<usize>) {}

    fn identify(&mut self, input: KeyInput<'_>, table: &mut Groups, ids: &mut Vec<u32>) -> Result<()> {
        let DenseNumbers { keys, packing, groups, buffers, numbers } = self;
        keys.number(input.rows, input.lanes, buffers, numbers)?;
        let mut fresh = Vec::new();
        for number in numbers.iter() {
            let group = &mut groups[*number as usize];
            if *group == UNKNOWN {
                *group = ASKED;
                fresh.push(*number);
            }
        }
        if !fresh.is_empty() {
            keys.intern(&fresh, *packing, table, ids)?;
            fresh.iter().zip(ids.iter()).for_each(|(number, id)| groups[*number as usize] = *id);
        }
        ids.clear();
        ids.extend(numbers.iter().map(|number| groups[*number as usize]));
        Ok(())
    }

    fn partitionable(&mut self, _: KeyInput<'_>, _: &Groups) -> Result<Option<radix::Keys<'_>>> {
        Ok(None)
    }
}
