//! Random tables, with the types that the pool uses.

use super::rng::Rng;
use arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array,
    RecordBatch, StringViewArray, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// Number of rows of a row group, around which the numbers of rows of random tables are chosen.
const ROW_GROUP_ROWS: usize = farpool::model::limits::ROW_GROUP_ROWS;

/// A table in memory.
pub struct Table {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
    pub rows: usize,
    pub columns: Vec<Column>,
}

/// A column, and the restrictions for queries over it.
pub struct Column {
    pub name: String,
    pub data_type: DataType,
    /// Whether sums and products of the values are exact in every order of the rows and do not overflow.
    pub tame: bool,
    pub values: ArrayRef,
}

/// The distribution of values, which determines their encoding.
#[derive(Clone, Copy)]
enum Shape {
    Constant,
    Few,
    Sorted,
    Narrow,
    Wild,
}

impl Table {
    /// Creates a random table with one to eight columns.
    pub fn random(rng: &mut Rng) -> Table {
        let rows = row_count(rng);
        let columns: Vec<Column> =
            (0..1 + rng.below(8)).map(|index| Column::random(rng, index, rows)).collect();
        let fields: Vec<Field> =
            columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let arrays = columns.iter().map(|column| column.values.clone()).collect();
        let whole = RecordBatch::try_new(schema.clone(), arrays).expect("columns of one length");
        let batches = cut(rng, &whole);
        Table { schema, batches, rows, columns }
    }

    /// Describes the columns, for a failure message.
    pub fn describe(&self) -> String {
        let columns = self.columns.iter().map(|c| format!("{} {}", c.name, c.data_type));
        columns.collect::<Vec<_>>().join(", ")
    }
}

fn row_count(rng: &mut Rng) -> usize {
    match rng.below(24) {
        0 => 0,
        1 => 1,
        2 => ROW_GROUP_ROWS - 1 + rng.below(3),
        3 => 2 * ROW_GROUP_ROWS + rng.below(3000),
        4..=9 => 1 + rng.below(20),
        10..=15 => 1000 + rng.below(50),
        _ => 1 + rng.below(5000),
    }
}

/// Splits the rows of `whole` into batches of random sizes.
fn cut(rng: &mut Rng, whole: &RecordBatch) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    let mut at = 0;
    while at < whole.num_rows() {
        let rows = (1 + rng.below(40_000)).min(whole.num_rows() - at);
        batches.push(whole.slice(at, rows));
        at += rows;
    }
    batches
}

impl Column {
    fn random(rng: &mut Rng, index: usize, rows: usize) -> Column {
        let data_type = random_type(rng);
        let shape = *rng.pick(&[Shape::Constant, Shape::Few, Shape::Sorted, Shape::Narrow, Shape::Wild]);
        let nulls = *rng.pick(&[0, 0, 2, 10, 100]);
        let all_null = rng.once_in(20);
        let mut is_null = |rng: &mut Rng| all_null || (nulls > 0 && rng.once_in(nulls));
        let values = random_values(rng, &data_type, shape, rows, &mut is_null);
        let tame = !matches!(shape, Shape::Wild) || small(&data_type);
        Column { name: format!("c{index}"), data_type, tame, values }
    }
}

fn small(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Int8 | Int16 | UInt8 | UInt16)
}

fn random_type(rng: &mut Rng) -> DataType {
    use DataType::*;
    let zone = Some(Arc::from("+02:00"));
    let types = [
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float32,
        Float64,
        Float64,
        Decimal128(9, 2),
        Decimal128(15, 2),
        Decimal128(38, 10),
        Date32,
        Timestamp(TimeUnit::Second, None),
        Timestamp(TimeUnit::Millisecond, None),
        Timestamp(TimeUnit::Microsecond, zone),
        Timestamp(TimeUnit::Nanosecond, None),
        Utf8View,
        Utf8View,
        Utf8View,
        BinaryView,
    ];
    rng.pick(&types).clone()
}

type IsNull<'a> = &'a mut dyn FnMut(&mut Rng) -> bool;

fn random_values(rng: &mut Rng, data_type: &DataType, shape: Shape, rows: usize, null: IsNull) -> ArrayRef {
    match data_type {
        DataType::Boolean => {
            let values = (0..rows).map(|_| (!null(rng)).then(|| integer(rng, shape, 0) % 2 == 0));
            Arc::new(values.collect::<BooleanArray>())
        }
        DataType::Float32 => {
            let values = (0..rows).map(|row| (!null(rng)).then(|| float(rng, shape, row) as f32));
            Arc::new(values.collect::<Float32Array>())
        }
        DataType::Float64 => {
            let values = (0..rows).map(|row| (!null(rng)).then(|| float(rng, shape, row)));
            Arc::new(values.collect::<Float64Array>())
        }
        DataType::Utf8View => {
            let values = (0..rows).map(|row| (!null(rng)).then(|| string(rng, shape, row)));
            Arc::new(values.collect::<StringViewArray>())
        }
        DataType::BinaryView => {
            let values = (0..rows).map(|row| (!null(rng)).then(|| string(rng, shape, row).into_bytes()));
            Arc::new(values.collect::<BinaryViewArray>())
        }
        DataType::Decimal128(precision, scale) => {
            let values = (0..rows).map(|row| (!null(rng)).then(|| decimal(rng, shape, row, *precision)));
            let values = values.collect::<Decimal128Array>();
            Arc::new(values.with_precision_and_scale(*precision, *scale).expect("a valid decimal"))
        }
        DataType::UInt64 => {
            let values = (0..rows).map(|row| (!null(rng)).then(|| integer(rng, shape, row).cast_unsigned()));
            let tame = !matches!(shape, Shape::Wild);
            Arc::new(values.map(|v| v.map(|v| if tame { v % 1_000_000 } else { v })).collect::<UInt64Array>())
        }
        _ => {
            let values = (0..rows).map(|row| (!null(rng)).then(|| integer(rng, shape, row)));
            let values = values.map(|v| v.map(|v| clamp(v, data_type))).collect::<Int64Array>();
            narrow(&values, data_type)
        }
    }
}

/// Casts 64-bit integers to another integer-like type, after they have been clamped to its range.
fn narrow(values: &Int64Array, data_type: &DataType) -> ArrayRef {
    let cast_to = |values: &dyn arrow::array::Array, t: &DataType| cast(values, t).expect("clamped");
    match data_type {
        DataType::Date32 => cast_to(&cast_to(values, &DataType::Int32), data_type),
        _ => cast_to(values, data_type),
    }
}

fn clamp(value: i64, data_type: &DataType) -> i64 {
    use DataType::*;
    let (min, max) = match data_type {
        Int8 => (i8::MIN.into(), i8::MAX.into()),
        Int16 => (i16::MIN.into(), i16::MAX.into()),
        Int32 => (i32::MIN.into(), i32::MAX.into()),
        UInt8 => (0, u8::MAX.into()),
        UInt16 => (0, u16::MAX.into()),
        UInt32 => (0, u32::MAX.into()),
        // Days from 1970 whose years can be formatted.
        Date32 => (-700_000, 2_900_000),
        Timestamp(TimeUnit::Second, _) => (-60_000_000_000, 250_000_000_000),
        Timestamp(TimeUnit::Millisecond, _) => (-60_000_000_000_000, 250_000_000_000_000),
        Timestamp(TimeUnit::Microsecond, _) => (-60_000_000_000_000_000, 250_000_000_000_000_000),
        _ => (i64::MIN, i64::MAX),
    };
    value.clamp(min, max)
}

fn integer(rng: &mut Rng, shape: Shape, row: usize) -> i64 {
    match shape {
        Shape::Constant => 42,
        Shape::Few => *rng.pick(&[-3, 0, 1, 7, 100]),
        Shape::Sorted => i64::try_from(row / 3).expect("few rows") - 50,
        Shape::Narrow => 1000 + i64::try_from(rng.below(700)).expect("small"),
        Shape::Wild => match rng.below(8) {
            0 => i64::MAX,
            1 => i64::MIN,
            2 => 0,
            3 => -1,
            4 => i64::from(i32::MAX),
            _ => rng.bits().cast_signed() >> rng.below(60),
        },
    }
}

fn decimal(rng: &mut Rng, shape: Shape, row: usize, precision: u8) -> i128 {
    let value = i128::from(integer(rng, shape, row));
    let bound = 10i128.pow(u32::from(precision)) - 1;
    match shape {
        Shape::Wild if precision == 38 && rng.once_in(3) => {
            (value * i128::from(i64::MAX)).clamp(-bound, bound)
        }
        _ => value.clamp(-bound, bound),
    }
}

/// Returns a multiple of a quarter, whose sums are exact, unless the shape is wild.
fn float(rng: &mut Rng, shape: Shape, row: usize) -> f64 {
    match shape {
        Shape::Wild => match rng.below(10) {
            0 => f64::NAN,
            1 => -0.0,
            2 => f64::INFINITY,
            3 => f64::NEG_INFINITY,
            4 => 0.0,
            5 => f64::MIN_POSITIVE,
            _ => (rng.bits().cast_signed() as f64) / 1e12,
        },
        _ => integer(rng, shape, row) as f64 / 4.0,
    }
}

fn string(rng: &mut Rng, shape: Shape, row: usize) -> String {
    const WORDS: [&str; 10] =
        ["", "a", "apple", "Äpfel", "pear tree", "日本語のテキスト", "it's", "100%", "a_b", "🦀"];
    match shape {
        Shape::Constant => "always the same words".to_string(),
        Shape::Few => (*rng.pick(&WORDS)).to_string(),
        Shape::Sorted => format!("key-{:08}", row / 2),
        Shape::Narrow => format!("{}{}", rng.pick(&WORDS), rng.below(1000)),
        Shape::Wild => match rng.below(60) {
            0 => "long ".repeat(1 + rng.below(2000)),
            1 => String::new(),
            _ => (0..rng.below(12)).map(|_| *rng.pick(&WORDS)).collect(),
        },
    }
}
