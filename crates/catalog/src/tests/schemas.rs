//! Tests of schemas: a table can only be in a schema that exists, and is dropped with its schema.

use super::*;
use farpool_model::{SchemaName, TableChange, View};

fn schema(name: &str) -> SchemaName {
    SchemaName::new(name).unwrap()
}

fn inside(name: &str) -> TableName {
    TableName::in_schema(&schema("s"), name).unwrap()
}

fn create(catalog: &Arc<Catalog>, name: &str) -> Result<()> {
    catalog.create_schema(&tenant(), &schema(name))?.wait()
}

fn drop_schema(catalog: &Arc<Catalog>, name: &str, cascade: bool) -> Result<()> {
    catalog.drop_schema(&tenant(), &schema(name), cascade)?.wait()
}

fn refused<T: std::fmt::Debug>(outcome: Result<T>, kind: ErrorKind, said: &str) {
    let error = outcome.unwrap_err();
    assert!(error.kind == kind && error.to_string().contains(said), "{error}");
}

#[test]
fn tables_of_one_name_in_two_schemas_are_two() {
    let catalog = roomy();
    create(&catalog, "s").unwrap();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let rows = batch(0..3);
    let mut begun =
        catalog.begin_load(&tenant(), &inside("t"), &rows.schema(), LoadMode::Create.into(), None).unwrap();
    begun.push(&rows).unwrap();
    begun.commit().unwrap();
    assert_eq!(catalog.info(&tenant(), &name("t")).unwrap().rows, 10);
    assert_eq!(catalog.info(&tenant(), &inside("t")).unwrap().rows, 3);
    let names: Vec<String> = catalog.tables(&tenant()).iter().map(|table| table.name.to_string()).collect();
    assert_eq!(names, ["s.t", "t"]);
    assert_eq!(catalog.list(&tenant()).schemas, [schema("s")]);
    catalog.drop_table(&tenant(), &inside("t")).unwrap().wait().unwrap();
    assert_eq!(catalog.info(&tenant(), &name("t")).unwrap().rows, 10);
    // A dot in a table name does not separate a schema.
    refused(catalog.info(&tenant(), &name("s.t")), ErrorKind::NotFound, "there is no table");
}

#[test]
fn nothing_is_made_in_a_schema_that_is_not_there() {
    let catalog = roomy();
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let rows = batch(0..3);
    for mode in [LoadMode::Create, LoadMode::Replace, LoadMode::Append, LoadMode::ReplaceVersion(Version(1))]
    {
        let begun = catalog.begin_load(&tenant(), &inside("t"), &rows.schema(), mode.into(), None);
        refused(begun.map(drop), ErrorKind::NotFound, "there is no schema \"s\"");
    }
    let view = View::new(inside("v"), "select 1").unwrap();
    refused(catalog.create_view(&tenant(), view, true).map(drop), ErrorKind::NotFound, "no schema");
    let rename = [TableChange::Rename(inside("t"))];
    let renamed = catalog.alter_table(&tenant(), &name("t"), &rename);
    refused(renamed.map(drop), ErrorKind::NotFound, "no schema");
    refused(catalog.drop_table(&tenant(), &inside("t")).map(drop), ErrorKind::NotFound, "no schema");
    refused(catalog.drop_view(&tenant(), &inside("t")).map(drop), ErrorKind::NotFound, "no ");
    assert_eq!(catalog.info(&tenant(), &name("t")).unwrap().rows, 10);
}

#[test]
fn a_schema_goes_empty_or_with_all_that_is_in_it() {
    let catalog = roomy();
    create(&catalog, "s").unwrap();
    refused(create(&catalog, "s"), ErrorKind::Exists, "a schema \"s\" already");
    for reserved in ["public", "information_schema", "pg_catalog"] {
        assert!(create(&catalog, reserved).is_err(), "{reserved}");
    }
    refused(drop_schema(&catalog, "public", true), ErrorKind::Invalid, "cannot be dropped");
    refused(drop_schema(&catalog, "r", true), ErrorKind::NotFound, "there is: s, public");
    load(&catalog, "t", LoadMode::Create, 0..10).unwrap();
    let renamed = catalog.alter_table(&tenant(), &name("t"), &[TableChange::Rename(inside("t"))]);
    renamed.unwrap().wait().unwrap();
    refused(drop_schema(&catalog, "s", false), ErrorKind::Invalid, "s.t");
    // While a load is about to create a table in a schema, the schema cannot be dropped.
    let rows = batch(0..3);
    let creating =
        catalog.begin_load(&tenant(), &inside("u"), &rows.schema(), LoadMode::Create.into(), None).unwrap();
    refused(drop_schema(&catalog, "s", true), ErrorKind::Exists, "under way");
    drop(creating);
    catalog
        .create_view(&tenant(), View::new(inside("v"), "select 1").unwrap(), false)
        .unwrap()
        .wait()
        .unwrap();
    drop_schema(&catalog, "s", true).unwrap();
    assert!(catalog.list(&tenant()) == farpool_model::Listing::default());
    assert_eq!(catalog.pool().usage().bytes_used, 0);
    // Each tenant has its own schemas.
    let other = TenantName::new("other").unwrap();
    catalog.create_schema(&other, &schema("s")).unwrap().wait().unwrap();
    assert!(catalog.list(&tenant()).schemas.is_empty());
}

#[test]
fn the_number_of_schemas_is_bounded() {
    let catalog = roomy();
    for i in 0..limits::SCHEMAS_PER_TENANT_MAX {
        create(&catalog, &format!("s{i}")).unwrap();
    }
    refused(create(&catalog, "more"), ErrorKind::OverLimit, "schemas");
    drop_schema(&catalog, "s7", false).unwrap();
    create(&catalog, "more").unwrap();
}
