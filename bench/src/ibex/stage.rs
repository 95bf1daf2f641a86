//! The three sides of the suite `ibex` (tables in the heap of a PostgreSQL, the same tables of a pool through that
//! PostgreSQL, and the pool's own client), and the tables that they share.

use super::definition::Definition;
use crate::answers::Answer;
use crate::dbms::{Postgres, Psql, Served};
use crate::{machine, pools, text};
use anyhow::{Context, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use farpool::{Pool, Session, TableName};
use serde::Serialize;
use std::sync::Arc;

/// A way to the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// PostgreSQL's own tables.
    Heap,
    /// Foreign tables of PostgreSQL over a pool.
    Pool,
    /// The pool's own client, without PostgreSQL.
    Alone,
}

impl Side {
    /// The order of a round: the first one gives the answer.
    pub const ALL: [Side; 3] = [Side::Heap, Side::Pool, Side::Alone];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Side::Heap => "heap",
            Side::Pool => "pool",
            Side::Alone => "alone",
        }
    }
}

/// CPU seconds of each process that takes part.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CpuSeconds {
    /// All processes of PostgreSQL; psql is not among them.
    pub postgres: f64,
    pub node: f64,
    /// This process, in which the pool's own client runs.
    pub client: f64,
}

impl CpuSeconds {
    /// Combines each of the values with that of `other`.
    pub fn with(self, other: CpuSeconds, combine: impl Fn(f64, f64) -> f64) -> CpuSeconds {
        CpuSeconds {
            postgres: combine(self.postgres, other.postgres),
            node: combine(self.node, other.node),
            client: combine(self.client, other.client),
        }
    }
}

/// Running servers, and a session of each side.
pub struct Stage {
    pub postgres: Postgres,
    served: Served,
    heap: Psql,
    foreign: Psql,
    client: Arc<dyn Pool>,
    alone: Arc<Session>,
    tables: Vec<String>,
    /// Whether PostgreSQL gathers statistics of foreign tables.
    is_analyzed: bool,
}

impl Stage {
    /// Starts the servers, and connects PostgreSQL to the pool.
    pub async fn start(definition: &Definition) -> Result<Stage> {
        let postgres = Postgres::start(&definition.settings)?;
        let served = Served::start(definition.threads, definition.memory_mib, definition.work_mib)?;
        let (host, port) = (served.postgres.ip(), served.postgres.port());
        let (mut heap, mut foreign) = (postgres.connect()?, postgres.connect()?);
        let option = |(name, value): (&String, &String)| format!(", {name} '{value}'");
        let options: String = definition.foreign.iter().map(option).collect();
        for statement in [
            "CREATE EXTENSION postgres_fdw".to_string(),
            format!(
                "CREATE SERVER farpool FOREIGN DATA WRAPPER postgres_fdw OPTIONS \
                 (host '{host}', port '{port}', dbname 'farpool'{options})"
            ),
            "CREATE USER MAPPING FOR CURRENT_USER SERVER farpool OPTIONS (user 'farpool', password_required 'false')"
                .to_string(),
            "CREATE SCHEMA heap".to_string(),
            "CREATE SCHEMA pool".to_string(),
        ] {
            heap.run(&statement)?;
        }
        for (session, schema) in [(&mut heap, "heap"), (&mut foreign, "pool")] {
            session.run(&format!("SET search_path = {schema}"))?;
            session.run(&format!("SET statement_timeout = '{}s'", definition.limit_s))?;
        }
        let client = served.connect().await?;
        let alone = pools::session(client.clone(), true, definition.threads).await?;
        let (tables, is_analyzed) = (Vec::new(), definition.analyze);
        Ok(Stage { postgres, served, heap, foreign, client, alone, tables, is_analyzed })
    }

    /// Makes a table on all sides; `batches` makes its rows.
    pub async fn make<B>(
        &mut self,
        table: &str,
        schema: SchemaRef,
        batches: impl Fn() -> Result<B>,
    ) -> Result<()>
    where
        B: Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
    {
        text::progress(&format!("loading {table} "));
        self.tables.push(table.to_string());
        self.postgres.create_table(&format!("heap.{table}"), &schema, batches()?)?;
        self.in_heap(&format!("VACUUM (ANALYZE, FREEZE) {table}"))?;
        self.served.create_table(table, schema, batches()?).await?;
        let import = format!("IMPORT FOREIGN SCHEMA public LIMIT TO ({table}) FROM SERVER farpool INTO pool");
        self.foreign.run(&import).with_context(|| format!("PostgreSQL cannot import {table}"))?;
        if self.is_analyzed {
            self.in_heap(&format!("ANALYZE pool.{table}"))?;
        }
        Ok(())
    }

    /// Runs a statement in the schema of the heap tables, without a limit of time.
    pub fn in_heap(&mut self, sql: &str) -> Result<()> {
        let mut session = self.postgres.connect()?;
        session.run("SET search_path = heap")?;
        session.run(sql).with_context(|| sql.to_string())?;
        Ok(())
    }

    /// Drops all tables.
    pub async fn clear(&mut self) -> Result<()> {
        for table in std::mem::take(&mut self.tables) {
            self.in_heap(&format!("DROP TABLE {table}"))?;
            self.in_heap(&format!("DROP FOREIGN TABLE pool.{table}"))?;
            self.client.drop_table(&TableName::new(&table)?).await?;
        }
        Ok(())
    }

    /// Runs a statement on one side; returns its milliseconds and its answer.
    pub async fn run(&mut self, side: Side, sql: &str) -> Result<(f64, Answer)> {
        let session = match side {
            Side::Heap => &mut self.heap,
            Side::Pool => &mut self.foreign,
            Side::Alone => {
                let ran = pools::run(&self.alone, sql).await?;
                return Ok((ran.ms, ran.answer()?));
            }
        };
        let rows = session.run(sql)?;
        Ok((rows.ms, rows.answer()))
    }

    /// Returns the statements that PostgreSQL hands over to the pool for a statement.
    pub fn remote_sql(&mut self, sql: &str) -> Result<Vec<String>> {
        let plan = self.foreign.run(&format!("EXPLAIN (VERBOSE, COSTS OFF) {sql}"))?.lines;
        let remote = plan.iter().filter_map(|line| line.split_once("Remote SQL: "));
        Ok(remote.map(|(_, statement)| statement.to_string()).collect())
    }

    /// Returns the CPU seconds that all processes have used so far.
    pub fn cpu_seconds(&self) -> Result<CpuSeconds> {
        Ok(CpuSeconds {
            postgres: self.postgres.cpu_seconds()?,
            node: self.served.cpu_seconds()?,
            client: machine::cpu_seconds().unwrap_or(f64::NAN),
        })
    }
}
