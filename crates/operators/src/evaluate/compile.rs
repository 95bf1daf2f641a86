//! Compiles expressions for evaluation on decoded Arrow arrays: everything that does not depend on rows (such as
//! constants and patterns) is prepared at compile time.

use super::frame::{Evaluated, Frame};
use super::members::Members;
use super::{kernels, scalar};
use arrow_array::{ArrayRef, new_empty_array};
use arrow_schema::DataType;
use farpool_model::{
    ArithmeticOp, Columns, CompareOp, DatePart, Error, Expr, Facts, KeyFilter, LikePieces, Pattern, Result,
    limits,
};
use std::collections::BTreeSet;

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(super) node: Node,
    facts: Facts,
    columns: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    Column(usize),
    Literal(ArrayRef),
    Compare(CompareOp, Box<Compiled>, Box<Compiled>),
    /// AND; operands that cannot fail come first.
    And(Vec<Compiled>),
    /// OR; operands that cannot fail come first.
    Or(Vec<Compiled>),
    Not(Box<Compiled>),
    IsNull(Box<Compiled>),
    InList(Box<Compiled>, Members),
    InFilter(Vec<Compiled>, KeyFilter),
    /// LIKE with a pattern that consists of literal pieces, and the string expression to which it is applied.
    Pieces(Box<Compiled>, LikePieces),
    Regex(Box<Compiled>, Pattern),
    Arithmetic(ArithmeticOp, Box<Compiled>, Box<Compiled>, Overflow),
    Negate(Box<Compiled>, Overflow),
    Cast(Box<Compiled>),
    Extract(DatePart, Box<Compiled>),
    Case {
        branches: Vec<(Compiled, Compiled)>,
        otherwise: Option<Box<Compiled>>,
    },
}

/// Whether an arithmetic operation checks for overflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Overflow {
    /// No check, because the bounds of the operands show that overflow cannot happen.
    Impossible,
    /// Each result is checked, and overflow is an error.
    Checked,
}

impl Compiled {
    /// Compiles `expr` over `columns`.
    ///
    /// # Errors
    /// `Invalid` when the expression is not well typed or has an opaque part; `OverLimit` when it is nested
    /// too deeply.
    pub(crate) fn new<'a>(expr: &Expr, columns: impl Into<Columns<'a>>) -> Result<Compiled> {
        Compiled::at(expr, columns.into(), 0)
    }

    fn at(expr: &Expr, known: Columns<'_>, depth: usize) -> Result<Compiled> {
        if depth > limits::EXPR_DEPTH_MAX {
            return Err(Error::over_limit("an expression is nested too deeply to be compiled"));
        }
        let children = expr.children().into_iter().map(|child| Compiled::at(child, known, depth + 1));
        let children = children.collect::<Result<Vec<Compiled>>>()?;
        let of_children = children.iter().map(|child| &child.facts).collect::<Vec<_>>();
        let facts = Facts::of_node(expr, known, &of_children)?;
        let overflow = match Facts::node_may_fail(expr, known, &of_children)? {
            true => Overflow::Checked,
            false => Overflow::Impossible,
        };
        let mut columns: BTreeSet<usize> =
            children.iter().flat_map(|child| &child.columns).copied().collect();
        columns.extend(expr.as_column());
        Ok(Compiled {
            node: node_of(expr, children, overflow)?,
            facts,
            columns: columns.into_iter().collect(),
        })
    }

    /// Evaluates the expression over `frame`, which must have the columns of [`Compiled::columns`].
    ///
    /// # Errors
    /// `Invalid` when the expression fails on one of the rows.
    pub(crate) fn evaluate(&self, frame: &Frame) -> Result<Evaluated> {
        if frame.rows() == 0 {
            return Ok(Evaluated::Array(new_empty_array(self.data_type())));
        }
        kernels::evaluate(self, frame)
    }

    /// Evaluates the expression over `frame` as [`Self::evaluate`] does, and returns an array with one value per row.
    pub(crate) fn array(&self, frame: &Frame) -> Result<ArrayRef> {
        self.evaluate(frame)?.into_array(frame.rows())
    }

    /// Changes this condition to `self AND other`. Appends to an existing AND, so that any number of calls add only
    /// one level of nesting.
    pub(crate) fn and(&mut self, other: Compiled) {
        if !matches!(self.node, Node::And(_)) {
            let facts = Facts { data_type: DataType::Boolean, range: None, may_fail: self.is_fallible() };
            let merged = Compiled { node: Node::And(Vec::new()), facts, columns: self.columns.clone() };
            let first = std::mem::replace(self, merged);
            self.node = Node::And(vec![first]);
        }
        self.facts.may_fail |= other.is_fallible();
        if self.columns != other.columns {
            self.columns.extend(&other.columns);
            self.columns.sort_unstable();
            self.columns.dedup();
        }
        if let Node::And(parts) = &mut self.node {
            let place = parts.partition_point(|part| !part.is_fallible() || other.is_fallible());
            parts.insert(place, other);
        }
    }

    /// Returns the type of the values.
    pub(crate) fn data_type(&self) -> &DataType {
        &self.facts.data_type
    }

    /// Returns the columns that the expression reads, sorted.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns the column, if the expression is only a column reference; otherwise `None`.
    pub(crate) fn as_column(&self) -> Option<usize> {
        match self.node {
            Node::Column(index) => Some(index),
            _ => None,
        }
    }

    /// Returns whether evaluation may fail for some values, for example by overflow.
    pub(crate) fn is_fallible(&self) -> bool {
        self.facts.may_fail
    }
}

/// Converts `literal` to an array of length one.
#[cfg(test)]
pub(crate) fn scalar_of(literal: &farpool_model::Literal) -> Result<ArrayRef> {
    scalar::of_literal(literal)
}

/// Creates the node of `expr` from its compiled children, which are in the order of [`Expr::children`].
fn node_of(expr: &Expr, children: Vec<Compiled>, overflow: Overflow) -> Result<Node> {
    Ok(match expr {
        Expr::Column(index) => Node::Column(*index),
        Expr::Literal(literal) => Node::Literal(scalar::of_literal(literal)?),
        Expr::And(_) => Node::And(infallible_first(children)),
        Expr::Or(_) => Node::Or(infallible_first(children)),
        Expr::InFilter(_, filter) => Node::InFilter(children, filter.clone()),
        Expr::Case { branches, otherwise } => case_of(children, branches.len(), otherwise.is_some())?,
        Expr::Compare(op, ..) => {
            let [left, right] = boxed(children)?;
            Node::Compare(*op, left, right)
        }
        Expr::Arithmetic(op, ..) => {
            let [left, right] = boxed(children)?;
            Node::Arithmetic(*op, left, right, overflow)
        }
        Expr::Opaque { reason, .. } => return Err(Error::invalid(reason.clone())),
        of_one => {
            let [value] = boxed(children)?;
            node_of_one(of_one, value, overflow)?
        }
    })
}

fn node_of_one(expr: &Expr, value: Box<Compiled>, overflow: Overflow) -> Result<Node> {
    Ok(match expr {
        Expr::Not(_) => Node::Not(value),
        Expr::IsNull(_) => Node::IsNull(value),
        Expr::Negate(_) => Node::Negate(value, overflow),
        Expr::Extract(part, _) => Node::Extract(*part, value),
        Expr::InList(_, list) => Node::InList(value, Members::new(list)),
        Expr::InSet(_, set) => Node::InList(value, Members::of_set(set)),
        Expr::Like { pattern, case_insensitive, .. } => match LikePieces::of(pattern) {
            Some(pieces) if !case_insensitive => Node::Pieces(value, pieces),
            _ => Node::Regex(value, Pattern::like(pattern, *case_insensitive)?),
        },
        Expr::Regex { pattern, .. } => Node::Regex(value, pattern.clone()),
        Expr::Cast(_, to) if arrow_cast::can_cast_types(value.data_type(), to) => Node::Cast(value),
        Expr::Cast(_, to) => {
            return Err(Error::invalid(format!("{} cannot be cast to {to}", value.data_type())));
        }
        _ => return Err(Error::internal("a node with more than one child")),
    })
}

fn case_of(children: Vec<Compiled>, branches: usize, otherwise: bool) -> Result<Node> {
    let wrong = || Error::internal("a CASE with other parts than its own");
    let mut parts = children.into_iter();
    let pair = |_| parts.next().zip(parts.next()).ok_or_else(wrong);
    let branches = (0..branches).map(pair).collect::<Result<_>>()?;
    let otherwise = if otherwise { Some(Box::new(parts.next().ok_or_else(wrong)?)) } else { None };
    Ok(Node::Case { branches, otherwise })
}

fn boxed<const COUNT: usize>(children: Vec<Compiled>) -> Result<[Box<Compiled>; COUNT]> {
    let children: Vec<Box<Compiled>> = children.into_iter().map(Box::new).collect();
    children.try_into().map_err(|_| Error::internal("a node with other children than its own"))
}

/// Moves the operands that may fail behind the others, and otherwise keeps their order.
fn infallible_first(mut parts: Vec<Compiled>) -> Vec<Compiled> {
    parts.sort_by_key(Compiled::is_fallible);
    parts
}
