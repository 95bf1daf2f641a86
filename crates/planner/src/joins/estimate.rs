//! Estimates the rows of a part of a query plan, and the distinct values of its columns. The same formulas serve
//! logical plans, for the order of joins, and physical plans, for the choice of build sides.
//!
//! Distinct values are those of a column before any filter. DataFusion's own statistics have only the values left after
//! filters, and take the larger number of the two sides of a join as the domain. If both sides were filtered, each row
//! then seems to find a match (TPC-H Q7: ten times too many rows, and the wrong build side for its largest join).
//!
//! Invariant: estimates decide where and in which order work is done, never the result.

use super::sizes::{self, Origin, Source};
use super::{Side, share, share_matched};
use crate::estimate;
use crate::rows::Rows;
use farpool_model::{Expr, NamedExpr, Output, Program};

/// Assumed selectivity of a condition that the engine evaluates and of which nothing is known.
pub const HERE_SELECTIVITY: f64 = 0.25;

/// Minimum fraction of rows that an anti-join (NOT EXISTS) is assumed to keep. Reason: such a query is seldom written
/// if all rows have a match.
const ANTI_SELECTIVITY_MIN: f64 = 0.1;

/// Maximum number of table columns that are remembered as equal to a column. Reason: with each join of many tables on
/// one key, their number would double.
const ORIGINS: usize = 16;

/// Kind of a join: which rows of its two sides it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs of rows that match.
    Inner,
    /// Pairs of rows that match, and rows of the left side without a match.
    Left,
    /// Pairs of rows that match, and rows of the right side without a match.
    Right,
    /// Pairs of rows that match, and rows of either side without a match.
    Full,
    /// Rows of the left side with a match.
    LeftSemi,
    /// Rows of the right side with a match.
    RightSemi,
    /// Rows of the left side without a match.
    LeftAnti,
    /// Rows of the right side without a match.
    RightAnti,
    /// Rows of the left side, and whether each has a match.
    LeftMark,
    /// Rows of the right side, and whether each has a match.
    RightMark,
}

/// Estimated rows of a part of a plan, and properties of its columns.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Estimated number of rows, at least 1.
    pub rows: f64,
    /// Number of rows that there would be without filters; after joins, that of the largest table.
    pub rows_unfiltered: f64,
    /// The columns of the part, in order.
    pub columns: Vec<Known>,
}

/// Facts that are known of a column of a plan.
#[derive(Clone, Debug)]
pub struct Known {
    /// Number of distinct values before any filter.
    pub distinct: f64,
    /// The table column whose values these are, with the same relative frequencies; then the columns that it has been
    /// joined to. Empty if the values come from no table column.
    pub origins: Vec<Origin>,
}

impl Known {
    /// Creates a column with this number of distinct values that comes from no table column.
    pub fn new(distinct: f64) -> Self {
        Known { distinct, origins: Vec::new() }
    }

    /// Creates a column of a table.
    pub fn of_table(table: &Source, column: usize) -> Self {
        let distinct = estimate::distinct_values(&Expr::Column(column), &table.info);
        Known { distinct, origins: vec![Origin { table: table.clone(), column }] }
    }

    /// Records that an inner join of `key` with `other` has made the two columns equal.
    fn joined_to(&mut self, key: &Known, other: &Known) {
        if let (Some(ours), Some(theirs)) = (self.origins.first(), key.origins.first())
            && ours.is(theirs)
        {
            let new = other.origins.iter().filter(|other| !self.origins.iter().any(|own| own.is(other)));
            let new: Vec<Origin> = new.take(ORIGINS - self.origins.len().min(ORIGINS)).cloned().collect();
            self.origins.extend(new);
        }
    }
}

impl Estimate {
    /// Creates an estimate of `rows` rows, with columns of which nothing is known.
    pub fn of_rows(rows: f64, columns: usize) -> Self {
        let rows = rows.max(1.0);
        Estimate { rows, rows_unfiltered: rows, columns: vec![Known::new(rows); columns] }
    }

    /// Estimates the result of a program over `rows`.
    pub fn of_program(program: &Program, rows: &Rows) -> Self {
        let info = &*rows.info;
        let column = |named: &NamedExpr| match named.expr {
            Expr::Column(index) => rows.known(index),
            ref other => Known::new(estimate::distinct_values(other, info)),
        };
        let (all, rows) = (rows.rows_unfiltered(), estimate::rows(program, info).max(1.0));
        match &program.output {
            Output::Rows(outputs) => {
                Estimate { rows, rows_unfiltered: all, columns: outputs.iter().map(column).collect() }
            }
            Output::Aggregate { keys, aggregates } => {
                let groups = estimate::groups(keys.iter().map(|k| &k.expr), None, all, info);
                let ungrouped = Estimate { rows, rows_unfiltered: all, columns: Vec::new() };
                let keys = keys.iter().map(column).collect();
                Estimate { rows, rows_unfiltered: groups, ..ungrouped.grouped(keys, aggregates.len()) }
            }
        }
    }

    /// Returns a single column that stands for the combinations of values of several columns.
    pub fn together<'a>(&self, columns: impl Iterator<Item = &'a Known>) -> Known {
        Known::new(columns.map(|c| c.distinct).product::<f64>().min(self.rows_unfiltered).max(1.0))
    }

    /// Returns the estimate after a condition that keeps the fraction `share` of the rows.
    pub fn filtered(self, share: f64) -> Self {
        Estimate { rows: (self.rows * share).max(1.0), ..self }
    }

    /// Returns the estimate after grouping by the group keys `keys`; the result has `results` more columns.
    pub fn grouped(&self, keys: Vec<Known>, results: usize) -> Self {
        let domain = keys.iter().map(|k| k.distinct).product::<f64>().max(1.0);
        let groups = |rows: f64| estimate::distinct_met(domain, rows).clamp(1.0, rows.max(1.0));
        let (rows, rows_unfiltered) = (groups(self.rows), groups(self.rows_unfiltered));
        // After grouping, each combination of group keys occurs once, so that the frequencies of the table no longer
        // hold.
        let keys = keys.into_iter().map(|key| Known { origins: Vec::new(), ..key });
        let results = std::iter::repeat_n(Known::new(rows_unfiltered), results);
        Estimate { rows, rows_unfiltered, columns: keys.chain(results).collect() }
    }

    /// Returns the estimate for a join of two parts on pairs of join keys; `filtered` tells whether there is
    /// another join condition.
    pub fn joined(left: Self, right: Self, keys: &[(Known, Known)], kind: JoinKind, filtered: bool) -> Self {
        let here = if filtered { HERE_SELECTIVITY } else { 1.0 };
        let inner = (left.rows * right.rows * pairs_matched(keys, &left, &right) * here).max(1.0);
        let rows = match kind {
            JoinKind::Inner => inner,
            JoinKind::Left => inner.max(left.rows),
            JoinKind::Right => inner.max(right.rows),
            JoinKind::Full => inner.max(left.rows).max(right.rows),
            JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => {
                return left.semi_joined(&right, keys.iter().map(|(l, r)| (l, r)), kind, here);
            }
            JoinKind::RightSemi | JoinKind::RightAnti | JoinKind::RightMark => {
                return right.semi_joined(&left, keys.iter().map(|(l, r)| (r, l)), kind, here);
            }
        };
        let rows_unfiltered = left.rows_unfiltered.max(right.rows_unfiltered);
        let mut columns = [left.columns, right.columns].concat();
        if kind == JoinKind::Inner {
            for column in &mut columns {
                keys.iter().for_each(|(l, r)| column.joined_to(l, r));
                keys.iter().for_each(|(l, r)| column.joined_to(r, l));
            }
        }
        Estimate { rows, rows_unfiltered, columns }
    }

    fn semi_joined<'a>(
        mut self,
        other: &Self,
        keys: impl Iterator<Item = (&'a Known, &'a Known)>,
        kind: JoinKind,
        here: f64,
    ) -> Self {
        let (ours, theirs): (Vec<&Known>, Vec<&Known>) = keys.unzip();
        let (ours, theirs) = (self.together(ours.into_iter()), other.together(theirs.into_iter()));
        // A row is kept if one of its matches satisfies the other condition.
        let each = (other.rows / estimate::distinct_met(theirs.distinct, other.rows).max(1.0)).max(1.0);
        let here = 1.0 - (1.0 - here).powf(each);
        let matched = share_matched(ours.distinct, theirs.distinct, other.rows) * here;
        match kind {
            JoinKind::LeftMark | JoinKind::RightMark => {
                self.columns.push(Known::new(2.0));
                self
            }
            JoinKind::LeftAnti | JoinKind::RightAnti => {
                self.filtered((1.0 - matched).max(ANTI_SELECTIVITY_MIN))
            }
            _ => self.filtered(matched),
        }
    }
}

/// Returns the fraction of all pairs of rows that match on the join keys `keys`.
fn pairs_matched(keys: &[(Known, Known)], left: &Estimate, right: &Estimate) -> f64 {
    let distinct: Vec<(f64, f64)> = keys.iter().map(|(l, r)| (l.distinct, r.distinct)).collect();
    let guess =
        share(&distinct, side(left, keys.iter().map(|k| &k.0)), side(right, keys.iter().map(|k| &k.1)));
    let [(left, right)] = keys else { return guess };
    let known = left.origins.iter().flat_map(|l| right.origins.iter().filter_map(|r| sizes::share(l, r)));
    // If sketches give fractions for several pairs of columns, the largest is used, because it is the pair in which
    // frequent values match each other.
    known.map(|share| share.refine(guess)).reduce(f64::max).unwrap_or(guess)
}

fn side<'a>(estimate: &Estimate, keys: impl Iterator<Item = &'a Known> + Clone) -> Side {
    let mut all = keys.clone().map(|key| key.origins.as_slice());
    let first = all.next().unwrap_or_default();
    let has_all = |table: &Source| keys.clone().all(|key| key.origins.iter().any(|o| o.table.is(table)));
    let known = keys.clone().all(|key| !key.origins.is_empty());
    let apart = known && !first.iter().any(|origin| has_all(&origin.table));
    Side { rows: estimate.rows_unfiltered, apart }
}
