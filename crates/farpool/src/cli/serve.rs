//! `farpool serve`: runs a memory node until it is asked to stop.

use super::gateway::{self, Bound, Listeners};
use super::key_args::{CompressionArgs, EncryptionArgs};
use super::listening::{self, TlsArgs};
use super::service_manager;
use super::signals::{first_signal, hangups};
use super::size;
use super::stop::{Outcome, Stop};
use farpool::node::{
    Access, Directory, Followed, Fsync, Keys, LocalDirectory, Node, NodeConfig, PrivateKey, Recovery,
    ServerTls, Tier, native, resp,
};
use farpool::{ErrorKind, WorkMemory};
use futures::FutureExt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const EXAMPLES: &str = "\
Examples:
  farpool serve
  farpool serve --memory 8GiB --data-dir /var/lib/farpool
  farpool serve --resp 127.0.0.1:6380   # redis-cli -p 6380 set greeting hello
  farpool serve --postgres 127.0.0.1:5433   # psql -h 127.0.0.1 -p 5433
  farpool serve --flight 127.0.0.1:32010    # ADBC and JDBC: grpc://127.0.0.1:32010
  farpool serve --resp 127.0.0.1:6380 --data-dir /var/lib/farpool --fsync always
  farpool serve --data-dir /var/lib/farpool --master-key-file farpool.key   # openssl rand -out farpool.key 32
  farpool serve --listen 0.0.0.0:9797 --memory 64GiB --access access.toml \
    --tls-cert node7.pem --tls-key node7.key

When the node is ready, it prints one line on standard output, and notifies systemd if started by it:
  listening on farpool://127.0.0.1:9797, memory 4.0 GiB and 2.0 GiB for work, huge pages: transparent
Ctrl-C or SIGTERM ends it, after at most a few seconds for running work; a second one ends it at once.
Without --data-dir, all data is in memory only and must fit. With --data-dir, acknowledged changes survive a
crash or a loss of power, and tables may be larger than the memory. With a master key, everything in a new
directory is encrypted and cannot be read without the key.
The file of --access lists who may connect and the limits of tenants; only [tenant.NAME] and the tokens'
tenant, role and sha256 are required:
  [tenant.sales]
  weight = 2               # relative share of the node's CPU time
  pool_memory = \"8GiB\"    # for its tables
  disk = \"50GiB\"          # for its tables in the data directory, encoded
  work_memory = \"1GiB\"    # for everything else
  programs = 4             # at once; others wait, for 30 seconds at most
  programs_waiting = 16    # others are refused, to be retried later
  result_bytes = \"1GiB\"   # per query
  connections = 32
  [[token]]                # as 'farpool token new --tenant sales --role read' prints it
  tenant = \"sales\"
  name = \"dashboards\"
  role = \"read\"            # or write, or admin
  sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"
  until = 2027-03-31       # the last day, in UTC
  scram = \"SCRAM-SHA-256$4096:…\"   # with a name: clients of PostgreSQL's protocol prove that they have the token
The file is read again when it changes and on SIGHUP. Connections of a token that is removed or expires end
within a second; a tenant that is removed keeps its tables until an admin drops them.
With --tls-cert, clients connect to farpools://HOST:PORT, and unencrypted connections are refused. Both files
are PEM: the node's certificate followed by the intermediate ones, and the private key without a password.
They are read again like the file of --access; the old ones stay in use until both are complete and match.";

/// Time limit for a node with a data directory to write a last checkpoint, which makes the next start fast.
/// Acknowledged changes are durable without it.
const STOP_WITH_DATA: Duration = Duration::from_secs(60);

/// Time limit for the node to stop after all clients are disconnected: for a step of each worker, and for work on
/// blocking threads. The process then ends without waiting for them.
const STOP: Duration = Duration::from_secs(2);

/// Run a memory node
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address to listen on; port 0 chooses a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9797")]
    listen: String,

    /// Address for the Redis protocol (keys and values); they are lost at a restart without --data-dir [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    resp: Option<String>,

    /// Address for PostgreSQL's protocol: SQL from psql, drivers and other tools [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    postgres: Option<String>,

    /// Address for Arrow Flight SQL: SQL and rows from ADBC, JDBC and other drivers [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    flight: Option<String>,

    /// Memory of the pool, for tables and keys, such as 4GiB [default: half of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<usize>,

    /// Directory that makes tables, views and keys durable; it is created if its parent exists [default: memory only]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Size of the log of changes at which a checkpoint is made. A larger log means fewer checkpoints and a slower
    /// start
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "data_dir", default_value = "128MiB")]
    log_size: usize,

    /// When changes of keys are synced to disk: always (before the reply), everysec (about a second later) or no (some
    /// seconds later). Changes of tables are always synced before the reply
    #[arg(long, value_name = "WHEN", requires = "data_dir", requires = "resp", default_value = "everysec")]
    fsync: When,

    #[command(flatten)]
    encryption: EncryptionArgs,

    #[command(flatten)]
    compression: CompressionArgs,

    /// Memory for everything beside the pool: messages, rows in flight, groups, unsent results [default: a quarter of
    /// the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    work_memory: Option<usize>,

    /// Number of threads that run queries [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// TOML file with tenants, tokens and their limits (see below) [default: only clients on this machine, with all
    /// rights]
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,

    /// Allow everyone who can reach the address to connect and to read and change everything
    #[arg(long, conflicts_with = "access")]
    open: bool,

    #[command(flatten)]
    tls: TlsArgs,

    /// File with the private key that identifies the node to clients with encrypted results ('farpool node-key --new'
    /// creates it) [default: the data directory's key, or one that lasts until the node stops]
    #[arg(long, value_name = "FILE")]
    node_key_file: Option<PathBuf>,
}

/// When changes of keys are synced to disk, with the names that Redis uses.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum When {
    Always,
    Everysec,
    No,
}

impl From<When> for Fsync {
    fn from(when: When) -> Fsync {
        match when {
            When::Always => Fsync::Always,
            When::Everysec => Fsync::EverySecond,
            When::No => Fsync::No,
        }
    }
}

impl Args {
    /// Refuses an address that others can reach if it is not said who may connect.
    fn refuse_strangers(&self, address: SocketAddr) -> Outcome {
        match address.ip().is_loopback() || self.access.is_some() || self.open {
            true => Ok(()),
            false => Err(Stop::usage(
                format!("anyone who can reach {address} could read and change the tables"),
                "say who may connect: --access FILE ('farpool serve --help' shows one)\n\
                 or that anyone may: --open",
            )),
        }
    }

    /// Returns the memory for joins, sorts and groups of the gateway's sessions: as much again as the node has for its own
    /// work.
    fn gateway_bytes(&self) -> usize {
        self.work_memory.unwrap_or_else(farpool::work_bytes_default)
    }
}

/// Runs the node until SIGINT or SIGTERM.
pub fn run(args: Args) -> Outcome {
    for (flag, bytes) in [("--memory", args.memory), ("--work-memory", args.work_memory)] {
        refuse_more_than_there_is(flag, bytes)?;
    }
    let (access_file, access) = match &args.access {
        Some(path) => {
            let (file, access) = Followed::open(vec![path.clone()], |paths| Access::read(&paths[0]))?;
            access.check_not_empty().map_err(|error| error.at(path.display()))?;
            (Some(file), access)
        }
        None => (None, Access::of_everybody()),
    };
    let tls = args.tls.files()?;
    let data = args.data_dir.as_deref().map(LocalDirectory::open).transpose()?;
    let data = data.map(|data| args.encryption.unlock(data)).transpose()?;
    let data = data.map(|data| args.compression.apply(data));
    let tier = data.as_deref().and_then(|data| data.keys()).map(Keys::tier);
    let stop_within = if data.is_some() { STOP_WITH_DATA } else { STOP };
    // Read before anything is started, so that a wrong file name fails early.
    let own_key = args.node_key_file.as_deref().map(PrivateKey::read_file).transpose()?;
    let directory = data.clone();
    let config = NodeConfig {
        data,
        keys: args.resp.as_ref().map(|_| args.fsync.into()),
        log_bytes: args.log_size,
        memory_bytes: args.memory.unwrap_or_else(farpool::memory_bytes_default),
        work: WorkMemory::new(args.work_memory.unwrap_or_else(farpool::work_bytes_default)),
        workers: args.workers.map_or_else(farpool::processors, usize::from),
        access,
        trace: None,
        share_scans: true,
    };
    let stop = first_signal()?.map(|()| service_manager::stopping());
    let runtime = super::runtime()?;
    let outcome = runtime.block_on(async {
        // Addresses are bound at once, but connections are accepted only when the data directory has been read: a
        // client that connects earlier is refused, as before the start.
        let bound = async |flag, address: &str| {
            let (socket, address) = listening::bind(flag, address).await?;
            args.refuse_strangers(address)?;
            Outcome::Ok((socket, address))
        };
        let (listener, address) = bound("--listen", &args.listen).await?;
        let resp = match &args.resp {
            Some(resp) => Some(bound("--resp", resp).await?),
            None => None,
        };
        let postgres = Bound::of("--postgres", args.postgres.as_deref()).await?;
        let flight = Bound::of("--flight", args.flight.as_deref()).await?;
        [&postgres, &flight]
            .into_iter()
            .flatten()
            .try_for_each(|bound| args.refuse_strangers(bound.address))?;
        let node = Node::start(config)?;
        if let (Some(found), Some(path)) = (node.recovery(), &args.data_dir) {
            report(path, found, tier);
        }
        if let Some(keys) = node.keys_found() {
            eprintln!("{}", super::check::summary_of_keys(keys));
        }
        let key = own_key.map_or_else(|| node_key(directory.as_deref()), |key| Ok(Some(key)))?;
        if let Some(key) = key {
            eprintln!("node key {}", key.public());
            node.set_node_key(key);
        }
        let mut following = JoinSet::new();
        if let Some(file) = access_file {
            let node = node.clone();
            following.spawn(file.follow(
                "who may connect",
                move |access| {
                    if access.is_of_nobody() {
                        tracing::warn!("the access file has no token any more: nobody may connect");
                    }
                    node.set_access(access);
                },
                hangups()?,
            ));
        }
        let scheme = if tls.is_some() { "farpools" } else { "farpool" };
        let [postgres_address, flight_address] =
            [&postgres, &flight].map(|bound| bound.as_ref().map(|bound| bound.address));
        let within = match postgres.is_some() || flight.is_some() {
            true => {
                let listeners = Listeners::of(postgres, flight)?;
                Some(gateway::Within::new(&node, listeners, args.gateway_bytes())?)
            }
            false => None,
        };
        if let Some((files, first)) = tls {
            let (node, gateway) = (node.clone(), within.as_ref().map(|within| within.gateway().clone()));
            let set = move |tls: ServerTls| {
                if let Some(gateway) = &gateway {
                    gateway.set_tls(tls.clone());
                }
                node.set_tls(tls);
            };
            set(first);
            following.spawn(files.follow("the certificate", set, hangups()?));
        }
        let resp_address = resp.as_ref().map(|(_, address)| *address);
        let listener = listening::listen(listener, address)?;
        let resp = match resp {
            Some((socket, address)) => {
                let server = resp::Server::start(&node, farpool::processors())?;
                Some((server, listening::listen(socket, address)?))
            }
            None => None,
        };
        let others = [("redis", resp_address), ("postgresql", postgres_address), ("grpc", flight_address)];
        announce(&node, scheme, address, others)?;
        let stop = stop.shared();
        let keys = async {
            if let Some((server, resp)) = resp {
                server.serve(resp, stop.clone()).await;
            }
        };
        let sessions = async {
            match within {
                Some(within) => within.serve(stop.clone()).await,
                None => Ok(()),
            }
        };
        let (tables, (), sessions) =
            tokio::join!(native::serve(node.clone(), listener, stop.clone()), keys, sessions);
        tables?;
        sessions?;
        following.shutdown().await;
        shut_down(node, stop_within).await;
        eprintln!("stopped");
        Ok(())
    });
    // Dropping the runtime would wait for its blocking threads without a limit.
    runtime.shutdown_background();
    outcome
}

/// Fails for a size that exceeds the memory of this machine or container, because the node would be killed when it uses
/// it.
fn refuse_more_than_there_is(flag: &str, bytes: Option<usize>) -> Outcome {
    match (bytes, farpool::memory_bytes()) {
        (Some(bytes), Some(most)) if bytes > most => {
            let [bytes, most] = [bytes, most].map(|bytes| size::bytes(farpool::model::cast::u64_from(bytes)));
            Err(Stop::usage(
                format!("{flag} {bytes} is more than the {most} that this machine has"),
                "give less, or leave it away; with --data-dir, tables may be larger than the memory",
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the private key of the data directory, or a new one that lasts until the process ends. Returns `None`, with
/// a warning, if the process may not lock memory for it.
fn node_key(data: Option<&dyn Directory>) -> Outcome<Option<PrivateKey>> {
    let key = data.map_or_else(PrivateKey::random, farpool::node::node_key);
    match key {
        Err(error) if error.kind == ErrorKind::OverLimit => {
            eprintln!("warning: the node has no key, and cannot encrypt results: {}", error.message);
            Ok(None)
        }
        key => Ok(Some(key?)),
    }
}

/// Prints the contents of the data directory.
fn report(path: &Path, found: &Recovery, tier: Option<Tier>) {
    let cipher = tier.map_or_else(|| "not encrypted".into(), |tier| format!("encrypted ({})", tier.name()));
    eprintln!("data directory {}: {}; {cipher}", path.display(), super::check::summary(found));
    if let Some(first) = found.damaged.first() {
        let count = found.damaged.len();
        eprintln!(
            "warning: {}{}; everything else is served",
            first.message,
            if count > 1 { format!(", and {} more places", count - 1) } else { String::new() }
        );
    }
}

/// Stops the node's workers, but waits at most `within`, because a worker may be in a long step.
async fn shut_down(node: Arc<Node>, within: Duration) {
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    // Dropping the last reference to a node waits for its workers, so it is done on a thread that nothing waits for. If
    // the thread cannot be started, the workers are not stopped, but the process is about to end.
    let shut_down = move || {
        node.shutdown();
        drop((node, ended));
    };
    drop(std::thread::Builder::new().name("farpool-stop".into()).spawn(shut_down));
    drop(tokio::time::timeout(within, end).await);
}

/// Reports on one line that the node is ready (the reader may stop after one line), and notifies the service manager.
fn announce(
    node: &Node,
    scheme: &str,
    address: SocketAddr,
    others: [(&str, Option<SocketAddr>); 3],
) -> Outcome {
    let status = node.status();
    let tls = if scheme == "farpools" { "s" } else { "" };
    let other = |(scheme, address): (&str, Option<SocketAddr>)| {
        let tls = match scheme {
            "grpc" if !tls.is_empty() => "+tls",
            // TLS is negotiated within PostgreSQL's protocol.
            "postgresql" => "",
            _ => tls,
        };
        address.map(|address| format!("; {scheme}{tls}://{address}")).unwrap_or_default()
    };
    let others: String = others.into_iter().map(other).collect();
    let line = format!(
        "listening on {scheme}://{address}, memory {} and {} for work, huge pages: {}{others}\n",
        size::bytes(status.memory_bytes_limit),
        size::bytes(status.work_bytes_limit),
        status.huge_pages
    );
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(Stop::output)?;
    service_manager::ready(&line);
    Ok(())
}
