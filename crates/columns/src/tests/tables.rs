//! Tables built from batches: rows, order, statistics, limits.

use super::arrays::{Random, SHAPES, TYPES, array};
use super::chunks::literal;
use super::{pool, schema_of};
use crate::{Table, TableBuilder};
use arrow_array::{
    Array, ArrayRef, Date64Array, Decimal128Array, FixedSizeBinaryArray, Int64Array, LargeStringArray,
    RecordBatch, StringArray, StringViewArray,
};
use arrow_schema::{DataType, Field, Schema};
use farpool_memory::Pool;
use farpool_model::limits::ROW_GROUP_ROWS;
use farpool_model::{ErrorKind, Literal, TenantName};
use std::cmp::Ordering;
use std::sync::Arc;

fn builder(pool: &Arc<Pool>, schema: &Schema, rows_hint: Option<u64>) -> TableBuilder {
    TableBuilder::new(Arc::clone(pool), TenantName::default(), schema, rows_hint).unwrap()
}

/// One column of a table, put together again.
fn column(table: &Table, index: usize) -> ArrayRef {
    let parts: Vec<ArrayRef> =
        table.row_groups.iter().map(|group| group.chunks[index].decode(0..group.rows).unwrap()).collect();
    let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
    arrow_select::concat::concat(&parts).unwrap()
}

fn cut(columns: &[ArrayRef], random: &mut Random) -> Vec<RecordBatch> {
    let (mut row, rows) = (0, columns[0].len());
    let mut batches = Vec::new();
    while row < rows {
        let count = (1 + random.below(20_000)).min(rows - row);
        let part = columns.iter().map(|column| column.slice(row, count)).collect();
        batches.push(RecordBatch::try_new(schema_of(columns), part).unwrap());
        row += count;
    }
    batches
}

fn check_statistics(table: &Table, index: usize, array: &ArrayRef) {
    let statistics = &table.statistics[index];
    assert_eq!(statistics.null_count, array.null_count() as u64);
    let values: Vec<Literal> = (0..array.len()).filter_map(|row| literal(array, row)).collect();
    let bound = |order| values.iter().reduce(|a, b| if b.compare(a) == Some(order) { b } else { a });
    if statistics.min.is_some() {
        assert_eq!(statistics.min.as_ref(), bound(Ordering::Less));
        assert_eq!(statistics.max.as_ref(), bound(Ordering::Greater));
    }
    if let Some(count) = statistics.distinct_count {
        let distinct: std::collections::HashSet<String> = values.iter().map(Literal::to_string).collect();
        assert_eq!(count, distinct.len() as u64, "{}", array.data_type());
    }
}

#[test]
fn a_table_holds_the_rows_of_its_batches_in_order() {
    let mut random = Random(11);
    for (shape, nulls) in SHAPES.into_iter().zip([0, 10, 0, 60]) {
        let pool = pool(256);
        let rows = ROW_GROUP_ROWS + 1;
        let columns: Vec<ArrayRef> =
            TYPES.iter().map(|data_type| array(data_type, shape, rows, nulls, &mut random)).collect();
        let mut builder = builder(&pool, &schema_of(&columns), Some(rows as u64));
        for batch in cut(&columns, &mut random) {
            builder.push(&batch).unwrap();
        }
        let table = builder.finish().unwrap();
        assert_eq!(table.rows, rows as u64);
        assert_eq!(table.row_groups.len(), 2);
        for (index, array) in columns.iter().enumerate() {
            assert_eq!(&column(&table, index), array);
            check_statistics(&table, index, array);
        }
        let encoded: u64 = table.statistics.iter().map(|s| s.bytes_encoded).sum();
        assert_eq!(table.bytes_encoded, encoded);
    }
}

#[test]
fn other_types_are_held_in_their_canonical_form() {
    let pool = pool(16);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["a", "b"])),
        Arc::new(LargeStringArray::from(vec![Some("c"), None])),
        Arc::new(Date64Array::from(vec![86_400_000, 0])),
        Arc::new(FixedSizeBinaryArray::try_from_iter([[1, 2], [3, 4]].into_iter()).unwrap()),
        arrow_cast::cast(
            &StringArray::from(vec!["x", "y"]),
            &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        )
        .unwrap(),
        arrow_cast::cast(&Decimal128Array::from(vec![100, 250]), &DataType::Decimal64(15, 2)).unwrap(),
    ];
    let mut builder = builder(&pool, &schema_of(&columns), None);
    builder.push(&RecordBatch::try_new(schema_of(&columns), columns).unwrap()).unwrap();
    let table = builder.finish().unwrap();
    let text = |index| column(&table, index).data_type().clone();
    assert_eq!(text(0), DataType::Utf8View);
    assert_eq!(text(2), DataType::Timestamp(arrow_schema::TimeUnit::Millisecond, None));
    assert_eq!(text(3), DataType::BinaryView);
    assert_eq!(&column(&table, 4), &(Arc::new(StringViewArray::from(vec!["x", "y"])) as ArrayRef));
}

#[test]
fn an_append_shares_the_row_groups_and_goes_on_counting() {
    let pool = pool(32);
    let numbers = |range: std::ops::Range<i64>| -> ArrayRef { Arc::new(range.collect::<Int64Array>()) };
    let batch = |column: ArrayRef| {
        let columns = [column];
        RecordBatch::try_new(schema_of(&columns), columns.to_vec()).unwrap()
    };
    let first = batch(numbers(-10..500));
    let mut base = builder(&pool, &first.schema(), None);
    base.push(&first).unwrap();
    let base = base.finish().unwrap();
    let mut more = TableBuilder::append_to(Arc::clone(&pool), &base, TenantName::default(), None).unwrap();
    more.push(&batch(numbers(400..600))).unwrap();
    more.push(&batch(numbers(-70..-60))).unwrap();
    let table = more.finish().unwrap();
    assert!(Arc::ptr_eq(&base.row_groups[0], &table.row_groups[0]));
    assert_eq!((base.rows, table.rows), (510, 720));
    assert_eq!(base.statistics[0].distinct_count, Some(510));
    assert_eq!(table.statistics[0].distinct_count, Some(620));
}

#[test]
fn a_table_that_will_not_fit_is_refused_after_a_few_row_groups() {
    let mut random = Random(12);
    let pool = pool(8);
    let columns = [array(&DataType::Int64, SHAPES[3], ROW_GROUP_ROWS, 0, &mut random)];
    let batch = RecordBatch::try_new(schema_of(&columns), columns.to_vec()).unwrap();
    let mut builder = builder(&pool, &batch.schema(), Some(100 * ROW_GROUP_ROWS as u64));
    builder.push(&batch).unwrap();
    let error = builder.push(&batch).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(error.message.contains("50.0 MiB") && error.message.contains("8.0 MiB"), "{error}");
    drop(builder);
    assert_eq!(pool.usage().bytes_used, 0);
}

#[test]
fn row_groups_of_a_narrow_table_share_pages() {
    let pool = pool(8);
    let column: ArrayRef = Arc::new((0..20 * ROW_GROUP_ROWS as i64).map(|v| v % 200).collect::<Int64Array>());
    let columns = [column];
    let batch = RecordBatch::try_new(schema_of(&columns), columns.to_vec()).unwrap();
    let mut builder = builder(&pool, &batch.schema(), None);
    builder.push(&batch).unwrap();
    let table = builder.finish().unwrap();
    assert_eq!(table.row_groups.len(), 20);
    assert_eq!(pool.usage().bytes_used, 2 << 20);
}

#[test]
fn batches_that_do_not_fit_the_schema_are_refused() {
    let pool = pool(8);
    let schema = Schema::new(vec![Field::new("k", DataType::Int64, false)]);
    let mut builder = builder(&pool, &schema, None);
    let batch = |column: ArrayRef| {
        let columns = [column];
        RecordBatch::try_new(schema_of(&columns), columns.to_vec()).unwrap()
    };
    let null: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    assert!(builder.push(&batch(null)).unwrap_err().message.contains("\"k\""));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    assert_eq!(builder.push(&batch(text)).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(builder.finish().unwrap().rows, 0);
}

#[test]
fn a_row_group_of_long_strings_is_cut_early() {
    let pool = pool(64);
    let text = "x".repeat(30 << 20);
    let column: ArrayRef = Arc::new(StringViewArray::from(vec![text.as_str(); 10]));
    let columns = [column];
    let batch = RecordBatch::try_new(schema_of(&columns), columns.to_vec()).unwrap();
    let mut builder = builder(&pool, &batch.schema(), None);
    builder.push(&batch).unwrap();
    let table = builder.finish().unwrap();
    assert_eq!(table.row_groups.iter().map(|group| group.rows).collect::<Vec<_>>(), [8, 2]);
    assert_eq!(&self::column(&table, 0), &columns[0]);
}
