//! Tests of logs that lost records at their end, which is an error, and of logs whose last write is torn, which
//! is not. A mark file has the number of durable records, by which the two are distinguished.

use super::damage::without_reserve;
use super::encrypted::new_directory;
use super::*;

const LOG: &str = "log-000000000001";

const MARK: &str = "durable";

impl Bench {
    /// Writes the durability mark of the log, as the background thread of a node does.
    pub(super) fn mark(&self) {
        self.catalog.durable.get().unwrap().log.mark().unwrap();
    }
}

/// Overwrites the last `bytes` bytes of the log with zeros; unused zero bytes at its end do not count.
fn zero_end(directory: &SimulatedDirectory, bytes: usize) {
    let file = directory.open(LOG).unwrap();
    let mut contents = vec![0; file.bytes().unwrap() as usize];
    file.read_at(&mut contents, 0).unwrap();
    let end = contents.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    file.write_at(&vec![0; bytes], (end - bytes) as u64).unwrap();
    file.sync().unwrap();
}

/// Creates a directory in the state that a node leaves if it is killed some time after its last change.
fn killed(is_encrypted: bool) -> Arc<SimulatedDirectory> {
    let bench = Bench::sized(new_directory(is_encrypted), 0, damage::LOG_BYTES);
    let (of_writer, of_marker) = (bench.catalog.clone(), bench.catalog.clone());
    let threads =
        [std::thread::spawn(move || of_writer.write_log()), std::thread::spawn(move || of_marker.mark_log())];
    bench.catalog.create_schema(&tenant(), &schema()).unwrap().wait().unwrap();
    bench.load(&named(2), LoadMode::Create, batch(0..1), None).unwrap();
    bench.load(&named(1), LoadMode::Create, batch(0..1), None).unwrap();
    let durable = bench.catalog.durable.get().unwrap();
    while durable.log.records_marked() != Some(durable.log.next_record()) {
        std::thread::yield_now();
    }
    let left = without_reserve(&bench.directory);
    bench.catalog.close().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    left
}

fn refused(directory: &Arc<SimulatedDirectory>) -> Error {
    let error = open(directory).map(drop).expect_err("an error");
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    let checked = check_data(&*encrypted::opened(directory).unwrap()).map(drop).expect_err("an error");
    assert_eq!(checked.message, error.message);
    error
}

#[test]
fn a_log_that_has_lost_what_was_acknowledged_is_an_error() {
    for is_encrypted in [false, true] {
        let whole = killed(is_encrypted);
        for bytes in [1, 20, 176, 700] {
            let directory = without_reserve(&whole);
            zero_end(&directory, bytes);
            let error = refused(&directory);
            assert!(error.message.contains("lost its end") && error.message.contains(LOG), "{error}");
            let advice = error.advice.clone().unwrap_or_default();
            assert!(advice.ends_with("remove the file durable"), "{advice}");
            // Removing the mark is what the error advises. It is also the state of a directory of a version without
            // marks.
            directory.remove(MARK).unwrap();
            let (catalog, _, recovery) = open(&directory).unwrap();
            assert!(recovery.dropped.is_some() || bytes > 176);
            assert!(catalog.get(&tenant(), &named(1)).is_err());
            assert!(catalog.get(&tenant(), &named(2)).is_ok() || bytes > 176);
        }
        let (catalog, _, recovery) = open(&whole).unwrap();
        assert!(recovery.dropped.is_none() && catalog.get(&tenant(), &named(1)).is_ok());
    }
}

/// Records after the marked one may look torn, even if the mark is old.
#[test]
fn an_older_mark_and_none_are_no_error() {
    for has_mark in [false, true] {
        let bench = Bench::sized(new_directory(false), 0, damage::LOG_BYTES);
        bench.load(&named(2), LoadMode::Create, batch(0..1), None).unwrap();
        if has_mark {
            bench.mark();
        }
        bench.load(&named(0), LoadMode::Create, batch(0..1), None).unwrap();
        let directory = without_reserve(&bench.directory);
        zero_end(&directory, 100);
        let (catalog, _, recovery) = open(&directory).unwrap();
        assert!(recovery.dropped.is_some() && catalog.get(&tenant(), &named(2)).is_ok());
        assert!(catalog.get(&tenant(), &named(0)).is_err());
    }
}

/// A checkpoint includes the records that the log lost. Records that are appended afterwards are recovered.
#[test]
fn the_end_of_a_log_is_not_missed_behind_a_checkpoint() {
    for is_clean in [true, false] {
        let mut bench = Bench::sized(new_directory(false), 0, damage::LOG_BYTES);
        let t = named(2);
        bench.load(&t, LoadMode::Create, batch(0..10), None).unwrap();
        match is_clean {
            true => bench.catalog.close().unwrap(),
            false => bench.catalog.checkpoint().unwrap(),
        }
        assert_eq!(bench.directory.names().unwrap().iter().any(|name| name == MARK), is_clean);
        zero_end(&bench.directory, 700);
        for more in 1..4 {
            bench.tables = [(t.clone(), (0..10 * more).map(Some).collect())].into();
            bench.again(Some(1));
            bench.check();
            bench.load(&t, LoadMode::Append, batch(10 * more..10 * more + 10), None).unwrap();
            bench.mark();
        }
    }
}

#[test]
fn a_backup_and_what_is_made_of_it_have_no_mark_of_another_log() {
    let bench = Bench::sized(new_directory(false), 0, damage::LOG_BYTES);
    (0..9).for_each(|_| drop(bench.catalog.create_schema(&tenant(), &schema()).map(|made| made.wait())));
    bench.load(&named(2), LoadMode::Create, batch(0..10), None).unwrap();
    bench.mark();
    let backup = bench.catalog.backup().unwrap();
    assert!(!backup.files().iter().any(|file| file.name == MARK));
    let copy = SimulatedDirectory::new();
    for file in backup.files() {
        let contents = backup.read(&file.name, 0, file.bytes as usize).unwrap();
        copy.create(&file.name).unwrap().write_at(&contents, 0).unwrap();
    }
    let manifest = &backup.files().last().unwrap().name;
    adopt_backup(&(copy.clone() as Arc<dyn Directory>), manifest, 11).unwrap();
    let (catalog, _, _) = open(&copy).unwrap();
    assert!(catalog.get(&tenant(), &named(2)).is_ok());
    catalog.close().unwrap();
    assert!(copy.names().unwrap().iter().any(|name| name == MARK));
    open(&copy).unwrap();
}

/// A [`Background`] that works when a test says so.
#[derive(Debug, Default)]
struct Queued(Mutex<Vec<Job>>);

impl Background for Queued {
    fn submit(&self, _: Chore) {}

    fn rows_came(&self) {}

    fn write(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.lock().push(Job(job));
    }
}

#[test]
fn a_host_without_threads_has_a_job_that_writes_the_mark() {
    let (directory, background) = (SimulatedDirectory::new(), Arc::new(Queued::default()));
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), background.clone()));
    catalog.open(directory.clone(), 7).unwrap();
    let durable = catalog.durable.get().unwrap();
    let is_wanted = || durable.is_mark_wanted.load(Ordering::Relaxed);
    for number in 1..4 {
        let view = View::new(named(4), "select 1").unwrap();
        let made = catalog.create_view(&tenant(), view, true).unwrap();
        assert!(catalog.write_records() && !catalog.write_records());
        made.wait().unwrap();
        assert!(is_wanted());
        if number == 2 {
            assert_eq!(durable.log.records_marked(), None);
            let jobs = std::mem::take(&mut *background.0.lock());
            jobs.into_iter().for_each(|job| (job.0)());
            assert!(!is_wanted());
        }
    }
    assert_eq!(durable.log.records_marked(), Some(2));
}
