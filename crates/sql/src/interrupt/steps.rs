//! Limits the number of steps of the parser. If a text is ambiguous, the parser tries alternatives one after the other,
//! and again in each enclosing bracket. For a text that is invalid or too deep in its innermost bracket, the time
//! therefore doubles with each bracket.

use super::check;
use datafusion::sql::sqlparser::parser::ParserError;
use farpool_model::limits;
use std::cell::Cell;

/// Number of steps between two checks of whether the statement was stopped.
const CHECKED: usize = 256;

thread_local! {
    /// Number of steps that the parser may still take for the text that this thread is parsing.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Runs `parse` on a text of `bytes` bytes, with a limit for the parser's steps that depends on `bytes`.
pub fn bounded<T>(bytes: usize, parse: impl FnOnce() -> T) -> T {
    let steps = limits::SQL_PARSE_STEPS_PER_BYTE_MAX.saturating_mul(bytes.max(limits::SQL_DEPTH_MAX));
    let before = LEFT.replace(steps);
    let parsed = parse();
    LEFT.set(before);
    parsed
}

/// Counts a step of the parser.
///
/// # Errors
/// Fails if there were too many steps, or the statement was stopped. After that, each further step fails as well, so
/// that the parser ends.
pub fn step() -> Result<(), ParserError> {
    let left = LEFT.get().saturating_sub(1);
    if left == 0 || (left.is_multiple_of(CHECKED) && check().is_err()) {
        LEFT.set(1);
        return Err(ParserError::RecursionLimitExceeded);
    }
    LEFT.set(left);
    Ok(())
}
