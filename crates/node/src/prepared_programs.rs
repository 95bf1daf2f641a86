//! The prepared programs of a client, like prepared statements: each holds the compiled plan and the table version that
//! it was prepared for, until the client releases it.
//!
//! Invariant: the prepared programs of one connection are limited in number and in bytes; beyond the limits, the least
//! recently used is evicted. Runs (executions) of an evicted program continue, because a run holds the table itself.

use crate::version_choice::HeldVersions;
use farpool_columns::Table;
use farpool_memory::Reservation;
use farpool_model::{TableName, Version, limits};
use farpool_pipeline::BoundProgram;
use farpool_wire::sealed::Digest;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// The prepared programs of one connection, by handle.
#[derive(Default)]
pub(crate) struct PreparedPrograms {
    /// The programs in the order of their last use, the most recently used last.
    entries: VecDeque<ProgramEntry>,
    bytes: usize,
}

struct ProgramEntry {
    handle: u32,
    program: Arc<BoundProgram>,
    /// Reservation of memory for the compiled program and for the plan (encoded program) that it was compiled from.
    held: Reservation,
    /// Digest to which sealed (encrypted) answers of its runs are bound; `None` if the program was prepared without
    /// sealing.
    bound: Option<Digest>,
}

impl PreparedPrograms {
    /// Stores a prepared program under `handle`, with the reservation `held` for it, replacing a program with the same
    /// handle. Evicts others if there are too many.
    pub fn put(&mut self, handle: u32, program: BoundProgram, held: Reservation, bound: Option<Digest>) {
        self.remove(handle);
        self.bytes += held.bytes();
        self.entries.push_back(ProgramEntry { handle, program: Arc::new(program), held, bound });
        while self.entries.len() > limits::HANDLES_PER_CONNECTION_MAX || self.bytes > limits::HANDLE_BYTES_MAX
        {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.bytes -= oldest.held.bytes();
        }
    }

    /// Returns the program with this handle and marks it as used; `None` if there is none.
    pub fn get(&mut self, handle: u32) -> Option<Arc<BoundProgram>> {
        let entry = self.take(handle)?;
        let program = entry.program.clone();
        self.entries.push_back(entry);
        Some(program)
    }

    /// Returns the digest to which sealed answers of runs of the program with this handle are bound; `None` if there is
    /// none.
    pub fn bound(&self, handle: u32) -> Option<Digest> {
        self.entries.iter().find(|entry| entry.handle == handle)?.bound
    }

    /// Returns a version of the table `name` that a stored program, or the program of a lookup, reads and for which `is_wanted` returns true; `None`
    /// if there is none.
    fn table(&self, name: &TableName, is_wanted: impl Fn(Version, &Table) -> bool) -> Option<Arc<Table>> {
        let is_it = |program: &BoundProgram| {
            let prepared = program.prepared();
            prepared.effective.table == *name && is_wanted(prepared.version, program.table())
        };
        let found = self.entries.iter().find_map(|entry| entry.program.find(&is_it));
        found.map(|program| program.table().clone())
    }

    /// Removes the program with this handle, if there is one.
    pub fn remove(&mut self, handle: u32) {
        if let Some(entry) = self.take(handle) {
            self.bytes -= entry.held.bytes();
        }
    }

    fn take(&mut self, handle: u32) -> Option<ProgramEntry> {
        let place = self.entries.iter().position(|entry| entry.handle == handle)?;
        self.entries.remove(place)
    }
}

impl HeldVersions for Mutex<PreparedPrograms> {
    fn table(&self, name: &TableName, is_wanted: &dyn Fn(Version, &Table) -> bool) -> Option<Arc<Table>> {
        self.lock().table(name, is_wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, NodeConfig};
    use farpool_model::{LoadMode, Program, TenantName};

    /// Returns a function that makes a program over an empty table of a given version, and memory for it.
    fn maker() -> impl Fn(u64, usize) -> (BoundProgram, Reservation) {
        let node = Node::start(NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() }).unwrap();
        let caller = node.owner(TenantName::default());
        let name = TableName::new("t").unwrap();
        let column = arrow_schema::Field::new("a", arrow_schema::DataType::Int64, true);
        let schema = arrow_schema::Schema::new(vec![column]);
        caller.begin_load(&name, &schema, LoadMode::Create.into(), None).unwrap().commit().unwrap();
        let (_, table) = caller.source(&name).unwrap();
        let program = Program::scan(name, &schema, &[]);
        move |version, bytes| {
            let program = caller.prepare(&program, Version(version), table.clone()).unwrap();
            (program, caller.account().take(bytes))
        }
    }

    #[test]
    fn what_was_used_longest_ago_is_forgotten() {
        let make = maker();
        let mut programs = PreparedPrograms::default();
        let put = |programs: &mut PreparedPrograms, handle: u32, bytes| {
            let (program, held) = make(handle.into(), bytes);
            programs.put(handle, program, held, None);
        };
        let most = u32::try_from(limits::HANDLES_PER_CONNECTION_MAX).unwrap();
        (0..most).for_each(|handle| put(&mut programs, handle, 1));
        assert!(programs.get(0).is_some());
        put(&mut programs, most, 1);
        assert!(programs.get(0).is_some() && programs.get(1).is_none());
        let name = TableName::new("t").unwrap();
        let has = |programs: &PreparedPrograms, wanted| {
            programs.table(&name, |version, _| version == Version(wanted)).is_some()
        };
        assert!(has(&programs, 2) && !has(&programs, 1));
        // A plan that takes all the memory evicts all others.
        put(&mut programs, 7, limits::HANDLE_BYTES_MAX);
        assert_eq!((programs.entries.len(), programs.bytes), (1, limits::HANDLE_BYTES_MAX));
        programs.remove(7);
        assert_eq!((programs.entries.len(), programs.bytes), (0, 0));
    }
}
