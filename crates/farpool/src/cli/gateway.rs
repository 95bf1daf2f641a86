//! `farpool gateway`: serves other protocols over a pool, until it is asked to stop; and the same within a node.

use super::config::Config;
use super::listening::{self, TlsArgs};
use super::pool_args::NamedPool;
use super::service_manager;
use super::signals::{first_signal, hangups};
use super::size;
use super::stop::{Outcome, Stop, reason};
use async_trait::async_trait;
use clap::ArgGroup;
use farpool::gateway::{DATABASE, Door, Gateway, flight, postgres};
use farpool::model::SchemaName;
use farpool::node::access::Proof;
use farpool::node::{Node, native};
use farpool::{
    ClientOptions, ClientTls, Connector, Pool, PoolUrl, RemotePool, Result, ResultForm, SessionOptions,
    WorkMemory,
};
use farpool_wire::Socket;
use farpool_wire::socket::pipe;
use futures::FutureExt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const EXAMPLES: &str = "\
Examples:
  farpool gateway --postgres 127.0.0.1:5433   # psql -h 127.0.0.1 -p 5433
  farpool gateway --flight 127.0.0.1:32010    # ADBC and JDBC: grpc://127.0.0.1:32010
  farpool gateway --pool farpools://node7:9797 --postgres 0.0.0.0:5432 --tls-cert gw.pem --tls-key gw.key
  farpool gateway --pool sales=farpool://a:9797 --pool web=farpool://b:9797 --postgres 127.0.0.1:5433
                                              # psql … dbname=web; SELECT … FROM hits JOIN sales.public.orders …

The gateway runs SQL for clients that speak other protocols: it plans statements, has the pool run what the pool can, \
and does the rest (joins, sorts, windows) itself. It has no data, so that several may serve one pool. A client's \
password is its token for the pool, with which the gateway asks; the name of the user is only shown. A pool \
without tokens asks for no password.

Each of several pools is a database of its name, the first that of Flight SQL. Statements can name tables of the others \
as DATABASE.SCHEMA.TABLE if the token is known there, too.";

/// Maximum bytes that wait in each direction of a connection within the process.
const PIPE_BYTES: usize = 1 << 20;

/// Serve other protocols over a pool
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("protocols").required(true).multiple(true)))]
pub struct Args {
    /// URL of the memory node; repeatable, each then with the name of its database [default: the variable FARPOOL_POOL,
    /// then the configuration file, then farpool://127.0.0.1:9797]
    #[arg(long = "pool", value_name = "[NAME=]URL", value_parser = named_pool)]
    pools: Vec<(String, PoolUrl)>,

    /// Address for PostgreSQL's protocol; port 0 chooses a free port
    #[arg(long, value_name = "HOST:PORT", group = "protocols")]
    postgres: Option<String>,

    /// Address for Arrow Flight SQL; port 0 chooses a free port
    #[arg(long, value_name = "HOST:PORT", group = "protocols")]
    flight: Option<String>,

    /// PEM file with the only certificate authority that is trusted for farpools:// [default: the system's authorities]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsArgs,

    /// Allow everyone who can reach the address to use a pool that asks for no tokens
    #[arg(long)]
    open: bool,

    /// Encoding of the rows that the node sends: auto (packed where the network is slower than packing), plain, packed,
    /// or plain with buffers compressed by lz4 or zstd
    #[arg(long, value_name = "FORM", default_value_t)]
    results: ResultForm,

    /// Memory for joins, sorts and groups of all sessions; what does not fit spills to encrypted temporary files
    /// [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    work_memory: Option<usize>,

    /// Greatest time of a statement, such as 30s or 5min [default: none]
    #[arg(long, value_name = "TIME", value_parser = size::parse_duration)]
    timeout: Option<Duration>,
}

/// The way to a node at another address.
#[derive(Debug)]
struct Remote {
    url: PoolUrl,
    tls: Option<ClientTls>,
    results: ResultForm,
}

#[async_trait]
impl Door for Remote {
    async fn open(&self, token: Option<&str>) -> Result<Arc<dyn Pool>> {
        let options = ClientOptions {
            token: token.map(str::to_string),
            tls: self.tls.clone(),
            ..ClientOptions::default()
        };
        Ok(Arc::new(RemotePool::connect(&self.url, options).await?.with_results(self.results)))
    }
}

/// Reads a URL that may have the name of a database in front.
fn named_pool(text: &str) -> Result<(String, PoolUrl)> {
    match text.split_once('=') {
        Some((name, url)) if !name.contains([':', '/']) => {
            Ok((SchemaName::new(name)?.as_str().to_string(), url.parse()?))
        }
        _ => Ok((DATABASE.to_string(), text.parse()?)),
    }
}

/// Refuses pools of which two have one name.
fn check_names(pools: &[(String, PoolUrl)]) -> Outcome {
    let twice =
        pools.iter().enumerate().find(|(at, (name, _))| pools[..*at].iter().any(|(known, _)| known == name));
    match twice {
        Some((_, (name, _))) => Err(Stop::usage(
            format!("two pools are the database {name:?}"),
            "give each a name of its own: --pool NAME=URL",
        )),
        None => Ok(()),
    }
}

fn options(work_bytes: usize, timeout: Option<Duration>) -> SessionOptions {
    SessionOptions {
        rates: farpool::calibrated_rates(),
        work: Some(WorkMemory::new(work_bytes)),
        timeout,
        ..SessionOptions::default()
    }
}

/// Runs the gateway until SIGINT or SIGTERM.
pub fn run(args: Args) -> Outcome {
    let config = Config::read()?;
    let mut pools = args.pools;
    if pools.is_empty() {
        let url = match NamedPool::find(None, &config)? {
            Some(named) => named.url,
            None => super::pool_args::POOL_DEFAULT.parse()?,
        };
        pools.push((DATABASE.to_string(), url));
    }
    check_names(&pools)?;
    let tls_ca = args.tls_ca.as_deref().map(super::pool_args::read_authorities).transpose()?;
    let tls = args.tls.files()?;
    let doors: Vec<(String, Arc<dyn Door>)> = pools
        .iter()
        .map(|(name, url)| {
            let tls = tls_ca.clone();
            let door = Remote { url: url.clone(), tls, results: args.results };
            (name.clone(), Arc::new(door) as Arc<dyn Door>)
        })
        .collect();
    let work_bytes = args.work_memory.unwrap_or_else(farpool::work_bytes_default);
    let stop = first_signal()?.map(|()| service_manager::stopping());
    let runtime = super::runtime()?;
    let outcome = runtime.block_on(async {
        let postgres = Bound::of("--postgres", args.postgres.as_deref()).await?;
        let flight = Bound::of("--flight", args.flight.as_deref()).await?;
        // Asked once now, so that a wrong address fails early.
        let mut open = None;
        for ((_, door), (_, url)) in doors.iter().zip(&pools) {
            match door.open(None).await {
                Ok(_) => open = open.or(Some(url)),
                Err(error) if error.kind == farpool::ErrorKind::Denied => {}
                Err(error) => return Err(error.into()),
            }
        }
        let strangers = [&postgres, &flight].into_iter().flatten().find(|bound| !bound.address.ip().is_loopback());
        if let (Some(Bound { address, .. }), Some(url)) = (strangers, open)
            && !args.open
        {
            return Err(Stop::usage(
                format!("{url} asks for no tokens: anyone who can reach {address} could read and change its tables"),
                "start the node with --access FILE ('farpool serve --help' shows one)\n\
                 or say that anyone may: --open",
            ));
        }
        let gateway = Gateway::over(doors, options(work_bytes, args.timeout));
        let mut following = JoinSet::new();
        let grpc = if tls.is_some() { "grpc+tls" } else { "grpc" };
        if let Some((files, first)) = tls {
            gateway.set_tls(first);
            let gateway = Arc::clone(&gateway);
            following.spawn(files.follow("the certificate", move |tls| gateway.set_tls(tls), hangups()?));
        }
        let urls = [("postgresql", &postgres), (grpc, &flight)];
        let urls = urls.into_iter().filter_map(|(scheme, bound)| Some((scheme, bound.as_ref()?.address)));
        let urls: Vec<String> = urls.map(|(scheme, address)| format!("{scheme}://{address}")).collect();
        let over: Vec<String> = match pools.as_slice() {
            [(_, url)] => vec![url.to_string()],
            pools => pools.iter().map(|(name, url)| format!("{name} at {url}")).collect(),
        };
        let line = format!("listening on {}, over {}\n", urls.join(" and "), over.join(", "));
        let listeners = Listeners::of(postgres, flight)?;
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(Stop::output)?;
        drop(out);
        service_manager::ready(&line);
        listeners.serve(gateway, stop.shared()).await?;
        following.shutdown().await;
        eprintln!("stopped");
        Ok(())
    });
    // Dropping the runtime would wait for its blocking threads without a limit.
    runtime.shutdown_background();
    outcome
}

/// An address that is taken, at which nobody can connect yet.
pub struct Bound {
    socket: TcpSocket,
    /// The address.
    pub address: SocketAddr,
}

impl Bound {
    /// Takes the address that the option `flag` names, if it is given.
    pub async fn of(flag: &str, address: Option<&str>) -> Outcome<Option<Self>> {
        let Some(address) = address else { return Ok(None) };
        let (socket, address) = listening::bind(flag, address).await?;
        Ok(Some(Bound { socket, address }))
    }

    fn listen(self) -> Outcome<TcpListener> {
        listening::listen(self.socket, self.address)
    }
}

/// The addresses of a gateway, one for each protocol that it speaks.
pub struct Listeners {
    postgres: Option<TcpListener>,
    flight: Option<TcpListener>,
}

impl Listeners {
    /// Begins to listen.
    pub fn of(postgres: Option<Bound>, flight: Option<Bound>) -> Outcome<Self> {
        let postgres = postgres.map(Bound::listen).transpose()?;
        Ok(Listeners { postgres, flight: flight.map(Bound::listen).transpose()? })
    }

    /// Serves the clients of all protocols until `shutdown` resolves.
    async fn serve(self, gateway: Arc<Gateway>, shutdown: impl Future<Output = ()> + Clone) -> Result<()> {
        let Listeners { postgres, flight } = self;
        let (other, stop) = (Arc::clone(&gateway), shutdown.clone());
        let postgres = async move {
            match postgres {
                Some(listener) => postgres::serve(other, listener, stop).await,
                None => Ok(()),
            }
        };
        let flight = async move {
            match flight {
                Some(listener) => flight::serve(gateway, listener, shutdown).await,
                None => Ok(()),
            }
        };
        tokio::try_join!(postgres, flight).map(drop)
    }
}

/// Lets the workers of the node go before this thread.
fn give_way() {
    // Without the right to do so, the threads are equal.
    #[cfg(unix)]
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

/// Niceness of threads that run statements in the process of a node. Reason: a worker then gets about three times the
/// time of such a thread where both want the processor.
const NICENESS: i32 = 5;

/// The way to a node in this process, over pipes that are served as any other connection of the node.
struct Pipes(mpsc::UnboundedSender<Arc<dyn Socket>>);

impl std::fmt::Debug for Pipes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pipes")
    }
}

#[async_trait]
impl Connector for Pipes {
    async fn connect(&self) -> io::Result<Arc<dyn Socket>> {
        let (ours, theirs) = pipe(PIPE_BYTES);
        self.0.send(Arc::new(theirs)).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(Arc::new(ours))
    }
}

#[derive(Debug)]
struct Inside {
    pipes: Arc<Pipes>,
    node: Arc<Node>,
}

#[async_trait]
impl Door for Inside {
    async fn open(&self, token: Option<&str>) -> Result<Arc<dyn Pool>> {
        let options = ClientOptions { token: token.map(str::to_string), ..ClientOptions::default() };
        let url: PoolUrl = "farpool://localhost:9797".parse()?;
        let connector: Arc<dyn Connector> = self.pipes.clone();
        Ok(Arc::new(RemotePool::connect_through(connector, &url, options).await?))
    }

    fn proof(&self, user: &str) -> Result<Option<Proof>> {
        self.node.proof(user)
    }
}

/// A gateway within the process of a node, with threads of its own.
pub struct Within {
    gateway: Arc<Gateway>,
    node: Arc<Node>,
    listeners: Listeners,
    pipes: mpsc::UnboundedReceiver<Arc<dyn Socket>>,
}

impl Within {
    /// Creates a gateway to `node` for the clients of `listeners`. Its sessions may use `work_bytes` of memory beside that
    /// of the node.
    ///
    /// # Errors
    /// `Internal` if the system gives no random bytes.
    pub fn new(node: &Arc<Node>, listeners: Listeners, work_bytes: usize) -> Result<Self> {
        let mut key = [0; 32];
        super::token::fill(&mut key)?;
        node.allow_tickets(key);
        let (sender, pipes) = mpsc::unbounded_channel();
        let door = Inside { pipes: Arc::new(Pipes(sender)), node: Arc::clone(node) };
        let gateway = Gateway::new(Arc::new(door), options(work_bytes, None));
        Ok(Within { gateway, node: Arc::clone(node), listeners, pipes })
    }

    /// Returns the gateway, to change its certificate.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Serves clients until `shutdown` resolves. Their statements run on threads of their own.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Clone + Send + 'static) -> Outcome {
        let Within { gateway, node, listeners, pipes } = self;
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("farpool-sql")
            .on_thread_start(give_way)
            .build()
            .map_err(|error| {
                farpool::Error::over_limit(format!("cannot start threads: {}", reason(&error)))
            })?;
        let sessions = runtime.spawn(listeners.serve(gateway, shutdown.clone()));
        let (sessions, pool) = tokio::join!(sessions, native::serve(node, pipes, shutdown));
        runtime.shutdown_background();
        sessions.map_err(|error| farpool::Error::internal(format!("the gateway has ended: {error}")))??;
        pool?;
        Ok(())
    }
}
