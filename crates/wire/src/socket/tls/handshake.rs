//! The handshake of a TLS connection, at both ends. It has no time limit of its own; the caller must set one.

use super::config::{ClientTls, ServerTls};
use super::faults::{Fault, refused_by_client, refused_by_node};
use super::{Session, Tls};
use crate::preface::describe;
use crate::socket::{Interest, Socket};
use bytes::BytesMut;
use farpool_model::{Error, Result};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::Poll;

/// Types of TLS records (RFC 8446, section 5.1). The first byte that a TLS peer sends is one of them.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 20..=23;

impl Tls {
    /// Waits for the TLS handshake of a client on `socket`, from which the bytes `received` have been read already.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if the handshake failed; the text is for the node's log. An alert has been sent
    /// to the peer if possible.
    pub async fn accept(socket: Arc<dyn Socket>, received: BytesMut, config: &ServerTls) -> Result<Self> {
        let tls = ServerConnection::new(config.0.clone()).map_err(|e| Error::internal(e.to_string()))?;
        agree(socket, Session::new(Connection::Server(tls), received))
            .await
            .map_err(|fault| refused_by_node(&fault))
    }

    /// Performs the TLS handshake with a node over `socket`. The peer must have a certificate for `host`, a name or an
    /// IP address.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if the handshake failed; the text is shown after the node's address.
    pub async fn connect(socket: Arc<dyn Socket>, host: &str, config: &ClientTls) -> Result<Self> {
        let name = ServerName::try_from(host.to_string()).map_err(|_| {
            Error::invalid(format!("{host:?} is no name that a certificate can be for"))
                .advise("give the node's DNS name or its address")
        })?;
        let tls =
            ClientConnection::new(config.0.clone(), name).map_err(|e| Error::internal(e.to_string()))?;
        let session = Session::new(Connection::Client(tls), BytesMut::new());
        agree(socket, session).await.map_err(|fault| refused_by_client(&fault, host))
    }
}

/// Exchanges handshake messages with the peer until application data can be sent.
async fn agree(socket: Arc<dyn Socket>, mut session: Session) -> Result<Tls, Fault> {
    let mut is_first = true;
    loop {
        let is_sent = match session.flush(&*socket) {
            Ok(()) => true,
            // The peer has closed the connection. Bytes that it sent before are still read, because they may explain
            // why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => return Err(Fault::Socket(error)),
        };
        let is_over = !session.tls.is_handshaking() || session.fault.is_some();
        if is_over && !is_sent {
            socket.ready(Interest::Writable).await.map_err(Fault::Socket)?;
            continue;
        }
        if !session.tls.is_handshaking() {
            if session.incoming.is_empty() {
                session.incoming = BytesMut::new();
            }
            return Ok(Tls { socket, session: Mutex::new(session) });
        }
        if session.incoming.is_empty() && !fill(&mut session, &*socket, !is_sent).await? {
            continue;
        }
        if std::mem::take(&mut is_first) && !RECORD_TYPES.contains(&session.incoming[0]) {
            return Err(Fault::NoTls(describe(&session.incoming)));
        }
        // If decryption fails, an alert has been queued, which is sent to the peer before the error is returned.
        session.decrypt()?;
    }
}

/// Waits for ciphertext and reads it. If `sends` is true (ciphertext is waiting to be sent), returns false as soon as
/// the socket can take some: the peer may read nothing until then.
async fn fill(session: &mut Session, socket: &dyn Socket, sends: bool) -> Result<bool, Fault> {
    loop {
        match session.fill(socket) {
            Err(Fault::Socket(error)) if error.kind() == ErrorKind::WouldBlock => {
                let is_writable = poll_fn(|context| match socket.poll_ready(context, Interest::Readable) {
                    Poll::Ready(outcome) => Poll::Ready(outcome.map(|()| false)),
                    Poll::Pending if sends => {
                        socket.poll_ready(context, Interest::Writable).map_ok(|()| true)
                    }
                    Poll::Pending => Poll::Pending,
                });
                if is_writable.await.map_err(Fault::Socket)? {
                    return Ok(false);
                }
            }
            Err(Fault::Socket(error)) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome.map(|()| true),
        }
    }
}
