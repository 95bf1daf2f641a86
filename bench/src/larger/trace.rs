//! Farpool's trace of the uses of column chunks, and the comparison of its reads with the lower bounds.

use super::belady::{Use, belady, bound};
use crate::rival::Rival;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;

/// The uses and reads of column chunks within one memory limit, from the start of the process to its last query.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TraceResult {
    /// Memory of the pool in bytes.
    pub capacity: u64,
    /// Number of times that a query began to work on a chunk, and the total bytes on disk of these chunks.
    pub uses: u64,
    pub bytes_used: u64,
    /// Bytes on disk of the chunks that were read into the pool.
    pub bytes_read: u64,
    /// Bytes of those read chunks that were not used before they were evicted, or the process ended.
    pub bytes_unused: u64,
    /// Bytes that Belady's rule would have read, and a lower bound for any order of eviction.
    pub bytes_belady: u64,
    pub bytes_bound: u64,
    /// Bytes that the process has read from the disk since its start, for any purpose.
    pub bytes_of_process: u64,
    /// Number of accesses for which the trace had no space: only the first ones are recorded.
    pub lost: u64,
}

impl TraceResult {
    /// Fetches the trace of a process.
    pub fn of(side: &mut Rival, bytes_of_process: u64) -> Result<TraceResult> {
        let file = tempfile::NamedTempFile::new()?;
        let answer = side.ask(&json!({ "do": "trace", "file": file.path() }))?;
        let number = |name: &str| answer[name].as_u64().with_context(|| format!("a trace without {name}"));
        let (capacity, lost) = (number("capacity")?, number("lost")?);
        let (uses, bytes_read, bytes_unused) = read(file.path())?;
        Ok(TraceResult {
            capacity,
            uses: uses.len() as u64,
            bytes_used: uses.iter().map(|one| one.cost).sum(),
            bytes_read,
            bytes_unused,
            bytes_belady: belady(&uses, capacity),
            bytes_bound: bound(&uses, capacity),
            bytes_of_process,
            lost,
        })
    }

    /// Adds the trace of another process within the same limit.
    pub fn add(&mut self, other: &TraceResult) {
        self.capacity = other.capacity;
        self.uses += other.uses;
        self.bytes_used += other.bytes_used;
        self.bytes_read += other.bytes_read;
        self.bytes_unused += other.bytes_unused;
        self.bytes_belady += other.bytes_belady;
        self.bytes_bound += other.bytes_bound;
        self.bytes_of_process += other.bytes_of_process;
        self.lost += other.lost;
    }
}

/// Reads a trace as `side.rs` writes it: its uses, and the sums of the bytes that were read, and of those read in vain.
fn read(file: &Path) -> Result<(Vec<Use>, u64, u64)> {
    let text = std::fs::read_to_string(file)?;
    let (mut uses, mut bytes_read, mut bytes_unused) = (Vec::new(), 0, 0);
    // The bytes of chunks that were read and have not been used since, by the id of the chunk.
    let mut waiting: HashMap<u64, u64> = HashMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [kind, chunk, bytes, cost] = fields[..] else { bail!("a trace with the line {line:?}") };
        let one = Use { chunk: chunk.parse()?, bytes: bytes.parse()?, cost: cost.parse()? };
        if kind == "used" {
            waiting.remove(&one.chunk);
            uses.push(one);
        } else {
            bytes_read += one.cost;
            bytes_unused += waiting.insert(one.chunk, one.cost).unwrap_or(0);
        }
    }
    bytes_unused += waiting.values().sum::<u64>();
    Ok((uses, bytes_read, bytes_unused))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn uses_and_reads_of_a_trace_are_told_apart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "read 7 100 60\nread 8 9 9\nused 7 100 60\nused 9 50 50\n").unwrap();
        let (uses, bytes_read, bytes_unused) = read(file.path()).unwrap();
        assert_eq!((uses.len(), uses[0].chunk, uses[0].bytes, uses[0].cost), (2, 7, 100, 60));
        assert_eq!((bytes_read, bytes_unused), (69, 9));
        std::fs::write(file.path(), "used 7 100\n").unwrap();
        assert!(read(file.path()).is_err());
    }
}
