//! Aggregates, and a single description of each aggregate function: its argument and result types, how rows
//! become its result, and its names.
//!
//! To add a function, add a variant to [`AggregateFunction`], an arm to [`AggregateFunction::description`], an entry
//! in [`AggregateFunction::NAMED`], and a line each in the tables of `docs/wire.md` and the naive twin of the tests.
//! The rest follows from [`Accumulation`]: the loops that fold rows, the memory of a group, the columns in which
//! partial groups leave a node, and the aggregate with which an engine merges them.

use crate::program::require_boolean;
use crate::{Error, Expr, NullHandling, Result, SketchParameters, limits, schema};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Field, Schema};
use std::fmt;

/// An aggregate: a function with arguments, and the name of the result column.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The result column's name.
    pub name: String,
    /// The aggregate function.
    pub function: AggregateFunction,
    /// The arguments; none for `COUNT(*)`.
    pub arguments: Vec<Expr>,
    /// A boolean expression, `FILTER (WHERE …)`: only rows for which it is true are aggregated.
    pub filter: Option<Expr>,
    /// The type of the result; must be one that [`AggregateFunction::accepts`].
    pub data_type: DataType,
}

/// An aggregate function. All ignore NULL arguments. If no non-NULL argument is left, functions that return a
/// value give NULL, except COUNT, which gives 0; functions that return a state never give NULL. A state is
/// exact: it depends only on the whole input, not on how the input was divided. Results read from a state may
/// be estimates, with bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggregateFunction {
    /// The number of rows, or of non-NULL arguments; 64-bit, signed.
    Count,
    /// The sum. Integers are summed exactly and must fit the result type at the end, or the program fails; so are
    /// decimals, whose scale is kept. Floats are summed in no defined order.
    Sum,
    /// The minimum (in the order of [`crate::Literal::compare`], except that NaN is the maximum whatever its sign).
    Min,
    /// The maximum, in the order of [`AggregateFunction::Min`].
    Max,
    /// The mean. For integers the exact sum divided as floats; for decimals the exact sum divided in the result type
    /// and rounded half away from zero; for floats the sum divided by the count.
    Avg,
    /// Bitwise AND of integers.
    BitAnd,
    /// Bitwise OR of integers.
    BitOr,
    /// Bitwise XOR of integers.
    BitXor,
    /// Whether all booleans are true.
    BoolAnd,
    /// Whether some boolean is true.
    BoolOr,
    /// One of the values, not always the same one.
    AnyValue,
    /// The encoded state of a statistic, such as a sketch.
    State(StateFunction),
}

/// A function whose result is the encoded state of a statistic, in the format that `docs/wire.md` specifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateFunction {
    /// Sketches of one argument, which may have any type.
    Sketch(SketchParameters),
    /// The joint moments of one or more numeric arguments.
    Moments(NullHandling),
}

/// The properties of an aggregate function.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The function's name in SQL and in Substrait.
    pub name: &'static str,
    /// Other names for the function that a plan may use.
    pub aliases: &'static [&'static str],
    /// The Substrait extension that defines the function.
    pub extension: Extension,
    /// Accumulator from which the function's result is computed.
    pub accumulation: Accumulation,
    types: Types,
}

/// A Substrait extension that defines aggregate functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// `functions_aggregate_generic`.
    Generic,
    /// `functions_arithmetic`.
    Arithmetic,
    /// `functions_boolean`.
    Boolean,
    /// Farpool's own extension, for functions that Substrait does not define.
    Farpool,
}

/// Accumulator of an aggregate function: the value that is kept per group while rows arrive. The accumulators of two
/// subsets of a group's rows merge into that of the whole, and the result does not depend on how the rows were divided.
/// Example: a mean is kept as a sum and a count, because the mean of two means is wrong if their subsets differ in
/// size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulation {
    /// The number of rows, or of non-NULL values.
    Count,
    /// The sum of the values, in a wider type than that of the values.
    Sum,
    /// The sum and the number of the values; the mean is computed from both at the end.
    Mean,
    /// One value of the values' own type, into which each value is folded.
    Fold(Fold),
    /// The state of a statistic.
    State(StateFunction),
}

/// An associative and commutative function that combines two values of one type into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Picks one of two values of any type.
    Pick(Pick),
    /// Combines two integers bit by bit.
    Bits(BitOp),
}

/// Choice between two values in a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The lesser.
    Least,
    /// The greater.
    Greatest,
    /// Either of the two, whichever costs less to keep.
    Any,
}

/// A bitwise operation on two integers; each variant says when a bit of the result is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOp {
    /// Set if both bits are set.
    And,
    /// Set if at least one of the bits is set.
    Or,
    /// Set if exactly one of the bits is set.
    Xor,
}

/// The argument and result types of a function. The comment of each variant names the arguments, then the result.
#[derive(Clone, Copy, Debug)]
enum Types {
    /// No argument or one of any type; a 64-bit integer.
    Count,
    /// A number; a wider number of the same kind.
    Sum,
    /// A number; a float, or a decimal.
    Mean,
    /// A value whose type satisfies the predicate; a value of the same type.
    Same(fn(&DataType) -> bool),
    /// A value of any type; an encoded state.
    Sketch,
    /// One or more numbers; an encoded state.
    Moments,
}

impl AggregateFunction {
    /// Every function, once. Functions that return states have default parameters here; in a plan the parameters are
    /// options of the function.
    pub const NAMED: &[AggregateFunction] = &[
        AggregateFunction::Count,
        AggregateFunction::Sum,
        AggregateFunction::Min,
        AggregateFunction::Max,
        AggregateFunction::Avg,
        AggregateFunction::BitAnd,
        AggregateFunction::BitOr,
        AggregateFunction::BitXor,
        AggregateFunction::BoolAnd,
        AggregateFunction::BoolOr,
        AggregateFunction::AnyValue,
        AggregateFunction::State(StateFunction::Sketch(SketchParameters::NONE)),
        AggregateFunction::State(StateFunction::Moments(NullHandling::Pairwise)),
    ];

    /// Returns the function's description.
    pub fn description(self) -> Description {
        let described = |name, extension, accumulation, types| Description {
            name,
            aliases: &[],
            extension,
            accumulation,
            types,
        };
        let pick = |pick| Accumulation::Fold(Fold::Pick(pick));
        let bits = |name, op| {
            let types = Types::Same(DataType::is_integer);
            described(name, Extension::Farpool, Accumulation::Fold(Fold::Bits(op)), types)
        };
        // `BoolAnd` is the minimum: false is less than true, so all are true if the least is.
        let booleans = |name, of| described(name, Extension::Boolean, pick(of), Types::Same(is_boolean));
        let arithmetic = |name, of, types| described(name, Extension::Arithmetic, of, types);
        let state = |name, of, types| described(name, Extension::Farpool, Accumulation::State(of), types);
        match self {
            AggregateFunction::Count => Description {
                // An alias since DuckDB uses this name for COUNT without an argument.
                aliases: &["count_star"],
                ..described("count", Extension::Generic, Accumulation::Count, Types::Count)
            },
            AggregateFunction::Sum => arithmetic("sum", Accumulation::Sum, Types::Sum),
            AggregateFunction::Min => arithmetic("min", pick(Pick::Least), Types::Same(is_any)),
            AggregateFunction::Max => arithmetic("max", pick(Pick::Greatest), Types::Same(is_any)),
            AggregateFunction::Avg => arithmetic("avg", Accumulation::Mean, Types::Mean),
            AggregateFunction::BitAnd => bits("bit_and", BitOp::And),
            AggregateFunction::BitOr => bits("bit_or", BitOp::Or),
            AggregateFunction::BitXor => bits("bit_xor", BitOp::Xor),
            AggregateFunction::BoolAnd => booleans("bool_and", Pick::Least),
            AggregateFunction::BoolOr => booleans("bool_or", Pick::Greatest),
            AggregateFunction::AnyValue => {
                described("any_value", Extension::Generic, pick(Pick::Any), Types::Same(is_any))
            }
            AggregateFunction::State(of @ StateFunction::Sketch(_)) => state("sketch", of, Types::Sketch),
            AggregateFunction::State(of @ StateFunction::Moments(_)) => state("moments", of, Types::Moments),
        }
    }

    /// Returns the function with this name or alias; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        let is_it = |function: &&Self| {
            let Description { name: own, aliases, .. } = function.description();
            own == name || aliases.contains(&name)
        };
        Self::NAMED.iter().find(is_it).copied()
    }

    /// Returns the function's name as written in SQL.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    /// Returns the accumulator of the function.
    pub fn accumulation(self) -> Accumulation {
        self.description().accumulation
    }

    /// Returns whether the result is the encoded state of a statistic.
    pub fn is_state(self) -> bool {
        matches!(self.accumulation(), Accumulation::State(_))
    }

    /// Returns whether duplicates do not change the result, as for MIN, so that DISTINCT can be dropped.
    pub fn ignores_duplicates(self) -> bool {
        match self.accumulation() {
            Accumulation::Fold(Fold::Pick(_) | Fold::Bits(BitOp::And | BitOp::Or)) => true,
            Accumulation::Fold(Fold::Bits(BitOp::Xor)) => false,
            Accumulation::Count | Accumulation::Sum | Accumulation::Mean | Accumulation::State(_) => false,
        }
    }

    /// Returns whether the function accepts this number of arguments.
    pub fn takes(self, arguments: usize) -> bool {
        match self.description().types {
            Types::Count => arguments <= 1,
            Types::Moments => arguments >= 1,
            Types::Sum | Types::Mean | Types::Same(_) | Types::Sketch => arguments == 1,
        }
    }

    /// Returns whether the function can return `result` for arguments of these types (none for `COUNT(*)`).
    pub fn accepts(self, arguments: &[DataType], result: &DataType) -> bool {
        let types = self.description().types;
        self.takes(arguments.len())
            && match (types, arguments.first()) {
                (Types::Count, _) => *result == DataType::Int64,
                (Types::Sketch, _) => *result == DataType::BinaryView,
                (Types::Moments, _) => {
                    arguments.iter().all(schema::is_numeric) && *result == DataType::BinaryView
                }
                (Types::Same(is_taken), Some(argument)) => is_taken(argument) && argument == result,
                (Types::Sum, Some(argument)) => is_sum(argument, result),
                (Types::Mean, Some(argument)) => is_mean(argument, result),
                (Types::Sum | Types::Mean | Types::Same(_), None) => false,
            }
    }

    /// Returns the default result type for these argument types, which is that of query engines. `None` if the function
    /// does not accept the arguments.
    pub fn usual_type(self, arguments: &[DataType]) -> Option<DataType> {
        let argument = arguments.first();
        let data_type = match self.description().types {
            Types::Count => DataType::Int64,
            Types::Sketch | Types::Moments => DataType::BinaryView,
            Types::Same(_) => argument?.clone(),
            Types::Sum => usual_sum(argument?),
            Types::Mean => usual_mean(argument?)?,
        };
        self.accepts(arguments, &data_type).then_some(data_type)
    }
}

impl Aggregate {
    /// Returns the expressions that the aggregate reads: its arguments and its filter.
    pub fn inputs(&self) -> impl Iterator<Item = &Expr> {
        self.arguments.iter().chain(&self.filter)
    }

    /// Formats the aggregate as SQL, over a table with `table_schema`.
    pub fn display<'a>(&'a self, table_schema: &'a Schema) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            write!(f, "{}(", self.function.name())?;
            for (place, argument) in self.arguments.iter().enumerate() {
                write!(f, "{}{}", if place > 0 { ", " } else { "" }, argument.display(table_schema))?;
            }
            match self.function.accumulation() {
                Accumulation::State(StateFunction::Sketch(parameters)) => write!(f, ", '{parameters}')")?,
                Accumulation::State(StateFunction::Moments(NullHandling::Listwise)) => {
                    f.write_str(", 'listwise')")?;
                }
                Accumulation::Count if self.arguments.is_empty() => f.write_str("*)")?,
                Accumulation::Count
                | Accumulation::Sum
                | Accumulation::Mean
                | Accumulation::Fold(_)
                | Accumulation::State(StateFunction::Moments(NullHandling::Pairwise)) => f.write_str(")")?,
            }
            match &self.filter {
                Some(filter) => write!(f, " FILTER (WHERE {})", filter.display(table_schema)),
                None => Ok(()),
            }
        })
    }

    /// Returns the field of the result column that the aggregate computes over a table with `table_schema`.
    ///
    /// # Errors
    /// `Invalid` or `OverLimit` if an argument or the filter is not well typed, or if the function cannot
    /// return the aggregate's result type.
    pub fn field(&self, table_schema: &Schema) -> Result<Field> {
        let arguments = self.arguments.iter().map(|e| e.data_type(table_schema));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        if let Some(filter) = &self.filter {
            require_boolean("aggregate's filter", filter, table_schema)?;
        }
        let canonical = schema::canonical_type(&self.data_type).as_ref() == Some(&self.data_type);
        if !canonical || !self.function.accepts(&arguments, &self.data_type) {
            let shown: Vec<String> = arguments.iter().map(DataType::to_string).collect();
            let shown = if shown.is_empty() { "*".to_string() } else { shown.join(", ") };
            return Err(Error::invalid(format!(
                "{}({shown}) cannot give {}",
                self.function.name(),
                self.data_type
            )));
        }
        if let Accumulation::State(state) = self.function.accumulation() {
            state.check(self.arguments.len())?;
        }
        let is_nullable = self.function.accumulation() != Accumulation::Count;
        Ok(Field::new(&self.name, self.data_type.clone(), is_nullable))
    }
}

impl StateFunction {
    /// Checks the parameters, or the number of argument columns, against the limits.
    fn check(self, arguments: usize) -> Result<()> {
        match self {
            StateFunction::Sketch(parameters) => parameters.check(),
            StateFunction::Moments(_) if arguments > limits::MOMENT_COLUMNS_MAX => {
                Err(Error::over_limit(format!(
                    "moments may be of {} columns together, these are of {arguments}",
                    limits::MOMENT_COLUMNS_MAX,
                ))
                .advise("ask for them in several blocks of columns"))
            }
            StateFunction::Moments(_) => Ok(()),
        }
    }
}

impl From<StateFunction> for AggregateFunction {
    fn from(state: StateFunction) -> Self {
        AggregateFunction::State(state)
    }
}

fn is_any(_: &DataType) -> bool {
    true
}

fn is_boolean(data_type: &DataType) -> bool {
    *data_type == DataType::Boolean
}

fn is_sum(argument: &DataType, result: &DataType) -> bool {
    use DataType::{Decimal128, Float32, Float64, Int64, UInt64};
    match argument {
        t if t.is_signed_integer() => *result == Int64 || matches!(result, Decimal128(_, 0)),
        t if t.is_unsigned_integer() => *result == UInt64 || matches!(result, Decimal128(_, 0)),
        Float32 | Float64 => *result == Float64,
        Decimal128(_, scale) => matches!(result, Decimal128(_, given) if given == scale),
        _ => false,
    }
}

fn is_mean(argument: &DataType, result: &DataType) -> bool {
    use DataType::{Decimal128, Float32, Float64};
    match argument {
        t if t.is_integer() => *result == Float64,
        Float32 | Float64 => *result == Float64,
        Decimal128(_, scale) => matches!(result, Decimal128(_, given) if given >= scale),
        _ => false,
    }
}

fn usual_sum(argument: &DataType) -> DataType {
    match argument {
        DataType::Decimal128(precision, scale) => {
            DataType::Decimal128(precision.saturating_add(10).min(DECIMAL128_MAX_PRECISION), *scale)
        }
        t if t.is_signed_integer() => DataType::Int64,
        t if t.is_unsigned_integer() => DataType::UInt64,
        _ => DataType::Float64,
    }
}

fn usual_mean(argument: &DataType) -> Option<DataType> {
    let DataType::Decimal128(precision, scale) = argument else { return Some(DataType::Float64) };
    let precision = precision.saturating_add(4).min(DECIMAL128_MAX_PRECISION);
    let scale = scale.saturating_add(4).min(DECIMAL128_MAX_SCALE);
    schema::decimal(i16::from(precision), i16::from(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a distinct number for each function. If a function is added, this match no longer compiles, and then
    /// the test below fails until the function is in `NAMED`.
    const fn number(function: AggregateFunction) -> usize {
        match function {
            AggregateFunction::Count => 0,
            AggregateFunction::Sum => 1,
            AggregateFunction::Min => 2,
            AggregateFunction::Max => 3,
            AggregateFunction::Avg => 4,
            AggregateFunction::BitAnd => 5,
            AggregateFunction::BitOr => 6,
            AggregateFunction::BitXor => 7,
            AggregateFunction::BoolAnd => 8,
            AggregateFunction::BoolOr => 9,
            AggregateFunction::AnyValue => 10,
            AggregateFunction::State(StateFunction::Sketch(_)) => 11,
            AggregateFunction::State(StateFunction::Moments(_)) => 12,
        }
    }

    #[test]
    fn every_function_has_a_name_of_its_own() {
        let numbers: Vec<usize> = AggregateFunction::NAMED.iter().map(|f| number(*f)).collect();
        assert_eq!(numbers, (0..13).collect::<Vec<_>>());
        for function in AggregateFunction::NAMED {
            assert_eq!(AggregateFunction::named(function.name()), Some(*function));
        }
        assert_eq!(AggregateFunction::named("count_star"), Some(AggregateFunction::Count));
        assert_eq!(AggregateFunction::named("median_of_medians"), None);
    }

    #[test]
    fn what_a_function_gives_unasked_is_something_that_it_accepts() {
        let decimal = DataType::Decimal128(38, 37);
        for data_type in [DataType::Int8, DataType::UInt64, DataType::Boolean, DataType::Utf8View, decimal] {
            for function in AggregateFunction::NAMED {
                let usual = function.usual_type(std::slice::from_ref(&data_type));
                let is_accepted =
                    |usual: &DataType| function.accepts(std::slice::from_ref(&data_type), usual);
                assert!(usual.as_ref().is_none_or(is_accepted), "{} of {data_type}", function.name());
            }
        }
        let of = |function: AggregateFunction, data_type| function.usual_type(&[data_type]);
        assert_eq!(of(AggregateFunction::BitOr, DataType::UInt8), Some(DataType::UInt8));
        assert_eq!(of(AggregateFunction::BitOr, DataType::Float64), None);
        assert_eq!(of(AggregateFunction::BoolAnd, DataType::Int8), None);
        assert_eq!(of(AggregateFunction::AnyValue, DataType::Utf8View), Some(DataType::Utf8View));
    }
}
