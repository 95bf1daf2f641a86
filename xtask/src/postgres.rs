//! PostgreSQL 15, as Debian 12 has it: a temporary server, and psql.

use crate::programs;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// The version in Debian 12, and the folder of its programs.
const PACKAGE: &str = "postgresql-15";
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// The superuser of every [`Postgres`].
const SUPERUSER: &str = "postgres";

/// A server of PostgreSQL's protocol on this machine, and whom it is to take a client for.
#[derive(Clone)]
pub struct Endpoint {
    pub port: String,
    pub user: String,
    pub database: String,
}

impl Endpoint {
    /// Returns the variables from which libpq, and drivers like it, take an address.
    pub fn environment(&self) -> [(&'static str, &str); 4] {
        [
            ("PGHOST", "127.0.0.1"),
            ("PGPORT", &self.port),
            ("PGUSER", &self.user),
            ("PGDATABASE", &self.database),
        ]
    }

    /// Runs a script; returns the results of its queries, tab-separated, with NULL as `\N`.
    pub fn psql(&self, script: &str) -> Result<String> {
        self.psql_with(&["-q", "-A", "-t", "-F", "\t", "-P", "null=\\N"], script, Stdio::null())
    }

    /// Runs a script with psql's `options`; returns what it prints. Errors go to `errors`, and the script goes on.
    #[expect(clippy::disallowed_methods, reason = "psql writes before it has read all")]
    pub fn psql_with(&self, options: &[&str], script: &str, errors: Stdio) -> Result<String> {
        let mut psql = Command::new("psql");
        psql.arg("-X").args(options).envs(self.environment());
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut psql = psql.spawn().context("cannot start psql")?;
        let mut stdin = psql.stdin.take().context("psql has no input")?;
        // psql reads a whole script before it ends, and its output may exceed the capacity of a pipe.
        let writer = std::thread::spawn({
            let script = script.to_string();
            move || stdin.write_all(script.as_bytes())
        });
        let output = psql.wait_with_output()?;
        match writer.join() {
            Ok(Ok(())) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            _ => bail!("psql did not read the script"),
        }
    }
}

/// A server with its own data; dropping it stops it and removes the data.
pub struct Postgres {
    folder: String,
    port: String,
}

impl Postgres {
    /// Starts a server on a free port of this machine, whose clients need no password. Its zone is UTC.
    ///
    /// # Errors
    /// Fails if PostgreSQL cannot be installed or started.
    pub fn start() -> Result<Postgres> {
        if !Path::new(PROGRAMS).join("initdb").exists() {
            programs::install_packages(&[PACKAGE])?;
        }
        let made = as_user("mktemp", &["-d", "/tmp/farpool-postgres-XXXXXX"]).output()?;
        let folder = String::from_utf8(made.stdout)?.trim_end().to_string();
        ensure!(made.status.success() && !folder.is_empty(), "cannot make a folder in /tmp");
        let postgres = Postgres { folder, port: free_port()? };
        let (data, log) = (postgres.data(), format!("{}/log", postgres.folder));
        let local = ["-A", "trust", "-U", SUPERUSER, "-E", "UTF8", "--locale=C.UTF-8", "-N"];
        program("initdb", [&["-D", &data], &local[..]].concat().as_slice())?;
        let options = format!(
            "-k {} -p {} -c listen_addresses=127.0.0.1 -c fsync=off -c timezone=UTC",
            postgres.folder, postgres.port
        );
        program("pg_ctl", &["-D", &data, "-o", &options, "-l", &log, "-w", "start"])?;
        Ok(postgres)
    }

    /// Returns the way to the database `postgres`, as superuser.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { port: self.port.clone(), user: SUPERUSER.into(), database: "postgres".into() }
    }

    fn data(&self) -> String {
        format!("{}/data", self.folder)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The server may not have been started.
        let _ = program("pg_ctl", &["-D", &self.data(), "-m", "immediate", "stop"]);
        let _ = as_user("rm", &["-rf", &self.folder]).status();
    }
}

/// Returns a port that nobody listens on. Somebody else may take it before it is used.
#[expect(clippy::disallowed_methods, reason = "PostgreSQL does not choose a port itself")]
fn free_port() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port on this machine")?;
    Ok(listener.local_addr()?.port().to_string())
}

/// Runs one of PostgreSQL's programs.
fn program(name: &str, arguments: &[&str]) -> Result<()> {
    let mut command = as_user(&format!("{PROGRAMS}/{name}"), arguments);
    // A server that keeps running would keep a pipe for its standard output open, so that a reader of the pipe would
    // wait.
    let status = command.stdout(Stdio::null()).status().with_context(|| format!("cannot start {name}"))?;
    ensure!(status.success(), "{name} of {PACKAGE} failed");
    Ok(())
}

/// Returns a command that runs as the user `postgres` if this process is root, which PostgreSQL refuses; otherwise as
/// this user.
fn as_user(program: &str, arguments: &[&str]) -> Command {
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    let mut command = match is_root {
        true => {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--", program]);
            command
        }
        false => Command::new(program),
    };
    command.args(arguments).current_dir("/");
    command
}
