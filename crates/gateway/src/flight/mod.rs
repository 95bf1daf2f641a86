//! The server of Arrow Flight SQL: gRPC over HTTP/2, with rows as Arrow IPC messages.
//!
//! Requests of one client may come over several connections, and one connection may carry requests of several users.
//! Prepared statements, sessions and running statements, which outlive a request, therefore belong to the user (`users`),
//! and a connection only knows which tokens are right (`connection`).

mod answers;
mod authentication;
mod connection;
mod convert;
mod ingest;
mod link;
mod metadata;
mod options;
mod prepared;
mod running;
mod service;
mod sql_info;
mod statements;
mod status;
mod updates;
mod uploads;
mod users;

use crate::Gateway;
use arrow_flight::flight_service_server::FlightServiceServer;
use connection::{Connection, Stage};
use farpool_model::{Error, Result, limits};
use farpool_node::Listener;
use farpool_node::accept::{Slot, Unauthenticated, accept};
use farpool_wire::{Socket, Tls};
use futures::stream;
use link::Link;
use service::Service;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tonic::transport::Server;

/// Maximum time that statements in progress get to end at a shutdown.
const DRAIN: Duration = Duration::from_secs(5);

/// The application protocol of a TLS connection (ALPN, RFC 7301): HTTP/2.
const PROTOCOL: &[u8] = b"h2";

/// Windows in which a client may send rows before it must wait, per stream and per connection. Reason: a round trip of
/// 10 ms then allows 100 MiB/s per stream.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Maximum bytes of a frame that a client may send: fewer, larger frames cost less.
const FRAME_BYTES: u32 = 256 << 10;

/// Time between searches for what nobody uses any more.
const SWEEP: Duration = Duration::from_secs(30);

/// Serves clients until `shutdown` resolves; running statements then get a few seconds to end.
///
/// # Errors
/// An error of one connection ends that connection only. `Internal` if the server of HTTP/2 ends by itself.
pub async fn serve<L: Listener>(
    gateway: Arc<Gateway>,
    mut listener: L,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let (stage, stages) = watch::channel(Stage::Open);
    let unauthenticated = Arc::new(Unauthenticated::default());
    let (greeted, links) = mpsc::unbounded_channel();
    let service = Service::new(Arc::clone(&gateway));
    let mut server = tokio::spawn(answer(service.clone(), links, stages.clone()));
    let mut connections = JoinSet::new();
    let mut sweep = interval(SWEEP);
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = sweep.tick() => service.forget_unused(),
            ended = &mut server => {
                return Err(Error::internal(format!("the server of HTTP/2 has ended: {ended:?}")));
            }
            // If accepting fails because the system has no sockets left, the oldest unauthenticated connection is
            // closed.
            arrival = accept(&mut listener, || unauthenticated.evict_oldest()) => match L::open(arrival) {
                Ok(socket) => {
                    let slot = unauthenticated.enter();
                    connections.spawn(attend(Arc::clone(&gateway), socket, slot, greeted.clone(), stages.clone()));
                }
                Err(error) => tracing::debug!(%error, "a connection ended at once"),
            },
        }
    }
    drop((listener, greeted));
    stage.send_replace(Stage::Draining);
    let ended = async { while connections.join_next().await.is_some() {} };
    drop(timeout(DRAIN, ended).await);
    stage.send_replace(Stage::Closed);
    let ended = async { while connections.join_next().await.is_some() {} };
    drop(timeout(DRAIN, ended).await);
    server.abort();
    Ok(())
}

/// Answers the requests of the connections that come, until the server drains.
async fn answer(
    service: Service,
    links: mpsc::UnboundedReceiver<Link>,
    mut stages: watch::Receiver<Stage>,
) -> Result<(), tonic::transport::Error> {
    let links = stream::unfold(links, |mut links| async move {
        links.recv().await.map(|link| (io::Result::Ok(link), links))
    });
    let service =
        FlightServiceServer::new(service).max_decoding_message_size(limits::FLIGHT_MESSAGE_BYTES_MAX);
    Server::builder()
        .max_concurrent_streams(u32::try_from(limits::STREAMS_PER_CONNECTION_MAX).ok())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .http2_max_header_list_size(limits::FLIGHT_HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(Duration::from_millis(limits::CLIENT_PING_AFTER_MS)))
        .http2_keepalive_timeout(Some(Duration::from_millis(limits::PONG_MS_MAX)))
        .add_service(service)
        .serve_with_incoming_shutdown(links, async move {
            reached(&mut stages, Stage::Draining).await;
        })
        .await
}

/// Waits until the server has reached a stage.
async fn reached(stages: &mut watch::Receiver<Stage>, wanted: Stage) {
    drop(stages.wait_for(|stage| *stage >= wanted).await);
}

/// Attends to a connection: encrypts it, hands it to the server of HTTP/2, and closes it if it must end early.
async fn attend(
    gateway: Arc<Gateway>,
    socket: Arc<dyn Socket>,
    slot: Slot,
    greeted: mpsc::UnboundedSender<Link>,
    mut stages: watch::Receiver<Stage>,
) {
    let patience = Duration::from_millis(limits::HANDSHAKE_MS_MAX);
    let greeting = async {
        let tls = gateway.tls().map(|tls| tls.of_protocol(PROTOCOL));
        let is_encrypted = tls.is_some();
        let socket = match tls {
            Some(tls) => {
                let peer = socket.peer();
                let encrypted = Tls::accept(socket, Default::default(), &tls).await;
                let encrypted = encrypted.map_err(|error| {
                    tracing::info!(peer, error = error.message, "TLS with a client failed");
                });
                Arc::new(encrypted.ok()?) as Arc<dyn Socket>
            }
            None => socket,
        };
        let (connection, ends) = Connection::new(&*socket, is_encrypted);
        // The server ends only with this process.
        greeted.send(Link::new(socket, Arc::clone(&connection))).ok()?;
        drop(greeted);
        Some((connection, ends))
    };
    let greeted = tokio::select! {
        biased;
        () = slot.evicted() => return,
        () = reached(&mut stages, Stage::Draining) => return,
        greeted = timeout(patience, greeting) => greeted,
    };
    let Ok(Some((connection, mut life))) = greeted else { return };
    let is_welcome = tokio::select! {
        biased;
        () = slot.evicted() => false,
        () = reached(&mut stages, Stage::Closed) => false,
        welcome = timeout(patience, life.authenticated()) => welcome.is_ok(),
    };
    drop(slot);
    if is_welcome {
        tokio::select! {
            biased;
            () = life.gone() => return,
            () = reached(&mut stages, Stage::Closed) => {}
        }
    }
    connection.close();
    life.gone().await;
}
