//! Tests the conditions that are derived from dynamic filters.

use super::{Fake, filled};
use crate::dynamic::{KeyWatch, conditions, usable};
use arrow_array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt16Array,
};
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    CaseExpr, Column, DynamicFilterPhysicalExpr, binary, cast, col, is_null, lit,
};
use datafusion::physical_plan::joins::join_hash_map::JoinHashMapU32;
use datafusion::physical_plan::joins::{HashTableLookupExpr, Map, SeededRandomState};
use farpool_model::{Aggregate, AggregateFunction, ColumnStatistics, NamedExpr, Output, Program, TableInfo};
use farpool_planner::joins::sizes::Source;
use farpool_planner::rows::Rows;
use farpool_sql::literal::from_scalar;
use farpool_transfer::Pool;
use std::sync::Arc;

type Filter = Arc<dyn PhysicalExpr>;

async fn info() -> TableInfo {
    filled(Fake::default()).await.table(&farpool_model::TableName::new("t").unwrap()).await.unwrap()
}

/// Indexes of the columns that are scanned: k, u, d, f and s.
const SCANNED: [usize; 5] = [1, 2, 3, 4, 6];

const WIDE: DataType = DataType::Decimal128(15, 2);

/// Returns, as text, the condition that a scan derives from a dynamic filter whose current expression is `current`.
fn found(info: &TableInfo, current: Filter) -> Option<String> {
    found_of(info, current, Vec::new())
}

fn rows_of(info: &TableInfo) -> Rows {
    Rows::of_table(Source { info: Arc::new(info.clone()), sketches: Arc::default() })
}

/// Returns, as text, the condition that a scan derives from a join's dynamic filter `current`, where `keys` are the
/// join keys of the smaller side.
fn found_of(info: &TableInfo, current: Filter, keys: Vec<ArrayRef>) -> Option<String> {
    let schema = Arc::new(info.schema.project(&SCANNED).unwrap());
    let columns = schema.fields().iter().map(|f| col(f.name(), &schema).unwrap()).collect();
    let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(columns, lit(true)));
    let program = Program::scan(info.name.clone(), &info.schema, &SCANNED);
    let usable = usable(&program, &[Arc::clone(&dynamic) as Filter]);
    dynamic.update(current).unwrap();
    let watches = [(dynamic.expression_id().unwrap(), watch_with(keys, 1))];
    conditions(&program, &usable, &watches, &rows_of(info))
        .map(|found| found.display(&info.schema).to_string())
}

/// Creates a watch that has collected the join keys `keys`, and has seen the end of one of `partitions` partitions.
fn watch_with(keys: Vec<ArrayRef>, partitions: usize) -> Arc<KeyWatch> {
    let names: Vec<String> = (0..keys.len()).map(|place| format!("c{place}")).collect();
    let column = |(place, name): (usize, &String)| -> Filter { Arc::new(Column::new(name, place)) };
    let watch = KeyWatch::new(names.iter().enumerate().map(column).collect(), partitions);
    if !keys.is_empty() {
        watch.take(&RecordBatch::try_from_iter(names.iter().zip(keys)).unwrap());
    }
    watch.end();
    Arc::new(watch)
}

/// Creates the filter by which a join looks rows up in its hash table, by the columns `names`.
fn lookup(info: &TableInfo, names: &[&str]) -> Filter {
    let schema = info.schema.project(&SCANNED).unwrap();
    lookup_of(names.iter().map(|name| col(name, &schema).unwrap()).collect())
}

fn lookup_of(keys: Vec<Filter>) -> Filter {
    let map = Arc::new(Map::HashMap(Box::new(JoinHashMapU32::with_capacity(0))));
    Arc::new(HashTableLookupExpr::new(keys, SeededRandomState::with_seed(1), map, "hash_lookup".into()))
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
    let branch = |low: i32, high: i32| {
        let bounds =
            both(&info, Operator::And, k(&info, Operator::GtEq, low), k(&info, Operator::LtEq, high));
        both(&info, Operator::And, bounds, lookup(&info, &["k"]))
    };
    let branches = vec![(lit(0u64), branch(2, 9)), (lit(1u64), branch(1, 5))];
    let case = CaseExpr::try_new(Some(lit(0u64)), branches, Some(lit(false))).unwrap();
    let keys = Int32Array::from(vec![2, 9, 1, 3, 5]);
    let expected = "(k >= 1 AND k <= 9 AND k IN (1, 2, 3, 5, 9))";
    assert_eq!(found_of(&info, Arc::new(case), vec![Arc::new(keys)]).as_deref(), Some(expected));
}

#[tokio::test]
async fn many_integers_become_sets_where_that_pays() {
    let columns = vec![ColumnStatistics::default(); info().await.schema.fields().len()];
    let large = TableInfo { rows: 1_000_000, columns, ..info().await };
    let of = |info: &TableInfo, keys: Vec<i32>| {
        found_of(info, lookup(info, &["k"]), vec![Arc::new(Int32Array::from(keys))])
    };
    let hundred = || (0..100).map(|key| key * 3).collect::<Vec<i32>>();
    assert_eq!(of(&large, hundred()).as_deref(), Some("k IN (100 keys from 0 to 297)"));
    // Few keys become a list. There is no condition if there are no keys, or if the table is so small that sending a
    // condition costs more than it saves.
    assert_eq!(of(&large, vec![7, 9, 7]).as_deref(), Some("k IN (7, 9)"));
    assert_eq!(of(&large, vec![]).as_deref(), Some("k IN ()"));
    let small = TableInfo { rows: 20, ..large.clone() };
    assert_eq!(of(&small, hundred()), None);
    let dense = TableInfo { rows: 110, ..large };
    assert_eq!(of(&dense, hundred()), None, "most rows would pass");
}

#[tokio::test]
async fn pairs_become_a_list_for_each_key() {
    let info = info().await;
    let keys: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), Some(1), None, Some(3)]));
    let others: ArrayRef = Arc::new(UInt16Array::from(vec![Some(10), Some(20), Some(30), Some(10)]));
    let expected = "(k IN (1, 3) AND u IN (10, 20))";
    assert_eq!(found_of(&info, lookup(&info, &["k", "u"]), vec![keys, others]).as_deref(), Some(expected));
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
    let texts = || -> ArrayRef { Arc::new(StringArray::from_iter_values((0..100).map(|i| i.to_string()))) };
    let floats = || -> ArrayRef { Arc::new(Float64Array::from_iter_values((0..100).map(f64::from))) };
    let wide = (0..100).map(|i| i128::from(i) << 60);
    let wide = Decimal128Array::from_iter_values(wide).with_precision_and_scale(15, 2).unwrap();
    let of = |names: &[&str], keys: Vec<ArrayRef>| found_of(&large, lookup(&large, names), keys).unwrap();
    assert_eq!(of(&["k"], vec![k(20_000_000)]), "k IN (a filter of 100 keys)");
    assert_eq!(of(&["s"], vec![s()]), "s IN (a filter of 100 keys)", "NULL is no key");
    assert_eq!(of(&["d"], vec![Arc::new(wide)]), "d IN (a filter of 100 keys)");
    assert!(of(&["f"], vec![floats()]).ends_with("more)"), "a plain list");

    assert_eq!(of(&["k", "s"], vec![k(20_000_000), texts()]), "(k, s) IN (a filter of 100 keys)");
    let with_bitmap = "(k IN (100 keys from 0 to 297) AND (k, s) IN (a filter of 100 keys))";
    assert_eq!(of(&["k", "s"], vec![k(3), texts()]), with_bitmap);
    assert_eq!(
        of(&["f", "s"], vec![floats(), texts()]),
        "s IN (a filter of 100 keys)",
        "floats have no hash"
    );

    let or_null = is_null(col("s", &large.schema.project(&SCANNED).unwrap()).unwrap()).unwrap();
    let or_null = both(&large, Operator::Or, or_null, lookup(&large, &["s"]));
    let expected = "(s IS NULL OR s IN (a filter of 100 keys))";
    assert_eq!(found_of(&large, or_null, vec![s()]).as_deref(), Some(expected));
    let few = TableInfo { rows: 110, ..large.clone() };
    assert_eq!(found_of(&few, lookup(&few, &["s"]), vec![s()]), None);
    // For so large a table, the most useful number of bits per key would exceed the limit for a filter.
    let huge = TableInfo { rows: 1 << 40, ..large };
    for count in [500_000, 1_000_000] {
        let most: ArrayRef = Arc::new(Int64Array::from_iter_values((0..count).map(|key| key << 20)));
        let most = found_of(&huge, lookup(&huge, &["d"]), vec![arrow_cast::cast(&most, &WIDE).unwrap()]);
        assert_eq!(most, Some(format!("d IN (a filter of {count} keys)")));
    }
}

#[tokio::test]
async fn keys_of_another_width_are_compared_by_value() {
    let info = info().await;
    let schema = info.schema.project(&SCANNED).unwrap();
    let widened = cast(col("u", &schema).unwrap(), &schema, DataType::Int64).unwrap();
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![70_000, -1, 3, 65_535]));
    assert_eq!(found_of(&info, lookup_of(vec![widened]), vec![keys]).as_deref(), Some("u IN (3, 65535)"));
}

#[tokio::test]
async fn a_tap_tells_all_keys_or_none() {
    let info = info().await;
    let dynamic: Filter =
        Arc::new(DynamicFilterPhysicalExpr::new(vec![lookup(&info, &["k"])], lookup(&info, &["k"])));
    let program = Program::scan(info.name.clone(), &info.schema, &SCANNED);
    let with = |watch: &Arc<KeyWatch>| {
        let watches = [(dynamic.expression_id().unwrap(), Arc::clone(watch))];
        let found = conditions(&program, &[Arc::clone(&dynamic)], &watches, &rows_of(&info));
        found.map(|found| found.display(&info.schema).to_string())
    };
    let watch = watch_with(vec![Arc::new(Int32Array::from(vec![5, 6]))], 2);
    assert_eq!(with(&watch), None, "a partition is still open");
    watch.end();
    assert_eq!(with(&watch).as_deref(), Some("k IN (5, 6)"));
    let many: ArrayRef = Arc::new(Int32Array::from(vec![1; 1_000_001]));
    assert_eq!(with(&watch_with(vec![many], 1)), None, "too many");
    assert_eq!(conditions(&program, &[Arc::clone(&dynamic)], &[], &rows_of(&info)), None, "no watch");
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
    let found = conditions(&program, &usable(&program, &[Arc::clone(&dynamic)]), &[], &rows_of(&info));
    assert_eq!(found.unwrap().display(&info.schema).to_string(), "k < 3");
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
        assert_eq!(farpool_sql::literal::to_scalar(&literal), Some(scalar));
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
