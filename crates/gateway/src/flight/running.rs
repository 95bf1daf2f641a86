//! Statements that run: how they are stopped by their client, by their time limit, or because the client has gone.

use farpool_datafusion::Interrupt;
use farpool_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The running statements of a user, by the numbers of their executions.
#[derive(Debug, Default)]
pub(super) struct Executions(Stops);

/// Statements by the numbers of their executions.
type Stops = Arc<Mutex<Vec<(u128, Arc<Stop>)>>>;

/// The means to stop a statement.
#[derive(Debug, Default)]
struct Stop {
    interrupt: Interrupt,
    cancelled: Notify,
}

/// A statement that runs. It is stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    all: Stops,
    stop: Arc<Stop>,
    deadline: Option<(Instant, Duration)>,
}

impl Executions {
    /// Begins a statement with a time limit.
    pub fn begin(&self, id: u128, limit: Option<Duration>) -> Running {
        let stop = Arc::new(Stop::default());
        self.0.lock().push((id, Arc::clone(&stop)));
        let deadline = limit.map(|limit| (Instant::now() + limit, limit));
        Running { all: Arc::clone(&self.0), stop, deadline }
    }

    /// Cancels the executions with this number; returns whether there is one.
    pub fn cancel(&self, id: u128) -> bool {
        let stops: Vec<Arc<Stop>> = self
            .0
            .lock()
            .iter()
            .filter(|(known, _)| *known == id)
            .map(|(_, stop)| Arc::clone(stop))
            .collect();
        for stop in &stops {
            stop.interrupt.stop();
            stop.cancelled.notify_one();
        }
        !stops.is_empty()
    }
}

impl Running {
    /// Does work of the statement, until it ends, the statement is cancelled, or its time is over.
    pub async fn guard<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let expired = async {
            match self.deadline {
                Some((end, limit)) => {
                    sleep_until(end).await;
                    limit
                }
                None => std::future::pending().await,
            }
        };
        let cancelled = async {
            while !self.stop.interrupt.is_stopped() {
                self.stop.cancelled.notified().await;
            }
        };
        let outcome = tokio::select! {
            biased;
            // First, since what has been done must not be reported as cancelled.
            outcome = self.stop.interrupt.run(work) => match outcome {
                Err(error) if error.kind == ErrorKind::Cancelled => Err(Error::cancelled()),
                outcome => return outcome,
            },
            () = cancelled => Err(Error::cancelled()),
            limit = expired => Err(Error::timed_out("the statement", limit)
                .advise("set statement_timeout of the session to more, or ask for less")),
        };
        self.stop.interrupt.stop();
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.interrupt.stop();
        self.all.lock().retain(|(_, stop)| !Arc::ptr_eq(stop, &self.stop));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_statement_is_stopped_by_its_number_its_time_or_its_end() {
        let executions = Executions::default();
        let (one, other) = (executions.begin(1, None), executions.begin(2, None));
        assert!(executions.cancel(1) && !executions.cancel(3));
        let never = || std::future::pending::<Result<()>>();
        assert_eq!(one.guard(never()).await.unwrap_err().kind, ErrorKind::Cancelled);
        assert_eq!(other.guard(async { Ok(7) }).await.unwrap(), 7);
        drop(one);
        assert!(!executions.cancel(1));
        let short = executions.begin(4, Some(Duration::from_millis(1)));
        assert_eq!(short.guard(never()).await.unwrap_err().kind, ErrorKind::TimedOut);
    }
}
