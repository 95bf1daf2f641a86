//! The last phase of computing a profile (statistics of a table's rows): merges its partial profiles and appends
//! them to the profile of the rows before, one column at a time, and stores the result in the pool.

use super::CollectedProfile;
use super::memory::{self, Held};
use farpool_columns::Encoder;
use farpool_model::{Result, Spread};
use farpool_statistics::{ColumnProfile, Profile};
use std::sync::{Arc, OnceLock};

/// The partial profiles of a profile, while they are being merged.
#[derive(Debug)]
pub(super) struct ProfileMerge {
    base: Option<Arc<CollectedProfile>>,
    whole: Profile,
    whole_held: Held,
    /// The other partial profiles, each with its memory.
    parts: Vec<(Profile, Held)>,
    encoder: Encoder,
    /// Encoded states of the columns done so far, to be stored in the pool.
    states: Vec<Vec<u8>>,
    distinct: Vec<Option<u64>>,
    spreads: Vec<Option<Arc<Spread>>>,
}

impl ProfileMerge {
    /// Creates the merge of `parts` into the partial profile `whole`, which is then appended to the profile `base` of
    /// the rows before.
    pub fn new(
        (whole, whole_held): (Profile, Held),
        parts: Vec<(Profile, Held)>,
        base: Option<Arc<CollectedProfile>>,
        encoder: Encoder,
    ) -> ProfileMerge {
        let (states, distinct, spreads) = Default::default();
        ProfileMerge { base, whole, whole_held, parts, encoder, states, distinct, spreads }
    }

    /// Works until `go_on` returns false, but at least on one column. Returns the statistics if it is complete, `None`
    /// if not.
    pub fn run(&mut self, go_on: &dyn Fn() -> bool) -> Result<Option<Arc<CollectedProfile>>> {
        while self.distinct.len() < self.whole.columns().len() {
            self.settle_column(self.distinct.len())?;
            if !go_on() {
                return Ok(None);
            }
        }
        self.keep().map(Some)
    }

    fn settle_column(&mut self, column: usize) -> Result<()> {
        self.parts.iter().try_for_each(|(part, _)| self.whole.merge_column(column, part))?;
        if let Some(base) = &self.base {
            self.whole.put_column_behind(column, &base.columns[column])?;
        }
        memory::settle(&mut self.whole_held, &self.whole);
        self.states.extend(self.whole.column_states(column));
        let profile = &self.whole.columns()[column];
        self.distinct.push(distinct(profile));
        self.spreads.push(profile.spread().map(Arc::new));
        Ok(())
    }

    fn keep(&mut self) -> Result<Arc<CollectedProfile>> {
        self.parts.iter().try_for_each(|(part, _)| self.whole.merge_moments(part))?;
        if let Some(base) = &self.base {
            self.whole.put_moments_behind(base.moments.as_ref())?;
        }
        self.states.extend(self.whole.moments_state());
        let (columns, moments) = self.whole.arrange(self.encoder.keep(&self.states)?);
        let (distinct, spreads) = (std::mem::take(&mut self.distinct), std::mem::take(&mut self.spreads));
        Ok(Arc::new(CollectedProfile { columns, moments, distinct, spreads, location: OnceLock::new() }))
    }
}

/// Returns the estimated number of distinct values of a column; `None` if it is not known.
pub(super) fn distinct(column: &ColumnProfile) -> Option<u64> {
    column.sketch.distinct().map(|estimate| estimate.value as u64)
}
