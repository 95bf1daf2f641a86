//! Converts a fragment of an optimized logical plan, from a scan of a pool's table upwards, to one program (what is
//! pushed down over one table). Tables that are joined to it become lookups of the program ([`crate::lookup`]).
//!
//! Invariant: the program returns exactly the rows of the fragment, with its columns in the order of the fragment's
//! schema. A plan node that cannot be expressed exactly ends the fragment, with the reason if the user should see it in
//! EXPLAIN.

use crate::calls::Calls;
use crate::convert::Scope;
use crate::file::pool_table;
use crate::given::Given;
use crate::lookup;
use crate::table::{PoolTable, unqualified};
use arrow_schema::{DataType, FieldRef};
use datafusion::common::DFSchema;
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::{self as logical, Expr as Logical, LogicalPlan};
use farpool_model::compose::{Allowance, FromRefusal, Refusal, Slot, Stack};
use farpool_model::{
    Answer, ColumnStatistics, Expr, Operator, OperatorAnswer, Program, SortKey, TableInfo, limits,
};
use farpool_planner::reading::Reading;
use farpool_planner::rows::Rows;
use farpool_planner::split;
use farpool_statistics::StateForm;
use std::sync::Arc;

/// A fragment of a plan that a program can express.
pub(crate) struct Fragment {
    /// The table that is scanned.
    pub table: PoolTable,
    /// The tables of the lookups.
    pub looked_up: Vec<PoolTable>,
    /// The rows behind the lookups.
    pub rows: Rows,
    pub(crate) stack: Stack,
    aggregation: Option<Aggregation>,
    pub(crate) allowance: Allowance,
    /// Whether the fragment does more than a plain table scan does: only then is it replaced by a node of its own.
    pub worth_a_node: bool,
}

/// The aggregation at the top of a fragment, with or without groups. Above it there may be projections to some of its
/// columns.
struct Aggregation {
    /// Number of columns of the program's result.
    width: usize,
    /// For each column of the fragment, how it is derived from those of the program.
    outcomes: Vec<Outcome>,
}

/// Derivation of a column of a fragment with an aggregation from the columns of the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Index of the column of the program: a group key or an aggregate.
    pub column: usize,
    /// If the column is a state (sketch or moments): the value that is read from it. `None` if the state itself is
    /// wanted, or the column is no state.
    pub reading: Option<(StateForm, Reading)>,
}

/// Why a fragment ends below a node of the plan.
pub(crate) enum Ends {
    /// For no reason that the user should see: there is no table of a pool below, or nodes of this kind are never part
    /// of a program.
    Silently,
    /// Nodes of this kind can be part of a program, but this one cannot, for the given reason.
    Because(Box<OperatorAnswer>),
}

/// Whatever a program cannot have at this position is left to DataFusion, without a reason.
impl FromRefusal for Ends {
    fn from_refusal(_: Refusal) -> Self {
        Ends::Silently
    }
}

impl Ends {
    pub(crate) fn because(operator: Operator, detail: impl Into<String>, reason: impl Into<String>) -> Self {
        Ends::Because(Box::new(OperatorAnswer {
            operator,
            detail: detail.into(),
            answer: Answer::Refused,
            reason: Some(reason.into()),
        }))
    }
}

impl Fragment {
    /// Returns the largest fragment whose topmost node is `plan`; the reason if there is none.
    pub(crate) fn read(plan: &LogicalPlan) -> Result<Self, Ends> {
        Fragment::read_beside(plan, None)
    }

    /// Does the same as [`Fragment::read`]; if the rows of `plan` are joined to those of `beside`, rows that no pool holds
    /// may go along with the program to the pool of that table.
    pub(crate) fn read_beside(plan: &LogicalPlan, beside: Option<&PoolTable>) -> Result<Self, Ends> {
        let read = |input: &LogicalPlan| Fragment::read_beside(input, beside);
        match plan {
            LogicalPlan::TableScan(scan) => match beside {
                Some(table) if pool_table(&scan.source).is_none() => {
                    Fragment::of_given(Given::of_scan(scan), table)
                }
                _ => Fragment::scan(scan),
            },
            LogicalPlan::Values(values) => match beside {
                Some(table) => Fragment::of_given(Given::of_values(values), table),
                None => Err(Ends::Silently),
            },
            LogicalPlan::SubqueryAlias(alias) => read(&alias.input),
            LogicalPlan::Filter(filter) => read(&filter.input)?.filter(filter),
            LogicalPlan::Projection(projection) => read(&projection.input)?.project(projection),
            LogicalPlan::Aggregate(aggregate) => read(&aggregate.input)?.aggregate(aggregate),
            LogicalPlan::Limit(limit) => read(&limit.input)?.limit(limit),
            LogicalPlan::Join(join) => lookup::join(join),
            _ => Err(Ends::Silently),
        }
    }

    /// Returns the fragment of rows that go along with a program to the pool of the table `beside`.
    fn of_given(given: Option<Given>, beside: &PoolTable) -> Result<Self, Ends> {
        let table = beside.clone().of_given(given.ok_or(Ends::Silently)?);
        let column = |(i, field): (usize, &FieldRef)| Slot::new(field.name(), Expr::Column(i));
        let columns = table.info().schema.fields().iter().enumerate().map(column).collect();
        Ok(Fragment::of_table(table, Stack::scan(columns)))
    }

    /// Returns the fragment of the rows of a table, with the operators in `stack`.
    fn of_table(table: PoolTable, stack: Stack) -> Self {
        let allowance = Allowance::new(limits::QUERY_EXPR_BYTES_MAX);
        let (rows, looked_up) = (Rows::of_table(table.source()), Vec::new());
        Fragment { table, looked_up, rows, stack, aggregation: None, allowance, worth_a_node: false }
    }

    /// Returns a fragment of rows behind lookups in `looked_up`.
    pub(crate) fn joined(
        table: PoolTable,
        looked_up: Vec<PoolTable>,
        rows: Rows,
        stack: Stack,
        allowance: Allowance,
    ) -> Self {
        Fragment { table, looked_up, rows, stack, aggregation: None, allowance, worth_a_node: true }
    }

    /// Returns the program. If the fragment ends with rows (not an aggregation), `name` returns the names of its columns.
    ///
    /// # Errors
    /// The reason why a node of the plan cannot be part of a program.
    pub(crate) fn program(&self, name: impl Fn(usize) -> String) -> farpool_model::Result<Program> {
        // Names apply to rows only, because the aggregates of the program may differ from those of the fragment.
        let names = self.stack.columns().map(|columns| (0..columns.len()).map(name).collect());
        let info = self.table.info();
        let program = self.stack.clone().program(info.name.clone(), Some(info.version), names)?;
        let (filter, having) = (split::conjunction(program.filter), split::conjunction(program.having));
        Ok(Program { filter, having, ..program })
    }

    /// Returns how the columns of the fragment are derived from those of the program; `None` if they are the same in the same
    /// order.
    pub(crate) fn outcomes(&self) -> Option<&[Outcome]> {
        let Aggregation { width, outcomes } = self.aggregation.as_ref()?;
        let same = |(i, outcome): (usize, &Outcome)| outcome.column == i && outcome.reading.is_none();
        let is_same = outcomes.len() == *width && outcomes.iter().enumerate().all(same);
        (!is_same).then_some(outcomes)
    }

    /// Returns the positions of the sort expressions `exprs` among the program's columns, for a fragment with schema
    /// `schema`. Columns that are not there yet are appended, which is possible if the fragment ends with rows.
    pub(crate) fn sort_columns(&mut self, exprs: &[Logical], schema: &DFSchema) -> Result<Vec<usize>, Ends> {
        if self.stack.is_cut() || exprs.is_empty() {
            return Err(Ends::Silently);
        }
        exprs.iter().map(|expr| self.sort_column(expr, schema)).collect()
    }

    fn sort_column(&mut self, expr: &Logical, schema: &DFSchema) -> Result<usize, Ends> {
        let because = |reason: &str| Ends::because(Operator::TopK, expr.human_display().to_string(), reason);
        if let Logical::Column(column) = expr
            && let Some(place) = schema.maybe_index_of_column(column)
        {
            return self.place_in_program(place).ok_or_else(|| because("it is read from a state of groups"));
        }
        let columns = self.stack.columns().ok_or_else(|| because("it is computed of groups"))?;
        let named = &columns[..schema.fields().len()];
        let wanted = scope(&self.rows, &self.allowance, schema, named).value(expr);
        if let Some(reason) = wanted.opaque_reason() {
            return Err(because(reason));
        }
        if let Some(place) = self.stack.place_of(&wanted) {
            return Ok(place);
        }
        self.stack.append(|_| Ok::<_, Ends>(vec![Slot::new("", wanted)]))?;
        Ok(self.stack.width() - 1)
    }

    /// Returns the position in the program of the fragment's column at `place`; `None` if the engine computes that
    /// column.
    pub(crate) fn place_in_program(&self, place: usize) -> Option<usize> {
        let Some(Aggregation { outcomes, .. }) = &self.aggregation else { return Some(place) };
        outcomes.get(place).filter(|outcome| outcome.reading.is_none()).map(|outcome| outcome.column)
    }

    /// Limits the fragment to the first `limit` rows in this sort order.
    pub(crate) fn order(&mut self, order: Vec<SortKey>, limit: u64) -> Result<(), Ends> {
        self.stack.sort(|_| Ok::<_, Ends>(order))?;
        self.stack.fetch(limit);
        self.worth_a_node = true;
        Ok(())
    }

    /// Returns the types of the columns from index `first` on, for a fragment that ends with rows.
    pub(crate) fn types_from(&self, first: usize) -> Vec<DataType> {
        let schema = &self.rows.info.schema;
        let columns = self.stack.columns().and_then(|columns| columns.get(first..)).unwrap_or_default();
        columns.iter().filter_map(|column| column.expr().data_type(schema).ok()).collect()
    }

    fn scan(scan: &logical::TableScan) -> Result<Self, Ends> {
        let (table, positions) = pool_table(&scan.source).ok_or(Ends::Silently)?;
        if !table.pushdown() {
            return Err(Ends::Silently);
        }
        let columns = match &scan.projection {
            Some(projection) => projection.iter().map(|&i| positions.get(i).copied().flatten()).collect(),
            None => positions.iter().copied().collect::<Option<Vec<usize>>>(),
        };
        let columns = columns.ok_or(Ends::Silently)?;
        let column = |i: usize| Slot::new(table.info().schema.field(i).name(), Expr::Column(i));
        let mut stack = Stack::scan(columns.into_iter().map(column).collect());
        for filter in &scan.filters {
            let placed = table.place(&unqualified(filter));
            if placed.answer != Answer::Exact {
                return Err(Ends::Silently);
            }
            if let Some(sent) = placed.sent {
                stack.filter(|_| Ok::<_, Ends>(sent))?;
            }
        }
        if let Some(fetch) = scan.fetch {
            stack.fetch(farpool_model::cast::u64_from(fetch));
        }
        Ok(Fragment::of_table(table, stack))
    }

    fn filter(mut self, filter: &logical::Filter) -> Result<Self, Ends> {
        if self.aggregation.is_some() {
            return self.filter_groups(filter);
        }
        let (rows, allowance) = (&self.rows, &self.allowance);
        self.stack.filter(|columns| {
            let scope = scope(rows, allowance, filter.input.schema(), columns);
            exact_condition(&scope, Operator::Filter, &filter.predicate)
        })?;
        Ok(self)
    }

    /// Adds a filter above an aggregation (HAVING).
    fn filter_groups(mut self, filter: &logical::Filter) -> Result<Self, Ends> {
        let because = |reason: &str| {
            Ends::because(Operator::Having, filter.predicate.human_display().to_string(), reason)
        };
        if !self.table.pool().takes().having {
            return Err(because("the pool does not know conditions on groups"));
        }
        let groups = self.stack.groups_schema(&self.rows.info.schema, &self.allowance);
        let schema = groups.map_err(|error| because(&error.message))?.ok_or(Ends::Silently)?;
        let columns = vec![ColumnStatistics::default(); schema.fields().len()];
        let info = TableInfo { schema: Arc::new(schema), columns, ..(*self.rows.info).clone() };
        let column = |(place, field): (usize, &FieldRef)| {
            let expr = match self.place_in_program(place) {
                Some(column) => Expr::Column(column),
                None => Expr::opaque("it is read from a state of groups", Vec::new()),
            };
            Slot::new(field.name(), expr)
        };
        let input = filter.input.schema();
        let columns: Vec<Slot> = input.fields().iter().enumerate().map(column).collect();
        let scope = Scope { table: &info, input, columns: &columns, allowance: &self.allowance };
        let condition = exact_condition(&scope, Operator::Having, &filter.predicate)?;
        self.stack.filter(|_| Ok::<_, Ends>(condition))?;
        Ok(self)
    }

    /// Adds a projection above an aggregation, if it is to columns of that.
    fn project_groups(mut self, projection: &logical::Projection) -> Result<Self, Ends> {
        let input = projection.input.schema();
        let Some(aggregation) = &mut self.aggregation else { return Err(Ends::Silently) };
        let outcome = |expr: &Logical| {
            let column = expr.clone().unalias_nested().data;
            let place = input.maybe_index_of_column(column.try_as_col()?)?;
            aggregation.outcomes.get(place).cloned()
        };
        let outcomes = projection.expr.iter().map(outcome).collect::<Option<Vec<Outcome>>>();
        aggregation.outcomes = outcomes.ok_or(Ends::Silently)?;
        Ok(self)
    }

    fn project(mut self, projection: &logical::Projection) -> Result<Self, Ends> {
        if self.aggregation.is_some() {
            return self.project_groups(projection);
        }
        let (rows, allowance) = (&self.rows, &self.allowance);
        let width = self.stack.width();
        let mut computes = false;
        self.stack.append(|columns| {
            let scope = scope(rows, allowance, projection.input.schema(), columns);
            let column = |(expr, field): (&Logical, &FieldRef)| {
                let value = scope.value(expr);
                if let Some(reason) = value.opaque_reason() {
                    let shown = expr.human_display().to_string();
                    return Err(Ends::because(Operator::Project, shown, reason));
                }
                computes |= !matches!(value, Expr::Column(_));
                Ok(Slot::new(field.name(), value))
            };
            projection.expr.iter().zip(projection.schema.fields()).map(column).collect()
        })?;
        let made: Vec<usize> = (width..self.stack.width()).collect();
        self.stack.select(&made, allowance).map_err(|_| Ends::Silently)?;
        self.worth_a_node |= computes;
        Ok(self)
    }

    fn limit(mut self, limit: &logical::Limit) -> Result<Self, Ends> {
        let (Ok(SkipType::Literal(0)), Ok(FetchType::Literal(Some(fetch)))) =
            (limit.get_skip_type(), limit.get_fetch_type())
        else {
            return Err(Ends::Silently);
        };
        self.stack.fetch(farpool_model::cast::u64_from(fetch));
        self.worth_a_node = true;
        Ok(self)
    }

    fn aggregate(mut self, aggregate: &logical::Aggregate) -> Result<Self, Ends> {
        let (rows, allowance) = (&self.rows, &self.allowance);
        let mut aggregation = None;
        self.stack.aggregate(|columns| {
            let scope = scope(rows, allowance, aggregate.input.schema(), columns);
            let (keys, Calls { aggregates, outcomes, .. }) = grouping(aggregate, scope)?;
            aggregation = Some(Aggregation { width: keys.len() + aggregates.len(), outcomes });
            Ok::<_, Ends>((keys, aggregates))
        })?;
        self.aggregation = aggregation;
        self.worth_a_node = true;
        Ok(self)
    }
}

fn scope<'a>(
    rows: &'a Rows,
    allowance: &'a Allowance,
    input: &'a DFSchema,
    columns: &'a [Slot],
) -> Scope<'a> {
    Scope { table: &rows.info, input, columns, allowance }
}

/// Converts a condition that the pool evaluates exactly; `operator` is the one that has it.
pub(crate) fn exact_condition(
    scope: &Scope<'_>,
    operator: Operator,
    condition: &Logical,
) -> Result<Expr, Ends> {
    let exact = |part| {
        let placed = split::place(part, &scope.table.schema);
        placed.sent.filter(|_| placed.answer == Answer::Exact).ok_or_else(|| {
            let shown = condition.human_display().to_string();
            Ends::because(operator, shown, placed.reason.unwrap_or_default())
        })
    };
    let parts = split::conjuncts(scope.condition(condition)).into_iter().map(exact);
    split::conjunction(parts.collect::<Result<Vec<Expr>, Ends>>()?).ok_or(Ends::Silently)
}

/// Returns the group keys of the program that aggregates over `scope`, and its aggregates with the calls that are
/// derived from them.
fn grouping<'a>(aggregate: &logical::Aggregate, scope: Scope<'a>) -> Result<(Vec<Slot>, Calls<'a>), Ends> {
    let shown = |e: &Logical| e.human_display().to_string();
    let operator = if aggregate.group_expr.is_empty() { Operator::Aggregate } else { Operator::Group };
    let mut keys = Vec::new();
    for (i, key) in aggregate.group_expr.iter().enumerate() {
        let expr = scope.value(key);
        if let Some(reason) = expr.opaque_reason() {
            return Err(Ends::because(operator, shown(key), reason));
        }
        keys.push(Slot::new(aggregate.schema.field(i).name(), expr));
    }
    let outcomes = (0..keys.len()).map(|column| Outcome { column, reading: None }).collect();
    let mut calls = Calls { scope, keys: keys.len(), aggregates: Vec::new(), outcomes };
    for (i, call) in aggregate.aggr_expr.iter().enumerate() {
        let field = aggregate.schema.field(keys.len() + i);
        if let Err(reason) = calls.add(call, field.name(), field.data_type()) {
            return Err(Ends::because(operator, shown(call), reason));
        }
    }
    if keys.is_empty() && calls.aggregates.is_empty() {
        return Err(Ends::Silently);
    }
    Ok((keys, calls))
}
