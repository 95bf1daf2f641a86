//! Patterns of keys, as `KEYS` and `SCAN` take them: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a character that stands for
//! itself.

/// Whether the pattern matches all of `text`. Takes time by the product of both lengths at most: only the last `*` is
/// tried again.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut last_star = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                last_star = Some((p, t));
                p += 1;
                continue;
            }
            Some(_) => one(&pattern[p..], text[t]),
            None => None,
        };
        match (step, last_star) {
            (Some(bytes), _) => (p, t) = (p + bytes, t + 1),
            (None, Some((star, from))) => {
                last_star = Some((star, from + 1));
                (p, t) = (star + 1, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Bytes of the pattern's first element, if that matches the character.
fn one(pattern: &[u8], character: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == character).then_some(2),
        [b'[', set @ ..] => {
            let (is_match, bytes) = in_set(set, character);
            is_match.then_some(1 + bytes)
        }
        [plain, ..] => (*plain == character).then_some(1),
        [] => None,
    }
}

/// Whether the character is in the set, and how many bytes that has with its `]`. A set without one goes to the end.
fn in_set(set: &[u8], character: u8) -> (bool, usize) {
    let is_inverted = set.first() == Some(&b'^');
    let mut at = usize::from(is_inverted);
    let mut found = false;
    loop {
        match set[at..] {
            [] => return (found != is_inverted, at),
            [b']', ..] => return (found != is_inverted, at + 1),
            [b'\\', escaped, ..] => {
                found |= escaped == character;
                at += 2;
            }
            [low, b'-', high, ..] => {
                found |= (low.min(high)..=low.max(high)).contains(&character);
                at += 3;
            }
            [plain, ..] => {
                found |= plain == character;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
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
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        // Would take for ever if each `*` were tried again.
        let pattern = "a*".repeat(1000) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(5000).as_bytes()));
    }
}
