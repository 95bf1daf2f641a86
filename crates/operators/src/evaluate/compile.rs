//! An expression with everything prepared that does not depend on rows.

use super::frame::{Evaluated, Frame};
use super::members::Members;
use super::pieces::Pieces;
use super::{kernels, scalar};
use arrow_array::{ArrayRef, new_empty_array};
use arrow_schema::{DataType, Schema};
use farpool_model::{ArithmeticOp, CompareOp, Error, Expr, KeyFilter, Pattern, Result};
use std::collections::BTreeSet;

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(super) node: Node,
    data_type: DataType,
    columns: Vec<usize>,
    fallible: bool,
}

#[derive(Debug)]
pub(super) enum Node {
    Column(usize),
    Literal(ArrayRef),
    Compare(CompareOp, Box<Compiled>, Box<Compiled>),
    /// Parts that cannot fail come first.
    And(Vec<Compiled>),
    /// Parts that cannot fail come first.
    Or(Vec<Compiled>),
    Not(Box<Compiled>),
    IsNull(Box<Compiled>),
    InList(Box<Compiled>, Members),
    InFilter(Vec<Compiled>, KeyFilter),
    Like {
        value: Box<Compiled>,
        pattern: ArrayRef,
        case_insensitive: bool,
    },
    /// Text that LIKE is asked of, with what the pattern wants in it.
    Pieces(Box<Compiled>, Pieces),
    Regex(Box<Compiled>, Pattern),
    Arithmetic(ArithmeticOp, Box<Compiled>, Box<Compiled>),
    Negate(Box<Compiled>),
    Cast(Box<Compiled>),
    Case {
        branches: Vec<(Compiled, Compiled)>,
        otherwise: Option<Box<Compiled>>,
    },
}

impl Compiled {
    /// Compiles `expr` over a table with `schema`, which is canonical.
    ///
    /// # Errors
    /// `Invalid` when it is not well typed or has an opaque part.
    pub(crate) fn new(expr: &Expr, schema: &Schema) -> Result<Compiled> {
        let mut columns = BTreeSet::new();
        expr.collect_columns(&mut columns);
        Ok(Compiled {
            node: node_of(expr, schema)?,
            data_type: expr.data_type(schema)?,
            columns: columns.into_iter().collect(),
            fallible: fallible(expr, schema)?,
        })
    }

    /// The values over `frame`, which holds the columns of [`Compiled::columns`].
    ///
    /// # Errors
    /// `Invalid` when the expression fails on one of the rows.
    pub(crate) fn evaluate(&self, frame: &Frame) -> Result<Evaluated> {
        if frame.rows() == 0 {
            return Ok(Evaluated::Array(new_empty_array(&self.data_type)));
        }
        kernels::evaluate(self, frame)
    }

    /// The values over `frame` as an array.
    pub(crate) fn array(&self, frame: &Frame) -> Result<ArrayRef> {
        self.evaluate(frame)?.into_array(frame.rows())
    }

    /// Makes this `self AND other`.
    pub(crate) fn and(&mut self, other: Compiled) {
        let mut columns: BTreeSet<usize> = self.columns.iter().copied().collect();
        columns.extend(&other.columns);
        let merged = Compiled {
            node: Node::And(Vec::new()),
            data_type: DataType::Boolean,
            columns: columns.into_iter().collect(),
            fallible: self.fallible || other.fallible,
        };
        let first = std::mem::replace(self, merged);
        let mut parts = vec![first, other];
        parts.sort_by_key(Compiled::is_fallible);
        self.node = Node::And(parts);
    }

    /// The type of the values.
    pub(crate) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The columns that it reads, sorted.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The column that it is, if it is nothing else.
    pub(crate) fn as_column(&self) -> Option<usize> {
        match self.node {
            Node::Column(index) => Some(index),
            _ => None,
        }
    }

    /// Whether it may fail on some values.
    pub(crate) fn is_fallible(&self) -> bool {
        self.fallible
    }
}

/// `literal` as an array of length one.
#[cfg(test)]
pub(crate) fn scalar_of(literal: &farpool_model::Literal) -> Result<ArrayRef> {
    scalar::of_literal(literal)
}

fn node_of(expr: &Expr, schema: &Schema) -> Result<Node> {
    let boxed = |e: &Expr| Compiled::new(e, schema).map(Box::new);
    Ok(match expr {
        Expr::Column(index) => Node::Column(*index),
        Expr::Literal(literal) => Node::Literal(scalar::of_literal(literal)?),
        Expr::Compare(op, l, r) => Node::Compare(*op, boxed(l)?, boxed(r)?),
        Expr::And(parts) => Node::And(infallible_first(parts, schema)?),
        Expr::Or(parts) => Node::Or(infallible_first(parts, schema)?),
        Expr::Not(e) => Node::Not(boxed(e)?),
        Expr::IsNull(e) => Node::IsNull(boxed(e)?),
        Expr::InList(e, list) => Node::InList(boxed(e)?, Members::new(list)),
        Expr::InSet(e, set) => Node::InList(boxed(e)?, Members::of_set(set)),
        Expr::InFilter(values, filter) => {
            let values = values.iter().map(|e| Compiled::new(e, schema)).collect::<Result<_>>()?;
            Node::InFilter(values, filter.clone())
        }
        Expr::Like { value, pattern, case_insensitive } => match Pieces::of(pattern) {
            Some(pieces) if !case_insensitive => Node::Pieces(boxed(value)?, pieces),
            _ => Node::Like {
                value: boxed(value)?,
                pattern: std::sync::Arc::new(arrow_array::StringViewArray::from(vec![pattern.as_str()])),
                case_insensitive: *case_insensitive,
            },
        },
        Expr::Regex { value, pattern } => Node::Regex(boxed(value)?, pattern.clone()),
        Expr::Arithmetic(op, l, r) => Node::Arithmetic(*op, boxed(l)?, boxed(r)?),
        Expr::Negate(e) => Node::Negate(boxed(e)?),
        Expr::Cast(e, to) => {
            let inner = boxed(e)?;
            if !arrow_cast::can_cast_types(inner.data_type(), to) {
                return Err(Error::invalid(format!("{} cannot be cast to {to}", inner.data_type())));
            }
            Node::Cast(inner)
        }
        Expr::Case { branches, otherwise } => {
            let pair = |(when, then): &(Expr, Expr)| {
                Ok((Compiled::new(when, schema)?, Compiled::new(then, schema)?))
            };
            Node::Case {
                branches: branches.iter().map(pair).collect::<Result<_>>()?,
                otherwise: otherwise.as_deref().map(boxed).transpose()?,
            }
        }
        Expr::Opaque { reason, .. } => return Err(Error::invalid(reason.clone())),
    })
}

fn infallible_first(parts: &[Expr], schema: &Schema) -> Result<Vec<Compiled>> {
    let mut parts: Vec<_> = parts.iter().map(|p| Compiled::new(p, schema)).collect::<Result<_>>()?;
    parts.sort_by_key(Compiled::is_fallible);
    Ok(parts)
}

/// Like [`Expr::may_fail`], but knowing the types: decimals whose exact result may need more than 128 bits
/// and casts from text may fail as well.
pub(crate) fn fallible(expr: &Expr, schema: &Schema) -> Result<bool> {
    let here = match expr {
        Expr::Arithmetic(ArithmeticOp::Divide | ArithmeticOp::Modulo, _, _) => expr.may_fail(),
        Expr::Arithmetic(op, l, r) => decimal_may_overflow(*op, &l.data_type(schema)?, &r.data_type(schema)?),
        Expr::Cast(inner, to) => {
            let from = inner.data_type(schema)?;
            match to {
                DataType::Float64 => !from.is_numeric(),
                DataType::Utf8View => from == DataType::BinaryView,
                _ => true,
            }
        }
        _ => false,
    };
    if here {
        return Ok(true);
    }
    for child in expr.children() {
        if fallible(child, schema)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn decimal_may_overflow(op: ArithmeticOp, left: &DataType, right: &DataType) -> bool {
    let (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) = (left, right) else {
        return false;
    };
    let (p1, s1, p2, s2) = (i16::from(*p1), i16::from(*s1), i16::from(*p2), i16::from(*s2));
    let digits = match op {
        ArithmeticOp::Multiply => p1 + p2,
        _ => s1.max(s2) + (p1 - s1).max(p2 - s2) + 1,
    };
    digits > i16::from(arrow_schema::DECIMAL128_MAX_PRECISION)
}
