//! Batches of statements: several SQL statements that a client passes at once. The statements of a batch read the same
//! versions of tables. Some start before the client requests their results ([`HeadStart`]), and pushed-down programs
//! that read the same rows run as one ([`crate::shared`]).
//!
//! Invariant: a batch returns the same results as if its statements ran one after the other, on the tables as they are
//! at one moment. No statement waits for the client to read the rows of another one: a statement that starts early
//! stores its rows, or discards them and runs again later if there are too many.

use crate::exec::PoolExec;
use crate::kept::KeptRows;
use crate::pins::Versions;
use crate::query::{Planned, Query};
use crate::session::Session;
use crate::shared;
use datafusion::execution::memory_pool::MemoryPool;
use farpool_model::limits::{
    BATCH_RESULT_BYTES_MAX, BATCH_STATEMENTS_AHEAD_MAX, BATCH_STATEMENTS_PLANNED_MAX,
};
use farpool_model::{Error, ErrorKind, Result};
use farpool_sql::Statement;
use farpool_transfer::BatchStream;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// SQL statements that run together and return their results one after the other; see [`Session::batch`].
pub struct Batch {
    session: Session,
    /// Statements that are not planned yet.
    rest: VecDeque<Statement>,
    planned: VecDeque<Result<Query>>,
    /// Table versions (a shared snapshot) of the statements that are planned together; `None` before the first of them,
    /// and after a statement that changes something.
    versions: Option<Arc<Versions>>,
    ahead: Arc<Ahead>,
}

/// The statements that started before the client requested their results, and the memory for their rows.
#[derive(Debug)]
pub(crate) struct Ahead {
    runs: Mutex<Vec<Weak<HeadStart>>>,
    memory: Arc<dyn MemoryPool>,
}

/// The early execution of a statement: it starts before its result is requested, and is cancelled when this value is
/// dropped.
#[derive(Debug, Default)]
pub(crate) struct HeadStart {
    is_due: Arc<Notify>,
    /// The only task of this execution; empty after [`HeadStart::rows`] or [`Ahead::end`] has taken the task.
    run: Mutex<JoinSet<Option<Rows>>>,
}

/// Rows that have been read, and the stream of the remaining rows; `None` if all rows have been read.
type Rows = (KeptRows, Option<BatchStream>);

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rest, planned) = (self.rest.len(), self.planned.len());
        f.debug_struct("Batch").field("rest", &rest).field("planned", &planned).finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new(session: Session, statements: VecDeque<Statement>) -> Self {
        let memory = Arc::clone(&session.context().runtime_env().memory_pool);
        let ahead = Arc::new(Ahead { runs: Mutex::default(), memory });
        Batch { session, rest: statements, planned: VecDeque::new(), versions: None, ahead }
    }

    /// Returns the next statement in order, planned, for the caller to execute; `None` after the last.
    ///
    /// # Errors
    /// The errors of [`Session::sql`] for this statement. Other statements are not affected.
    pub async fn next(&mut self) -> Option<Result<Query>> {
        if self.planned.is_empty() {
            self.plan().boxed().await;
        }
        let next = self.planned.pop_front()?;
        let coming = self.planned.iter().take(BATCH_STATEMENTS_AHEAD_MAX);
        coming.flatten().for_each(Query::run_ahead);
        Some(next)
    }

    /// Plans the next statements: all (up to a limit) before the next one that changes something; or, if that one is
    /// next, only that one.
    async fn plan(&mut self) {
        let reads = |statement: &&Statement| self.session.is_read(statement);
        let count = self.rest.iter().take(BATCH_STATEMENTS_PLANNED_MAX).take_while(reads).count();
        if count == 0 {
            if let Some(statement) = self.rest.front() {
                let planned = self.session.sql(statement.clone()).await;
                self.planned.push_back(planned);
                self.rest.pop_front();
            }
            self.versions = None;
            return;
        }
        let versions = Arc::clone(self.versions.get_or_insert_default());
        let mut planned = Vec::with_capacity(count);
        for statement in self.rest.iter().take(count) {
            let scope = self.session.scope();
            planned.push(scope.keep(self.session.plan_first(statement, Some(&versions))).await);
        }
        let programs = planned.iter().flatten().flat_map(|planned| planned.programs(PoolExec::share_place));
        shared::share(programs.flatten().collect(), &self.session.means()).await;
        let of_batch = |(statement, planned): (Statement, Result<Planned>)| {
            let scope = self.session.scope();
            let query = Query::new(self.session.clone(), statement, scope, planned?);
            Ok(query.in_batch(&versions, &self.ahead))
        };
        self.planned = self.rest.drain(..count).zip(planned).map(of_batch).collect();
    }
}

impl Ahead {
    /// Starts the execution `run` in a task of its own, which stores the rows until they are requested.
    pub fn start(&self, run: impl Future<Output = Result<BatchStream>> + Send + 'static) -> Arc<HeadStart> {
        let head_start = Arc::new(HeadStart::default());
        let is_due = Arc::clone(&head_start.is_due);
        {
            let mut runs = self.runs.lock();
            runs.retain(|run| run.strong_count() > 0);
            runs.push(Arc::downgrade(&head_start));
        }
        let mut kept = KeptRows::new(&self.memory, BATCH_RESULT_BYTES_MAX);
        head_start.run.lock().spawn(async move {
            let mut batches = run.await.ok()?;
            loop {
                // While no row has been stored, the task keeps waiting for the first batch even if rows are requested:
                // the execution may still fail for lack of memory, and the statement then runs again.
                let next = tokio::select! {
                    biased;
                    () = is_due.notified(), if !kept.batches().is_empty() => return Some((kept, Some(batches))),
                    next = batches.next() => next,
                };
                let Some(batch) = next else { return Some((kept, None)) };
                if !kept.add(batch.ok()?) {
                    return None;
                }
            }
        });
        head_start
    }

    /// Cancels all early executions and waits until they have released their memory. Returns whether there were any.
    pub async fn end(&self) -> bool {
        let all = std::mem::take(&mut *self.runs.lock());
        let mut any = false;
        for head_start in all.iter().filter_map(Weak::upgrade) {
            let mut run = std::mem::take(&mut *head_start.run.lock());
            any |= !run.is_empty();
            run.shutdown().await;
        }
        any
    }
}

impl HeadStart {
    /// Waits for the first rows, and returns a stream of all rows: those that have been stored, then the others.
    /// Returns `None` if the execution failed, was cancelled, or had too many rows to store: the statement then has to
    /// run again.
    pub async fn rows(&self) -> Option<BatchStream> {
        self.is_due.notify_one();
        let mut run = std::mem::take(&mut *self.run.lock());
        let (kept, rest) = run.join_next().await?.ok().flatten()?;
        let kept = kept.into_stream();
        Some(match rest {
            Some(rest) => kept.chain(rest).boxed(),
            None => kept,
        })
    }
}

/// Returns whether a statement failed for lack of memory, so that it may succeed after other statements have released
/// theirs.
pub(crate) fn is_short_of_memory(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::OverLimit | ErrorKind::Busy)
}
