//! Handles Ctrl-C and SIGTERM for a program that has work to finish: the first signal asks it to stop, the
//! second ends the process at once.
//!
//! A dedicated thread waits for the signals, so that the second one works even if all other threads are blocked.

use super::stop::{Outcome, Stop};
use farpool::Error;
use std::future::Future;
use std::io;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

/// Returns a future that is complete at the first signal. The handlers are installed when this function returns.
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
        // An error would mean that the thread ended without a signal, which cannot happen.
        drop(waits.await);
    })
}

/// Returns a channel that receives an item whenever the process gets SIGHUP, the request to reread its files; the
/// signal then no longer ends the process. Must be called within a runtime.
#[cfg(unix)]
pub fn hangups() -> Outcome<mpsc::Receiver<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut signal = signal(SignalKind::hangup())
        .map_err(|error| Stop::from(Error::internal(format!("cannot wait for signals: {error}"))))?;
    let (tell, told) = mpsc::channel(1);
    tokio::spawn(async move {
        while signal.recv().await.is_some() {
            // One unread item represents several signals.
            let _ = tell.try_send(());
        }
    });
    Ok(told)
}

/// Returns a channel that never receives anything: this system has no SIGHUP.
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

    /// Waits for the next signal, and returns the exit status that shells expect after it.
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
