//! Decides a filter for a whole row group by its zone maps (the minimum, maximum and NULL count of each column).
//!
//! Invariant: the verdict is `None` only if no row can pass, and `All` only if every row passes; a row for which the
//! filter is NULL does not pass. For each predicate, the set of outcomes that its rows may have is computed. The set
//! may contain outcomes that no row has, but lacks none that a row has.

use super::compile::{Filter, Form, Leaf, Predicate, ZoneTest};
use crate::Verdict;
use farpool_columns::{RowGroup, ZoneMap};
use farpool_model::{CompareOp, Literal, Value};
use std::cmp::Ordering;

/// Truth values that a predicate may have for the rows of a row group.
#[derive(Clone, Copy, Debug)]
struct Outcomes {
    yes: bool,
    no: bool,
    null: bool,
}

const ANY: Outcomes = Outcomes { yes: true, no: true, null: true };

impl Filter {
    /// Returns whether all, some or no rows of `group` can pass the filter, according to its zone maps.
    pub(crate) fn verdict(&self, group: &RowGroup) -> Verdict {
        let outcomes = outcomes(&self.root, group);
        match outcomes {
            Outcomes { yes: false, .. } => Verdict::None,
            Outcomes { no: false, null: false, .. } => Verdict::All,
            _ => Verdict::Some,
        }
    }
}

fn outcomes(predicate: &Predicate, group: &RowGroup) -> Outcomes {
    match predicate {
        Predicate::Known(value) => {
            Outcomes { yes: *value == Some(true), no: *value == Some(false), null: value.is_none() }
        }
        Predicate::And(of) => {
            let parts = of.parts.iter().map(|p| outcomes(p, group));
            parts.fold(Outcomes { yes: true, no: false, null: false }, |a, b| Outcomes {
                yes: a.yes && b.yes,
                no: a.no || b.no,
                null: a.null || b.null,
            })
        }
        Predicate::Or(of) => {
            let parts = of.parts.iter().map(|p| outcomes(p, group));
            parts.fold(Outcomes { yes: false, no: true, null: false }, |a, b| Outcomes {
                yes: a.yes || b.yes,
                no: a.no && b.no,
                null: a.null || b.null,
            })
        }
        Predicate::Not(inner) => {
            let inner = outcomes(inner, group);
            Outcomes { yes: inner.no, no: inner.yes, null: inner.null }
        }
        Predicate::IsNull(column) => {
            let nulls = group.chunks[*column].null_count();
            Outcomes { yes: nulls > 0, no: nulls < group.rows, null: false }
        }
        Predicate::Leaf(leaf) => of_leaf(leaf, group),
    }
}

fn of_leaf(leaf: &Leaf, group: &RowGroup) -> Outcomes {
    if let Form::Range { column, low, high } = leaf.form {
        let zone = group.chunks[column].zone();
        return on_values(&zone, group.rows, |min, max| {
            let (min, max) = (min.as_int()?, max.as_int()?);
            Some((low <= high && low <= max && min <= high, !(low <= min && max <= high)))
        });
    }
    match &leaf.zone {
        Some(ZoneTest::Compare { column, op, literal }) => {
            let zone = group.chunks[*column].zone();
            on_values(&zone, group.rows, |min, max| compare(*op, min, max, literal))
        }
        Some(ZoneTest::Members { column, min: least, max: greatest }) => {
            let zone = group.chunks[*column].zone();
            on_values(&zone, group.rows, |min, max| {
                let apart = max.compare(least)? == Ordering::Less || greatest.compare(min)? == Ordering::Less;
                let one = min.compare(max)? == Ordering::Equal && least.compare(greatest)? == Ordering::Equal;
                Some((!apart, apart || !one))
            })
        }
        None => ANY,
    }
}

/// Returns the outcomes of a condition that is NULL for NULL. `says` gets the least and the greatest value of a
/// column, and returns whether the condition may be true, and whether it may be false, for values between them.
fn on_values(
    zone: &ZoneMap,
    rows: usize,
    says: impl FnOnce(&Literal, &Literal) -> Option<(bool, bool)>,
) -> Outcomes {
    let null = zone.null_count > 0;
    if zone.null_count == rows {
        return Outcomes { yes: false, no: false, null };
    }
    let (Some(min), Some(max)) = (&zone.min, &zone.max) else {
        return Outcomes { null, ..ANY };
    };
    match says(&with_zero(min, -0.0), &with_zero(max, 0.0)) {
        Some((yes, no)) => Outcomes { yes, no, null },
        None => Outcomes { null, ..ANY },
    }
}

/// Replaces a minimum or maximum that is zero by `zero`. A zone map may have -0.0 in place of 0.0 or the reverse, which
/// [`Literal::compare`] distinguishes.
fn with_zero(bound: &Literal, zero: f64) -> Literal {
    match bound.value() {
        Value::Float(v) if *v == 0.0 => {
            Literal::new(Value::Float(zero), bound.data_type().clone()).unwrap_or_else(|_| bound.clone())
        }
        _ => bound.clone(),
    }
}

/// Returns whether `v op literal` may be true, and whether it may be false, for values `v` between `min` and `max`.
fn compare(op: CompareOp, min: &Literal, max: &Literal, literal: &Literal) -> Option<(bool, bool)> {
    use Ordering::{Equal, Greater, Less};
    let (low, high) = (min.compare(literal)?, max.compare(literal)?);
    Some(match op {
        CompareOp::Eq => (low != Greater && high != Less, !(low == Equal && high == Equal)),
        CompareOp::NotEq => (!(low == Equal && high == Equal), low != Greater && high != Less),
        CompareOp::Lt => (low == Less, high != Less),
        CompareOp::LtEq => (low != Greater, high == Greater),
        CompareOp::Gt => (high == Greater, low != Greater),
        CompareOp::GtEq => (high != Less, low == Less),
    })
}
