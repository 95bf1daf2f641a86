//! Background reads of evicted column chunks from segments. A *handle* is a chunk whose values may be on disk only. The
//! reads run on background threads, so that no thread that needs values blocks.

use super::cache::Cache;
use super::locations::Location;
use super::trace::{AccessKind, AccessTrace};
use super::value_requests::ValueRequests;
use crate::Background;
use arrow_buffer::Buffer;
use farpool_columns::{Chunk, ValueReader, ValueSource, encrypt_into_pool, read_into_pool};
use farpool_memory::{Pool, Reclaim, Tenure};
use farpool_model::cast::usize_saturating;
use farpool_model::{Error, ErrorKind, Result, TenantName};
use std::sync::{Arc, Weak};

/// Maximum number of retries of a read that finds no free memory. Each retry takes a background thread briefly; with
/// this many, a read gives up after about a second of thread time.
const WAITS: u32 = 300;

/// Reads the values of handles.
#[derive(Debug)]
pub(super) struct Reads {
    this: Weak<Reads>,
    pool: Arc<Pool>,
    pub background: Arc<dyn Background>,
    pub cache: Arc<Cache>,
    trace: Option<Arc<AccessTrace>>,
    awaited: ValueRequests,
}

/// Counts the retries of a read that found no free memory, up to a limit.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    waits: u32,
}

impl RetryBudget {
    pub fn new() -> RetryBudget {
        RetryBudget { waits: 0 }
    }

    /// Returns whether another retry is allowed.
    pub fn is_left(&self) -> bool {
        self.waits < WAITS
    }

    /// Counts a retry.
    pub fn count_wait(&mut self) {
        self.waits += 1;
    }
}

/// A handle whose values are to be read.
struct ReadRequest {
    handle: Arc<Chunk>,
    tenant: TenantName,
    retries: RetryBudget,
}

/// Source of the handles of one tenant.
#[derive(Debug)]
struct OfTenant {
    reads: Arc<Reads>,
    tenant: TenantName,
}

impl Reads {
    pub fn new(
        pool: Arc<Pool>,
        background: Arc<dyn Background>,
        trace: Option<Arc<AccessTrace>>,
    ) -> Arc<Reads> {
        Arc::new_cyclic(|this| Reads {
            this: this.clone(),
            pool,
            background,
            cache: Arc::default(),
            trace,
            awaited: ValueRequests::default(),
        })
    }

    /// Returns the cache, through which the pool evicts values when it needs memory.
    pub fn reclaim(&self) -> Weak<dyn Reclaim> {
        let cache: Weak<Cache> = Arc::downgrade(&self.cache);
        cache
    }

    /// Returns the maximum bytes of the pool.
    pub fn pool_bytes(&self) -> u64 {
        self.pool.usage().bytes_limit
    }

    /// Returns the source of the handles of a tenant.
    pub fn source(self: &Arc<Self>, tenant: &TenantName) -> Arc<dyn ValueSource> {
        Arc::new(OfTenant { reads: self.clone(), tenant: tenant.clone() })
    }

    /// Reads the values of a handle, and passes them to all readers that wait for them.
    fn read(&self, mut wanted: ReadRequest) {
        let handle = &wanted.handle;
        if !self.awaited.is_wanted(handle) {
            return;
        }
        match handle.values().map_or_else(|| self.load(handle, &wanted.tenant), Ok) {
            // Retried in the background, because memory in use by others is freed soon, and smaller reads can proceed
            // meanwhile.
            Err(error) if error.kind == ErrorKind::OverLimit && wanted.retries.is_left() => {
                wanted.retries.count_wait();
                self.background.read_later(self.job(wanted));
            }
            outcome => self.awaited.tell(handle, &outcome),
        }
    }

    fn job(&self, wanted: ReadRequest) -> Box<dyn FnOnce() + Send> {
        let this = self.this.clone();
        Box::new(move || {
            if let Some(reads) = this.upgrade() {
                reads.read(wanted);
            }
        })
    }

    fn record(&self, handle: &Chunk, kind: AccessKind) {
        if let Some(trace) = &self.trace {
            trace.add(handle, kind);
        }
    }

    fn load(&self, handle: &Arc<Chunk>, tenant: &TenantName) -> Result<Arc<Chunk>> {
        let location =
            Location::existing(handle).ok_or_else(|| Error::internal("a handle without a location"))?;
        let file = location
            .file()
            .ok_or_else(|| Error::internal("values that left before they were in a segment"))?;
        let (part, key) = (file.part(location.number)?, location.key());
        let read = || {
            let tenure = if handle.is_pinned() { Tenure::Staying } else { Tenure::Passing };
            let bytes = usize_saturating(part.bytes);
            let fill = |memory: &mut [u8]| file.segment.read(part, key, memory);
            let fitting = |chunk: Chunk| match chunk.data_type() == handle.data_type()
                && chunk.rows() == handle.rows()
            {
                true => Ok(chunk),
                false => Err(Error::corrupt("a chunk of another column")),
            };
            let Some(cipher) = handle.cipher() else {
                let (data, ()) = read_into_pool(&self.pool, tenant, bytes, tenure, fill)?;
                let head = file.segment.head(part, key)?;
                return Ok(Arc::new(fitting(Chunk::from_image(&head, &data)?.passing())?));
            };
            // Read into memory outside the pool, because values that are encrypted in memory must never be in the
            // pool in the clear.
            let mut data = vec![0; bytes];
            fill(&mut data)?;
            let head = file.segment.head(part, key)?;
            let chunk = fitting(Chunk::from_image(&head, &Buffer::from(data))?)?;
            encrypt_into_pool(&self.pool, tenant, tenure, cipher, chunk)
        };
        let values = match read() {
            // The corrupted chunk carries the error, which every reader of its values gets.
            Err(damage) if damage.kind == ErrorKind::Corrupt => {
                Arc::new(Chunk::from_head(&file.segment.head(part, key)?, damage)?)
            }
            values => values?,
        };
        handle.put_values(values.clone());
        self.cache.add(handle, location.number);
        self.record(handle, AccessKind::Read);
        Ok(values)
    }
}

impl ValueSource for OfTenant {
    fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    fn bytes_on_disk(&self, handle: &Chunk) -> usize {
        let stored = || {
            let location = Location::existing(handle)?;
            Some(usize_saturating(location.file()?.part(location.number).ok()?.bytes_stored))
        };
        stored().unwrap_or_else(|| handle.bytes_encoded())
    }

    fn used(&self, handle: &Chunk) {
        self.reads.record(handle, AccessKind::Used);
    }

    fn fetch(&self, handles: Vec<Arc<Chunk>>, reader: Box<dyn ValueReader>) {
        let pool_bytes = usize_saturating(self.reads.pool_bytes());
        for handle in self.reads.awaited.want(handles, reader, pool_bytes) {
            let wanted = ReadRequest { handle, tenant: self.tenant.clone(), retries: RetryBudget::new() };
            self.reads.background.read(self.reads.job(wanted));
        }
    }
}
