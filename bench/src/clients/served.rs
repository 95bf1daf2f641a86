//! A node in this process behind loopback TCP, with tenants and their clients.

use crate::answers::{self, Answer};
use crate::tables::{self, TableDefinition};
use crate::{node, pools};
use anyhow::{Result, bail};
use arrow::datatypes::SchemaRef;
use farpool::model::TenantName;
use farpool::model::limits::{LARGE_GROUP_ROWS, SMALL_GROUPS_MAX};
use farpool::node::{Access, Node, NodeConfig, Right, TenantLimits};
use farpool::{EmbeddedPool, LoadMode, Pool, Receipt, Session, TableName};
use futures::stream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory of the node for the tables, one for each tenant.
const MEMORY_BYTES: usize = 8 << 30;

/// Interval of polling whether merges have ended, and the number of equal polls after which they have.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_ALIKE: u32 = 10;

/// Time after which merges that have not ended are considered to hang.
const SETTLED_MAX: Duration = Duration::from_secs(30);

/// A node and its URL. Its tenants are `t0`, `t1`, …
pub struct Served {
    node: Arc<Node>,
    url: String,
}

impl Served {
    /// Starts a node for tenants with these weights, whose tokens are their names.
    pub fn start(threads: usize, weights: &[u32]) -> Result<Self> {
        let mut access = Access::of_nobody();
        for (tenant, weight) in weights.iter().enumerate() {
            let (token, tenant) = (token(tenant), name(tenant)?);
            let limits = TenantLimits { weight: *weight, ..Default::default() };
            access = access.with_token(&token, tenant.clone(), Right::Write).with_limits(tenant, limits);
        }
        let config =
            NodeConfig { memory_bytes: MEMORY_BYTES, workers: threads, access, ..NodeConfig::default() };
        let node = Node::start(config)?;
        let address = node::serve(node.clone(), threads)?;
        Ok(Served { node, url: format!("farpool://{address}") })
    }

    /// Loads a table with the columns of `like` for a tenant, and waits until its profile is computed.
    pub async fn load(&self, tenant: usize, table: &str, like: &TableDefinition, rows: u64) -> Result<()> {
        let batches = tables::batches(&like.columns(), rows).collect::<Result<_>>()?;
        let pool = self.own_pool(tenant)?;
        pools::load(&*pool, table, LoadMode::Replace, batches).await?;
        pools::await_profile(&*pool, table).await
    }

    /// Creates a tenant's table without rows, or removes all rows of the one that there is.
    pub async fn clear(&self, tenant: usize, table: &str, schema: SchemaRef) -> Result<()> {
        let (name, batches) = (TableName::new(table)?, Box::pin(stream::empty()));
        self.own_pool(tenant)?.load(&name, LoadMode::Replace.into(), schema, None, batches).await?;
        Ok(())
    }

    /// Connects as a tenant.
    pub async fn connect(&self, tenant: usize) -> Result<Arc<dyn Pool>> {
        Ok(farpool::connect(&self.url, Some(&token(tenant))).await?)
    }

    /// Opens a session of a tenant, with a separate connection.
    pub async fn client(&self, tenant: usize, pushdown: bool) -> Result<Arc<Session>> {
        pools::session(self.connect(tenant).await?, pushdown, 1).await
    }

    /// Returns the bytes of the pages that a tenant's tables hold.
    pub fn memory_bytes(&self, tenant: usize) -> u64 {
        let (status, name) = (self.node.status(), token(tenant));
        status.tenants.iter().find(|t| t.tenant == name).map_or(0, |t| t.memory_bytes_used)
    }

    /// Waits until no merge of small row groups of a tenant's table is pending, and the memory of its older versions is
    /// freed; returns the seconds until then.
    pub async fn settle(&self, tenant: usize, table: &str) -> Result<f64> {
        let (owner, table) = (self.node.owner(name(tenant)?), TableName::new(table)?);
        let look = || {
            let (_, version) = owner.source(&table)?;
            let groups = version.row_groups.iter().map(|group| group.rows);
            let (all, small) =
                (groups.clone().count(), groups.filter(|rows| *rows < LARGE_GROUP_ROWS).count());
            // Drops the version, since its pages would count as memory in use.
            drop(version);
            anyhow::Ok((small, all, self.memory_bytes(tenant)))
        };
        let start = Instant::now();
        let (mut last, mut alike, mut since) = (look()?, 0, start);
        while last.0 > SMALL_GROUPS_MAX || alike < LOOKS_ALIKE {
            if start.elapsed() > SETTLED_MAX {
                bail!("merges of {table} have not ended after {SETTLED_MAX:?}: {} small row groups", last.0);
            }
            tokio::time::sleep(LOOK).await;
            let now = look()?;
            (alike, since) = if now == last { (alike + 1, since) } else { (0, Instant::now()) };
            last = now;
        }
        Ok((since - start).as_secs_f64())
    }

    /// Returns the tenant's pool without a socket, for operations that are not measured.
    fn own_pool(&self, tenant: usize) -> Result<Arc<EmbeddedPool>> {
        Ok(EmbeddedPool::over(self.node.clone(), name(tenant)?))
    }
}

fn token(tenant: usize) -> String {
    format!("t{tenant}")
}

fn name(tenant: usize) -> Result<TenantName> {
    Ok(TenantName::new(token(tenant))?)
}

/// Runs a query and checks its answer.
pub async fn ask(client: &Session, sql: &str, expected: &Answer) -> Result<Receipt> {
    let (actual, receipt) = run(client, sql).await?;
    match answers::difference(expected, &actual) {
        Some(difference) => bail!("the answer of {sql:?} is another than it was to be: {difference}"),
        None => Ok(receipt),
    }
}

/// Runs a statement and returns its result.
pub async fn answer(client: &Session, sql: &str) -> Result<Answer> {
    Ok(run(client, sql).await?.0)
}

/// Runs a statement and returns its result and its execution statistics (receipt).
pub async fn run(client: &Session, sql: &str) -> Result<(Answer, Receipt)> {
    let ran = pools::run(client, sql).await?;
    Ok((ran.answer()?, ran.receipt))
}
