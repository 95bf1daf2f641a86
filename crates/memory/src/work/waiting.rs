//! Those who wait for memory, and stand in line for it.

use super::{Account, Reservation, Waiter};
use farpool_model::{Result, limits};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A reservation to come. Dropped, it no longer stands in line.
#[derive(Debug)]
#[must_use = "nothing is reserved before it is awaited"]
pub struct Waiting {
    pub(super) account: Account,
    pub(super) bytes: usize,
    /// Its place in line, once it has one.
    pub(super) ticket: Option<u64>,
}

impl Waiting {
    /// What it waited for, once that is given to it.
    fn reserved(&self) -> Reservation {
        Reservation { account: self.account.clone(), bytes: self.bytes, taken: 0 }
    }
}

impl Future for Waiting {
    /// `OverLimit` where so much is never to be had, or too many wait.
    type Output = Result<Reservation>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Reservation>> {
        let this = &mut *self;
        let Account { memory, tenant } = &this.account;
        let mut state = memory.state.lock();
        let Some(ticket) = this.ticket else {
            if memory.fits(&state, tenant, this.bytes) {
                state.add(tenant, this.bytes);
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
            // Those before it may wait for their tenants' parts only. Then it has what it wants at once.
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
            drop(self.reserved());
        } else {
            memory.serve();
        }
    }
}
