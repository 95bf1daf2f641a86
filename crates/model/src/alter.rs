//! Changes of a table's name and columns that do not rewrite its rows: ALTER TABLE of SQL.

use crate::schema::canonical_schema;
use crate::{Error, Result, TableName, brief, limits};
use arrow_schema::{Field, FieldRef, Schema, SchemaRef};
use std::sync::Arc;

/// One change of a table. The changes of a statement are applied in order, all of them or none.
#[derive(Clone, Debug, PartialEq)]
pub enum TableChange {
    /// Renames the table.
    Rename(TableName),
    /// Renames a column.
    RenameColumn {
        /// The current name of the column.
        from: String,
        /// The new name of the column.
        to: String,
    },
    /// Adds a column of NULLs after the others.
    AddColumn(FieldRef),
    /// Drops the column of this name.
    DropColumn(String),
}

/// The result of altering a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Altered {
    /// The new name of the table; `None` if it keeps its name.
    pub name: Option<TableName>,
    /// The new schema, which is canonical.
    pub schema: SchemaRef,
    /// For each new column the index of the same column in the old schema; `None` for an added column of NULLs.
    pub columns: Vec<Option<usize>>,
}

/// Applies `changes` to a table with `schema`, without changing its rows.
///
/// # Errors
/// `NotFound` for a column that does not exist; `Invalid` if two columns would have the same name, if no column would
/// be left, or if an added column is NOT NULL; `OverLimit` for too many changes or columns.
pub fn alter(schema: &Schema, changes: &[TableChange]) -> Result<Altered> {
    if changes.len() > limits::COLUMNS_MAX {
        let most = limits::COLUMNS_MAX;
        return Err(Error::over_limit(format!("a table may be altered in {most} ways at once")));
    }
    let mut name = None;
    let mut columns: Vec<(FieldRef, Option<usize>)> =
        schema.fields().iter().enumerate().map(|(column, field)| (field.clone(), Some(column))).collect();
    for change in changes {
        match change {
            TableChange::Rename(to) => name = Some(to.clone()),
            TableChange::RenameColumn { from, to } => {
                let place = find(&columns, from)?;
                if from != to {
                    check_free(&columns, to)?;
                }
                let field: Field = columns[place].0.as_ref().clone();
                columns[place].0 = Arc::new(field.with_name(to));
            }
            TableChange::AddColumn(field) if !field.is_nullable() => {
                let message = format!("column {:?} would be NULL where it may not be", field.name());
                return Err(Error::invalid(message).advise("add it without NOT NULL"));
            }
            TableChange::AddColumn(field) => {
                check_free(&columns, field.name())?;
                columns.push((field.clone(), None));
            }
            TableChange::DropColumn(column) => drop(columns.remove(find(&columns, column)?)),
        }
    }
    // Checked once, not after each change: many changes to a table of many columns would take seconds.
    let fields: Vec<FieldRef> = columns.iter().map(|(field, _)| field.clone()).collect();
    let schema = canonical_schema(&Schema::new(fields))?;
    Ok(Altered { name, schema, columns: columns.into_iter().map(|(_, old)| old).collect() })
}

/// Checks that no column has this name. Called for each change and not only for the final schema, because the next
/// change may refer to a column by its new name.
fn check_free(columns: &[(FieldRef, Option<usize>)], name: &str) -> Result<()> {
    match columns.iter().any(|(field, _)| field.name() == name) {
        true => Err(Error::invalid(format!("two columns would be named {:?}", brief(name)))
            .advise("choose another name")),
        false => Ok(()),
    }
}

fn find(columns: &[(FieldRef, Option<usize>)], name: &str) -> Result<usize> {
    columns.iter().position(|(field, _)| field.name() == name).ok_or_else(|| {
        let names: Vec<&str> = columns.iter().map(|(field, _)| field.name().as_str()).take(20).collect();
        let error = Error::not_found(format!("there is no column {name:?}"));
        error.advise(format!("its columns are {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use arrow_schema::DataType;

    fn columns(names: &[&str]) -> Schema {
        let field = |name: &&str| Field::new(*name, DataType::Int64, true);
        Schema::new(names.iter().map(field).collect::<Vec<_>>())
    }

    fn rename(from: &str, to: &str) -> TableChange {
        TableChange::RenameColumn { from: from.into(), to: to.into() }
    }

    fn add(name: &str, is_nullable: bool) -> TableChange {
        TableChange::AddColumn(Arc::new(Field::new(name, DataType::Utf8, is_nullable)))
    }

    #[test]
    fn changes_are_made_one_after_the_other() {
        let swap = [rename("a", "x"), rename("b", "a"), rename("x", "b")];
        let altered = alter(&columns(&["a", "b"]), &swap).unwrap();
        assert_eq!((&*altered.schema, altered.columns), (&columns(&["b", "a"]), vec![Some(0), Some(1)]));
        let anew = [TableChange::DropColumn("a".into()), add("a", true)];
        let altered = alter(&columns(&["a", "b"]), &anew).unwrap();
        assert_eq!(altered.columns, [Some(1), None]);
        assert_eq!(altered.schema.field(1), &Field::new("a", DataType::Utf8View, true), "canonical");
        let to = TableName::new("u").unwrap();
        assert_eq!(alter(&columns(&["a"]), &[TableChange::Rename(to.clone())]).unwrap().name, Some(to));
    }

    #[test]
    fn a_table_that_cannot_be_is_refused() {
        let drop_a = TableChange::DropColumn("a".into());
        for (change, kind) in [
            (rename("c", "d"), ErrorKind::NotFound),
            (rename("a", "b"), ErrorKind::Invalid),
            (add("b", true), ErrorKind::Invalid),
            (add("c", false), ErrorKind::Invalid),
            (TableChange::DropColumn("A".into()), ErrorKind::NotFound),
        ] {
            assert_eq!(alter(&columns(&["a", "b"]), &[change]).unwrap_err().kind, kind);
        }
        assert_eq!(
            alter(&columns(&["a"]), std::slice::from_ref(&drop_a)).unwrap_err().kind,
            ErrorKind::Invalid,
            "no column"
        );
        assert_eq!(alter(&columns(&["a"]), &[drop_a, add("b", true)]).unwrap().columns, [None]);
        let many = vec![rename("a", "a"); limits::COLUMNS_MAX + 1];
        assert_eq!(alter(&columns(&["a"]), &many).unwrap_err().kind, ErrorKind::OverLimit);
    }
}
