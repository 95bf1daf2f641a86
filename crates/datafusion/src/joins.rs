//! Puts the inner joins of a finished logical plan in an order that the tables' statistics suggest:
//! DataFusion joins in the order of the statement.
//!
//! Invariant: the reordered part gives the same rows, columns and names as before. Only inner joins on
//! equal keys change place; a condition over several relations is applied as soon as they are joined.

use crate::file::pool_table;
use crate::table::unqualified;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr as Logical, LogicalPlan, LogicalPlanBuilder, TableScan};
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::{Optimizer, OptimizerContext};
use farpool_model::{Expr, TableInfo, limits};
use farpool_planner::estimate;
use farpool_planner::joins::{Relation, Tree, order};
use std::sync::Arc;

/// The share of rows that a condition lets pass which is applied here, of which nothing is known.
const HERE_SELECTIVITY: f64 = 0.25;

/// The plan with its joins in a better order, if there is one.
pub(crate) fn reorder(plan: LogicalPlan) -> Result<LogicalPlan> {
    let reordered = ordered(plan)?;
    if !reordered.transformed {
        return Ok(reordered.data);
    }
    // Columns that only the old order needed.
    let optimizer = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
    optimizer.optimize(reordered.data, &OptimizerContext::new(), |_, _| {})
}

fn ordered(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| {
        let Some(mut joins) = Joins::of(&node) else { return Ok(Transformed::no(node)) };
        for relation in &mut joins.relations {
            *relation = ordered(relation.clone())?.data;
        }
        // What cannot be put together again stays as it is, and so do its names.
        match joins.rebuilt(&node) {
            Some(Ok(plan)) => Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump)),
            _ => Ok(Transformed::no(node)),
        }
    })
}

/// A tree of inner joins, taken apart.
#[derive(Default)]
struct Joins {
    relations: Vec<LogicalPlan>,
    /// Expressions that are equal to one another, each over one relation.
    classes: Vec<Vec<Logical>>,
    /// The other conditions.
    filters: Vec<Logical>,
}

impl Joins {
    /// `None` if `plan` is no tree of at least three relations, or one of a kind that keeps its order.
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
        Some(())
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

    /// The join of the relations in the best order, with the columns of `plan`.
    fn rebuilt(mut self, plan: &LogicalPlan) -> Option<Result<LogicalPlan>> {
        // A class of keys of different types would need a cast that was made for one pair of them.
        let one_type = |class: &Vec<Logical>| {
            let mut types = class.iter().map(|e| self.relation_of(e).map(|i| self.type_in(e, i)));
            let first = types.next().flatten();
            first.is_some() && types.all(|t| t == first)
        };
        if !self.classes.iter().all(one_type) {
            return None;
        }
        let relations = self.relations.iter().enumerate().map(|(i, r)| self.estimated(i, r));
        let relations = relations.collect::<Option<Vec<Relation>>>()?;
        let tree = order(&relations, limits::IN_LIST_MAX as f64)?;
        Some(self.build(&tree).and_then(|(joined, _)| {
            let columns = plan.schema().columns().into_iter().map(Logical::Column);
            // What no join could apply, such as a condition without columns.
            let joined = match conjunction(std::mem::take(&mut self.filters)) {
                Some(rest) => LogicalPlanBuilder::from(joined).filter(rest)?.build()?,
                None => joined,
            };
            LogicalPlanBuilder::from(joined).project(columns)?.build()
        }))
    }

    fn type_in(&self, expr: &Logical, relation: usize) -> Option<arrow_schema::DataType> {
        datafusion::logical_expr::ExprSchemable::get_type(expr, self.relations[relation].schema().as_ref())
            .ok()
    }

    /// The one relation that has all columns of `expr`.
    fn relation_of(&self, expr: &Logical) -> Option<usize> {
        let has = |plan: &LogicalPlan| has_columns(plan.schema(), expr);
        let mut found = self.relations.iter().enumerate().filter(|(_, r)| has(r)).map(|(i, _)| i);
        let first = found.next()?;
        (found.next().is_none() && !expr.column_refs().is_empty()).then_some(first)
    }

    fn estimated(&self, index: usize, plan: &LogicalPlan) -> Option<Relation> {
        let estimate = Estimate::of(plan)?;
        let mut keys = Vec::new();
        for (class, members) in self.classes.iter().enumerate() {
            let own = members.iter().filter(|e| self.relation_of(e) == Some(index));
            let fewest = own.map(|e| estimate.distinct(plan.schema(), e)).reduce(f64::min);
            keys.extend(fewest.map(|distinct| (class, distinct)));
        }
        Some(Relation { rows: estimate.rows, rows_unfiltered: estimate.rows_unfiltered, keys })
    }

    /// The plan of a part of the tree, and the relations in it.
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

    /// Equalities between two expressions of one relation, which no join between relations tells; they
    /// are applied at the first join of that relation.
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

/// Whether `plan` is a join that can be taken apart, below filters and projections to some columns.
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

/// What is guessed of a relation.
struct Estimate {
    rows: f64,
    rows_unfiltered: f64,
    /// Distinct values of each column before filters.
    distinct: Vec<f64>,
}

impl Estimate {
    fn of(plan: &LogicalPlan) -> Option<Self> {
        match plan {
            LogicalPlan::TableScan(scan) => Estimate::of_scan(scan),
            LogicalPlan::SubqueryAlias(alias) => Estimate::of(&alias.input),
            LogicalPlan::Filter(filter) => {
                let input = Estimate::of(&filter.input)?;
                Some(Estimate { rows: input.rows * HERE_SELECTIVITY, ..input })
            }
            LogicalPlan::Projection(projection) => {
                let input = Estimate::of(&projection.input)?;
                let schema = projection.input.schema();
                let distinct = projection.expr.iter().map(|e| input.distinct(schema, e)).collect();
                Some(Estimate { distinct, ..input })
            }
            LogicalPlan::Aggregate(aggregate) => {
                let input = Estimate::of(&aggregate.input)?;
                let schema = aggregate.input.schema();
                let keys: Vec<f64> = aggregate.group_expr.iter().map(|e| input.distinct(schema, e)).collect();
                let groups = keys.iter().product::<f64>().min(input.rows).max(1.0);
                let results = std::iter::repeat_n(groups, aggregate.aggr_expr.len());
                Some(Estimate {
                    rows: groups,
                    rows_unfiltered: groups,
                    distinct: keys.into_iter().chain(results).collect(),
                })
            }
            LogicalPlan::Join(join) => {
                let (left, right) = (Estimate::of(&join.left)?, Estimate::of(&join.right)?);
                let kept = match join.join_type {
                    JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left,
                    JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right,
                    _ => {
                        let rows = left.rows.max(right.rows);
                        let distinct = left.distinct.into_iter().chain(right.distinct).collect();
                        return Some(Estimate { rows, rows_unfiltered: rows, distinct });
                    }
                };
                let marks = plan.schema().fields().len().saturating_sub(kept.distinct.len());
                let distinct = kept.distinct.into_iter().chain(std::iter::repeat_n(2.0, marks)).collect();
                Some(Estimate { rows: kept.rows * 0.5, rows_unfiltered: kept.rows_unfiltered, distinct })
            }
            LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::Repartition(_) => {
                Estimate::of(plan.inputs().first()?)
            }
            _ => None,
        }
    }

    fn of_scan(scan: &TableScan) -> Option<Self> {
        let Some((table, positions)) = pool_table(&scan.source) else { return Estimate::of_other(scan) };
        let info: &TableInfo = table.info();
        let placed = scan.filters.iter().map(|filter| table.place(&unqualified(filter)));
        let shares =
            placed.map(|p| p.sent.map_or(HERE_SELECTIVITY, |sent| estimate::selectivity(&sent, info)));
        let rows_unfiltered = info.rows as f64;
        let rows = (rows_unfiltered * shares.product::<f64>()).max(1.0);
        let of = |position: usize| {
            let column = positions.get(position).copied().flatten();
            column.map_or(rows_unfiltered, |c| estimate::distinct_values(&Expr::Column(c), info))
        };
        let every = || (0..positions.len()).collect();
        let projection: Vec<usize> = scan.projection.clone().unwrap_or_else(every);
        Some(Estimate { rows, rows_unfiltered, distinct: projection.into_iter().map(of).collect() })
    }

    /// A table that is in no pool: only its number of rows.
    fn of_other(scan: &TableScan) -> Option<Self> {
        let provider = datafusion::datasource::source_as_provider(&scan.source).ok()?;
        let rows = *provider.statistics()?.num_rows.get_value()? as f64;
        let distinct = vec![rows; scan.projected_schema.fields().len()];
        Some(Estimate { rows, rows_unfiltered: rows, distinct })
    }

    fn distinct(&self, schema: &DFSchema, expr: &Logical) -> f64 {
        let column = |c: &Column| schema.maybe_index_of_column(c).and_then(|i| self.distinct.get(i)).copied();
        match expr {
            Logical::Column(c) => column(c).unwrap_or(self.rows_unfiltered),
            Logical::Alias(alias) => self.distinct(schema, &alias.expr),
            other => {
                let columns = other.column_refs();
                let product: f64 = columns.into_iter().filter_map(column).product();
                product.min(self.rows_unfiltered)
            }
        }
    }
}
