//! Regular expressions.
//!
//! The dialect is that of the `regex` crate, which Arrow's kernels use as well, so that a match here is a match
//! in the engines above. Invariant: a [`Pattern`] is sound and small enough to run anywhere; what is not is
//! refused where it is first met. Matching takes time in proportion to the text, whatever the pattern.

use crate::{Error, Result, limits};
use regex::{Regex, RegexBuilder};

/// A regular expression, compiled.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    case_insensitive: bool,
    regex: Regex,
}

impl Pattern {
    /// Compiles a regular expression, which need not match from the start of a text nor up to its end.
    ///
    /// # Errors
    /// `Invalid` when it is none; `OverLimit` when it is too long, or too large once compiled.
    pub fn new(text: &str, case_insensitive: bool) -> Result<Pattern> {
        if text.len() > limits::PATTERN_BYTES_MAX {
            return Err(Error::over_limit(format!(
                "a regular expression may have {} bytes, this one has {}",
                limits::PATTERN_BYTES_MAX,
                text.len()
            )));
        }
        // As Arrow puts the flag.
        let whole = if case_insensitive { format!("(?i){text}") } else { text.to_string() };
        let regex = RegexBuilder::new(&whole).size_limit(limits::REGEX_BYTES_MAX).build().map_err(refused)?;
        Ok(Pattern { text: text.to_string(), case_insensitive, regex })
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether letters match whatever their case.
    pub fn is_case_insensitive(&self) -> bool {
        self.case_insensitive
    }

    /// Whether it matches anywhere in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        (&self.text, self.case_insensitive) == (&other.text, other.case_insensitive)
    }
}

fn refused(error: regex::Error) -> Error {
    match error {
        regex::Error::CompiledTooBig(_) => Error::over_limit(format!(
            "a regular expression may take {} bytes once compiled, this one takes more",
            limits::REGEX_BYTES_MAX
        )),
        other => Error::invalid(format!("a regular expression that is none: {other}")),
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
