//! A man in the middle (an attacker on the network path): a proxy that sees all traffic and may change the frames that
//! the node sends.

use super::Server;
use bytes::{Buf, BytesMut};
use farpool_transfer::PoolUrl;
use farpool_wire::{FRAME_HEADER_BYTES, PREFACE};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A function that replaces frames, given the number of a frame (0 for the first one after the welcome) and its bytes.
/// Returns the frames to send instead, and whether the connection then ends.
pub type Change = Arc<dyn Fn(usize, Vec<u8>) -> (Vec<Vec<u8>>, bool) + Send + Sync>;

/// The proxy between clients and a node; see the module documentation.
pub struct Middle {
    address: SocketAddr,
    /// The frames that the node has sent since the welcome, on all connections.
    pub seen: Arc<Mutex<Vec<Vec<u8>>>>,
    change: Arc<Mutex<Change>>,
}

impl Middle {
    /// Starts a proxy to `server` that changes nothing.
    pub async fn of(server: &Server) -> Middle {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, node) = (listener.local_addr().unwrap(), server.address);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let nothing: Change = Arc::new(|_, frame| (vec![frame], false));
        let change = Arc::new(Mutex::new(nothing));
        let (all_seen, all_changed) = (seen.clone(), change.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let node = TcpStream::connect(node).await.unwrap();
                client.set_nodelay(true).unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_node, to_node) = node.into_split();
                tokio::spawn(pass(from_client, to_node));
                tokio::spawn(tamper(from_node, to_client, all_seen.clone(), all_changed.lock().clone()));
            }
        });
        Middle { address, seen, change }
    }

    pub fn url(&self) -> PoolUrl {
        format!("farpool://{}", self.address).parse().unwrap()
    }

    /// Sets the changes for frames of connections that begin from now on.
    pub fn change(&self, change: impl Fn(usize, Vec<u8>) -> (Vec<Vec<u8>>, bool) + Send + Sync + 'static) {
        *self.change.lock() = Arc::new(change);
    }

    /// Returns whether the node has sent these bytes since the last call of [`Middle::forget`].
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        self.seen.lock().concat().windows(bytes.len()).any(|part| part == bytes)
    }

    pub fn forget(&self) {
        self.seen.lock().clear();
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    drop(tokio::io::copy(&mut from, &mut to).await);
}

async fn tamper(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    change: Change,
) {
    let mut buffer = BytesMut::new();
    let mut number = 0;
    let mut is_greeted = false;
    while from.read_buf(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {
        if !is_greeted {
            let Some(welcome) = frame_bytes(buffer.get(PREFACE.len()..).unwrap_or_default()) else {
                continue;
            };
            to.write_all(&buffer.split_to(PREFACE.len() + welcome)).await.unwrap();
            is_greeted = true;
        }
        while let Some(bytes) = frame_bytes(&buffer) {
            let frame = buffer.split_to(bytes).to_vec();
            seen.lock().push(frame.clone());
            let (frames, ends) = change(number, frame);
            number += 1;
            for frame in frames {
                if to.write_all(&frame).await.is_err() {
                    return;
                }
            }
            if ends {
                return;
            }
        }
    }
}

/// Returns the length of the first frame, if it is complete.
fn frame_bytes(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(..4)?.get_u32_le() as usize + FRAME_HEADER_BYTES;
    (bytes.len() >= length).then_some(length)
}
