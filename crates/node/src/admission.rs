//! Memory for programs: reserved before they start, from the account of their tenant. A program whose groups may leave
//! in parts takes less if there is less; others wait until there is enough, for a bounded time.

use farpool_memory::Account;
use farpool_model::{Error, Result, limits};
use farpool_pipeline::{Need, Run};
use std::time::Duration;
use tokio::time::timeout;

/// The part of the memory for work that the threads of one program may take.
const THREADS_PART: usize = 4;

/// How long a program, or a client that sends, may wait for memory.
pub(crate) const PATIENCE: Duration = Duration::from_millis(limits::WORK_WAIT_MS_MAX);

/// Reserves what `run` takes if it is to be had now, and has it keep to that; false if it has to wait.
///
/// # Errors
/// Why the run was stopped, if it was.
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
/// `OverLimit`, with sizes, when there is too little memory even for what can do with less.
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

/// The error of whoever waited in vain.
pub(crate) fn waited(account: &Account, bytes: usize) -> Error {
    account.refused_after(PATIENCE, bytes)
}

/// The error of whoever would have to wait where nothing can: a connection that no runtime serves.
pub(crate) fn cannot_wait() -> Error {
    Error::over_limit("there is too little memory for work now, and nobody to wait for more")
        .advise("try again later")
}

fn need(account: &Account, run: &Run) -> Result<Need> {
    Ok(run.need()?.with_threads_within(account.memory().limit() / THREADS_PART))
}
