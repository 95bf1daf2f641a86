//! Encodes TPC-H lineitem on one core and prints for each column the encoded size and the speed. Times are
//! CPU times, so that other work on the machine affects them less; Linux only.
//!
//! `cargo run --release -p farpool-columns --example lineitem -- [ROWS]`

use arrow_array::{
    Array, ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{Field, Schema};
use farpool_columns::{Table, TableBuilder};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::TenantName;
use farpool_model::limits::BATCH_ROWS;
use std::hint::black_box;
use std::sync::Arc;
use tpchgen::generators::{LineItem, LineItemGenerator};

/// Number of passes over a column per measurement, because the CPU clock of a thread ticks in milliseconds.
const ROUNDS: usize = 20;

fn main() {
    let rows = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2_000_000);
    let batches = batches(rows);
    let pool = Pool::new(PoolConfig { bytes_limit: 2 << 30 }).expect("room for a pool");
    for _ in 0..2 {
        let table = report_whole(&pool, &batches);
        drop(table);
    }
    report_columns(&pool, &batches);
}

/// Returns the CPU seconds that this thread has used.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    nanoseconds.expect("a number of nanoseconds") / 1e9
}

fn batches(rows: usize) -> Vec<RecordBatch> {
    let generator = LineItemGenerator::new(1.0, 1, 1);
    let rows: Vec<LineItem<'_>> = generator.iter().take(rows).collect();
    rows.chunks(BATCH_ROWS).map(batch).collect()
}

fn batch(rows: &[LineItem<'_>]) -> RecordBatch {
    fn int64(rows: &[LineItem<'_>], value: impl Fn(&LineItem<'_>) -> i64) -> ArrayRef {
        Arc::new(rows.iter().map(value).collect::<Int64Array>())
    }
    fn decimal(rows: &[LineItem<'_>], value: impl Fn(&LineItem<'_>) -> i64) -> ArrayRef {
        let values = Decimal128Array::from_iter_values(rows.iter().map(|row| i128::from(value(row))));
        Arc::new(values.with_precision_and_scale(15, 2).expect("15 digits"))
    }
    fn date(rows: &[LineItem<'_>], value: impl Fn(&LineItem<'_>) -> i32) -> ArrayRef {
        Arc::new(Date32Array::from_iter_values(rows.iter().map(value)))
    }
    fn text<'a>(rows: &'a [LineItem<'_>], value: impl Fn(&'a LineItem<'_>) -> &'a str) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(value)))
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("l_orderkey", int64(rows, |row| row.l_orderkey)),
        ("l_partkey", int64(rows, |row| row.l_partkey)),
        ("l_suppkey", int64(rows, |row| row.l_suppkey)),
        ("l_linenumber", Arc::new(rows.iter().map(|row| row.l_linenumber).collect::<Int32Array>())),
        ("l_quantity", decimal(rows, |row| row.l_quantity * 100)),
        ("l_extendedprice", decimal(rows, |row| row.l_extendedprice.into_inner())),
        ("l_discount", decimal(rows, |row| row.l_discount.into_inner())),
        ("l_tax", decimal(rows, |row| row.l_tax.into_inner())),
        ("l_returnflag", text(rows, |row| row.l_returnflag)),
        ("l_linestatus", text(rows, |row| row.l_linestatus)),
        ("l_shipdate", date(rows, |row| row.l_shipdate.to_unix_epoch())),
        ("l_commitdate", date(rows, |row| row.l_commitdate.to_unix_epoch())),
        ("l_receiptdate", date(rows, |row| row.l_receiptdate.to_unix_epoch())),
        ("l_shipinstruct", text(rows, |row| row.l_shipinstruct)),
        ("l_shipmode", text(rows, |row| row.l_shipmode)),
        ("l_comment", text(rows, |row| row.l_comment)),
    ];
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), false)).collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns of one length")
}

/// Encodes all batches and returns the table and the seconds it took.
fn encode(pool: &Arc<Pool>, batches: &[RecordBatch]) -> (Table, f64) {
    let start = cpu_seconds();
    let schema = batches[0].schema();
    let mut builder = TableBuilder::new(Arc::clone(pool), TenantName::default(), &schema, None)
        .expect("a schema of the pool");
    for batch in batches {
        builder.push(batch).expect("room in the pool");
    }
    let table = builder.finish().expect("room in the pool");
    (table, cpu_seconds() - start)
}

fn report_whole(pool: &Arc<Pool>, batches: &[RecordBatch]) -> Table {
    let (table, seconds) = encode(pool, batches);
    println!(
        "{} rows: {:.0} MB plain, {:.0} MB encoded ({:.0} MB of pages), {:.2} s, {:.2} GB/s",
        table.rows,
        table.bytes_plain as f64 / 1e6,
        table.bytes_encoded as f64 / 1e6,
        pool.usage().bytes_used as f64 / 1e6,
        seconds,
        table.bytes_plain as f64 / seconds / 1e9,
    );
    table
}

fn report_columns(pool: &Arc<Pool>, batches: &[RecordBatch]) {
    println!("{:16} {:>7} {:>9} {:>9} {:>9}  encoding", "column", "B/row", "encode", "decode", "compare");
    for (index, field) in batches[0].schema().fields().iter().enumerate() {
        let column: Vec<RecordBatch> =
            batches.iter().map(|batch| batch.project(&[index]).expect("a column")).collect();
        let (table, encode_seconds) = encode(pool, &column);
        let rows = table.rows as f64;
        let decode_seconds = decode(&table);
        println!(
            "{:16} {:7.2} {:6.1} ns {:6.1} ns {:6.2} ns  {:?}",
            field.name(),
            table.bytes_encoded as f64 / rows,
            encode_seconds / rows * 1e9,
            decode_seconds / rows * 1e9,
            compare(&table) / rows * 1e9,
            table.row_groups[0].chunks[0].encoding(),
        );
    }
}

fn decode(table: &Table) -> f64 {
    let start = cpu_seconds();
    for group in table.row_groups.iter().cycle().take(ROUNDS * table.row_groups.len()) {
        for first in (0..group.rows).step_by(BATCH_ROWS) {
            let rows = first..group.rows.min(first + BATCH_ROWS);
            black_box(group.chunks[0].decode(rows).expect("rows of the chunk"));
        }
    }
    (cpu_seconds() - start) / ROUNDS as f64
}

fn compare(table: &Table) -> f64 {
    let start = cpu_seconds();
    let mut bits = vec![0; 1024];
    for group in table.row_groups.iter().cycle().take(ROUNDS * table.row_groups.len()) {
        let chunk = &group.chunks[0];
        let codes = chunk.integers().or_else(|| chunk.dictionary().map(|dictionary| dictionary.codes()));
        let Some(integers) = codes else { return 0.0 };
        let middle = (i128::from(integers.min()) + i128::from(integers.max())) / 2;
        let alive = &mut bits[..group.rows.div_ceil(64)];
        alive.fill(u64::MAX);
        integers.retain_within(i128::MIN, middle - 1, true, 0, alive);
        black_box(&bits);
    }
    (cpu_seconds() - start) / ROUNDS as f64
}
