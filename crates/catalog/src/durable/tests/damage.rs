//! Tests of corrupted files and of a full disk.

use super::*;

#[test]
fn every_byte_of_a_directory_is_flipped() {
    flip_every_byte(SimulatedDirectory::new());
}

pub(super) fn flip_every_byte(directory: Arc<SimulatedDirectory>) {
    // Log files have the length of those in copies of the directory, because shorter ones would count as truncated.
    let mut bench = Bench::sized(directory, 0, LOG_BYTES);
    bench.load(&name("t"), LoadMode::Create, batch(0..200), None).unwrap();
    bench.load(&name("u"), LoadMode::Create, batch(0..100), None).unwrap();
    bench.catalog.checkpoint().unwrap();
    bench.load(&name("t"), LoadMode::Append, batch(0..20), None).unwrap();
    let expected = (0..200).chain(0..20).map(Some).collect::<Vec<_>>();
    bench.tables = [(name("t"), expected), (name("u"), (0..100).map(Some).collect())].into();
    drop(bench.again(Some(1)));
    bench.directory = without_reserve(&bench.directory);
    let (mut refused, mut damaged, mut harmless) = (0, 0, 0);
    for file in bench.directory.names().unwrap() {
        let bytes = bench.directory.open(&file).unwrap().bytes().unwrap() as usize;
        for at in 0..bytes {
            // Opening may clear the end of the log if it looks torn, so that each attempt needs a copy.
            let directory = without_reserve(&bench.directory);
            directory.flip(&file, at, 1 << (at % 8));
            let opened = open(&directory);
            match &opened {
                Err(error) => {
                    assert!(error.message.contains("simulated") || error.message.contains(&file), "{error}");
                    refused += 1;
                }
                Ok((catalog, _, recovery)) if !recovery.damaged.is_empty() => {
                    let place = format!("{file} in");
                    assert!(recovery.damaged[0].message.contains(&place), "{}", recovery.damaged[0]);
                    // Reads of corrupted data are errors, and all other data can be read.
                    let lost = check_lost(catalog, &bench.tables);
                    assert_eq!(lost, recovery.damaged.len());
                    damaged += 1;
                }
                Ok((catalog, _, recovery)) => {
                    // If the last record looks torn, it counts as not acknowledged.
                    let is_torn = recovery.dropped.is_some();
                    for (table, expected) in &bench.tables {
                        let found = values(&catalog.get(&tenant(), table).unwrap().1);
                        let is_right = found == *expected || is_torn && found == expected[..200];
                        assert!(is_right, "{file}, byte {at}: {} rows", found.len());
                    }
                    harmless += 1;
                }
            }
        }
    }
    assert!(refused > 500 && damaged > 500 && harmless > 500, "{refused}, {damaged}, {harmless}");
}

/// Length of a log file in copies of a directory.
pub(super) const LOG_BYTES: u64 = 8 << 10;

/// Copies the files of a directory, without the space that the log has reserved at its end.
pub(super) fn without_reserve(directory: &SimulatedDirectory) -> Arc<SimulatedDirectory> {
    let copy = SimulatedDirectory::new();
    for name in directory.names().unwrap() {
        let file = directory.open(&name).unwrap();
        let bytes = file.bytes().unwrap().min(if name.starts_with("log") { LOG_BYTES } else { u64::MAX });
        let mut contents = vec![0; bytes as usize];
        file.read_at(&mut contents, 0).unwrap();
        let to = copy.create(&name).unwrap();
        to.write_at(&contents, 0).unwrap();
        to.sync().unwrap();
    }
    copy.sync().unwrap();
    copy
}

/// Returns the number of chunks whose values cannot be read, and checks the values of all others.
fn check_lost(catalog: &Catalog, tables: &BTreeMap<TableName, Vec<Option<i64>>>) -> usize {
    let mut lost = 0;
    for (table, expected) in tables {
        let (_, found) = catalog.get(&tenant(), table).unwrap();
        let mut first = 0;
        for group in &found.row_groups {
            let group = filled(group);
            for (column, chunk) in group.chunks.iter().enumerate() {
                match chunk.decode(0..group.rows) {
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::Corrupt);
                        assert!(chunk.gather(&[0]).is_err() && chunk.check_intact().is_err());
                        lost += 1;
                    }
                    Ok(values) if column == 0 => {
                        let values: Vec<_> = values.as_primitive::<Int64Type>().iter().collect();
                        assert!(values == expected[first..first + group.rows]);
                    }
                    Ok(_) => {}
                }
            }
            first += group.rows;
        }
    }
    lost
}

#[test]
fn a_full_disk_refuses_rows_and_takes_drops() {
    let bench = Bench::new();
    let (t, u) = (name("t"), name("u"));
    bench.load(&t, LoadMode::Create, batch(0..10), None).unwrap();
    bench.load(&u, LoadMode::Create, batch(0..100_000), None).unwrap();
    // Limits the size of the disk to the space in use.
    let bytes = |file: &String| bench.directory.open(file).unwrap().bytes().unwrap();
    let capacity = bench.directory.names().unwrap().iter().map(bytes).sum();
    bench.directory.set_faults(Faults { capacity: Some(capacity), ..Faults::default() });
    let error = bench.load(&t, LoadMode::Append, batch(0..400_000), None).unwrap_err();
    assert!(error.kind == ErrorKind::OverLimit && error.message.contains("segment"), "{error}");
    // Space for the log file is reserved, so that small changes succeed until the log file is full.
    bench.load(&t, LoadMode::Append, batch(10..20), None).unwrap();
    bench.catalog.drop_table(&tenant(), &u).unwrap().wait().unwrap();
    let bench = Bench { tables: [(t, (0..20).map(Some).collect())].into(), ..bench };
    bench.check();
    assert!(!bench.directory.names().unwrap().iter().any(|name| name.starts_with("segment")));
}
