//! The versions that one statement reads.
//!
//! Invariant: all programs of a statement over one table read one version of it: the newest when the first of them
//! was prepared, which its handle holds until the statement is dropped. What the table was said to hold when the
//! statement was planned may be of an older version, and serves for estimates only.

use crate::error;
use crate::table::PoolTable;
use datafusion::catalog::Session;
use datafusion::error::Result;
use farpool_model::{Error, ErrorKind, Program, TableName, Version, schema};
use farpool_transfer::Handle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::OnceCell;

/// The pool's address, and the table's name.
type Place = (String, TableName);

fn place(table: &PoolTable) -> Place {
    (table.pool().url(), table.info().name.clone())
}

/// The pinned tables of one statement.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    tables: Mutex<HashMap<Place, Arc<OnceCell<Handle>>>>,
    drifted: AtomicBool,
    /// Whether the pools describe the tables for this statement, and not for one before it.
    described_anew: AtomicBool,
    /// Whether the statement is not going to be planned once more.
    is_last_attempt: bool,
}

impl Pins {
    /// Those of a statement that is planned again.
    pub(crate) fn of_last_attempt() -> Self {
        Pins { is_last_attempt: true, ..Pins::default() }
    }

    /// Whether a table has another version than the one that the statement was planned with.
    pub(crate) fn have_drifted(&self) -> bool {
        self.drifted.load(Ordering::Relaxed)
    }

    /// Notes that what the pools said before the statement was forgotten.
    pub(crate) fn describe_anew(&self) {
        self.described_anew.store(true, Ordering::Relaxed);
    }

    /// Whether that was forgotten.
    pub(crate) fn are_described_anew(&self) -> bool {
        self.described_anew.load(Ordering::Relaxed)
    }

    /// The version of `table` that the statement reads, once one of its programs was prepared.
    pub(crate) fn version(&self, table: &PoolTable) -> Option<Version> {
        let pin = self.tables.lock().get(&place(table)).cloned()?;
        pin.get().map(|handle| handle.version)
    }

    async fn prepare(&self, table: &PoolTable, program: Program) -> farpool_model::Result<Handle> {
        match self.pinned(table, program).await {
            Err(error) if self.is_last_attempt && error.kind == ErrorKind::Stale => {
                Err(altered(table, error).await)
            }
            outcome => outcome,
        }
    }

    async fn pinned(&self, table: &PoolTable, program: Program) -> farpool_model::Result<Handle> {
        let info = table.info();
        let pin = Arc::clone(self.tables.lock().entry(place(table)).or_default());
        let mut first = None;
        let newest = Program { version: None, ..program.clone() };
        let pinned = pin.get_or_try_init(|| async {
            let handle = table.pool().prepare(&newest, &info.schema).await?;
            first = Some(handle.clone());
            farpool_model::Result::Ok(handle)
        });
        let version = pinned.await?.version;
        if version != info.version {
            self.drifted.store(true, Ordering::Relaxed);
        }
        match first {
            Some(handle) => Ok(handle),
            None => table.pool().prepare(&Program { version: Some(version), ..program }, &info.schema).await,
        }
    }
}

/// What to tell of a table that has other columns than a view or a prepared statement was made for; `error` if it has
/// the same.
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

/// Asks the pool about `program` over `table`: of the version that the session's statement reads; without a statement,
/// of the one that the program names.
pub(crate) async fn prepare(session: &dyn Session, table: &PoolTable, program: Program) -> Result<Handle> {
    let prepared = match session.config().get_extension::<Pins>() {
        Some(pins) => pins.prepare(table, program).await,
        None => table.pool().prepare(&program, &table.info().schema).await,
    };
    prepared.map_err(error::wrap)
}
