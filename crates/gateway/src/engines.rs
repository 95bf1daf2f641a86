//! The engines of the gateway: one for each user, who may have many sessions.

use crate::postgres::catalog::{Catalog, InformationSchema};
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use farpool_datafusion::{CopyTarget, FileWriter, Session, SessionOptions};
use farpool_memory::{Account, WorkMemory};
use farpool_model::{Error, ErrorKind, Result, TenantName, limits};
use farpool_node::access::Proof;
use farpool_transfer::{BatchStream, Pool};
use farpool_wire::ServerTls;
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout};

/// The way from the gateway to a pool.
#[async_trait]
pub trait Door: Send + Sync + fmt::Debug {
    /// Returns the pool as a client with this token sees it.
    ///
    /// # Errors
    /// `Denied` if the pool refuses the token; `Unavailable` if it cannot be asked.
    async fn open(&self, token: Option<&str>) -> Result<Arc<dyn Pool>>;

    /// Returns the proof that is asked of a user, whose ticket [`Door::open`] takes in place of a token; `None` if the
    /// user has to send the token, because the pool alone knows it.
    ///
    /// # Errors
    /// `Internal` only on a bug.
    fn proof(&self, _user: &str) -> Result<Option<Proof>> {
        Ok(None)
    }
}

/// The state that all sessions of a gateway share.
#[derive(Debug)]
pub struct Gateway {
    databases: Vec<Database>,
    options: SessionOptions,
    /// The engines in use.
    engines: Mutex<HashMap<Place, Weak<Engine>>>,
    tls: Mutex<Option<ServerTls>>,
    connections: AtomicUsize,
}

/// Time that a session that begins waits for other pools than that of its database.
const REACH: Duration = Duration::from_secs(2);

/// Time until a pool that could not be reached is tried again. Reason: sessions would wait for it each.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// The digest of a user's token, and the place of a database.
type Place = ([u8; 32], usize);

/// A pool as clients name it.
#[derive(Debug)]
struct Database {
    name: String,
    door: Arc<dyn Door>,
    /// Whether the pool has refused a client without a token. A pool that needs none ignores those that it gets.
    asks_for_token: AtomicBool,
}

/// The engine of one user and one database.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The name of the database.
    pub database: String,
    /// All pools by their names, that of the database first. Others are missing as long as they cannot be reached, or refuse
    /// the token.
    pools: RwLock<Vec<(String, Arc<dyn Pool>)>>,
    /// The time at which other pools were tried last.
    tried: AsyncMutex<Option<Instant>>,
    /// The session of the SQL engine that all sessions of the user share, as far as their settings are the same.
    pub session: Session,
    /// The session of the SQL engine for clients of PostgreSQL's protocol, whose statements mean what PostgreSQL means.
    pub for_postgres: Session,
    /// The catalog that clients of PostgreSQL's protocol ask for.
    pub catalog: Arc<Catalog>,
    /// The memory for rows of transactions that are not committed.
    pub work: Account,
}

/// The name of the only database of a gateway to one pool.
pub const DATABASE: &str = "farpool";

impl Engine {
    /// Returns the names of all pools that can be used, and the pools, that of the database first.
    pub fn pools(&self) -> Vec<(String, Arc<dyn Pool>)> {
        self.pools.read().clone()
    }

    /// Lets statements name the tables of another pool.
    async fn join(&self, name: &str, pool: Arc<dyn Pool>) -> Result<()> {
        self.session.register_pool(name, Arc::clone(&pool)).await?;
        self.pools.write().push((name.to_string(), pool));
        Ok(())
    }

    /// Returns the pool of this name.
    pub fn pool(&self, name: &str) -> Option<Arc<dyn Pool>> {
        self.pools.read().iter().find(|(known, _)| known == name).map(|(_, pool)| Arc::clone(pool))
    }
}

impl Gateway {
    /// Creates a gateway to the pool behind `door`. Sessions run with `options`, of which the time limit is the
    /// greatest that a session may have.
    pub fn new(door: Arc<dyn Door>, options: SessionOptions) -> Arc<Self> {
        Gateway::over([(DATABASE.to_string(), door)], options)
    }

    /// Creates a gateway to several pools, each a database of its name. A session begins in one of them, and its statements
    /// can name the tables of the others as `DATABASE.SCHEMA.TABLE`. `options` as in [`Gateway::new`].
    pub fn over(
        pools: impl IntoIterator<Item = (String, Arc<dyn Door>)>,
        options: SessionOptions,
    ) -> Arc<Self> {
        let options = SessionOptions { files: false, ..options };
        let database = |(name, door)| Database { name, door, asks_for_token: AtomicBool::default() };
        let databases = pools.into_iter().map(database).collect();
        let (engines, tls, connections) = Default::default();
        Arc::new(Gateway { databases, options, engines, tls, connections })
    }

    /// Returns the place of a database. If there is only one, it has every name; without a name, it is the first.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub(crate) fn database(&self, name: Option<&str>) -> Result<usize> {
        let name = name.filter(|name| !name.is_empty() && self.databases.len() > 1);
        let Some(name) = name else { return Ok(0) };
        self.databases.iter().position(|known| known.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.databases.iter().map(|known| known.name.as_str()).collect();
            Error::not_found(format!("database {name:?} does not exist"))
                .advise(format!("there are: {}", known.join(", ")))
        })
    }

    /// Sets the certificate with which connections are encrypted from now on.
    pub fn set_tls(&self, tls: ServerTls) {
        *self.tls.lock() = Some(tls);
    }

    pub(crate) fn tls(&self) -> Option<ServerTls> {
        self.tls.lock().clone()
    }

    /// Returns the engine of users without a token; `None` if the pool of the database asks for one.
    ///
    /// # Errors
    /// Errors of [`Door::open`], except that the token is missing.
    pub(crate) async fn open_engine(&self, database: usize) -> Result<Option<Arc<Engine>>> {
        let asks_for_token = &self.databases[database].asks_for_token;
        if asks_for_token.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.engine(None, database).await {
            Ok(engine) => Ok(Some(engine)),
            Err(error) if error.kind == ErrorKind::Denied => {
                asks_for_token.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the proof that is asked of a user in place of the token.
    ///
    /// # Errors
    /// Errors of [`Door::proof`].
    pub(crate) fn proof(&self, user: &str, database: usize) -> Result<Option<Proof>> {
        self.databases[database].door.proof(user)
    }

    /// Returns the engine of the user with this token, or with the ticket of a proof, for a database.
    ///
    /// # Errors
    /// Errors of [`Door::open`].
    pub(crate) async fn engine(&self, token: Option<&str>, database: usize) -> Result<Arc<Engine>> {
        let engine = self.engine_alone(token, database).await?;
        if self.databases.iter().any(|other| engine.pool(&other.name).is_none())
            && timeout(REACH, self.join_others(&engine, token)).await.is_err()
        {
            tracing::info!("a pool is left out of a session: it does not answer");
        }
        Ok(engine)
    }

    /// Lets statements name the tables of the pools that can be reached.
    async fn join_others(&self, engine: &Engine, token: Option<&str>) {
        let mut tried = engine.tried.lock().await;
        if tried.is_some_and(|tried| tried.elapsed() < TRY_AGAIN) {
            return;
        }
        *tried = Some(Instant::now());
        let missing = self.databases.iter().filter(|other| engine.pool(&other.name).is_none());
        let joins = missing.map(|other| async move {
            let joined = match other.door.open(token).await {
                Ok(pool) => engine.join(&other.name, pool).await,
                Err(error) => Err(error),
            };
            if let Err(error) = joined {
                tracing::info!(database = other.name, %error, "a pool is left out of a session");
            }
        });
        futures::future::join_all(joins).await;
    }

    async fn engine_alone(&self, token: Option<&str>, database: usize) -> Result<Arc<Engine>> {
        // Users without a token and with an empty one are told apart.
        let digest: [u8; 32] = match token {
            Some(token) => Sha256::digest(token.as_bytes()).into(),
            None => [0; 32],
        };
        // The token is checked anew for each session, since the pool may have been told to refuse it.
        let Database { name, door, .. } = &self.databases[database];
        let pool = door.open(token).await?;
        if let Some(engine) = self.engines.lock().get(&(digest, database)).and_then(Weak::upgrade) {
            return Ok(engine);
        }
        let session = Session::new(self.options.clone());
        session.register_pool(name, Arc::clone(&pool)).await?;
        session.set_file_writer(Arc::new(NoFiles));
        // Views are planned by a session without the catalog, which would ask for itself.
        let planner = Session::new(self.options.clone());
        planner.register_pool(name, Arc::clone(&pool)).await?;
        let pools = RwLock::new(vec![(name.clone(), Arc::clone(&pool))]);
        let catalog = Catalog::new(pool, planner, name);
        session.add_system_schema(Arc::clone(&catalog) as _, catalog.functions());
        session.add_system_schema(Arc::new(InformationSchema(Arc::clone(&catalog))), Vec::new());
        let work = self.options.work.clone().unwrap_or_else(|| WorkMemory::new(limits::WORK_BYTES_DEFAULT));
        let work = work.account(&TenantName::default());
        let for_postgres = session.with_postgres_meaning(name);
        let database_name = name.clone();
        let tried = AsyncMutex::default();
        let engine =
            Arc::new(Engine { database: database_name, pools, tried, session, for_postgres, catalog, work });
        let mut engines = self.engines.lock();
        engines.retain(|_, engine| engine.strong_count() > 0);
        engines.insert((digest, database), Arc::downgrade(&engine));
        Ok(engine)
    }

    /// Counts a new connection until the guard is dropped; `None` if there are too many.
    pub(crate) fn connect(self: &Arc<Self>) -> Option<ConnectionGuard> {
        let count = self.connections.fetch_add(1, Ordering::Relaxed);
        let guard = ConnectionGuard(Arc::clone(self));
        (count < limits::GATEWAY_CONNECTIONS_MAX).then_some(guard)
    }
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(Arc<Gateway>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Refuses to write files, which would be those of the gateway's machine.
#[derive(Debug)]
struct NoFiles;

#[async_trait]
impl FileWriter for NoFiles {
    fn check(&self, _target: &CopyTarget) -> Result<()> {
        Err(no_files())
    }

    async fn write(&self, _target: &CopyTarget, _schema: SchemaRef, _rows: BatchStream) -> Result<u64> {
        Err(no_files())
    }
}

fn no_files() -> Error {
    Error::new(ErrorKind::Denied, "COPY to a file of the server is not allowed")
        .advise("use COPY … TO STDOUT, which psql has as \\copy")
}
