//! Truncated text for messages: a value of any size is formatted only up to the limit.

use crate::limits;
use std::fmt::{self, Write};

/// Formats `value` and returns the first [`limits::DETAIL_CHARS_MAX`] characters, followed by `…` if there are more.
/// Formatting stops at the limit, so that a huge value costs no more.
pub fn brief(value: impl fmt::Display) -> String {
    let mut cut = Cut { text: String::new(), left: limits::DETAIL_CHARS_MAX };
    if write!(cut, "{value}").is_err() {
        cut.text.push('…');
    }
    cut.text
}

/// A writer that returns an error when it is full, which ends the formatting.
struct Cut {
    text: String,
    left: usize,
}

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match text.char_indices().nth(self.left) {
            Some((end, _)) => {
                self.text.push_str(&text[..end]);
                self.left = 0;
                Err(fmt::Error)
            }
            None => {
                self.text.push_str(text);
                self.left -= text.chars().count();
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value whose formatting would never end.
    struct Endless;

    impl fmt::Display for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                f.write_str("äb")?;
            }
        }
    }

    #[test]
    fn text_without_end_is_cut_and_short_text_is_whole() {
        assert_eq!(brief("short"), "short");
        let whole = "ä".repeat(limits::DETAIL_CHARS_MAX);
        assert_eq!(brief(&whole), whole);
        let cut = brief(Endless);
        assert_eq!(cut.chars().count(), limits::DETAIL_CHARS_MAX + 1);
        assert!(cut.ends_with('…'));
    }
}
