//! The scheduler of a serving thread's connections. Tenants share the thread fairly by working time (fair queueing);
//! the connections of a tenant are served in the order in which they ask. So a tenant gets no more time by opening more
//! connections.
//!
//! Invariant: while a connection waits, a turn is granted to some connection. So ending a turn grants the next, and so
//! does dropping a ticket that was granted a turn; otherwise all connections would wait forever after the task of such
//! a connection was cancelled.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Number that identifies a tenant among those whose connections a serving thread serves; 0 stands for all clients that
/// are not authenticated.
pub(super) type TenantKey = usize;

/// The turns of the connections of one serving thread.
#[derive(Debug, Default)]
pub(super) struct LaneTurns(Mutex<TurnQueue>);

#[derive(Debug, Default)]
struct TurnQueue {
    tenants: HashMap<TenantKey, Tenant>,
    /// The ticket that was granted a turn and has not begun it yet, if there is one.
    granted: Option<u64>,
    last_ticket: u64,
    /// Virtual time in nanoseconds: the time spent by the tenant of the latest turn. A tenant that was idle starts with
    /// this time, so that it cannot claim the time in which it was idle.
    floor_ns: u64,
}

#[derive(Debug, Default)]
struct Tenant {
    spent_ns: u64,
    waiting: VecDeque<(u64, Waker)>,
}

impl TurnQueue {
    /// Returns the waiting tenant that has spent the least time and its first ticket; `None` if no tenant waits.
    fn next(&self) -> Option<(TenantKey, u64)> {
        let waiting = self.tenants.iter().filter(|(_, tenant)| !tenant.waiting.is_empty());
        waiting.map(|(key, tenant)| (*key, tenant.spent_ns)).min_by_key(|(_, spent_ns)| *spent_ns)
    }

    fn tenant(&mut self, key: TenantKey) -> &mut Tenant {
        let floor_ns = self.floor_ns;
        let tenant = self.tenants.entry(key).or_default();
        if tenant.waiting.is_empty() {
            tenant.spent_ns = tenant.spent_ns.max(floor_ns);
        }
        tenant
    }

    /// Returns whether a connection of this tenant can begin a turn without waiting.
    fn is_first(&mut self, key: TenantKey) -> bool {
        let Some((_, least_ns)) = self.next() else { return self.granted.is_none() };
        let tenant = self.tenant(key);
        tenant.waiting.is_empty() && tenant.spent_ns <= least_ns
    }

    fn add(&mut self, key: TenantKey, waker: Waker) -> u64 {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.tenant(key).waiting.push_back((ticket, waker));
        ticket
    }

    /// Grants the next turn unless one is granted already; returns the waker of the connection, which the caller must
    /// wake after releasing the lock.
    fn grant(&mut self) -> Option<Waker> {
        if self.granted.is_some() {
            return None;
        }
        let (key, spent_ns) = self.next()?;
        self.floor_ns = self.floor_ns.max(spent_ns);
        let (ticket, waker) = self.tenants.get_mut(&key)?.waiting.pop_front()?;
        self.granted = Some(ticket);
        Some(waker)
    }

    /// Removes tenants that do not wait and have not spent more than the virtual time.
    fn forget_idle(&mut self) {
        let floor_ns = self.floor_ns;
        self.tenants.retain(|_, tenant| !tenant.waiting.is_empty() || tenant.spent_ns > floor_ns);
    }
}

/// A place in the queue, given up when this is dropped.
struct QueueTicket<'a> {
    turns: &'a LaneTurns,
    key: TenantKey,
    ticket: Option<u64>,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut line = self.turns.0.lock();
        if line.granted == Some(ticket) {
            line.granted = None;
        }
        if let Some(tenant) = line.tenants.get_mut(&self.key) {
            tenant.waiting.retain(|(other, _)| *other != ticket);
        }
        let woken = line.grant();
        drop(line);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl LaneTurns {
    /// Waits until a connection of the tenant `key` gets a turn on the thread. If `rests` is true, other connections
    /// that wait get a turn first, whatever time their tenants have spent.
    pub async fn turn(&self, key: TenantKey, rests: bool) {
        if !rests && self.0.lock().is_first(key) {
            return;
        }
        let mut place = QueueTicket { turns: self, key, ticket: None };
        poll_fn(|context| {
            let mut line = self.0.lock();
            let Some(ticket) = place.ticket else {
                place.ticket = Some(line.add(key, context.waker().clone()));
                let woken = line.grant();
                drop(line);
                woken.into_iter().for_each(Waker::wake);
                return Poll::Pending;
            };
            if line.granted != Some(ticket) {
                let waiting = line.tenants.get_mut(&key).into_iter().flat_map(|tenant| &mut tenant.waiting);
                waiting.filter(|(other, _)| *other == ticket).for_each(|(_, waker)| {
                    waker.clone_from(context.waker());
                });
                return Poll::Pending;
            }
            line.granted = None;
            place.ticket = None;
            Poll::Ready(())
        })
        .await;
    }

    /// Ends a turn that took `ns` nanoseconds, which are charged to the tenant.
    pub fn spent(&self, key: TenantKey, ns: u64) {
        let mut line = self.0.lock();
        line.tenant(key).spent_ns += ns;
        let woken = line.grant();
        if woken.is_none() && line.granted.is_none() {
            // When nobody waits, the times spent so far are forgotten, so that they give no tenant an advantage.
            line.floor_ns = line.tenants.values().map(|tenant| tenant.spent_ns).max().unwrap_or(0);
            line.forget_idle();
        }
        drop(line);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::pin::pin;

    const A: TenantKey = 1;
    const B: TenantKey = 2;
    const TURN_NS: u64 = 100;

    #[test]
    fn one_connection_of_a_tenant_goes_before_a_thousand_of_another() {
        let turns = LaneTurns::default();
        assert!(turns.turn(A, false).now_or_never().is_some());
        turns.spent(A, TURN_NS);
        let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(turns.turn(A, true))).collect();
        let mut steps_of_a = 0;
        for round in 0..20 {
            // All connections of A ask again and again, as if their sockets always had more.
            for place in &mut waiting {
                if place.as_mut().now_or_never().is_some() {
                    steps_of_a += 1;
                    *place = Box::pin(turns.turn(A, true));
                    turns.spent(A, TURN_NS);
                }
            }
            // B waits at most for the turn that is granted already.
            let mut other = pin!(turns.turn(B, false));
            assert!(other.as_mut().now_or_never().is_some(), "{round}");
            turns.spent(B, 1);
        }
        assert!(steps_of_a >= 20, "{steps_of_a}");
    }

    #[test]
    fn two_tenants_with_endless_work_get_the_same_time_whatever_their_connections() {
        let turns = LaneTurns::default();
        let key_of = |at: usize| if at < 3 { B } else { A };
        let mut waiting: Vec<_> = (0..100).map(|at| Box::pin(turns.turn(key_of(at), true))).collect();
        let mut spent = [0_u64; 3];
        for _ in 0..300 {
            for (at, place) in waiting.iter_mut().enumerate() {
                if place.as_mut().now_or_never().is_some() {
                    let key = key_of(at);
                    // The turns of tenant A take three times as long as those of B.
                    let ns = if key == A { 3 * TURN_NS } else { TURN_NS };
                    spent[key] += ns;
                    *place = Box::pin(turns.turn(key, true));
                    place.as_mut().now_or_never();
                    turns.spent(key, ns);
                }
            }
        }
        assert!(spent[A].abs_diff(spent[B]) <= 6 * TURN_NS && spent[A] > 20 * TURN_NS, "{spent:?}");
    }

    #[test]
    fn a_turn_that_is_given_up_goes_to_the_next() {
        let turns = LaneTurns::default();
        let (mut first, mut second) = (Box::pin(turns.turn(A, true)), Box::pin(turns.turn(A, true)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.as_mut().now_or_never().is_some());
    }
}
