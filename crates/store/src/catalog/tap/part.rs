//! A part of a profile: what one worker at a time has found out about row groups, one after the other.

use super::memory::{self, Held};
use super::observe;
use arrow_schema::SchemaRef;
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::u64_from;
use farpool_statistics::Profile;
use std::sync::Arc;

/// See the file's comment.
#[derive(Debug)]
pub(super) struct Part {
    /// `None` before the first rows.
    profile: Option<Box<Profile>>,
    /// What it is at.
    group: Option<Arc<RowGroup>>,
    /// Columns of the row group that are in the profile, and rows whose moments are.
    columns_done: usize,
    rows_done: usize,
    held: Held,
}

impl Part {
    /// A part that begins with `group`, for which it has `held`.
    pub fn new(group: Arc<RowGroup>, held: Held) -> Part {
        Part { profile: None, group: Some(group), columns_done: 0, rows_done: 0, held }
    }

    /// What it holds.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Whether it is in the middle of a row group.
    pub fn is_unfinished(&self) -> bool {
        self.group.is_some()
    }

    /// Goes on with another row group, for which it takes `more`; the one before is finished.
    pub fn begin(&mut self, group: Arc<RowGroup>, more: Held) {
        (self.group, self.columns_done, self.rows_done) = (Some(group), 0, 0);
        match (&mut self.held, more) {
            (Some(held), Some(more)) => held.join(more),
            (held, more) => *held = more.or(held.take()),
        }
    }

    /// The profile of the rows of all row groups that it was at, and what is held for it.
    pub fn into_profile(self) -> Option<(Profile, Held)> {
        self.profile.map(|profile| (*profile, self.held))
    }

    /// Looks at one column after the other, and then at the moments, as long as `go_on`; one at least. How many rows
    /// the row group has that it has finished.
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
