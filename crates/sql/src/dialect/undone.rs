//! Refuses forms that DataFusion 55.2 parses and then silently ignores: an error is better than a wrong result.

use super::headers::normal;
use super::refusal;
use super::show::is_file;
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, AssignmentTarget, ColumnOption, ColumnOptionDef, JoinOperator,
    ObjectName, Query, Select, Statement, TableFactor, Update,
};
use std::collections::HashSet;

const LEAVE_OUT: &str = "leave it out";
const ASOF_JOIN: &str = "ASOF JOIN";
const ASOF_ADVICE: &str = "join with the latest time: … ON u.k = t.k AND u.t = (SELECT max(v.t) FROM u v WHERE v.k = t.k AND v.t <= t.t)";

/// Replaces the parser's error for an ASOF JOIN in DuckDB's syntax, since the parser knows only another syntax.
pub(super) fn asof_join(error: DataFusionError) -> DataFusionError {
    match error.to_string().contains("MATCH_CONDITION") {
        true => refusal(&format!("{ASOF_JOIN} is not done"), ASOF_ADVICE),
        false => error,
    }
}

fn refuse(is_asked: bool, what: &str, advice: &str) -> Result<()> {
    match is_asked {
        true => Err(refusal(&format!("{what} is not done"), advice)),
        false => Ok(()),
    }
}

pub(super) fn statement(statement: &Statement) -> Result<()> {
    let is_transaction = matches!(
        statement,
        Statement::StartTransaction { .. }
            | Statement::Commit { .. }
            | Statement::Rollback { .. }
            | Statement::Savepoint { .. }
    );
    refuse(is_transaction, "a transaction of several statements", "each statement is one of its own")?;
    let advice = "tables stand in the pool that a session is given";
    refuse(matches!(statement, Statement::CreateDatabase { .. }), "CREATE DATABASE", advice)?;
    let returning = match statement {
        Statement::Insert(insert) => insert.returning.is_some(),
        Statement::Update(update) => {
            assigned_once(update)?;
            update.returning.is_some()
        }
        Statement::Delete(delete) => delete.returning.is_some(),
        _ => false,
    };
    refuse(
        returning,
        "RETURNING",
        "the rows change at the pool, which returns their number; query them before or after",
    )?;
    let changes_type = |operation: &AlterTableOperation| {
        let AlterTableOperation::AlterColumn { op, .. } = operation else { return false };
        matches!(op, AlterColumnOperation::SetDataType { .. })
    };
    let is_asked =
        matches!(statement, Statement::AlterTable(alter) if alter.operations.iter().any(changes_type));
    let advice = "CREATE OR REPLACE TABLE t AS SELECT … with the column cast";
    refuse(is_asked, "a change of a column's type", advice)?;
    let is_generated = |option: &ColumnOptionDef| matches!(option.option, ColumnOption::Generated { .. });
    let is_asked = matches!(statement, Statement::CreateTable(table)
        if table.columns.iter().any(|column| column.options.iter().any(is_generated)));
    refuse(
        is_asked,
        "a generated column",
        "make a view with the column, or compute it where rows are inserted",
    )?;
    let is_index = matches!(statement, Statement::CreateIndex(_));
    refuse(is_index, "CREATE INDEX", "row groups have bounds of each column, which need no index")?;
    let drops_files = matches!(statement, Statement::Drop { names, .. } if names.iter().any(is_file));
    refuse(drops_files, "DROP of a file", "remove it with the system's own means")
}

/// Refuses an UPDATE that assigns two values to one column.
fn assigned_once(update: &Update) -> Result<()> {
    let mut seen = HashSet::new();
    for assignment in &update.assignments {
        let columns: &[ObjectName] = match &assignment.target {
            AssignmentTarget::ColumnName(column) => std::slice::from_ref(column),
            AssignmentTarget::Tuple(columns) => columns,
        };
        for column in columns {
            let Some(name) = column.0.last().and_then(|part| part.as_ident()) else { continue };
            if !seen.insert(normal(name, true)) {
                let what = format!("UPDATE sets the column {} twice", name.value);
                return Err(refusal(&what, "leave one of the values out"));
            }
        }
    }
    Ok(())
}

pub(super) fn query(query: &Query) -> Result<()> {
    let advice = "a statement reads one version of each table, and nothing locks it";
    refuse(!query.locks.is_empty(), "FOR UPDATE or FOR SHARE", advice)?;
    refuse(query.for_clause.is_some(), "FOR XML, JSON or BROWSE", "choose the format with --format")?;
    refuse(query.settings.is_some(), "SETTINGS of one query", LEAVE_OUT)?;
    refuse(query.format_clause.is_some(), "FORMAT behind a query", "choose the format with --format")
}

pub(super) fn select(select: &Select) -> Result<()> {
    refuse(!select.connect_by.is_empty(), "CONNECT BY", "use WITH RECURSIVE")?;
    refuse(select.prewhere.is_some(), "PREWHERE", "use WHERE")?;
    let mut joins = select.from.iter().flat_map(|from| &from.joins);
    let is_as_of = joins.any(|join| matches!(join.join_operator, JoinOperator::AsOf { .. }));
    refuse(is_as_of, ASOF_JOIN, ASOF_ADVICE)?;
    refuse(select.select_modifiers.is_some(), "a modifier of SELECT", LEAVE_OUT)?;
    refuse(select.value_table_mode.is_some(), "SELECT AS STRUCT or AS VALUE", "use struct(…)")
}

pub(super) fn table(table: &TableFactor) -> Result<()> {
    let (sample, others) = match table {
        TableFactor::Table {
            sample,
            version,
            with_ordinality,
            with_hints,
            partitions,
            json_path,
            index_hints,
            ..
        } => {
            let others = [
                (version.is_some(), "an older version of a table"),
                (*with_ordinality, "WITH ORDINALITY"),
                (!with_hints.is_empty() || !index_hints.is_empty(), "a hint behind a table"),
                (!partitions.is_empty(), "PARTITION behind a table"),
                (json_path.is_some(), "a path behind a table"),
            ];
            (sample.is_some(), others.into_iter().find(|(is_asked, _)| *is_asked))
        }
        TableFactor::Derived { sample, .. } => (sample.is_some(), None),
        TableFactor::Function { with_ordinality: true, .. } => (false, Some((true, "WITH ORDINALITY"))),
        _ => (false, None),
    };
    refuse(sample, "TABLESAMPLE", "use WHERE random() < 0.01 for about one row in a hundred")?;
    refuse(others.is_some(), others.map_or("", |(_, what)| what), LEAVE_OUT)
}
