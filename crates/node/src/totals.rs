//! What each tenant has used since the node started.

use farpool_model::{Receipt, TenantName};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The programs of one tenant, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    /// Programs that ran to their end.
    pub programs: u64,
    /// Encoded bytes read, by cancelled programs too.
    pub bytes_scanned: u64,
    /// CPU time, of cancelled programs too.
    pub cpu_ns: u64,
}

/// The totals of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<BTreeMap<TenantName, Total>>);

impl Totals {
    /// Adds a program that ran to its end (`finished`) or was cut short.
    pub fn add(&self, tenant: &TenantName, receipt: &Receipt, finished: bool) {
        let mut totals = self.0.lock();
        let total = totals.entry(tenant.clone()).or_default();
        total.programs += u64::from(finished);
        total.bytes_scanned += receipt.bytes_scanned;
        total.cpu_ns += receipt.cpu_ns;
    }

    /// The totals so far.
    pub fn get(&self) -> BTreeMap<TenantName, Total> {
        self.0.lock().clone()
    }
}
