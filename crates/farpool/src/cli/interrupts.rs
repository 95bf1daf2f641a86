//! Runs work until it ends, Ctrl-C is pressed, or a statement exceeds its time limit.
//!
//! The calling thread only waits, and another thread waits for signals, so that neither depends on the threads of the
//! runtime, all of which may be computing.

use super::stop::{Outcome, Stop};
use farpool::{Error, Interrupt};
use futures::FutureExt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Time in which stopped work can notify the node. Without it, the node notices only that the connection is closed.
const FAREWELL: Duration = Duration::from_millis(200);

/// Time after the time limit of a statement, after which the statement is abandoned. It normally ends within a few
/// milliseconds, unless one call of a function takes longer.
const GRACE: Duration = Duration::from_millis(400);

enum Event<T> {
    Done(Outcome<T>),
    Interrupted,
}

/// The callback for the next Ctrl-C; `None` if nothing runs.
static LISTENER: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// The time at which the current statement must have ended, and its time limit.
static LIMIT: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);

/// Records that a statement with this time limit begins now.
pub fn begin_statement(limit: Option<Duration>) {
    let deadline = limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
    *LIMIT.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
}

/// Runs `work` on a thread of the runtime, and blocks until it is complete or Ctrl-C is pressed.
pub fn run<W, T>(runtime: &Runtime, work: W) -> Outcome<T>
where
    W: Future<Output = Outcome<T>> + Send + 'static,
    T: Send + 'static,
{
    listen()?;
    begin_statement(None);
    let (tell, told) = channel();
    let interrupt = Interrupt::default();
    let within = interrupt.clone();
    let done = tell.clone();
    let task = runtime.spawn(async move {
        let outcome = AssertUnwindSafe(within.run(work)).catch_unwind().await;
        let outcome = outcome.unwrap_or_else(|_| Err(Stop::from(defect())));
        // The receiver is gone if the caller has stopped waiting.
        let _ = done.send(Event::Done(outcome));
    });
    set_listener(Some(Box::new(move || drop(tell.send(Event::Interrupted)))));
    let ended = wait(&told);
    set_listener(None);
    ended.unwrap_or_else(|stop| {
        interrupt.stop();
        task.abort();
        let _ = told.recv_timeout(FAREWELL);
        Err(stop)
    })
}

/// Blocks until the work is complete; fails with the reason if it must be stopped.
fn wait<T>(told: &Receiver<Event<T>>) -> Result<Outcome<T>, Stop> {
    loop {
        let limit = *LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
        let left = limit.map(|(at, _)| (at + GRACE).saturating_duration_since(Instant::now()));
        // A new statement with another time limit may begin meanwhile, so that a single wait is short.
        match told.recv_timeout(left.unwrap_or(GRACE).clamp(Duration::from_millis(1), GRACE)) {
            Ok(Event::Done(outcome)) => return Ok(outcome),
            Ok(Event::Interrupted) => return Err(Stop::Interrupted),
            Err(RecvTimeoutError::Disconnected) => return Err(Stop::from(defect())),
            Err(RecvTimeoutError::Timeout) => {
                if let Some((at, limit)) = limit
                    && Instant::now() >= at + GRACE
                {
                    return Err(Stop::from(Error::timed_out("the statement", limit)));
                }
            }
        }
    }
}

fn defect() -> Error {
    Error::internal("the command did not finish")
        .advise("this is a defect in farpool: please report it with the command that led to it")
}

fn set_listener(listener: Option<Box<dyn Fn() + Send>>) {
    *LISTENER.lock().unwrap_or_else(PoisonError::into_inner) = listener;
}

/// Starts the thread that waits for Ctrl-C, if it does not run yet. From then on the signal no longer ends the process.
fn listen() -> Outcome {
    static STARTED: Once = Once::new();
    let mut started: io::Result<()> = Ok(());
    STARTED.call_once(|| started = start());
    started.map_err(|error| Stop::from(Error::internal(format!("cannot wait for signals: {error}"))))
}

fn start() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _entered = runtime.enter();
        Signals::new()?
    };
    let wait = move || {
        runtime.block_on(async {
            loop {
                signals.interrupt().await;
                if let Some(listener) = &*LISTENER.lock().unwrap_or_else(PoisonError::into_inner) {
                    listener();
                }
            }
        });
    };
    std::thread::Builder::new().name("farpool-signals".into()).spawn(wait).map(drop)
}

#[cfg(unix)]
struct Signals(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).map(Signals)
    }

    async fn interrupt(&mut self) {
        self.0.recv().await;
    }
}

#[cfg(not(unix))]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Signals)
    }

    async fn interrupt(&mut self) {
        self.0.recv().await;
    }
}
