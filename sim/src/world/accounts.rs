//! Checks the node's accounting after every step: the pool, the memory for work, the requests that wait for
//! memory, and the running tasks.

use super::{TABLES, TENANTS, World};
use crate::checks::Checked;
use farpool_memory::WorkLine;
use farpool_model::limits::{PAGE_BYTES, WORK_WAIT_MS_MAX};
use farpool_model::{Status, TableName};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Maximal time that a request may wait for memory before it fails.
const PATIENCE: Duration = Duration::from_millis(WORK_WAIT_MS_MAX);

/// Number of events within which a request whose time is over must have left the queue.
const NOTICE_EVENTS: u64 = 20;

/// The requests that wait for memory: the time since which each waits, and the event at which its time was found to be
/// over (`None` before).
#[derive(Debug, Default)]
pub struct Patience(BTreeMap<u64, (Instant, Option<u64>)>);

impl Patience {
    /// Updates the waiting requests at event `step` and checks that none has waited too long.
    fn check(&mut self, line: &WorkLine, step: u64) -> Checked {
        let now = Instant::now();
        self.0.retain(|number, _| line.waiting.contains(number));
        for number in &line.waiting {
            let (since, over) = self.0.entry(*number).or_insert((now, None));
            if now.duration_since(*since) > PATIENCE {
                let over = *over.get_or_insert(step);
                if step > over + NOTICE_EVENTS {
                    return Err(format!(
                        "somebody has waited for memory since {:?}",
                        now.duration_since(*since)
                    ));
                }
            }
        }
        Ok(())
    }
}

impl World {
    /// Checks the memory for work after a step.
    pub(super) fn check_work(&self) -> Checked {
        let (usage, line) = (self.node.work().usage(), self.node.work().line());
        let of_tenants: u64 = usage.tenants.iter().map(|(_, bytes)| bytes).sum();
        if of_tenants != usage.bytes_used {
            return Err(format!("the accounts of tenants do not add up: {usage:?}"));
        }
        // Only bytes that are already in memory may be charged beyond the limit.
        if usage.bytes_taken > usage.bytes_used || usage.bytes_used - usage.bytes_taken > usage.bytes_limit {
            return Err(format!("more memory for work was given away than there is: {usage:?}"));
        }
        if line.is_stuck {
            return Err(format!("somebody waits for memory that is free: {usage:?}"));
        }
        Ok(())
    }

    /// Checks the numbers of the node's status at an event.
    pub(super) fn check_accounts(&mut self) -> Checked {
        let status = self.node.status();
        let step = self.shared.lock().log.step;
        self.patience.check(&self.node.work().line(), step)?;
        let of_tenants: u64 = status.tenants.iter().map(|tenant| tenant.memory_bytes_used).sum();
        if of_tenants != status.memory_bytes_used || status.memory_bytes_used > status.memory_bytes_limit {
            return Err(format!("the accounts of memory are wrong: {status:?}"));
        }
        // Each running program is a task of the node's scheduler.
        let tasks = self.node.scheduler().running() as u64;
        if status.programs_running > tasks {
            return Err(format!("of {tasks} tasks {} are programs", status.programs_running));
        }
        self.check_tables(&status)?;
        self.check_nobody(&status)
    }

    /// Checks that the tables are those of the model, and use pages of their tenants.
    fn check_tables(&self, status: &Status) -> Checked {
        let state = self.shared.lock();
        for ((model, name), owner) in state.models.iter().zip(TENANTS).zip(&self.owners) {
            let tables = model.names().len() as u64;
            let of = status.tenants.iter().find(|tenant| tenant.tenant == name);
            let (told, used) = of.map_or((0, 0), |of| (of.tables, of.memory_bytes_used));
            if told != tables {
                return Err(format!("{name} has {tables} tables, and by the node {told}"));
            }
            // With a data directory, values of a table may be on the disk only.
            if self.disk.is_some() {
                continue;
            }
            let table = |name| owner.source(&TableName::new(name).ok()?).ok();
            let encoded: u64 =
                TABLES.into_iter().filter_map(table).map(|(_, table)| table.bytes_encoded).sum();
            if encoded > used {
                return Err(format!("the tables of {name} have {encoded} bytes in pages of {used}"));
            }
        }
        Ok(())
    }

    /// Checks that, if there are no clients and no pending work, all memory in use belongs to tables.
    fn check_nobody(&self, status: &Status) -> Checked {
        let tasks = self.node.scheduler().running();
        if status.connections > 0 || tasks > 0 || !self.errands.is_empty() {
            return Ok(());
        }
        let mut most = 0;
        for owner in &self.owners {
            for info in owner.tables().map_err(|error| error.to_string())? {
                let Ok((_, table)) = owner.source(&info.name) else { continue };
                // Row groups and the states of the profile may share pages, so that each adds less than two pages.
                let pieces = table.row_groups.len() as u64 + 1;
                most += table.bytes_encoded.div_ceil(PAGE_BYTES as u64) + 2 * pieces;
            }
        }
        let most = most * PAGE_BYTES as u64;
        if status.memory_bytes_used > most {
            return Err(format!(
                "nobody is there, and of the pool more than {most} bytes are in use: {status:?}"
            ));
        }
        // The node remembers the outcomes of loads, and the rows that pass filters, for a while.
        match status.tables > 0 || status.work_bytes_used == self.node.remembered_bytes() {
            true => Ok(()),
            false => {
                Err(format!("nobody is there, nor any table, and memory for work is in use: {status:?}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_too_long_is_found() {
        let mut patience = Patience::default();
        let line = |waiting: &[u64]| WorkLine { waiting: waiting.to_vec(), is_stuck: false };
        patience.check(&line(&[1, 2]), 1).unwrap();
        tokio::time::advance(PATIENCE + Duration::from_millis(1)).await;
        // Within the notice period a request that has waited too long is no error; a request that began to wait later
        // has more time.
        for step in 2..=2 + NOTICE_EVENTS {
            patience.check(&line(&[1, 3]), step).unwrap();
        }
        patience.check(&line(&[3]), 3 + NOTICE_EVENTS).unwrap();
        patience.check(&line(&[3, 1]), 4 + NOTICE_EVENTS).unwrap();
        tokio::time::advance(2 * PATIENCE).await;
        patience.check(&line(&[3]), 100).unwrap();
        assert!(patience.check(&line(&[3]), 101 + NOTICE_EVENTS).is_err());
    }
}
