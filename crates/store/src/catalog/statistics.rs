//! What is found out about the rows of tables: what is known by now, and what somebody waits for.

use super::tap::{AwaitedProfile, Tap};
use super::{Catalog, Current};
use arrow_schema::SchemaRef;
use farpool_columns::Encoder;
use farpool_model::{Error, Result, TableName, TableStatistics, TenantName};
use std::sync::Arc;

/// What the rows of a version of a table hold, for somebody who waits for it.
#[derive(Debug)]
pub struct AwaitedStatistics {
    name: TableName,
    current: Current,
    profile: AwaitedProfile,
}

impl AwaitedStatistics {
    /// What is to be done before they are there.
    pub fn profile(&self) -> &AwaitedProfile {
        &self.profile
    }

    /// They, once the profile is settled.
    ///
    /// # Errors
    /// `OverLimit` when the pool has no room for them.
    pub fn get(&self) -> Result<TableStatistics> {
        self.profile.outcome().map_err(|error| error.at(self.name.as_str()))?;
        Ok(self.current.statistics(&self.name))
    }
}

impl Catalog {
    /// What the rows of the current version of a table hold. Where that is not found out yet, the caller's thread does
    /// it, with the catalog's helpers; it is not to be one that others wait for.
    ///
    /// # Errors
    /// `NotFound`, naming tables that there are; `OverLimit` when the pool has no room for it, or there was too little
    /// memory to make it for long.
    pub fn statistics(&self, tenant: &TenantName, name: &TableName) -> Result<TableStatistics> {
        let awaited = self.await_statistics(tenant, name, Box::new(|| {}))?;
        awaited.profile.finish(&*self.helpers).map_err(|error| error.at(name.as_str()))?;
        awaited.get()
    }

    /// Returns the outstanding profile as steps for the caller to carry out. `wake` is called when another step may be
    /// ready, or the profile is complete.
    ///
    /// # Errors
    /// `NotFound`, naming tables that there are.
    pub fn await_statistics(
        &self,
        tenant: &TenantName,
        name: &TableName,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Result<AwaitedStatistics> {
        let (current, tap) = self.tapped(tenant, name)?;
        Ok(AwaitedStatistics { name: name.clone(), current, profile: AwaitedProfile::new(tap, wake) })
    }

    /// What is known by now of these columns of the current version of a table; of other columns, and of the moments,
    /// nothing.
    ///
    /// # Errors
    /// `NotFound`, naming tables that there are; `Invalid` for a column that the table does not have.
    pub fn known_statistics(
        &self,
        tenant: &TenantName,
        name: &TableName,
        columns: &[usize],
    ) -> Result<TableStatistics> {
        let current = self.current(tenant, name)?;
        let of_table = current.table.schema.fields().len();
        if let Some(other) = columns.iter().find(|column| **column >= of_table) {
            let message = format!("table {:?} has {of_table} columns, and none at {other}", name.as_str());
            return Err(Error::invalid(message).advise("read the table's description again"));
        }
        Ok(current.statistics(name).of(columns))
    }

    /// A tap on rows of `schema` of a table of `tenant`.
    pub(super) fn tap(&self, tenant: &TenantName, schema: &SchemaRef) -> Arc<Tap> {
        let account = self.work.as_ref().map(|work| work.account(tenant));
        Tap::new(self.next_chore(), tenant.clone(), schema.clone(), self.background.clone(), account)
    }

    /// The current version with a tap over all its rows: a new one, if there is none that can tell anything.
    fn tapped(&self, tenant: &TenantName, name: &TableName) -> Result<(Current, Arc<Tap>)> {
        let mut current = self.current(tenant, name)?;
        if let Some(tap) = current.tap_of_all().filter(|tap| !tap.has_failed()) {
            let tap = tap.clone();
            return Ok((current, tap));
        }
        let table = current.table.clone();
        let encoder = Encoder::new(self.pool.clone(), tenant.clone(), table.schema.clone());
        let tap = self.tap(tenant, &table.schema);
        // Behind what is known of the first rows, if they are not all.
        let is_part = current.settled < table.row_groups.len();
        let before = current.tap.clone().filter(|before| is_part && !before.has_failed());
        let first = if before.is_some() { current.settled } else { 0 };
        if let Some(newest) = self.tenants.write().find_mut(tenant, name)
            && newest.version == current.version
        {
            if let Some(other) = newest.tap_of_all().filter(|tap| !tap.has_failed()) {
                let other = other.clone();
                return Ok((newest.clone(), other));
            }
            newest.keep_tap(tap.clone());
        }
        current.keep_tap(tap.clone());
        table.row_groups.from(first).for_each(|group| tap.add(group.clone()));
        tap.complete(before, encoder);
        Ok((current, tap))
    }
}

impl Current {
    /// Takes in a tap over all rows.
    fn keep_tap(&mut self, tap: Arc<Tap>) {
        match self.settled == self.table.row_groups.len() {
            true => self.tap = Some(tap),
            false => self.whole = Some(tap),
        }
    }
}
