//! Tests of the encoding of rows (values of spaces with a schema): encoded rows are compared with lists of their
//! fields.

use super::*;
use proptest::prelude::*;

fn schema(text: &str) -> RowSchema {
    RowSchema::parse(text).unwrap()
}

#[test]
fn a_schema_is_read_and_told() {
    let users = schema("id u64,name  utf8, age U32 , joined date");
    assert_eq!(users.text(), "id u64, name utf8, age u32, joined date");
    assert_eq!(schema(&users.text()), users);
    assert_eq!(users.position(b"age"), Some(1));
    assert_eq!(users.position(b"id"), None);
    for (text, what) in [
        ("id u64", "two columns at least"),
        ("id u64, name", "is not a name and a type"),
        ("id u64, name utf9", "no type \"utf9\""),
        ("id u64, id utf8", "two columns are named"),
        ("", "is not a name and a type"),
    ] {
        let error = RowSchema::parse(text).unwrap_err();
        assert!(error.message.contains(what), "{text}: {error:?}");
    }
}

#[test]
fn values_are_read_and_told() {
    for (kind, text, told) in [
        ("bool", "T", Some("true")),
        ("bool", "yes", None),
        ("i8", "-128", Some("-128")),
        ("i8", "128", None),
        ("i64", "-9223372036854775808", Some("-9223372036854775808")),
        ("i32", "01", None),
        ("u64", "18446744073709551615", Some("18446744073709551615")),
        ("u8", "256", None),
        ("u8", "+1", None),
        ("u8", "", None),
        ("f64", "0.1", Some("0.1")),
        ("f64", "1e300", Some("1e300")),
        ("f64", "inf", Some("inf")),
        ("f32", "0.3", Some("0.3")),
        ("utf8", "Ada", Some("Ada")),
        ("date", "1969-12-31", Some("1969-12-31")),
        ("date", "2026-02-30", None),
        ("timestamp", "2026-01-31 12:00:00.5", Some("2026-01-31T12:00:00.500")),
        ("timestamp", "1900-01-01", Some("1900-01-01T00:00:00")),
        ("timestamp", "2026-01-31T12:00:00Z", Some("2026-01-31T12:00:00")),
    ] {
        let kind = schema(&format!("id u64, value {kind}")).fields()[0].kind;
        let value = kind.parse_value(text.as_bytes());
        let read = value.map(|value| String::from_utf8(kind.value_text(&value).into_owned()).unwrap());
        assert_eq!(read.as_deref(), told, "{text} as {kind:?}");
    }
    assert_eq!(ColumnType::Utf8.parse_value(b"\xff"), None);
}

#[test]
fn a_key_has_one_text_for_each_value() {
    let users = schema("id u64, name utf8");
    assert_eq!(users.key_value(b"7"), Some(7_u64.to_le_bytes().to_vec()));
    assert_eq!(users.key_value(b"07"), None);
    let times = schema("at timestamp, name utf8");
    assert!(times.key_value(b"2026-01-31T12:00:00").is_some());
    assert_eq!(times.key_value(b"2026-01-31 12:00:00"), None);
}

#[test]
fn bytes_that_are_no_row_have_nulls() {
    let users = schema("id u64, name utf8, age u32, city utf8");
    for row in [&[][..], &[7], &[7, 255, 255, 255, 255, 0, 0, 0, 0, 1, 0, 0, 0]] {
        for at in 0..3 {
            let _ = users.field(row, at);
        }
        assert_eq!(users.field(row, 2), None);
    }
}

proptest! {
    #[test]
    fn rows_keep_their_fields(
        changes in prop::collection::vec((0_usize..5, prop::option::of(".{0,20}")), 0..20)
    ) {
        let all = schema("id u64, a utf8, b u16, c binary, d bool, e utf8");
        let (mut model, mut row) = (vec![None; 5], None::<Vec<u8>>);
        for (at, value) in changes {
            let kind = all.fields()[at].kind;
            let value = value.and_then(|text| match kind {
                ColumnType::UInt(_) => kind.parse_value(text.len().to_string().as_bytes()),
                ColumnType::Bool => kind.parse_value(if text.len() > 5 { b"1" } else { b"0" }),
                _ => kind.parse_value(text.as_bytes()),
            });
            model[at] = value.clone();
            row = Some(all.with_fields(row.as_deref(), &[(at, value)]));
            let row = row.as_deref().unwrap();
            for (at, value) in model.iter().enumerate() {
                prop_assert_eq!(all.field(row, at), value.as_deref());
            }
            prop_assert_eq!(all.fields_set(row), model.iter().flatten().count());
        }
    }
}
