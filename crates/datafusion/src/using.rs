//! JOIN … USING and NATURAL JOIN: the joined keys are one column each, as in SQL:2016, 7.10. In a FULL join it
//! is the value of the side that has one, in a RIGHT join that of the right side, else that of the left side.
//! In `*` it stands where the left side has the key, as in DuckDB; PostgreSQL puts keys first. The keys of the sides keep their qualified names; `*` and names without a qualifier mean the merged ones.
//!
//! DataFusion has no merged columns, so that its FULL and RIGHT joins return the left key, and a name in WHERE
//! is ambiguous. [`MergedKeys`] plans such a join as a projection. A marker above it,
//! which [`unmarked`] removes, tells DataFusion which columns `*` leaves out.

use crate::error;
use datafusion::common::{Column, DFSchema, DataFusionError, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::logical_plan::{EmptyRelation, Join, JoinConstraint as Constraint};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast::{
    Ident, Join as ParsedJoin, JoinConstraint, JoinOperator, TableFactor, TableWithJoins,
};
use farpool_model::Error;
use std::sync::Arc;

/// Plans joins in brackets; `dialect/joins.rs` puts brackets around those with merged keys.
#[derive(Debug)]
pub(crate) struct MergedKeys;

impl RelationPlanner for MergedKeys {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::NestedJoin { mut table_with_joins, alias } = relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(last) = table_with_joins.joins.iter().rposition(has_merged_keys) else {
            return Ok(RelationPlanning::Original(Box::new(TableFactor::NestedJoin {
                table_with_joins,
                alias,
            })));
        };
        if last + 1 < table_with_joins.joins.len() {
            bracket(&mut table_with_joins);
            return Ok(RelationPlanning::Original(Box::new(TableFactor::NestedJoin {
                table_with_joins,
                alias,
            })));
        }
        let Some(join) = table_with_joins.joins.pop() else {
            return Ok(RelationPlanning::Original(Box::new(TableFactor::NestedJoin {
                table_with_joins,
                alias,
            })));
        };
        let left = match table_with_joins.joins.is_empty() {
            true => context.plan(table_with_joins.relation)?,
            false => context.plan(TableFactor::NestedJoin { table_with_joins, alias: None })?,
        };
        let (constraint, join_type) = taken_apart(&join.join_operator)?;
        let right = context.plan(join.relation)?;
        let keys = match constraint {
            JoinConstraint::Using(names) => {
                let mut keys = Vec::new();
                for name in names {
                    let ident: Option<Ident> = name.0.first().and_then(|part| part.as_ident().cloned());
                    match (ident, name.0.len()) {
                        (Some(ident), 1) => keys.push(context.normalize_ident(ident)),
                        _ => return Err(refused(&format!("USING ({name}) does not name a column"))),
                    }
                }
                keys
            }
            _ => common(&left, &right),
        };
        let plan = merged(left, right, &keys, join_type, alias.is_some())?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

fn refused(what: &str) -> DataFusionError {
    error::wrap(Error::invalid(what).advise("write the condition with ON"))
}

/// Whether a join has USING or NATURAL.
pub(crate) fn has_merged_keys(join: &ParsedJoin) -> bool {
    taken_apart(&join.join_operator)
        .is_ok_and(|(constraint, _)| matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural))
}

/// Puts brackets around the tables up to the last join with merged keys.
pub(crate) fn bracket(tables: &mut TableWithJoins) {
    let Some(last) = tables.joins.iter().rposition(has_merged_keys) else { return };
    let joins: Vec<ParsedJoin> = tables.joins.drain(..=last).collect();
    let empty = TableFactor::NestedJoin {
        table_with_joins: Box::new(TableWithJoins { relation: tables.relation.clone(), joins }),
        alias: None,
    };
    tables.relation = empty;
}

fn taken_apart(operator: &JoinOperator) -> Result<(JoinConstraint, JoinType)> {
    let (constraint, join_type) = match operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (constraint, JoinType::Inner),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, JoinType::Left),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            (constraint, JoinType::Right)
        }
        JoinOperator::FullOuter(constraint) => (constraint, JoinType::Full),
        JoinOperator::LeftSemi(constraint) | JoinOperator::Semi(constraint) => {
            (constraint, JoinType::LeftSemi)
        }
        JoinOperator::LeftAnti(constraint) | JoinOperator::Anti(constraint) => {
            (constraint, JoinType::LeftAnti)
        }
        JoinOperator::RightSemi(constraint) => (constraint, JoinType::RightSemi),
        JoinOperator::RightAnti(constraint) => (constraint, JoinType::RightAnti),
        _ => return Err(refused("this join cannot have USING")),
    };
    Ok((constraint.clone(), join_type))
}

/// Returns the names that both sides have, in the order of the left one.
fn common(left: &LogicalPlan, right: &LogicalPlan) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for field in left.schema().fields() {
        let is_common = right.schema().fields().iter().any(|other| other.name() == field.name());
        if is_common && !names.contains(field.name()) {
            names.push(field.name().clone());
        }
    }
    names
}

/// One side of a join, with qualified keys.
struct Side {
    plan: LogicalPlan,
    keys: Vec<Column>,
    /// Its columns, each with the number of the key that it is.
    columns: Vec<(Column, Option<usize>)>,
}

impl Side {
    fn of(plan: LogicalPlan, names: &[String], hidden: &str) -> Result<Side> {
        let schema = Arc::clone(plan.schema());
        let mut found = Vec::new();
        for name in names {
            let (qualifier, field) = schema.qualified_field_with_unqualified_name(name)?;
            found.push(Column::from((qualifier, field)));
        }
        let number = |column: &Column| found.iter().position(|key| key == column);
        let columns = schema.columns().into_iter().map(|column| (column.clone(), number(&column))).collect();
        if found.iter().all(|key| key.relation.is_some()) {
            return Ok(Side { plan, keys: found, columns });
        }
        // A key without a qualifier, such as a merged one, gets one that both sides do not share.
        let renamed = |column: &Column| match column.relation.is_none() && found.contains(column) {
            true => Column::new(Some(hidden), column.name.as_str()),
            false => column.clone(),
        };
        let all = schema.columns().into_iter().map(|column| {
            let new = renamed(&column);
            match new == column {
                true => Expr::Column(column),
                false => Expr::Column(column).alias_qualified(new.relation, new.name),
            }
        });
        let plan = LogicalPlanBuilder::from(plan).project(all.collect::<Vec<_>>())?.build()?;
        Ok(Side { plan, keys: found.iter().map(renamed).collect(), columns })
    }
}

/// Joins two sides by equal names. `alone` leaves out the keys of the sides.
fn merged(
    left: LogicalPlan,
    right: LogicalPlan,
    names: &[String],
    join_type: JoinType,
    alone: bool,
) -> Result<LogicalPlan> {
    let left = Side::of(left, names, "__left_key")?;
    let right = Side::of(right, names, "__right_key")?;
    let pairs = || left.keys.iter().zip(&right.keys);
    let conditions: Vec<Expr> = pairs()
        .map(|(left, right)| Expr::Column(left.clone()).eq(Expr::Column(right.clone())))
        .chain(names.is_empty().then(|| lit(true)))
        .collect();
    let joined =
        LogicalPlanBuilder::from(left.plan.clone()).join_on(right.plan.clone(), join_type, conditions)?;
    let sides: Vec<&Side> = match join_type {
        JoinType::LeftSemi | JoinType::LeftAnti => vec![&left],
        JoinType::RightSemi | JoinType::RightAnti => vec![&right],
        _ => vec![&left, &right],
    };
    let merged = |place: usize| {
        let (left, right) = (Expr::Column(left.keys[place].clone()), Expr::Column(right.keys[place].clone()));
        let value = match join_type {
            JoinType::Full => coalesce(vec![left, right]),
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => right,
            _ => left,
        };
        value.alias(names[place].as_str())
    };
    let mut all = Vec::new();
    for (number, side) in sides.iter().enumerate() {
        for (column, key) in &side.columns {
            all.extend(key.filter(|_| number == 0).map(merged));
            let is_shown = key.is_none() || (column.relation.is_some() && !alone);
            all.extend(is_shown.then(|| Expr::Column(column.clone())));
        }
    }
    let plan = joined.project(all)?.build()?;
    let schema = Arc::clone(plan.schema());
    let keys = sides.iter().flat_map(|side| side.keys.iter()).filter(|key| schema.has_column(key));
    let pairs = keys
        .map(|key| (Expr::Column(Column::from_name(key.name.as_str())), Expr::Column(key.clone())))
        .collect();
    marked(plan, pairs)
}

/// Puts the marker above a plan: a join with USING, and without another side.
fn marked(plan: LogicalPlan, pairs: Vec<(Expr, Expr)>) -> Result<LogicalPlan> {
    if pairs.is_empty() {
        return Ok(plan);
    }
    let nothing = EmptyRelation { produce_one_row: true, schema: Arc::new(DFSchema::empty()) };
    let (left, right) = (Arc::new(plan), Arc::new(LogicalPlan::EmptyRelation(nothing)));
    let (inner, equality) = (JoinType::Inner, NullEquality::NullEqualsNothing);
    Join::try_new(left, right, pairs, None, inner, Constraint::Using, equality, false).map(LogicalPlan::Join)
}

/// Returns the plan below a marker.
pub(crate) fn unmarked(join: &Join) -> Option<&Arc<LogicalPlan>> {
    let is_nothing =
        matches!(&*join.right, LogicalPlan::EmptyRelation(empty) if empty.schema.fields().is_empty());
    (is_nothing && join.join_constraint == Constraint::Using).then_some(&join.left)
}
