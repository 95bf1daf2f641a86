//! Tests of changes of columns and names while the table is read, appended to and merged.

use super::*;
use farpool_model::TableChange;

fn alter(catalog: &Arc<Catalog>, table: &str, changes: &[TableChange]) -> Result<TableInfo> {
    catalog.alter_table(&tenant(), &name(table), changes)?.wait()
}

fn rename(from: &str, to: &str) -> TableChange {
    TableChange::RenameColumn { from: from.into(), to: to.into() }
}

fn add(name: &str) -> TableChange {
    TableChange::AddColumn(Arc::new(Field::new(name, DataType::Utf8, true)))
}

fn texts(catalog: &Catalog, table: &str, column: usize) -> Vec<Option<String>> {
    let (_, table) = catalog.get(&tenant(), &name(table)).unwrap();
    let decode = |group: &Arc<farpool_columns::RowGroup>| {
        let values = group.chunks[column].decode(0..group.rows).unwrap();
        values.as_string_view().iter().map(|text| text.map(str::to_string)).collect::<Vec<_>>()
    };
    table.row_groups.iter().flat_map(decode).collect()
}

#[test]
fn without_memory_for_its_lists_nothing_is_altered() {
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let work = WorkMemory::new(4 << 20);
    let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), Arc::new(Threads)).within(work.clone()));
    catalog.close_taps();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let columns: Vec<TableChange> = (0..1_000).map(|column| add(&format!("c{column}"))).collect();
    let account = work.account(&tenant());
    let taken = account.take(account.free() - 4_000);
    let before = catalog.info(&tenant(), &name("t")).unwrap();
    assert_eq!(alter(&catalog, "t", &columns).unwrap_err().kind, ErrorKind::OverLimit);
    assert_eq!(catalog.info(&tenant(), &name("t")).unwrap(), before);
    drop(taken);
    assert_eq!(alter(&catalog, "t", &columns).unwrap().schema.fields().len(), 1_002);
}

#[test]
fn rows_stay_where_they_are() {
    let catalog = roomy();
    let rows = 2 * ROW_GROUP_ROWS as i64 + 100;
    let before = load(&catalog, "t", LoadMode::Create, 0..rows).unwrap();
    catalog.statistics(&tenant(), &name("t")).unwrap();
    let used = bytes_used(&catalog);
    let (_, old) = catalog.get(&tenant(), &name("t")).unwrap();
    let altered = alter(&catalog, "t", &[add("note"), rename("text", "label")]).unwrap();
    assert!(altered.version > before.version);
    assert_eq!((altered.rows, altered.schema.fields().len()), (rows as u64, 3));
    assert_eq!(altered.columns[0], before.columns[0].clone(), "what is known of a column stays known");
    assert_eq!(altered.columns[2].null_count, rows as u64);
    assert!(altered.bytes_encoded < before.bytes_encoded + 64 * 1024, "NULLs take next to nothing");
    let (_, new) = catalog.get(&tenant(), &name("t")).unwrap();
    for (new, old) in new.row_groups.iter().zip(old.row_groups.iter()) {
        assert!(Arc::ptr_eq(&new.chunks[0], &old.chunks[0]) && Arc::ptr_eq(&new.chunks[1], &old.chunks[1]));
    }
    let whole = catalog.statistics(&tenant(), &name("t")).unwrap();
    assert_eq!(whole.table.rows_profiled, None, "all rows are known");
    assert!(bytes_used(&catalog) <= used + 4 * PAGE_BYTES as u64);

    let dropped = alter(&catalog, "t", &[TableChange::DropColumn("label".into())]).unwrap();
    assert_eq!(dropped.bytes_encoded, altered.bytes_encoded - altered.columns[1].bytes_encoded);
    assert_eq!(ids(&catalog, "t"), (0..rows).collect::<Vec<_>>());
    assert_eq!(texts(&catalog, "t", 1), vec![None; rows as usize]);
    // A reader of the old version still sees the columns of that version.
    assert_eq!(old.row_groups.get(2).unwrap().chunks.len(), 2);
    drop((old, new, whole));
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    await_free(&catalog, 0);
}

#[test]
fn a_table_is_found_under_its_new_name_only() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    load(&catalog, "other", LoadMode::Create, 0..1).unwrap();
    let taken = alter(&catalog, "t", &[TableChange::Rename(name("other"))]).unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Exists);
    let creating = begin(&catalog, "soon", LoadMode::Create).unwrap();
    let taken = alter(&catalog, "t", &[TableChange::Rename(name("soon"))]).unwrap_err();
    assert!(taken.kind == ErrorKind::Exists && taken.message.contains("under way"), "{taken}");
    drop(creating);
    let mut late = begin(&catalog, "t", LoadMode::Append).unwrap();
    late.push(&batch(10..12)).unwrap();
    alter(&catalog, "t", &[TableChange::Rename(name("t"))]).unwrap();
    let renamed = alter(&catalog, "t", &[TableChange::Rename(name("u")), add("note")]).unwrap();
    assert_eq!((renamed.name.as_str(), renamed.rows), ("u", 10));
    assert_eq!(catalog.get(&tenant(), &name("t")).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(late.commit().unwrap_err().kind, ErrorKind::NotFound);
    load(&catalog, "t", LoadMode::Create, 0..2).unwrap();
    assert_eq!((ids(&catalog, "u").len(), ids(&catalog, "t").len()), (10, 2));
    assert_eq!(alter(&catalog, "nothing", &[add("x")]).unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn appends_and_merges_go_on() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    for round in 0..40 {
        load(&catalog, "t", LoadMode::Append, 10 * round + 10..10 * round + 20).unwrap();
    }
    let mut late = begin(&catalog, "t", LoadMode::Append).unwrap();
    late.push(&batch(0..1)).unwrap();
    alter(&catalog, "t", &[rename("text", "label")]).unwrap();
    assert_eq!(late.commit().unwrap_err().kind, ErrorKind::Invalid, "it has other columns");
    alter(&catalog, "t", &[rename("label", "text")]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..60 {
                let (from, to) = [("text", "label"), ("label", "text")][round % 2];
                alter(&catalog, "t", &[rename("id", "key"), rename("key", "id"), rename(from, to)]).unwrap();
            }
        });
        let mut appended = 0;
        while appended < 40 {
            let next = 410 + 10 * appended;
            match load(&catalog, "t", LoadMode::Append, next..next + 10) {
                Ok(_) => appended += 1,
                Err(error) => assert_eq!(error.kind, ErrorKind::Invalid, "{error}"),
            }
        }
    });
    assert_eq!(ids(&catalog, "t"), (0..810).collect::<Vec<_>>());
    for _ in 0..60_000 {
        let groups = catalog.get(&tenant(), &name("t")).unwrap().1.row_groups.len();
        if groups < 20 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("row groups are no longer merged");
}

#[test]
fn without_memory_a_table_stays_as_it_is() {
    let catalog = catalog(4 * PAGE_BYTES);
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let held: Vec<_> = std::iter::from_fn(|| catalog.pool().allocate(&tenant(), PAGE_BYTES).ok()).collect();
    let before = catalog.info(&tenant(), &name("t")).unwrap();
    for _ in 0..100_000 {
        // Small pieces share a page of the pool, which is full after some changes.
        if alter(&catalog, "t", &[add("x"), TableChange::DropColumn("x".into())]).is_err() {
            break;
        }
    }
    drop(held);
    let after = catalog.info(&tenant(), &name("t")).unwrap();
    assert_eq!((after.rows, after.schema), (before.rows, before.schema));
}
