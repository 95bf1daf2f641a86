//! Compiles a filter into a tree of predicates, each in its cheapest form.

use super::texts::Texts;
use crate::evaluate::{Compiled, Members};
use crate::lanes::{LaneId, Lanes};
use arrow_schema::{DataType, Schema};
use farpool_model::{Columns, CompareOp, Expr, KeyFilter, Literal, Result, Value, limits, schema};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A compiled filter.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(super) root: Predicate,
    pub(super) lanes: Lanes,
    columns: Vec<usize>,
    /// Number of further patterns that may be compiled to automata. It is limited because of their memory.
    automata_left: usize,
}

/// A predicate on rows. Clones share their leaves (conditions).
#[derive(Clone, Debug)]
pub(super) enum Predicate {
    /// A truth value that all rows have; `None` for NULL.
    Known(Option<bool>),
    And(Parts),
    Or(Parts),
    Not(Box<Predicate>),
    IsNull(usize),
    /// A condition on values: a leaf of the tree.
    Leaf(Arc<Leaf>),
}

/// Operands of an AND or OR with their costs, the cheapest first.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) parts: Vec<Predicate>,
    pub(super) costs: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) form: Form,
    /// The condition for the evaluator on decoded values, used for chunks whose encoding the encoded form does not
    /// support.
    pub(super) general: Compiled,
    /// The condition as a test of zone maps; `None` if they cannot decide it.
    pub(super) zone: Option<ZoneTest>,
}

/// Form in which a condition is evaluated on encoded values.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// `low <= column <= high`, for integers.
    Range { column: usize, low: i128, high: i128 },
    /// Comparison of a float column with a constant of its type.
    Float { column: usize, op: CompareOp, literal: f64 },
    /// Membership in a sorted list of integers.
    Members { column: usize, members: Members },
    /// Filter of join keys, which is probed with the hash of these columns' values.
    Keys { columns: Vec<usize>, filter: KeyFilter },
    /// Any condition on one string or binary column, evaluated once per dictionary entry. If it is a pattern, an
    /// automaton can also match strings that have no dictionary.
    Bytes { column: usize, texts: Option<Texts> },
    /// Comparison of two integer expressions.
    Lanes { op: CompareOp, left: LaneId, right: LaneId },
    /// No encoded form: the condition is evaluated on decoded values.
    General,
}

/// Condition that a zone map may decide.
#[derive(Clone, Debug)]
pub(super) enum ZoneTest {
    Compare {
        column: usize,
        op: CompareOp,
        literal: Literal,
    },
    /// Membership in a list without NULL, tested by the list's least and greatest member.
    Members {
        column: usize,
        min: Literal,
        max: Literal,
    },
}

impl Filter {
    /// Compiles `expr`, a boolean over `columns`.
    ///
    /// # Errors
    /// `Invalid` when the expression is not well typed or has an opaque part.
    pub(crate) fn new<'a>(expr: &Expr, columns: impl Into<Columns<'a>>) -> Result<Filter> {
        let all = Filter {
            root: Predicate::And(Parts::new(Vec::new())),
            lanes: Lanes::default(),
            columns: Vec::new(),
            automata_left: limits::AUTOMATA_MAX,
        };
        all.compile(expr, columns.into(), |_, root| root)
    }

    /// Returns the filter for rows that pass this one and also satisfy `conditions`. Only the conditions are compiled;
    /// the rest is shared.
    ///
    /// # Errors
    /// As [`Filter::new`].
    pub(crate) fn narrowed(&self, conditions: &Expr, schema: &Schema) -> Result<Filter> {
        self.compile(conditions, schema.into(), |before, added| conjunction(vec![before.clone(), added]))
    }

    /// Compiles `expr` to a predicate. `combine` makes the new root of the filter from the old root and the
    /// predicate.
    fn compile(
        &self,
        expr: &Expr,
        known: Columns<'_>,
        combine: impl FnOnce(&Predicate, Predicate) -> Predicate,
    ) -> Result<Filter> {
        let mut columns: BTreeSet<usize> = self.columns.iter().copied().collect();
        expr.collect_columns(&mut columns);
        let (schema, lanes) = (known.schema(), self.lanes.clone());
        let mut compiler = Compiler { known, schema, lanes, automata_left: self.automata_left };
        let root = combine(&self.root, compiler.predicate(expr)?);
        let Compiler { lanes, automata_left, .. } = compiler;
        Ok(Filter { root, lanes, columns: columns.into_iter().collect(), automata_left })
    }

    /// Removes the encoded forms and zone map tests, so that everything is evaluated on decoded values.
    pub(crate) fn plain(mut self) -> Filter {
        self.root.make_plain();
        self
    }

    /// Returns the columns that the filter reads, sorted.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }
}

/// Cost of a predicate that may fail, for example by dividing by zero. It is evaluated last, so that it sees only rows
/// that the other predicates leave.
const FALLIBLE: u32 = u32::MAX;

impl Predicate {
    fn make_plain(&mut self) {
        match self {
            Predicate::Known(_) | Predicate::IsNull(_) => {}
            Predicate::And(of) | Predicate::Or(of) => {
                of.parts.iter_mut().for_each(Predicate::make_plain);
                *of = Parts::new(std::mem::take(&mut of.parts));
            }
            Predicate::Not(inner) => inner.make_plain(),
            Predicate::Leaf(leaf) => {
                let leaf = Arc::make_mut(leaf);
                leaf.form = Form::General;
                leaf.zone = None;
            }
        }
    }

    /// Returns the relative cost by which predicates are ordered. All predicates that may fail have the same cost,
    /// and so keep their order.
    fn cost(&self) -> u32 {
        match self {
            Predicate::Known(_) => 0,
            Predicate::IsNull(_) => 1,
            Predicate::And(of) | Predicate::Or(of) => of.cost(),
            Predicate::Not(inner) => inner.cost(),
            Predicate::Leaf(leaf) if leaf.general.is_fallible() => FALLIBLE,
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

impl Parts {
    fn new(mut parts: Vec<Predicate>) -> Parts {
        parts.sort_by_cached_key(Predicate::cost);
        let costs = parts.iter().map(Predicate::cost).collect();
        Parts { parts, costs }
    }

    fn cost(&self) -> u32 {
        if self.costs.contains(&FALLIBLE) {
            return FALLIBLE;
        }
        self.costs.iter().fold(1, |sum: u32, cost| sum.saturating_add(*cost)).min(FALLIBLE - 1)
    }
}

/// State of the compilation of a filter.
struct Compiler<'a> {
    known: Columns<'a>,
    schema: &'a Schema,
    lanes: Lanes,
    /// Number of further patterns that may be compiled to automata.
    automata_left: usize,
}

impl Compiler<'_> {
    fn predicate(&mut self, expr: &Expr) -> Result<Predicate> {
        Ok(match expr {
            Expr::Literal(literal) => Predicate::Known(match literal.value() {
                Value::Bool(value) => Some(*value),
                _ => None,
            }),
            Expr::And(parts) => conjunction(parts.iter().map(|p| self.predicate(p)).collect::<Result<_>>()?),
            Expr::Or(parts) => {
                Predicate::Or(Parts::new(parts.iter().map(|p| self.predicate(p)).collect::<Result<_>>()?))
            }
            Expr::Not(inner) => Predicate::Not(Box::new(self.predicate(inner)?)),
            Expr::IsNull(inner) => match inner.as_column() {
                Some(column) => Predicate::IsNull(column),
                None => {
                    let form = self.form_of(expr);
                    self.leaf(expr, form, None)?
                }
            },
            Expr::Compare(op, l, r) => self.compare(expr, *op, l, r)?,
            _ => {
                let form = self.form_of(expr);
                self.leaf(expr, form, zone_of(expr, self.schema))?
            }
        })
    }

    fn leaf(&self, expr: &Expr, form: Form, zone: Option<ZoneTest>) -> Result<Predicate> {
        Ok(Predicate::Leaf(Arc::new(Leaf { form, general: Compiled::new(expr, self.known)?, zone })))
    }

    fn compare(&mut self, expr: &Expr, op: CompareOp, left: &Expr, right: &Expr) -> Result<Predicate> {
        let (op, column, literal) = match (left, right) {
            (_, Expr::Literal(l)) | (Expr::Literal(l), _) if l.is_null() => {
                // A comparison with NULL is NULL whatever the other side is. The other side is kept only if evaluating
                // it may fail.
                let general = self.leaf(expr, Form::General, None)?;
                return Ok(if general.cost() == FALLIBLE { general } else { Predicate::Known(None) });
            }
            (Expr::Column(column), Expr::Literal(literal)) => (op, *column, literal),
            (Expr::Literal(literal), Expr::Column(column)) => (op.swapped(), *column, literal),
            _ => {
                let sides = self.lanes.add(left, self.schema).zip(self.lanes.add(right, self.schema));
                let form = match sides {
                    Some((left, right)) => Form::Lanes { op, left, right },
                    None => self.form_of(expr),
                };
                return self.leaf(expr, form, None);
            }
        };
        let zone = Some(ZoneTest::Compare { column, op, literal: literal.clone() });
        match literal.as_int() {
            Some(value) => {
                let (low, high, inside) = range_of(op, value);
                let range = self.leaf(expr, Form::Range { column, low, high }, zone)?;
                if inside {
                    return Ok(range);
                }
                // `column <> literal` is compiled as the negation of an equality, so the leaf's general form is the
                // equality, too.
                let equal =
                    Expr::compare(CompareOp::Eq, Expr::Column(column), Expr::Literal(literal.clone()));
                let zone = ZoneTest::Compare { column, op: CompareOp::Eq, literal: literal.clone() };
                let range = self.leaf(&equal, Form::Range { column, low, high }, Some(zone))?;
                Ok(Predicate::Not(Box::new(range)))
            }
            None => {
                let form = match literal.value() {
                    Value::Float(literal) => Form::Float { column, op, literal: *literal },
                    _ => self.form_of(expr),
                };
                self.leaf(expr, form, zone)
            }
        }
    }

    fn form_of(&mut self, expr: &Expr) -> Form {
        if let Expr::InList(value, list) = expr
            && let Expr::Column(column) = **value
            && schema::is_integer_like(self.schema.field(column).data_type())
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
        let mut columns = BTreeSet::new();
        expr.collect_columns(&mut columns);
        match columns.first() {
            Some(&column)
                if columns.len() == 1 && schema::is_bytes(self.schema.field(column).data_type()) =>
            {
                let is_text = *self.schema.field(column).data_type() == DataType::Utf8View;
                let texts = Texts::of(expr).filter(|_| is_text && self.automata_left > 0);
                self.automata_left -= usize::from(texts.is_some());
                Form::Bytes { column, texts }
            }
            _ => Form::General,
        }
    }
}

/// Returns the closed range of the integers `v` for which `v op value` is true (flag true) or false (flag false).
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

/// Returns the predicate that is true where all parts are true.
fn conjunction(parts: Vec<Predicate>) -> Predicate {
    Predicate::And(Parts::new(merge_ranges(flatten(parts))))
}

fn flatten(parts: Vec<Predicate>) -> Vec<Predicate> {
    let flat = parts.into_iter().flat_map(|part| match part {
        Predicate::And(inner) => inner.parts,
        other => vec![other],
    });
    flat.collect()
}

/// Merges the ranges of each column into one, so that `a >= 1 AND a < 5` reads the column once.
fn merge_ranges(parts: Vec<Predicate>) -> Vec<Predicate> {
    let mut merged: Vec<Predicate> = Vec::with_capacity(parts.len());
    let mut places: HashMap<usize, usize> = HashMap::new();
    for part in parts {
        let earlier = part.range_column().and_then(|column| match places.entry(column) {
            Entry::Occupied(place) => Some(*place.get()),
            Entry::Vacant(place) => {
                place.insert(merged.len());
                None
            }
        });
        match (earlier.map(|place| &mut merged[place]), part) {
            (Some(Predicate::Leaf(earlier)), Predicate::Leaf(leaf)) => {
                Arc::make_mut(earlier).narrow(Arc::unwrap_or_clone(leaf));
            }
            (_, part) => merged.push(part),
        }
    }
    merged
}

impl Predicate {
    /// Returns the column of a range predicate; `None` for other predicates.
    fn range_column(&self) -> Option<usize> {
        match self {
            Predicate::Leaf(leaf) => match leaf.form {
                Form::Range { column, .. } => Some(column),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Leaf {
    /// Narrows this range to its intersection with `other`.
    fn narrow(&mut self, other: Leaf) {
        if let (Form::Range { low, high, .. }, Form::Range { low: least, high: greatest, .. }) =
            (&mut self.form, other.form)
        {
            (*low, *high) = ((*low).max(least), (*high).min(greatest));
        }
        self.general.and(other.general);
        self.zone = None;
    }
}
