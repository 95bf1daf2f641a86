//! Converts joins of two fragments of a plan over one pool to lookups: the pool holds the result of one side by its join
//! keys, and looks up the rows of the other side, which it scans.
//!
//! Invariant: the fragment returns the rows of the join, with its columns in the order of the join's schema. Filters of
//! the scanned side may be applied behind the lookup, because they read columns that the lookup does not change.

use crate::convert::Scope;
use crate::fragment::{Ends, Fragment, exact_condition};
use crate::given;
use datafusion::common::{DFSchema, JoinType, NullEquality};
use datafusion::logical_expr::{Expr as Logical, Join, LogicalPlan};
use farpool_model::compose::Slot;
use farpool_model::{
    Columns, Expr, Facts, Lookup, LookupKey, LookupKind, NamedExpr, Operator, Output, Program, limits,
};
use farpool_planner::rows::Rows;
use farpool_planner::{cost, estimate};
use std::sync::Arc;

/// Maximum number of lookups of a side of a join that is carried out twice: also to drop rows of the other side. Reason:
/// such a side takes time of its own, and with each such join above it, the program would double.
const LOOKED_UP_AGAIN_MAX: usize = 1;

/// Maximum part of the rows of a table that a side of a join has left, for its keys to be used to drop rows of the other
/// side. Reason: otherwise few rows are dropped.
const THIN: f64 = 0.5;

const NO_LOOKUPS: &str = "rows of a space of keys have no lookups";

/// A side of a join.
struct Side<'a> {
    fragment: Fragment,
    schema: &'a DFSchema,
    keys: Vec<Logical>,
}

/// Returns the fragment whose topmost node is `join`; the reason if there is none.
pub(crate) fn join(join: &Join) -> Result<Fragment, Ends> {
    let (left, right) = sides(join)?;
    let tables = left.looked_up.len() + right.looked_up.len() + 1;
    if !Arc::ptr_eq(left.table.pool(), right.table.pool()) || !left.table.takes_joins() {
        return Err(Ends::Silently);
    }
    let because = |reason: &str| Ends::because(Operator::Lookup, shown(join), reason);
    if join.null_equality != NullEquality::NullEqualsNothing {
        return Err(because("NULLs are equal in it"));
    }
    if join.on.is_empty() {
        return Err(because("it has no equal keys"));
    }
    if tables > limits::LOOKUPS_MAX {
        return Err(because("a program has no more lookups"));
    }
    let (of_left, of_right) = join.on.iter().cloned().unzip();
    let left = Side { fragment: left, schema: join.left.schema(), keys: of_left };
    let right = Side { fragment: right, schema: join.right.schema(), keys: of_right };
    let nots = |kind, null_aware_kind| if join.null_aware { null_aware_kind } else { Some(kind) };
    let (kind, scans_left) = match join.join_type {
        JoinType::Inner => (Some(LookupKind::Inner), scans_left(&left, &right)),
        JoinType::Left => (Some(LookupKind::Left), true),
        JoinType::Right => (Some(LookupKind::Left), false),
        JoinType::LeftSemi => (Some(LookupKind::Semi), true),
        JoinType::RightSemi => (Some(LookupKind::Semi), false),
        JoinType::LeftAnti => (nots(LookupKind::Anti, Some(LookupKind::NotIn)), true),
        JoinType::RightAnti => (nots(LookupKind::Anti, None), false),
        JoinType::LeftMark => (nots(LookupKind::Exists, None), true),
        JoinType::RightMark => (nots(LookupKind::Exists, None), false),
        JoinType::Full => (None, true),
    };
    let kind = kind.ok_or_else(|| because("a pool has no join of this kind"))?;
    let (scanned, looked_up) = if scans_left { (left, right) } else { (right, left) };
    looked_up_by(join, kind, scans_left, scanned, looked_up)
}

/// Returns the fragments of both sides of a join. If only one is over a table of a pool, the rows of the other may go along.
fn sides(join: &Join) -> Result<(Fragment, Fragment), Ends> {
    let left = match Fragment::read(&join.left) {
        Err(ends) if !matches!(ends, Ends::Silently) || !given::may_go_along(&join.left) => return Err(ends),
        left => left,
    };
    match (left, Fragment::read(&join.right)) {
        (Ok(left), Err(Ends::Silently)) if given::may_go_along(&join.right) => {
            let right = Fragment::read_beside(&join.right, Some(&left.table))?;
            Ok((left, right))
        }
        (Err(Ends::Silently), Ok(right)) => {
            Ok((Fragment::read_beside(&join.left, Some(&right.table))?, right))
        }
        (left, right) => Ok((left?, right?)),
    }
}

/// Returns whether the left side of an inner join is scanned, and the right one looked up: the side with the smaller
/// result is looked up if the other one can be scanned.
fn scans_left(left: &Side<'_>, right: &Side<'_>) -> bool {
    match (left.scanned_keys().is_ok(), right.scanned_keys().is_ok()) {
        (true, true) => left.bytes() >= right.bytes(),
        (can, _) => can,
    }
}

impl Side<'_> {
    /// Returns the columns of the rows that are the join keys, if this side can be scanned; otherwise why it cannot.
    fn scanned_keys(&self) -> Result<Vec<usize>, String> {
        let Fragment { table, stack, rows, allowance, .. } = &self.fragment;
        if table.info().version.is_moment() {
            return Err(NO_LOOKUPS.to_string());
        }
        if table.given().is_some() {
            return Err("rows that no pool holds are looked up, and not scanned".to_string());
        }
        let columns = stack.columns().filter(|_| !stack.is_cut());
        let columns = columns.ok_or("its sides have groups or limits of their own")?;
        let scope = Scope { table: &rows.info, input: self.schema, columns, allowance };
        let column = |key: &Logical| {
            let column = scope.value(key).as_column();
            column.ok_or_else(|| format!("the join key {} is computed", key.human_display()))
        };
        self.keys.iter().map(column).collect()
    }

    /// Returns the columns of the result that are the join keys, if this side can be looked up. Computes those that are
    /// no columns yet.
    fn looked_up_keys(&mut self) -> Result<Vec<usize>, Ends> {
        let place_of = |place: usize| self.fragment.place_in_program(place);
        if !(0..self.schema.fields().len()).all(|place| place_of(place).is_some()) {
            return Err(Ends::Silently);
        }
        let place = |key: &Logical| match key {
            Logical::Column(column) => self.schema.maybe_index_of_column(column).and_then(place_of),
            _ => None,
        };
        match self.keys.iter().map(place).collect::<Option<Vec<usize>>>() {
            Some(places) => Ok(places),
            None => self.fragment.sort_columns(&self.keys, self.schema),
        }
    }

    fn program(&self) -> farpool_model::Result<Program> {
        let fields = self.schema.fields();
        self.fragment
            .program(|i| fields.get(i).map_or_else(|| format!("key {i}"), |field| field.name().clone()))
    }

    /// Returns the estimated bytes of the result.
    fn bytes(&self) -> f64 {
        self.program().map_or(f64::INFINITY, |program| estimate::bytes(&program, &self.fragment.rows.info))
    }

    /// Drops rows of this side, which is looked up, that no row of `scanned` has a match in, if that is estimated to pay:
    /// these rows would be held in vain. `keys` has pairs of a column of the other side's rows, and one of this side's
    /// result.
    ///
    /// Example: of orders in one quarter, those with a late line item. The keys of these orders, which are few, are looked
    /// up for the line items first.
    fn drop_unmatched(&mut self, scanned: &Side<'_>, keys: impl Iterator<Item = (usize, usize)>) {
        if self.fragment.table.given().is_some() {
            return;
        }
        let stack = &self.fragment.stack;
        let keys: Vec<(usize, usize)> =
            keys.filter_map(|(row, result)| Some((row, stack.row_column(result)?))).collect();
        let (Ok(program), Ok(own)) = (scanned.program(), self.program()) else { return };
        let (own_rows, rows) = (&self.fragment.rows, &scanned.fragment.rows);
        let is_thin = estimate::rows(&program, &rows.info) < THIN * rows.table.info.rows as f64;
        let tables = scanned.fragment.looked_up.len();
        let is_again = tables <= LOOKED_UP_AGAIN_MAX
            && tables + self.fragment.looked_up.len() < limits::LOOKUPS_MAX / 2
            && is_repeatable(&program);
        if keys.is_empty() || !is_thin || !is_again {
            return;
        }
        let schema = &rows.info.schema;
        let outputs = keys.iter().map(|(row, _)| NamedExpr::column(schema, *row)).collect();
        let lookup = Lookup {
            kind: LookupKind::Semi,
            program: Program { output: Output::Rows(outputs), ..program },
            table_schema: scanned.fragment.table.info().schema.clone(),
            given: None,
            keys: (0..).zip(&keys).map(|(result, (_, row))| LookupKey { row: *row, result }).collect(),
            residual: None,
            mark: String::new(),
        };
        if cost::dropping_pays(&own, own_rows, &lookup, rows)
            && let Ok(behind) = own_rows.joined(&lookup, rows)
            && self.fragment.stack.drop_unmatched(lookup).is_ok()
        {
            self.fragment.rows = behind;
            self.fragment.looked_up.push(scanned.fragment.table.clone());
            self.fragment.looked_up.extend(scanned.fragment.looked_up.iter().cloned());
        }
    }
}

/// Returns whether each run of a program has the same result: a limit may keep other rows the next time, and sums of
/// floats may differ in their last bits.
fn is_repeatable(program: &Program) -> bool {
    let has_floats = |lookup: &Lookup| {
        let schema = lookup.program.joined_schema(&lookup.table_schema);
        let result = schema.and_then(|schema| lookup.program.result_schema(&schema));
        result.map_or(true, |result| result.fields().iter().any(|field| field.data_type().is_floating()))
    };
    let is_side_repeatable = |lookup: &Lookup| {
        let is_rows = matches!(lookup.program.output, Output::Rows(_));
        (is_rows || !has_floats(lookup)) && is_repeatable(&lookup.program)
    };
    program.limit.is_none() && program.lookups.iter().all(is_side_repeatable)
}

/// Returns the fragment that scans one side of a join and looks up the other.
fn looked_up_by(
    join: &Join,
    kind: LookupKind,
    scans_left: bool,
    scanned: Side<'_>,
    mut looked_up: Side<'_>,
) -> Result<Fragment, Ends> {
    let because = |reason: String| Ends::because(Operator::Lookup, shown(join), reason);
    let rows = scanned.scanned_keys().map_err(because)?;
    if looked_up.fragment.table.info().version.is_moment() {
        return Err(because(NO_LOOKUPS.to_string()));
    }
    let results = looked_up.looked_up_keys()?;
    if kind != LookupKind::NotIn {
        looked_up.drop_unmatched(&scanned, rows.iter().copied().zip(results.iter().copied()));
    }
    let program = looked_up.program().map_err(|error| because(error.message))?;
    let keys = rows.into_iter().zip(results).map(|(row, result)| LookupKey { row, result }).collect();
    let table_schema = looked_up.fragment.table.info().schema.clone();
    let mark = join.schema.fields().last().map(|field| field.name().clone()).unwrap_or_default();
    let given = looked_up.fragment.table.given().cloned();
    let lookup = Lookup { kind, program, table_schema, given, keys, residual: None, mark };
    let width = scanned.fragment.rows.info.schema.fields().len();
    let pairs =
        Pairs::of(&scanned, &looked_up, &lookup, scans_left).map_err(|error| because(error.message))?;
    if let Some(key) = lookup.keys.iter().find(|key| pairs.is_float(key.row)) {
        let name = pairs.rows.info.schema.field(key.row).name();
        return Err(because(format!("the join key {name} is a float")));
    }
    let mut lookup = lookup;
    let mut filter = None;
    if let Some(condition) = &join.filter {
        let allowance = &scanned.fragment.allowance;
        let input = &pairs.schema(join)?;
        let scope = Scope { table: &pairs.rows.info, input, columns: &pairs.columns, allowance };
        let condition = exact_condition(&scope, Operator::Filter, condition)?;
        match kind {
            LookupKind::Inner => filter = Some(condition),
            LookupKind::NotIn => return Err(because("NOT IN with another condition".to_string())),
            // It is evaluated before the filters of the scanned side that read columns of lookups.
            _ if may_fail(&condition, &pairs.rows) => {
                return Err(because("its condition may fail on a row".to_string()));
            }
            _ => lookup.residual = Some(condition),
        }
    }
    let behind = match kind {
        LookupKind::Inner => pairs.rows.clone(),
        _ => {
            scanned.fragment.rows.joined(&lookup, &looked_up.fragment.rows).map_err(|e| because(e.message))?
        }
    };
    let Fragment { table, looked_up: mut tables, mut stack, allowance, .. } = scanned.fragment;
    stack.join(|columns| {
        let columns = match kind {
            kind if kind.adds_columns() => pairs.columns.clone(),
            kind if kind.adds_mark() => {
                let mark = Slot::new(&lookup.mark, Expr::Column(width));
                columns.iter().cloned().chain([mark]).collect()
            }
            _ => columns.to_vec(),
        };
        Ok::<_, Ends>((lookup, columns))
    })?;
    if let Some(filter) = filter {
        stack.filter(|_| Ok::<_, Ends>(filter))?;
    }
    tables.push(looked_up.fragment.table);
    tables.extend(looked_up.fragment.looked_up);
    Ok(Fragment::joined(table, tables, behind, stack, allowance))
}

/// Pairs of rows of the two sides of a join.
struct Pairs {
    /// The rows with the columns of both sides.
    rows: Rows,
    /// The columns of the left side, then those of the right side.
    columns: Vec<Slot>,
}

impl Pairs {
    fn of(
        scanned: &Side<'_>,
        looked_up: &Side<'_>,
        lookup: &Lookup,
        scans_left: bool,
    ) -> farpool_model::Result<Pairs> {
        let inner = Lookup { kind: LookupKind::Inner, ..lookup.clone() };
        let rows = scanned.fragment.rows.joined(&inner, &looked_up.fragment.rows)?;
        let width = scanned.fragment.rows.info.schema.fields().len();
        let of_scanned = scanned.fragment.stack.columns().unwrap_or_default();
        let of_scanned = of_scanned[..scanned.schema.fields().len()].iter().cloned();
        // The join keys of a match are those of the row. Conditions on them can then be tested by the scan.
        let row_of = |result: usize| {
            let key = lookup.keys.iter().find(|key| key.result == result && lookup.kind == LookupKind::Inner);
            key.map_or(width + result, |key| key.row)
        };
        let result = |place: usize| looked_up.fragment.place_in_program(place).unwrap_or(place);
        let added = looked_up.schema.fields().iter().enumerate();
        let added = added.map(|(i, field)| Slot::new(field.name(), Expr::Column(row_of(result(i)))));
        let columns = match scans_left {
            true => of_scanned.chain(added).collect(),
            false => added.chain(of_scanned).collect(),
        };
        Ok(Pairs { rows, columns })
    }

    /// Returns the schema in which the columns of the join's condition are resolved.
    fn schema(&self, join: &Join) -> Result<DFSchema, Ends> {
        join.left.schema().join(join.right.schema()).map_err(|_| Ends::Silently)
    }

    fn is_float(&self, column: usize) -> bool {
        self.rows.info.schema.field(column).data_type().is_floating()
    }
}

fn may_fail(condition: &Expr, rows: &Rows) -> bool {
    let columns = Columns::new(&rows.info.schema, &rows.info.columns);
    Facts::of(condition, columns).map_or(true, |facts| facts.may_fail)
}

fn shown(join: &Join) -> String {
    LogicalPlan::Join(join.clone()).display().to_string()
}
