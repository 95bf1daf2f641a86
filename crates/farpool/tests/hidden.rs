//! Tests of tables that are encrypted in memory: results equal those of unencrypted tables, and no value is found in
//! the memory of the node.

use crate::cli_support::{Server, farpool as program, text, until};
use crate::support::pools::{self, Pools, Way};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use farpool::{LoadMode, LoadOptions, Tier};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROWS: i64 = 300_000;

/// The beginning of every string in the tables. It occurs nowhere else in the memory of a process.
const SECRET: &str = "nobody is to find this, number ";

fn rows() -> RecordBatch {
    let ids = || 0..ROWS;
    let scattered = |id: i64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
    let texts = ids().map(|id| format!("{SECRET}{:016x}", scattered(id)));
    let few = ids().map(|id| format!("{SECRET}{}", scattered(id) & 3));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids()))),
        ("key", Arc::new(Int64Array::from_iter_values(ids().map(|id| scattered(id) >> 50)))),
        ("value", Arc::new(Int64Array::from_iter(ids().map(|id| (id % 9 > 0).then(|| scattered(id)))))),
        ("text", Arc::new(StringViewArray::from_iter_values(texts))),
        ("few", Arc::new(StringViewArray::from_iter_values(few))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

const QUERIES: [&str; 10] = [
    "select count(*), min(id), max(id), min(text), max(few) from t",
    "select sum(value % 1000), count(distinct key), count(value) from t",
    "select few, count(*), max(text), sum(id) from t group by few order by few",
    "select key % 10 as k, count(*), sum(value % 1000) from t where text > 'nobody is to find this, number 8' group by k order by k",
    "select id, text from t where text like '%ffff%' order by id",
    "select * from t order by value desc nulls last limit 20",
    "select count(*) from t a join t b on a.id = b.key where b.value > 0",
    "select b.few, count(*), max(b.text) from t a join t b on a.id = b.id where b.id < 20000 group by b.few order by 1",
    "select sum(id) from t where value * 1.0 > 9.2e18",
    "select id, few from t where id between 40000 and 40020 and key is not null order by id",
];

fn pretty(batches: &[RecordBatch]) -> String {
    arrow::util::pretty::pretty_format_batches(batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_tables_in_the_clear() {
    let changes = [
        "delete from t where id % 7 = 3",
        "update t set few = text where id < 90000",
        "insert into t select id, key, value, text, few from t where id < 100",
    ];
    for tier in Tier::ALL {
        let (clear, hidden) = (Pools::start(1 << 30).await, Pools::start(1 << 30).await);
        for (pools, encryption) in [(&clear, None), (&hidden, Some(tier))] {
            let (rows, options) = (rows(), LoadOptions { encryption, ..LoadMode::Replace.into() });
            let made = pools::load_with(&*pools.embedded, "t", rows.schema(), vec![rows], options).await;
            assert_eq!(made.encryption, encryption);
        }
        for change in [None].into_iter().chain(changes.map(Some)) {
            let expected = clear.session(Way::Embedded, true).await;
            if let Some(change) = change {
                for pools in [&clear, &hidden] {
                    let session = pools.session(Way::Remote, true).await;
                    session.sql(change).await.unwrap().collect().await.unwrap();
                }
            }
            for (way, pushdown) in [(Way::Embedded, true), (Way::Remote, true), (Way::Remote, false)] {
                let session = hidden.session(way, pushdown).await;
                for sql in QUERIES {
                    let found = session.sql(sql).await.unwrap().collect().await;
                    let found = found.unwrap_or_else(|error| panic!("{sql}: {error}"));
                    let expected = expected.sql(sql).await.unwrap().collect().await.unwrap();
                    assert_eq!(pretty(&found), pretty(&expected), "{sql} {way:?} {pushdown} {change:?}");
                }
            }
        }
    }
}

fn file(folder: &Path) -> PathBuf {
    let (path, rows) = (folder.join("t.arrow"), rows());
    let file = File::create(&path).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &rows.schema()).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    path
}

/// Returns the number of times that a text occurs in the memory of a process.
fn found(process: u32, text: &str) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mut memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let finder = memchr::memmem::Finder::new(text.as_bytes());
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let at = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let mut bytes = vec![0; (at(end) - at(start)) as usize];
        // Some memory regions of a process cannot be read.
        if memory.seek(SeekFrom::Start(at(start))).is_ok() && memory.read_exact(&mut bytes).is_ok() {
            found += finder.find_iter(&bytes).count();
        }
    }
    found
}

#[test]
fn nothing_of_an_encrypted_table_is_in_the_memory_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path());
    let key = folder.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let data = folder.path().join("d");
    let kept = ["--data-dir", text(&data), "--master-key-file", text(&key), "--memory", "24MiB"];
    let serve = |options: &[&str], more: &[&str]| {
        let server = Server::start(options);
        let load = [&["load", "--pool", &server.url], more, &["t", text(&file)]].concat();
        let said = program(&load).ok();
        (server, said)
    };
    let ask = |server: &Server| {
        for sql in &QUERIES[..9] {
            server.csv(sql);
        }
        server.csv("delete from t where id % 7 = 3");
        server.csv("update t set few = text where id < 70000");
        server.csv("select few, count(*) from t group by few order by 2 desc limit 3");
    };
    // The search must find the strings of a table that is not encrypted in memory; otherwise finding none would mean
    // nothing.
    let (clear, _) = serve(&[], &[]);
    ask(&clear);
    assert!(found(clear.child.id(), SECRET) > 0);
    drop(clear);
    // The node frees the memory of its last clients once it has noticed that they are gone.
    let nothing_is_left =
        |server: &Server| until("nothing to be left", || found(server.child.id(), SECRET) == 0);
    for options in [&[][..], &kept] {
        let (hidden, said) = serve(options, &["--encrypt", "standard"]);
        assert!(said.contains("encrypted in memory: standard"), "{said}");
        ask(&hidden);
        nothing_is_left(&hidden);
        hidden.stop("KILL");
    }
    // The strings are not found after a restart either, when the table is read from the log and from segments.
    let hidden = Server::start(&kept);
    ask(&hidden);
    nothing_is_left(&hidden);
    hidden.stop("TERM");
    let hidden = Server::start(&kept);
    ask(&hidden);
    nothing_is_left(&hidden);
    let described = hidden.run(&["tables", "t"]).ok();
    assert!(described.contains("encrypted in memory: standard"), "{described}");
}

#[test]
fn an_encrypted_table_needs_a_directory_that_is_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path());
    let server = Server::start(&["--data-dir", text(&folder.path().join("d"))]);
    let refused = server.run(&["load", "--encrypt", "standard", "t", text(&file)]);
    refused.fails(1, &["in the clear"]);
    let wrong = server.run(&["load", "--encrypt", "rot13", "t", text(&file)]);
    wrong.fails(2, &["fast, standard, strict"]);
}
