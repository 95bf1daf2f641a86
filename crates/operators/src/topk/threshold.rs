//! The threshold of a top-k (`ORDER BY … LIMIT k`): a value of the first sort key, shared by the workers of one
//! execution. Rows that sort behind it need not be kept.
//!
//! Invariant: if there is a threshold, some worker holds k rows, none of which sorts behind it by the first sort key.
//! So the condition drops no row of the result. A threshold is only ever replaced by a value that comes earlier in
//! the sort order.

use crate::select::Filter;
use arrow_schema::Schema;
use farpool_model::{CompareOp, Expr, Literal, Result, SortKey, Value};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::sync::Arc;

/// The threshold of one execution: the best k-th row that a worker has found, as its value of the first sort key, and
/// a condition that is false for rows which sort behind that value.
#[derive(Debug, Default)]
pub(crate) struct Threshold {
    worst: Mutex<Option<Worst>>,
}

#[derive(Debug)]
struct Worst {
    value: Literal,
    wanted: Option<Arc<Filter>>,
}

/// The first sort key of the ORDER BY.
#[derive(Debug)]
pub(super) struct FirstKey {
    pub(super) expr: Expr,
    pub(super) key: SortKey,
    /// Whether there are no further sort keys. Then rows that tie with the threshold need not be kept.
    pub(super) alone: bool,
}

impl Threshold {
    /// Returns a condition that all rows of the result fulfil; `None` if there is no threshold yet, or it excludes no
    /// rows.
    pub(crate) fn wanted(&self) -> Option<Arc<Filter>> {
        self.worst.lock().as_ref()?.wanted.clone()
    }

    /// Reports that a worker holds k rows, the last of which has `value` in the first sort key. Lowers the threshold to
    /// `value` if that comes before it.
    ///
    /// # Errors
    /// Fails only on a bug in this crate, since the condition is well typed if the sort key is.
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
    /// Compares two values of the first sort key in ORDER BY order, with its direction and placement of NULLs: `Less`
    /// means that `a` comes first.
    pub(super) fn order(&self, a: &Literal, b: &Literal) -> Ordering {
        self.key.compare((a.is_null(), b.is_null()), || a.compare(b).unwrap_or(Ordering::Equal))
    }

    /// Returns a condition on the first sort key that holds for every row which may sort before a row with `worst`; it
    /// may hold for other rows too. Returns `None` if every row may.
    fn wanted(&self, worst: &Literal) -> Result<Option<Expr>> {
        let is_null = || Expr::IsNull(Box::new(self.expr.clone()));
        // With a single sort key, ties need not be kept, except ties of floats: comparisons take -0.0 as equal to
        // 0.0, while the sort order does not.
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
