//! Merging after the scan: tasks merge the operator states of all threads (such as their groups) to one result.

use super::{Phase, Run, Step};
use crate::dispenser::Dispenser;
use farpool_model::Result;
use farpool_operators::Merge;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) struct MergeTasks {
    merge: Merge,
    tasks: Dispenser,
}

impl Run {
    /// Begins merging. All threads have put back their operator states by now, because a thread does so before it
    /// completes a row group.
    ///
    /// Example of what goes wrong otherwise, with two row groups:
    /// 1. Thread A scans the first row group and completes it, but still has its state.
    /// 2. Thread B completes the second row group, which is the last, and merges the states that are there.
    /// 3. A returns its state. The result lacks the rows of the first row group, and nothing reports an error.
    pub(super) fn scan_complete(&self) {
        if self.limit_reached() {
            return self.finish();
        }
        let states = {
            let mut held = self.held.lock();
            if matches!(held.phase, Phase::Scanning) {
                let (returned, made) = (held.states.len(), self.states.load(Ordering::Relaxed));
                assert_eq!(returned, made, "all states are returned before the last row group is complete");
            }
            std::mem::take(&mut held.states)
        };
        let states = states.into_iter().map(|state| state.upper.unwrap_or(state.scan)).collect();
        let merge = self.result_plan().merge(states);
        let tasks = Dispenser::new(merge.tasks());
        if merge.tasks() == 0 {
            return self.finish();
        }
        let mut held = self.held.lock();
        let is_first = !matches!(held.phase, Phase::Merging(_) | Phase::Done);
        assert!(is_first, "the scan of a run completes once");
        if matches!(held.phase, Phase::Scanning) {
            held.phase = Phase::Merging(Arc::new(MergeTasks { merge, tasks }));
        }
    }

    /// Runs one of the remaining merge tasks.
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
