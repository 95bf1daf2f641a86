//! The arguments of commands that run SQL, and the session that they open.

use super::config::Config;
use super::key_args::{CompressionArgs, EncryptionArgs};
use super::pool_args::{ClientArgs, NamedPool, SealArgs};
use super::read_args::ReadArgs;
use super::size;
use super::stop::{Outcome, Stop};
use farpool::model::limits;
use farpool::{
    ClientOptions, EmbeddedPool, Pool, PoolUrl, QueryFiles, ResultForm, Session, SessionOptions, WorkMemory,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Divisor: a quarter of the working memory may cache columns that statements of a batch share.
const CACHE_PART: usize = 4;

/// The place where statements run, and their resources.
#[derive(clap::Args, Debug)]
pub struct SessionArgs {
    /// URL of the memory node whose tables are queried [default: the variable FARPOOL_POOL, then the configuration
    /// file, else none]
    #[arg(long, value_name = "URL")]
    pool: Option<PoolUrl>,

    /// Run in this process without a node; ignores FARPOOL_POOL and the configuration file
    #[arg(long, conflicts_with = "pool")]
    local: bool,

    #[command(flatten)]
    client: ClientArgs,

    #[command(flatten)]
    seal: SealArgs,

    /// Disable push-down: fetch whole columns and run all operators in this process, for comparison
    #[arg(long)]
    no_pushdown: bool,

    /// Encoding of the rows that the node sends: auto (packed where the network is slower than packing), plain, packed,
    /// or plain with buffers compressed by lz4 or zstd
    #[arg(long, value_name = "FORM", default_value_t)]
    results: ResultForm,

    /// Memory for a local cache of the node's columns, over which statements run in this process: columns that are
    /// returned unchanged, and others once their results have taken as many bytes; 0 for none [default: 0, with
    /// --together a quarter of --work-memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with_all = ["local", "data_dir"])]
    cache: Option<usize>,

    /// Time limit of a statement, such as 500ms, 30s or 5min; the node enforces it, too [default: none]
    #[arg(long, value_name = "TIME", value_parser = size::parse_duration)]
    timeout: Option<Duration>,

    /// Directory for the tables and views that statements create and query [default: memory only]
    #[arg(long, value_name = "DIR", conflicts_with = "pool")]
    data_dir: Option<PathBuf>,

    #[command(flatten)]
    encryption: EncryptionArgs,

    #[command(flatten)]
    compression: CompressionArgs,

    /// Memory for queried files; tables created without --pool may take the same amount again [default: half of the
    /// machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<usize>,

    /// Memory for joins, sorts, groups and everything else that is not a file; joins, sorts and groups that do not fit
    /// spill to encrypted temporary files [default: a quarter of the machine's memory, at most --memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    work_memory: Option<usize>,

    #[command(flatten)]
    pub read: ReadArgs,
}

/// A session with its files and its pool.
pub struct Opened {
    pub session: Session,
    /// Opens the files that statements name.
    pub files: Arc<QueryFiles>,
    /// The pool whose tables statements name without a qualifier.
    pub pool: Arc<dyn Pool>,
    /// The node, if the pool is remote.
    pub node: Option<PoolUrl>,
    /// The time limit of a statement.
    pub timeout: Option<Duration>,
}

impl SessionArgs {
    /// Opens the session. `shares` says whether columns that several statements read are cached for all of them.
    pub async fn open(&self, config: &Config, shares: bool) -> Outcome<Opened> {
        let node = match self.local || self.data_dir.is_some() {
            true => None,
            false => NamedPool::find(self.pool.as_ref(), config)?,
        };
        let work = WorkMemory::new(self.work_bytes());
        let mut options = SessionOptions {
            pushdown: !self.no_pushdown,
            rates: farpool::calibrated_rates(),
            work: Some(work.clone()),
            timeout: self.timeout,
            ..SessionOptions::default()
        };
        if node.is_none() {
            options.advice_without_tables =
                "name a file, as in FROM 'trips.parquet', or give a node with --pool";
        }
        let memory_bytes = self.memory.unwrap_or_else(farpool::memory_bytes_default);
        let pool = match &node {
            Some(node) => self.connect(node, config, shares, &work).await?,
            None => {
                self.refuse_without_node()?;
                self.own_pool(memory_bytes, &work)?
            }
        };
        let files = QueryFiles::new(memory_bytes).with_work_memory(work).with_options(self.read.options()?);
        let files = files.on_load(|label, load| Box::new(super::load::watch(label, load)));
        let files = Arc::new(files);
        let session = farpool::open_session(options, pool.clone(), files.clone()).await?;
        Ok(Opened { session, files, pool, node: node.map(|node| node.url), timeout: self.timeout })
    }

    /// Refuses options that have no effect without a node.
    fn refuse_without_node(&self) -> Outcome {
        if self.cache.is_some() {
            return Err(Stop::usage(
                "--cache keeps columns of a node's tables, and there is no node",
                "name the node with --pool, or leave --cache away",
            ));
        }
        self.seal.refuse_without_pool()
    }

    async fn connect(
        &self,
        node: &NamedPool,
        config: &Config,
        shares: bool,
        work: &Arc<WorkMemory>,
    ) -> Outcome<Arc<dyn Pool>> {
        let options = self.client.options(&node.url, config)?;
        let sealed = self.seal.proof(&node.url, options.token.as_deref())?;
        let options = ClientOptions { timeout: self.timeout, sealed, ..options };
        let remote = node.connect(options).await?.with_results(self.results);
        // A result that is read once needs no memory for a second time.
        let shared = shares.then(|| (work.limit() / CACHE_PART).max(limits::NEAR_BYTES_MIN));
        let Some(bytes) = self.cache.or(shared).filter(|bytes| *bytes > 0) else {
            return Ok(Arc::new(remote));
        };
        Ok(farpool::connect_near(&node.url, remote, bytes, work.clone()).await?)
    }

    /// Opens the pool of this process, which holds the tables that statements create.
    fn own_pool(&self, memory_bytes: usize, work: &Arc<WorkMemory>) -> Outcome<Arc<dyn Pool>> {
        let Some(path) = &self.data_dir else {
            return Ok(EmbeddedPool::open_within(memory_bytes, work.clone())?);
        };
        let (key, tier) = self.encryption.load()?;
        let key = key.as_ref().map(|key| (key, tier));
        let packing = self.compression.get();
        Ok(EmbeddedPool::open_durable_with(memory_bytes, work.clone(), path, key, packing)?)
    }

    /// Returns the maximum bytes of working memory. An explicit limit for the memory of files also limits the default
    /// of the working memory.
    fn work_bytes(&self) -> usize {
        self.work_memory.unwrap_or_else(|| {
            let most = self.memory.unwrap_or(usize::MAX).max(limits::WORK_BYTES_MIN);
            farpool::work_bytes_default().min(most)
        })
    }
}
