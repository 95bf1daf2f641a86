//! Tests of backups of running nodes, and of data directories restored from them.

#![expect(clippy::disallowed_methods, reason = "a test has threads of its own")]

use crate::cli_support::*;
use crate::keys::{ask, connect};
use crate::objects::{environment_of, s3::S3};
use farpool::{ClientOptions, ErrorKind, Pool, RemotePool, TableName};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

fn serve(data: &Path) -> Server {
    Server::start(&["--data-dir", text(data)])
}

fn backup(server: &Server, target: &Path) -> Done {
    farpool(&["backup", "--pool", &server.url, text(target)])
}

fn restore(source: &Path, data: &Path) -> Done {
    farpool(&["restore", text(source), "--data-dir", text(data)])
}

#[test]
fn a_backup_of_an_encrypted_directory_is_encrypted_and_needs_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let (data, target, again) = (folder.path().join("d"), folder.path().join("b"), folder.path().join("d2"));
    let keys = ["one", "two"].map(|name| {
        let file = folder.path().join(name);
        std::fs::write(&file, if name == "one" { "1f".repeat(32) } else { "2e".repeat(32) }).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        file
    });
    let resp = ["--resp", "127.0.0.1:0"];
    let server = Server::start(
        &[&["--data-dir", text(&data), "--master-key-file", text(&keys[0])][..], &resp].concat(),
    );
    server.load("trips", &trips_parquet(folder.path(), "t.parquet", 100_000));
    let expected = server.csv(ALL);
    ask(&mut connect(&server), "SET a 1\r\n", "+OK\r\n");
    backup(&server, &target).ok();
    for file in std::fs::read_dir(&target).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"Z\xc3\xbcric" || window == b"note n"));
    }
    let with = |key: &Path| {
        farpool(&["restore", text(&target), "--data-dir", text(&again), "--master-key-file", text(key)])
    };
    restore(&target, &again).fails(3, &["is encrypted", "--master-key-file"]);
    with(&keys[1]).fails(3, &["key"]);
    with(&keys[0]).ok();
    let restored = Server::start(
        &[&["--data-dir", text(&again), "--master-key-file", text(&keys[0])][..], &resp].concat(),
    );
    assert_eq!(restored.csv(ALL), expected);
    ask(&mut connect(&restored), "GET a\r\n", "$1\r\n1\r\n");
}

/// Returns the files in `folder` whose names contain `part`.
fn files(folder: &Path, part: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|path| text(path).contains(part)).collect();
    found.sort();
    found
}

const ALL: &str =
    "select count(*), sum(id), sum(fare), min(note), max(price) from trips where city <> 'Rome'";

#[test]
fn a_backup_of_a_busy_node_has_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (data, target, again) = (folder.path().join("d"), folder.path().join("b"), folder.path().join("d2"));
    let server = serve(&data);
    let file = trips_parquet(folder.path(), "t.parquet", 300_000);
    server.load("trips", &file);
    server.csv("create view cities as select distinct city from trips");
    server.csv("create table pairs as select 1 as a, 1 as b");
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                server.csv("insert into pairs select max(a) + 1, max(b) + 1 from pairs");
                farpool(&["load", "--pool", &server.url, "--replace", "other", text(&file)]).ok();
                farpool(&["drop", "--pool", &server.url, "other"]).ok();
            }
        });
        for _ in 0..3 {
            backup(&server, &target).ok();
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    let said = restore(&target, &again).ok();
    assert!(said.contains("d2") && said.contains("table"), "{said}");
    let restored = serve(&again);
    assert_eq!(restored.csv(ALL), server.csv(ALL));
    assert_eq!(restored.csv("select count(*) as n from cities"), "n\n3\n");
    let pairs = restored.csv("select count(*) = max(a), max(a) = max(b), sum(a) = sum(b) from pairs");
    assert_eq!(pairs.lines().nth(1).unwrap(), "true,true,true", "a change is there or not");
    restored.csv("insert into trips select * from trips limit 5");
    // Later backups remove the files of dropped tables, until only the files of the newest backup remain.
    until("files that are not needed went", || {
        farpool(&["backup", "--pool", &server.url, text(&target)]).ok();
        files(&data, "segment-").len() == files(&target, "segment-").len()
    });
    assert!(files(&target, ".part").is_empty());
}

#[test]
fn only_what_is_new_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (data, target) = (folder.path().join("d"), folder.path().join("b"));
    let server = serve(&data);
    server.load("trips", &trips_parquet(folder.path(), "t.parquet", 300_000));
    let first = backup(&server, &target).ok();
    let before: Vec<_> =
        files(&target, "segment-").iter().map(|path| path.metadata().unwrap().modified().unwrap()).collect();
    assert!(!before.is_empty(), "{first}");
    server.load("more", &trips_parquet(folder.path(), "m.parquet", 100_000));
    let second = backup(&server, &target).ok();
    let sent = second.split("; ").nth(1).unwrap().to_string();
    assert!(sent.starts_with("2 files sent") || sent.starts_with("3 files sent"), "{second}");
    let after: Vec<_> =
        files(&target, "segment-").iter().map(|path| path.metadata().unwrap().modified().unwrap()).collect();
    assert!(before.iter().all(|time| after.contains(time)) && after.len() > before.len());
    assert!(backup(&server, &target).ok().contains("; 0 files sent"));
    // A corrupted file in the backup is sent again.
    let segment = &files(&target, "segment-")[0];
    let mut bytes = std::fs::read(segment).unwrap();
    bytes[9000] ^= 1;
    std::fs::write(segment, bytes).unwrap();
    assert!(backup(&server, &target).ok().contains("; 1 file sent"));
    restore(&target, &folder.path().join("d2")).ok();
}

#[test]
fn damage_is_named_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (data, target, again) = (folder.path().join("d"), folder.path().join("b"), folder.path().join("d2"));
    let server = serve(&data);
    server.load("trips", &trips_parquet(folder.path(), "t.parquet", 100_000));
    backup(&server, &target).ok();
    let there = files(&target, "");
    assert_eq!(files(&target, "backup.json").len(), 1);
    for file in &there {
        let name = file.file_name().unwrap().to_str().unwrap();
        let whole = std::fs::read(file).unwrap();
        for at in [0, whole.len() / 2, whole.len() - 2] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(file, &bytes).unwrap();
            restore(&target, &again).fails(1, &[name]);
        }
        std::fs::write(file, &whole[..whole.len() - 1]).unwrap();
        restore(&target, &again).fails(1, &[name]);
        std::fs::remove_file(file).unwrap();
        restore(&target, &again).fails(1, &[name]);
        std::fs::write(file, &whole).unwrap();
        assert!(!again.exists() && files(folder.path(), ".part").is_empty(), "{name}");
    }
    std::fs::create_dir(&again).unwrap();
    std::fs::write(again.join("x"), "x").unwrap();
    restore(&target, &again).fails(1, &["d2 is not empty"]);
    std::fs::remove_file(again.join("x")).unwrap();
    restore(&target, &again).ok();
    restore(folder.path(), &folder.path().join("d3")).fails(1, &["no backup in", "backup.json"]);
    // A restored data directory has an id of its own, so that a backup of it does not overwrite the backup from which
    // it was restored.
    let restored = serve(&again);
    assert_eq!(restored.csv(ALL), server.csv(ALL));
    backup(&restored, &target).fails(1, &["backup of another data directory"]);
    backup(&restored, &folder.path().join("b2")).ok();
    // A node without a data directory cannot be backed up.
    let in_memory = Server::start(&[]);
    backup(&in_memory, &folder.path().join("b3")).fails(1, &["no data directory", "--data-dir"]);
}

#[test]
fn only_admins_back_up() {
    let folder = tempfile::tempdir().unwrap();
    let (tokens, data) = (Tokens::new(folder.path()), folder.path().join("d"));
    let [writer, admin] = ["write", "admin"].map(|role| tokens.add("ann", role));
    let server = Server::start(&["--data-dir", text(&data), "--access", text(&tokens.path)]);
    let target = folder.path().join("b");
    let with = |token: &str| farpool(&["backup", "--pool", &server.url, "--token", token, text(&target)]);
    with(&writer).fails(3, &["right to admin"]);
    assert!(files(&target, "").is_empty());
    with(&admin).ok();
    restore(&target, &folder.path().join("d2")).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_stay_while_a_backup_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d");
    let server = serve(&data);
    server.load("trips", &trips_parquet(folder.path(), "t.parquet", 300_000));
    let connect = || async {
        RemotePool::connect(&server.url.parse().unwrap(), ClientOptions::default()).await.unwrap()
    };
    let (one, other) = (connect().await, connect().await);
    let backup = one.begin_backup().await.unwrap();
    let names: Vec<_> = backup.files().files.clone();
    assert!(names.iter().filter(|file| file.name.starts_with("segment-")).count() > 0);
    other.drop_table(&TableName::new("trips").unwrap()).await.unwrap();
    let empty = other.begin_backup().await.unwrap();
    assert_eq!(empty.files().files.len(), 1, "the manifest of no tables");
    for file in &names {
        for offset in (0..file.bytes).step_by(1 << 20) {
            let part = backup.read(&file.name, file.bytes, offset).await.unwrap();
            assert!(!part.is_empty());
        }
    }
    let error = backup.read("segment-999999999999", 10, 0).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    let error = empty.read(&names[0].name, 10, 0).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound, "a file of another backup");
    assert_eq!(files(&data, "segment-").len(), names.len() - 1);
    drop((backup, one));
    until("the files are gone with the connection", || files(&data, "segment-").is_empty());
}

#[test]
fn an_object_store_has_backups_too() {
    let (store, folder) = (S3::start(), tempfile::tempdir().unwrap());
    let (data, again) = (folder.path().join("d"), folder.path().join("d2"));
    let server = serve(&data);
    server.load("trips", &trips_parquet(folder.path(), "t.parquet", 300_000));
    let run = |args: &[&str]| {
        let mut command = program(args);
        environment_of(&mut command, &store);
        Running::start(command).wait()
    };
    let target = "s3://bucket/backups/node";
    run(&["backup", "--pool", &server.url, target]).ok();
    assert!(store.names().iter().all(|name| name.starts_with("bucket/backups/node/")));
    assert!(run(&["backup", "--pool", &server.url, target]).ok().contains("; 0 files sent"));
    run(&["restore", target, "--data-dir", text(&again)]).ok();
    assert_eq!(serve(&again).csv(ALL), server.csv(ALL));
    let web = format!("http://{}/bucket/backups/node/", store.address);
    run(&["restore", &web, "--data-dir", text(&folder.path().join("d3"))]).ok();
    run(&["backup", "--pool", &server.url, &web]).fails(1, &["only read from"]);
    let segment = store.names().into_iter().find(|name| name.contains("segment-")).unwrap();
    store.change(&segment, |bytes| bytes[5000] ^= 1);
    let damaged = run(&["restore", target, "--data-dir", text(&folder.path().join("d4"))]);
    damaged.fails(1, &[&segment.replace("bucket/", "s3://bucket/"), "damaged"]);
    assert!(run(&["backup", "--pool", &server.url, target]).ok().contains("; 1 file sent"));
    run(&["restore", target, "--data-dir", text(&folder.path().join("d4"))]).ok();
}
