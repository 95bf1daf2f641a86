//! What the tables of the node must hold: every version that was ever visible, and when; and the loads, changes of rows
//! and drops that clients have asked for, of which each may become one version.
//!
//! A load whose client was cut off may have been committed or not, and only the node knows. So versions are observed
//! as they appear, and their rows are those of a load that could have made them: usually one, and at most a few until
//! an answer says which. A version may be made of several appends: which, and in which order, is told by the rows that
//! it has behind those of the version before, each of which must belong to one of them.
//!
//! Invariant: a request makes one change at most, however often its client has sent it. Where only one set of requests can
//! have made a version, they have, and explain no other.

use crate::query::Change as RowChange;
use crate::rows::Row;
use farpool_model::{LoadMode, Version};
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

/// A version, and what its rows may be.
#[derive(Clone, Debug)]
pub struct State {
    /// The version.
    pub version: Version,
    /// One, or several among which is the right one.
    pub rows: Vec<Rows>,
    /// How they came of those of the version before.
    origin: Origin,
}

/// Whether the rows of the version before are there, in front of others, or something else may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Grown,
    Made,
    Either,
}

#[derive(Clone, Debug)]
struct Change {
    step: u64,
    state: Option<State>,
}

/// Something that changes a table and that a client has asked for.
#[derive(Debug)]
struct Request {
    table: String,
    kind: Kind,
    /// The event at which it was made.
    step: u64,
    /// The event at which its client knew how it ended.
    over: Option<u64>,
    /// Whether it has made a version for sure.
    has_made: bool,
}

#[derive(Debug)]
enum Kind {
    /// A load, once it may be committed: all its rows have been handed to the client.
    Load(LoadMode, Option<Rows>),
    /// A change of the rows of a version, in front of those that come behind them meanwhile.
    Rows(Version, RowChange),
    Drop,
}

/// What a version may be made of.
#[derive(Debug)]
struct Made {
    rows: Rows,
    /// The places of the requests that have made it.
    by: Vec<usize>,
}

/// Names a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestId(usize);

/// The tables of one tenant.
#[derive(Debug, Default)]
pub struct Model {
    tables: BTreeMap<String, Vec<Change>>,
    requests: Vec<Request>,
}

impl Model {
    /// At event `step` a client begins to load a table.
    pub fn load_begins(&mut self, step: u64, table: &str, mode: LoadMode) -> RequestId {
        self.begins(step, table, Kind::Load(mode, None))
    }

    /// All rows of a load are on their way: from now on it may be committed.
    pub fn load_is_complete(&mut self, id: RequestId, all: Rows) {
        if let Kind::Load(_, rows) = &mut self.requests[id.0].kind {
            *rows = Some(all);
        }
    }

    /// At event `step` a client asks for rows of `version` to be changed.
    pub fn change_begins(&mut self, step: u64, version: Version, change: RowChange) -> RequestId {
        let table = change.table.clone();
        self.begins(step, &table, Kind::Rows(version, change))
    }

    /// At event `step` a client asks for a table to be dropped.
    pub fn drop_begins(&mut self, step: u64, table: &str) -> RequestId {
        self.begins(step, table, Kind::Drop)
    }

    /// At event `step` the client knows how its request ended: it changes nothing any more.
    pub fn is_over(&mut self, step: u64, id: RequestId) {
        self.requests[id.0].over = Some(step);
    }

    /// A client was told that its load made `version`.
    ///
    /// # Errors
    /// When it cannot have.
    pub fn load_made(&mut self, id: RequestId, version: Version) -> Result<(), String> {
        let Request { table, kind, .. } = &self.requests[id.0];
        let Kind::Load(mode, Some(own)) = kind else { return Err("a load ended before its rows".into()) };
        let changes = self.tables.get_mut(table).map(Vec::as_mut_slice).unwrap_or_default();
        // Of several versions that one step makes, of appends that are published one by one, only the last is seen.
        let is_it = |seen: Version| seen == version || (*mode == LoadMode::Append && seen > version);
        let mut made = changes.iter_mut().filter_map(|change| change.state.as_mut());
        let Some(state) = made.find(|state| is_it(state.version)) else {
            return Err(format!("{version} of {table}, which a load has made, was never seen"));
        };
        // Its rows are together in the version, perhaps before and behind those of others.
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

    /// A client was told that its change of rows made `version`.
    ///
    /// # Errors
    /// When it cannot have.
    pub fn change_made(&mut self, id: RequestId, version: Version) -> Result<(), String> {
        let Request { table, kind, .. } = &self.requests[id.0];
        let Kind::Rows(before, change) = kind else { return Err("no change of rows".into()) };
        let changes = self.tables.get(table).map(Vec::as_slice).unwrap_or_default();
        let is_it = |change: &Change| change.state.as_ref().is_some_and(|state| state.version == version);
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

    /// At event `step` the newest version of a table has become `now`, with so many rows, or there is no such table
    /// any more. `rows_from` reads its rows from a place on.
    ///
    /// # Errors
    /// When no client has asked for that.
    pub fn observe(
        &mut self,
        step: u64,
        table: &str,
        now: Option<(Version, u64)>,
        rows_from: &dyn Fn(usize) -> Result<Vec<Row>, String>,
    ) -> Result<(), String> {
        let before = self.newest(table);
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
        self.tables.entry(table.to_string()).or_default().push(Change { step, state });
        Ok(())
    }

    /// What the rows are if one request that is no append has made them.
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

    /// What the rows are if they are those of the version before with those of appends behind them.
    fn appended(
        &self,
        table: &str,
        before: Option<&State>,
        count: u64,
        rows_from: &dyn Fn(usize) -> Result<Vec<Row>, String>,
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
            let rows: Rows = Arc::new(base.iter().chain(&behind).copied().collect());
            let mut sets = Vec::new();
            made_of(&behind, &pending, &mut Vec::new(), &mut sets);
            results.extend(sets.into_iter().map(|by| Made { rows: rows.clone(), by }));
        }
        Ok(results)
    }

    /// The newest version of a table.
    pub fn newest(&self, table: &str) -> Option<State> {
        self.tables.get(table)?.last()?.state.clone()
    }

    /// Names of the tables that there are.
    pub fn names(&self) -> Vec<String> {
        let names = self.tables.keys().filter(|name| self.newest(name).is_some());
        names.cloned().collect()
    }

    /// What the rows of `version` may be, if it was the newest one of the table at some moment of `span`.
    pub fn rows_within(&self, table: &str, version: Version, span: Span) -> Option<Vec<Rows>> {
        let states = self.states_within(table, span);
        states.into_iter().flatten().find(|state| state.version == version).map(|state| state.rows)
    }

    /// Whether there was no such table at some moment of `span`.
    pub fn was_absent_within(&self, table: &str, span: Span) -> bool {
        self.states_within(table, span).iter().any(Option::is_none)
    }

    /// Whether there was such a table at some moment of `span`.
    pub fn was_there_within(&self, table: &str, span: Span) -> bool {
        self.states_within(table, span).iter().any(Option::is_some)
    }

    /// Whether the table was at another version than `version` at some moment of `span`.
    pub fn had_other_version_within(&self, table: &str, version: Version, span: Span) -> bool {
        self.states_within(table, span).iter().flatten().any(|state| state.version != version)
    }

    /// Whether rows of `version` of the table may have been changed after it until the end of `span`.
    pub fn may_have_changed_since(&self, table: &str, version: Version, span: Span) -> bool {
        let states = self.states_within(table, span);
        states.iter().flatten().any(|state| state.version > version && state.origin != Origin::Grown)
    }

    /// Whether another load than `id` may have been about to create the table at some moment of `span`.
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

    fn states_within(&self, table: &str, span: Span) -> Vec<Option<State>> {
        let changes = self.tables.get(table).map(Vec::as_slice).unwrap_or_default();
        let before = [Change { step: 0, state: None }];
        let all: Vec<&Change> = before.iter().chain(changes).collect();
        let ends = all.iter().skip(1).map(|next| next.step).chain([u64::MAX]);
        let overlaps = |(change, end): &(&&Change, u64)| change.step <= span.last && *end >= span.first;
        all.iter().zip(ends).filter(overlaps).map(|(change, _)| change.state.clone()).collect()
    }
}

impl Request {
    fn may_change(&self, table: &str) -> bool {
        self.over.is_none() && !self.has_made && self.table == table
    }

    /// What the rows may be that this, a load, makes of those that there are `before`, if it is not an append.
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

    /// The rows that this appends.
    fn appends(&self) -> Option<&Rows> {
        match &self.kind {
            Kind::Load(LoadMode::Append, Some(rows)) => Some(rows),
            _ => None,
        }
    }
}

/// What the rows may be that a change makes of those of a version of the table with this history, and of those that have
/// come behind them; nothing if other rows have changed since.
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

/// Finds sets of `parts` of which `rows` are made, each of them once, one behind the other: all, or a few. `taken` are
/// those of rows before.
fn made_of(rows: &[Row], parts: &[(usize, Rows)], taken: &mut Vec<usize>, sets: &mut Vec<Vec<usize>>) {
    if rows.is_empty() {
        let mut set = taken.clone();
        set.sort_unstable();
        if !sets.contains(&set) {
            sets.push(set);
        }
        return;
    }
    for (place, part) in parts {
        // Of two, none is for sure.
        if sets.len() > 1 {
            return;
        }
        if part.is_empty() || taken.contains(place) {
            continue;
        }
        if let Some(behind) = rows.strip_prefix(&part[..]) {
            taken.push(*place);
            made_of(behind, parts, taken, sets);
            taken.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Cell;

    fn rows(ids: std::ops::Range<i64>) -> Rows {
        Arc::new(ids.map(|id| [Cell::Int(id), Cell::Null, Cell::Null, Cell::Null]).collect())
    }

    /// Of a version whose rows nobody reads.
    fn unread(_: usize) -> Result<Vec<Row>, String> {
        Err("read".to_string())
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
        model.observe(10, "t", Some((Version(1), 3)), &unread).unwrap();
        load(&mut model, LoadMode::Replace, rows(0..3));
        model.observe(20, "t", Some((Version(2), 3)), &unread).unwrap();
        model.drop_begins(0, "t");
        model.observe(30, "t", None, &unread).unwrap();
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
        assert!(model.observe(1, "t", Some((Version(1), 0)), &unread).is_err());
        let incomplete = model.load_begins(0, "t", LoadMode::Create);
        assert!(model.observe(2, "t", Some((Version(1), 0)), &unread).is_err(), "its rows are not all there");
        model.load_is_complete(incomplete, rows(0..2));
        assert!(model.observe(3, "t", Some((Version(1), 1)), &unread).is_err(), "of another number");
        model.observe(4, "t", Some((Version(1), 2)), &unread).unwrap();
        assert!(
            model.observe(5, "t", Some((Version(2), 2)), &unread).is_err(),
            "Create of a table that is there"
        );
        assert!(model.observe(6, "t", None, &unread).is_err(), "nobody has dropped it");
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
        model.observe(1, "t", Some((Version(1), 2)), &unread).unwrap();
        load(&mut model, LoadMode::Append, rows(7..8));
        let behind = |_: usize| Ok(vec![rows(7..8)[0]]);
        model.observe(2, "t", Some((Version(2), 3)), &behind).unwrap();
        assert!(model.observe(3, "t", Some((Version(3), 4)), &behind).is_err(), "appended twice");
        // Of two that are the same, either may have.
        load(&mut model, LoadMode::Append, rows(7..8));
        load(&mut model, LoadMode::Append, rows(7..8));
        model.observe(4, "t", Some((Version(4), 4)), &behind).unwrap();
        model.observe(5, "t", Some((Version(5), 5)), &behind).unwrap();
        load(&mut model, LoadMode::Replace, rows(0..1));
        model.observe(6, "t", Some((Version(6), 1)), &|_| Ok(Vec::new())).unwrap();
        assert!(model.observe(7, "t", Some((Version(7), 1)), &|_| Err("replaced twice".into())).is_err());
    }

    #[test]
    fn several_appends_may_make_a_version_in_any_order() {
        let mut model = Model::default();
        load(&mut model, LoadMode::Create, rows(0..2));
        model.observe(1, "t", Some((Version(1), 2)), &unread).unwrap();
        let one = load(&mut model, LoadMode::Append, rows(7..8));
        let other = load(&mut model, LoadMode::Append, rows(8..10));
        let last = load(&mut model, LoadMode::Append, rows(8..9));
        let behind = |ids: &[i64]| ids.iter().map(|id| rows(*id..id + 1)[0]).collect::<Vec<Row>>();
        let wrong = |_: usize| Ok(behind(&[8, 7, 9]));
        assert!(model.observe(2, "t", Some((Version(2), 5)), &wrong).is_err(), "rows of an append are apart");
        let right = |from: usize| Ok(behind(&[8, 9, 7]).split_off(from - 2));
        model.observe(2, "t", Some((Version(2), 5)), &right).unwrap();
        assert_eq!(
            model.newest("t").unwrap().rows,
            [Arc::new([&rows(0..2)[..], &behind(&[8, 9, 7])].concat())]
        );
        model.load_made(one, Version(2)).unwrap();
        model.load_made(other, Version(2)).unwrap();
        model.load_made(last, Version(1)).unwrap_err();
    }
}
