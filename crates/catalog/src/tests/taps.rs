//! Tests of taps, the background computation of profiles (statistics of tables): profiles are correct whichever
//! steps and threads compute them, and end as they should.

use super::*;
use arrow_array::{Float64Array, Int32Array};
use farpool_statistics::{ColumnProfile, Profile};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::atomic::AtomicUsize;

/// A [`Background`] that keeps submitted chores until a test runs them.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Vec<Chore>>);

impl Background for Held {
    fn submit(&self, chore: Chore) {
        self.0.lock().push(chore);
    }

    fn rows_came(&self) {}
}

impl Held {
    pub fn catalog() -> (Arc<Held>, Arc<Catalog>) {
        let held = Arc::new(Held::default());
        (held.clone(), profiled_by(512 << 20, held))
    }

    /// Does a step of one submitted chore; returns false when there is none.
    pub fn step(&self, go_on: &dyn Fn() -> bool) -> bool {
        let Some(chore) = self.0.lock().pop() else { return false };
        match chore.step(go_on) {
            StepOutcome::Worked => self.0.lock().push(chore),
            StepOutcome::Lacked | StepOutcome::Nothing => chore.leave(),
        }
        true
    }

    /// Takes the submitted chore whose load began first.
    pub fn take_oldest(&self) -> Chore {
        let mut held = self.0.lock();
        held.sort_by_key(|chore| std::cmp::Reverse(chore.order()));
        held.pop().unwrap()
    }

    fn is_idle(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// Returns rows of all types that are profiled in different ways, with about `spread` distinct values per column.
pub(super) fn mixed(rows: usize, spread: i64, seed: i64) -> RecordBatch {
    let number = |row: usize| (row as i64 + seed).wrapping_mul(7_919_191_919_191).rem_euclid(spread);
    let unless_seventh = |row: usize| Some(number(row)).filter(|number| number % 7 != 3);
    let text = |row| unless_seventh(row).map(|number| format!("a text that is not short {number}"));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("integer", Arc::new((0..rows).map(unless_seventh).collect::<Int64Array>())),
        ("float", Arc::new((0..rows).map(|row| Some(number(row) as f64 / 7.0)).collect::<Float64Array>())),
        ("text", Arc::new((0..rows).map(text).collect::<StringArray>())),
        ("close", Arc::new((0..rows).map(|row| Some((number(row) % 50) as i32)).collect::<Int32Array>())),
        ("null", Arc::new(Int64Array::new_null(rows))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .unwrap()
}

pub(super) fn load_batch(catalog: &Arc<Catalog>, mode: LoadMode, rows: &RecordBatch) {
    let mut load = catalog.begin_load(&tenant(), &name("t"), &rows.schema(), mode.into(), None).unwrap();
    load.push(rows).unwrap();
    load.commit().unwrap();
}

/// Returns the profile of a table, computed from its decoded rows all at once.
fn plainly(catalog: &Catalog) -> Profile {
    let (_, table) = catalog.get(&tenant(), &name("t")).unwrap();
    let mut profile = Profile::new(&table.schema).unwrap();
    for group in &table.row_groups {
        let decode = |chunk: &Arc<farpool_columns::Chunk>| chunk.decode(0..chunk.rows()).unwrap();
        profile.update(&group.chunks.iter().map(decode).collect::<Vec<_>>()).unwrap();
    }
    profile
}

fn check_same_answers(one: &Profile, other: &Profile) {
    let answers = |column: &ColumnProfile| {
        let sketch = &column.sketch;
        let bounds = (sketch.minimum().cloned(), sketch.maximum().cloned());
        let histogram = column.histogram.as_ref().map(|histogram| histogram.to_bytes());
        (sketch.rows(), sketch.nulls(), bounds, sketch.distinct(), sketch.second_moment(), histogram)
    };
    for (one, other) in one.columns().iter().zip(other.columns()) {
        assert_eq!(answers(one), answers(other));
    }
    let (one, other) = (&one.moments().unwrap().moments, &other.moments().unwrap().moments);
    for (i, j) in (0..one.columns()).flat_map(|i| (0..=i).map(move |j| (i, j))) {
        assert_eq!(one.count(i, j), other.count(i, j));
        let form = farpool_statistics::Form::Sample;
        let (one, other) = (one.covariance(i, j, form), other.covariance(i, j, form));
        assert!(one.is_nan() && other.is_nan() || (one - other).abs() <= 1e-9 * other.abs(), "{one} {other}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn steps_of_any_length_make_the_same_profile(
        appends in prop::collection::vec((0..5_000_usize, 1..3_000_i64), 1..5),
        large in 0..4,
        lengths in prop::collection::vec(0..6_usize, 1..9),
    ) {
        let catalogs = [Held::catalog(), Held::catalog()];
        for (held, catalog) in &catalogs {
            for (index, (rows, spread)) in appends.iter().enumerate() {
                let rows = if large == 0 && index == 0 { ROW_GROUP_ROWS + rows } else { *rows };
                let mode = if index == 0 { LoadMode::Create } else { LoadMode::Append };
                load_batch(catalog, mode, &mixed(rows, *spread, index as i64));
            }
            prop_assert!(!held.is_idle());
        }
        let [(at_once, first), (in_steps, second)] = &catalogs;
        // The background does not profile rows of small appends. Requests do.
        let ask = |catalog: &Arc<Catalog>| {
            catalog.await_statistics(&tenant(), &name("t"), Box::new(|| {})).unwrap()
        };
        while at_once.step(&|| true) {}
        let asked = ask(first);
        while asked.profile().step(&|| true) {}
        let steps = AtomicUsize::new(0);
        let left = AtomicUsize::new(0);
        let one_less = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let next = || {
            let step = steps.fetch_add(1, Ordering::Relaxed);
            left.store(lengths[step % lengths.len()], Ordering::Relaxed);
        };
        while in_steps.step(&one_less) {
            next();
        }
        let asked = ask(second);
        while asked.profile().step(&one_less) {
            next();
        }
        let told = |catalog: &Catalog| catalog.known_statistics(&tenant(), &name("t"), &[0, 1, 2, 3, 4]).unwrap();
        let (told, told_in_steps) = (told(first), told(second));
        prop_assert_eq!(told.table.rows_profiled, None);
        prop_assert!(told.columns == told_in_steps.columns && told.columns.iter().all(|c| c.sketch.is_some()));
        let statistics = |catalog: &Catalog| catalog.statistics(&tenant(), &name("t")).unwrap();
        let (whole, whole_in_steps) = (statistics(first), statistics(second));
        prop_assert!(whole.moments == whole_in_steps.moments);
        check_same_answers(&Profile::read(&whole).unwrap().unwrap(), &plainly(first));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    #[test]
    fn many_at_once_make_the_same_profile(groups in 1..3_usize, spread in 1..100_000_i64, helpers in 1..4_usize) {
        let (held, catalog) = Held::catalog();
        load_batch(&catalog, LoadMode::Create, &mixed(groups * ROW_GROUP_ROWS + 7, spread, 1));
        load_batch(&catalog, LoadMode::Append, &mixed(3_000, spread, 2));
        let statistics = std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|| while held.step(&|| false) {});
            }
            catalog.statistics(&tenant(), &name("t")).unwrap()
        });
        check_same_answers(&Profile::read(&statistics).unwrap().unwrap(), &plainly(&catalog));
    }
}

#[test]
fn a_defect_ends_the_profile_that_it_is_in() {
    let (held, catalog) = Held::catalog();
    load_batch(&catalog, LoadMode::Create, &mixed(1_000, 100, 0));
    load(&catalog, "other", LoadMode::Create, 0..10).unwrap();
    // The chore of the table `other` was submitted last.
    while held.0.lock().len() > 1 {
        held.step(&|| false);
    }
    held.step(&|| panic!("a defect"));
    while held.step(&|| true) {}
    assert_eq!(catalog.info(&tenant(), &name("other")).unwrap().rows_profiled, None);
    let known = catalog.known_statistics(&tenant(), &name("t"), &[0]).unwrap();
    assert!(known.columns[0].sketch.is_none());
    // A request starts the failed profile again; an append to the table before that has no profile either.
    load_batch(&catalog, LoadMode::Append, &mixed(10, 10, 1));
    while held.step(&|| true) {}
    assert!(catalog.known_statistics(&tenant(), &name("t"), &[0]).unwrap().columns[0].sketch.is_none());
    let statistics = catalog.statistics(&tenant(), &name("t")).unwrap();
    assert_eq!(Profile::read(&statistics).unwrap().unwrap().rows(), 1_010);
}

#[test]
fn a_defect_at_the_end_of_a_profile_is_told_to_who_waits() {
    let (_, catalog) = Held::catalog();
    load_batch(&catalog, LoadMode::Create, &mixed(100, 10, 0));
    let awaited = catalog.await_statistics(&tenant(), &name("t"), Box::new(|| {})).unwrap();
    // The first step profiles the rows, and the second merges the partial profiles.
    assert!(awaited.profile().step(&|| true) && awaited.profile().step(&|| true));
    assert!(awaited.profile().step(&|| panic!("a defect")) && awaited.profile().is_settled());
    assert_eq!(awaited.get().unwrap_err().kind, ErrorKind::Internal);
}

#[test]
fn what_is_dropped_in_the_middle_holds_no_pages() {
    let (held, catalog) = Held::catalog();
    for steps in 0..12 {
        load_batch(&catalog, LoadMode::Create, &mixed(1_000, 100, 0));
        load_batch(&catalog, LoadMode::Append, &mixed(1_000, 100, 1));
        (0..steps).for_each(|_| assert!(held.step(&|| false)));
        // The tap is dropped while a step is in progress.
        let dropped = AtomicBool::new(false);
        held.step(&|| {
            if !dropped.swap(true, Ordering::Relaxed) {
                catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
            }
            true
        });
        if !dropped.into_inner() {
            catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
        }
        assert_eq!(bytes_used(&catalog), 0);
        while held.step(&|| true) {}
    }
}

#[test]
fn who_waits_has_it_alone_and_leaves_it_to_others_when_he_goes() {
    let (held, catalog) = Held::catalog();
    load_batch(&catalog, LoadMode::Create, &mixed(1_000, 100, 0));
    load_batch(&catalog, LoadMode::Append, &mixed(1_000, 100, 1));
    let wakes = Arc::new(AtomicUsize::new(0));
    let count = wakes.clone();
    let wake = Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let awaited = catalog.await_statistics(&tenant(), &name("t"), wake).unwrap();
    while held.step(&|| true) {}
    let info = || catalog.info(&tenant(), &name("t")).unwrap();
    assert_eq!(info().rows_profiled, Some(0));
    let before = wakes.load(Ordering::Relaxed);
    assert!(awaited.profile().has_step() && awaited.profile().step(&|| false));
    assert_eq!(wakes.load(Ordering::Relaxed), before + 1);
    drop(awaited);
    assert!(!held.is_idle());
    while held.step(&|| true) {}
    assert_eq!(info().rows_profiled, None);
    let awaited = catalog.await_statistics(&tenant(), &name("t"), Box::new(|| {})).unwrap();
    assert!(
        awaited.profile().is_settled() && awaited.profile().has_step() && !awaited.profile().step(&|| true)
    );
    assert_eq!(Profile::read(&awaited.get().unwrap()).unwrap().unwrap().rows(), 2_000);
}

#[test]
fn an_append_too_far_ahead_has_profiles_made_first() {
    let (held, catalog) = Held::catalog();
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![7; limits::LARGE_GROUP_ROWS]));
    let rows = RecordBatch::try_from_iter([("seven", rows)]).unwrap();
    load_batch(&catalog, LoadMode::Create, &rows);
    let append = || {
        let mut load =
            catalog.begin_load(&tenant(), &name("t"), &rows.schema(), LoadMode::Append.into(), None).unwrap();
        load.buffer(&rows).unwrap();
        load.complete();
        while let Some(piece) = load.next_piece() {
            let done = piece.run();
            load.done(done).unwrap();
        }
        load
    };
    for number in 0..limits::TAPS_WAITING_MAX {
        let load = append();
        assert!(load.profile_before(Box::new(|| {})).is_none(), "{number}");
        load.append(Box::new(|| {})).unwrap().commit().unwrap();
    }
    let load = append();
    let profile = load.profile_before(Box::new(|| {})).unwrap();
    while profile.step(&|| false) {}
    assert!(profile.is_settled());
    assert!(load.profile_before(Box::new(|| {})).is_none());
    load.append(Box::new(|| {})).unwrap().commit().unwrap();
    while held.step(&|| true) {}
    let info = catalog.info(&tenant(), &name("t")).unwrap();
    let groups = limits::TAPS_WAITING_MAX + 2;
    assert_eq!((info.rows, info.rows_profiled), ((groups * limits::LARGE_GROUP_ROWS) as u64, None));
}

#[test]
fn an_append_holds_no_profile_before_its_turn() {
    let (held, catalog) = Held::catalog();
    load_batch(&catalog, LoadMode::Create, &mixed(1_000, 100, 0));
    load_batch(&catalog, LoadMode::Append, &mixed(limits::LARGE_GROUP_ROWS, 100, 1));
    let rows_profiled = || catalog.info(&tenant(), &name("t")).unwrap().rows_profiled;
    // The append was submitted last, and would be worked on first if the profile of earlier rows did not have to come
    // first.
    let mut seen = vec![rows_profiled()];
    while held.step(&|| false) {
        seen.push(rows_profiled());
    }
    seen.dedup();
    let all = limits::LARGE_GROUP_ROWS as u64 + 1_000;
    assert_eq!(seen, [Some(0), Some(1_000), Some(all), None]);
}

/// Loads `rows` in `mode` and returns the profile (statistics) of the table.
fn collected(catalog: &Arc<Catalog>, mode: LoadMode, rows: std::ops::Range<i64>) -> Profile {
    let mut load = begin(catalog, "t", mode).unwrap();
    load.push(&batch(rows)).unwrap();
    load.commit().unwrap();
    let statistics = catalog.statistics(&tenant(), &name("t")).unwrap();
    Profile::read(&statistics).unwrap().expect("the tap ran")
}

#[test]
fn a_tap_finds_out_what_the_rows_hold_and_appends_add_to_it() {
    let catalog = roomy();
    let rows = 3 * ROW_GROUP_ROWS as i64 + 7;
    let one = collected(&catalog, LoadMode::Create, 0..rows);
    let both = collected(&catalog, LoadMode::Append, 0..10);
    assert_eq!((one.rows(), both.rows()), (rows as u64, rows as u64 + 10));
    let (before, after) = (&one.columns()[0].sketch, &both.columns()[0].sketch);
    // The ten values were there before, so that no distinct value is added; only exact counts differ.
    assert_eq!(before.distinct().map(|d| d.low), after.distinct().map(|d| d.low));
    assert_eq!(after.sum().map(|sum| sum.as_f64()), Some((rows * (rows - 1) / 2 + 45) as f64));
    let info = catalog.info(&tenant(), &name("t")).unwrap();
    for column in &info.columns {
        assert!(column.distinct_count.is_none() || column.distinct_estimate.is_none());
    }
    let about = info.columns[0].distinct_count.or(info.columns[0].distinct_estimate).unwrap();
    assert!((about as f64 / rows as f64 - 1.0).abs() < 0.05, "{about} of {rows}");
    let values = |spread: &farpool_model::Spread| spread.bins.iter().sum::<u64>();
    assert_eq!(info.columns[0].spread.as_deref().map(values), Some(info.rows));
    assert!(catalog.tables(&tenant())[0].columns.iter().all(|column| column.spread.is_none()));
}

#[test]
fn statistics_are_told_of_the_columns_that_are_asked_for() {
    let catalog = roomy();
    collected(&catalog, LoadMode::Create, 0..100);
    let all = catalog.statistics(&tenant(), &name("t")).unwrap();
    let last = all.columns.len() - 1;
    let one = catalog.known_statistics(&tenant(), &name("t"), &[last]).unwrap();
    assert_eq!((&one.columns[last], &one.moments), (&all.columns[last], &None));
    assert!(one.columns[..last].iter().all(|states| *states == farpool_model::ColumnStates::default()));
    let beyond = catalog.known_statistics(&tenant(), &name("t"), &[last + 1]).unwrap_err();
    assert_eq!(beyond.kind, ErrorKind::Invalid, "{beyond}");
}

#[test]
fn without_a_tap_nothing_is_found_out_before_somebody_asks() {
    let catalog = roomy();
    let mut without = begin(&catalog, "t", LoadMode::Create).unwrap();
    without.without_tap();
    catalog.close_taps();
    for mut load in [without, begin(&catalog, "closed", LoadMode::Create).unwrap()] {
        load.push(&batch(0..100)).unwrap();
        load.commit().unwrap();
    }
    for table in ["t", "closed"] {
        let info = || catalog.info(&tenant(), &name(table)).unwrap();
        assert_eq!(info().rows_profiled, None);
        assert!(info().columns.iter().all(|column| column.spread.is_none()));
        let known = catalog.known_statistics(&tenant(), &name(table), &[0]).unwrap();
        assert_eq!(known.columns[0], farpool_model::ColumnStates::default());
        let statistics = catalog.statistics(&tenant(), &name(table)).unwrap();
        assert_eq!(Profile::read(&statistics).unwrap().map(|profile| profile.rows()), Some(100));
        assert_eq!(statistics.table, info());
        assert!(info().columns[0].spread.is_some());
    }
    // An append to rows without a profile gets no profile of its own; a request profiles all rows together.
    load(&catalog, "t", LoadMode::Append, 100..250).unwrap();
    let statistics = catalog.statistics(&tenant(), &name("t")).unwrap();
    assert_eq!(Profile::read(&statistics).unwrap().map(|profile| profile.rows()), Some(250));
}

#[test]
fn a_description_says_how_far_a_profile_is() {
    let catalog = roomy();
    let rows = 5 * ROW_GROUP_ROWS as i64;
    let mut seen = vec![load(&catalog, "t", LoadMode::Create, 0..rows).unwrap()];
    while seen.last().unwrap().rows_profiled.is_some() {
        seen.push(catalog.info(&tenant(), &name("t")).unwrap());
    }
    for info in &seen {
        let settled = info.rows_profiled.is_none();
        assert_eq!(info.columns[0].spread.is_some(), settled);
        assert!(info.rows_profiled.is_none_or(|profiled| profiled <= info.rows));
    }
    assert!(seen.is_sorted_by_key(|info| info.rows_profiled.unwrap_or(info.rows)));
}

#[test]
fn appends_may_be_ahead_of_their_profiles() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let appends = 2 * limits::TAPS_WAITING_MAX as i64;
    std::thread::scope(|scope| {
        for half in 0..2 {
            let catalog = &catalog;
            scope.spawn(move || {
                for append in (half..appends).step_by(2) {
                    let rows = 10 + 10 * append..20 + 10 * append;
                    load(catalog, "t", LoadMode::Append, rows).unwrap();
                }
            });
        }
        for _ in 0..20 {
            let statistics = catalog.statistics(&tenant(), &name("t")).unwrap();
            let profile = Profile::read(&statistics).unwrap().unwrap();
            assert_eq!(profile.rows(), statistics.table.rows);
        }
    });
    let appended = catalog.statistics(&tenant(), &name("t")).unwrap();
    load(&catalog, "whole", LoadMode::Create, 0..10 + 10 * appends).unwrap();
    let whole = catalog.statistics(&tenant(), &name("whole")).unwrap();
    let answers = |statistics| {
        let profile = Profile::read(statistics).unwrap().unwrap();
        let of_column = |column: &farpool_statistics::ColumnProfile| {
            let sketch = &column.sketch;
            (sketch.rows(), sketch.distinct(), sketch.second_moment(), sketch.maximum().cloned())
        };
        profile.columns().iter().map(of_column).collect::<Vec<_>>()
    };
    assert_eq!(answers(&appended), answers(&whole));
}

#[test]
fn a_profile_that_nobody_wants_any_more_holds_no_pages() {
    let catalog = roomy();
    let rows = 0..8 * ROW_GROUP_ROWS as i64;
    load(&catalog, "replaced", LoadMode::Create, rows.clone()).unwrap();
    load(&catalog, "replaced", LoadMode::Replace, 0..1).unwrap();
    load(&catalog, "dropped", LoadMode::Create, rows.clone()).unwrap();
    load(&catalog, "dropped", LoadMode::Append, rows.clone()).unwrap();
    let mut given_up = begin(&catalog, "given up", LoadMode::Create).unwrap();
    given_up.push(&batch(rows)).unwrap();
    drop(given_up);
    catalog.drop_table(&tenant(), &name("dropped")).unwrap().wait().unwrap();
    catalog.drop_table(&tenant(), &name("replaced")).unwrap().wait().unwrap();
    await_free(&catalog, 0);
}

#[test]
fn a_pool_without_room_for_a_profile_says_so_until_there_is_room() {
    let catalog = catalog(2 * PAGE_BYTES);
    let other = catalog.pool().allocate(&tenant(), PAGE_BYTES).unwrap();
    let statistics = || catalog.statistics(&tenant(), &name("t"));
    let rows_too_many = (1..).map(|eighths| eighths * ROW_GROUP_ROWS as i64 / 8).find(|rows| {
        load(&catalog, "t", LoadMode::Create, 0..*rows).unwrap();
        let refused = statistics().is_err_and(|error| error.kind == ErrorKind::OverLimit);
        if !refused {
            catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
            await_free(&catalog, PAGE_BYTES as u64);
        }
        refused
    });
    assert_eq!(statistics().unwrap_err().kind, ErrorKind::OverLimit);
    drop(other);
    let profile = Profile::read(&statistics().unwrap()).unwrap().unwrap();
    assert_eq!(Some(profile.rows() as i64), rows_too_many);
}

#[test]
fn what_was_gathered_goes_with_its_version() {
    let catalog = roomy();
    collected(&catalog, LoadMode::Create, 0..100);
    assert!(bytes_used(&catalog) > 0);
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    await_free(&catalog, 0);
}
