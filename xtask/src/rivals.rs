//! `cargo xtask rivals`: installs the programs that benchmarks compare with, at pinned versions: in Python virtual
//! environments outside the tree, by building them (`built.rs`), and as packages of the system for servers.
//!
//! The folder is `~/.cache/farpool/rivals` (or in FARPOOL_CACHE), or the one in the variable FARPOOL_RIVALS. If a rival
//! cannot be installed, the others still are; the suites run with those that are installed.

use crate::built::PROGRAMS;
use crate::cargo;
use crate::programs;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python virtual environment with packages that are compatible with each other.
struct Environment {
    /// Name of the environment's folder; `bench/definitions/rivals.toml` refers to it.
    name: &'static str,
    packages: &'static [&'static str],
    /// Java archives, by their Maven coordinates, which are put into the environment's folder `jars`.
    archives: &'static [&'static str],
    /// Benchmarks that need the environment, for messages.
    purpose: &'static str,
}

const ENVIRONMENTS: [Environment; 3] = [
    Environment {
        name: "python",
        packages: &[
            "duckdb==2.0.0",
            "polars==2.1.0",
            "datafusion==55.0.0",
            "chdb==4.4.0",
            "datasketches==5.2.0",
            "pyarrow==26.0.1",
            "numpy==2.4.6",
            "pandas==3.1.1",
            "tpchgen-cli==4.0.0",
            "matplotlib==3.11.2",
        ],
        archives: &[],
        purpose: "DuckDB, Polars, DataFusion, chDB, RE2 and Arrow Flight (both in pyarrow), and the figures",
    },
    // The extensions of this environment exist for this version of DuckDB only.
    Environment {
        name: "quack",
        packages: &[
            "duckdb==1.5.5",
            "duckdb-extension-quack==1.5.5",
            "duckdb-extension-httpfs==1.5.5",
            "pyarrow==26.0.1",
            "numpy==2.4.6",
        ],
        archives: &[],
        purpose: "DuckDB's client and server, Quack, and its encrypted databases",
    },
    Environment {
        name: "doors",
        packages: &[
            "psycopg[binary]==3.3.9",
            "adbc-driver-manager==1.13.0",
            "adbc-driver-postgresql==1.13.0",
            "adbc-driver-flightsql==1.13.0",
            "pyarrow==26.0.1",
            "numpy==2.4.6",
        ],
        archives: &["org.postgresql:postgresql:42.7.4", "org.apache.arrow:flight-sql-jdbc-driver:18.3.0"],
        purpose: "clients of PostgreSQL's protocol and of Flight SQL: psycopg, ADBC, JDBC",
    },
];

/// Servers of keys and values, and their Debian packages. Their versions are those of the system, as the suite reports
/// them.
const SERVERS: [&str; 3] = ["redis-server", "redis-benchmark", "memcached"];
const SERVER_PACKAGES: [&str; 3] = ["redis-server", "redis-tools", "memcached"];

/// The program of Debian's package that other suites start as a server.
const POSTGRES: &str = "/usr/lib/postgresql/15/bin/postgres";
const POSTGRES_PACKAGE: &str = "postgresql-15";

/// Creates every missing environment, installs its packages, builds the missing programs and installs the servers.
pub fn install() -> Result<()> {
    let folder = folder()?;
    let mut failed = Vec::new();
    for environment in &ENVIRONMENTS {
        if let Err(error) = environment.install(&folder.join(environment.name)) {
            eprintln!("error: {error:#}");
            failed.push(format!("{} ({})", environment.name, environment.purpose));
        }
    }
    for program in &PROGRAMS {
        if let Err(error) = program.install(&folder.join(program.name)) {
            eprintln!("error: {error:#}");
            failed.push(program.purpose.to_string());
        }
    }
    if let Err(error) = programs::install(&SERVERS, &SERVER_PACKAGES) {
        eprintln!("error: {error:#}");
        failed.push("Redis and memcached".to_string());
    }
    if let Err(error) = programs::install(&[POSTGRES], &[POSTGRES_PACKAGE]) {
        eprintln!("error: {error:#}");
        failed.push("PostgreSQL".to_string());
    }
    if !failed.is_empty() {
        bail!(
            "could not install {}\nbenchmarks run with the rivals that are there, and say which are missing",
            failed.join(", ")
        );
    }
    println!("done: {}", folder.display());
    Ok(())
}

impl Environment {
    /// Installs what is missing. The file `installed` then lists it: benchmarks leave out a rival without that file.
    fn install(&self, folder: &Path) -> Result<()> {
        let (python, installed) = (folder.join("bin/python"), folder.join("installed"));
        let all = [self.packages, self.archives].concat().join("\n");
        if fs::read_to_string(&installed).is_ok_and(|listed| listed == all) {
            return Ok(());
        }
        if !python.exists() {
            println!("making a Python virtual environment in {}", folder.display());
            run(Path::new("python3"), &["-m", "venv", &folder.to_string_lossy()]).context(
                "a virtual environment needs Python 3 with its venv module: on Debian, the package python3-venv",
            )?;
        }
        println!("installing {}", self.packages.join(", "));
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(&python, &[&pip[..], self.packages].concat()).with_context(|| {
            format!("pip could not install {}: is the package index reachable from here?", self.purpose)
        })?;
        self.archives.iter().try_for_each(|archive| install_archive(archive, &folder.join("jars")))?;
        fs::write(&installed, all).with_context(|| format!("cannot write {}", installed.display()))
    }
}

/// Puts a Java archive into a folder, unless it is there.
fn install_archive(archive: &str, folder: &Path) -> Result<()> {
    let file = archive.split(':').skip(1).collect::<Vec<_>>().join("-") + ".jar";
    if folder.join(&file).exists() {
        return Ok(());
    }
    println!("installing {file}");
    let copy = [
        "-q",
        "-B",
        "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy",
        &format!("-Dartifact={archive}"),
        &format!("-DoutputDirectory={}", folder.display()),
    ];
    run(Path::new("mvn"), &copy).with_context(|| {
        format!("{archive} needs Maven and Java 17 (Debian's packages maven and openjdk-17-jdk-headless)")
    })
}

fn folder() -> Result<PathBuf> {
    match std::env::var_os("FARPOOL_RIVALS") {
        Some(folder) => Ok(folder.into()),
        None => cargo::cache("rivals"),
    }
}

fn run(program: &Path, arguments: &[&str]) -> Result<()> {
    let shown = program.display();
    let status =
        Command::new(program).args(arguments).status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
