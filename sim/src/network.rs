//! The network between engines and the node: connections whose bytes move only when the simulation moves them, in
//! pieces of any size, and which break on demand.

use crate::log::Log;
use crate::random::Random;
use async_trait::async_trait;
use bytes::{Buf, BufMut, BytesMut};
use farpool_transfer::Connector;
use farpool_wire::Socket;
use farpool_wire::socket::{Pipe, pipe};
use parking_lot::Mutex;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// Capacity in bytes of each end of a connection, per direction.
const END_BYTES: usize = 64 << 10;

/// Number of events after which every task of a client has noticed that its connection is broken.
const NOTICE_EVENTS: u64 = 30;

/// All connections between engines and the node.
#[derive(Debug, Default)]
pub struct Network {
    links: Mutex<Vec<Link>>,
}

/// A connection.
#[derive(Debug)]
struct Link {
    ways: [Way; 2],
    /// Records when the connection was cut.
    cuts: Arc<Cuts>,
}

/// One direction of a connection, from one end to the other.
#[derive(Debug)]
struct Way {
    from: Arc<Pipe>,
    to: Arc<Pipe>,
    /// Bytes in flight.
    bytes: BytesMut,
    ended: bool,
}

/// Cuts (breaks) of connections of one engine: the event at which they were last cut, and the event at which they are
/// to be cut next.
#[derive(Debug, Default)]
pub struct Cuts {
    last: Mutex<Option<u64>>,
    due: Mutex<Option<u64>>,
}

impl Cuts {
    /// Returns whether a request made at event `first` or later may have failed because a connection was cut.
    pub fn explain(&self, first: u64) -> bool {
        self.last.lock().is_some_and(|last| last + NOTICE_EVENTS >= first)
    }

    /// Schedules the connections to break at event `step`, or soon after.
    pub fn cut_at(&self, step: u64) {
        *self.due.lock() = Some(step);
    }

    fn is_due(&self, step: u64) -> bool {
        self.due.lock().is_some_and(|due| step >= due)
    }
}

/// Connects one engine to the node.
#[derive(Debug)]
pub struct Dialing {
    /// The network that the connections belong to.
    pub network: Arc<Network>,
    /// Channel through which the node accepts connections.
    pub sockets: UnboundedSender<Arc<dyn Socket>>,
    /// The cuts of the engine's connections.
    pub cuts: Arc<Cuts>,
}

#[async_trait]
impl Connector for Dialing {
    async fn connect(&self) -> io::Result<Arc<dyn Socket>> {
        let (engine, near) = pipe(END_BYTES);
        let (far, node) = pipe(END_BYTES);
        self.sockets.send(Arc::new(node)).map_err(|_| ErrorKind::ConnectionRefused)?;
        let (near, far) = (Arc::new(near), Arc::new(far));
        let ways = [Way::new(&near, &far), Way::new(&far, &near)];
        self.network.links.lock().push(Link { ways, cuts: self.cuts.clone() });
        Ok(Arc::new(engine))
    }
}

impl Network {
    /// Moves up to `most` bytes on a random connection.
    pub fn pass_some(&self, random: &mut Random, most: usize, log: &mut Log) {
        let mut links = self.links.lock();
        if !links.is_empty() {
            let index = random.below(links.len());
            links[index].ways[random.below(2)].pass(most, log);
        }
    }

    /// Moves all bytes that can be moved; returns whether there were any.
    pub fn pass_all(&self, log: &mut Log) -> bool {
        let mut links = self.links.lock();
        links.retain(|link| link.ways.iter().any(|way| !way.ended));
        links
            .iter_mut()
            .flat_map(|link| &mut link.ways)
            .fold(false, |any, way| way.pass(usize::MAX, log) | any)
    }

    /// Breaks a random connection at event `step`; its bytes in flight are lost.
    pub fn cut_some(&self, random: &mut Random, step: u64) -> bool {
        let mut links = self.links.lock();
        if links.is_empty() {
            return false;
        }
        let index = random.below(links.len());
        *links.swap_remove(index).cuts.last.lock() = Some(step);
        true
    }

    /// Breaks the connections that are due by event `step`; returns their number.
    pub fn cut_due(&self, step: u64) -> usize {
        let mut links = self.links.lock();
        let (due, left): (Vec<Link>, Vec<Link>) = links.drain(..).partition(|link| link.cuts.is_due(step));
        *links = left;
        for link in &due {
            *link.cuts.last.lock() = Some(step);
            *link.cuts.due.lock() = None;
        }
        due.len()
    }
}

impl Way {
    fn new(from: &Arc<Pipe>, to: &Arc<Pipe>) -> Self {
        Way { from: from.clone(), to: to.clone(), bytes: BytesMut::new(), ended: false }
    }

    /// Moves up to `most` bytes; returns whether any bytes, or the end of the stream, were moved.
    fn pass(&mut self, most: usize, log: &mut Log) -> bool {
        if self.ended {
            return false;
        }
        let taken = self.take(most);
        let count = self.bytes.len().min(most);
        if count == 0 {
            return taken;
        }
        match self.to.try_write_vectored(&[IoSlice::new(&self.bytes[..count])]) {
            Ok(written) => {
                log.bytes(&self.bytes[..written]);
                self.bytes.advance(written);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            // The reader is gone; the sender learns that from the other direction.
            Err(_) => {
                self.bytes.clear();
                false
            }
        }
    }

    /// Takes up to `most` bytes from the sender's end, once the bytes taken before have been delivered.
    fn take(&mut self, most: usize) -> bool {
        if !self.bytes.is_empty() {
            return false;
        }
        self.bytes.reserve(END_BYTES);
        match self.from.try_read(&mut (&mut self.bytes).limit(most.min(END_BYTES))) {
            Ok(0) => {
                self.ended = true;
                // Ending a pipe cannot fail.
                drop(self.to.end_writing());
                true
            }
            Ok(_) => true,
            Err(_) => false,
        }
    }
}
