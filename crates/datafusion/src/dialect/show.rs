//! `SHOW COLUMNS FROM 'file.csv'` is `DESCRIBE 'file.csv'`: no list of tables has files.

use crate::catalog::names_a_file;
use datafusion::sql::sqlparser::ast::{DescribeAlias, ObjectName, ObjectNamePart, Statement};

pub(super) fn apply(statement: &mut Statement) {
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

/// Whether `name` is that of a file.
pub(super) fn is_file(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(name)] if names_a_file(&name.value))
}
