//! Builds the comparisons of a condition (such as `age > 30` in `FP.SCAN`): of columns, or of bytes of an entry's
//! value, with constants, which are converted to the type of the column or number.
//!
//! If the type of a column cannot represent a constant, the nearest value that it can represent is used with an
//! equivalent comparison: `age < 4.5` becomes `age <= 4`. If the constant is out of the type's range, or is compared
//! for equality and lies between two values of the type, the comparison is true for every value or for none, and
//! unknown for NULL.

use super::bytes::{ByteCondition, NumberType};
use super::constant::{self, ScaledNumber};
use super::{ParseError, Parsed, Predicate};
use arrow_schema::{DataType, Schema};
use farpool_model::literal::integer_range;
use farpool_model::schema::is_integer_like;
use farpool_model::{CompareOp, Expr, Literal, Value, brief, sql_name};
use std::ops::Range;

/// Maximum number of column names that an error message lists.
const NAMES_SHOWN: usize = 8;

/// An operand of a comparison: a column, bytes of the value, or a constant.
pub(super) enum Operand {
    Column(usize),
    Number(NumberType, usize),
    Slice(Range<usize>),
    Constant(Constant),
}

/// A constant in the text of a condition, not converted to a type yet.
pub(super) enum Constant {
    Null,
    Bool(bool),
    Number { text: String, is_negative: bool },
    Text(String),
    Hex(Vec<u8>),
}

/// A constant and its byte offset in the text.
pub(super) type PositionedConstant = (Constant, usize);

/// The columns of the space that a condition is about.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    pub schema: &'a Schema,
    /// Whether the space has no schema.
    pub is_plain: bool,
}

impl<'a> Columns<'a> {
    /// Fails if the space has a schema, because conditions on bytes at offsets are not allowed then.
    pub fn allow_offsets(&self, at: usize) -> Parsed<()> {
        if self.is_plain {
            return Ok(());
        }
        let message = "conditions on offsets are for spaces without a schema, and this one has a schema";
        Err(ParseError::new(at, message).hint(self.names()))
    }

    /// Returns the type of a column.
    pub fn data_type(&self, column: usize) -> &'a DataType {
        self.schema.field(column).data_type()
    }

    /// Returns the index of the column with exactly this name or, unless the name is quoted, of the only column whose
    /// name differs in case alone; fails if there is none.
    pub fn column(&self, name: &str, is_quoted: bool, at: usize) -> Parsed<usize> {
        let fields = self.schema.fields();
        if let Some(exact) = fields.iter().position(|field| field.name() == name) {
            return Ok(exact);
        }
        let mut similar =
            fields.iter().enumerate().filter(|(_, field)| field.name().eq_ignore_ascii_case(name));
        match (similar.next(), similar.next()) {
            (Some((column, _)), None) if !is_quoted => Ok(column),
            (Some(_), Some(_)) if !is_quoted => {
                Err(ParseError::new(at, format!("several columns are named {}", brief(name)))
                    .hint("write the name of one in double quotes, as it is"))
            }
            _ => Err(ParseError::new(at, format!("there is no column {}", brief(name))).hint(self.names())),
        }
    }

    /// Returns a hint for error messages: the names of the columns.
    pub fn names(&self) -> String {
        let fields = self.schema.fields();
        let names = fields.iter().take(NAMES_SHOWN).map(|field| farpool_model::quoted(field.name()));
        let more = if fields.len() > NAMES_SHOWN { ", …" } else { "" };
        format!("the columns are {}{more}", names.collect::<Vec<_>>().join(", "))
    }

    /// Converts a constant of an IN list to the type of a column; returns `None` if no value of the column can equal
    /// it.
    pub fn listed_literal(&self, column: usize, constant: Constant, at: usize) -> Parsed<Option<Literal>> {
        let data_type = self.data_type(column);
        if matches!(constant, Constant::Null) {
            return literal(Value::Null, data_type, at).map(Some);
        }
        if is_integer_like(data_type) {
            let units = self.units(column, &constant, at)?;
            let (min, max) = integer_range(data_type).unwrap_or((0, 0));
            let is_value = units.is_exact && (min..=max).contains(&units.floor);
            return is_value.then(|| literal(Value::Int(units.floor), data_type, at)).transpose();
        }
        self.literal(column, constant, at).map(Some)
    }

    /// Returns the comparison of two columns; fails if their types differ.
    pub fn compare_columns(&self, left: usize, op: CompareOp, right: usize, at: usize) -> Parsed<Predicate> {
        let (left_type, right_type) = (self.data_type(left), self.data_type(right));
        if left_type != right_type {
            let message = format!("a {} is compared with a {}", sql_name(left_type), sql_name(right_type));
            return Err(ParseError::new(at, message).hint("both columns must have the same type"));
        }
        Ok(Predicate::Columns(Expr::compare(op, Expr::Column(left), Expr::Column(right))))
    }

    /// Returns the comparison of an operand (a column or bytes of the value) with a constant.
    pub fn compare(
        &self,
        left: &Operand,
        op: CompareOp,
        (constant, at): PositionedConstant,
    ) -> Parsed<Predicate> {
        if matches!(constant, Constant::Null) {
            return Err(ParseError::new(at, "nothing is equal to null, or less, or greater")
                .hint("write is null, or is not null"));
        }
        Ok(match left {
            Operand::Column(column) => Predicate::Columns(self.compare_column(*column, op, constant, at)?),
            Operand::Number(number_type, offset) => {
                let Constant::Number { text, is_negative } = constant else {
                    return Err(ParseError::new(at, "a number at an offset is compared with what is none"));
                };
                Predicate::Bytes(if number_type.is_float() {
                    let number = float(&text, is_negative, *number_type == NumberType::F32, at)?;
                    ByteCondition::float(*number_type, *offset, op, number)
                } else {
                    ByteCondition::integer(*number_type, *offset, op, number(&text, is_negative, 0, at)?)
                })
            }
            Operand::Slice(range) => Predicate::Bytes(compare_slice(range, op, constant, at)?),
            Operand::Constant(_) => {
                return Err(ParseError::new(at, "two constants are compared").hint(self.names()));
            }
        })
    }

    fn compare_column(&self, column: usize, op: CompareOp, constant: Constant, at: usize) -> Parsed<Expr> {
        let data_type = self.data_type(column);
        if !is_integer_like(data_type) {
            let literal = self.literal(column, constant, at)?;
            return Ok(Expr::compare(op, Expr::Column(column), Expr::Literal(literal)));
        }
        let ScaledNumber { floor, is_exact } = self.units(column, &constant, at)?;
        let (min, max) = integer_range(data_type).unwrap_or((0, 0));
        let is_less = matches!(op, CompareOp::Lt | CompareOp::LtEq);
        let is_greater = matches!(op, CompareOp::Gt | CompareOp::GtEq);
        let op = match op {
            CompareOp::Lt if !is_exact => CompareOp::LtEq,
            CompareOp::GtEq if !is_exact => CompareOp::Gt,
            CompareOp::Eq | CompareOp::NotEq if !is_exact => {
                return self.always(column, op == CompareOp::NotEq, at);
            }
            op => op,
        };
        if floor < min {
            return self.always(column, is_greater || op == CompareOp::NotEq, at);
        }
        if floor > max {
            return self.always(column, is_less || op == CompareOp::NotEq, at);
        }
        let literal = literal(Value::Int(floor), data_type, at)?;
        Ok(Expr::compare(op, Expr::Column(column), Expr::Literal(literal)))
    }

    /// Returns a comparison that is true for every value of a column, or for none, and unknown for NULL.
    pub fn always(&self, column: usize, truth: bool, at: usize) -> Parsed<Expr> {
        let data_type = self.data_type(column);
        let (min, _) = integer_range(data_type).unwrap_or((0, 0));
        let least = literal(Value::Int(min), data_type, at)?;
        let op = if truth { CompareOp::GtEq } else { CompareOp::Lt };
        Ok(Expr::compare(op, Expr::Column(column), Expr::Literal(least)))
    }

    /// Converts a constant to the unit of a column whose values are stored as integers, as decimals and dates are.
    fn units(&self, column: usize, constant: &Constant, at: usize) -> Parsed<ScaledNumber> {
        let data_type = self.data_type(column);
        match (data_type, constant) {
            (DataType::Date32 | DataType::Timestamp(..), Constant::Text(text)) => {
                constant::moment(text, data_type).ok_or_else(|| {
                    let message = format!("'{}' is no {}", brief(text), sql_name(data_type));
                    ParseError::new(at, message).hint(match data_type {
                        DataType::Date32 => "such as '1998-09-02'",
                        DataType::Timestamp(_, Some(_)) => "such as '1998-09-02 23:59:59.25+02:00'",
                        _ => "such as '1998-09-02 23:59:59.25'",
                    })
                })
            }
            (DataType::Date32 | DataType::Timestamp(..), _) => Err(self.mismatch(column, at)),
            (DataType::Decimal128(_, scale), Constant::Number { text, is_negative }) => {
                number(text, *is_negative, *scale, at)
            }
            (_, Constant::Number { text, is_negative }) => number(text, *is_negative, 0, at),
            _ => Err(self.mismatch(column, at)),
        }
    }

    /// Converts a constant to a value of a column that is not stored as an integer.
    fn literal(&self, column: usize, constant: Constant, at: usize) -> Parsed<Literal> {
        let data_type = self.data_type(column);
        let value = match (data_type, constant) {
            (DataType::Boolean, Constant::Bool(truth)) => Value::Bool(truth),
            (DataType::Utf8View, Constant::Text(text)) => Value::Text(text),
            (DataType::BinaryView, Constant::Text(text)) => Value::Bytes(text.into_bytes()),
            (DataType::BinaryView, Constant::Hex(bytes)) => Value::Bytes(bytes),
            (DataType::Float32 | DataType::Float64, Constant::Number { text, is_negative }) => {
                Value::Float(float(&text, is_negative, *data_type == DataType::Float32, at)?)
            }
            _ => return Err(self.mismatch(column, at)),
        };
        literal(value, data_type, at)
    }

    fn mismatch(&self, column: usize, at: usize) -> ParseError {
        let field = self.schema.field(column);
        let (name, data_type) = (brief(field.name()), field.data_type());
        let hint = match data_type {
            DataType::Boolean => "write true or false",
            DataType::Utf8View => "write a string in single quotes",
            DataType::BinaryView => "write bytes as x'00ff', or a string in single quotes",
            DataType::Date32 => "write a date in single quotes, such as '1998-09-02'",
            DataType::Timestamp(..) => "write a moment in single quotes, such as '1998-09-02 23:59:59'",
            _ => "write a number, without quotes",
        };
        let message =
            format!("column {name} is a {}, and is compared with what is none", sql_name(data_type));
        ParseError::new(at, message).hint(hint)
    }
}

pub(super) fn literal(value: Value, data_type: &DataType, at: usize) -> Parsed<Literal> {
    Literal::new(value, data_type.clone()).map_err(|error| ParseError::new(at, error.message))
}

fn number(text: &str, is_negative: bool, scale: i8, at: usize) -> Parsed<ScaledNumber> {
    let too_long = || ParseError::new(at, "a number of more than 38 digits");
    constant::units(text, is_negative, scale).ok_or_else(too_long)
}

fn float(text: &str, is_negative: bool, is_single: bool, at: usize) -> Parsed<f64> {
    let read = if is_single { text.parse::<f32>().ok().map(f64::from) } else { text.parse().ok() };
    let name = sql_name(if is_single { &DataType::Float32 } else { &DataType::Float64 });
    let finite = read.filter(|number: &f64| number.is_finite());
    let number =
        finite.ok_or_else(|| ParseError::new(at, format!("{} does not fit a {name}", brief(text))))?;
    Ok(if is_negative { -number } else { number })
}

fn compare_slice(
    range: &Range<usize>,
    op: CompareOp,
    constant: Constant,
    at: usize,
) -> Parsed<ByteCondition> {
    let bytes = match constant {
        Constant::Text(text) => text.into_bytes(),
        Constant::Hex(bytes) => bytes,
        Constant::Null | Constant::Bool(_) | Constant::Number { .. } => {
            return Err(ParseError::new(at, "bytes are compared with what are none")
                .hint("write a string in single quotes, or x'00ff'"));
        }
    };
    let must_be_as_long = matches!(op, CompareOp::Eq | CompareOp::NotEq);
    if must_be_as_long && bytes.len() != range.len() {
        let message = format!("{} bytes are compared with {}", range.len(), bytes.len());
        let hint = format!("bytes[{}:{}] are as many", range.start, range.start + bytes.len());
        return Err(ParseError::new(at, message).hint(hint));
    }
    Ok(ByteCondition::slice(range.clone(), op, &bytes))
}
