//! Client-side cache of a node's column chunks, and the transfer of their values.
//!
//! A *handle* is a chunk whose values are received over the connection when they are needed, in the encoded form in
//! which the node has them. Values that several queries need at the same time are received once. They are requested in
//! portions of some megabytes, several of which are in flight, so that the next values are sent while others are placed
//! in memory ([`Transfer`]). If memory is short, values are evicted by the same policy as at a node ([`Cache`]).

use super::tables::NearTable;
use arrow::buffer::Buffer;
use farpool_catalog::{Cache, ValueRequests};
use farpool_columns::{Chunk, ValueReader, ValueSource, read_into_pool};
use farpool_memory::{Pool, PoolConfig, Reclaim, Tenure};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, ErrorKind, Result, TenantName, limits};
use farpool_transfer::{ChunkImage, Handle, RemotePool};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::sleep;

/// The parameters of requests for column chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Transfer {
    /// Approximate encoded bytes of one request.
    pub request_bytes: usize,
    /// Number of concurrent requests.
    pub requests: usize,
}

impl Default for Transfer {
    fn default() -> Self {
        Transfer { request_bytes: 4 << 20, requests: 2 }
    }
}

impl Transfer {
    /// Returns whether the parameters are plausible: chunks arrive, and requests do not use all memory.
    pub fn is_sound(&self) -> bool {
        (1..=limits::STREAM_WINDOW_BYTES * 16).contains(&self.request_bytes)
            && (1..=64).contains(&self.requests)
    }
}

/// Pause before values for which there was no memory are placed again, and maximum number of attempts. Queries release
/// their values after some milliseconds, or later on a busy machine. No thread is blocked during the pause.
const WAIT: Duration = Duration::from_millis(3);
const WAITS: u32 = 5_000;

/// Number of handles at which dropped ones are removed for the first time, and again each time the number has doubled.
const HANDLES_UNSEEN: usize = 1 << 12;

/// The cached column chunks of one pool.
#[derive(Debug)]
pub(super) struct Chunks {
    this: Weak<Chunks>,
    remote: Arc<RemotePool>,
    pool: Arc<Pool>,
    cache: Arc<Cache>,
    awaited: ValueRequests,
    tenant: TenantName,
    handles: Mutex<Handles>,
    queue: Mutex<Queue>,
    bytes_fetched: AtomicU64,
    transfer: Mutex<Transfer>,
    /// Runtime of the thread that receives values, because the threads that poll queries may be busy with others.
    runtime: Mutex<Option<Runtime>>,
}

/// The handles of chunks, by the id of the node's process and the id of the chunk there.
#[derive(Debug, Default)]
struct Handles {
    known: HashMap<(u64, u64), Weak<Chunk>>,
    left: usize,
}

#[derive(Debug, Default)]
struct Queue {
    wanted: VecDeque<Arc<Chunk>>,
    requests: usize,
}

/// The places from which a chunk can be fetched: tables that have it, with its row group and column in each.
#[derive(Debug)]
pub(super) struct Places {
    number: u64,
    places: Mutex<Vec<Place>>,
}

#[derive(Clone, Debug)]
struct Place {
    table: Weak<NearTable>,
    row_group: usize,
    column: usize,
}

/// Requested chunks of one table, by row group and column.
struct Wanted {
    handle: Handle,
    row_groups: BTreeMap<usize, BTreeMap<usize, Arc<Chunk>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    pub fn add(&self, table: &Arc<NearTable>, row_group: usize, column: usize) {
        let mut places = lock(&self.places);
        places.retain(|place| place.table.strong_count() > 0);
        places.push(Place { table: Arc::downgrade(table), row_group, column });
    }

    /// Returns a table that a query reads at present, so that the node still has it; `None` if no query does.
    fn place(&self) -> Option<(Arc<NearTable>, Handle, usize, usize)> {
        lock(&self.places).iter().rev().find_map(|place| {
            let table = place.table.upgrade()?;
            let handle = table.handle()?;
            Some((table, handle, place.row_group, place.column))
        })
    }
}

/// Returns the places from which a chunk can be fetched; `None` for a chunk that is not a handle of this cache.
pub(super) fn places(handle: &Chunk) -> Option<Arc<Places>> {
    handle.location().get()?.clone().downcast().ok()
}

impl Chunks {
    /// Creates a cache of up to `bytes_max` bytes of values.
    pub fn new(remote: Arc<RemotePool>, bytes_max: usize) -> Result<Arc<Chunks>> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("farpool-fetch")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::over_limit(format!("cannot start a thread that fetches chunks: {error}"))
            })?;
        let pool = Pool::new(PoolConfig { bytes_limit: bytes_max })?;
        let cache = Arc::<Cache>::default();
        let reclaim: Weak<Cache> = Arc::downgrade(&cache);
        let reclaim: Weak<dyn Reclaim> = reclaim;
        pool.set_reclaim(reclaim);
        Ok(Arc::new_cyclic(|this| Chunks {
            this: this.clone(),
            remote,
            pool,
            cache,
            awaited: ValueRequests::default(),
            tenant: TenantName::default(),
            handles: Mutex::default(),
            queue: Mutex::default(),
            bytes_fetched: AtomicU64::new(0),
            transfer: Mutex::default(),
            runtime: Mutex::new(Some(runtime)),
        }))
    }

    pub fn remote(&self) -> &Arc<RemotePool> {
        &self.remote
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    /// Returns the encoded bytes that have been received.
    pub fn bytes_fetched(&self) -> u64 {
        self.bytes_fetched.load(Ordering::Relaxed)
    }

    pub fn set_transfer(&self, transfer: Transfer) {
        *lock(&self.transfer) = transfer;
    }

    /// Returns the handle of the chunk with the id `number` in the node's process `instance`. Creates it from
    /// `outline`, the encoded metadata of the chunk, if there is none.
    pub fn handle(&self, instance: u64, number: u64, outline: &[u8]) -> Result<Arc<Chunk>> {
        let mut handles = lock(&self.handles);
        if let Some(known) = handles.known.get(&(instance, number)).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let this = self.this.upgrade().ok_or_else(|| Error::internal("chunks of a pool that is closed"))?;
        let source: Arc<dyn ValueSource> = this;
        let handle = Arc::new(Chunk::outlined(outline, &source)?);
        // The chunk has no other location.
        let _ = handle.location().set(Arc::new(Places { number, places: Mutex::default() }));
        handles.known.insert((instance, number), Arc::downgrade(&handle));
        if handles.known.len() >= HANDLES_UNSEEN.max(2 * handles.left) {
            handles.known.retain(|_, handle| handle.strong_count() > 0);
            handles.left = handles.known.len();
        }
        Ok(handle)
    }

    async fn fetch_all(self: Arc<Self>) {
        while let Some(batch) = self.next_batch() {
            for wanted in self.grouped(batch) {
                for (columns, row_groups) in alike(wanted.row_groups) {
                    self.fetch_some(&wanted.handle, &columns, row_groups).await;
                }
            }
        }
    }

    /// Takes the chunks for the next requests from the queue; `None` if the queue is empty.
    fn next_batch(&self) -> Option<Vec<Arc<Chunk>>> {
        let most = lock(&self.transfer).request_bytes;
        let mut queue = lock(&self.queue);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < most
            && let Some(handle) = queue.wanted.pop_front()
        {
            bytes += handle.bytes_encoded();
            batch.push(handle);
        }
        if batch.is_empty() {
            queue.requests -= 1;
            return None;
        }
        Some(batch)
    }

    /// Groups chunks that queries still need by table.
    fn grouped(&self, batch: Vec<Arc<Chunk>>) -> Vec<Wanted> {
        let mut tables: BTreeMap<usize, Wanted> = BTreeMap::new();
        for chunk in batch {
            if !self.awaited.is_wanted(&chunk) {
                continue;
            }
            if let Some(values) = chunk.values() {
                self.awaited.tell(&chunk, &Ok(values));
                continue;
            }
            let Some((table, handle, row_group, column)) = places(&chunk).and_then(|places| places.place())
            else {
                let gone = Error::stale("the node no longer keeps the table version that a query reads");
                self.awaited.tell(&chunk, &Err(gone));
                continue;
            };
            let wanted = tables
                .entry(Arc::as_ptr(&table) as usize)
                .or_insert_with(|| Wanted { handle, row_groups: BTreeMap::new() });
            wanted.row_groups.entry(row_group).or_default().insert(column, chunk);
        }
        tables.into_values().collect()
    }

    /// Fetches the chunks of `columns` in some row groups, and notifies the queries that wait for them.
    async fn fetch_some(
        &self,
        handle: &Handle,
        columns: &[usize],
        row_groups: BTreeMap<usize, BTreeMap<usize, Arc<Chunk>>>,
    ) {
        let mut left: BTreeMap<(usize, usize), Arc<Chunk>> = BTreeMap::new();
        let places: Vec<usize> = row_groups.keys().copied().collect();
        for (row_group, chunks) in row_groups {
            let positions = chunks.into_values().enumerate();
            left.extend(positions.map(|(position, chunk)| ((row_group, position), chunk)));
        }
        let outcome = self.receive(handle, columns, &places, &mut left).await;
        let missing = || Error::corrupt("the pool sent fewer chunks than were asked for");
        let error = outcome.err().unwrap_or_else(missing);
        left.values().for_each(|chunk| self.awaited.tell(chunk, &Err(error.clone())));
    }

    /// Receives chunks, and removes those that have arrived from `left`.
    async fn receive(
        &self,
        handle: &Handle,
        columns: &[usize],
        row_groups: &[usize],
        left: &mut BTreeMap<(usize, usize), Arc<Chunk>>,
    ) -> Result<()> {
        let mut stream = self.remote.fetch(handle, columns, row_groups).await?;
        while let Ok(image) = stream.next().await? {
            let place = (image.row_group as usize, image.column as usize);
            let unasked = || Error::corrupt("the pool sent a chunk that was not asked for");
            let chunk = left.get(&place).cloned().ok_or_else(unasked)?;
            let outcome = self.place(&chunk, &image).await;
            left.remove(&place);
            self.awaited.tell(&chunk, &outcome);
            // If all queries that needed the rest are cancelled, so is the request.
            if !left.is_empty() && !left.values().any(|chunk| self.awaited.is_wanted(chunk)) {
                left.clear();
                break;
            }
        }
        Ok(())
    }

    /// Places values in memory, and retries for a while if there is no memory.
    async fn place(&self, handle: &Arc<Chunk>, image: &ChunkImage) -> Result<Arc<Chunk>> {
        self.bytes_fetched.fetch_add(u64_from(handle.bytes_encoded()), Ordering::Relaxed);
        for _ in 0..WAITS {
            match self.read(handle, image) {
                Err(error) if error.kind == ErrorKind::OverLimit && self.awaited.has(handle) => {}
                outcome => return outcome,
            }
            sleep(WAIT).await;
        }
        self.read(handle, image)
    }

    fn read(&self, handle: &Arc<Chunk>, image: &ChunkImage) -> Result<Arc<Chunk>> {
        let fill = |memory: &mut [u8]| {
            memory.copy_from_slice(&image.data);
            Ok(())
        };
        let (data, ()) = match image.data.is_empty() {
            true => (Buffer::default(), ()),
            false => read_into_pool(&self.pool, &self.tenant, image.data.len(), Tenure::Passing, fill)?,
        };
        let values = Chunk::from_image(&image.head, &data)?;
        let is_it = values.data_type() == handle.data_type()
            && values.rows() == handle.rows()
            && values.bytes_encoded() == handle.bytes_encoded();
        if !is_it {
            return Err(Error::corrupt("the pool sent a chunk of another column"));
        }
        let values = Arc::new(values.passing());
        handle.put_values(values.clone());
        let number = places(handle).map_or(0, |places| places.number);
        self.cache.add(handle, number);
        Ok(values)
    }
}

/// Row groups, by index, with their requested columns.
type Alike = BTreeMap<usize, BTreeMap<usize, Arc<Chunk>>>;

/// Groups row groups by their requested columns.
fn alike(row_groups: Alike) -> BTreeMap<Vec<usize>, Alike> {
    let mut by_columns: BTreeMap<Vec<usize>, Alike> = BTreeMap::new();
    for (row_group, chunks) in row_groups {
        let columns = chunks.keys().copied().collect();
        by_columns.entry(columns).or_default().insert(row_group, chunks);
    }
    by_columns
}

impl ValueSource for Chunks {
    fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    fn fetch(&self, handles: Vec<Arc<Chunk>>, reader: Box<dyn ValueReader>) {
        let pool_bytes = usize_saturating(self.pool.usage().bytes_limit);
        let new = self.awaited.want(handles, reader, pool_bytes);
        let most = lock(&self.transfer).requests;
        let mut queue = lock(&self.queue);
        queue.wanted.extend(new);
        if queue.wanted.is_empty() || queue.requests >= most {
            return;
        }
        queue.requests += 1;
        drop(queue);
        if let (Some(this), Some(runtime)) = (self.this.upgrade(), &*lock(&self.runtime)) {
            runtime.spawn(this.fetch_all());
        }
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        // Dropping a runtime waits for it, which is not allowed on a thread that runs tasks.
        if let Some(runtime) = lock(&self.runtime).take() {
            runtime.shutdown_background();
        }
    }
}
