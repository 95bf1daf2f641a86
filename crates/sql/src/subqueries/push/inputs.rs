//! Pushes a domain (the distinct values of outer columns that a subquery refers to) below operators with several
//! inputs: joins, UNION and VALUES.

use super::{Pusher, either, named};
use crate::subqueries::domain::join_null_safe;
use crate::subqueries::references::{lateral, replaced_within};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::{Join, JoinConstraint, Subquery, Union, Values};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use std::sync::Arc;

impl Pusher<'_> {
    pub(super) fn joined(&self, join: Join) -> Result<LogicalPlan> {
        let schemas = [Arc::clone(join.left.schema()), Arc::clone(join.right.schema())];
        let local = [&schemas[0], &schemas[1]];
        let output = Arc::clone(&join.schema);
        let lateral = lateral(&join.right).is_some();
        let on: Vec<(Expr, Expr)> = join
            .on
            .into_iter()
            .map(|(left, right)| Ok((self.replaced(left, &local)?, self.replaced(right, &local)?)))
            .collect::<Result<_>>()?;
        let filter = join.filter.map(|filter| self.replaced(filter, &local)).transpose()?;
        let (left, right) = (Arc::unwrap_or_clone(join.left), Arc::unwrap_or_clone(join.right));
        let (join_type, equality) = (join.join_type, join.null_equality);
        let plain = |left: LogicalPlan, right: LogicalPlan, on, filter| {
            let (left, right) = (Arc::new(left), Arc::new(right));
            Join::try_new(left, right, on, filter, join_type, JoinConstraint::On, equality, false)
                .map(LogicalPlan::Join)
        };
        let returns_left = !matches!(
            join_type,
            JoinType::Right
                | JoinType::RightSemi
                | JoinType::RightAnti
                | JoinType::RightMark
                | JoinType::Full
        );
        let returns_right = matches!(
            join_type,
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
        );
        let made = if lateral {
            plain(self.push(left, false)?.plan, self.in_lateral(right, &schemas[0])?, on, filter)?
        } else if (returns_left || join_type == JoinType::Inner) && self.is_free(&right)? {
            plain(self.push(left, false)?.plan, right, on, filter)?
        } else if (returns_right || join_type == JoinType::Inner) && self.is_free(&left)? {
            plain(left, self.push(right, false)?.plan, on, filter)?
        } else {
            return self.both(left, right, on, filter, join_type, equality, &output);
        };
        let own = output.columns().into_iter().map(Expr::Column);
        LogicalPlanBuilder::from(made).project(self.domain.exprs().into_iter().chain(own))?.build()
    }

    /// Replaces references in the right side of a lateral join.
    fn in_lateral(&self, right: LogicalPlan, left: &DFSchemaRef) -> Result<LogicalPlan> {
        let mut by = self.domain.replacements();
        by.retain(|column, _| !left.has_column(column));
        let within = |subquery: Subquery| replaced_within(subquery, &by).map(LogicalPlan::Subquery);
        let made = right.transform_down(|plan| match plan {
            LogicalPlan::Subquery(subquery) => {
                Ok(Transformed::new(within(subquery)?, true, TreeNodeRecursion::Stop))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(made.data)
    }

    /// Joins two sides that both contain the domain's columns: rows match only for the same row of the domain.
    #[expect(clippy::too_many_arguments, reason = "the parts of one join")]
    fn both(
        &self,
        left: LogicalPlan,
        right: LogicalPlan,
        mut on: Vec<(Expr, Expr)>,
        filter: Option<Expr>,
        join_type: JoinType,
        equality: NullEquality,
        output: &DFSchemaRef,
    ) -> Result<LogicalPlan> {
        let (left, right) = (self.push(left, false)?.plan, self.push(right, false)?.plan);
        let (right, keys) = self.domain.renamed(right, self.names)?;
        let keys: Vec<Expr> = keys.into_iter().map(Expr::Column).collect();
        let mut conditions: Vec<Expr> = filter.into_iter().collect();
        if equality == NullEquality::NullEqualsNothing {
            conditions.extend(on.iter().map(|(left, right)| left.clone().eq(right.clone())));
        }
        on.extend(self.domain.exprs().into_iter().zip(keys.iter().cloned()));
        let condition = conditions.into_iter().reduce(Expr::and);
        let joined = join_null_safe(left, right, join_type, on, condition)?;
        let values: Vec<Expr> = self
            .domain
            .exprs()
            .into_iter()
            .zip(keys)
            .zip(&self.domain.columns)
            .map(|((left, right), name)| {
                let value = match join_type {
                    JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                        right
                    }
                    JoinType::Full => either(left.clone().is_null(), right, left),
                    _ => left,
                };
                value.alias_qualified(name.relation.clone(), name.name.as_str())
            })
            .collect();
        let own = output.columns().into_iter().map(Expr::Column);
        LogicalPlanBuilder::from(joined).project(values.into_iter().chain(own))?.build()
    }

    pub(super) fn united(&self, union: Union) -> Result<LogicalPlan> {
        let table = self.names.table();
        let keys = self.domain.columns.len();
        let at = |place: usize| Column::new(None::<String>, format!("{table}_{place}"));
        let inputs = union
            .inputs
            .into_iter()
            .map(|input| {
                let input = Arc::unwrap_or_clone(input);
                let fields = input.schema().columns().into_iter().map(Expr::Column);
                let below = self.push(input, false)?.plan;
                let all = self.domain.exprs().into_iter().chain(fields);
                let all = all.enumerate().map(|(place, expr)| expr.alias(at(place).name));
                LogicalPlanBuilder::from(below).project(all)?.build().map(Arc::new)
            })
            .collect::<Result<Vec<_>>>()?;
        let plan = LogicalPlan::Union(Union::try_new(inputs)?);
        let columns = plan.schema().columns();
        let first = columns.iter().zip(&self.domain.columns).map(|(column, name)| {
            Expr::Column(column.clone()).alias_qualified(name.relation.clone(), name.name.as_str())
        });
        let rest = columns.iter().skip(keys).cloned().map(Expr::Column).collect();
        let all: Vec<Expr> = first.chain(named(rest, &union.schema)).collect();
        LogicalPlanBuilder::from(plan).project(all)?.build()
    }

    /// Returns each row of VALUES combined with each row of the domain.
    pub(super) fn values(&self, values: Values) -> Result<LogicalPlan> {
        let empty = Arc::new(DFSchema::empty());
        let rows = values.values.into_iter().map(|row| {
            let row = self.all_replaced(row, &empty)?;
            let typed = row
                .into_iter()
                .zip(values.schema.fields())
                .map(|(expr, field)| cast(expr, field.data_type().clone()));
            let named = named(typed.collect(), &values.schema);
            let plan = LogicalPlanBuilder::from(self.domain.plan.clone())
                .project(self.domain.exprs().into_iter().chain(named))?
                .build()?;
            Ok(Arc::new(plan))
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        if rows.len() == 1 {
            return Ok(LogicalPlan::clone(&rows[0]));
        }
        let all: Vec<Expr> =
            self.domain.columns.iter().cloned().chain(values.schema.columns()).map(Expr::Column).collect();
        let plan = LogicalPlan::Union(Union::try_new(rows)?);
        let columns = plan.schema().columns().into_iter();
        let restored = columns.zip(all).map(|(column, wanted)| match wanted {
            Expr::Column(wanted) => Expr::Column(column).alias_qualified(wanted.relation, wanted.name),
            _ => Expr::Column(column),
        });
        LogicalPlanBuilder::from(plan).project(restored.collect::<Vec<_>>())?.build()
    }
}
