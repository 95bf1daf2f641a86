//! Tests of several loads that create tables of one name at the same time, and of other operations on that name
//! meanwhile. The first load has a claim to the name.

use super::*;

fn refused(catalog: &Arc<Catalog>) -> Error {
    let error = begin(catalog, "t", LoadMode::Create).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Exists);
    error
}

#[test]
fn a_second_create_is_refused_at_its_beginning_until_the_first_has_ended() {
    let catalog = roomy();
    let first = begin(&catalog, "t", LoadMode::Create).unwrap();
    assert!(refused(&catalog).message.contains("under way"));
    // Loads of other tables and of other tenants are not affected.
    begin(&catalog, "u", LoadMode::Create).unwrap();
    let other = TenantName::new("other").unwrap();
    let schema = batch(0..0).schema();
    catalog.begin_load(&other, &name("t"), &schema, LoadMode::Create.into(), None).unwrap();
    drop(first);
    let mut failing = begin(&catalog, "t", LoadMode::Create).unwrap();
    failing.push(&noise(5, 1)).unwrap_err();
    assert!(refused(&catalog).message.contains("under way"));
    failing.commit().unwrap_err();
    load(&catalog, "t", LoadMode::Create, 0..3).unwrap();
    assert!(refused(&catalog).message.contains("there is a table"));
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    // A load that is refused for its schema leaves no claim to the name.
    let twice =
        Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("a", DataType::Int64, true)]);
    catalog.begin_load(&tenant(), &name("t"), &twice, LoadMode::Create.into(), None).unwrap_err();
    load(&catalog, "t", LoadMode::Create, 0..4).unwrap();
    assert_eq!(catalog.state.read().claims.len(), 0);
}

#[test]
fn a_replacement_takes_the_name_of_a_create_which_hears_of_it_with_its_next_rows() {
    let catalog = roomy();
    for dropped in [false, true] {
        let mut create = begin(&catalog, "t", LoadMode::Create).unwrap();
        create.push(&batch(0..5)).unwrap();
        load(&catalog, "t", LoadMode::Replace, 7..9).unwrap();
        if dropped {
            catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
        }
        assert_eq!(create.push(&batch(5..6)).unwrap_err().kind, ErrorKind::Exists);
        assert_eq!(create.commit().unwrap_err().kind, ErrorKind::Exists);
        if !dropped {
            assert_eq!(ids(&catalog, "t"), [7, 8]);
            catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
        }
    }
    // Dropping the first load does not end the claim of a later load.
    let late = begin(&catalog, "t", LoadMode::Create).unwrap();
    load(&catalog, "t", LoadMode::Replace, 7..9).unwrap();
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
    let second = begin(&catalog, "t", LoadMode::Create).unwrap();
    assert_eq!(late.commit().unwrap_err().kind, ErrorKind::Exists);
    refused(&catalog);
    second.commit().unwrap();
}

#[test]
fn to_others_a_table_that_is_being_created_is_not_there() {
    let catalog = roomy();
    let create = begin(&catalog, "t", LoadMode::Create).unwrap();
    let errors = [
        catalog.drop_table(&tenant(), &name("t")).unwrap_err(),
        begin(&catalog, "t", LoadMode::Append).unwrap_err(),
        begin(&catalog, "t", LoadMode::ReplaceVersion(Version(1))).unwrap_err(),
        catalog.info(&tenant(), &name("t")).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert!(error.advice.as_ref().unwrap().contains("under way"), "{error}");
    }
    create.commit().unwrap();
    catalog.drop_table(&tenant(), &name("t")).unwrap().wait().unwrap();
}

#[test]
fn a_create_that_was_given_up_publishes_nothing() {
    let catalog = roomy();
    let create = begin(&catalog, "t", LoadMode::Create).unwrap();
    create.claim().unwrap().give_up();
    let second = begin(&catalog, "t", LoadMode::Create).unwrap();
    assert_eq!(create.commit().unwrap_err().kind, ErrorKind::Exists);
    second.commit().unwrap();
}
