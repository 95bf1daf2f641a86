//! The resources that the programs of each tenant have used since the node started.

use farpool_model::{Receipt, TenantName};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The resources that all programs of one tenant have used since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    /// Number of programs that ran to their end.
    pub programs: u64,
    /// Encoded bytes read from tables, including those of cancelled programs.
    pub bytes_scanned: u64,
    /// CPU time in nanoseconds, including that of cancelled programs.
    pub cpu_ns: u64,
}

/// The totals of resources used by programs, for each tenant.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<BTreeMap<TenantName, Total>>);

impl Totals {
    /// Adds a program that ran to its end (`finished`) or was stopped early; `receipt` has its execution statistics.
    pub fn add(&self, tenant: &TenantName, receipt: &Receipt, finished: bool) {
        let mut totals = self.0.lock();
        let total = totals.entry(tenant.clone()).or_default();
        total.programs += u64::from(finished);
        total.bytes_scanned += receipt.bytes_scanned;
        total.cpu_ns += receipt.cpu_ns;
    }

    /// Returns the totals of all tenants so far.
    pub fn get(&self) -> BTreeMap<TenantName, Total> {
        self.0.lock().clone()
    }
}
