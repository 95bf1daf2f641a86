//! A tap: the profile of a table's rows, made from their row groups as soon as these are in the pool.
//!
//! A load goes as fast as its rows come and are encoded. Their profile is made behind it, by threads of the [`Crew`],
//! which run when nobody else wants the core, and by whoever waits for it. The profile of an append comes behind that
//! of the version which it extends.
//!
//! Invariants: a tap never keeps a load from going on; one that nobody owns any more stops within a column; what a
//! tap has settled on does not change.

mod crew;
mod gathering;
mod observe;

use arrow_schema::SchemaRef;
pub(super) use crew::{Arrival, Crew};
use farpool_columns::{Encoder, RowGroup};
use farpool_model::{ColumnStates, Error, MomentsState, Result, Spread};
use farpool_statistics::Profile;
use gathering::{Gathering, Worker};
use std::sync::Arc;

/// What whoever has the rows owns: a load, and then the version of the table. See the file's comment.
#[derive(Debug)]
pub(super) struct Tap(Arc<Gathering>);

/// What was gathered of a version of a table, in the pool with its row groups.
#[derive(Debug)]
pub(super) struct Gathered {
    pub columns: Vec<ColumnStates>,
    pub moments: Option<MomentsState>,
    /// About how many distinct values each column has.
    pub distinct: Vec<Option<u64>>,
    /// How the values of each column are spread.
    pub spreads: Vec<Option<Arc<Spread>>>,
}

/// What was gathered, or why there is nothing.
type Outcome = Result<Arc<Gathered>>;

impl Tap {
    /// A tap on rows of `schema`, which is canonical.
    pub fn new(schema: SchemaRef, crew: Arc<Crew>) -> Arc<Tap> {
        Arc::new(Tap(Arc::new(Gathering::new(schema, crew))))
    }

    /// Has the rows of a row group added to the profile.
    pub fn add(&self, group: Arc<RowGroup>) {
        self.0.add(group);
    }

    /// Says that no more rows come, and that they are behind those of `base`. `encoder` takes the profile to the pool.
    pub fn complete(&self, base: Option<Arc<Tap>>, encoder: Encoder) {
        if let Some(base) = &base {
            base.0.set_next(self.0.clone());
        }
        self.0.complete(base, encoder);
    }

    /// What was gathered; `None` as long as that is not all.
    pub fn settled(&self) -> Option<Outcome> {
        self.0.settled()
    }

    /// Whether it is settled, and nothing could be gathered.
    pub fn has_failed(&self) -> bool {
        self.settled().is_some_and(|outcome| outcome.is_err())
    }

    /// Rows that are in the profile, or in one before it that goes into it.
    pub fn rows_seen(&self) -> u64 {
        self.0.rows_seen()
    }

    /// How many taps, each behind the next, are to be settled before this one.
    pub fn behind(&self) -> usize {
        self.line().len()
    }

    /// What was gathered, once that is all. Until then the caller works on it and on those before it, and for the time
    /// as many other threads as can; the crew leaves it to them, because they get their part of a core that others
    /// want too.
    ///
    /// # Errors
    /// `OverLimit` when the pool has no room for the profile.
    pub fn wait(&self) -> Outcome {
        let line = self.line();
        // The oldest first. They are owned here, so that nobody abandons one before its turn.
        let gatherings: Vec<&Arc<Gathering>> =
            line.iter().rev().map(|tap| &tap.0).chain(std::iter::once(&self.0)).collect();
        let groups: usize = gatherings.iter().map(|gathering| gathering.await_by_others()).sum();
        let help = || gatherings.iter().for_each(|gathering| gathering.work(Worker::Waiting));
        std::thread::scope(|scope| {
            for _ in 1..self.0.threads_max().min(groups) {
                if std::thread::Builder::new().spawn_scoped(scope, help).is_err() {
                    // The system has no more threads: then those that there are do it.
                    break;
                }
            }
            // What those before it could not gather, it will not have either, and says why.
            gatherings.iter().for_each(|gathering| drop(gathering.work_until_settled()));
        });
        self.0.work_until_settled()
    }

    /// Those that are to be settled before this one, each behind the next.
    fn line(&self) -> Vec<Arc<Tap>> {
        let unsettled = |tap: &Tap| tap.0.base().filter(|base| base.settled().is_none());
        std::iter::successors(unsettled(self), |tap| unsettled(tap)).collect()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Gathered {
    /// `profile` in the pool, beside the chunks of `encoder`.
    fn keep(profile: &Profile, encoder: &Encoder) -> Outcome {
        let (columns, moments) = profile.arrange(encoder.keep(&profile.states())?);
        let distinct =
            profile.columns().iter().map(|c| c.sketch.distinct().map(|e| e.value as u64)).collect();
        let spreads = profile.columns().iter().map(|c| c.spread().map(Arc::new)).collect();
        Ok(Arc::new(Gathered { columns, moments, distinct, spreads }))
    }

    /// Adds to `profile` what is here.
    fn add_to(&self, profile: Profile) -> Result<Profile> {
        let states = Profile::from_states(profile.schema(), &self.columns, self.moments.as_ref())?;
        let mut whole = states.ok_or_else(|| Error::internal("a profile without states"))?;
        whole.merge(&profile).map(|()| whole)
    }
}
