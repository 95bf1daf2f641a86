//! Chooses the table version that a program reads: the version that the program names, if a prepared program of the
//! same client still holds this version, and otherwise the newest.

use crate::Caller;
use arrow_schema::SchemaRef;
use farpool_columns::Table;
use farpool_model::{Error, Lookup, Result, SchemaFingerprint, TableName, Version};
use std::collections::HashMap;
use std::sync::Arc;

/// The table versions that the prepared programs of one client hold. An old version exists only as long as a prepared
/// program (or a running one) holds it.
pub trait HeldVersions {
    /// Returns a held version of the table `name` for which `is_wanted` returns true; `None` if there is none.
    fn table(&self, name: &TableName, is_wanted: &dyn Fn(Version, &Table) -> bool) -> Option<Arc<Table>>;
}

/// A table that a program reads, whose version is not chosen yet.
#[derive(Debug)]
pub struct VersionChoice {
    name: TableName,
    schema: SchemaRef,
    /// The newest version; `None` if it has another schema or the table was dropped.
    newest: Option<(Version, Arc<Table>)>,
}

impl Caller {
    /// Looks up the table `name` for a program that was made for columns with the fingerprint `expected` (`None` for
    /// any columns). If the newest version has other columns, or the table was dropped, only a version in `held` can be
    /// chosen.
    ///
    /// # Errors
    /// `NotFound` when the table does not exist; `Stale` when neither the newest version nor one in `held` has these
    /// columns.
    pub fn choose_version(
        &self,
        name: &TableName,
        expected: Option<SchemaFingerprint>,
        held: &impl HeldVersions,
    ) -> Result<VersionChoice> {
        let is_expected = |table: &Table| expected.is_none_or(|e| SchemaFingerprint::of(&table.schema) == e);
        let newest = self.source(name);
        if let Ok((_, table)) = &newest
            && is_expected(table)
        {
            return Ok(VersionChoice {
                name: name.clone(),
                schema: table.schema.clone(),
                newest: newest.ok(),
            });
        }
        let held = held.table(name, &|_, table| expected.is_some() && is_expected(table));
        match held {
            Some(held) => Ok(VersionChoice { name: name.clone(), schema: held.schema.clone(), newest: None }),
            None => newest.and_then(|_| Err(other_columns(name))),
        }
    }
}

impl VersionChoice {
    /// Returns the schema, which all versions to choose from have.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the version `wanted` if `held` has it with the same schema, and otherwise the newest version.
    ///
    /// # Errors
    /// `Stale` when the newest version has other columns.
    pub fn version(self, wanted: Option<Version>, held: &impl HeldVersions) -> Result<(Version, Arc<Table>)> {
        let VersionChoice { name, schema, newest } = self;
        if let Some(wanted) =
            wanted.filter(|wanted| newest.as_ref().is_none_or(|(version, _)| version != wanted))
            && let Some(held) =
                held.table(&name, &|version, table| version == wanted && table.schema == schema)
        {
            return Ok((wanted, held));
        }
        // The newest version is not an error even if `wanted` names another: the answer tells the client which version
        // was read.
        newest.ok_or_else(|| other_columns(&name))
    }
}

/// A caller that holds no versions.
pub(crate) struct NothingHeld;

impl HeldVersions for NothingHeld {
    fn table(&self, _: &TableName, _: &dyn Fn(Version, &Table) -> bool) -> Option<Arc<Table>> {
        None
    }
}

/// The tables that the lookups of a program read.
pub(crate) struct Sources<'a, H> {
    pub caller: &'a Caller,
    pub held: &'a H,
    /// The versions that are read where a lookup names none: one for each table, so that all lookups over a table read
    /// the same rows.
    pub newest: HashMap<TableName, (Version, Arc<Table>)>,
}

impl<H: HeldVersions> Sources<'_, H> {
    /// Returns the version that a lookup reads, and its table.
    ///
    /// # Errors
    /// Errors of [`Caller::choose_version`] and [`VersionChoice::version`].
    pub fn of(&mut self, lookup: &Lookup) -> Result<(Version, Arc<Table>)> {
        let Lookup { program, table_schema, .. } = lookup;
        if let Some((version, table)) = self.newest.get(&program.table)
            && program.version.is_none_or(|wanted| wanted == *version)
            && table.schema == *table_schema
        {
            return Ok((*version, table.clone()));
        }
        let expected = Some(SchemaFingerprint::of(table_schema));
        let choice = self.caller.choose_version(&program.table, expected, self.held)?;
        let source = choice.version(program.version, self.held)?;
        if program.version.is_none() {
            self.newest.entry(program.table.clone()).or_insert_with(|| source.clone());
        }
        Ok(source)
    }
}

fn other_columns(table: &TableName) -> Error {
    Error::stale(format!("table {:?} has other columns by now", table.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::tests::exercise::load;
    use crate::{Node, NodeConfig};
    use arrow_schema::{DataType, Field};
    use farpool_model::{ErrorKind, LoadMode, TableChange, TenantName};

    /// Table versions that the prepared programs of a test's client hold.
    #[derive(Default)]
    struct Held(Vec<(Version, Arc<Table>)>);

    impl HeldVersions for Held {
        fn table(
            &self,
            _name: &TableName,
            is_wanted: &dyn Fn(Version, &Table) -> bool,
        ) -> Option<Arc<Table>> {
            let mut held = self.0.iter().filter(|(version, table)| is_wanted(*version, table));
            held.next().map(|(_, table)| table.clone())
        }
    }

    fn caller() -> (Caller, TableName) {
        let node = Node::start(NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() }).unwrap();
        let (caller, name) = (node.owner(TenantName::default()), TableName::new("t").unwrap());
        load(&caller, &name, LoadMode::Create).unwrap();
        (caller, name)
    }

    #[test]
    fn a_version_is_read_as_long_as_it_is_held() {
        let (caller, name) = caller();
        let old = caller.source(&name).unwrap();
        load(&caller, &name, LoadMode::Append).unwrap();
        let newest = caller.source(&name).unwrap().0;
        let chosen = |wanted, held: &Held| {
            caller.choose_version(&name, None, held).unwrap().version(wanted, held).unwrap().0
        };
        let (held, nothing) = (Held(vec![old.clone()]), Held::default());
        assert_eq!(chosen(None, &held), newest);
        assert_eq!(chosen(Some(newest), &held), newest);
        assert_eq!(chosen(Some(old.0), &held), old.0);
        assert_eq!(chosen(Some(old.0), &nothing), newest);
    }

    #[test]
    fn columns_that_a_program_was_made_for_are_found_in_a_held_version_or_not_at_all() {
        let (caller, name) = caller();
        let old = caller.source(&name).unwrap();
        let expected = Some(SchemaFingerprint::of(&old.1.schema));
        let column = Arc::new(Field::new("note", DataType::Utf8View, true));
        caller.alter_table(&name, &[TableChange::AddColumn(column)]).unwrap().wait().unwrap();
        let (held, nothing) = (Held(vec![old.clone()]), Held::default());
        let chosen = |wanted, held: &Held| {
            caller.choose_version(&name, expected, held).and_then(|choice| choice.version(wanted, held))
        };
        let kind = |wanted, held: &Held| chosen(wanted, held).map(drop).unwrap_err().kind;
        assert_eq!(chosen(Some(old.0), &held).unwrap().0, old.0);
        assert_eq!(kind(None, &held), ErrorKind::Stale);
        assert_eq!(kind(Some(old.0), &nothing), ErrorKind::Stale);
        // A version that a prepared program holds can be chosen even after the table was dropped.
        caller.drop_table(&name).unwrap().wait().unwrap();
        assert_eq!(chosen(Some(old.0), &held).unwrap().0, old.0);
        assert_eq!(kind(Some(old.0), &nothing), ErrorKind::NotFound);
    }
}
