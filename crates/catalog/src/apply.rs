//! Planning and applying changes. Every change of the catalog goes through this file, whether a client requests it or a
//! record of another node has it (`durable/received.rs`).
//!
//! A change is first *planned* against the newest state of its table: the next version is built and memory is reserved,
//! without holding a lock. It is then *made* under the lock of the names: its record is appended to the log, if there
//! is one, and its effect is applied. If the table was swapped in between, the change is not made, and the caller plans
//! again.
//!
//! Example: two appends to version 3 are planned at the same time. The first is made as version 4; the second finds
//! that version 3 is no longer the newest, and is planned again after the rows of version 4.
//!
//! Terms: a *splice* replaces a range of rows by new row groups. A row group is *settled* if it is no longer merged
//! with others. A *tap* is the handle of the background computation of a profile (the statistics of rows).

use super::changes::{self, Change, ChangeKind, NewTable, Splice, TableSize};
use super::durable::Prepared;
use super::merge::{self, Merges};
use super::names::{Effect, Names};
use super::state::CatalogState;
use super::views::StoredView;
use super::{AppendQueue, Catalog, Commit, Current, Tapped, unmade};
use farpool_columns::{Encoder, RowGroup, Table, TableBuilder};
use farpool_disk::TableKey;
use farpool_model::cast::u64_from;
use farpool_model::{Error, Result, TableInfo, TableName, TenantName, Version, limits};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A change that was planned and can be made.
pub(super) struct Planned {
    change: Change,
    effect: PlannedEffect,
}

/// Effect of a planned change, which has no version number yet.
enum PlannedEffect {
    Table(Box<NextTable>),
    /// Effect of a change that creates no table version.
    Names(Effect),
}

/// The next state of a table, without its version number.
struct NextTable {
    name: TableName,
    renamed_from: Option<TableName>,
    /// The state from which this one was planned; `None` if the table is new.
    before: Option<Current>,
    table: Arc<Table>,
    key: Option<Arc<TableKey>>,
    is_pinned: bool,
    settled: usize,
    rows_settled: u64,
    /// Tap (profile computation) for the row groups that are newly settled (no longer merged), or for all settled
    /// ones if earlier rows have changed.
    tapped: Option<Tapped>,
    merges: Arc<Merges>,
    continuity: Continuity,
    /// Index of the first row group that `before` does not have or may not have.
    first_new: usize,
}

/// Relation of a table's new state to its previous state: the rows that they have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continuity {
    /// All rows are the same, in other row groups.
    Rows,
    /// The first rows are the same; other rows were appended.
    Front,
    /// Nothing that readers may rely on is the same.
    Nothing,
}

/// Name and new state of the table that a change concerns; `None` if it concerns no table.
pub(super) type MadeTable = Option<(TableName, Current)>;

impl Catalog {
    /// Plans a change of the table whose newest state is `before`; `before` is `None` for a change that starts from
    /// no table. `tapped` is the tap (profile computation) of a new table.
    ///
    /// # Errors
    /// `Corrupt` if a splice does not begin and end at row group boundaries; `OverLimit` if memory is short.
    pub(super) fn plan(
        self: &Arc<Self>,
        mut change: Change,
        before: Option<&Current>,
        tapped: Option<Tapped>,
    ) -> Result<Planned> {
        let tenant = &change.tenant;
        let absent = || Error::internal("a change of a table that is not there");
        let effect = match &change.kind {
            ChangeKind::Put { name, table } => self.plan_new(tenant, name, table, tapped),
            ChangeKind::Rows { name, splices } => {
                let before = before.ok_or_else(absent)?;
                let table = self.holding(tenant, self.spliced(tenant, &before.table, splices)?)?;
                match changes::is_append(before.table.rows, splices) {
                    true => self.plan_next(
                        tenant,
                        name,
                        before,
                        table,
                        Continuity::Front,
                        before.table.row_groups.len(),
                    ),
                    false => {
                        // Row groups that have become small by the change are merged again with small neighbours.
                        let settled = merge::settled(&table, 0);
                        self.plan_other(tenant, (name, name), before, (table, settled))
                    }
                }
            }
            ChangeKind::Columns { name, new_name, schema, from } => {
                let before = before.ok_or_else(absent)?;
                let table = before.table.with_columns(schema.clone(), from, &self.pool, tenant)?;
                let table = self.holding(tenant, table)?;
                self.plan_other(tenant, (name, new_name), before, (table, before.settled))
            }
            ChangeKind::Merged { name, first_row, rows, merged } => {
                let before = before.ok_or_else(absent)?;
                let table = self.merged(tenant, before, (*first_row, *rows), merged.as_ref())?;
                self.plan_next(tenant, name, before, table, Continuity::Rows, before.settled)
            }
            ChangeKind::Drop(name) => PlannedEffect::Names(Effect::Drop(tenant.clone(), name.clone())),
            ChangeKind::PutView(view) => {
                let view = Arc::new(StoredView::new(view.clone(), self.outside(tenant))?);
                PlannedEffect::Names(Effect::PutView(tenant.clone(), view))
            }
            ChangeKind::DropView(name) => {
                PlannedEffect::Names(Effect::DropView(tenant.clone(), name.clone()))
            }
            ChangeKind::PutSchema(schema) => {
                PlannedEffect::Names(Effect::PutSchema(tenant.clone(), schema.clone()))
            }
            ChangeKind::DropSchema(schema) => {
                PlannedEffect::Names(Effect::DropSchema(tenant.clone(), schema.clone()))
            }
        };
        if let PlannedEffect::Table(next) = &effect {
            change.size = TableSize::of(&next.table);
        }
        Ok(Planned { change, effect })
    }

    /// Makes a planned change, and appends its record to the log. `check`, called under the lock of the names,
    /// decides whether the change may still be made. Returns `None` if `check` refuses, or if the table was swapped
    /// since the change was planned.
    pub(super) fn make(
        self: &Arc<Self>,
        planned: Planned,
        check: impl Fn(&CatalogState) -> Result<bool>,
    ) -> Result<Option<Commit<MadeTable>>> {
        let record = self.durable.get().map(|durable| durable.prepare(&planned.change, planned.key()));
        let record = record.transpose()?;
        let check = |state: &CatalogState| {
            if !check(state)? || !planned.is_current(state) {
                return Ok(false);
            }
            self.check_limits(state, &planned).map(|()| true)
        };
        self.make_recorded(&planned, record, None, check)
    }

    /// Makes a change that starts from no table, if `check` accepts it.
    pub(super) fn make_named(
        self: &Arc<Self>,
        change: Change,
        check: impl Fn(&CatalogState) -> Result<bool>,
    ) -> Result<Commit<()>> {
        let planned = self.plan(change, None, None)?;
        Ok(self.make(planned, check)?.ok_or_else(unmade)?.map(|_| ()))
    }

    /// Makes the change of a received record, whose prepared form is `record`, as `version`. Limits are not checked,
    /// since the node that made the change has checked them. `before` is the newest version of the table that changes.
    pub(super) fn make_received(
        self: &Arc<Self>,
        change: Change,
        before: Option<&Current>,
        record: Prepared,
        version: Version,
    ) -> Result<Commit<()>> {
        // The outcome of a load is the one that the record has.
        let size = change.size.clone();
        let mut planned = self.plan(change, before, None)?;
        planned.change.size = size;
        let made = self.make_recorded(&planned, Some(record), Some(version), |state| {
            self.pin_received(state, &planned);
            Ok(true)
        })?;
        let made = made.ok_or_else(|| Error::internal("a record was neither applied nor refused"))?;
        Ok(made.map(|_| ()))
    }

    /// Makes a planned change with its record: as `version` if that is given, otherwise as the next version.
    pub(super) fn make_recorded(
        self: &Arc<Self>,
        planned: &Planned,
        mut record: Option<Prepared>,
        version: Option<Version>,
        check: impl Fn(&CatalogState) -> Result<bool>,
    ) -> Result<Option<Commit<MadeTable>>> {
        let change = &planned.change;
        loop {
            let mut state = self.state.write();
            if !check(&state)? {
                return Ok(None);
            }
            let next = state.versions_made + u64::from(change.makes_version());
            let version = version.unwrap_or(Version(next));
            assert!(
                version.0 >= state.versions_made + u64::from(change.makes_version()),
                "a version is used once: {version} after {}",
                state.versions_made
            );
            if let Some(conflict) = planned.conflict(&state.newest) {
                return Err(Error::corrupt(format!(
                    "a change does not fit the tables and views: {conflict}"
                )));
            }
            if let Some(number) = self.append(&mut record, version)? {
                state.versions_made = version.0;
                let (effect, made) = planned.effect.at(change, &state.newest, version);
                if let (ChangeKind::Put { name, .. }, Effect::Put { tenant, .. }) = (&change.kind, &effect) {
                    state.end_claim(tenant, name);
                }
                let replaced = state.make(effect, number);
                drop(state);
                // Dropped outside the lock, since freeing many pages takes long.
                drop(replaced);
                return Ok(Some(Commit::new(made, self, number)));
            }
            drop(state);
            self.mend(&mut record)?;
        }
    }

    /// Appends the record of a change under the lock of the names, with the version that the change creates. Returns
    /// the sequence number of the record, inside a second `Option` that is `None` without a log. Returns `None` if the
    /// caller must release the lock, call [`Catalog::mend`], and start again.
    fn append(&self, record: &mut Option<Prepared>, version: Version) -> Result<Option<Option<u64>>> {
        match (self.durable.get(), record) {
            (Some(durable), Some(record)) => Ok(durable.append(record, version)?.map(Some)),
            _ => Ok(Some(None)),
        }
    }

    /// Makes room in the log for a record that could not be appended, and prepares the record again if it is outdated.
    /// May block.
    fn mend(&self, record: &mut Option<Prepared>) -> Result<()> {
        match (self.durable.get(), record) {
            (Some(durable), Some(record)) => durable.mend(record),
            _ => Ok(()),
        }
    }

    /// Checks the tenant's disk quota, and pins the values of a pinned table.
    fn check_limits(&self, state: &CatalogState, planned: &Planned) -> Result<()> {
        let PlannedEffect::Table(next) = &planned.effect else { return Ok(()) };
        let (tenant, table) = (&planned.change.tenant, &next.table);
        // The bytes count under the name that the table has before the change.
        let name = next.renamed_from.as_ref().unwrap_or(&next.name);
        if next.continuity != Continuity::Rows {
            self.check_disk(state, tenant, name, table.bytes_encoded)?;
            return self.pin(state, (tenant, name), next.is_pinned, (table, next.first_new));
        }
        if next.is_pinned {
            table.pin_from(next.first_new);
        }
        Ok(())
    }

    /// Pins the values of a pinned table that a received record creates. If the part of the pool that may be pinned is
    /// smaller here than on the node that made the change, the values stay unpinned, as after a restart.
    fn pin_received(&self, state: &CatalogState, planned: &Planned) {
        let PlannedEffect::Table(next) = &planned.effect else { return };
        let (tenant, name) = (&planned.change.tenant, next.renamed_from.as_ref().unwrap_or(&next.name));
        let fits = || self.check_pins(state, tenant, name, next.table.bytes_encoded).is_ok();
        if next.is_pinned && fits() {
            next.table.pin_from(next.first_new);
        }
    }

    fn plan_new(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        new: &NewTable,
        tapped: Option<Tapped>,
    ) -> PlannedEffect {
        let NewTable { table, key, is_pinned } = new.clone();
        let settled = table.row_groups.len();
        PlannedEffect::Table(Box::new(NextTable {
            name: name.clone(),
            renamed_from: None,
            before: None,
            key,
            is_pinned,
            settled,
            rows_settled: rows_of(&table, 0..settled),
            table,
            tapped,
            merges: Merges::new(self, self.next_chore(), tenant, name),
            continuity: Continuity::Nothing,
            first_new: 0,
        }))
    }

    /// Plans the state `table`, which has the rows of `before` and possibly more after them.
    fn plan_next(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        before: &Current,
        table: Table,
        continuity: Continuity,
        first_new: usize,
    ) -> PlannedEffect {
        let (settled, tapped) = self.settle(tenant, before, &table);
        assert!(
            before.settled <= settled && settled <= table.row_groups.len(),
            "row groups stay settled: {settled} after {}",
            before.settled
        );
        PlannedEffect::Table(Box::new(NextTable {
            name: name.clone(),
            renamed_from: None,
            key: before.key.clone(),
            is_pinned: before.is_pinned,
            settled,
            rows_settled: before.rows_settled + rows_of(&table, before.settled..settled),
            table: Arc::new(table),
            tapped,
            merges: before.merges.clone(),
            continuity,
            first_new,
            before: Some(before.clone()),
        }))
    }

    /// Plans the state `table`, whose rows or columns differ from those of `before`, with its new name. The first
    /// `settled` row groups are not merged.
    fn plan_other(
        self: &Arc<Self>,
        tenant: &TenantName,
        (name, new_name): (&TableName, &TableName),
        before: &Current,
        (table, settled): (Table, usize),
    ) -> PlannedEffect {
        let is_tapped = table.tier().is_none() && !self.taps_closed.load(Ordering::Relaxed);
        let tapped = is_tapped.then(|| self.tapped_from(tenant, &table, 0..settled, None));
        // The merges of a table are identified by its name, so that a renamed table gets new ones.
        let merges = match new_name == name {
            true => before.merges.clone(),
            false => Merges::new(self, self.next_chore(), tenant, new_name),
        };
        PlannedEffect::Table(Box::new(NextTable {
            name: new_name.clone(),
            renamed_from: (new_name != name).then(|| name.clone()),
            key: before.key.clone(),
            is_pinned: before.is_pinned,
            settled,
            rows_settled: rows_of(&table, 0..settled),
            table: Arc::new(table),
            tapped,
            merges,
            continuity: Continuity::Nothing,
            first_new: 0,
            before: Some(before.clone()),
        }))
    }

    /// Returns the table `base` with the row groups of `splices` in place of the ranges of rows that they replace.
    fn spliced(&self, tenant: &TenantName, base: &Table, splices: &[Splice<Arc<RowGroup>>]) -> Result<Table> {
        let (groups, pool) = (&base.row_groups, self.pool.clone());
        let rows_of = groups.iter().map(|group| u64_from(group.rows));
        let ranges = changes::replaced_ranges((groups.len(), base.rows), rows_of, splices)
            .ok_or_else(|| Error::corrupt("a change of rows that are not those of row groups"))?;
        let (mut builder, mut place) = match changes::is_append(base.rows, splices) {
            true => (TableBuilder::append_to(pool, base, tenant.clone(), None)?, groups.len()),
            false => {
                let builder = TableBuilder::new(pool, tenant.clone(), &base.schema, None)?;
                (builder.encrypting(base.cipher()), 0)
            }
        };
        for (range, splice) in ranges.iter().zip(splices) {
            let kept = groups.from(place).take(range.start - place);
            kept.chain(&splice.groups).try_for_each(|group| builder.add_row_group(group.clone()))?;
            place = range.end;
        }
        groups.from(place).try_for_each(|group| builder.add_row_group(group.clone()))?;
        builder.finish()
    }

    /// Returns the table of `before` in which the row groups of a range of rows are merged: replaced by `merged` if
    /// that is given, otherwise merged here.
    fn merged(
        &self,
        tenant: &TenantName,
        before: &Current,
        (first_row, rows): (u64, u64),
        merged: Option<&Arc<RowGroup>>,
    ) -> Result<Table> {
        let groups = &before.table.row_groups;
        let range = Splice { first_row, rows, groups: Vec::<()>::new() };
        let rows_of = groups.iter().map(|group| u64_from(group.rows));
        let ranges = changes::replaced_ranges((groups.len(), before.table.rows), rows_of, &[range]);
        let ranges = ranges.filter(|_| rows <= limits::ROW_GROUP_ROWS as u64);
        let wrong = || Error::corrupt("a merge of rows that are not those of row groups");
        let range = ranges.and_then(|ranges| ranges.into_iter().next()).ok_or_else(wrong)?;
        let old: Vec<_> = groups.from(range.start).take(range.len()).cloned().collect();
        let merged = match merged {
            Some(merged) => merged.clone(),
            None => self.merge_row_groups(tenant, &before.table, &old)?,
        };
        let table = before.table.with_merged(range.start, &old, merged).ok_or_else(wrong)?;
        self.holding(tenant, table)
    }

    /// Returns the number of settled row groups (those no longer merged) of `table`, which follows `current`, and a
    /// tap (profile computation) for the newly settled ones.
    fn settle(&self, tenant: &TenantName, current: &Current, table: &Table) -> (usize, Option<Tapped>) {
        let settled = merge::settled(table, current.settled);
        // If the earlier rows have no profile, a profile of the later rows alone would say too little.
        let before = current.tap.clone().filter(|_| settled > current.settled);
        let tapped =
            before.map(|before| self.tapped_from(tenant, table, current.settled..settled, Some(before)));
        (settled, tapped)
    }

    /// Creates a tap (profile computation) and adds to it the row groups of a table from an index on.
    fn tapped_from(
        &self,
        tenant: &TenantName,
        table: &Table,
        groups: std::ops::Range<usize>,
        before: Option<Arc<super::Tap>>,
    ) -> Tapped {
        let tap = self.tap(tenant, &table.schema);
        let encoder = Encoder::new(self.pool.clone(), tenant.clone(), table.schema.clone());
        table.row_groups.from(groups.start).take(groups.len()).for_each(|group| tap.add(group.clone()));
        Tapped { tap, before, encoder }
    }
}

impl Commit<MadeTable> {
    /// Submits a merge if the table has small row groups to merge, and returns the description of the table.
    pub(super) fn announced(self) -> Result<Commit<TableInfo>> {
        let (made, commit) = self.split();
        let (name, current) = made.ok_or_else(|| Error::internal("a change of a table made none"))?;
        Ok(commit.map(|()| current.announced(&name)))
    }
}

fn rows_of(table: &Table, groups: std::ops::Range<usize>) -> u64 {
    let groups = table.row_groups.from(groups.start).take(groups.len());
    groups.map(|group| u64_from(group.rows)).sum()
}

impl Planned {
    /// Returns the encryption key of the table in segments; `None` if it has none.
    fn key(&self) -> Option<&Arc<TableKey>> {
        match &self.effect {
            PlannedEffect::Table(next) => next.key.as_ref(),
            PlannedEffect::Names(_) => None,
        }
    }

    /// Returns the reason why the change does not fit the newest names; `None` if it does.
    fn conflict(&self, newest: &Names) -> Option<&'static str> {
        match &self.effect {
            PlannedEffect::Names(effect) => newest.conflict(effect),
            PlannedEffect::Table(next) => {
                newest.conflict_of_put(&self.change.tenant, &next.name, next.renamed_from.is_some())
            }
        }
    }

    /// Returns whether the table has not changed since the change was planned.
    fn is_current(&self, state: &CatalogState) -> bool {
        let PlannedEffect::Table(next) = &self.effect else { return true };
        let name = next.renamed_from.as_ref().unwrap_or(&next.name);
        next.before.as_ref().is_none_or(|before| state.is_newest(&self.change.tenant, name, before))
    }
}

impl PlannedEffect {
    /// Returns the effect as version `version`, and the changed table. `newest` are the newest names.
    fn at(&self, change: &Change, newest: &Names, version: Version) -> (Effect, MadeTable) {
        match self {
            PlannedEffect::Names(effect) => (effect.clone(), None),
            PlannedEffect::Table(next) => {
                let before = next.renamed_from.as_ref().unwrap_or(&next.name);
                let table = next.at(newest.find(&change.tenant, before), version);
                let effect = Effect::Put {
                    tenant: change.tenant.clone(),
                    name: next.name.clone(),
                    renamed_from: next.renamed_from.clone(),
                    table: table.clone(),
                    loads: change.loaded(table.version),
                };
                (effect, Some((next.name.clone(), table)))
            }
        }
    }
}

impl NextTable {
    /// Returns this state with the version number `version`. `newest` is the state before the change, which may have
    /// got a tap (profile computation) since the change was planned.
    fn at(&self, newest: Option<&Current>, version: Version) -> Current {
        let newest = newest.filter(|_| self.before.is_some());
        let rows_before = newest.map_or(0, |newest| newest.table.rows);
        assert!(
            match self.continuity {
                Continuity::Rows => self.table.rows == rows_before,
                Continuity::Front => self.table.rows >= rows_before,
                Continuity::Nothing => true,
            },
            "a merge keeps all rows, and an append those in front: {} after {rows_before}",
            self.table.rows
        );
        // The tap must know which rows come before its own before the version is visible.
        let tap = match (&self.tapped, self.continuity, newest) {
            (Some(tapped), ..) => Some(tapped.clone().complete()),
            (None, Continuity::Nothing, _) | (None, _, None) => None,
            (None, _, Some(newest)) => newest.tap.clone().filter(|_| self.settled == newest.settled),
        };
        let (version, since, whole) = match (self.continuity, newest) {
            (Continuity::Rows, Some(newest)) => (newest.version, newest.since, newest.whole.clone()),
            (Continuity::Front, Some(newest)) => (version, newest.since, None),
            (Continuity::Nothing, _) | (_, None) => (version, version, None),
        };
        let append_queue: Arc<AppendQueue> =
            newest.map_or_else(Arc::default, |newest| newest.append_queue.clone());
        Current {
            version,
            since,
            table: self.table.clone(),
            key: self.key.clone(),
            is_pinned: self.is_pinned,
            settled: self.settled,
            rows_settled: self.rows_settled,
            tap,
            whole,
            append_queue,
            merges: self.merges.clone(),
        }
    }
}
