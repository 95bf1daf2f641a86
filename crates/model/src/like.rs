//! LIKE patterns of literal pieces with `%` between them: each piece is searched for behind the one before.
//!
//! Taking the first match of each piece is enough: whatever follows a later match also follows the first one.
//! Only the last piece, if no `%` follows it, must match at the end. Arrow's kernel makes a regular
//! expression of such a pattern, which measured at less than half the speed of `memmem`.

use memchr::memmem::Finder;

/// The pieces of a pattern.
#[derive(Clone, Debug)]
pub struct LikePieces {
    /// Prefix of the text.
    start: Vec<u8>,
    /// Pieces that follow the prefix, in this order.
    middle: Vec<Finder<'static>>,
    /// Suffix of the text; `None` for a pattern without `%`, where the text must equal `start`.
    end: Option<Vec<u8>>,
}

impl LikePieces {
    /// Splits `pattern` into pieces; `None` when it has a `_`.
    pub fn of(pattern: &str) -> Option<LikePieces> {
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
        Some(LikePieces { start, middle: middle.collect(), end })
    }

    /// Returns whether the pattern matches the whole of `text`.
    pub fn is_match(&self, text: &[u8]) -> bool {
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

    /// Returns the searched text, if the pattern is a single piece at any position: `%piece%`.
    pub fn anywhere(&self) -> Option<&Finder<'static>> {
        match (&self.start[..], &self.middle[..], &self.end) {
            ([], [finder], Some(end)) if end.is_empty() => Some(finder),
            _ => None,
        }
    }
}
