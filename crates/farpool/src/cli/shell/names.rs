//! The names for completion, which are requested when Tab is pressed. Requests have a short time limit, so that typing
//! is not delayed, and names are cached for a moment. If a node does not answer, only completions are missing.

use super::complete::Known;
use datafusion::common::TableReference;
use farpool::{Error, Result, Session};
use futures::TryStreamExt;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Time limit of a request for names. Reason: typing must not be delayed for longer.
const PATIENCE: Duration = Duration::from_millis(700);

/// Time for which names are cached.
const FRESH: Duration = Duration::from_secs(3);

/// A query that lists the tables and views of all pools, and the session's own; names outside of `public` include their
/// schema.
pub const ALL_TABLES: &str = "SELECT CASE WHEN table_schema = 'public' THEN '' ELSE table_schema || '.' END || table_name AS name, \
                              CASE WHEN table_type = 'VIEW' THEN 'view' ELSE 'table' END AS kind \
                              FROM information_schema.tables WHERE table_schema <> 'information_schema' ORDER BY name";

/// A query that lists the tables and views in `public`.
const TABLES: &str = "SELECT table_name AS name, CASE WHEN table_type = 'VIEW' THEN 'view' ELSE 'table' END AS kind \
                          FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name";

/// A cache of the names of a session.
pub struct Names {
    session: Session,
    runtime: Handle,
    functions: Vec<String>,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    tables: Option<(Instant, Vec<String>)>,
    columns: HashMap<String, (Instant, Vec<String>)>,
}

impl Names {
    /// Creates a cache of the names of `session`. It must not be used on a thread of the runtime, because it blocks on
    /// requests.
    pub fn new(session: Session, runtime: Handle) -> Self {
        let state = session.context().state();
        let names = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
        let names = names.chain(state.window_functions().keys());
        let is_plain = |name: &&String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let mut functions: Vec<String> = names.filter(is_plain).cloned().collect();
        functions.sort_unstable();
        functions.dedup();
        Names { session, runtime, functions, found: Mutex::default() }
    }

    /// Drops the cached names, because a statement may have changed them.
    pub fn forget(&self) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Found::default();
    }

    /// Blocks until names have arrived; returns `None` if that takes too long or fails.
    fn await_names(&self, names: impl Future<Output = Result<Vec<String>>>) -> Option<Vec<String>> {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, names).await }).ok()?.ok()
    }

    async fn fetch_tables(&self) -> Result<Vec<String>> {
        let batches: Vec<_> = self.session.sql(TABLES).await?.execute().await?.try_collect().await?;
        let mut names = Vec::new();
        for batch in &batches {
            for row in 0..batch.num_rows() {
                let name = arrow::util::display::array_value_to_string(batch.column(0), row);
                names.push(name.map_err(|error| Error::internal(error.to_string()))?);
            }
        }
        Ok(names)
    }

    async fn fetch_columns(&self, table: &str) -> Result<Vec<String>> {
        let reference = TableReference::bare(table);
        let table = self.session.context().table_provider(reference).await;
        let table = table.map_err(|error| Error::not_found(error.to_string()))?;
        Ok(table.schema().fields().iter().map(|field| field.name().clone()).collect())
    }
}

impl Known for Names {
    fn tables(&self) -> Vec<String> {
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).tables.clone();
        if let Some((_, names)) = known.as_ref().filter(|(since, _)| since.elapsed() < FRESH) {
            return names.clone();
        }
        match self.await_names(self.fetch_tables()) {
            Some(names) => {
                let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                found.tables = Some((Instant::now(), names.clone()));
                names
            }
            None => known.map_or_else(Vec::new, |(_, names)| names),
        }
    }

    fn columns(&self, table: &str) -> Vec<String> {
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).columns.get(table).cloned();
        if let Some((_, names)) = known.filter(|(since, _)| since.elapsed() < FRESH) {
            return names;
        }
        // The columns of a name that is no table are cached as none, so that they are not requested again at once.
        let names = self.await_names(self.fetch_columns(table)).unwrap_or_default();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.columns.insert(table.to_string(), (Instant::now(), names.clone()));
        names
    }

    fn functions(&self) -> &[String] {
        &self.functions
    }
}
