//! Tests of tables that are encrypted in memory.

use super::*;
use farpool_columns::Chunk;

fn encrypting(mode: LoadMode, tier: Tier) -> LoadOptions {
    LoadOptions { encryption: Some(tier), ..mode.into() }
}

fn chunks(catalog: &Catalog, table: &TableName) -> Vec<Arc<Chunk>> {
    let (_, table) = catalog.get(&tenant(), table).unwrap();
    table.row_groups.iter().flat_map(|group| group.chunks.clone()).collect()
}

#[test]
fn what_takes_the_place_of_encrypted_rows_is_encrypted() {
    let (catalog, background) = new_catalog();
    let t = name("t");
    let made = larger::load(&catalog, &t, encrypting(LoadMode::Create, Tier::Strict), 0..200_000).unwrap();
    assert_eq!(made.encryption, Some(Tier::Strict));
    for i in 0..40 {
        larger::load(&catalog, &t, LoadMode::Append, i..i + 1).unwrap();
    }
    larger::load(&catalog, &t, encrypting(LoadMode::Append, Tier::Strict), 0..100_000).unwrap();
    let before = chunks(&catalog, &t).len();
    background.run();
    assert!(chunks(&catalog, &t).len() < before, "small row groups were merged");
    let field = Arc::new(arrow_schema::Field::new("new", arrow_schema::DataType::Date32, true));
    catalog.alter_table(&tenant(), &t, &[TableChange::AddColumn(field)]).unwrap().wait().unwrap();
    let is_hidden = |chunk: &Arc<Chunk>| chunk.is_encrypted() || chunk.null_count() == chunk.rows();
    assert!(chunks(&catalog, &t).iter().all(is_hidden));
    let expected: Vec<_> = (0..200_000).chain(0..40).chain(0..100_000).map(Some).collect();
    assert!(values(&catalog.get(&tenant(), &t).unwrap().1) == expected);
    // A table that replaces an encrypted one is encrypted, too, with the requested tier.
    assert_eq!(larger::load(&catalog, &t, LoadMode::Replace, 0..10).unwrap().encryption, Some(Tier::Strict));
    let replace = encrypting(LoadMode::Replace, Tier::Fast);
    assert_eq!(larger::load(&catalog, &t, replace, 0..10).unwrap().encryption, Some(Tier::Fast));
}

#[test]
fn what_would_be_in_the_clear_is_refused() {
    let (catalog, _) = profiling_catalog();
    let (t, u) = (name("t"), name("u"));
    larger::load(&catalog, &u, LoadMode::Create, 0..10).unwrap();
    let append = larger::load(&catalog, &u, encrypting(LoadMode::Append, Tier::Standard), 0..10).unwrap_err();
    assert!(append.kind == ErrorKind::Invalid && append.message.contains("an append cannot"), "{append}");
    // Rows of a load that began for a plain table are not appended to an encrypted one.
    let mut load =
        catalog.begin_load(&tenant(), &u, &batch(0..0).schema(), LoadMode::Append.into(), None).unwrap();
    load.push(&batch(0..100_000)).unwrap();
    larger::load(&catalog, &u, encrypting(LoadMode::Replace, Tier::Standard), 0..10).unwrap();
    let late = load.commit().unwrap_err();
    assert!(late.kind == ErrorKind::Stale && late.message.contains("encrypted"), "{late}");
    // There is no profile (statistics) of the table, since it would have values in the clear.
    let error = catalog.statistics(&tenant(), &u).unwrap_err();
    assert!(error.message.contains("has no profile"), "{error}");
    let info = catalog.info(&tenant(), &u).unwrap();
    assert!(info.rows_profiled.is_none());
    assert!(info.columns.iter().all(|column| column.min.is_none() && column.spread.is_none()));
    // A data directory that is not encrypted would store the values in the clear.
    let (catalog, _, _) = open(&SimulatedDirectory::new()).unwrap();
    let error = larger::load(&catalog, &t, encrypting(LoadMode::Create, Tier::Standard), 0..10).unwrap_err();
    assert!(error.message.contains("in the clear") && error.advice.is_some(), "{error}");
    assert!(catalog.list(&tenant()).tables.is_empty());
}
