//! Tests of files in an object store and on a web server, through the program: read, loaded and written, with a server
//! that fails in many ways.

#[path = "objects/s3.rs"]
pub mod s3;
#[path = "objects/s3_request.rs"]
mod s3_request;

use crate::cli_support::*;
use s3::{Fault, S3};
use std::io::Write;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Sets the environment variables that lead to `store`, and removes those of other stores.
pub fn environment_of(command: &mut std::process::Command, store: &S3) {
    for (name, _) in std::env::vars() {
        if ["AWS_", "GOOGLE_", "AZURE_", "HTTP_", "http_"].iter().any(|start| name.starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.envs(store.environment());
}

/// Runs the program with the environment variables that lead to `store`, changed by `others`.
fn with(store: &S3, others: &[(&str, &str)], args: &[&str]) -> Done {
    let mut command = program(args);
    environment_of(&mut command, store);
    command.envs(others.iter().copied());
    for (name, _) in others.iter().filter(|(_, value)| value.is_empty()) {
        command.env_remove(name);
    }
    Running::start(command).wait()
}

fn csv(store: &S3, sql: &str) -> String {
    with(store, &[], &["sql", "--format", "csv", "-c", sql]).ok()
}

/// Puts four Parquet files of 20,000 rows each into `bucket/x/`; returns their bytes.
fn four_files(store: &S3) -> u64 {
    let folder = folder();
    let file = std::fs::read(trips_parquet(folder.path(), "t.parquet", 20_000)).unwrap();
    (0..4).for_each(|i| store.put(&format!("bucket/x/part-{i}.parquet"), file.clone()));
    store.put("bucket/x/deep/part-5.parquet", file.clone());
    store.put("bucket/x/note.txt", "no rows");
    4 * file.len() as u64
}

#[test]
fn rows_are_counted_and_columns_read_without_the_others() {
    let store = S3::start();
    let bytes = four_files(&store);
    let all = "'s3://bucket/x/*.parquet'";
    assert_eq!(csv(&store, &format!("select count(*) from {all}")), "count(*)\n80000\n");
    let (served, requests) = (store.bytes_served(), store.requests());
    assert!(served <= 4 * (64 << 10) && served < bytes / 2, "{served} of {bytes}: footers only");
    assert!(requests <= 2 + 4, "{requests}: a list in pages, and the end of each file");
    let sums = csv(&store, &format!("select sum(fare), count(distinct city) from {all} where id < 10"));
    assert_eq!(sums.lines().nth(1).unwrap(), "180.0,3");
    let served = store.bytes_served();
    assert!(served < bytes / 2 + 4 * (64 << 10), "{served} of {bytes}: three columns of six");
    let first = csv(&store, &format!("select id from {all} limit 2"));
    assert_eq!(first, "id\n0\n1\n");
    assert_eq!(csv(&store, "select count(*) from 's3://bucket/x/**/*.parquet'"), "count(*)\n100000\n");
    assert_eq!(csv(&store, "select count(*) from 's3://bucket/x/part-{0,2}.parquet'"), "count(*)\n40000\n");
    assert_eq!(csv(&store, "select count(*) from 's3://bucket/x'"), "count(*)\n100000\n");
    let url = format!("http://{}/bucket/x/part-0.parquet", store.address);
    assert_eq!(csv(&store, &format!("select max(id) as m from '{url}'")), "m\n19999\n");
}

#[test]
fn every_format_gives_the_rows_of_a_local_file() {
    let (store, folder) = (S3::start(), folder());
    let path = |name: &str| folder.path().join(name);
    let csv_file = std::fs::read(trips_csv(folder.path(), "t.csv", 60_000)).unwrap();
    std::fs::write(path("t.csv.gz"), gzip(&csv_file)).unwrap();
    std::fs::write(path("t.csv.zst"), zstd::encode_all(&csv_file[..], 1).unwrap()).unwrap();
    let json: String = (0..60_000).map(|i| format!("{{\"id\": {i}, \"city\": \"Oslo\"}}\n")).collect();
    std::fs::write(path("t.json.gz"), gzip(json.as_bytes())).unwrap();
    trips_arrow(folder.path(), "t.arrow", 60_000);
    trips_parquet(folder.path(), "t.parquet", 60_000);
    for name in ["t.csv", "t.csv.gz", "t.csv.zst", "t.json.gz", "t.arrow", "t.parquet"] {
        store.put(&format!("bucket/{name}"), std::fs::read(path(name)).unwrap());
        let sql = |from: &str| format!("select count(*), sum(id), min(city), max(city) from '{from}'");
        let expected = sql_csv(&sql(text(&path(name))));
        assert_eq!(csv(&store, &sql(&format!("s3://bucket/{name}"))), expected, "{name}");
        assert_eq!(csv(&store, &sql(&format!("http://{}/bucket/{name}", store.address))), expected, "{name}");
    }
    // A web server that ignores requests for byte ranges.
    store.serve_no_ranges();
    for name in ["t.parquet", "t.csv"] {
        let url = format!("http://{}/bucket/{name}", store.address);
        assert_eq!(csv(&store, &format!("select count(*) as n from '{url}'")), "n\n60000\n");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_table_is_loaded_and_exported_again() {
    let (store, server) = (S3::start(), Server::start(&[]));
    four_files(&store);
    with(&store, &[], &["load", "--pool", &server.url, "t", "s3://bucket/x/*.parquet"]).ok();
    assert_eq!(server.csv("select count(*) as n from t"), "n\n80000\n");
    for name in ["t.parquet", "t.csv.gz", "t.arrow", "t.json"] {
        let url = format!("s3://bucket/out/{name}");
        with(&store, &[], &["export", "--pool", &server.url, "t", &url]).ok();
        let found = csv(&store, &format!("select count(*) as n, sum(id) as s from '{url}'"));
        assert_eq!(found, "n,s\n80000,799960000\n", "{name}");
    }
    // An object that is larger than one part of an upload.
    let rows =
        "select a.id, b.id as other, a.id * b.id as product from t a, (select id from t where id < 20) b";
    with(&store, &[], &["export", "--pool", &server.url, "--query", rows, "s3://bucket/out/large.csv"]).ok();
    let large = store.get("bucket/out/large.csv").unwrap();
    assert!(large.len() > 40 << 20, "{}", large.len());
    assert_eq!(large.iter().filter(|byte| **byte == b'\n').count(), 80_000 * 80 + 1);
    assert_eq!(store.open_uploads(), 0);
}

#[test]
fn an_export_that_fails_leaves_nothing() {
    let store = S3::start();
    store.put("bucket/kept.csv", "before");
    let rows =
        "select x, case when x < 8000000 then 1 else 1 / (x - 8000000) end from range(0, 9000000) t(x)";
    let copy = format!("copy ({rows}) to 's3://bucket/kept.csv'");
    let failed = with(&store, &[], &["sql", "-c", &copy]);
    assert_ne!(failed.status, Some(0), "{}", failed.stdout);
    assert_eq!(store.get("bucket/kept.csv").unwrap(), b"before");
    assert_eq!((store.names().len(), store.open_uploads()), (1, 0));
    let wrong = [("AWS_ACCESS_KEY_ID", "another")];
    let copy = "copy (select 1 as x) to 's3://bucket/new.csv'";
    with(&store, &wrong, &["sql", "-c", copy]).fails(3, &["s3://bucket/new.csv", "InvalidAccessKeyId"]);
    with(&store, &[], &["sql", "-c", "copy (select 1 as x) to 's3://bucket/'"])
        .fails(1, &["names no format"]);
    let web = format!("copy (select 1 as x) to 'http://{}/bucket/new.csv'", store.address);
    with(&store, &[], &["sql", "-c", &web]).fails(1, &["only read from"]);
    assert_eq!(store.names().len(), 1);
}

#[test]
fn what_fails_for_a_moment_is_asked_for_again() {
    let store = S3::start();
    four_files(&store);
    let sql = "select count(*) as n, sum(id) as s, max(note) as m from 's3://bucket/x/*.parquet'";
    let expected = csv(&store, sql);
    for fault in [Fault::EveryThird, Fault::CutOff(10_000)] {
        store.set_fault(fault);
        assert_eq!(csv(&store, sql), expected, "{fault:?}");
    }
    store.set_fault(Fault::EveryThird);
    csv(&store, "copy (select 7 as x) to 's3://bucket/seven.csv'");
    assert_eq!(store.get("bucket/seven.csv").unwrap(), b"x\n7\n");
}

#[test]
fn what_does_not_work_is_said() {
    let store = S3::start();
    four_files(&store);
    let count = |url: &str| format!("select count(*), max(id) from '{url}'");
    let one = "s3://bucket/x/part-0.parquet";
    let fails = |others: &[(&str, &str)], url: &str, status: i32, parts: &[&str]| {
        with(&store, others, &["sql", "-c", &count(url)]).fails(status, parts);
    };
    fails(
        &[("AWS_ACCESS_KEY_ID", "other")],
        one,
        3,
        &[one, "denies access", "InvalidAccessKeyId", "AWS_SECRET_ACCESS_KEY"],
    );
    fails(&[], "s3://private/a.csv", 3, &["s3://private/a.csv", "denies access"]);
    fails(&[], "s3://missing/a/*.csv", 1, &["no bucket s3://missing"]);
    fails(&[], "s3://bucket/x/part-9.parquet", 1, &["no file s3://bucket/x/part-9.parquet"]);
    fails(&[], "s3://bucket/x/*.csv", 1, &["no file matches s3://bucket/x/*.csv"]);
    fails(&[("AWS_ENDPOINT_URL", "http://127.0.0.1:9")], one, 3, &[one, "cannot be reached", "refused"]);
    fails(&[("AWS_ALLOW_HTTP", "")], one, 1, &["without TLS", "AWS_ALLOW_HTTP"]);
    fails(&[], "ftp://host/x.csv", 1, &["no scheme of files"]);
    fails(&[], &format!("http://{}/bucket/none.csv?sign=secret", store.address), 1, &["no file http://"]);
    // Public objects can be read without credentials.
    let nobody = [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")];
    with(&store, &nobody, &["sql", "-c", &count(one)]).ok();
    store.put("bucket/bad.parquet", "PAR1 is not enough PAR1");
    fails(&[], "s3://bucket/bad.parquet", 1, &["s3://bucket/bad.parquet", "damaged"]);
    store.put("bucket/empty.csv", "");
    fails(&[], "s3://bucket/empty.csv", 1, &["s3://bucket/empty.csv is empty"]);
    store.set_fault(Fault::CutOff(0));
    store.set_fault(Fault::Changes);
    fails(&[], one, 3, &["part-0.parquet has changed while it was read"]);
}

#[test]
fn a_server_that_is_silent_is_given_up() {
    let store = S3::start();
    four_files(&store);
    store.set_fault(Fault::Silence);
    let soon = [("AWS_READ_TIMEOUT", "200 ms"), ("AWS_TIMEOUT", "300 ms")];
    let sql = "select count(*) from 's3://bucket/x/part-0.parquet'";
    with(&store, &soon, &["sql", "-c", sql])
        .fails(3, &["part-0.parquet cannot be reached", "AWS_ENDPOINT_URL"]);
}

#[test]
fn a_file_that_has_changed_is_read_again() {
    let store = S3::start();
    store.put("bucket/a.csv", "x\n1\n2\n");
    let sql = "select sum(x) as s from 's3://bucket/a.csv'";
    assert_eq!(csv(&store, sql), "s\n3\n");
    store.change("bucket/a.csv", |bytes| bytes.extend(b"3\n"));
    assert_eq!(csv(&store, sql), "s\n6\n");
}
