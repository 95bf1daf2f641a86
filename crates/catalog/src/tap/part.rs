//! Partial profiles: statistics of some row groups of a table, which are merged to the profile of all rows. One
//! worker at a time adds row groups to a partial profile, one after the other.

use super::memory::{self, Held};
use super::observe;
use crate::durable::is_in_segment;
use arrow_schema::SchemaRef;
use farpool_columns::{HeldValues, RowGroup, ValueReader};
use farpool_model::Result;
use farpool_model::cast::u64_from;
use farpool_statistics::Profile;
use parking_lot::Mutex;
use std::sync::Arc;

/// Callback that is called when values were read into memory.
pub(super) type Wake = Arc<dyn Fn() + Send + Sync>;

/// A partial profile and the row group being added to it.
#[derive(Debug)]
pub(super) struct PartialProfile {
    /// Statistics of the rows so far; `None` before the first rows.
    profile: Option<Box<Profile>>,
    /// The row group being added.
    group: Option<Arc<RowGroup>>,
    /// The row group that is being added, with its values in memory.
    filled: Option<Arc<RowGroup>>,
    reading: PartRead,
    /// Number of columns of the row group that have been added, and number of rows that have been added to the moments.
    columns_done: usize,
    rows_done: usize,
    held: Held,
}

impl PartialProfile {
    /// Creates a partial profile that begins with `group` and owns the memory `held`.
    pub fn new(group: Arc<RowGroup>, held: Held) -> PartialProfile {
        let (filled, reading) = (None, PartRead::default());
        PartialProfile {
            profile: None,
            group: Some(group),
            filled,
            reading,
            columns_done: 0,
            rows_done: 0,
            held,
        }
    }

    /// Returns the memory that the partial profile holds.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Returns whether a row group was begun and is not complete.
    pub fn is_unfinished(&self) -> bool {
        self.group.is_some()
    }

    /// Returns whether a row group was begun and can be continued, because its values are not being read at present.
    pub fn is_ready(&self) -> bool {
        self.is_unfinished() && !self.reading.is_under_way()
    }

    /// Begins another row group, with additional memory `more`. The previous one must be complete.
    pub fn begin(&mut self, group: Arc<RowGroup>, more: Held) {
        (self.group, self.columns_done, self.rows_done) = (Some(group), 0, 0);
        match (&mut self.held, more) {
            (Some(held), Some(more)) => held.join(more),
            (held, more) => *held = more.or(held.take()),
        }
    }

    /// Returns the profile of all row groups added, and its memory; `None` if there were none.
    pub fn into_profile(self) -> Option<(Profile, Held)> {
        self.profile.map(|profile| (*profile, self.held))
    }

    /// Adds one column after the other, and then the moments, until `go_on` returns false; at least one step. Returns
    /// the rows of the row group if it is complete, and otherwise 0. If values are not in memory, they are read in the
    /// background, and `wake` is called when they have arrived.
    pub fn run(&mut self, schema: &SchemaRef, go_on: &dyn Fn() -> bool, wake: &Wake) -> Result<u64> {
        let Some(group) = self.with_values(wake)? else { return Ok(0) };
        let profile = match &mut self.profile {
            Some(profile) => profile,
            none => none.insert(Box::new(Profile::new(schema)?)),
        };
        loop {
            if self.columns_done < group.chunks.len() {
                observe::column(profile, &group, self.columns_done)?;
                self.columns_done += 1;
            } else {
                self.rows_done = observe::numbers(profile, &group, self.rows_done)?;
            }
            if self.columns_done == group.chunks.len() && self.rows_done == group.rows {
                self.filled = None;
                if let Some(group) = self.group.take() {
                    let_go(&group);
                }
                memory::settle(&mut self.held, profile);
                return Ok(u64_from(group.rows));
            }
            if !go_on() {
                return Ok(0);
            }
        }
    }

    /// Returns the row group with its values in memory; `None` if they are not in memory yet.
    fn with_values(&mut self, wake: &Wake) -> Result<Option<Arc<RowGroup>>> {
        let Some(group) = &self.group else { return Ok(None) };
        if let Some(filled) = &self.filled {
            return Ok(Some(filled.clone()));
        }
        let kept = self.reading.take()?;
        let filled = match group.with_values(0..group.chunks.len()) {
            Ok(filled) => filled.map_or_else(|| group.clone(), Arc::new),
            Err(absent) => {
                farpool_columns::fetch(absent, self.reading.begin(wake));
                return Ok(None);
            }
        };
        drop(kept);
        self.filled = Some(filled.clone());
        Ok(Some(filled))
    }
}

/// Evicts the values that were read only for the profile, unless their load requires them to stay in memory.
fn let_go(group: &RowGroup) {
    let leaving = group.chunks.iter().filter(|chunk| chunk.is_to_leave() && is_in_segment(chunk));
    leaving.for_each(|chunk| drop(chunk.take_values()));
}

/// Values that are being read for a partial profile.
#[derive(Clone, Debug, Default)]
struct PartRead(Arc<Mutex<ReadStage>>);

#[derive(Debug, Default)]
enum ReadStage {
    #[default]
    Nothing,
    UnderWay,
    Arrived(Result<HeldValues>),
}

impl PartRead {
    fn is_under_way(&self) -> bool {
        matches!(*self.0.lock(), ReadStage::UnderWay)
    }

    fn begin(&self, wake: &Wake) -> Box<dyn ValueReader> {
        *self.0.lock() = ReadStage::UnderWay;
        Box::new(PartReader { reading: self.clone(), wake: wake.clone() })
    }

    /// Takes the hold on values that have arrived.
    fn take(&self) -> Result<Option<HeldValues>> {
        match std::mem::take(&mut *self.0.lock()) {
            ReadStage::Arrived(outcome) => outcome.map(Some),
            ReadStage::Nothing | ReadStage::UnderWay => Ok(None),
        }
    }
}

/// Receives the values that were read from disk, and notifies the partial profile.
struct PartReader {
    reading: PartRead,
    wake: Wake,
}

impl ValueReader for PartReader {
    fn is_waiting(&self) -> bool {
        // A partial profile that was dropped has no other reference left.
        Arc::strong_count(&self.reading.0) > 1
    }

    fn is_urgent(&self) -> bool {
        true
    }

    fn arrived(self: Box<Self>, outcome: Result<HeldValues>) {
        *self.reading.0.lock() = ReadStage::Arrived(outcome);
        (self.wake)();
    }
}
