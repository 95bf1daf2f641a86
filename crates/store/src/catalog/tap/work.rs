//! What is to be done of a profile, and what has been: plain data behind the lock of a gathering.

use super::memory::{Held, PartMemory};
use super::part::Part;
use super::settling::Settling;
use super::{Gathered, Gathering, Outcome, Tap};
use arrow_schema::SchemaRef;
use farpool_columns::{Encoder, RowGroup};
use farpool_model::{Error, Result, limits};
use farpool_statistics::Profile;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

/// See the file's comment.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Row groups that nobody has begun with.
    pub waiting: VecDeque<Arc<RowGroup>>,
    /// Parts that nobody is at.
    pub idle: Vec<Part>,
    /// Steps that workers are doing.
    pub busy: usize,
    /// Those before it counted once they are settled.
    pub rows_seen: u64,
    pub failed: Option<Error>,
    pub waiters: Vec<Arc<Waiter>>,
    pub stage: Stage,
    pub memory: PartMemory,
    /// No further parts are begun: there was no memory for one.
    pub parts_refused: bool,
    /// What comes behind this one and waits for it.
    pub next: Option<Arc<Gathering>>,
}

#[derive(Debug, Default)]
pub(super) enum Stage {
    /// More rows may come.
    #[default]
    Open,
    /// All rows are there, behind those of `base`.
    Complete {
        base: Option<Arc<Tap>>,
        encoder: Encoder,
    },
    /// All rows were looked at; `None` while a worker is at it.
    Settling(Option<Box<Settling>>),
    Settled(Outcome),
}

/// What is known of the rows before these.
enum Before {
    Known(Option<Arc<Gathered>>),
    /// Not yet; or it is not known yet which they are.
    Unsettled,
    Nothing(Error),
}

/// What a worker does. Until it is done, the work counts it as busy.
pub(super) enum Step {
    Observe(Part),
    /// All rows were looked at, and what is before them is known.
    Combine {
        parts: Vec<Part>,
        /// For the whole, where there are no parts.
        held: Held,
        base: Option<Arc<Gathered>>,
        encoder: Encoder,
        /// Let go by the worker.
        _complete: Stage,
    },
    Settle(Box<Settling>),
    Fail {
        error: Error,
        /// Let go by the worker.
        _held: (Stage, VecDeque<Arc<RowGroup>>, Vec<Part>),
    },
}

/// What came of it.
pub(super) enum Done {
    /// A part, and how many rows are new in it.
    Observed(Part, u64),
    Settling(Box<Settling>),
    Settled(Outcome),
    Failed(Error),
}

/// Somebody who waits for a profile and works on it meanwhile.
pub(super) struct Waiter {
    /// Called when there may be more to do.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}

/// Who works on it.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Worker {
    Background,
    Waiting,
}

impl Step {
    /// Goes on as long as `go_on`, and by a column at least.
    pub fn run(self, schema: &SchemaRef, go_on: &dyn Fn() -> bool) -> Result<Done> {
        match self {
            Step::Observe(mut part) => {
                let rows = part.run(schema, go_on)?;
                Ok(Done::Observed(part, rows))
            }
            Step::Combine { parts, held, base, encoder, .. } => {
                let mut parts = parts.into_iter().filter_map(Part::into_profile);
                let whole = parts.next().map_or_else(|| Ok((Profile::new(schema)?, held)), Ok)?;
                Ok(Done::Settling(Box::new(Settling::new(whole, parts.collect(), base, encoder))))
            }
            Step::Settle(mut settling) => Ok(match settling.run(go_on)? {
                Some(gathered) => Done::Settled(Ok(gathered)),
                None => Done::Settling(settling),
            }),
            Step::Fail { error, .. } => Ok(Done::Settled(Err(error))),
        }
    }
}

impl Work {
    /// The tap that comes before this one, until it is settled.
    pub fn base(&self) -> Option<&Arc<Tap>> {
        match &self.stage {
            Stage::Complete { base, .. } => base.as_ref(),
            Stage::Open | Stage::Settling(_) | Stage::Settled(_) => None,
        }
    }

    fn before(&self) -> Before {
        match (&self.failed, &self.stage, self.base().map(|base| base.settled())) {
            (Some(error), ..) => Before::Nothing(error.clone()),
            (None, Stage::Complete { .. }, None) => Before::Known(None),
            (None, Stage::Complete { .. }, Some(Some(Ok(gathered)))) => Before::Known(Some(gathered)),
            (None, Stage::Complete { .. }, Some(Some(Err(error)))) => Before::Nothing(error),
            _ => Before::Unsettled,
        }
    }

    /// Whether there is something to do. What somebody waits for is left to him.
    pub fn has_step(&self, worker: Worker) -> bool {
        if worker == Worker::Background && !self.waiters.is_empty() {
            return false;
        }
        // Who waits is told when there is memory; in the background it is tried again.
        let may_reserve = worker == Worker::Background || self.memory.lacking().is_none();
        match (&self.stage, self.before()) {
            (Stage::Settled(_), _) => false,
            (Stage::Settling(settling), _) => settling.is_some(),
            (Stage::Open, Before::Unsettled) => self.has_group(may_reserve),
            (Stage::Complete { .. }, Before::Known(_)) => {
                self.has_group(may_reserve) || self.is_observed() && (may_reserve || !self.idle.is_empty())
            }
            (Stage::Complete { .. }, Before::Nothing(_)) => self.busy == 0,
            _ => false,
        }
    }

    fn has_group(&self, may_reserve: bool) -> bool {
        let parts_max = if self.parts_refused { 1 } else { limits::PROFILE_PARTS_MAX };
        let may_begin = !self.idle.is_empty() || self.busy < parts_max;
        self.idle.iter().any(Part::is_unfinished) || !self.waiting.is_empty() && may_begin && may_reserve
    }

    fn is_observed(&self) -> bool {
        self.busy == 0 && self.waiting.is_empty() && !self.idle.iter().any(Part::is_unfinished)
    }

    /// What to do next; nothing where it lacks memory for that, too.
    pub fn take(&mut self, worker: Worker) -> Option<Step> {
        if !self.has_step(worker) {
            return None;
        }
        let step = if let Stage::Settling(settling) = &mut self.stage {
            settling.take().map(Step::Settle)
        } else {
            match self.before() {
                Before::Nothing(error) => Some(self.fail(error)),
                Before::Known(base) if self.is_observed() => self.combine(base),
                Before::Known(_) | Before::Unsettled => self.take_part().map(Step::Observe),
            }
        }?;
        self.busy += 1;
        Some(step)
    }

    fn combine(&mut self, base: Option<Arc<Gathered>>) -> Option<Step> {
        let held = if self.idle.is_empty() { self.memory.for_no_rows()? } else { None };
        // The rows before these count as part of them from now on.
        self.rows_seen += self.base().map_or(0, |base| base.rows_seen());
        let complete = mem::replace(&mut self.stage, Stage::Settling(None));
        let Stage::Complete { encoder, .. } = &complete else { return None };
        Some(Step::Combine {
            parts: mem::take(&mut self.idle),
            held,
            base,
            encoder: encoder.clone(),
            _complete: complete,
        })
    }

    fn fail(&mut self, error: Error) -> Step {
        let complete = mem::replace(&mut self.stage, Stage::Settling(None));
        Step::Fail { error, _held: (complete, mem::take(&mut self.waiting), mem::take(&mut self.idle)) }
    }

    fn take_part(&mut self) -> Option<Part> {
        if let Some(unfinished) = self.idle.iter().position(Part::is_unfinished) {
            return Some(self.idle.swap_remove(unfinished));
        }
        let group = self.waiting.front()?;
        let more = match self.idle.last() {
            Some(part) => self.memory.for_group(group, part.held()),
            None if self.busy == 0 => self.memory.for_group(group, &None),
            None => {
                let held = self.memory.for_further_part(group);
                self.parts_refused = held.is_none();
                held
            }
        }?;
        let group = self.waiting.pop_front()?;
        Some(match self.idle.pop() {
            Some(mut part) => {
                part.begin(group, more);
                part
            }
            None => Part::new(group, more),
        })
    }

    /// Takes in what a step has brought. What is to be let go without the lock.
    pub fn book(&mut self, done: Done) -> Option<(VecDeque<Arc<RowGroup>>, Vec<Part>)> {
        match done {
            Done::Observed(part, rows) => {
                self.rows_seen += rows;
                self.idle.push(part);
            }
            Done::Settling(settling) => self.stage = Stage::Settling(Some(settling)),
            Done::Settled(outcome) => self.stage = Stage::Settled(outcome),
            Done::Failed(error) if matches!(self.stage, Stage::Settling(_)) => {
                self.stage = Stage::Settled(Err(error));
            }
            Done::Failed(error) => return Some(self.fail_with(error)),
        }
        None
    }

    /// Nothing more comes of the rows. What is to be let go without the lock.
    pub fn fail_with(&mut self, error: Error) -> (VecDeque<Arc<RowGroup>>, Vec<Part>) {
        self.failed = Some(error);
        (mem::take(&mut self.waiting), mem::take(&mut self.idle))
    }
}
