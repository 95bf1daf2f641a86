//! The clients and slow logs of all tenants, created on first use.

use super::clients::Clients;
use super::slow::SlowLog;
use crate::keyspaces::Keyspaces;
use farpool_model::TenantName;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state that the connections of a tenant share.
#[derive(Default)]
pub(super) struct Tenants(Mutex<BTreeMap<TenantName, (Arc<Clients>, Arc<SlowLog>)>>);

impl Tenants {
    /// Returns the clients and the slow log of a tenant.
    pub fn of(&self, tenant: &TenantName, keyspaces: &Keyspaces) -> (Arc<Clients>, Arc<SlowLog>) {
        let mut tenants = self.0.lock();
        let make = || (Arc::new(Clients::new(keyspaces.pause(tenant))), Arc::default());
        tenants.entry(tenant.clone()).or_insert_with(make).clone()
    }

    /// Returns the clients of all tenants.
    pub fn clients(&self) -> Vec<Arc<Clients>> {
        self.0.lock().values().map(|(clients, _)| Arc::clone(clients)).collect()
    }
}
