//! The threshold of a top-k, shared by the workers of one run: rows that come after it need not be kept.
//!
//! Invariant: once a threshold is set, some worker holds k rows none of which comes after it in the first
//! key, so the condition drops no row of the result. The threshold only ever moves towards the front of the
//! order.

use crate::select::Filter;
use arrow_schema::Schema;
use farpool_model::{CompareOp, Expr, Literal, Result, SortKey, Value};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::sync::Arc;

/// The threshold of one run: the best k-th row that a worker has found, as a condition on the first key.
#[derive(Debug, Default)]
pub(crate) struct Threshold {
    worst: Mutex<Option<Worst>>,
}

#[derive(Debug)]
struct Worst {
    value: Literal,
    wanted: Option<Arc<Filter>>,
}

/// The first key of an order.
#[derive(Debug)]
pub(super) struct FirstKey {
    pub(super) expr: Expr,
    pub(super) key: SortKey,
    /// Whether the order has no other key, so that ties need not be kept.
    pub(super) alone: bool,
}

impl Threshold {
    /// Returns the condition that rows of the result fulfil; `None` if there is no threshold yet, or it
    /// excludes nothing.
    pub(crate) fn wanted(&self) -> Option<Arc<Filter>> {
        self.worst.lock().as_ref()?.wanted.clone()
    }

    /// Returns some worker holds k rows, the last of which has `value` in the first key.
    ///
    /// # Errors
    /// Fails only on a bug in this crate: the condition is well typed if the key is.
    pub(super) fn offer(&self, first: &FirstKey, value: Literal, table_schema: &Schema) -> Result<()> {
        let mut worst = self.worst.lock();
        if worst.as_ref().is_some_and(|known| first.order(&value, &known.value) != Ordering::Less) {
            return Ok(());
        }
        let wanted = first.wanted(&value)?;
        let wanted = wanted.map(|expr| Filter::new(&expr, table_schema)).transpose()?.map(Arc::new);
        *worst = Some(Worst { value, wanted });
        Ok(())
    }
}

impl FirstKey {
    /// Compares two values of the key in the order.
    pub(super) fn order(&self, a: &Literal, b: &Literal) -> Ordering {
        self.key.compare((a.is_null(), b.is_null()), || a.compare(b).unwrap_or(Ordering::Equal))
    }

    /// Returns a condition that holds at least for every row that can come before one with `worst`; `None` if
    /// any row can.
    fn wanted(&self, worst: &Literal) -> Result<Option<Expr>> {
        let is_null = || Expr::IsNull(Box::new(self.expr.clone()));
        // Without another key, ties need not be kept. But comparisons take -0.0 for 0.0, sorts do not.
        let strict = self.alone && !worst.data_type().is_floating();
        if worst.is_null() {
            return Ok(match (self.key.nulls_first, strict) {
                (true, true) => {
                    Some(Expr::Literal(Literal::new(Value::Bool(false), arrow_schema::DataType::Boolean)?))
                }
                (true, false) => Some(is_null()),
                (false, true) => Some(Expr::not(is_null())),
                (false, false) => None,
            });
        }
        let op = match (self.key.descending, strict) {
            (false, true) => CompareOp::Lt,
            (false, false) => CompareOp::LtEq,
            (true, true) => CompareOp::Gt,
            (true, false) => CompareOp::GtEq,
        };
        let before = Expr::compare(op, self.expr.clone(), Expr::Literal(worst.clone()));
        Ok(Some(if self.key.nulls_first { Expr::Or(vec![is_null(), before]) } else { before }))
    }
}
