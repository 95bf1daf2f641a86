//! A model of the simulated node's tables, with which the simulation compares every answer: every version that was ever
//! visible, with the events of its visibility, and the loads, changes of rows and drops that clients have requested,
//! each of which may make one version.
//!
//! A load whose client was disconnected may have been committed or not, and only the node knows. Versions are therefore
//! observed as they appear, and their rows are derived from the loads that could have made them: usually one, and at
//! most a few candidates until an answer identifies the right one. Several appends may be published as one version:
//! which ones, and in which order, is derived from the rows that it has after those of the previous version, each of
//! which must belong to one of the appends.
//!
//! With a data directory, a version is made before it is durable, and readers see it once it is durable: changes are
//! checked against the newest version made, and reads and acknowledgements against the newest durable one.
//!
//! Invariant: a request makes at most one change, however often its client has sent it. If only one set of requests can
//! have made a version, they are considered to have made it, and explain no other version.

use crate::query::Change as RowChange;
use crate::rows::Row;
use farpool_model::{LoadMode, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rows of a version.
pub type Rows = Arc<Vec<Row>>;

/// The events from a request to its answer, inclusive.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The event at which the request was made.
    pub first: u64,
    /// The event at which the answer was read.
    pub last: u64,
}

/// A version, and the candidates for its rows.
#[derive(Clone, Debug)]
pub struct State {
    /// The version.
    pub version: Version,
    /// The candidates for the rows, one of which is right.
    pub rows: Vec<Rows>,
    /// The relation of the version to the previous one.
    origin: Origin,
}

/// Whether the version only appends rows to the previous one, or may differ in other ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Grown,
    Made,
    Either,
}

/// A new version, or the removal of the table.
#[derive(Clone, Debug)]
struct Change {
    /// The event at which the change was made.
    made: u64,
    /// The event from which readers see the change.
    seen: Option<u64>,
    state: Option<State>,
}

/// A client's request to change a table.
#[derive(Debug)]
struct Request {
    table: String,
    kind: Kind,
    /// The event at which the request was made.
    step: u64,
    /// The event at which the client knew its outcome.
    over: Option<u64>,
    /// Whether the request certainly has made a version.
    has_made: bool,
}

#[derive(Debug)]
enum Kind {
    /// A load; the rows are set once it may be committed, when the client has received all of them.
    Load(LoadMode, Option<Rows>),
    /// A change of the rows of a version; rows appended after the version are kept.
    Rows(Version, RowChange),
    Drop,
}

/// Candidate rows of a version, and their origin.
#[derive(Debug)]
struct Made {
    rows: Rows,
    /// Indexes of the requests that would have made the rows.
    by: Vec<usize>,
}

/// Identifies a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestId(usize);

/// The tables of one tenant.
#[derive(Debug, Default)]
pub struct Model {
    tables: BTreeMap<String, Vec<Change>>,
    requests: Vec<Request>,
}

impl Model {
    /// Records that at event `step` a client begins to load a table.
    pub fn load_begins(&mut self, step: u64, table: &str, mode: LoadMode) -> RequestId {
        self.begins(step, table, Kind::Load(mode, None))
    }

    /// Records that the client has received all rows of a load, so that it may be committed from now on.
    pub fn load_is_complete(&mut self, id: RequestId, all: Rows) {
        if let Kind::Load(_, rows) = &mut self.requests[id.0].kind {
            *rows = Some(all);
        }
    }

    /// Records that at event `step` a client requests a change of rows of `version`.
    pub fn change_begins(&mut self, step: u64, version: Version, change: RowChange) -> RequestId {
        let table = change.table.clone();
        self.begins(step, &table, Kind::Rows(version, change))
    }

    /// Records that at event `step` a client requests to drop a table.
    pub fn drop_begins(&mut self, step: u64, table: &str) -> RequestId {
        self.begins(step, table, Kind::Drop)
    }

    /// Records that at event `step` the client knows the outcome of its request, which makes no further change.
    pub fn is_over(&mut self, step: u64, id: RequestId) {
        self.requests[id.0].over = Some(step);
    }

    /// Records that a client was told that its load made `version`.
    ///
    /// # Errors
    /// Fails if the load cannot have made it.
    pub fn load_made(&mut self, id: RequestId, version: Version) -> Result<(), String> {
        let Request { table, kind, .. } = &self.requests[id.0];
        let Kind::Load(mode, Some(own)) = kind else { return Err("a load ended before its rows".into()) };
        let changes = self.tables.get_mut(table).map(Vec::as_mut_slice).unwrap_or_default();
        // If one step publishes several versions, one for each append, only the last is observed.
        let is_it = |seen: Version| seen == version || (*mode == LoadMode::Append && seen > version);
        let seen = changes.iter_mut().filter(|change| change.seen.is_some());
        let mut made = seen.filter_map(|change| change.state.as_mut());
        let Some(state) = made.find(|state| is_it(state.version)) else {
            return Err(format!("{version} of {table}, which a load has made, was never seen"));
        };
        // The load's rows are contiguous in the version, possibly between those of other appends.
        let is_own = |rows: &Rows| match mode {
            LoadMode::Append => own.is_empty() || rows.windows(own.len()).any(|part| part == &own[..]),
            LoadMode::Create | LoadMode::Replace | LoadMode::ReplaceVersion(_) => rows == own,
        };
        state.rows.retain(is_own);
        match state.rows.is_empty() {
            true => Err(format!("{version} of {table} has other rows than the load that made it")),
            false => Ok(()),
        }
    }

    /// Records that a client was told that its change of rows made `version`.
    ///
    /// # Errors
    /// Fails if the change cannot have made it.
    pub fn change_made(&mut self, id: RequestId, version: Version) -> Result<(), String> {
        let Request { table, kind, .. } = &self.requests[id.0];
        let Kind::Rows(before, change) = kind else { return Err("no change of rows".into()) };
        let changes = self.tables.get(table).map(Vec::as_slice).unwrap_or_default();
        let is_it = |change: &Change| {
            change.seen.is_some() && change.state.as_ref().is_some_and(|state| state.version == version)
        };
        let Some(place) = changes.iter().position(is_it) else {
            return Err(format!("{version} of {table}, which a change has made, was never seen"));
        };
        let expected = changed(&changes[..place], *before, change);
        let after = changes[place].state.iter().flat_map(|state| &state.rows);
        match after.into_iter().any(|rows| expected.contains(rows)) {
            true => Ok(()),
            false => Err(format!("{version} of {table} has other rows than the change that made it")),
        }
    }

    /// Records that at event `step` the newest version of a table has become `now`, with this number of rows, or that
    /// the table has been dropped. `rows_from` reads the table's rows from an index on, as far as they are in memory.
    ///
    /// # Errors
    /// Fails if no request of a client explains the change.
    pub fn observe(
        &mut self,
        step: u64,
        table: &str,
        now: Option<(Version, u64)>,
        rows_from: &dyn Fn(usize) -> Result<Vec<Option<Row>>, String>,
    ) -> Result<(), String> {
        let before = self.latest(table);
        let state = match now {
            None => {
                let dropped = |request: &Request| matches!(request.kind, Kind::Drop);
                if !self.requests.iter().any(|request| request.may_change(table) && dropped(request)) {
                    return Err(format!("{table} is gone, and nobody has dropped it"));
                }
                None
            }
            Some((version, count)) => {
                if before.as_ref().is_some_and(|before| version <= before.version) {
                    return Err(format!("{version} of {table} came after {before:?}"));
                }
                let mut made = self.loaded(table, before.as_ref(), count);
                let grown = self.appended(table, before.as_ref(), count, rows_from)?;
                let origin = match (made.is_empty(), grown.is_empty()) {
                    (true, _) => Origin::Grown,
                    (false, true) => Origin::Made,
                    (false, false) => Origin::Either,
                };
                made.extend(grown);
                if made.is_empty() {
                    return Err(format!("{version} of {table} has {count} rows, which nobody has loaded"));
                }
                if let [Made { by, .. }] = &made[..] {
                    by.iter().for_each(|place| self.requests[*place].has_made = true);
                }
                let mut rows: Vec<Rows> = made.into_iter().map(|made| made.rows).collect();
                rows.dedup();
                Some(State { version, rows, origin })
            }
        };
        let change = Change { made: step, seen: None, state };
        self.tables.entry(table.to_string()).or_default().push(change);
        Ok(())
    }

    /// Records that at event `step` readers see `version` of a table, or that there is none.
    ///
    /// # Errors
    /// Fails if that version was never made.
    pub fn show(&mut self, step: u64, table: &str, version: Option<Version>) -> Result<(), String> {
        if self.newest(table).map(|newest| newest.version) == version {
            return Ok(());
        }
        let changes = self.tables.get_mut(table).map(Vec::as_mut_slice).unwrap_or_default();
        let is_it = |change: &Change| change.state.as_ref().map(|state| state.version) == version;
        let Some(place) = changes.iter().rposition(is_it).filter(|place| changes[*place].seen.is_none())
        else {
            return Err(format!("{version:?} of {table} is what readers see, which nobody has made"));
        };
        changes[..=place].iter_mut().for_each(|change| _ = change.seen.get_or_insert(step));
        Ok(())
    }

    /// Removes, for each table, all changes before the last one that readers see. Must be called when no client has a
    /// request, because a request may be about an older version.
    pub fn forget_old(&mut self) {
        for changes in self.tables.values_mut() {
            let newest = changes.iter().rposition(|change| change.seen.is_some());
            changes.drain(..newest.unwrap_or_default());
        }
    }

    /// Returns the candidates for the rows if one request other than an append has made them.
    fn loaded(&self, table: &str, before: Option<&State>, count: u64) -> Vec<Made> {
        let changes = self.tables.get(table).map(Vec::as_slice).unwrap_or_default();
        let requests = self.requests.iter().enumerate().filter(|(_, request)| request.may_change(table));
        let made = requests.flat_map(|(place, request)| {
            let results = match &request.kind {
                Kind::Rows(version, change) => changed(changes, *version, change),
                _ => request.results(before),
            };
            let results = results.into_iter().filter(|rows| rows.len() as u64 == count);
            results.map(move |rows| Made { rows, by: vec![place] })
        });
        made.collect()
    }

    /// Returns the candidates for the rows if they are those of the previous version followed by those of appends.
    fn appended(
        &self,
        table: &str,
        before: Option<&State>,
        count: u64,
        rows_from: &dyn Fn(usize) -> Result<Vec<Option<Row>>, String>,
    ) -> Result<Vec<Made>, String> {
        let pending = self.requests.iter().enumerate().filter(|(_, request)| request.may_change(table));
        let appends = |(place, request): (usize, &'_ Request)| Some((place, request.appends()?.clone()));
        let pending: Vec<(usize, Rows)> = pending.filter_map(appends).collect();
        let mut results = Vec::new();
        for base in before.iter().flat_map(|before| &before.rows) {
            if base.len() as u64 > count || pending.is_empty() {
                continue;
            }
            let behind = rows_from(base.len())?;
            let mut ways = Ways { are_rows_known: behind.iter().all(Option::is_some), found: Vec::new() };
            made_of(&behind, &pending, &mut Vec::new(), &mut ways);
            results.extend(ways.found.into_iter().map(|by| {
                let parts = by.iter().flat_map(|place| &pending[*place].1[..]);
                let rows = Arc::new(base.iter().chain(parts).copied().collect());
                Made { rows, by: by.iter().map(|place| pending[*place].0).collect() }
            }));
        }
        Ok(results)
    }

    /// Returns the newest version of a table that readers see.
    pub fn newest(&self, table: &str) -> Option<State> {
        let changes = self.tables.get(table)?;
        changes.iter().rfind(|change| change.seen.is_some())?.state.clone()
    }

    /// Returns the version of a table that was made last.
    pub fn latest(&self, table: &str) -> Option<State> {
        self.tables.get(table)?.last()?.state.clone()
    }

    /// Returns the names of the existing tables.
    pub fn names(&self) -> Vec<String> {
        let names = self.tables.keys().filter(|name| self.newest(name).is_some());
        names.cloned().collect()
    }

    /// Returns the candidates for the rows of `version`, if it was the newest version of the table at some
    /// moment of `span`.
    pub fn rows_within(&self, table: &str, version: Version, span: Span) -> Option<Vec<Rows>> {
        let states = self.states_within(table, span, |change| change.seen);
        states.into_iter().flatten().find(|state| state.version == version).map(|state| state.rows)
    }

    /// Returns whether the table did not exist at some moment of `span`.
    pub fn was_absent_within(&self, table: &str, span: Span) -> bool {
        self.made_within(table, span).iter().any(Option::is_none)
    }

    /// Returns whether the table existed at some moment of `span`.
    pub fn was_there_within(&self, table: &str, span: Span) -> bool {
        self.made_within(table, span).iter().any(Option::is_some)
    }

    /// Returns whether the table was at another version than `version` at some moment of `span`.
    pub fn had_other_version_within(&self, table: &str, version: Version, span: Span) -> bool {
        self.made_within(table, span).iter().flatten().any(|state| state.version != version)
    }

    /// Returns whether rows of `version` of the table may have been changed after it until the end of `span`.
    pub fn may_have_changed_since(&self, table: &str, version: Version, span: Span) -> bool {
        let states = self.made_within(table, span);
        states.iter().flatten().any(|state| state.version > version && state.origin != Origin::Grown)
    }

    /// Returns whether another load than `id` may have been about to create the table at some moment of `span`.
    pub fn was_being_created_within(&self, table: &str, id: RequestId, span: Span) -> bool {
        let overlaps = |request: &Request| {
            request.step <= span.last && request.over.is_none_or(|over| over >= span.first)
        };
        let creates = |request: &Request| matches!(request.kind, Kind::Load(LoadMode::Create, _));
        let mut others = self.requests.iter().enumerate().filter(|(place, _)| *place != id.0);
        others.any(|(_, request)| request.table == table && creates(request) && overlaps(request))
    }

    fn begins(&mut self, step: u64, table: &str, kind: Kind) -> RequestId {
        self.requests.push(Request { table: table.to_string(), kind, step, over: None, has_made: false });
        RequestId(self.requests.len() - 1)
    }

    /// Returns the states of a table that a change, or a reader, may have found at some moment of `span`.
    fn made_within(&self, table: &str, span: Span) -> Vec<Option<State>> {
        self.states_within(table, span, |change| Some(change.made))
    }

    /// Returns the states of a table between the event `begin`, if they have one, and the event at which readers see
    /// the next one.
    fn states_within(
        &self,
        table: &str,
        span: Span,
        begin: impl Fn(&Change) -> Option<u64>,
    ) -> Vec<Option<State>> {
        let changes = self.tables.get(table).map(Vec::as_slice).unwrap_or_default();
        let before = [Change { made: 0, seen: Some(0), state: None }];
        let all: Vec<&Change> = before.iter().chain(changes).collect();
        let ends = all.iter().skip(1).map(|next| next.seen.unwrap_or(u64::MAX)).chain([u64::MAX]);
        let overlaps = |(change, end): &(&&Change, u64)| {
            begin(change).is_some_and(|begin| begin <= span.last) && *end >= span.first
        };
        all.iter().zip(ends).filter(overlaps).map(|(change, _)| change.state.clone()).collect()
    }
}

impl Request {
    fn may_change(&self, table: &str) -> bool {
        self.over.is_none() && !self.has_made && self.table == table
    }

    /// Returns the candidates for the rows after this load, given the version `before`; none if it is an append.
    fn results(&self, before: Option<&State>) -> Vec<Rows> {
        match (&self.kind, before) {
            (Kind::Load(LoadMode::Create, Some(rows)), None) => vec![rows.clone()],
            (Kind::Load(LoadMode::Replace, Some(rows)), _) => vec![rows.clone()],
            (Kind::Load(LoadMode::ReplaceVersion(version), Some(rows)), Some(before))
                if before.version == *version =>
            {
                vec![rows.clone()]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the rows that this request appends.
    fn appends(&self) -> Option<&Rows> {
        match &self.kind {
            Kind::Load(LoadMode::Append, Some(rows)) => Some(rows),
            _ => None,
        }
    }
}

/// Returns the candidates for the rows after a change of a version of the table with this history, including rows
/// appended since; none if other rows have changed since.
fn changed(history: &[Change], version: Version, change: &RowChange) -> Vec<Rows> {
    let states = history.iter().rev().map_while(|change| change.state.as_ref());
    let mut newer = states.clone().take_while(|state| state.version > version);
    let base = states.clone().find(|state| state.version == version);
    let (Some(newest), Some(base)) = (states.clone().next(), base) else { return Vec::new() };
    if newer.any(|state| state.origin == Origin::Made) {
        return Vec::new();
    }
    let pairs = base.rows.iter().flat_map(|base| newest.rows.iter().map(move |rows| (base, rows)));
    let made = pairs.filter_map(|(base, rows)| {
        let behind = rows.strip_prefix(&base[..])?;
        Some(Arc::new([&change.apply(base)[..], behind].concat()))
    });
    made.collect()
}

/// The ways in which rows may consist of the rows of appends.
struct Ways {
    /// Whether all rows are known, so that their order is known as well.
    are_rows_known: bool,
    /// Indexes of the appends, in order unless the order makes no difference.
    found: Vec<Vec<usize>>,
}

impl Ways {
    fn add(&mut self, taken: &[usize]) {
        let way = taken.to_vec();
        let is_same = |other: &Vec<usize>| match self.are_rows_known {
            true => other.len() == way.len() && other.iter().all(|place| way.contains(place)),
            false => *other == way,
        };
        if !self.found.iter().any(is_same) {
            self.found.push(way);
        }
    }

    /// Returns whether no more ways need to be found: for known rows, two ways suffice to know that none is certain.
    fn are_enough(&self) -> bool {
        self.are_rows_known && self.found.len() > 1
    }
}

/// Finds the `parts` that together make up `rows`, each part used once, in some order. `taken` are the parts of
/// preceding rows.
fn made_of(rows: &[Option<Row>], parts: &[(usize, Rows)], taken: &mut Vec<usize>, ways: &mut Ways) {
    if rows.is_empty() {
        return ways.add(taken);
    }
    for (place, (_, part)) in parts.iter().enumerate() {
        if ways.are_enough() {
            return;
        }
        if part.is_empty() || taken.contains(&place) || !begins_with(rows, part) {
            continue;
        }
        taken.push(place);
        made_of(&rows[part.len()..], parts, taken, ways);
        taken.pop();
    }
}

/// Returns whether `rows`, as far as they are known, begin with `part`.
fn begins_with(rows: &[Option<Row>], part: &[Row]) -> bool {
    let is_same = |(row, part): (&Option<Row>, &Row)| row.is_none_or(|row| row == *part);
    rows.len() >= part.len() && rows.iter().zip(part).all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Cell;

    fn rows(ids: std::ops::Range<i64>) -> Rows {
        Arc::new(ids.map(|id| [Cell::Int(id), Cell::Null, Cell::Null, Cell::Null]).collect())
    }

    /// Fails: stands in as the reader of a version whose rows need not be read.
    fn unread(_: usize) -> Result<Vec<Option<Row>>, String> {
        Err("read".to_string())
    }

    /// Records a version that readers see at once.
    fn observe(
        model: &mut Model,
        step: u64,
        now: Option<(Version, u64)>,
        rows_from: &dyn Fn(usize) -> Result<Vec<Option<Row>>, String>,
    ) -> Result<(), String> {
        model.observe(step, "t", now, rows_from)?;
        model.show(step, "t", now.map(|(version, _)| version))
    }

    fn load(model: &mut Model, mode: LoadMode, rows: Rows) -> RequestId {
        let id = model.load_begins(0, "t", mode);
        model.load_is_complete(id, rows);
        id
    }

    #[test]
    fn a_version_counts_while_it_was_the_newest() {
        let mut model = Model::default();
        load(&mut model, LoadMode::Replace, rows(0..3));
        observe(&mut model, 10, Some((Version(1), 3)), &unread).unwrap();
        load(&mut model, LoadMode::Replace, rows(0..3));
        observe(&mut model, 20, Some((Version(2), 3)), &unread).unwrap();
        model.drop_begins(0, "t");
        observe(&mut model, 30, None, &unread).unwrap();
        let found =
            |version, first, last| model.rows_within("t", Version(version), Span { first, last }).is_some();
        assert!(found(1, 12, 13) && found(1, 5, 11) && found(1, 15, 40));
        assert!(!found(1, 21, 22) && !found(1, 3, 9) && !found(2, 12, 13) && !found(2, 31, 40));
        let absent = |first, last| model.was_absent_within("t", Span { first, last });
        assert!(absent(1, 5) && absent(9, 15) && absent(25, 35) && !absent(11, 29));
        assert!(model.was_absent_within("other", Span { first: 1, last: 2 }));
        assert!(!model.was_there_within("t", Span { first: 1, last: 9 }));
        assert!(model.names().is_empty());
    }

    #[test]
    fn versions_that_nobody_has_made_are_found() {
        let mut model = Model::default();
        assert!(observe(&mut model, 1, Some((Version(1), 0)), &unread).is_err());
        let incomplete = model.load_begins(0, "t", LoadMode::Create);
        assert!(
            observe(&mut model, 2, Some((Version(1), 0)), &unread).is_err(),
            "its rows are not all there"
        );
        model.load_is_complete(incomplete, rows(0..2));
        assert!(observe(&mut model, 3, Some((Version(1), 1)), &unread).is_err(), "of another number");
        observe(&mut model, 4, Some((Version(1), 2)), &unread).unwrap();
        assert!(
            observe(&mut model, 5, Some((Version(2), 2)), &unread).is_err(),
            "Create of a table that is there"
        );
        assert!(observe(&mut model, 6, None, &unread).is_err(), "nobody has dropped it");
    }

    #[test]
    fn a_create_is_under_way_until_its_client_knows_its_end() {
        let mut model = Model::default();
        let [one, other] = [5, 7].map(|step| model.load_begins(step, "t", LoadMode::Create));
        model.load_begins(5, "t", LoadMode::Append);
        let under_way =
            |model: &Model, id, first, last| model.was_being_created_within("t", id, Span { first, last });
        assert!(under_way(&model, other, 7, 9) && under_way(&model, one, 5, 7));
        assert!(!under_way(&model, one, 5, 6), "only itself");
        model.is_over(8, one);
        assert!(under_way(&model, other, 7, 9) && !under_way(&model, other, 9, 9));
    }

    #[test]
    fn a_request_makes_one_version_at_most() {
        let mut model = Model::default();
        load(&mut model, LoadMode::Create, rows(0..2));
        observe(&mut model, 1, Some((Version(1), 2)), &unread).unwrap();
        load(&mut model, LoadMode::Append, rows(7..8));
        let behind = |_: usize| Ok(vec![Some(rows(7..8)[0])]);
        observe(&mut model, 2, Some((Version(2), 3)), &behind).unwrap();
        assert!(observe(&mut model, 3, Some((Version(3), 4)), &behind).is_err(), "appended twice");
        // One of two equal appends has made the version, and it is not known which.
        load(&mut model, LoadMode::Append, rows(7..8));
        load(&mut model, LoadMode::Append, rows(7..8));
        observe(&mut model, 4, Some((Version(4), 4)), &behind).unwrap();
        observe(&mut model, 5, Some((Version(5), 5)), &behind).unwrap();
        load(&mut model, LoadMode::Replace, rows(0..1));
        observe(&mut model, 6, Some((Version(6), 1)), &|_| Ok(Vec::new())).unwrap();
        assert!(observe(&mut model, 7, Some((Version(7), 1)), &|_| Err("replaced twice".into())).is_err());
    }

    #[test]
    fn several_appends_may_make_a_version_in_any_order() {
        let mut model = Model::default();
        load(&mut model, LoadMode::Create, rows(0..2));
        observe(&mut model, 1, Some((Version(1), 2)), &unread).unwrap();
        let one = load(&mut model, LoadMode::Append, rows(7..8));
        let other = load(&mut model, LoadMode::Append, rows(8..10));
        let last = load(&mut model, LoadMode::Append, rows(8..9));
        let behind = |ids: &[i64]| ids.iter().map(|id| rows(*id..id + 1)[0]).collect::<Vec<Row>>();
        let known = |ids: &[i64]| behind(ids).into_iter().map(Some).collect::<Vec<_>>();
        let wrong = |_: usize| Ok(known(&[8, 7, 9]));
        assert!(
            observe(&mut model, 2, Some((Version(2), 5)), &wrong).is_err(),
            "rows of an append are apart"
        );
        let right = |from: usize| Ok(known(&[8, 9, 7]).split_off(from - 2));
        observe(&mut model, 2, Some((Version(2), 5)), &right).unwrap();
        assert_eq!(
            model.newest("t").unwrap().rows,
            [Arc::new([&rows(0..2)[..], &behind(&[8, 9, 7])].concat())]
        );
        model.load_made(one, Version(2)).unwrap();
        model.load_made(other, Version(2)).unwrap();
        model.load_made(last, Version(1)).unwrap_err();
    }
    #[test]
    fn rows_that_are_not_in_memory_may_be_those_of_any_append() {
        let mut model = Model::default();
        load(&mut model, LoadMode::Create, rows(0..2));
        observe(&mut model, 1, Some((Version(1), 2)), &unread).unwrap();
        let one = load(&mut model, LoadMode::Append, rows(7..9));
        load(&mut model, LoadMode::Append, rows(3..5));
        let absent = |_: usize| Ok(vec![None, None, Some(rows(8..9)[0]), None]);
        assert!(observe(&mut model, 2, Some((Version(2), 6)), &absent).is_err(), "a known row is another");
        let absent = |_: usize| Ok(vec![None; 2]);
        observe(&mut model, 3, Some((Version(2), 4)), &absent).unwrap();
        assert_eq!(model.newest("t").unwrap().rows.len(), 2);
        model.load_made(one, Version(2)).unwrap();
        assert_eq!(model.newest("t").unwrap().rows, [Arc::new([&rows(0..2)[..], &rows(7..9)].concat())]);
    }

    #[test]
    fn what_is_not_durable_is_not_read_or_acknowledged() {
        let mut model = Model::default();
        let id = load(&mut model, LoadMode::Create, rows(0..2));
        model.observe(5, "t", Some((Version(1), 2)), &unread).unwrap();
        let span = Span { first: 6, last: 9 };
        assert!(model.rows_within("t", Version(1), span).is_none() && model.newest("t").is_none());
        assert!(model.was_there_within("t", span) && model.was_absent_within("t", span));
        assert!(model.load_made(id, Version(1)).is_err(), "it is not durable");
        assert!(model.show(8, "t", Some(Version(2))).is_err(), "nobody has made it");
        model.show(8, "t", Some(Version(1))).unwrap();
        model.load_made(id, Version(1)).unwrap();
        assert!(model.rows_within("t", Version(1), span).is_some());
        assert!(!model.was_absent_within("t", Span { first: 9, last: 9 }));
    }
}
