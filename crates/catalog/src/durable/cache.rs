//! Which values leave memory when it is short: the pool as a cache of the data directory.
//!
//! *S3-FIFO* (Yang et al., *FIFO queues are all you need for cache eviction*, SOSP 2023). What comes in waits in a small
//! queue, a tenth of all; what was used there more than once goes on to the main queue, and the rest leaves. What is in the
//! main queue and was used since it came, or was last looked at, stays for another round. What is read again soon after it
//! has left goes to the main queue at once. A scan of a large table therefore passes through the small queue, and what many
//! queries use stays.
//!
//! Each tenant has queues of its own, and the one that has most in memory gives way, so that a scan of one does not push out
//! what others use.
//!
//! Invariant: only values whose location is in a segment are here, and leave. Pinned ones are not looked at again.

use farpool_columns::Chunk;
use farpool_memory::Reclaim;
use farpool_model::{TenantName, limits};
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

/// The part of all bytes that the small queue has.
const SMALL_PART: usize = 10;

/// Uses in the small queue from which values go on to the main one: more than that for which they were read.
const USES_TO_STAY: u8 = 2;

/// Values that left are remembered up to this multiple of those that are there.
const REMEMBERED: usize = 1;

/// Bytes that are freed at once: a page of the pool, so that not every allocation has to look.
const FREED_BYTES: usize = limits::PAGE_BYTES;

/// Entries from which it is looked, whenever they have doubled, for those whose handles are gone.
const ENTRIES_UNSEEN: usize = 1 << 10;

/// Handles with values in memory, in the order in which these may leave, by their tenant.
#[derive(Debug, Default)]
pub struct Cache(Mutex<BTreeMap<TenantName, Queues>>);

#[derive(Debug, Default)]
struct Queues {
    small: Queue,
    main: Queue,
    /// Numbers of the locations of values that have left the small queue.
    gone: VecDeque<u64>,
    are_gone: HashSet<u64>,
    /// Number of entries that were left when those without handles were last taken out.
    entries_left: usize,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    handle: Weak<Chunk>,
    /// The number of its location.
    number: u64,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

impl Cache {
    /// Adds a handle whose values have come into memory.
    pub fn add(&self, handle: &Arc<Chunk>, number: u64) {
        let Some(tenant) = handle.tenant().filter(|_| !handle.is_pinned()) else { return };
        let entry = Entry { handle: Arc::downgrade(handle), number, bytes: handle.bytes_encoded() };
        let mut tenants = self.0.lock();
        let queues = tenants.entry(tenant.clone()).or_default();
        queues.tidy();
        match queues.are_gone.remove(&number) {
            true => queues.main.push(entry),
            false => queues.small.push(entry),
        }
    }
}

impl Cache {
    /// Takes values of a tenant, or of the one that has most of those that are not all in use.
    fn evict(&self, of: Option<&TenantName>) -> Option<Arc<Chunk>> {
        let mut tenants = self.0.lock();
        if let Some(tenant) = of {
            return tenants.get_mut(tenant)?.evict();
        }
        let mut by_bytes: Vec<&mut Queues> = tenants.values_mut().filter(|queues| queues.len() > 0).collect();
        by_bytes.sort_unstable_by_key(|queues| Reverse(queues.bytes()));
        by_bytes.into_iter().find_map(Queues::evict)
    }
}

impl Cache {
    /// The numbers of the locations of values that queries have used, most used first.
    pub fn used(&self) -> Vec<u64> {
        let tenants = self.0.lock();
        let mut used: Vec<(Reverse<(bool, u8)>, u64)> = Vec::new();
        for queues in tenants.values() {
            let both = [(true, &queues.main), (false, &queues.small)];
            let entries =
                both.iter().flat_map(|(is_main, queue)| queue.entries.iter().map(|entry| (*is_main, entry)));
            used.extend(entries.filter_map(|(is_main, entry)| {
                let uses = entry.handle.upgrade()?.uses();
                (is_main || uses > 0).then_some((Reverse((is_main, uses)), entry.number))
            }));
        }
        drop(tenants);
        // Those that are alike stay in the order in which they came.
        used.sort_by_key(|(rank, _)| *rank);
        used.into_iter().map(|(_, number)| number).collect()
    }

    /// Puts the values of this location into the main queue when they are read: queries used them before the last stop.
    pub fn expect(&self, tenant: &TenantName, number: u64) {
        let mut tenants = self.0.lock();
        let queues = tenants.entry(tenant.clone()).or_default();
        if queues.are_gone.insert(number) {
            queues.gone.push_back(number);
        }
    }
}

#[cfg(test)]
impl Cache {
    /// Number of entries.
    pub(super) fn entries(&self) -> usize {
        self.0.lock().values().map(Queues::len).sum()
    }
}

impl Queues {
    fn bytes(&self) -> usize {
        self.small.bytes + self.main.bytes
    }

    fn len(&self) -> usize {
        self.small.entries.len() + self.main.entries.len()
    }

    /// Takes out entries whose handles are gone, once there may be as many of them as others: where memory is never short,
    /// nothing else does.
    fn tidy(&mut self) {
        if self.len() < ENTRIES_UNSEEN.max(2 * self.entries_left) {
            return;
        }
        for queue in [&mut self.small, &mut self.main] {
            queue.entries.retain(|entry| entry.handle.strong_count() > 0);
            queue.bytes = queue.entries.iter().map(|entry| entry.bytes).sum();
        }
        self.entries_left = self.len();
    }

    /// Takes the values that leave next; `None` when all that are left are in use.
    fn evict(&mut self) -> Option<Arc<Chunk>> {
        // Each entry is looked at as often as its uses count, once more, and once in the small queue.
        let mut looks = 5 * self.len();
        // Entries of each queue that were found in use, one after the other: where all are, the other queue is looked at.
        let (mut small_in_use, mut main_in_use) = (0, 0);
        while looks > 0 {
            looks -= 1;
            let has_small = small_in_use < self.small.entries.len();
            let has_main = main_in_use < self.main.entries.len();
            let is_small = match (has_small, has_main) {
                (false, false) => return None,
                (true, true) => self.small.bytes * SMALL_PART > self.bytes(),
                (has_small, _) => has_small,
            };
            let entry = if is_small { self.small.pop() } else { self.main.pop() }?;
            let Some(handle) = entry.handle.upgrade().filter(|handle| !handle.is_pinned()) else { continue };
            let stays = handle.is_in_use();
            match is_small {
                true if stays => {
                    small_in_use += 1;
                    self.small.push(entry);
                }
                false if stays => {
                    main_in_use += 1;
                    self.main.push(entry);
                }
                true if handle.take_use() >= USES_TO_STAY => {
                    main_in_use = 0;
                    self.main.push(entry);
                }
                false if handle.take_use() > 0 => {
                    main_in_use = 0;
                    self.main.push(entry);
                }
                _ => {
                    let Some(values) = handle.take_values() else { continue };
                    if is_small {
                        self.remember(entry.number);
                    }
                    return Some(values);
                }
            }
        }
        None
    }

    fn remember(&mut self, number: u64) {
        if self.are_gone.insert(number) {
            self.gone.push_back(number);
        }
        let most = REMEMBERED * self.len();
        while self.gone.len() > most
            && let Some(oldest) = self.gone.pop_front()
        {
            self.are_gone.remove(&oldest);
        }
    }
}

impl Reclaim for Cache {
    fn reclaim(&self, tenant: Option<&TenantName>, bytes: usize) -> bool {
        let wanted = bytes.max(FREED_BYTES);
        let mut freed = 0;
        while freed < wanted {
            // Freed outside the lock.
            let Some(values) = self.evict(tenant) else { break };
            freed += values.bytes_encoded();
        }
        freed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};
    use farpool_columns::{Reader, Source, encode_row_group};
    use farpool_memory::{Pool, PoolConfig};

    /// The source of handles whose values nobody reads again.
    #[derive(Debug, Default)]
    struct Nowhere(TenantName);

    impl Source for Nowhere {
        fn tenant(&self) -> &TenantName {
            &self.0
        }

        fn fetch(&self, _handles: Vec<Arc<Chunk>>, _reader: Box<dyn Reader>) {}
    }

    /// Handles whose values are in memory.
    fn handles(count: i64) -> Vec<Arc<Chunk>> {
        let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
        let source: Arc<dyn Source> = Arc::new(Nowhere::default());
        let field = arrow_schema::Field::new("c", arrow_schema::DataType::Int64, true);
        let schema = Arc::new(arrow_schema::Schema::new(vec![field]));
        let handle = |salt: i64| {
            let mixed = |row: i64| row.wrapping_mul(0x9E37_79B9 + salt).wrapping_mul(row);
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values((0..20_000).map(mixed)));
            let group = encode_row_group(&pool, &TenantName::default(), &schema, &[column]).unwrap();
            let handle = Chunk::handle(group.chunks[0].clone(), &source);
            assert!(handle.is_handle());
            handle
        };
        (0..count).map(handle).collect()
    }

    #[test]
    fn where_one_queue_is_in_use_the_other_gives_way() {
        for are_small_in_use in [true, false] {
            let (cache, handles) = (Cache::default(), handles(6));
            let (small, main) = handles.split_at(3);
            for (handle, number) in main.iter().zip(10..) {
                cache.expect(&TenantName::default(), number);
                cache.add(handle, number);
            }
            small.iter().zip(20..).for_each(|(handle, number)| cache.add(handle, number));
            let (used, free) = if are_small_in_use { (small, main) } else { (main, small) };
            let in_use: Vec<_> = used.iter().map(|handle| handle.values().unwrap()).collect();
            while cache.reclaim(None, 1) {}
            assert!(free.iter().all(|handle| handle.is_absent()), "small in use: {are_small_in_use}");
            assert!(used.iter().all(|handle| !handle.is_absent()));
            drop(in_use);
            while cache.reclaim(None, 1) {}
            assert!(handles.iter().all(|handle| handle.is_absent()));
        }
    }
}
