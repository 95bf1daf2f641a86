//! Conditions on keys, strings and fields of variable width.

use super::{Batch, each};
use crate::rows::RowSchema;
use farpool_model::{CompareOp, LikePieces};
use std::sync::Arc;

/// The bytes that a condition reads.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// The key without its first bytes.
    Key(usize),
    /// The string.
    Value,
    /// A field of a row.
    Field(Arc<RowSchema>, usize),
}

/// A test of bytes.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Compare(CompareOp, Box<[u8]>),
    /// True if the bytes are in this sorted list.
    OneOf(Vec<Box<[u8]>>),
    Like(LikePieces),
}

/// A condition on bytes; false if there are none.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub place: Place,
    pub test: Test,
    /// Whether the test must fail.
    pub is_inverted: bool,
}

impl Test {
    fn passes(&self, bytes: &[u8]) -> bool {
        match self {
            Test::Compare(op, constant) => match op {
                CompareOp::Eq => bytes == &**constant,
                CompareOp::NotEq => bytes != &**constant,
                CompareOp::Lt => bytes < &**constant,
                CompareOp::LtEq => bytes <= &**constant,
                CompareOp::Gt => bytes > &**constant,
                CompareOp::GtEq => bytes >= &**constant,
            },
            Test::OneOf(all) => all.binary_search_by(|one| (**one).cmp(bytes)).is_ok(),
            Test::Like(pieces) => pieces.is_match(bytes),
        }
    }
}

impl Text {
    pub fn judge(&self, batch: &Batch<'_>, asked: u64) -> u64 {
        match &self.place {
            Place::Key(prefix) => each(batch, asked, |row| {
                let key = batch.entry(row).key();
                self.test.passes(key.get(*prefix..).unwrap_or_default()) != self.is_inverted
            }),
            Place::Value => {
                let asked = asked & batch.has_value();
                if let Test::Like(pieces) = &self.test
                    && let Some(finder) = pieces.anywhere()
                    && let Some(found) = batch.find(finder, asked)
                {
                    return if self.is_inverted { asked & !found } else { found };
                }
                each(batch, asked, |row| self.test.passes(batch.values()[row]) != self.is_inverted)
            }
            Place::Field(schema, at) => each(batch, asked, |row| {
                let field = schema.field(batch.values()[row], *at);
                field.is_some_and(|bytes| self.test.passes(bytes) != self.is_inverted)
            }),
        }
    }
}
