//! CREATE SCHEMA and DROP SCHEMA, which change the schemas of a pool (a store of tables).

use datafusion::common::not_impl_err;
use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{
    ObjectName, ObjectType, SchemaName as ParsedName, Statement as SqlStatement,
};
use farpool_model::SchemaName;
use farpool_sql::error;
use farpool_transfer::Pool;

/// A CREATE SCHEMA or DROP SCHEMA statement.
#[derive(Clone)]
pub(crate) struct SchemaChange {
    /// The catalog (pool) that the statement names, if there is one.
    pub(crate) catalog: Option<String>,
    pub(crate) schema: SchemaName,
    /// Whether the statement has IF NOT EXISTS (CREATE) or IF EXISTS (DROP).
    pub(crate) is_lenient: bool,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Create,
    Drop { cascade: bool },
}

impl SchemaChange {
    /// Returns the change, if `statement` creates or drops a schema.
    ///
    /// # Errors
    /// Fails for a form that is not supported.
    pub(crate) fn of(statement: &Statement) -> Result<Option<SchemaChange>> {
        let Statement::Statement(statement) = statement else { return Ok(None) };
        match &**statement {
            SqlStatement::CreateSchema {
                schema_name: ParsedName::Simple(name),
                if_not_exists,
                with: None,
                options: None,
                default_collate_spec: None,
                clone: None,
            } => SchemaChange::new(name, *if_not_exists, Kind::Create).map(Some),
            SqlStatement::CreateSchema { .. } => {
                not_impl_err!("CREATE SCHEMA in this form; what there is: CREATE SCHEMA [IF NOT EXISTS] name")
            }
            SqlStatement::Drop { object_type: ObjectType::Schema, names, if_exists, cascade, .. } => {
                match &names[..] {
                    [name] => SchemaChange::new(name, *if_exists, Kind::Drop { cascade: *cascade }).map(Some),
                    _ => not_impl_err!("DROP SCHEMA of several schemas; drop one after the other"),
                }
            }
            _ => Ok(None),
        }
    }

    /// Creates the change from a schema's name, which may have a catalog in front.
    fn new(name: &ObjectName, is_lenient: bool, kind: Kind) -> Result<SchemaChange> {
        let reference = object_name_to_table_reference(name.clone(), true)?;
        if reference.catalog().is_some() {
            return not_impl_err!("{name} as the name of a schema, which has one dot at most");
        }
        let catalog = reference.schema().map(str::to_string);
        let schema = SchemaName::new(reference.table()).map_err(error::wrap)?;
        Ok(SchemaChange { catalog, schema, is_lenient, kind })
    }

    /// Returns whether the statement is DROP SCHEMA.
    pub(crate) fn drops(&self) -> bool {
        matches!(self.kind, Kind::Drop { .. })
    }

    /// Carries out the change.
    ///
    /// # Errors
    /// Errors of the pool, such as `NotFound` for a missing schema.
    pub(crate) async fn run(&self, pool: &dyn Pool) -> farpool_model::Result<()> {
        match self.kind {
            Kind::Create => pool.create_schema(&self.schema).await,
            Kind::Drop { cascade } => pool.drop_schema(&self.schema, cascade).await,
        }
    }
}
