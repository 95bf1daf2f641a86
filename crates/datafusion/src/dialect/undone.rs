//! Refuses forms that the engine parses and then silently ignores: a wrong answer is worse than none.

use super::refusal;
use super::show::is_file;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{Query, Select, Statement, TableFactor};

const LEAVE_OUT: &str = "leave it out";

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
    let drops_files = matches!(statement, Statement::Drop { names, .. } if names.iter().any(is_file));
    refuse(drops_files, "DROP of a file", "remove it with the system's own means")
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
        _ => (false, None),
    };
    refuse(sample, "TABLESAMPLE", "use WHERE random() < 0.01 for about one row in a hundred")?;
    refuse(others.is_some(), others.map_or("", |(_, what)| what), LEAVE_OUT)
}
