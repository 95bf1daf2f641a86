//! Who waits for values of handles.
//!
//! Values that two want at once are read once. Those that were read for somebody are kept for it until it has used them, up
//! to a part of the pool's memory for all; beyond, they may leave again before they are used, and are then read again. One of
//! those to which that happened keeps them beyond that part, so that there is progress in the smallest pool, and nobody
//! waits for another to use what it has asked for.

use farpool_columns::{Chunk, Kept, Reader};
use farpool_model::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The part of the pool's memory that values take which were read and have not been used yet.
const KEPT_PART: usize = 4;

/// Requests for values of handles that have not come yet.
#[derive(Debug, Default)]
pub struct Awaited {
    /// By the handle's address.
    requests: Mutex<HashMap<usize, Vec<Arc<Request>>>>,
    kept: Arc<Mutex<AllKept>>,
    has_turn: Arc<AtomicBool>,
}

impl Awaited {
    /// Notes that `reader` waits for the values of `handles`, which come into a pool of `pool_bytes`. Returns those handles
    /// that nobody waited for, to be read now.
    pub fn want(
        &self,
        handles: Vec<Arc<Chunk>>,
        reader: Box<dyn Reader>,
        pool_bytes: usize,
    ) -> Vec<Arc<Chunk>> {
        let parts = self.parts(&handles, pool_bytes / KEPT_PART);
        let (values, left) = (Vec::with_capacity(handles.len()), AtomicUsize::new(handles.len()));
        let turn = if parts.is_none() && reader.is_urgent() { self.turn() } else { None };
        let keeps = parts.is_some() || turn.is_some();
        let parts = parts.unwrap_or_default();
        let state = State { values, error: None, reader: Some(reader), parts, turn, keeps };
        let request = Arc::new(Request { left, state: Mutex::new(state) });
        let mut new = handles;
        new.retain(|handle| {
            let mut requests = self.requests.lock();
            let of_handle = requests.entry(address(handle)).or_default();
            of_handle.push(request.clone());
            of_handle.len() == 1
        });
        // If others' reads have brought all, it has been told already.
        if let Some(reader) = &request.state.lock().reader {
            reader.asked_first(&new);
        }
        new
    }

    /// Whether somebody still wants the values of a handle. If not, its requests are forgotten, and the next one has them
    /// read anew.
    pub fn is_wanted(&self, handle: &Arc<Chunk>) -> bool {
        // Under one lock, or a request that comes in between would be forgotten, too.
        let mut requests = self.requests.lock();
        let of_handle = requests.get(&address(handle));
        let is_wanted = of_handle.is_some_and(|requests| requests.iter().any(|request| request.is_wanted()));
        let forgotten = if is_wanted { None } else { requests.remove(&address(handle)) };
        drop(requests);
        drop(forgotten);
        is_wanted
    }

    /// Whether somebody waits for the values of a handle.
    pub fn has(&self, handle: &Chunk) -> bool {
        self.requests.lock().contains_key(&address(handle))
    }

    /// Tells all who want the values of a handle what came of reading them.
    pub fn tell(&self, handle: &Arc<Chunk>, outcome: &Result<Arc<Chunk>>) {
        let requests = self.requests.lock().remove(&address(handle)).unwrap_or_default();
        requests.into_iter().for_each(|request| request.told(outcome));
    }

    /// Parts of the memory for values that are kept, one for each handle, if so much is left. Those who want the same values
    /// have one in common.
    fn parts(&self, handles: &[Arc<Chunk>], most: usize) -> Option<Vec<Arc<KeptPart>>> {
        let part = |handle: &Arc<Chunk>| {
            let mut kept = self.kept.lock();
            if let Some(part) = kept.parts.get(&address(handle)).and_then(Weak::upgrade) {
                return Some(part);
            }
            let bytes = handle.bytes_encoded();
            kept.bytes = kept.bytes.checked_add(bytes).filter(|kept| *kept <= most)?;
            let part = Arc::new(KeptPart { handle: handle.clone(), bytes, of: self.kept.clone() });
            kept.parts.insert(address(handle), Arc::downgrade(&part));
            Some(part)
        };
        handles.iter().map(part).collect()
    }

    /// The turn to keep values beyond that part, unless another request has it.
    fn turn(&self) -> Option<Turn> {
        let is_taken = self.has_turn.swap(true, Ordering::Acquire);
        (!is_taken).then(|| Turn(self.has_turn.clone()))
    }
}

fn address(handle: &Chunk) -> usize {
    std::ptr::from_ref(handle) as usize
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
    parts: Vec<Arc<KeptPart>>,
    turn: Option<Turn>,
    /// Whether values are kept until all are there and used.
    keeps: bool,
}

/// What is kept of all handles.
#[derive(Debug, Default)]
struct AllKept {
    bytes: usize,
    /// By the handle's address.
    parts: HashMap<usize, Weak<KeptPart>>,
}

/// A part of the memory for values that are kept: those of one handle.
#[derive(Debug)]
struct KeptPart {
    /// Keeps its address from being that of another.
    handle: Arc<Chunk>,
    bytes: usize,
    of: Arc<Mutex<AllKept>>,
}

impl Drop for KeptPart {
    fn drop(&mut self) {
        let mut kept = self.of.lock();
        kept.bytes -= self.bytes;
        // Another may have been made since nobody had this one any more.
        if let Entry::Occupied(entry) = kept.parts.entry(address(&self.handle))
            && entry.get().strong_count() == 0
        {
            entry.remove();
        }
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
        let (values, parts, turn) =
            (std::mem::take(&mut state.values), std::mem::take(&mut state.parts), state.turn.take());
        let kept: Kept = Arc::new((values, parts, turn));
        let outcome = state.error.take().map_or(Ok(kept), Err);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.arrived(outcome);
        }
    }
}
