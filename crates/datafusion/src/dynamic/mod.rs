//! Dynamic filters (sideways information passing): conditions that operators derive from their rows while they run, and
//! that a scan below can apply. A scan of a table in a pool runs there as a program, to which the conditions are added.
//! Examples are the least and greatest key on the build side of a hash join, and the worst row that a top-k still
//! keeps.
//!
//! Invariant: a dynamic filter only removes rows that the operator which derived it would drop anyway. A part that the
//! model cannot express is left out of an AND; it makes an OR unusable.

mod keys;
mod watch;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, DynamicFilterPhysicalExpr, IsNullExpr, Literal as PhysicalLiteral,
};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::joins::HashTableLookupExpr;
use farpool_model::{Answer, CompareOp, Expr, NamedExpr, Output, Program, TableInfo, cast, limits};
use farpool_planner::rows::Rows;
use farpool_planner::{estimate, split};
use farpool_sql::literal;
use keys::Keys;
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::sync::Arc;
pub(crate) use watch::{KeyWatch, KeyWatchExec};

/// Minimum number of table rows per value of a list (`IN (…)`). Reason: with fewer rows, evaluating and sending the
/// list costs more than the join saves.
const ROWS_PER_LISTED_VALUE_MIN: u64 = 16;

/// Minimum fraction of the rows that a set of keys must remove. Reason: a look-up for each row costs more than removing
/// fewer rows saves.
const SET_REMOVES_MIN: f64 = 0.2;

/// Minimum number of bytes that a removed row saves on the wire: a row has at least two packed keys.
const ROW_BYTES_SAVED: f64 = 4.0;

/// Returns the filters of `offered` that `program` can use: those that are dynamic, provided that removing input rows
/// of the program removes only the corresponding output rows (which is not so after LIMIT, for example).
pub(crate) fn usable(program: &Program, offered: &[Arc<dyn PhysicalExpr>]) -> Vec<Arc<dyn PhysicalExpr>> {
    if program.limit.is_some() || outputs(program).is_empty() {
        return Vec::new();
    }
    offered.iter().filter(|f| f.downcast_ref::<DynamicFilterPhysicalExpr>().is_some()).cloned().collect()
}

/// Returns the output columns of the program on which a condition can be evaluated before the program's own operators:
/// all columns of rows, and the group keys of an aggregation.
fn outputs(program: &Program) -> &[NamedExpr] {
    match &program.output {
        Output::Rows(columns) => columns,
        Output::Aggregate { keys, .. } => keys,
    }
}

/// Returns the current state of the dynamic filters as a condition on rows of the table; `None` if they give no useful
/// condition now. The filters refer to columns of the result of `program`. `watches` hold the join keys collected for
/// joins, by the id of the filter that the join derived.
pub(crate) fn conditions(
    program: &Program,
    dynamic: &[Arc<dyn PhysicalExpr>],
    watches: &[(u64, Arc<KeyWatch>)],
    rows: &Rows,
) -> Option<Expr> {
    let info = &*rows.info;
    let column = |index: usize| outputs(program).get(index).map(|o| o.expr.clone());
    let current = dynamic.iter().filter_map(|f| {
        let now = f.downcast_ref::<DynamicFilterPhysicalExpr>()?.current().ok()?;
        let watch = watches.iter().find(|(id, _)| f.expression_id() == Some(*id)).map(|(_, watch)| &**watch);
        Some(Reader { column: &column, info, watch, keys: OnceCell::new() }.conditions(&now))
    });
    // Conditions are added to the scan, which has no columns of lookups.
    let can_run = |e: &Expr| split::place(e.clone(), &rows.table.info.schema).answer == Answer::Exact;
    // All sets of keys together may take at most half of a plan, so that they fit however they are encoded.
    let mut bytes_left = limits::PLAN_BYTES_MAX / 2;
    let mut fits = |e: &Expr| {
        let left = bytes_left.checked_sub(set_bytes(e));
        bytes_left = left.unwrap_or(bytes_left);
        left.is_some()
    };
    let added: Vec<Expr> = current.flatten().filter(can_run).filter(|e| fits(e)).collect();
    let filter = split::conjunction(program.filter.clone().into_iter().chain(added.clone()));
    let narrowed = Program { filter, ..program.clone() };
    // Several lists, each within the limits, may together exceed the limits of a program; the filters are then left
    // out.
    split::conjunction(added).filter(|_| narrowed.result_schema(&info.schema).is_ok())
}

/// Returns whether a condition is likely to save more than it costs.
fn pays(condition: &Expr, info: &TableInfo) -> bool {
    let bytes = key_bytes(condition);
    if bytes > 0 {
        let removed = 1.0 - estimate::selectivity(condition, info);
        let saved = info.rows as f64 * removed * ROW_BYTES_SAVED;
        return removed >= SET_REMOVES_MIN && saved >= bytes as f64;
    }
    let listed = cast::u64_from(listed_values(condition));
    listed < ROWS_PER_LISTED_VALUE_MIN || listed * ROWS_PER_LISTED_VALUE_MIN <= info.rows
}

/// Returns the size of a condition for the cost estimate: its nodes plus the values in its lists.
fn listed_values(condition: &Expr) -> usize {
    let here = match condition {
        Expr::InList(_, list) => 1 + list.len(),
        _ => 1,
    };
    here + condition.children().into_iter().map(listed_values).sum::<usize>()
}

/// Returns the bytes on the wire of the bitmaps and hash filters in a condition.
fn key_bytes(condition: &Expr) -> usize {
    let here = match condition {
        Expr::InSet(_, set) => set.bytes(),
        Expr::InFilter(_, filter) => filter.bytes(),
        _ => 0,
    };
    here + condition.children().into_iter().map(key_bytes).sum::<usize>()
}

/// Returns the bytes in memory of the bitmaps and hash filters in a condition.
fn set_bytes(condition: &Expr) -> usize {
    let here = match condition {
        Expr::InSet(_, set) => set.bitmap_bytes(),
        Expr::InFilter(_, filter) => filter.bytes(),
        _ => 0,
    };
    here + condition.children().into_iter().map(set_bytes).sum::<usize>()
}

/// One conjunct (operand of AND) derived from a dynamic filter.
#[derive(Clone)]
enum Found {
    Plain(Expr),
    /// The row's join key is one of the keys of the join's smaller side.
    Keys,
    /// At least one of these conjunctions holds: an OR of ANDs.
    Any(Vec<Vec<Found>>),
}

impl Found {
    /// Returns a condition that is true wherever `self` or `other` is; `None` unless they have the same form and refer
    /// to the same column.
    fn wider(&self, other: &Found) -> Option<Found> {
        match (self, other) {
            (Found::Plain(one), Found::Plain(other)) => wider(one, other).map(Found::Plain),
            (Found::Keys, Found::Keys) => Some(Found::Keys),
            _ => None,
        }
    }
}

/// Converts the dynamic filter of one operator, whose columns refer to the result of a program, to conditions on the
/// table.
struct Reader<'a> {
    /// Returns the expression over the table for a column of the program's result.
    column: &'a dyn Fn(usize) -> Option<Expr>,
    info: &'a TableInfo,
    watch: Option<&'a KeyWatch>,
    /// The collected keys of the join, or `None` if they are not known or do not belong to columns of the table.
    /// Computed at first use and kept, because all partitions of a join share one filter.
    keys: OnceCell<Option<Keys>>,
}

impl Reader<'_> {
    /// Returns conditions of the model that are true wherever `expr` is true; only those that save more than they cost.
    fn conditions(&self, expr: &Arc<dyn PhysicalExpr>) -> Vec<Expr> {
        let found = self.implied(expr);
        let of_found = |found: &Found| match (found, self.known_keys()) {
            (Found::Keys, Some(keys)) => keys.conditions(self.info),
            _ => self.condition(found).filter(|e| pays(e, self.info)).into_iter().collect(),
        };
        found.iter().flat_map(of_found).collect()
    }

    /// Converts one conjunct to a condition; `None` if it would always be true.
    fn condition(&self, found: &Found) -> Option<Expr> {
        match found {
            Found::Plain(expr) => Some(expr.clone()),
            Found::Keys => self.known_keys()?.condition(self.info),
            Found::Any(ways) => {
                let all =
                    |way: &Vec<Found>| Expr::all(way.iter().filter_map(|f| self.condition(f)).collect());
                ways.iter().map(all).collect::<Option<Vec<Expr>>>().map(Expr::Or)
            }
        }
    }

    fn known_keys(&self) -> Option<&Keys> {
        self.keys.get()?.as_ref()
    }

    /// Returns conjuncts that are true wherever `expr` is true.
    fn implied(&self, expr: &Arc<dyn PhysicalExpr>) -> Vec<Found> {
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            let (left, right) = (binary.left(), binary.right());
            return match binary.op() {
                Operator::And => [self.implied(left), self.implied(right)].concat(),
                Operator::Or => {
                    let ways = vec![self.implied(left), self.implied(right)];
                    if ways.iter().any(Vec::is_empty) { Vec::new() } else { vec![Found::Any(ways)] }
                }
                op => {
                    let sides = self.value(left).zip(self.value(right));
                    let compared = sides.zip(compare_op(*op));
                    compared.map(|((l, r), op)| Found::Plain(Expr::compare(op, l, r))).into_iter().collect()
                }
            };
        }
        if let Some(lookup) = expr.downcast_ref::<HashTableLookupExpr>() {
            let keys = self
                .keys
                .get_or_init(|| Keys::of(&lookup.children(), self.watch?.keys()?, self.column, self.info));
            return keys.iter().map(|_| Found::Keys).collect();
        }
        if let Some(inner) = expr.downcast_ref::<IsNullExpr>() {
            let value = self.value(inner.arg());
            return value.map(|value| Found::Plain(Expr::IsNull(Box::new(value)))).into_iter().collect();
        }
        if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            return self.routed(case);
        }
        let no = is_false(expr).then(|| literal::from_scalar(&ScalarValue::Boolean(Some(false)))).flatten();
        no.map(|no| Found::Plain(Expr::Literal(no))).into_iter().collect()
    }

    /// Returns the conjuncts that hold for `CASE hash(key) % n WHEN 0 THEN … WHEN 1 THEN … END`, the filter that
    /// DataFusion derives for partitioned joins. The hash is not evaluated: whatever it is, one of the branches holds.
    fn routed(&self, case: &CaseExpr) -> Vec<Found> {
        let branches = case.when_then_expr().iter().map(|(_, then)| then).chain(case.else_expr());
        let branches = branches.filter(|branch| !is_false(branch));
        hull(&branches.map(|branch| self.implied(branch)).collect::<Vec<_>>())
    }

    fn value(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
        if let Some(found) = expr.downcast_ref::<Column>() {
            return (self.column)(found.index()).filter(|expr| expr.as_column().is_some());
        }
        let scalar = expr.downcast_ref::<PhysicalLiteral>()?.value();
        if scalar.is_null() {
            return None;
        }
        literal::from_scalar(scalar).map(Expr::Literal)
    }
}

fn is_false(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let constant = expr.downcast_ref::<PhysicalLiteral>().map(PhysicalLiteral::value);
    constant == Some(&ScalarValue::Boolean(Some(false)))
}

/// Returns conjuncts that hold whichever of `branches` (each an AND of conjuncts) holds: for each column the widest
/// bounds of any branch, and "the key is one of the keys of the join". Hashing distributes the keys evenly over the
/// branches, so that these conjuncts remove nearly as many rows as the OR of the branches.
fn hull(branches: &[Vec<Found>]) -> Vec<Found> {
    let Some((first, rest)) = branches.split_first() else { return Vec::new() };
    let widened = first.iter().filter_map(|part| {
        rest.iter().try_fold(part.clone(), |wide, branch| branch.iter().find_map(|other| wide.wider(other)))
    });
    widened.collect()
}

/// Returns a condition that is true wherever `one` or `other` is; `None` unless they have the same form and refer to
/// the same column.
fn wider(one: &Expr, other: &Expr) -> Option<Expr> {
    match (one, other) {
        (Expr::Compare(op, column, a), Expr::Compare(other_op, other_column, b))
            if op == other_op && column == other_column =>
        {
            let (Expr::Literal(a), Expr::Literal(b)) = (&**a, &**b) else { return None };
            let a_is_less = a.compare(b)? == Ordering::Less;
            let wide = match op {
                CompareOp::GtEq | CompareOp::Gt => {
                    if a_is_less {
                        a
                    } else {
                        b
                    }
                }
                CompareOp::LtEq | CompareOp::Lt => {
                    if a_is_less {
                        b
                    } else {
                        a
                    }
                }
                CompareOp::Eq | CompareOp::NotEq => return None,
            };
            Some(Expr::compare(*op, (**column).clone(), Expr::Literal(wide.clone())))
        }
        _ => None,
    }
}

fn compare_op(op: Operator) -> Option<CompareOp> {
    Some(match op {
        Operator::Eq => CompareOp::Eq,
        Operator::Lt => CompareOp::Lt,
        Operator::LtEq => CompareOp::LtEq,
        Operator::Gt => CompareOp::Gt,
        Operator::GtEq => CompareOp::GtEq,
        _ => return None,
    })
}
