//! The partial aggregation of one worker, kept between steps: groups and accumulators, in the form of the
//! ways taken.

use super::aggregation::Aggregation;
use super::radix::Radix;
use super::store::Store;
use super::whole::WholeTable;
use crate::group::Groups;

/// Partial aggregation of one worker.
pub(crate) struct Partial {
    pub(super) groups: Groups,
    pub(super) stores: Vec<Store>,
    /// Scratch: the group of each row of a batch.
    pub(super) ids: Vec<u32>,
    /// The groups of the whole-table way, which then holds all.
    pub(super) whole: Option<WholeTable>,
    /// The partitions of the radix way, once there are many groups.
    pub(super) radix: Option<Radix>,
    pub(super) spill: SpillState,
}

/// State by which a worker keeps its groups within their memory.
#[derive(Debug)]
pub(crate) struct SpillState {
    /// Bytes that the groups may take.
    pub(super) room: usize,
    /// Rows since the table was empty.
    pub(super) rows: u64,
    /// Rows that still bypass grouping before it is tried again.
    pub(super) bypass: u64,
}

impl Default for SpillState {
    fn default() -> Self {
        SpillState { room: usize::MAX, rows: 0, bypass: 0 }
    }
}

impl Partial {
    /// Creates the empty partial of `aggregation`.
    pub(crate) fn new(aggregation: &Aggregation) -> Self {
        let mut partial = Partial {
            groups: aggregation.groups(),
            stores: aggregation.stores(),
            ids: Vec::new(),
            whole: None,
            radix: None,
            spill: SpillState::default(),
        };
        partial.make_room();
        partial
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let whole = self.whole.as_ref().map_or(0, WholeTable::bytes);
        self.group_bytes() + whole + self.ids.capacity() * 4
    }

    /// Bytes of the groups that can leave early.
    pub(super) fn group_bytes(&self) -> usize {
        let radix = self.radix.as_ref().map_or(0, Radix::bytes);
        self.groups.bytes() + self.stores.iter().map(Store::bytes).sum::<usize>() + radix
    }

    /// Returns whether there is no group.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.len() == 0 && self.radix.as_ref().is_none_or(Radix::is_empty)
    }

    /// Limits the groups to `bytes` from now on; when they exceed it, they leave early.
    pub(crate) fn set_room(&mut self, bytes: usize) {
        self.spill.room = bytes;
    }

    /// Grows every accumulator to the number of groups.
    pub(super) fn make_room(&mut self) {
        let groups = self.groups.len();
        self.stores.iter_mut().for_each(|store| store.resize(groups));
    }
}
