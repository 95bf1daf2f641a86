//! Tests of tables in an encrypted data directory. The random test in `tests/model.rs` also runs over both kinds
//! of directories.
//!
//! A *segment* is a file of column chunks in the data directory.

use super::*;
use crate::Current;
use farpool_cipher::Secret;
use farpool_disk::{
    Codec, CompressionPolicy, MasterKey, TableKey, WrappedKeyId, compressing, read_sealed, rotate_master_key,
    unlock,
};

/// Master key of the tests.
const KEY: [u8; 32] = *b"the master key of the tests, 32b";
const OTHER_KEY: [u8; 32] = *b"another key than that of testing";

fn master(mut key: [u8; 32]) -> MasterKey {
    MasterKey::new(Secret::take(&mut key).unwrap()).unwrap()
}

/// Creates an empty directory.
pub(super) fn new_directory(is_encrypted: bool) -> Arc<SimulatedDirectory> {
    let directory = SimulatedDirectory::new();
    if is_encrypted {
        unlock(directory.clone(), Some(&master(KEY)), Some(Tier::Standard)).unwrap();
    }
    directory
}

/// Unlocks the directory with the master key, if it is encrypted.
pub(super) fn unlocked(directory: &Arc<SimulatedDirectory>) -> Result<Arc<dyn Directory>> {
    let key = directory.open("keys").is_ok().then(|| master(KEY));
    unlock(directory.clone(), key.as_ref(), None)
}

/// Opens a data directory on disk that was written with the master key of the tests (`is_encrypted`) or without one.
pub(super) fn unlocked_local(path: &std::path::Path, is_encrypted: bool) -> Arc<dyn Directory> {
    let key = is_encrypted.then(|| master(KEY));
    unlock(LocalDirectory::open(path).unwrap(), key.as_ref(), None).unwrap()
}

/// Unlocks the directory as [`unlocked`] does. What is written from now on is compressed.
pub(super) fn opened(directory: &Arc<SimulatedDirectory>) -> Result<Arc<dyn Directory>> {
    // The codec depends on the number of files, so that a directory that is opened often gets segments of all codecs.
    let ways = Codec::ALL.map(CompressionPolicy::By);
    let way = ways.get(directory.names().map_or(0, |names| names.len()) % 4).copied();
    Ok(compressing(unlocked(directory)?, way.unwrap_or(CompressionPolicy::None)))
}

#[test]
fn every_byte_of_an_encrypted_directory_is_flipped() {
    flip_every_byte(new_directory(true));
}

const TEXTS: [&str; 4] = ["plainly_named", "a_view_of_it", "select 'what a view says'", "a_new_column"];

/// Creates a directory that has table names, rows and view texts in its manifest, in a segment and in the log.
fn filled(is_encrypted: bool) -> Bench {
    let bench = Bench::over(new_directory(is_encrypted));
    let [table, view, text, column] = TEXTS;
    let create = |name: &str| {
        bench
            .catalog
            .create_view(&tenant(), View::new(self::name(name), text).unwrap(), false)
            .unwrap()
            .wait()
    };
    bench.load(&name(table), LoadMode::Create, batch(0..100_000), None).unwrap();
    create(view).unwrap();
    bench.catalog.checkpoint().unwrap();
    bench.load(&name(table), LoadMode::Append, batch(0..20), None).unwrap();
    let field = Arc::new(arrow_schema::Field::new(column, arrow_schema::DataType::Date32, true));
    let changes = [TableChange::AddColumn(field)];
    bench.catalog.alter_table(&tenant(), &name(table), &changes).unwrap().wait().unwrap();
    create("another").unwrap();
    bench
}

/// Returns the name and the contents of every file of a directory.
pub(super) fn contents(directory: &SimulatedDirectory) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let file = directory.open(&name).unwrap();
        let mut bytes = vec![0; file.bytes().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    directory.names().unwrap().into_iter().map(read).collect()
}

#[test]
fn nothing_of_tables_or_keys_is_in_any_file() {
    let found = |bench: &Bench| {
        let all = contents(&bench.directory);
        let has = |text: &&[u8]| all.iter().any(|(_, bytes)| bytes.windows(text.len()).any(|it| it == *text));
        // The rows are strings, so that files can be searched for them. Files are also searched for the master key,
        // whole and in parts.
        let rows = ["row 17", "default"].map(str::as_bytes);
        let texts = TEXTS.iter().map(|text| text.as_bytes()).chain(rows).chain([&KEY[..16], &KEY[16..]]);
        texts.filter(has).map(|text| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>()
    };
    let plain = found(&filled(false));
    assert!(TEXTS.iter().all(|text| plain.contains(&text.to_string())), "{plain:?}");
    let mut bench = filled(true);
    assert!(found(&bench).is_empty(), "{:?}", found(&bench));
    bench.again(None);
    assert!(found(&bench).is_empty(), "{:?}", found(&bench));
    let (_, table) = bench.catalog.get(&tenant(), &name(TEXTS[0])).unwrap();
    assert_eq!((table.rows, table.schema.field(2).name().as_str()), (100_020, TEXTS[3]));
}

#[test]
fn a_wrong_key_or_none_opens_nothing() {
    let bench = filled(true);
    let before = contents(&bench.directory);
    let wrong = unlock(bench.directory.clone(), Some(&master(OTHER_KEY)), None).unwrap_err();
    assert!(wrong.kind == ErrorKind::Denied && wrong.message.contains("master key is"), "{wrong}");
    let catalog = new_catalog().0;
    let errors = [
        unlock(bench.directory.clone(), None, None).unwrap_err(),
        check_data(&*bench.directory).unwrap_err(),
        catalog.open(bench.directory.clone(), 1).unwrap_err(),
    ];
    for error in errors {
        assert!(error.kind == ErrorKind::Denied && error.message.contains("is encrypted"), "{error}");
    }
    assert!(contents(&bench.directory) == before, "nothing was changed");
    let checked = check_data(&*opened(&bench.directory).unwrap()).unwrap();
    assert_eq!((checked.tables, checked.damaged.len()), (1, 0));
}

#[test]
fn another_master_key_opens_the_same_tables() {
    let mut bench = filled(true);
    bench.catalog.close().unwrap();
    let before = contents(&bench.directory);
    rotate_master_key(&*bench.directory, &master(KEY), &master(OTHER_KEY)).unwrap();
    assert!(unlock(bench.directory.clone(), Some(&master(KEY)), None).is_err());
    let after = contents(&bench.directory);
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
    assert_eq!(changed.map(|((name, _), _)| name.as_str()).collect::<Vec<_>>(), ["keys"]);
    rotate_master_key(&*bench.directory, &master(OTHER_KEY), &master(KEY)).unwrap();
    bench.again(None);
    assert_eq!(bench.catalog.get(&tenant(), &name(TEXTS[0])).unwrap().1.rows, 100_020);
}

fn current(bench: &Bench, table: &str) -> Current {
    bench.catalog.newest(&tenant(), &name(table)).unwrap()
}

/// Returns the ids of the encryption keys of a table and of its tenant.
fn key_ids(bench: &Bench, table: &str) -> (WrappedKeyId, WrappedKeyId) {
    let key = current(bench, table).key.expect("the directory is encrypted");
    (key.wrapped().id(), key.tenant().wrapped().id())
}

#[test]
fn a_table_keeps_its_key_until_another_takes_its_place() {
    let mut bench = Bench::over(new_directory(true));
    for table in ["t", "u"] {
        bench.load(&name(table), LoadMode::Create, batch(0..100_000), None).unwrap();
    }
    let (of_t, of_u) = (key_ids(&bench, "t"), key_ids(&bench, "u"));
    assert!(of_t.0 != of_u.0 && of_t.1 == of_u.1, "tables have keys of their own, under one of their tenant");
    let elsewhere = TenantName::new("another").unwrap();
    let other = bench.catalog.new_table_key(&elsewhere).unwrap().unwrap();
    assert_ne!(other.tenant().wrapped().id(), of_t.1);
    for seed in [None, Some(1)] {
        bench.load(&name("t"), LoadMode::Append, batch(0..10), None).unwrap();
        bench.load(&name("t"), LoadMode::Append, batch(0..100_000), None).unwrap();
        bench.change(&name("t"), false).unwrap();
        bench.alter(&name("t"), &name("v"), seed.is_some());
        bench.background.run();
        bench.again(seed);
        bench.alter(&name("v"), &name("t"), false);
        bench.again(seed);
        bench.check_some("t");
        assert_eq!(key_ids(&bench, "t"), of_t);
    }
    bench.load(&name("t"), LoadMode::Replace, batch(0..10), None).unwrap();
    let replaced = key_ids(&bench, "t");
    assert!(replaced.0 != of_t.0 && replaced.1 == of_t.1);
    let version = current(&bench, "u").version;
    bench.load(&name("u"), LoadMode::ReplaceVersion(version), batch(0..10), None).unwrap();
    assert_ne!(key_ids(&bench, "u").0, of_u.0);
    for seed in [Some(1), None, Some(2)] {
        bench.again(seed);
        assert_eq!(key_ids(&bench, "t"), replaced);
    }
    // The encryption key of a tenant is dropped with its last table.
    for table in ["t", "u"] {
        bench.catalog.drop_table(&tenant(), &name(table)).unwrap().wait().unwrap();
    }
    bench.again(None);
    bench.load(&name("t"), LoadMode::Create, batch(0..10), None).unwrap();
    assert_ne!(key_ids(&bench, "t").1, of_t.1);
}

impl Bench {
    /// Reads all rows of a table, and compares them with the expected ones.
    fn check_some(&self, table: &str) {
        let (_, found) = self.catalog.get(&tenant(), &name(table)).unwrap();
        assert_eq!(values(&found), self.tables[&name(table)]);
    }
}

/// Returns all file contents that can be decrypted with the key of the directory.
fn opened_files(directory: &dyn Directory) -> Vec<u8> {
    let mut all = Vec::new();
    let mut logs = 0;
    for name in directory.names().unwrap() {
        if name.starts_with("manifest") {
            all.extend(read_sealed(directory, &name, checkpoint::FORMAT).unwrap());
        }
        logs += usize::from(name.starts_with("log"));
    }
    assert_eq!(logs, 1, "what was before the checkpoint is gone");
    // Reads all log records that remain, from the oldest one on.
    let is_there = |from: &u64| Log::read(directory, *from, &mut |_, _| Ok(())).is_ok();
    let from = (0..1000).find(is_there).unwrap();
    let mut sink = |_, record: &[u8]| {
        all.extend_from_slice(record);
        Ok(())
    };
    Log::read(directory, from, &mut sink).unwrap();
    all
}

/// A dropped table is unreadable even with the master key, also in segments that are kept for other tables.
#[test]
fn the_key_of_a_dropped_table_is_in_no_file() {
    let mut bench = Bench::over(new_directory(true));
    for (table, rows) in [("t", 200), ("u", 100)] {
        bench.load(&name(table), LoadMode::Create, batch(0..rows), None).unwrap();
    }
    let keys = ["t", "u"].map(|table| current(&bench, table).key.unwrap());
    let chunk = |bench: &Bench, table: &str| {
        let current = current(bench, table);
        let location = Location::existing(&current.table.row_groups[0].chunks[1]).unwrap();
        (location.file().unwrap().number, location.number)
    };
    let has = |bench: &Bench, key: &TableKey| {
        let all = opened_files(&*unlocked(&bench.directory).unwrap());
        let wrapped = key.wrapped().to_bytes();
        all.windows(wrapped.len()).any(|window| window == wrapped)
    };
    assert!(keys.iter().all(|key| has(&bench, key)), "records have them");
    bench.catalog.checkpoint().unwrap();
    assert!(keys.iter().all(|key| has(&bench, key)), "the manifest has them");
    let (of_t, of_u) = (chunk(&bench, "t"), chunk(&bench, "u"));
    assert_eq!(of_t.0, of_u.0, "one segment has both");
    bench.load(&name("t"), LoadMode::Append, batch(0..3), None).unwrap();
    bench.catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    bench.catalog.checkpoint().unwrap();
    assert!(!has(&bench, &keys[0]) && has(&bench, &keys[1]));
    let directory = unlocked(&bench.directory).unwrap();
    let segment = Segment::open(&*directory, of_t.0).unwrap();
    let part = segment.part(of_t.1).unwrap();
    let mut data = vec![0; part.bytes as usize];
    for key in [None, Some(&keys[1])] {
        assert_eq!(segment.read(part, key, &mut data).unwrap_err().kind, ErrorKind::Corrupt);
        assert_eq!(segment.head(part, key).unwrap_err().kind, ErrorKind::Corrupt);
    }
    // The encrypted bytes are still there: this test has kept the key, and can decrypt them.
    segment.read(part, Some(&keys[0]), &mut data).unwrap();
    bench.tables = [(name("u"), (0..100).map(Some).collect())].into();
    bench.again(None);
    bench.check();
    // The key is also gone for a table that was replaced.
    bench.load(&name("u"), LoadMode::Replace, batch(0..10), None).unwrap();
    bench.catalog.checkpoint().unwrap();
    assert!(!has(&bench, &keys[1]));
}

/// Rows that were written under the encryption key of one table cannot become rows of another table.
#[test]
fn a_large_append_to_a_table_that_was_replaced_is_refused() {
    let bench = Bench::over(new_directory(true));
    let t = name("t");
    bench.load(&t, LoadMode::Create, batch(0..10), None).unwrap();
    let rows = batch(0..400_000);
    let [mut late, mut small] = [0, 1].map(|_| bench.begin(&t, LoadMode::Append, &rows).unwrap());
    late.push(&rows).unwrap();
    small.push(&batch(0..5)).unwrap();
    bench.load(&t, LoadMode::Replace, batch(0..10), None).unwrap();
    let error = late.commit().unwrap_err();
    assert!(error.kind == ErrorKind::Stale && error.message.contains("was replaced"), "{error}");
    // Rows that were not written yet can become rows of the other table.
    let refused = small.commit();
    assert!(refused.is_ok_and(|made| made.rows == 15));
}

/// Returns the path of an encrypted directory in the current formats, which later versions must be able to open.
fn kept() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/data-directory/format-1-encrypted")
}

/// Writes the data directory that the next test opens, into another folder than the existing one. Run by hand when a
/// format changes.
#[test]
#[ignore = "writes into testdata"]
fn write_an_encrypted_directory() {
    let bench = Bench::over(new_directory(true));
    bench.load(&name("t"), LoadMode::Create, batch(0..200), None).unwrap();
    bench.catalog.checkpoint().unwrap();
    bench.load(&name("t"), LoadMode::Append, batch(200..220), None).unwrap();
    std::fs::create_dir_all(kept()).unwrap();
    for (name, bytes) in contents(&without_reserve(&bench.directory)) {
        std::fs::write(kept().join(name), bytes).unwrap();
    }
}

#[test]
fn the_encrypted_directory_of_an_earlier_version_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(kept()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let mut expected: Vec<i64> = (0..220).collect();
    for _ in 0..3 {
        let (catalog, _) = new_catalog();
        let directory = unlock(LocalDirectory::open(folder.path()).unwrap(), Some(&master(KEY)), None);
        let recovery = catalog.open(directory.unwrap(), 9).unwrap();
        assert_eq!((recovery.node, recovery.damaged.len()), (7, 0));
        let (_, found) = catalog.get(&tenant(), &name("t")).unwrap();
        assert!(values(&found) == expected.iter().copied().map(Some).collect::<Vec<_>>());
        // The table was created without an encryption key, and stays without one.
        assert!(catalog.newest(&tenant(), &name("t")).unwrap().key.is_none());
        let mut load = catalog
            .begin_load(&tenant(), &name("t"), &batch(0..0).schema(), LoadMode::Append.into(), None)
            .unwrap();
        load.push(&batch(7..100_000)).unwrap();
        load.commit().unwrap();
        expected.extend(7..100_000);
        catalog.close().unwrap();
    }
}
