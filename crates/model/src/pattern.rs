//! Regular expressions, in the dialect of the `regex` crate. Arrow's kernels use it, too, so that a match here is a
//! match in query engines.
//!
//! Invariant: a [`Pattern`] is valid and small enough to run anywhere; others are refused on creation. Matching takes
//! time proportional to the text, whatever the pattern.

use crate::{Error, Result, limits};
use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;
use std::sync::Arc;

/// A regular expression, compiled.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Arc<str>,
    case_insensitive: bool,
    regex: Regex,
}

/// Bytes that are charged for each character of a compiled LIKE pattern, because `_` is any character of Unicode, and
/// patterns are compiled for matching forwards and backwards.
const LIKE_CHAR_BYTES: usize = 1 << 10;

/// Bytes of automaton states that a thread usually caches for a compiled LIKE pattern.
const LIKE_CACHE_BYTES: usize = 64 << 10;

/// Bytes of the searcher for one literal piece of a LIKE pattern.
const LIKE_PIECE_BYTES: usize = 512;

impl Pattern {
    /// Compiles a regular expression, which may match anywhere in a text.
    ///
    /// # Errors
    /// `Invalid` if it is not a regular expression; `OverLimit` if it is too long, or too large after compilation.
    pub fn new(text: &str, case_insensitive: bool) -> Result<Pattern> {
        if text.len() > limits::PATTERN_BYTES_MAX {
            return Err(Error::over_limit(format!(
                "a regular expression may have {} bytes, this one has {}",
                limits::PATTERN_BYTES_MAX,
                text.len()
            )));
        }
        let regex = compile(text, case_insensitive)?;
        Ok(Pattern { text: text.into(), case_insensitive, regex })
    }

    /// Compiles a LIKE pattern, which must match a whole text.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub fn like(pattern: &str, case_insensitive: bool) -> Result<Pattern> {
        let text = Pattern::regex_of_like(pattern);
        let regex = compile(&text, case_insensitive)?;
        Ok(Pattern { text: text.into(), case_insensitive, regex })
    }

    /// Translates a LIKE pattern to a regular expression that must match a whole text.
    pub fn regex_of_like(pattern: &str) -> String {
        let mut regex = String::from("(?s)\\A");
        let mut chars = pattern.chars();
        let mut buffer = [0; 4];
        let mut exactly = |c: char| regex::escape(c.encode_utf8(&mut buffer));
        while let Some(c) = chars.next() {
            match c {
                '%' => regex.push_str(".*"),
                '_' => regex.push('.'),
                // A backslash at the end stands for itself.
                '\\' => regex.push_str(&exactly(chars.next().unwrap_or('\\'))),
                other => regex.push_str(&exactly(other)),
            }
        }
        regex.push_str("\\z");
        regex
    }

    /// Returns the bytes of the compiled pattern, including the states that a thread caches while it matches.
    pub fn bytes(&self) -> usize {
        self.compiled_bytes() + limits::PATTERN_CACHE_BYTES_MAX
    }

    /// Returns the bytes of the compiled pattern, without the states that a thread caches while it matches.
    pub fn compiled_bytes(&self) -> usize {
        self.text.len() + self.regex.memory_usage()
    }

    /// Returns an upper bound of the bytes of a prepared LIKE pattern, whether it is prepared as substring searchers
    /// for its literal pieces or compiled to a regular expression.
    pub fn like_bytes(pattern: &str, case_insensitive: bool) -> usize {
        if case_insensitive || pattern.contains('_') {
            return pattern.len() * LIKE_CHAR_BYTES + LIKE_CACHE_BYTES;
        }
        pattern.len() + LIKE_PIECE_BYTES * pattern.bytes().filter(|byte| *byte == b'%').count()
    }

    /// Returns the text of the regular expression.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether letters match in either case.
    pub fn is_case_insensitive(&self) -> bool {
        self.case_insensitive
    }

    /// Returns whether the pattern matches anywhere in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        (&self.text, self.case_insensitive) == (&other.text, other.case_insensitive)
    }
}

fn compile(text: &str, case_insensitive: bool) -> Result<Regex> {
    let config = Config::new()
        .nfa_size_limit(Some(limits::REGEX_BYTES_MAX))
        .onepass(false)
        .hybrid_cache_capacity(limits::PATTERN_CACHE_BYTES_MAX)
        // Only whether there is a match matters, so that no capture groups are compiled.
        .which_captures(WhichCaptures::None);
    let syntax = syntax::Config::new().case_insensitive(case_insensitive);
    Regex::builder().configure(config).syntax(syntax).build(text).map_err(|error| refused(&error))
}

fn refused(error: &BuildError) -> Error {
    match error.size_limit() {
        Some(_) => Error::over_limit(format!(
            "a regular expression may take {} bytes once compiled, this one takes more",
            limits::REGEX_BYTES_MAX
        )),
        None => {
            let reason = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
            Error::invalid(format!("a regular expression that is none: {reason}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn what_is_too_large_or_no_expression_is_refused() {
        let kind = |text: &str| Pattern::new(text, false).map_err(|error| error.kind).err();
        assert_eq!(kind("^a(b|c)+$"), None);
        assert_eq!(kind("a("), Some(ErrorKind::Invalid));
        assert_eq!(kind(r"(\w{100}){100}{100}"), Some(ErrorKind::OverLimit));
        assert_eq!(kind(&"a".repeat(limits::PATTERN_BYTES_MAX + 1)), Some(ErrorKind::OverLimit));
    }

    #[test]
    fn matches_are_not_anchored_and_heed_the_case_only_if_asked() {
        let is_match =
            |text, case_insensitive, value| Pattern::new(text, case_insensitive).unwrap().is_match(value);
        assert!(is_match("b+", false, "abbc") && !is_match("B", false, "abc") && is_match("B", true, "abc"));
        assert!(is_match("", true, "") && is_match("^é$", false, "é") && !is_match("a.b", false, "a\nb"));
    }
}
