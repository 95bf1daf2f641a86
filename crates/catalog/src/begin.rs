//! Beginning of a load: checks that its mode (such as create or append) fits the table of its name, and creates
//! the cipher if its rows are encrypted in memory.

use super::claims::Claim;
use super::state::Expected;
use super::{Catalog, Load};
use arrow_schema::Schema;
use farpool_columns::{MemoryCipher, Table, table_cipher};
use farpool_model::{Error, LoadMode, LoadOptions, Result, TableName, TenantName};
use std::sync::Arc;

impl Catalog {
    /// Begins to load rows of `schema` into the table `name`. Nothing is visible before [`Load::commit`]. `rows_hint`
    /// is the number of rows to come, if known, with which a table that will not fit is refused early.
    ///
    /// # Errors
    /// `Exists` if the table to be created exists, another load is about to create it, or a view has the name;
    /// `NotFound` if the table to append to or the version to replace does not exist, and `Stale` if the table is at
    /// another version; `Invalid` if a column's type is not supported, or for an append to a table with other columns;
    /// `OverLimit` if the tenant has too many tables.
    pub fn begin_load(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        schema: &Schema,
        options: LoadOptions,
        rows_hint: Option<u64>,
    ) -> Result<Load> {
        let check = |expected| self.state.read().check(tenant, name, expected);
        let (mut base, mut claim, mut key) = (None, None, None);
        match options.mode {
            LoadMode::Append => {
                let current = self.newest(tenant, name)?;
                (base, key) = (Some(current.table), current.key);
            }
            LoadMode::Create => claim = Some(Claim::new(self, tenant, name)?),
            LoadMode::Replace => check(Expected::Anything)?,
            LoadMode::ReplaceVersion(version) => check(Expected::Version(version))?,
        }
        let is_replacement = matches!(options.mode, LoadMode::Replace | LoadMode::ReplaceVersion(_));
        let before = is_replacement.then(|| self.get(tenant, name).ok()).flatten();
        let before = before.map(|(_, table)| table);
        if options.mode != LoadMode::Append {
            key = self.new_table_key(tenant)?;
        }
        let cipher = self.cipher(name, &options, base.as_deref(), before.as_deref())?;
        let rows = (schema, cipher, rows_hint);
        let mut load = Load::begin(self.clone(), tenant.clone(), name.clone(), options.mode, rows, base)?;
        load.set_residency(options.residency)?;
        Ok(load.under(claim).keyed(key).replacing(before.map(|table| table.bytes_encoded)))
    }

    /// Begins a load whose rows do not become a table of the catalog: [`Load::into_table`] returns them. `mode` is the
    /// mode that the client requested.
    ///
    /// # Errors
    /// As [`Catalog::begin_load`].
    pub fn begin_detached(
        self: &Arc<Self>,
        tenant: &TenantName,
        name: &TableName,
        schema: &Schema,
        mode: LoadMode,
    ) -> Result<Load> {
        let (tenant, name) = (tenant.clone(), name.clone());
        let load = Load::begin(self.clone(), tenant, name, LoadMode::Create, (schema, None, None), None)?;
        Ok(load.detached(mode))
    }

    /// Returns the cipher for the rows of a load in memory; `None` if they are not encrypted. An append uses the cipher
    /// of its table, and any other load a new key.
    fn cipher(
        &self,
        name: &TableName,
        options: &LoadOptions,
        base: Option<&Table>,
        before: Option<&Table>,
    ) -> Result<Option<Arc<MemoryCipher>>> {
        if let Some(base) = base {
            return match options.encryption {
                Some(tier) if base.tier() != Some(tier) => {
                    let has = base.tier().map_or_else(|| "not".to_string(), |tier| tier.to_string());
                    let message = format!(
                        "table {:?} is encrypted in memory: {has}; an append cannot make that {tier}",
                        name.as_str()
                    );
                    Err(Error::invalid(message).advise("load the table anew, to take the place of this one"))
                }
                _ => Ok(base.cipher().cloned()),
            };
        }
        let Some(tier) = options.encryption.or_else(|| before.and_then(Table::tier)) else { return Ok(None) };
        if self.durable.get().is_some_and(|durable| !durable.is_encrypted()) {
            let message = format!(
                "table {:?} is to be encrypted, and the node's data directory is not: its rows would lie there in the clear",
                name.as_str()
            );
            return Err(Error::invalid(message)
                .advise("start the node on a new data directory with a master key (farpool serve --help)"));
        }
        table_cipher(tier).map(Some)
    }
}
