//! Applies records of the log of changes of keys to the keyspaces of the tenants that the records name.

use super::tenant_of;
use crate::keyspaces::Keyspaces;
use farpool_kv::{Keyspace, Replay, WhenFull};
use farpool_model::{Error, Result, TenantName};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Applies log records in order, at the start of a node and in keyspaces that replicate the log of another node. The
/// same records always give the same keys, whatever the time is.
pub struct Applier {
    keyspaces: Arc<Keyspaces>,
    when_full: WhenFull,
    by_tenant: BTreeMap<Vec<u8>, (Arc<Keyspace>, Replay)>,
}

impl Applier {
    /// Creates an applier for the records that follow those which `keyspaces` already contain. `when_full` says what
    /// happens if memory is too small.
    pub fn new(keyspaces: &Arc<Keyspaces>, when_full: WhenFull) -> Self {
        Applier { keyspaces: Arc::clone(keyspaces), when_full, by_tenant: BTreeMap::new() }
    }

    /// Applies the next log record to the keyspace of the tenant that it names, which is created if needed.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a record; `OverLimit` when memory is too small. After an error, the keyspaces
    /// must not be used, as a record may be applied in part.
    pub fn apply(&mut self, record: &[u8]) -> Result<()> {
        let (tenant, record) = tenant_of(record)?;
        if let Some((keys, replay)) = self.by_tenant.get_mut(tenant) {
            return replay.apply(keys, record);
        }
        let name = std::str::from_utf8(tenant).ok().and_then(|name| TenantName::new(name).ok());
        let name = name.ok_or_else(|| Error::corrupt("a record of the log of keys names no tenant"))?;
        let (keys, mut replay) = (self.keyspaces.of(&name), Replay::new(self.when_full));
        let applied = replay.apply(&keys, record);
        self.by_tenant.insert(tenant.to_vec(), (keys, replay));
        applied
    }
}

impl fmt::Debug for Applier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applier").field("when_full", &self.when_full).finish_non_exhaustive()
    }
}
