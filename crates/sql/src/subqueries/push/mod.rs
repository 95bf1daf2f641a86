//! Pushes a domain (the distinct values of outer columns) down a subquery, until no reference to an outer column
//! remains. The result has, for each row of the domain, the rows of the subquery next to the domain's row (Neumann and
//! Kemper, "Unnesting Arbitrary Queries", 2015, section 3).
//!
//! Invariant: the new plan has the columns of the domain and those of the old plan, with their names. Rows for
//! different rows of the domain are never combined: joins compare the domain's columns, and groups and windows have
//! them among their keys.

mod inputs;

use super::domain::{Domain, join_null_safe};
use super::references::{free_columns, replaced};
use super::{Names, refused};
use datafusion::common::{Column, DFSchemaRef, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::builder::unnest_with_options;
use datafusion::logical_expr::expr::{AggregateFunction, GroupingSet, Sort as SortKey};
use datafusion::logical_expr::logical_plan::{Aggregate, Distinct, DistinctOn, Limit, Window};
use datafusion::logical_expr::{
    Case, Expr, ExprFunctionExt, ExprSchemable, LogicalPlan, LogicalPlanBuilder, SortExpr, cast, lit,
};
use std::sync::Arc;

/// A plan that includes the domain's columns.
pub(super) struct Pushed {
    pub plan: LogicalPlan,
    /// If the rows are sorted: a column that numbers the rows for each row of the domain in their order.
    order: Option<Column>,
}

impl From<LogicalPlan> for Pushed {
    fn from(plan: LogicalPlan) -> Self {
        Pushed { plan, order: None }
    }
}

/// Pushes `domain` down `plan`; returns the new plan.
///
/// # Errors
/// Fails for operators that cannot be evaluated for many outer rows at once.
pub(super) fn push(plan: LogicalPlan, domain: &Domain, names: &Names) -> Result<LogicalPlan> {
    Pusher { domain, names }.push(plan, false).map(|pushed| pushed.plan)
}

struct Pusher<'a> {
    domain: &'a Domain,
    names: &'a Names,
}

impl Pusher<'_> {
    fn is_free(&self, plan: &LogicalPlan) -> Result<bool> {
        Ok(!free_columns(plan)?.iter().any(|column| self.domain.outer.contains(column)))
    }

    fn replaced(&self, expr: Expr, local: &[&DFSchemaRef]) -> Result<Expr> {
        replaced(expr, local, &self.domain.replacements())
    }

    fn all_replaced(&self, exprs: Vec<Expr>, local: &DFSchemaRef) -> Result<Vec<Expr>> {
        exprs.into_iter().map(|expr| self.replaced(expr, &[local])).collect()
    }

    fn keys_replaced(&self, keys: Vec<SortKey>, local: &DFSchemaRef) -> Result<Vec<SortKey>> {
        let replaced = |key: SortKey| Ok(SortKey { expr: self.replaced(key.expr, &[local])?, ..key });
        keys.into_iter().map(replaced).collect()
    }

    /// Pushes the domain down from one node. `ordered` tells that a LIMIT above depends on the order of the rows.
    fn push(&self, plan: LogicalPlan, ordered: bool) -> Result<Pushed> {
        if self.is_free(&plan)? && !(ordered && is_sorted(&plan)) {
            return self.crossed(plan).map(Pushed::from);
        }
        match plan {
            LogicalPlan::Projection(projection) => {
                let input = Arc::unwrap_or_clone(projection.input);
                let schema = Arc::clone(input.schema());
                let below = self.push(input, ordered)?;
                let exprs = self.all_replaced(projection.expr, &schema)?;
                self.projected(below, exprs, &projection.schema)
            }
            LogicalPlan::Filter(filter) => {
                let input = Arc::unwrap_or_clone(filter.input);
                let schema = Arc::clone(input.schema());
                let below = self.push(input, ordered)?;
                let predicate = self.replaced(filter.predicate, &[&schema])?;
                let plan = LogicalPlanBuilder::from(below.plan).filter(predicate)?.build()?;
                Ok(Pushed { plan, order: below.order })
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let input = Arc::unwrap_or_clone(alias.input);
                let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
                let below = self.push(input, ordered)?;
                self.projected(below, columns, &alias.schema)
            }
            LogicalPlan::Subquery(subquery) => self.push(Arc::unwrap_or_clone(subquery.subquery), ordered),
            LogicalPlan::Aggregate(aggregate) => self.aggregated(aggregate).map(Pushed::from),
            LogicalPlan::Window(window) => self.windowed(window).map(Pushed::from),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let fields = input.schema().columns();
                let below = self.push(Arc::unwrap_or_clone(input), false)?;
                let exprs = self.domain.exprs().into_iter().chain(fields.into_iter().map(Expr::Column));
                let plan = LogicalPlanBuilder::from(below.plan).project(exprs)?.distinct()?.build()?;
                Ok(Pushed::from(plan))
            }
            LogicalPlan::Distinct(Distinct::On(distinct)) => self.distinct_on(distinct).map(Pushed::from),
            LogicalPlan::Sort(sort) => self.sorted(sort, ordered),
            LogicalPlan::Limit(limit) => self.limited(limit),
            LogicalPlan::Join(join) => self.joined(join).map(Pushed::from),
            LogicalPlan::Union(union) => self.united(union).map(Pushed::from),
            LogicalPlan::Values(values) => self.values(values).map(Pushed::from),
            LogicalPlan::Unnest(unnest) => {
                let input = Arc::unwrap_or_clone(unnest.input);
                let below = self.push(input, false)?.plan;
                unnest_with_options(below, unnest.exec_columns, unnest.options).map(Pushed::from)
            }
            LogicalPlan::RecursiveQuery(_) => {
                Err(refused("a recursive query that names columns of an outer query is not done"))
            }
            _ => Err(refused("this part of a subquery cannot name columns of an outer query")),
        }
    }

    /// Returns each row of `plan` combined with each row of the domain.
    fn crossed(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if let LogicalPlan::EmptyRelation(empty) = &plan
            && empty.produce_one_row
            && empty.schema.fields().is_empty()
        {
            return Ok(self.domain.plan.clone());
        }
        LogicalPlanBuilder::from(self.domain.plan.clone()).cross_join(plan)?.build()
    }

    /// Projects to the domain's columns and to expressions, which get the names of `schema`.
    fn projected(&self, below: Pushed, exprs: Vec<Expr>, schema: &DFSchemaRef) -> Result<Pushed> {
        let order = below.order.clone().map(Expr::Column);
        let named = named(exprs, schema);
        let all = self.domain.exprs().into_iter().chain(named).chain(order);
        let plan = LogicalPlanBuilder::from(below.plan).project(all)?.build()?;
        Ok(Pushed { plan, order: below.order })
    }

    fn aggregated(&self, aggregate: Aggregate) -> Result<LogicalPlan> {
        let input = Arc::unwrap_or_clone(aggregate.input);
        let schema = Arc::clone(input.schema());
        let below = self.push(input, false)?.plan;
        let groups = self.all_replaced(aggregate.group_expr, &schema)?;
        let functions = self.all_replaced(aggregate.aggr_expr, &schema)?;
        let is_whole = groups.is_empty();
        let (groups, sets) = match <[Expr; 1]>::try_from(groups) {
            Ok([Expr::GroupingSet(set)]) => (vec![Expr::GroupingSet(self.with_domain(set)?)], true),
            Ok([group]) => (self.domain.exprs().into_iter().chain([group]).collect(), false),
            Err(groups) => (self.domain.exprs().into_iter().chain(groups).collect(), false),
        };
        let empty =
            functions.iter().map(|function| of_no_rows(function, &below)).collect::<Result<Vec<_>>>()?;
        let made = Aggregate::try_new(Arc::new(below), groups, functions)?;
        let columns = made.schema.columns();
        let own =
            columns.iter().skip(self.domain.columns.len()).cloned().map(Expr::Column).collect::<Vec<_>>();
        let own = match sets {
            true => with_types(own, &made.schema, self.domain.columns.len(), &aggregate.schema),
            false => own,
        };
        let grouped = LogicalPlan::Aggregate(made);
        if !is_whole {
            let plan = self.projected(Pushed::from(grouped), own, &aggregate.schema)?.plan;
            return Ok(plan);
        }
        self.with_missing(grouped, own, empty, &aggregate.schema)
    }

    /// Adds a row for each row of the domain that has no input rows: the result of the aggregates over no rows (`count`
    /// is 0).
    fn with_missing(
        &self,
        grouped: LogicalPlan,
        own: Vec<Expr>,
        empty: Vec<ScalarValue>,
        schema: &DFSchemaRef,
    ) -> Result<LogicalPlan> {
        let table = self.names.table();
        let at = |place: usize| Column::new(Some(table.as_str()), format!("c{place}"));
        let found = Column::new(Some(table.as_str()), "found");
        let named = own.into_iter().enumerate().map(|(place, expr)| {
            let column = at(place);
            expr.alias_qualified(column.relation, column.name)
        });
        let marked = named.chain([lit(true).alias_qualified(Some(table.as_str()), "found")]);
        let grouped = LogicalPlanBuilder::from(grouped)
            .project(self.domain.exprs().into_iter().chain(marked))?
            .build()?;
        let (grouped, keys) = self.domain.renamed(grouped, self.names)?;
        let on = self.domain.exprs().into_iter().zip(keys.into_iter().map(Expr::Column)).collect();
        let joined = join_null_safe(self.domain.plan.clone(), grouped, JoinType::Left, on, None)?;
        let values = empty.into_iter().enumerate().map(|(place, empty)| {
            let value = Expr::Column(at(place));
            match empty.is_null() {
                true => value,
                false => either(Expr::Column(found.clone()), value, lit(empty)),
            }
        });
        Ok(self.projected(Pushed::from(joined), values.collect(), schema)?.plan)
    }

    fn with_domain(&self, set: GroupingSet) -> Result<GroupingSet> {
        let all = |set: Vec<Expr>| self.domain.exprs().into_iter().chain(set).collect::<Vec<_>>();
        match set {
            GroupingSet::GroupingSets(sets) if sets.iter().all(|set| !set.is_empty()) => {
                Ok(GroupingSet::GroupingSets(sets.into_iter().map(all).collect()))
            }
            // The empty grouping set must have a row for each outer row, even if there are no rows to group.
            _ => Err(refused(
                "ROLLUP, CUBE and the empty grouping set in a subquery that names columns of an outer query are not done",
            )),
        }
    }

    fn windowed(&self, window: Window) -> Result<LogicalPlan> {
        let input = Arc::unwrap_or_clone(window.input);
        let schema = Arc::clone(input.schema());
        let below = self.push(input, false)?.plan;
        let made = self.all_replaced(window.window_expr, &schema)?;
        let made: Vec<Expr> = made.into_iter().map(|expr| self.within_domain(expr)).collect::<Result<_>>()?;
        let table = self.names.table();
        let named = made
            .into_iter()
            .enumerate()
            .map(|(place, expr)| expr.unalias().alias_qualified(Some(table.as_str()), format!("w{place}")))
            .collect::<Vec<_>>();
        let count = named.len();
        let plan = LogicalPlan::Window(Window::try_new(named, Arc::new(below))?);
        let values = (0..count).map(|place| Column::new(Some(table.as_str()), format!("w{place}")));
        let all = schema.columns().into_iter().chain(values).map(Expr::Column).collect();
        Ok(self.projected(Pushed::from(plan), all, &window.schema)?.plan)
    }

    /// Adds the domain's columns to PARTITION BY of a window function.
    fn within_domain(&self, expr: Expr) -> Result<Expr> {
        match expr {
            Expr::WindowFunction(mut function) => {
                let keys = std::mem::take(&mut function.params.partition_by);
                function.params.partition_by = self.domain.exprs().into_iter().chain(keys).collect();
                Ok(Expr::WindowFunction(function))
            }
            Expr::Alias(mut alias) => {
                alias.expr = Box::new(self.within_domain(*alias.expr)?);
                Ok(Expr::Alias(alias))
            }
            _ => Err(refused("this window function in a subquery cannot name columns of an outer query")),
        }
    }

    fn distinct_on(&self, distinct: DistinctOn) -> Result<LogicalPlan> {
        let input = Arc::unwrap_or_clone(distinct.input);
        let schema = Arc::clone(input.schema());
        let below = self.push(input, false)?.plan;
        let own = self.all_replaced(distinct.on_expr, &schema)?;
        let on = self.domain.exprs().into_iter().chain(own).collect();
        let table = self.names.table();
        let count = distinct.select_expr.len();
        let selected = self.all_replaced(distinct.select_expr, &schema)?;
        let selected = selected
            .into_iter()
            .enumerate()
            .map(|(place, expr)| expr.unalias().alias_qualified(Some(table.as_str()), format!("c{place}")));
        let selected = self.domain.exprs().into_iter().chain(selected).collect();
        let keys = match distinct.sort_expr {
            Some(keys) => {
                let first = self.domain.exprs().into_iter().map(|expr| SortExpr::new(expr, true, false));
                Some(first.chain(self.keys_replaced(keys, &schema)?).collect())
            }
            None => None,
        };
        let made = DistinctOn::try_new(on, selected, keys, Arc::new(below))?;
        let columns =
            (0..count).map(|place| Expr::Column(Column::new(Some(table.as_str()), format!("c{place}"))));
        let plan = LogicalPlan::Distinct(Distinct::On(made));
        Ok(self.projected(Pushed::from(plan), columns.collect(), &distinct.schema)?.plan)
    }

    fn sorted(&self, sort: datafusion::logical_expr::Sort, ordered: bool) -> Result<Pushed> {
        let input = Arc::unwrap_or_clone(sort.input);
        let schema = Arc::clone(input.schema());
        let below = self.push(input, false)?.plan;
        let keys = self.keys_replaced(sort.expr, &schema)?;
        if !ordered && sort.fetch.is_none() {
            let plan = LogicalPlanBuilder::from(below).sort(keys)?.build()?;
            return Ok(Pushed::from(plan));
        }
        let pushed = self.numbered(below, keys, &schema)?;
        match sort.fetch {
            Some(fetch) => {
                let fetch = i64::try_from(fetch).unwrap_or(i64::MAX);
                self.cut(pushed, None, Some(lit(fetch)))
            }
            None => Ok(pushed),
        }
    }

    /// Adds a column that numbers the rows, for each row of the domain separately, in the order of the sort keys.
    fn numbered(&self, plan: LogicalPlan, keys: Vec<SortKey>, schema: &DFSchemaRef) -> Result<Pushed> {
        let number = Column::new(Some(self.names.table()), "n");
        let window = row_number().partition_by(self.domain.exprs()).order_by(keys).build()?;
        let window = window.alias_qualified(number.relation.clone(), number.name.as_str());
        let plan = LogicalPlan::Window(Window::try_new(vec![window], Arc::new(plan))?);
        let own = schema.columns().into_iter().chain([number.clone()]).map(Expr::Column);
        let plan =
            LogicalPlanBuilder::from(plan).project(self.domain.exprs().into_iter().chain(own))?.build()?;
        Ok(Pushed { plan, order: Some(number) })
    }

    fn limited(&self, limit: Limit) -> Result<Pushed> {
        let input = Arc::unwrap_or_clone(limit.input);
        let schema = Arc::clone(input.schema());
        let below = self.push(input, true)?;
        let bound =
            |bound: Option<Box<Expr>>| bound.map(|bound| self.replaced(*bound, &[&schema])).transpose();
        let (skip, fetch) = (bound(limit.skip)?, bound(limit.fetch)?);
        // The rows are numbered anew, because filters may have removed rows and left gaps in the numbers.
        let keys = below.order.map(|order| SortExpr::new(Expr::Column(order), true, false));
        let pushed = self.numbered(below.plan, keys.into_iter().collect(), &schema)?;
        self.cut(pushed, skip, fetch)
    }

    /// Applies OFFSET (`skip`) and LIMIT (`fetch`) for each row of the domain separately, by the numbers of the rows.
    fn cut(&self, pushed: Pushed, skip: Option<Expr>, fetch: Option<Expr>) -> Result<Pushed> {
        let Some(order) = pushed.order.clone() else { return Ok(pushed) };
        let number = cast(Expr::Column(order), arrow_schema::DataType::Int64);
        let skip = skip.unwrap_or_else(|| lit(0_i64));
        let mut condition = number.clone().gt(skip.clone());
        if let Some(fetch) = fetch {
            let within = (number - skip).lt_eq(fetch.clone());
            condition = condition.and(match fetch {
                Expr::Literal(value, _) if value.is_null() => lit(true),
                Expr::Literal(..) => within,
                fetch => fetch.is_null().or(within),
            });
        }
        let plan = LogicalPlanBuilder::from(pushed.plan).filter(condition)?.build()?;
        Ok(Pushed { plan, order: pushed.order })
    }
}

/// Returns whether the plan's rows are sorted by a sort below, which only operators that preserve the order are above.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) => {
            plan.inputs().into_iter().all(is_sorted)
        }
        _ => false,
    }
}

/// Gives expressions the names of the fields of a schema.
fn named(exprs: Vec<Expr>, schema: &DFSchemaRef) -> Vec<Expr> {
    exprs
        .into_iter()
        .zip(schema.columns())
        .map(|(expr, name)| match expr {
            Expr::Column(column) if column == name => Expr::Column(column),
            expr => expr.unalias().alias_qualified(name.relation, name.name),
        })
        .collect()
}

/// Casts values to the types of a schema. A type may differ because the column that identifies the grouping set has
/// become wider.
fn with_types(own: Vec<Expr>, made: &DFSchemaRef, skip: usize, wanted: &DFSchemaRef) -> Vec<Expr> {
    let types = made.fields().iter().skip(skip).zip(wanted.fields());
    own.into_iter()
        .zip(types)
        .map(|(expr, (made, wanted))| match made.data_type() == wanted.data_type() {
            true => expr,
            false => cast(expr, wanted.data_type().clone()),
        })
        .collect()
}

/// Returns the value of an aggregate over no rows, such as 0 for `count`.
pub(super) fn of_no_rows(function: &Expr, rows: &LogicalPlan) -> Result<ScalarValue> {
    let data_type = function.get_type(rows.schema())?;
    match function.clone().unalias() {
        Expr::AggregateFunction(AggregateFunction { func, .. }) => func.default_value(&data_type),
        _ => ScalarValue::try_from(&data_type),
    }
}

/// Returns `CASE WHEN condition THEN value ELSE other END`.
pub(super) fn either(condition: Expr, value: Expr, other: Expr) -> Expr {
    Expr::Case(Case::new(None, vec![(Box::new(condition), Box::new(value))], Some(Box::new(other))))
}
