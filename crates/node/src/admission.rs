//! Admission control of programs: the memory of a program is reserved from its tenant's account before the program
//! starts. If memory is short, a program whose groups (of GROUP BY) are returned in parts, or end it with an error, when
//! they exceed their memory is limited to less; other programs wait for enough, up to a time limit.

use farpool_memory::{Account, Reservation};
use farpool_model::{Error, Result, limits};
use farpool_pipeline::{MemoryNeed, Run};
use std::time::Duration;
use tokio::time::timeout;

/// Divisor: the working memory of all threads of one program together is at most 1/4 of the memory for work (outside
/// the pool).
const THREADS_PART: usize = 4;

/// Divisor: the plans of all programs that wait for a turn take at most 1/8 of the memory for work (outside the pool).
/// Reason for a limit: if they took all of it, no program could begin.
pub(crate) const WAITING_PART: usize = 8;

/// Maximum time that a program, or a client that sends rows, waits for memory.
pub(crate) const PATIENCE: Duration = Duration::from_millis(limits::WORK_WAIT_MS_MAX);

/// Reserves the memory that `run` needs beyond the reservation `held`, moves both into the run and limits the run to
/// them. Does not wait: returns false, with `held` unchanged, if too little memory is available now.
///
/// # Errors
/// The reason why the run was stopped, if it has been stopped.
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

/// Does the same as [`admit_now`], but waits up to [`limits::WORK_WAIT_MS_MAX`] for the least memory that the run can
/// do with.
///
/// # Errors
/// `OverLimit`, with sizes in the message, when the wait timed out, or when so much memory can never be reserved.
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

/// Returns the error of a wait for `bytes` bytes of memory that timed out.
pub(crate) fn waited(account: &Account, bytes: usize) -> Error {
    account.refused_after(PATIENCE, bytes)
}

/// Returns the error for a caller that would have to wait for memory and cannot, because it has no async runtime.
pub(crate) fn cannot_wait() -> Error {
    Error::over_limit("there is too little memory for work now, and nobody to wait for more")
        .advise("try again later")
}

fn need(account: &Account, run: &Run) -> Result<MemoryNeed> {
    Ok(run.need()?.with_threads_within(account.memory().limit() / THREADS_PART))
}
