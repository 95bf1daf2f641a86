//! Tests of views: a name belongs either to a table or to a view, and the memory of views is bounded.

use super::*;
use farpool_memory::WorkMemory;
use farpool_model::{Listing, Relation, TableChange, View};

fn view(catalog: &Arc<Catalog>, named: &str, text: &str, replace: bool) -> Result<()> {
    catalog.create_view(&tenant(), View::new(name(named), text)?, replace)?.wait()
}

fn text(catalog: &Catalog, named: &str) -> Result<String> {
    match catalog.relation(&tenant(), &name(named))? {
        Relation::View(view) => Ok(view.text().to_string()),
        Relation::Table(table) => panic!("{} is a table", table.name),
    }
}

/// Checks that `outcome` is an error of the given kind whose message contains all strings of `said`.
fn refused<T: std::fmt::Debug>(outcome: Result<T>, kind: ErrorKind, said: &[&str]) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    said.iter().for_each(|said| assert!(error.to_string().contains(said), "{error}"));
}

#[test]
fn a_view_is_made_replaced_and_dropped() {
    let catalog = roomy();
    view(&catalog, "v", "select 1", false).unwrap();
    refused(view(&catalog, "v", "select 2", false), ErrorKind::Exists, &["view \"v\"", "OR REPLACE"]);
    assert_eq!(text(&catalog, "v").unwrap(), "select 1");
    view(&catalog, "v", "select 2", true).unwrap();
    view(&catalog, "u", "select 3", true).unwrap();
    assert_eq!(text(&catalog, "v").unwrap(), "select 2");
    assert_eq!(catalog.list(&tenant()).views, [name("u"), name("v")]);
    assert!(catalog.list(&TenantName::new("other").unwrap()) == Listing::default());
    assert!(catalog.list(&tenant()).tables.is_empty(), "views are not listed as tables");
    catalog.drop_view(&tenant(), &name("v")).unwrap().wait().unwrap();
    refused(text(&catalog, "v"), ErrorKind::NotFound, &["there is: u"]);
    refused(catalog.drop_view(&tenant(), &name("v")), ErrorKind::NotFound, &["no view \"v\"", "u"]);
    assert_eq!(catalog.list(&tenant()).views, [name("u")]);
}

#[test]
fn tables_and_views_have_one_name_space() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    view(&catalog, "v", "select 1", false).unwrap();
    let creating = begin(&catalog, "soon", LoadMode::Create).unwrap();

    for replace in [false, true] {
        refused(view(&catalog, "t", "select 1", replace), ErrorKind::Exists, &["table \"t\"", "DROP TABLE"]);
        refused(view(&catalog, "soon", "select 1", replace), ErrorKind::Exists, &["under way", "wait"]);
    }
    drop(creating);
    view(&catalog, "soon", "select 1", false).unwrap();

    for mode in [LoadMode::Create, LoadMode::Replace] {
        refused(begin(&catalog, "v", mode), ErrorKind::Exists, &["view \"v\"", "DROP VIEW"]);
    }
    for mode in [LoadMode::Append, LoadMode::ReplaceVersion(Version(1))] {
        refused(begin(&catalog, "v", mode), ErrorKind::NotFound, &["\"v\" is a view"]);
    }
    let rename = catalog.alter_table(&tenant(), &name("t"), &[TableChange::Rename(name("v"))]);
    refused(rename, ErrorKind::Exists, &["view \"v\"", "DROP VIEW"]);

    let v = name("v");
    let said = ["\"v\" is a view", "DROP VIEW"];
    refused(catalog.drop_table(&tenant(), &v), ErrorKind::NotFound, &said);
    refused(catalog.get(&tenant(), &v), ErrorKind::NotFound, &said);
    refused(catalog.info(&tenant(), &v), ErrorKind::NotFound, &said);
    refused(catalog.statistics(&tenant(), &v), ErrorKind::NotFound, &said);
    let add = TableChange::DropColumn("id".into());
    refused(catalog.alter_table(&tenant(), &v, &[add]), ErrorKind::NotFound, &said);
    refused(catalog.drop_view(&tenant(), &name("t")), ErrorKind::NotFound, &["is a table", "DROP TABLE"]);
    assert_eq!(ids(&catalog, "t").len(), 10);
    assert_eq!(catalog.list(&tenant()).views, [name("soon"), name("v")]);
    assert!(matches!(catalog.relation(&tenant(), &name("t")), Ok(Relation::Table(t)) if t.rows == 10));
}

#[test]
fn a_view_that_was_faster_than_a_replacement_stays() {
    let catalog = roomy();
    let mut replacing = begin(&catalog, "v", LoadMode::Replace).unwrap();
    replacing.push(&batch(0..10)).unwrap();
    view(&catalog, "v", "select 1", false).unwrap();
    refused(replacing.commit(), ErrorKind::Exists, &["view \"v\""]);
    assert_eq!(text(&catalog, "v").unwrap(), "select 1");
    assert!(catalog.list(&tenant()).tables.is_empty());
    await_free(&catalog, 0);
}

#[test]
fn views_are_few_short_and_paid_for() {
    let work = WorkMemory::new(1 << 20);
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let catalog = Arc::new(Catalog::new(pool, Arc::new(Two), Arc::new(Threads)).within(work.clone()));
    let used = || work.usage().bytes_used;
    let long = "x".repeat(limits::VIEW_BYTES_MAX);
    refused(view(&catalog, "v", &format!("{long}x"), false), ErrorKind::OverLimit, &["65537"]);
    refused(view(&catalog, "v", "", false), ErrorKind::Invalid, &["\"v\""]);
    view(&catalog, "v", &long, false).unwrap();
    let one = used();
    assert!(one >= limits::VIEW_BYTES_MAX as u64, "{one}");
    view(&catalog, "v", &long, true).unwrap();
    assert_eq!(used(), one, "the one before is given back");
    let full = (0..100).find_map(|i| view(&catalog, &format!("v{i}"), &long, false).err()).unwrap();
    assert_eq!(full.kind, ErrorKind::OverLimit, "{full}");
    for name in catalog.list(&tenant()).views {
        catalog.drop_view(&tenant(), &name).unwrap().wait().unwrap();
    }
    assert_eq!(used(), 0);

    let catalog = roomy();
    for i in 0..limits::VIEWS_PER_TENANT_MAX {
        view(&catalog, &format!("v{i}"), "select 1", false).unwrap();
    }
    refused(view(&catalog, "one more", "select 1", false), ErrorKind::OverLimit, &["4096", "drop"]);
    view(&catalog, "v7", "select 2", true).unwrap();
}
