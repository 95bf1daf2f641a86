//! The table versions that one statement reads, or that all statements of a batch read (a snapshot).
//!
//! Invariant: all programs (parts of a statement that a pool runs) over one table read one version of it: the version
//! that was newest when the first of the programs was prepared. The handle of that program keeps the version alive
//! until the statement is dropped. The table description that the statement was planned with may be of an older
//! version; it is used for estimates only. The statements of a batch share their versions.

use crate::table::PoolTable;
use datafusion::catalog::Session;
use farpool_model::{Error, ErrorKind, Program, TableName, Version, schema};
use farpool_transfer::Handle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::OnceCell;

/// The pool's address and the table's name.
type Place = (String, TableName);

fn place(table: &PoolTable) -> Place {
    (table.pool().url(), table.info().name.clone())
}

/// A snapshot: the versions of tables that are read together. For each table it has the handle of the first program
/// that was prepared, which keeps the version alive.
#[derive(Debug, Default)]
pub(crate) struct Versions(Mutex<HashMap<Place, Arc<OnceCell<Handle>>>>);

impl Versions {
    /// Returns the version of `table` that is read; `None` before a program over the table has been prepared.
    pub(crate) fn version(&self, table: &PoolTable) -> Option<Version> {
        let pin = self.0.lock().get(&place(table)).cloned()?;
        pin.get().map(|handle| handle.version)
    }
}

/// The table versions that one statement has pinned, and whether its table descriptions are up to date.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    versions: Arc<Versions>,
    drifted: AtomicBool,
    /// Whether the session's cached table descriptions were dropped for this statement, so that its own are up to date.
    described_anew: AtomicBool,
    /// Whether the statement will not be planned again if a version is gone.
    is_last_attempt: bool,
}

impl Pins {
    /// Creates the pins of a statement. `versions` are those of its batch, if it is in one, which its statements share.
    pub(crate) fn at(versions: Option<&Arc<Versions>>) -> Self {
        Pins { versions: versions.cloned().unwrap_or_default(), ..Pins::default() }
    }

    /// Creates the pins of a statement that is planned again, for the last time. `versions` as in [`Pins::at`].
    pub(crate) fn of_last_attempt(versions: Option<&Arc<Versions>>) -> Self {
        Pins { is_last_attempt: true, ..Pins::at(versions) }
    }

    /// Returns whether the version pinned for some table differs from the version of the description that the statement
    /// was planned with.
    pub(crate) fn have_drifted(&self) -> bool {
        self.drifted.load(Ordering::Relaxed)
    }

    /// Records that cached table descriptions from before the statement were dropped.
    pub(crate) fn describe_anew(&self) {
        self.described_anew.store(true, Ordering::Relaxed);
    }

    /// Returns whether cached table descriptions from before the statement were dropped.
    pub(crate) fn are_described_anew(&self) -> bool {
        self.described_anew.load(Ordering::Relaxed)
    }

    /// Returns the version of `table` that the statement reads; `None` before one of its programs over the table has
    /// been prepared.
    pub(crate) fn version(&self, table: &PoolTable) -> Option<Version> {
        self.versions.version(table)
    }

    async fn prepare(
        &self,
        (table, looked_up): Tables<'_>,
        program: Program,
    ) -> farpool_model::Result<Handle> {
        let mut program = program;
        if !looked_up.is_empty() {
            // Rows that go along with the program have no versions.
            let held = looked_up.iter().filter(|table| table.given().is_none());
            let versions = held.map(|table| self.pinned_version(table));
            let versions: HashMap<&TableName, Version> =
                futures::future::try_join_all(versions).await?.into_iter().collect();
            set_versions(&mut program, &versions);
        }
        match self.pinned(table, program).await {
            Err(error) if self.is_last_attempt && error.kind == ErrorKind::Stale => {
                Err(altered(table, error).await)
            }
            outcome => outcome,
        }
    }

    /// Returns the version of `table` that the statement reads, which a program without columns pins if no other has.
    async fn pinned_version<'a>(
        &self,
        table: &'a PoolTable,
    ) -> farpool_model::Result<(&'a TableName, Version)> {
        let info = table.info();
        let version = match self.version(table) {
            Some(version) => self.compared(version, table),
            None => {
                let program = Program::scan(info.name.clone(), &info.schema, &[]);
                self.pinned(table, program).await?.version
            }
        };
        Ok((&info.name, version))
    }

    /// Returns `version`, which the statement reads, and records whether it is that of the table's description.
    fn compared(&self, version: Version, table: &PoolTable) -> Version {
        if version != table.info().version {
            self.drifted.store(true, Ordering::Relaxed);
        }
        version
    }

    async fn pinned(&self, table: &PoolTable, program: Program) -> farpool_model::Result<Handle> {
        let info = table.info();
        let pin = Arc::clone(self.versions.0.lock().entry(place(table)).or_default());
        let mut first = None;
        let newest = Program { version: None, ..program.clone() };
        let pinned = pin.get_or_try_init(|| async {
            let handle = table.pool().prepare(&newest, &info.schema).await?;
            first = Some(handle.clone());
            farpool_model::Result::Ok(handle)
        });
        let version = self.compared(pinned.await?.version, table);
        match first {
            Some(handle) => Ok(handle),
            None => table.pool().prepare(&Program { version: Some(version), ..program }, &info.schema).await,
        }
    }
}

/// Returns the error for a table whose columns differ from those that a view or a prepared statement was planned for;
/// `error` if they do not differ.
async fn altered(table: &PoolTable, error: Error) -> Error {
    let info = table.info();
    let now = table.pool().table(&info.name).await;
    match now.ok().and_then(|now| schema::difference(&info.schema, &now.schema)) {
        Some(difference) => {
            let message = format!("table {:?} was replaced: {difference}", info.name.as_str());
            Error::invalid(message).advise("run the statement again; make views of the table anew")
        }
        None => error,
    }
}

/// The table that a program scans, and those of its lookups.
pub(crate) type Tables<'a> = (&'a PoolTable, &'a [PoolTable]);

/// Prepares `program` over its tables, for the versions that the session's statement has pinned (which the first program
/// over a table pins); without a statement, for the versions that the program names.
pub(crate) async fn prepare(
    session: &dyn Session,
    tables: Tables<'_>,
    program: Program,
) -> farpool_model::Result<Handle> {
    match session.config().get_extension::<Pins>() {
        Some(pins) => pins.prepare(tables, program).await,
        None => tables.0.pool().prepare(&program, &tables.0.info().schema).await,
    }
}

/// Makes the lookups of a program, and those of their programs, read these versions of their tables.
fn set_versions(program: &mut Program, versions: &HashMap<&TableName, Version>) {
    for lookup in &mut program.lookups {
        let version = versions.get(&lookup.program.table).copied().filter(|_| lookup.given.is_none());
        lookup.program.version = version.or(lookup.program.version);
        set_versions(&mut lookup.program, versions);
    }
}
