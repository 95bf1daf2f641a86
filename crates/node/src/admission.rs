//! Admission of programs: their memory is reserved before they start, from the account of their tenant. A
//! program whose groups may leave in parts takes less if there is less; others wait for enough memory, up to
//! a time limit.

use farpool_memory::{Account, Reservation};
use farpool_model::{Error, Result, limits};
use farpool_pipeline::{MemoryNeed, Run};
use std::time::Duration;
use tokio::time::timeout;

/// Divisor of the memory for work: the fraction that the threads of one program may take.
const THREADS_PART: usize = 4;

/// Divisor of the memory for work: the fraction that the plans of waiting programs may take together. If they took all
/// of it, none could begin.
pub(crate) const WAITING_PART: usize = 8;

/// Longest time that a program, or a client that sends, waits for memory.
pub(crate) const PATIENCE: Duration = Duration::from_millis(limits::WORK_WAIT_MS_MAX);

/// Reserves the memory that `run` needs beyond `held` if it is available now, and limits the run to it. If it has to
/// wait, returns false and leaves `held` unchanged.
///
/// # Errors
/// The reason why the run was stopped, if it was.
pub(crate) fn admit_now(run: &Run, held: &mut Reservation) -> Result<bool> {
    let sizes = std::iter::successors(Some(need(held.account(), run)?), |need| need.smaller());
    for need in sizes {
        if held.try_grow(need.bytes().saturating_sub(held.bytes())).is_ok() {
            run.keep_to(need, held.split(usize::MAX));
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reserves the memory that `run` needs beyond `held`, waiting for it up to [`limits::WORK_WAIT_MS_MAX`].
///
/// # Errors
/// `OverLimit`, with sizes, when memory is short even for the least that the run can do with.
pub(crate) async fn admit(run: &Run, mut held: Reservation) -> Result<()> {
    if admit_now(run, &mut held)? {
        return Ok(());
    }
    let account = held.account().clone();
    let need = need(&account, run)?;
    let least = std::iter::successors(Some(need), |need| need.smaller()).last().unwrap_or(need);
    let more = least.bytes().saturating_sub(held.bytes());
    match timeout(PATIENCE, account.reserve(more)).await {
        Ok(reservation) => held.join(reservation?),
        Err(_) => return Err(waited(&account, more)),
    }
    run.keep_to(least, held);
    Ok(())
}

/// Returns the error of a wait for memory that timed out.
pub(crate) fn waited(account: &Account, bytes: usize) -> Error {
    account.refused_after(PATIENCE, bytes)
}

/// Returns the error of a wait that would be needed on a connection without an async runtime.
pub(crate) fn cannot_wait() -> Error {
    Error::over_limit("there is too little memory for work now, and nobody to wait for more")
        .advise("try again later")
}

fn need(account: &Account, run: &Run) -> Result<MemoryNeed> {
    Ok(run.need()?.with_threads_within(account.memory().limit() / THREADS_PART))
}
