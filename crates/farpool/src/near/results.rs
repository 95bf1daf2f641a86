//! Client-side cache of small query results. A result is valid as long as the table version from which it was computed
//! is current, so that a dashboard that is refreshed over unchanged data costs the node only a request for the version.
//!
//! Versions are numbered across all tables of a node's process, so that a version always identifies the same rows. A
//! cached result is used only for an equal program. If a program may have several results (for example, which rows a
//! LIMIT selects), the cached one is one of them.

use arrow::array::RecordBatch;
use farpool_memory::{Account, Reservation};
use farpool_model::cast::u64_from;
use farpool_model::{Program, Receipt, Result, TableInfo, TableName, Version, limits};
use farpool_transfer::{BatchStream, Execution, Handle, ReceiptHandle};
use futures::{StreamExt, stream};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The cached results of one pool's programs.
#[derive(Debug)]
pub(super) struct Results {
    account: Account,
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    tables: HashMap<TableName, OfTable>,
    /// Tables that are known not to be encrypted in memory.
    plain: HashSet<TableName>,
    bytes: usize,
    uses: u64,
}

/// The cached results of one table, all from the version that was read last.
#[derive(Debug)]
struct OfTable {
    at: At,
    results: Vec<KeptResult>,
}

/// A version of a table in one process of the node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct At {
    pub instance: u64,
    pub version: Version,
}

#[derive(Debug)]
struct KeptResult {
    program: Program,
    batches: Arc<Vec<RecordBatch>>,
    /// Bytes that the result took on the connection.
    bytes_on_wire: u64,
    used: u64,
    held: Reservation,
}

/// A result that is being received.
struct Coming {
    results: Arc<Results>,
    at: At,
    program: Program,
    receipt: ReceiptHandle,
    rows: Mutex<Rows>,
}

/// The rows of a result received so far; `None` if they are too many for the cache, or if a stream was not read to its
/// end.
struct Rows {
    batches: Option<Vec<RecordBatch>>,
    bytes: usize,
    streams_open: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Results {
    /// Creates a cache of up to `bytes_max` bytes, reserved from `account`.
    pub fn new(account: Account, bytes_max: usize) -> Arc<Self> {
        Arc::new(Results { account, bytes_max, kept: Mutex::default() })
    }

    /// Updates whether results of the described table may be cached: not if it is encrypted in memory.
    pub fn described(&self, info: &TableInfo) {
        let mut kept = lock(&self.kept);
        if info.encryption.is_some() {
            kept.plain.remove(&info.name);
            kept.forget(&info.name);
        } else if kept.plain.len() < limits::NEAR_RENTS_MAX {
            kept.plain.insert(info.name.clone());
        }
    }

    /// Returns the cached result of a program, as one stream; `None` if there is none.
    pub fn get(&self, at: At, handle: &Handle) -> Option<Execution> {
        let (batches, bytes_saved) = {
            let mut kept = lock(&self.kept);
            kept.uses += 1;
            let uses = kept.uses;
            let result = kept.find(at, &handle.effective)?;
            result.used = uses;
            (Arc::clone(&result.batches), result.bytes_on_wire)
        };
        let receipt = ReceiptHandle::new();
        receipt.set(Receipt {
            rows_returned: batches.iter().map(|batch| u64_from(batch.num_rows())).sum(),
            bytes_saved,
            operators: handle.answers.clone(),
            ..Receipt::default()
        });
        let rows: Vec<Result<RecordBatch>> = batches.iter().cloned().map(Ok).collect();
        Some(Execution {
            prepared: Arc::clone(handle.prepared()),
            streams: vec![stream::iter(rows).boxed()],
            receipt,
        })
    }

    /// Returns the same execution; its result is added to the cache at its end if it is small.
    pub fn keeping(self: &Arc<Self>, at: At, execution: Execution) -> Execution {
        let program = execution.prepared.effective.clone();
        if !lock(&self.kept).plain.contains(&program.table) {
            return execution;
        }
        let streams_open = execution.streams.len();
        let rows = Mutex::new(Rows { batches: Some(Vec::new()), bytes: 0, streams_open });
        let receipt = execution.receipt.clone();
        let coming = Arc::new(Coming { results: Arc::clone(self), at, program, receipt, rows });
        let streams = execution.streams.into_iter().map(|rows| coming.watched(rows)).collect();
        Execution { streams, ..execution }
    }

    fn add(&self, at: At, program: &Program, batches: Vec<RecordBatch>, bytes_on_wire: u64) {
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        let bytes = bytes + limits::NEAR_RESULT_OVERHEAD_BYTES;
        // Queries need the memory more urgently than the cache.
        if self.account.free() < limits::NEAR_RESULTS_PART * bytes {
            return;
        }
        let Ok(held) = self.account.try_reserve(bytes) else { return };
        let mut kept = lock(&self.kept);
        kept.uses += 1;
        let used = kept.uses;
        let of_table =
            kept.tables.entry(program.table.clone()).or_insert(OfTable { at, results: Vec::new() });
        let mut gone = Vec::new();
        // The statement may have run so long that a newer version of the table is cached already.
        if of_table.at.instance == at.instance && at.version < of_table.at.version {
            return;
        }
        if of_table.at != at {
            gone = std::mem::take(&mut of_table.results);
            of_table.at = at;
        }
        if of_table.results.iter().any(|known| known.program == *program) {
            return;
        }
        let (program, batches) = (program.clone(), Arc::new(batches));
        of_table.results.push(KeptResult { program, batches, bytes_on_wire, used, held });
        kept.bytes = kept.bytes + bytes - gone.iter().map(|old| old.held.bytes()).sum::<usize>();
        while kept.bytes > self.bytes_max || kept.results() > limits::NEAR_RESULTS_MAX {
            kept.forget_oldest();
        }
    }
}

impl Kept {
    fn find(&mut self, at: At, program: &Program) -> Option<&mut KeptResult> {
        let of_table = self.tables.get_mut(&program.table).filter(|of_table| of_table.at == at)?;
        of_table.results.iter_mut().find(|result| result.program == *program)
    }

    fn results(&self) -> usize {
        self.tables.values().map(|of_table| of_table.results.len()).sum()
    }

    fn forget(&mut self, name: &TableName) {
        if let Some(of_table) = self.tables.remove(name) {
            self.bytes -= of_table.results.iter().map(|old| old.held.bytes()).sum::<usize>();
        }
    }

    /// Drops the least recently used result.
    fn forget_oldest(&mut self) {
        let all = self.tables.iter().flat_map(|(name, of_table)| {
            of_table.results.iter().enumerate().map(move |(at, result)| (result.used, name, at))
        });
        let Some((_, name, at)) = all.min_by_key(|(used, ..)| *used) else { return };
        let name = name.clone();
        let Some(of_table) = self.tables.get_mut(&name) else { return };
        self.bytes -= of_table.results.swap_remove(at).held.bytes();
        if of_table.results.is_empty() {
            self.tables.remove(&name);
        }
    }
}

impl Coming {
    /// Returns the same rows, of which copies are collected for the cache while they are read.
    fn watched(self: &Arc<Self>, rows: BatchStream) -> BatchStream {
        let coming = Arc::clone(self);
        let ended = {
            let coming = Arc::clone(self);
            stream::once(async move { coming.end() }).filter_map(|()| std::future::ready(None))
        };
        rows.inspect(move |batch| coming.add(batch)).chain(ended).boxed()
    }

    fn add(&self, batch: &Result<RecordBatch>) {
        let mut rows = lock(&self.rows);
        let Rows { batches, bytes, .. } = &mut *rows;
        match (batch, batches.as_mut()) {
            (Ok(batch), Some(all)) => {
                *bytes += batch.get_array_memory_size();
                all.push(batch.clone());
            }
            _ => *batches = None,
        }
        if *bytes > limits::NEAR_RESULT_BYTES_MAX {
            *batches = None;
        }
    }

    /// Records that a stream has been read to its end.
    fn end(&self) {
        let batches = {
            let mut rows = lock(&self.rows);
            rows.streams_open -= 1;
            if rows.streams_open == 0 { rows.batches.take() } else { None }
        };
        if let (Some(batches), Some(receipt)) = (batches, self.receipt.get()) {
            self.results.add(self.at, &self.program, batches, receipt.bytes_on_wire);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use farpool_memory::WorkMemory;
    use farpool_model::{NamedExpr, Output, TenantName};

    const KIB: usize = 1 << 10;

    fn results(work_bytes: usize, bytes_max: usize) -> Arc<Results> {
        Results::new(WorkMemory::new(work_bytes).account(&TenantName::default()), bytes_max)
    }

    fn rows(count: usize) -> RecordBatch {
        let column = Arc::new(Int64Array::from_iter_values(0..count as i64)) as _;
        RecordBatch::try_from_iter([("x", column)]).unwrap()
    }

    /// Returns programs that differ by `number`.
    fn program(number: u64) -> Program {
        let schema = rows(1).schema();
        let table = TableName::new("t").unwrap();
        let columns = vec![NamedExpr::column(&schema, 0)];
        let output = Output::Rows(columns);
        Program {
            table,
            version: None,
            lookups: Vec::new(),
            filter: None,
            output,
            having: None,
            order: Vec::new(),
            limit: Some(number),
        }
    }

    fn at(version: u64) -> At {
        At { instance: 7, version: Version(version) }
    }

    fn has(results: &Results, at: At, number: u64) -> bool {
        lock(&results.kept).find(at, &program(number)).is_some()
    }

    #[test]
    fn results_are_those_of_the_newest_version_that_was_read() {
        let results = results(1 << 30, 1 << 20);
        results.add(at(5), &program(1), vec![rows(10)], 100);
        assert!(has(&results, at(5), 1) && !has(&results, at(6), 1) && !has(&results, at(5), 2));
        results.add(at(6), &program(2), vec![rows(10)], 100);
        assert!(has(&results, at(6), 2) && !has(&results, at(5), 1));
        results.add(at(5), &program(1), vec![rows(10)], 100);
        assert!(has(&results, at(6), 2) && !has(&results, at(5), 1), "an older one takes no place");
        // When the node is started again, its new process numbers versions anew.
        let other = At { instance: 8, version: Version(1) };
        results.add(other, &program(3), vec![rows(10)], 100);
        assert!(has(&results, other, 3) && !has(&results, at(6), 2));
        assert_eq!(lock(&results.kept).results(), 1);
    }

    #[test]
    fn what_was_used_longest_ago_leaves_and_memory_is_given_back() {
        let results = results(1 << 30, 100 * KIB);
        for number in 0..50 {
            results.add(at(1), &program(number), vec![rows(2 * KIB)], 100);
            // The first of the cached results is used repeatedly, so that it is not the least recently used one.
            let mut kept = lock(&results.kept);
            kept.uses += 1;
            let uses = kept.uses;
            kept.find(at(1), &program(0)).unwrap().used = uses;
        }
        let kept = lock(&results.kept).bytes;
        assert!(kept <= 100 * KIB && kept > 60 * KIB, "{kept}");
        assert!(has(&results, at(1), 0) && has(&results, at(1), 49) && !has(&results, at(1), 1));
        let free = results.account.free();
        lock(&results.kept).forget(&program(0).table);
        assert_eq!((lock(&results.kept).bytes, results.account.free()), (0, free + kept));
    }

    #[test]
    fn queries_need_the_memory_more() {
        let results = results(400 * KIB, 1 << 20);
        let taken = results.account.try_reserve(200 * KIB).unwrap();
        results.add(at(1), &program(1), vec![rows(2 * KIB)], 100);
        assert!(!has(&results, at(1), 1));
        drop(taken);
        results.add(at(1), &program(1), vec![rows(2 * KIB)], 100);
        assert!(has(&results, at(1), 1));
    }
}
