//! A session in which every plain in-memory table that a test creates is moved into the pool.
//!
//! DataFusion runs CREATE TABLE and INSERT on its own tables. After each such statement the tables are copied into an
//! embedded pool, and the pool's tables replace them; before the next statement that names them the originals are
//! restored. All queries thus run on the pool, and the statements that change tables need no support from it. Tables
//! that the pool cannot hold unchanged are not moved: those with nested or dictionary types, and with constraints, from
//! which DataFusion derives properties of its own.

use super::format::{self, Kind};
use crate::support::pools;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::datasource::MemTable;
use farpool::model::schema::canonical_type;
use farpool::node::{KeySource, MasterKey};
use farpool::{
    EmbeddedPool, LoadMode, LoadOptions, Pool, PoolTable, Session, SessionOptions, Tier, WorkMemory,
};
use sqllogictest::{AsyncDB, DBOutput};
use std::any::Any;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};

/// The setting in which a test file is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// With push-down, on tables in memory.
    Pushed,
    /// Without push-down, on tables in memory.
    Plain,
    /// With push-down, on encrypted tables over an encrypted data directory, in a pool with memory for only a few
    /// pages.
    Kept,
}

/// Number of tables moved into a pool, over all files: a test run that moves none tests nothing.
pub static TABLES_MOVED: AtomicUsize = AtomicUsize::new(0);

/// Memory of the pool for one test file, in bytes: without a data directory, and with one.
const POOL_BYTES: usize = 512 << 20;
const KEPT_POOL_BYTES: usize = 16 << 20;

/// Number of partitions with which the expected results were produced.
const PARTITIONS: usize = 4;

/// The database on which one test file is run: a session, and a pool into which its tables are moved.
pub struct Engine {
    session: Session,
    pool: Arc<EmbeddedPool>,
    moved: Vec<Moved>,
    encryption: Option<Tier>,
    _folder: Option<tempfile::TempDir>,
}

struct Moved {
    schema: Arc<dyn SchemaProvider>,
    name: String,
    original: Arc<dyn TableProvider>,
}

/// An error for the test runner.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure(error.to_string())
}

impl Engine {
    /// Creates an empty database.
    pub fn new(setting: Setting) -> Engine {
        let options = SessionOptions {
            pushdown: setting != Setting::Plain,
            target_partitions: Some(PARTITIONS),
            ..SessionOptions::default()
        };
        let folder = (setting == Setting::Kept).then(|| tempfile::tempdir().expect("a folder"));
        let pool = match &folder {
            None => EmbeddedPool::open(POOL_BYTES).expect("a pool opens"),
            Some(folder) => kept(folder.path()),
        };
        let encryption = folder.is_some().then_some(Tier::Standard);
        Engine { session: Session::new(options), pool, moved: Vec::new(), encryption, _folder: folder }
    }

    /// Returns the rows of a query.
    pub async fn batches(&self, sql: &str) -> Result<Vec<RecordBatch>, Failure> {
        let query = self.session.sql(sql).await.map_err(failure)?;
        query.collect().await.map_err(failure)
    }

    async fn query(&self, sql: &str) -> Result<DBOutput<Kind>, Failure> {
        // The statement is planned twice, because a session may use a cached plan from the second time on.
        self.session.sql(sql).await.map_err(failure)?;
        let query = self.session.sql(sql).await.map_err(failure)?;
        let batches = query.collect().await.map_err(failure)?;
        let rows = format::rows(&batches).map_err(failure)?;
        Ok(DBOutput::Rows { types: format::kinds(query.schema()), rows })
    }

    /// Runs a statement other than a query on DataFusion's own tables.
    async fn statement(&mut self, sql: &str) -> Result<DBOutput<Kind>, Failure> {
        self.restore(sql);
        let result = self.on_originals(sql).await;
        self.move_tables().await?;
        result
    }

    async fn on_originals(&self, sql: &str) -> Result<DBOutput<Kind>, Failure> {
        let frame = self.session.context().sql(sql).await.map_err(failure)?;
        let types = format::kinds(frame.schema().as_arrow());
        let rows = format::rows(&frame.collect().await.map_err(failure)?).map_err(failure)?;
        if rows.is_empty() && types.is_empty() {
            return Ok(DBOutput::StatementComplete(0));
        }
        Ok(DBOutput::Rows { types, rows })
    }

    /// Replaces those tables of the pool that `sql` may name by their originals in DataFusion's memory.
    fn restore(&mut self, sql: &str) {
        let sql = sql.to_lowercase();
        let (named, others) = std::mem::take(&mut self.moved)
            .into_iter()
            .partition::<Vec<_>, _>(|moved| sql.contains(&moved.name.to_lowercase()));
        self.moved = others;
        for moved in named {
            replace(&moved.schema, &moved.name, moved.original);
        }
    }

    async fn move_tables(&mut self) -> Result<(), Failure> {
        let context = self.session.context();
        let catalogs = context.catalog_names().into_iter().filter_map(|name| context.catalog(&name));
        let schemas: Vec<_> = catalogs
            .flat_map(|catalog| {
                catalog.schema_names().into_iter().filter_map(move |name| catalog.schema(&name))
            })
            .collect();
        for schema in schemas {
            for name in schema.table_names() {
                if let Ok(Some(table)) = schema.table(&name).await {
                    self.move_table(&schema, &name, table).await?;
                }
            }
        }
        Ok(())
    }

    async fn move_table(
        &mut self,
        schema: &Arc<dyn SchemaProvider>,
        name: &str,
        original: Arc<dyn TableProvider>,
    ) -> Result<(), Failure> {
        let Some(table) = (original.as_ref() as &dyn Any).downcast_ref::<MemTable>() else { return Ok(()) };
        if !is_held(&table.schema()) || table.constraints().is_some_and(|c| c.iter().next().is_some()) {
            return Ok(());
        }
        let mut batches = Vec::new();
        for partition in &table.batches {
            batches.extend(partition.read().await.iter().cloned());
        }
        let pool: Arc<dyn Pool> = self.pool.clone();
        let options = LoadOptions { encryption: self.encryption, ..LoadMode::Replace.into() };
        let info = pools::load_with(&*pool, name, table.schema(), batches, options).await;
        replace(schema, name, Arc::new(PoolTable::new(pool, info)));
        TABLES_MOVED.fetch_add(1, Ordering::Relaxed);
        self.moved.push(Moved { schema: schema.clone(), name: name.to_string(), original });
        Ok(())
    }
}

/// Opens a pool over a new encrypted data directory.
fn kept(folder: &Path) -> Arc<EmbeddedPool> {
    let key = folder.join("key");
    std::fs::write(&key, [7; 32]).expect("a file");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("a file of ours");
    let master = MasterKey::load(&KeySource::File(key)).expect("a key");
    let work = WorkMemory::new(farpool::model::limits::WORK_BYTES_DEFAULT);
    let key = Some((&master, Tier::Standard));
    let opened =
        EmbeddedPool::open_durable_with(KEPT_POOL_BYTES, work, &folder.join("d"), key, Default::default());
    opened.expect("a data directory opens")
}

fn replace(schema: &Arc<dyn SchemaProvider>, name: &str, table: Arc<dyn TableProvider>) {
    schema.deregister_table(name).expect("a memory schema lets go");
    schema.register_table(name.to_string(), table).expect("a memory schema takes tables");
}

/// Returns whether a pool can store every column without a change of how its values print.
fn is_held(schema: &Schema) -> bool {
    let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8);
    let bytes = |t: &DataType| matches!(t, DataType::Binary | DataType::LargeBinary);
    let held = |t: &DataType| canonical_type(t).as_ref() == Some(t) || text(t) || bytes(t);
    !schema.fields().is_empty()
        && farpool::model::schema::canonical_schema(schema).is_ok()
        && schema.fields().iter().all(|field| held(field.data_type()) && field.metadata().is_empty())
}

/// Returns whether a statement only reads.
fn is_query(sql: &str) -> bool {
    let start = sql.trim_start().trim_start_matches('(').trim_start().to_ascii_lowercase();
    ["select", "with", "values", "from"].iter().any(|word| start.starts_with(word))
}

#[async_trait]
impl AsyncDB for Engine {
    type Error = Failure;
    type ColumnType = Kind;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<Kind>, Failure> {
        if is_query(sql) { self.query(sql).await } else { self.statement(sql).await }
    }

    fn engine_name(&self) -> &str {
        "DataFusion"
    }

    async fn shutdown(&mut self) {}
}
