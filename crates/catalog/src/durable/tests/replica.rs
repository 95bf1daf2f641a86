//! Replication tests. A second catalog that gets only the log records of a first one must be equal to it after
//! every step. A catalog whose uncommitted records were removed must return to the state that readers have seen.

use super::*;
use crate::Commit;
use crate::state::Loads;
use farpool_disk::{LogOver, Observer, ReservePolicy};
use farpool_model::Residency;

/// A catalog that applies the log records of another one.
pub(super) struct Replica {
    directory: Arc<SimulatedDirectory>,
    catalog: Arc<Catalog>,
    _background: Arc<Deferred>,
    /// Number of records that the replica has applied.
    fed: u64,
}

impl Replica {
    /// Creates a replica of the catalog over `of`, which must be empty. The replica has the same keys, and ids of its
    /// own.
    pub fn new(of: &SimulatedDirectory) -> Replica {
        let directory = SimulatedDirectory::new();
        if of.open("keys").is_ok() {
            copy(of, &directory, "keys");
        }
        let (catalog, background) = opened(&directory);
        Replica { directory, catalog, _background: background, fed: 0 }
    }

    /// Applies the records that are durable in `bench`, and checks that both catalogs have the same state.
    pub fn follow(&mut self, bench: &Bench) {
        for name in bench.directory.names().unwrap() {
            if name.starts_with("segment") && self.directory.open(&name).is_err() {
                copy(&bench.directory, &self.directory, &name);
            }
        }
        let durable = bench.catalog.state.read().durable_records;
        for number in self.fed..durable {
            let record = bench.records.get(number).unwrap();
            self.catalog.apply_record(&record).unwrap().wait().unwrap();
        }
        self.fed = durable;
        assert_eq!(contents(&self.catalog), contents(&bench.catalog));
    }

    /// Simulates a loss of power, and opens the directory of the replica again.
    pub fn crash(&mut self, seed: u64) {
        self.directory.crash(seed);
        (self.catalog, self._background) = opened(&self.directory);
    }

    /// Makes a checkpoint of the replica, which writes segments of its own.
    pub fn checkpoint(&self) {
        self.catalog.checkpoint().unwrap();
    }
}

fn opened(directory: &Arc<SimulatedDirectory>) -> (Arc<Catalog>, Arc<Deferred>) {
    let (catalog, background) = new_catalog();
    let recovery = catalog.open_of(encrypted::opened(directory).unwrap(), 8, 2).unwrap();
    assert!(recovery.damaged.is_empty());
    (catalog, background)
}

fn copy(from: &SimulatedDirectory, to: &SimulatedDirectory, name: &str) {
    let file = from.open(name).unwrap();
    let mut contents = vec![0; file.bytes().unwrap() as usize];
    file.read_at(&mut contents, 0).unwrap();
    let new = to.create(name).unwrap();
    new.write_at(&contents, 0).unwrap();
    new.sync().unwrap();
    to.sync().unwrap();
}

/// A table as readers see it: version, fields, number of rows of each row group, and values.
#[derive(Debug, PartialEq)]
struct TableContents {
    version: Version,
    fields: usize,
    groups: Vec<usize>,
    values: Vec<Option<i64>>,
    tier: Option<Tier>,
}

/// All of a tenant's state that log records describe.
#[derive(Debug, PartialEq)]
pub(super) struct Contents {
    versions_made: u64,
    tables: BTreeMap<TableName, TableContents>,
    views: Vec<TableName>,
    schemas: Vec<SchemaName>,
    loads: Vec<(LoadId, u64, u64)>,
}

pub(super) fn contents(catalog: &Catalog) -> Contents {
    let state = catalog.state.read();
    let (names, loads) = (state.visible.clone(), state.loads.get(&tenant()).cloned());
    let versions_made = state.versions_made;
    drop(state);
    let tables = names.tables.get(&tenant()).into_iter().flatten();
    let table = |(name, current): (&TableName, &crate::Current)| {
        let table = &current.table;
        let groups = table.row_groups.iter().map(|group| group.rows).collect();
        let (version, fields) = (current.version, table.schema.fields().len());
        let contents = TableContents { version, fields, groups, values: values(table), tier: table.tier() };
        (name.clone(), contents)
    };
    let Loads { latest, .. } = loads.unwrap_or_default();
    Contents {
        versions_made,
        tables: tables.map(table).collect(),
        views: names.views_of(&tenant()).map(|(name, _)| name.clone()).collect(),
        schemas: names.schemas.get(&tenant()).into_iter().flatten().cloned().collect(),
        loads: latest.iter().map(|(id, made)| (*id, made.version.0, made.rows)).collect(),
    }
}

#[test]
fn a_replica_follows_merges_and_changes_of_merged_rows() {
    let mut bench = Bench::of_origin(SimulatedDirectory::new(), 1);
    let mut replica = Replica::new(&bench.directory);
    let t = name("t");
    bench.load(&t, LoadMode::Create, batch(0..150_000), Some(LoadId(1))).unwrap();
    for i in 0..40 {
        bench.load(&t, LoadMode::Append, batch(i..i + 3), Some(LoadId(2 + i as u128))).unwrap();
    }
    replica.follow(&bench);
    let before = bench.catalog.get(&tenant(), &t).unwrap().1.row_groups.len();
    bench.background.run();
    bench.load(&t, LoadMode::Append, batch(0..1), None).unwrap();
    assert!(bench.catalog.get(&tenant(), &t).unwrap().1.row_groups.len() < before);
    replica.follow(&bench);
    for seed in 0..3 {
        bench.change(&t, false).unwrap();
        replica.follow(&bench);
        replica.checkpoint();
        bench.catalog.checkpoint().unwrap();
        bench.change(&t, true).unwrap();
        replica.crash(seed);
        replica.follow(&bench);
    }
    bench.again(Some(9));
    replica.follow(&bench);
}

#[test]
fn a_replica_pins_the_values_of_a_pinned_table() {
    let mut bench = Bench::of_origin(SimulatedDirectory::new(), 1);
    let mut replica = Replica::new(&bench.directory);
    let (t, u) = (name("t"), name("u"));
    let pinned = LoadOptions { residency: Residency::Pinned, ..LoadMode::Create.into() };
    larger::load(&bench.catalog, &t, pinned, 0..150_000).unwrap();
    larger::load(&bench.catalog, &u, LoadMode::Create, 0..150_000).unwrap();
    // The first append lies in its record, the second one in a segment.
    bench.load(&t, LoadMode::Append, batch(0..10), None).unwrap();
    bench.load(&t, LoadMode::Append, batch(0..150_000), None).unwrap();
    bench.change(&t, false).unwrap();
    replica.follow(&bench);
    let pinned = |catalog: &Catalog, name: &TableName| {
        let (_, table) = catalog.get(&tenant(), name).unwrap();
        let chunks = table.row_groups.iter().flat_map(|group| &group.chunks);
        chunks.map(|chunk| chunk.is_pinned()).collect::<Vec<_>>()
    };
    // Small row groups, which always are in memory, have nothing to pin.
    assert!(pinned(&bench.catalog, &t).iter().filter(|is_pinned| **is_pinned).count() >= 4);
    assert!(!pinned(&bench.catalog, &u).contains(&true));
    for name in [&t, &u] {
        assert_eq!(pinned(&replica.catalog, name), pinned(&bench.catalog, name));
    }
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let bench = Bench::of_origin(SimulatedDirectory::new(), 1);
    let replica = Replica::new(&bench.directory);
    let t = name("t");
    bench.load(&t, LoadMode::Create, batch(0..10), None).unwrap();
    bench.load(&t, LoadMode::Append, batch(0..10), None).unwrap();
    let records = [0, 1].map(|number| bench.records.get(number).unwrap());
    let error = replica.catalog.apply_record(&records[1]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "an append to a table that is not there: {error}");
    replica.catalog.apply_record(&records[0]).unwrap().wait().unwrap();
    replica.catalog.apply_record(&records[1]).unwrap().wait().unwrap();
    let error = replica.catalog.apply_record(&records[0]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "a version that is made already: {error}");
    for cut in 0..records[1].len() {
        assert!(replica.catalog.apply_record(&records[1][..cut]).is_err(), "cut at {cut}");
    }
    assert_eq!(contents(&replica.catalog), contents(&bench.catalog));
    // A record with a changed byte is either applied or refused. In both cases the catalog can be read afterwards.
    for (at, mask) in (0..records[1].len()).step_by(8).zip([1, 0x80, 4].into_iter().cycle()) {
        let replica = Replica::new(&bench.directory);
        replica.catalog.apply_record(&records[0]).unwrap().wait().unwrap();
        let mut record = records[1].clone();
        record[at] ^= mask;
        drop(replica.catalog.apply_record(&record).map(Commit::wait));
        assert!(replica.catalog.list(&tenant()).tables.len() <= 2, "byte {at}");
    }
}

/// A log whose records never become durable, as on a node that has lost the connection to the other nodes.
#[derive(Debug, Default)]
struct Isolated {
    observer: std::sync::OnceLock<Box<dyn Observer>>,
    appended: AtomicU64,
}

impl ChangeLog for Isolated {
    fn observe(&self, observer: Box<dyn Observer>) {
        drop(self.observer.set(observer));
    }

    fn try_append(&self, _: &[u8], _: ReservePolicy) -> Result<Option<u64>> {
        Ok(Some(self.appended.fetch_add(1, Ordering::Relaxed)))
    }

    fn room(&self) -> u64 {
        u64::MAX
    }

    fn make_room(&self, _: usize, _: ReservePolicy) -> Result<()> {
        Ok(())
    }

    fn commit(&self, _: u64) -> Result<()> {
        Err(Error::unavailable("the others do not answer"))
    }

    fn next_record(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    fn bytes_written(&self) -> u64 {
        0
    }

    fn write_next(&self) -> bool {
        false
    }

    fn keep_marked(&self) {}

    fn records_marked(&self) -> Option<u64> {
        None
    }

    fn mark(&self) -> Result<()> {
        Ok(())
    }

    fn turn_over(&self) -> Result<()> {
        Ok(())
    }

    fn forget_before(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn stop(&self) {}

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn changes_whose_records_were_cut_off_are_forgotten() {
    let (directory, t) = (SimulatedDirectory::new(), name("t"));
    let bench = Bench::over(directory.clone());
    bench.load(&t, LoadMode::Create, batch(0..10), None).unwrap();
    drop(bench);
    let isolated = |log: Log| {
        let appended = AtomicU64::new(log.next_record());
        Box::new(Isolated { appended, ..Isolated::default() }) as Box<dyn ChangeLog>
    };
    let (catalog, _) = new_catalog_over(LogOver::new(isolated));
    catalog.open(directory, 7).unwrap();
    let before = contents(&catalog);
    let told = Arc::new(Mutex::new(Vec::new()));
    for change in [TableChange::Rename(name("u")), TableChange::Rename(name("v"))] {
        let newest = catalog.state.read().newest.tables[&tenant()].keys().next().cloned().unwrap();
        let tell = told.clone();
        let made = catalog.alter_table(&tenant(), &newest, &[change]).unwrap();
        made.then(move |outcome| tell.lock().push(outcome.map(|_| ())));
    }
    let dropped = catalog.drop_table(&tenant(), &name("v")).unwrap();
    assert!(catalog.get_newest(&tenant(), &t).is_err() && told.lock().is_empty());
    let error = Error::unavailable("the node is no longer the leader");
    catalog.cut_off(&error);
    assert_eq!(*told.lock(), [Err(error.clone()), Err(error)]);
    assert!(dropped.wait().is_err());
    // Later changes start from what readers see; version numbers are not used again.
    assert_eq!(Contents { versions_made: before.versions_made, ..contents(&catalog) }, before);
    let made = catalog.alter_table(&tenant(), &t, &[TableChange::Rename(name("w"))]).unwrap();
    drop(made);
    assert_eq!(catalog.get_newest(&tenant(), &name("w")).unwrap().0, Version(4));
}
