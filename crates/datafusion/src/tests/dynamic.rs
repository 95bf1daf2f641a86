//! What is made of the filters that other operators find out while they run.

use super::{Fake, filled};
use crate::dynamic::{narrowed, usable};
use crate::literal::from_scalar;
use arrow_array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray, StructArray, UInt16Array,
};
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    CaseExpr, DynamicFilterPhysicalExpr, InListExpr, binary, cast, col, in_list, is_null, lit,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use farpool_model::{Aggregate, AggregateFunction, ColumnStatistics, NamedExpr, Output, Program, TableInfo};
use farpool_transfer::Pool;
use std::sync::Arc;

type Filter = Arc<dyn PhysicalExpr>;

async fn info() -> TableInfo {
    filled(Fake::default()).await.table(&farpool_model::TableName::new("t").unwrap()).await.unwrap()
}

/// The columns that are scanned: k, u, d, f and s.
const SCANNED: [usize; 5] = [1, 2, 3, 4, 6];

/// What the filter of a scan becomes when `current` is found out, as text.
fn found(info: &TableInfo, current: Filter) -> Option<String> {
    let schema = Arc::new(info.schema.project(&SCANNED).unwrap());
    let columns = schema.fields().iter().map(|f| col(f.name(), &schema).unwrap()).collect();
    let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(columns, lit(true)));
    let program = Program::scan(info.name.clone(), &info.schema, &SCANNED);
    let usable = usable(&program, &[Arc::clone(&dynamic) as Filter]);
    dynamic.update(current).unwrap();
    let (program, added) = narrowed(program, &usable, info);
    assert_eq!(program.filter.map(|f| f.display(&info.schema).to_string()), added);
    added
}

fn compare(info: &TableInfo, column: &str, op: Operator, value: ScalarValue) -> Filter {
    let schema = info.schema.project(&SCANNED).unwrap();
    binary(col(column, &schema).unwrap(), op, lit(value), &schema).unwrap()
}

fn k(info: &TableInfo, op: Operator, value: i32) -> Filter {
    compare(info, "k", op, ScalarValue::Int32(Some(value)))
}

fn both(info: &TableInfo, op: Operator, left: Filter, right: Filter) -> Filter {
    binary(left, op, right, &info.schema).unwrap()
}

#[tokio::test]
async fn conjunctions_keep_what_can_be_said_and_disjunctions_need_all_of_it() {
    let info = info().await;
    let bound = k(&info, Operator::GtEq, 2);
    let schema = info.schema.project(&SCANNED).unwrap();
    let odd = binary(
        binary(col("k", &schema).unwrap(), Operator::Modulo, lit(2i32), &schema).unwrap(),
        Operator::Eq,
        lit(1i32),
        &schema,
    )
    .unwrap();
    assert_eq!(
        found(&info, both(&info, Operator::And, bound.clone(), odd.clone())).as_deref(),
        Some("k >= 2")
    );
    assert_eq!(found(&info, both(&info, Operator::Or, bound.clone(), odd)), None);
    let other = compare(&info, "u", Operator::Lt, ScalarValue::UInt16(Some(7)));
    assert_eq!(found(&info, both(&info, Operator::Or, bound, other)).as_deref(), Some("(k >= 2 OR u < 7)"));
    assert_eq!(found(&info, lit(true)), None);
    assert_eq!(found(&info, lit(false)).as_deref(), Some("false"));
}

#[tokio::test]
async fn the_branches_of_a_partitioned_join_become_one_range() {
    let info = info().await;
    let schema = info.schema.project(&SCANNED).unwrap();
    let branch = |low: i32, high: i32, keys: &[i32]| {
        let list = keys.iter().map(|v| lit(*v)).collect();
        let list = in_list(col("k", &schema).unwrap(), list, &false, &schema).unwrap();
        let bounds =
            both(&info, Operator::And, k(&info, Operator::GtEq, low), k(&info, Operator::LtEq, high));
        both(&info, Operator::And, bounds, list)
    };
    let case = CaseExpr::try_new(
        Some(lit(0u64)),
        vec![(lit(0u64), branch(2, 9, &[2, 9])), (lit(1u64), branch(1, 5, &[1, 3, 5]))],
        Some(lit(false)),
    );
    let expected = "(k >= 1 AND k <= 9 AND k IN (1, 2, 3, 5, 9))";
    assert_eq!(found(&info, Arc::new(case.unwrap())).as_deref(), Some(expected));
}

#[tokio::test]
async fn long_lists_of_integers_become_sets_where_that_pays() {
    let columns = vec![ColumnStatistics::default(); info().await.schema.fields().len()];
    let large = TableInfo { rows: 1_000_000, columns, ..info().await };
    let of = |keys: Vec<i32>| rows(&large, &["k"], vec![Arc::new(Int32Array::from(keys))]);
    let hundred = || of((0..100).map(|key| key * 3).collect());
    assert_eq!(found(&large, hundred()).as_deref(), Some("k IN (100 keys from 0 to 297)"));
    let branches = vec![(lit(0u64), hundred()), (lit(1u64), of(vec![-5, 1]))];
    let case = CaseExpr::try_new(Some(lit(0u64)), branches, Some(lit(false))).unwrap();
    assert_eq!(found(&large, Arc::new(case)).as_deref(), Some("k IN (102 keys from -5 to 297)"));
    // Few keys, and a table that is not worth the bytes.
    assert_eq!(found(&large, of(vec![7, 9])).as_deref(), Some("k IN (7, 9)"));
    let small = TableInfo { rows: 20, ..large.clone() };
    assert_eq!(found(&small, hundred()), None);
    let dense = TableInfo { rows: 110, ..large.clone() };
    assert_eq!(found(&dense, hundred()), None, "most rows would pass");
}

/// The type of a row of a build side, and a list of such rows for the columns `names`.
fn rows(info: &TableInfo, names: &[&str], values: Vec<ArrayRef>) -> Filter {
    let schema = info.schema.project(&SCANNED).unwrap();
    let column = |name: &&str| col(name, &schema).unwrap();
    if let ([name], [values]) = (names, &values[..]) {
        let list = InListExpr::try_new_from_array(column(name), Arc::clone(values), false, &schema);
        return Arc::new(list.unwrap());
    }
    let field = |(place, values): (usize, &ArrayRef)| {
        Arc::new(arrow_schema::Field::new(format!("c{place}"), values.data_type().clone(), true))
    };
    let fields: arrow_schema::Fields = values.iter().enumerate().map(field).collect();
    let keys = Arc::new(StructArray::new(fields.clone(), values, None));
    let field = arrow_schema::Field::new("struct", arrow_schema::DataType::Struct(fields), true);
    let udf = datafusion::functions::core::r#struct();
    let args = names.iter().map(column).collect();
    let call = ScalarFunctionExpr::new("struct", udf, args, Arc::new(field), Arc::default());
    Arc::new(InListExpr::try_new_from_array(Arc::new(call), keys, false, &schema).unwrap())
}

#[tokio::test]
async fn a_list_of_pairs_becomes_a_list_for_each_key() {
    let info = info().await;
    let keys: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), Some(1), None, Some(3)]));
    let others: ArrayRef = Arc::new(UInt16Array::from(vec![Some(10), Some(20), Some(30), Some(10)]));
    let expected = "(k IN (1, 3) AND u IN (10, 20))";
    assert_eq!(found(&info, rows(&info, &["k", "u"], vec![keys, others])).as_deref(), Some(expected));
}

#[tokio::test]
async fn keys_that_no_bitmap_holds_become_filters_where_that_pays() {
    let columns = vec![ColumnStatistics::default(); info().await.schema.fields().len()];
    let large = TableInfo { rows: 1_000_000, columns, ..info().await };
    let k = |step: i32| -> ArrayRef { Arc::new(Int32Array::from_iter_values((0..100).map(|i| i * step))) };
    let s = || -> ArrayRef {
        let texts = (0..150).map(|i| (i % 3 > 0).then(|| format!("text {i}")));
        Arc::new(StringArray::from_iter(texts))
    };
    let one = |name: &str, values: ArrayRef| found(&large, rows(&large, &[name], vec![values]));
    assert_eq!(one("k", k(20_000_000)).as_deref(), Some("k IN (a filter of 100 keys)"));
    assert_eq!(one("s", s()).as_deref(), Some("s IN (a filter of 100 keys)"), "NULL is no key");
    let wide = (0..100).map(|i| i128::from(i) << 60);
    let wide = Decimal128Array::from_iter_values(wide).with_precision_and_scale(15, 2).unwrap();
    assert_eq!(one("d", Arc::new(wide)).as_deref(), Some("d IN (a filter of 100 keys)"));
    let floats = Float64Array::from_iter_values((0..100).map(f64::from));
    assert!(one("f", Arc::new(floats)).unwrap().ends_with("more)"), "a plain list");

    let texts = || -> ArrayRef { Arc::new(StringArray::from_iter_values((0..100).map(|i| i.to_string()))) };
    let pair = found(&large, rows(&large, &["k", "s"], vec![k(20_000_000), texts()]));
    assert_eq!(pair.as_deref(), Some("(k, s) IN (a filter of 100 keys)"));
    let pair = found(&large, rows(&large, &["k", "s"], vec![k(3), texts()])).unwrap();
    assert_eq!(pair, "(k IN (100 keys from 0 to 297) AND (k, s) IN (a filter of 100 keys))");
    let floats: ArrayRef = Arc::new(Float64Array::from_iter_values((0..100).map(f64::from)));
    let pair = found(&large, rows(&large, &["f", "s"], vec![floats, texts()]));
    assert_eq!(pair.as_deref(), Some("s IN (a filter of 100 keys)"), "floats have no hash");

    let branches =
        vec![(lit(0u64), rows(&large, &["s"], vec![s()])), (lit(1u64), rows(&large, &["s"], vec![texts()]))];
    let case = CaseExpr::try_new(Some(lit(0u64)), branches, Some(lit(false))).unwrap();
    assert_eq!(found(&large, Arc::new(case)).as_deref(), Some("s IN (a filter of 200 keys)"));
    let or_null = is_null(col("s", &large.schema.project(&SCANNED).unwrap()).unwrap()).unwrap();
    let or_null = both(&large, Operator::Or, or_null, rows(&large, &["s"], vec![s()]));
    assert_eq!(found(&large, or_null).as_deref(), Some("(s IS NULL OR s IN (a filter of 100 keys))"));
    let few = TableInfo { rows: 110, ..large.clone() };
    assert_eq!(found(&few, rows(&few, &["s"], vec![s()])), None);
}

#[tokio::test]
async fn keys_of_another_width_are_compared_by_value() {
    let info = info().await;
    let schema = info.schema.project(&SCANNED).unwrap();
    let widened = cast(col("u", &schema).unwrap(), &schema, DataType::Int64).unwrap();
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![70_000, -1, 3, 65_535]));
    let list = InListExpr::try_new_from_array(widened, keys, false, &schema).unwrap();
    assert_eq!(found(&info, Arc::new(list)).as_deref(), Some("u IN (3, 65535)"));
}

#[tokio::test]
async fn conditions_on_keys_go_in_front_of_a_grouping_and_others_do_not() {
    let info = info().await;
    let count = Aggregate {
        name: "n".into(),
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        filter: None,
        data_type: arrow_schema::DataType::Int64,
    };
    let keys = vec![NamedExpr::column(&info.schema, 1)];
    let output = Output::Aggregate { keys, aggregates: vec![count.clone()] };
    let program = Program { output, ..Program::scan(info.name.clone(), &info.schema, &[]) };
    let schema = program.result_schema(&info.schema).unwrap();
    let on = |column: &str, value: ScalarValue| {
        binary(col(column, &schema).unwrap(), Operator::Lt, lit(value), &schema).unwrap()
    };
    let of_key = on("k", ScalarValue::Int32(Some(3)));
    let of_count = on("n", ScalarValue::Int64(Some(3)));
    let dynamic: Filter = Arc::new(DynamicFilterPhysicalExpr::new(
        vec![col("k", &schema).unwrap(), col("n", &schema).unwrap()],
        both(&info, Operator::And, of_key, of_count),
    ));
    let (narrow, _) = narrowed(program.clone(), &usable(&program, &[Arc::clone(&dynamic)]), &info);
    assert_eq!(narrow.filter.unwrap().display(&info.schema).to_string(), "k < 3");
    let whole = Program {
        output: Output::Aggregate { keys: Vec::new(), aggregates: vec![count] },
        ..program.clone()
    };
    assert!(usable(&whole, &[Arc::clone(&dynamic)]).is_empty(), "no rows in would be a row out");
    assert!(
        usable(&Program { limit: Some(3), ..program }, &[dynamic]).is_empty(),
        "which rows leave would change"
    );
}

#[test]
fn constants_go_there_and_back() {
    for scalar in [
        ScalarValue::Int8(Some(-3)),
        ScalarValue::UInt64(Some(u64::MAX)),
        ScalarValue::Decimal128(Some(-12345), 15, 2),
        ScalarValue::Date32(Some(9000)),
        ScalarValue::TimestampMicrosecond(Some(-1), Some("+02:00".into())),
        ScalarValue::Float32(Some(0.1)),
        ScalarValue::Float64(Some(f64::NEG_INFINITY)),
        ScalarValue::Utf8View(Some("ä".into())),
        ScalarValue::BinaryView(Some(vec![0, 255])),
        ScalarValue::Boolean(Some(false)),
        ScalarValue::Int32(None),
        ScalarValue::Decimal128(None, 38, 10),
    ] {
        let literal = from_scalar(&scalar).unwrap();
        assert_eq!(crate::literal::to_scalar(&literal), Some(scalar));
    }
    let text = from_scalar(&ScalarValue::Utf8View(Some("x".into())));
    assert_eq!(from_scalar(&ScalarValue::LargeUtf8(Some("x".into()))), text);
    let dictionary = ScalarValue::Dictionary(
        Box::new(arrow_schema::DataType::Int8),
        Box::new(ScalarValue::Utf8(Some("x".into()))),
    );
    assert_eq!(from_scalar(&dictionary), text);
    assert_eq!(from_scalar(&ScalarValue::Null), None);
}
