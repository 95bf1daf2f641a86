//! Tests of the language of conditions (`FP.SCAN`): conditions compared with a simple evaluator, the texts of errors,
//! and parsing of random text.

use super::*;
use farpool_model::{CompareOp, Literal, Pattern, Value};
use proptest::prelude::*;
use std::cmp::Ordering;

fn parse_plain(text: &[u8]) -> Result<Predicate, PredicateError> {
    parse(text, plain_schema(false), true)
}

fn users() -> Schema {
    let moment = DataType::Timestamp(arrow_schema::TimeUnit::Millisecond, None);
    Schema::new(vec![
        Field::new("id", DataType::UInt64, false),
        Field::new("name", DataType::Utf8View, true),
        Field::new("age", DataType::UInt32, true),
        Field::new("city", DataType::Utf8View, true),
        Field::new("score", DataType::Float64, true),
        Field::new("ratio", DataType::Float32, true),
        Field::new("price", DataType::Decimal128(10, 2), true),
        Field::new("born", DataType::Date32, true),
        Field::new("seen", moment, true),
        Field::new("active", DataType::Boolean, true),
        Field::new("token", DataType::BinaryView, true),
        Field::new("Odd \"Name\"", DataType::Int8, true),
        Field::new("small", DataType::Int8, true),
    ])
}

/// Parses a condition on the columns of [`users`]; returns it as SQL text.
fn shown(text: &str) -> String {
    let (schema, predicate) = (users(), parse(text.as_bytes(), &users(), false));
    let predicate = predicate.unwrap_or_else(|error| panic!("{text}: {error}"));
    let expr = predicate.as_expr().expect("it is about columns");
    assert_eq!(expr.data_type(&schema), Ok(DataType::Boolean), "{text}");
    expr.display(&schema).to_string()
}

#[test]
fn conditions_on_columns_are_expressions() {
    for (text, expected) in [
        ("age > 30", "age > 30"),
        ("30 < age", "age > 30"),
        ("age!=30", "age <> 30"),
        ("AGE <> 30", "age <> 30"),
        ("age >= 30 and name = 'it''s' AND id<5", "(age >= 30 AND name = 'it''s' AND id < 5)"),
        ("age > 3 or age < 2 and id = 1", "(age > 3 OR (age < 2 AND id = 1))"),
        ("(age > 3 or age < 2) and id = 1", "((age > 3 OR age < 2) AND id = 1)"),
        ("not (age > 3 or not id = 1)", "(age <= 3 AND id = 1)"),
        ("not not age > 3", "age > 3"),
        ("name = city", "name = city"),
        ("name in ('a', 'b')", "name IN ('a', 'b')"),
        ("age not in (1, 2)", "NOT (age IN (1, 2))"),
        ("not age not in (1, null)", "age IN (1, NULL)"),
        ("age between 3 and 5 and id = 1", "(age >= 3 AND age <= 5 AND id = 1)"),
        ("age not between 3 and 5", "(age < 3 OR age > 5)"),
        ("name like 'A%'", "name LIKE 'A%'"),
        ("name not ilike '%a_'", "NOT (name ILIKE '%a_')"),
        ("name ~ '^A+'", "name ~ '^A+'"),
        ("name !~* 'x'", "NOT (name ~* 'x')"),
        ("name is null", "name IS NULL"),
        ("name is not null", "NOT (name IS NULL)"),
        ("not name is not null", "name IS NULL"),
        ("active", "active"),
        ("not active or true", "(NOT (active) OR true)"),
        ("active = false", "active = false"),
        ("score > -1.5e3", "score > -1500.0"),
        ("ratio = 0.1", "ratio = 0.10000000149011612"),
        ("price = 19.9", "price = 19.90"),
        ("price < 19.999", "price <= 19.99"),
        ("born >= '1998-09-02'", "born >= 1998-09-02"),
        ("seen < '1970-01-01 00:00:01.5'", "seen < timestamp(1500 Millisecond)"),
        ("token = x'00FF'", "token = X'00FF'"),
        ("token = 'ab'", "token = X'6162'"),
        ("\"Odd \"\"Name\"\"\" = 1", "Odd \"Name\" = 1"),
        // Comparisons with numbers that no value of the column's type equals become equivalent ones with the nearest
        // value.
        ("age > 4.5", "age > 4"),
        ("age < 4.5", "age <= 4"),
        ("age >= 4.5", "age > 4"),
        ("age <= 4.5", "age <= 4"),
        ("age = 4.5", "age < 0"),
        ("age <> 4.5", "age >= 0"),
        ("age > -1", "age >= 0"),
        ("age = 5000000000", "age < 0"),
        ("not age = 5000000000", "age >= 0"),
        ("small < 1e30", "small >= -128"),
        ("small < -1e300", "small < -128"),
        ("small in (1, 1.5, 200)", "small IN (1)"),
        ("small in (1.5, 200)", "small < -128"),
        ("small not in (200)", "small >= -128"),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn errors_say_what_and_where() {
    for (text, expected) in [
        ("", "at character 1: the end stands where a column or a constant is expected"),
        (
            "age",
            "at character 4: the end stands where a comparison, in, between, like, ~ or is null is expected",
        ),
        ("age > ", "at character 7: the end stands where a column or a constant is expected"),
        ("age > 3 id", "at character 9: id stands where and, or, or the end is expected"),
        (
            "é > 3",
            "at character 1: there is no column é (the columns are id, name, age, city, score, ratio, price, born, …)",
        ),
        (
            "name = 'é' and ag = 1",
            "at character 16: there is no column ag (the columns are id, name, age, city, score, ratio, price, born, …)",
        ),
        (
            "\"AGE\" > 3",
            "at character 1: there is no column AGE (the columns are id, name, age, city, score, ratio, price, born, …)",
        ),
        (
            "age > '3'",
            "at character 7: column age is a UINTEGER, and is compared with what is none (write a number, without quotes)",
        ),
        (
            "name = 3",
            "at character 8: column name is a VARCHAR, and is compared with what is none (write a string in single quotes)",
        ),
        (
            "name = null",
            "at character 8: nothing is equal to null, or less, or greater (write is null, or is not null)",
        ),
        ("born = '1998-13-01'", "at character 8: '1998-13-01' is no DATE (such as '1998-09-02')"),
        ("ratio < 1e300", "at character 9: 1e300 does not fit a FLOAT"),
        ("name = 'x", "at character 8: a string without the ' at its end (a ' inside is written twice)"),
        ("name = x'0'", "at character 8: bytes are pairs of hexadecimal digits (such as x'00ff')"),
        ("age > 30abc", "at character 9: a number that does not end (strings stand in single quotes)"),
        (
            "age > 3 ; drop",
            "at character 9: the character ';' has no meaning here (strings stand in single quotes, names in double quotes)",
        ),
        (
            "3 > 2",
            "at character 1: two constants are compared (the columns are id, name, age, city, score, ratio, price, born, …)",
        ),
        (
            "age = id",
            "at character 1: a UINTEGER is compared with a UBIGINT (both columns must have the same type)",
        ),
        (
            "age like '3%'",
            "at character 1: patterns are for columns of strings (the columns are id, name, age, city, score, ratio, price, born, …)",
        ),
        ("name like 3", "at character 11: a pattern is expected (it stands in single quotes)"),
        ("age in ()", "at character 9: ) stands where a column or a constant is expected"),
        ("age in (1", "at character 10: the end stands where ) is expected"),
        ("(age = 1", "at character 9: the end stands where ) is expected"),
        ("age between 1 or 2", "at character 15: or stands where and is expected"),
        ("age is 3", "at character 8: 3 stands where null is expected"),
        (
            "u8@0 = 3",
            "at character 1: conditions on offsets are for spaces without a schema, and this one has a schema (the columns are id, name, age, city, score, ratio, price, born, …)",
        ),
    ] {
        let error = parse(text.as_bytes(), &users(), false).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
    }
    for (text, expected) in [
        (
            "u7@0 = 3",
            "at character 1: u7 is no type of a number in a value (the types are u8, u16, u32, u64, i8, i16, i32, i64, f32, f64)",
        ),
        ("u8@x = 3", "at character 4: x stands where an offset is expected"),
        ("u8@1.5 = 3", "at character 4: 1.5 is no offset (offsets are integers from 0 to 536870912)"),
        ("u8@536870912 = 3", "at character 4: values have at most 536870912 bytes"),
        ("u8@0 = 'a'", "at character 8: a number at an offset is compared with what is none"),
        ("u8@0 = u8@1", "at character 8: bytes of the value are compared with constants only"),
        ("u8@0 is null", "at character 1: only columns can be null"),
        (
            "bytes[4:2] = 'a'",
            "at character 9: bytes from 4 to 2 (the second offset is the one behind the last byte)",
        ),
        ("bytes[4:8] = 'abc'", "at character 14: 4 bytes are compared with 3 (bytes[4:7] are as many)"),
        (
            "bytes[4:8] = 3",
            "at character 14: bytes are compared with what are none (write a string in single quotes, or x'00ff')",
        ),
        ("age > 3", "at character 1: there is no column age (the columns are key, value, ttl)"),
    ] {
        let error = parse_plain(text.as_bytes()).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
    }
    let error = parse_plain(b"key = 'a\xff'").unwrap_err();
    assert_eq!(
        error.to_string(),
        "at character 9: the text is not UTF-8 (write bytes as x'00ff', in hexadecimal digits)"
    );
    let Err(error) = parse(b"name ~ 'a('", &users(), false) else { panic!("it is none") };
    assert!(
        error.message.starts_with("a regular expression that is none") && error.character == 8,
        "{error}"
    );
    assert!(!error.message.contains('\n'));
}

#[test]
fn what_is_too_large_is_refused() {
    use farpool_model::limits::*;
    let message = |text: String| parse_plain(text.as_bytes()).map_err(|error| error.message).err();
    let nested = |depth: usize| format!("{}ttl = 1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(message(nested(KV_PREDICATE_DEPTH_MAX)), None);
    assert_eq!(message(nested(100)), Some("more than 32 parentheses in one another".into()));
    assert_eq!(message("(".repeat(60_000)), Some("more than 32 parentheses in one another".into()));
    assert_eq!(message("not ".repeat(10_000) + "ttl = 1"), None);
    assert_eq!(
        message(format!("ttl in (1{})", ",1".repeat(8192))),
        Some("more than 8192 conditions and listed constants".into())
    );
    assert_eq!(
        message("x".repeat(100_000)),
        Some("a condition may have 65536 bytes, this one has 100000".into())
    );
    assert_eq!(message(["key ~ 'a'"; 5].join(" or ")), Some("more than 4 patterns".into()));
    // The most deeply nested condition that is accepted must also be within the limit on nesting of SQL expressions.
    let deepest = (0..KV_PREDICATE_DEPTH_MAX).fold("ttl = 1".to_string(), |text, depth| {
        format!("({text}) {} ttl = {depth}", if depth % 2 == 0 { "and" } else { "or" })
    });
    let predicate = parse_plain(deepest.as_bytes()).unwrap();
    let expr = predicate.as_expr().unwrap();
    assert!(
        farpool_model::program::check_size([expr]).is_ok() && expr.data_type(plain_schema(false)).is_ok()
    );
}

fn passes(text: &str, value: &[u8]) -> bool {
    let predicate = parse_plain(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    predicate.matches(value, &mut |_| panic!("{text} is about bytes only"))
}

#[test]
fn bytes_at_offsets_are_compared_where_there_are_any() {
    let mut value = vec![0; 24];
    value[0] = 5;
    value[1..3].copy_from_slice(&700_u16.to_le_bytes());
    value[4..8].copy_from_slice(b"abcd");
    value[8..16].copy_from_slice(&(-2.5_f64).to_le_bytes());
    value[16..20].copy_from_slice(&(-7_i32).to_le_bytes());
    for (text, expected) in [
        ("u8@0 = 5", true),
        ("u8@0 > 5", false),
        ("5 <= U8@0", true),
        ("u8@0 < 300", true),
        ("u8@0 = 300", false),
        ("u8@0 <> 300", true),
        ("u8@0 > -1", true),
        ("u8@0 > 4.5", true),
        ("u8@0 = 4.5", false),
        ("u8@0 in (1, 5)", true),
        ("u8@0 not in (1, 5)", false),
        ("u8@0 between 4 and 6", true),
        ("u16@1 = 700", true),
        ("u32@4 < 70000", false),
        ("i32@16 = -7 and i32@16 > -8 and i8@16 < 0", true),
        ("i64@8 < 0", true),
        ("f64@8 = -2.5", true),
        ("f64@8 < -2", true),
        ("f32@20 = 0", true),
        ("f32@20 = -0.0", true),
        ("bytes[4:8] = 'abcd'", true),
        ("bytes[4:8] = x'61626364'", true),
        ("bytes[4:6] <> 'ab'", false),
        ("bytes[4:8] > 'abc'", true),
        ("bytes[4:4] = ''", true),
        ("u8@24 = 0", false),
        ("u8@23 = 0", true),
        ("u16@23 = 0", false),
        ("f64@17 <= 1e300", false),
        ("bytes[20:25] < 'a'", false),
        ("bytes[20:24] < 'a'", true),
        // On missing bytes, neither a condition nor its negation is true.
        ("u8@24 <> 0", false),
        ("not u8@24 = 0", false),
        ("not (u8@24 = 0 and u8@0 = 5)", false),
        ("not (u8@24 = 0 and u8@0 = 6)", true),
        ("u8@24 not in (1)", false),
        ("u8@24 = 0 or u8@0 = 5", true),
        ("u64@536870904 = 0", false),
    ] {
        assert_eq!(passes(text, &value), expected, "{text}");
        let is_longer = [&value[..], &[0; 8]].concat();
        assert!(passes("u8@31 = 0", &[&is_longer[..]].concat()));
    }
    assert!(!passes("u8@0 >= 0", b"") && passes("u8@0 >= 0", b"\0") && passes("bytes[0:0] = ''", b""));
}

#[test]
fn conditions_on_bytes_and_columns_go_together() {
    let text = "key like 'a%' and u8@0 = 1 and (ttl > 5 or u8@1 = 2) and ttl < 9";
    let Ok(Predicate::All(parts)) = parse_plain(text.as_bytes()) else { panic!("it has several parts") };
    assert!(matches!(
        &parts[..],
        [Predicate::Bytes(_), Predicate::Any(_), Predicate::Columns(Expr::And(columns))] if columns.len() == 2
    ));
}

/// Returns the value of a column or a condition in the naive evaluator.
fn value_of(expr: &Expr, row: &[Literal]) -> Literal {
    let boolean = |truth: Option<bool>| {
        Literal::new(truth.map_or(Value::Null, Value::Bool), DataType::Boolean).unwrap()
    };
    let truth = |expr: &Expr| match value_of(expr, row).value() {
        Value::Bool(truth) => Some(*truth),
        _ => None,
    };
    let text = |expr: &Expr| match value_of(expr, row).value() {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    match expr {
        Expr::Column(column) => row[*column].clone(),
        Expr::Literal(literal) => literal.clone(),
        Expr::Compare(op, left, right) => {
            let order = value_of(left, row).compare(&value_of(right, row));
            boolean(order.map(|order| holds(*op, order)))
        }
        Expr::And(parts) => boolean(parts.iter().map(truth).fold(Some(true), and)),
        Expr::Or(parts) => boolean(not(parts.iter().map(|part| not(truth(part))).fold(Some(true), and))),
        Expr::Not(inner) => boolean(not(truth(inner))),
        Expr::IsNull(inner) => boolean(Some(value_of(inner, row).is_null())),
        Expr::InList(inner, list) => {
            let value = value_of(inner, row);
            let equals = list.iter().map(|other| value.compare(other).map(Ordering::is_eq));
            boolean(not(equals.map(not).fold(Some(true), and)))
        }
        Expr::Like { value, pattern, case_insensitive } => {
            let pattern = Pattern::like(pattern, *case_insensitive).unwrap();
            boolean(text(value).map(|text| pattern.is_match(&text)))
        }
        Expr::Regex { value, pattern } => boolean(text(value).map(|text| pattern.is_match(&text))),
        other => panic!("{other} is never made"),
    }
}

fn holds(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Eq => order.is_eq(),
        CompareOp::NotEq => order.is_ne(),
        CompareOp::Lt => order.is_lt(),
        CompareOp::LtEq => order.is_le(),
        CompareOp::Gt => order.is_gt(),
        CompareOp::GtEq => order.is_ge(),
    }
}

fn and(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn not(truth: Option<bool>) -> Option<bool> {
    truth.map(|truth| !truth)
}

/// The key, value and time to live of an entry of a space without a schema, for the naive evaluator.
#[derive(Clone, Debug)]
struct Plain {
    key: String,
    ttl: Option<i64>,
    value: Vec<u8>,
}

/// A condition in the form of the naive evaluator.
#[derive(Clone, Debug)]
enum Tree {
    And(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
    Not(Box<Tree>),
    /// Comparison of the column `ttl` with a constant in halves, so that some constants are not integers.
    Ttl(CompareOp, i64),
    TtlIn(Vec<i64>),
    TtlIsNull,
    KeyLike(char),
    /// Comparison of the signed byte at an offset of the value with a constant in halves.
    Byte(usize, CompareOp, i64),
    Wide(usize, CompareOp, u16),
    Float(usize, CompareOp, i8),
    Slice(usize, CompareOp, [u8; 2]),
}

impl Tree {
    fn text(&self) -> String {
        let half = |halves: i64| format!("{}", halves as f64 / 2.0);
        match self {
            Tree::And(left, right) => format!("({}) and ({})", left.text(), right.text()),
            Tree::Or(left, right) => format!("({} OR {})", left.text(), right.text()),
            Tree::Not(inner) => format!("not({})", inner.text()),
            Tree::Ttl(op, halves) => format!("ttl{}{}", op.symbol(), half(*halves)),
            Tree::TtlIn(list) => {
                format!("ttl in ({})", list.iter().map(|halves| half(*halves)).collect::<Vec<_>>().join(","))
            }
            Tree::TtlIsNull => "ttl is null".into(),
            Tree::KeyLike(first) => format!("key like '{first}%'"),
            Tree::Byte(at, op, halves) => format!("{} {} i8@{at}", half(*halves), op.swapped().symbol()),
            Tree::Wide(at, op, number) => format!("u16@{at} {} {number}", op.symbol()),
            Tree::Float(at, op, number) => format!("f32@{at} {} {number}.0", op.symbol()),
            Tree::Slice(at, op, bytes) => {
                format!("bytes[{at}:{}] {} x'{:02x}{:02X}'", at + 2, op.symbol(), bytes[0], bytes[1])
            }
        }
    }

    fn truth(&self, entry: &Plain) -> Option<bool> {
        let bytes = |at: usize, count: usize| entry.value.get(at..at + count);
        Some(match self {
            Tree::And(left, right) => return and(left.truth(entry), right.truth(entry)),
            Tree::Or(left, right) => return not(and(not(left.truth(entry)), not(right.truth(entry)))),
            Tree::Not(inner) => return not(inner.truth(entry)),
            Tree::Ttl(op, halves) => holds(*op, (entry.ttl? * 2).cmp(halves)),
            Tree::TtlIn(list) => list.contains(&(entry.ttl? * 2)),
            Tree::TtlIsNull => entry.ttl.is_none(),
            Tree::KeyLike(first) => entry.key.starts_with(*first),
            Tree::Byte(at, op, halves) => {
                holds(*op, (i64::from(bytes(*at, 1)?[0].cast_signed()) * 2).cmp(halves))
            }
            Tree::Wide(at, op, number) => {
                holds(*op, u16::from_le_bytes(bytes(*at, 2)?.try_into().unwrap()).cmp(number))
            }
            Tree::Float(at, op, number) => {
                let there = f32::from_le_bytes(bytes(*at, 4)?.try_into().unwrap());
                let there = if there == 0.0 { 0.0 } else { there };
                holds(*op, there.total_cmp(&f32::from(*number)))
            }
            Tree::Slice(at, op, constant) => holds(*op, bytes(*at, 2)?.cmp(&constant[..])),
        })
    }
}

fn trees() -> impl Strategy<Value = Tree> {
    let op = prop::sample::select(vec![
        CompareOp::Eq,
        CompareOp::NotEq,
        CompareOp::Lt,
        CompareOp::LtEq,
        CompareOp::Gt,
        CompareOp::GtEq,
    ]);
    let leaf = prop_oneof![
        (op.clone(), -3..8_i64).prop_map(|(op, halves)| Tree::Ttl(op, halves)),
        prop::collection::vec(-3..8_i64, 1..4).prop_map(Tree::TtlIn),
        Just(Tree::TtlIsNull),
        prop::sample::select(vec!['a', 'b']).prop_map(Tree::KeyLike),
        (0..6_usize, op.clone(), -300..300_i64).prop_map(|(at, op, halves)| Tree::Byte(at, op, halves)),
        (0..6_usize, op.clone(), any::<u16>()).prop_map(|(at, op, number)| Tree::Wide(at, op, number)),
        (0..4_usize, op.clone(), -2..3_i8).prop_map(|(at, op, number)| Tree::Float(at, op, number)),
        (0..6_usize, op, any::<[u8; 2]>()).prop_map(|(at, op, bytes)| Tree::Slice(at, op, bytes)),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(left, right)| Tree::And(left.into(), right.into())),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| Tree::Or(left.into(), right.into())),
            inner.prop_map(|inner| Tree::Not(inner.into())),
        ]
    })
}

fn entries() -> impl Strategy<Value = Plain> {
    let byte = prop_oneof![Just(0), Just(0xff), any::<u8>()];
    let value = prop::collection::vec(byte, 0..8);
    ("[ab]{0,2}", prop::option::of(-2..5_i64), value).prop_map(|(key, ttl, value)| Plain { key, ttl, value })
}

const WORDS: &[&str] = &[
    "age",
    "name",
    "u8@0",
    "bytes[0:2]",
    "ttl",
    "key",
    "value",
    "and",
    "or",
    "not",
    "(",
    ")",
    "in",
    "between",
    "like",
    "~",
    "is",
    "null",
    "'a'",
    "'",
    "\"",
    "x'00'",
    "3",
    "-",
    "1e999",
    "0.5",
    "=",
    "<",
    ">=",
    ",",
    "@",
    "[",
    ":",
    "]",
    "é",
    "true",
    "i64@",
    "!",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn conditions_are_true_where_a_plain_evaluator_says_so(
        tree in trees(),
        entries in prop::collection::vec(entries(), 1..8),
    ) {
        let text = tree.text();
        let predicate = parse_plain(text.as_bytes());
        if predicate.as_ref().is_err_and(|error| error.message.contains("patterns")) {
            return Err(TestCaseError::reject("more patterns than are allowed"));
        }
        let predicate = predicate.map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        for entry in entries {
            let literal = |value, data_type| Literal::new(value, data_type).unwrap();
            let row = [
                literal(Value::Text(entry.key.clone()), DataType::Utf8View),
                literal(Value::Text(String::from_utf8_lossy(&entry.value).into()), DataType::Utf8View),
                literal(entry.ttl.map_or(Value::Null, |ttl| Value::Int(ttl.into())), DataType::Int64),
            ];
            let found = predicate.matches(&entry.value, &mut |expr| {
                *value_of(expr, &row).value() == Value::Bool(true)
            });
            prop_assert_eq!(found, tree.truth(&entry) == Some(true), "{} {:?}", text, entry);
        }
    }

    #[test]
    fn no_text_is_too_much(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..12),
        text in ".{0,20}",
        bytes in prop::collection::vec(any::<u8>(), 0..20),
        blank in any::<bool>(),
    ) {
        let words = words.join(if blank { " " } else { "" });
        for text in [words.as_bytes(), text.as_bytes(), &bytes, &[words.as_bytes(), text.as_bytes()].concat()] {
            for (schema, is_plain) in [(&**plain_schema(false), true), (&users(), false)] {
                match parse(text, schema, is_plain) {
                    Err(error) => {
                        let most = String::from_utf8_lossy(text).chars().count() + 1;
                        prop_assert!((1..=most).contains(&error.character), "{}", error);
                    }
                    Ok(predicate) => {
                        let mut is_boolean = |expr: &Expr| {
                            let data_type = expr.data_type(schema);
                            data_type == Ok(DataType::Boolean)
                        };
                        predicate.matches(b"\0\0\0\0\0\0\0\0", &mut is_boolean);
                        prop_assert!(predicate.as_expr().is_none_or(is_boolean));
                    }
                }
            }
        }
    }
}
