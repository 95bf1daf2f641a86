//! The network between engines and the node: connections through which bytes pass when the simulation lets them,
//! cut anywhere, and which break when it says so.

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

/// Bytes that an end holds in each direction.
const END_BYTES: usize = 64 << 10;

/// Events after which every task of a client knows that its connection has broken.
const NOTICE_EVENTS: u64 = 30;

/// See the file's comment.
#[derive(Debug, Default)]
pub struct Network {
    links: Mutex<Vec<Link>>,
}

/// A connection.
#[derive(Debug)]
struct Link {
    ways: [Way; 2],
    /// Where it is noted that it was cut.
    cuts: Arc<Cuts>,
}

/// One direction of a connection.
#[derive(Debug)]
struct Way {
    from: Arc<Pipe>,
    to: Arc<Pipe>,
    /// Bytes under way.
    bytes: BytesMut,
    ended: bool,
}

/// When connections of one engine were cut last, if one was, and when the next ones are to be.
#[derive(Debug, Default)]
pub struct Cuts {
    last: Mutex<Option<u64>>,
    due: Mutex<Option<u64>>,
}

impl Cuts {
    /// Whether a request since event `first` may have failed for it.
    pub fn explain(&self, first: u64) -> bool {
        self.last.lock().is_some_and(|last| last + NOTICE_EVENTS >= first)
    }

    /// Has the connections break at event `step`, or soon after.
    pub fn cut_at(&self, step: u64) {
        *self.due.lock() = Some(step);
    }

    fn is_due(&self, step: u64) -> bool {
        self.due.lock().is_some_and(|due| step >= due)
    }
}

/// How one engine connects.
#[derive(Debug)]
pub struct Dialing {
    /// What its connections are part of.
    pub network: Arc<Network>,
    /// Where the node takes connections from.
    pub sockets: UnboundedSender<Arc<dyn Socket>>,
    /// When they were cut.
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
    /// Lets up to `most` bytes pass on some connection.
    pub fn pass_some(&self, random: &mut Random, most: usize, log: &mut Log) {
        let mut links = self.links.lock();
        if !links.is_empty() {
            let index = random.below(links.len());
            links[index].ways[random.below(2)].pass(most, log);
        }
    }

    /// Lets all bytes pass that can; true when any could.
    pub fn pass_all(&self, log: &mut Log) -> bool {
        let mut links = self.links.lock();
        links.retain(|link| link.ways.iter().any(|way| !way.ended));
        links
            .iter_mut()
            .flat_map(|link| &mut link.ways)
            .fold(false, |any, way| way.pass(usize::MAX, log) | any)
    }

    /// Breaks a connection at event `step`: what is under way is lost.
    pub fn cut_some(&self, random: &mut Random, step: u64) -> bool {
        let mut links = self.links.lock();
        if links.is_empty() {
            return false;
        }
        let index = random.below(links.len());
        *links.swap_remove(index).cuts.last.lock() = Some(step);
        true
    }

    /// Breaks the connections that are to break by event `step`; how many.
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

    /// Moves up to `most` bytes; true when any moved, or the end of them.
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
            // Nobody is there any more to read them; whoever sends them learns it from the other direction.
            Err(_) => {
                self.bytes.clear();
                false
            }
        }
    }

    /// Takes up to `most` bytes out of the sender's end, once those before are through.
    fn take(&mut self, most: usize) -> bool {
        if !self.bytes.is_empty() {
            return false;
        }
        self.bytes.reserve(END_BYTES);
        match self.from.try_read(&mut (&mut self.bytes).limit(most.min(END_BYTES))) {
            Ok(0) => {
                self.ended = true;
                // The other end of a pipe can always be told.
                drop(self.to.end_writing());
                true
            }
            Ok(_) => true,
            Err(_) => false,
        }
    }
}
