//! Programs that were prepared and are kept, with the version of the table that they were prepared for, until whoever
//! asked for them gives them back.
//!
//! Invariant: what one connection keeps is bounded in number and in the bytes of plans; beyond, what was used longest
//! ago is forgotten. A run has its own hold of its table, so that it is not disturbed by that.

use farpool_columns::Table;
use farpool_model::{Prepared, TableName, Version, limits};
use std::collections::VecDeque;
use std::sync::Arc;

/// A prepared program and the table that it reads.
#[derive(Clone)]
pub struct Kept {
    /// The program as it runs, and the version of its table.
    pub prepared: Prepared,
    /// That version.
    pub table: Arc<Table>,
}

/// What one connection keeps, by handles.
#[derive(Default)]
pub(crate) struct Shelf {
    /// The one that was used last is at the end.
    entries: VecDeque<Entry>,
    plan_bytes: usize,
}

struct Entry {
    handle: u32,
    plan_bytes: usize,
    kept: Arc<Kept>,
}

impl Shelf {
    /// Keeps what was prepared from a plan of `plan_bytes`.
    pub fn put(&mut self, handle: u32, plan_bytes: usize, kept: Kept) {
        self.remove(handle);
        self.plan_bytes += plan_bytes;
        self.entries.push_back(Entry { handle, plan_bytes, kept: Arc::new(kept) });
        while self.entries.len() > limits::HANDLES_PER_CONNECTION_MAX
            || self.plan_bytes > limits::HANDLE_PLAN_BYTES_MAX
        {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.plan_bytes -= oldest.plan_bytes;
        }
    }

    /// What a handle names, which has been used by that.
    pub fn get(&mut self, handle: u32) -> Option<Arc<Kept>> {
        let entry = self.take(handle)?;
        let kept = entry.kept.clone();
        self.entries.push_back(entry);
        Some(kept)
    }

    /// A version of a table, if a program that is kept reads it.
    pub fn table(&self, name: &TableName, version: Version) -> Option<Arc<Table>> {
        let mut entries = self.entries.iter().map(|entry| &entry.kept);
        let reads =
            |kept: &&Arc<Kept>| kept.prepared.version == version && kept.prepared.effective.table == *name;
        entries.find(reads).map(|kept| kept.table.clone())
    }

    /// Forgets what a handle names.
    pub fn remove(&mut self, handle: u32) {
        if let Some(entry) = self.take(handle) {
            self.plan_bytes -= entry.plan_bytes;
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

    /// A program over an empty table that is said to be of this version.
    fn maker() -> impl Fn(u64) -> Kept {
        let node = Node::start(NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() }).unwrap();
        let caller = node.owner(TenantName::default());
        let name = TableName::new("t").unwrap();
        let column = arrow_schema::Field::new("a", arrow_schema::DataType::Int64, true);
        let schema = arrow_schema::Schema::new(vec![column]);
        caller.begin_load(&name, &schema, LoadMode::Create, None).unwrap().commit().unwrap();
        let (version, table) = caller.source(&name).unwrap();
        let prepared = caller.prepare(&Program::scan(name, &schema, &[]), version, &table).unwrap();
        move |version| {
            let prepared = Prepared { version: Version(version), ..prepared.clone() };
            Kept { prepared, table: table.clone() }
        }
    }

    #[test]
    fn what_was_used_longest_ago_is_forgotten() {
        let kept = maker();
        let mut shelf = Shelf::default();
        let most = u32::try_from(limits::HANDLES_PER_CONNECTION_MAX).unwrap();
        (0..most).for_each(|handle| shelf.put(handle, 1, kept(handle.into())));
        assert!(shelf.get(0).is_some());
        shelf.put(most, 1, kept(most.into()));
        assert!(shelf.get(0).is_some() && shelf.get(1).is_none());
        let name = TableName::new("t").unwrap();
        assert!(shelf.table(&name, Version(2)).is_some() && shelf.table(&name, Version(1)).is_none());
        // A plan that is large takes the place of all others.
        shelf.put(7, limits::HANDLE_PLAN_BYTES_MAX, kept(0));
        assert_eq!((shelf.entries.len(), shelf.plan_bytes), (1, limits::HANDLE_PLAN_BYTES_MAX));
        shelf.remove(7);
        assert_eq!((shelf.entries.len(), shelf.plan_bytes), (0, 0));
    }
}
