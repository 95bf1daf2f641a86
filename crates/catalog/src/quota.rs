//! Quotas of tenants in a data directory.
//!
//! The quota limits the encoded size of the newest versions. Other space (the log, versions that are still read, dead
//! parts of segments) is not under the tenant's control, and savings by compression are not counted.

use super::{Catalog, CatalogState};
use farpool_memory::size_text;
use farpool_model::{Error, Result, TableName, TenantName};
use std::collections::BTreeMap;

/// Most encoded bytes of the tables of each tenant that has such a limit.
pub(super) type DiskQuotas = BTreeMap<TenantName, u64>;

impl Catalog {
    /// Limits the encoded bytes of a tenant's tables in a data directory; `None` lifts the limit. Tables above a
    /// lowered limit stay.
    pub fn set_disk_quota(&self, tenant: &TenantName, bytes: Option<u64>) {
        let mut quotas = self.disk_quotas.write();
        match bytes {
            Some(bytes) => drop(quotas.insert(tenant.clone(), bytes)),
            None => drop(quotas.remove(tenant)),
        }
    }

    /// Checks that the tenant's tables may be on disk when the table `name` has `bytes` encoded bytes. A change is
    /// checked against the `state` it is made in: of two at once, each could fit where both do not.
    ///
    /// # Errors
    /// `OverLimit` where they would be more than the tenant's quota, and more than they are now.
    pub(super) fn check_disk(
        &self,
        state: &CatalogState,
        tenant: &TenantName,
        name: &TableName,
        bytes: u64,
    ) -> Result<()> {
        let Some(most) = self.disk_quotas.read().get(tenant).copied() else { return Ok(()) };
        if !self.is_durable() {
            return Ok(());
        }
        let (mut others, mut before) = (0, 0);
        for (table, current) in state.newest.tables.get(tenant).into_iter().flatten() {
            match table == name {
                true => before = current.table.bytes_encoded,
                false => others += current.table.bytes_encoded,
            }
        }
        if others + bytes <= most || bytes <= before {
            return Ok(());
        }
        let message = format!(
            "tenant {tenant} may have {} of tables on disk: table {:?} with {}, beside others with {}, is more",
            size_text(most),
            name.as_str(),
            size_text(bytes),
            size_text(others)
        );
        Err(Error::over_limit(message)
            .advise("drop a table, load fewer rows or columns, or ask for a larger limit (disk)"))
    }
}
