//! The table over which fuzzed plans run, in several forms: with the same rows in one row group and in several, and
//! encrypted.

use crate::plan;
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_columns::{MemoryCipher, PlainGroup, Table, TableBuilder, table_cipher};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{GivenRows, Result, TenantName, Tier};
use std::sync::{Arc, LazyLock};

/// Number of rows of the table: more than one block of packed values has.
const ROWS: i64 = 1300;

/// Index of the column that identifies rows.
pub(super) const ID: usize = 0;

/// Returns the schema: the columns that plans in the corpora use, and one for each other type and encoding.
pub(crate) fn table_schema() -> &'static SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let field = |(name, data_type): (&str, DataType)| Arc::new(Field::new(name, data_type, true));
        let more = [
            ("word", DataType::Utf8View),
            ("code", DataType::Utf8View),
            ("raw", DataType::BinaryView),
            ("void", DataType::Int16),
            ("tiny", DataType::UInt8),
            ("edge", DataType::Int64),
            ("wide", DataType::UInt64),
            ("huge", DataType::Decimal128(38, 3)),
            ("ratio", DataType::Float32),
        ];
        let known = plan::table_schema();
        let fields = known.fields().iter().cloned().chain(more.map(field));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    });
    &SCHEMA
}

/// Returns the table with all rows in one row group.
pub(super) fn whole() -> &'static Arc<Table> {
    static TABLE: LazyLock<Arc<Table>> = LazyLock::new(|| table(&[ROWS as usize]));
    &TABLE
}

/// Returns the table with the same rows in row groups of one row, of a few, of many.
pub(super) fn cut() -> &'static Arc<Table> {
    static TABLE: LazyLock<Arc<Table>> = LazyLock::new(|| table(&[1, 9, 70, 1100, ROWS as usize - 1180]));
    &TABLE
}

/// Returns the same table, encrypted in memory.
pub(super) fn encrypted() -> &'static Arc<Table> {
    static TABLE: LazyLock<Arc<Table>> = LazyLock::new(|| {
        let cipher = table_cipher(Tier::Standard).expect("memory can be locked");
        table_with(&[1, 9, 70, 1100, ROWS as usize - 1180], Some(&cipher))
    });
    &TABLE
}

fn table(row_groups: &[usize]) -> Arc<Table> {
    table_with(row_groups, None)
}

fn table_with(row_groups: &[usize], cipher: Option<&Arc<MemoryCipher>>) -> Arc<Table> {
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).expect("a small pool can be made");
    let (tenant, schema) = (TenantName::default(), table_schema());
    let builder = TableBuilder::new(pool, tenant, schema, None).expect("a sound schema");
    let mut builder = builder.encrypting(cipher);
    let (columns, mut start) = (columns(), 0);
    for rows in row_groups {
        let columns: Vec<ArrayRef> = columns.iter().map(|column| column.slice(start, *rows)).collect();
        let group = PlainGroup::of(&columns);
        let group = builder.encoder().encode(&group).expect("rows can be encoded");
        builder.add_row_group(Arc::new(group)).expect("there is room");
        start += rows;
    }
    Arc::new(builder.finish().expect("there is room"))
}

/// Makes a table of rows that came along with a plan.
///
/// # Errors
/// Errors of [`farpool_columns::table_of`].
pub(super) fn given(rows: &GivenRows, schema: &SchemaRef) -> Result<Arc<Table>> {
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).expect("a small pool can be made");
    farpool_columns::table_of(rows, schema, pool, TenantName::default()).map(Arc::new)
}

/// Returns values spread over a wide range, in no order.
fn mixed(row: i64) -> i64 {
    row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 20
}

fn columns() -> Vec<ArrayRef> {
    table_schema().fields().iter().map(|field| column(field.name(), field.data_type())).collect()
}

fn column(name: &str, data_type: &DataType) -> ArrayRef {
    let valid = |row: &i64| row % 11 != 3;
    let numbers = |value: fn(i64) -> i64| (0..ROWS).map(move |row| valid(&row).then(|| value(row)));
    match name {
        "id" => Arc::new(Int64Array::from_iter_values(0..ROWS)),
        "small" => Arc::new(Int32Array::from_iter(numbers(|r| r % 7 - 3).map(|v| v.map(|v| v as i32)))),
        "u" => Arc::new(UInt32Array::from_iter(numbers(mixed).map(|v| v.map(|v| v as u32)))),
        "price" => {
            let cents =
                Decimal128Array::from_iter(numbers(|r| r * 37 % 9000 - 500).map(|v| v.map(i128::from)));
            Arc::new(cents.with_data_type(data_type.clone()))
        }
        "ship" => Arc::new(Date32Array::from_iter_values((0..ROWS).map(|r| 8000 + (r / 40) as i32))),
        "at" => Arc::new(TimestampMicrosecondArray::from_iter(numbers(|r| 1_700_000_000_000_000 + r * 61))),
        "zoned" => {
            let instants = TimestampMicrosecondArray::from_iter(numbers(|r| mixed(r) * 1000));
            Arc::new(instants.with_data_type(data_type.clone()))
        }
        "name" => {
            let text = |r: i64| format!("https://example.org/a_b/{}/{}", mixed(r) % 1000, r % 13);
            Arc::new(StringViewArray::from_iter((0..ROWS).map(|r| (r % 9 > 0).then(|| text(r)))))
        }
        "score" => Arc::new(Float64Array::from_iter(numbers(|r| r).map(|v| v.map(float)))),
        "ok" => Arc::new(BooleanArray::from_iter(numbers(|r| r % 3).map(|v| v.map(|v| v == 0)))),
        "word" => Arc::new(StringViewArray::from_iter_values((0..ROWS).map(|_| "always the same words"))),
        "code" => {
            let codes = ["red", "green", "", "a longer colour"];
            Arc::new(StringViewArray::from_iter(
                (0..ROWS).map(|r| valid(&r).then(|| codes[(mixed(r) & 3) as usize])),
            ))
        }
        "raw" => Arc::new(BinaryViewArray::from_iter_values(
            (0..ROWS).map(|r| mixed(r).to_le_bytes()[..(r % 9) as usize].to_vec()),
        )),
        "void" => new_null_array(data_type, ROWS as usize),
        "tiny" => Arc::new(UInt8Array::from_iter(numbers(|r| r).map(|v| v.map(|v| (v % 256) as u8)))),
        "edge" => Arc::new(Int64Array::from_iter(numbers(|r| [i64::MIN, -1, 0, i64::MAX][(r % 4) as usize]))),
        "wide" => Arc::new(UInt64Array::from_iter_values((0..ROWS as u64).map(|r| u64::MAX - r * r))),
        "huge" => {
            let values = (0..ROWS).map(|r| valid(&r).then(|| 10_i128.pow(37) * i128::from(r % 19 - 9)));
            Arc::new(Decimal128Array::from_iter(values).with_data_type(data_type.clone()))
        }
        "ratio" => Arc::new(Float32Array::from_iter(numbers(|r| r).map(|v| v.map(|v| float(v) as f32)))),
        other => panic!("a column {other}"),
    }
}

fn float(row: i64) -> f64 {
    match row % 50 {
        0 => f64::NAN,
        1 => -0.0,
        2 => f64::INFINITY,
        3 => f64::NEG_INFINITY,
        4 => 5e-324,
        _ => (row % 400) as f64 * 0.25 - 20.0,
    }
}
