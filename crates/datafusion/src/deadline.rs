//! How long a statement may take, from when it is planned to its last row.

use farpool_model::{Error, Result};
use farpool_transfer::BatchStream;
use futures::{StreamExt, TryStreamExt, stream};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// When a statement is to have ended; never, if it has no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<(Instant, Duration)>);

impl Deadline {
    /// That of a statement which begins now and may take as long as `limit`.
    pub fn after(limit: Option<Duration>) -> Self {
        // Beyond what a clock counts, there is none.
        Deadline(limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit))))
    }

    /// What comes of `work`, which is dropped when the statement is late.
    ///
    /// # Errors
    /// Those of `work`, and `TimedOut`.
    pub async fn keep<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let Some((at, limit)) = self.0 else { return work.await };
        // What is always ready never lets the timer look.
        if Instant::now() >= at {
            return Err(late(limit));
        }
        timeout_at(at, work).await.unwrap_or_else(|_| Err(late(limit)))
    }

    /// `batches`, which are dropped when the statement is late.
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
