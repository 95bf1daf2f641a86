//! The names of a catalog in two versions: the newest ones, and the ones that readers see.
//!
//! A change is applied to the newest names at once, and later changes are checked against these. Readers see it only
//! when its record in the log is durable, so that nothing they have read can be lost. Without a log both versions are
//! always equal.
//!
//! Three positions describe the progress of a catalog, each a number of records of its log
//! ([`farpool_disk::ChangeLog`]):
//! - *last*: these records were appended, and the newest names have their changes;
//! - *committed*: no failure can lose these records. The visible names have their changes, and their callers were
//!   answered ([`CatalogState::durable_records`]);
//! - *durable*: these records are synced on this node.
//!
//! For a single node, committed and durable are the same. With several nodes, a record is committed when a majority has
//! it, and uncommitted records at the end may be removed ([`CatalogState::cut_off`]): the newest names then become
//! equal to the visible ones.
//!
//! Example: table `t` is dropped, and the record is not durable yet. A reader still finds `t`; a second drop fails,
//! because the newest names do not have it. If power is lost now, `t` is there after the restart, as the reader saw it.
//!
//! Invariants: changes become visible in the order in which they were made; a name of a tenant belongs to at most one
//! of a table, a view, and a load that is about to create a table.
//!
//! A *claim* is the reservation of a table's name by a load that is about to create the table (`claims.rs`).

use super::names::{Effect, Names, Replaced};
use super::{Current, claims, suggestions, views};
use farpool_model::{
    Error, ErrorKind, LoadId, LoadedVersion, Result, TableName, TenantName, Version, limits,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::mem;

/// The tables and views of all tenants, and the changes whose log records are not durable yet.
#[derive(Debug, Default)]
pub(super) struct CatalogState {
    pub newest: Names,
    pub visible: Names,
    /// Changes that are in the log and not durable yet, oldest first.
    waiting: VecDeque<PendingChange>,
    /// Number of records of the log that are committed, so that their changes are visible.
    pub durable_records: u64,
    /// Error of the log after which no further change becomes durable; `None` while it works.
    failure: Option<Error>,
    pub versions_made: u64,
    /// Names of tables that loads are about to create, each with the id of its claim (`claims.rs`).
    pub claims: BTreeMap<TenantName, BTreeMap<TableName, u64>>,
    pub claims_made: u64,
    /// Outcomes of durable loads to which clients gave an id, by tenant. Empty for a catalog without a log.
    pub loads: BTreeMap<TenantName, Loads>,
}

/// Outcomes of the latest loads of a tenant, of those to which clients gave an id.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// Versions that the loads created, oldest first.
    pub latest: VecDeque<(LoadId, LoadedVersion)>,
    /// The newest version of a load whose outcome was forgotten; 0 if none was.
    pub forgotten: u64,
}

/// Callback with the outcome of a change, called when the change is durable or cannot become durable.
pub(super) type Wake = Box<dyn FnOnce(Result<()>) + Send>;

struct PendingChange {
    /// Sequence number of the change's record in the log.
    number: u64,
    effect: Effect,
    /// Callbacks of the change. The lock is only needed because the state is shared among threads and callbacks cannot
    /// be.
    wakes: Mutex<Vec<Wake>>,
}

/// The condition on a table's newest state under which a load may be published.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    Anything,
    /// There is no table, view or claim of the name.
    Nothing,
    /// The name is claimed, and the claim has this id.
    Claim(u64),
    Version(Version),
}

impl CatalogState {
    /// Applies a change. It is visible at once, or when record `number` is durable. Returns replaced values, which the
    /// caller must drop outside the lock.
    pub fn make(&mut self, effect: Effect, number: Option<u64>) -> Replaced {
        let last = self.waiting.back().map(|last| last.number);
        assert!(
            number
                .is_none_or(|number| number >= self.durable_records && last.is_none_or(|last| last < number)),
            "changes are made in the order of their records: {number:?} after {last:?}"
        );
        let mut replaced = Replaced::new();
        self.newest.apply(effect.clone(), &mut replaced);
        match number {
            None => self.visible.apply(effect, &mut replaced),
            Some(number) => self.waiting.push_back(PendingChange { number, effect, wakes: Mutex::default() }),
        }
        replaced
    }

    /// Makes the changes of the first `count` records visible. Returns the callbacks that the caller must call, and
    /// replaced values that it must drop outside the lock.
    pub fn durable(&mut self, count: u64) -> (Vec<Wake>, Replaced) {
        let (mut wakes, mut replaced) = (Vec::new(), Replaced::new());
        // Versions that an append has replaced share their row groups with the new version, and are cheap to drop.
        let mut outgrown = Replaced::new();
        while let Some(made) = self.waiting.pop_front_if(|made| made.number < count) {
            let mut effect = made.effect;
            if let Effect::Put { tenant, name, table, loads, .. } = &mut effect {
                // A tap (profile computation) may have been attached to the newest state meanwhile.
                if let Some(newest) = self.newest.find(tenant, name).filter(|newest| newest.is_same(table)) {
                    *table = newest.clone();
                }
                if !loads.is_empty() {
                    self.loads.entry(tenant.clone()).or_default().add(mem::take(loads));
                }
            }
            let is_append = matches!(&effect, Effect::Put { table, .. } if table.since != table.version);
            self.visible.apply(effect, if is_append { &mut outgrown } else { &mut replaced });
            wakes.extend(made.wakes.into_inner());
        }
        self.durable_records = self.durable_records.max(count);
        let first = self.waiting.front().map(|first| first.number);
        assert!(first.is_none_or(|first| first >= count), "no change of a committed record waits");
        (wakes, replaced)
    }

    /// Returns the tables of changes that are not durable yet.
    pub fn under_way(&self) -> Vec<Current> {
        let table = |made: &PendingChange| match &made.effect {
            Effect::Put { table, .. } => Some(table.clone()),
            Effect::Drop(..)
            | Effect::PutView(..)
            | Effect::DropView(..)
            | Effect::PutSchema(..)
            | Effect::DropSchema(..) => None,
        };
        self.waiting.iter().filter_map(table).collect()
    }

    /// Checks that a table may be given this name.
    pub fn check_new_name(&self, tenant: &TenantName, name: &TableName) -> Result<()> {
        self.check_schema(tenant, name)?;
        let is_taken = self.newest.find(tenant, name).is_some()
            || self.newest.view(tenant, name).is_some()
            || self.claimed(tenant, name).is_some();
        if is_taken { self.check(tenant, name, Expected::Nothing) } else { Ok(()) }
    }

    /// Removes the changes that are not visible, because their records were removed from the log: the newest names
    /// become equal to the visible ones. Returns the callbacks that the caller must call, and the removed values.
    pub fn cut_off(&mut self) -> (Vec<Wake>, Replaced) {
        let gone = mem::replace(&mut self.newest, self.visible.clone());
        let waiting = mem::take(&mut self.waiting);
        let (wakes, effects): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|made| (made.wakes.into_inner(), made.effect)).unzip();
        (wakes.into_iter().flatten().collect(), vec![Box::new((gone, effects))])
    }

    /// Discards the changes that are not durable. Returns the callbacks that the caller must call with the error.
    pub fn failed(&mut self, error: &Error) -> Vec<Wake> {
        self.failure = Some(error.clone());
        self.waiting.drain(..).flat_map(|made| made.wakes.into_inner()).collect()
    }

    /// Registers `wake` to be called when record `number` is durable. If the outcome is known already, returns `wake`
    /// with the outcome instead, and the caller must call it outside the lock.
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

    /// Returns the state of a table as readers see it.
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
        error.advise(suggestions::advice(name, tables.chain(known.views_of(tenant).map(|(name, _)| name))))
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

impl Loads {
    /// Adds outcomes of loads, and forgets the oldest beyond the limit.
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
