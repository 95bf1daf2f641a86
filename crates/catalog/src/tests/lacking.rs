//! Tests of profiles (statistics of tables) whose working memory is accounted for and may be short.

use super::taps::{Held, load_batch, mixed};
use super::*;
use farpool_memory::Account;
use farpool_statistics::Profile;

const LIMIT: usize = 64 << 20;
const ROWS: usize = 5_000;
/// Number of rows of each append. Row groups of fewer rows would be merged before they are profiled.
const APPENDED: usize = limits::LARGE_GROUP_ROWS;

struct Bench {
    held: Arc<Held>,
    catalog: Arc<Catalog>,
    account: Account,
}

impl Bench {
    /// Creates a catalog with [`LIMIT`] bytes of working memory and a table of two versions that has no profile
    /// (statistics) yet.
    fn new() -> Bench {
        let (held, work) = (Arc::new(Held::default()), WorkMemory::new(LIMIT));
        let pool = Pool::new(PoolConfig { bytes_limit: 512 << 20 }).unwrap();
        let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), held.clone()).within(work.clone()));
        load_batch(&catalog, LoadMode::Create, &mixed(ROWS, 3_000, 0));
        load_batch(&catalog, LoadMode::Append, &mixed(APPENDED, 100, 1));
        Bench { held, catalog, account: work.account(&tenant()) }
    }

    fn used(&self) -> usize {
        LIMIT - self.account.free()
    }

    fn awaited(&self) -> AwaitedStatistics {
        self.catalog.await_statistics(&tenant(), &name("t"), Box::new(|| {})).unwrap()
    }

    fn is_profiled(&self) -> bool {
        self.catalog.info(&tenant(), &name("t")).unwrap().rows_profiled.is_none()
    }
}

#[test]
fn what_a_profile_holds_is_accounted_for_until_it_is_settled() {
    let bench = Bench::new();
    let (before, task) = (bench.used(), bench.held.take_oldest());
    let step = || assert_eq!(task.step(&|| false), StepOutcome::Worked);
    step();
    let schema = bench.catalog.get(&tenant(), &name("t")).unwrap().1.schema.clone();
    let most = Profile::bytes_most(&schema).unwrap();
    assert!(bench.used() - before > most, "{} more than {before}", bench.used() - before);
    // When a row group is done, the reservation shrinks to the memory that is in use.
    let begun = bench.used();
    while bench.catalog.info(&tenant(), &name("t")).unwrap().rows_profiled == Some(0) {
        step();
    }
    assert!(bench.used() > before && bench.used() - before < (begun - before) * 3 / 4);
    while task.step(&|| true) == StepOutcome::Worked {}
    task.leave();
    while bench.held.step(&|| true) {}
    assert!(bench.is_profiled());
    assert_eq!(bench.used(), before);
}

#[test]
fn what_is_dropped_or_fails_gives_its_memory_back() {
    for defect in [false, true] {
        let bench = Bench::new();
        (0..4).for_each(|_| assert!(bench.held.step(&|| false)));
        if defect {
            bench.held.step(&|| panic!("a defect"));
        }
        bench.catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
        assert_eq!(bench.used(), 0);
    }
}

#[test]
fn in_the_background_what_lacks_memory_is_tried_again() {
    let bench = Bench::new();
    let others = bench.account.try_reserve(bench.account.free() - (1 << 10)).unwrap();
    let task = bench.held.take_oldest();
    for _ in 0..3 {
        assert_eq!(task.step(&|| true), StepOutcome::Lacked);
    }
    // A profile that is computed in the background takes no place in the queue for memory.
    assert!(!bench.account.memory().is_short());
    drop(others);
    while task.step(&|| true) == StepOutcome::Worked {}
    task.leave();
    while bench.held.step(&|| true) {}
    assert!(bench.is_profiled());
}

#[test]
fn who_waits_is_told_what_is_lacking_and_gives_it() {
    let bench = Bench::new();
    let others = bench.account.try_reserve(bench.account.free() - (1 << 10)).unwrap();
    let task = bench.held.take_oldest();
    assert_eq!(task.step(&|| true), StepOutcome::Lacked);
    let (one, other) = (bench.awaited(), bench.awaited());
    // If a caller waits for the profile, the reservation is tried once more.
    assert!(one.profile().has_step() && !one.profile().step(&|| true));
    let bytes = one.profile().bytes_lacking().unwrap();
    assert!(!one.profile().has_step() && !other.profile().has_step());
    assert_eq!(other.profile().bytes_lacking(), Some(bytes));
    drop(others);
    one.profile().give(bench.account.try_reserve(bytes).unwrap());
    let used = bench.used();
    // The memory that the second waiter gives is returned to it, since none is lacking any more.
    other.profile().give(bench.account.try_reserve(bytes).unwrap());
    assert_eq!(bench.used(), used);
    while one.profile().step(&|| true) {}
    assert!(one.profile().is_settled() && other.get().is_ok());
}

#[test]
fn a_thread_waits_for_memory_with_those_that_help_it() {
    let bench = Bench::new();
    let others = bench.account.try_reserve(bench.account.free() - (1 << 10)).unwrap();
    std::thread::scope(|scope| {
        let statistics = scope.spawn(|| bench.catalog.statistics(&tenant(), &name("t")).unwrap());
        while !bench.account.memory().is_short() {
            std::thread::yield_now();
        }
        drop(others);
        assert_eq!(
            Profile::read(&statistics.join().unwrap()).unwrap().unwrap().rows(),
            (ROWS + APPENDED) as u64
        );
    });
}

#[test]
fn appends_do_not_wait_without_end_for_profiles_that_lack_memory() {
    let bench = Bench::new();
    let append = || {
        let rows = mixed(APPENDED, 1, 0);
        let begun =
            bench.catalog.begin_load(&tenant(), &name("t"), &rows.schema(), LoadMode::Append.into(), None);
        let mut load = begun.unwrap();
        load.push(&rows).unwrap();
        load
    };
    for _ in 2..=limits::TAPS_WAITING_MAX {
        append().commit().unwrap();
    }
    let load = append();
    let held = bench.account.try_reserve(bench.account.free()).unwrap();
    let profile = load.profile_before(Box::new(|| {})).unwrap();
    assert!(!profile.step(&|| true) && profile.bytes_lacking().is_some());
    profile.give_up(&Error::over_limit("too little memory"));
    while profile.step(&|| true) {}
    assert_eq!(profile.outcome().unwrap_err().kind, ErrorKind::OverLimit);
    drop(profile);
    assert!(load.profile_before(Box::new(|| {})).is_none());
    drop(held);
    load.commit().unwrap();
    // A request computes the profile in spite of that.
    let rows = (ROWS + APPENDED * (1 + limits::TAPS_WAITING_MAX)) as u64;
    let statistics = bench.catalog.statistics(&tenant(), &name("t")).unwrap();
    assert_eq!(Profile::read(&statistics).unwrap().unwrap().rows(), rows);
}
