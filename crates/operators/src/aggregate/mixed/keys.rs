//! What finds the groups of rows, whatever the form of their keys.

use crate::aggregate::radix;
use crate::evaluate::Frame;
use crate::group::Groups;
use crate::lanes::{LaneBuffers, LaneId, RowSet};
use farpool_columns::RowGroup;
use farpool_model::Result;
use std::collections::BTreeSet;

/// The form in which keys are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// There are no keys.
    None,
    /// Dense numbers of the row group, each of which is looked up once.
    Dense,
    /// One integer for all keys of a row.
    Packed,
    /// A row of words for all keys of a row.
    Words,
}

/// Some rows of a row group, and what has been made of their columns.
#[derive(Clone, Copy)]
pub(crate) struct KeyInput<'b> {
    pub(super) group: &'b RowGroup,
    pub(super) rows: RowSet<'b>,
    /// Has the columns that [`KeyLookup::decoded`] tells.
    pub(super) frame: &'b Frame,
    /// Has the lanes that [`KeyLookup::lanes`] tells.
    pub(super) lanes: &'b LaneBuffers,
}

/// The keys of an aggregation, bound to a row group.
pub(crate) trait KeyLookup {
    fn form(&self) -> KeyForm;

    /// Adds the lanes that keys are read from.
    fn lanes(&self, lanes: &mut Vec<LaneId>);

    /// Adds the columns that keys are decoded from.
    fn decoded(&self, columns: &mut BTreeSet<usize>);

    /// Replaces `ids` by the group of each row, in `groups`.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a row.
    fn identify(&mut self, input: KeyInput<'_>, groups: &mut Groups, ids: &mut Vec<u32>) -> Result<()>;

    /// The keys of each row as the radix way partitions them; `None` where each of them is looked up once anyway.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a row.
    fn partitionable(&mut self, input: KeyInput<'_>, groups: &Groups) -> Result<Option<radix::Keys<'_>>>;
}

/// No keys: all rows are of one group, which needs no number.
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
