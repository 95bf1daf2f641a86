//! Time limit of a statement, from its planning to its last row.

use farpool_model::{Error, Result};
use farpool_transfer::BatchStream;
use futures::{StreamExt, TryStreamExt, stream};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The time at which a statement must have ended, with its limit; `None` for no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<(Instant, Duration)>);

impl Deadline {
    /// The deadline of a statement which begins now and may take `limit`.
    pub fn after(limit: Option<Duration>) -> Self {
        // A limit beyond the range of the clock is no limit.
        Deadline(limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit))))
    }

    /// Runs `work` to its end, or drops it at the deadline.
    ///
    /// # Errors
    /// The errors of `work`, and `TimedOut`.
    pub async fn keep<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let Some((at, limit)) = self.0 else { return work.await };
        // A future that is always ready never lets the timer be polled.
        if Instant::now() >= at {
            return Err(late(limit));
        }
        timeout_at(at, work).await.unwrap_or_else(|_| Err(late(limit)))
    }

    /// Passes `batches` on, and drops them at the deadline.
    pub fn keep_stream(self, batches: BatchStream) -> BatchStream {
        if self.0.is_none() {
            return batches;
        }
        stream::try_unfold(batches, move |mut batches| async move {
            let next = self.keep(batches.try_next()).await?;
            Ok(next.map(|batch| (batch, batches)))
        })
        .boxed()
    }
}

fn late(limit: Duration) -> Error {
    Error::timed_out("the statement", limit)
}
