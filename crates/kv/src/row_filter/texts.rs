//! Conditions of a row filter (a SQL condition evaluated on entries of a space in place) on bytes of variable length:
//! keys, strings, and fields of rows with text or bytes.

use super::{Batch, each};
use crate::rows::RowSchema;
use farpool_model::{CompareOp, LikePieces};
use std::sync::Arc;

/// The bytes of an entry that a condition reads.
#[derive(Clone, Debug)]
pub(super) enum ByteSource {
    /// The key without its first bytes, the prefix of the space; the number of these bytes.
    Key(usize),
    /// The value of the entry, which is a string.
    Value,
    /// A field of a row, by its index in the schema.
    Field(Arc<RowSchema>, usize),
}

/// A test of the bytes that a condition reads.
#[derive(Clone, Debug)]
pub(super) enum BytesTest {
    Compare(CompareOp, Box<[u8]>),
    /// Whether the bytes are in this sorted list.
    OneOf(Vec<Box<[u8]>>),
    Like(LikePieces),
}

/// A condition on bytes of an entry; false if the entry has no such bytes (NULL).
#[derive(Clone, Debug)]
pub(super) struct BytesCondition {
    pub place: ByteSource,
    pub test: BytesTest,
    /// Whether the condition is true if the test fails.
    pub is_inverted: bool,
}

impl BytesTest {
    fn passes(&self, bytes: &[u8]) -> bool {
        match self {
            BytesTest::Compare(op, constant) => match op {
                CompareOp::Eq => bytes == &**constant,
                CompareOp::NotEq => bytes != &**constant,
                CompareOp::Lt => bytes < &**constant,
                CompareOp::LtEq => bytes <= &**constant,
                CompareOp::Gt => bytes > &**constant,
                CompareOp::GtEq => bytes >= &**constant,
            },
            BytesTest::OneOf(all) => all.binary_search_by(|one| (**one).cmp(bytes)).is_ok(),
            BytesTest::Like(pieces) => pieces.is_match(bytes),
        }
    }
}

impl BytesCondition {
    pub fn judge(&self, batch: &Batch<'_>, asked: u64) -> u64 {
        match &self.place {
            ByteSource::Key(prefix) => each(batch, asked, |row| {
                let key = batch.entry(row).key();
                self.test.passes(key.get(*prefix..).unwrap_or_default()) != self.is_inverted
            }),
            ByteSource::Value => {
                let asked = asked & batch.has_value();
                if let BytesTest::Like(pieces) = &self.test
                    && let Some(finder) = pieces.anywhere()
                    && let Some(found) = batch.find(finder, asked)
                {
                    return if self.is_inverted { asked & !found } else { found };
                }
                each(batch, asked, |row| self.test.passes(batch.values()[row]) != self.is_inverted)
            }
            ByteSource::Field(schema, at) => each(batch, asked, |row| {
                let field = schema.field(batch.values()[row], *at);
                field.is_some_and(|bytes| self.test.passes(bytes) != self.is_inverted)
            }),
        }
    }
}
