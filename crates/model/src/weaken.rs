//! Weakening of a filter of which some parts cannot run at the node. The weaker condition passes every row that the
//! filter passes, and perhaps others, which the host then filters out (Woods et al., *Ibex*, PVLDB 2014, section 5.1:
//! partial filtering).
//!
//! Invariant: for every row, if the filter is true then the condition that [`weaken`] returns is true.

use crate::Expr;

/// The part of a filter that can run at the node.
#[derive(Clone, Debug, PartialEq)]
pub enum Weakened {
    /// The whole filter can run.
    Exact(Expr),
    /// A weaker condition, and the reason why the whole filter cannot run.
    Superset(Expr, String),
    /// No part of the filter can run; has the reason.
    Refused(String),
}

/// Removes the [`Expr::Opaque`] parts of `filter` such that the result is implied by it: conjuncts that contain an
/// opaque part are dropped, a disjunction is kept if a weaker form of each branch is known, and below a NOT the rules
/// for AND and OR are swapped.
pub fn weaken(filter: &Expr) -> Weakened {
    let Some(reason) = filter.opaque_reason() else {
        return Weakened::Exact(filter.clone());
    };
    match implied(filter, false) {
        Some(weaker) => Weakened::Superset(weaker, reason.to_string()),
        None => Weakened::Refused(reason.to_string()),
    }
}

/// Returns a condition that is true for every row for which `expr` (its negation if `negated`) is true; `None` if that
/// is every row.
fn implied(expr: &Expr, negated: bool) -> Option<Expr> {
    match expr {
        Expr::Not(inner) => implied(inner, !negated),
        Expr::And(parts) if !negated => Expr::all(parts.iter().filter_map(|p| implied(p, false)).collect()),
        Expr::Or(parts) if negated => Expr::all(parts.iter().filter_map(|p| implied(p, true)).collect()),
        Expr::And(parts) | Expr::Or(parts) => {
            let branches: Option<Vec<Expr>> = parts.iter().map(|p| implied(p, negated)).collect();
            branches.map(|mut b| if b.len() == 1 { b.swap_remove(0) } else { Expr::Or(b) })
        }
        _ if expr.opaque_reason().is_some() => None,
        _ if negated => Some(Expr::not(expr.clone())),
        _ => Some(expr.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opaque() -> Expr {
        Expr::opaque("f", Vec::new())
    }

    fn column(i: usize) -> Expr {
        Expr::Column(i)
    }

    #[test]
    fn a_filter_without_opaque_parts_stays_as_it_is() {
        let filter = Expr::Or(vec![column(0), Expr::not(column(1))]);
        assert_eq!(weaken(&filter), Weakened::Exact(filter.clone()));
    }

    #[test]
    fn opaque_conjuncts_are_dropped() {
        let filter = Expr::And(vec![column(0), opaque()]);
        assert_eq!(weaken(&filter), Weakened::Superset(column(0), "f".into()));
    }

    #[test]
    fn a_disjunction_survives_only_if_every_branch_does() {
        let filter =
            Expr::Or(vec![Expr::And(vec![column(0), opaque()]), Expr::And(vec![column(1), opaque()])]);
        assert_eq!(weaken(&filter), Weakened::Superset(Expr::Or(vec![column(0), column(1)]), "f".into()));
        assert_eq!(weaken(&Expr::Or(vec![column(0), opaque()])), Weakened::Refused("f".into()));
    }

    #[test]
    fn below_a_not_and_and_or_change_places() {
        let filter = Expr::not(Expr::Or(vec![column(0), opaque()]));
        assert_eq!(weaken(&filter), Weakened::Superset(Expr::not(column(0)), "f".into()));
        let filter = Expr::not(Expr::And(vec![column(0), opaque()]));
        assert_eq!(weaken(&filter), Weakened::Refused("f".into()));
    }
}
