//! Reserves memory for plans (encoded programs) while they are decoded and compiled. A bound computed from the plan's
//! bytes is checked before it is decoded; the reservation then grows with the result.
//!
//! A small plan needs no reservation and counts as part of a thread's working memory. A large plan reserves in steps.
//! If a step cannot be reserved, the decoded part is dropped, the request waits for more memory than the step needs, up
//! to a total time limit, and then begins again.
//!
//! A program that waits for its turn keeps its plan in memory reserved from a separate account, its *place*. All places
//! together are a fraction of the memory for work, because waiting programs could otherwise take so much that none
//! could begin. If there is no place, the plan is dropped, and the request waits as above.

use crate::admission::{PATIENCE, waited};
use farpool_memory::{Account, Reservation, size_text};
use farpool_model::cast::u64_from;
use farpool_model::{Error, Result};
use std::cell::{Cell, RefCell};
use tokio::time::{Instant, timeout_at};

/// Maximum bytes of a plan without a reservation. Reason for 256 KiB: usual plans have some kilobytes.
const IN_HAND_BYTES: usize = 256 << 10;

/// Bytes by which the reservation of a larger plan grows in one step.
const STEP_BYTES: usize = 256 << 10;

/// Divisor: a plan that lacks memory waits for twice as much as it lacked, up to 1/4 of the memory for work (outside
/// the pool). Reason: the reservation of a plan grows while it is decoded, so the plan would otherwise wait again and
/// again.
const AHEAD_PART: usize = 4;

/// The reserved memory of one request: that of its message, and that of its plan while a worker handles it.
pub(super) struct PlanMemory {
    message_bytes: usize,
    held: RefCell<Reservation>,
    /// Reservation of the place where the program waits for its turn, if it has one.
    place: Option<Reservation>,
    /// The reservation that failed last; `None` if none has failed.
    lacked: Cell<Option<PlanShortage>>,
    /// Deadline of all waits of the request together, set when the first begins.
    deadline: Option<Instant>,
}

/// The use for which a request lacks memory, and the number of bytes that it waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PlanShortage {
    /// The request lacks this many bytes of memory for its plan (encoded program).
    Plan(usize),
    /// The request lacks a place (memory for its plan while the program waits for a turn) of this many bytes.
    Place(usize),
}

impl PlanMemory {
    /// Creates the memory of a request; `held` is the reservation for its message.
    pub fn new(held: Reservation) -> Self {
        let message_bytes = held.bytes();
        let held = RefCell::new(held);
        PlanMemory { message_bytes, held, place: None, lacked: Cell::new(None), deadline: None }
    }

    /// Makes sure that the reservation suffices for a plan of `bytes` bytes.
    ///
    /// # Errors
    /// `OverLimit`, with sizes in the message, when so much is not available now.
    pub fn hold(&self, bytes: usize) -> Result<()> {
        let mut held = self.held.borrow_mut();
        let wanted = bytes.saturating_sub(IN_HAND_BYTES).next_multiple_of(STEP_BYTES);
        let more = (self.message_bytes + wanted).saturating_sub(held.bytes());
        if more == 0 {
            return Ok(());
        }
        held.try_grow(more).inspect_err(|_| self.lacked.set(Some(PlanShortage::Plan(wanted))))
    }

    /// Returns a reservation of `bytes` bytes for the program compiled from the plan. The reservation of the plan
    /// becomes part of it.
    ///
    /// # Errors
    /// `OverLimit`, with sizes in the message, when so much is not available now.
    pub fn keep(&mut self, bytes: usize) -> Result<Reservation> {
        let held = self.held.get_mut();
        let more = (self.message_bytes + bytes).saturating_sub(held.bytes());
        held.try_grow(more).inspect_err(|_| self.lacked.set(Some(PlanShortage::Plan(bytes))))?;
        let mut kept = held.split(held.bytes() - self.message_bytes);
        kept.set(bytes);
        Ok(kept)
    }

    /// Reserves a place from `places`, the tenant's account for them, where the program can wait with a plan of `bytes`
    /// bytes.
    ///
    /// # Errors
    /// `OverLimit`, with sizes in the message, when there is no place now.
    pub fn find_place(&mut self, bytes: usize, places: &Account) -> Result<()> {
        if self.place.is_none() {
            // A program larger than all places together takes all of them, and so waits until no other program waits.
            let bytes = bytes.min(places.largest());
            let place = places.try_reserve(bytes);
            self.place = Some(place.inspect_err(|_| self.lacked.set(Some(PlanShortage::Place(bytes))))?);
        }
        Ok(())
    }

    /// Returns the reservation of the place, which the program keeps while it waits; `None` if it has none.
    pub fn take_place(&mut self) -> Option<Reservation> {
        self.place.take()
    }

    /// Returns what to wait for before decoding the plan again, after releasing the plan's memory; `None` if no
    /// reservation has failed.
    pub fn wait_wanted(&mut self) -> Option<PlanShortage> {
        let lacked = self.lacked.take()?;
        let limit = self.held.get_mut().account().memory().limit();
        self.held.get_mut().set(self.message_bytes);
        Some(match lacked {
            PlanShortage::Plan(bytes) => PlanShortage::Plan(bytes.max((2 * bytes).min(limit / AHEAD_PART))),
            PlanShortage::Place(bytes) => PlanShortage::Place(bytes),
        })
    }

    /// Waits until what `lacked` says is available, within the total time limit for waits. `places` is the tenant's
    /// account for places.
    ///
    /// # Errors
    /// `OverLimit`, with sizes in the message, when the time limit has passed, or at once if so much can never be
    /// reserved.
    pub async fn wait(&mut self, lacked: PlanShortage, places: &Account) -> Result<()> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        let (account, bytes) = match lacked {
            PlanShortage::Plan(bytes) => (self.held.get_mut().account().clone(), bytes),
            PlanShortage::Place(bytes) => (places.clone(), bytes),
        };
        let reserved = timeout_at(deadline, account.reserve(bytes)).await;
        let reserved = reserved.map_err(|_| match lacked {
            PlanShortage::Plan(_) => waited(&account, bytes),
            PlanShortage::Place(_) => no_place(&account),
        })??;
        match lacked {
            PlanShortage::Plan(_) => self.held.get_mut().join(reserved),
            PlanShortage::Place(_) => self.place = Some(reserved),
        }
        Ok(())
    }
}

/// Returns the error of a program whose wait for a place timed out.
fn no_place(places: &Account) -> Error {
    let all = size_text(u64_from(places.memory().limit()));
    let waited = PATIENCE.as_secs();
    Error::over_limit(format!(
        "waited {waited} s: the plans of programs that wait take all of the {all} that they may"
    ))
    .advise("try again later, ask for less at once, or give the pool more memory for work (--work-memory)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_memory::WorkMemory;
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
        assert_eq!((memory.held.get_mut().bytes(), memory.wait_wanted()), (MESSAGE, None));
        // If the compiled program takes less memory than its plan, the rest of the reservation is released.
        drop(kept);
        memory.hold(IN_HAND_BYTES + STEP_BYTES).unwrap();
        let kept = memory.keep(7).unwrap();
        assert_eq!((kept.bytes(), account.free()), (7, LIMIT - MESSAGE - 7));
    }

    #[tokio::test]
    async fn a_program_that_cannot_be_kept_waits_for_all_that_it_takes() {
        let (account, mut memory) = memory();
        let others = account.try_reserve(LIMIT - MESSAGE - (1 << 20)).unwrap();
        memory.hold(IN_HAND_BYTES + STEP_BYTES).unwrap();
        assert!(memory.keep(3 << 20).is_err());
        let Some(PlanShortage::Plan(bytes)) = memory.wait_wanted() else { panic!() };
        assert_eq!((bytes, account.free()), (LIMIT / AHEAD_PART, 1 << 20));
        drop(others);
        memory.wait(PlanShortage::Plan(bytes), &account).await.unwrap();
        memory.hold(IN_HAND_BYTES).unwrap();
        let kept = memory.keep(3 << 20).unwrap();
        assert_eq!((kept.bytes(), account.free()), (3 << 20, LIMIT - MESSAGE - (3 << 20)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_lacks_memory_waits_for_more_than_it_asked_for_and_not_without_end() {
        let (account, mut memory) = memory();
        let others = account.try_reserve(LIMIT - MESSAGE - (1 << 20)).unwrap();
        memory.hold(1 << 20).unwrap();
        assert!(memory.hold(3 << 19).is_err());
        let Some(PlanShortage::Plan(bytes)) = memory.wait_wanted() else { panic!() };
        assert_eq!((bytes, account.free()), (2 * ((3 << 19) - IN_HAND_BYTES), 1 << 20));
        let begun = Instant::now();
        let error = memory.wait(PlanShortage::Plan(bytes), &account).await.unwrap_err();
        assert!(error.message.contains("2.5 MiB"), "{error:?}");
        assert_eq!(begun.elapsed(), PATIENCE);
        // The second wait fails at once, because the time limit applies to all waits of a request together.
        assert!(memory.wait(PlanShortage::Plan(bytes), &account).await.is_err());
        assert_eq!(begun.elapsed(), PATIENCE);
        drop(others);
        memory.wait(PlanShortage::Plan(bytes), &account).await.unwrap();
        memory.hold(2 << 20).unwrap();
        assert_eq!(account.free(), LIMIT - MESSAGE - bytes);
    }

    #[test]
    fn nobody_waits_for_more_than_there_is() {
        let (account, mut memory) = memory();
        assert!(memory.hold(2 * LIMIT).is_err());
        assert!(matches!(memory.wait_wanted(), Some(PlanShortage::Plan(bytes)) if bytes > LIMIT));
        let _others = account.try_reserve(LIMIT / 2).unwrap();
        assert!(memory.hold(LIMIT * 3 / 4).is_err());
        assert_eq!(memory.wait_wanted(), Some(PlanShortage::Plan(LIMIT * 3 / 4 - IN_HAND_BYTES)));
    }

    #[tokio::test(start_paused = true)]
    async fn programs_wait_at_places_of_their_own() {
        let (_account, mut memory) = memory();
        let places = WorkMemory::new(1 << 20).account(&TenantName::default());
        memory.find_place(700 << 10, &places).unwrap();
        memory.find_place(700 << 10, &places).unwrap();
        assert_eq!(places.free(), 324 << 10, "one place for each");
        let first = memory.take_place();
        // A program larger than all places takes all of them.
        assert!(memory.find_place(5 << 20, &places).is_err());
        assert_eq!(memory.wait_wanted(), Some(PlanShortage::Place(1 << 20)));
        let error = memory.wait(PlanShortage::Place(1 << 20), &places).await.unwrap_err();
        assert!(error.message.contains("all of the 1.0 MiB"), "{error:?}");
        drop(first);
        memory.wait(PlanShortage::Place(1 << 20), &places).await.unwrap();
        memory.find_place(5 << 20, &places).unwrap();
        assert_eq!((places.free(), memory.take_place().unwrap().bytes()), (0, 1 << 20));
    }
}
