//! The requests of a client that have come whole.

use farpool_kv::resp::{Limits, Parser, ProtocolError, Step};
use farpool_kv::{Ahead, Keyspace, SpaceId, Upcoming};
use std::ops::{Deref, Range};

/// Requests that are looked at before the first of them is carried out.
const REQUESTS: usize = 64;

/// Arguments of most commands.
const FEW: usize = 8;

/// Requests of a buffer, in their order, from the first that was not carried out.
#[derive(Default)]
pub(super) struct Batch {
    parser: Parser,
    requests: Vec<Waiting>,
    /// The arguments of all.
    arguments: Vec<Range<usize>>,
    /// The request whose turn it is.
    next: usize,
    /// Bytes of the buffer that all of them take.
    bytes: usize,
    /// What is behind them, if it is no request.
    broken: Option<ProtocolError>,
}

struct Waiting {
    arguments: Range<usize>,
    ahead: Ahead,
}

impl Batch {
    /// Bytes of memory.
    pub fn bytes_held(&self) -> usize {
        self.arguments.capacity() * size_of::<Range<usize>>()
            + self.requests.capacity() * size_of::<Waiting>()
    }

    /// Whether all of them have been carried out.
    pub fn is_done(&self) -> bool {
        self.next == self.requests.len()
    }

    /// Forgets the requests, which have been carried out, and returns how many bytes of the buffer they take.
    pub fn clear(&mut self) -> usize {
        self.requests.clear();
        self.arguments.clear();
        self.arguments.shrink_to(REQUESTS * FEW);
        self.next = 0;
        std::mem::take(&mut self.bytes)
    }

    /// Looks at the requests at the beginning of the buffer, which is that of the last call without what [`Batch::clear`] said,
    /// and perhaps longer. Returns whether there are some.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] when what is there is no request.
    pub fn fill(
        &mut self,
        buffer: &mut [u8],
        keys: Option<&Keyspace>,
        space: SpaceId,
    ) -> Result<bool, ProtocolError> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        // What a stranger may send depends on what its first request says.
        let (limits, requests_max) =
            if keys.is_some() { (Limits::AUTHENTICATED, REQUESTS) } else { (Limits::UNAUTHENTICATED, 1) };
        while self.requests.len() < requests_max {
            let request = match self.parser.parse(&mut buffer[self.bytes..], &limits) {
                Ok(Step::Request(request)) => request,
                Ok(Step::NeedMore { .. }) => break,
                Err(error) if self.requests.is_empty() => return Err(error),
                Err(error) => {
                    self.broken = Some(error);
                    break;
                }
            };
            let (start, before) = (self.arguments.len(), self.bytes);
            self.bytes += request.bytes;
            // Nothing is replied to an empty one.
            if !request.arguments.is_empty() {
                let places = request.arguments.iter().map(|place| before + place.start..before + place.end);
                self.arguments.extend(places);
                let arguments = start..self.arguments.len();
                self.requests.push(Waiting { arguments, ahead: Ahead::default() });
            }
        }
        if let Some(keys) = keys {
            self.look_ahead(buffer, keys, space);
        }
        Ok(!self.requests.is_empty())
    }

    /// Finds out what is needed for those that have not been carried out, in the keyspace that they go to.
    pub fn look_ahead(&mut self, buffer: &[u8], keys: &Keyspace, space: SpaceId) {
        let mut upcoming = Upcoming::new();
        for Waiting { arguments, ahead } in &mut self.requests[self.next..] {
            let args = Arguments::of(buffer, &self.arguments[arguments.clone()]);
            *ahead = Ahead::of(keys, &args);
            upcoming.add(keys, ahead, &args);
        }
        upcoming.prefetch(keys, space);
    }

    /// Takes the next request.
    pub fn take<'a>(&mut self, buffer: &'a [u8]) -> Option<(Arguments<'a>, Ahead)> {
        let Waiting { arguments, ahead } = self.requests.get(self.next)?;
        self.next += 1;
        Some((Arguments::of(buffer, &self.arguments[arguments.clone()]), *ahead))
    }

    /// Has the request that was taken last be the next one again.
    pub fn put_back(&mut self) {
        self.next -= 1;
    }
}

/// The arguments of a request.
pub(super) enum Arguments<'a> {
    Few([&'a [u8]; FEW], usize),
    Many(Vec<&'a [u8]>),
}

impl<'a> Arguments<'a> {
    fn of(buffer: &'a [u8], places: &[Range<usize>]) -> Self {
        if places.len() > FEW {
            return Arguments::Many(places.iter().map(|place| &buffer[place.clone()]).collect());
        }
        let mut few: [&[u8]; FEW] = [&[]; FEW];
        few.iter_mut().zip(places).for_each(|(argument, place)| *argument = &buffer[place.clone()]);
        Arguments::Few(few, places.len())
    }
}

impl<'a> Deref for Arguments<'a> {
    type Target = [&'a [u8]];

    fn deref(&self) -> &Self::Target {
        match self {
            Arguments::Few(few, count) => &few[..*count],
            Arguments::Many(many) => many,
        }
    }
}
