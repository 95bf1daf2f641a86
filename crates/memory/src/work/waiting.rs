//! Waiting for work memory (memory that a process uses outside its pool): a future that holds a place in the queue.

use super::{Account, Reservation, Waiter};
use farpool_model::{Result, limits};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A reservation that is waited for. Dropping it gives up its place in the queue.
#[derive(Debug)]
#[must_use = "nothing is reserved before it is awaited"]
pub struct PendingReservation {
    pub(super) account: Account,
    pub(super) bytes: usize,
    /// Ticket of its place in the queue; `None` before the first poll.
    pub(super) ticket: Option<u64>,
}

impl PendingReservation {
    /// Returns the granted reservation. Its bytes must have been counted as in use.
    fn reserved(&self) -> Reservation {
        Reservation { account: self.account.clone(), bytes: self.bytes, taken: 0 }
    }
}

impl Future for PendingReservation {
    /// The reservation; `OverLimit` if that many bytes can never be granted, or too many reservations wait.
    type Output = Result<Reservation>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Reservation>> {
        let this = &mut *self;
        let Account { memory, tenant } = &this.account;
        let mut state = memory.state.lock();
        let Some(ticket) = this.ticket else {
            if memory.fits(&state, tenant, this.bytes) {
                state.add(tenant, this.bytes);
                state.check(memory.limit);
                return Poll::Ready(Ok(this.reserved()));
            }
            if this.bytes > memory.largest(&state, tenant) || state.waiting.len() >= limits::WORK_WAITERS_MAX
            {
                return Poll::Ready(Err(memory.refused(&state, tenant, this.bytes)));
            }
            state.tickets += 1;
            let waiter = Waiter {
                ticket: state.tickets,
                tenant: tenant.clone(),
                bytes: this.bytes,
                granted: false,
                waker: Some(context.waker().clone()),
            };
            this.ticket = Some(waiter.ticket);
            state.waiting.push_back(waiter);
            // If all waiters before this one only wait for their own tenants' fractions to become free, this one is
            // granted its bytes now.
            let woken = memory.grant(&mut state);
            let granted = state.waiting.pop_back_if(|waiter| waiter.granted);
            drop(state);
            woken.into_iter().for_each(Waker::wake);
            if granted.is_none() {
                return Poll::Pending;
            }
            this.ticket = None;
            return Poll::Ready(Ok(this.reserved()));
        };
        let Some(place) = state.waiting.iter().position(|waiter| waiter.ticket == ticket) else {
            return Poll::Pending;
        };
        if state.waiting[place].granted {
            state.waiting.remove(place);
            this.ticket = None;
            return Poll::Ready(Ok(this.reserved()));
        }
        state.waiting[place].waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for PendingReservation {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let memory = &self.account.memory;
        let left = {
            let mut state = memory.state.lock();
            let place = state.waiting.iter().position(|waiter| waiter.ticket == ticket);
            place.and_then(|place| state.waiting.remove(place))
        };
        // If the bytes were granted already, they are given back. In both cases, later waiters may be served now.
        if left.is_some_and(|waiter| waiter.granted) {
            drop(self.reserved());
        } else {
            memory.serve();
        }
    }
}
