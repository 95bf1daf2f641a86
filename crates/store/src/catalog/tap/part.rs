//! A partial profile: one worker at a time adds row groups to it, one after the other.

use super::memory::{self, Held};
use super::observe;
use arrow_schema::SchemaRef;
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::u64_from;
use farpool_statistics::Profile;
use std::sync::Arc;

/// A partial profile and the row group being added to it.
#[derive(Debug)]
pub(super) struct Part {
    /// `None` before the first rows.
    profile: Option<Box<Profile>>,
    /// The row group being added.
    group: Option<Arc<RowGroup>>,
    /// Columns of the row group that have been added, and rows that have been added to the moments.
    columns_done: usize,
    rows_done: usize,
    held: Held,
}

impl Part {
    /// Creates a part that begins with `group` and owns the reservation `held`.
    pub fn new(group: Arc<RowGroup>, held: Held) -> Part {
        Part { profile: None, group: Some(group), columns_done: 0, rows_done: 0, held }
    }

    /// The memory that the part holds.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Whether a row group has been begun and not finished.
    pub fn is_unfinished(&self) -> bool {
        self.group.is_some()
    }

    /// Begins another row group, with `more` memory; the one before must be finished.
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

    /// Adds one column after the other, and then the moments, until `go_on` returns false; at least one step.
    /// Returns the rows of the row group once it is finished, 0 before that.
    pub fn run(&mut self, schema: &SchemaRef, go_on: &dyn Fn() -> bool) -> Result<u64> {
        let Some(group) = self.group.clone() else { return Ok(0) };
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
                self.group = None;
                memory::settle(&mut self.held, profile);
                return Ok(u64_from(group.rows));
            }
            if !go_on() {
                return Ok(0);
            }
        }
    }
}
