//! A batch: the complete requests in a client's receive buffer, parsed and not executed yet.
//!
//! Invariant: no call takes longer than a step (some ten microseconds), however long a request is, so that other
//! clients of the thread need not wait. A request with many arguments is parsed in several calls, and its arguments are
//! collected by the thread that executes it.

use farpool_kv::resp::{Parser, ParserLimits, ProtocolError, Step};
use farpool_kv::{Keyspace, LookAhead, PrefetchList, SpaceId};
use farpool_model::limits;
use std::ops::{Deref, Range};

/// Maximum number of requests that are parsed before the first of them is executed.
const REQUESTS: usize = 64;

/// Maximum number of arguments of usual commands.
const FEW: usize = 8;

/// Number of arguments above which any request takes longer than a step, because `farpool_kv` counts each as at least
/// 256 bytes of work.
const MANY: usize = limits::KV_STEP_WORK_MAX / 256;

/// Maximum bytes parsed per call, without long arguments, which are skipped and not read.
const PARSED_BYTES: usize = limits::KV_STEP_WORK_MAX;

/// Parsed requests, in the order of their arrival.
#[derive(Default)]
pub(super) struct Batch {
    parser: Parser,
    requests: Vec<PendingRequest>,
    /// Ranges in the buffer of the arguments of all requests with few arguments.
    arguments: Vec<Range<usize>>,
    /// Index of the next request to execute.
    next: usize,
    /// Number of bytes at the beginning of the buffer that the parsed requests occupy.
    bytes: usize,
    /// Number of bytes after the parsed requests that the parser has seen; the next field is the minimum number of
    /// further bytes that it needs.
    seen: usize,
    needed: usize,
    /// The protocol error after the parsed requests, if there is one.
    broken: Option<ProtocolError>,
}

struct PendingRequest {
    argument_ranges: ArgumentRanges,
    ahead: LookAhead,
}

/// Positions of the arguments of a request in the buffer.
enum ArgumentRanges {
    /// Indexes into [`Batch::arguments`], whose ranges refer to the buffer.
    Few(Range<usize>),
    /// The offset of the request in the buffer, and the ranges of its arguments relative to that offset. For requests
    /// with many arguments.
    Many(usize, Vec<Range<usize>>),
}

/// The outcome of [`Batch::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillOutcome {
    /// The batch has at least one complete request to execute.
    Some,
    /// The first request is incomplete: more bytes must be received.
    None,
    /// The first request has been parsed in part, to keep the call short; the caller must call again.
    InPart,
}

impl Batch {
    /// Returns the bytes of memory that the batch takes, without the buffer.
    pub fn bytes_held(&self) -> usize {
        let many = self.requests.iter().map(|waiting| match &waiting.argument_ranges {
            ArgumentRanges::Few(_) => 0,
            ArgumentRanges::Many(_, argument_ranges) => argument_ranges.capacity(),
        });
        let ranges = self.arguments.capacity() + self.parser.arguments().len() + many.sum::<usize>();
        ranges * size_of::<Range<usize>>() + self.requests.capacity() * size_of::<PendingRequest>()
    }

    /// Returns whether all requests have been executed.
    pub fn is_done(&self) -> bool {
        self.next == self.requests.len()
    }

    /// Clears the batch, all of whose requests were executed; returns the number of bytes to remove from the buffer.
    pub fn clear(&mut self) -> usize {
        self.requests.clear();
        self.arguments.clear();
        self.arguments.shrink_to(REQUESTS * FEW);
        self.next = 0;
        std::mem::take(&mut self.bytes)
    }

    /// Parses the requests at the start of the buffer. The buffer must be that of the last call, without the bytes
    /// returned by [`Batch::clear`], and may have grown.
    ///
    /// # Errors
    /// Returns [`ProtocolError`] when the bytes are not a request.
    pub fn fill(
        &mut self,
        buffer: &mut [u8],
        keys: Option<&Keyspace>,
        space: SpaceId,
    ) -> Result<FillOutcome, ProtocolError> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        // Before authentication, limits may change with each request, so requests are parsed one at a time.
        let (limits, requests_max) = if keys.is_some() {
            (ParserLimits::AUTHENTICATED, REQUESTS)
        } else {
            (ParserLimits::UNAUTHENTICATED, 1)
        };
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
            false => FillOutcome::Some,
            true if is_in_part || left == 0 => FillOutcome::InPart,
            true => FillOutcome::None,
        })
    }

    /// Adds a parsed request of `bytes` bytes with `count` arguments.
    fn push(&mut self, bytes: usize, count: usize) {
        let before = self.bytes;
        self.bytes += bytes;
        let argument_ranges = match count {
            // An empty request is skipped, because it gets no reply.
            0 => return,
            count if count > MANY => ArgumentRanges::Many(before, self.parser.take_arguments()),
            _ => {
                let start = self.arguments.len();
                let argument_ranges = self.parser.arguments().iter();
                self.arguments.extend(argument_ranges.map(|place| before + place.start..before + place.end));
                ArgumentRanges::Few(start..self.arguments.len())
            }
        };
        self.requests.push(PendingRequest { argument_ranges, ahead: LookAhead::default() });
    }

    /// Looks up the commands and hashes the keys of the requests not executed yet, and prefetches the memory of the
    /// keys in `keys`.
    pub fn look_ahead(&mut self, buffer: &[u8], keys: &Keyspace, space: SpaceId) {
        let mut upcoming = PrefetchList::new();
        for PendingRequest { argument_ranges, ahead } in &mut self.requests[self.next..] {
            let args = match argument_ranges {
                ArgumentRanges::Few(argument_ranges) => {
                    Arguments::of(buffer, &self.arguments[argument_ranges.clone()])
                }
                ArgumentRanges::Many(from, argument_ranges) => {
                    Arguments::of(&buffer[*from..], &argument_ranges[..FEW])
                }
            };
            *ahead = LookAhead::of(keys, &args);
            upcoming.add(keys, ahead, &args);
        }
        upcoming.prefetch(keys, space);
    }

    /// Returns whether the next request has so many arguments that it takes longer than a step, whatever its command
    /// is.
    pub fn is_next_long(&self) -> bool {
        self.requests
            .get(self.next)
            .is_some_and(|waiting| matches!(waiting.argument_ranges, ArgumentRanges::Many(..)))
    }

    /// Takes the next request: returns its arguments and what the look-ahead has found; `None` if all requests were
    /// executed.
    pub fn take<'a>(&mut self, buffer: &'a [u8]) -> Option<(Arguments<'a>, LookAhead)> {
        let PendingRequest { argument_ranges, ahead } = self.requests.get(self.next)?;
        self.next += 1;
        let arguments = match argument_ranges {
            ArgumentRanges::Few(argument_ranges) => {
                Arguments::of(buffer, &self.arguments[argument_ranges.clone()])
            }
            ArgumentRanges::Many(from, argument_ranges) => Arguments::of(&buffer[*from..], argument_ranges),
        };
        Some((arguments, *ahead))
    }

    /// Makes the request taken last the next one again.
    pub fn put_back(&mut self) {
        self.next -= 1;
    }
}

/// The arguments of a request, few of them or many.
pub(super) enum Arguments<'a> {
    Few([&'a [u8]; FEW], usize),
    Many(Vec<&'a [u8]>),
}

impl<'a> Arguments<'a> {
    fn of(buffer: &'a [u8], argument_ranges: &[Range<usize>]) -> Self {
        if argument_ranges.len() > FEW {
            return Arguments::Many(argument_ranges.iter().map(|place| &buffer[place.clone()]).collect());
        }
        let mut few: [&[u8]; FEW] = [&[]; FEW];
        few.iter_mut().zip(argument_ranges).for_each(|(argument, place)| *argument = &buffer[place.clone()]);
        Arguments::Few(few, argument_ranges.len())
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

    /// Parses complete requests with many or with long arguments, of which each call must parse only a part.
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
                FillOutcome::Some | FillOutcome::InPart => {}
                FillOutcome::None => break,
            }
        }
        assert_eq!(found, sizes);
        let whole: usize = 100_000 * 7 + 200_000 * 9;
        assert!(buffer.is_empty() && calls >= whole / PARSED_BYTES, "{calls}");
    }
}
