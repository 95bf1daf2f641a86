//! The state that the connections of the Redis protocol of one tenant share, for each tenant; created when the tenant's
//! first client connects.

use super::clients::Clients;
use super::slow::SlowLog;
use crate::key_controls::KeyControls;
use farpool_model::TenantName;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state that the connections of a tenant share: the list of its clients and its slow log.
#[derive(Clone)]
pub(super) struct TenantState {
    pub clients: Arc<Clients>,
    pub slow: Arc<SlowLog>,
}

/// The state of each tenant that has had a connection.
#[derive(Default)]
pub(super) struct Tenants(Mutex<BTreeMap<TenantName, TenantState>>);

impl Tenants {
    /// Returns the state of a tenant, creating it if needed.
    pub fn of(&self, tenant: &TenantName, controls: &KeyControls) -> TenantState {
        let mut tenants = self.0.lock();
        let make =
            || TenantState { clients: Arc::new(Clients::new(controls.pause(tenant))), slow: Arc::default() };
        tenants.entry(tenant.clone()).or_insert_with(make).clone()
    }

    /// Returns the clients of all tenants.
    pub fn clients(&self) -> Vec<Arc<Clients>> {
        self.0.lock().values().map(|state| Arc::clone(&state.clients)).collect()
    }
}
