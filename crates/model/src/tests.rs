//! Tests which programs and expressions are accepted and which are refused, and the error messages.

use crate::*;
use arrow_schema::{DataType, Field, Schema};

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("price", DataType::Decimal128(15, 2), true),
        Field::new("name", DataType::Utf8View, true),
        Field::new("ok", DataType::Boolean, true),
    ])
}

fn int(value: i128) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value), DataType::Int64).unwrap())
}

fn less(left: Expr, right: Expr) -> Expr {
    Expr::compare(CompareOp::Lt, left, right)
}

fn rows(filter: Option<Expr>, columns: &[usize]) -> Program {
    Program { filter, ..Program::scan(TableName::new("t").unwrap(), &schema(), columns) }
}

#[test]
fn a_program_knows_the_columns_it_reads_and_the_schema_it_gives() {
    let program = rows(Some(less(Expr::Column(0), int(5))), &[2]);
    assert_eq!(program.columns().into_iter().collect::<Vec<_>>(), [0, 2]);
    let result = program.result_schema(&schema()).unwrap();
    assert_eq!(result.field(0).name(), "name");
    assert_eq!(result.fields().len(), 1);
}

#[test]
fn wrong_types_are_named() {
    let error = rows(Some(less(Expr::Column(1), int(5))), &[0]).result_schema(&schema()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("Decimal128(15, 2)") && error.message.contains("Int64"), "{error}");
    let error = rows(Some(Expr::Column(0)), &[0]).result_schema(&schema()).unwrap_err();
    assert!(error.message.contains("must be boolean"), "{error}");
    let error =
        rows(Some(Expr::IsNull(Box::new(Expr::Column(9)))), &[0]).result_schema(&schema()).unwrap_err();
    assert!(error.message.contains("no column 9"), "{error}");
}

#[test]
fn nesting_beyond_the_limit_is_refused() {
    let mut deep = Expr::Column(3);
    for _ in 0..limits::EXPR_DEPTH_MAX {
        deep = Expr::not(deep);
    }
    assert!(deep.data_type(&schema()).is_ok());
    let error = Expr::not(deep).data_type(&schema()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
}

#[test]
fn decimal_arithmetic_has_the_precision_of_arrows_kernels() {
    let d = |p, s| DataType::Decimal128(p, s);
    let of = |op, l, r| arithmetic(op, &l, &r);
    assert_eq!(of(ArithmeticOp::Add, d(15, 2), d(15, 2)), d(16, 2));
    assert_eq!(of(ArithmeticOp::Subtract, d(20, 0), d(15, 2)), d(23, 2));
    assert_eq!(of(ArithmeticOp::Multiply, d(15, 2), d(16, 2)), d(32, 4));
    assert_eq!(of(ArithmeticOp::Multiply, d(38, 4), d(38, 4)), d(38, 8));
    assert_eq!(of(ArithmeticOp::Divide, d(15, 2), d(15, 2)), d(21, 6));
    assert!(arithmetic_type(ArithmeticOp::Multiply, &d(38, 20), &d(38, 20)).is_err());
    assert!(arithmetic_type(ArithmeticOp::Add, &DataType::Int32, &DataType::Int64).is_err());
}

fn arithmetic(op: ArithmeticOp, left: &DataType, right: &DataType) -> DataType {
    arithmetic_type(op, left, right).unwrap()
}

#[test]
fn an_expression_reads_as_sql_would_write_it() {
    let price = Expr::arithmetic(ArithmeticOp::Multiply, Expr::Column(1), Expr::Column(1));
    let filter = Expr::And(vec![
        less(Expr::Column(0), int(5)),
        Expr::Like { value: Box::new(Expr::Column(2)), pattern: "S%".into(), case_insensitive: false },
    ]);
    let schema = schema();
    assert_eq!(price.display(&schema).to_string(), "(price * price)");
    assert_eq!(filter.display(&schema).to_string(), "(id < 5 AND name LIKE 'S%')");
    assert_eq!(filter.to_string(), "(#0 < 5 AND #2 LIKE 'S%')");
}

#[test]
fn only_divisions_that_cannot_fail_may_run_anywhere() {
    let divide = |by| Expr::arithmetic(ArithmeticOp::Divide, Expr::Column(0), by);
    assert!(divide(Expr::Column(0)).may_fail(&schema()).unwrap());
    assert!(divide(int(0)).may_fail(&schema()).unwrap());
    assert!(divide(int(-1)).may_fail(&schema()).unwrap(), "the least integer has no negative");
    assert!(!divide(int(7)).may_fail(&schema()).unwrap());
    assert!(
        less(divide(Expr::Column(0)), int(1)).may_fail(&schema()).unwrap(),
        "found below other nodes too"
    );
}

#[test]
fn an_aggregate_has_a_type_that_holds_its_result() {
    use AggregateFunction::*;
    let decimal = DataType::Decimal128(15, 2);
    assert!(Count.accepts(&[], &DataType::Int64));
    assert!(!Sum.accepts(&[], &DataType::Int64));
    assert!(Sum.accepts(std::slice::from_ref(&DataType::Int8), &DataType::Int64));
    assert!(!Sum.accepts(std::slice::from_ref(&DataType::Int8), &DataType::Int8));
    assert!(Sum.accepts(std::slice::from_ref(&decimal), &DataType::Decimal128(25, 2)));
    assert!(!Sum.accepts(std::slice::from_ref(&decimal), &DataType::Decimal128(25, 3)));
    assert!(Avg.accepts(std::slice::from_ref(&decimal), &DataType::Decimal128(19, 6)));
    assert!(!Avg.accepts(std::slice::from_ref(&DataType::Utf8View), &DataType::Float64));
    assert!(Min.accepts(std::slice::from_ref(&DataType::Utf8View), &DataType::Utf8View));
}

#[test]
fn canonical_schemas_hold_what_the_pool_holds_and_name_what_it_does_not() {
    let given = Schema::new(vec![
        Field::new("a", DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)), true),
        Field::new("b", DataType::Date64, true),
    ]);
    let held = schema::canonical_schema(&given).unwrap();
    assert_eq!(held.field(0).data_type(), &DataType::Utf8View);
    assert_eq!(held.field(1).data_type(), &DataType::Date32);
    let list = Schema::new(vec![Field::new_list("tags", Field::new_list_field(DataType::Utf8, true), true)]);
    let error = schema::canonical_schema(&list).unwrap_err();
    assert!(error.message.contains("\"tags\""), "{error}");
    assert!(error.advice.is_some());
    let twice = Schema::new(vec![given.field(0).clone(), given.field(0).clone()]);
    assert!(schema::canonical_schema(&twice).is_err());
}

#[test]
fn names_are_checked() {
    assert!(TableName::new("").is_err());
    assert!(TableName::new("a\nb").is_err());
    assert!(TableName::new("x".repeat(limits::NAME_BYTES_MAX + 1)).is_err());
    assert!(TableName::new("Größe 1").is_ok());
}

#[test]
fn names_in_schemas_are_read_as_they_are_written() {
    let name =
        |schema: &str, table: &str| TableName::in_schema(&SchemaName::new(schema).unwrap(), table).unwrap();
    for (text, read) in [
        ("t", name("public", "t")),
        ("public.t", name("public", "t")),
        ("s.t", name("s", "t")),
        ("\"s.t\"", name("public", "s.t")),
        ("S.\"a\"\"b.c\"", name("S", "a\"b.c")),
        ("\"ü ö\".x y", name("ü ö", "x y")),
        ("a\"b", name("public", "a\"b")),
    ] {
        assert_eq!(TableName::parse(text).unwrap(), read, "{text}");
        assert_eq!(TableName::parse(&read.written()).unwrap(), read, "{text}");
        assert_eq!(TableName::parse(&read.to_sql()).unwrap(), read, "{text}");
        assert_eq!(TableName::decode(read.encoded()).unwrap(), read, "{text}");
        assert_eq!(TableName::in_schema(&read.schema(), read.table()).unwrap(), read, "{text}");
    }
    for text in ["", ".", "s.", ".t", "a.b.c", "\"a", "\"a\"b", "s..t", "s.t\n"] {
        assert!(TableName::parse(text).is_err(), "{text}");
    }
    // The two names look the same as text, but are different tables.
    assert_ne!(name("s", "t"), TableName::new("s.t").unwrap());
    for text in ["public\u{1f}t", "\u{1f}t", "s\u{1f}", "s\u{1f}t\u{1f}u"] {
        assert!(TableName::decode(text).is_err(), "{text:?}");
    }
}

#[test]
fn receipts_add_up() {
    let mut a = Receipt { rows_scanned: 1, elapsed_ns: 5, ..Receipt::default() };
    a.merge(&Receipt { rows_scanned: 2, bytes_on_wire: 7, elapsed_ns: 3, ..Receipt::default() });
    assert_eq!((a.rows_scanned, a.bytes_on_wire, a.elapsed_ns), (3, 7, 5));
}

#[test]
fn an_order_is_checked_with_its_program() {
    let schema = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
    let key = |column| SortKey { column, descending: true, nulls_first: true };
    let scan = Program::scan(TableName::new("t").unwrap(), &schema, &[0]);
    let kind = |order: Vec<SortKey>, limit| {
        Program { order, limit, ..scan.clone() }.result_schema(&schema).err().map(|error| error.kind)
    };
    assert_eq!(kind(vec![key(0)], Some(5)), None);
    assert_eq!(kind(vec![key(0)], None), Some(ErrorKind::Invalid));
    assert_eq!(kind(vec![key(1)], Some(5)), Some(ErrorKind::Invalid));
    assert_eq!(kind(vec![key(0); limits::SORT_KEYS_MAX + 1], Some(5)), Some(ErrorKind::OverLimit));
    assert_eq!(key(0).display("a"), "a DESC");
    assert_eq!(SortKey { descending: false, ..key(0) }.display("a"), "a NULLS FIRST");
}

#[test]
fn fingerprints_tell_schemas_apart_and_differences_name_the_column() {
    use arrow_schema::{Field, Schema, TimeUnit};
    let of = |fields: &[(&str, DataType, bool)]| {
        let fields = fields.iter().map(|(name, data_type, null)| Field::new(*name, data_type.clone(), *null));
        Schema::new(fields.collect::<Vec<_>>())
    };
    let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let base = of(&[("a", DataType::Int64, true), ("b", micros(None), true)]);
    let others = [
        (of(&[("a", DataType::Int64, true)]), r#"no column "b""#),
        (of(&[("a", DataType::Int64, true), ("bc", micros(None), true)]), r#"no column "b""#),
        (of(&[("ab", DataType::Int64, true), ("", micros(None), true)]), r#"no column "a""#),
        (of(&[("a", DataType::UInt64, true), ("b", micros(None), true)]), r#""a" has type UInt64"#),
        (of(&[("a", DataType::Int64, false), ("b", micros(None), true)]), r#""a" can no longer be NULL"#),
        (of(&[("a", DataType::Int64, true), ("b", micros(Some("UTC")), true)]), r#"column "b" has type"#),
        (of(&[("a", DataType::Int64, true), ("b", micros(Some("")), true)]), r#"column "b" has type"#),
        (
            of(&[("a", DataType::Int64, true), ("b", DataType::Decimal128(16, 2), true)]),
            r#"column "b" has type"#,
        ),
        (of(&[("b", micros(None), true), ("a", DataType::Int64, true)]), r#""b" stands where "a" did"#),
        (
            of(&[("a", DataType::Int64, true), ("b", micros(None), true), ("c", DataType::Boolean, true)]),
            r#"new column "c""#,
        ),
    ];
    assert_eq!(SchemaFingerprint::of(&base), SchemaFingerprint::of(&base.clone()));
    assert_eq!(schema::difference(&base, &base), None);
    let mut seen = std::collections::HashSet::from([SchemaFingerprint::of(&base)]);
    for (other, told) in others {
        assert!(seen.insert(SchemaFingerprint::of(&other)), "{other:?}");
        let difference = schema::difference(&base, &other).unwrap();
        assert!(difference.contains(told), "{difference}");
    }
}

#[test]
fn names_of_columns_are_bounded() {
    use arrow_schema::{Field, Schema};
    let named = |bytes| Schema::new(vec![Field::new("n".repeat(bytes), DataType::Int64, true)]);
    assert!(schema::canonical_schema(&named(limits::NAME_BYTES_MAX)).is_ok());
    let error = schema::canonical_schema(&named(limits::NAME_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(error.message.contains("255 bytes") && error.message.contains("256"), "{error}");
}
