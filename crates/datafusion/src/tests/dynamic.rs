//! What is made of the filters that other operators find out while they run.

use super::{Fake, filled};
use crate::dynamic::{narrowed, usable};
use crate::literal::from_scalar;
use arrow_array::{ArrayRef, Int32Array, StructArray};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    CaseExpr, DynamicFilterPhysicalExpr, InListExpr, binary, col, in_list, lit,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use farpool_model::{Aggregate, AggregateFunction, NamedExpr, Output, Program, TableInfo};
use farpool_transfer::Pool;
use std::sync::Arc;

type Filter = Arc<dyn PhysicalExpr>;

async fn info() -> TableInfo {
    filled(Fake::default()).await.table(&farpool_model::TableName::new("t").unwrap()).await.unwrap()
}

/// What the filter of a scan of `k` and `u` becomes when `current` is found out, as text.
fn found(info: &TableInfo, current: Filter) -> Option<String> {
    let schema = Arc::new(info.schema.project(&[1, 2]).unwrap());
    let columns = vec![col("k", &schema).unwrap(), col("u", &schema).unwrap()];
    let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(columns, lit(true)));
    let program = Program::scan(info.name.clone(), &info.schema, &[1, 2]);
    let usable = usable(&program, &[Arc::clone(&dynamic) as Filter]);
    dynamic.update(current).unwrap();
    narrowed(program, &usable, info).filter.map(|f| f.display(&info.schema).to_string())
}

fn compare(info: &TableInfo, column: &str, op: Operator, value: ScalarValue) -> Filter {
    let schema = info.schema.project(&[1, 2]).unwrap();
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
    let schema = info.schema.project(&[1, 2]).unwrap();
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
    let schema = info.schema.project(&[1, 2]).unwrap();
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
    let expected = "(k >= 1 AND k <= 9 AND k IN (2, 9, 1, 3, 5))";
    assert_eq!(found(&info, Arc::new(case.unwrap())).as_deref(), Some(expected));
}

#[tokio::test]
async fn long_lists_of_integers_become_sets_where_that_pays() {
    let columns = vec![farpool_model::ColumnStatistics::default(); info().await.schema.fields().len()];
    let large = TableInfo { rows: 1_000_000, columns, ..info().await };
    let schema = large.schema.project(&[1, 2]).unwrap();
    let of = |keys: Vec<i32>| -> Filter {
        let keys: ArrayRef = Arc::new(Int32Array::from(keys));
        Arc::new(InListExpr::try_new_from_array(col("k", &schema).unwrap(), keys, false, &schema).unwrap())
    };
    let hundred = || of((0..100).map(|key| key * 3).collect());
    assert_eq!(found(&large, hundred()).as_deref(), Some("k IN (100 keys from 0 to 297)"));
    let branches = vec![(lit(0u64), hundred()), (lit(1u64), of(vec![-5, 1]))];
    let case = CaseExpr::try_new(Some(lit(0u64)), branches, Some(lit(false))).unwrap();
    assert_eq!(found(&large, Arc::new(case)).as_deref(), Some("k IN (102 keys from -5 to 297)"));
    // Few keys, keys too far apart for a bitmap, and a table that is not worth the bytes.
    assert_eq!(found(&large, of(vec![7, 9])).as_deref(), Some("k IN (7, 9)"));
    let apart = found(&large, of((0..100).map(|key| key * 20_000_000).collect()));
    assert!(apart.unwrap().ends_with("more)"), "a plain list");
    let small = TableInfo { rows: 20, ..large.clone() };
    assert_eq!(found(&small, hundred()), None);
    let dense = TableInfo { rows: 110, ..large.clone() };
    assert_eq!(found(&dense, hundred()), None, "most rows would pass");
}

#[tokio::test]
async fn a_list_of_pairs_becomes_a_list_for_each_key() {
    let info = info().await;
    let schema = info.schema.project(&[1, 2]).unwrap();
    let keys: ArrayRef = Arc::new(Int32Array::from(vec![3, 1, 3]));
    let others: ArrayRef = Arc::new(arrow_array::UInt16Array::from(vec![10, 20, 10]));
    let fields = vec![
        Arc::new(arrow_schema::Field::new("c0", arrow_schema::DataType::Int32, true)),
        Arc::new(arrow_schema::Field::new("c1", arrow_schema::DataType::UInt16, true)),
    ];
    let pairs = StructArray::new(fields.clone().into(), vec![keys, others], None);
    let field = arrow_schema::Field::new("struct", arrow_schema::DataType::Struct(fields.into()), true);
    let args = vec![col("k", &schema).unwrap(), col("u", &schema).unwrap()];
    let udf = datafusion::functions::core::r#struct();
    let call = ScalarFunctionExpr::new("struct", udf, args, Arc::new(field), Arc::default());
    let list = InListExpr::try_new_from_array(Arc::new(call), Arc::new(pairs), false, &schema).unwrap();
    assert_eq!(found(&info, Arc::new(list)).as_deref(), Some("(k IN (1, 3) AND u IN (10, 20))"));
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
    let narrow = narrowed(program.clone(), &usable(&program, &[Arc::clone(&dynamic)]), &info);
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
