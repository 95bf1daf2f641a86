//! Requests of readers that wait for values of handles (column chunks whose values may be on disk only).
//!
//! Values that several readers request at once are read once. Values that have arrived are kept in memory for the
//! requesting readers until these have used them, up to a fraction of the pool for all requests. Values beyond that
//! fraction may be evicted before they are used, and are then read again. One request at a time may exceed the
//! fraction, so that there is progress even in the smallest pool, and no reader waits until another one uses its
//! values.
//!
//! Example: two readers need two chunks each, and the pool has room for three. If both kept one chunk and waited for
//! the second, neither could proceed. The reader with the permit gets both chunks; the other one keeps none.

use farpool_columns::{Chunk, HeldValues, ValueReader};
use farpool_model::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Divisor of the pool's memory: values kept for requests may take at most a quarter of it.
const HELD_PART: usize = 4;

/// Requests for values of handles that have not arrived yet.
#[derive(Debug, Default)]
pub struct ValueRequests {
    /// Requests by the address of the handle.
    requests: Mutex<HashMap<usize, Vec<Arc<Request>>>>,
    kept: Arc<Mutex<HeldMemory>>,
    has_permit: Arc<AtomicBool>,
}

impl ValueRequests {
    /// Registers that `reader` waits for the values of `handles`, in a pool of `pool_bytes`. Returns the handles that
    /// no other request waits for; the caller must read these now.
    pub fn want(
        &self,
        handles: Vec<Arc<Chunk>>,
        reader: Box<dyn ValueReader>,
        pool_bytes: usize,
    ) -> Vec<Arc<Chunk>> {
        let parts = self.parts(&handles, pool_bytes / HELD_PART);
        let (values, left) = (Vec::with_capacity(handles.len()), AtomicUsize::new(handles.len()));
        let permit = if parts.is_none() && reader.is_urgent() { self.permit() } else { None };
        let keeps = parts.is_some() || permit.is_some();
        let parts = parts.unwrap_or_default();
        let state = RequestState { values, error: None, reader: Some(reader), parts, permit, keeps };
        let request = Arc::new(Request { left, state: Mutex::new(state) });
        let mut new = handles;
        new.retain(|handle| {
            let mut requests = self.requests.lock();
            let of_handle = requests.entry(address(handle)).or_default();
            of_handle.push(request.clone());
            of_handle.len() == 1
        });
        // The reader may be gone, if reads for other requests have completed this one meanwhile.
        if let Some(reader) = &request.state.lock().reader {
            reader.asked_first(&new);
        }
        new
    }

    /// Returns whether a reader still waits for a handle. If not, removes the requests for it, so that the next request
    /// starts another read.
    pub fn is_wanted(&self, handle: &Arc<Chunk>) -> bool {
        // Checking and removing happen under one lock, because a request registered in between would be removed
        // without being read.
        let mut requests = self.requests.lock();
        let of_handle = requests.get(&address(handle));
        let is_wanted = of_handle.is_some_and(|requests| requests.iter().any(|request| request.is_wanted()));
        let forgotten = if is_wanted { None } else { requests.remove(&address(handle)) };
        drop(requests);
        drop(forgotten);
        is_wanted
    }

    /// Returns whether there is a request for the values of a handle.
    pub fn has(&self, handle: &Chunk) -> bool {
        self.requests.lock().contains_key(&address(handle))
    }

    /// Passes the outcome of reading a handle to all its requests.
    pub fn tell(&self, handle: &Arc<Chunk>, outcome: &Result<Arc<Chunk>>) {
        let requests = self.requests.lock().remove(&address(handle)).unwrap_or_default();
        requests.into_iter().for_each(|request| request.told(outcome));
    }

    /// Reserves memory for keeping the values of each handle; `None` if not enough of the share is left. Requests for
    /// the same values share a reservation.
    fn parts(&self, handles: &[Arc<Chunk>], most: usize) -> Option<Vec<Arc<HeldReservation>>> {
        let part = |handle: &Arc<Chunk>| {
            let mut kept = self.kept.lock();
            if let Some(part) = kept.parts.get(&address(handle)).and_then(Weak::upgrade) {
                return Some(part);
            }
            let bytes = handle.bytes_encoded();
            kept.bytes = kept.bytes.checked_add(bytes).filter(|kept| *kept <= most)?;
            let part = Arc::new(HeldReservation { handle: handle.clone(), bytes, of: self.kept.clone() });
            kept.parts.insert(address(handle), Arc::downgrade(&part));
            Some(part)
        };
        handles.iter().map(part).collect()
    }

    /// Returns the permit to exceed the share of kept values; `None` if another request has it.
    fn permit(&self) -> Option<OverdraftPermit> {
        let is_taken = self.has_permit.swap(true, Ordering::Acquire);
        (!is_taken).then(|| OverdraftPermit(self.has_permit.clone()))
    }
}

fn address(handle: &Chunk) -> usize {
    std::ptr::from_ref(handle) as usize
}

/// Request of one reader for the values of some handles.
struct Request {
    left: AtomicUsize,
    state: Mutex<RequestState>,
}

struct RequestState {
    values: Vec<Arc<Chunk>>,
    error: Option<Error>,
    reader: Option<Box<dyn ValueReader>>,
    parts: Vec<Arc<HeldReservation>>,
    permit: Option<OverdraftPermit>,
    /// Whether arrived values are kept until all have arrived and were used.
    keeps: bool,
}

/// Memory of kept values of all requests.
#[derive(Debug, Default)]
struct HeldMemory {
    bytes: usize,
    /// Reservations by the address of the handle.
    parts: HashMap<usize, Weak<HeldReservation>>,
}

/// Reservation of memory for the kept values of one handle.
#[derive(Debug)]
struct HeldReservation {
    /// Keeps the handle alive, so that its address is not reused.
    handle: Arc<Chunk>,
    bytes: usize,
    of: Arc<Mutex<HeldMemory>>,
}

impl Drop for HeldReservation {
    fn drop(&mut self) {
        let mut kept = self.of.lock();
        kept.bytes -= self.bytes;
        // The entry may belong to a newer reservation, made after the last reference to this one was dropped.
        if let Entry::Occupied(entry) = kept.parts.entry(address(&self.handle))
            && entry.get().strong_count() == 0
        {
            entry.remove();
        }
    }
}

/// Permit to exceed the share of kept values. Only one request has it at a time, because two of them could each wait
/// for memory that the other one has.
struct OverdraftPermit(Arc<AtomicBool>);

impl Drop for OverdraftPermit {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Request {
    fn is_wanted(&self) -> bool {
        self.state.lock().reader.as_ref().is_some_and(|reader| reader.is_waiting())
    }

    /// Receives the outcome of reading one of the handles.
    fn told(&self, outcome: &Result<Arc<Chunk>>) {
        let mut state = self.state.lock();
        match outcome {
            // Values are kept only if memory for them was reserved.
            Ok(values) if state.keeps => state.values.push(values.clone()),
            Ok(_) => {}
            Err(error) => {
                state.error.get_or_insert_with(|| error.clone());
            }
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let (values, parts, permit) =
            (std::mem::take(&mut state.values), std::mem::take(&mut state.parts), state.permit.take());
        let kept: HeldValues = Arc::new((values, parts, permit));
        let outcome = state.error.take().map_or(Ok(kept), Err);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.arrived(outcome);
        }
    }
}
