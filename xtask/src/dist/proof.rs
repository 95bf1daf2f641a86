//! Installs every package into an empty root file system and runs the program there: a node loads a table, answers a
//! query, stops, and has the table again after a restart.

use super::archives::{Archives, CONTAINER_USER, SUMS};
use super::root::{Node, Root, User};
use super::{Release, read};
use crate::programs;
use anyhow::{Context, Result, ensure};
use serde_json::from_str;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A table, a query, and its result.
pub const CSV: &str = "city,fare\nOslo,12.5\nBergen,30.25\nOslo,7.25\n";
const SQL: &str = "select city, sum(fare) as fare from trips group by city order by city";
const ANSWER: &str = "city,fare\nBergen,30.25\nOslo,19.75\n";

/// Options for a node that uses little memory instead of half of the machine's.
const SMALL: [&str; 6] = ["--listen", "127.0.0.1:0", "--memory", "64MiB", "--work-memory", "64MiB"];

/// An installed program in an empty root file system, with the data to start a node of it.
struct Installed<'a> {
    root: &'a Root,
    user: User<'a>,
    program: &'a str,
    serve: Vec<String>,
    /// Options of clients of the node.
    client: &'a [&'a str],
}

/// Tries all packages, each in an empty root file system.
pub fn run(release: &Release, archives: &Archives, deb: &Path) -> Result<()> {
    let sums = ["--check", "--strict", "--quiet", SUMS];
    programs::run_in(&release.folder, "sha256sum", sums, "the packages are not what was made")?;
    say("archive", &archives.tar);
    archive(release, &archives.tar)?;
    say("container", &archives.container);
    container(release, archives)?;
    say("Debian package", deb);
    debian(release, deb)?;
    Ok(())
}

/// Prints the package that is tried.
pub fn say(kind: &str, file: &Path) {
    println!("trying the {kind} {}", file.file_name().unwrap_or_default().display());
}

/// Tries the archive, unpacked below `/usr/local`.
fn archive(release: &Release, tar: &Path) -> Result<()> {
    let root = Root::make(release.scratch.join("root-archive"))?;
    let prefix = root.folder.join("usr/local");
    fs::create_dir_all(&prefix)?;
    root.unpack(tar, &prefix, 1)?;
    check_shell_files(&prefix)?;
    works(release, &root, "/usr/local/bin/farpool")?;
    unit_is_right(&root.folder, &prefix.join("lib/systemd/system/farpool.service"))
}

/// Tries the package, as dpkg installs, removes and purges it; steps that require root are skipped for other users.
fn debian(release: &Release, deb: &Path) -> Result<()> {
    let root = Root::make(release.scratch.join("root-debian"))?;
    let file = deb.to_string_lossy();
    let version = Root::output(Command::new("dpkg-deb").args(["--field", &file, "Version"]))?;
    ensure!(version.trim() == release.version, "the package has version {version}");
    if !root.is_privileged() {
        programs::run("dpkg-deb", ["-x", &file, &root.folder.to_string_lossy()], "the package is damaged")?;
        println!("dpkg is not tried: it installs for root only");
        return works(release, &root, "/usr/bin/farpool");
    }
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        fs::create_dir_all(root.folder.join(folder))?;
    }
    super::write(&root.folder.join("var/lib/dpkg/status"), "")?;
    dpkg(&root, &["--install", &file])?;
    check_shell_files(&root.folder.join("usr"))?;
    works(release, &root, "/usr/bin/farpool")?;
    unit_is_right(&root.folder, &root.folder.join("usr/lib/systemd/system/farpool.service"))?;
    if programs::is_there("systemd-sysusers") {
        let users = read(&root.folder.join("etc/passwd"))?;
        ensure!(users.contains("farpool:"), "the package has made no user:\n{users}");
    }

    let settings = root.folder.join("etc/default/farpool");
    dpkg(&root, &["--remove", "farpool"])?;
    ensure!(
        !root.folder.join("usr/bin/farpool").exists(),
        "the program is there after the package is removed"
    );
    ensure!(settings.exists(), "removing the package has removed its settings");
    dpkg(&root, &["--purge", "farpool"])?;
    ensure!(!settings.exists(), "the settings are there after a purge");
    ensure!(root.folder.join("var/lib/farpool").exists(), "a purge has removed the tables");
    Ok(())
}

/// Runs dpkg on a root, with its scripts outside of the root, which has no shell.
fn dpkg(root: &Root, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("dpkg");
    command.arg("--root").arg(&root.folder).args(["--force-script-chrootless", "--no-triggers"]);
    // Operations in another root do not belong in the log of this machine.
    command.args(["--log", "/dev/null"]).args(arguments);
    Root::output(&mut command).map(drop)
}

/// Tries the root of a container, with the command, the user and the health check of its Containerfile.
fn container(release: &Release, archives: &Archives) -> Result<()> {
    let root = Root::make(release.scratch.join("root-container"))?;
    root.unpack(&archives.container, &root.folder, 0)?;
    let file = read(&archives.containerfile)?;
    let entry = instruction(&file, "ENTRYPOINT ")?;
    let program = entry.first().context("an empty ENTRYPOINT")?;
    let mut serve = instruction(&file, "CMD ")?;
    let listens = serve.iter_mut().find(|argument| *argument == "0.0.0.0:9797");
    // The node listens on any free port instead.
    *listens.context("the container does not listen on 0.0.0.0:9797")? = "127.0.0.1:0".into();
    serve.extend(["--memory", "64MiB", "--work-memory", "64MiB"].map(String::from));

    let user = if root.is_privileged() { User::Other(CONTAINER_USER) } else { User::Root };
    tokens(&root, user, program)?;
    let client = ["--token-file", "/tmp/writer"];
    let installed = Installed { root: &root, user, program, serve, client: &client };
    let node = installed.start()?;
    let health = instruction(&file, "HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ")?;
    let arguments: Vec<&str> = health.iter().skip(1).map(String::as_str).collect();
    let mut check = root.command(user, &health[0], &arguments);
    let status = Root::output(check.env("FARPOOL_POOL", format!("farpool://{}", node.address)))?;
    ensure!(status.contains(&release.version), "the health check does not show the node: {status}");
    node.stop()?;
    installed.works(&release.version)
}

/// Returns the list of words after an instruction of a Containerfile.
fn instruction(file: &str, name: &str) -> Result<Vec<String>> {
    let line = file.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("the Containerfile has no {name}"))?;
    from_str(line).with_context(|| format!("{name} of the Containerfile is no list"))
}

/// Creates a token with the right to write and the one for the health check, and the access file for both.
fn tokens(root: &Root, user: User, program: &str) -> Result<()> {
    let mut access = "[tenant.trips]\n".to_string();
    for (role, path) in [("write", "tmp/writer"), ("read", "etc/farpool/token")] {
        let arguments = ["token", "new", "--tenant", "trips", "--role", role];
        let output = root.command(user, program, &arguments).output()?;
        super::write(&root.folder.join(path), output.stdout)?;
        access.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    super::write(&root.folder.join("etc/farpool/access.toml"), access)
}

/// Runs the program as root, as a service with a data directory.
fn works(release: &Release, root: &Root, program: &str) -> Result<()> {
    fs::create_dir_all(root.folder.join("var/lib"))?;
    let serve = ["serve", "--data-dir", "/var/lib/farpool"].into_iter().chain(SMALL).map(String::from);
    let serve = serve.collect();
    Installed { root, user: User::Root, program, serve, client: &[] }.works(&release.version)
}

impl Installed<'_> {
    fn works(&self, version: &str) -> Result<()> {
        let said = self.run(&["--version"])?;
        ensure!(said == format!("farpool {version}\n"), "it says that it is {said}");
        super::write(&self.root.folder.join("tmp/trips.csv"), CSV)?;

        let node = self.start()?;
        self.ask(&node, &["load"], &["trips", "/tmp/trips.csv"])?;
        self.answers(&node)?;
        node.stop()?;
        let node = self.start()?;
        self.answers(&node).context("after a start")?;
        node.stop()
    }

    fn start(&self) -> Result<Node> {
        let serve: Vec<&str> = self.serve.iter().map(String::as_str).collect();
        Node::start(&mut self.root.command(self.user, self.program, &serve))
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        Root::output(&mut self.root.command(self.user, self.program, arguments))
    }

    /// Runs a command on the node, whose host is looked up in the root.
    fn ask(&self, node: &Node, command: &[&str], arguments: &[&str]) -> Result<String> {
        let port = node.address.rsplit_once(':').context("an address without a port")?.1;
        let pool = format!("farpool://node7:{port}");
        self.run(&[command, &["--pool", &pool], self.client, arguments].concat())
    }

    fn answers(&self, node: &Node) -> Result<()> {
        let answer = self.ask(node, &["sql"], &["--format", "csv", "-c", SQL])?;
        ensure!(answer == ANSWER, "the answer is {answer:?} and should be {ANSWER:?}");
        Ok(())
    }
}

/// Checks that there are completions and manual pages, and that bash parses its completions.
fn check_shell_files(prefix: &Path) -> Result<()> {
    let bash = prefix.join("share/bash-completion/completions/farpool");
    Root::output(Command::new("bash").arg("-n").arg(&bash))?;
    let page = prefix.join("share/man/man1/farpool-serve.1.gz");
    let page = Root::output(Command::new("gzip").arg("-dc").arg(&page))?;
    ensure!(page.contains(".TH farpool-serve 1"), "this is no manual page: {page}");
    Ok(())
}

/// Lets systemd, if it is installed, check the service's unit file: its syntax, and its sandboxing.
fn unit_is_right(root: &Path, unit: &Path) -> Result<()> {
    let there = Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status();
    if there.is_err() {
        println!("the unit is not checked: systemd-analyze is not here (package systemd)");
        return Ok(());
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no", "--root"]).arg(root).arg(unit);
    Root::output(&mut verify)?;
    let mut security = Command::new("systemd-analyze");
    // In tenths: 2.0 of 10 is the value up to which systemd does not call a unit exposed.
    security.args(["security", "--offline=true", "--threshold=20", "--no-pager"]).arg(unit);
    Root::output(&mut security).map(drop)
}
