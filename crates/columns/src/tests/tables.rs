//! Tests tables that are built from batches: their rows and the order of these, statistics, and limits.

use super::arrays::{Random, SHAPES, TYPES, array};
use super::chunks::literal;
use super::{pool, schema_of};
use crate::{Table, TableBuilder};
use arrow_array::{
    Array, ArrayRef, Date64Array, Decimal128Array, FixedSizeBinaryArray, Int64Array, LargeStringArray,
    RecordBatch, StringArray, StringViewArray, UInt32Array,
};
use arrow_schema::{DataType, Field, Schema};
use farpool_memory::Pool;
use farpool_model::limits::{
    DISTINCT_TRACKED_BYTES_MAX, PLAIN_EXCESS_BYTES_MAX, ROW_GROUP_ROWS, TABLE_DISTINCT_BYTES_MAX,
};
use farpool_model::{ErrorKind, Literal, TenantName};
use std::cmp::Ordering;
use std::sync::Arc;

fn builder(pool: &Arc<Pool>, schema: &Schema, rows_hint: Option<u64>) -> TableBuilder {
    TableBuilder::new(Arc::clone(pool), TenantName::default(), schema, rows_hint).unwrap()
}

/// Returns one column of a table, concatenated.
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
    assert_eq!(text(2), DataType::Date32);
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

/// Returns a batch of one row with a short string in a buffer of `bytes` bytes.
fn wasteful(bytes: usize) -> RecordBatch {
    let text = "a string that is not inline";
    let mut data = text.as_bytes().to_vec();
    data.resize(bytes, b'x');
    let view = arrow_data::ByteView::new(text.len() as u32, &text.as_bytes()[..4]).as_u128();
    let columns: [ArrayRef; 1] = [Arc::new(StringViewArray::new(vec![view].into(), vec![data.into()], None))];
    RecordBatch::try_new(schema_of(&columns), columns.to_vec()).unwrap()
}

#[test]
fn rows_that_wait_hold_no_more_than_a_few_times_their_bytes() {
    let pool = pool(8);
    let batch = wasteful(64 << 20);
    let mut long = builder(&pool, &batch.schema(), None);
    for row in 1..=20 {
        long.buffer(&wasteful(4 << 20)).unwrap();
        let most = 2 * row * (16 + 27) + PLAIN_EXCESS_BYTES_MAX;
        assert!((1..=most).contains(&long.bytes_held()), "{} bytes for {row} rows", long.bytes_held());
    }
    assert_eq!(column(&long.finish().unwrap(), 0).len(), 20);

    // Rows of many columns are added one at a time.
    let columns: Vec<ArrayRef> =
        (0..500).map(|i| Arc::new(Int64Array::from(vec![i; 1000])) as ArrayRef).collect();
    let whole = RecordBatch::try_new(schema_of(&columns), columns).unwrap();
    let mut wide = builder(&pool, &whole.schema(), None);
    for row in 0..1000 {
        wide.buffer(&whole.slice(row, 1)).unwrap();
        assert!(wide.bytes_held() <= 2 * (row + 1) * 500 * 8 + PLAIN_EXCESS_BYTES_MAX);
    }
    let table = wide.finish().unwrap();
    assert_eq!((table.rows, &column(&table, 499)), (1000, whole.column(499)));
}

#[test]
fn what_row_groups_hold_is_counted_until_they_are_taken() {
    let pool = pool(8);
    let columns: [ArrayRef; 1] = [Arc::new(Int64Array::from(vec![7; 2 * ROW_GROUP_ROWS + 9]))];
    let batch = RecordBatch::try_new(schema_of(&columns), columns.to_vec()).unwrap();
    let mut builder = builder(&pool, &batch.schema(), None);
    builder.buffer(&batch).unwrap();
    let bytes = columns[0].get_buffer_memory_size();
    // The last nine rows do not keep the memory in use that they shared with the other rows.
    assert!(builder.bytes_held() < 4096 + PLAIN_EXCESS_BYTES_MAX && bytes > PLAIN_EXCESS_BYTES_MAX);
    assert_eq!(std::iter::from_fn(|| builder.take_full_row_group()).count(), 2);
    assert!((9 * 8..4096).contains(&builder.bytes_held()));
    assert_eq!(builder.take_last_row_group().unwrap().rows(), 9);
    assert_eq!(builder.bytes_held(), 0);
}

#[test]
fn a_row_group_of_very_many_columns_is_cut_early() {
    let pool = pool(64);
    let column: ArrayRef = Arc::new(Decimal128Array::from(vec![5; 10_000]));
    let columns = vec![column; farpool_model::limits::COLUMNS_MAX];
    let batch = RecordBatch::try_new(schema_of(&columns), columns).unwrap();
    let mut builder = builder(&pool, &batch.schema(), None);
    builder.push(&batch).unwrap();
    let rows: Vec<usize> = builder.finish().unwrap().row_groups.iter().map(|group| group.rows).collect();
    assert_eq!(rows, [4096, 4096, 1808]);
}

#[test]
fn distinct_strings_are_kept_within_their_bytes() {
    let distinct = |length: usize, columns: usize| {
        let texts: Vec<String> = (0..2000).map(|i| format!("{i:0>length$}")).collect();
        let texts = StringViewArray::from_iter_values(texts);
        // Each distinct value occurs often enough for a dictionary to pay.
        let rows: UInt32Array = (0..20_000).map(|row| row % 2000).collect();
        let column = arrow_select::take::take(&texts, &rows, None).unwrap();
        let columns = vec![column; columns];
        let batch = RecordBatch::try_new(schema_of(&columns), columns).unwrap();
        let mut builder = builder(&pool(256), &batch.schema(), None);
        builder.push(&batch).unwrap();
        let table = builder.finish().unwrap();
        assert!(table.bytes_outside_pool < TABLE_DISTINCT_BYTES_MAX as u64 + (1 << 20));
        table.statistics.iter().filter(|column| column.distinct_count == Some(2000)).count()
    };
    assert_eq!(distinct(100, 1), 1);
    assert_eq!(distinct(DISTINCT_TRACKED_BYTES_MAX / 2000, 1), 0);
    let each = 2000 * 3000;
    assert_eq!(distinct(2900, 12), TABLE_DISTINCT_BYTES_MAX / each);
}

#[test]
fn row_groups_that_wait_to_be_added_are_not_counted_as_taken_by_others() {
    let mut random = Random(31);
    let noise: ArrayRef =
        Arc::new(Int64Array::from_iter_values((0..ROW_GROUP_ROWS).map(|_| random.next() as i64)));
    let columns = [noise];
    let pool = pool(6);
    let mut builder = builder(&pool, &schema_of(&columns), Some(8 * ROW_GROUP_ROWS as u64));
    let encoder = builder.encoder();
    // Other threads have encoded all row groups that follow the first.
    let groups: Vec<_> = (0..8).map(|_| encoder.encode(&crate::PlainGroup::of(&columns)).unwrap()).collect();
    groups.into_iter().for_each(|group| builder.add_row_group(Arc::new(group)).unwrap());
    assert_eq!(builder.finish().unwrap().row_groups.len(), 8);
}
