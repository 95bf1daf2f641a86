//! Programs that were prepared and are kept, with the version of the table that they were prepared for and the plan that
//! they were compiled to, until whoever asked for them gives them back.
//!
//! Invariant: what one connection keeps is bounded in number and in bytes; beyond, what was used longest ago is
//! forgotten. A run has its own hold of its table, so that it is not disturbed by that.

use farpool_columns::Table;
use farpool_memory::Reservation;
use farpool_model::{TableName, Version, limits};
use farpool_pipeline::BoundProgram;
use std::collections::VecDeque;
use std::sync::Arc;

/// What one connection keeps, by handles.
#[derive(Default)]
pub(crate) struct Shelf {
    /// The one that was used last is at the end.
    entries: VecDeque<Entry>,
    bytes: usize,
}

struct Entry {
    handle: u32,
    program: Arc<BoundProgram>,
    /// For the program, and what the answers had of its plan.
    held: Reservation,
}

impl Shelf {
    /// Keeps what was prepared, which takes what is `held` for it.
    pub fn put(&mut self, handle: u32, program: BoundProgram, held: Reservation) {
        self.remove(handle);
        self.bytes += held.bytes();
        self.entries.push_back(Entry { handle, program: Arc::new(program), held });
        while self.entries.len() > limits::HANDLES_PER_CONNECTION_MAX || self.bytes > limits::HANDLE_BYTES_MAX
        {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.bytes -= oldest.held.bytes();
        }
    }

    /// What a handle names, which has been used by that.
    pub fn get(&mut self, handle: u32) -> Option<Arc<BoundProgram>> {
        let entry = self.take(handle)?;
        let program = entry.program.clone();
        self.entries.push_back(entry);
        Some(program)
    }

    /// A version of a table that a program which is kept reads, if it is `wanted`.
    pub fn table(&self, name: &TableName, wanted: impl Fn(Version, &Table) -> bool) -> Option<Arc<Table>> {
        let mut programs = self.entries.iter().map(|entry| &entry.program);
        let reads = |program: &&Arc<BoundProgram>| {
            let prepared = program.prepared();
            prepared.effective.table == *name && wanted(prepared.version, program.table())
        };
        programs.find(reads).map(|program| program.table().clone())
    }

    /// Forgets what a handle names.
    pub fn remove(&mut self, handle: u32) {
        if let Some(entry) = self.take(handle) {
            self.bytes -= entry.held.bytes();
        }
    }

    fn take(&mut self, handle: u32) -> Option<Entry> {
        let place = self.entries.iter().position(|entry| entry.handle == handle)?;
        self.entries.remove(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, NodeConfig};
    use farpool_model::{LoadMode, Program, TenantName};

    /// A program over an empty table that is said to be of this version, and what is held for it.
    fn maker() -> impl Fn(u64, usize) -> (BoundProgram, Reservation) {
        let node = Node::start(NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() }).unwrap();
        let caller = node.owner(TenantName::default());
        let name = TableName::new("t").unwrap();
        let column = arrow_schema::Field::new("a", arrow_schema::DataType::Int64, true);
        let schema = arrow_schema::Schema::new(vec![column]);
        caller.begin_load(&name, &schema, LoadMode::Create, None).unwrap().commit().unwrap();
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
        let mut shelf = Shelf::default();
        let put = |shelf: &mut Shelf, handle: u32, bytes| {
            let (program, held) = make(handle.into(), bytes);
            shelf.put(handle, program, held);
        };
        let most = u32::try_from(limits::HANDLES_PER_CONNECTION_MAX).unwrap();
        (0..most).for_each(|handle| put(&mut shelf, handle, 1));
        assert!(shelf.get(0).is_some());
        put(&mut shelf, most, 1);
        assert!(shelf.get(0).is_some() && shelf.get(1).is_none());
        let name = TableName::new("t").unwrap();
        let has =
            |shelf: &Shelf, wanted| shelf.table(&name, |version, _| version == Version(wanted)).is_some();
        assert!(has(&shelf, 2) && !has(&shelf, 1));
        // A plan that is large takes the place of all others.
        put(&mut shelf, 7, limits::HANDLE_BYTES_MAX);
        assert_eq!((shelf.entries.len(), shelf.bytes), (1, limits::HANDLE_BYTES_MAX));
        shelf.remove(7);
        assert_eq!((shelf.entries.len(), shelf.bytes), (0, 0));
    }
}
