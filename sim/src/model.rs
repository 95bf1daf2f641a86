//! What the tables of the node must hold: every version that was ever visible, and when.

use crate::rows::Row;
use farpool_model::Version;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rows of a version.
pub type Rows = Arc<Vec<Row>>;

/// The events between a request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The event at which the request was made.
    pub first: u64,
    /// The event at which the answer was read.
    pub last: u64,
}

#[derive(Clone, Debug)]
struct Change {
    step: u64,
    state: Option<(Version, Rows)>,
}

/// The tables of one tenant.
#[derive(Debug, Default)]
pub struct Model {
    tables: BTreeMap<String, Vec<Change>>,
}

impl Model {
    /// At event `step` a table has got other rows, or was dropped.
    pub fn change(&mut self, step: u64, table: &str, state: Option<(Version, Rows)>) {
        self.tables.entry(table.to_string()).or_default().push(Change { step, state });
    }

    /// The newest version of a table.
    pub fn newest(&self, table: &str) -> Option<(Version, Rows)> {
        self.tables.get(table)?.last()?.state.clone()
    }

    /// Names of the tables that there are.
    pub fn names(&self) -> Vec<String> {
        let names = self.tables.keys().filter(|name| self.newest(name).is_some());
        names.cloned().collect()
    }

    /// The rows of `version`, if it was the newest one of the table at some moment of `span`.
    pub fn rows_within(&self, table: &str, version: Version, span: Span) -> Option<Rows> {
        let states = self.states_within(table, span);
        states.into_iter().flatten().find(|(known, _)| *known == version).map(|(_, rows)| rows)
    }

    /// Whether there was no such table at some moment of `span`.
    pub fn was_absent_within(&self, table: &str, span: Span) -> bool {
        self.states_within(table, span).iter().any(Option::is_none)
    }

    fn states_within(&self, table: &str, span: Span) -> Vec<Option<(Version, Rows)>> {
        let changes = self.tables.get(table).map(Vec::as_slice).unwrap_or_default();
        let before = [Change { step: 0, state: None }];
        let all: Vec<&Change> = before.iter().chain(changes).collect();
        let ends = all.iter().skip(1).map(|next| next.step).chain([u64::MAX]);
        let overlaps = |(change, end): &(&&Change, u64)| change.step <= span.last && *end >= span.first;
        all.iter().zip(ends).filter(overlaps).map(|(change, _)| change.state.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_counts_while_it_was_the_newest() {
        let mut model = Model::default();
        let rows: Rows = Arc::default();
        model.change(10, "t", Some((Version(1), rows.clone())));
        model.change(20, "t", Some((Version(2), rows)));
        model.change(30, "t", None);
        let found =
            |version, first, last| model.rows_within("t", Version(version), Span { first, last }).is_some();
        assert!(found(1, 12, 13) && found(1, 5, 11) && found(1, 15, 40));
        assert!(!found(1, 21, 22) && !found(1, 3, 9) && !found(2, 12, 13) && !found(2, 31, 40));
        let absent = |first, last| model.was_absent_within("t", Span { first, last });
        assert!(absent(1, 5) && absent(9, 15) && absent(25, 35) && !absent(11, 29));
        assert!(model.was_absent_within("other", Span { first: 1, last: 2 }));
        assert!(model.names().is_empty());
    }
}
