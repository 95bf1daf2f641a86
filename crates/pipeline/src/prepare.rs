//! Checks a program against a table and decides for each operator whether it can be executed here. The host executes
//! what the node cannot, and the result is the same either way (Woods et al., *Ibex*, PVLDB 2014, section 5).
//!
//! Invariant: a host that applies every operator whose answer is not `exact` to the result of the effective program
//! gets the result of the original program. Therefore, if a filter is not exact, three rules hold: no operator that
//! aggregates or drops rows may follow it; the columns that it reads must be in the result; and no expression that can
//! fail on a row may be evaluated, because the host's filter may remove that row.
//!
//! Example: a filter on `x` is weakened to a superset, and the program sums `y`. A sum at the node would include rows
//! that the host has to remove. So the sum is refused, and `x` and `y` are returned.
//!
//! An [`Expr::Opaque`] part reports the columns that it reads, as far as its decoder could tell. A host that uses other
//! columns has to request them elsewhere in the program.

use crate::bound::BoundProgram;
use arrow_schema::{DataType, Schema};
use farpool_model::{
    Aggregate, Answer, Columns, Error, Expr, Facts, Lookup, LookupKey, NamedExpr, Operator, OperatorAnswer,
    Output, Prepared, Program, Result, SortKey, Version, Weakened, brief, limits, weaken,
};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Prepares `program` for a table with these columns at `version`.
///
/// # Errors
/// Only for invalid programs, never for parts that merely cannot run here: `Invalid` if the program is ill-typed,
/// `OverLimit` if it is too large, `Stale` if it asks for another version.
pub fn prepare<'a>(program: &Program, columns: impl Into<Columns<'a>>, version: Version) -> Result<Prepared> {
    let known = columns.into();
    let table_schema = known.schema();
    check_version(program, version)?;
    program.check_size()?;
    check_columns(program, table_schema)?;
    program.check_order()?;
    let filter = FilterPart::of(program, known)?;
    check_output(program, table_schema)?;
    let output = OutputPart::of(program, &filter, known);
    let having = HavingPart::of(program, &output, table_schema)?;
    let limit = LimitPart::of(program, &filter, &output, &having, table_schema);

    let effective = Program {
        table: program.table.clone(),
        version: program.version,
        lookups: program.lookups.clone(),
        filter: filter.effective,
        output: output.effective,
        having: having.effective,
        order: limit.order,
        limit: limit.effective,
    };
    let schema = effective.result_schema(table_schema)?;
    let scan = answer(Operator::Scan, scan_detail(&effective, table_schema), None);
    let answers = [Some(scan), filter.answer, output.answer, having.answer, limit.answer];
    let answers = answers.into_iter().flatten().collect();
    Ok(Prepared { version, answers, effective, schema })
}

fn check_version(program: &Program, version: Version) -> Result<()> {
    match program.version {
        Some(wanted) if wanted != version => Err(Error::stale(format!(
            "table {:?} is at version {version}, not {wanted}",
            program.table.as_str()
        ))),
        _ => Ok(()),
    }
}

/// Checks all column references, including those in parts that will be refused, because the host may need these
/// columns.
fn check_columns(program: &Program, table_schema: &Schema) -> Result<()> {
    let count = table_schema.fields().len();
    match program.columns().last() {
        Some(&last) if last >= count => {
            Err(Error::invalid(format!("there is no column {last}: the table has {count} columns")))
        }
        _ => Ok(()),
    }
}

/// Answer for the filter, and its consequences for the operators that follow the filter.
struct FilterPart {
    effective: Option<Expr>,
    answer: Option<OperatorAnswer>,
    /// Columns that the host needs to apply the filter again; `None` if the filter is exact.
    host_columns: Option<BTreeSet<usize>>,
}

impl FilterPart {
    fn of(program: &Program, known: Columns<'_>) -> Result<Self> {
        let table_schema = known.schema();
        let Some(filter) = &program.filter else {
            return Ok(FilterPart { effective: None, answer: None, host_columns: None });
        };
        let mut columns = BTreeSet::new();
        filter.collect_columns(&mut columns);
        let (effective, refusal) = match weaken(filter) {
            Weakened::Exact(filter) => (Some(filter), None),
            Weakened::Superset(weaker, reason) => (without_failures(weaker, known)?, Some(reason)),
            Weakened::Refused(reason) => (None, Some(reason)),
        };
        if refusal.is_none() {
            program.check_filter(table_schema)?;
        }
        let refusal = refusal
            .map(|reason| (if effective.is_some() { Answer::Superset } else { Answer::Refused }, reason));
        let host_columns = refusal.is_some().then_some(columns);
        let detail = brief(filter.display(table_schema));
        Ok(FilterPart { effective, answer: Some(answer(Operator::Filter, detail, refusal)), host_columns })
    }

    fn is_exact(&self) -> bool {
        self.host_columns.is_none()
    }
}

/// Removes the conjuncts that can fail on a row, because conjuncts that were removed before may have excluded such
/// rows.
///
/// # Errors
/// `Invalid` when a conjunct is not a condition.
fn without_failures(weaker: Expr, known: Columns<'_>) -> Result<Option<Expr>> {
    let parts = match weaker {
        Expr::And(parts) => parts,
        other => vec![other],
    };
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        let facts = Facts::of(&part, known)?;
        if facts.data_type != DataType::Boolean {
            return Err(Error::invalid(format!(
                "a filter must be boolean, a part has type {}",
                facts.data_type
            )));
        }
        if !facts.may_fail {
            kept.push(part);
        }
    }
    Ok(Expr::all(kept))
}

/// Checks the types of all outputs, including those that will not be executed because of the filter or an opaque part.
fn check_output(program: &Program, table_schema: &Schema) -> Result<()> {
    let columns = match &program.output {
        Output::Rows(columns) => columns,
        Output::Aggregate { keys, aggregates } => {
            if keys.is_empty() && aggregates.is_empty() {
                return Err(Error::invalid("an aggregation needs a key or an aggregate"));
            }
            let mut run = aggregates.iter().filter(|a| aggregate_runs(a));
            run.try_for_each(|a| a.field(table_schema).map(|_| ()))?;
            keys
        }
    };
    columns.iter().filter(|c| runs(&c.expr)).try_for_each(|c| c.field(table_schema).map(|_| ()))
}

fn runs(expr: &Expr) -> bool {
    expr.opaque_reason().is_none()
}

fn aggregate_runs(aggregate: &Aggregate) -> bool {
    aggregate.inputs().all(runs)
}

/// Answer for the projection or aggregation, and the output of the effective program (the program that the node
/// executes instead).
struct OutputPart {
    effective: Output,
    answer: Option<OperatorAnswer>,
    /// Whether the output of the effective program has exactly one row for each row that the program returns.
    keeps_rows: bool,
    /// Whether the output of the effective program is that of the program.
    is_whole: bool,
}

impl OutputPart {
    fn of(program: &Program, filter: &FilterPart, known: Columns<'_>) -> Self {
        let table_schema = known.schema();
        let refusal = match &program.output {
            Output::Rows(columns) => project_refusal(columns, filter, known),
            Output::Aggregate { keys, aggregates } => aggregate_refusal(keys, aggregates, filter),
        };
        let is_whole = refusal.is_none();
        let keeps_rows = is_whole || matches!(program.output, Output::Rows(_));
        let effective = match refusal {
            None => program.output.clone(),
            Some(_) => raw_columns(program, table_schema),
        };
        let refusal = refusal.map(|reason| (Answer::Refused, reason));
        let answer = output_answer(&program.output, refusal, table_schema);
        OutputPart { effective, answer, keeps_rows, is_whole }
    }
}

fn project_refusal(columns: &[NamedExpr], filter: &FilterPart, known: Columns<'_>) -> Option<String> {
    if let Some(reason) = columns.iter().find_map(|c| c.expr.opaque_reason()) {
        return Some(reason.to_string());
    }
    let host_columns = filter.host_columns.as_ref()?;
    let given = |column| columns.iter().any(|c| c.expr == Expr::Column(column));
    if !host_columns.iter().all(|&column| given(column)) {
        return Some("the host needs the columns of the filter to apply it again".to_string());
    }
    let fails = !columns.iter().all(|c| Facts::of(&c.expr, known).is_ok_and(|facts| !facts.may_fail));
    fails.then(|| "it may fail on rows that the host's filter removes".to_string())
}

fn aggregate_refusal(keys: &[NamedExpr], aggregates: &[Aggregate], filter: &FilterPart) -> Option<String> {
    let of_keys = keys.iter().find_map(|k| k.expr.opaque_reason());
    let of_aggregates = || aggregates.iter().flat_map(Aggregate::inputs).find_map(Expr::opaque_reason);
    if let Some(reason) = of_keys.or_else(of_aggregates) {
        return Some(reason.to_string());
    }
    (!filter.is_exact()).then(|| "the host filters its input again".to_string())
}

/// Returns an output of all columns that some part of the program reads, under their own names.
pub(crate) fn raw_columns(program: &Program, table_schema: &Schema) -> Output {
    let columns = program.columns();
    Output::Rows(columns.into_iter().map(|index| NamedExpr::column(table_schema, index)).collect())
}

fn output_answer(
    output: &Output,
    refusal: Option<(Answer, String)>,
    table_schema: &Schema,
) -> Option<OperatorAnswer> {
    match output {
        Output::Rows(columns) => {
            // A projection of plain columns counts as part of the scan, unless it is refused.
            let plain = columns.iter().all(|c| matches!(c.expr, Expr::Column(_)));
            let detail = brief(listed(columns.iter().map(|c| c.expr.display(table_schema))));
            (!plain || refusal.is_some()).then(|| answer(Operator::Project, detail, refusal))
        }
        Output::Aggregate { keys, aggregates } => {
            let operator = match (keys.is_empty(), aggregates.is_empty()) {
                (true, _) => Operator::Aggregate,
                (false, true) => Operator::Distinct,
                (false, false) => Operator::Group,
            };
            let separator = if keys.is_empty() || aggregates.is_empty() { "" } else { ": " };
            let keys = listed(keys.iter().map(|k| k.expr.display(table_schema)));
            let functions = listed(aggregates.iter().map(|a| a.display(table_schema)));
            Some(answer(operator, brief(format_args!("{keys}{separator}{functions}")), refusal))
        }
    }
}

/// Answer for the condition on groups, and the condition of the effective program.
struct HavingPart {
    effective: Option<Expr>,
    answer: Option<OperatorAnswer>,
}

impl HavingPart {
    fn of(program: &Program, output: &OutputPart, table_schema: &Schema) -> Result<Self> {
        let Some(having) = &program.having else {
            return Ok(HavingPart { effective: None, answer: None });
        };
        let reason = if !output.is_whole {
            Some("it comes after an operator that the host does".to_string())
        } else if having.bytes() > limits::HAVING_BYTES_MAX {
            Some("it is too long".to_string())
        } else {
            having.opaque_reason().map(str::to_string)
        };
        let refusal = reason.map(|reason| (Answer::Refused, reason));
        let detail = brief(program.output.shown(having, table_schema));
        let effective = refusal.is_none().then(|| having.clone());
        Ok(HavingPart { effective, answer: Some(answer(Operator::Having, detail, refusal)) })
    }

    fn is_exact(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| answer.answer == Answer::Exact)
    }
}

/// Answers for the limit and the sort order, and the limit and sort order of the effective program.
struct LimitPart {
    effective: Option<u64>,
    order: Vec<SortKey>,
    answer: Option<OperatorAnswer>,
}

impl LimitPart {
    fn of(
        program: &Program,
        filter: &FilterPart,
        output: &OutputPart,
        having: &HavingPart,
        table_schema: &Schema,
    ) -> Self {
        let Some(limit) = program.limit else {
            return LimitPart { effective: None, order: Vec::new(), answer: None };
        };
        let reason = if !filter.is_exact() {
            Some("the host filters its input again")
        } else if !output.keeps_rows || !having.is_exact() {
            Some("it comes after an operator that the host does")
        } else if !output.is_whole && !program.order.is_empty() {
            Some("it is by columns that the host computes")
        } else if program.top_is_too_large() {
            Some("so many rows the host sorts as well")
        } else {
            None
        };
        let refusal = reason.map(|reason| (Answer::Refused, reason.to_string()));
        let (operator, detail) = match program.order.as_slice() {
            [] => (Operator::Limit, limit.to_string()),
            order => (
                Operator::TopK,
                brief(format_args!("{limit} by {}", order_detail(order, &program.output, table_schema))),
            ),
        };
        LimitPart {
            effective: reason.is_none().then_some(limit),
            order: if reason.is_none() { program.order.clone() } else { Vec::new() },
            answer: Some(answer(operator, detail, refusal)),
        }
    }
}

fn order_detail(order: &[SortKey], output: &Output, table_schema: &Schema) -> String {
    let shown = |place| output.column_shown(place, table_schema);
    brief(listed(order.iter().map(|key| key.display(&shown(key.column)))))
}

/// Describes the scan of the columns that the program `effective`, without lookups, reads.
pub(crate) fn scan_detail(effective: &Program, table_schema: &Schema) -> String {
    let columns = effective.columns();
    let names = columns.iter().map(|i| table_schema.field(*i).name());
    brief(format_args!("{} ({})", effective.table, listed(names)))
}

/// Returns the answers for the lookups of a program, in the order in which they are carried out: those of a lookup's own
/// program come before the lookup. `sides` are these programs, and `row` is the schema of the rows behind the lookups.
pub(crate) fn lookup_answers(
    program: &Program,
    row: &Schema,
    sides: &[Arc<BoundProgram>],
) -> Vec<OperatorAnswer> {
    let mut answers = Vec::new();
    for (lookup, side) in program.lookups.iter().zip(sides) {
        let of_side = &side.prepared().answers;
        answers.extend(of_side.iter().filter(|answer| answer.operator == Operator::Lookup).cloned());
        let condition = |operator, word| {
            let answer = of_side.iter().find(|answer| answer.operator == operator);
            answer.map_or(String::new(), |answer| format!(", {word} {}", answer.detail))
        };
        let conditions = condition(Operator::Filter, "where") + &condition(Operator::Having, "having");
        let detail = lookup_detail(lookup, row, &side.prepared().schema, &conditions);
        answers.push(answer(Operator::Lookup, detail, None));
    }
    answers
}

fn lookup_detail(lookup: &Lookup, row: &Schema, result: &Schema, conditions: &str) -> String {
    let columns = listed(result.fields().iter().map(|field| field.name()));
    // What a lookup adds comes behind the row so far, so that its keys are at the same positions in all later rows.
    let key = |key: &LookupKey| {
        let (row, result) = (row.field(key.row).name().clone(), result.field(key.result).name().clone());
        format!("{row} = {result}")
    };
    let keys = listed(lookup.keys.iter().map(key));
    let (table, kind) = (&lookup.program.table, lookup.kind.name());
    brief(format_args!("{table} ({columns}) by {keys}, {kind}{conditions}"))
}

/// Displays `parts`, separated by commas, without collecting them first.
fn listed<T: fmt::Display>(parts: impl Iterator<Item = T> + Clone) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let mut parts = parts.clone().enumerate();
        parts.try_for_each(|(place, part)| write!(f, "{}{part}", if place > 0 { ", " } else { "" }))
    })
}

fn answer(operator: Operator, detail: String, refusal: Option<(Answer, String)>) -> OperatorAnswer {
    let (answer, reason) = match refusal {
        None => (Answer::Exact, None),
        Some((answer, reason)) => (answer, Some(brief(reason))),
    };
    OperatorAnswer { operator, detail, answer, reason }
}

#[cfg(test)]
mod tests;
