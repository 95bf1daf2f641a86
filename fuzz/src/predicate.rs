//! Fuzz body that parses conditions on the entries of keyspaces.

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use farpool_kv::predicate::{Predicate, parse, plain_schema};
use farpool_model::{Expr, program};

/// Parses a condition; the first byte selects whether the keyspace has a schema. An accepted condition is boolean and
/// within the limits of expressions, and can be evaluated on any value; an error is at one of the characters, or after
/// the last.
pub fn predicate_parser(data: &[u8]) {
    let Some((&choice, text)) = data.split_first() else { return };
    let rows = (choice & 1 == 1).then(schema);
    let schema = rows.as_ref().unwrap_or(plain_schema(choice & 4 == 4));
    match parse(text, schema, rows.is_none()) {
        Err(error) => {
            let characters = String::from_utf8_lossy(text).chars().count();
            assert!((1..=characters + 1).contains(&error.character), "{error}");
        }
        Ok(predicate) => {
            check(&predicate, schema);
            for bytes in [0, 1, 7, 64] {
                predicate.matches(&vec![choice; bytes], &mut |_| choice & 2 == 0);
            }
        }
    }
}

fn check(predicate: &Predicate, schema: &Schema) {
    match predicate {
        Predicate::Columns(expr) => check_expr(expr, schema),
        Predicate::Bytes(_) => {}
        Predicate::All(parts) | Predicate::Any(parts) => {
            assert!(parts.len() > 1);
            parts.iter().for_each(|part| check(part, schema));
        }
    }
}

fn check_expr(expr: &Expr, schema: &Schema) {
    assert_eq!(expr.data_type(schema), Ok(DataType::Boolean));
    program::check_size([expr]).expect("the limits of conditions are within those of expressions");
}

fn schema() -> Schema {
    let moment = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let columns = [
        ("id", DataType::UInt64),
        ("name", DataType::Utf8View),
        ("age", DataType::Int16),
        ("score", DataType::Float32),
        ("price", DataType::Decimal128(38, 10)),
        ("born", DataType::Date32),
        ("seen", moment),
        ("active", DataType::Boolean),
        ("token", DataType::BinaryView),
    ];
    let fields = columns.into_iter().map(|(name, data_type)| Field::new(name, data_type, true));
    Schema::new(fields.collect::<Vec<_>>())
}
