//! Limits of loads, and of the outcomes of loads that a node remembers.

use super::STREAM_WINDOW_BYTES;

/// Maximum number of outcomes of loads that a node remembers per tenant, so that a client whose connection broke can
/// ask for the outcome of its load. Reason: those of several seconds at a thousand inserts per second. Each takes
/// [`LOAD_OUTCOME_BYTES`] of the working memory.
pub const LOAD_OUTCOMES_MAX: usize = 16 << 10;

/// Bytes that are charged for a remembered outcome of a load, in addition to the text of an error.
pub const LOAD_OUTCOME_BYTES: usize = 256;

/// Maximum bytes of an error's message, and of its advice, that are remembered with the outcome of a load; longer texts
/// are truncated.
pub const LOAD_OUTCOME_TEXT_BYTES_MAX: usize = 1 << 10;

/// Milliseconds after which the outcome of a load is forgotten; newer outcomes may evict it before. Reason: longer than
/// a client tries to reconnect.
pub const LOAD_OUTCOME_MS: u64 = 600_000;

/// Maximum number of requests that may wait for the outcome of one load. Reason: its client asks once, and perhaps
/// again on another connection.
pub const LOAD_OUTCOME_WAITERS_MAX: usize = 64;

/// Maximum bytes of a load that a client buffers until it knows the outcome, so that it can send them again after its
/// connection breaks. Reason: as many as may be in flight without credit.
pub const LOAD_REPEAT_BYTES_MAX: usize = STREAM_WINDOW_BYTES;

/// Maximum number of attempts of a client to send a load, or to ask for its outcome, when connections break; then the
/// caller gets the error.
pub const LOAD_ATTEMPTS_MAX: usize = 3;
