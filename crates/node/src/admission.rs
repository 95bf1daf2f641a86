//! Admission of programs: their memory is reserved before they start, from the account of their tenant. A
//! program whose groups may leave in parts takes less if there is less; others wait for enough memory, up to
//! a time limit.

use farpool_memory::Account;
use farpool_model::{Error, Result, limits};
use farpool_pipeline::{Need, Run};
use std::time::Duration;
use tokio::time::timeout;

/// Divisor of the memory for work: the fraction that the threads of one program may take.
const THREADS_PART: usize = 4;

/// The longest time that a program, or a client that sends, waits for memory.
pub(crate) const PATIENCE: Duration = Duration::from_millis(limits::WORK_WAIT_MS_MAX);

/// Reserves what `run` needs if it is available now, and limits the run to it; false if it has to wait.
///
/// # Errors
/// The reason why the run was stopped, if it was.
pub(crate) fn admit_now(account: &Account, run: &Run) -> Result<bool> {
    let sizes = std::iter::successors(Some(need(account, run)?), |need| need.smaller());
    for need in sizes {
        if let Ok(reservation) = account.try_reserve(need.bytes()) {
            run.keep_to(need, reservation);
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reserves what `run` needs, and waits for it up to [`limits::WORK_WAIT_MS_MAX`].
///
/// # Errors
/// `OverLimit`, with sizes, when memory is short even for the least that the run can do with.
pub(crate) async fn admit(account: &Account, run: &Run) -> Result<()> {
    if admit_now(account, run)? {
        return Ok(());
    }
    let need = need(account, run)?;
    let least = std::iter::successors(Some(need), |need| need.smaller()).last().unwrap_or(need);
    let reservation = match timeout(PATIENCE, account.reserve(least.bytes())).await {
        Ok(reservation) => reservation?,
        Err(_) => return Err(waited(account, least.bytes())),
    };
    run.keep_to(least, reservation);
    Ok(())
}

/// The error for a wait for memory that timed out.
pub(crate) fn waited(account: &Account, bytes: usize) -> Error {
    account.refused_after(PATIENCE, bytes)
}

/// The error where a wait is needed on a connection that no async runtime serves.
pub(crate) fn cannot_wait() -> Error {
    Error::over_limit("there is too little memory for work now, and nobody to wait for more")
        .advise("try again later")
}

fn need(account: &Account, run: &Run) -> Result<Need> {
    Ok(run.need()?.with_threads_within(account.memory().limit() / THREADS_PART))
}
