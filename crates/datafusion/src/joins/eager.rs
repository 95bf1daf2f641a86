//! Eager aggregation: the rows of one side of a join are grouped before they are joined, by what the join and the GROUP BY
//! above it read of them; the groups are joined, and grouped again (Yan, Larson: "Eager Aggregation and Lazy
//! Aggregation", VLDB 1995, the form "eager group-by"; Woods et al., *Ibex*, VLDB 2014, section 5). The pool then joins
//! or sends groups in place of rows. Where each joined row is a group of the statement, they are not grouped again (the
//! full form).
//!
//! ```text
//! SELECT d.name, sum(f.x) FROM f JOIN d ON f.k = d.k GROUP BY d.name
//! SELECT d.name, sum(g.s) FROM (SELECT k, sum(x) AS s FROM f GROUP BY k) g JOIN d ON g.k = d.k GROUP BY d.name
//! ```
//!
//! Why the result is the same: all rows of an early group have the same values in every expression that the join and the
//! group keys read, so that they have the same matches, and fall into the same groups. The aggregates must be such that
//! the result of a group follows from those of its parts: COUNT, SUM, MIN, MAX and the like of one side's columns, and
//! COUNT of all rows.
//!
//! - NULLs: a join key that is NULL is a group key like others, and matches nothing. Where a row of the other side has no
//!   match, the early group's columns are NULL, which sums, minima and maxima ignore as they do for rows; counts of all
//!   rows count such a row once. What is computed of columns must be NULL, too, where these are: not `x IS NULL`.
//! - Duplicates: each match of an early group stands for one match of each of its rows. In the full form, an early group has
//!   one match at most, because the other side has each join key once, as its own groups do; and the group keys tell early
//!   groups apart, because they have all that was read of the side.
//! - Floats are not join keys or group keys here, because values that are equal may be different.
//! - Errors: nothing is computed early that may fail, because it could fail on a row without a match. A part of an exact
//!   sum must not leave the range of the type where the whole does not.

use super::{has_columns, is_column, logical};
use crate::calls::never_null;
use crate::fragment::Fragment;
use crate::order::{SortedPiece, through};
use crate::table::PoolTable;
use arrow_schema::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction as Call;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr as Logical, ExprSchemable, Join, LogicalPlan, Operator, Projection, cast,
    lit, when,
};
use farpool_model::{self as model, Accumulation, AggregateFunction, Columns, Facts, Output};
use farpool_planner::cost::{self, Rates};
use farpool_planner::joins::eager;
use farpool_planner::split;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum precision of decimals that are summed early. Reason: a sum has 10 digits more, and the sum of sums 10 more
/// again, of 38.
const DECIMAL_DIGITS_SUMMED: u8 = 18;

/// Returns the plan with rows grouped before they are joined where that is estimated to pay. `threads` are those of the
/// engine.
pub(crate) fn aggregated(
    plan: LogicalPlan,
    rates: &Rates,
    threads: usize,
) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| {
        // The pool returns the first groups alone if the whole statement is one program.
        if is_cut_at_the_pool(&node) {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
        for of_left in [true, false] {
            if let Some(early) = Early::of(aggregate, of_left)
                && let Some(grouped) = early.grouped()
                && let Ok(whole) = early.whole(grouped.clone())
                && pays(&early, &grouped, &whole, rates, threads)
            {
                let named = early.named(whole)?;
                return Ok(Transformed::yes(named));
            }
        }
        Ok(Transformed::no(node))
    })
}

/// Returns whether a program can limit the groups of the statement below `node`.
fn is_cut_at_the_pool(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Sort(sort) => SortedPiece::read(sort).is_ok(),
        LogicalPlan::Limit(_) => Fragment::read(node).is_ok(),
        _ => false,
    }
}

/// An aggregation above a join, of which one side can be grouped first.
struct Early<'a> {
    aggregate: &'a Aggregate,
    join: &'a Join,
    of_left: bool,
    /// The group keys, over the columns of the join.
    keys: Vec<Logical>,
    /// The aggregates, over the columns of the join.
    calls: Vec<Call>,
    /// The parts of each aggregate.
    parts: Vec<Part>,
}

/// The way in which an aggregate follows from its parts, the aggregates of early groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The aggregate of the parts by the same function: of sums, minima, maxima and the like.
    Same,
    /// The sum of counts.
    Count,
    /// The sum of counts of all rows, where a row of the other side without a match counts once.
    CountOfAll,
    /// There are no parts: duplicates do not change a minimum or a maximum of the other side's columns.
    OfOther,
}

impl<'a> Early<'a> {
    fn of(aggregate: &'a Aggregate, of_left: bool) -> Option<Self> {
        let (keys, calls) = (aggregate.group_expr.clone(), aggregate.aggr_expr.clone());
        let (mut exprs, mut input) = ([keys, calls].concat(), &*aggregate.input);
        let join = loop {
            match input {
                LogicalPlan::Projection(projection) => {
                    let below = |place: usize| Some(projection.expr[place].clone().unalias_nested().data);
                    exprs = through(exprs, &projection.schema, below)?;
                    input = &projection.input;
                }
                LogicalPlan::Join(join) => break join,
                _ => return None,
            }
        };
        let is_plain = join.null_equality == NullEquality::NullEqualsNothing && !join.null_aware;
        let is_kind = matches!(join.join_type, JoinType::Inner | JoinType::Left | JoinType::Right);
        let of_join = join.on.iter().flat_map(|(left, right)| [left, right]).chain(&join.filter);
        let are_movable = exprs.iter().chain(of_join).all(is_movable);
        if !is_plain || !is_kind || join.on.is_empty() || !are_movable {
            return None;
        }
        let calls = exprs.split_off(aggregate.group_expr.len());
        let call = |expr: Logical| match expr.unalias() {
            Logical::AggregateFunction(call) => Some(call),
            _ => None,
        };
        let calls = calls.into_iter().map(call).collect::<Option<Vec<Call>>>()?;
        let mut early = Early { aggregate, join, of_left, keys: exprs, calls, parts: Vec::new() };
        early.parts = early.calls.iter().map(|call| early.part(call)).collect::<Option<_>>()?;
        early.keys.iter().all(|key| early.is_carried(key) || early.is_others(key)).then_some(early)
    }

    fn side(&self) -> &'a LogicalPlan {
        if self.of_left { &self.join.left } else { &self.join.right }
    }

    fn other(&self) -> &'a LogicalPlan {
        if self.of_left { &self.join.right } else { &self.join.left }
    }

    /// Returns whether an expression reads columns of the side that is grouped, and no others.
    fn is_own(&self, expr: &Logical) -> bool {
        !expr.column_refs().is_empty() && has_columns(self.side().schema(), expr)
    }

    /// Returns whether an expression over the side has the same value before the join as behind it, where columns of a side
    /// without a match are NULL.
    fn is_carried(&self, expr: &Logical) -> bool {
        self.is_own(expr) && (!self.may_miss() || is_strict(expr))
    }

    fn is_others(&self, expr: &Logical) -> bool {
        has_columns(self.other().schema(), expr)
    }

    /// Returns whether the join gives rows of the other side without a match.
    fn may_miss(&self) -> bool {
        let preserved = if self.of_left { JoinType::Right } else { JoinType::Left };
        self.join.join_type == preserved
    }

    fn part(&self, call: &Call) -> Option<Part> {
        let parameters = &call.params;
        let function = AggregateFunction::named(call.func.name())?;
        let is_plain = parameters.filter.is_none()
            && parameters.order_by.is_empty()
            && parameters.null_treatment.is_none()
            && (!parameters.distinct || function.ignores_duplicates());
        let [argument] = parameters.args.as_slice() else { return None };
        match function.accumulation() {
            _ if !is_plain => None,
            Accumulation::Count if never_null(argument) => Some(Part::CountOfAll),
            Accumulation::Count if self.is_carried(argument) => Some(Part::Count),
            Accumulation::Sum | Accumulation::Fold(_) if self.is_carried(argument) => Some(Part::Same),
            Accumulation::Fold(_) if function.ignores_duplicates() && self.is_others(argument) => {
                Some(Part::OfOther)
            }
            _ => None,
        }
    }

    /// Returns what the join and the group keys read of the side, each once.
    fn read(&self) -> Vec<Logical> {
        let on = self.join.on.iter().map(|(left, right)| if self.of_left { left } else { right });
        // Of a key that is computed of one column the column is read, because the engine sends filters on columns.
        let on = on.map(|key| match Vec::from_iter(key.column_refs())[..] {
            [only] => Logical::Column(only.clone()),
            _ => key.clone(),
        });
        let keys = self.keys.iter().filter(|key| self.is_own(key)).cloned();
        let mut read: Vec<Logical> = on.chain(keys).collect();
        let of_filter = self.join.filter.iter().flat_map(|filter| filter.column_refs());
        let of_filter = of_filter.filter(|column| self.side().schema().has_column(column));
        read.extend(of_filter.map(|column| Logical::Column(column.clone())));
        let mut once = Vec::with_capacity(read.len());
        for expr in read {
            if !once.contains(&expr) {
                once.push(expr);
            }
        }
        once
    }

    /// Returns the early groups of the side; `None` if they are not correct, or not carried out at a pool.
    fn grouped(&self) -> Option<LogicalPlan> {
        let read = self.read();
        let is_float = |key: &Logical| key.get_type(self.side().schema()).is_ok_and(|t| t.is_floating());
        if read.iter().any(is_float) {
            return None;
        }
        let named = |(i, key): (usize, Logical)| if is_column(&key) { key } else { key.alias(key_name(i)) };
        let keys = read.into_iter().enumerate().map(named).collect();
        let calls = self.calls.iter().zip(&self.parts).enumerate();
        let of_side = calls.filter(|(_, (_, part))| **part != Part::OfOther);
        let calls =
            of_side.map(|(i, (call, _))| Logical::AggregateFunction(call.clone()).alias(part_name(i)));
        let grouped = Aggregate::try_new(Arc::new(self.side().clone()), keys, calls.collect()).ok()?;
        let grouped = LogicalPlan::Aggregate(grouped);
        let fragment = Fragment::read(&grouped).ok()?;
        is_safe(&fragment).then_some(grouped)
    }

    /// Returns whether no two joined early groups are in one group of the statement.
    fn is_full(&self) -> bool {
        if self.may_miss() {
            return false;
        }
        let (side, other) = (usize::from(!self.of_left), usize::from(self.of_left));
        let on: Vec<[&Logical; 2]> = self.join.on.iter().map(|(left, right)| [left, right]).collect();
        let is_told = |read: &Logical| {
            // Where rows without a match are dropped, the join keys of both sides are the same.
            let same = on.iter().filter(|pair| pair[side] == read && self.join.join_type == JoinType::Inner);
            let mut same = same.map(|pair| pair[other]).chain([read]);
            same.any(|key| self.keys.contains(key))
        };
        let schema = self.other().schema();
        let place = |pair: &[&Logical; 2]| schema.maybe_index_of_column(pair[other].try_as_col()?);
        let joined = on.iter().filter_map(place).collect();
        are_once(self.other(), joined) && self.read().iter().all(is_told)
    }

    /// Returns the joined early groups, in the groups of the statement, with one column for each of the statement's.
    fn whole(&self, grouped: LogicalPlan) -> Result<LogicalPlan> {
        let read = self.read();
        // Where the statement computes a key, the early group has its value as a column.
        let replaced = |expr: Logical| {
            let place = read.iter().position(|known| *known == expr);
            Ok(match place {
                Some(i) if !is_column(&expr) => Transformed::new(
                    Logical::Column(Column::from_name(key_name(i))),
                    true,
                    TreeNodeRecursion::Jump,
                ),
                _ => Transformed::no(expr),
            })
        };
        let column = |expr: &Logical| -> Result<Logical> { Ok(expr.clone().transform_down(replaced)?.data) };
        let on = self.join.on.iter().map(|(left, right)| {
            Ok(if self.of_left { (column(left)?, right.clone()) } else { (left.clone(), column(right)?) })
        });
        let (grouped, other) = (Arc::new(grouped), Arc::new(self.other().clone()));
        let (left, right) = if self.of_left { (grouped, other) } else { (other, grouped) };
        let join = Join::try_new(
            left,
            right,
            on.collect::<Result<_>>()?,
            self.join.filter.clone(),
            self.join.join_type,
            self.join.join_constraint,
            self.join.null_equality,
            false,
        )?;
        let own = |key: &Logical| if self.is_own(key) { column(key) } else { Ok(key.clone()) };
        let keys = self.keys.iter().enumerate().map(|(i, key)| Ok(own(key)?.alias(whole_name(i))));
        let join = Arc::new(LogicalPlan::Join(join));
        if self.is_full() {
            let calls = self.calls.iter().zip(&self.parts).enumerate().map(|(i, (call, part))| {
                let value = match part {
                    Part::OfOther => call.params.args[0].clone(),
                    _ => Logical::Column(Column::from_name(part_name(i))),
                };
                Ok(value.alias(whole_name(self.keys.len() + i)))
            });
            let columns = keys.chain(calls).collect::<Result<_>>()?;
            return Ok(LogicalPlan::Projection(Projection::try_new(columns, join)?));
        }
        let calls = self.calls.iter().zip(&self.parts).enumerate().map(|(i, (call, part))| {
            let counted = Logical::Column(Column::from_name(part_name(i)));
            let sum = || farpool_sql::aggregates::sum();
            let call = match part {
                Part::OfOther => Logical::AggregateFunction(call.clone()),
                Part::Same => call.func.call(vec![counted]),
                Part::CountOfAll if self.may_miss() => sum().call(vec![or_else(counted, 1)?]),
                Part::Count | Part::CountOfAll => sum().call(vec![counted]),
            };
            Ok(call.alias(whole_name(self.keys.len() + i)))
        });
        let (keys, calls) = (keys.collect::<Result<_>>()?, calls.collect::<Result<_>>()?);
        Ok(LogicalPlan::Aggregate(Aggregate::try_new(join, keys, calls)?))
    }

    /// Returns `whole` with the columns of the statement's aggregation: their names and types.
    fn named(&self, whole: LogicalPlan) -> Result<LogicalPlan> {
        let wanted = &self.aggregate.schema;
        let column = |(i, (table, field)): (usize, (Option<&_>, &Arc<arrow_schema::Field>))| {
            let (own, made) = whole.schema().qualified_field(i);
            let value = Logical::Column(Column::from((own, made)));
            let part = i.checked_sub(self.keys.len()).and_then(|call| self.parts.get(call));
            let value = match part {
                // A sum of no counts is NULL.
                Some(Part::Count | Part::CountOfAll) => or_else(value, 0)?,
                _ if made.data_type() != field.data_type() => cast(value, field.data_type().clone()),
                _ => value,
            };
            Ok(value.alias_qualified(table.cloned(), field.name()))
        };
        let columns = wanted.iter().enumerate().map(column).collect::<Result<_>>()?;
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(whole))?))
    }
}

/// Returns whether the rows of a fragment that groups can be grouped although the statement groups fewer of them: nothing
/// may fail, and sums of some rows fit where the sum of all does.
fn is_safe(fragment: &Fragment) -> bool {
    let Ok(model::Program { output: Output::Aggregate { keys, aggregates }, .. }) =
        fragment.program(|i| i.to_string())
    else {
        return false;
    };
    let rows = &fragment.rows;
    let columns = Columns::new(&rows.info.schema, &rows.info.columns);
    let facts = |expr: &model::Expr| Facts::of(expr, columns).ok().filter(|facts| !facts.may_fail);
    // The number of rows behind lookups is an estimate.
    let rows_max = (!rows.are_joined()).then_some(i128::from(rows.info.rows));
    let fits = |aggregate: &model::Aggregate, (low, high): (i128, i128)| {
        let most = low.abs().max(high.abs());
        let sum = rows_max.and_then(|rows| most.checked_mul(rows));
        aggregate.data_type.is_integer() && sum.is_some_and(|sum| sum <= i128::from(i64::MAX))
    };
    let is_safe = |aggregate: &model::Aggregate| {
        let [argument] = aggregate.arguments.as_slice() else { return aggregate.arguments.is_empty() };
        facts(argument).is_some_and(|facts| match (aggregate.function.accumulation(), &facts.data_type) {
            (Accumulation::Sum, DataType::Decimal128(precision, _)) => *precision <= DECIMAL_DIGITS_SUMMED,
            (Accumulation::Sum, data_type) if data_type.is_floating() => true,
            (Accumulation::Sum, _) => facts.range.is_some_and(|range| fits(aggregate, range)),
            _ => true,
        })
    };
    keys.iter().all(|key| facts(&key.expr).is_some()) && aggregates.iter().all(is_safe)
}

/// Returns whether a statement is estimated to take less time with early groups. `whole` is its aggregation of them.
fn pays(
    early: &Early<'_>,
    grouped: &LogicalPlan,
    whole: &LogicalPlan,
    rates: &Rates,
    threads: usize,
) -> bool {
    let lazy = at_pool(&LogicalPlan::Aggregate(early.aggregate.clone()), rates, threads);
    match (at_pool(whole, rates, threads), lazy) {
        (Some((eager, true)), Some((lazy, true))) => eager.costs[0].ns < lazy.costs[0].ns * cost::CHEAPER_BY,
        (Some((eager, true)), Some((lazy, false))) => {
            lazy.costs.iter().skip(1).all(|lazy| eager.costs[0].ns < lazy.ns * cost::CHEAPER_BY)
        }
        (_, Some((_, true))) => false,
        _ => pays_in_engine(early, grouped, rates, threads).unwrap_or(false),
    }
}

/// Returns the estimated cost of carrying out `plan` as one program, and whether it is worth while; `None` if no program
/// does.
fn at_pool(plan: &LogicalPlan, rates: &Rates, threads: usize) -> Option<(cost::Estimate, bool)> {
    let fragment = Fragment::read(plan).ok()?;
    let program = fragment.program(|i| i.to_string()).ok()?;
    let place = place(&fragment.table, threads);
    match split::worthwhile(&program, &fragment.rows, place, rates) {
        Ok(estimate) => Some((estimate, true)),
        Err(_) => Some((cost::estimate(&program, &fragment.rows, place, rates), false)),
    }
}

fn place(table: &PoolTable, threads: usize) -> cost::Place {
    table.run_place(threads, !table.pool().is_remote())
}

/// Returns whether early groups are estimated to pay where the engine joins; `None` if that cannot be estimated.
fn pays_in_engine(early: &Early<'_>, grouped: &LogicalPlan, rates: &Rates, threads: usize) -> Option<bool> {
    let side = logical::of(early.side())?;
    let rows = eager::Rows {
        side: side.rows,
        groups: logical::of(grouped)?.rows,
        other: logical::of(early.other())?.rows,
        joined: logical::of(&LogicalPlan::Join(early.join.clone()))?.rows,
        drops: early.join.join_type == JoinType::Inner,
    };
    let fragment = Fragment::read(grouped).ok()?;
    Some(eager::pays(rows, place(&fragment.table, threads), rates))
}

/// Returns whether an expression gives the same value wherever it is evaluated.
fn is_movable(expr: &Logical) -> bool {
    let mut is_movable = !expr.is_volatile();
    let _ = expr.apply(|part| {
        is_movable &= !matches!(
            part,
            Logical::ScalarSubquery(_)
                | Logical::InSubquery(_)
                | Logical::Exists(_)
                | Logical::SetComparison(_)
                | Logical::OuterReferenceColumn(..)
                | Logical::GroupingSet(_)
                | Logical::Placeholder(_)
                | Logical::Unnest(_)
        );
        Ok(if is_movable { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    is_movable
}

/// Returns whether no two rows of `plan` have the same values in the columns `keys`, because they are groups by some of
/// these columns. DataFusion's own dependencies do not always hold (55.2: above UNNEST, and in groups above a join).
fn are_once(plan: &LogicalPlan, keys: BTreeSet<usize>) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => are_once(&alias.input, keys),
        LogicalPlan::Filter(filter) => are_once(&filter.input, keys),
        LogicalPlan::Projection(projection) => {
            let below = |key: usize| {
                let column = projection.expr.get(key)?.clone().unalias_nested().data;
                projection.input.schema().maybe_index_of_column(column.try_as_col()?)
            };
            are_once(&projection.input, keys.into_iter().filter_map(below).collect())
        }
        LogicalPlan::Aggregate(groups) => {
            let is_plain = |key: &Logical| !matches!(key, Logical::GroupingSet(_));
            groups.group_expr.iter().all(is_plain)
                && (0..groups.group_expr.len()).all(|key| keys.contains(&key))
        }
        _ => false,
    }
}

/// Returns whether an expression is NULL where all columns that it reads are, as far as is known.
fn is_strict(expr: &Logical) -> bool {
    match expr {
        Logical::Column(_) => true,
        Logical::Cast(cast) => is_strict(&cast.expr),
        Logical::Negative(inner) | Logical::Not(inner) => is_strict(inner),
        Logical::BinaryExpr(BinaryExpr { left, op, right }) => {
            let is_strict_operator = op.is_numerical_operators()
                || matches!(op, Operator::Eq | Operator::NotEq)
                || matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
            is_strict_operator && (is_strict(left) || is_strict(right))
        }
        _ => false,
    }
}

/// Returns `count`, or this number where it is NULL.
fn or_else(count: Logical, number: i64) -> Result<Logical> {
    when(count.clone().is_null(), lit(number)).otherwise(count)
}

fn key_name(index: usize) -> String {
    format!("early key {index}")
}

fn part_name(index: usize) -> String {
    format!("early {index}")
}

fn whole_name(index: usize) -> String {
    format!("whole {index}")
}
