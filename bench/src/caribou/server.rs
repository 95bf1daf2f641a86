//! The compared servers, each in a separate process: farpool's program, Redis, memcached.

use super::client::Client;
use super::protocol::Protocol;
use crate::places;
use crate::process::Process;
use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Memory for keys, in MiB, and for farpool's other work.
const MEMORY_MIB: usize = 3 << 10;
const WORK_MIB: usize = 1 << 10;

/// Time limit for a server to become ready, even with much data.
const START: Duration = Duration::from_secs(120);

/// Time limit for a server to make pending changes durable and end.
const STOP: Duration = Duration::from_secs(300);

/// The processor of servers and the one of the generator, if each has its own.
pub const SERVERS: &str = "0";
pub const GENERATORS: &str = "1";
/// Both of them.
pub const ALL: &str = "0,1";

/// A compared program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Farpool,
    Redis,
    Memcached,
}

/// The condition for acknowledging a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability<'a> {
    /// Nothing is durable.
    None,
    /// Changes are durable in this folder before they are acknowledged.
    Always(&'a Path),
    /// Changes are durable in this folder within a second.
    EverySecond(&'a Path),
}

impl<'a> Durability<'a> {
    /// Returns the program's option for the time of writing changes, and the folder.
    fn on_disk(self) -> Option<(&'static str, &'a Path)> {
        match self {
            Durability::None => None,
            Durability::Always(folder) => Some(("always", folder)),
            Durability::EverySecond(folder) => Some(("everysec", folder)),
        }
    }
}

/// A server's process.
pub struct Server {
    process: Process,
    pub side: Side,
    pub address: SocketAddr,
    /// Address at which farpool speaks its own protocol.
    pub pool: String,
    /// Seconds from the start of the process until it answered.
    pub start_s: f64,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::Farpool => "farpool",
            Side::Redis => "Redis",
            Side::Memcached => "memcached",
        }
    }

    pub fn protocol(self) -> Protocol {
        match self {
            Side::Farpool | Side::Redis => Protocol::Resp,
            Side::Memcached => Protocol::Memcached,
        }
    }

    /// Returns the version that the program reports.
    ///
    /// # Errors
    /// Fails if it is not installed.
    pub fn version(self) -> Result<String> {
        let program = self.program()?;
        let said = Command::new(&program).arg("--version").output();
        let said = said.map_err(|_| anyhow!("not installed: run `cargo xtask rivals`"))?;
        let text = String::from_utf8_lossy(&said.stdout).trim().to_string();
        Ok(match self {
            Side::Redis => {
                text.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or(&text).to_string()
            }
            _ => text.split_whitespace().nth(1).unwrap_or(&text).to_string(),
        })
    }

    fn program(self) -> Result<PathBuf> {
        Ok(match self {
            Side::Redis => "redis-server".into(),
            Side::Memcached => "memcached".into(),
            Side::Farpool => places::program()?,
        })
    }
}

impl Server {
    /// Starts a server on these processors, with `threads` threads if it supports several.
    pub fn start(side: Side, processors: &str, threads: usize, durability: Durability<'_>) -> Result<Server> {
        let mut command = on_processors(processors, &side.program()?);
        let port = free_port()?;
        match side {
            Side::Farpool => farpool_arguments(&mut command, threads, durability),
            Side::Redis => redis_arguments(&mut command, port, durability),
            Side::Memcached => {
                let (port, threads) = (port.to_string(), threads.to_string());
                command.args(["-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", &threads, "-c", "8192"]);
                command.args(["-m", &MEMORY_MIB.to_string(), "-u", "root"]);
            }
        }
        let start = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let process = Process::start(&mut command)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Server { process, side, address, pool: String::new(), start_s: 0.0 };
        if side == Side::Farpool {
            server.read_addresses()?;
        }
        server.await_answer(start)?;
        server.start_s = start.elapsed().as_secs_f64();
        Ok(server)
    }

    /// Reads farpool's addresses from its output.
    fn read_addresses(&mut self) -> Result<()> {
        let line = self.process.first_line()?;
        let after = |scheme: &str| {
            line.split_once(scheme).map(|(_, rest)| rest.split([',', ';']).next().unwrap_or(rest).trim())
        };
        let (pool, keys) = after(" farpool://")
            .zip(after("redis://"))
            .with_context(|| format!("the node did not start: {line}"))?;
        (self.pool, self.address) = (format!("farpool://{pool}"), keys.parse()?);
        Ok(())
    }

    fn await_answer(&mut self, start: Instant) -> Result<()> {
        while !self.answers() {
            if self.process.try_wait()?.is_some() || start.elapsed() > START {
                bail!("{} does not start", self.side.name());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Returns whether the server answers requests, rather than only that it is loading.
    fn answers(&self) -> bool {
        let ask = match self.side.protocol() {
            Protocol::Resp => "PING\r\n",
            Protocol::Memcached => "version\r\n",
        };
        let mut start = [0; 5];
        let asked = TcpStream::connect(self.address).and_then(|mut stream| {
            stream.write_all(ask.as_bytes())?;
            stream.read_exact(&mut start)
        });
        asked.is_ok() && (&start == b"+PONG" || &start == b"VERSI")
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Removes all keys.
    pub fn clear(&self) -> Result<()> {
        match self.side.protocol() {
            Protocol::Resp => Client::connect(self.address)?.ask(&["FLUSHALL"]).map(drop),
            Protocol::Memcached => {
                let mut stream = TcpStream::connect(self.address)?;
                stream.write_all(b"flush_all\r\n")?;
                let mut reply = [0; 4];
                stream.read_exact(&mut reply)?;
                if &reply == b"OK\r\n" { Ok(()) } else { bail!("memcached does not flush") }
            }
        }
    }

    /// Returns whether farpool knows a command.
    pub fn knows(&self, name: &str) -> Result<bool> {
        Ok(Client::connect(self.address)?.ask(&["COMMAND", "INFO", name])?.is_some())
    }

    /// Stops the process cleanly, and waits for its end; pending changes become durable.
    pub fn stop(self) -> Result<()> {
        self.process.stop(STOP)
    }
}

/// Returns whether farpool supports durable keys, according to the options of `serve`.
pub fn has_durable_keys() -> Result<bool> {
    let help = Command::new(Side::Farpool.program()?).args(["serve", "--help"]).output()?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--fsync"))
}

/// Returns a command that runs a program on these processors only.
pub fn on_processors(processors: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", processors]).arg(program);
    command
}

/// Raises the limit of open files for this process and its children as far as the system allows: each connection is a
/// file.
pub fn allow_many_files() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

fn farpool_arguments(command: &mut Command, threads: usize, durability: Durability<'_>) {
    command.args(["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
    command.args(["--memory", &format!("{MEMORY_MIB}MiB"), "--work-memory", &format!("{WORK_MIB}MiB")]);
    command.args(["--workers", &threads.to_string()]);
    if let Some((fsync, folder)) = durability.on_disk() {
        command.args(["--fsync", fsync, "--data-dir"]).arg(folder);
    }
}

fn redis_arguments(command: &mut Command, port: u16, durability: Durability<'_>) {
    command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--logfile",
        "/dev/null",
    ]);
    match durability.on_disk() {
        Some((fsync, folder)) => {
            command.args(["--appendonly", "yes", "--appendfsync", fsync, "--dir"]).arg(folder);
        }
        None => {
            command.args(["--appendonly", "no"]);
        }
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
