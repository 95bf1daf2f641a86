//! The node's socket: who is let in, and how everything ends.
//!
//! Each connection is a task that reads and a task's worth of writing; programs run on the node's worker
//! threads, loads encode on threads for blocking work. Nothing here scans.

mod connection;
mod greeting;
mod inbox;
mod lanes;
mod load;
mod meter;
mod outbox;
mod packing;
mod requests;
mod sink;

use crate::Node;
use bytes::BytesMut;
use connection::Connection;
use farpool_model::{Error, Result, limits};
use greeting::Greeting;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long requests that are under way at a shutdown may take to finish.
const DRAIN: Duration = Duration::from_secs(5);

/// How long to wait before accepting again when the system has no more sockets to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often a connection looks whether its last request has been answered, while it waits to close.
const IDLE_CHECK: Duration = Duration::from_millis(10);

/// Serves clients until `shutdown` resolves; then takes no new ones, gives requests that are under way a
/// moment to finish, and ends the rest. The node itself is left running.
///
/// # Errors
/// None at present: what goes wrong with one connection ends that connection.
pub async fn serve(node: Arc<Node>, listener: TcpListener, shutdown: impl Future<Output = ()>) -> Result<()> {
    let (drain, draining) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    connections.spawn(handle(node.clone(), socket, peer, draining.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    drain.send_replace(true);
    let drained = async { while connections.join_next().await.is_some() {} };
    drop(timeout(DRAIN, drained).await);
    connections.shutdown().await;
    Ok(())
}

async fn handle(
    node: Arc<Node>,
    mut socket: TcpStream,
    peer: SocketAddr,
    mut draining: watch::Receiver<bool>,
) {
    // Without this a small answer waits for the acknowledgement of the one before it.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%peer, %error, "a connection ended at once");
        return;
    }
    let Some(_guard) = node.connect() else {
        let error =
            Error::over_limit(format!("the pool serves {} connections at once", limits::CONNECTIONS_MAX))
                .advise("close some, or try again later");
        return greeting::part(&mut socket, &greeting::error_bytes(&error)).await;
    };
    let greeted = tokio::select! {
        greeted = greeting::greet(&mut socket, &node) => greeted,
        () = closing(&mut draining) => return,
    };
    match greeted {
        Greeting::Gone => {}
        Greeting::Refused(bytes, error) => {
            tracing::info!(%peer, error = error.message, "a connection was refused");
            greeting::part(&mut socket, &bytes).await;
        }
        Greeting::Welcome(tenant, received) => {
            let open = Open(Connection::new(node, tenant, socket));
            if let Some(error) = converse(&open.0, received, draining).await {
                tracing::info!(%peer, error = error.message, "a connection is closed");
                drop(timeout(greeting::FAREWELL, say_why(&open.0, error)).await);
            }
        }
    }
}

/// Serves the client; gives the error that ends the conversation, if one does.
async fn converse(
    connection: &Arc<Connection>,
    received: BytesMut,
    mut draining: watch::Receiver<bool>,
) -> Option<Error> {
    tokio::select! {
        served = connection.serve(received) => served.err(),
        _ = connection.outbox.run() => None,
        () = drained(connection, &mut draining) => None,
    }
}

/// Tells the client, and waits for it to close: a socket that is closed with unread bytes in it takes the
/// last ones sent with it.
async fn say_why(connection: &Connection, error: Error) {
    connection.close(Some(error));
    if connection.outbox.write_all().await.is_ok() {
        connection.ignore_the_rest().await;
    }
}

/// Resolves when the server is closing.
async fn closing(draining: &mut watch::Receiver<bool>) {
    drop(draining.wait_for(|draining| *draining).await);
}

/// Resolves when the server is closing and nothing is under way on the connection.
async fn drained(connection: &Connection, draining: &mut watch::Receiver<bool>) {
    closing(draining).await;
    while !connection.outbox.is_idle() {
        sleep(IDLE_CHECK).await;
    }
}

/// A connection that takes everything of its client with it when it goes, however that happens.
struct Open(Arc<Connection>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close(None);
    }
}
