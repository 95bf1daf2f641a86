//! Static analysis of expressions: the type of the values, the range of integers, and whether evaluation may fail on
//! some row.
//!
//! All decisions that depend on these facts use this module, so that three things agree: a node's planning answer, the
//! order in which its operators evaluate, and what an engine expects. The analysis is one pass from the leaves up, in
//! time linear in the size of the expression.
//!
//! Invariant: if `may_fail` is false, then evaluation fails on no row, provided that every column stays within its
//! bounds or, where these are not known, within the range of its type (for a decimal: its precision). A value whose
//! evaluation does not fail stays within the range of its type.

mod ranges;

use crate::{
    ArithmeticOp, ColumnStatistics, DatePart, Error, Expr, Result, TableInfo, brief, limits, schema,
};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Schema, SchemaRef};
use ranges::Range;

/// The columns that expressions refer to: their types and statistics.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    schema: &'a Schema,
    statistics: &'a [ColumnStatistics],
}

impl<'a> Columns<'a> {
    /// Creates the columns of a canonical `schema`. `statistics` has one entry per column, computed over all rows, or
    /// is empty.
    pub fn new(schema: &'a Schema, statistics: &'a [ColumnStatistics]) -> Self {
        Columns { schema, statistics }
    }

    /// Returns the schema of the columns.
    pub fn schema(self) -> &'a Schema {
        self.schema
    }

    /// Returns the minimum and maximum of a column whose values are stored as integers of at most 64 bits; `None` if
    /// they are not known.
    pub fn integer_bounds(self, column: usize) -> Option<(i64, i64)> {
        let (min, max) = self.bounds(column)?;
        Some((i64::try_from(min).ok()?, i64::try_from(max).ok()?))
    }

    /// Returns the minimum and maximum of a column whose values are stored as integers; `None` if they are not known.
    fn bounds(self, column: usize) -> Option<Range> {
        let known = self.statistics.get(column)?;
        Some((known.min.as_ref()?.as_int()?, known.max.as_ref()?.as_int()?))
    }
}

/// Creates columns without statistics.
impl<'a> From<&'a Schema> for Columns<'a> {
    fn from(schema: &'a Schema) -> Self {
        Columns { schema, statistics: &[] }
    }
}

impl<'a> From<&'a SchemaRef> for Columns<'a> {
    fn from(schema: &'a SchemaRef) -> Self {
        Columns::from(&**schema)
    }
}

/// Static facts about the values of one expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The canonical type of the values.
    pub data_type: DataType,
    /// The minimum and maximum of the values that are not NULL, for types whose values are stored as integers; `None`
    /// if they are not known.
    pub range: Option<(i128, i128)>,
    /// Whether evaluation may fail on some row: a division by zero, a cast that does not fit, or an arithmetic result
    /// that does not fit its type. Such an expression must not run on rows that an earlier condition removes, because
    /// it could fail on a row that the query excludes.
    pub may_fail: bool,
}

impl Facts {
    /// Computes the facts of `expr` over `columns`.
    ///
    /// # Errors
    /// `Invalid` if a column does not exist, if operand types do not match, or if the expression is [`Expr::Opaque`];
    /// `OverLimit` if it is nested too deeply or a list is too long.
    pub fn of<'a>(expr: &Expr, columns: impl Into<Columns<'a>>) -> Result<Facts> {
        at(expr, columns.into(), 0)
    }

    /// Computes the facts of `expr` over the rows of `table`, whose values are within the column statistics.
    ///
    /// # Errors
    /// As [`Facts::of`].
    pub fn within(expr: &Expr, table: &TableInfo) -> Result<Facts> {
        Facts::of(expr, Columns::new(&table.schema, &table.columns))
    }

    /// Computes the facts of `expr` from the facts of its [`Expr::children`], in their order, without visiting them
    /// again.
    ///
    /// # Errors
    /// As [`Facts::of`].
    pub fn of_node<'a>(expr: &Expr, columns: impl Into<Columns<'a>>, children: &[&Facts]) -> Result<Facts> {
        let columns = columns.into();
        let data_type = type_of(expr, columns.schema, children)?;
        let may_fail =
            children.iter().any(|child| child.may_fail) || ranges::node_may_fail(expr, &data_type, children);
        let known = expr.as_column().and_then(|column| columns.bounds(column));
        let range = known.or_else(|| ranges::range_of(expr, &data_type, children));
        Ok(Facts { data_type, range, may_fail })
    }

    /// Returns whether the root of `expr` may fail on values for which its [`Expr::children`] do not fail.
    ///
    /// # Errors
    /// As [`Facts::of`].
    pub fn node_may_fail<'a>(
        expr: &Expr,
        columns: impl Into<Columns<'a>>,
        children: &[&Facts],
    ) -> Result<bool> {
        let data_type = type_of(expr, columns.into().schema, children)?;
        Ok(ranges::node_may_fail(expr, &data_type, children))
    }
}

fn at(expr: &Expr, columns: Columns<'_>, depth: usize) -> Result<Facts> {
    if depth > limits::EXPR_DEPTH_MAX {
        return Err(too_deep());
    }
    let children = expr.children().into_iter().map(|child| at(child, columns, depth + 1));
    let children = children.collect::<Result<Vec<Facts>>>()?;
    Facts::of_node(expr, columns, &children.iter().collect::<Vec<_>>())
}

pub(crate) fn too_deep() -> Error {
    Error::over_limit(format!("an expression may be nested {} levels deep", limits::EXPR_DEPTH_MAX))
}

fn type_of(expr: &Expr, schema: &Schema, children: &[&Facts]) -> Result<DataType> {
    let types: Vec<&DataType> = children.iter().map(|child| &child.data_type).collect();
    Ok(match (expr, types.as_slice()) {
        (Expr::Column(index), _) => match schema.fields().get(*index) {
            Some(field) => field.data_type().clone(),
            None => {
                let columns = schema.fields().len();
                return Err(Error::invalid(format!(
                    "there is no column {index}: the table has {columns} columns"
                )));
            }
        },
        (Expr::Literal(literal), _) => literal.data_type().clone(),
        (Expr::Compare(op, ..), [left, right]) => boolean(same_type(op.symbol(), left, right))?,
        (Expr::And(_) | Expr::Or(_), []) => {
            return Err(Error::invalid("AND and OR need at least one condition"));
        }
        (Expr::And(_) | Expr::Or(_) | Expr::Not(_), types) => {
            boolean(types.iter().zip(expr.children()).try_for_each(|(t, e)| require_boolean(t, e)))?
        }
        (Expr::IsNull(_), _) => DataType::Boolean,
        (Expr::InList(_, list), [value]) => {
            check_length("an IN list", "values", list.len(), limits::IN_LIST_MAX)?;
            boolean(list.iter().try_for_each(|l| same_type("IN", value, l.data_type())))?
        }
        (Expr::InSet(e, _), [value]) => {
            boolean(require(schema::is_integer_like(value), "a set of keys", value, e))?
        }
        (Expr::InFilter(..), []) => {
            return Err(Error::invalid("a filter of keys needs at least one value"));
        }
        (Expr::InFilter(values, _), types) => {
            let has_keys = |t: &DataType| schema::is_integer_like(t) || schema::is_bytes(t);
            let check = |(t, e): (&&DataType, &Expr)| require(has_keys(t), "a filter of keys", t, e);
            boolean(types.iter().zip(values).try_for_each(check))?
        }
        (Expr::Like { pattern, .. }, [value]) => {
            check_length("a LIKE pattern", "bytes", pattern.len(), limits::PATTERN_BYTES_MAX)?;
            boolean(same_type("LIKE", value, &DataType::Utf8View))?
        }
        (Expr::Regex { .. }, [value]) => {
            boolean(same_type("a regular expression", value, &DataType::Utf8View))?
        }
        (Expr::Arithmetic(op, ..), [left, right]) => arithmetic_type(*op, left, right)?,
        (Expr::Negate(_), [t]) => {
            let signed = t.is_signed_integer() || t.is_floating() || matches!(t, DataType::Decimal128(..));
            if !signed {
                return Err(Error::invalid(format!("a value of type {t} has no negative")));
            }
            (*t).clone()
        }
        (Expr::Cast(_, to), _) => {
            if schema::canonical_type(to).as_ref() != Some(to) {
                return Err(Error::invalid(format!("cast to {to}, a type that the pool does not hold")));
            }
            to.clone()
        }
        (Expr::Extract(part, _), [t]) => extract_type(*part, t)?,
        (Expr::Case { branches, otherwise }, types) => {
            case_type(types, branches.len(), otherwise.is_some(), expr)?
        }
        (Expr::Opaque { reason, .. }, _) => return Err(Error::invalid(reason.clone())),
        _ => return Err(Error::internal("an expression and the facts of another one's parts")),
    })
}

fn extract_type(part: DatePart, from: &DataType) -> Result<DataType> {
    match from {
        DataType::Timestamp(_, None) => Ok(DataType::Int64),
        DataType::Date32 if !part.is_of_time() => Ok(DataType::Int64),
        _ => Err(Error::invalid(format!("a value of type {from} has no {}", part.name()))),
    }
}

/// Returns the type of a CASE whose operands have `types`: a condition and a value per branch, then the ELSE value if
/// there is one.
fn case_type(types: &[&DataType], branches: usize, otherwise: bool, expr: &Expr) -> Result<DataType> {
    let Some(first) = types.get(1).filter(|_| branches > 0) else {
        return Err(Error::invalid("CASE needs at least one WHEN"));
    };
    for ((place, data_type), part) in types.iter().enumerate().zip(expr.children()) {
        let is_condition = place % 2 == 0 && !(otherwise && place == 2 * branches);
        if is_condition {
            require_boolean(data_type, part)?;
        } else {
            same_type("CASE", first, data_type)?;
        }
    }
    Ok((*first).clone())
}

fn boolean(checked: Result<()>) -> Result<DataType> {
    checked.map(|()| DataType::Boolean)
}

fn require_boolean(data_type: &DataType, expr: &Expr) -> Result<()> {
    if *data_type == DataType::Boolean {
        return Ok(());
    }
    Err(Error::invalid(format!("{} has type {data_type}, where a boolean is needed", brief(expr))))
}

fn require(holds: bool, what: &str, data_type: &DataType, expr: &Expr) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} for {}, which has type {data_type}", brief(expr))))
}

fn check_length(what: &str, unit: &str, length: usize, most: usize) -> Result<()> {
    if length <= most {
        return Ok(());
    }
    Err(Error::over_limit(format!("{what} may have {most} {unit}, this one has {length}")))
}

fn same_type(what: &str, left: &DataType, right: &DataType) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} needs two values of one type, these are {left} and {right}"))
        .advise("cast one of them"))
}

/// Returns the type of `left op right`: for integers and floats their common type; for decimals the precision and scale
/// of Arrow's kernels.
///
/// # Errors
/// `Invalid` if the operands are not two numbers of one kind, or if no decimal type holds the result.
pub fn arithmetic_type(op: ArithmeticOp, left: &DataType, right: &DataType) -> Result<DataType> {
    use DataType::Decimal128;
    let (Decimal128(p1, s1), Decimal128(p2, s2)) = (left, right) else {
        if left == right && (left.is_integer() || left.is_floating()) {
            return Ok(left.clone());
        }
        return Err(Error::invalid(format!("{left} {} {right} is not defined here", op.symbol())));
    };
    let (p1, s1, p2, s2) = (i16::from(*p1), i16::from(*s1), i16::from(*p2), i16::from(*s2));
    let (precision, scale) = match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            let scale = s1.max(s2);
            (scale + (p1 - s1).max(p2 - s2) + 1, scale)
        }
        ArithmeticOp::Multiply => (p1 + p2 + 1, s1 + s2),
        ArithmeticOp::Divide => {
            let scale = (s1 + 4).min(i16::from(DECIMAL128_MAX_SCALE));
            (p1 + scale - s1 + s2, scale)
        }
        ArithmeticOp::Modulo => {
            let scale = s1.max(s2);
            (scale + (p1 - s1).min(p2 - s2), scale)
        }
    };
    // Arrow's remainder kernel aligns the scales by multiplication, which wraps if the product exceeds 128 bits.
    let aligned = op != ArithmeticOp::Modulo || (s1 - s2).abs() <= i16::from(DECIMAL128_MAX_PRECISION);
    let result = schema::decimal(precision.min(i16::from(DECIMAL128_MAX_PRECISION)), scale);
    result.filter(|_| aligned).ok_or_else(|| {
        Error::invalid(format!("no decimal type holds {left} {} {right}", op.symbol()))
            .advise("cast one of them to a decimal of another scale")
    })
}
