//! LIKE patterns of literal pieces with `%` between them: each piece is searched for behind the one before.
//!
//! Taking the first match of each piece is enough: whatever follows a later match also follows the first one.
//! Only the last piece, if no `%` follows it, must match at the end. Arrow's kernel makes a regular
//! expression of such a pattern, which measured at less than half the speed of `memmem`.

use memchr::memmem::Finder;

/// The pieces of a pattern.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    /// Prefix of the text.
    start: Vec<u8>,
    /// Pieces that follow the prefix, in this order.
    middle: Vec<Finder<'static>>,
    /// Suffix of the text; `None` for a pattern without `%`, where the text must equal `start`.
    end: Option<Vec<u8>>,
}

impl Pieces {
    /// Splits `pattern` into pieces; `None` when it has a `_`.
    pub(super) fn of(pattern: &str) -> Option<Pieces> {
        let mut pieces = vec![String::new()];
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            let last = pieces.last_mut().expect("there is one from the start");
            match c {
                '_' => return None,
                '%' => pieces.push(String::new()),
                // A backslash at the end stands for itself.
                '\\' => last.push(chars.next().unwrap_or('\\')),
                other => last.push(other),
            }
        }
        let mut pieces = pieces.into_iter().map(String::into_bytes);
        let start = pieces.next()?;
        let end = pieces.next_back();
        let middle = pieces.filter(|piece| !piece.is_empty()).map(|piece| Finder::new(&piece).into_owned());
        Some(Pieces { start, middle: middle.collect(), end })
    }

    /// Whether the pattern matches the whole of `text`.
    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        let Some(mut rest) = text.strip_prefix(&self.start[..]) else { return false };
        let Some(end) = &self.end else { return rest.is_empty() };
        for finder in &self.middle {
            match finder.find(rest) {
                Some(place) => rest = &rest[place + finder.needle().len()..],
                None => return false,
            }
        }
        rest.ends_with(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Scalar, StringViewArray};

    #[test]
    fn pieces_match_as_arrow_does() {
        let texts =
            ["", "a", "ab", "aab", "abab", "axbxab", "b", "%", "a%b", "é", "aéb", "a\\", "ab\nab", "aaa"];
        let parts = ["", "a", "b", "ab", "%", "%%", "\\%", "\\a", "é", "\\"];
        let array = StringViewArray::from(texts.to_vec());
        for (x, y, z) in parts.iter().flat_map(|x| parts.iter().flat_map(move |y| parts.map(|z| (x, y, z)))) {
            for pattern in [format!("{x}{y}{z}"), format!("%{x}%{y}%{z}"), format!("{x}%{y}%{z}%")] {
                let scalar = Scalar::new(StringViewArray::from(vec![pattern.as_str()]));
                let expected = arrow_string::like::like(&array, &scalar).unwrap();
                let pieces = Pieces::of(&pattern).unwrap();
                for (row, text) in texts.iter().enumerate() {
                    assert_eq!(
                        pieces.is_match(text.as_bytes()),
                        expected.value(row),
                        "{text} LIKE {pattern}"
                    );
                }
            }
        }
        assert!(Pieces::of("a_b").is_none() && Pieces::of("a\\_b").is_some());
    }
}
