//! A tap: the profile of rows, made on their way into a table by the threads that encode them.
//!
//! Invariant: a tap never keeps a load from going on. Where a profile cannot be made or kept, the table just
//! has none.

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use farpool_columns::Encoder;
use farpool_model::{ColumnStates, MomentsState};
use farpool_statistics::Profile;
use parking_lot::Mutex;

/// See the file's comment. Each thread takes a profile, adds to it and puts it back, so that there are as
/// many as threads.
#[derive(Debug)]
pub(super) struct Tap {
    schema: SchemaRef,
    /// `None` once one failed, and if there are to be none.
    idle: Mutex<Option<Vec<Profile>>>,
}

/// What was gathered of a version of a table, in the pool with its row groups.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    pub columns: Vec<ColumnStates>,
    pub moments: Option<MomentsState>,
    /// About how many distinct values each column has.
    pub distinct: Vec<Option<u64>>,
}

impl Tap {
    /// A tap on rows of `schema`, which is canonical.
    pub fn new(schema: SchemaRef) -> Self {
        Tap { schema, idle: Mutex::new(Some(Vec::new())) }
    }

    /// One that lets rows pass unseen.
    pub fn closed(schema: SchemaRef) -> Self {
        Tap { schema, idle: Mutex::new(None) }
    }

    /// Adds the rows of a row group.
    pub fn observe(&self, columns: &[ArrayRef]) {
        let Some(idle) = self.idle.lock().as_mut().map(Vec::pop) else { return };
        let profile = idle.map_or_else(|| Profile::new(&self.schema), Ok);
        let updated = profile.and_then(|mut profile| profile.update(columns).map(|()| profile));
        let mut idle = self.idle.lock();
        match (updated, idle.as_mut()) {
            (Ok(profile), Some(idle)) => idle.push(profile),
            _ => *idle = None,
        }
    }

    /// The profile of all rows.
    pub fn finish(self) -> Option<Profile> {
        let mut parts = self.idle.into_inner()?.into_iter();
        let first = parts.next().map_or_else(|| Profile::new(&self.schema), Ok);
        parts.try_fold(first.ok()?, |mut whole, part| whole.merge(&part).ok().map(|()| whole))
    }
}

impl Gathered {
    /// `profile` in the pool, beside the chunks of `encoder`.
    pub fn keep(profile: &Profile, encoder: &Encoder) -> Option<Self> {
        let states = encoder.keep(&profile.states()).ok()?;
        let (columns, moments) = profile.arrange(states);
        let distinct =
            profile.columns().iter().map(|c| c.sketch.distinct().map(|e| e.value as u64)).collect();
        Some(Gathered { columns, moments, distinct })
    }

    /// The profile of these rows and of `more`.
    pub fn with(&self, schema: &SchemaRef, more: &Profile) -> Option<Profile> {
        let mut profile = Profile::from_states(schema, &self.columns, self.moments.as_ref()).ok()??;
        profile.merge(more).ok().map(|()| profile)
    }
}
