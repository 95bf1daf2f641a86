//! Glob patterns of `KEYS` and `SCAN`: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a character that is taken literally.
//!
//! A pattern is compiled once per command and is matched in linear time, without backtracking, so that no client can
//! occupy a thread with a pattern. The stars divide the pattern into segments. The first and the last segment are
//! compared with the beginning and the end of the text; for each other segment, the leftmost match after the match of
//! the previous segment is searched. Long segments are searched bit-parallel (Shift-And; Baeza-Yates and Gonnet, CACM
//! 35(10), 1992), so that a byte of a key takes at most `KV_PATTERN_ELEMENTS_MAX / 64` operations on words, however
//! often the segment could match.

use super::Refusal;
use farpool_model::limits::{KV_PATTERN_BYTES_MAX, KV_PATTERN_ELEMENTS_MAX};

/// Maximum number of elements of a segment that is compared at each position. For such short segments, building the
/// masks of the bit-parallel search would take longer.
const COMPARED: usize = 4;

/// Number of different values of a byte.
const BYTES: usize = 256;

/// A compiled glob pattern, of `KEYS` or the option `MATCH`.
#[derive(Clone, Debug)]
pub struct Pattern {
    first: Vec<Element>,
    /// The segments between two stars.
    middle: Vec<Segment>,
    /// The segment after the last star; `None` if the pattern has no star.
    last: Option<Vec<Element>>,
    /// Minimum length in bytes of a text that matches.
    least: usize,
    /// Maximum number of operations on words per byte of a text.
    words: usize,
}

/// Work of compiling one byte of a pattern, in units of `KV_STEP_WORK_MAX`: about 20 ns.
const COMPILED: usize = 64;

/// An element of a pattern: a condition on one byte of the text.
#[derive(Clone, Debug)]
enum Element {
    Any,
    Byte(u8),
    /// A set such as `[a-c]`: one bit per value of a byte.
    Class(Box<[u64; 4]>),
}

#[derive(Clone, Debug)]
enum Segment {
    /// A short segment, compared at each position.
    Short(Vec<Element>),
    /// A long segment, with a mask per byte value whose bits say which elements match this byte.
    Masked { elements: usize, words: usize, masks: Box<[u64]> },
}

impl Element {
    fn matches(&self, byte: u8) -> bool {
        match self {
            Element::Any => true,
            Element::Byte(own) => *own == byte,
            Element::Class(bits) => bits[usize::from(byte) / 64] >> (byte % 64) & 1 == 1,
        }
    }
}

fn all_match(elements: &[Element], text: &[u8]) -> bool {
    elements.iter().zip(text).all(|(element, byte)| element.matches(*byte))
}

impl Segment {
    fn of(elements: Vec<Element>) -> Segment {
        if elements.len() <= COMPARED {
            return Segment::Short(elements);
        }
        let words = elements.len().div_ceil(64);
        let mut masks = vec![0; BYTES * words].into_boxed_slice();
        for (at, element) in elements.iter().enumerate() {
            let mut set = |byte: u8| masks[usize::from(byte) * words + at / 64] |= 1 << (at % 64);
            match element {
                Element::Byte(byte) => set(*byte),
                Element::Any | Element::Class(_) => {
                    (0..=u8::MAX).filter(|byte| element.matches(*byte)).for_each(set);
                }
            }
        }
        Segment::Masked { elements: elements.len(), words, masks }
    }

    /// Returns the position in `text` after the leftmost match of the segment; `None` if there is no match.
    fn find_end(&self, text: &[u8]) -> Option<usize> {
        match self {
            Segment::Short(elements) => {
                let windows = text.windows(elements.len());
                windows
                    .enumerate()
                    .find(|(_, part)| all_match(elements, part))
                    .map(|(at, part)| at + part.len())
            }
            Segment::Masked { elements, words: 1, masks } => {
                let (mut state, end) = (0_u64, 1 << (elements - 1));
                text.iter().position(|byte| {
                    state = (state << 1 | 1) & masks[usize::from(*byte)];
                    state & end != 0
                })
            }
            .map(|at| at + 1),
            Segment::Masked { elements, words, masks } => find_end_in_words(text, *elements, *words, masks),
        }
    }

    fn words(&self) -> usize {
        match self {
            Segment::Short(_) => 1,
            Segment::Masked { words, .. } => *words,
        }
    }
}

fn find_end_in_words(text: &[u8], elements: usize, words: usize, masks: &[u64]) -> Option<usize> {
    let mut state = vec![0_u64; words];
    let (end_word, end) = ((elements - 1) / 64, 1_u64 << ((elements - 1) % 64));
    for (at, byte) in text.iter().enumerate() {
        let masks = &masks[usize::from(*byte) * words..][..words];
        let mut carry = 1;
        for (word, mask) in state.iter_mut().zip(masks) {
            let shifted = *word << 1 | carry;
            carry = *word >> 63;
            *word = shifted & mask;
        }
        if state[end_word] & end != 0 {
            return Some(at + 1);
        }
    }
    None
}

impl Pattern {
    /// Compiles a glob pattern.
    ///
    /// # Errors
    /// When the pattern is longer than [`KV_PATTERN_BYTES_MAX`], or has more than [`KV_PATTERN_ELEMENTS_MAX`] elements
    /// in long segments between stars.
    pub fn new(pattern: &[u8]) -> Result<Pattern, Refusal> {
        if pattern.len() > KV_PATTERN_BYTES_MAX {
            let bytes = pattern.len();
            let text =
                format!("ERR a pattern of {bytes} bytes: patterns have at most {KV_PATTERN_BYTES_MAX}");
            return Err(Refusal(text.into()));
        }
        let mut segments = vec![Vec::new()];
        let mut rest = pattern;
        while let Some((element, behind)) = next(rest) {
            // Of several consecutive stars only the first counts, because they match the same texts as one.
            let is_behind_star = segments.len() > 1 && segments.last().is_some_and(Vec::is_empty);
            match (element, segments.last_mut()) {
                (Some(element), Some(segment)) => segment.push(element),
                (None, _) if is_behind_star => {}
                (None, _) | (_, None) => segments.push(Vec::new()),
            }
            rest = behind;
        }
        let last = if segments.len() > 1 { segments.pop() } else { None };
        let mut segments = segments.into_iter();
        let first = segments.next().unwrap_or_default();
        let middle: Vec<Vec<Element>> = segments.collect();
        let searched: usize = middle.iter().map(Vec::len).filter(|elements| *elements > COMPARED).sum();
        if searched > KV_PATTERN_ELEMENTS_MAX {
            let text = format!(
                "ERR a pattern with {searched} characters between stars: patterns have at most {KV_PATTERN_ELEMENTS_MAX}"
            );
            return Err(Refusal(text.into()));
        }
        let least = first.len() + middle.iter().chain(&last).map(Vec::len).sum::<usize>();
        let middle: Vec<Segment> = middle.into_iter().map(Segment::of).collect();
        let words = middle.iter().map(Segment::words).max().unwrap_or(1);
        Ok(Pattern { first, middle, last, least, words })
    }

    /// Returns an upper bound of the work of compiling `pattern` and matching it with `texts` texts, in the unit of
    /// [`farpool_model::limits::KV_STEP_WORK_MAX`].
    pub fn work_of(pattern: &[u8], texts: usize) -> usize {
        pattern.len().saturating_mul(texts.saturating_add(COMPILED))
    }

    /// Returns whether the pattern matches the whole text.
    pub fn matches(&self, text: &[u8]) -> bool {
        if text.len() < self.least {
            return false;
        }
        let Some(last) = &self.last else {
            return text.len() == self.first.len() && all_match(&self.first, text);
        };
        let Some(between) = text.len().checked_sub(self.first.len() + last.len()) else { return false };
        let (first, rest) = text.split_at(self.first.len());
        let (mut rest, end) = rest.split_at(between);
        if !all_match(&self.first, first) || !all_match(last, end) {
            return false;
        }
        for segment in &self.middle {
            let Some(end) = segment.find_end(rest) else { return false };
            rest = &rest[end..];
        }
        true
    }

    /// Returns the maximum number of operations on words per byte of a text.
    pub fn words_per_byte(&self) -> usize {
        self.words
    }
}

/// Splits the first element off a pattern and returns it with the rest of the pattern. The element is `None` for a
/// star; the result is `None` if the pattern is empty.
fn next(pattern: &[u8]) -> Option<(Option<Element>, &[u8])> {
    Some(match pattern {
        [] => return None,
        [b'*', rest @ ..] => (None, rest),
        [b'?', rest @ ..] => (Some(Element::Any), rest),
        [b'\\', escaped, rest @ ..] => (Some(Element::Byte(*escaped)), rest),
        [b'[', set @ ..] => {
            let (class, rest) = class_of(set);
            (Some(Element::Class(Box::new(class))), rest)
        }
        [plain, rest @ ..] => (Some(Element::Byte(*plain)), rest),
    })
}

/// Parses a set such as `[a-c]` after its `[`, up to the `]` or, as in Redis, to the end if there is none. Returns the
/// bitmap of the set and the rest of the pattern.
fn class_of(set: &[u8]) -> ([u64; 4], &[u8]) {
    let is_inverted = set.first() == Some(&b'^');
    let mut rest = &set[usize::from(is_inverted)..];
    let mut bits = [0_u64; 4];
    let mut add = |byte: u8| bits[usize::from(byte) / 64] |= 1 << (byte % 64);
    rest = loop {
        rest = match rest {
            [] => break rest,
            [b']', behind @ ..] => break behind,
            [b'\\', escaped, behind @ ..] => {
                add(*escaped);
                behind
            }
            [low, b'-', high, behind @ ..] => {
                (*low.min(high)..=*low.max(high)).for_each(&mut add);
                behind
            }
            [plain, behind @ ..] => {
                add(*plain);
                behind
            }
        };
    };
    if is_inverted {
        bits = bits.map(|word| !word);
    }
    (bits, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern.as_bytes()).unwrap().matches(text.as_bytes())
    }

    /// Matches naively by trying every end of a star.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (next(pattern), text) {
            (None, text) => text.is_empty(),
            (Some((None, rest)), text) => (0..=text.len()).any(|from| naive(rest, &text[from..])),
            (Some((Some(element), rest)), [byte, text @ ..]) => element.matches(*byte) && naive(rest, text),
            (Some((Some(_), _)), []) => false,
        }
    }

    #[test]
    fn patterns_match_as_those_of_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("a*a", "a", false),
            ("*a*b*c*", "xaxbxc", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("[ab", "b", true),
            ("a\\", "a\\", true),
            ("[]a", "a", false),
            ("[^]", "a", true),
            ("*abcde?g*", "xxabcdabcdefgx", true),
            ("*abcde?g*", "xxabcdabcdefx", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn work_is_linear_and_long_patterns_are_refused() {
        // Patterns that would take exponential time with backtracking, or much time if a class were parsed for each
        // byte of the text.
        let text = "a".repeat(KV_PATTERN_BYTES_MAX);
        for pattern in [
            "*[b-z".to_string() + &"b-z".repeat(20_000) + "]",
            "*a".repeat(30_000) + "b",
            "*?".repeat(30_000) + "z",
        ] {
            let pattern = Pattern::new(pattern.as_bytes()).unwrap();
            assert_eq!((pattern.words_per_byte(), pattern.matches(text.as_bytes())), (1, false));
        }
        let longest = "*".to_string() + &"a".repeat(KV_PATTERN_ELEMENTS_MAX);
        let pattern = Pattern::new((longest.clone() + "b*").as_bytes());
        assert!(pattern.unwrap_err().0.contains("between stars"));
        let pattern = Pattern::new((longest + "*").as_bytes()).unwrap();
        assert_eq!(pattern.words_per_byte(), KV_PATTERN_ELEMENTS_MAX / 64);
        assert!(pattern.matches(text.as_bytes()));
        assert!(Pattern::new(&[b'a'; KV_PATTERN_BYTES_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn compiled_patterns_agree_with_the_plain_twin(
            pattern in "([ab*?]|\\[[ab^\\]-]{0,3}|\\\\[ab*]){0,9}",
            text in "[ab*\\]]{0,14}",
        ) {
            prop_assert_eq!(matches(&pattern, &text), naive(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn long_segments_agree_too(
            segment in "[ab?]{5,7}",
            repeated in 1_usize..24,
            text in "[ab]{0,200}",
            at in 0_usize..200,
        ) {
            let long = segment.repeat(repeated);
            let pattern = format!("*{long}*");
            prop_assert_eq!(matches(&pattern, &text), naive(pattern.as_bytes(), text.as_bytes()));
            let mut text = text;
            text.insert_str(at.min(text.len()), &long.replace('?', "b"));
            prop_assert!(matches(&pattern, &text));
        }
    }
}
