//! The lexer of conditions on entries, such as `age > 30` in `FP.SCAN`: splits the text into words, constants and
//! operator signs.

use super::{ParseError, Parsed};

/// A token of the text of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// An unquoted name (of a column, or of a type such as `u32`), or a keyword.
    Word(&'a str),
    /// A name in double quotes, here without the quotes.
    Name(String),
    /// A string in single quotes, here without the quotes.
    Text(String),
    /// Bytes written as hexadecimal digits, as in `x'00ff'`.
    Hex(Vec<u8>),
    /// Digits, optionally with a point and an exponent.
    Number(&'a str),
    Sign(&'static str),
    End,
}

impl Token<'_> {
    /// Describes the token for error messages.
    pub fn describe(&self) -> String {
        match self {
            Token::Word(word) => (*word).to_string(),
            Token::Name(name) => format!("\"{name}\""),
            Token::Text(text) => format!("the string '{text}'"),
            Token::Hex(_) => "bytes".to_string(),
            Token::Number(number) => (*number).to_string(),
            Token::Sign(sign) => (*sign).to_string(),
            Token::End => "the end".to_string(),
        }
    }
}

/// Operator signs and punctuation. A longer sign comes before the signs that are its prefixes, because the first match
/// is taken.
const SIGNS: &[&str] = &[
    "!~*", "!~", "~*", "~", "<=", ">=", "<>", "!=", "==", "<", ">", "=", "(", ")", "[", "]", ",", ":", "@",
    "-", "+",
];

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Lexer { text, at: 0 }
    }

    /// Returns the next token and the byte that it begins at.
    pub fn next(&mut self) -> Parsed<(Token<'a>, usize)> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        let start = self.at;
        let Some(first) = rest.chars().next() else { return Ok((Token::End, start)) };
        let token = match first {
            '\'' => Token::Text(self.quoted('\'', "a string")?),
            '"' => Token::Name(self.quoted('"', "a name")?),
            'x' | 'X' if rest[1..].starts_with('\'') => {
                self.at += 1;
                let digits = self.quoted('\'', "bytes")?;
                Token::Hex(hex(&digits).ok_or_else(|| {
                    ParseError::new(start, "bytes are pairs of hexadecimal digits").hint("such as x'00ff'")
                })?)
            }
            '0'..='9' => Token::Number(self.number(rest)?),
            '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => {
                Token::Number(self.number(rest)?)
            }
            _ if is_in_word(first) => {
                let word = &rest[..rest.find(|c| !is_in_word(c)).unwrap_or(rest.len())];
                self.at += word.len();
                Token::Word(word)
            }
            _ => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign)).ok_or_else(|| {
                    ParseError::new(start, format!("the character {first:?} has no meaning here"))
                        .hint("strings stand in single quotes, names in double quotes")
                })?;
                self.at += sign.len();
                Token::Sign(sign)
            }
        };
        Ok((token, start))
    }

    /// Reads text between two quotes; a doubled quote in it stands for one.
    fn quoted(&mut self, quote: char, what: &str) -> Parsed<String> {
        let start = self.at;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at + 1..];
            let Some(end) = rest.find(quote) else {
                return Err(ParseError::new(start, format!("{what} without the {quote} at its end"))
                    .hint(format!("a {quote} inside is written twice")));
            };
            text.push_str(&rest[..end]);
            self.at += 1 + end + 1;
            if !self.text[self.at..].starts_with(quote) {
                return Ok(text);
            }
            text.push(quote);
        }
    }

    fn number(&mut self, rest: &'a str) -> Parsed<&'a str> {
        let digits = |from: usize| from + rest[from..].bytes().take_while(u8::is_ascii_digit).count();
        let mut end = digits(0);
        if rest[end..].starts_with('.') {
            end = digits(end + 1);
        }
        if rest[end..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
            let exponent = digits(end + 1 + sign);
            if exponent > end + 1 + sign {
                end = exponent;
            }
        }
        if rest[end..].starts_with(|next| is_in_word(next) || next == '.') {
            return Err(ParseError::new(self.at + end, "a number that does not end")
                .hint("strings stand in single quotes"));
        }
        self.at += end;
        Ok(&rest[..end])
    }
}

fn is_in_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| (byte as char).to_digit(16);
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}
