//! `farpool serve`: runs a memory node until it is told to stop.

use super::signals::first_signal;
use super::size;
use super::stop::{Outcome, Stop, reason};
use farpool::node::{Node, NodeConfig, Tokens, server};
use farpool::{Error, WorkMemory};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const EXAMPLES: &str = "\
Examples:
  farpool serve
  farpool serve --listen 0.0.0.0:9797 --memory 64GiB --tokens tokens.txt

When it is ready it prints one line on standard output:
  listening on farpool://127.0.0.1:9797, memory 4.0 GiB and 2.0 GiB for work, huge pages: transparent
Ctrl-C or SIGTERM ends it, after at most a few seconds for what is under way; a second one ends it at
once. What it holds lives in memory only.
The file of tokens has a token and the name of its tenant on each line, apart by a space; # starts a
comment. Clients show their token with --token or FARPOOL_TOKEN.";

/// How long the node may take to stop once nobody is connected: a step of each worker, and work on blocking threads.
/// Beyond that the process ends without them.
const STOP: Duration = Duration::from_secs(2);

/// Run a memory node
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where to listen; port 0 takes any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9797")]
    listen: String,

    /// Memory for tables, such as 4GiB [default: half of what the machine has]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<usize>,

    /// Memory for everything else: messages, rows on their way, groups, results that wait to leave
    /// [default: a quarter of what the machine has]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    work_memory: Option<usize>,

    /// Threads that run queries [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Ask clients for a token, and keep the tenants of the tokens in this file apart
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
}

/// Serves until SIGINT or SIGTERM.
pub fn run(args: Args) -> Outcome {
    let tokens = args.tokens.as_deref().map(Tokens::read).transpose()?;
    let guarded = tokens.is_some();
    let config = NodeConfig {
        memory_bytes: args.memory.unwrap_or_else(farpool::memory_bytes_default),
        work: WorkMemory::new(args.work_memory.unwrap_or_else(farpool::work_bytes_default)),
        workers: args.workers.map_or_else(farpool::processors, usize::from),
        tokens,
        ..NodeConfig::default()
    };
    let stop = first_signal()?;
    let runtime = super::runtime()?;
    let outcome = runtime.block_on(async {
        let listener = listen(&args.listen).await?;
        let address = listener.local_addr().map_err(|error| cannot_listen(&args.listen, &error))?;
        let node = Node::start(config)?;
        announce(&node, address, guarded)?;
        server::serve(node.clone(), listener, stop).await?;
        shut_down(node).await;
        eprintln!("stopped");
        Ok(())
    });
    // Not dropped: that would wait for blocking threads, whatever they do.
    runtime.shutdown_background();
    outcome
}

/// Ends the node's workers, unless one of them is in the middle of something long.
async fn shut_down(node: Arc<Node>) {
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    // The last owner of a node waits for its workers: here, where nothing waits for that. A thread that is not to
    // be had ends nothing, but the process is about to.
    let shut_down = move || {
        node.shutdown();
        drop((node, ended));
    };
    drop(std::thread::Builder::new().name("farpool-stop".into()).spawn(shut_down));
    drop(tokio::time::timeout(STOP, end).await);
}

async fn listen(address: &str) -> Outcome<TcpListener> {
    if !address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
        return Err(Stop::usage(
            format!("{address:?} is not an address to listen on"),
            "write HOST:PORT, for example --listen 127.0.0.1:9797",
        ));
    }
    Ok(TcpListener::bind(address).await.map_err(|error| cannot_listen(address, &error))?)
}

fn cannot_listen(address: &str, error: &io::Error) -> Error {
    let failed = Error::unavailable(format!("cannot listen on {address}: {}", reason(error)));
    match error.kind() {
        io::ErrorKind::AddrInUse => failed.advise(
            "another program has this port, perhaps another 'farpool serve'\n\
             stop it, or choose another port: --listen 127.0.0.1:9798 (0 takes any free one)",
        ),
        io::ErrorKind::PermissionDenied => {
            failed.advise("choose a port from 1024 up: --listen 127.0.0.1:9797")
        }
        io::ErrorKind::AddrNotAvailable => {
            failed.advise("this machine does not have that address; 0.0.0.0 stands for all that it has")
        }
        _ => failed.advise("choose another address: --listen 127.0.0.1:9797"),
    }
}

fn announce(node: &Node, address: SocketAddr, guarded: bool) -> Outcome {
    let status = node.status();
    let line = format!(
        "listening on farpool://{address}, memory {} and {} for work, huge pages: {}\n",
        size::bytes(status.memory_bytes_limit),
        size::bytes(status.work_bytes_limit),
        status.huge_pages
    );
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(Stop::output)?;
    if !address.ip().is_loopback() && !guarded {
        eprintln!("warning: anyone who can reach {address} can read and change the tables");
        eprintln!("  ask for tokens with --tokens FILE (see farpool serve --help)");
    }
    Ok(())
}
