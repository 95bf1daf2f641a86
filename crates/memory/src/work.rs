//! Accounting of work memory: the memory that a process uses outside its pool, for messages, rows being processed,
//! plans, groups, and results that wait to be sent. Nothing is allocated here. Code reserves memory before it
//! allocates, and waits, takes less or is refused if there is not enough.
//!
//! Tenants share the work memory. A single tenant may use all of it. With several, each may use an equal fraction of
//! the limit, and more than that as long as an eighth of the limit stays free for the others.
//!
//! Invariants: conditional reservations (all except those by [`Account::take`] and [`Reservation::set`]) never exceed
//! the limit together; waiters are served in order, except that waiters for their own tenant's fraction do not hold up
//! others, and small reservations go first; dropping a reservation gives its bytes back.
//!
//! Example of the first invariant: the limit is 100, and 70 are reserved. 50 more are then taken regardless of the
//! limit. 120 are in use, of which 70 are conditional. Nothing more is granted until less than 100 are in use.

use crate::size_text;
use farpool_model::cast::u64_from;
use farpool_model::{Error, Result, TenantName};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

mod blocking;
mod waiting;

pub use waiting::PendingReservation;

/// Divisor: one part in this many of the limit stays free for other tenants when a tenant uses more than its equal
/// fraction.
const FREE_FOR_OTHERS: usize = 8;

/// Divisor: reservations of at most one part in this many of the limit do not wait behind larger ones.
const SMALL_PART: usize = 64;

/// Budget of work memory that all tenants share; see the comment of this file.
pub struct WorkMemory {
    limit: usize,
    state: Mutex<WorkMemoryState>,
}

#[derive(Default)]
struct WorkMemoryState {
    used: usize,
    /// Part of `used` that was taken regardless of the limit.
    taken: usize,
    most_used: usize,
    /// Usage and limit of each tenant with an account. Changed only with the lock held.
    tenants: BTreeMap<TenantName, Arc<Tenant>>,
    /// Limits of tenants, whether they have an account yet or not.
    limits: BTreeMap<TenantName, usize>,
    waiting: VecDeque<Waiter>,
    tickets: u64,
}

/// Bytes that a tenant uses, and its limit. Changed only with the lock of the state held.
struct Tenant {
    used: AtomicUsize,
    limit: AtomicUsize,
}

impl Tenant {
    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }
}

struct Waiter {
    ticket: u64,
    tenant: Arc<Tenant>,
    bytes: usize,
    granted: bool,
    waker: Option<Waker>,
}

/// Usage of work memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkUsage {
    /// Maximum number of bytes in use at once.
    pub bytes_limit: u64,
    /// Bytes in use.
    pub bytes_used: u64,
    /// Maximum of `bytes_used` since the budget was created.
    pub bytes_used_most: u64,
    /// Part of `bytes_used` that was taken regardless of the limit. The rest never exceeds the limit.
    pub bytes_taken: u64,
    /// Bytes in use by each tenant, ordered by tenant name.
    pub tenants: Vec<(TenantName, u64)>,
}

/// Queue of waiting reservations, for tests that none waits forever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkLine {
    /// Tickets of the waiting reservations; a ticket number is never reused.
    pub waiting: Vec<u64>,
    /// Whether a reservation waits for memory that could be granted now, which is a bug.
    pub is_stuck: bool,
}

/// Progress of a scan over the queue for waiters that can be served.
#[derive(Default)]
struct QueueScan {
    place: usize,
    /// Whether a waiter before this position needs more than is free. Free memory is then kept for it, except for small
    /// reservations.
    keeps: bool,
}

impl WorkMemory {
    /// Creates a budget of `limit` bytes, none of them in use.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(WorkMemory { limit, state: Mutex::default() })
    }

    /// Returns the account of a tenant; creates it if necessary.
    pub fn account(self: &Arc<Self>, tenant: &TenantName) -> Account {
        let mut state = self.state.lock();
        let limit = state.limits.get(tenant).copied().unwrap_or(usize::MAX);
        let new = || Arc::new(Tenant { used: AtomicUsize::new(0), limit: AtomicUsize::new(limit) });
        let tenant = state.tenants.entry(tenant.clone()).or_insert_with(new).clone();
        Account { memory: self.clone(), tenant }
    }

    /// Sets the maximum number of bytes that a tenant may reserve together; `None` lifts the limit. Existing
    /// reservations stay.
    pub fn set_tenant_limit(&self, tenant: &TenantName, bytes: Option<usize>) {
        let mut state = self.state.lock();
        match bytes {
            Some(bytes) => state.limits.insert(tenant.clone(), bytes),
            None => state.limits.remove(tenant),
        };
        if let Some(tenant) = state.tenants.get(tenant) {
            tenant.limit.store(bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
        }
        drop(state);
        self.serve();
    }

    /// Returns the maximum number of bytes in use at once.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns whether any reservation waits for memory.
    pub fn is_short(&self) -> bool {
        self.state.lock().waiting.iter().any(|waiter| !waiter.granted)
    }

    /// Returns the queue of waiting reservations.
    pub fn line(&self) -> WorkLine {
        let state = self.state.lock();
        let waiting = state.waiting.iter().filter(|waiter| !waiter.granted).map(|waiter| waiter.ticket);
        let is_stuck = self.next_to_serve(&state, &mut QueueScan::default()).is_some();
        WorkLine { waiting: waiting.collect(), is_stuck }
    }

    /// Returns the current usage.
    pub fn usage(&self) -> WorkUsage {
        let state = self.state.lock();
        let used = |tenant: &Arc<Tenant>| u64_from(tenant.used());
        WorkUsage {
            bytes_limit: u64_from(self.limit),
            bytes_used: u64_from(state.used),
            bytes_used_most: u64_from(state.most_used),
            bytes_taken: u64_from(state.taken),
            tenants: state.tenants.iter().map(|(name, bytes)| (name.clone(), used(bytes))).collect(),
        }
    }

    /// Returns the bytes that a tenant may still reserve now.
    fn free(&self, state: &WorkMemoryState, tenant: &Tenant) -> usize {
        let of_all = self.limit.saturating_sub(state.used);
        let free = of_all.min(tenant.limit().saturating_sub(tenant.used()));
        let tenants = state.tenants.len().max(1);
        if tenants == 1 {
            return free;
        }
        let of_part = (self.limit / tenants).saturating_sub(tenant.used());
        free.min(of_part.max(of_all.saturating_sub(self.limit / FREE_FOR_OTHERS)))
    }

    /// Returns the maximum number of bytes of one reservation of the tenant, if nothing else is in use.
    fn largest(&self, state: &WorkMemoryState, tenant: &Tenant) -> usize {
        let of_all = match state.tenants.len() {
            0 | 1 => self.limit,
            tenants => (self.limit / tenants).max(self.limit - self.limit / FREE_FOR_OTHERS),
        };
        of_all.min(tenant.limit())
    }

    /// Returns whether `bytes` can be granted now. Small reservations overtake waiters. Others may overtake only
    /// waiters of other tenants that wait for their own tenant's fraction to become free.
    fn fits(&self, state: &WorkMemoryState, tenant: &Arc<Tenant>, bytes: usize) -> bool {
        let of_all = self.limit.saturating_sub(state.used);
        let lets_pass = |waiter: &Waiter| {
            waiter.granted || waiter.bytes <= of_all && !Arc::ptr_eq(&waiter.tenant, tenant)
        };
        let overtakes = bytes <= self.limit / SMALL_PART || state.waiting.iter().all(lets_pass);
        overtakes && bytes <= self.free(state, tenant)
    }

    /// Grants free memory to waiters and wakes them.
    fn serve(&self) {
        let woken = self.grant(&mut self.state.lock());
        woken.into_iter().for_each(Waker::wake);
    }

    /// Grants free memory to waiters and returns their wakers, which must be called after the lock is released.
    fn grant(&self, state: &mut WorkMemoryState) -> Vec<Waker> {
        let (mut woken, mut look) = (Vec::new(), QueueScan::default());
        while let Some(place) = self.next_to_serve(state, &mut look) {
            let waiter = &mut state.waiting[place];
            waiter.granted = true;
            woken.extend(waiter.waker.take());
            let (bytes, tenant) = (waiter.bytes, waiter.tenant.clone());
            state.add(&tenant, bytes);
            state.check(self.limit);
        }
        woken
    }

    /// Returns the index of the next waiter, from the position of `look` on, that can be granted its bytes.
    fn next_to_serve(&self, state: &WorkMemoryState, look: &mut QueueScan) -> Option<usize> {
        while let Some(Waiter { bytes, tenant, granted, .. }) = state.waiting.get(look.place) {
            look.place += 1;
            if *granted {
                continue;
            }
            if *bytes > self.limit.saturating_sub(state.used) {
                look.keeps = true;
            } else if !(look.keeps && *bytes > self.limit / SMALL_PART) && *bytes <= self.free(state, tenant)
            {
                return Some(look.place - 1);
            }
        }
        None
    }

    fn refused(&self, state: &WorkMemoryState, tenant: &Tenant, bytes: usize) -> Error {
        let size = |bytes: usize| size_text(u64_from(bytes));
        let (limit, wanted) = (size(self.limit), size(bytes));
        let largest = self.largest(state, tenant);
        if bytes > tenant.limit().saturating_sub(tenant.used()) {
            let (own, used) = (size(tenant.limit()), size(tenant.used()));
            return Error::over_limit(format!(
                "this takes {wanted} of memory for work, and the tenant has {used} of the {own} that it may have"
            ))
            .advise("try again later, ask for less at once, or have the tenant's work_memory raised");
        }
        if bytes > largest {
            return Error::over_limit(format!(
                "this takes {wanted} of memory for work, and one request may have {} of its {limit}",
                size(largest)
            ))
            .advise("ask for less at once, or give the pool more memory for work (--work-memory)");
        }
        Error::over_limit(format!(
            "this takes {wanted} of memory for work, of whose {limit} {} are free",
            size(self.free(state, tenant))
        ))
        .advise("try again later, or give the pool more memory for work (--work-memory)")
    }
}

impl WorkMemoryState {
    fn add(&mut self, tenant: &Tenant, bytes: usize) {
        self.used += bytes;
        self.most_used = self.most_used.max(self.used);
        tenant.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Asserts that the bytes in use, without those taken regardless of the limit, are within the limit.
    fn check(&self, limit: usize) {
        let (used, taken) = (self.used, self.taken);
        assert!(
            taken <= used && used - taken <= limit,
            "{used} bytes in use, {taken} of them taken, exceed {limit}"
        );
    }
}

/// Account of a tenant, from which it reserves work memory. Clones refer to the same account.
#[derive(Clone)]
pub struct Account {
    memory: Arc<WorkMemory>,
    tenant: Arc<Tenant>,
}

impl Account {
    /// Reserves `bytes` if they are available now; does not wait.
    ///
    /// # Errors
    /// `OverLimit`, with sizes, if they are not.
    pub fn try_reserve(&self, bytes: usize) -> Result<Reservation> {
        let mut reservation = self.empty();
        reservation.try_grow(bytes)?;
        Ok(reservation)
    }

    /// Returns a future that waits, in the order of a queue, until `bytes` are available, and reserves them.
    pub fn reserve(&self, bytes: usize) -> PendingReservation {
        PendingReservation { account: self.clone(), bytes, ticket: None }
    }

    /// Returns the error for a caller that gave up after waiting for `bytes`; its message has sizes.
    pub fn refused_after(&self, waited: Duration, bytes: usize) -> Error {
        let seconds = waited.as_secs();
        match self.try_reserve(bytes) {
            Err(error) => {
                Error { message: format!("waited {seconds} s for memory: {}", error.message), ..error }
            }
            Ok(_) => Error::over_limit(format!("waited {seconds} s for memory")).advise("try again"),
        }
    }

    /// Reserves `bytes` regardless of the limit, because they are in use already.
    pub fn take(&self, bytes: usize) -> Reservation {
        let mut reservation = self.empty();
        reservation.set(bytes);
        reservation
    }

    /// Creates a reservation of zero bytes.
    pub fn empty(&self) -> Reservation {
        Reservation { account: self.clone(), bytes: 0, taken: 0 }
    }

    /// Returns the bytes that could be reserved now.
    pub fn free(&self) -> usize {
        self.memory.free(&self.memory.state.lock(), &self.tenant)
    }

    /// Returns the maximum number of bytes of one reservation, if nothing else is in use.
    pub fn largest(&self) -> usize {
        self.memory.largest(&self.memory.state.lock(), &self.tenant)
    }

    /// Returns whether a reservation waits for memory that this tenant could release. Waiters of other tenants that
    /// exceed their own tenant's limit do not count.
    pub fn is_short(&self) -> bool {
        let state = self.memory.state.lock();
        let waits = |waiter: &Waiter| {
            let is_own = Arc::ptr_eq(&waiter.tenant, &self.tenant);
            let has_limit_left = waiter.bytes <= waiter.tenant.limit().saturating_sub(waiter.tenant.used());
            !waiter.granted && (is_own || has_limit_left)
        };
        state.waiting.iter().any(waits)
    }

    /// Returns the budget that this account belongs to.
    pub fn memory(&self) -> &Arc<WorkMemory> {
        &self.memory
    }
}

/// Reserved bytes of work memory. Dropping the reservation gives them back.
pub struct Reservation {
    account: Account,
    bytes: usize,
    /// Part of `bytes` that was taken regardless of the limit.
    taken: usize,
}

impl Reservation {
    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the account that the bytes are reserved from.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Reserves `more` bytes if they are available now; does not wait.
    ///
    /// # Errors
    /// `OverLimit`, with sizes; the reservation is then unchanged.
    pub fn try_grow(&mut self, more: usize) -> Result<()> {
        let Account { memory, tenant } = &self.account;
        let mut state = memory.state.lock();
        if !memory.fits(&state, tenant, more) {
            return Err(memory.refused(&state, tenant, more));
        }
        state.add(tenant, more);
        state.check(memory.limit);
        self.bytes += more;
        Ok(())
    }

    /// Changes the size to `bytes`. Excess bytes are given back; missing bytes are taken regardless of the limit.
    pub fn set(&mut self, bytes: usize) {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            return drop(self.split(less));
        }
        let (Account { memory, tenant }, more) = (&self.account, bytes - self.bytes);
        let mut state = memory.state.lock();
        state.add(tenant, more);
        state.taken += more;
        (self.bytes, self.taken) = (bytes, self.taken + more);
    }

    /// Moves `bytes`, or all if there are fewer, to a new reservation. Bytes that were taken regardless of the limit go
    /// first.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Reservation {
        let bytes = bytes.min(self.bytes);
        let taken = bytes.min(self.taken);
        (self.bytes, self.taken) = (self.bytes - bytes, self.taken - taken);
        assert!(self.taken <= self.bytes, "bytes that were taken are a part of all");
        Reservation { account: self.account.clone(), bytes, taken }
    }

    /// Adds the bytes of `other`, which must be of the same account.
    pub fn join(&mut self, mut other: Reservation) {
        assert!(Arc::ptr_eq(&self.account.tenant, &other.account.tenant), "reservations of two tenants");
        self.bytes += std::mem::take(&mut other.bytes);
        self.taken += std::mem::take(&mut other.taken);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let Account { memory, tenant } = &self.account;
        let waits = {
            let mut state = memory.state.lock();
            let is_counted = self.bytes <= state.used.min(tenant.used()) && self.taken <= state.taken;
            assert!(is_counted, "a reservation is given back once, to the account that it is from");
            state.used -= self.bytes;
            state.taken -= self.taken;
            tenant.used.fetch_sub(self.bytes, Ordering::Relaxed);
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
        write!(f, "Account({})", size_text(u64_from(self.tenant.used())))
    }
}

impl fmt::Debug for WorkMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkMemory").field("usage", &self.usage()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
