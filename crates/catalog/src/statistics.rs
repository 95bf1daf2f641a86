//! Statistics of table versions: those known so far, and profiles (statistics of all rows) computed on request. A *tap*
//! is the handle of a profile's computation, which runs in the background.

use super::state::CatalogState;
use super::tap::{AwaitedProfile, Tap};
use super::{Catalog, Current};
use arrow_schema::SchemaRef;
use farpool_columns::Encoder;
use farpool_model::{Error, Result, TableName, TableStatistics, TenantName};
use std::sync::Arc;

/// Statistics of a table version whose profile is still being computed.
#[derive(Debug)]
pub struct AwaitedStatistics {
    name: TableName,
    current: Current,
    profile: AwaitedProfile,
}

impl AwaitedStatistics {
    /// Returns the profile that must be computed first.
    pub fn profile(&self) -> &AwaitedProfile {
        &self.profile
    }

    /// Returns the statistics. The profile must be settled: complete or failed.
    ///
    /// # Errors
    /// `OverLimit` if the pool has no room for the profile.
    pub fn get(&self) -> Result<TableStatistics> {
        self.profile.outcome().map_err(|error| error.at(self.name.as_str()))?;
        Ok(self.current.statistics(&self.name))
    }
}

impl Catalog {
    /// Returns the statistics of the current version of a table. If they are not known yet, computes them on the
    /// calling thread and the catalog's helper threads, and blocks until they are complete; the thread must therefore
    /// not be one that other requests wait for.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables; `Invalid` for a table that is encrypted in memory; `OverLimit` if
    /// the pool has no room for the profile, or memory for computing it was short for too long.
    pub fn statistics(&self, tenant: &TenantName, name: &TableName) -> Result<TableStatistics> {
        let awaited = self.await_statistics(tenant, name, Box::new(|| {}))?;
        awaited.profile.finish(&*self.helpers).map_err(|error| error.at(name.as_str()))?;
        awaited.get()
    }

    /// Returns the outstanding profile as steps for the caller to carry out. `wake` is called when another step may be
    /// ready, or the profile is complete.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables; `Invalid` for one that is encrypted in memory.
    pub fn await_statistics(
        &self,
        tenant: &TenantName,
        name: &TableName,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Result<AwaitedStatistics> {
        let (current, tap) = self.tapped(tenant, name)?;
        Ok(AwaitedStatistics { name: name.clone(), current, profile: AwaitedProfile::new(tap, wake) })
    }

    /// Returns the statistics known so far for `columns` of the current version of a table. The states of other columns
    /// and the moments are left out.
    ///
    /// # Errors
    /// `NotFound`, with the names of existing tables; `Invalid` for a column that the table does not have.
    pub fn known_statistics(
        &self,
        tenant: &TenantName,
        name: &TableName,
        columns: &[usize],
    ) -> Result<TableStatistics> {
        let current = self.state.read().visible(tenant, name)?.clone();
        current.want_profile();
        let of_table = current.table.schema.fields().len();
        if let Some(other) = columns.iter().find(|column| **column >= of_table) {
            let message = format!("table {:?} has {of_table} columns, and none at {other}", name.as_str());
            return Err(Error::invalid(message).advise("read the table's description again"));
        }
        Ok(current.statistics(name).of(columns))
    }

    /// Creates a tap for rows of `schema` in a table of `tenant`.
    pub(super) fn tap(&self, tenant: &TenantName, schema: &SchemaRef) -> Arc<Tap> {
        let account = self.work.as_ref().map(|work| work.account(tenant));
        Tap::new(self.next_chore(), tenant.clone(), schema.clone(), self.background.clone(), account)
    }

    /// Returns the current version with a tap over all its rows. Creates a tap if there is none, or if it has failed.
    fn tapped(&self, tenant: &TenantName, name: &TableName) -> Result<(Current, Arc<Tap>)> {
        let mut current = self.state.read().visible(tenant, name)?.clone();
        if let Some(tap) = current.tap_of_all().filter(|tap| !tap.has_failed()) {
            let tap = tap.clone();
            return Ok((current, tap));
        }
        let table = current.table.clone();
        if table.tier().is_some() {
            return Err(no_profile(name));
        }
        let encoder = Encoder::new(self.pool.clone(), tenant.clone(), table.schema.clone());
        let tap = self.tap(tenant, &table.schema);
        // If the first rows have a tap (profile computation) already, the new tap covers only the rows after them.
        let is_part = current.settled < table.row_groups.len();
        let before = current.tap.clone().filter(|before| is_part && !before.has_failed());
        let first = if before.is_some() { current.settled } else { 0 };
        {
            let mut state = self.state.write();
            let CatalogState { visible, newest, .. } = &mut *state;
            // The tap is attached to the version that readers see, and to the newest version if it is the same.
            for names in [visible, newest] {
                let Some(known) = names.find_mut(tenant, name) else { continue };
                if known.version != current.version {
                    continue;
                }
                if let Some(other) = known.tap_of_all().filter(|tap| !tap.has_failed()) {
                    let other = other.clone();
                    return Ok((known.clone(), other));
                }
                known.keep_tap(tap.clone());
            }
        }
        current.keep_tap(tap.clone());
        table.row_groups.from(first).for_each(|group| tap.add(group.clone()));
        tap.complete(before, encoder);
        Ok((current, tap))
    }
}

/// Returns the error of a request for the profile of a table that is encrypted in memory. Such a table has none,
/// because a profile would reveal values.
fn no_profile(name: &TableName) -> Error {
    let message = format!("table {:?} is encrypted in memory, and has no profile", name.as_str());
    Error::invalid(message).advise("ask for what you need by a query")
}

impl Current {
    /// Attaches a tap (profile computation) that covers all rows.
    fn keep_tap(&mut self, tap: Arc<Tap>) {
        match self.settled == self.table.row_groups.len() {
            true => self.tap = Some(tap),
            false => self.whole = Some(tap),
        }
    }
}
