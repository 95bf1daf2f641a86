//! Scalar expressions over the columns of one table, and their types.
//!
//! Semantics: SQL's three-valued logic; a NULL input gives a NULL result unless said otherwise. Both sides of
//! a comparison or an arithmetic operation have the types that the doc of [`Expr`] asks for: there is no
//! implicit cast. Arithmetic on integers and decimals whose result does not fit its type is an error, and so
//! are sums that do not fit (see [`crate::AggregateFunction`]); nothing wraps. Floats compare in the total
//! order of IEEE 754, as in Arrow's kernels, except that -0.0 equals 0.0, as in SQL.

use crate::literal::quoted;
use crate::{DatePart, Facts, KeyFilter, KeySet, Literal, Pattern, Result, limits};
use arrow_schema::{DataType, Schema};
use std::collections::BTreeSet;
use std::fmt;

/// Bytes that are charged for each value of an IN list in addition to the bytes of a string: for the constant, and for
/// its entry in a hash table.
const LISTED_BYTES: usize = 128;

/// Comparison operator.
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
    /// Returns the operator that gives the same result after the two sides are swapped: `>` for `<`, because `a < b` is
    /// `b > a`.
    pub fn swapped(self) -> Self {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::LtEq => CompareOp::GtEq,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::GtEq => CompareOp::LtEq,
            CompareOp::Eq | CompareOp::NotEq => self,
        }
    }

    /// Returns the operator whose result for non-NULL values is the negation: `>=` for `<`.
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

    /// Returns the operator as written in SQL.
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
    /// Returns the operator as written in SQL.
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

/// A scalar expression. `Column(i)` is the i-th column of the *table's* schema, wherever the expression is in a
/// program; there is no numbering of intermediate columns.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// The value of a column, by its index in the table's schema.
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
    /// Whether a value equals one of the constants, which have the type of the value. NULL if the value is NULL, or if
    /// it equals no constant and one of the constants is NULL.
    InList(Box<Expr>, Vec<Literal>),
    /// Whether an integer, or a value that is stored as one (unscaled decimal, days, units since the epoch), is in a
    /// set of join keys. NULL if the value is NULL. Joins derive such filters at run time.
    InSet(Box<Expr>, KeySet),
    /// Whether the hash of one or several values together (integers or values stored as integers, strings, binaries) is
    /// in a Bloom filter of join keys. True for every join key, and for few other values. NULL if any of the values is
    /// NULL.
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
        /// The regular expression.
        pattern: Pattern,
    },
    /// Arithmetic on two numbers: two of the same integer or float type, or two decimals of any precision. An
    /// integer result beyond the range of its type, or a decimal result with more digits than its type has,
    /// is an error.
    Arithmetic(ArithmeticOp, Box<Expr>, Box<Expr>),
    /// The negation of a signed number; an error for the minimum of an integer type.
    Negate(Box<Expr>),
    /// A cast of the value to another type, as by Arrow's cast kernel with `safe: false`: a value that does not fit is
    /// an error.
    Cast(Box<Expr>, DataType),
    /// A part of a date, or of a timestamp without a time zone: SQL's EXTRACT, an integer of 64 bits. NULL also for
    /// times beyond the calendar of Arrow's kernels, some 260,000 years from now.
    Extract(DatePart, Box<Expr>),
    /// `CASE WHEN condition THEN value … ELSE otherwise END`; NULL if no condition is true and there is no ELSE.
    Case {
        /// Conditions and their values, at least one pair; all values have one type.
        branches: Vec<(Expr, Expr)>,
        /// The value if no condition is true.
        otherwise: Option<Box<Expr>>,
    },
    /// An expression that farpool cannot evaluate. The operator that needs it is refused with `reason`, and the host
    /// evaluates it.
    Opaque {
        /// The reason why it cannot be evaluated, for people.
        reason: String,
        /// The known operands. The host needs the columns that they read.
        inputs: Vec<Expr>,
    },
}

impl Expr {
    /// Builds `left op right`.
    pub fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
        Expr::Compare(op, Box::new(left), Box::new(right))
    }

    /// Builds `left op right`.
    pub fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
        Expr::Arithmetic(op, Box::new(left), Box::new(right))
    }

    /// Builds the negation of `inner`.
    #[expect(clippy::should_implement_trait, reason = "builds a node, does not compute")]
    pub fn not(inner: Expr) -> Expr {
        Expr::Not(Box::new(inner))
    }

    /// Builds an expression over `inputs` that farpool cannot evaluate.
    pub fn opaque(reason: impl Into<String>, inputs: Vec<Expr>) -> Expr {
        Expr::Opaque { reason: reason.into(), inputs }
    }

    /// Builds the conjunction of `parts`; `None` if `parts` is empty.
    pub fn all(mut parts: Vec<Expr>) -> Option<Expr> {
        match parts.len() {
            0 => None,
            1 => parts.pop(),
            _ => Some(Expr::And(parts)),
        }
    }

    /// Returns the column index if the expression is a column; `None` otherwise.
    pub fn as_column(&self) -> Option<usize> {
        match self {
            Expr::Column(index) => Some(*index),
            _ => None,
        }
    }

    /// Returns the direct sub-expressions, left to right.
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
            | Expr::Cast(e, _)
            | Expr::Extract(_, e) => vec![e],
            Expr::Like { value, .. } | Expr::Regex { value, .. } => vec![value],
            Expr::Case { branches, otherwise } => {
                branches.iter().flat_map(|(when, then)| [when, then]).chain(otherwise.as_deref()).collect()
            }
        }
    }

    /// Replaces the index of each column that the expression reads by `new` of it.
    pub fn renumber(&mut self, new: &impl Fn(usize) -> usize) {
        match self {
            Expr::Column(index) => *index = new(*index),
            Expr::Literal(_) => {}
            Expr::Compare(_, l, r) | Expr::Arithmetic(_, l, r) => {
                l.renumber(new);
                r.renumber(new);
            }
            Expr::And(parts)
            | Expr::Or(parts)
            | Expr::InFilter(parts, _)
            | Expr::Opaque { inputs: parts, .. } => parts.iter_mut().for_each(|part| part.renumber(new)),
            Expr::Not(e)
            | Expr::IsNull(e)
            | Expr::InList(e, _)
            | Expr::InSet(e, _)
            | Expr::Negate(e)
            | Expr::Cast(e, _)
            | Expr::Extract(_, e) => e.renumber(new),
            Expr::Like { value, .. } | Expr::Regex { value, .. } => value.renumber(new),
            Expr::Case { branches, otherwise } => {
                for (when, then) in branches {
                    when.renumber(new);
                    then.renumber(new);
                }
                if let Some(otherwise) = otherwise {
                    otherwise.renumber(new);
                }
            }
        }
    }

    /// Adds the indexes of the columns that the expression reads to `columns`.
    pub fn collect_columns(&self, columns: &mut BTreeSet<usize>) {
        if let Expr::Column(index) = self {
            columns.insert(*index);
        }
        self.children().into_iter().for_each(|child| child.collect_columns(columns));
    }

    /// Returns the reason of the first opaque sub-expression; `None` if there is none.
    pub fn opaque_reason(&self) -> Option<&str> {
        match self {
            Expr::Opaque { reason, .. } => Some(reason),
            _ => self.children().into_iter().find_map(Expr::opaque_reason),
        }
    }

    /// Returns whether evaluation may fail on some row over a table with `schema`; see [`Facts::may_fail`].
    ///
    /// # Errors
    /// As [`Facts::of`].
    pub fn may_fail(&self, schema: &Schema) -> Result<bool> {
        Facts::of(self, schema).map(|facts| facts.may_fail)
    }

    /// Returns the canonical type of the value over a table with the canonical schema `schema`.
    ///
    /// # Errors
    /// As [`Facts::of`].
    pub fn data_type(&self, schema: &Schema) -> Result<DataType> {
        Facts::of(self, schema).map(|facts| facts.data_type)
    }

    /// Returns the bytes that are charged for the expression and all its descendants.
    pub fn bytes(&self) -> usize {
        self.own_bytes() + self.children().into_iter().map(Expr::bytes).sum::<usize>()
    }

    /// Returns the bytes that are charged for the expression without its children: for the node and its constants.
    /// Compiled regular expressions are charged separately, see [`Expr::pattern`].
    pub fn own_bytes(&self) -> usize {
        limits::EXPR_NODE_BYTES
            + match self {
                Expr::Literal(literal) => literal.bytes(),
                Expr::InList(_, list) => list.iter().map(|l| LISTED_BYTES + l.bytes()).sum(),
                Expr::InSet(_, set) => set.bitmap_bytes(),
                Expr::InFilter(_, filter) => filter.bytes(),
                Expr::Like { pattern, case_insensitive, .. } => {
                    Pattern::like_bytes(pattern, *case_insensitive)
                }
                Expr::Regex { pattern, .. } => pattern.as_str().len(),
                Expr::Opaque { reason, .. } => reason.len(),
                _ => 0,
            }
    }

    /// Returns the regular expression of a regular expression match; `None` for other expressions.
    pub fn pattern(&self) -> Option<&Pattern> {
        match self {
            Expr::Regex { pattern, .. } => Some(pattern),
            _ => None,
        }
    }

    /// Returns the bytes of the compiled patterns in the expression, without the states that matching adds.
    pub fn pattern_bytes(&self) -> usize {
        let (mut bytes, mut open) = (0, vec![self]);
        while let Some(expr) = open.pop() {
            bytes += expr.pattern().map_or(0, Pattern::compiled_bytes);
            open.extend(expr.children());
        }
        bytes
    }

    /// Formats the expression as SQL, with the column names of `schema`.
    pub fn display<'a>(&'a self, schema: &'a Schema) -> impl fmt::Display + 'a {
        Shown { expr: self, schema: Some(schema) }
    }
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
                write!(f, "{} {word} ", at(value))?;
                quoted(f, pattern)
            }
            Expr::Regex { value, pattern } => {
                let word = if pattern.is_case_insensitive() { "~*" } else { "~" };
                write!(f, "{} {word} ", at(value))?;
                quoted(f, pattern.as_str())
            }
            Expr::Arithmetic(op, l, r) => write!(f, "({} {} {})", at(l), op.symbol(), at(r)),
            Expr::Negate(e) => write!(f, "(-{})", at(e)),
            Expr::Cast(e, to) => write!(f, "CAST({} AS {to})", at(e)),
            Expr::Extract(part, e) => write!(f, "EXTRACT({} FROM {})", part.name(), at(e)),
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
