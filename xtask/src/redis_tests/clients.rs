//! Real clients of Redis, against a node: redis-cli, redis-benchmark, redis-py, Flask and Django with their sessions
//! and cache, Jedis, Express with its sessions, and go-redis. The scripts in `testdata/redis/clients/` check the values
//! that they have stored and read. Finally, porcupine checks that keys are linearizable.
//!
//! Packages, at pinned versions, are installed into the folder `redis-clients` of the cache.

use super::server::Server;
use crate::cargo;
use crate::programs::{self, installed, is_installed};
use crate::python;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PYTHON_PACKAGES: [&str; 4] = ["redis==8.1.0", "Flask==3.1.3", "Flask-Session==0.8.0", "Django==5.2.19"];
const PYTHON_SCRIPTS: [&str; 3] = ["redis_py.py", "sessions.py", "django_cache.py"];

/// Commands for redis-cli, and their expected output.
const CLI: [(&[&str], &str); 5] = [
    (&["set", "greeting", "hello", "ex", "60"], "OK"),
    (&["get", "greeting"], "hello"),
    (&["hset", "users:1", "name", "Ada", "city", "London"], "2"),
    (&["-3", "--json", "hgetall", "users:1"], r#"{"name":"Ada","city":"London"}"#),
    (&["--scan", "--pattern", "users:*"], "users:1"),
];

/// Runs every client against a separate node.
///
/// # Errors
/// Fails if a client fails, or cannot be installed.
pub fn run(program: &Path) -> Result<()> {
    cli(&Server::start(program)?)?;
    let python = python()?;
    for script in PYTHON_SCRIPTS {
        let server = Server::start(program)?;
        finish(Command::new(&python).arg(scripts().join(script)).arg(&server.port))?;
    }
    let classes = java()?.join("*");
    let server = Server::start(program)?;
    let mut command = Command::new("java");
    finish(command.arg("-cp").arg(classes).arg(scripts().join("Shop.java")).arg(&server.port))?;
    drop(server);
    let server = Server::start(program)?;
    let folder = node_js()?;
    finish(Command::new("node").current_dir(folder).args(["sessions.mjs", &server.port]))?;
    drop(server);
    let server = Server::start(program)?;
    finish(Command::new(go("shop")?).arg(&server.port))?;
    linearizable(program, 1)
}

/// Lets many connections work on a few keys of a separate node, `times` times as long as the tests do, and porcupine
/// check the recorded history.
///
/// # Errors
/// Fails if the history is not linearizable, or the programs cannot be built.
pub fn linearizable(program: &Path, times: u32) -> Result<()> {
    finish(Command::new(go("linearizable")?).arg(program).arg(times.to_string()))
}

fn scripts() -> PathBuf {
    cargo::root().join("testdata/redis/clients")
}

fn cli(server: &Server) -> Result<()> {
    programs::install(&["redis-cli", "redis-benchmark"], &["redis-tools"])?;
    for (arguments, expected) in CLI {
        let mut command = Command::new("redis-cli");
        let done = command.args(["-p", &server.port]).args(arguments).output()?;
        let got = String::from_utf8_lossy(&done.stdout).trim_end().to_string();
        ensure!(got == expected, "redis-cli {}: {got:?} in place of {expected:?}", arguments.join(" "));
    }
    let benchmark = ["-t", "get,set,incr,hset,mset", "-P", "32", "-n", "20000", "-q"];
    let mut command = Command::new("redis-benchmark");
    let done = command.args(["-p", &server.port]).args(benchmark).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&done.stdout).to_lowercase();
    ensure!(done.status.success() && !text.contains("error"), "redis-benchmark: {text}");
    println!("redis-cli and redis-benchmark: strings, hashes, a scan, pipelines of 32");
    Ok(())
}

/// Returns the interpreter of a virtual environment that has the packages.
fn python() -> Result<PathBuf> {
    let folder = cargo::cache("redis-clients")?.join("python");
    python::environment(&folder, &PYTHON_PACKAGES.map(String::from))
}

/// Returns the folder with the libraries listed in `pom.xml`.
fn java() -> Result<PathBuf> {
    programs::install(&["mvn", "javac"], &["maven", "default-jdk-headless"])?;
    let folder = cargo::cache("redis-clients")?.join("java");
    let list = scripts().join("pom.xml");
    let wanted = fs::read_to_string(&list).context("cannot read pom.xml of the clients")?;
    if !is_installed(&folder, &wanted) {
        let into = format!("-DoutputDirectory={}", folder.display());
        let copy = ["-q", "-B", "-f", &list.to_string_lossy(), "dependency:copy-dependencies", &into];
        programs::run("mvn", copy, "is the package registry reachable?")?;
        installed(&folder, &wanted)?;
    }
    Ok(folder)
}

/// Returns the folder with the packages listed in `package-lock.json`, and the scripts.
fn node_js() -> Result<PathBuf> {
    programs::install(&["node", "npm"], &["nodejs", "npm"])?;
    let folder = cargo::cache("redis-clients")?.join("node");
    let from = scripts().join("node");
    let wanted =
        fs::read_to_string(from.join("package-lock.json")).context("cannot read package-lock.json")?;
    let is_there = is_installed(&folder, &wanted);
    fs::create_dir_all(&folder)?;
    for name in ["package.json", "package-lock.json", "sessions.mjs"] {
        fs::copy(from.join(name), folder.join(name))?;
    }
    if !is_there {
        let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
        programs::run_in(&folder, "npm", install, "is the package registry reachable? Node.js 20 is needed")?;
        installed(&folder, &wanted)?;
    }
    Ok(folder)
}

/// Builds one of the programs in `testdata/redis/clients/go`, with the packages listed in `go.sum`.
fn go(name: &str) -> Result<PathBuf> {
    programs::install(&["go"], &["golang-go"])?;
    let built = cargo::cache("redis-clients")?.join("go").join(name);
    let build = ["build", "-buildvcs=false", "-o", &built.to_string_lossy(), &format!("./{name}")];
    let otherwise = "is the module proxy reachable? Go 1.19 is needed";
    programs::run_in(&scripts().join("go"), "go", build, otherwise)?;
    Ok(built)
}

/// Runs a client, which prints a line about its work.
fn finish(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    if !command.status().with_context(|| format!("cannot start {shown}"))?.success() {
        bail!("{shown} failed");
    }
    Ok(())
}
