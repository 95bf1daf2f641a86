//! Reorders the inner joins of an optimized logical plan by the statistics that pools (the stores of the tables) have
//! of the tables (DataFusion joins in the order of the statement). The planner crate computes the estimates. The
//! physical plan is estimated by the same formulas ([`physical`]), so that DataFusion builds hash tables on the sides
//! that this order assumes.
//!
//! Invariant: the reordered part gives the same rows, columns and names as before. Only inner joins on equal keys are
//! moved; a condition over several relations (inputs of the joins) is applied as soon as they are joined.

mod collect;
mod eager;
mod logical;
mod merged;
mod physical;
mod texts;

pub(crate) use collect::rules;
pub(crate) use merged::{CompactRows, HashTables};
pub(crate) use physical::{expected_rows, outcomes, registry};
pub(crate) use texts::TextsAsViews;

use crate::file::pool_table;
use crate::table::PoolTable;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr as Logical, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::{Optimizer, OptimizerContext};
use farpool_model::limits;
use farpool_planner::cost::Rates;
use farpool_planner::joins::estimate::{Estimate, JoinKind, Known};
use farpool_planner::joins::sizes::{self, Origin};
use farpool_planner::joins::{Matches, RELATIONS_MAX, Relation, Tree, order};
use std::sync::Arc;

/// Requests from the pools the sketches that [`reorder`] needs to estimate many-to-many joins of `plan`: those whose
/// sides both have several rows per join key.
pub(crate) async fn prepare(plan: &LogicalPlan) -> Result<()> {
    let (mut tables, mut wanted) = (Vec::new(), Vec::new());
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            tables.extend(pool_table(&scan.source).map(|(table, _)| table));
        }
        if let Some(joins) = Joins::of(node) {
            let estimates = joins.estimates();
            for (_, left, right) in joins.pairs(&estimates) {
                wanted.extend([left, right]);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    for table in tables {
        learn(&table, &wanted).await;
    }
    Ok(())
}

/// Requests from the pool of `table` the sketches of those `wanted` columns that belong to this table. If the pool does
/// not answer, nothing is returned or reported, and the estimates remain rough.
async fn learn(table: &PoolTable, wanted: &[Origin]) {
    let source = table.source();
    let columns = source.unknown(wanted);
    if columns.is_empty() {
        return;
    }
    if let Ok(statistics) = table.pool().statistics(&source.info.name, Some(&columns)).await {
        source.learn(&columns, &statistics);
    }
}

/// Returns the plan with its inner joins in the order that is estimated to be cheapest, where a better one is known; and
/// with rows grouped before they are joined where that pays. `threads` are those of the engine.
pub(crate) fn reorder(plan: LogicalPlan, rates: &Rates, threads: usize) -> Result<LogicalPlan> {
    let reordered = ordered(plan)?;
    let grouped = eager::aggregated(reordered.data, rates, threads)?;
    if !reordered.transformed && !grouped.transformed {
        return Ok(grouped.data);
    }
    // Removes columns that only the old plan needed.
    let optimizer = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
    optimizer.optimize(grouped.data, &OptimizerContext::new(), |_, _| {})
}

fn ordered(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| {
        let Some(mut joins) = Joins::of(&node) else { return Ok(Transformed::no(node)) };
        // Each tree of joins is reordered once, from its topmost join. If it is left as it is, the joins below are
        // visited in turn.
        let Some(tree) = joins.tree() else { return Ok(Transformed::no(node)) };
        for relation in &mut joins.relations {
            *relation = ordered(relation.clone())?.data;
        }
        // A join that cannot be rebuilt in the new order is left as it is.
        match joins.rebuilt(&tree, &node) {
            Ok(plan) => Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump)),
            Err(_) => Ok(Transformed::no(node)),
        }
    })
}

/// Maximum number of rows of a build side whose join keys are sent to the scan of the other side, for the estimates.
const KEYS_PUSHED: f64 = limits::IN_LIST_MAX as f64;

/// A pair of relations that can be joined: the index of a key class (see [`Joins`]), and the indexes of the two
/// relations that have a key in it.
type Place = (usize, (usize, usize));

/// A tree of inner joins, flattened into its relations (inputs), key classes and other conditions.
#[derive(Default)]
struct Joins {
    relations: Vec<LogicalPlan>,
    /// Key classes: sets of expressions that the joins require to be equal to one another, each expression over one
    /// relation.
    classes: Vec<Vec<Logical>>,
    /// The conditions other than equalities of keys.
    filters: Vec<Logical>,
}

impl Joins {
    /// Collects the joins of `plan`. Returns `None` if it is not a tree of at least three relations, contains a join
    /// whose order must stay, or has too many relations.
    fn of(plan: &LogicalPlan) -> Option<Self> {
        if !matches!(plan, LogicalPlan::Join(_)) {
            return None;
        }
        let mut joins = Joins::default();
        joins.take(plan)?;
        (joins.relations.len() > 2).then_some(joins)
    }

    fn take(&mut self, plan: &LogicalPlan) -> Option<()> {
        match plan {
            LogicalPlan::Join(join)
                if join.join_type == JoinType::Inner
                    && join.null_equality == NullEquality::NullEqualsNothing
                    && !join.null_aware =>
            {
                self.take(&join.left)?;
                self.take(&join.right)?;
                join.on.iter().for_each(|(left, right)| self.equal(left, right));
                self.filters.extend(join.filter.iter().cloned().flat_map(split_conjunction_owned));
            }
            LogicalPlan::Projection(projection)
                if projection.expr.iter().all(is_column) && has_joins(&projection.input) =>
            {
                self.take(&projection.input)?;
            }
            LogicalPlan::Filter(filter) if has_joins(&filter.input) => {
                self.take(&filter.input)?;
                self.filters.extend(split_conjunction_owned(filter.predicate.clone()));
            }
            relation => self.relations.push(relation.clone()),
        }
        (self.relations.len() <= RELATIONS_MAX).then_some(())
    }

    fn equal(&mut self, left: &Logical, right: &Logical) {
        let with = |e: &Logical, classes: &[Vec<Logical>]| classes.iter().position(|c| c.contains(e));
        match (with(left, &self.classes), with(right, &self.classes)) {
            (Some(a), Some(b)) if a != b => {
                let moved = self.classes.remove(a.max(b));
                self.classes[a.min(b)].extend(moved);
            }
            (Some(_), Some(_)) => {}
            (Some(a), None) => self.classes[a].push(right.clone()),
            (None, Some(b)) => self.classes[b].push(left.clone()),
            (None, None) => self.classes.push(vec![left.clone(), right.clone()]),
        }
    }

    /// Returns the order of the relations that is estimated to be cheapest; `None` if it cannot be estimated.
    fn tree(&self) -> Option<Tree> {
        // A class with keys of several types would need casts, and casts exist only for the pairs that the statement
        // joins.
        let one_type = |class: &Vec<Logical>| {
            let mut types = class.iter().map(|e| self.relation_of(e).map(|i| self.type_in(e, i)));
            let first = types.next().flatten();
            first.is_some() && types.all(|t| t == first)
        };
        if !self.classes.iter().all(one_type) {
            return None;
        }
        let estimates = self.estimates();
        let known = self.pairs(&estimates).into_iter().filter_map(|((class, relations), left, right)| {
            Some(Matches { class, relations, share: sizes::share(&left, &right)? })
        });
        let known: Vec<Matches> = known.collect();
        let relations = (0..self.relations.len()).map(|i| self.relation(i, &estimates));
        let relations = relations.collect::<Option<Vec<Relation>>>()?;
        order(&relations, &known, KEYS_PUSHED)
    }

    /// Returns the join of the relations in the order of `tree`, with the columns of `plan`.
    fn rebuilt(mut self, tree: &Tree, plan: &LogicalPlan) -> Result<LogicalPlan> {
        let (joined, _) = self.build(tree)?;
        let columns = plan.schema().columns().into_iter().map(Logical::Column);
        // What is left are conditions that no join could apply, such as one without columns.
        let joined = match conjunction(std::mem::take(&mut self.filters)) {
            Some(rest) => LogicalPlanBuilder::from(joined).filter(rest)?.build()?,
            None => joined,
        };
        LogicalPlanBuilder::from(joined).project(columns)?.build()
    }

    fn type_in(&self, expr: &Logical, relation: usize) -> Option<arrow_schema::DataType> {
        datafusion::logical_expr::ExprSchemable::get_type(expr, self.relations[relation].schema().as_ref())
            .ok()
    }

    /// Returns the index of the only relation that has all columns of `expr`; `None` if there is none.
    fn relation_of(&self, expr: &Logical) -> Option<usize> {
        let has = |plan: &LogicalPlan| has_columns(plan.schema(), expr);
        let mut found = self.relations.iter().enumerate().filter(|(_, r)| has(r)).map(|(i, _)| i);
        let first = found.next()?;
        (found.next().is_none() && !expr.column_refs().is_empty()).then_some(first)
    }

    /// Estimates the rows of each relation; `None` for one without an estimate.
    fn estimates(&self) -> Vec<Option<Estimate>> {
        self.relations.iter().map(logical::of).collect()
    }

    /// Returns the statistics known for the keys that a relation has in a key class.
    fn keys(&self, class: usize, relation: usize, estimate: &Estimate) -> Vec<Known> {
        let schema = self.relations[relation].schema();
        let own = self.classes[class].iter().filter(|e| self.relation_of(e) == Some(relation));
        own.map(|e| logical::known(estimate, schema, e)).collect()
    }

    fn relation(&self, index: usize, estimates: &[Option<Estimate>]) -> Option<Relation> {
        let estimate = estimates[index].as_ref()?;
        let fewest = |class| {
            let keys = self.keys(class, index, estimate).into_iter().map(|key| key.distinct);
            keys.reduce(f64::min).map(|distinct| (class, distinct))
        };
        let keys = (0..self.classes.len()).filter_map(fewest).collect();
        Some(Relation { rows: estimate.rows, rows_unfiltered: estimate.rows_unfiltered, keys })
    }

    /// Returns the many-to-many pairs, whose estimate is worth asking for sketches: the key class and the two
    /// relations, and the columns of the two keys.
    fn pairs(&self, estimates: &[Option<Estimate>]) -> Vec<(Place, Origin, Origin)> {
        let mut pairs = Vec::new();
        for class in 0..self.classes.len() {
            let of = |(i, e): (usize, &Option<Estimate>)| Some((i, self.keys(class, i, e.as_ref()?).pop()?));
            let keys: Vec<(usize, Known)> = estimates.iter().enumerate().filter_map(of).collect();
            for (at, (i, left)) in keys.iter().enumerate() {
                for (j, right) in &keys[at + 1..] {
                    let (Some(ours), Some(theirs)) = (left.origins.first(), right.origins.first()) else {
                        continue;
                    };
                    if sizes::worth_asking(ours, theirs, (left.distinct, right.distinct)) {
                        pairs.push(((class, (*i, *j)), ours.clone(), theirs.clone()));
                    }
                }
            }
        }
        pairs
    }

    /// Builds the plan of a subtree of the join order. Returns it with the indexes of the relations that it contains.
    fn build(&mut self, tree: &Tree) -> Result<(LogicalPlan, Vec<usize>)> {
        let (left, right) = match tree {
            Tree::Leaf(index) => return Ok((self.relations[*index].clone(), vec![*index])),
            Tree::Join(left, right) => (self.build(left)?, self.build(right)?),
        };
        let member = |class: &Vec<Logical>, of: &[usize]| {
            class.iter().find(|e| self.relation_of(e).is_some_and(|r| of.contains(&r))).cloned()
        };
        let pairs = self.classes.iter().filter_map(|c| Some((member(c, &left.1)?, member(c, &right.1)?)));
        let on: (Vec<Logical>, Vec<Logical>) = pairs.unzip();
        let within = self.equal_within(&left.1, &right.1);
        let mut schema = left.0.schema().as_ref().clone();
        schema.merge(right.0.schema());
        let (now, later): (Vec<Logical>, Vec<Logical>) =
            std::mem::take(&mut self.filters).into_iter().partition(|f| has_columns(&schema, f));
        self.filters = later;
        let filter = conjunction(now.into_iter().chain(within));
        let joined =
            LogicalPlanBuilder::from(left.0).join_with_expr_keys(right.0, JoinType::Inner, on, filter)?;
        Ok((joined.build()?, [left.1, right.1].concat()))
    }

    /// Returns the equalities between two expressions of one relation, which follow from a key class but which no join
    /// between relations checks. They are applied at the first join of that relation.
    fn equal_within(&self, left: &[usize], right: &[usize]) -> Vec<Logical> {
        let single = |side: &[usize]| (side.len() == 1).then(|| side[0]);
        let relations = [single(left), single(right)].into_iter().flatten();
        let mut equalities = Vec::new();
        for relation in relations {
            for class in &self.classes {
                let own: Vec<&Logical> =
                    class.iter().filter(|e| self.relation_of(e) == Some(relation)).collect();
                equalities.extend(own.windows(2).map(|w| w[0].clone().eq(w[1].clone())));
            }
        }
        equalities
    }
}

fn is_column(expr: &Logical) -> bool {
    matches!(expr, Logical::Column(_))
}

/// Returns whether `plan` is an inner join that can be flattened, possibly below filters and projections to some
/// columns.
fn has_joins(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => join.join_type == JoinType::Inner,
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(is_column) && has_joins(&projection.input)
        }
        LogicalPlan::Filter(filter) => has_joins(&filter.input),
        _ => false,
    }
}

fn has_columns(schema: &DFSchema, expr: &Logical) -> bool {
    expr.column_refs().into_iter().all(|column| schema.has_column(column))
}

/// Converts a join type of DataFusion to that of the planner crate.
fn kind(join_type: JoinType) -> JoinKind {
    match join_type {
        JoinType::Inner => JoinKind::Inner,
        JoinType::Left => JoinKind::Left,
        JoinType::Right => JoinKind::Right,
        JoinType::Full => JoinKind::Full,
        JoinType::LeftSemi => JoinKind::LeftSemi,
        JoinType::RightSemi => JoinKind::RightSemi,
        JoinType::LeftAnti => JoinKind::LeftAnti,
        JoinType::RightAnti => JoinKind::RightAnti,
        JoinType::LeftMark => JoinKind::LeftMark,
        JoinType::RightMark => JoinKind::RightMark,
    }
}
