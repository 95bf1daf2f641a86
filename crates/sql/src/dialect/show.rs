//! Rewrites `SHOW TABLES` to a query without the tables of the information schema, and `SHOW COLUMNS FROM 'file.csv'`
//! to `DESCRIBE 'file.csv'`, because no list of tables contains files.

use super::sql;
use crate::names::names_a_file;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    DescribeAlias, ObjectName, ObjectNamePart, ShowStatementOptions, Statement,
};

const TABLES: &str = "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables \
                      WHERE table_schema <> 'information_schema' ORDER BY table_catalog, table_name";

pub(super) fn apply(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::ShowTables {
            show_options:
                ShowStatementOptions {
                    show_in: None,
                    starts_with: None,
                    limit: None,
                    limit_from: None,
                    filter_position: None,
                },
            ..
        } => {
            *statement = Statement::Query(sql::query(TABLES)?);
        }
        _ => columns(statement),
    }
    Ok(())
}

fn columns(statement: &mut Statement) {
    let Statement::ShowColumns { show_options, .. } = statement else { return };
    let is_filtered = show_options.filter_position.is_some() || show_options.limit.is_some();
    let of = show_options.show_in.as_ref().and_then(|place| place.parent_name.clone());
    if let Some(table_name) = of.filter(|name| !is_filtered && is_file(name)) {
        let describe_alias = DescribeAlias::Describe;
        *statement = Statement::ExplainTable {
            describe_alias,
            hive_format: None,
            has_table_keyword: false,
            table_name,
        };
    }
}

/// Returns whether `name` refers to a file.
pub(super) fn is_file(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(name)] if names_a_file(&name.value))
}
