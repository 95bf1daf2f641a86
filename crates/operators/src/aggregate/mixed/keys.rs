//! The trait that finds the groups of rows, and the forms of keys.

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
    /// No keys.
    None,
    /// Dense numbers of the row group, each of which is looked up once.
    Dense,
    /// All keys of a row packed into one integer.
    Packed,
    /// All keys of a row encoded as a row of words.
    Words,
}

/// Some rows of a row group, with the columns and lanes that were computed for them.
#[derive(Clone, Copy)]
pub(crate) struct KeyInput<'b> {
    pub(super) group: &'b RowGroup,
    pub(super) rows: RowSet<'b>,
    /// Holds the columns reported by [`KeyLookup::decoded`].
    pub(super) frame: &'b Frame,
    /// Holds the lanes reported by [`KeyLookup::lanes`].
    pub(super) lanes: &'b LaneBuffers,
}

/// The keys of an aggregation, bound to a row group.
pub(crate) trait KeyLookup {
    fn form(&self) -> KeyForm;

    /// Adds the lanes that keys are read from.
    fn lanes(&self, lanes: &mut Vec<LaneId>);

    /// Adds the columns that must be decoded for keys.
    fn decoded(&self, columns: &mut BTreeSet<usize>);

    /// Replaces `ids` by the group in `groups` of each row.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a row.
    fn identify(&mut self, input: KeyInput<'_>, groups: &mut Groups, ids: &mut Vec<u32>) -> Result<()>;

    /// Returns the keys of each row in the form that the radix way partitions; `None` in a form where each
    /// key is looked up only once anyway.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a row.
    fn partitionable(&mut self, input: KeyInput<'_>, groups: &Groups) -> Result<Option<radix::Keys<'_>>>;
}

/// No keys: all rows belong to one group.
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
