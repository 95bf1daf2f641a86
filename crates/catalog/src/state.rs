//! The names of a catalog in two versions: as of the latest change, and as readers see them.
//!
//! A change is applied to the newest names at once, and later changes are checked against these. Readers see it only
//! once its record in the log is durable, so that nothing they have read can be lost. Without a log both versions are
//! always equal.
//!
//! Example: table `t` is dropped, and the record is not durable yet. A reader still finds `t`; a second drop fails,
//! since the newest names do not have it. If power is lost now, `t` is there after the restart, as the reader saw it.
//!
//! Invariants: changes become visible in the order in which they were made; a name of a tenant belongs to at most one
//! of a table, a view, and a load that is about to create a table.

use super::{Current, claims, names, views};
use farpool_columns::Table;
use farpool_model::{
    Error, ErrorKind, LoadId, LoadedVersion, Result, SchemaName, TableName, TenantName, Version, limits,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

/// The tables and views of all tenants, and the changes under way to the disk.
#[derive(Debug, Default)]
pub(super) struct CatalogState {
    pub newest: Names,
    pub visible: Names,
    /// Changes that are in the log and not durable yet, oldest first.
    waiting: VecDeque<PendingChange>,
    /// Number of records of the log whose changes are visible.
    pub durable_records: u64,
    /// Why no further change becomes durable.
    failure: Option<Error>,
    pub versions_made: u64,
    /// Names of tables that are about to be created, each with the number of its claim.
    pub claims: BTreeMap<TenantName, BTreeMap<TableName, u64>>,
    pub claims_made: u64,
    /// Loads with an id that are durable, of a catalog with a log.
    pub loads: BTreeMap<TenantName, Loads>,
}

/// The tables, views and schemas of all tenants by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub tables: BTreeMap<TenantName, BTreeMap<TableName, Current>>,
    pub views: BTreeMap<TenantName, BTreeMap<TableName, Arc<views::StoredView>>>,
    /// Schemas besides `public`.
    pub schemas: BTreeMap<TenantName, BTreeSet<SchemaName>>,
}

/// The latest loads of a tenant that had an id.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// Versions that they made, oldest first.
    pub latest: VecDeque<(LoadId, LoadedVersion)>,
    /// The newest version of one that is forgotten; 0 when none is.
    pub forgotten: u64,
}

/// Called when a change is durable, or cannot become so.
pub(super) type Wake = Box<dyn FnOnce(Result<()>) + Send>;

struct PendingChange {
    /// The number of the change's record.
    number: u64,
    effect: Effect,
    /// Behind a lock only because callbacks need not be shared among threads, and the state is.
    wakes: Mutex<Vec<Wake>>,
}

/// Effect of a change on the names.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// A table gets another version, or is created.
    Put {
        tenant: TenantName,
        name: TableName,
        /// Former name of the table, if the change renames it.
        renamed_from: Option<TableName>,
        current: Current,
        /// The loads that made the version.
        loads: Vec<(LoadId, LoadedVersion)>,
    },
    Drop(TenantName, TableName),
    PutView(TenantName, Arc<views::StoredView>),
    DropView(TenantName, TableName),
    PutSchema(TenantName, SchemaName),
    /// A schema is dropped, with all tables and views in it.
    DropSchema(TenantName, SchemaName),
}

/// Values that a change replaced, to be dropped outside the lock: freeing many pages takes a while.
pub(super) type Replaced = Vec<Box<dyn Send>>;

/// The condition on a table's newest state under which a load may be published.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    Anything,
    /// Neither a table, nor a view, nor a claim of the name exists.
    Nothing,
    /// The name is still claimed under this number.
    Claim(u64),
    Version(Version),
}

impl CatalogState {
    /// Makes a change; it is visible at once, or once the record `number` is durable.
    pub fn make(&mut self, effect: Effect, number: Option<u64>) -> Replaced {
        let mut replaced = Replaced::new();
        self.newest.apply(effect.clone(), &mut replaced);
        match number {
            None => self.visible.apply(effect, &mut replaced),
            Some(number) => self.waiting.push_back(PendingChange { number, effect, wakes: Mutex::default() }),
        }
        replaced
    }

    /// Adds a table that was found in a data directory.
    pub fn restore_table(&mut self, tenant: &TenantName, name: &TableName, current: &Current) {
        for names in [&mut self.newest, &mut self.visible] {
            names.tables.entry(tenant.clone()).or_default().insert(name.clone(), current.clone());
        }
    }

    /// Adds a view that was found in a data directory.
    pub fn restore_view(&mut self, tenant: &TenantName, view: Arc<views::StoredView>) {
        for names in [&mut self.newest, &mut self.visible] {
            names.views.entry(tenant.clone()).or_default().insert(view.name().clone(), view.clone());
        }
    }

    /// Adds a schema that was found in a data directory.
    pub fn restore_schema(&mut self, tenant: &TenantName, schema: &SchemaName) {
        for names in [&mut self.newest, &mut self.visible] {
            names.put_schema(tenant.clone(), schema.clone());
        }
    }

    /// Puts `merged`, which has the same rows as the version `before`, in its place wherever that is the version.
    pub fn merged(
        &mut self,
        tenant: &TenantName,
        name: &TableName,
        merged: &Current,
        before: &Arc<Table>,
    ) -> Replaced {
        let mut replaced = Replaced::new();
        for names in [&mut self.newest, &mut self.visible] {
            let Some(current) = names.find_mut(tenant, name) else { continue };
            if Arc::ptr_eq(&current.table, before) {
                replaced.push(Box::new(mem::replace(current, merged.clone())));
            }
        }
        replaced
    }

    /// Makes the changes of the first `count` records visible. Returns the callbacks to be called, and the replaced
    /// values.
    pub fn durable(&mut self, count: u64) -> (Vec<Wake>, Replaced) {
        let (mut wakes, mut replaced) = (Vec::new(), Replaced::new());
        // Versions replaced by an append share their row groups with its result, and are cheap to drop.
        let mut outgrown = Replaced::new();
        while let Some(made) = self.waiting.pop_front_if(|made| made.number < count) {
            let mut effect = made.effect;
            if let Effect::Put { tenant, name, current, loads, .. } = &mut effect {
                // Small row groups may have been merged meanwhile.
                if let Some(merged) =
                    self.newest.find(tenant, name).filter(|now| now.version == current.version)
                {
                    *current = merged.clone();
                }
                if !loads.is_empty() {
                    self.loads.entry(tenant.clone()).or_default().add(mem::take(loads));
                }
            }
            let is_append =
                matches!(&effect, Effect::Put { current, .. } if current.since != current.version);
            self.visible.apply(effect, if is_append { &mut outgrown } else { &mut replaced });
            wakes.extend(made.wakes.into_inner());
        }
        self.durable_records = self.durable_records.max(count);
        (wakes, replaced)
    }

    /// Returns the tables of changes that are not durable yet.
    pub fn under_way(&self) -> Vec<Current> {
        let table = |made: &PendingChange| match &made.effect {
            Effect::Put { current, .. } => Some(current.clone()),
            Effect::Drop(..)
            | Effect::PutView(..)
            | Effect::DropView(..)
            | Effect::PutSchema(..)
            | Effect::DropSchema(..) => None,
        };
        self.waiting.iter().filter_map(table).collect()
    }

    /// Discards the changes that are not durable. Returns the callbacks to be called.
    pub fn failed(&mut self, error: &Error) -> Vec<Wake> {
        self.failure = Some(error.clone());
        self.waiting.drain(..).flat_map(|made| made.wakes.into_inner()).collect()
    }

    /// Calls `wake` once record `number` is durable. If the outcome is known already, returns `wake` with it, for the
    /// caller to call outside the lock.
    pub fn when_durable(&mut self, number: u64, wake: Wake) -> Option<(Wake, Result<()>)> {
        if number < self.durable_records {
            return Some((wake, Ok(())));
        }
        match (self.waiting.iter_mut().rev().find(|made| made.number == number), &self.failure) {
            (Some(made), _) => {
                made.wakes.get_mut().push(wake);
                None
            }
            (None, Some(error)) => Some((wake, Err(error.clone()))),
            (None, None) => Some((wake, Err(Error::internal("a change is in no log")))),
        }
    }

    /// Returns whether `current` is still the newest state of a table.
    pub fn is_newest(&self, tenant: &TenantName, name: &TableName, current: &Current) -> bool {
        self.newest.find(tenant, name).is_some_and(|newest| newest.is_same(current))
    }

    /// Returns the newest state of a table.
    pub fn newest(&self, tenant: &TenantName, name: &TableName) -> Result<&Current> {
        self.newest.find(tenant, name).ok_or_else(|| self.not_found(&self.newest, tenant, name))
    }

    /// Returns the state of a table that readers see.
    pub fn visible(&self, tenant: &TenantName, name: &TableName) -> Result<&Current> {
        self.visible.find(tenant, name).ok_or_else(|| self.not_found(&self.visible, tenant, name))
    }

    fn not_found(&self, known: &Names, tenant: &TenantName, name: &TableName) -> Error {
        if known.view(tenant, name).is_some() {
            return views::is_a_view(name);
        }
        if !name.is_public()
            && let Err(error) = known.check_schema(tenant, &name.schema())
        {
            return error;
        }
        let error = Error::not_found(format!("there is no table {:?}", name.as_str()));
        if self.claimed(tenant, name).is_some() {
            return error.advise("a load that creates it is under way: try again when that has ended");
        }
        let tables = known.tables.get(tenant).into_iter().flat_map(BTreeMap::keys);
        error.advise(names::advice(name, tables.chain(known.views_of(tenant).map(|(name, _)| name))))
    }

    pub fn check(&self, tenant: &TenantName, name: &TableName, expected: Expected) -> Result<()> {
        match (expected, self.newest.find(tenant, name)) {
            (Expected::Nothing, Some(_)) => {
                Err(Error::new(ErrorKind::Exists, format!("there is a table {:?} already", name.as_str()))
                    .advise(claims::EXISTS_ADVICE))
            }
            (Expected::Nothing, None) if self.claimed(tenant, name).is_some() => Err(claims::under_way(name)),
            (Expected::Claim(number), _) => self.check_claim(tenant, name, number),
            (Expected::Version(version), Some(current)) if current.version != version => {
                let (name, now) = (name.as_str(), current.version);
                let message = format!("table {name:?} is at version {now}, not {version}");
                Err(Error::new(ErrorKind::Stale, message).advise("try again"))
            }
            (Expected::Version(_), None) => self.newest(tenant, name).map(|_| ()),
            (Expected::Anything | Expected::Version(_), Some(_)) => Ok(()),
            (Expected::Anything | Expected::Nothing, None) => {
                self.check_no_view(tenant, name)?;
                self.check_schema(tenant, name)?;
                self.check_count(tenant)
            }
        }
    }

    fn check_count(&self, tenant: &TenantName) -> Result<()> {
        let count = self.newest.tables.get(tenant).map_or(0, BTreeMap::len)
            + self.claims.get(tenant).map_or(0, BTreeMap::len);
        if count < limits::TABLES_PER_TENANT_MAX {
            return Ok(());
        }
        Err(Error::over_limit(format!("a tenant may have {} tables", limits::TABLES_PER_TENANT_MAX))
            .advise("drop tables that are not needed"))
    }
}

impl Names {
    pub fn find(&self, tenant: &TenantName, name: &TableName) -> Option<&Current> {
        self.tables.get(tenant)?.get(name)
    }

    pub fn find_mut(&mut self, tenant: &TenantName, name: &TableName) -> Option<&mut Current> {
        self.tables.get_mut(tenant)?.get_mut(name)
    }

    fn apply(&mut self, effect: Effect, replaced: &mut Replaced) {
        match effect {
            Effect::Put { tenant, name, renamed_from, current, .. } => {
                let tables = self.tables.entry(tenant).or_default();
                let before = renamed_from.and_then(|before| tables.remove(&before));
                let instead = tables.insert(name, current);
                replaced.push(Box::new((before, instead)));
            }
            Effect::Drop(tenant, name) => replaced.push(Box::new(remove(&mut self.tables, &tenant, &name))),
            Effect::PutView(tenant, view) => {
                let views = self.views.entry(tenant).or_default();
                replaced.push(Box::new(views.insert(view.name().clone(), view)));
            }
            Effect::DropView(tenant, name) => {
                replaced.push(Box::new(remove(&mut self.views, &tenant, &name)))
            }
            Effect::PutSchema(tenant, schema) => self.put_schema(tenant, schema),
            Effect::DropSchema(tenant, schema) => self.drop_schema(&tenant, &schema, replaced),
        }
    }
}

/// Removes the names that are `removed`, and the tenant with its last one.
pub(super) fn remove_if<T: Send + 'static>(
    of_all: &mut BTreeMap<TenantName, BTreeMap<TableName, T>>,
    tenant: &TenantName,
    removed: impl Fn(&TableName) -> bool,
    replaced: &mut Replaced,
) {
    let Some(of_tenant) = of_all.get_mut(tenant) else { return };
    replaced.push(Box::new(of_tenant.extract_if(.., |name, _| removed(name)).collect::<Vec<_>>()));
    if of_tenant.is_empty() {
        of_all.remove(tenant);
    }
}

/// Removes a name, and the tenant with its last one.
fn remove<T>(
    of_all: &mut BTreeMap<TenantName, BTreeMap<TableName, T>>,
    tenant: &TenantName,
    name: &TableName,
) -> Option<T> {
    let of_tenant = of_all.get_mut(tenant)?;
    let removed = of_tenant.remove(name);
    if of_tenant.is_empty() {
        of_all.remove(tenant);
    }
    removed
}

impl Loads {
    /// Adds loads, and forgets the oldest beyond the limit.
    pub(super) fn add(&mut self, loads: Vec<(LoadId, LoadedVersion)>) {
        self.latest.extend(loads);
        while self.latest.len() > limits::LOAD_OUTCOMES_MAX
            && let Some((_, made)) = self.latest.pop_front()
        {
            self.forgotten = self.forgotten.max(made.version.0);
        }
    }
}

impl std::fmt::Debug for PendingChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingChange").field("number", &self.number).finish_non_exhaustive()
    }
}
