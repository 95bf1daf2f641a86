//! Compiles integer expressions to *lanes*: nodes that are evaluated as 64-bit integers. Equal sub-expressions
//! share a node.

use arrow_schema::{DataType, Schema};
use farpool_model::literal::integer_range;
use farpool_model::{ArithmeticOp, DatePart, Expr, limits, schema};
use std::collections::HashMap;

/// Index of a node. Operands have smaller indices than the operations that use them.
pub(crate) type LaneId = usize;

/// Nodes of all integer expressions of a plan. Equal sub-expressions are one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes {
    pub(super) nodes: Vec<Lane>,
    places: HashMap<Lane, LaneId>,
}

/// An operation, and the range of its results for which it cannot overflow in the type of the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    pub(super) op: LaneOp,
    pub(super) range: (i128, i128),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LaneOp {
    Column(usize),
    Constant(i128),
    Add(LaneId, LaneId),
    Subtract(LaneId, LaneId),
    Multiply(LaneId, LaneId),
    Negate(LaneId),
    /// A part of a time that counts this many units per day.
    Extract(DatePart, i64, LaneId),
}

const ANY: (i128, i128) = (i128::MIN, i128::MAX);

impl Lanes {
    /// Adds `expr`, which must be well typed over `schema`, and returns its node; `None` if it cannot be evaluated as a
    /// lane.
    pub(crate) fn add(&mut self, expr: &Expr, schema: &Schema) -> Option<LaneId> {
        let data_type = expr.data_type(schema).ok()?;
        if !schema::is_integer_like(&data_type) {
            return None;
        }
        match expr {
            Expr::Column(index) => self.node(LaneOp::Column(*index), ANY),
            Expr::Literal(literal) => self.node(LaneOp::Constant(literal.as_int()?), ANY),
            Expr::Negate(e) => {
                let inner = self.add(e, schema)?;
                self.node(LaneOp::Negate(inner), integer_range(&data_type)?)
            }
            Expr::Extract(part, e) => {
                let units_per_day = DatePart::units_per_day(&e.data_type(schema).ok()?)?;
                let inner = self.add(e, schema)?;
                self.node(LaneOp::Extract(*part, units_per_day, inner), ANY)
            }
            Expr::Arithmetic(op, l, r) => self.arithmetic(*op, l, r, &data_type, schema),
            Expr::Cast(e, to) => {
                let from = e.data_type(schema).ok()?;
                let inner = self.add(e, schema)?;
                self.cast(inner, &from, to)
            }
            _ => None,
        }
    }

    fn arithmetic(
        &mut self,
        op: ArithmeticOp,
        left: &Expr,
        right: &Expr,
        result: &DataType,
        schema: &Schema,
    ) -> Option<LaneId> {
        let scale_of = |e: &Expr| e.data_type(schema).ok().map(|t| scale(&t));
        let (left_scale, right_scale) = (scale_of(left)?, scale_of(right)?);
        let (mut l, mut r) = (self.add(left, schema)?, self.add(right, schema)?);
        let range = integer_range(result)?;
        if op != ArithmeticOp::Multiply {
            let common = left_scale.max(right_scale);
            l = self.rescale(l, common - left_scale)?;
            r = self.rescale(r, common - right_scale)?;
        }
        let op = match op {
            ArithmeticOp::Add => LaneOp::Add(l, r),
            ArithmeticOp::Subtract => LaneOp::Subtract(l, r),
            ArithmeticOp::Multiply => LaneOp::Multiply(l, r),
            ArithmeticOp::Divide | ArithmeticOp::Modulo => return None,
        };
        self.node(op, range)
    }

    /// Adds a cast that does not change the value: between integers, from integers to decimals, or to decimals of a
    /// larger scale. Returns `None` for other casts.
    fn cast(&mut self, inner: LaneId, from: &DataType, to: &DataType) -> Option<LaneId> {
        let number = |t: &DataType| t.is_integer() || matches!(t, DataType::Decimal128(..));
        if !number(from) || !number(to) || (to.is_integer() && !from.is_integer()) {
            return None;
        }
        let range = match to {
            DataType::Decimal128(precision, _) => {
                let bound = 10_i128.checked_pow(u32::from(*precision))? - 1;
                (-bound, bound)
            }
            _ => integer_range(to)?,
        };
        let power = ten_to(scale(to) - scale(from))?;
        let factor = self.node(LaneOp::Constant(power), ANY)?;
        self.node(LaneOp::Multiply(inner, factor), range)
    }

    fn rescale(&mut self, inner: LaneId, digits: i16) -> Option<LaneId> {
        if digits == 0 {
            return Some(inner);
        }
        let factor = self.node(LaneOp::Constant(ten_to(digits)?), ANY)?;
        self.node(LaneOp::Multiply(inner, factor), ANY)
    }

    /// Returns the node of an operation; adds it if it is new. Returns `None` if there are too many nodes.
    fn node(&mut self, op: LaneOp, range: (i128, i128)) -> Option<LaneId> {
        let lane = Lane { op, range };
        if let Some(known) = self.places.get(&lane) {
            return Some(*known);
        }
        let place = self.nodes.len();
        if place == limits::LANES_MAX {
            return None;
        }
        self.nodes.push(lane);
        self.places.insert(lane, place);
        Some(place)
    }
}

fn scale(data_type: &DataType) -> i16 {
    match data_type {
        DataType::Decimal128(_, scale) => i16::from(*scale),
        _ => 0,
    }
}

fn ten_to(digits: i16) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(digits).ok()?)
}
