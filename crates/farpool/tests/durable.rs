//! Tests of nodes and sessions with a data directory: killed, corrupted, opened twice, restarted.

#![expect(clippy::disallowed_methods, reason = "a test has threads of its own")]

use crate::cli_support::*;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of times that a node is killed while clients change its table, unless `FARPOOL_KILLS` is set.
const KILLS: usize = 8;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn serve(data: &Path) -> Server {
    Server::start(&["--data-dir", text(data)])
}

/// Blocks until a node has printed `part` on standard error.
fn tells(server: &Server, part: &str) {
    until(part, || server.said().contains(part));
}

/// Returns the files of a data directory whose names begin with `start`.
fn files(data: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let is_wanted = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(start);
    let mut found: Vec<PathBuf> = entries.filter(is_wanted).collect();
    found.sort();
    found
}

fn flip(file: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn a_node_that_was_killed_has_everything_again() {
    let folder = folder();
    let data = folder.path().join("d");
    let server = serve(&data);
    tells(&server, "0 tables");
    server.load("trips", &trips_parquet(folder.path(), "t.parquet", 200_000));
    server.csv("create table few as select id, city from trips where id < 10");
    server.csv("insert into few values (10, 'Bern')");
    server.csv("update few set city = 'Graz' where id = 3");
    server.csv("delete from few where id = 4");
    server.csv("alter table few rename column city to town");
    server.csv("alter table few rename to some");
    server.csv("create view towns as select count(distinct town) as n from some");
    server.csv("create table gone as select 1 as x");
    server.csv("drop table gone");
    let all = "select count(*), sum(id), sum(fare), min(note), max(price) from trips where city <> 'Rome'";
    let ask = |server: &Server| {
        [all, "select * from some order by id", "select n from towns", "show tables"]
            .map(|sql| server.csv(sql))
    };
    let before = ask(&server);
    assert!(before[1].contains("3,Graz\n5,") && before[1].ends_with("10,Bern\n"), "{}", before[1]);
    let (status, _) = server.stop("KILL");
    assert_eq!(status, None);
    // Starts the node again after the kill, after a clean stop, and after a start that changed nothing.
    for signal in ["TERM", "TERM", "KILL"] {
        let server = serve(&data);
        tells(&server, "2 tables");
        assert_eq!(ask(&server), before);
        server.csv("insert into some values (11, 'Rom')");
        server.csv("delete from some where id = 11");
        let (_, said) = server.stop(signal);
        assert!(!said.contains("error"), "{said}");
    }
    let checked = farpool(&["check", "--data-dir", text(&data)]).ok();
    assert!(checked.contains("2 tables") && !checked.contains("damaged"), "{checked}");
    let json = farpool(&["check", "--data-dir", text(&data), "--format", "json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["tables"].as_u64(), json["damaged"].as_array().unwrap().len()), (Some(2), 0));
}

/// Clients append rows in groups of three and count the acknowledged ones, until the node is killed.
#[test]
fn nothing_acknowledged_is_lost_when_a_node_is_killed_under_load() {
    let folder = folder();
    let data = folder.path().join("d");
    serve(&data).csv("create table t (client int, n int)");
    let acknowledged = Mutex::new([0_usize; 3]);
    let begun = Mutex::new([0_usize; 3]);
    let kills = std::env::var("FARPOOL_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    for round in 0..kills {
        let server = serve(&data);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for client in 0..3 {
                let (server, is_over, acknowledged, begun) = (&server, &is_over, &acknowledged, &begun);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let n = begun.lock().unwrap()[client];
                        begun.lock().unwrap()[client] += 1;
                        let rows =
                            format!("insert into t values ({client}, {n}), ({client}, {n}), ({client}, {n})");
                        if server.run(&["sql", "-c", &rows]).status == Some(0) {
                            acknowledged.lock().unwrap()[client] += 1;
                        }
                    }
                });
            }
            let before = acknowledged.lock().unwrap().iter().sum::<usize>();
            until("some appends", || {
                acknowledged.lock().unwrap().iter().sum::<usize>() > before + 5 + 3 * (round % KILLS)
            });
            signal(&server.child, "KILL");
            is_over.store(true, Ordering::Relaxed);
        });
        drop(server);
        let server = serve(&data);
        let found = server.csv("select client, n, count(*) from t group by all having count(*) <> 3");
        assert_eq!(found.lines().count(), 1, "an append is there as a whole, once, or not at all:\n{found}");
        for client in 0..3 {
            let count = server.csv(&format!("select count(distinct n) from t where client = {client}"));
            let count: usize = count.lines().nth(1).unwrap().parse().unwrap();
            let (told, begun) = (acknowledged.lock().unwrap()[client], begun.lock().unwrap()[client]);
            assert!((told..begun + 1).contains(&count), "{count} appends of {told} that were acknowledged");
        }
    }
}

#[test]
fn damage_costs_the_rows_that_it_hits_and_says_where() {
    let folder = folder();
    let data = folder.path().join("d");
    let server = serve(&data);
    server.load("trips", &trips_parquet(folder.path(), "t.parquet", 200_000));
    server.csv("create table other as select 7 as x");
    let count = server.csv("select count(*) from trips where city = 'Oslo'");
    server.stop("TERM");
    let [segment, ..] = &files(&data, "segment")[..] else { panic!("there is a segment") };
    // Corrupts the first column of the first row group.
    flip(segment, 4096 + 100);
    let damaged = farpool(&["check", "--data-dir", text(&data)]);
    damaged.fails(1, &["1 place"]);
    assert!(
        damaged.stdout.contains("rows 1 to 65536 of column \"id\" of table \"trips\""),
        "{}",
        damaged.stdout
    );
    let server = serve(&data);
    let lost = ["rows 1 to 65536 of column \"id\"", "segment-000000000001", "at byte 4096"];
    server.run(&["sql", "-c", "select sum(id) from trips"]).fails(1, &lost);
    server.run(&["sql", "-c", "select id from trips where fare < 2"]).fails(1, &lost);
    server.run(&["sql", "-c", "update trips set id = id + 1"]).fails(1, &lost);
    // The node serves everything that is not corrupted: other columns, rows and tables.
    assert_eq!(server.csv("select count(*) from trips where city = 'Oslo'"), count);
    assert_eq!(
        server.csv("select min(id), count(*) from trips where id >= 100000"),
        "min(id),count(*)\n100000,100000\n"
    );
    assert_eq!(server.csv("select x from other"), "x\n7\n");
    server.run(&["drop", "trips"]).ok();
    server.stop("TERM");
    assert!(farpool(&["check", "--data-dir", text(&data)]).ok().contains("1 table,"));

    // A manifest (the list of a data directory's files) that is corrupted, or of a later version, prevents the start.
    let [manifest] = &files(&data, "manifest")[..] else { panic!("there is one manifest") };
    let whole = std::fs::read(manifest).unwrap();
    flip(manifest, whole.len() as u64 - 1);
    let refused = |parts: &[&str]| {
        let listen = ["--listen", "127.0.0.1:0"];
        for command in [&["check"][..], &["serve", listen[0], listen[1]]] {
            farpool(&[command, &["--data-dir", text(&data)]].concat()).fails(1, parts);
        }
    };
    refused(&["manifest-", "damaged", "backup"]);
    std::fs::write(manifest, &whole).unwrap();
    let later = File::options().write(true).open(manifest).unwrap();
    later.write_all_at(&9_u32.to_le_bytes(), 8).unwrap();
    refused(&["manifest-", "format 9", "version of farpool"]);
}

#[test]
fn a_data_directory_belongs_to_one_process() {
    let folder = folder();
    let data = folder.path().join("d");
    let server = serve(&data);
    for command in [
        vec!["serve", "--listen", "127.0.0.1:0", "--data-dir", text(&data)],
        vec!["check", "--data-dir", text(&data)],
        vec!["sql", "--data-dir", text(&data), "-c", "select 1"],
    ] {
        let done = farpool(&command);
        assert!(
            done.status != Some(0) && done.stderr.contains("another process"),
            "{command:?}: {}",
            done.stderr
        );
    }
    drop(server);
    let missing = folder.path().join("no/such");
    for command in ["serve", "check"] {
        let done = farpool(&[command, "--data-dir", text(&missing)]);
        assert!(done.status != Some(0) && done.stderr.contains("no/such"), "{}", done.stderr);
    }
    let full = folder.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("notes.txt"), "mine").unwrap();
    farpool(&["check", "--data-dir", text(&full)]).fails(1, &["is not a data directory", "notes.txt"]);
    assert_eq!(std::fs::read(full.join("notes.txt")).unwrap(), b"mine");
}

#[test]
fn statements_find_what_earlier_ones_have_made() {
    let folder = folder();
    let data = folder.path().join("d");
    let file = trips_parquet(folder.path(), "t.parquet", 100_000);
    let sql = |sql: &str| farpool(&["sql", "--format", "csv", "--data-dir", text(&data), "-c", sql]);
    sql(&format!(
        "create table trips as from '{}'; create view n as select count(*) as n from trips",
        text(&file)
    ))
    .ok();
    sql("insert into trips (id) values (-1)").ok();
    sql("update trips set fare = 1 where id = 5; delete from trips where id = 7").ok();
    assert_eq!(sql("select n from n").ok(), "n\n100000\n");
    assert_eq!(
        sql("select min(id), sum(fare) from trips where id < 10").ok(),
        "min(id),sum(fare)\n-1,34.0\n"
    );
    let both =
        farpool(&["sql", "--data-dir", text(&data), "--pool", "farpool://127.0.0.1:1", "-c", "select 1"]);
    assert_eq!(both.status, Some(2), "{}", both.stderr);
    // A node serves the directory that a session has written.
    assert_eq!(serve(&data).csv("select n from n"), "n\n100000\n");
}
