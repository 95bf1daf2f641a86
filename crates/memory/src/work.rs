//! Memory for work: what a process takes from the system beside its pool for messages, rows on their way, plans,
//! groups, results that wait to leave. It is not allocated here, only accounted for: whoever is about to take some
//! reserves it first, and waits, takes less or is refused when there is not so much.
//!
//! Tenants share it. One alone may have all of it; where there are several, each may have its part, and beyond that
//! as long as an eighth of the whole stays free for the others.
//!
//! Invariants: conditional reservations never exceed the limit together; who waits is served in order, but for
//! those that wait for their tenant's part only, and for small reservations, which go first; a reservation is given
//! back when it is dropped.

use crate::size_text;
use farpool_model::cast::u64_from;
use farpool_model::{Error, Result, TenantName};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

mod blocking;

/// The part of the limit that stays free for other tenants.
const FREE_FOR_OTHERS: usize = 8;

/// The part of the limit up to which a reservation does not stand in line behind larger ones.
const SMALL_PART: usize = 64;

/// Reservations that may wait at once. Each is a request of a client, or its connection.
const WAITING_MAX: usize = 4096;

/// See the file's comment.
pub struct WorkMemory {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    most_used: usize,
    /// Bytes in use by each tenant; changed with the lock held only.
    tenants: BTreeMap<TenantName, Arc<AtomicUsize>>,
    waiting: VecDeque<Waiter>,
    tickets: u64,
}

struct Waiter {
    ticket: u64,
    used_by_tenant: Arc<AtomicUsize>,
    bytes: usize,
    granted: bool,
    waker: Option<Waker>,
}

/// What is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkUsage {
    /// Bytes that may be in use at once.
    pub bytes_limit: u64,
    /// Bytes in use.
    pub bytes_used: u64,
    /// The most bytes that ever were.
    pub bytes_used_most: u64,
    /// Bytes in use by each tenant, in the order of their names.
    pub tenants: Vec<(TenantName, u64)>,
}

impl WorkMemory {
    /// `limit` bytes, none of them in use.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(WorkMemory { limit, state: Mutex::default() })
    }

    /// The account of a tenant.
    pub fn account(self: &Arc<Self>, tenant: &TenantName) -> Account {
        let used = self.state.lock().tenants.entry(tenant.clone()).or_default().clone();
        Account { memory: self.clone(), used }
    }

    /// Bytes that may be in use at once.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether somebody waits for memory.
    pub fn is_short(&self) -> bool {
        self.state.lock().waiting.iter().any(|waiter| !waiter.granted)
    }

    /// What is in use now.
    pub fn usage(&self) -> WorkUsage {
        let state = self.state.lock();
        let used = |used: &Arc<AtomicUsize>| u64_from(used.load(Ordering::Relaxed));
        WorkUsage {
            bytes_limit: u64_from(self.limit),
            bytes_used: u64_from(state.used),
            bytes_used_most: u64_from(state.most_used),
            tenants: state.tenants.iter().map(|(name, bytes)| (name.clone(), used(bytes))).collect(),
        }
    }

    /// Bytes that a tenant which has `used` may have more.
    fn free(&self, state: &State, used: &AtomicUsize) -> usize {
        let free = self.limit.saturating_sub(state.used);
        let tenants = state.tenants.len().max(1);
        if tenants == 1 {
            return free;
        }
        let of_part = (self.limit / tenants).saturating_sub(used.load(Ordering::Relaxed));
        free.min(of_part.max(free.saturating_sub(self.limit / FREE_FOR_OTHERS)))
    }

    /// The most that one reservation may ever be.
    fn largest(&self, state: &State) -> usize {
        match state.tenants.len() {
            0 | 1 => self.limit,
            tenants => (self.limit / tenants).max(self.limit - self.limit / FREE_FOR_OTHERS),
        }
    }

    /// Whether `bytes` may be had at once.
    fn fits(&self, state: &State, used: &AtomicUsize, bytes: usize) -> bool {
        let overtakes = bytes <= self.limit / SMALL_PART || state.waiting.iter().all(|waiter| waiter.granted);
        overtakes && bytes <= self.free(state, used)
    }

    /// Gives what is free to those that wait, and wakes them.
    fn serve(&self) {
        let mut state = self.state.lock();
        let mut woken = Vec::new();
        // Somebody waits for more than is free: what comes behind is for that, but for what is small.
        let mut keeps = false;
        for place in 0..state.waiting.len() {
            let waiter = &state.waiting[place];
            if waiter.granted {
                continue;
            }
            let (bytes, used) = (waiter.bytes, waiter.used_by_tenant.clone());
            if bytes > self.limit.saturating_sub(state.used) {
                keeps = true;
            } else if !(keeps && bytes > self.limit / SMALL_PART) && bytes <= self.free(&state, &used) {
                state.add(&used, bytes);
                let waiter = &mut state.waiting[place];
                waiter.granted = true;
                woken.extend(waiter.waker.take());
            }
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    fn refused(&self, state: &State, used: &AtomicUsize, bytes: usize) -> Error {
        let size = |bytes: usize| size_text(u64_from(bytes));
        let (limit, wanted) = (size(self.limit), size(bytes));
        let largest = self.largest(state);
        if bytes > largest {
            return Error::over_limit(format!(
                "this takes {wanted} of memory for work, and one request may have {} of its {limit}",
                size(largest)
            ))
            .advise("ask for less at once, or give the pool more memory for work (--work-memory)");
        }
        Error::over_limit(format!(
            "this takes {wanted} of memory for work, of whose {limit} {} are free",
            size(self.free(state, used))
        ))
        .advise("try again later, or give the pool more memory for work (--work-memory)")
    }
}

impl State {
    fn add(&mut self, used: &AtomicUsize, bytes: usize) {
        self.used += bytes;
        self.most_used = self.most_used.max(self.used);
        used.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What a tenant reserves from. Clones are the same account.
#[derive(Clone)]
pub struct Account {
    memory: Arc<WorkMemory>,
    used: Arc<AtomicUsize>,
}

impl Account {
    /// Reserves `bytes` if they are to be had now.
    ///
    /// # Errors
    /// `OverLimit`, with sizes.
    pub fn try_reserve(&self, bytes: usize) -> Result<Reservation> {
        let mut reservation = self.empty();
        reservation.try_grow(bytes)?;
        Ok(reservation)
    }

    /// Reserves `bytes` as soon as they are to be had.
    pub fn reserve(&self, bytes: usize) -> Waiting {
        Waiting { account: self.clone(), bytes, ticket: None }
    }

    /// The error of whoever has waited for `bytes` in vain, with sizes.
    pub fn refused_after(&self, waited: Duration, bytes: usize) -> Error {
        let seconds = waited.as_secs();
        match self.try_reserve(bytes) {
            Err(error) => {
                Error { message: format!("waited {seconds} s for memory: {}", error.message), ..error }
            }
            Ok(_) => Error::over_limit(format!("waited {seconds} s for memory")).advise("try again"),
        }
    }

    /// Accounts for `bytes` that are in use already, whether there is room for them or not.
    pub fn take(&self, bytes: usize) -> Reservation {
        let mut reservation = self.empty();
        reservation.set(bytes);
        reservation
    }

    /// A reservation of nothing.
    pub fn empty(&self) -> Reservation {
        Reservation { account: self.clone(), bytes: 0 }
    }

    /// Bytes that could be reserved now.
    pub fn free(&self) -> usize {
        self.memory.free(&self.memory.state.lock(), &self.used)
    }

    /// The memory that it is an account of.
    pub fn memory(&self) -> &Arc<WorkMemory> {
        &self.memory
    }
}

/// Bytes that somebody has, until it is dropped.
pub struct Reservation {
    account: Account,
    bytes: usize,
}

impl Reservation {
    /// How many.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it is a part of.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Reserves `more` bytes if they are to be had now.
    ///
    /// # Errors
    /// `OverLimit`, with sizes; it is as large as before then.
    pub fn try_grow(&mut self, more: usize) -> Result<()> {
        let Account { memory, used } = &self.account;
        let mut state = memory.state.lock();
        if !memory.fits(&state, used, more) {
            return Err(memory.refused(&state, used, more));
        }
        state.add(used, more);
        self.bytes += more;
        Ok(())
    }

    /// Makes it `bytes`: gives back what it has beyond that, or takes what it lacks, whether there is room or not.
    pub fn set(&mut self, bytes: usize) {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            return drop(self.split(less));
        }
        let Account { memory, used } = &self.account;
        memory.state.lock().add(used, bytes - self.bytes);
        self.bytes = bytes;
    }

    /// A reservation of `bytes` of these, at most of all.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Reservation {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Reservation { account: self.account.clone(), bytes }
    }

    /// Adds the bytes of `other`, which is of the same account.
    pub fn join(&mut self, mut other: Reservation) {
        debug_assert!(Arc::ptr_eq(&self.account.used, &other.account.used), "reservations of two tenants");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let Account { memory, used } = &self.account;
        let waits = {
            let mut state = memory.state.lock();
            state.used -= self.bytes;
            used.fetch_sub(self.bytes, Ordering::Relaxed);
            !state.waiting.is_empty()
        };
        if waits {
            memory.serve();
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({})", size_text(u64_from(self.bytes)))
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({})", size_text(u64_from(self.used.load(Ordering::Relaxed))))
    }
}

impl fmt::Debug for WorkMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkMemory").field("usage", &self.usage()).finish_non_exhaustive()
    }
}

/// A reservation to come. Dropped, it no longer stands in line.
#[derive(Debug)]
#[must_use = "nothing is reserved before it is awaited"]
pub struct Waiting {
    account: Account,
    bytes: usize,
    /// Its place in line, once it has one.
    ticket: Option<u64>,
}

impl Future for Waiting {
    /// `OverLimit` where so much is never to be had, or too many wait.
    type Output = Result<Reservation>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Reservation>> {
        let this = &mut *self;
        let Account { memory, used } = &this.account;
        let mut state = memory.state.lock();
        let Some(ticket) = this.ticket else {
            if memory.fits(&state, used, this.bytes) {
                state.add(used, this.bytes);
                return Poll::Ready(Ok(Reservation { account: this.account.clone(), bytes: this.bytes }));
            }
            if this.bytes > memory.largest(&state) || state.waiting.len() >= WAITING_MAX {
                return Poll::Ready(Err(memory.refused(&state, used, this.bytes)));
            }
            state.tickets += 1;
            let waiter = Waiter {
                ticket: state.tickets,
                used_by_tenant: used.clone(),
                bytes: this.bytes,
                granted: false,
                waker: Some(context.waker().clone()),
            };
            this.ticket = Some(waiter.ticket);
            state.waiting.push_back(waiter);
            return Poll::Pending;
        };
        let Some(place) = state.waiting.iter().position(|waiter| waiter.ticket == ticket) else {
            return Poll::Pending;
        };
        if state.waiting[place].granted {
            state.waiting.remove(place);
            this.ticket = None;
            return Poll::Ready(Ok(Reservation { account: this.account.clone(), bytes: this.bytes }));
        }
        state.waiting[place].waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let memory = &self.account.memory;
        let left = {
            let mut state = memory.state.lock();
            let place = state.waiting.iter().position(|waiter| waiter.ticket == ticket);
            place.and_then(|place| state.waiting.remove(place))
        };
        // What had been given to it is dropped, and those behind it may be served now.
        if left.is_some_and(|waiter| waiter.granted) {
            drop(Reservation { account: self.account.clone(), bytes: self.bytes });
        } else {
            memory.serve();
        }
    }
}

#[cfg(test)]
mod tests;
