//! Row groups that take the place of others.

use super::taps::Held;
use super::*;
use farpool_columns::RowGroup;
use farpool_model::Value;

fn groups(catalog: &Catalog) -> (Version, Arc<Table>, Vec<usize>) {
    let (version, table) = catalog.get(&tenant(), &name("t")).unwrap();
    let rows = table.row_groups.iter().map(|group| group.rows).collect();
    (version, table, rows)
}

/// Row groups of these rows, by the places that they are to have.
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
    let info = catalog.replace_row_groups(&tenant(), &name("t"), base, changes.clone()).unwrap();
    let (now, after, rows) = groups(&catalog);
    assert_eq!(
        (info.version, info.rows, rows),
        (now, 2 * GROUP as u64 + 2, vec![GROUP as usize, 2, GROUP as usize])
    );
    assert!(Arc::ptr_eq(&after.row_groups[0], &before.row_groups[0]));
    assert!(Arc::ptr_eq(&after.row_groups[2], &before.row_groups[3]));
    let expected: Vec<i64> = (0..GROUP).chain(7..9).chain(3 * GROUP..4 * GROUP).collect();
    assert_eq!(ids(&catalog, "t"), expected);
    // Bounds and profiles are those of the rows that are there.
    let statistics = catalog.statistics(&tenant(), &name("t")).unwrap();
    assert_eq!(
        statistics.table.columns[0].max.as_ref().map(|max| max.value().clone()),
        Some(Value::Int((4 * GROUP - 1).into()))
    );
    let estimate = statistics.table.columns[0].distinct_estimate.unwrap() as f64;
    assert!((estimate / expected.len() as f64 - 1.0).abs() < 0.05, "{estimate}");

    let stale = catalog.replace_row_groups(&tenant(), &name("t"), base, changes.clone()).unwrap_err();
    assert_eq!(stale.kind, ErrorKind::Stale);
    catalog.drop_table(&tenant(), &name("t")).unwrap();
    let gone = catalog.replace_row_groups(&tenant(), &name("t"), base, changes).unwrap_err();
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
    catalog.replace_row_groups(&tenant(), &name("t"), (version, &before), changes).unwrap();
    for row in 100..200 {
        load(&catalog, "t", LoadMode::Append, row..row + 1).unwrap();
    }
    let expected: Vec<i64> = (0..13).chain(100..200).collect();
    assert_eq!(ids(&catalog, "t"), expected);
    // What is small is merged, whether it was there before the change or came behind it.
    while held.step(&|| true) {}
    let rows = groups(&catalog).2;
    assert!(rows.len() <= limits::SMALL_GROUPS_MAX, "{rows:?}");
    assert_eq!(ids(&catalog, "t"), expected);
}
