//! Scalar expressions over the columns of one table, and their types.
//!
//! Meaning: SQL's three-valued logic, NULL in gives NULL out unless said otherwise. Both sides of a
//! comparison or an arithmetic operation have the types that the doc of [`Expr`] asks for: there is no
//! implicit cast. Integer arithmetic wraps at the width of its type, as the engines above do, so that an
//! answer does not depend on where it was computed; sums never wrap (see [`crate::AggregateFunction`]).
//! Floats compare in the total order of IEEE 754, as Arrow's kernels do, except that -0.0 equals 0.0, as
//! SQL has it.

use crate::{Error, KeyFilter, KeySet, Literal, Pattern, Result, limits, schema};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Schema};
use std::collections::BTreeSet;
use std::fmt;

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// `=`
    Eq,
    /// `<>`
    NotEq,
    /// `<`
    Lt,
    /// `<=`
    LtEq,
    /// `>`
    Gt,
    /// `>=`
    GtEq,
}

impl CompareOp {
    /// The comparison that holds with the sides swapped: `a < b` is `b > a`.
    pub fn swapped(self) -> Self {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::LtEq => CompareOp::GtEq,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::GtEq => CompareOp::LtEq,
            CompareOp::Eq | CompareOp::NotEq => self,
        }
    }

    /// The comparison that holds, of non-NULL values, exactly when this one does not.
    pub fn negated(self) -> Self {
        match self {
            CompareOp::Eq => CompareOp::NotEq,
            CompareOp::NotEq => CompareOp::Eq,
            CompareOp::Lt => CompareOp::GtEq,
            CompareOp::LtEq => CompareOp::Gt,
            CompareOp::Gt => CompareOp::LtEq,
            CompareOp::GtEq => CompareOp::Lt,
        }
    }

    /// As SQL writes it.
    pub fn symbol(self) -> &'static str {
        match self {
            CompareOp::Eq => "=",
            CompareOp::NotEq => "<>",
            CompareOp::Lt => "<",
            CompareOp::LtEq => "<=",
            CompareOp::Gt => ">",
            CompareOp::GtEq => ">=",
        }
    }
}

/// Arithmetic on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; integers truncate towards zero; division by zero is an error for integers and decimals.
    Divide,
    /// `%`; the sign is that of the left side; by zero is an error for integers and decimals.
    Modulo,
}

impl ArithmeticOp {
    /// As SQL writes it.
    pub fn symbol(self) -> &'static str {
        match self {
            ArithmeticOp::Add => "+",
            ArithmeticOp::Subtract => "-",
            ArithmeticOp::Multiply => "*",
            ArithmeticOp::Divide => "/",
            ArithmeticOp::Modulo => "%",
        }
    }
}

/// A scalar expression. `Column(i)` is the i-th column of the *table's* schema, wherever it stands in a
/// program: there is no intermediate numbering.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// The value of a column, by its position in the table's schema.
    Column(usize),
    /// A constant.
    Literal(Literal),
    /// A comparison of two values of one type; boolean.
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    /// Three-valued AND of at least one boolean.
    And(Vec<Expr>),
    /// Three-valued OR of at least one boolean.
    Or(Vec<Expr>),
    /// Three-valued NOT of a boolean.
    Not(Box<Expr>),
    /// Whether a value is NULL; never NULL itself.
    IsNull(Box<Expr>),
    /// Whether a value equals one of the constants, which have its type. NULL when it is NULL, or when it
    /// equals none of them and one of them is NULL.
    InList(Box<Expr>, Vec<Literal>),
    /// Whether an integer, or a value that is held as one (unscaled decimals, days, units since the epoch), is
    /// one of many keys. NULL when it is NULL. Filters that joins find out at run time have this form.
    InSet(Box<Expr>, KeySet),
    /// Whether the hash of some values (integers or what is held as such, strings, binaries; one or several
    /// together) is in a filter of keys: true of every key, and of few others. NULL when any of them is NULL.
    InFilter(Vec<Expr>, KeyFilter),
    /// SQL LIKE on a string.
    Like {
        /// The string that is matched.
        value: Box<Expr>,
        /// `%` stands for any characters, `_` for one, `\` takes the next character literally.
        pattern: String,
        /// ILIKE: letters match whatever their case (Unicode simple case folding).
        case_insensitive: bool,
    },
    /// Whether a string has a match of a regular expression.
    Regex {
        /// The string that is searched.
        value: Box<Expr>,
        /// What for.
        pattern: Pattern,
    },
    /// Arithmetic on two numbers: two of one integer or float type, or two decimals of any precision.
    Arithmetic(ArithmeticOp, Box<Expr>, Box<Expr>),
    /// The negative of a signed number.
    Negate(Box<Expr>),
    /// The value as another type, as Arrow's cast kernel with `safe: false` does it: a value that does
    /// not fit is an error.
    Cast(Box<Expr>, DataType),
    /// `CASE WHEN condition THEN value … ELSE otherwise END`; NULL where nothing holds and there is no ELSE.
    Case {
        /// Conditions and the values they lead to; all values have one type. At least one.
        branches: Vec<(Expr, Expr)>,
        /// The value where no condition holds.
        otherwise: Option<Box<Expr>>,
    },
    /// Something that farpool has no operator for. It never runs: a program that needs it is refused in
    /// that part, with this reason.
    Opaque {
        /// What it was, for a person.
        reason: String,
        /// What it was computed of, as far as that is known: the host, which has to compute it, needs the
        /// columns of these.
        inputs: Vec<Expr>,
    },
}

impl Expr {
    /// `left op right`.
    pub fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
        Expr::Compare(op, Box::new(left), Box::new(right))
    }

    /// `left op right`.
    pub fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
        Expr::Arithmetic(op, Box::new(left), Box::new(right))
    }

    /// The negation.
    #[expect(clippy::should_implement_trait, reason = "builds a node, does not compute")]
    pub fn not(inner: Expr) -> Expr {
        Expr::Not(Box::new(inner))
    }

    /// Something that farpool has no operator for, of these `inputs`.
    pub fn opaque(reason: impl Into<String>, inputs: Vec<Expr>) -> Expr {
        Expr::Opaque { reason: reason.into(), inputs }
    }

    /// The conjunction of `parts`; `None` of none.
    pub fn all(mut parts: Vec<Expr>) -> Option<Expr> {
        match parts.len() {
            0 => None,
            1 => parts.pop(),
            _ => Some(Expr::And(parts)),
        }
    }

    /// The position of the column that it is, if it is nothing else.
    pub fn as_column(&self) -> Option<usize> {
        match self {
            Expr::Column(index) => Some(*index),
            _ => None,
        }
    }

    /// The direct sub-expressions, left to right.
    pub fn children(&self) -> Vec<&Expr> {
        match self {
            Expr::Column(_) | Expr::Literal(_) => Vec::new(),
            Expr::Compare(_, l, r) | Expr::Arithmetic(_, l, r) => vec![l, r],
            Expr::And(parts)
            | Expr::Or(parts)
            | Expr::InFilter(parts, _)
            | Expr::Opaque { inputs: parts, .. } => parts.iter().collect(),
            Expr::Not(e)
            | Expr::IsNull(e)
            | Expr::InList(e, _)
            | Expr::InSet(e, _)
            | Expr::Negate(e)
            | Expr::Cast(e, _) => vec![e],
            Expr::Like { value, .. } | Expr::Regex { value, .. } => vec![value],
            Expr::Case { branches, otherwise } => {
                branches.iter().flat_map(|(when, then)| [when, then]).chain(otherwise.as_deref()).collect()
            }
        }
    }

    /// Adds the columns that the expression reads.
    pub fn collect_columns(&self, columns: &mut BTreeSet<usize>) {
        if let Expr::Column(index) = self {
            columns.insert(*index);
        }
        self.children().into_iter().for_each(|child| child.collect_columns(columns));
    }

    /// The reason of the first part that cannot run here, if there is one.
    pub fn opaque_reason(&self) -> Option<&str> {
        match self {
            Expr::Opaque { reason, .. } => Some(reason),
            _ => self.children().into_iter().find_map(Expr::opaque_reason),
        }
    }

    /// Whether evaluation may fail on some row: a division by zero, a cast that does not fit, a decimal
    /// that overflows. Such a part must not run on rows that an earlier condition would have removed.
    pub fn may_fail(&self) -> bool {
        let here = match self {
            Expr::Arithmetic(ArithmeticOp::Divide | ArithmeticOp::Modulo, _, divisor) => {
                !matches!(&**divisor, Expr::Literal(l) if l.as_int().is_none_or(|v| v != 0 && v != -1))
            }
            Expr::Cast(inner, to) => !matches!(&**inner, Expr::Literal(_)) && !infallible_target(to),
            _ => false,
        };
        here || self.children().into_iter().any(Expr::may_fail)
    }

    /// The canonical type of the value, over a table with `schema` (which is canonical).
    ///
    /// # Errors
    /// `Invalid` when a column does not exist, the parts do not fit together, or the expression is
    /// [`Expr::Opaque`]; `OverLimit` when it is nested too deeply or a list is too long.
    pub fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.typed(schema, 0)
    }

    fn typed(&self, schema: &Schema, depth: usize) -> Result<DataType> {
        if depth > limits::EXPR_DEPTH_MAX {
            return Err(Error::over_limit(format!(
                "an expression may be nested {} levels deep",
                limits::EXPR_DEPTH_MAX
            )));
        }
        let depth = depth + 1;
        let boolean = |e: &Expr| match e.typed(schema, depth)? {
            DataType::Boolean => Ok(()),
            other => Err(Error::invalid(format!("{e} has type {other}, where a boolean is needed"))),
        };
        match self {
            Expr::Column(index) => match schema.fields().get(*index) {
                Some(field) => Ok(field.data_type().clone()),
                None => Err(Error::invalid(format!(
                    "there is no column {index}: the table has {} columns",
                    schema.fields().len()
                ))),
            },
            Expr::Literal(literal) => Ok(literal.data_type().clone()),
            Expr::Compare(op, l, r) => {
                let (left, right) = (l.typed(schema, depth)?, r.typed(schema, depth)?);
                same_type(op.symbol(), &left, &right).map(|()| DataType::Boolean)
            }
            Expr::And(parts) | Expr::Or(parts) => {
                if parts.is_empty() {
                    return Err(Error::invalid("AND and OR need at least one condition"));
                }
                parts.iter().try_for_each(boolean).map(|()| DataType::Boolean)
            }
            Expr::Not(e) => boolean(e).map(|()| DataType::Boolean),
            Expr::IsNull(e) => e.typed(schema, depth).map(|_| DataType::Boolean),
            Expr::InList(e, list) => {
                if list.len() > limits::IN_LIST_MAX {
                    return Err(Error::over_limit(format!(
                        "an IN list may have {} values, this one has {}",
                        limits::IN_LIST_MAX,
                        list.len()
                    )));
                }
                let data_type = e.typed(schema, depth)?;
                list.iter()
                    .try_for_each(|literal| same_type("IN", &data_type, literal.data_type()))
                    .map(|()| DataType::Boolean)
            }
            Expr::InSet(e, _) => match e.typed(schema, depth)? {
                t if schema::is_integer_like(&t) => Ok(DataType::Boolean),
                other => Err(Error::invalid(format!("a set of keys for {e}, which has type {other}"))),
            },
            Expr::InFilter(values, _) => {
                if values.is_empty() {
                    return Err(Error::invalid("a filter of keys needs at least one value"));
                }
                let has_keys = |t: &DataType| schema::is_integer_like(t) || schema::is_bytes(t);
                values.iter().try_for_each(|e| match e.typed(schema, depth)? {
                    t if has_keys(&t) => Ok(()),
                    other => Err(Error::invalid(format!("a filter of keys for {e}, which has type {other}"))),
                })?;
                Ok(DataType::Boolean)
            }
            Expr::Like { value, pattern, .. } => {
                if pattern.len() > limits::PATTERN_BYTES_MAX {
                    return Err(Error::over_limit(format!(
                        "a LIKE pattern may have {} bytes, this one has {}",
                        limits::PATTERN_BYTES_MAX,
                        pattern.len()
                    )));
                }
                same_type("LIKE", &value.typed(schema, depth)?, &DataType::Utf8View)
                    .map(|()| DataType::Boolean)
            }
            Expr::Regex { value, .. } => {
                same_type("a regular expression", &value.typed(schema, depth)?, &DataType::Utf8View)
                    .map(|()| DataType::Boolean)
            }
            Expr::Arithmetic(op, l, r) => {
                arithmetic_type(*op, &l.typed(schema, depth)?, &r.typed(schema, depth)?)
            }
            Expr::Negate(e) => match e.typed(schema, depth)? {
                t if t.is_signed_integer() || t.is_floating() || matches!(t, DataType::Decimal128(..)) => {
                    Ok(t)
                }
                other => Err(Error::invalid(format!("a value of type {other} has no negative"))),
            },
            Expr::Cast(e, to) => {
                e.typed(schema, depth)?;
                if schema::canonical_type(to).as_ref() != Some(to) {
                    return Err(Error::invalid(format!("cast to {to}, a type that the pool does not hold")));
                }
                Ok(to.clone())
            }
            Expr::Case { branches, otherwise } => {
                let Some((_, first)) = branches.first() else {
                    return Err(Error::invalid("CASE needs at least one WHEN"));
                };
                let data_type = first.typed(schema, depth)?;
                for (when, then) in branches {
                    boolean(when)?;
                    same_type("CASE", &data_type, &then.typed(schema, depth)?)?;
                }
                if let Some(otherwise) = otherwise {
                    same_type("CASE", &data_type, &otherwise.typed(schema, depth)?)?;
                }
                Ok(data_type)
            }
            Expr::Opaque { reason, .. } => Err(Error::invalid(reason.clone())),
        }
    }

    /// The number of nodes, itself included.
    pub fn node_count(&self) -> usize {
        self.own_nodes() + self.children().into_iter().map(Expr::node_count).sum::<usize>()
    }

    /// What it counts for without its children: one, and what its constants come to.
    pub fn own_nodes(&self) -> usize {
        1 + match self {
            Expr::InList(_, list) => list.len(),
            Expr::InSet(_, set) => set.nodes(),
            Expr::InFilter(_, filter) => filter.nodes(),
            _ => 0,
        }
    }

    /// The expression as SQL would write it, with columns named as in `schema`.
    pub fn display<'a>(&'a self, schema: &'a Schema) -> impl fmt::Display + 'a {
        Shown { expr: self, schema: Some(schema) }
    }
}

/// Casts to these types are total on the types the planner casts from (numbers to float, anything to text).
fn infallible_target(to: &DataType) -> bool {
    matches!(to, DataType::Float64 | DataType::Utf8View)
}

fn same_type(what: &str, left: &DataType, right: &DataType) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} needs two values of one type, these are {left} and {right}"))
        .advise("cast one of them"))
}

/// The type of `left op right`: the common type of integers and floats; for decimals the precision and
/// scale that Arrow's kernels give.
///
/// # Errors
/// `Invalid` when the types are not numbers of one kind, or the scale of a decimal result would exceed 38.
pub fn arithmetic_type(op: ArithmeticOp, left: &DataType, right: &DataType) -> Result<DataType> {
    use DataType::Decimal128;
    let (Decimal128(p1, s1), Decimal128(p2, s2)) = (left, right) else {
        if left == right && (left.is_integer() || left.is_floating()) {
            return Ok(left.clone());
        }
        return Err(Error::invalid(format!("{left} {} {right} is not defined here", op.symbol())));
    };
    let (p1, s1, p2, s2) = (i16::from(*p1), i16::from(*s1), i16::from(*p2), i16::from(*s2));
    let max_precision = i16::from(DECIMAL128_MAX_PRECISION);
    let (precision, scale) = match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            let scale = s1.max(s2);
            (scale + (p1 - s1).max(p2 - s2) + 1, scale)
        }
        ArithmeticOp::Multiply => (p1 + p2 + 1, s1 + s2),
        ArithmeticOp::Divide => {
            let scale = (s1 + 4).min(i16::from(DECIMAL128_MAX_SCALE));
            let power = scale - s1 + s2;
            (p1 + power, scale)
        }
        ArithmeticOp::Modulo => {
            let scale = s1.max(s2);
            (scale + (p1 - s1).min(p2 - s2), scale)
        }
    };
    if scale > i16::from(DECIMAL128_MAX_SCALE) {
        return Err(Error::invalid(format!(
            "{left} {} {right} has more than 38 digits of scale",
            op.symbol()
        )));
    }
    let precision = u8::try_from(precision.clamp(1, max_precision)).expect("clamped to 1..=38");
    Ok(Decimal128(precision, i8::try_from(scale).expect("scales are within ±38 here")))
}

struct Shown<'a> {
    expr: &'a Expr,
    schema: Option<&'a Schema>,
}

impl<'a> Shown<'a> {
    fn at(&self, expr: &'a Expr) -> Shown<'a> {
        Shown { expr, schema: self.schema }
    }

    fn joined(&self, f: &mut fmt::Formatter<'_>, parts: &'a [Expr], separator: &str) -> fmt::Result {
        f.write_str("(")?;
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                f.write_str(separator)?;
            }
            write!(f, "{}", self.at(part))?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown { expr: self, schema: None }.fmt(f)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |expr| self.at(expr);
        match self.expr {
            Expr::Column(i) => match self.schema.and_then(|s| s.fields().get(*i)) {
                Some(field) => f.write_str(field.name()),
                None => write!(f, "#{i}"),
            },
            Expr::Literal(literal) => literal.fmt(f),
            Expr::Compare(op, l, r) => write!(f, "{} {} {}", at(l), op.symbol(), at(r)),
            Expr::And(parts) => self.joined(f, parts, " AND "),
            Expr::Or(parts) => self.joined(f, parts, " OR "),
            Expr::Not(e) => write!(f, "NOT ({})", at(e)),
            Expr::IsNull(e) => write!(f, "{} IS NULL", at(e)),
            Expr::InList(e, list) => {
                write!(f, "{} IN (", at(e))?;
                for (i, literal) in list.iter().take(8).enumerate() {
                    write!(f, "{}{literal}", if i > 0 { ", " } else { "" })?;
                }
                let more = list.len().saturating_sub(8);
                if more > 0 { write!(f, ", … {more} more)") } else { f.write_str(")") }
            }
            Expr::InSet(e, set) => write!(f, "{} IN ({set})", at(e)),
            Expr::InFilter(values, filter) => {
                match &values[..] {
                    [value] => write!(f, "{}", at(value))?,
                    values => self.joined(f, values, ", ")?,
                }
                write!(f, " IN ({filter})")
            }
            Expr::Like { value, pattern, case_insensitive } => {
                let word = if *case_insensitive { "ILIKE" } else { "LIKE" };
                write!(f, "{} {word} '{}'", at(value), pattern.replace('\'', "''"))
            }
            Expr::Regex { value, pattern } => {
                let word = if pattern.is_case_insensitive() { "~*" } else { "~" };
                write!(f, "{} {word} '{}'", at(value), pattern.as_str().replace('\'', "''"))
            }
            Expr::Arithmetic(op, l, r) => write!(f, "({} {} {})", at(l), op.symbol(), at(r)),
            Expr::Negate(e) => write!(f, "(-{})", at(e)),
            Expr::Cast(e, to) => write!(f, "CAST({} AS {to})", at(e)),
            Expr::Case { branches, otherwise } => {
                f.write_str("CASE")?;
                for (when, then) in branches {
                    write!(f, " WHEN {} THEN {}", at(when), at(then))?;
                }
                if let Some(otherwise) = otherwise {
                    write!(f, " ELSE {}", at(otherwise))?;
                }
                f.write_str(" END")
            }
            Expr::Opaque { reason, .. } => write!(f, "<{reason}>"),
        }
    }
}
