//! Disk quotas of tenants.
//!
//! The quota limits the encoded bytes of the newest table versions. Other space is not counted, because the tenant
//! cannot control it: the log, older versions that are still read, dead parts of segments. Savings by compression are
//! not counted either.

use super::{Catalog, CatalogState};
use farpool_memory::size_text;
use farpool_model::{Error, Result, TableName, TenantName};
use std::collections::BTreeMap;

/// Maximum encoded bytes of the tables of each tenant that has a quota.
pub(super) type DiskQuotas = BTreeMap<TenantName, u64>;

impl Catalog {
    /// Sets the maximum encoded bytes of a tenant's tables in a data directory; `None` removes the quota. Tables stay
    /// even if they exceed a lowered quota.
    pub fn set_disk_quota(&self, tenant: &TenantName, bytes: Option<u64>) {
        let mut quotas = self.disk_quotas.write();
        match bytes {
            Some(bytes) => drop(quotas.insert(tenant.clone(), bytes)),
            None => drop(quotas.remove(tenant)),
        }
    }

    /// Checks that the tenant's tables stay within its quota if the table `name` has `bytes` encoded bytes. Called with
    /// the `state` that the change is made in, because of two concurrent changes each could fit alone.
    ///
    /// # Errors
    /// `OverLimit` if the tables would exceed the quota and take more than now.
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
