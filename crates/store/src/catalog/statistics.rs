//! What is found out about the rows of tables: what is known by now, and what somebody waits for.

use super::tap::{AwaitedProfile, Tap};
use super::{Catalog, Current};
use arrow_schema::SchemaRef;
use farpool_columns::TableBuilder;
use farpool_model::{Error, Result, TableName, TableStatistics, TenantName};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

    /// The same for somebody who works on it step by step. `wake` is called when there may be more to do, or nothing
    /// more.
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
        let number = self.taps_made.fetch_add(1, Ordering::Relaxed);
        let account = self.work.as_ref().map(|work| work.account(tenant));
        Tap::new(number, tenant.clone(), schema.clone(), self.profiler.clone(), account)
    }

    /// The current version with its tap: with a new one over all rows, if there is none that can tell anything.
    fn tapped(&self, tenant: &TenantName, name: &TableName) -> Result<(Current, Arc<Tap>)> {
        let mut current = self.current(tenant, name)?;
        if let Some(tap) = current.tap.clone().filter(|tap| !tap.has_failed()) {
            return Ok((current, tap));
        }
        let table = current.table.clone();
        let builder = TableBuilder::append_to(self.pool.clone(), &table, tenant.clone(), None)?;
        let tap = self.tap(tenant, &table.schema);
        if let Some(newest) = self.tenants.write().find_mut(tenant, name)
            && newest.version == current.version
        {
            match &newest.tap {
                Some(other) if !other.has_failed() => return Ok((newest.clone(), other.clone())),
                _ => newest.tap = Some(tap.clone()),
            }
        }
        table.row_groups.iter().for_each(|group| tap.add(group.clone()));
        tap.complete(None, builder.encoder());
        current.tap = Some(tap.clone());
        Ok((current, tap))
    }
}
