//! Removes MATERIALIZED from `WITH c AS MATERIALIZED (…)` and `AS NOT MATERIALIZED`, which the parser accepts only in
//! another dialect. The words do not affect a result. They are overwritten with blanks, so that positions in the text
//! stay the same.

use super::Grammar;
use crate::statements::Offsets;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::borrow::Cow;
use std::ops::Range;

/// Returns the text with these words overwritten by blanks.
pub(super) fn blanked(text: &str) -> Cow<'_, str> {
    if !text.to_ascii_lowercase().contains("materialized") {
        return Cow::Borrowed(text);
    }
    // Invalid tokens are reported by the parser.
    let Ok(tokens) = Tokenizer::new(&Grammar, text).tokenize_with_location() else {
        return Cow::Borrowed(text);
    };
    let tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let mut made = text.to_string();
    for range in words(&tokens, &Offsets::new(text)) {
        made.replace_range(range.clone(), &" ".repeat(range.len()));
    }
    Cow::Owned(made)
}

/// Returns the positions of the words between `AS` and a bracket.
fn words(tokens: &[TokenWithSpan], offsets: &Offsets<'_>) -> Vec<Range<usize>> {
    let is = |token: Option<&TokenWithSpan>, keyword: Keyword| matches!(token.map(|token| &token.token), Some(Token::Word(word)) if word.keyword == keyword);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !is(Some(token), Keyword::AS) {
            continue;
        }
        let negated = usize::from(is(tokens.get(at + 1), Keyword::NOT));
        let last = at + 1 + negated;
        let is_bracket = matches!(tokens.get(last + 1).map(|token| &token.token), Some(Token::LParen));
        if is(tokens.get(last), Keyword::MATERIALIZED) && is_bracket {
            let of = |token: &TokenWithSpan| offsets.of(token.span.start)..offsets.of(token.span.end);
            found.extend(tokens[at + 1..=last].iter().map(of));
        }
    }
    found
}
