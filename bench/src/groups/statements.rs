//! Runs the statements of a session one by one, concurrently and as a batch, and compares the answers of all ways.

use crate::answers::Answer;
use crate::pools;
use crate::suite::Expected;
use anyhow::{Context, Result};
use farpool::{Pool, Session, SessionOptions, WorkMemory};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;

/// Memory budget of a session in bytes, for everything but cached columns.
pub const WORK_BYTES: usize = 4 << 30;

/// One execution of all statements.
pub struct Ran {
    /// Time from the first statement's text to the last statement's rows.
    pub seconds: f64,
    /// Bytes on the wire, of all statements.
    pub bytes: u64,
    /// Answers in the order of the statements.
    pub answers: Vec<Answer>,
}

impl Ran {
    /// Converts the rows of all statements, which took `seconds` together. The conversion is not part of that time.
    fn of(seconds: f64, each: &[pools::Ran]) -> Result<Ran> {
        let bytes = each.iter().map(|ran| ran.receipt.bytes_on_wire).sum();
        Ok(Ran { seconds, bytes, answers: each.iter().map(pools::Ran::answer).collect::<Result<_>>()? })
    }
}

/// Statements with their expected answers: the first execution gives these, and all others must return the same.
pub struct Answers(Vec<(String, Expected<Answer>)>);

impl Answers {
    /// Creates the list of statements, without any answer yet.
    pub fn of(statements: &[String]) -> Answers {
        Answers(statements.iter().map(|statement| (statement.clone(), Expected::default())).collect())
    }

    /// Compares the answers of an execution with the expected ones. `way` names the execution in errors.
    pub fn check(&mut self, way: &str, answers: &[Answer]) -> Result<()> {
        for ((statement, expected), answer) in self.0.iter_mut().zip(answers) {
            expected.check_ordered(way, answer, statement).with_context(|| statement.clone())?;
        }
        Ok(())
    }
}

/// Opens a session with a memory budget of [`WORK_BYTES`] of its own.
pub async fn session(pool: &Arc<dyn Pool>, pushdown: bool, threads: usize) -> Result<Arc<Session>> {
    session_within(pool, pushdown, threads, WorkMemory::new(WORK_BYTES)).await
}

/// Opens a session that takes its memory from the budget `work`, which sessions may share.
pub async fn session_within(
    pool: &Arc<dyn Pool>,
    pushdown: bool,
    threads: usize,
    work: Arc<WorkMemory>,
) -> Result<Arc<Session>> {
    let (target_partitions, work) = (Some(threads), Some(work));
    let options = SessionOptions { pushdown, target_partitions, work, ..SessionOptions::default() };
    pools::session_with(pool.clone(), options).await
}

/// Runs statements one after the other.
pub async fn sequentially(session: &Arc<Session>, statements: &[String]) -> Result<Ran> {
    concurrently(session, statements, 1).await
}

/// Runs statements, at most `at_once` of them concurrently.
pub async fn concurrently(session: &Arc<Session>, statements: &[String], at_once: usize) -> Result<Ran> {
    let start = Instant::now();
    let sessions = vec![session.clone(); at_once.max(1)];
    let run =
        |session: Arc<Session>, statement: String| async move { Ok(pools::run(&session, &statement).await?) };
    let each = work_through(sessions, statements, run).await?;
    Ran::of(start.elapsed().as_secs_f64(), &each)
}

/// Runs statements as one batch, so that the session plans them together.
pub async fn batch(session: &Session, statements: &[String]) -> Result<Ran> {
    let start = Instant::now();
    let mut batch = session.batch(statements.iter().map(String::as_str));
    let mut each = Vec::new();
    while let Some(query) = batch.next().await {
        each.push(pools::execute(query?, start).await?);
    }
    Ran::of(start.elapsed().as_secs_f64(), &each)
}

/// Runs statements with `run` on several sessions concurrently: a session takes the next statement of the list as soon
/// as it has finished one, so that no session is idle while statements are left. Returns the results in the order of
/// the statements.
pub async fn work_through<T, F>(
    sessions: Vec<Arc<Session>>,
    statements: &[String],
    run: impl Fn(Arc<Session>, String) -> F + Clone + Send + 'static,
) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (statements, next) = (Arc::new(statements.to_vec()), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for session in sessions {
        let (statements, next, run) = (statements.clone(), next.clone(), run.clone());
        tasks.spawn(async move {
            let mut results = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(statement) = statements.get(place) else { break anyhow::Ok(results) };
                let result = run(session.clone(), statement.clone()).await;
                results.push((place, result.with_context(|| statement.clone())?));
            }
        });
    }
    let mut results = BTreeMap::new();
    while let Some(ended) = tasks.join_next().await {
        results.extend(ended??);
    }
    Ok(results.into_values().collect())
}
