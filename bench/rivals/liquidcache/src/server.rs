//! LiquidCache's server in a separate process, and the client's handle to it.
//!
//! The process writes its port, then a number for each line that it reads: for `wire` the bytes on the wire so far, for
//! `reset` the bytes that were in the cache. It exits when its input ends.

use crate::counted::{BYTES, Counted};
use anyhow::{Context, Result, bail};
use arrow_flight::flight_service_server::FlightServiceServer;
use futures::stream;
use liquid_cache_common::IoMode;
use liquid_cache_server::LiquidCacheService;
use liquid_cache_server::storage::cache::squeeze_policies::TranscodeSqueezeEvict;
use liquid_cache_server::storage::cache_policies::LiquidPolicy;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpListener;
use tonic::transport::Server;

/// The client's handle to the server's process, which exits when the pipes to it are closed.
pub struct ServerProcess {
    /// The port on which the server listens.
    pub port: u64,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts a server with `threads` threads.
    pub fn start(threads: usize) -> Result<ServerProcess> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["server", &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start LiquidCache's server")?;
        let requests = process.stdin.take().context("the server has no standard input")?;
        let answers = BufReader::new(process.stdout.take().context("the server has no standard output")?);
        let mut server = ServerProcess { port: 0, requests, answers };
        server.port = server.number()?;
        Ok(server)
    }

    /// Returns the bytes that the server has sent and received so far.
    pub fn bytes_on_wire(&mut self) -> Result<u64> {
        self.request("wire")
    }

    /// Empties the server's cache.
    pub fn reset(&mut self) -> Result<()> {
        self.request("reset").map(|_| ())
    }

    fn request(&mut self, request: &str) -> Result<u64> {
        writeln!(self.requests, "{request}").context("LiquidCache's server has ended")?;
        self.number()
    }

    fn number(&mut self) -> Result<u64> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().context("LiquidCache's server has ended")
    }
}

/// Runs the server: an unbounded cache in memory, with LiquidCache's default policies.
pub fn run(threads: usize) -> Result<()> {
    let disk = tempfile::TempDir::with_prefix("farpool-liquidcache-server-")?;
    let service = LiquidCacheService::new(
        LiquidCacheService::context()?,
        None,
        Some(disk.path().to_path_buf()),
        Box::new(LiquidPolicy::new()),
        Box::new(TranscodeSqueezeEvict),
        // An unbounded cache writes nothing to disk, and io_uring is not available on every machine.
        Some(IoMode::StdBlocking),
    )?;
    let service = Arc::new(service);
    let runtime = crate::runtime(threads)?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    println!("{}", listener.local_addr()?.port());
    let flight = FlightServiceServer::from_arc(service.clone());
    runtime.spawn(Server::builder().add_service(flight).serve_with_incoming(connections(listener)));
    for line in std::io::stdin().lock().lines() {
        println!("{}", answer(&service, &line?)?);
    }
    runtime.shutdown_background();
    Ok(())
}

fn answer(service: &LiquidCacheService, request: &str) -> Result<u64> {
    match request {
        "wire" => Ok(BYTES.load(Ordering::Relaxed)),
        "reset" => {
            let cached = service.cache().memory_usage_bytes();
            // Equivalent to the cache's own `reset`, which must not be called while a query runs; the client runs none
            // when it drops a table.
            service.cache().storage().reset();
            Ok(cached as u64)
        }
        other => bail!("unknown request {other:?}"),
    }
}

/// Accepts connections as tonic does, without Nagle's delay, and counts their bytes.
fn connections(listener: TcpListener) -> impl futures::Stream<Item = std::io::Result<Counted>> {
    stream::unfold(listener, |listener| async {
        let accepted = match listener.accept().await {
            Ok((connection, _)) => connection.set_nodelay(true).map(|()| Counted(connection)),
            Err(error) => Err(error),
        };
        Some((accepted, listener))
    })
}
