//! The threads that work for the module, and the functions by which a Python thread waits for them: without the
//! interpreter lock (GIL), reacting to signals, and not beyond the exit of the interpreter.
//!
//! Invariant: when [`leave`] has returned, no Python thread that waited here still needs the interpreter. During its
//! exit CPython terminates threads that request the interpreter lock, in the middle of Rust code, which would abort the
//! process.

use crate::errors;
use farpool::{Error, ErrorKind, Interrupt};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::task::JoinHandle;

/// Interval at which a waiting thread checks for signals. Reason: short enough for a user who presses Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Maximum time for which a request runs on the calling thread. Reason: it does not react to signals.
const SMALL: Duration = Duration::from_millis(2);

/// Time in which a cancelled request can notify the node. Without it, the node notices only that the connection is
/// closed.
const FAREWELL: Duration = Duration::from_millis(200);

/// Maximum time for which the exit of the interpreter waits for threads that wait in this module.
const EXIT: Duration = Duration::from_secs(2);

/// The runtime, with the id of the process that created it. It is never dropped, because in a forked process dropping
/// would wait for threads that do not exist.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

static IS_LEAVING: AtomicBool = AtomicBool::new(false);

/// Number of threads that have released the interpreter lock and not yet acquired it again.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Returns the runtime of this process, and starts it at the first request.
///
/// # Errors
/// Fails if the system does not provide threads.
pub fn handle() -> farpool::Result<Handle> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((of, runtime)) = *runtime
        && of == process
    {
        return Ok(runtime.handle().clone());
    }
    let started = Builder::new_multi_thread().enable_all().thread_name("farpool").build();
    let started = started.map_err(|error| Error::over_limit(format!("cannot start threads: {error}")))?;
    let started: &'static Runtime = Box::leak(Box::new(started));
    *runtime = Some((process, started));
    Ok(started.handle().clone())
}

/// Enters the runtime, so that values can be dropped in it; `None` if it was not started.
pub fn entered() -> Option<Entered> {
    let runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, runtime) = (*runtime).filter(|(process, _)| *process == std::process::id())?;
    Some(runtime.enter())
}

/// A guard that keeps the thread within the runtime.
pub type Entered = EnterGuard<'static>;

/// Runs `work` on the runtime and blocks until it is complete.
///
/// # Errors
/// The error of `work`; the exception of a signal handler (`KeyboardInterrupt`), which cancels `work`; an error if the
/// interpreter exits.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl Future<Output = farpool::Result<T>> + Send + 'static,
) -> PyResult<T> {
    wait_telling(py, work, |_| Ok(()))
}

/// Runs `work` as [`wait`] does, and calls `tell` repeatedly until it is complete.
///
/// # Errors
/// The errors of [`wait`], and those of `tell`, which also cancel `work`.
pub fn wait_telling<T: Send + 'static>(
    py: Python<'_>,
    work: impl Future<Output = farpool::Result<T>> + Send + 'static,
    mut tell: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let handle = errors::checked(py, handle())?;
    let signal = Signal::default();
    let interrupt = signal.interrupt();
    let work = within(interrupt.clone(), work);
    let work = match without_lock(py, || begun(&handle, work)) {
        Ok(Begun::Done(outcome)) => {
            return signal.raised().map_or_else(|| errors::checked(py, outcome), Err);
        }
        Ok(Begun::Pending(work)) => work,
        Err(_) => return Err(errors::raised(py, &defect())),
    };
    let (sender, mut receiver) = sync_channel(1);
    let task = handle.spawn(async move {
        // The receiver is gone if the wait was given up.
        let _ = sender.send(work.await);
    });
    loop {
        let received;
        (received, receiver) = without_lock(py, move || (receiver.recv_timeout(LOOK), receiver));
        match received {
            Ok(outcome) => return errors::checked(py, outcome),
            Err(RecvTimeoutError::Disconnected) => return Err(errors::raised(py, &defect())),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(stopped) = looked(py).and_then(|()| tell(py)) {
                    interrupt.stop();
                    give_up(py, &task, receiver);
                    return Err(stopped);
                }
            }
        }
    }
}

/// Runs `work` so that `interrupt` also stops the engine's computations for it: a task can be aborted only at await
/// points.
async fn within<W: Future>(interrupt: Interrupt, work: W) -> W::Output {
    interrupt.run(work).await
}

/// The exception of a signal handler that ran while the calling thread did the work.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<Option<PyErr>>>);

impl Signal {
    /// Returns an interrupt with which work on this thread checks for signals, because planning is one long
    /// computation.
    fn interrupt(&self) -> Interrupt {
        let (signal, caller) = (self.clone(), thread::current().id());
        Interrupt::probing(move || thread::current().id() == caller && signal.has_come())
    }

    fn has_come(&self) -> bool {
        if IS_LEAVING.load(Ordering::SeqCst) {
            return true;
        }
        let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
        let has_come = raised.is_some();
        if has_come {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = raised;
        }
        has_come
    }

    fn raised(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

enum Begun<T, W> {
    Done(T),
    Pending(Pin<Box<W>>),
}

/// A waker that unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Starts `work` on the calling thread. Small statements are complete then, which saves waking up other threads.
///
/// # Errors
/// A panic of `work`, which is reported as an error, like that of a task.
fn begun<W: Future>(handle: &Handle, work: W) -> thread::Result<Begun<W::Output, W>> {
    let mut work = Box::pin(work);
    // A thread of the runtime must not block until the runtime has done the work.
    if Handle::try_current().is_ok() {
        return Ok(Begun::Pending(work));
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let start = Instant::now();
    loop {
        // Within the runtime, a computing stream yields after a number of batches.
        let poll = async { work.as_mut().poll(&mut Context::from_waker(&waker)) };
        if let Poll::Ready(outcome) = catch_unwind(AssertUnwindSafe(|| handle.block_on(poll)))? {
            return Ok(Begun::Done(outcome));
        }
        let Some(left) = SMALL.checked_sub(start.elapsed()) else { return Ok(Begun::Pending(work)) };
        thread::park_timeout(left);
    }
}

/// Runs `work`, which takes a while, on the calling thread, without the interpreter lock.
pub fn without_lock<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    WAITING.fetch_add(1, Ordering::SeqCst);
    let done = py.detach(work);
    WAITING.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Runs `work`, which blocks or takes a while, on a blocking thread of the runtime.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> farpool::Result<T> + Send + 'static,
) -> farpool::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(defect()))
}

/// Waits for `work` on a thread that may or may not have the interpreter's lock.
///
/// # Errors
/// The errors of [`wait`], as errors of the library.
pub fn wait_anywhere<T: Send + 'static>(
    work: impl Future<Output = farpool::Result<T>> + Send + 'static,
) -> farpool::Result<T> {
    let handle = handle()?;
    let (sender, receiver) = sync_channel(1);
    let interrupt = Interrupt::default();
    let work = within(interrupt.clone(), work);
    let task = handle.spawn(async move {
        // The receiver is gone if the wait was given up.
        let _ = sender.send(work.await);
    });
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => return Err(defect()),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(stopped) = interrupted() {
                    interrupt.stop();
                    task.abort();
                    return Err(stopped);
                }
            }
        }
    }
}

/// Returns the error for a signal, or the exit of the interpreter, that ends a wait. Arrow's interface has only texts
/// for errors, so that `KeyboardInterrupt` does not pass through it: it becomes the error of the stream's reader.
fn interrupted() -> Option<Error> {
    if IS_LEAVING.load(Ordering::SeqCst) {
        return Some(left());
    }
    WAITING.fetch_add(1, Ordering::SeqCst);
    let raised = Python::try_attach(|py| Some(py.check_signals().err()?.to_string()));
    WAITING.fetch_sub(1, Ordering::SeqCst);
    let raised = raised.unwrap_or_else(|| Some("the interpreter exits".to_string()))?;
    Some(Error::new(ErrorKind::Cancelled, format!("the statement was cancelled: {raised}")))
}

fn looked(py: Python<'_>) -> PyResult<()> {
    match IS_LEAVING.load(Ordering::SeqCst) {
        true => Err(errors::raised(py, &left())),
        false => py.check_signals(),
    }
}

/// Cancels a task and waits briefly for its end, when its sender is dropped. A timer of the runtime is unsuitable: a
/// computing task may block the threads that drive timers.
fn give_up<T: Send>(py: Python<'_>, task: &JoinHandle<()>, receiver: Receiver<T>) {
    task.abort();
    // The task has ended, or the connection will be closed.
    let _ = without_lock(py, move || receiver.recv_timeout(FAREWELL).is_ok());
}

fn left() -> Error {
    Error::new(ErrorKind::Cancelled, "the interpreter exits")
}

fn defect() -> Error {
    Error::internal("a request did not finish")
        .advise("this is a defect in farpool: please report what led to it")
}

/// Ends the waits of all threads; called once when the interpreter begins to exit.
#[pyfunction]
pub fn leave(py: Python<'_>) {
    IS_LEAVING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let start = Instant::now();
        while WAITING.load(Ordering::SeqCst) > 0 && start.elapsed() < EXIT {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Resets the state inherited from the parent; called in each fork.
#[pyfunction]
pub fn forked() {
    IS_LEAVING.store(false, Ordering::SeqCst);
    WAITING.store(0, Ordering::SeqCst);
}
