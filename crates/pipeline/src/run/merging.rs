//! Merging after the scan: the states of all threads become one result, in tasks.

use super::{Phase, Run, Step};
use crate::dispenser::Dispenser;
use farpool_model::Result;
use farpool_operators::Merge;
use std::sync::Arc;

pub(super) struct MergeTasks {
    merge: Merge,
    tasks: Dispenser,
}

impl Run {
    /// Begins merging. All states have been returned by now: a thread returns its own before it completes a row group.
    pub(super) fn scan_complete(&self) {
        if self.limit_reached() {
            return self.finish();
        }
        let states = std::mem::take(&mut self.held.lock().states);
        let merge = self.plan.merge(states);
        let tasks = Dispenser::new(merge.tasks());
        if merge.tasks() == 0 {
            return self.finish();
        }
        let mut held = self.held.lock();
        if matches!(held.phase, Phase::Scanning) {
            held.phase = Phase::Merging(Arc::new(MergeTasks { merge, tasks }));
        }
    }

    /// Performs one of the remaining tasks.
    pub(super) fn merge_step(&self, merging: &MergeTasks) -> Result<Step> {
        match merging.tasks.claim() {
            Some(task) => self.merge(merging, task),
            None => Ok(Step::Busy),
        }
    }

    fn merge(&self, merging: &MergeTasks, task: usize) -> Result<Step> {
        let mut batches = Vec::new();
        merging.merge.run(task, &mut |batch| self.accept(batch, &mut batches))?;
        self.check()?;
        let step = self.give(batches)?;
        let unneeded = if self.limit_reached() { merging.tasks.close().len() } else { 0 };
        if merging.tasks.complete(1 + unneeded) {
            self.finish();
        }
        Ok(step)
    }
}
