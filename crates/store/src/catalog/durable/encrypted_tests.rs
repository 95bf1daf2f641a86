//! Tables in an encrypted directory. The random test beside this one runs over both kinds.

use super::*;
use farpool_cipher::Secret;
use farpool_disk::{Codec, MasterKey, Packing, compressing, rotate_master_key, unlock};

/// The bytes of the master keys that the tests have.
const KEY: [u8; 32] = *b"the master key of the tests, 32b";
const OTHER_KEY: [u8; 32] = *b"another key than that of testing";

fn master(mut key: [u8; 32]) -> MasterKey {
    MasterKey::new(Secret::take(&mut key).unwrap()).unwrap()
}

/// An empty directory.
pub(super) fn new_directory(is_encrypted: bool) -> Arc<SimulatedDirectory> {
    let directory = SimulatedDirectory::new();
    if is_encrypted {
        unlock(directory.clone(), Some(&master(KEY)), Some(Tier::Standard)).unwrap();
    }
    directory
}

/// The directory with its key, if it is encrypted.
pub(super) fn unlocked(directory: &Arc<SimulatedDirectory>) -> Result<Arc<dyn Directory>> {
    let key = directory.open("keys").is_ok().then(|| master(KEY));
    unlock(directory.clone(), key.as_ref(), None)
}

/// A folder that has been written with the same key, or without.
pub(super) fn unlocked_local(path: &std::path::Path, is_encrypted: bool) -> Arc<dyn Directory> {
    let key = is_encrypted.then(|| master(KEY));
    unlock(LocalDirectory::open(path).unwrap(), key.as_ref(), None).unwrap()
}

/// As [`unlocked`]; what is written from now on is compressed.
pub(super) fn opened(directory: &Arc<SimulatedDirectory>) -> Result<Arc<dyn Directory>> {
    // A directory that is opened often has segments of all kinds.
    let ways = Codec::ALL.map(Packing::By);
    let way = ways.get(directory.names().map_or(0, |names| names.len()) % 4).copied();
    Ok(compressing(unlocked(directory)?, way.unwrap_or(Packing::None)))
}

#[test]
fn every_byte_of_an_encrypted_directory_is_flipped() {
    flip_every_byte(Bench::over(new_directory(true)));
}

const TEXTS: [&str; 4] = ["plainly_named", "a_view_of_it", "select 'what a view says'", "a_new_column"];

/// A directory with names, rows and texts in its manifest, in a segment and in the log.
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

/// Every file of a directory.
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
        // Rows are texts, and a key could stand there as a whole or in part.
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

/// The encrypted directory that the current formats have left, so that later versions open it.
fn kept() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/data-directory/format-1-encrypted")
}

/// Writes the directory that the next test opens: to be run when a format changes, into another folder.
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
    for _ in 0..2 {
        let (catalog, _) = new_catalog();
        let directory = unlock(LocalDirectory::open(folder.path()).unwrap(), Some(&master(KEY)), None);
        let recovery = catalog.open(directory.unwrap(), 9).unwrap();
        assert_eq!((recovery.node, recovery.damaged.len()), (7, 0));
        let (_, found) = catalog.get(&tenant(), &name("t")).unwrap();
        assert!(values(&found) == (0..220).map(Some).collect::<Vec<_>>());
        catalog.close().unwrap();
    }
}
