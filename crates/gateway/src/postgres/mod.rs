//! The server of PostgreSQL's protocol: accepts and authenticates clients, and ends their sessions at a shutdown.
//!
//! Each session is an async task. Limits, timeouts and errors are those of the native port of a node, as far as the
//! protocols are alike.

mod authentication;
mod cancels;
pub(crate) mod catalog;
pub(crate) mod commands;
mod link;
mod session;
pub(crate) mod settings;

use crate::Gateway;
use authentication::Greeting;
use cancels::Cancels;
use farpool_model::{Result, limits};
use farpool_node::Listener;
use farpool_node::accept::{Slot, Unauthenticated, accept};
use farpool_postgres::failure::{Failure, code};
use link::{Gone, Link};
use session::Session;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Maximum time that statements in progress get to end at a shutdown.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves clients until `shutdown` resolves, and then ends their sessions.
///
/// # Errors
/// An error of one connection ends that connection only, so that none is returned at present.
pub async fn serve<L: Listener>(
    gateway: Arc<Gateway>,
    mut listener: L,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let (ending, ends) = watch::channel(false);
    let (unauthenticated, cancels) = (Arc::new(Unauthenticated::default()), Arc::new(Cancels::default()));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            // If accepting fails because the system has no sockets left, the oldest unauthenticated connection is
            // closed.
            arrival = accept(&mut listener, || unauthenticated.evict_oldest()) => {
                let (gateway, cancels) = (Arc::clone(&gateway), Arc::clone(&cancels));
                match L::open(arrival) {
                    Ok(socket) => {
                        let slot = unauthenticated.enter();
                        connections.spawn(handle(gateway, Link::new(socket), slot, cancels, ends.clone()));
                    }
                    Err(error) => tracing::debug!(%error, "a connection ended at once"),
                }
            }
        }
    }
    drop(listener);
    ending.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    drop(timeout(DRAIN, ended).await);
    connections.shutdown().await;
    Ok(())
}

async fn handle(
    gateway: Arc<Gateway>,
    mut link: Link,
    slot: Slot,
    cancels: Arc<Cancels>,
    mut ends: watch::Receiver<bool>,
) {
    let peer = link.peer();
    let patience = Duration::from_millis(limits::HANDSHAKE_MS_MAX);
    let greeted = tokio::select! {
        biased;
        () = slot.evicted() => return,
        () = ended(&mut ends) => return,
        greeted = timeout(patience, Box::pin(authentication::greet(&gateway, &mut link, &cancels))) => greeted,
    };
    let refused = match greeted {
        Err(_) => Failure::new(code::PROTOCOL_VIOLATION, "the session did not begin in time").fatal(),
        Ok(Err(Gone::Closed) | Ok(Greeting::Cancel)) => return,
        Ok(Err(Gone::Refused(failure))) => {
            tracing::info!(peer, error = failure.message, "a client is refused");
            failure
        }
        Ok(Ok(Greeting::Welcome(welcome))) => {
            let (engine, settings, entry) = *welcome;
            let Some(_guard) = gateway.connect() else {
                let message = "sorry, too many clients already";
                return link.part(&Failure::new(code::TOO_MANY_CONNECTIONS, message).fatal()).await;
            };
            drop(slot);
            let session = Session::new(engine, link, entry, settings);
            tokio::select! {
                biased;
                // The link is gone with the session, in the middle of what it may be sending.
                () = ended(&mut ends) => {}
                (gone, link) = session.run() => {
                    if let Gone::Refused(failure) = gone {
                        tracing::info!(peer, error = failure.message, "a session is closed");
                        link.part(&failure).await;
                    }
                }
            }
            return;
        }
    };
    tokio::select! {
        biased;
        () = slot.evicted() => {}
        () = link.part(&refused) => {}
    }
}

/// Waits until the server ends.
async fn ended(ends: &mut watch::Receiver<bool>) {
    drop(ends.wait_for(|ends| *ends).await);
}
