//! JOIN … USING and NATURAL JOIN: each pair of join keys is merged into one column, as in SQL:2016, 7.10. In a FULL
//! join the merged column has the value of the side that has one; in a RIGHT join that of the right side; otherwise
//! that of the left side. In `*` it is at the position of the left side's key, as in DuckDB; PostgreSQL puts keys
//! first.
//!
//! DataFusion 55.2 has no merged columns (apache/datafusion#22881): its FULL and RIGHT joins return the left key, and
//! the name is ambiguous in WHERE. [`MergedKeys`] plans such a join as a projection in which the sides' own keys are
//! renamed, so that the unqualified name refers to the merged key. The steps: `dialect/joins.rs` numbers the join by a
//! mark in USING; planning then fails with the error [`Found`]; by this error, `dialect/merged_keys.rs` rewrites names
//! like `t.key` and wildcards; and the statement is planned again. This module is obsolete once upstream has merged
//! columns.

use crate::error;
use datafusion::common::{Column, DataFusionError, JoinType};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast::{
    Ident, Join as ParsedJoin, JoinConstraint, JoinOperator, ObjectName, TableFactor, TableWithJoins,
};
use farpool_model::Error;
use std::fmt;
use std::sync::Arc;

/// First character of a mark, which is a quoted name at the start of USING: `"#7"`.
const MARK: char = '#';
/// Suffix of the mark of a NATURAL join whose join keys are not known yet.
const NATURAL: &str = " natural";
/// Suffix of the mark of a join after the names of its keys have been rewritten.
const DONE: &str = " done";
/// Qualifier of merged keys, followed by the number of their join.
const MERGED: &str = "merged ";

/// The error of the first planning of a join whose keys are renamed. It is not shown: it tells `dialect/merged_keys.rs`
/// the new names.
#[derive(Debug)]
pub struct Found {
    mark: String,
    keys: Vec<String>,
    pub tables: Vec<Table>,
}

/// A table whose join keys are renamed.
#[derive(Debug)]
pub struct Table {
    pub name: String,
    /// All columns of the table in order, each with its new name if it has one.
    pub columns: Vec<(String, Option<String>)>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the join by USING ({}) cannot stand here", self.keys.join(", "))
    }
}

impl std::error::Error for Found {}

impl Found {
    /// If planning failed with this error, returns it; otherwise `None`.
    pub fn of(error: &DataFusionError) -> Option<&Found> {
        match error.find_root() {
            DataFusionError::External(inner) => inner.downcast_ref(),
            _ => None,
        }
    }

    /// If the join has this error's mark, marks it as rewritten. Returns whether it has.
    pub fn settle(&self, join: &mut ParsedJoin) -> bool {
        let Some(JoinConstraint::Using(names)) = constraint_mut(&mut join.join_operator) else {
            return false;
        };
        if mark_of(names) != Some(self.mark.as_str()) {
            return false;
        }
        let number = self.mark.trim_end_matches(NATURAL);
        let all = std::iter::once(format!("{number}{DONE}")).chain(self.keys.iter().cloned());
        *names = all.map(|name| ObjectName::from(vec![Ident::with_quote('"', name)])).collect();
        true
    }
}

/// Marks a join that has USING or NATURAL with a number. Returns whether a mark was added.
pub fn mark(join: &mut ParsedJoin, number: usize) -> bool {
    let Some(constraint) = constraint_mut(&mut join.join_operator) else { return false };
    let (end, names) = match constraint {
        JoinConstraint::Using(names) if mark_of(names).is_none() => ("", std::mem::take(names)),
        JoinConstraint::Natural => (NATURAL, Vec::new()),
        _ => return false,
    };
    let mark = ObjectName::from(vec![Ident::with_quote('"', format!("{MARK}{number}{end}"))]);
    *constraint = JoinConstraint::Using([mark].into_iter().chain(names).collect());
    true
}

fn mark_of(names: &[ObjectName]) -> Option<&str> {
    let ident = names.first()?.0.first()?.as_ident()?;
    (ident.quote_style.is_some() && ident.value.starts_with(MARK)).then_some(ident.value.as_str())
}

/// Plans joins in brackets. `dialect/joins.rs` puts brackets around those with merged keys.
#[derive(Debug)]
pub struct MergedKeys;

impl RelationPlanner for MergedKeys {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::NestedJoin { mut table_with_joins, alias } = relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let is_last = table_with_joins.joins.last().is_some_and(has_merged_keys);
        let join = match table_with_joins.joins.pop() {
            Some(join) if is_last => join,
            other => {
                table_with_joins.joins.extend(other);
                bracket(&mut table_with_joins);
                return Ok(RelationPlanning::Original(Box::new(TableFactor::NestedJoin {
                    table_with_joins,
                    alias,
                })));
            }
        };
        let left = match table_with_joins.joins.is_empty() {
            true => context.plan(table_with_joins.relation)?,
            false => context.plan(TableFactor::NestedJoin { table_with_joins, alias: None })?,
        };
        let (constraint, join_type) = taken_apart(&join.join_operator)?;
        let right = context.plan(join.relation)?;
        let merge = Merge::of(&constraint, join_type, &left, &right, context)?;
        let plan = merge.joined(left, right, alias.is_some())?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

fn refused(what: &str) -> DataFusionError {
    error::wrap(Error::invalid(what).advise("write the condition with ON"))
}

/// Returns whether a join has USING or NATURAL.
pub fn has_merged_keys(join: &ParsedJoin) -> bool {
    taken_apart(&join.join_operator)
        .is_ok_and(|(constraint, _)| matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural))
}

/// Puts the tables up to the last join with merged keys in brackets.
pub fn bracket(tables: &mut TableWithJoins) {
    let Some(last) = tables.joins.iter().rposition(has_merged_keys) else { return };
    let joins: Vec<ParsedJoin> = tables.joins.drain(..=last).collect();
    tables.relation = TableFactor::NestedJoin {
        table_with_joins: Box::new(TableWithJoins { relation: tables.relation.clone(), joins }),
        alias: None,
    };
}

fn constraint_mut(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::Semi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::RightAnti(constraint) => Some(constraint),
        _ => None,
    }
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

/// Returns the names of visible columns that both sides have, in the order of the left side: the keys of NATURAL JOIN.
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

/// A join with merged keys (USING, NATURAL), as it is planned.
struct Merge {
    mark: Option<String>,
    keys: Vec<String>,
    join_type: JoinType,
}

impl Merge {
    fn of(
        constraint: &JoinConstraint,
        join_type: JoinType,
        left: &LogicalPlan,
        right: &LogicalPlan,
        context: &dyn RelationPlannerContext,
    ) -> Result<Self> {
        let JoinConstraint::Using(names) = constraint else {
            return Ok(Merge { mark: None, keys: common(left, right), join_type });
        };
        let mark = mark_of(names).map(str::to_string);
        if mark.as_ref().is_some_and(|mark| mark.ends_with(NATURAL)) {
            return Ok(Merge { mark, keys: common(left, right), join_type });
        }
        let mut keys = Vec::new();
        for name in names.iter().skip(usize::from(mark.is_some())) {
            match (name.0.first().and_then(|part| part.as_ident()), name.0.len()) {
                (Some(ident), 1) => keys.push(context.normalize_ident(ident.clone())),
                _ => return Err(refused(&format!("USING ({name}) does not name a column"))),
            }
        }
        Ok(Merge { mark, keys, join_type })
    }

    /// Returns whether the merged key is the left side's key as it is.
    fn keeps_left(&self) -> bool {
        matches!(self.join_type, JoinType::Inner | JoinType::Left)
    }

    /// Returns the columns of a side that are join keys.
    fn keys_of(&self, side: &LogicalPlan) -> Result<Vec<Column>> {
        let key = |name: &String| side.schema().qualified_field_with_unqualified_name(name).map(Column::from);
        self.keys.iter().map(key).collect()
    }

    /// Joins two sides. `alone` tells that nothing above the join can refer to the sides' own columns.
    fn joined(&self, left: LogicalPlan, right: LogicalPlan, alone: bool) -> Result<LogicalPlan> {
        let (left_keys, right_keys) = (self.keys_of(&left)?, self.keys_of(&right)?);
        let pairs = left_keys.iter().zip(&right_keys);
        // Keys without a qualifier get one, so that the two sides can be told apart.
        let sides = [(left, "__left"), (right, "__right")].map(|(side, name)| qualified(side, name));
        let [left, right] = sides;
        let (left, right) = (left?, right?);
        let on: Vec<Expr> = pairs
            .map(|(a, b)| Expr::Column(with(a, "__left")).eq(Expr::Column(with(b, "__right"))))
            .chain(self.keys.is_empty().then(|| lit(true)))
            .collect();
        let (left_columns, right_columns) = (left.schema().columns(), right.schema().columns());
        let (left_keys, right_keys): (Vec<Column>, Vec<Column>) = (
            left_keys.iter().map(|key| with(key, "__left")).collect(),
            right_keys.iter().map(|key| with(key, "__right")).collect(),
        );
        let joined = LogicalPlanBuilder::from(left).join_on(right, self.join_type, on)?;
        if !matches!(self.join_type, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full) {
            return joined.build();
        }
        let mut found = Found {
            mark: self.mark.clone().unwrap_or_default(),
            keys: self.keys.clone(),
            tables: Vec::new(),
        };
        let mut all = Vec::new();
        for column in &left_columns {
            match left_keys.iter().position(|key| key == column) {
                None => all.push(found.shown(column)),
                Some(_) if self.keeps_left() => all.push(found.shown(column)),
                Some(place) => {
                    all.push(self.merged(&left_keys[place], &right_keys[place], place));
                    all.extend(found.hidden(column, alone));
                }
            }
        }
        for column in &right_columns {
            match right_keys.contains(column) {
                false => all.push(found.shown(column)),
                true => all.extend(found.hidden(column, alone)),
            }
        }
        found.tables.retain(|table| table.columns.iter().any(|(_, new)| new.is_some()));
        let is_settled = self.mark.as_ref().is_none_or(|mark| mark.ends_with(DONE));
        if !is_settled && !alone && !found.tables.is_empty() {
            return Err(DataFusionError::External(Box::new(found)));
        }
        joined.project(all)?.build()
    }

    fn qualifier(&self) -> String {
        let number = self.mark.as_deref().unwrap_or_default().trim_start_matches(MARK);
        format!("{MERGED}{}", number.trim_end_matches(DONE).trim_end_matches(NATURAL))
    }

    fn merged(&self, left: &Column, right: &Column, place: usize) -> Expr {
        let (left, right) = (Expr::Column(left.clone()), Expr::Column(right.clone()));
        let value = match self.join_type {
            JoinType::Full => coalesce(vec![left, right]),
            _ => right,
        };
        value.alias_qualified(Some(self.qualifier()), self.keys[place].as_str())
    }
}

impl Found {
    fn table(&mut self, column: &Column) -> Option<&mut Table> {
        let name = column.relation.as_ref()?.table();
        if name.starts_with("__") || name.starts_with(MERGED) {
            return None;
        }
        let place = self.tables.iter().position(|table| table.name == name).unwrap_or_else(|| {
            self.tables.push(Table { name: name.to_string(), columns: Vec::new() });
            self.tables.len() - 1
        });
        self.tables.get_mut(place)
    }

    /// Returns a column under its own name, and notes it for [`Found`].
    fn shown(&mut self, column: &Column) -> Expr {
        if let Some(table) = self.table(column) {
            table.columns.push((column.name.clone(), None));
        }
        match &column.relation {
            Some(table) if matches!(table.table(), "__left" | "__right") => {
                Expr::Column(column.clone()).alias(column.name.as_str())
            }
            _ => Expr::Column(column.clone()),
        }
    }

    /// Returns a join key under its new name, and notes that for [`Found`]; `None` if nothing can refer to the key.
    fn hidden(&mut self, column: &Column, alone: bool) -> Option<Expr> {
        let table = self.table(column)?;
        let new = format!("{} of {}", column.name, table.name);
        table.columns.push((column.name.clone(), Some(new.clone())));
        (!alone).then(|| Expr::Column(column.clone()).alias_qualified(column.relation.clone(), new))
    }
}

/// Returns the column, with `table` as its qualifier if it has none.
fn with(column: &Column, table: &str) -> Column {
    match column.relation {
        Some(_) => column.clone(),
        None => Column::new(Some(table), column.name.as_str()),
    }
}

/// Adds the qualifier `table` to columns without one.
fn qualified(plan: LogicalPlan, table: &str) -> Result<LogicalPlan> {
    let columns = Arc::clone(plan.schema()).columns();
    if columns.iter().all(|column| column.relation.is_some()) {
        return Ok(plan);
    }
    let all = columns.into_iter().map(|column| match column.relation {
        Some(_) => Expr::Column(column),
        None => {
            let new = with(&column, table);
            Expr::Column(column).alias_qualified(new.relation, new.name)
        }
    });
    LogicalPlanBuilder::from(plan).project(all.collect::<Vec<_>>())?.build()
}
