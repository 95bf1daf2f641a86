//! The partial aggregation of one worker thread, kept from step to step: its groups and their accumulators
//! (running values), in the form that the chosen implementation uses.
//!
//! A *way* is an implementation of aggregation (see [`super`]).

use super::aggregation::Aggregation;
use super::radix::Radix;
use super::store::Store;
use super::whole::WholeTable;
use crate::group::Groups;

/// Partial aggregation of one worker.
pub(crate) struct Partial {
    pub(super) groups: Groups,
    pub(super) stores: Vec<Store>,
    /// Scratch memory: the group of each row of a batch.
    pub(super) ids: Vec<u32>,
    /// Array of the whole-table way, if it is used; it then has all groups.
    pub(super) whole: Option<WholeTable>,
    /// Partitions of the radix way, once there are many groups.
    pub(super) radix: Option<Radix>,
    pub(super) spill: SpillState,
}

/// State by which a worker keeps its groups within its memory limit.
#[derive(Debug)]
pub(crate) struct SpillState {
    /// Maximum number of bytes for the groups, above which they are emitted early.
    pub(super) room: usize,
    /// Maximum number of bytes for the groups, above which the aggregation fails.
    pub(super) limit: usize,
    /// Number of rows added since the hash table was last empty.
    pub(super) rows: u64,
    /// Number of rows that will be emitted without grouping before grouping is tried again.
    pub(super) bypass: u64,
}

impl Default for SpillState {
    fn default() -> Self {
        SpillState { room: usize::MAX, limit: usize::MAX, rows: 0, bypass: 0 }
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

    /// Returns the bytes of memory that the partial aggregation takes.
    pub(crate) fn bytes(&self) -> usize {
        let whole = self.whole.as_ref().map_or(0, WholeTable::bytes);
        self.group_bytes() + whole + self.ids.capacity() * 4
    }

    /// Returns the bytes of the groups that can be emitted early.
    pub(super) fn group_bytes(&self) -> usize {
        let radix = self.radix.as_ref().map_or(0, Radix::bytes);
        self.groups.bytes() + self.stores.iter().map(Store::bytes).sum::<usize>() + radix
    }

    /// Returns whether there is no group.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.len() == 0 && self.radix.as_ref().is_none_or(Radix::is_empty)
    }

    /// Sets the memory limit of the groups to `bytes` from now on. Groups that exceed it are emitted early, as
    /// partial results.
    pub(crate) fn set_room(&mut self, bytes: usize) {
        self.spill.room = bytes;
    }

    /// Sets the memory limit of groups that are never emitted early to `bytes` from now on. The aggregation fails when
    /// they exceed it.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.spill.limit = bytes;
    }

    /// Grows the stores of all accumulators to the current number of groups.
    pub(super) fn make_room(&mut self) {
        let groups = self.groups.len();
        self.stores.iter_mut().for_each(|store| store.resize(groups));
    }
}
