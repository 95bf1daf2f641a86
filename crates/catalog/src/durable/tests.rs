//! Tests of tables in a data directory that loses power, fails and runs full: acknowledged changes are recovered, and
//! no others.

#![expect(clippy::disallowed_methods, reason = "a test has threads of its own")]

#[path = "compressed_tests.rs"]
mod compressed;
#[path = "encrypted_tests.rs"]
mod encrypted;

use super::*;
use crate::tests::{Two, batch, name, tenant};
use crate::{Background, Chore, Load, StepOutcome};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use farpool_columns::{Encoder, PlainGroup, Table};
use farpool_disk::{Faults, LocalDirectory, Log, LogOver, Records, SimulatedDirectory};
use farpool_memory::{Pool, PoolConfig, Reclaim};
use farpool_model::{
    ErrorKind, LoadId, LoadMode, LoadOptions, SchemaName, TableChange, TableInfo, TableName, Tier, Version,
    View, limits,
};
use std::collections::BTreeSet;

mod compaction;
mod damage;
mod hidden;
mod larger;
mod lost_end;
mod model;
mod profiles;
mod replica;

use damage::{LOG_BYTES, flip_every_byte, without_reserve};
use replica::Replica;

/// A [`Background`] that merges small row groups when a test says so, and runs all other jobs at once.
#[derive(Debug, Default)]
struct Deferred(Mutex<Vec<Chore>>);

impl Background for Deferred {
    fn submit(&self, chore: Chore) {
        self.0.lock().push(chore);
    }

    fn rows_came(&self) {}
}

impl Deferred {
    fn run(&self) {
        while let Some(chore) = { self.0.lock().pop() } {
            while chore.step(&|| true) == StepOutcome::Worked {}
            chore.leave();
        }
    }
}

/// A queued background job.
struct Job(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

/// A catalog over a simulated data directory, with the expected contents of its tables.
struct Bench {
    directory: Arc<SimulatedDirectory>,
    background: Arc<Deferred>,
    catalog: Arc<Catalog>,
    tables: BTreeMap<TableName, Vec<Option<i64>>>,
    views: BTreeMap<TableName, String>,
    schemas: BTreeSet<SchemaName>,
    newest: u64,
    /// The log records that the catalog has appended, as the tests have seen them.
    records: Records,
}

fn new_catalog() -> (Arc<Catalog>, Arc<Deferred>) {
    new_catalog_over(LogOver::default())
}

fn new_catalog_over(log_over: LogOver) -> (Arc<Catalog>, Arc<Deferred>) {
    let background = Arc::new(Deferred::default());
    let pool = Pool::new(PoolConfig { bytes_limit: 256 << 20 }).unwrap();
    let catalog = Catalog::new(pool, Arc::new(Two), background.clone()).with_log(log_over);
    catalog.close_taps();
    (Arc::new(catalog), background)
}

fn profiling_catalog() -> (Arc<Catalog>, Arc<Deferred>) {
    let background = Arc::new(Deferred::default());
    let pool = Pool::new(PoolConfig { bytes_limit: 256 << 20 }).unwrap();
    (Arc::new(Catalog::new(pool, Arc::new(Two), background.clone())), background)
}

fn open(directory: &Arc<SimulatedDirectory>) -> Result<(Arc<Catalog>, Arc<Deferred>, Recovery)> {
    let (catalog, background) = new_catalog();
    let recovery = catalog.open(encrypted::opened(directory)?, 7)?;
    Ok((catalog, background, recovery))
}

/// Opens the directory as a catalog, and collects the log records that are appended from then on.
fn open_recorded(
    directory: &Arc<SimulatedDirectory>,
    origin: u16,
    log_file_bytes: u64,
    records: &Records,
) -> Result<(Arc<Catalog>, Arc<Deferred>, Recovery)> {
    let records = records.clone();
    let (catalog, background) = new_catalog_over(LogOver::new(move |log| records.of(log)));
    let recovery = catalog.open_sized(encrypted::opened(directory)?, (7, origin), log_file_bytes)?;
    Ok((catalog, background, recovery))
}

/// Returns a row group with its values in memory.
fn filled(group: &Arc<RowGroup>) -> Arc<RowGroup> {
    group.read_values().unwrap().map_or_else(|| group.clone(), Arc::new)
}

/// Encodes `columns` as a row group of `table`.
fn encoded(catalog: &Catalog, table: &Table, columns: &[ArrayRef]) -> RowGroup {
    let encoder = Encoder::new(catalog.pool().clone(), tenant(), table.schema.clone());
    encoder.encrypting(table.cipher()).encode(&PlainGroup::of(columns)).unwrap()
}

/// Returns the values of the first column of a table, in the order of its rows.
fn values(table: &Table) -> Vec<Option<i64>> {
    let mut all = Vec::new();
    for group in &table.row_groups {
        let group = filled(group);
        let values = group.chunks[0].decode(0..group.rows).unwrap();
        all.extend(values.as_primitive::<Int64Type>());
        // The last column is the first one as strings, or NULL in rows from before the column was added.
        let texts = group.chunks.last().unwrap().decode(0..group.rows).unwrap();
        for (value, row) in values.as_primitive::<Int64Type>().iter().zip(0..group.rows) {
            let text =
                texts.as_string_view_opt().filter(|texts| texts.is_valid(row)).map(|texts| texts.value(row));
            if let (Some(value), Some(text)) = (value, text) {
                assert_eq!(text, format!("row {value}"));
            }
        }
    }
    all
}

/// Returns a table name; every second one is in a schema, which may not exist.
fn named(number: u8) -> TableName {
    let name = format!("t{number}");
    match number % 2 {
        0 => TableName::new(name).unwrap(),
        _ => TableName::in_schema(&schema(), &name).unwrap(),
    }
}

fn schema() -> SchemaName {
    SchemaName::new("s").unwrap()
}

impl Bench {
    fn new() -> Bench {
        Bench::over(SimulatedDirectory::new())
    }

    fn over(directory: Arc<SimulatedDirectory>) -> Bench {
        Bench::of_origin(directory, 0)
    }

    /// Creates a catalog whose chunks and segments have ids with the origin `origin` (the part that identifies the
    /// node).
    fn of_origin(directory: Arc<SimulatedDirectory>, origin: u16) -> Bench {
        Bench::sized(directory, origin, limits::LOG_FILE_BYTES as u64)
    }

    /// Creates a catalog with log files of `log_file_bytes`.
    fn sized(directory: Arc<SimulatedDirectory>, origin: u16, log_file_bytes: u64) -> Bench {
        let records = Records::default();
        let (catalog, background, recovery) =
            open_recorded(&directory, origin, log_file_bytes, &records).unwrap();
        assert_eq!((recovery.node, recovery.tables, recovery.records), (7, 0, 0));
        let (tables, views, schemas) = Default::default();
        Bench { directory, background, catalog, tables, views, schemas, newest: 0, records }
    }

    fn load(
        &self,
        table: &TableName,
        mode: LoadMode,
        rows: RecordBatch,
        id: Option<LoadId>,
    ) -> Result<TableInfo> {
        let mut load = self.begin(table, mode, &rows)?;
        id.into_iter().for_each(|id| load.set_id(id));
        load.push(&rows)?;
        load.commit()
    }

    fn begin(&self, table: &TableName, mode: LoadMode, rows: &RecordBatch) -> Result<Load> {
        // If the data directory is encrypted, most tables are also encrypted in memory.
        let is_hidden = mode != LoadMode::Append
            && *table != named(0)
            && self.catalog.durable.get().is_some_and(|durable| durable.is_encrypted());
        let encryption = is_hidden.then_some(Tier::Standard);
        let options = LoadOptions { encryption, ..mode.into() };
        self.catalog.begin_load(&tenant(), table, &rows.schema(), options, None)
    }

    /// Negates the values of every second row group of a table or, with `removes`, removes these row groups.
    fn change(&mut self, table: &TableName, removes: bool) -> Result<()> {
        let (version, base) = self.catalog.get(&tenant(), table)?;
        let mut changed = BTreeMap::new();
        let mut expected = Vec::new();
        for (place, group) in base.row_groups.iter().enumerate() {
            let group = filled(group);
            let columns = group.chunks.iter().map(|chunk| chunk.decode(0..group.rows).unwrap());
            let columns: Vec<_> = columns.collect();
            let old = columns[0].as_primitive::<Int64Type>();
            match (place % 2, removes) {
                (0, true) => drop(changed.insert(place, None)),
                (0, false) => {
                    let new: arrow_array::Int64Array =
                        old.iter().map(|value| value.map(|value| value + 1000)).collect();
                    let texts: arrow_array::StringViewArray =
                        new.iter().map(|value| value.map(|value| format!("row {value}"))).collect();
                    expected.extend(&new);
                    let mut columns = columns.clone();
                    columns[0] = Arc::new(new);
                    columns[1] = Arc::new(texts);
                    let group = encoded(&self.catalog, &base, &columns);
                    changed.insert(place, Some(Arc::new(group)));
                }
                _ => expected.extend(old),
            }
        }
        let made = self.catalog.replace_row_groups(&tenant(), table, (version, &base), &changed, None)?;
        self.newest = made.wait()?.version.0;
        self.tables.insert(table.clone(), expected);
        Ok(())
    }

    fn check(&self) {
        let listed = self.catalog.list(&tenant());
        let names: Vec<_> = listed.tables.iter().map(|info| info.name.clone()).collect();
        assert_eq!(names, self.tables.keys().cloned().collect::<Vec<_>>());
        for (table, expected) in &self.tables {
            let (version, found) = self.catalog.get(&tenant(), table).unwrap();
            assert!(values(&found) == *expected, "table {table}, {} rows of {}", found.rows, expected.len());
            assert!(version.0 <= self.newest.max(self.catalog.newest_version().0));
        }
        assert_eq!(listed.views, self.views.keys().cloned().collect::<Vec<_>>());
        assert_eq!(listed.schemas, self.schemas.iter().cloned().collect::<Vec<_>>());
    }

    /// Opens the data directory again; if `seed` is given, after a simulated loss of power.
    fn again(&mut self, seed: Option<u64>) -> Recovery {
        match seed {
            Some(seed) => self.directory.crash(seed),
            None => drop(self.catalog.close()),
        }
        let recovery;
        (self.catalog, self.background, recovery) =
            open_recorded(&self.directory, 0, limits::LOG_FILE_BYTES as u64, &self.records).unwrap();
        // The sequence numbers of lost records are given again to other records.
        self.records.forget_from(self.catalog.state.read().durable_records);
        assert!(self.catalog.newest_version().0 >= self.newest, "versions are used once");
        assert!(recovery.damaged.is_empty());
        recovery
    }
}

#[test]
fn readers_see_a_change_when_it_is_durable() {
    let bench = Bench::new();
    let t = name("t");
    bench.load(&t, LoadMode::Create, batch(0..10), None).unwrap();
    let mut load = bench.begin(&t, LoadMode::Append, &batch(0..0)).unwrap();
    load.buffer(&batch(10..20)).unwrap();
    load.complete();
    let append = load.append(Box::new(|| {})).unwrap();
    assert!(append.try_commit().is_none(), "nobody has written the log yet");
    assert!(!append.has_step() && !append.is_waiting());
    assert_eq!(bench.catalog.info(&tenant(), &t).unwrap().rows, 10);
    // Another change already sees the table, although the change that created it is not durable yet.
    let made = bench.catalog.alter_table(&tenant(), &t, &[TableChange::Rename(name("u"))]).unwrap();
    assert_eq!(bench.catalog.info(&tenant(), &t).unwrap().rows, 10);
    let told = Arc::new(Mutex::new(None));
    let tell = told.clone();
    bench
        .catalog
        .drop_table(&tenant(), &name("u"))
        .unwrap()
        .then(move |durable| *tell.lock() = Some(durable));
    assert_eq!(made.wait().unwrap().rows, 20);
    assert_eq!(append.try_commit().unwrap().unwrap().rows, 20);
    assert_eq!(*told.lock(), Some(Ok(())), "one batch made all of it durable");
    assert!(bench.catalog.list(&tenant()).tables.is_empty());
}

/// A change that began before a merge refers to the row groups from before the merge. A checkpoint that is made
/// before the change is durable must keep them.
#[test]
fn a_checkpoint_keeps_what_changes_under_way_refer_to() {
    let mut bench = Bench::new();
    let t = name("t");
    bench.load(&t, LoadMode::Create, batch(0..200_000), None).unwrap();
    for i in 0..20 {
        bench.load(&t, LoadMode::Append, batch(i..i + 1), None).unwrap();
    }
    let (version, base) = bench.catalog.get(&tenant(), &t).unwrap();
    bench.background.run();
    assert!(bench.catalog.write_records(), "merges are recorded");
    assert!(bench.catalog.get(&tenant(), &t).unwrap().1.row_groups.len() < base.row_groups.len());
    let last = base.row_groups.len() - 1;
    let changed = BTreeMap::from([(last, None)]);
    let made = bench.catalog.replace_row_groups(&tenant(), &t, (version, &base), &changed, None).unwrap();
    bench.catalog.checkpoint().unwrap();
    made.wait().unwrap();
    let expected = (0..200_000).chain(0..19).map(Some).collect::<Vec<_>>();
    bench.tables = [(t, expected)].into();
    for seed in [Some(1), None, Some(2)] {
        bench.check();
        bench.again(seed);
    }
    bench.check();
}

#[test]
fn a_close_makes_a_checkpoint_of_merges_that_nobody_waited_for() {
    let mut bench = Bench::new();
    let t = name("t");
    bench.load(&t, LoadMode::Create, batch(0..200_000), None).unwrap();
    for i in 0..20 {
        bench.load(&t, LoadMode::Append, batch(i..i + 1), None).unwrap();
    }
    bench.tables = [(t, (0..200_000).chain(0..20).map(Some).collect())].into();
    bench.catalog.checkpoint().unwrap();
    bench.background.run();
    assert!(bench.catalog.records_waiting() > 0, "merges are recorded");
    assert_eq!(bench.again(None).records, 0);
    bench.check();
}

#[test]
fn loads_are_remembered_by_their_ids() {
    let mut bench = Bench::new();
    let t = name("t");
    let made = bench.load(&t, LoadMode::Create, batch(0..10), Some(LoadId(5))).unwrap();
    bench.load(&t, LoadMode::Append, batch(0..10), Some(LoadId(6))).unwrap();
    for recovery in [bench.again(Some(3)), bench.again(None), bench.again(None)] {
        let loads = &recovery.loads[&tenant()];
        assert_eq!(loads.forgotten, 0);
        let latest: Vec<_> = loads.latest.iter().map(|(id, made)| (id.0, made.version, made.rows)).collect();
        assert_eq!(latest, [(5, made.version, 10), (6, Version(made.version.0 + 1), 20)]);
        assert_eq!(loads.latest[0].1.bytes_encoded, made.bytes_encoded);
    }
}

#[test]
fn other_directories_are_refused() {
    let directory = SimulatedDirectory::new();
    directory.create("notes.txt").unwrap();
    let refused = |directory: &Arc<SimulatedDirectory>| open(directory).map(|_| ()).unwrap_err();
    let error = refused(&directory);
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("notes.txt"), "{error}");
    assert_eq!(check_data(&*directory).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(check_data(&*SimulatedDirectory::new()).unwrap_err().kind, ErrorKind::NotFound);
    let bench = Bench::new();
    bench.load(&name("t"), LoadMode::Create, batch(0..10), None).unwrap();
    bench.catalog.checkpoint().unwrap();
    for missing in bench.directory.names().unwrap() {
        bench.directory.rename(&missing, "away").unwrap();
        let error = refused(&bench.directory);
        let kind = if missing.starts_with("segment") { ErrorKind::Unavailable } else { ErrorKind::Corrupt };
        assert!(
            error.kind == kind && error.message.contains(&bench.directory.describe()),
            "{missing}: {error}"
        );
        bench.directory.rename("away", &missing).unwrap();
    }
    // Power is lost before the first manifest (the state up to one log record) is written.
    let directory = SimulatedDirectory::new();
    Log::open(directory.clone(), Some(9), 0, &mut |_, _| Ok(())).unwrap();
    directory.create("manifest-000000000001.new").unwrap();
    assert_eq!(open(&directory).unwrap().2.node, 7);
    open(&directory).unwrap();
}

#[test]
fn a_check_reads_everything_and_changes_nothing() {
    let bench = Bench::new();
    bench.load(&name("t"), LoadMode::Create, batch(0..400_000), None).unwrap();
    bench.load(&name("t"), LoadMode::Append, batch(0..20), None).unwrap();
    bench.directory.crash(5);
    let before = bench.directory.names().unwrap();
    let checked = check_data(&*bench.directory).unwrap();
    assert_eq!((checked.tables, checked.records, checked.damaged.len()), (1, 2, 0));
    assert!(checked.bytes > 100_000, "{}", checked.bytes);
    assert_eq!(bench.directory.names().unwrap(), before);
    let segment = before.iter().find(|name| name.starts_with("segment")).unwrap();
    bench.directory.flip(segment, 5_000, 4);
    let checked = check_data(&*bench.directory).unwrap();
    let [damaged] = &checked.damaged[..] else { panic!("{:?}", checked.damaged) };
    assert!(
        damaged.message.contains("rows 1 to 65536 of column") && damaged.message.contains(segment),
        "{damaged}"
    );
}

#[test]
fn threads_append_at_once_with_a_thread_that_writes_the_log() {
    let mut bench = Bench::new();
    let t = name("t");
    bench.load(&t, LoadMode::Create, batch(0..1), None).unwrap();
    let writer = bench.catalog.clone();
    let writer = std::thread::spawn(move || writer.write_log());
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let bench = &bench;
            let t = &t;
            scope.spawn(move || {
                for i in 0..50 {
                    let first = 1000 * thread + i;
                    bench.load(t, LoadMode::Append, batch(first..first + 1), None).unwrap();
                }
            });
        }
        for _ in 0..5 {
            bench.catalog.checkpoint().unwrap();
            bench.background.run();
        }
    });
    bench.catalog.close().unwrap();
    writer.join().unwrap();
    bench.directory.crash(2);
    (bench.catalog, bench.background, _) = open(&bench.directory).unwrap();
    let mut found = values(&bench.catalog.get(&tenant(), &t).unwrap().1);
    found.sort_unstable();
    let expected = (0..4).flat_map(|thread| (0..50).map(move |i| 1000 * thread + i)).chain([0]);
    let mut expected: Vec<_> = expected.map(Some).collect();
    expected.sort_unstable();
    assert!(found == expected, "{} rows", found.len());
}

#[test]
fn profiles_are_there_again() {
    let directory = SimulatedDirectory::new();
    let t = name("t");
    let again = || {
        let (catalog, background) = profiling_catalog();
        let recovery = catalog.open(directory.clone(), 7).unwrap();
        assert!(recovery.damaged.is_empty());
        let bench = Bench { directory: directory.clone(), background, catalog, ..Bench::new() };
        let known = || bench.catalog.known_statistics(&tenant(), &t, &[0, 1]).unwrap();
        let known = bench.catalog.get(&tenant(), &t).is_ok().then(known);
        (bench, known)
    };
    let (bench, _) = again();
    bench.load(&t, LoadMode::Create, batch(0..150_000), None).unwrap();
    bench.background.run();
    let before = bench.catalog.known_statistics(&tenant(), &t, &[0, 1]).unwrap();
    assert!(before.columns.iter().all(|states| states.sketch.is_some()));
    bench.catalog.close().unwrap();
    let (bench, known) = again();
    let known = known.unwrap();
    assert_eq!(known.table, before.table);
    assert!(known.columns == before.columns, "other states");
    // The profile is kept also for a table with a few more rows, and after a loss of power.
    bench.load(&t, LoadMode::Append, batch(0..10), None).unwrap();
    directory.crash(4);
    let (bench, known) = again();
    let known = known.unwrap();
    assert_eq!((known.table.rows, known.columns == before.columns), (150_010, true));
    bench.catalog.close().unwrap();
    drop(bench);
    // A table with other rows must not get this profile.
    let (mut bench, _) = again();
    bench.change(&t, true).unwrap();
    directory.crash(5);
    let (bench, known) = again();
    assert!(known.unwrap().columns.iter().all(|states| states.sketch.is_none()));
    let asked = bench.catalog.statistics(&tenant(), &t).unwrap();
    assert!(asked.columns.iter().all(|states| states.sketch.is_some()));
}

/// Path of a data directory in an earlier or the current format, which must stay readable.
fn kept_directory(format: u32) -> std::path::PathBuf {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/data-directory");
    root.join(format!("format-{format}"))
}

/// Writes the directory that the next test opens. Run by hand when a format changes, with the number of the new
/// format.
#[test]
#[ignore = "writes into testdata"]
fn write_a_directory_of_this_format() {
    let bench = Bench::sized(SimulatedDirectory::new(), 0, 32 << 10);
    let t = name("t");
    bench.load(&t, LoadMode::Create, batch(0..200), Some(LoadId(5))).unwrap();
    bench.catalog.checkpoint().unwrap();
    for row in 200..220 {
        let id = (row == 219).then_some(LoadId(6));
        bench.load(&t, LoadMode::Append, batch(row..row + 1), id).unwrap();
    }
    bench.background.run();
    assert!(bench.records.count() > 21, "there are merges");
    let more = Arc::new(arrow_schema::Field::new("more", arrow_schema::DataType::Date32, true));
    bench.catalog.alter_table(&tenant(), &t, &[TableChange::AddColumn(more)]).unwrap().wait().unwrap();
    let view = View::new(name("v"), "select 1").unwrap();
    bench.catalog.create_view(&tenant(), view, false).unwrap().wait().unwrap();
    let to = kept_directory(checkpoint::FORMAT);
    std::fs::create_dir_all(&to).unwrap();
    for file in bench.directory.names().unwrap() {
        let from = bench.directory.open(&file).unwrap();
        let mut contents = vec![0; from.bytes().unwrap() as usize];
        from.read_at(&mut contents, 0).unwrap();
        std::fs::write(to.join(file), contents).unwrap();
    }
}

#[test]
fn directories_of_all_formats_are_opened() {
    for format in 1..checkpoint::FORMAT + 1 {
        let folder = tempfile::tempdir().unwrap();
        let mut files = 0;
        for entry in std::fs::read_dir(kept_directory(format)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
            files += 1;
        }
        assert!(files > 2, "there are a manifest, a log and a segment");
        for _ in 0..2 {
            let (catalog, _) = new_catalog();
            let recovery = catalog.open(LocalDirectory::open(folder.path()).unwrap(), 9).unwrap();
            assert_eq!((recovery.node, recovery.damaged.len()), (7, 0));
            let (version, found) = catalog.get(&tenant(), &name("t")).unwrap();
            assert!(values(&found) == (0..220).map(Some).collect::<Vec<_>>());
            // The directory of the first format has one append to the table; those of later formats have many
            // appends, and merges.
            let newest = if format == 1 { Version(3) } else { Version(22) };
            assert_eq!((version, found.schema.fields().len()), (newest, 3));
            assert_eq!(catalog.list(&tenant()).views, [name("v")]);
            let loads: Vec<u128> = recovery.loads[&tenant()].latest.iter().map(|(id, _)| id.0).collect();
            assert_eq!(loads, [5, 6]);
            catalog.close().unwrap();
        }
    }
}
