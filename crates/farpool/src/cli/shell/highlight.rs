//! Syntax highlighting of the typed text, by the parser's tokens.

use super::words::is_keyword;
use farpool::{PieceKind, sql_pieces};
use std::borrow::Cow;

/// Maximum bytes of a text that is highlighted. Reason: a longer text was pasted, and drawing time grows with its
/// length.
const BYTES_COLOURED: usize = 64 << 10;

/// Returns the text with terminal escape sequences for its colours.
pub fn highlighted(text: &str) -> Cow<'_, str> {
    if text.len() > BYTES_COLOURED {
        return Cow::Borrowed(text);
    }
    if text.trim_start().starts_with(['.', '\\']) {
        let blank = text.len() - text.trim_start().len();
        let end = text[blank..].find(char::is_whitespace).map_or(text.len(), |end| blank + end);
        return Cow::Owned(format!("{}{}", coloured("1", &text[..end]), &text[end..]));
    }
    let mut out = String::with_capacity(2 * text.len());
    let mut done = 0;
    for piece in sql_pieces(text) {
        let colour = match piece.kind {
            PieceKind::Word if is_keyword(&text[piece.range.clone()]) => "1;34",
            PieceKind::Text => "32",
            PieceKind::Number => "36",
            PieceKind::Comment => "2",
            PieceKind::Open => "33",
            PieceKind::Word | PieceKind::QuotedName | PieceKind::Semicolon | PieceKind::Sign => continue,
        };
        out.push_str(&text[done..piece.range.start]);
        out.push_str(&coloured(colour, &text[piece.range.clone()]));
        done = piece.range.end;
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

fn coloured(colour: &str, text: &str) -> String {
    format!("\x1b[{colour}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_add_nothing_but_escapes() {
        for text in ["select 'ü', 1 from t -- c", "SELECT 'open", ".mode csv", "  \\d x", "", "a /* b"] {
            let shown = highlighted(text);
            let mut plain = String::new();
            let mut parts = shown.split("\x1b[");
            plain.push_str(parts.next().unwrap());
            parts.for_each(|part| plain.push_str(part.split_once('m').unwrap().1));
            assert_eq!(plain, text);
        }
        assert_eq!(highlighted("select x"), "\x1b[1;34mselect\x1b[0m x");
        let long = "select ".repeat(20_000);
        assert_eq!(highlighted(&long), long);
    }
}
