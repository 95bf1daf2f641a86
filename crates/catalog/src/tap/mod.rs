//! Taps: background computation of the profile (the statistics) of a table's rows from their row groups, when these are
//! in the pool.
//!
//! A load is never slowed down by its profile, which is computed in steps: by the [`super::Background`] when there is
//! no other work, and by callers that wait for it. The profile of an append builds on that of the version which it
//! extends. After a start, a profile that is on disk is read, and computed only if that fails. A profile is *settled*
//! when it is complete or has failed.
//!
//! Invariants: a tap never blocks a load; a tap that is no longer owned stops within the work on one column; the result
//! of a settled tap does not change.

mod awaited;
mod memory;
mod merge;
mod observe;
mod part;
mod task;
mod work;

use super::Background;
use super::durable::StoredProfile;
use arrow_schema::SchemaRef;
pub use awaited::AwaitedProfile;
use bytes::Bytes;
use farpool_columns::{Encoder, Location, RowGroup};
use farpool_memory::Account;
use farpool_model::{ColumnStates, Error, MomentsState, Result, Spread, TenantName};
use farpool_statistics::Profile;
use std::sync::{Arc, OnceLock};
pub use task::{ProfileTask, StepOutcome};

/// Owner's handle to a profile that is being computed: owned by a load, then by the table version. Dropping it stops
/// the computation.
#[derive(Debug)]
pub(super) struct Tap(Arc<ProfileTask>);

/// Statistics collected for one table version, stored in the pool next to its row groups.
#[derive(Debug)]
pub(super) struct CollectedProfile {
    pub columns: Vec<ColumnStates>,
    pub moments: Option<MomentsState>,
    /// Estimated number of distinct values of each column.
    pub distinct: Vec<Option<u64>>,
    /// The distribution of values of each column.
    pub spreads: Vec<Option<Arc<Spread>>>,
    /// Location of the copy on disk; empty if there is none.
    pub location: OnceLock<Location>,
}

impl CollectedProfile {
    /// Returns the encoded states, in the order that [`CollectedProfile::from_states`] expects.
    pub fn states(&self) -> Vec<&Bytes> {
        let columns = self.columns.iter().flat_map(|column| column.sketch.iter().chain(&column.histogram));
        columns.chain(self.moments.iter().map(|moments| &moments.state)).collect()
    }

    /// Reads the profile of a table of `schema` from disk; `encoder` stores its states in the pool. Blocks on the disk.
    ///
    /// # Errors
    /// `Corrupt` if it is corrupted or of another table; `OverLimit` if memory is short; errors of the disk.
    pub fn read(
        stored: &StoredProfile,
        schema: &SchemaRef,
        encoder: &Encoder,
    ) -> Result<Arc<CollectedProfile>> {
        let states = stored.states()?;
        let mut whole = Profile::new(schema)?;
        let (columns, moments) = whole.arrange(states.clone());
        for (place, states) in columns.iter().enumerate() {
            whole.put_column_behind(place, states)?;
        }
        whole.put_moments_behind(moments.as_ref())?;
        let distinct = whole.columns().iter().map(merge::distinct).collect();
        let spreads = whole.columns().iter().map(|column| column.spread().map(Arc::new)).collect();
        // The states have the same bytes as before, now in the pool.
        let states: Vec<Vec<u8>> = states.iter().map(|state| state.to_vec()).collect();
        let (columns, moments) = whole.arrange(encoder.keep(&states)?);
        Ok(Arc::new(CollectedProfile {
            columns,
            moments,
            distinct,
            spreads,
            location: stored.location().clone(),
        }))
    }
}

/// A complete profile, in memory or on disk.
#[derive(Debug)]
pub(super) enum KnownProfile {
    Gathered(Arc<CollectedProfile>),
    /// The profile is only on disk.
    Stored(Arc<StoredProfile>),
}

impl KnownProfile {
    /// Returns the location of the copy on disk; empty if there is none yet.
    pub fn location(&self) -> &OnceLock<Location> {
        match self {
            KnownProfile::Gathered(collected) => &collected.location,
            KnownProfile::Stored(stored) => stored.location(),
        }
    }
}

/// The collected statistics, or the error because of which there are none.
type Outcome = Result<Arc<CollectedProfile>>;

impl Tap {
    /// Creates a tap for rows of the canonical `schema` in a table of `tenant`. The background works first on the tap
    /// with the lowest `number`. Memory for the profile is reserved from `account`.
    pub fn new(
        number: u64,
        tenant: TenantName,
        schema: SchemaRef,
        background: Arc<dyn Background>,
        account: Option<Account>,
    ) -> Arc<Tap> {
        Arc::new(Tap(Arc::new(ProfileTask::new(number, tenant, schema, background, account))))
    }

    /// Makes a new tap represent a profile that is on disk (`stored`); `groups` are all its rows. The profile is
    /// computed only if it cannot be read. `encoder` stores it in the pool.
    pub fn store(&self, stored: Arc<StoredProfile>, groups: Vec<Arc<RowGroup>>, encoder: Encoder) {
        self.0.store(stored, groups, encoder);
    }

    /// Requests that the profile be read soon by a background thread, if it is on disk. Does not block.
    pub fn want(&self) {
        self.0.want();
    }

    /// Reads the profile if it is on disk and no other thread is reading it. Blocks on the disk.
    pub fn read(&self) {
        self.0.read();
    }

    /// Returns the profile if it is complete, in memory or on disk; `None` otherwise.
    pub fn known(&self) -> Option<KnownProfile> {
        self.0.known()
    }

    /// Queues a row group to be added to the profile.
    pub fn add(&self, group: Arc<RowGroup>) {
        self.0.add(group);
    }

    /// Ends the input. The rows of this tap follow those of `base`. `encoder` stores the profile in the pool.
    pub fn complete(&self, base: Option<Arc<Tap>>, encoder: Encoder) {
        if let Some(base) = &base {
            base.0.set_next(self.0.clone());
        }
        self.0.complete(base, encoder);
    }

    /// Returns the outcome; `None` while the profile is being computed.
    pub fn settled(&self) -> Option<Outcome> {
        self.0.settled()
    }

    /// Returns whether the profile has failed, or will fail because one that it builds on has failed.
    pub fn has_failed(&self) -> bool {
        let fails = |tap: &Tap| tap.settled().map_or_else(|| tap.0.has_failed(), |outcome| outcome.is_err());
        fails(self) || std::iter::successors(self.0.base(), |tap| tap.0.base()).any(|tap| fails(&tap))
    }

    /// Returns the number of rows profiled so far, including those of the taps that this one builds on.
    pub fn rows_seen(&self) -> u64 {
        let (mut rows, mut before) = self.0.rows_seen();
        while let Some(tap) = before {
            let (more, next) = tap.0.rows_seen();
            rows += more;
            before = next;
        }
        rows
    }

    /// Returns the number of unsettled taps in the chain: this one and those that it builds on.
    pub fn unsettled(&self) -> usize {
        usize::from(self.settled().is_none()) + self.before().len()
    }

    /// Returns the unsettled taps that this one builds on, nearest first.
    fn before(&self) -> Vec<Arc<Tap>> {
        let unsettled = |tap: &Tap| tap.0.base().filter(|base| base.settled().is_none());
        std::iter::successors(unsettled(self), |tap| unsettled(tap)).collect()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Returns the error for a defect in the statistics code, which fails only the profile.
fn defect() -> Error {
    Error::internal("a defect stopped the profile of a table")
}
