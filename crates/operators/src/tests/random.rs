//! Generates random tables and programs for comparison with an interpreter.

use super::TestTable;
use crate::evaluate::array_of_ints;
use arrow_array::{ArrayRef, BinaryViewArray, BooleanArray, Float32Array, Float64Array, StringViewArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use farpool_model::literal::integer_range;
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, CompareOp, DatePart, Expr, KeyFilter, KeySet, Literal,
    NamedExpr, NullHandling, Output, Pattern, Program, StateFunction, TableName, Value, limits,
};
use farpool_statistics::keys;
use std::sync::Arc;

/// A small random number generator (xorshift64*), defined here so that seeds keep their meaning when libraries
/// change.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

fn types() -> Vec<DataType> {
    vec![
        DataType::Int8,
        DataType::Int32,
        DataType::Int64,
        DataType::Int64,
        DataType::UInt16,
        DataType::UInt64,
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Decimal128(15, 2),
        DataType::Decimal128(12, 4),
        DataType::Decimal128(38, 3),
        DataType::Float64,
        DataType::Float32,
        DataType::Boolean,
        DataType::Utf8View,
        DataType::Utf8View,
        DataType::BinaryView,
    ]
}

/// Regular expressions that match some of the generated strings.
const REGEXES: [&str; 9] = ["a", "^a", "b+c|1$", "^$", "", r"\d{3}", "(long )+a.*7", "(?i)ß|É", r"^[^a-z]*$"];

/// Distribution of the values of a column.
#[derive(Clone, Copy)]
enum Spread {
    One,
    Few,
    Many,
    Extreme,
}

/// Returns a table of up to `rows_max` rows in up to three row groups.
pub(crate) fn table(random: &mut Random, rows_max: usize) -> TestTable {
    let count = 3 + random.below(5);
    let fields: Vec<Field> =
        (0..count).map(|i| Field::new(format!("c{i}"), random.pick(&types()), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let groups = (0..random.below(4)).map(|_| group(random, &schema, rows_max)).collect::<Vec<_>>();
    TestTable::new(schema, &groups)
}

fn group(random: &mut Random, schema: &SchemaRef, rows_max: usize) -> Vec<ArrayRef> {
    let rows = match random.below(8) {
        0 => 1,
        1 => 1023 + random.below(3),
        2 => 63 + random.below(3),
        _ => 1 + random.below(rows_max),
    }
    .min(rows_max);
    schema.fields().iter().map(|f| column(random, f.data_type(), rows)).collect()
}

fn column(random: &mut Random, data_type: &DataType, rows: usize) -> ArrayRef {
    let spread = random.pick(&[Spread::One, Spread::Few, Spread::Few, Spread::Many, Spread::Extreme]);
    let nulls_percent = random.pick(&[0, 0, 5, 60, 100]);
    let valid: Vec<bool> = (0..rows).map(|_| !random.chance(nulls_percent)).collect();
    let nulls = (nulls_percent > 0).then(|| NullBuffer::from(valid));
    let one = value(random, data_type, Spread::Many);
    let values: Vec<Value> = (0..rows)
        .map(|_| if let Spread::One = spread { one.clone() } else { value(random, data_type, spread) })
        .collect();
    array_of(data_type, &values, nulls)
}

fn array_of(data_type: &DataType, values: &[Value], nulls: Option<NullBuffer>) -> ArrayRef {
    let valid = |row: usize| nulls.as_ref().is_none_or(|n| n.is_valid(row));
    let float = |v: &Value| if let Value::Float(f) = v { *f } else { 0.0 };
    match data_type {
        DataType::Boolean => {
            let values: Vec<bool> = values.iter().map(|v| *v == Value::Bool(true)).collect();
            Arc::new(BooleanArray::new(values.into(), nulls))
        }
        DataType::Float32 => {
            let values: Vec<f32> = values.iter().map(|v| float(v) as f32).collect();
            Arc::new(Float32Array::new(values.into(), nulls))
        }
        DataType::Float64 => {
            let values: Vec<f64> = values.iter().map(float).collect();
            Arc::new(Float64Array::new(values.into(), nulls))
        }
        DataType::Utf8View => {
            let text = |(row, v): (usize, &Value)| match v {
                Value::Text(t) if valid(row) => Some(t.clone()),
                _ => None,
            };
            Arc::new(values.iter().enumerate().map(text).collect::<StringViewArray>())
        }
        DataType::BinaryView => {
            let bytes = |(row, v): (usize, &Value)| match v {
                Value::Bytes(b) if valid(row) => Some(b.clone()),
                _ => None,
            };
            Arc::new(values.iter().enumerate().map(bytes).collect::<BinaryViewArray>())
        }
        other => {
            let ints = values.iter().map(|v| if let Value::Int(i) = v { *i } else { 0 });
            array_of_ints(other, ints, nulls).unwrap()
        }
    }
}

fn value(random: &mut Random, data_type: &DataType, spread: Spread) -> Value {
    match data_type {
        DataType::Boolean => Value::Bool(random.chance(50)),
        DataType::Float32 | DataType::Float64 => Value::Float(random.pick(&[
            0.0,
            -0.0,
            1.5,
            -2.25,
            1e6,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            3.0,
            0.5,
        ]))
        .finite_if(matches!(spread, Spread::Few), random),
        DataType::Utf8View => Value::Text(text(random, spread)),
        DataType::BinaryView => Value::Bytes(text(random, spread).into_bytes()),
        other => Value::Int(int(random, other, spread)),
    }
}

trait FiniteIf {
    fn finite_if(self, finite: bool, random: &mut Random) -> Self;
}

impl FiniteIf for Value {
    /// Returns the value, replaced by a multiple of one quarter if `finite`: sums of such values are exact.
    fn finite_if(self, finite: bool, random: &mut Random) -> Value {
        if finite { Value::Float(random.below(40) as f64 / 4.0 - 5.0) } else { self }
    }
}

fn int(random: &mut Random, data_type: &DataType, spread: Spread) -> i128 {
    let (min, max) = match data_type {
        DataType::Decimal128(38, _) => (-10_i128.pow(37), 10_i128.pow(37)),
        DataType::Decimal128(p, _) => (1 - 10_i128.pow(u32::from(*p)), 10_i128.pow(u32::from(*p)) - 1),
        // Arrow's calendar is limited to these days and instants.
        DataType::Date32 => (-700_000, 900_000),
        DataType::Timestamp(..) => (-60_000_000_000_000_000, 70_000_000_000_000_000),
        other => integer_range(other).unwrap(),
    };
    let wanted = match spread {
        Spread::One | Spread::Few => random.below(7) as i128 - 3,
        Spread::Many => random.below(200_000) as i128 - 1000,
        Spread::Extreme if random.chance(50) => random.pick(&[min, max, min + 1, max - 1, 0, -1, 1]),
        Spread::Extreme => random.next() as i64 as i128,
    };
    wanted.clamp(min, max)
}

fn text(random: &mut Random, spread: Spread) -> String {
    let word = random.pick(&["", "a", "ab", "Ab", "b%c", "x_y", "é", "日本語", "abcabc", "straße"]);
    match spread {
        Spread::One | Spread::Few => word.to_string(),
        Spread::Many => format!("{word}{}", random.below(5000)),
        Spread::Extreme => format!("{}{word}{}", "long ".repeat(random.below(30)), random.below(50)),
    }
}

/// Returns a random program over a table with `schema`.
pub(crate) fn program(random: &mut Random, schema: &Schema) -> Program {
    let filter = random.chance(75).then(|| condition(random, schema, 3));
    let named = |(i, expr)| NamedExpr { name: format!("r{i}"), expr };
    let output = if random.chance(35) {
        let count = random.below(4);
        Output::Rows((0..count).map(|i| named((i, any(random, schema)))).collect())
    } else {
        let keys = random.pick(&[0, 0, 1, 1, 1, 2, 3]);
        let keys: Vec<NamedExpr> = (0..keys).map(|i| named((i, key(random, schema)))).collect();
        let least = usize::from(keys.is_empty());
        let count = least + random.below(5);
        let aggregates = (0..count).map(|i| aggregate(random, schema, &keys, i)).collect();
        Output::Aggregate { keys, aggregates }
    };
    let having = if random.chance(30) { having(random, &output, schema) } else { None };
    Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having,
        order: Vec::new(),
        limit: None,
    }
}

/// Returns a random condition on the groups of `output`; `None` if it has none, or their columns have no defined bits, which
/// is true of floats and states.
fn having(random: &mut Random, output: &Output, schema: &Schema) -> Option<Expr> {
    let Output::Aggregate { keys, aggregates } = output else { return None };
    let of_keys = keys.iter().map(|key| (key.field(schema).unwrap(), false));
    let of_aggregates = aggregates.iter().map(|a| (a.field(schema).unwrap(), a.function.is_state()));
    let fields = of_keys.chain(of_aggregates).enumerate();
    let exact = fields.filter(|(_, (field, is_state))| !is_state && !field.data_type().is_floating());
    let (places, fields): (Vec<usize>, Vec<Field>) = exact.map(|(place, (field, _))| (place, field)).unzip();
    if fields.is_empty() {
        return None;
    }
    let mut having = condition(random, &Schema::new(fields), 1);
    having.renumber(&|column| places[column]);
    Some(having)
}

fn any(random: &mut Random, schema: &Schema) -> Expr {
    if random.chance(60) {
        return Expr::Column(random.below(schema.fields().len()));
    }
    let data_type = schema.field(random.below(schema.fields().len())).data_type().clone();
    expression(random, schema, &data_type, 2)
}

/// Generates an expression for a group key whose bits are defined: see [`condition`].
fn key(random: &mut Random, schema: &Schema) -> Expr {
    let expr = any(random, schema);
    let computed = !matches!(expr, Expr::Column(_) | Expr::Literal(_));
    if computed && expr.data_type(schema).is_ok_and(|t| t.is_floating()) { Expr::Column(0) } else { expr }
}

fn aggregate(random: &mut Random, schema: &Schema, keys: &[NamedExpr], index: usize) -> Aggregate {
    use AggregateFunction::{AnyValue, Count, Min, Sum};
    if random.chance(15) {
        return state(random, schema, index);
    }
    let of_values = AggregateFunction::NAMED.iter().copied().filter(|function| !function.is_state());
    let mut function = random.pick(&of_values.chain([Sum]).collect::<Vec<_>>());
    let filter = random.chance(25).then(|| condition(random, schema, 1));
    let mut argument = any(random, schema);
    if function == AnyValue {
        // The argument of "any value" must be the same in all rows of a group; -0.0 and 0.0 are not the same.
        let is_exact = |key: &&NamedExpr| !key.expr.data_type(schema).unwrap().is_floating();
        match keys.iter().find(is_exact) {
            Some(key) => argument = key.expr.clone(),
            None => function = Min,
        }
    }
    let argument_type = argument.data_type(schema).unwrap();
    let wide_sum = function == Sum && argument_type.is_integer() && random.chance(50);
    let usual = function.usual_type(&[argument_type]);
    let data_type = usual.map(|usual| match usual {
        _ if wide_sum => DataType::Decimal128(38, 0),
        DataType::Decimal128(_, scale) if function == Sum => DataType::Decimal128(38, scale),
        usual => usual,
    });
    let is_of_rows = data_type.is_none() || (function == Count && random.chance(40));
    let function = if is_of_rows { Count } else { function };
    Aggregate {
        name: format!("a{index}"),
        function,
        arguments: if is_of_rows { Vec::new() } else { vec![argument] },
        filter,
        data_type: data_type.unwrap_or(DataType::Int64),
    }
}

/// Returns an aggregate function with a state (sketch or moments) whose bits are defined. Sums of floats have no
/// defined bits, nor has the set of values kept as frequent.
fn state(random: &mut Random, schema: &Schema, index: usize) -> Aggregate {
    use StateFunction::{Moments, Sketch};
    let filter = random.chance(25).then(|| condition(random, schema, 1));
    let name = format!("a{index}");
    let mut arguments = Vec::new();
    for _ in 0..20 {
        let argument = any(random, schema);
        let data_type = argument.data_type(schema).unwrap();
        if !data_type.is_floating() && data_type != DataType::BinaryView {
            arguments.push(argument);
        }
    }
    let numeric = |e: &Expr| farpool_model::schema::is_numeric(&e.data_type(schema).unwrap());
    let function = if arguments.iter().any(numeric) && random.chance(50) {
        arguments.retain(numeric);
        arguments.truncate(1 + random.below(3));
        Moments(random.pick(&[NullHandling::Listwise, NullHandling::Pairwise]))
    } else if arguments.is_empty() {
        return Aggregate {
            name,
            function: AggregateFunction::Count,
            arguments,
            filter,
            data_type: DataType::Int64,
        };
    } else {
        arguments.truncate(1);
        let sketches = ["", "distinct=5", "distinct=4 frequency=2x4 second_moment=3x4"];
        Sketch(random.pick(&sketches).parse().unwrap())
    };
    Aggregate { name, function: function.into(), arguments, filter, data_type: DataType::BinaryView }
}

/// Returns a test of membership in a set of join keys like the column's values; as an IN list if they are too far
/// apart for a set.
fn key_set(random: &mut Random, value: Expr, data_type: &DataType) -> Expr {
    let keys: Vec<Literal> = (0..1 + random.below(40)).map(|_| literal(random, data_type, 0)).collect();
    let numbers = keys.iter().map(|key| key.as_int().and_then(|key| i64::try_from(key).ok()));
    match numbers.collect::<Option<Vec<i64>>>().and_then(|keys| KeySet::new(&keys)) {
        Some(set) => Expr::InSet(Box::new(value), set),
        None => Expr::InList(Box::new(value), keys),
    }
}

/// Returns a test of membership in a filter of join keys, like the values of one or several columns; `None` if a
/// chosen column has a type that join keys cannot have.
fn key_filter(random: &mut Random, schema: &Schema) -> Option<Expr> {
    let has_keys =
        |t: &DataType| farpool_model::schema::is_integer_like(t) || farpool_model::schema::is_bytes(t);
    let columns: Vec<usize> = (0..1 + random.below(3)).map(|_| random.below(schema.fields().len())).collect();
    let data_types = columns.iter().map(|c| Some(schema.field(*c).data_type().clone()).filter(has_keys));
    let data_types = data_types.collect::<Option<Vec<DataType>>>()?;
    let mut hash = || {
        let value = |data_type: &DataType| match literal(random, data_type, 0).value() {
            Value::Int(v) => keys::of_integer(*v),
            Value::Text(v) => keys::of_bytes(v.as_bytes()),
            Value::Bytes(v) => keys::of_bytes(v),
            other => unreachable!("{other:?} of a type with keys"),
        };
        data_types.iter().map(value).reduce(keys::and).unwrap()
    };
    let filter = KeyFilter::new((0..40).map(|_| hash()).collect(), 16)?;
    Some(Expr::InFilter(columns.into_iter().map(Expr::Column).collect(), filter))
}

/// Returns a random boolean expression whose result does not depend on undefined bits, such as the sign of a computed
/// NaN.
pub(crate) fn condition(random: &mut Random, schema: &Schema, depth: usize) -> Expr {
    if depth > 0 && random.chance(55) {
        let count = 1 + random.below(3);
        let mut parts = || (0..count).map(|_| condition(random, schema, depth - 1)).collect::<Vec<_>>();
        return match random_op(count, &mut parts) {
            Some(expr) => expr,
            None => Expr::not(condition(random, schema, depth - 1)),
        };
    }
    let column = random.below(schema.fields().len());
    let data_type = schema.field(column).data_type().clone();
    let value = Expr::Column(column);
    if random.chance(10)
        && let Some(expr) = key_filter(random, schema)
    {
        return expr;
    }
    match random.below(13) {
        12 if farpool_model::schema::is_integer_like(&data_type) => key_set(random, value, &data_type),
        0 => Expr::IsNull(Box::new(value)),
        1 | 2 => {
            let list = (0..1 + random.below(12)).map(|_| literal(random, &data_type, 4)).collect();
            Expr::InList(Box::new(value), list)
        }
        3 | 4 if data_type == DataType::Utf8View => Expr::Like {
            value: Box::new(value),
            pattern: random
                .pick(&[
                    "a%", "%b%", "", "%", "_b", "ab_ab%", "%\\%%", "%é%", "日%", "%1", "%a%b%", "a%1",
                    "%l%g%5", "%a%%b%c",
                ])
                .to_string(),
            case_insensitive: random.chance(30),
        },
        6 | 7 if data_type == DataType::Utf8View => Expr::Regex {
            value: Box::new(value),
            pattern: Pattern::new(random.pick(&REGEXES), random.chance(30)).expect("a pattern"),
        },
        5 => {
            // The sign of a computed NaN is not defined, and a comparison would depend on it.
            let depth = if data_type.is_floating() { 0 } else { 2 };
            let (left, right) = (
                expression(random, schema, &data_type, depth),
                expression(random, schema, &data_type, depth / 2),
            );
            Expr::compare(compare_op(random), left, right)
        }
        6 if data_type == DataType::Boolean => value,
        7 if random.chance(20) => Expr::Literal(literal(random, &DataType::Boolean, 30)),
        8 => Expr::compare(compare_op(random), Expr::Literal(literal(random, &data_type, 3)), value),
        _ => Expr::compare(compare_op(random), value, Expr::Literal(literal(random, &data_type, 3))),
    }
}

fn random_op(count: usize, parts: &mut dyn FnMut() -> Vec<Expr>) -> Option<Expr> {
    let parts = parts();
    match (count, parts.len() + parts.iter().map(Expr::bytes).sum::<usize>() / limits::EXPR_NODE_BYTES) {
        (1, n) if n % 2 == 0 => None,
        (_, n) if n % 3 == 0 => Some(Expr::Or(parts)),
        _ => Some(Expr::And(parts)),
    }
}

fn compare_op(random: &mut Random) -> CompareOp {
    use CompareOp::*;
    random.pick(&[Eq, NotEq, Lt, LtEq, Gt, GtEq])
}

fn literal(random: &mut Random, data_type: &DataType, null_percent: usize) -> Literal {
    let spread = random.pick(&[Spread::Few, Spread::Few, Spread::Many, Spread::Extreme]);
    let value = if random.chance(null_percent) { Value::Null } else { value(random, data_type, spread) };
    Literal::new(value, data_type.clone()).unwrap()
}

/// Returns a random expression of type `data_type`.
fn expression(random: &mut Random, schema: &Schema, data_type: &DataType, depth: usize) -> Expr {
    let leaf = |random: &mut Random| {
        let columns: Vec<usize> =
            (0..schema.fields().len()).filter(|c| schema.field(*c).data_type() == data_type).collect();
        if columns.is_empty() || random.chance(25) {
            Expr::Literal(literal(random, data_type, 5))
        } else {
            Expr::Column(random.pick(&columns))
        }
    };
    if depth == 0 {
        return leaf(random);
    }
    let arithmetic = data_type.is_integer() || data_type.is_floating();
    match random.below(8) {
        7 if *data_type == DataType::Int64 => {
            let parts: Vec<DatePart> = DatePart::all().collect();
            let part = random.pick(&parts);
            let is_time = part.is_of_time() || random.chance(60);
            let from =
                if is_time { DataType::Timestamp(TimeUnit::Microsecond, None) } else { DataType::Date32 };
            Expr::Extract(part, Box::new(expression(random, schema, &from, depth - 1)))
        }
        0..=2 if arithmetic => {
            use ArithmeticOp::*;
            let op = random.pick(&[Add, Add, Subtract, Subtract, Multiply, Multiply, Divide, Modulo]);
            let left = expression(random, schema, data_type, depth - 1);
            Expr::arithmetic(op, left, expression(random, schema, data_type, depth - 1))
        }
        0..=2 if matches!(data_type, DataType::Decimal128(..)) => decimal(random, schema, data_type, depth),
        3 if data_type.is_signed_integer() || data_type.is_floating() => {
            Expr::Negate(Box::new(expression(random, schema, data_type, depth - 1)))
        }
        4 => {
            let branches = (0..1 + random.below(2))
                .map(|_| {
                    let when = condition(random, schema, 0);
                    (when, expression(random, schema, data_type, depth - 1))
                })
                .collect();
            let otherwise =
                random.chance(60).then(|| Box::new(expression(random, schema, data_type, depth - 1)));
            Expr::Case { branches, otherwise }
        }
        5 if data_type.is_integer() => {
            let from = random.pick(&[DataType::Int8, DataType::Int32, DataType::Int64, DataType::UInt16]);
            Expr::Cast(Box::new(expression(random, schema, &from, depth - 1)), data_type.clone())
        }
        _ => leaf(random),
    }
}

/// Returns a random sum or product of decimals, cast back to `data_type`.
fn decimal(random: &mut Random, schema: &Schema, data_type: &DataType, depth: usize) -> Expr {
    let other = random.pick(&[DataType::Decimal128(15, 2), DataType::Decimal128(12, 4), data_type.clone()]);
    let left = expression(random, schema, data_type, depth - 1);
    let right = expression(random, schema, &other, depth - 1);
    let op = random.pick(&[ArithmeticOp::Add, ArithmeticOp::Subtract, ArithmeticOp::Multiply]);
    let sum = Expr::arithmetic(op, left, right);
    if sum.data_type(schema).is_ok_and(|t| t == *data_type) {
        return sum;
    }
    Expr::Cast(Box::new(sum), data_type.clone())
}
