//! Tests of compressed data directories: by each codec, encrypted and not, and by several codecs in succession.

use crate::cli_support::*;
use std::path::Path;

/// A table whose encoded chunks can still be compressed: texts and numbers that repeat in runs.
const MAKE: &str = "create table t as select value as n, (value / 3000) * 7919 % 9973 as runs, \
    'row ' || (value / 100)::text || ' of a table that repeats itself' as said from generate_series(1, 300000)";

/// Returns the total size of the segments in a data directory, in bytes.
fn segment_bytes(data: &Path) -> u64 {
    let files = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap());
    let segments = files.filter(|file| file.file_name().to_string_lossy().starts_with("segment"));
    segments.map(|file| file.metadata().unwrap().len()).sum()
}

#[test]
fn tables_are_compressed_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let query = "select count(*), sum(n), sum(runs), min(said), max(said), count(distinct said) from t";
    let run = |data: &Path, more: &[&str], command: &[&str]| {
        farpool(&[command, &["--data-dir", text(data)], more].concat()).ok()
    };
    let (mut expected, mut sizes) = (None, Vec::new());
    for key in [&[][..], &["--master-key-file", text(&key)]] {
        for how in ["none", "lz4", "zstd", "deflate", "auto"] {
            let data = folder.path().join(format!("{how}-{}", key.len()));
            run(&data, &[key, &["--compression", how]].concat(), &["sql", "-c", MAKE]);
            // The command that reads the compressed data does not name the codec.
            let found = run(&data, key, &["sql", "--format", "csv", "-c", query]);
            assert_eq!(found, *expected.get_or_insert_with(|| found.clone()), "{how}");
            let checked = run(&data, key, &["check"]);
            let is_told = checked.contains("compressed to");
            assert!(how == "auto" || is_told == (how != "none"), "{checked}");
            sizes.push(segment_bytes(&data));
        }
    }
    for sizes in sizes.chunks(5) {
        assert!(sizes[1..4].iter().all(|size| *size < sizes[0] / 2), "{sizes:?}");
    }
}

/// A data directory whose segments were written with different codecs serves all of them, and reports the bytes that
/// are read from disk.
#[test]
fn segments_of_all_kinds_stand_in_one_directory() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d");
    let on = |more: &[&str], statement: &str| {
        let receipt = folder.path().join("r.json");
        let common = [
            "sql",
            "--format",
            "csv",
            "-c",
            statement,
            "--data-dir",
            text(&data),
            "--receipt",
            text(&receipt),
        ];
        let out = farpool(&[&common, more].concat()).ok();
        (out, std::fs::read_to_string(receipt).unwrap())
    };
    for (table, how) in [("a", "none"), ("b", "lz4"), ("c", "zstd"), ("d", "deflate")] {
        on(&["--compression", how], &MAKE.replace("table t as", &format!("table {table} as")));
    }
    let mut answers = Vec::new();
    for table in ["a", "b", "c", "d"] {
        let (answer, _) = on(&[], &format!("select sum(n), max(said) from {table}"));
        answers.push(answer);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    farpool(&["sql", "-c", "select 1", "--compression", "lz4"]).fails(2, &["--data-dir"]);
    farpool(&["sql", "-c", "select 1", "--data-dir", text(&data), "--compression", "gzip"])
        .fails(2, &["auto", "none", "lz4", "deflate"]);
}
