//! Shared parts of the node's integration tests: a node on a TCP port of its own, small tables to load, and programs
//! (pushed-down queries) over them.

mod certificates;
mod local;
mod middle;
mod raw;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use farpool_memory::WorkMemory;
use farpool_model::{
    Aggregate, AggregateFunction, CompareOp, Expr, Literal, LoadMode, NamedExpr, Output, Program, Result,
    TableInfo, TableName, TenantName, Value,
};
pub use farpool_node::Access;
use farpool_node::{Node, NodeConfig, Right, native};
use farpool_transfer::{BatchStream, ClientOptions, Execution, Pool, PoolUrl, RemotePool};
use futures::StreamExt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use certificates::AUTHORITY;
pub use local::Local;
pub use middle::Middle;
pub use raw::{Raw, canonical_batch, execute, frames, hello};

/// Maximum time that one wait in a test may take; after it, the test fails as hung.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node that serves clients on a TCP port of its own.
pub struct Server {
    pub node: Arc<Node>,
    pub address: SocketAddr,
    is_encrypted: bool,
    pub serving: JoinHandle<Result<()>>,
    pub stop: Option<oneshot::Sender<()>>,
}

impl Server {
    pub async fn start() -> Self {
        Self::with(256 << 20, Access::of_everybody()).await
    }

    pub async fn with(memory_bytes: usize, access: Access) -> Self {
        Self::at("127.0.0.1:0", memory_bytes, access).await
    }

    pub async fn at(address: &str, memory_bytes: usize, access: Access) -> Self {
        Self::of(address, NodeConfig { memory_bytes, workers: 2, access, ..NodeConfig::default() }).await
    }

    /// Starts a server that may use `bytes` bytes outside the pool for executing requests.
    pub async fn working_within(bytes: usize) -> Self {
        let work = WorkMemory::new(bytes);
        let config = NodeConfig { memory_bytes: 256 << 20, workers: 2, work, ..NodeConfig::default() };
        Self::of("127.0.0.1:0", config).await
    }

    async fn of(address: &str, config: NodeConfig) -> Self {
        let node = Node::start(config).unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(native::serve(node.clone(), listener, async {
            drop(stopped.await);
        }));
        Server { node, address, is_encrypted: false, serving, stop: Some(stop) }
    }

    /// Sets a TLS certificate for the node. Clients that use the returned server's URL then connect with TLS.
    pub fn encrypted(mut self) -> Self {
        self.node.set_tls(AUTHORITY.node("127.0.0.1"));
        self.is_encrypted = true;
        self
    }

    pub fn url(&self) -> PoolUrl {
        let scheme = if self.is_encrypted { "farpools" } else { "farpool" };
        format!("{scheme}://{}", self.address).parse().unwrap()
    }

    pub async fn connect(&self) -> RemotePool {
        self.connect_with(None).await.unwrap()
    }

    pub async fn connect_as(&self, token: &str) -> Result<RemotePool> {
        self.connect_with(Some(token.to_string())).await
    }

    async fn connect_with(&self, token: Option<String>) -> Result<RemotePool> {
        let tls = self.is_encrypted.then(|| AUTHORITY.clients());
        RemotePool::connect(&self.url(), ClientOptions { token, tls, ..ClientOptions::default() }).await
    }

    /// Ends the server at once, as if its process were killed: requests do not finish.
    pub async fn kill(&mut self) {
        self.serving.abort();
        while !self.serving.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub fn programs_running(&self) -> u64 {
        self.node.status().programs_running
    }

    pub fn memory_used(&self) -> u64 {
        self.node.status().memory_bytes_used
    }
}

/// Returns the access settings of a node with these pairs of token and tenant, all with the right to write.
pub fn tokens(tokens: &[(&str, &str)]) -> Access {
    tokens.iter().fold(Access::of_nobody(), |access, (token, name)| {
        access.with_token(token, tenant(name), Right::Write)
    })
}

pub fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

pub fn name(text: &str) -> TableName {
    TableName::new(text).unwrap()
}

/// Returns rows `start..end`: `id` counts, `tens` is its last digit, `word` has a hundred values, and `noise` does not
/// compress.
pub fn batch(start: i64, end: i64) -> RecordBatch {
    let ids = || start..end;
    let noise = |id: i64| id.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64) ^ (id << 17);
    RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from_iter_values(ids())) as ArrayRef),
        ("tens", Arc::new(Int64Array::from_iter_values(ids().map(|id| id % 10)))),
        (
            "word",
            Arc::new(StringArray::from_iter_values(ids().map(|id| format!("word number {}", id % 100)))),
        ),
        ("noise", Arc::new(Int64Array::from_iter_values(ids().map(noise)))),
    ])
    .unwrap()
}

/// Returns the batches of a table of `rows`.
pub fn batches(rows: i64) -> Vec<Result<RecordBatch>> {
    let starts = (0..rows).step_by(50_000);
    starts.map(|start| Ok(batch(start, rows.min(start + 50_000)))).collect()
}

pub fn stream(batches: Vec<Result<RecordBatch>>) -> BatchStream {
    Box::pin(futures::stream::iter(batches))
}

pub async fn load(pool: &dyn Pool, table: &str, mode: LoadMode, rows: i64) -> Result<TableInfo> {
    let rows_hint = u64::try_from(rows).ok();
    pool.load(&name(table), mode.into(), batch(0, 0).schema(), rows_hint, stream(batches(rows))).await
}

/// Returns a program that returns all columns of all rows.
pub fn scan(table: &str) -> Program {
    Program::scan(name(table), &batch(0, 0).schema(), &[0, 1, 2, 3])
}

/// Returns the schema of [`batch`] with the types used on the wire.
pub fn canonical_schema() -> SchemaRef {
    farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap()
}

/// Returns a program that selects the rows with an id below `below` and computes no columns, so that a change removes
/// them.
pub fn removing(table: &str, below: i64) -> Program {
    Program { output: Output::Rows(Vec::new()), ..count_and_sum(table, below) }
}

/// Returns the program `select count(*), sum(id) where id < below`.
pub fn count_and_sum(table: &str, below: i64) -> Program {
    let aggregate = |name: &str, function, arguments| Aggregate {
        name: name.to_string(),
        function,
        arguments,
        filter: None,
        data_type: arrow_schema::DataType::Int64,
    };
    let literal = Literal::new(Value::Int(below.into()), arrow_schema::DataType::Int64).unwrap();
    Program {
        filter: Some(Expr::compare(CompareOp::Lt, Expr::Column(0), Expr::Literal(literal))),
        output: Output::Aggregate {
            keys: vec![],
            aggregates: vec![
                aggregate("n", AggregateFunction::Count, vec![]),
                aggregate("s", AggregateFunction::Sum, vec![Expr::Column(0)]),
            ],
        },
        ..scan(table)
    }
}

/// Returns the program `select tens, count(*) group by tens`.
pub fn count_by_tens(table: &str) -> Program {
    Program {
        output: Output::Aggregate {
            keys: vec![NamedExpr { name: "tens".into(), expr: Expr::Column(1) }],
            aggregates: vec![Aggregate {
                name: "n".into(),
                function: AggregateFunction::Count,
                arguments: Vec::new(),
                filter: None,
                data_type: arrow_schema::DataType::Int64,
            }],
        },
        ..scan(table)
    }
}

/// Reads all streams of a result to their ends; returns their batches, or the first error.
pub async fn collect(mut execution: Execution) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    for stream in &mut execution.streams {
        while let Some(batch) = stream.next().await {
            batches.push(batch?);
        }
    }
    Ok(batches)
}

pub async fn run(pool: &dyn Pool, program: &Program) -> Result<Vec<RecordBatch>> {
    collect(pool.execute(program, 1).await?).await
}

/// Returns the integers of a column, sorted.
pub fn integers(batches: &[RecordBatch], column: usize) -> Vec<i64> {
    let values = |b: &RecordBatch| b.column(column).as_primitive::<Int64Type>().values().to_vec();
    let mut all: Vec<i64> = batches.iter().flat_map(values).collect();
    all.sort_unstable();
    all
}

/// Returns the result of [`count_and_sum`].
pub async fn counted(pool: &dyn Pool, table: &str, below: i64) -> Result<(i64, Option<i64>)> {
    counted_by(pool, &count_and_sum(table, below)).await
}

/// Returns the result of a program like [`count_and_sum`].
pub async fn counted_by(pool: &dyn Pool, program: &Program) -> Result<(i64, Option<i64>)> {
    let batches = run(pool, program).await?;
    let sum = batches[0].column(1).as_primitive::<Int64Type>();
    let sum = (arrow_array::Array::null_count(sum) == 0).then(|| sum.value(0));
    Ok((integers(&batches, 0)[0], sum))
}
