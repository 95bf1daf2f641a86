//! Pinned tables: their values are never evicted from memory.
//!
//! Rule: all pinned tables together take at most a part of the pool ([`limits::PINNED_PART`]), and those of a tenant
//! the same part of its quota, counted in encoded bytes. Each change that creates a version of a pinned table checks
//! it, under the lock of the names. The pool may be smaller after a restart: recovery then pins tables in the order of
//! tenant and name as long as the rule holds.

use super::Catalog;
use super::state::CatalogState;
use farpool_columns::Table;
use farpool_memory::size_text;
use farpool_model::{Error, Result, TableName, TenantName, limits};

impl Catalog {
    /// Pins the row groups of `table` from an index on, if the table of this name is pinned.
    ///
    /// # Errors
    /// As [`Catalog::check_pins`].
    pub(super) fn pin(
        &self,
        state: &CatalogState,
        (tenant, name): (&TenantName, &TableName),
        is_pinned: bool,
        (table, first): (&Table, usize),
    ) -> Result<()> {
        if is_pinned {
            self.check_pins(state, tenant, name, table.bytes_encoded)?;
            table.pin_from(first);
        }
        Ok(())
    }

    /// Checks that `bytes` of the table `name` can be pinned in addition to all other pinned tables.
    ///
    /// # Errors
    /// `OverLimit`, with sizes.
    pub(super) fn check_pins(
        &self,
        state: &CatalogState,
        tenant: &TenantName,
        name: &TableName,
        bytes: u64,
    ) -> Result<()> {
        let (mut of_all, mut of_tenant) = (0, 0);
        for (owner, tables) in &state.newest.tables {
            for (other, current) in tables.iter().filter(|(_, current)| current.is_pinned) {
                if (owner, other) == (tenant, name) {
                    continue;
                }
                of_all += current.table.bytes_encoded;
                of_tenant += if owner == tenant { current.table.bytes_encoded } else { 0 };
            }
        }
        let quota = self.pool.quota(tenant);
        let pool = self.pool.usage().bytes_limit;
        let whole = |most: u64, others: u64, whose: &str| {
            match bytes <= (most / limits::PINNED_PART).saturating_sub(others) {
            true => Ok(()),
            false => Err(Error::over_limit(format!(
                "table {:?} takes {} and cannot be pinned: pinned tables may take half of {whose}, which is {}, and others take {}",
                name.as_str(),
                size_text(bytes),
                size_text(most / limits::PINNED_PART),
                size_text(others)
            ))
            .advise("load it without --pin, drop a pinned table, or give the pool more memory")),
        }
        };
        whole(pool, of_all, "the pool")?;
        quota.map_or(Ok(()), |quota| whole(quota, of_tenant, "the tenant's quota"))
    }
}
