//! The parser of conditions on entries, such as `age > 30 and name like 'A%'` in `FP.SCAN`, by recursive descent.
//! Nesting of parentheses is limited, because it determines the depth of the recursion.

use super::bytes::NumberType;
use super::lexer::{Lexer, Token};
use super::typed::{Columns, Constant, Operand, literal};
use super::{ParseError, Parsed, Predicate};
use arrow_schema::{DataType, Schema};
use farpool_model::limits::{
    KV_PREDICATE_DEPTH_MAX, KV_PREDICATE_NODES_MAX, KV_PREDICATE_PATTERNS_MAX, KV_VALUE_BYTES_MAX,
};
use farpool_model::{CompareOp, Expr, Pattern, Value, brief};

/// Keywords; names of columns that equal one must be quoted.
const WORDS: &[&str] = &["and", "between", "false", "ilike", "in", "is", "like", "not", "null", "or", "true"];

pub(super) fn parse(text: &str, schema: &Schema, is_plain: bool) -> Parsed<Predicate> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        token: Token::End,
        at: 0,
        columns: Columns { schema, is_plain },
        depth: 0,
        nodes: 0,
        patterns: 0,
    };
    parser.advance()?;
    let predicate = parser.any(false)?;
    match parser.token {
        Token::End => Ok(predicate),
        _ => Err(parser.unexpected("and, or, or the end")),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token. The next field is its byte offset in the text.
    token: Token<'a>,
    at: usize,
    columns: Columns<'a>,
    depth: usize,
    nodes: usize,
    patterns: usize,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Parsed<Token<'a>> {
        let (next, at) = self.lexer.next()?;
        self.at = at;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn unexpected(&self, expected: &str) -> ParseError {
        let found = brief(self.token.describe());
        ParseError::new(self.at, format!("{found} stands where {expected} is expected"))
    }

    /// Skips the next token if it is this keyword; returns whether it was.
    fn word(&mut self, word: &str) -> Parsed<bool> {
        let is_next = matches!(self.token, Token::Word(found) if found.eq_ignore_ascii_case(word));
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    /// Skips the next token if it is this sign; returns whether it was.
    fn sign(&mut self, sign: &str) -> Parsed<bool> {
        let is_next = matches!(self.token, Token::Sign(found) if found == sign);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.sign(sign)? { Ok(()) } else { Err(self.unexpected(sign)) }
    }

    /// Counts a condition, or a constant of an IN list, towards the limit on their number; fails if the limit is
    /// exceeded.
    fn count(&mut self) -> Parsed<()> {
        self.nodes += 1;
        if self.nodes <= KV_PREDICATE_NODES_MAX {
            return Ok(());
        }
        let message = format!("more than {KV_PREDICATE_NODES_MAX} conditions and listed constants");
        Err(ParseError::new(self.at, message).hint("ask in several commands"))
    }

    /// Parses `… or …`, or its negation.
    fn any(&mut self, is_negated: bool) -> Parsed<Predicate> {
        let mut parts = vec![self.all(is_negated)?];
        while self.word("or")? {
            parts.push(self.all(is_negated)?);
        }
        Ok(Predicate::combine(parts, is_negated))
    }

    /// Parses `… and …`, or its negation.
    fn all(&mut self, is_negated: bool) -> Parsed<Predicate> {
        let mut parts = vec![self.one(is_negated)?];
        while self.word("and")? {
            parts.push(self.one(is_negated)?);
        }
        Ok(Predicate::combine(parts, !is_negated))
    }

    fn one(&mut self, mut is_negated: bool) -> Parsed<Predicate> {
        while self.word("not")? {
            is_negated = !is_negated;
        }
        let start = self.at;
        if !self.sign("(")? {
            return self.condition(is_negated);
        }
        self.depth += 1;
        if self.depth > KV_PREDICATE_DEPTH_MAX {
            let message = format!("more than {KV_PREDICATE_DEPTH_MAX} parentheses in one another");
            return Err(ParseError::new(start, message));
        }
        let inner = self.any(is_negated)?;
        self.expect(")")?;
        self.depth -= 1;
        Ok(inner)
    }

    fn condition(&mut self, is_negated: bool) -> Parsed<Predicate> {
        self.count()?;
        let start = self.at;
        let left = self.operand()?;
        if let Some(op) = self.compare_op()? {
            let right_at = self.at;
            let right = self.operand()?;
            let op = if is_negated { op.negated() } else { op };
            return match (left, right) {
                (Operand::Constant(_), Operand::Constant(_)) => {
                    Err(ParseError::new(start, "two constants are compared").hint(self.columns.names()))
                }
                (Operand::Constant(constant), other) => {
                    self.columns.compare(&other, op.swapped(), (constant, start))
                }
                (other, Operand::Constant(constant)) => {
                    self.columns.compare(&other, op, (constant, right_at))
                }
                (Operand::Column(left), Operand::Column(right)) => {
                    self.columns.compare_columns(left, op, right, start)
                }
                _ => Err(ParseError::new(right_at, "bytes of the value are compared with constants only")),
            };
        }
        if self.word("is")? {
            let is_not = self.word("not")?;
            if !self.word("null")? {
                return Err(self.unexpected("null"));
            }
            let Operand::Column(column) = left else {
                return Err(ParseError::new(start, "only columns can be null"));
            };
            return Ok(negated(Expr::IsNull(Box::new(Expr::Column(column))), is_negated != is_not));
        }
        let is_negated = self.word("not")? != is_negated;
        if self.word("in")? {
            return self.listed(&left, is_negated);
        }
        if self.word("between")? {
            let low_at = self.at;
            let low = self.constant()?;
            if !self.word("and")? {
                return Err(self.unexpected("and"));
            }
            let high_at = self.at;
            let high = self.constant()?;
            let (above, below) = match is_negated {
                false => (CompareOp::GtEq, CompareOp::LtEq),
                true => (CompareOp::Lt, CompareOp::Gt),
            };
            let low = self.columns.compare(&left, above, (low, low_at))?;
            let high = self.columns.compare(&left, below, (high, high_at))?;
            return Ok(Predicate::combine(vec![low, high], !is_negated));
        }
        if let Some((is_like, case_insensitive, is_not)) = self.match_op()? {
            return self.matched(&left, start, is_like, case_insensitive, is_not != is_negated);
        }
        self.bare(&left, start, is_negated)
    }

    fn compare_op(&mut self) -> Parsed<Option<CompareOp>> {
        let op = match self.token {
            Token::Sign("=" | "==") => CompareOp::Eq,
            Token::Sign("!=" | "<>") => CompareOp::NotEq,
            Token::Sign("<") => CompareOp::Lt,
            Token::Sign("<=") => CompareOp::LtEq,
            Token::Sign(">") => CompareOp::Gt,
            Token::Sign(">=") => CompareOp::GtEq,
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(op))
    }

    /// Parses an operator such as LIKE or `~`; returns whether it is LIKE, whether it ignores case, and whether it is
    /// negated, or `None` if the next token is no such operator.
    fn match_op(&mut self) -> Parsed<Option<(bool, bool, bool)>> {
        let op = match self.token {
            Token::Word(word) if word.eq_ignore_ascii_case("like") => (true, false, false),
            Token::Word(word) if word.eq_ignore_ascii_case("ilike") => (true, true, false),
            Token::Sign("~") => (false, false, false),
            Token::Sign("~*") => (false, true, false),
            Token::Sign("!~") => (false, false, true),
            Token::Sign("!~*") => (false, true, true),
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(op))
    }

    /// Converts an operand that stands alone, a boolean column or `true` or `false`, to a condition.
    fn bare(&self, operand: &Operand, start: usize, is_negated: bool) -> Parsed<Predicate> {
        let expected = "a comparison, in, between, like, ~ or is null";
        match operand {
            Operand::Column(column) if *self.columns.data_type(*column) == DataType::Boolean => {
                Ok(negated(Expr::Column(*column), is_negated))
            }
            Operand::Constant(Constant::Bool(truth)) => {
                let literal = literal(Value::Bool(*truth != is_negated), &DataType::Boolean, start)?;
                Ok(Predicate::Columns(Expr::Literal(literal)))
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    fn operand(&mut self) -> Parsed<Operand> {
        let start = self.at;
        let word = match &self.token {
            Token::Word(word) if !WORDS.iter().any(|other| word.eq_ignore_ascii_case(other)) => *word,
            Token::Name(_) => {
                let Token::Name(name) = self.advance()? else { return Err(self.unexpected("a name")) };
                return self.columns.column(&name, true, start).map(Operand::Column);
            }
            _ => return self.constant().map(Operand::Constant),
        };
        self.advance()?;
        if self.token == Token::Sign("@") {
            self.columns.allow_offsets(start)?;
            return self.number_at(word, start);
        }
        if self.token == Token::Sign("[") && word.eq_ignore_ascii_case("bytes") {
            self.columns.allow_offsets(start)?;
            return self.slice();
        }
        self.columns.column(word, false, start).map(Operand::Column)
    }

    /// Parses the offset after the name of a number type, as `@0` in `u32@0`; returns the operand, a number at this
    /// offset of the value.
    fn number_at(&mut self, name: &str, start: usize) -> Parsed<Operand> {
        let number_type = NumberType::of_name(&name.to_ascii_lowercase()).ok_or_else(|| {
            ParseError::new(start, format!("{} is no type of a number in a value", brief(name)))
                .hint("the types are u8, u16, u32, u64, i8, i16, i32, i64, f32, f64")
        })?;
        self.advance()?;
        let at = self.at;
        let offset = self.offset()?;
        if offset + number_type.bytes() > KV_VALUE_BYTES_MAX {
            return Err(ParseError::new(at, format!("values have at most {KV_VALUE_BYTES_MAX} bytes")));
        }
        Ok(Operand::Number(number_type, offset))
    }

    /// Parses the bounds after `bytes`, as in `bytes[4:8]`; returns the operand, a range of bytes of the value.
    fn slice(&mut self) -> Parsed<Operand> {
        self.advance()?;
        let start = self.offset()?;
        self.expect(":")?;
        let at = self.at;
        let end = self.offset()?;
        if end < start {
            return Err(ParseError::new(at, format!("bytes from {start} to {end}"))
                .hint("the second offset is the one behind the last byte"));
        }
        self.expect("]")?;
        Ok(Operand::Slice(start..end))
    }

    fn offset(&mut self) -> Parsed<usize> {
        let Token::Number(text) = self.token else { return Err(self.unexpected("an offset")) };
        let offset = text.parse().ok().filter(|offset| *offset <= KV_VALUE_BYTES_MAX);
        let offset = offset.ok_or_else(|| {
            ParseError::new(self.at, format!("{} is no offset", brief(text)))
                .hint(format!("offsets are integers from 0 to {KV_VALUE_BYTES_MAX}"))
        })?;
        self.advance()?;
        Ok(offset)
    }

    fn constant(&mut self) -> Parsed<Constant> {
        let is_negative = self.sign("-")?;
        if is_negative || self.sign("+")? {
            let Token::Number(text) = self.token else { return Err(self.unexpected("a number")) };
            self.advance()?;
            return Ok(Constant::Number { text: text.to_string(), is_negative });
        }
        let of_word = |word: &str| match &*word.to_ascii_lowercase() {
            "true" => Some(Constant::Bool(true)),
            "false" => Some(Constant::Bool(false)),
            "null" => Some(Constant::Null),
            _ => None,
        };
        let constant = match &mut self.token {
            Token::Number(text) => Some(Constant::Number { text: (*text).to_string(), is_negative }),
            Token::Text(text) => Some(Constant::Text(std::mem::take(text))),
            Token::Hex(bytes) => Some(Constant::Hex(std::mem::take(bytes))),
            Token::Word(word) if word.len() <= 5 => of_word(word),
            _ => None,
        };
        let Some(constant) = constant else { return Err(self.unexpected("a column or a constant")) };
        self.advance()?;
        Ok(constant)
    }

    /// Parses the list of constants in parentheses after `in`; returns the condition that `left` equals one of them.
    fn listed(&mut self, left: &Operand, is_negated: bool) -> Parsed<Predicate> {
        self.expect("(")?;
        let (mut literals, mut parts) = (Vec::new(), Vec::new());
        let op = if is_negated { CompareOp::NotEq } else { CompareOp::Eq };
        loop {
            self.count()?;
            let at = self.at;
            let constant = self.constant()?;
            match left {
                Operand::Column(column) => {
                    literals.extend(self.columns.listed_literal(*column, constant, at)?)
                }
                other => parts.push(self.columns.compare(other, op, (constant, at))?),
            }
            if !self.sign(",")? {
                break;
            }
        }
        self.expect(")")?;
        let Operand::Column(column) = left else { return Ok(Predicate::combine(parts, is_negated)) };
        if literals.is_empty() {
            // No constant of the list is a value of the column's type.
            return Ok(Predicate::Columns(self.columns.always(*column, is_negated, self.at)?));
        }
        Ok(negated(Expr::InList(Box::new(Expr::Column(*column)), literals), is_negated))
    }

    /// Parses the pattern of a match (LIKE, `~`); returns the condition.
    fn matched(
        &mut self,
        left: &Operand,
        start: usize,
        is_like: bool,
        case_insensitive: bool,
        is_negated: bool,
    ) -> Parsed<Predicate> {
        let value = match left {
            Operand::Column(column) if *self.columns.data_type(*column) == DataType::Utf8View => {
                Box::new(Expr::Column(*column))
            }
            _ => {
                return Err(
                    ParseError::new(start, "patterns are for columns of strings").hint(self.columns.names())
                );
            }
        };
        let at = self.at;
        let Token::Text(pattern) = self.advance()? else {
            return Err(ParseError::new(at, "a pattern is expected").hint("it stands in single quotes"));
        };
        self.patterns += 1;
        if self.patterns > KV_PREDICATE_PATTERNS_MAX {
            return Err(ParseError::new(at, format!("more than {KV_PREDICATE_PATTERNS_MAX} patterns")));
        }
        let wrong = |error: farpool_model::Error| ParseError::new(at, error.message.replace('\n', " "));
        let expr = if is_like {
            let expr = Expr::Like { value, pattern, case_insensitive };
            expr.data_type(self.columns.schema).map_err(wrong)?;
            expr
        } else {
            Expr::Regex { value, pattern: Pattern::new(&pattern, case_insensitive).map_err(wrong)? }
        };
        Ok(negated(expr, is_negated))
    }
}

fn negated(expr: Expr, is_negated: bool) -> Predicate {
    Predicate::Columns(if is_negated { Expr::not(expr) } else { expr })
}
