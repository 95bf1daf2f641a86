//! Tests of nodes and sessions with an encrypted data directory: killed, opened with wrong keys, modified on disk,
//! given another key.

use crate::cli_support::*;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Texts that occur in a table, in the name of a table, in the name of a column and in a view. None may be found in an
/// encrypted directory.
const SECRETS: [&str; 4] = ["a city that nobody knows", "expeditions", "where_to", "a secret view"];

struct Folder {
    folder: tempfile::TempDir,
    data: PathBuf,
}

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("d");
        Folder { folder, data }
    }

    /// Writes an encryption key to a file that only its owner may read. Returns the file's path.
    fn key(&self, name: &str, contents: &[u8]) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        text(&path).to_string()
    }

    fn serve(&self, key: &str) -> Server {
        Server::start(&["--data-dir", text(&self.data), "--master-key-file", key])
    }

    /// Runs a command of the program on the data directory.
    fn run(&self, command: &[&str], key: &[&str]) -> Done {
        farpool(&[command, &["--data-dir", text(&self.data)], key].concat())
    }

    /// Returns the indexes of those of `texts` that occur in a file of the data directory.
    fn found(&self, texts: &[&[u8]]) -> Vec<usize> {
        let all: Vec<Vec<u8>> = files(&self.data).iter().map(|file| std::fs::read(file).unwrap()).collect();
        let is_found = |text: &[u8]| all.iter().any(|bytes| bytes.windows(text.len()).any(|it| it == text));
        (0..texts.len()).filter(|place| is_found(texts[*place])).collect()
    }
}

fn files(data: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn fill(server: &Server, folder: &Path) {
    let [city, table, column, view] = SECRETS;
    server.load("trips", &trips_parquet(folder, "t.parquet", 200_000));
    server.csv(&format!("create table {table} ({column} text)"));
    server.csv(&format!("insert into {table} values ('{city}'), (null)"));
    server.csv(&format!("create view some_view as select '{view}' as x"));
}

/// Queries of the tables and of the view. The first query reads the column that a test corrupts.
const QUERIES: [&str; 3] = [
    "select count(*), sum(id), min(note) from trips where city <> 'Rome'",
    "select * from expeditions order by 1",
    "select x from some_view",
];

fn ask(server: &Server, queries: &[&str]) -> Vec<String> {
    queries.iter().map(|sql| server.csv(sql)).collect()
}

#[test]
fn an_encrypted_directory_shows_nothing_and_loses_nothing() {
    let folder = Folder::new();
    let bytes: Vec<u8> = (100..132).collect();
    let key = folder.key("k", &bytes);
    let server = folder.serve(&key);
    until("the start", || server.said().contains("encrypted (standard)"));
    fill(&server, folder.folder.path());
    let before = ask(&server, &QUERIES);
    assert!(before[1].contains(SECRETS[0]), "{}", before[1]);
    let secrets: Vec<&[u8]> =
        SECRETS.iter().map(|text| text.as_bytes()).chain([&bytes[..16], &bytes[16..], b"Oslo"]).collect();
    assert!(folder.found(&secrets).is_empty(), "{:?}", folder.found(&secrets));
    server.stop("KILL");
    for signal in ["TERM", "KILL"] {
        let server = folder.serve(&key);
        assert_eq!(ask(&server, &QUERIES), before);
        let (_, said) = server.stop(signal);
        assert!(!said.contains("error") && !said.contains("warning"), "{said}");
        assert!(folder.found(&secrets).is_empty(), "{:?}", folder.found(&secrets));
    }
    let checked = folder.run(&["check"], &["--master-key-file", &key]).ok();
    assert!(checked.contains("2 tables") && !checked.contains("damaged"), "{checked}");
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let command = format!("echo {digits}");
    let sql = ["sql", "--format", "csv", "-c", "select * from expeditions order by 1"];
    assert_eq!(folder.run(&sql, &["--master-key-command", &command]).ok(), before[1]);
    // Without an encryption key, the search finds all the texts.
    let plain = Folder::new();
    let server = Server::start(&["--data-dir", text(&plain.data)]);
    fill(&server, plain.folder.path());
    assert_eq!(ask(&server, &QUERIES), before);
    assert_eq!(plain.found(&secrets[..4]), [0, 1, 2, 3]);
}

#[test]
fn what_is_changed_on_disk_is_an_error_that_names_the_place() {
    let folder = Folder::new();
    let key = folder.key("k", &[9; 32]);
    let server = folder.serve(&key);
    fill(&server, folder.folder.path());
    let before = ask(&server, &QUERIES[1..]);
    server.stop("TERM");
    let segment = folder.data.join("segment-000000000001");
    let whole = std::fs::read(&segment).unwrap();
    let mut changed = whole.clone();
    changed[4096 + 100] ^= 4;
    std::fs::write(&segment, &changed).unwrap();
    let damaged = folder.run(&["check"], &["--master-key-file", &key]);
    damaged.fails(1, &["1 place"]);
    assert!(damaged.stdout.contains("rows 1 to 65536 of column \"id\""), "{}", damaged.stdout);
    let server = folder.serve(&key);
    let lost = ["rows 1 to 65536 of column \"id\"", "segment-000000000001", "at byte 4096"];
    server.run(&["sql", "-c", "select sum(id) from trips"]).fails(1, &lost);
    assert_eq!(ask(&server, &QUERIES[1..]), before);
    drop(server);
    // A segment from another data directory with the same master key is refused.
    let other = Folder::new();
    let server = other.serve(&key);
    fill(&server, other.folder.path());
    server.stop("TERM");
    std::fs::copy(other.data.join("segment-000000000001"), &segment).unwrap();
    let checked = folder.run(&["check"], &["--master-key-file", &key]);
    assert!(checked.status == Some(1), "{}", checked.stdout);
}

#[test]
fn keys_that_are_wrong_are_told() {
    let folder = Folder::new();
    let (key, wrong) = (folder.key("k", &[1; 32]), folder.key("wrong", &[2; 32]));
    let short = folder.key("short", &[1; 31]);
    let open = folder.key("open", &[1; 32]);
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let make = ["sql", "-c", "create table t as select 1 as x"];
    folder.run(&make, &["--master-key-file", &key]).ok();
    let file = |path: &str| vec!["--master-key-file".to_string(), path.to_string()];
    let option = |name: &str, value: &str| vec![format!("--master-key-{name}"), value.to_string()];
    let cases: [(Vec<String>, &[&str]); 8] = [
        (vec![], &["is encrypted", "--master-key-file"]),
        (file(&wrong), &["its master key is", "the one that was given is"]),
        (file(&short), &["31 bytes", "32 bytes"]),
        (file(&open), &["may be read by others", "chmod 600"]),
        (file("no/such/key"), &["no/such/key", "No such file"]),
        (option("env", "FARPOOL_NO_SUCH_KEY"), &["FARPOOL_NO_SUCH_KEY"]),
        (option("command", "echo something"), &["echo something", "no key"]),
        (option("command", "exit 7"), &["exit status: 7"]),
    ];
    for (key, parts) in cases {
        let key: Vec<&str> = key.iter().map(String::as_str).collect();
        for command in [&["check"][..], &["sql", "-c", "select 1"], &["serve", "--listen", "127.0.0.1:0"]] {
            let done = folder.run(command, &key);
            assert!(done.status != Some(0), "{command:?} {key:?}");
            parts.iter().for_each(|part| assert!(done.stderr.contains(part), "{part}: {}", done.stderr));
        }
    }
    // Options that exclude one another.
    for options in [
        vec!["--master-key-file", key.as_str(), "--master-key-env", "X"],
        vec!["--encryption", "fast", "--master-key-file", key.as_str()],
        vec!["--encryption", "strict"],
    ] {
        assert_eq!(
            folder.run(&["serve", "--listen", "127.0.0.1:0"], &options).status,
            Some(2),
            "{options:?}"
        );
    }
    assert_eq!(farpool(&["serve", "--master-key-file", &key]).status, Some(2));
    // A data directory that is not encrypted.
    let plain = Folder::new();
    plain.run(&make, &[]).ok();
    plain.run(&make, &["--master-key-file", &key]).fails(1, &["is not encrypted", "without the key"]);
    plain.run(&["sql", "-c", "select x from t"], &[]).ok();
}

#[test]
fn another_master_key_opens_the_directory_and_the_old_one_does_not() {
    let folder = Folder::new();
    let (old, new) = (folder.key("old", &[1; 32]), folder.key("new", &[2; 32]));
    let make = ["sql", "-c", "create table t as select 7 as x", "--encryption", "strict"];
    folder.run(&make, &["--master-key-file", &old]).ok();
    let segments = || {
        let mut all = files(&folder.data);
        all.retain(|file| !file.ends_with("keys"));
        all.sort();
        all.iter().map(|file| std::fs::read(file).unwrap()).collect::<Vec<_>>()
    };
    let before = segments();
    let rotate = |old: &str, new: &str| {
        folder.run(&["rotate-key"], &["--master-key-file", old, "--new-master-key-file", new])
    };
    rotate(&new, &old).fails(3, &["its master key is"]);
    folder.run(&["rotate-key"], &["--master-key-file", &old]).fails(2, &["--new-master-key-file"]);
    folder.run(&["rotate-key"], &["--new-master-key-file", &old]).fails(2, &["--master-key-file"]);
    assert!(rotate(&old, &new).ok().contains("the master key is"));
    assert!(segments() == before, "the data stay as they are");
    let sql = ["sql", "--format", "csv", "-c", "select x from t"];
    assert_eq!(folder.run(&sql, &["--master-key-file", &new]).ok(), "x\n7\n");
    folder.run(&sql, &["--master-key-file", &old]).fails(3, &["its master key is"]);
    let server = folder.serve(&new);
    until("the start", || server.said().contains("encrypted (strict)"));
    let busy = rotate(&new, &old);
    assert!(busy.stderr.contains("another process"), "{}", busy.stderr);
}
