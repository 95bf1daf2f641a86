//! The simulated disk of a node with a data directory, whose work is a step of the simulation: records of the log
//! become durable late, values of row groups arrive late, in another order, or not at all, and at the end the node is
//! restarted from the files on the disk.

use super::replica::Replica;
use super::{TABLES, TENANTS, World, serve, start_node, turns_of_others};
use crate::checks::Checked;
use crate::engine::Errand;
use crate::fairness::Fairness;
use crate::rows::{Row, rows_behind};
use farpool_columns::{HeldValues, RowGroup, ValueReader, fetch};
use farpool_disk::{Faults, LogOver, SimulatedDirectory};
use farpool_memory::WorkMemory;
use farpool_model::{LoadMode, Result, TableName, Version, limits};
use farpool_node::{Caller, Node, NodeConfig, SteppedDisk};
use parking_lot::Mutex;
use std::sync::Arc;

/// Number of large row groups of the table that is scanned, which is loaded first.
const LARGE_GROUPS: std::ops::Range<usize> = 5..9;

/// Maximal number of events for which the disk does nothing.
const STALL_MAX: usize = 80;

/// Maximal number of rounds within which the first errands (requests of simulated engines) must have ended.
const ROUNDS_MAX: usize = 20_000;

/// The disk of a node.
pub(super) struct Disk {
    directory: Arc<SimulatedDirectory>,
    pub stepped: SteppedDisk,
    /// A catalog that follows that of the node, until this is restarted.
    replica: Option<Replica>,
    /// The event until which the disk does nothing.
    stalled_until: u64,
}

impl Disk {
    /// Returns the disk of a node that was started with this directory.
    pub fn of(
        directory: Arc<SimulatedDirectory>,
        replica: Option<Replica>,
        node: &Arc<Node>,
    ) -> Option<Disk> {
        Some(Disk { directory, stepped: SteppedDisk::of(node)?, replica, stalled_until: 0 })
    }

    /// Makes waiting records durable, and has the replica apply them. Returns whether there were any.
    fn write_log(&mut self) -> Checked<bool> {
        let did = self.stepped.write_log();
        if let Some(replica) = self.replica.as_mut().filter(|_| did) {
            // Faults of the node's disk must not affect the replica, whose copies of files the node never reads.
            let faults = self.directory.faults();
            self.directory.set_faults(Faults::default());
            replica.follow(self.stepped.records_committed())?;
            self.directory.set_faults(faults);
        }
        Ok(did)
    }
}

impl World {
    /// Loads a table that is larger than the pool, before the events begin.
    pub(super) async fn load_large_table(&mut self) -> Checked {
        let groups = LARGE_GROUPS.start + self.random.below(LARGE_GROUPS.len());
        let rows = (groups * limits::LARGE_GROUP_ROWS) as u64;
        // Some loads fail, because of simulated faults.
        for _ in 0..4 * groups {
            if self.engines.is_empty() {
                self.connect_engine()?;
                self.await_errands().await?;
            }
            let newest = self.shared.lock().models[0].newest(TABLES[0]);
            let mode = if newest.is_some() { LoadMode::Append } else { LoadMode::Create };
            if newest.is_some_and(|newest| newest.rows.iter().all(|of| of.len() as u64 >= rows)) {
                break;
            }
            let Some(engine) = self.engines.last().cloned() else { continue };
            if engine.tenant() != 0 {
                self.engines.clear();
                continue;
            }
            self.send_on(engine, Errand::Load(TABLES[0].to_string(), mode));
            self.await_errands().await?;
        }
        self.shared.lock().models.iter_mut().for_each(|model| model.forget_old());
        Ok(())
    }

    /// Lets all participants work until the errands (requests of simulated engines) have ended.
    async fn await_errands(&mut self) -> Checked {
        for _ in 0..ROUNDS_MAX {
            if self.errands.is_empty() {
                return Ok(());
            }
            let step = {
                let mut state = self.shared.lock();
                state.log.step += 1;
                state.log.step
            };
            self.network.cut_due(step);
            self.round()?;
            turns_of_others(20).await;
            self.see_to_errands()?;
        }
        Err("a load before everything else does not end".to_string())
    }

    /// Lets the disk do some of its work, or fail.
    pub(super) fn work_disk(&mut self) -> Checked {
        let step = self.shared.lock().log.step;
        let Some(disk) = self.disk.as_mut().filter(|disk| disk.stalled_until <= step) else { return Ok(()) };
        match self.random.below(100) {
            0..2 => disk.stalled_until = step + self.random.magnitude(STALL_MAX) as u64,
            2..4 if self.shared.lock().weather.has_bad_reads => {
                let read_fails_after = Some(self.random.magnitude(30) as u64);
                disk.directory.set_faults(Faults { read_fails_after, ..Faults::default() });
            }
            4..50 => {}
            _ => {
                for _ in 0..self.random.magnitude(30) {
                    self.step_disk()?;
                }
            }
        }
        Ok(())
    }

    fn step_disk(&mut self) -> Checked {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        match self.random.below(10) {
            0 => _ = disk.write_log()?,
            1 => _ = disk.stepped.write(),
            _ => {
                let reads = disk.stepped.reads_under_way();
                if reads > 0 {
                    disk.stepped.read(self.random.below(reads));
                }
            }
        }
        self.observe()?;
        self.check_work()
    }

    /// Lets the disk do all pending work; returns whether there was any.
    pub(super) fn end_disk_work(&mut self) -> Checked<bool> {
        let Some(disk) = &mut self.disk else { return Ok(false) };
        let mut did = disk.write_log()?;
        while disk.stepped.write() {
            did = true;
        }
        // A read that finds no memory is queued again.
        for _ in 0..disk.stepped.reads() {
            did |= disk.stepped.read(0);
        }
        self.observe()?;
        Ok(did)
    }

    /// Stops the node when no client is connected, or cuts its power, and starts another one from the files on the
    /// disk, which must have the same tables.
    pub(super) fn restart(&mut self) -> Checked {
        let Some(mut disk) = self.disk.take() else { return Ok(()) };
        disk.write_log()?;
        if let Some(replica) = disk.replica.take() {
            self.check_contents("on a replica", |owner, name| replica.rows(owner.tenant(), name))?;
        }
        let is_clean = self.random.chance(50);
        self.shared.lock().log.event(format!("the node is started anew, after a clean stop: {is_clean}"));
        disk.directory.set_faults(Faults::default());
        match is_clean {
            true => disk.stepped.close().map_err(|error| error.to_string())?,
            false => disk.directory.crash(self.random.next()),
        }
        self.serving.abort();
        let work = WorkMemory::new(limits::WORK_BYTES_MIN * 128);
        let config = NodeConfig { memory_bytes: 512 << 20, work, ..NodeConfig::default() };
        let directory = disk.directory.clone();
        self.node = start_node(
            &mut self.random,
            self.clock.clone(),
            config,
            Some((directory.clone(), LogOver::default())),
            None,
        )?;
        let owners = self.owners.iter().map(|owner| self.node.owner(owner.tenant().clone()));
        self.owners = owners.collect();
        (self.sockets, self.serving) = serve(&self.node);
        self.disk = Disk::of(directory, None, &self.node);
        (self.fairness, self.patience) = (Fairness::default(), Default::default());
        self.check_recovered()
    }

    fn check_recovered(&self) -> Checked {
        let Some(disk) = &self.disk else { return Ok(()) };
        self.check_contents("after a start", |owner, name| {
            let Ok((version, table)) = owner.source(name) else { return Ok(None) };
            let rows = table.row_groups.iter().map(|group| disk.rows(group)).collect::<Checked<Vec<_>>>()?;
            Ok(Some((version, rows.concat())))
        })
    }

    /// Checks that the node's tables are those of the models, row by row. `found` returns the version and the rows of a
    /// table.
    fn check_contents(
        &self,
        which: &str,
        found: impl Fn(&Caller, &TableName) -> Checked<Option<(Version, Vec<Row>)>>,
    ) -> Checked {
        for (tenant, owner) in self.owners[..TENANTS.len()].iter().enumerate() {
            for table in TABLES {
                let name = TableName::new(table).map_err(|error| error.to_string())?;
                let (found, newest) = (found(owner, &name)?, self.shared.lock().models[tenant].newest(table));
                let versions =
                    (found.as_ref().map(|found| found.0), newest.as_ref().map(|state| state.version));
                if versions.0 != versions.1 {
                    return Err(format!("{which}, {table} is at {:?}, not {:?}", versions.0, versions.1));
                }
                let Some(((version, rows), newest)) = found.zip(newest) else { continue };
                if !newest.rows.iter().any(|expected| **expected == rows) {
                    return Err(format!("{which}, {version} of {table} has other rows"));
                }
            }
        }
        Ok(())
    }
}

impl Disk {
    /// Returns the rows of a row group, whose values are read.
    fn rows(&self, group: &Arc<RowGroup>) -> Checked<Vec<Row>> {
        let arrived = Arc::new(Mutex::new(None));
        if let Err(absent) = group.with_values(0..group.chunks.len()) {
            fetch(absent, Box::new(Arrival(arrived.clone())));
            while arrived.lock().is_none() && self.stepped.read(0) {}
        }
        let rows = rows_behind([group].into_iter(), 0)?;
        rows.into_iter()
            .map(|row| row.ok_or_else(|| "values cannot be read after a start".to_string()))
            .collect()
    }
}

/// A receiver of values that were read.
struct Arrival(Arc<Mutex<Option<Result<HeldValues>>>>);

impl ValueReader for Arrival {
    fn is_waiting(&self) -> bool {
        true
    }

    fn arrived(self: Box<Self>, outcome: Result<HeldValues>) {
        *self.0.lock() = Some(outcome);
    }
}
