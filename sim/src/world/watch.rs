//! Runs the node's work, and checks the node at every step, at every event and at the end.

use super::disk::Disk;
use super::{TABLES, TENANTS, World, turns_of_others};
use crate::checks::Checked;
use crate::client::Client;
use crate::rows::{rows_behind, schema};
use farpool_columns::Table;
use farpool_model::limits::LOAD_OUTCOME_MS;
use farpool_model::{LoadMode, TableName, Version};
use farpool_node::Commit;
use farpool_pipeline::{Attempt, Class};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;

/// Number of rounds without any progress after which a missing answer counts as lost.
const QUIET_ROUNDS: usize = 100;

/// Time within which a node drops expired data.
const FORGETS_WITHIN: Duration = Duration::from_secs(10);

/// Number of rounds after which a missing answer counts as lost even with progress.
const ROUNDS_MAX: usize = 100_000;

impl World {
    /// Does up to `steps` steps of the node's work; returns whether there was any.
    pub(super) fn work(&mut self, steps: usize) -> Checked<bool> {
        let scheduler = self.node.scheduler().clone();
        for step in 0..steps {
            let before_ns = self.clock.cpu_ns();
            let did = |class| scheduler.try_work(class) == Attempt::Worked;
            if did(Class::Foreground) {
                let cpu_ns = self.clock.cpu_ns() - before_ns;
                self.fairness.check(scheduler.shares(Class::Foreground), cpu_ns)?;
            } else if !did(Class::Background) {
                return Ok(step > 0);
            }
            self.observe()?;
            self.check_work()?;
        }
        Ok(steps > 0)
    }

    /// Records which tables have changed: a step changes at most one. With a data directory, readers may see the change
    /// later.
    pub(super) fn observe(&self) -> Checked {
        let mut state = self.shared.lock();
        let step = state.log.step;
        for (tenant, owner) in self.owners[..TENANTS.len()].iter().enumerate() {
            for table in TABLES {
                let name = TableName::new(table).map_err(|error| error.to_string())?;
                let visible = owner.source(&name).ok();
                let newest = match &self.disk {
                    Some(disk) => disk.stepped.newest(owner.tenant(), &name),
                    None => visible.clone(),
                };
                let now = newest.as_ref().map(|(version, table)| (*version, table.rows));
                let known = state.models[tenant].latest(table).map(|known| known.version);
                if now.map(|(version, _)| version) != known {
                    state.log.event(format!("{table} of {} is now {now:?}", TENANTS[tenant]));
                    let rows_from = |place: usize| match &newest {
                        Some((_, table)) => rows_behind(table.row_groups.iter(), place),
                        None => Ok(Vec::new()),
                    };
                    state.models[tenant].observe(step, table, now, &rows_from)?;
                    let version = |of: &(Version, Arc<Table>)| of.0;
                    let seen = visible.as_ref().map(version);
                    let is_new = seen != state.models[tenant].newest(table).map(|seen| seen.version);
                    // If the step has written the log, no records are waiting to be written.
                    let waits = |disk: &Disk| disk.stepped.records_waiting() > 0;
                    if is_new && seen == newest.as_ref().map(version) && self.disk.as_ref().is_some_and(waits)
                    {
                        return Err(format!("readers see {now:?} of {table} before it is durable"));
                    }
                }
                state.models[tenant].show(step, table, visible.map(|(version, _)| version))?;
            }
        }
        Ok(())
    }

    /// Collects the results of errands (requests of simulated engines) that have ended.
    pub(super) fn see_to_errands(&mut self) -> Checked {
        let mut index = 0;
        while index < self.errands.len() {
            let Some(outcome) = (&mut self.errands[index].1).now_or_never() else {
                index += 1;
                continue;
            };
            drop(self.errands.remove(index));
            let engine = outcome.map_err(|error| format!("an errand ended by itself: {error}"))??;
            self.engines.extend(engine.map(Arc::new));
        }
        Ok(())
    }

    /// Lets all participants read, write and work until all requests are answered.
    pub(super) async fn quiesce(&mut self) -> Checked {
        {
            let mut state = self.shared.lock();
            state.log.event("everybody waits for their answers".into());
            state.is_ending = true;
        }
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            self.shared.lock().log.step += 1;
            if self.errands.is_empty() && self.clients.iter().all(Client::is_done) {
                return Ok(());
            }
            let moved = self.round()?;
            // Advances time, so that requests which wait for memory held by a silent client reach their time limit.
            if !moved && self.shared.lock().weather.is_short {
                tokio::time::advance(Duration::from_secs(2)).await;
            }
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > QUIET_ROUNDS {
                break;
            }
            turns_of_others(20).await;
            self.see_to_errands()?;
            self.check_accounts()?;
        }
        let waiting = self.clients.iter().filter(|client| !client.is_done()).map(Client::waits_for);
        let told: Vec<String> = self.errands.iter().map(|(told, _)| told.clone()).chain(waiting).collect();
        let (tasks, programs) = (self.node.scheduler().running(), self.node.status().programs_running);
        Err(format!("answers never come, with {tasks} tasks and {programs} programs: {}", told.join("; ")))
    }

    pub(super) fn round(&mut self) -> Checked<bool> {
        let mut moved = self.work(1000)?;
        moved |= self.end_disk_work()?;
        let mut state = self.shared.lock();
        moved |= self.network.pass_all(&mut state.log);
        for client in &mut self.clients {
            moved |= client.write(usize::MAX, &state)?;
            client.grant()?;
            moved |= client.read(1 << 20, &mut state)?;
        }
        for hostile in &mut self.hostiles {
            moved |= hostile.write(usize::MAX);
            moved |= hostile.read(1 << 20);
        }
        Ok(moved)
    }

    /// Disconnects all clients and drops all tables: nothing may be left in use.
    pub(super) async fn end(mut self) -> Checked {
        self.shared.lock().log.event("everybody leaves".into());
        self.programs += self.clients.drain(..).map(|client| client.programs).sum::<u64>();
        self.hostiles.clear();
        self.engines.clear();
        for _ in 0..QUIET_ROUNDS {
            turns_of_others(20).await;
            self.network.pass_all(&mut self.shared.lock().log);
            // Advances time, because profiling pauses for a while after rows have arrived.
            self.clock.jump(1 << 30);
            self.work(1000)?;
            self.end_disk_work()?;
            self.check_accounts()?;
        }
        self.check_programs()?;
        self.restart()?;
        for (tenant, owner) in self.owners.iter().enumerate() {
            for table in owner.tables().map_err(|error| error.to_string())? {
                let mut state = self.shared.lock();
                let step = state.log.step;
                if let Some(model) = state.models.get_mut(tenant) {
                    model.drop_begins(step, table.name.as_str());
                }
                drop(state);
                owner.drop_table(&table.name).and_then(Commit::wait).map_err(|error| error.to_string())?;
            }
        }
        // Background work that lacked memory is retried after a pause, and finds that it is no longer needed.
        for _ in 0..QUIET_ROUNDS {
            self.clock.jump(1 << 30);
            self.work(1000)?;
            self.end_disk_work()?;
        }
        // Advances time until the node no longer remembers the outcomes of loads.
        self.clock.jump(LOAD_OUTCOME_MS * 1_000_001);
        tokio::time::advance(FORGETS_WITHIN).await;
        turns_of_others(20).await;
        self.check_nothing_left()?;
        self.check_names_are_free()?;
        self.serving.abort();
        Ok(())
    }

    /// Checks that the node's totals include all answered programs.
    pub(super) fn check_programs(&self) -> Checked {
        let counted: u64 = self.node.status().tenants.iter().map(|tenant| tenant.programs).sum();
        match counted >= self.programs {
            true => Ok(()),
            false => {
                Err(format!("{} programs were answered, and {counted} are in the totals", self.programs))
            }
        }
    }

    /// Checks that no load that has ended still reserves a table name.
    fn check_names_are_free(&self) -> Checked {
        for owner in &self.owners {
            for table in TABLES {
                let name = TableName::new(table).map_err(|error| error.to_string())?;
                let load = owner.begin_load(&name, &schema(), LoadMode::Create.into(), None);
                load.map_err(|error| format!("a name is not free when everybody is gone: {error}"))?;
            }
        }
        Ok(())
    }

    pub(super) fn check_nothing_left(&self) -> Checked {
        let status = self.node.status();
        let tasks = self.node.scheduler().running();
        let memory = status.memory_bytes_used + status.work_bytes_used;
        let left = [status.connections, status.programs_running, memory, status.tables];
        match tasks == 0 && left == [0; 4] {
            true => Ok(()),
            false => Err(format!("something is left when everybody is gone: {tasks} tasks, {status:?}")),
        }
    }
}
