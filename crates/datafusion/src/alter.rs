//! Plans ALTER TABLE of a table in a pool (store of tables), which DataFusion 55.2 parses but does not plan.

use crate::catalog;
use arrow_schema::{Field, FieldRef, Schema};
use datafusion::common::{TableReference, not_impl_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, ColumnOption, Ident, ObjectName, RenameTableNameKind,
    Statement as SqlStatement,
};
use farpool_model::schema::canonical_schema;
use farpool_model::{TableChange, TableName};
use farpool_sql::{dialect, error};

/// Returns the ALTER TABLE statement, if `statement` is one.
pub(crate) fn of(statement: &Statement) -> Option<&AlterTable> {
    match statement {
        Statement::Statement(statement) => match &**statement {
            SqlStatement::AlterTable(alter) => Some(alter),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the name of the table that is altered.
pub(crate) fn table(alter: &AlterTable) -> Result<TableReference> {
    reference(&alter.name)
}

/// Converts the operations of an ALTER TABLE on `table` to table changes, in the order of the statement.
///
/// # Errors
/// Fails for an operation that is not supported.
pub(crate) async fn changes(
    state: &SessionState,
    table: &TableName,
    alter: &AlterTable,
) -> Result<Vec<TableChange>> {
    if alter.location.is_some() || alter.on_cluster.is_some() || alter.table_type.is_some() {
        return not_impl_err!("ALTER TABLE in this form: {alter}");
    }
    let mut changes = Vec::new();
    for operation in &alter.operations {
        match operation {
            AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(to) } => {
                changes.push(TableChange::Rename(new_name(table, to)?));
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                let (from, to) = (name(old_column_name)?, name(new_column_name)?);
                changes.push(TableChange::RenameColumn { from, to });
            }
            AlterTableOperation::AddColumn {
                if_not_exists: false,
                column_def,
                column_position: None,
                ..
            } => changes.push(TableChange::AddColumn(column(state, column_def).await?)),
            AlterTableOperation::DropColumn {
                column_names, if_exists: false, drop_behavior: None, ..
            } => {
                for column in column_names {
                    changes.push(TableChange::DropColumn(name(column)?));
                }
            }
            other => {
                return not_impl_err!(
                    "ALTER TABLE … {other}; what there is: RENAME TO, RENAME COLUMN … TO, ADD COLUMN, DROP COLUMN"
                );
            }
        }
    }
    Ok(changes)
}

/// Returns the field of an added column. Its values are NULL, and its type is the one that CREATE TABLE would give it.
async fn column(state: &SessionState, column: &ColumnDef) -> Result<FieldRef> {
    if let Some(option) = column.options.iter().find(|option| option.option != ColumnOption::Null) {
        return not_impl_err!("{option} of a column that is added: it holds NULLs; UPDATE sets its values");
    }
    let create = format!("CREATE TABLE t ({column})");
    let statement = dialect::parse(state, &create)?.statement;
    match state.statement_to_plan(statement).await? {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
            let field: Field = create.input.schema().field(0).as_ref().clone();
            let schema = canonical_schema(&Schema::new(vec![field.with_nullable(true)]));
            Ok(schema.map_err(error::wrap)?.fields()[0].clone())
        }
        _ => not_impl_err!("the column {column}"),
    }
}

/// Returns the new name of a table (RENAME TO). The table stays in its schema unless the new name has a schema. A table
/// cannot move to another pool.
fn new_name(table: &TableName, name: &ObjectName) -> Result<TableName> {
    let reference = reference(name)?;
    if reference.catalog().is_some() {
        return not_impl_err!("RENAME TO a name with two dots: the table stays in its pool");
    }
    let schema = catalog::schema_of(&reference, table.schema().as_str());
    schema.and_then(|schema| TableName::in_schema(&schema, reference.table())).map_err(error::wrap)
}

fn name(ident: &Ident) -> Result<String> {
    Ok(reference(&ObjectName::from(vec![ident.clone()]))?.table().to_string())
}

/// Converts a name to a table reference; names without quotes are converted to lower case, as in all SQL statements.
fn reference(name: &ObjectName) -> Result<TableReference> {
    object_name_to_table_reference(name.clone(), true)
}
