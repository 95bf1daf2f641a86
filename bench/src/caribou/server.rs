//! The compared servers, each in a separate process that is pinned to processors: farpool, Redis and memcached.

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

/// Memory limit for keys in MiB, and for farpool's memory beside them (`--work-memory`).
const MEMORY_MIB: usize = 3 << 10;
const WORK_MIB: usize = 1 << 10;

/// Time limit for a server to load its keys and answer.
const START: Duration = Duration::from_secs(120);

/// Time limit for a server to make pending changes durable and exit.
const STOP: Duration = Duration::from_secs(300);

/// The processor of servers and the processor of the generator, in the notation of `taskset`, if they do not share
/// both.
pub const SERVERS: &str = "0";
pub const GENERATORS: &str = "1";
/// Both processors.
pub const ALL: &str = "0,1";

/// A compared server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Farpool,
    Redis,
    Memcached,
}

/// Durability of a change when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability<'a> {
    /// Changes stay in memory.
    None,
    /// Changes are durable in this folder before they are acknowledged.
    Always(&'a Path),
    /// Changes are durable in this folder about a second after they are acknowledged.
    EverySecond(&'a Path),
}

impl<'a> Durability<'a> {
    /// Returns the value of the option for syncs (the same for farpool and Redis) and the data folder; `None` if
    /// changes stay in memory.
    fn on_disk(self) -> Option<(&'static str, &'a Path)> {
        match self {
            Durability::None => None,
            Durability::Always(folder) => Some(("always", folder)),
            Durability::EverySecond(folder) => Some(("everysec", folder)),
        }
    }
}

/// A running server, whose process is killed when this value is dropped.
pub struct Server {
    process: Process,
    pub side: Side,
    pub address: SocketAddr,
    /// URL at which farpool speaks its native protocol; empty for others.
    pub pool: String,
    /// Seconds from the start of the process until it answered.
    pub start_s: f64,
}

impl Side {
    /// Returns the name in reports and records.
    pub fn name(self) -> &'static str {
        match self {
            Side::Farpool => "farpool",
            Side::Redis => "Redis",
            Side::Memcached => "memcached",
        }
    }

    /// Returns the protocol that the generator speaks with the server.
    pub fn protocol(self) -> Protocol {
        match self {
            Side::Farpool | Side::Redis => Protocol::Resp,
            Side::Memcached => Protocol::Memcached,
        }
    }

    /// Returns the version that the program reports.
    ///
    /// # Errors
    /// Fails if the program is not installed.
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

    /// Returns the program to start; farpool's is next to this program.
    fn program(self) -> Result<PathBuf> {
        Ok(match self {
            Side::Redis => "redis-server".into(),
            Side::Memcached => "memcached".into(),
            Side::Farpool => places::program()?,
        })
    }
}

impl Server {
    /// Starts a server without keys, or over those in the folder of `durability`, and waits until it answers. It runs
    /// on these processors, with `threads` threads; Redis always has one.
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

    /// Waits until the server answers.
    ///
    /// # Errors
    /// Fails if its process ends, or after [`START`].
    fn await_answer(&mut self, start: Instant) -> Result<()> {
        while !self.answers() {
            if self.process.try_wait()?.is_some() || start.elapsed() > START {
                bail!("{} does not start", self.side.name());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Returns whether the server executes requests. While it loads keys, it refuses connections or replies with an
    /// error.
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

    /// Returns whether this version of farpool has the command `name`.
    pub fn knows(&self, name: &str) -> Result<bool> {
        Ok(Client::connect(self.address)?.ask(&["COMMAND", "INFO", name])?.is_some())
    }

    /// Stops the server cleanly, so that pending changes become durable, and waits until its process has ended.
    pub fn stop(self) -> Result<()> {
        self.process.stop(STOP)
    }
}

/// Returns whether this version of farpool supports durable keys: its `serve` then has the option `--fsync`.
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

/// Raises the limit of open files of this process and its children as far as the system allows, because each connection
/// is a file.
pub fn allow_many_files() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Adds farpool's arguments; it chooses free ports and prints them.
fn farpool_arguments(command: &mut Command, threads: usize, durability: Durability<'_>) {
    command.args(["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
    command.args(["--memory", &format!("{MEMORY_MIB}MiB"), "--work-memory", &format!("{WORK_MIB}MiB")]);
    command.args(["--workers", &threads.to_string()]);
    if let Some((fsync, folder)) = durability.on_disk() {
        command.args(["--fsync", fsync, "--data-dir"]).arg(folder);
    }
}

/// Adds Redis' arguments, without snapshots.
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

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
