//! Reads values of handles from segments, elsewhere than on the threads that want them.
//!
//! Values that two want at once are read once. Those that were read for somebody are kept for it until it has used them, up
//! to a part of the pool's memory for all; beyond, they may leave again before they are used, and are then read again. One of
//! those to which that happened keeps them beyond that part, so that there is progress in the smallest pool, and nobody
//! waits for another to use what it has asked for.

use super::cache::Cache;
use super::homes::Home;
use super::trace::{AccessKind, AccessTrace};
use crate::catalog::Background;
use arrow_buffer::Buffer;
use farpool_columns::{Chunk, Kept, Reader, Source, encrypt_into_pool, read_into_pool};
use farpool_memory::{Pool, Reclaim, Tenure};
use farpool_model::cast::usize_saturating;
use farpool_model::{Error, ErrorKind, Result, TenantName};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The part of the pool's memory that values take which were read and have not been used yet.
const KEPT_PART: usize = 4;

/// How long a read that finds no memory waits before it tries again, and how often: workers are done with what they work
/// on after some milliseconds. Meanwhile it takes the time of one of a few threads, so that it gives up within a second.
const WAIT: Duration = Duration::from_millis(3);
const WAITS: u32 = 300;

/// What reads the values of handles.
#[derive(Debug)]
pub(super) struct Reads {
    this: Weak<Reads>,
    pool: Arc<Pool>,
    pub background: Arc<dyn Background>,
    pub cache: Arc<Cache>,
    trace: Option<Arc<AccessTrace>>,
    /// Requests for each handle whose values are being read, by the handle's address.
    under_way: Mutex<HashMap<usize, Vec<Arc<Request>>>>,
    bytes_kept: Arc<AtomicUsize>,
    has_turn: Arc<AtomicBool>,
}

/// How long somebody waits for memory who finds none.
pub(crate) struct Patience {
    waits: u32,
}

impl Patience {
    pub fn new() -> Patience {
        Patience { waits: 0 }
    }

    /// Whether it should be tried again.
    pub fn is_left(&self) -> bool {
        self.waits < WAITS
    }

    /// Waits for a moment, in which memory may be freed. Only threads that wait for disks may.
    pub fn wait(&mut self) {
        self.waits += 1;
        let (moment, passed) = (Mutex::new(()), Condvar::new());
        passed.wait_for(&mut moment.lock(), WAIT);
    }
}

/// The source of the handles of one tenant.
#[derive(Debug)]
struct OfTenant {
    reads: Arc<Reads>,
    tenant: TenantName,
}

/// Somebody who wants the values of some handles.
struct Request {
    left: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    values: Vec<Arc<Chunk>>,
    error: Option<Error>,
    reader: Option<Box<dyn Reader>>,
    part: Option<KeptPart>,
    turn: Option<Turn>,
    /// Whether values are kept until all are there and used.
    keeps: bool,
}

/// A part of the memory for values that are kept.
struct KeptPart {
    bytes: usize,
    of: Arc<AtomicUsize>,
}

impl Drop for KeptPart {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The permission to keep values beyond that part, which one request has at a time: two of them would each wait for memory
/// that the other keeps.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("left", &self.left).finish_non_exhaustive()
    }
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
            under_way: Mutex::default(),
            bytes_kept: Arc::default(),
            has_turn: Arc::default(),
        })
    }

    /// What frees memory of the pool.
    pub fn reclaim(&self) -> Weak<dyn Reclaim> {
        let cache: Weak<Cache> = Arc::downgrade(&self.cache);
        cache
    }

    /// Bytes that the pool may have in use.
    pub fn pool_bytes(&self) -> u64 {
        self.pool.usage().bytes_limit
    }

    /// The source of the handles of a tenant.
    pub fn source(self: &Arc<Self>, tenant: &TenantName) -> Arc<dyn Source> {
        Arc::new(OfTenant { reads: self.clone(), tenant: tenant.clone() })
    }

    /// A part of the memory for values that are kept, if so much is left.
    fn part(&self, bytes: usize) -> Option<KeptPart> {
        let most = usize_saturating(self.pool_bytes()) / KEPT_PART;
        let more = |kept: usize| kept.checked_add(bytes).filter(|kept| *kept <= most);
        self.bytes_kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(KeptPart { bytes, of: self.bytes_kept.clone() })
    }

    /// The turn to keep values beyond that part, unless another request has it.
    fn turn(&self) -> Option<Turn> {
        let is_taken = self.has_turn.swap(true, Ordering::Acquire);
        (!is_taken).then(|| Turn(self.has_turn.clone()))
    }

    /// Reads the values of a handle for all who want them.
    fn read(&self, handle: &Arc<Chunk>, tenant: &TenantName) {
        let address = Arc::as_ptr(handle) as usize;
        let mut patience = Patience::new();
        let values = loop {
            if !self.is_wanted(address) {
                return;
            }
            match handle.values().map_or_else(|| self.load(handle, tenant), Ok) {
                // What others work on is free in a moment.
                Err(error) if error.kind == ErrorKind::OverLimit && patience.is_left() => patience.wait(),
                outcome => break outcome,
            }
        };
        let requests = self.under_way.lock().remove(&address).unwrap_or_default();
        requests.into_iter().for_each(|request| request.told(&values));
    }

    /// Whether somebody still wants the values of the handle at `address`. If not, its requests are forgotten, and the next
    /// one has them read anew.
    fn is_wanted(&self, address: usize) -> bool {
        // Under one lock, or a request that comes in between would be forgotten, too.
        let mut under_way = self.under_way.lock();
        let requests = under_way.get(&address);
        let is_wanted = requests.is_some_and(|requests| requests.iter().any(|request| request.is_wanted()));
        let forgotten = if is_wanted { None } else { under_way.remove(&address) };
        drop(under_way);
        drop(forgotten);
        is_wanted
    }

    fn record(&self, handle: &Chunk, kind: AccessKind) {
        if let Some(trace) = &self.trace {
            trace.add(handle, kind);
        }
    }

    fn load(&self, handle: &Arc<Chunk>, tenant: &TenantName) -> Result<Arc<Chunk>> {
        let home = Home::existing(handle).ok_or_else(|| Error::internal("a handle without a home"))?;
        let file =
            home.file().ok_or_else(|| Error::internal("values that left before they were in a segment"))?;
        let (part, key) = (file.part(home.number)?, home.key());
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
            // In the clear they are never in the pool.
            let mut data = vec![0; bytes];
            fill(&mut data)?;
            let head = file.segment.head(part, key)?;
            let chunk = fitting(Chunk::from_image(&head, &Buffer::from(data))?)?;
            encrypt_into_pool(&self.pool, tenant, tenure, cipher, chunk)
        };
        let values = match read() {
            // Everybody who wants these values is told so.
            Err(damage) if damage.kind == ErrorKind::Corrupt => {
                Arc::new(Chunk::from_head(&file.segment.head(part, key)?, damage)?)
            }
            values => values?,
        };
        handle.put_values(values.clone());
        self.cache.add(handle, home.number);
        self.record(handle, AccessKind::Read);
        Ok(values)
    }
}

impl Source for OfTenant {
    fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    fn bytes_on_disk(&self, handle: &Chunk) -> usize {
        let stored = || {
            let home = Home::existing(handle)?;
            Some(usize_saturating(home.file()?.part(home.number).ok()?.bytes_stored))
        };
        stored().unwrap_or_else(|| handle.bytes_encoded())
    }

    fn used(&self, handle: &Chunk) {
        self.reads.record(handle, AccessKind::Used);
    }

    fn fetch(&self, handles: Vec<Arc<Chunk>>, reader: Box<dyn Reader>) {
        let bytes = handles.iter().map(|handle| handle.bytes_encoded()).sum();
        let part = self.reads.part(bytes);
        let (values, left) = (Vec::with_capacity(handles.len()), AtomicUsize::new(handles.len()));
        let turn = if part.is_none() && reader.is_urgent() { self.reads.turn() } else { None };
        let keeps = part.is_some() || turn.is_some();
        let state = State { values, error: None, reader: Some(reader), part, turn, keeps };
        let request = Arc::new(Request { left, state: Mutex::new(state) });
        for handle in handles {
            let mut under_way = self.reads.under_way.lock();
            let requests = under_way.entry(Arc::as_ptr(&handle) as usize).or_default();
            requests.push(request.clone());
            let is_first = requests.len() == 1;
            drop(under_way);
            if is_first {
                let (reads, tenant) = (self.reads.this.clone(), self.tenant.clone());
                self.reads.background.read(Box::new(move || {
                    if let Some(reads) = reads.upgrade() {
                        reads.read(&handle, &tenant);
                    }
                }));
            }
        }
    }
}

impl Request {
    fn is_wanted(&self) -> bool {
        self.state.lock().reader.as_ref().is_some_and(|reader| reader.is_waiting())
    }

    /// Is told the outcome of reading one of the handles.
    fn told(&self, outcome: &Result<Arc<Chunk>>) {
        let mut state = self.state.lock();
        match outcome {
            // Without a part of the memory for that they are not kept.
            Ok(values) if state.keeps => state.values.push(values.clone()),
            Ok(_) => {}
            Err(error) => {
                state.error.get_or_insert_with(|| error.clone());
            }
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let (values, part, turn) = (std::mem::take(&mut state.values), state.part.take(), state.turn.take());
        let kept: Kept = Arc::new((values, part, turn));
        let outcome = state.error.take().map_or(Ok(kept), Err);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.arrived(outcome);
        }
    }
}
