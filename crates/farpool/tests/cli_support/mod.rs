//! Support for the tests of the program: the program as a child process that cannot block a test, a node, and files to
//! query.

#![expect(clippy::disallowed_methods, reason = "a test may guard against hanging, with a clock and threads")]

pub mod terminal;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
};
use farpool::node::access::TokenDigest;
use parquet::arrow::ArrowWriter;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time after which a test or a child process is considered to hang. Only this detection depends on time.
pub const GUARD: Duration = Duration::from_secs(60);

/// Result of a run of the program.
#[derive(Debug)]
pub struct Done {
    pub status: Option<i32>,
    pub stdout: String,
    pub stdout_bytes: Vec<u8>,
    pub stderr: String,
}

impl Done {
    /// Asserts success and returns standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.status, Some(0), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Asserts that the program failed with exit status `status` and an `error:` line that contains all `parts`
    /// (ignoring case), and that it printed no backtrace or other output for programmers.
    #[track_caller]
    pub fn fails(&self, status: i32, parts: &[&str]) {
        assert_eq!(self.status, Some(status), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        assert!(self.stderr.contains("error: "), "{}", self.stderr);
        let text = self.stderr.to_lowercase();
        for part in parts {
            assert!(text.contains(&part.to_lowercase()), "{part:?} is missing in:\n{}", self.stderr);
        }
        for noise in ["panicked", "RUST_BACKTRACE", "Error {", "ErrorKind", "kind:", "DataFusion error"] {
            assert!(!self.stderr.contains(noise), "{noise:?} in:\n{}", self.stderr);
        }
    }
}

/// Creates the command for the program with `args`.
pub fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farpool"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in
        ["FARPOOL_POOL", "FARPOOL_TOKEN", "FARPOOL_LOG", "NOTIFY_SOCKET", "XDG_CONFIG_HOME", "XDG_STATE_HOME"]
    {
        command.env_remove(name);
    }
    // The tests must not read the settings of the user who runs them.
    command.env("HOME", "/nonexistent");
    command
}

/// Runs the program with `args` and waits for its end.
pub fn farpool(args: &[&str]) -> Done {
    Running::start(program(args)).wait()
}

/// Runs the program with `args` and `input` on standard input.
pub fn farpool_reading(args: &[&str], input: &str) -> Done {
    let mut command = program(args);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut stdin = running.child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    running.wait()
}

/// Runs one statement on files and returns its rows as CSV.
pub fn sql_csv(sql: &str) -> String {
    farpool(&["sql", "--format", "csv", "-c", sql]).ok()
}

/// A child process whose output is read continuously.
pub struct Running {
    pub child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        Running::of(command.spawn().unwrap())
    }

    pub fn of(mut child: Child) -> Running {
        let stdout = child.stdout.take().map(read_all);
        let stderr = child.stderr.take().map(read_all);
        Running { child, stdout, stderr }
    }

    pub fn wait(mut self) -> Done {
        let status = wait(&mut self.child);
        let text = |reader: Option<JoinHandle<Vec<u8>>>| reader.map_or(Vec::new(), |r| r.join().unwrap());
        let (stdout, stderr) = (text(self.stdout.take()), text(self.stderr.take()));
        Done {
            status: status.code(),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stdout_bytes: stdout,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

fn keep_lines(from: impl Read + Send + 'static, said: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n') {
            let line = String::from_utf8_lossy(&line.unwrap()).into_owned();
            said.lock().unwrap().push_str(&(line + "\n"));
        }
    })
}

/// Waits for `child`, and kills it if it hangs.
pub fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > GUARD {
            child.kill().unwrap();
            panic!("the program hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < GUARD, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal, by its name without SIG, to `child`.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// A memory node (`farpool serve`) on a free port, which is stopped at the end of the test.
pub struct Server {
    pub child: Child,
    pub url: String,
    pub ready_line: String,
    /// The node's output on standard error so far.
    said: Arc<Mutex<String>>,
    stderr: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(extra: &[&str]) -> Server {
        Server::start_with(extra, &[])
    }

    /// Starts a node with additional environment variables.
    pub fn start_with(extra: &[&str], environment: &[(&str, &Path)]) -> Server {
        let mut args = vec!["serve"];
        if !extra.contains(&"--listen") {
            args.extend(["--listen", "127.0.0.1:0"]);
        }
        if !extra.contains(&"--memory") {
            args.extend(["--memory", "256MiB"]);
        }
        args.extend(extra);
        let mut child = program(&args).envs(environment.iter().copied()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().map(|stderr| keep_lines(stderr, said.clone()));
        let mut ready_line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready_line).unwrap();
        let url = ready_line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
        let url = url.unwrap_or_else(|| panic!("not ready: {ready_line:?}")).to_string();
        Server { child, url, ready_line, said, stderr }
    }

    /// Starts a node and loads `file` into it as `table`.
    pub fn with_table(table: &str, file: &Path) -> Server {
        let server = Server::start(&[]);
        server.load(table, file);
        server
    }

    #[track_caller]
    pub fn load(&self, table: &str, file: &Path) -> String {
        farpool(&["load", "--pool", &self.url, table, text(file)]).ok()
    }

    /// Runs a command of the program on this node.
    pub fn run(&self, args: &[&str]) -> Done {
        let mut all = vec![args[0], "--pool", &self.url];
        all.extend(&args[1..]);
        farpool(&all)
    }

    /// Runs one SQL statement on this node and returns its rows as CSV.
    #[track_caller]
    pub fn csv(&self, sql: &str) -> String {
        self.run(&["sql", "--format", "csv", "-c", sql]).ok()
    }

    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.run(&["status", "--format", "json"]).ok()).unwrap()
    }

    /// Sends the node a signal to stop, and returns its exit status and its output on standard error, without the key
    /// that it prints when it starts.
    pub fn stop(mut self, signal_name: &str) -> (Option<i32>, String) {
        signal(&self.child, signal_name);
        let status = wait(&mut self.child);
        self.stderr.take().unwrap().join().unwrap();
        let said = self.said();
        let others = said.lines().filter(|line| !line.starts_with("node key "));
        (status.code(), others.map(|line| format!("{line}\n")).collect())
    }

    /// Returns the node's output on standard error so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing fails if the node has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The access file of a node, which lists its tenants and their access tokens.
pub struct Tokens {
    pub path: PathBuf,
}

impl Tokens {
    pub fn new(folder: &Path) -> Tokens {
        let path = folder.join("access.toml");
        std::fs::write(&path, "").unwrap();
        Tokens { path }
    }

    /// Adds an access token for a tenant, and the tenant too if the file does not have it; returns the token.
    pub fn add(&self, tenant: &str, role: &str) -> String {
        let made = farpool(&["token", "new", "--tenant", tenant, "--role", role]);
        let mut text = std::fs::read_to_string(&self.path).unwrap();
        let table = format!("[tenant.{tenant}]\n");
        if !text.contains(&format!("\n{table}")) {
            // A tenant's table is inserted before all tokens: `remove` removes everything from one token to the next.
            text = format!("\n{table}{text}");
        }
        std::fs::write(&self.path, text + &made.stderr).unwrap();
        made.ok().trim_end().to_string()
    }

    /// Removes a token.
    pub fn remove(&self, token: &str) {
        let digest = TokenDigest::of(token).to_string();
        let text = std::fs::read_to_string(&self.path).unwrap();
        let tables = text.split("[[token]]").filter(|table| !table.contains(&digest));
        std::fs::write(&self.path, tables.collect::<Vec<_>>().join("[[token]]")).unwrap();
    }
}

/// Returns a path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns rows of `id, city, fare, price, day, note`: ids count up from 0; three cities in turn; fares are whole
/// numbers; prices have two digits; a new day for every 10 rows; notes are NULL in every second row.
pub fn trips(rows: usize) -> RecordBatch {
    let ids = 0..i64::try_from(rows).unwrap();
    let city = |i: i64| ["Oslo", "Rome", "Zürich"][usize::try_from(i % 3).unwrap()];
    let note = |i: i64| (i % 2 == 1).then(|| format!("note number {i} about the trip"));
    let price = Decimal128Array::from_iter_values(ids.clone().map(|i| i128::from(i * 7 % 10_000)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
        ("city", Arc::new(StringArray::from_iter_values(ids.clone().map(city)))),
        ("fare", Arc::new(Float64Array::from_iter_values(ids.clone().map(|i| (i % 100) as f64)))),
        ("price", Arc::new(price.with_precision_and_scale(12, 2).unwrap())),
        (
            "day",
            Arc::new(Date32Array::from_iter_values(
                ids.clone().map(|i| 19_000 + i32::try_from(i / 10 % 5_000).unwrap()),
            )),
        ),
        ("note", Arc::new(StringArray::from_iter(ids.map(note)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}

/// Writes [`trips`] as Parquet.
pub fn trips_parquet(folder: &Path, name: &str, rows: usize) -> PathBuf {
    let path = folder.join(name);
    let batch = trips(rows);
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

/// Writes a column of numbers that do not compress as a Parquet file.
pub fn noise_parquet(folder: &Path, name: &str, rows: u64) -> PathBuf {
    let path = folder.join(name);
    let noise =
        (1..=rows).map(|row| (row.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ row << 40) as i64);
    let noise: ArrayRef = Arc::new(Int64Array::from_iter_values(noise));
    let batch = RecordBatch::try_from_iter([("noise", noise)]).unwrap();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

/// Writes [`trips`] as an Arrow IPC file.
pub fn trips_arrow(folder: &Path, name: &str, rows: usize) -> PathBuf {
    let path = folder.join(name);
    let batch = trips(rows);
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    path
}

/// Writes [`trips`] as CSV with a header.
pub fn trips_csv(folder: &Path, name: &str, rows: usize) -> PathBuf {
    let path = folder.join(name);
    let mut writer = arrow::csv::Writer::new(std::fs::File::create(&path).unwrap());
    writer.write(&trips(rows)).unwrap();
    path
}
