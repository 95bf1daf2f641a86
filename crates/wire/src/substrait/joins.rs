//! Joins of Substrait as lookups of a program: the left side of a `JoinRel` is the rows so far, the right side the program
//! whose result is looked up, and the expression says which columns are equal.
//!
//! The type of a join keeps its meaning. `NOT IN`, and a mark that is never NULL, have no type of their own: an
//! enhancement says so, which a reader that does not know it refuses.

use super::expressions::Reader;
use super::proto;
use super::read;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_model::compose::{Budget, Slot, Stack, check_width, not_done};
use farpool_model::{
    CompareOp, Error, Expr, Facts, GivenRows, Lookup, LookupKey, LookupKind, Program, Result, limits, lookup,
};
use prost::Message;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Type URL of the enhancement of a join.
const LOOKUP_TYPE: &str = "type.googleapis.com/farpool.Lookup";

/// Name of the mark column of a join that does not name it.
const MARK: &str = "mark";

/// For each kind of lookup, the number of the join type, and the `kind` of the enhancement.
const KINDS: [(LookupKind, i32, u32); 8] = [
    (LookupKind::Inner, 1, 0),
    (LookupKind::Left, 3, 0),
    (LookupKind::Semi, 5, 0),
    (LookupKind::Anti, 6, 0),
    (LookupKind::NotIn, 6, 1),
    (LookupKind::Single, 7, 0),
    // The standard mark has three values, as `IN` has.
    (LookupKind::In, 11, 0),
    (LookupKind::Exists, 11, 2),
];

/// Join types that are not done, and their names.
const OTHER_TYPES: [(i32, &str); 6] = [
    (2, "a full join"),
    (4, "a right join"),
    (8, "a right semi join"),
    (9, "a right anti join"),
    (10, "a right single join"),
    (12, "a right mark join"),
];

/// The right side of a join.
pub(super) struct Side {
    pub program: Program,
    /// Canonical schema of the table that the program scans.
    pub table_schema: SchemaRef,
    /// The rows that it scans instead of a table.
    pub given: Option<Arc<GivenRows>>,
    /// Schema of the program's result.
    pub result: SchemaRef,
}

/// Encodes a lookup as a join of `left` and `right` by `expression`.
///
/// # Errors
/// `OverLimit` if the name of the mark is too long.
pub(super) fn write(lookup: &Lookup, left: Bytes, right: Bytes, expression: Bytes) -> Result<proto::JoinRel> {
    let (_, join_type, kind) = KINDS.into_iter().find(|(kind, ..)| *kind == lookup.kind).unwrap_or(KINDS[0]);
    let is_named = lookup.kind.adds_mark() && lookup.mark != MARK;
    let mark = if is_named { check_mark(lookup.mark.clone())? } else { String::new() };
    let enhancement = (kind != 0 || is_named).then(|| proto::Any {
        type_url: LOOKUP_TYPE.into(),
        value: proto::Lookup { kind, mark }.encode_to_vec().into(),
    });
    let advanced_extension = enhancement.map(|any| proto::AdvancedExtension { enhancement: Some(any) });
    Ok(proto::JoinRel {
        common: None,
        left,
        right,
        expression,
        post_join_filter: None,
        join_type,
        advanced_extension,
    })
}

/// Long names are refused, because the schemas of all relations above have them.
fn check_mark(mark: String) -> Result<String> {
    if mark.len() <= limits::NAME_BYTES_MAX {
        return Ok(mark);
    }
    let most = limits::NAME_BYTES_MAX;
    Err(Error::over_limit(format!("the name of a mark may have {most} bytes, this one has {}", mark.len())))
}

/// Returns the kind of lookup that a join is, and the name of the mark.
///
/// # Errors
/// `Invalid` for another type of join, or another enhancement; `OverLimit` if the name is too long.
fn kind_of(join: &proto::JoinRel) -> Result<(LookupKind, String)> {
    let enhancement = join.advanced_extension.as_ref().and_then(|extension| extension.enhancement.as_ref());
    let lookup = match enhancement {
        None => proto::Lookup::default(),
        Some(any) if any.type_url == LOOKUP_TYPE => read::<proto::Lookup>(&any.value)?,
        Some(any) => return Err(not_done(format!("the enhancement {:?}", any.type_url))),
    };
    let mut kinds = KINDS.into_iter();
    if let Some((kind, ..)) =
        kinds.find(|(_, number, kind)| (*number, *kind) == (join.join_type, lookup.kind))
    {
        let is_named = kind.adds_mark() && !lookup.mark.is_empty();
        let mark = if is_named { check_mark(lookup.mark)? } else { MARK.to_string() };
        return Ok((kind, mark));
    }
    if lookup.kind != 0 {
        let message = format!("a join of the type {} has no kind {}", join.join_type, lookup.kind);
        return Err(Error::invalid(message).advise("upgrade the node"));
    }
    let other = OTHER_TYPES.into_iter().find(|(number, _)| *number == join.join_type);
    Err(not_done(other.map_or("a join without a type that is known here", |(_, name)| name)))
}

/// Adds a join of the rows of `stack`, whose expressions `reader` reads, with its right side. Returns the schema of the
/// rows behind it.
///
/// # Errors
/// `Invalid` if the join is none that a lookup can do; `OverLimit` if it has too many columns; errors of the budget.
pub(super) fn add(
    reader: &Reader,
    stack: &mut Stack,
    join: &proto::JoinRel,
    side: Side,
) -> Result<SchemaRef> {
    let (kind, mark) = kind_of(join)?;
    let row = reader.schema().clone();
    let (mut left, mut behind, mut may_fail) = (0, row.clone(), kind == LookupKind::Single);
    stack.join(|columns| {
        left = columns.len();
        let mut pair = pair_columns(reader, columns, &side.result)?;
        let pairs = reader.over(Arc::new(lookup::pair_schema(&row, &side.result)));
        let (keys, residual) = split(pairs.expression(&join.expression, &pair)?, row.fields().len());
        if keys.is_empty() {
            return Err(not_done("a join without an equality of a column of each side"));
        }
        if let Some(residual) = &residual {
            if let Some(reason) = residual.opaque_reason() {
                return Err(not_done(format!("a join by a condition with {reason}")));
            }
            may_fail |= Facts::of(residual, &**pairs.schema())?.may_fail;
        }
        let Side { program, table_schema, given, result } = side;
        let lookup = Lookup { kind, program, table_schema, given, keys, residual, mark };
        behind = Arc::new(lookup.row_schema(&row, &result)?);
        if !kind.adds_columns() {
            pair.truncate(left);
        }
        if kind.adds_mark() {
            pair.push(Slot::new(lookup.mark.clone(), Expr::Column(row.fields().len())));
        }
        Ok((lookup, pair))
    })?;
    if may_fail && stack.filters().iter().any(|filter| is_deferred(filter, reader)) {
        return Err(not_done("a join that may fail on a row which a condition below it removes"));
    }
    if let Some(filter) = &join.post_join_filter {
        // The filter refers to the columns of both sides. Where the result has those of the left side only, no other can
        // be meant; what follows them there, if anything, is the mark.
        let reader = reader.over(behind.clone());
        let known = |columns: &[Slot]| if kind.adds_columns() { columns.len() } else { left };
        stack.filter(|columns| reader.expression(filter, &columns[..known(columns)]))?;
    }
    Ok(behind)
}

/// Returns the columns of both sides of a join: those of the left side are expressions over the row so far, those of the
/// right side follow it.
fn pair_columns(reader: &Reader, columns: &[Slot], result: &SchemaRef) -> Result<Vec<Slot>> {
    check_width(columns.len() + result.fields().len())?;
    // The schemas of the rows, which grow with each join, are charged, too.
    let fields = reader.schema().fields().len() * size_of::<SchemaRef>();
    let right = result.fields().len() * limits::EXPR_NODE_BYTES;
    reader.charge(columns.iter().map(Slot::bytes).sum::<usize>() + right + fields)?;
    let first = reader.schema().fields().len();
    let right = result.fields().iter().zip(first..).map(|(f, at)| Slot::new(f.name(), Expr::Column(at)));
    Ok(columns.iter().cloned().chain(right).collect())
}

/// Returns whether a filter below a join may be evaluated behind it: unless it is on columns of the table that is scanned
/// and cannot fail. Then rows that it removes reach the join.
fn is_deferred(filter: &Expr, reader: &Reader) -> bool {
    let mut columns = BTreeSet::new();
    filter.collect_columns(&mut columns);
    columns.last().is_some_and(|last| *last >= reader.table_width())
        || Facts::of(filter, &**reader.schema()).map_or(true, |facts| facts.may_fail)
}

/// Divides the condition of a join, over pairs of a row with `width` columns and a looked-up one, into the equalities of a
/// column of each side, and the rest.
fn split(condition: Expr, width: usize) -> (Vec<LookupKey>, Option<Expr>) {
    let (mut keys, mut rest, mut open) = (Vec::new(), Vec::new(), vec![condition]);
    while let Some(part) = open.pop() {
        match part {
            Expr::And(parts) => open.extend(parts.into_iter().rev()),
            part => match key(&part, width) {
                Some(key) => keys.push(key),
                None => rest.push(part),
            },
        }
    }
    (keys, Expr::all(rest))
}

fn key(part: &Expr, width: usize) -> Option<LookupKey> {
    let Expr::Compare(CompareOp::Eq, left, right) = part else { return None };
    let (left, right) = (left.as_column()?, right.as_column()?);
    let (row, pair) = (left.min(right), left.max(right));
    (row < width).then_some(())?;
    Some(LookupKey { row, result: pair.checked_sub(width)? })
}
