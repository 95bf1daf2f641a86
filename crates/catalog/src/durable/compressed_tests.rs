//! Tests of tables whose chunks are compressed in segments, by each codec, and of data directories of earlier
//! versions. The random tests in `tests/model.rs` also run over directories with segments of all kinds.

use super::encrypted::{new_directory, unlocked};
use super::*;
use arrow_array::{Float64Array, Int64Array};
use farpool_disk::{Codec, CompressionPolicy, compressing};

/// Number of rows of each table. Reason: the second column then takes several compressed blocks.
const ROWS: i64 = 20_000;

/// Generates rows that a codec can compress further after their columns were encoded.
fn rows(first: i64) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(first..first + ROWS);
    let thirds = Float64Array::from_iter_values((0..ROWS).map(|row| (row % 50) as f64 / 3.0));
    let columns: [(&str, Arc<dyn Array>, bool); 2] =
        [("n", Arc::new(numbers), true), ("third", Arc::new(thirds), true)];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn opened(directory: Arc<dyn Directory>, way: CompressionPolicy) -> (Arc<Catalog>, Recovery) {
    let catalog = new_catalog().0;
    let recovery = catalog.open(compressing(directory, way), 7).unwrap();
    (catalog, recovery)
}

/// Creates a table for each codec, each in a segment of its own.
fn filled(directory: &Arc<SimulatedDirectory>) {
    for (first, codec) in (0..).zip(Codec::ALL) {
        let (catalog, _) = opened(unlocked(directory).unwrap(), CompressionPolicy::By(codec));
        let batch = rows(first);
        let table = name(codec.name());
        let mut load =
            catalog.begin_load(&tenant(), &table, &batch.schema(), LoadMode::Create.into(), None).unwrap();
        load.push(&batch).unwrap();
        load.commit().unwrap();
        catalog.close().unwrap();
    }
}

fn check(catalog: &Catalog) {
    for (first, codec) in (0..).zip(Codec::ALL) {
        let (_, table) = catalog.get(&tenant(), &name(codec.name())).unwrap();
        let mut at = 0;
        for group in &table.row_groups {
            let group = super::filled(group);
            for (column, expected) in rows(first).columns().iter().enumerate() {
                let values = group.chunks[column].decode(0..group.rows).unwrap();
                assert!(
                    values.to_data() == expected.slice(at, group.rows).to_data(),
                    "{codec}, column {column}"
                );
            }
            at += group.rows;
        }
        assert_eq!(at, ROWS as usize);
    }
}

#[test]
fn tables_of_all_codecs_are_read_and_told() {
    for is_encrypted in [false, true] {
        let directory = new_directory(is_encrypted);
        filled(&directory);
        let checked = check_data(&*unlocked(&directory).unwrap()).unwrap();
        assert_eq!((checked.tables, checked.damaged.len()), (3, 0));
        // The third column of each table compresses to almost nothing.
        assert!(checked.bytes_stored < checked.bytes / 2, "{} of {}", checked.bytes_stored, checked.bytes);
        for way in [CompressionPolicy::None, CompressionPolicy::Auto, CompressionPolicy::By(Codec::Zstd)] {
            let (catalog, recovery) = opened(unlocked(&directory).unwrap(), way);
            assert_eq!(recovery.bytes_stored, checked.bytes_stored);
            check(&catalog);
            catalog.close().unwrap();
        }
    }
}

/// The execution statistics count bytes read from disk in their stored form, that is, compressed.
#[test]
fn handles_tell_what_is_read_from_disk() {
    let directory = new_directory(false);
    let batch = rows(0);
    let batch = arrow_select::concat::concat_batches(&batch.schema(), [&batch, &batch, &batch]).unwrap();
    let (catalog, _) = opened(directory.clone(), CompressionPolicy::By(Codec::Zstd));
    let mut load =
        catalog.begin_load(&tenant(), &name("t"), &batch.schema(), LoadMode::Create.into(), None).unwrap();
    load.push(&batch).unwrap();
    load.commit().unwrap();
    catalog.close().unwrap();
    let (catalog, recovery) = opened(directory, CompressionPolicy::None);
    let (_, table) = catalog.get(&tenant(), &name("t")).unwrap();
    let group = table.row_groups.iter().next().unwrap();
    let [numbers, thirds] = &group.chunks[..] else { panic!("two columns") };
    assert!(thirds.is_absent() && numbers.is_absent(), "they are large");
    assert!(thirds.bytes_on_disk() < thirds.bytes_encoded() / 10, "{}", thirds.bytes_on_disk());
    assert_eq!((thirds.bytes_on_disk() + numbers.bytes_on_disk()) as u64, recovery.bytes_stored);
    filled_group(group);
    assert!(!thirds.is_absent());
}

fn filled_group(group: &Arc<RowGroup>) {
    let filled = super::filled(group);
    let thirds = filled.chunks[1].decode(0..filled.rows).unwrap();
    assert_eq!(thirds.slice(50, 50).to_data(), rows(0).column(1).slice(0, 50).to_data());
}

/// Names of data directories that this version and earlier ones have written, and that must stay readable. The latest
/// of each kind is last.
const PLAIN: &[&str] = &["segments-3"];
const ENCRYPTED: &[&str] = &["segments-4-encrypted", "segments-5-encrypted"];

fn kept(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/data-directory").join(name)
}

#[test]
#[ignore = "writes into testdata"]
fn write_compressed_directories() {
    for is_encrypted in [false, true] {
        let directory = new_directory(is_encrypted);
        filled(&directory);
        let to = kept(if is_encrypted { ENCRYPTED } else { PLAIN }.last().unwrap());
        std::fs::create_dir_all(&to).unwrap();
        for (name, bytes) in encrypted::contents(&without_reserve(&directory)) {
            std::fs::write(to.join(name), bytes).unwrap();
        }
    }
}

#[test]
fn compressed_directories_of_earlier_versions_are_opened() {
    let all = PLAIN.iter().map(|name| (name, false)).chain(ENCRYPTED.iter().map(|name| (name, true)));
    for (name, is_encrypted) in all {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(kept(name)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
        for _ in 0..2 {
            let directory = encrypted::unlocked_local(folder.path(), is_encrypted);
            let (catalog, recovery) = opened(directory, CompressionPolicy::Auto);
            assert!(recovery.damaged.is_empty() && recovery.bytes_stored < recovery.bytes / 2);
            check(&catalog);
            catalog.close().unwrap();
        }
    }
}
