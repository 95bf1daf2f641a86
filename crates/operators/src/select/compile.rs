//! A filter as a tree of predicates, each in the form that needs the least work.

use super::texts::Texts;
use crate::evaluate::{Compiled, Members};
use crate::lanes::{LaneId, Lanes};
use arrow_schema::{DataType, Schema};
use farpool_model::{CompareOp, Expr, KeyFilter, Literal, Result, Value, schema};

/// A compiled filter.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(super) root: Predicate,
    pub(super) lanes: Lanes,
    columns: Vec<usize>,
}

/// A predicate: how it is computed, and what it costs relative to others.
#[derive(Debug)]
pub(super) enum Predicate {
    /// The same for all rows.
    Known(Option<bool>),
    And(Vec<Predicate>),
    Or(Vec<Predicate>),
    Not(Box<Predicate>),
    IsNull(usize),
    /// A condition on values, with its plain form for chunks that it does not fit.
    Leaf(Box<Leaf>),
}

#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) form: Form,
    /// The same condition for the general evaluator.
    pub(super) general: Compiled,
    /// What the zone map is asked.
    pub(super) zone: Option<ZoneTest>,
}

/// The encoded form of a condition.
#[derive(Debug)]
pub(super) enum Form {
    /// `low <= column <= high`, of integers.
    Range { column: usize, low: i128, high: i128 },
    /// A comparison of a float with a constant of its type.
    Float { column: usize, op: CompareOp, literal: f64 },
    /// Membership in a sorted list of integers.
    Members { column: usize, members: Members },
    /// Columns whose hash, of their values together, is looked for in a filter of keys.
    Keys { columns: Vec<usize>, filter: KeyFilter },
    /// Any condition on one string or binary column: asked once for each value of a dictionary. A pattern also
    /// runs over strings as they lie.
    Bytes { column: usize, texts: Option<Texts> },
    /// A comparison of two integer expressions on lanes.
    Lanes { op: CompareOp, left: LaneId, right: LaneId },
    /// None.
    General,
}

/// A condition that a zone map can answer.
#[derive(Debug)]
pub(super) enum ZoneTest {
    Compare {
        column: usize,
        op: CompareOp,
        literal: Literal,
    },
    /// The least and greatest member; NULL is not in the list.
    Members {
        column: usize,
        min: Literal,
        max: Literal,
    },
}

impl Filter {
    /// Compiles `expr`, a boolean over a table with `schema`.
    ///
    /// # Errors
    /// `Invalid` when it is not well typed or has an opaque part.
    pub(crate) fn new(expr: &Expr, schema: &Schema) -> Result<Filter> {
        let mut columns = std::collections::BTreeSet::new();
        expr.collect_columns(&mut columns);
        let mut lanes = Lanes::default();
        let root = predicate(expr, schema, &mut lanes)?;
        Ok(Filter { root, lanes, columns: columns.into_iter().collect() })
    }

    /// The same filter without its encoded forms and zone tests: everything goes to the general evaluator.
    pub(crate) fn plain(mut self) -> Filter {
        self.root.make_plain();
        self
    }

    /// The columns that it reads, sorted.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }
}

impl Predicate {
    /// Whether it must not run on rows that others rule out.
    pub(super) fn is_fallible(&self) -> bool {
        match self {
            Predicate::Known(_) | Predicate::IsNull(_) => false,
            Predicate::And(parts) | Predicate::Or(parts) => parts.iter().any(Predicate::is_fallible),
            Predicate::Not(inner) => inner.is_fallible(),
            Predicate::Leaf(leaf) => leaf.general.is_fallible(),
        }
    }

    fn make_plain(&mut self) {
        match self {
            Predicate::Known(_) | Predicate::IsNull(_) => {}
            Predicate::And(parts) | Predicate::Or(parts) => parts.iter_mut().for_each(Predicate::make_plain),
            Predicate::Not(inner) => inner.make_plain(),
            Predicate::Leaf(leaf) => {
                leaf.form = Form::General;
                leaf.zone = None;
            }
        }
    }

    /// Cheap predicates run first. The order of those that may fail is kept.
    pub(super) fn cost(&self) -> u32 {
        if self.is_fallible() {
            return u32::MAX;
        }
        match self {
            Predicate::Known(_) => 0,
            Predicate::IsNull(_) => 1,
            Predicate::And(parts) | Predicate::Or(parts) => {
                parts.iter().fold(1, |sum: u32, part| sum.saturating_add(part.cost())).min(u32::MAX - 1)
            }
            Predicate::Not(inner) => inner.cost(),
            Predicate::Leaf(leaf) => match &leaf.form {
                Form::Range { .. } => 2,
                Form::Float { .. } => 5,
                Form::Members { .. } => 10,
                Form::Keys { .. } => 15,
                Form::Bytes { .. } => 20,
                Form::Lanes { .. } => 30,
                Form::General => 1000,
            },
        }
    }
}

fn predicate(expr: &Expr, schema: &Schema, lanes: &mut Lanes) -> Result<Predicate> {
    Ok(match expr {
        Expr::Literal(literal) => Predicate::Known(match literal.value() {
            Value::Bool(value) => Some(*value),
            _ => None,
        }),
        Expr::And(parts) => {
            let parts = parts.iter().map(|p| predicate(p, schema, lanes)).collect::<Result<_>>()?;
            Predicate::And(ordered(merge_ranges(flatten(parts))))
        }
        Expr::Or(parts) => {
            let parts = parts.iter().map(|p| predicate(p, schema, lanes)).collect::<Result<_>>()?;
            Predicate::Or(ordered(parts))
        }
        Expr::Not(inner) => Predicate::Not(Box::new(predicate(inner, schema, lanes)?)),
        Expr::IsNull(inner) if matches!(**inner, Expr::Column(_)) => {
            let Expr::Column(column) = **inner else { unreachable!("just matched") };
            Predicate::IsNull(column)
        }
        Expr::Compare(op, l, r) => compare(expr, *op, l, r, schema, lanes)?,
        _ => leaf(expr, form_of(expr, schema), zone_of(expr, schema), schema)?,
    })
}

fn leaf(expr: &Expr, form: Form, zone: Option<ZoneTest>, schema: &Schema) -> Result<Predicate> {
    Ok(Predicate::Leaf(Box::new(Leaf { form, general: Compiled::new(expr, schema)?, zone })))
}

fn compare(
    expr: &Expr,
    op: CompareOp,
    left: &Expr,
    right: &Expr,
    schema: &Schema,
    lanes: &mut Lanes,
) -> Result<Predicate> {
    let (op, column, literal) = match (left, right) {
        (_, Expr::Literal(l)) | (Expr::Literal(l), _) if l.is_null() => {
            // NULL whatever the other side is, unless computing it fails.
            let general = leaf(expr, Form::General, None, schema)?;
            return Ok(if general.is_fallible() { general } else { Predicate::Known(None) });
        }
        (Expr::Column(column), Expr::Literal(literal)) => (op, *column, literal),
        (Expr::Literal(literal), Expr::Column(column)) => (op.swapped(), *column, literal),
        _ => {
            let sides = lanes.add(left, schema).zip(lanes.add(right, schema));
            let form = match sides {
                Some((left, right)) => Form::Lanes { op, left, right },
                None => form_of(expr, schema),
            };
            return leaf(expr, form, None, schema);
        }
    };
    let zone = Some(ZoneTest::Compare { column, op, literal: literal.clone() });
    match literal.as_int() {
        Some(value) => {
            let (low, high, inside) = range_of(op, value);
            let range = leaf(expr, Form::Range { column, low, high }, zone, schema)?;
            if inside {
                return Ok(range);
            }
            // The leaf is the negation of what is asked, and so must be its plain form.
            let equal = Expr::compare(CompareOp::Eq, Expr::Column(column), Expr::Literal(literal.clone()));
            let zone = ZoneTest::Compare { column, op: CompareOp::Eq, literal: literal.clone() };
            let range = leaf(&equal, Form::Range { column, low, high }, Some(zone), schema)?;
            Ok(Predicate::Not(Box::new(range)))
        }
        None => {
            let form = match literal.value() {
                Value::Float(literal) => Form::Float { column, op, literal: *literal },
                _ => form_of(expr, schema),
            };
            leaf(expr, form, zone, schema)
        }
    }
}

/// The integers for which `v op value` holds, as a closed range, or (`false`) for which it does not.
fn range_of(op: CompareOp, value: i128) -> (i128, i128, bool) {
    const EMPTY: (i128, i128, bool) = (1, 0, true);
    match op {
        CompareOp::Eq => (value, value, true),
        CompareOp::NotEq => (value, value, false),
        CompareOp::Lt => value.checked_sub(1).map_or(EMPTY, |high| (i128::MIN, high, true)),
        CompareOp::LtEq => (i128::MIN, value, true),
        CompareOp::Gt => value.checked_add(1).map_or(EMPTY, |low| (low, i128::MAX, true)),
        CompareOp::GtEq => (value, i128::MAX, true),
    }
}

fn form_of(expr: &Expr, schema: &Schema) -> Form {
    if let Expr::InList(value, list) = expr
        && let Expr::Column(column) = **value
        && schema::is_integer_like(schema.field(column).data_type())
    {
        return Form::Members { column, members: Members::new(list) };
    }
    if let Expr::InFilter(values, filter) = expr
        && let Some(columns) = values.iter().map(Expr::as_column).collect::<Option<Vec<usize>>>()
    {
        return Form::Keys { columns, filter: filter.clone() };
    }
    if let Expr::InSet(value, set) = expr
        && let Expr::Column(column) = **value
    {
        return Form::Members { column, members: Members::of_set(set) };
    }
    let mut columns = std::collections::BTreeSet::new();
    expr.collect_columns(&mut columns);
    match columns.first() {
        Some(&column) if columns.len() == 1 && schema::is_bytes(schema.field(column).data_type()) => {
            let texts = Texts::of(expr).filter(|_| *schema.field(column).data_type() == DataType::Utf8View);
            Form::Bytes { column, texts }
        }
        _ => Form::General,
    }
}

fn zone_of(expr: &Expr, schema: &Schema) -> Option<ZoneTest> {
    if let Expr::InSet(value, set) = expr
        && let Expr::Column(column) = **value
    {
        let bound = |key: i64| Literal::new(Value::Int(key.into()), schema.field(column).data_type().clone());
        return Some(ZoneTest::Members { column, min: bound(set.min()).ok()?, max: bound(set.max()).ok()? });
    }
    let Expr::InList(value, list) = expr else { return None };
    let Expr::Column(column) = **value else { return None };
    if list.is_empty() || list.iter().any(Literal::is_null) {
        return None;
    }
    let extreme = |wanted: std::cmp::Ordering| {
        list.iter()
            .try_fold(&list[0], |best, l| l.compare(best).map(|order| if order == wanted { l } else { best }))
    };
    let (min, max) = (extreme(std::cmp::Ordering::Less)?, extreme(std::cmp::Ordering::Greater)?);
    Some(ZoneTest::Members { column, min: min.clone(), max: max.clone() })
}

fn flatten(parts: Vec<Predicate>) -> Vec<Predicate> {
    let flat = parts.into_iter().flat_map(|part| match part {
        Predicate::And(inner) => inner,
        other => vec![other],
    });
    flat.collect()
}

/// One range per column instead of one per bound: `a >= 1 AND a < 5` reads the column once.
fn merge_ranges(parts: Vec<Predicate>) -> Vec<Predicate> {
    let mut merged: Vec<Predicate> = Vec::with_capacity(parts.len());
    for part in parts {
        let Some((column, low, high)) = as_range(&part) else {
            merged.push(part);
            continue;
        };
        let same = |p: &&mut Predicate| as_range(p).is_some_and(|(other, ..)| other == column);
        match (merged.iter_mut().find(same), part) {
            (Some(Predicate::Leaf(earlier)), Predicate::Leaf(leaf)) => {
                if let Form::Range { low: lowest, high: highest, .. } = &mut earlier.form {
                    (*lowest, *highest) = ((*lowest).max(low), (*highest).min(high));
                }
                earlier.general.and(leaf.general);
                earlier.zone = None;
            }
            (_, part) => merged.push(part),
        }
    }
    merged
}

fn as_range(predicate: &Predicate) -> Option<(usize, i128, i128)> {
    match predicate {
        Predicate::Leaf(leaf) => match leaf.form {
            Form::Range { column, low, high } => Some((column, low, high)),
            _ => None,
        },
        _ => None,
    }
}

fn ordered(mut parts: Vec<Predicate>) -> Vec<Predicate> {
    parts.sort_by_key(Predicate::cost);
    parts
}
