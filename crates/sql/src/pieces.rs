//! Splits SQL text into pieces (tokens), for display and completion while the text is being written. The tokens are the
//! same as in statements that run; in addition, a string or comment whose end is missing is a piece.

use crate::dialect::Grammar;
use crate::statements::Walk;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer, Whitespace};
use std::ops::Range;

/// A piece of SQL text; never white space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The kind of the piece.
    pub kind: PieceKind,
    /// The byte range of the piece in the text.
    pub range: Range<usize>,
}

/// The kind of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// A keyword or a name without quotes.
    Word,
    /// A name in double quotes.
    QuotedName,
    /// A string in single quotes or dollar quotes.
    Text,
    /// A number.
    Number,
    /// A comment.
    Comment,
    /// A semicolon, which separates statements.
    Semicolon,
    /// An operator, a bracket or other punctuation.
    Sign,
    /// A string, quoted name or comment whose end is missing: it extends to the end of the text.
    Open,
}

/// Returns the pieces of `text` in order.
pub fn sql_pieces(text: &str) -> Vec<Piece> {
    let mut tokens = Vec::new();
    // If the text is not made of tokens to its end, the buffer contains the tokens before the error.
    let is_whole = Tokenizer::new(&Grammar, text).tokenize_with_location_into_buf(&mut tokens).is_ok();
    let mut walk = Walk::new(text);
    let mut pieces = Vec::with_capacity(tokens.len());
    let mut end = 0;
    for found in tokens {
        let start = walk.to(found.span.start);
        end = walk.to(found.span.end);
        pieces.extend(kind(&found.token).map(|kind| Piece { kind, range: start..end }));
    }
    if !is_whole {
        pieces.push(Piece { kind: PieceKind::Open, range: end..text.len() });
    }
    pieces
}

/// Returns whether the text is complete: it contains no statement, or its last statement ends with a semicolon.
/// Comments may follow.
pub fn is_whole_sql(text: &str) -> bool {
    let mut pieces = sql_pieces(text).into_iter().rev().filter(|piece| piece.kind != PieceKind::Comment);
    pieces.next().is_none_or(|last| last.kind == PieceKind::Semicolon)
}

fn kind(token: &Token) -> Option<PieceKind> {
    Some(match token {
        Token::EOF | Token::Whitespace(Whitespace::Space | Whitespace::Newline | Whitespace::Tab) => {
            return None;
        }
        Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_)) => {
            PieceKind::Comment
        }
        Token::Word(word) if word.quote_style.is_none() => PieceKind::Word,
        Token::Word(_) | Token::DoubleQuotedString(_) => PieceKind::QuotedName,
        Token::Number(..) => PieceKind::Number,
        Token::SemiColon => PieceKind::Semicolon,
        Token::SingleQuotedString(_)
        | Token::TripleSingleQuotedString(_)
        | Token::TripleDoubleQuotedString(_)
        | Token::DollarQuotedString(_)
        | Token::SingleQuotedByteStringLiteral(_)
        | Token::DoubleQuotedByteStringLiteral(_)
        | Token::TripleSingleQuotedByteStringLiteral(_)
        | Token::TripleDoubleQuotedByteStringLiteral(_)
        | Token::SingleQuotedRawStringLiteral(_)
        | Token::DoubleQuotedRawStringLiteral(_)
        | Token::TripleSingleQuotedRawStringLiteral(_)
        | Token::TripleDoubleQuotedRawStringLiteral(_)
        | Token::NationalStringLiteral(_)
        | Token::QuoteDelimitedStringLiteral(_)
        | Token::NationalQuoteDelimitedStringLiteral(_)
        | Token::EscapedStringLiteral(_)
        | Token::UnicodeStringLiteral(_)
        | Token::HexStringLiteral(_) => PieceKind::Text,
        _ => PieceKind::Sign,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split_statements;

    fn shown(text: &str) -> Vec<(PieceKind, &str)> {
        sql_pieces(text).into_iter().map(|piece| (piece.kind, &text[piece.range])).collect()
    }

    #[test]
    fn pieces_are_the_tokens_of_statements() {
        use PieceKind::{Comment, Number, Open, QuotedName, Semicolon, Sign, Text, Word};
        let text = "select \"a b\", 1.5 -- ü\n from 'ä;'; /* x */";
        let expected = [
            (Word, "select"),
            (QuotedName, "\"a b\""),
            (Sign, ","),
            (Number, "1.5"),
            (Comment, "-- ü\n"),
            (Word, "from"),
            (Text, "'ä;'"),
            (Semicolon, ";"),
            (Comment, "/* x */"),
        ];
        assert_eq!(shown(text), expected);
        assert_eq!(shown("select 'a; b"), [(Word, "select"), (Open, "'a; b")]);
        assert_eq!(shown("x \"y"), [(Word, "x"), (Open, "\"y")]);
        assert_eq!(shown("1 /* x"), [(Number, "1"), (Open, "/* x")]);
        assert_eq!(shown(""), []);
    }

    #[test]
    fn a_text_is_whole_behind_its_last_semicolon() {
        for whole in ["", " ", "-- nothing", "select 1;", "select ';'; -- done", "a; b;\n/* c */ "] {
            assert!(is_whole_sql(whole), "{whole}");
        }
        for part in ["select 1", "select ';", "a; b", "a; /* b", "select 1 -- ;", "$$ ;"] {
            assert!(!is_whole_sql(part), "{part}");
        }
    }

    /// A line of a megabyte is split in one pass, as fast as if it had line breaks.
    #[test]
    fn a_long_line_has_all_its_statements() {
        let text = "select 'ü';".repeat(100_000);
        let statements = split_statements(&text).unwrap();
        assert_eq!(statements.len(), 100_000);
        assert!(statements.iter().all(|statement| statement.text == "select 'ü'" && statement.line == 1));
        assert_eq!(sql_pieces(&text).len(), 300_000);
    }
}
