//! The requests of a client that have come whole.
//!
//! Invariant: no call does more than a step's work, however long a request is: a request of many arguments is parsed a part at
//! a time, and its arguments are gathered where it is carried out.

use farpool_kv::resp::{Limits, Parser, ProtocolError, Step};
use farpool_kv::{Ahead, Keyspace, SpaceId, Upcoming};
use farpool_model::limits;
use std::ops::{Deref, Range};

/// Requests that are looked at before the first of them is carried out.
const REQUESTS: usize = 64;

/// Arguments of most commands.
const FEW: usize = 8;

/// Arguments from which a request is more than a step's work whatever it is: as `farpool_kv` counts, each is 256 bytes.
const MANY: usize = limits::KV_STEP_WORK_MAX / 256;

/// Bytes that one call parses, beside those of long arguments, which are skipped.
const PARSED_BYTES: usize = limits::KV_STEP_WORK_MAX;

/// Requests of a buffer, in their order, from the first that was not carried out.
#[derive(Default)]
pub(super) struct Batch {
    parser: Parser,
    requests: Vec<Waiting>,
    /// The arguments of all that have few.
    arguments: Vec<Range<usize>>,
    /// The request whose turn it is.
    next: usize,
    /// Bytes of the buffer that all of them take.
    bytes: usize,
    /// Bytes behind them that the parser has seen, and least number of bytes more that it needs.
    seen: usize,
    needed: usize,
    /// What is behind them, if it is no request.
    broken: Option<ProtocolError>,
}

struct Waiting {
    places: Places,
    ahead: Ahead,
}

/// Where the arguments of a request are.
enum Places {
    /// In the buffer at the ranges with these indexes among all.
    Few(Range<usize>),
    /// In the buffer from this offset on, at ranges from there.
    Many(usize, Vec<Range<usize>>),
}

/// Outcome of [`Batch::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// There are requests.
    Some,
    /// The first request has come in part.
    None,
    /// The first request has been parsed in part: call again.
    InPart,
}

impl Batch {
    /// Bytes of memory.
    pub fn bytes_held(&self) -> usize {
        let many = self.requests.iter().map(|waiting| match &waiting.places {
            Places::Few(_) => 0,
            Places::Many(_, places) => places.capacity(),
        });
        let ranges = self.arguments.capacity() + self.parser.arguments().len() + many.sum::<usize>();
        ranges * size_of::<Range<usize>>() + self.requests.capacity() * size_of::<Waiting>()
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
    /// and perhaps longer.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] when what is there is no request.
    pub fn fill(
        &mut self,
        buffer: &mut [u8],
        keys: Option<&Keyspace>,
        space: SpaceId,
    ) -> Result<Filled, ProtocolError> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        // What a stranger may send depends on what its first request says.
        let (limits, requests_max) =
            if keys.is_some() { (Limits::AUTHENTICATED, REQUESTS) } else { (Limits::UNAUTHENTICATED, 1) };
        let (mut left, mut is_in_part) = (PARSED_BYTES, false);
        while self.requests.len() < requests_max && left > 0 {
            let shown = buffer.len().min(self.bytes + self.seen + left.max(self.needed));
            let (bytes, count) = match self.parser.parse(&mut buffer[self.bytes..shown], &limits) {
                Ok(Step::Request(request)) => (request.bytes, request.arguments.len()),
                Ok(Step::NeedMore { bytes }) => {
                    (self.seen, self.needed) = (shown - self.bytes, bytes);
                    is_in_part = shown < buffer.len();
                    break;
                }
                Err(error) if self.requests.is_empty() => return Err(error),
                Err(error) => {
                    self.broken = Some(error);
                    break;
                }
            };
            left = left.saturating_sub(bytes - self.seen.min(bytes));
            (self.seen, self.needed) = (0, 0);
            self.push(bytes, count);
        }
        if let Some(keys) = keys {
            self.look_ahead(buffer, keys, space);
        }
        Ok(match self.requests.is_empty() {
            false => Filled::Some,
            true if is_in_part || left == 0 => Filled::InPart,
            true => Filled::None,
        })
    }

    /// Adds the request that was parsed, of so many bytes and arguments.
    fn push(&mut self, bytes: usize, count: usize) {
        let before = self.bytes;
        self.bytes += bytes;
        let places = match count {
            // Nothing is replied to an empty one.
            0 => return,
            count if count > MANY => Places::Many(before, self.parser.take_arguments()),
            _ => {
                let start = self.arguments.len();
                let places = self.parser.arguments().iter();
                self.arguments.extend(places.map(|place| before + place.start..before + place.end));
                Places::Few(start..self.arguments.len())
            }
        };
        self.requests.push(Waiting { places, ahead: Ahead::default() });
    }

    /// Finds out what is needed for those that have not been carried out, in the keyspace that they go to.
    pub fn look_ahead(&mut self, buffer: &[u8], keys: &Keyspace, space: SpaceId) {
        let mut upcoming = Upcoming::new();
        for Waiting { places, ahead } in &mut self.requests[self.next..] {
            let args = match places {
                Places::Few(places) => Arguments::of(buffer, &self.arguments[places.clone()]),
                Places::Many(from, places) => Arguments::of(&buffer[*from..], &places[..FEW]),
            };
            *ahead = Ahead::of(keys, &args);
            upcoming.add(keys, ahead, &args);
        }
        upcoming.prefetch(keys, space);
    }

    /// Whether the next request has so many arguments that it is long whatever it is.
    pub fn is_next_long(&self) -> bool {
        self.requests.get(self.next).is_some_and(|waiting| matches!(waiting.places, Places::Many(..)))
    }

    /// Takes the next request.
    pub fn take<'a>(&mut self, buffer: &'a [u8]) -> Option<(Arguments<'a>, Ahead)> {
        let Waiting { places, ahead } = self.requests.get(self.next)?;
        self.next += 1;
        let arguments = match places {
            Places::Few(places) => Arguments::of(buffer, &self.arguments[places.clone()]),
            Places::Many(from, places) => Arguments::of(&buffer[*from..], places),
        };
        Some((arguments, *ahead))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arguments: usize, bytes: usize) -> Vec<u8> {
        let argument = format!("${bytes}\r\n{}\r\n", "x".repeat(bytes));
        format!("*{arguments}\r\n{}", argument.repeat(arguments)).into_bytes()
    }

    fn keys() -> Keyspace {
        let config = farpool_memory::PoolConfig { bytes_limit: 8 << 20 };
        let pool = farpool_memory::Pool::new(config).unwrap();
        Keyspace::new(&pool, &farpool_model::TenantName::default(), [3; 16], 4)
    }

    /// Requests of many and of long arguments, all of which have come: each call parses a part.
    #[test]
    fn a_call_parses_no_more_than_a_step() {
        let keys = keys();
        let sizes = [(3, 5), (100_000, 1), (2, 1_000_000), (1, 3), (MANY, 2), (MANY + 1, 2), (200_000, 3)];
        let mut buffer: Vec<u8> = sizes.iter().flat_map(|(count, bytes)| request(*count, *bytes)).collect();
        let (mut batch, mut found, mut calls) = (Batch::default(), Vec::new(), 0);
        loop {
            buffer.drain(..batch.clear());
            let before = batch.parser.arguments().len();
            let filled = batch.fill(&mut buffer, Some(&keys), 0).unwrap();
            calls += 1;
            let parsed = batch.parser.arguments().len().saturating_sub(before);
            assert!(parsed <= PARSED_BYTES / 7 + 1, "{parsed} arguments in a call");
            while let Some(is_long) = (!batch.is_done()).then(|| batch.is_next_long()) {
                let (args, _) = batch.take(&buffer).unwrap();
                assert_eq!(is_long, args.len() > MANY);
                assert!(args.iter().all(|argument| argument.iter().all(|byte| *byte == b'x')));
                found.push((args.len(), args[0].len()));
            }
            match filled {
                Filled::Some | Filled::InPart => {}
                Filled::None => break,
            }
        }
        assert_eq!(found, sizes);
        let whole: usize = 100_000 * 7 + 200_000 * 9;
        assert!(buffer.is_empty() && calls >= whole / PARSED_BYTES, "{calls}");
    }
}
