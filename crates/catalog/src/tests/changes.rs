//! Tests of changes that replace row groups of a table (updates and deletions of rows).

use super::taps::Held;
use super::*;
use farpool_columns::RowGroup;
use farpool_model::{ColumnStatistics, Value};
use proptest::prelude::*;

fn groups(catalog: &Catalog) -> (Version, Arc<Table>, Vec<usize>) {
    let (version, table) = catalog.get(&tenant(), &name("t")).unwrap();
    let rows = table.row_groups.iter().map(|group| group.rows).collect();
    (version, table, rows)
}

/// Encodes row groups that have the given rows. Returns them by the index of the row group that each replaces.
fn made(
    catalog: &Arc<Catalog>,
    of: &[(usize, std::ops::Range<i64>)],
) -> BTreeMap<usize, Option<Arc<RowGroup>>> {
    let group = |(place, rows): &(usize, std::ops::Range<i64>)| {
        let spare = TableName::new(format!("spare{place}")).unwrap();
        if rows.is_empty() {
            return (*place, None);
        }
        load(catalog, spare.as_str(), LoadMode::Replace, rows.clone()).unwrap();
        let (_, table) = catalog.get(&tenant(), &spare).unwrap();
        (*place, Some(table.row_groups[0].clone()))
    };
    of.iter().map(group).collect()
}

#[test]
fn some_row_groups_change_and_the_others_are_those_of_before() {
    let catalog = roomy();
    const GROUP: i64 = limits::ROW_GROUP_ROWS as i64;
    load(&catalog, "t", LoadMode::Create, 0..4 * GROUP).unwrap();
    let (version, before, _) = groups(&catalog);
    let changes = made(&catalog, &[(1, 7..9), (2, 0..0)]);
    let base = (version, &*before);
    let info =
        catalog.replace_row_groups(&tenant(), &name("t"), base, &changes, None).unwrap().wait().unwrap();
    let (now, after, rows) = groups(&catalog);
    assert_eq!(
        (info.version, info.rows, rows),
        (now, 2 * GROUP as u64 + 2, vec![GROUP as usize, 2, GROUP as usize])
    );
    assert!(Arc::ptr_eq(&after.row_groups[0], &before.row_groups[0]));
    assert!(Arc::ptr_eq(&after.row_groups[2], &before.row_groups[3]));
    let expected: Vec<i64> = (0..GROUP).chain(7..9).chain(3 * GROUP..4 * GROUP).collect();
    assert_eq!(ids(&catalog, "t"), expected);
    // Bounds of columns and profiles cover exactly the rows that are left.
    let statistics = catalog.statistics(&tenant(), &name("t")).unwrap();
    assert_eq!(
        statistics.table.columns[0].max.as_ref().map(|max| max.value().clone()),
        Some(Value::Int((4 * GROUP - 1).into()))
    );
    let estimate = statistics.table.columns[0].distinct_estimate.unwrap() as f64;
    assert!((estimate / expected.len() as f64 - 1.0).abs() < 0.05, "{estimate}");

    let stale = catalog.replace_row_groups(&tenant(), &name("t"), base, &changes, None).unwrap_err();
    assert_eq!(stale.kind, ErrorKind::Stale);
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    let gone = catalog.replace_row_groups(&tenant(), &name("t"), base, &changes, None).unwrap_err();
    assert_eq!(gone.kind, ErrorKind::NotFound);
}

#[test]
fn appends_and_merges_go_on_behind_a_change() {
    let (held, catalog) = Held::catalog();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    for row in 10..14 {
        load(&catalog, "t", LoadMode::Append, row..row + 1).unwrap();
    }
    let (version, before, rows) = groups(&catalog);
    let changes = made(&catalog, &[(rows.len() - 1, 0..0)]);
    catalog
        .replace_row_groups(&tenant(), &name("t"), (version, &before), &changes, None)
        .unwrap()
        .wait()
        .unwrap();
    for row in 100..200 {
        load(&catalog, "t", LoadMode::Append, row..row + 1).unwrap();
    }
    let expected: Vec<i64> = (0..13).chain(100..200).collect();
    assert_eq!(ids(&catalog, "t"), expected);
    // Small row groups are merged, whether they are from before the change or were appended after it.
    while held.step(&|| true) {}
    let rows = groups(&catalog).2;
    assert!(rows.len() <= limits::SMALL_GROUPS_MAX, "{rows:?}");
    assert_eq!(ids(&catalog, "t"), expected);
}

/// Returns the values of the id column that a table has after `changes` have replaced row groups of `base`.
fn ids_with(base: &Table, changes: &BTreeMap<usize, Option<Arc<RowGroup>>>) -> Vec<i64> {
    let groups = base.row_groups.iter().enumerate();
    let ids = groups.flat_map(|(place, group)| match changes.get(&place) {
        Some(changed) => changed.iter().flat_map(|group| ids_of(group)).collect::<Vec<_>>(),
        None => ids_of(group),
    });
    ids.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Rows are appended while a change is computed, and merged with changed row groups and with each other.
    #[test]
    fn rows_that_come_during_a_change_stay_behind_it(
        before in 1..60_i64, since in 0..60_i64, steps_before in 0..20, steps_since in 0..200, seed in any::<u64>(),
    ) {
        let (held, catalog) = Held::catalog();
        load(&catalog, "t", LoadMode::Create, 0..1_000).unwrap();
        let append = |number: i64| {
            let first = 1_000 * number;
            load(&catalog, "t", LoadMode::Append, first..first + 1 + number % 7).unwrap();
        };
        (1..before).for_each(append);
        (0..steps_before).for_each(|_| _ = held.step(&|| false));
        let (version, base, rows) = groups(&catalog);
        let is_changed = |place: &usize| seed.rotate_left(*place as u32) % 3 == 0;
        let new = |place: usize| -(1_000 * place as i64)..-(1_000 * place as i64) + (seed % 4) as i64;
        let changed: Vec<_> = (0..rows.len()).filter(is_changed).map(|place| (place, new(place))).collect();
        let changes = made(&catalog, &changed);
        (before..before + since).for_each(append);
        (0..steps_since).for_each(|_| _ = held.step(&|| false));
        let behind = ids(&catalog, "t").split_off(rows.iter().sum());

        let info = catalog.replace_row_groups(&tenant(), &name("t"), (version, &base), &changes, None).unwrap().wait().unwrap();
        let expected = [ids_with(&base, &changes), behind].concat();
        prop_assert_eq!(ids(&catalog, "t"), expected.clone());
        prop_assert_eq!(info.rows, expected.len() as u64);
        let int = |id: Option<&i64>| id.map(|id| Value::Int((*id).into()));
        let ColumnStatistics { min, max, .. } = info.columns[0].clone();
        prop_assert_eq!(min.map(|min| min.value().clone()), int(expected.iter().min()));
        prop_assert_eq!(max.map(|max| max.value().clone()), int(expected.iter().max()));

        // A merge of row groups that were changed in the meantime must not undo the change.
        while held.step(&|| true) {}
        prop_assert_eq!(ids(&catalog, "t"), expected);
        let again = catalog.replace_row_groups(&tenant(), &name("t"), (version, &base), &changes, None);
        prop_assert_eq!(again.unwrap_err().kind, ErrorKind::Stale);
    }
}

#[test]
fn no_change_gives_way_to_appends() {
    let catalog = roomy();
    const ROWS: i64 = 2_000;
    const CHANGES: i64 = 40;
    load(&catalog, "t", LoadMode::Create, 0..ROWS).unwrap();
    let is_over = AtomicBool::new(false);
    let append = |writer: i64| {
        let mut row = 1_000_000 * writer;
        while !is_over.load(Ordering::Relaxed) {
            load(&catalog, "t", LoadMode::Append, row..row + 1).unwrap();
            row += 1;
        }
        row - 1_000_000 * writer
    };
    let (appended, changed) = std::thread::scope(|scope| {
        let writers = [1, 2, 3].map(|writer| scope.spawn(move || append(writer)));
        // Each change removes the first row group, so that the indices of the others change.
        let mut changed = 0;
        for _ in 0..CHANGES {
            let (version, base, rows) = groups(&catalog);
            let changes = BTreeMap::from([(0, None)]);
            std::thread::yield_now();
            catalog
                .replace_row_groups(&tenant(), &name("t"), (version, &base), &changes, None)
                .unwrap()
                .wait()
                .unwrap();
            changed += rows.first().map_or(0, |rows| *rows as i64);
        }
        is_over.store(true, Ordering::Relaxed);
        (writers.map(|writer| writer.join().unwrap()).iter().sum::<i64>(), changed)
    });
    let left = ids(&catalog, "t");
    assert_eq!(left.len() as i64, ROWS + appended - changed);
    assert_eq!(left.iter().collect::<std::collections::BTreeSet<_>>().len(), left.len());
}
