//! Limits on loads and on what is remembered of them.

use super::STREAM_WINDOW_BYTES;

/// Outcomes of loads that a node remembers for one tenant, so that a client whose connection broke can ask
/// for its own: those of several seconds at a thousand inserts a second. Each takes [`LOAD_OUTCOME_BYTES`] of
/// the memory for work.
pub const LOAD_OUTCOMES_MAX: usize = 16 << 10;

/// Bytes counted for a remembered outcome of a load, in addition to the text of an error.
pub const LOAD_OUTCOME_BYTES: usize = 256;

/// Bytes of an error's message, and of its advice, that are remembered with an outcome; longer texts are
/// truncated.
pub const LOAD_OUTCOME_TEXT_BYTES_MAX: usize = 1 << 10;

/// Milliseconds for which an outcome is remembered if others do not evict it: longer than a client tries to
/// reconnect.
pub const LOAD_OUTCOME_MS: u64 = 600_000;

/// Requests that may wait for the outcome of one load: its client asks once, and perhaps once more on another
/// connection.
pub const LOAD_OUTCOME_WAITERS_MAX: usize = 64;

/// Bytes of a load that a client keeps until it knows the outcome, so that it can send them again when its
/// connection breaks: as many as may be in flight without credit.
pub const LOAD_REPEAT_BYTES_MAX: usize = STREAM_WINDOW_BYTES;

/// Attempts to send a load whose connection breaks, and to ask for its outcome, before the caller gets the
/// error.
pub const LOAD_ATTEMPTS_MAX: usize = 3;
