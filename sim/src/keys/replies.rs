//! Replies of the Redis protocol: expected ones, and the parsing of actual ones.

use std::collections::{BTreeMap, BTreeSet};

/// The expectation of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Exactly these bytes.
    Is(Vec<u8>),
    /// An error with any text, except those about memory or the disk.
    Error,
    /// An array of fields and their values, in any order.
    Pairs(BTreeMap<Vec<u8>, Vec<u8>>),
    /// An array of these strings, in any order.
    Set(BTreeSet<Vec<u8>>),
    /// A number within these bounds, inclusive.
    Between(i64, i64),
}

impl Expected {
    /// Returns the expectation of a line with this text.
    pub fn text(text: &str) -> Expected {
        Expected::Is(text.as_bytes().to_vec())
    }

    /// Returns the expectation of `OK`.
    pub fn ok() -> Expected {
        Expected::text("+OK\r\n")
    }

    /// Returns whether a reply is as expected.
    pub fn fits(&self, reply: &[u8]) -> bool {
        match self {
            Expected::Is(bytes) => bytes == reply,
            Expected::Error => reply.starts_with(b"-") && !is_refused(reply),
            Expected::Pairs(pairs) => {
                let Some(found) = strings(reply) else { return false };
                let (found, []) = found.as_chunks::<2>() else { return false };
                let map: BTreeMap<_, _> =
                    found.iter().cloned().map(|[field, value]| (field, value)).collect();
                found.len() == pairs.len() && map == *pairs
            }
            Expected::Set(set) => {
                let Some(found) = strings(reply) else { return false };
                found.len() == set.len() && found.into_iter().collect::<BTreeSet<_>>() == *set
            }
            Expected::Between(least, most) => {
                let number = reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
                let number = number.and_then(|text| std::str::from_utf8(text).ok()?.parse::<i64>().ok());
                number.is_some_and(|number| (*least..=*most).contains(&number))
            }
        }
    }

    /// Describes how a reply differs from the expectation: for many strings, those that are missing or unexpected.
    pub fn differing(&self, reply: &[u8]) -> String {
        let Expected::Set(set) = self else { return format!("{self:?}") };
        let found = strings(reply).unwrap_or_default();
        let shown = |text: &Vec<u8>| text.escape_ascii().to_string();
        let distinct: BTreeSet<Vec<u8>> = found.iter().cloned().collect();
        let missing: Vec<String> = set.difference(&distinct).map(shown).collect();
        let more: Vec<String> = distinct.difference(set).map(shown).collect();
        let twice = found.len() - distinct.len();
        format!("not to miss {missing:?}, to have {more:?}, nor {twice} twice")
    }
}

/// Returns a bulk string.
pub fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// Returns the expectation of a number.
pub fn integer(number: i64) -> Expected {
    Expected::Is(format!(":{number}\r\n").into_bytes())
}

/// Returns the expectation of the null string.
pub fn nil() -> Expected {
    Expected::text("$-1\r\n")
}

/// Returns whether a command was refused for lack of memory, or because of the disk.
pub fn is_refused(reply: &[u8]) -> bool {
    reply.starts_with(b"-OOM") || reply.starts_with(b"-MISCONF")
}

/// Splits an array into its elements; `None` if the reply is not an array.
pub fn elements(reply: &[u8]) -> Option<Vec<&[u8]>> {
    let (head, mut rest) = line(reply)?;
    let count = number(head.strip_prefix(b"*")?)?;
    let mut found = Vec::new();
    for _ in 0..count {
        let (element, behind) = rest.split_at_checked(length(rest)?)?;
        found.push(element);
        rest = behind;
    }
    rest.is_empty().then_some(found)
}

/// Returns the strings of an array of bulk strings.
pub fn strings(reply: &[u8]) -> Option<Vec<Vec<u8>>> {
    let text = |element: &&[u8]| {
        let (head, rest) = line(element)?;
        head.starts_with(b"$").then(|| rest.strip_suffix(b"\r\n").map(<[u8]>::to_vec))?
    };
    elements(reply)?.iter().map(text).collect()
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|end| end == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the number of bytes of the first reply in `bytes`; `None` if it is incomplete.
fn length(bytes: &[u8]) -> Option<usize> {
    let (head, rest) = line(bytes)?;
    let begin = head.len() + 2;
    match head.first()? {
        b'$' => Some(begin + usize::try_from(number(&head[1..])?).map_or(0, |bytes| bytes + 2)),
        b'*' => {
            let (mut total, mut rest) = (begin, rest);
            for _ in 0..number(&head[1..])?.max(0) {
                let bytes = length(rest)?;
                total += bytes;
                rest = rest.get(bytes..)?;
            }
            Some(total)
        }
        _ => Some(begin),
    }
}
