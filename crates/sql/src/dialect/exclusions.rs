//! Parses `EXCLUDE CURRENT ROW | GROUP | TIES | NO OTHERS` after the frame of a window, which DataFusion's parser does
//! not know. The words are removed from the tokens; until the plan is built, a constant string in PARTITION BY marks
//! the window ([`crate::exclusions`]). This rule is obsolete once the parser and the planner support EXCLUDE.

use super::Grammar;
use crate::exclusions::Exclusion;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// Returns the tokens of `text` with each EXCLUDE replaced by a mark; `None` if there is no EXCLUDE.
pub(super) fn marked(text: &str) -> Option<Vec<TokenWithSpan>> {
    if !text.to_ascii_lowercase().contains("exclude") {
        return None;
    }
    // Invalid tokens are reported by the parser.
    let mut tokens = Tokenizer::new(&Grammar, text).tokenize_with_location().ok()?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut made = Vec::with_capacity(tokens.len());
    let mut found = false;
    for (at, token) in tokens.iter().enumerate() {
        made.push(token.clone());
        if !matches!(token.token, Token::RParen) {
            continue;
        }
        let Some((words, exclusion)) = exclusion(&tokens[..at]) else { continue };
        let bracket = made.pop();
        made.truncate(made.len() - words);
        found |= mark(&mut made, exclusion);
        made.extend(bracket);
    }
    found.then_some(made)
}

/// If the last words of `tokens` are an exclusion, returns it (`None` for NO OTHERS) and the number of these words.
fn exclusion(tokens: &[TokenWithSpan]) -> Option<(usize, Option<Exclusion>)> {
    let word = |back: usize| match &tokens.get(tokens.len().checked_sub(back)?)?.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        _ => None,
    };
    let last = [word(3), word(2), word(1)].map(Option::unwrap_or_default);
    let last = last.each_ref().map(String::as_str);
    match last {
        ["exclude", "current", "row"] => Some((3, Some(Exclusion::CurrentRow))),
        ["exclude", "no", "others"] => Some((3, None)),
        [_, "exclude", "group"] => Some((2, Some(Exclusion::Group))),
        [_, "exclude", "ties"] => Some((2, Some(Exclusion::Ties))),
        _ => None,
    }
}

/// Inserts the mark into the window specification at the end of `tokens`; returns whether the window has a frame.
fn mark(tokens: &mut Vec<TokenWithSpan>, exclusion: Option<Exclusion>) -> bool {
    let Some(places) = Places::of(tokens) else { return false };
    let Some(exclusion) = exclusion else { return true };
    let mut words = match places.partition {
        true => vec![Token::Comma],
        false => vec![Token::make_keyword("PARTITION"), Token::make_keyword("BY")],
    };
    // The engine would drop a constant in PARTITION BY; it keeps one that is cast.
    let literal = Token::SingleQuotedString(exclusion.mark().to_string());
    words.extend([literal, Token::DoubleColon, Token::make_keyword("TEXT")]);
    let span = tokens[places.at].span;
    tokens.splice(places.at..places.at, words.into_iter().map(|token| TokenWithSpan { token, span }));
    true
}

/// Positions in a window's specification, as far as they are known, at which tokens can be inserted.
struct Places {
    /// The position after PARTITION BY, before the next clause.
    at: usize,
    partition: bool,
}

impl Places {
    fn of(tokens: &[TokenWithSpan]) -> Option<Self> {
        let (mut depth, mut at, mut has_frame, mut partition) = (0_usize, None, false, false);
        for (place, token) in tokens.iter().enumerate().rev() {
            match &token.token {
                Token::RParen => depth += 1,
                Token::LParen if depth == 0 => {
                    return at.filter(|_| has_frame).map(|at| Places { at, partition });
                }
                Token::LParen => depth -= 1,
                Token::Word(word) if depth == 0 => match word.keyword {
                    Keyword::ROWS | Keyword::RANGE | Keyword::GROUPS => {
                        has_frame = true;
                        at = Some(place);
                    }
                    Keyword::ORDER => at = Some(place),
                    Keyword::PARTITION => partition = true,
                    _ => {}
                },
                _ => {}
            }
        }
        None
    }
}
