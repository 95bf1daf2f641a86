//! The pending and finished work of a profile, the statistics of a table version's rows, which a [`ProfileTask`]
//! computes. A profile is *settled* when it is complete or has failed. Plain data, protected by the lock of a task.
//!
//! A *tap* is the owner's handle of a profile's computation. The profile of an append builds on that of the tap
//! before.

use super::memory::{Held, PartMemory};
use super::merge::ProfileMerge;
use super::part::{PartialProfile, Wake};
use super::{CollectedProfile, Outcome, ProfileTask, Tap};
use crate::durable::StoredProfile;
use arrow_schema::SchemaRef;
use farpool_columns::{Encoder, RowGroup};
use farpool_model::{Error, ErrorKind, Result, limits};
use farpool_statistics::Profile;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

/// The state of a profile's work.
#[derive(Debug, Default)]
pub(super) struct ProfileWork {
    /// Row groups that no worker has begun.
    pub waiting: VecDeque<Arc<RowGroup>>,
    /// Partial profiles that no worker has taken.
    pub idle: Vec<PartialProfile>,
    /// Number of steps in progress.
    pub busy: usize,
    /// Number of rows profiled, including those of the tap before if that tap is settled.
    pub rows_seen: u64,
    pub failed: Option<Error>,
    pub waiters: Vec<Arc<Waiter>>,
    pub stage: ProfileStage,
    pub memory: PartMemory,
    /// Whether memory for another partial profile was refused, so that no more are begun.
    pub parts_refused: bool,
    /// The task of the append that follows, whose profile builds on this one. Once it has all its rows, it does nothing
    /// until this profile is settled.
    pub next: Option<Arc<ProfileTask>>,
}

#[derive(Debug, Default)]
pub(super) enum ProfileStage {
    /// More rows may be added.
    #[default]
    Open,
    /// The profile is on disk and was not read yet. All rows are queued, in case it cannot be read.
    Stored(Stored),
    /// All rows are queued. They follow the rows of the tap `base`.
    Complete {
        base: Option<Arc<Tap>>,
        encoder: Encoder,
    },
    /// All rows were profiled, and the partial profiles are being merged; `None` while a worker has them.
    Settling(Option<Box<ProfileMerge>>),
    Settled(Outcome),
}

/// A profile on disk.
#[derive(Debug)]
pub(super) struct Stored {
    pub profile: Arc<StoredProfile>,
    pub encoder: Encoder,
    /// Whether a request needs the profile, and also while a thread reads it.
    pub is_wanted: bool,
    pub is_read: bool,
}

/// State of the profile that this one builds on.
enum BaseProfile {
    Known(Option<Arc<CollectedProfile>>),
    /// Not settled yet, or the input is not complete and so the base not known.
    Unsettled,
    Nothing(Error),
}

/// A step of work for one worker. It counts as in progress until its result is recorded by `book`.
pub(super) enum ProfileStep {
    Observe(PartialProfile),
    /// Merges the partial profiles: all rows were profiled, and the tap before is settled.
    Combine {
        parts: Vec<PartialProfile>,
        /// Memory for an empty profile, if there are no partial profiles.
        held: Held,
        base: Option<Arc<CollectedProfile>>,
        encoder: Encoder,
        /// Dropped by the worker outside the lock, because freeing memory may take long.
        _complete: ProfileStage,
    },
    Settle(Box<ProfileMerge>),
    Fail {
        error: Error,
        /// Dropped by the worker outside the lock, because freeing memory may take long.
        _held: (ProfileStage, VecDeque<Arc<RowGroup>>, Vec<PartialProfile>),
    },
}

/// Result of a step.
pub(super) enum StepResult {
    /// The partial profile, and the number of rows of the row group that was completed in it, or 0.
    Observed(PartialProfile, u64),
    Settling(Box<ProfileMerge>),
    Settled(Outcome),
    Failed(Error),
}

/// A caller that waits for a profile and works on it.
pub(super) struct Waiter {
    /// Callback that is called when there may be more work to do.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}

/// Kind of worker that does a step.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum WorkerKind {
    Background,
    Waiting,
}

impl ProfileStep {
    /// Works until `go_on` returns false, but at least on one column.
    pub fn run(self, schema: &SchemaRef, go_on: &dyn Fn() -> bool, wake: &Wake) -> Result<StepResult> {
        match self {
            ProfileStep::Observe(mut part) => {
                let rows = part.run(schema, go_on, wake)?;
                Ok(StepResult::Observed(part, rows))
            }
            ProfileStep::Combine { parts, held, base, encoder, .. } => {
                let mut parts = parts.into_iter().filter_map(PartialProfile::into_profile);
                let whole = parts.next().map_or_else(|| Ok((Profile::new(schema)?, held)), Ok)?;
                Ok(StepResult::Settling(Box::new(ProfileMerge::new(whole, parts.collect(), base, encoder))))
            }
            ProfileStep::Settle(mut settling) => Ok(match settling.run(go_on)? {
                Some(collected) => StepResult::Settled(Ok(collected)),
                None => StepResult::Settling(settling),
            }),
            ProfileStep::Fail { error, .. } => Ok(StepResult::Settled(Err(error))),
        }
    }
}

impl ProfileWork {
    /// Returns the tap that this one builds on; `None` if there is none, or the partial profiles were merged already.
    pub fn base(&self) -> Option<&Arc<Tap>> {
        match &self.stage {
            ProfileStage::Complete { base, .. } => base.as_ref(),
            ProfileStage::Open
            | ProfileStage::Stored(_)
            | ProfileStage::Settling(_)
            | ProfileStage::Settled(_) => None,
        }
    }

    fn before(&self) -> BaseProfile {
        match (&self.failed, &self.stage, self.base().map(|base| base.settled())) {
            (Some(error), ..) => BaseProfile::Nothing(error.clone()),
            (None, ProfileStage::Complete { .. }, None) => BaseProfile::Known(None),
            (None, ProfileStage::Complete { .. }, Some(Some(Ok(collected)))) => {
                BaseProfile::Known(Some(collected))
            }
            (None, ProfileStage::Complete { .. }, Some(Some(Err(error)))) => BaseProfile::Nothing(error),
            _ => BaseProfile::Unsettled,
        }
    }

    /// Returns whether there is a step to do for this kind of worker. The background gets none while callers wait for
    /// the profile, because they do the work.
    pub fn has_step(&self, worker: WorkerKind) -> bool {
        if worker == WorkerKind::Background && !self.waiters.is_empty() {
            return false;
        }
        // A waiter is woken when there is memory, and does not try before; the background retries.
        let may_reserve = worker == WorkerKind::Background || self.memory.lacking().is_none();
        match (&self.stage, self.before()) {
            (ProfileStage::Settled(_), _) => false,
            (ProfileStage::Settling(settling), _) => settling.is_some(),
            (ProfileStage::Open, BaseProfile::Unsettled) => self.has_group(may_reserve),
            (ProfileStage::Complete { .. }, BaseProfile::Known(_)) => {
                self.has_group(may_reserve) || self.is_observed() && (may_reserve || !self.idle.is_empty())
            }
            (ProfileStage::Complete { .. }, BaseProfile::Nothing(_)) => self.busy == 0,
            _ => false,
        }
    }

    fn has_group(&self, may_reserve: bool) -> bool {
        let parts_max = if self.parts_refused { 1 } else { limits::PROFILE_PARTS_MAX };
        let may_begin = self.free_part().is_some() || self.parts_at_work() < parts_max;
        self.idle.iter().any(PartialProfile::is_ready) || !self.waiting.is_empty() && may_begin && may_reserve
    }

    /// Returns the index of a partial profile that has no row group in progress; `None` if there is none.
    fn free_part(&self) -> Option<usize> {
        self.idle.iter().rposition(|part| !part.is_unfinished())
    }

    /// Returns the number of partial profiles that a worker has taken or whose values are being read.
    fn parts_at_work(&self) -> usize {
        self.busy + self.idle.iter().filter(|part| part.is_unfinished() && !part.is_ready()).count()
    }

    fn is_observed(&self) -> bool {
        self.busy == 0 && self.waiting.is_empty() && !self.idle.iter().any(PartialProfile::is_unfinished)
    }

    /// Takes the next step; `None` if there is none, or memory for it is short.
    pub fn take(&mut self, worker: WorkerKind) -> Option<ProfileStep> {
        if !self.has_step(worker) {
            return None;
        }
        let step = if let ProfileStage::Settling(settling) = &mut self.stage {
            settling.take().map(ProfileStep::Settle)
        } else {
            match self.before() {
                BaseProfile::Nothing(error) => Some(self.fail(error)),
                BaseProfile::Known(base) if self.is_observed() => self.combine(base),
                BaseProfile::Known(_) | BaseProfile::Unsettled => self.take_part().map(ProfileStep::Observe),
            }
        }?;
        self.busy += 1;
        Some(step)
    }

    /// Registers a request for the profile. Returns whether the caller must read it from disk, which is true for the
    /// first request only.
    pub fn want(&mut self) -> bool {
        match &mut self.stage {
            ProfileStage::Stored(stored) => !mem::replace(&mut stored.is_wanted, true) && !stored.is_read,
            _ => false,
        }
    }

    /// Returns the stored profile for the caller to read; `None` if another thread is reading it or it is not on disk
    /// only.
    pub fn begin_reading(&mut self) -> Option<(Arc<StoredProfile>, Encoder)> {
        let ProfileStage::Stored(stored) = &mut self.stage else { return None };
        let is_read = mem::replace(&mut stored.is_read, true);
        (!is_read).then(|| (stored.profile.clone(), stored.encoder.clone()))
    }

    /// Records the outcome of reading the profile. A profile that cannot be read is computed, unless the pool has no
    /// room for it. Returns values that the caller must drop outside the lock.
    pub fn end_reading(&mut self, read: Outcome) -> Option<(ProfileStage, VecDeque<Arc<RowGroup>>)> {
        // The profile may have been abandoned while it was read.
        let ProfileStage::Stored(Stored { encoder, .. }) = &self.stage else { return None };
        let computed = ProfileStage::Complete { base: None, encoder: encoder.clone() };
        if read.as_ref().is_err_and(|error| error.kind != ErrorKind::OverLimit) {
            self.rows_seen = 0;
            return Some((mem::replace(&mut self.stage, computed), VecDeque::new()));
        }
        Some((mem::replace(&mut self.stage, ProfileStage::Settled(read)), mem::take(&mut self.waiting)))
    }

    fn combine(&mut self, base: Option<Arc<CollectedProfile>>) -> Option<ProfileStep> {
        let held = if self.idle.is_empty() { self.memory.for_no_rows()? } else { None };
        // From now on, this count includes the rows of the base.
        self.rows_seen += self.base().map_or(0, |base| base.rows_seen());
        let complete = mem::replace(&mut self.stage, ProfileStage::Settling(None));
        let ProfileStage::Complete { encoder, .. } = &complete else { return None };
        Some(ProfileStep::Combine {
            parts: mem::take(&mut self.idle),
            held,
            base,
            encoder: encoder.clone(),
            _complete: complete,
        })
    }

    fn fail(&mut self, error: Error) -> ProfileStep {
        let complete = mem::replace(&mut self.stage, ProfileStage::Settling(None));
        ProfileStep::Fail {
            error,
            _held: (complete, mem::take(&mut self.waiting), mem::take(&mut self.idle)),
        }
    }

    fn take_part(&mut self) -> Option<PartialProfile> {
        if let Some(ready) = self.idle.iter().position(PartialProfile::is_ready) {
            return Some(self.idle.swap_remove(ready));
        }
        let (free, at_work) = (self.free_part(), self.parts_at_work());
        let group = self.waiting.front()?;
        let more = match free.and_then(|free| self.idle.get(free)) {
            Some(part) => self.memory.for_group(group, part.held()),
            None if at_work == 0 => self.memory.for_group(group, &None),
            None => {
                let held = self.memory.for_further_part(group);
                self.parts_refused = held.is_none();
                held
            }
        }?;
        let group = self.waiting.pop_front()?;
        Some(match free.map(|free| self.idle.swap_remove(free)) {
            Some(mut part) => {
                part.begin(group, more);
                part
            }
            None => PartialProfile::new(group, more),
        })
    }

    /// Records the result of a step. Returns values that the caller must drop outside the lock.
    pub fn book(&mut self, done: StepResult) -> Option<(VecDeque<Arc<RowGroup>>, Vec<PartialProfile>)> {
        match done {
            StepResult::Observed(part, rows) => {
                self.rows_seen += rows;
                self.idle.push(part);
            }
            StepResult::Settling(settling) => self.stage = ProfileStage::Settling(Some(settling)),
            StepResult::Settled(outcome) => self.stage = ProfileStage::Settled(outcome),
            StepResult::Failed(error) if matches!(self.stage, ProfileStage::Settling(_)) => {
                self.stage = ProfileStage::Settled(Err(error));
            }
            StepResult::Failed(error) => return Some(self.fail_with(error)),
        }
        None
    }

    /// Marks the profile as failed and stops its work. Returns values that the caller must drop outside the lock.
    pub fn fail_with(&mut self, error: Error) -> (VecDeque<Arc<RowGroup>>, Vec<PartialProfile>) {
        self.failed = Some(error);
        (mem::take(&mut self.waiting), mem::take(&mut self.idle))
    }
}
