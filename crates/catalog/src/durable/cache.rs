//! Eviction of values when memory is short: the pool as a cache of the data directory.
//!
//! The policy is *S3-FIFO* (Yang et al., *FIFO queues are all you need for cache eviction*, SOSP 2023). New values
//! enter a small queue, a tenth of all bytes. Those used there more than once move to the main queue; the others are
//! evicted. In the main queue, values used since they were last examined stay for another round. Values that are read
//! again soon after their eviction enter the main queue at once. A scan of a large table therefore passes through the
//! small queue, and values that many queries use stay.
//!
//! Each tenant has its own queues, and values of the tenant with the most bytes are evicted first, so that a scan by
//! one tenant does not evict what others use.
//!
//! Invariant: only values with a location in a segment are in the queues, and are evicted; any others could not be read
//! again. Values of pinned tables leave the queues for good.
//!
//! Terms: a *segment* is a file of column chunks. A *handle* is a column chunk whose values may be evicted from
//! memory, because a segment has a copy.

use farpool_columns::Chunk;
use farpool_memory::Reclaim;
use farpool_model::{TenantName, limits};
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

/// Divisor of the bytes of all values: the small queue has at most 1/10 of them.
const SMALL_PART: usize = 10;

/// Number of uses in the small queue from which values move to the main queue. More than one, because values are read
/// for their first use.
const USES_TO_STAY: u8 = 2;

/// Maximum number of evicted entries that are remembered, as a multiple of the entries in memory.
const REMEMBERED: usize = 1;

/// Number of bytes that are evicted together: a memory page of the pool, so that not every allocation has to evict.
const FREED_BYTES: usize = limits::PAGE_BYTES;

/// Number of entries at which entries of dropped handles are removed for the first time, and again each time the
/// number has doubled.
const ENTRIES_UNSEEN: usize = 1 << 10;

/// The handles (column chunks that have a copy on disk) whose values are in memory, in eviction order, by tenant.
#[derive(Debug, Default)]
pub struct Cache(Mutex<BTreeMap<TenantName, Queues>>);

#[derive(Debug, Default)]
struct Queues {
    small: Queue,
    main: Queue,
    /// Chunk ids of values that were evicted from the small queue.
    gone: VecDeque<u64>,
    are_gone: HashSet<u64>,
    /// Number of entries that remained when entries of dropped handles were last removed.
    entries_left: usize,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<CacheEntry>,
    bytes: usize,
}

#[derive(Debug)]
struct CacheEntry {
    handle: Weak<Chunk>,
    /// Id of the column chunk.
    number: u64,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, entry: CacheEntry) {
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<CacheEntry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

impl Cache {
    /// Adds a handle whose values were read into memory. `number` is its chunk id.
    pub fn add(&self, handle: &Arc<Chunk>, number: u64) {
        let Some(tenant) = handle.tenant().filter(|_| !handle.is_pinned()) else { return };
        let entry = CacheEntry { handle: Arc::downgrade(handle), number, bytes: handle.bytes_encoded() };
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
    /// Evicts values of this tenant, or of the tenant with the most bytes that are not in use. Returns `None` if all
    /// values are in use.
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
    /// Returns the chunk ids of values that queries used, most used first.
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
        // The sort is stable, so that chunks with equal numbers of uses keep their order of arrival.
        used.sort_by_key(|(rank, _)| *rank);
        used.into_iter().map(|(_, number)| number).collect()
    }

    /// Records that the values of this chunk enter the main queue when they are read, because queries used them
    /// before the last stop of the node.
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
    /// Returns the number of entries.
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

    /// Removes entries of dropped handles when they may be as many as the others. Eviction removes them, too, but does
    /// not run while there is enough memory.
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

    /// Removes and returns the values that are evicted next; `None` if all values are in use.
    fn evict(&mut self) -> Option<Arc<Chunk>> {
        // Maximum number of examined entries: each is examined once for each counted use, once more, and once in the
        // small queue.
        let mut looks = 5 * self.len();
        // Number of consecutive entries in use, by queue. When all entries of a queue are in use, the other queue is
        // examined.
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
            // The values are freed here, after the lock was released.
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
    use farpool_columns::{ValueReader, ValueSource, encode_row_group};
    use farpool_memory::{Pool, PoolConfig};

    /// Source of values for tests, whose handles are never read again after their eviction.
    #[derive(Debug, Default)]
    struct Nowhere(TenantName);

    impl ValueSource for Nowhere {
        fn tenant(&self) -> &TenantName {
            &self.0
        }

        fn fetch(&self, _handles: Vec<Arc<Chunk>>, _reader: Box<dyn ValueReader>) {}
    }

    /// Creates `count` handles (chunks whose values may be evicted) with values in memory.
    fn handles(count: i64) -> Vec<Arc<Chunk>> {
        let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
        let source: Arc<dyn ValueSource> = Arc::new(Nowhere::default());
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
