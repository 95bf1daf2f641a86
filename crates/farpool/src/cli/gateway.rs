//! `farpool gateway`: serves other protocols over a pool, until it is asked to stop; and the same within a node.

use super::config::Config;
use super::listening::{self, TlsArgs};
use super::pool_args::NamedPool;
use super::service_manager;
use super::signals::{first_signal, hangups};
use super::size;
use super::stop::{Outcome, Stop, reason};
use async_trait::async_trait;
use farpool::gateway::{Door, Gateway, postgres};
use farpool::node::{Node, native};
use farpool::{
    ClientOptions, ClientTls, Connector, Pool, PoolUrl, RemotePool, Result, ResultForm, SessionOptions,
    WorkMemory,
};
use farpool_wire::Socket;
use farpool_wire::socket::pipe;
use futures::FutureExt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const EXAMPLES: &str = "\
Examples:
  farpool gateway --postgres 127.0.0.1:5433   # psql -h 127.0.0.1 -p 5433
  farpool gateway --pool farpools://node7:9797 --postgres 0.0.0.0:5432 --tls-cert gw.pem --tls-key gw.key

The gateway runs SQL for clients that speak other protocols: it plans statements, has the pool run what the pool can, \
and does the rest (joins, sorts, windows) itself. It has no data, so that several may serve one pool. A client's \
password is its token for the pool, with which the gateway asks; the name of the user is only shown. A pool \
without tokens asks for no password.";

/// Maximum bytes that wait in each direction of a connection within the process.
const PIPE_BYTES: usize = 1 << 20;

/// Serve other protocols over a pool
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// URL of the memory node [default: the variable FARPOOL_POOL, then the configuration file, then
    /// farpool://127.0.0.1:9797]
    #[arg(long, value_name = "URL")]
    pool: Option<PoolUrl>,

    /// Address for PostgreSQL's protocol; port 0 chooses a free port
    #[arg(long, value_name = "HOST:PORT", required = true)]
    postgres: String,

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
    let url = match NamedPool::find(args.pool.as_ref(), &config)? {
        Some(named) => named.url,
        None => super::pool_args::POOL_DEFAULT.parse()?,
    };
    let tls_ca = args.tls_ca.as_deref().map(super::pool_args::read_authorities).transpose()?;
    let tls = args.tls.files()?;
    let door = Arc::new(Remote { url: url.clone(), tls: tls_ca, results: args.results });
    let work_bytes = args.work_memory.unwrap_or_else(farpool::work_bytes_default);
    let stop = first_signal()?.map(|()| service_manager::stopping());
    let runtime = super::runtime()?;
    let outcome = runtime.block_on(async {
        let (socket, address) = listening::bind("--postgres", &args.postgres).await?;
        // Asked once now, so that a wrong address fails early.
        let is_open = match door.open(None).await {
            Ok(_) => true,
            Err(error) if error.kind == farpool::ErrorKind::Denied => false,
            Err(error) => return Err(error.into()),
        };
        if is_open && !address.ip().is_loopback() && !args.open {
            return Err(Stop::usage(
                format!("{url} asks for no tokens: anyone who can reach {address} could read and change its tables"),
                "start the node with --access FILE ('farpool serve --help' shows one)\n\
                 or say that anyone may: --open",
            ));
        }
        let gateway = Gateway::new(door, options(work_bytes, args.timeout));
        let mut following = JoinSet::new();
        if let Some((files, first)) = tls {
            gateway.set_tls(first);
            let gateway = Arc::clone(&gateway);
            following.spawn(files.follow("the certificate", move |tls| gateway.set_tls(tls), hangups()?));
        }
        let listener = listening::listen(socket, address)?;
        let line = format!("listening on postgresql://{address}, over {url}\n");
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(Stop::output)?;
        drop(out);
        service_manager::ready(&line);
        postgres::serve(gateway, listener, stop).await?;
        following.shutdown().await;
        eprintln!("stopped");
        Ok(())
    });
    // Dropping the runtime would wait for its blocking threads without a limit.
    runtime.shutdown_background();
    outcome
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
struct Inside(Arc<Pipes>);

#[async_trait]
impl Door for Inside {
    async fn open(&self, token: Option<&str>) -> Result<Arc<dyn Pool>> {
        let options = ClientOptions { token: token.map(str::to_string), ..ClientOptions::default() };
        let url: PoolUrl = "farpool://localhost:9797".parse()?;
        let connector: Arc<dyn Connector> = self.0.clone();
        Ok(Arc::new(RemotePool::connect_through(connector, &url, options).await?))
    }
}

/// A gateway within the process of a node, with threads of its own.
pub struct Within {
    gateway: Arc<Gateway>,
    node: Arc<Node>,
    listener: TcpListener,
    pipes: mpsc::UnboundedReceiver<Arc<dyn Socket>>,
}

impl Within {
    /// Creates a gateway to `node` for the clients of `listener`. Its sessions may use `work_bytes` of memory beside that
    /// of the node.
    pub fn new(node: &Arc<Node>, listener: TcpListener, work_bytes: usize) -> Self {
        let (sender, pipes) = mpsc::unbounded_channel();
        let gateway = Gateway::new(Arc::new(Inside(Arc::new(Pipes(sender)))), options(work_bytes, None));
        Within { gateway, node: Arc::clone(node), listener, pipes }
    }

    /// Returns the gateway, to change its certificate.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Serves clients until `shutdown` resolves. Their statements run on threads of their own.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Clone + Send + 'static) -> Outcome {
        let Within { gateway, node, listener, pipes } = self;
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("farpool-sql")
            .on_thread_start(give_way)
            .build()
            .map_err(|error| {
                farpool::Error::over_limit(format!("cannot start threads: {}", reason(&error)))
            })?;
        let sessions = runtime.spawn(postgres::serve(gateway, listener, shutdown.clone()));
        let (sessions, pool) = tokio::join!(sessions, native::serve(node, pipes, shutdown));
        runtime.shutdown_background();
        sessions.map_err(|error| farpool::Error::internal(format!("the gateway has ended: {error}")))??;
        pool?;
        Ok(())
    }
}
