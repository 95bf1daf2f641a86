//! A pool for tests: one node that is reached in this process and over loopback TCP at the same time.

use farpool::model::{TenantName, limits};
use farpool::node::{
    Codec, CompressionPolicy, Directory, LocalDirectory, Node, NodeConfig, compressing, native,
};
use farpool::{
    ClientOptions, EmbeddedPool, LoadMode, LoadOptions, NearPool, Nearness, Pool, PoolUrl, Rates, RemotePool,
    ResultForm, Session, SessionOptions, TableInfo, TableName, WorkMemory,
};
use futures::stream;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

/// One memory node, and pools that connect to it in different ways. Its server ends with the runtime of the test.
pub struct Pools {
    /// The node's tables without a socket, in this process.
    pub embedded: Arc<EmbeddedPool>,
    /// The node's tables over TCP, with packed (compressed) results.
    pub remote: Arc<dyn Pool>,
    /// The node's tables over TCP, with plain results.
    pub plain: Arc<dyn Pool>,
    /// The node's tables over TCP, with a client-side cache of all columns that are read, which has little memory.
    pub near: Arc<NearPool>,
    /// Address of the node, as `HOST:PORT`.
    pub address: String,
}

impl Pools {
    /// Starts a node that may use `memory_bytes`.
    pub async fn start(memory_bytes: usize) -> Pools {
        Pools::start_within(memory_bytes, limits::GROUP_BYTES_MAX).await
    }

    /// Starts a node that may use `memory_bytes` and has its tables in a compressed data directory.
    pub async fn start_durable(memory_bytes: usize, folder: &Path) -> Pools {
        let data: Arc<dyn Directory> = LocalDirectory::open(folder).expect("a data directory opens");
        let data = compressing(data, CompressionPolicy::By(Codec::Lz4));
        let config = NodeConfig { memory_bytes, workers: 2, data: Some(data), ..NodeConfig::default() };
        Pools::over(Node::start(config).expect("a node starts")).await
    }

    /// Starts a node with `group_bytes` of memory for the groups of one program.
    pub async fn start_within(memory_bytes: usize, group_bytes: usize) -> Pools {
        let config = NodeConfig { memory_bytes, workers: 2, ..NodeConfig::default() };
        Pools::over(Node::start_within(config, group_bytes).expect("a node starts")).await
    }

    async fn over(node: Arc<Node>) -> Pools {
        let embedded = EmbeddedPool::over(node.clone(), TenantName::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let url = format!("farpool://{address}");
        tokio::spawn(native::serve(node, listener, std::future::pending()));
        let remote = farpool::connect_for(&url, ClientOptions::default(), ResultForm::Packed)
            .await
            .expect("the node answers");
        let plain = farpool::connect_for(&url, ClientOptions::default(), ResultForm::Plain)
            .await
            .expect("the node answers");
        let near = near(&url, 2 * limits::NEAR_BYTES_MIN, Nearness::Always).await;
        Pools { embedded, remote, plain, near, address }
    }

    /// Opens a session that reaches the node in the given way.
    pub async fn session(&self, way: Way, pushdown: bool) -> Session {
        session_over(self.pool(way), pushdown).await
    }

    /// Opens a session whose joins, sorts and groups have `work_bytes` of memory, on one thread, so that whether they
    /// fit does not depend on timing.
    pub async fn session_within(&self, way: Way, pushdown: bool, work_bytes: usize) -> Session {
        let work = Some(WorkMemory::new(work_bytes));
        let options =
            SessionOptions { pushdown, work, target_partitions: Some(1), ..SessionOptions::default() };
        let session = Session::new(options);
        session.register_pool("farpool", self.pool(way)).await.expect("a pool can be registered");
        session
    }

    fn pool(&self, way: Way) -> Arc<dyn Pool> {
        match way {
            Way::Embedded => self.embedded.clone(),
            Way::Remote => self.remote.clone(),
            Way::Plain => self.plain.clone(),
            Way::Near => self.near.clone(),
        }
    }
}

/// Opens a session on `pool` whose rates make it push down everything that the pool supports.
pub async fn session_over(pool: Arc<dyn Pool>, pushdown: bool) -> Session {
    let rates = Rates {
        engine_group_rows: 1.0,
        engine_spread_rows: 1.0,
        engine_text_rows: 1.0,
        engine_top_rows: 1.0,
        ..Rates::default()
    };
    let session = Session::new(SessionOptions { pushdown, rates, ..SessionOptions::default() });
    session.register_pool("farpool", pool).await.expect("a pool can be registered");
    session
}

/// The way in which a session reaches the node's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In this process, without a socket.
    Embedded,
    /// Over loopback TCP, with packed (compressed) results.
    Remote,
    /// Over loopback TCP, with plain results.
    Plain,
    /// Programs run in this process, over column chunks that are received over loopback TCP.
    Near,
}

/// Connects to the node at `url`, with a client-side cache of columns in `bytes_max` of memory.
pub async fn near(url: &str, bytes_max: usize, nearness: Nearness) -> Arc<NearPool> {
    let url: PoolUrl = url.parse().expect("an address");
    let remote = RemotePool::connect(&url, ClientOptions::default()).await.expect("the node answers");
    let work = WorkMemory::new(limits::WORK_BYTES_DEFAULT);
    NearPool::open(Arc::new(remote), bytes_max, work, nearness).expect("a pool opens")
}

/// Loads batches as a table, replacing an existing one.
pub async fn load(pool: &dyn Pool, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> TableInfo {
    load_with(pool, name, schema, batches, LoadMode::Replace.into()).await
}

/// Loads batches as [`load`] does, with options.
pub async fn load_with(
    pool: &dyn Pool,
    name: &str,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    options: LoadOptions,
) -> TableInfo {
    let name = TableName::new(name).expect("a name");
    let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    let batches = Box::pin(stream::iter(batches.into_iter().map(Ok)));
    let loaded = pool.load(&name, options, schema, Some(rows), batches).await;
    loaded.unwrap_or_else(|error| panic!("loading {name}: {error}"))
}
