//! The memory of plans while they are decoded and compiled: checked against a bound computed from the plan's
//! bytes before it is read, and growing with the result.
//!
//! A small plan counts as part of a thread's working memory. A large one reserves in steps; if a step cannot
//! be reserved, what was decoded is dropped, and the request waits for more than the step needs, up to a
//! total time limit.

use crate::admission::{PATIENCE, waited};
use farpool_memory::Reservation;
use farpool_model::Result;
use std::cell::{Cell, RefCell};
use tokio::time::{Instant, timeout_at};

/// Bytes of a plan that need no reservation: usual plans have some kilobytes.
const IN_HAND_BYTES: usize = 256 << 10;

/// Bytes by which the reservation of a larger plan grows.
const STEP_BYTES: usize = 256 << 10;

/// Divisor of the memory for work: up to that part, a plan waits for twice as much as it lacked, since it
/// would otherwise have to wait again and again.
const AHEAD_PART: usize = 4;

/// The memory of one request: its message, and its plan while a worker handles it.
pub(super) struct PlanMemory {
    message_bytes: usize,
    held: RefCell<Reservation>,
    /// Bytes that could not be reserved.
    lacked: Cell<Option<usize>>,
    /// The end of the time for all waits, set by the first.
    deadline: Option<Instant>,
}

impl PlanMemory {
    /// Creates the memory of a request; `held` is that of its message.
    pub fn new(held: Reservation) -> Self {
        let message_bytes = held.bytes();
        PlanMemory { message_bytes, held: RefCell::new(held), lacked: Cell::new(None), deadline: None }
    }

    /// Makes sure that a plan may take `bytes`.
    ///
    /// # Errors
    /// `OverLimit`, with sizes, when so much is not available now.
    pub fn hold(&self, bytes: usize) -> Result<()> {
        let mut held = self.held.borrow_mut();
        let wanted = bytes.saturating_sub(IN_HAND_BYTES).next_multiple_of(STEP_BYTES);
        let more = (self.message_bytes + wanted).saturating_sub(held.bytes());
        if more == 0 {
            return Ok(());
        }
        held.try_grow(more).inspect_err(|_| self.lacked.set(Some(wanted)))
    }

    /// Returns a reservation of `bytes`, into which that of the plan is moved.
    ///
    /// # Errors
    /// `OverLimit`, with sizes, when so much is not available now.
    pub fn keep(&mut self, bytes: usize) -> Result<Reservation> {
        let held = self.held.get_mut();
        let of_plan = held.bytes() - self.message_bytes;
        let mut kept = held.split(of_plan.min(bytes));
        kept.try_grow(bytes - kept.bytes())?;
        Ok(kept)
    }

    /// Returns the reservation without that of the plan, once the plan was dropped or its result has a
    /// reservation of its own.
    pub fn without_plan(&mut self) -> &mut Reservation {
        let held = self.held.get_mut();
        held.set(self.message_bytes);
        held
    }

    /// If the plan lacked memory, gives back what it had and returns how many bytes to wait for before it is
    /// decoded again.
    pub fn wait_wanted(&mut self) -> Option<usize> {
        let lacked = self.lacked.take()?;
        let limit = self.held.get_mut().account().memory().limit();
        self.without_plan();
        Some(lacked.max((2 * lacked).min(limit / AHEAD_PART)))
    }

    /// Waits for `bytes`, but no longer than requests wait for memory in total.
    ///
    /// # Errors
    /// `OverLimit`, with sizes, after that, or at once when so much can never be reserved.
    pub async fn wait(&mut self, bytes: usize) -> Result<()> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        let held = self.held.get_mut();
        let account = held.account().clone();
        match timeout_at(deadline, account.reserve(bytes)).await {
            Ok(memory) => held.join(memory?),
            Err(_) => return Err(waited(&account, bytes)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_memory::{Account, WorkMemory};
    use farpool_model::TenantName;

    const LIMIT: usize = 16 << 20;
    const MESSAGE: usize = 3000;

    fn memory() -> (Account, PlanMemory) {
        let account = WorkMemory::new(LIMIT).account(&TenantName::default());
        let memory = PlanMemory::new(account.take(MESSAGE));
        (account, memory)
    }

    #[test]
    fn small_plans_reserve_nothing_and_large_ones_step_by_step() {
        let (account, mut memory) = memory();
        memory.hold(IN_HAND_BYTES).unwrap();
        assert_eq!(account.free(), LIMIT - MESSAGE);
        memory.hold(IN_HAND_BYTES + 1).unwrap();
        assert_eq!(account.free(), LIMIT - MESSAGE - STEP_BYTES);
        memory.hold(IN_HAND_BYTES + STEP_BYTES).unwrap();
        memory.hold(10).unwrap();
        assert_eq!(account.free(), LIMIT - MESSAGE - STEP_BYTES);
        // The kept reservation includes that of the plan.
        let kept = memory.keep(STEP_BYTES + 7).unwrap();
        assert_eq!((kept.bytes(), account.free()), (STEP_BYTES + 7, LIMIT - MESSAGE - STEP_BYTES - 7));
        assert_eq!((memory.without_plan().bytes(), memory.wait_wanted()), (MESSAGE, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_lacks_memory_waits_for_more_than_it_asked_for_and_not_without_end() {
        let (account, mut memory) = memory();
        let others = account.try_reserve(LIMIT - MESSAGE - (1 << 20)).unwrap();
        memory.hold(1 << 20).unwrap();
        assert!(memory.hold(3 << 19).is_err());
        let bytes = memory.wait_wanted().unwrap();
        assert_eq!((bytes, account.free()), (2 * ((3 << 19) - IN_HAND_BYTES), 1 << 20));
        let begun = Instant::now();
        let error = memory.wait(bytes).await.unwrap_err();
        assert!(error.message.contains("2.5 MiB"), "{error:?}");
        assert_eq!(begun.elapsed(), PATIENCE);
        // The time limit is for all waits together.
        assert!(memory.wait(bytes).await.is_err());
        assert_eq!(begun.elapsed(), PATIENCE);
        drop(others);
        memory.wait(bytes).await.unwrap();
        memory.hold(2 << 20).unwrap();
        assert_eq!(account.free(), LIMIT - MESSAGE - bytes);
    }

    #[test]
    fn nobody_waits_for_more_than_there_is() {
        let (account, mut memory) = memory();
        assert!(memory.hold(2 * LIMIT).is_err());
        assert!(memory.wait_wanted().unwrap() > LIMIT);
        let _others = account.try_reserve(LIMIT / 2).unwrap();
        assert!(memory.hold(LIMIT * 3 / 4).is_err());
        assert_eq!(memory.wait_wanted().unwrap(), LIMIT * 3 / 4 - IN_HAND_BYTES);
    }
}
