//! Compiles SQL expressions to row filters, which evaluate them on the entries of a space in place.
//!
//! Negations are pushed down through AND and OR by De Morgan's laws to single conditions. A negated condition is true
//! where the condition is false; on NULL, neither the condition nor its negation is true.

use super::fields::{FieldRanges, ListCondition, Number};
use super::texts::{ByteSource, BytesCondition, BytesTest};
use super::{ConditionNode, RowFilter};
use crate::entry::Kind;
use crate::predicate::{NumberRange, NumberType};
use crate::rows::{ColumnType, RowSchema};
use arrow_schema::DataType;
use farpool_model::{CompareOp, Expr, LikePieces, Literal, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of conditions of a filter. Reason for a limit: entries are filtered while their shard is locked, so
/// further conditions are evaluated later, on copies of the entries.
pub(super) const CONDITIONS: usize = 64;

/// Maximum length of a list of numbers (IN) that is evaluated as single comparisons; longer lists are searched.
const RANGES: usize = 4;

pub(super) fn filter(condition: &Expr, rows: Option<&RowSchema>, prefix_bytes: usize) -> Option<RowFilter> {
    let mut builder = Builder {
        rows: rows.map(|rows| Arc::new(rows.clone())),
        prefix_bytes,
        is_exact: true,
        columns: BTreeSet::new(),
        conditions: 0,
        texts: 0,
    };
    let root = builder.node(condition, false);
    if matches!(root, ConditionNode::Always) && !builder.is_exact {
        return None;
    }
    let width = |column: &usize| rows.and_then(|rows| rows.column(*column).kind.width());
    let fixed_bytes = builder.columns.iter().filter_map(width).sum();
    let kind = if rows.is_some() { Kind::Row } else { Kind::String };
    let Builder { is_exact, conditions, texts, .. } = builder;
    Some(RowFilter { root, is_exact, kind, fixed_bytes, conditions, texts })
}

struct Builder {
    rows: Option<Arc<RowSchema>>,
    prefix_bytes: usize,
    /// Whether the filter has all parts of the condition.
    is_exact: bool,
    /// Indices of the columns that the filter reads.
    columns: BTreeSet<usize>,
    /// Number of conditions; `texts` is the number of those on bytes of variable length.
    conditions: usize,
    texts: usize,
}

/// Form in which the values of a column are stored in an entry.
enum StoredColumn {
    Number(Number, ColumnType),
    Text(ByteSource),
}

impl Builder {
    /// Returns a node for a part of the condition that cannot be evaluated in place: it passes every entry.
    fn left_out(&mut self) -> ConditionNode {
        self.is_exact = false;
        ConditionNode::Always
    }

    fn node(&mut self, expr: &Expr, is_negated: bool) -> ConditionNode {
        match expr {
            Expr::And(parts) => self.all(parts, !is_negated, is_negated),
            Expr::Or(parts) => self.all(parts, is_negated, is_negated),
            Expr::Not(inner) => self.node(inner, !is_negated),
            _ if self.conditions == CONDITIONS => self.left_out(),
            condition => {
                self.conditions += 1;
                let node = self.condition(condition, is_negated).unwrap_or_else(|| self.left_out());
                self.texts += usize::from(matches!(node, ConditionNode::Text(_)));
                node
            }
        }
    }

    /// Compiles a condition other than AND, OR and NOT; returns `None` if it cannot be evaluated in place.
    fn condition(&mut self, expr: &Expr, is_negated: bool) -> Option<ConditionNode> {
        match expr {
            Expr::Literal(literal) => match literal.value() {
                Value::Bool(truth) if *truth != is_negated => Some(ConditionNode::Always),
                Value::Bool(_) | Value::Null => Some(ConditionNode::Never),
                _ => None,
            },
            Expr::Column(column) => self.truth(*column, !is_negated),
            Expr::Compare(op, left, right) => match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(literal)) => {
                    self.compare(*column, *op, literal, is_negated)
                }
                (Expr::Literal(literal), Expr::Column(column)) => {
                    self.compare(*column, op.swapped(), literal, is_negated)
                }
                _ => None,
            },
            Expr::IsNull(inner) => match &**inner {
                Expr::Column(column) => self.null(*column, !is_negated),
                _ => None,
            },
            Expr::InList(value, list) => match &**value {
                Expr::Column(column) => self.listed(*column, list, is_negated),
                _ => None,
            },
            Expr::Like { value, pattern, case_insensitive: false } => match &**value {
                Expr::Column(column) => self.like(*column, pattern, is_negated),
                _ => None,
            },
            _ => None,
        }
    }

    /// Compiles AND or OR. If a part of AND cannot be evaluated in place, only this part is left out; if a part of OR
    /// cannot, the whole OR is left out.
    fn all(&mut self, parts: &[Expr], is_all: bool, is_negated: bool) -> ConditionNode {
        let (mut fields, mut nodes) = (FieldRanges::default(), Vec::new());
        let mut has_fields = false;
        for part in parts {
            match (self.node(part, is_negated), is_all) {
                (ConditionNode::Always, true) | (ConditionNode::Never, false) => {}
                (ConditionNode::Always, false) => return ConditionNode::Always,
                (ConditionNode::Never, true) => return ConditionNode::Never,
                (ConditionNode::Fields(of_part), true) => {
                    fields.add_all(of_part);
                    has_fields = true;
                }
                (ConditionNode::All(more), true) | (ConditionNode::Any(more), false) => nodes.extend(more),
                (node, _) => nodes.push(node),
            }
        }
        if has_fields {
            fields.pack(self.rows.as_ref().map_or(0, |rows| rows.fixed_bytes()));
            nodes.push(ConditionNode::Fields(fields));
        }
        nodes.sort_by_key(ConditionNode::cost);
        match (nodes.len(), is_all) {
            (0, true) => ConditionNode::Always,
            (0, false) => ConditionNode::Never,
            (1, _) => nodes.swap_remove(0),
            (_, true) => ConditionNode::All(nodes),
            (_, false) => ConditionNode::Any(nodes),
        }
    }

    fn stored(&mut self, column: usize) -> Option<StoredColumn> {
        let stored = match (&self.rows, column) {
            (None, 0) => StoredColumn::Text(ByteSource::Key(0)),
            (None, 1) => StoredColumn::Text(ByteSource::Value),
            // The column `ttl` cannot be filtered in place, because the expiry is stored in another form.
            (None, _) => return None,
            (Some(rows), 0) => match rows.key().kind {
                ColumnType::Utf8 | ColumnType::Binary => {
                    StoredColumn::Text(ByteSource::Key(self.prefix_bytes))
                }
                _ => return None,
            },
            (Some(rows), column) => {
                let (at, kind) = (column - 1, rows.fields().get(column - 1)?.kind);
                match kind.width() {
                    Some(bytes) => StoredColumn::Number(Number { at, offset: rows.offset(at), bytes }, kind),
                    None => StoredColumn::Text(ByteSource::Field(rows.clone(), at)),
                }
            }
        };
        self.columns.insert(column);
        Some(stored)
    }

    fn range(number: Number, range: NumberRange, is_negated: bool) -> ConditionNode {
        let mut fields = FieldRanges::default();
        fields.add(number, if is_negated { range.inverted() } else { range });
        fields.pack(0);
        ConditionNode::Fields(fields)
    }

    fn truth(&mut self, column: usize, wanted: bool) -> Option<ConditionNode> {
        match self.stored(column)? {
            StoredColumn::Number(number, ColumnType::Bool) => {
                Some(Self::range(number, NumberRange::truth(wanted, !wanted), false))
            }
            _ => None,
        }
    }

    fn compare(
        &mut self,
        column: usize,
        op: CompareOp,
        literal: &Literal,
        is_negated: bool,
    ) -> Option<ConditionNode> {
        if literal.is_null() {
            return Some(ConditionNode::Never);
        }
        match self.stored(column)? {
            StoredColumn::Number(number, kind) => {
                Some(Self::range(number, number_range(kind, op, literal)?, is_negated))
            }
            StoredColumn::Text(place) => {
                let test = BytesTest::Compare(op, bytes_of(literal)?.into());
                Some(ConditionNode::Text(BytesCondition { place, test, is_inverted: is_negated }))
            }
        }
    }

    fn null(&mut self, column: usize, is_null: bool) -> Option<ConditionNode> {
        match (&self.rows, column) {
            (_, 0) => Some(if is_null { ConditionNode::Never } else { ConditionNode::Always }),
            (None, 1) => Some(ConditionNode::Null { field: None, is_null }),
            (None, _) => None,
            // Columns after the first, which is the key, are fields of the row.
            (Some(rows), column) => {
                rows.fields().get(column - 1)?;
                Some(ConditionNode::Null { field: Some((rows.clone(), column - 1)), is_null })
            }
        }
    }

    fn listed(&mut self, column: usize, list: &[Literal], is_negated: bool) -> Option<ConditionNode> {
        let has_null = list.iter().any(Literal::is_null);
        if has_null && is_negated {
            return Some(ConditionNode::Never);
        }
        let literals: Vec<&Literal> = list.iter().filter(|literal| !literal.is_null()).collect();
        match self.stored(column)? {
            StoredColumn::Text(place) => {
                let mut all: Vec<Box<[u8]>> = literals
                    .into_iter()
                    .map(|literal| bytes_of(literal).map(Box::from))
                    .collect::<Option<_>>()?;
                all.sort_unstable();
                Some(ConditionNode::Text(BytesCondition {
                    place,
                    test: BytesTest::OneOf(all),
                    is_inverted: is_negated,
                }))
            }
            StoredColumn::Number(number, kind) => {
                if literals.len() <= RANGES {
                    let equal = |literal| {
                        Some(Self::range(number, number_range(kind, CompareOp::Eq, literal)?, is_negated))
                    };
                    let mut nodes = literals.into_iter().map(equal).collect::<Option<Vec<_>>>()?;
                    return Some(match (nodes.len(), is_negated) {
                        (0, true) => ConditionNode::Null {
                            field: Some((self.rows.clone()?, number.at)),
                            is_null: false,
                        },
                        (0, false) => ConditionNode::Never,
                        (1, _) => nodes.swap_remove(0),
                        (_, true) => ConditionNode::All(nodes),
                        (_, false) => ConditionNode::Any(nodes),
                    });
                }
                let bits_of = |literal: &Literal| match kind {
                    ColumnType::Int(_) | ColumnType::UInt(_) | ColumnType::Date | ColumnType::Timestamp => {
                        // Keeps as many of the lowest bytes as the column stores.
                        Some(literal.as_int()? as u64 & (u64::MAX >> (64 - 8 * number.bytes)))
                    }
                    _ => None,
                };
                let mut bits = literals.into_iter().map(bits_of).collect::<Option<Vec<u64>>>()?;
                bits.sort_unstable();
                Some(ConditionNode::Listed(ListCondition { number, bits, is_inverted: is_negated }))
            }
        }
    }

    fn like(&mut self, column: usize, pattern: &str, is_negated: bool) -> Option<ConditionNode> {
        match self.stored(column)? {
            StoredColumn::Text(place) => {
                let test = BytesTest::Like(LikePieces::of(pattern)?);
                Some(ConditionNode::Text(BytesCondition { place, test, is_inverted: is_negated }))
            }
            StoredColumn::Number(..) => None,
        }
    }
}

impl ConditionNode {
    /// Returns the cost class of a node; cheaper nodes are evaluated first.
    fn cost(&self) -> u32 {
        match self {
            ConditionNode::Always | ConditionNode::Never => 0,
            ConditionNode::Null { .. } => 1,
            ConditionNode::Fields(_) => 2,
            ConditionNode::Listed(_) => 3,
            ConditionNode::Any(parts) | ConditionNode::All(parts) => {
                1 + parts.iter().map(ConditionNode::cost).max().unwrap_or(0)
            }
            ConditionNode::Text(BytesCondition { test: BytesTest::Compare(..), .. }) => 8,
            ConditionNode::Text(BytesCondition { test: BytesTest::OneOf(_), .. }) => 9,
            ConditionNode::Text(BytesCondition { test: BytesTest::Like(_), .. }) => 10,
        }
    }
}

fn number_type(kind: ColumnType) -> Option<NumberType> {
    Some(match kind {
        ColumnType::Int(1) => NumberType::I8,
        ColumnType::Int(2) => NumberType::I16,
        ColumnType::Int(4) | ColumnType::Date => NumberType::I32,
        ColumnType::Int(_) | ColumnType::Timestamp => NumberType::I64,
        ColumnType::UInt(1) => NumberType::U8,
        ColumnType::UInt(2) => NumberType::U16,
        ColumnType::UInt(4) => NumberType::U32,
        ColumnType::UInt(_) => NumberType::U64,
        ColumnType::F32 => NumberType::F32,
        ColumnType::F64 => NumberType::F64,
        ColumnType::Bool | ColumnType::Utf8 | ColumnType::Binary => return None,
    })
}

/// Returns the range of a column's numbers that pass a comparison with a constant; `None` for constants that are not
/// finite numbers.
fn number_range(kind: ColumnType, op: CompareOp, literal: &Literal) -> Option<NumberRange> {
    match literal.value() {
        Value::Int(number) => Some(NumberRange::whole(number_type(kind)?, op, *number)),
        Value::Float(number) if number.is_finite() => {
            Some(NumberRange::float(number_type(kind)?, op, *number))
        }
        Value::Bool(constant) => {
            let passes = |value: bool| match op {
                CompareOp::Eq => value == *constant,
                CompareOp::NotEq => value != *constant,
                CompareOp::Lt => !value & constant,
                CompareOp::LtEq => value <= *constant,
                CompareOp::Gt => value & !constant,
                CompareOp::GtEq => value >= *constant,
            };
            Some(NumberRange::truth(passes(true), passes(false)))
        }
        _ => None,
    }
}

fn bytes_of(literal: &Literal) -> Option<&[u8]> {
    match (literal.value(), literal.data_type()) {
        (Value::Text(text), DataType::Utf8View) => Some(text.as_bytes()),
        (Value::Bytes(bytes), DataType::BinaryView) => Some(bytes),
        _ => None,
    }
}
