//! PostgreSQL's system catalog (`pg_catalog`) over the tables of a pool: what clients ask for to list tables, columns
//! and types. Object ids follow from names, so that all sessions and gateways give an object the same.

mod facts;
mod functions;
mod information;
mod lists;
mod rows;
mod tables;

use async_trait::async_trait;
use facts::Facts;
use farpool_datafusion::{Session, SystemFunction, SystemSchema};
use farpool_model::Result;
use farpool_transfer::Pool;
use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which facts about the pool's tables are used again. Reason: one statement names many tables of the catalog.
const KEPT: Duration = Duration::from_millis(50);

/// Returns whether a statement may call functions that name tables, for which the pool has to be asked first.
pub(crate) fn names_objects(text: &str) -> bool {
    let text = text.to_lowercase();
    text.contains("pg_") || text.contains("reg")
}

/// The system catalog of one user.
pub(crate) struct Catalog {
    pool: Arc<dyn Pool>,
    /// The session that plans views. It has no catalog of this kind itself.
    planner: OnceLock<Session>,
    facts: Arc<RwLock<Arc<Facts>>>,
    asked: Mutex<Option<Instant>>,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Catalog {
    /// Creates the catalog of the tables of `pool`, which is `database`; `planner` plans its views.
    pub fn new(pool: Arc<dyn Pool>, planner: Session, database: &str) -> Arc<Self> {
        let cell = OnceLock::new();
        // A new cell is empty.
        drop(cell.set(planner));
        let facts = Facts { database: database.to_string(), ..Facts::default() };
        let facts = Arc::new(RwLock::new(Arc::new(facts)));
        Arc::new(Catalog { pool, planner: cell, facts, asked: Mutex::default() })
    }

    /// Returns the functions over the catalog.
    pub fn functions(&self) -> Vec<SystemFunction> {
        functions::all(&self.facts)
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Arc<dyn Pool> {
        &self.pool
    }

    /// Makes the next statement ask the pool anew, since this user has changed something.
    pub fn forget(&self) {
        *self.asked.lock() = None;
    }

    /// Asks the pool for its tables, unless that was done just now.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn refresh(&self) -> Result<()> {
        self.facts().await.map(drop)
    }

    async fn facts(&self) -> Result<Arc<Facts>> {
        let is_new = self.asked.lock().is_some_and(|asked| asked.elapsed() < KEPT);
        if !is_new {
            let now = Instant::now();
            let database = self.facts.read().database.clone();
            let facts = Arc::new(Facts::of(&*self.pool, database, self.planner.get()).await?);
            *self.facts.write() = facts;
            *self.asked.lock() = Some(now);
        }
        Ok(Arc::clone(&self.facts.read()))
    }
}

#[async_trait]
impl SystemSchema for Catalog {
    fn name(&self) -> &str {
        "pg_catalog"
    }

    fn is_implied(&self) -> bool {
        true
    }

    fn tables(&self) -> Vec<String> {
        tables::names().map(str::to_string).collect()
    }

    fn has(&self, table: &str) -> bool {
        tables::names().any(|name| name == table)
    }

    async fn rows(&self, table: &str) -> Result<arrow_array::RecordBatch> {
        tables::rows(&*self.facts().await?, table)
    }
}

/// The information schema of the SQL standard over the same facts, as PostgreSQL has it.
#[derive(Debug)]
pub(crate) struct InformationSchema(pub Arc<Catalog>);

#[async_trait]
impl SystemSchema for InformationSchema {
    fn name(&self) -> &str {
        "information_schema"
    }

    fn is_implied(&self) -> bool {
        false
    }

    fn tables(&self) -> Vec<String> {
        information::names().map(str::to_string).collect()
    }

    fn has(&self, table: &str) -> bool {
        information::names().any(|name| name == table)
    }

    async fn rows(&self, table: &str) -> Result<arrow_array::RecordBatch> {
        information::rows(&*self.0.facts().await?, table)
    }
}
