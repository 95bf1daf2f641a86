//! Ctrl-C and SIGTERM for a program that has something to finish: the first asks it to stop, the second ends the
//! process at once.
//!
//! They are waited for on a thread of their own: whatever keeps all others busy, the second one is obeyed.

use super::stop::{Outcome, Stop};
use farpool::Error;
use std::future::Future;
use std::io;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

/// Resolves at the first signal. The handlers are in place when this returns.
pub fn first_signal() -> Outcome<impl Future<Output = ()>> {
    let failed = |error: io::Error| Stop::from(Error::internal(format!("cannot wait for signals: {error}")));
    let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let mut signals = {
        let _entered = runtime.enter();
        Signals::new().map_err(failed)?
    };
    let (first, waits) = oneshot::channel();
    let wait = move || {
        runtime.block_on(async {
            signals.next().await;
            let _ = first.send(());
            let status = signals.next().await;
            eprintln!("stopped at once; what was under way is lost");
            std::process::exit(status);
        });
    };
    std::thread::Builder::new().name("farpool-signals".into()).spawn(wait).map_err(failed)?;
    Ok(async move {
        // An error would mean that the thread is gone without a signal, which it never is.
        drop(waits.await);
    })
}

/// Has something come each time that the process is told to read its files again (SIGHUP), which then no longer ends
/// it. Within a runtime.
#[cfg(unix)]
pub fn hangups() -> Outcome<mpsc::Receiver<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut signal = signal(SignalKind::hangup())
        .map_err(|error| Stop::from(Error::internal(format!("cannot wait for signals: {error}"))))?;
    let (tell, told) = mpsc::channel(1);
    tokio::spawn(async move {
        while signal.recv().await.is_some() {
            // One that waits to be seen stands for all.
            let _ = tell.try_send(());
        }
    });
    Ok(told)
}

/// There is no such signal.
#[cfg(not(unix))]
pub fn hangups() -> Outcome<mpsc::Receiver<()>> {
    Ok(mpsc::channel(1).1)
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Signals { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one and gives the exit status that shells expect after it.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => 128 + 2,
            _ = self.terminate.recv() => 128 + 15,
        }
    }
}

#[cfg(not(unix))]
struct Signals {
    interrupt: tokio::signal::windows::CtrlC,
}

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals { interrupt: tokio::signal::windows::ctrl_c()? })
    }

    async fn next(&mut self) -> i32 {
        self.interrupt.recv().await;
        128 + 2
    }
}
