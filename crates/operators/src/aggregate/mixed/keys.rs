//! The interface by which the *mixed way* of aggregation finds the group id of each row, and the forms of group
//! keys.
//!
//! A *lane* is a column or an expression evaluated as 64-bit integers.

use crate::aggregate::radix;
use crate::evaluate::Frame;
use crate::group::Groups;
use crate::lanes::{LaneBuffers, LaneId, RowSet};
use farpool_columns::RowGroup;
use farpool_model::Result;
use std::collections::BTreeSet;

/// Form in which group keys are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// There are no group keys, so that all rows belong to one group.
    None,
    /// As the number of a combination of codes (such as dictionary codes) of the row group; each combination is
    /// looked up in the hash table once.
    Dense,
    /// All group keys of a row packed into one 64-bit integer.
    Packed,
    /// All group keys of a row encoded as a sequence of 64-bit words.
    Words,
}

/// Some rows of a row group, with the decoded columns and lanes that their group keys need.
#[derive(Clone, Copy)]
pub(crate) struct KeyInput<'b> {
    pub(super) group: &'b RowGroup,
    pub(super) rows: RowSet<'b>,
    /// Decoded columns; they must include those reported by [`KeyLookup::decoded`].
    pub(super) frame: &'b Frame,
    /// Values of lanes (columns or expressions evaluated as 64-bit integers); they must include those reported by
    /// [`KeyLookup::lanes`].
    pub(super) lanes: &'b LaneBuffers,
}

/// Group keys of an aggregation, bound to a row group.
pub(crate) trait KeyLookup {
    fn form(&self) -> KeyForm;

    /// Adds the lanes that group keys are read from to `lanes`.
    fn lanes(&self, lanes: &mut Vec<LaneId>);

    /// Adds the columns that must be decoded for group keys to `columns`.
    fn decoded(&self, columns: &mut BTreeSet<usize>);

    /// Replaces `ids` by the group id in `groups` of each row. Adds groups that are new.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a row.
    fn identify(&mut self, input: KeyInput<'_>, groups: &mut Groups, ids: &mut Vec<u32>) -> Result<()>;

    /// Returns the group keys of each row, in the form by which rows are partitioned by hash; `None` for forms that
    /// look each combination up only once anyway.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a row.
    fn partitionable(&mut self, input: KeyInput<'_>, groups: &Groups) -> Result<Option<radix::Keys<'_>>>;
}

/// Look-up without group keys: all rows belong to one group.
pub(crate) struct NoKeys;

impl KeyLookup for NoKeys {
    fn form(&self) -> KeyForm {
        KeyForm::None
    }

    fn lanes(&self, _: &mut Vec<LaneId>) {}

    fn decoded(&self, _: &mut BTreeSet<usize>) {}

    fn identify(&mut self, _: KeyInput<'_>, _: &mut Groups, _: &mut Vec<u32>) -> Result<()> {
        Ok(())
    }

    fn partitionable(&mut self, _: KeyInput<'_>, _: &Groups) -> Result<Option<radix::Keys<'_>>> {
        Ok(None)
    }
}
