//! Reads a piece of an optimized logical plan, from a scan of a pool's table upwards, as one program.
//!
//! Invariant: the program gives exactly the rows of the piece, column by column in the order of its
//! schema; a node that cannot be said exactly ends the piece, with the reason if it is worth telling.

use crate::calls::Calls;
use crate::convert::Scope;
use crate::file::pool_table;
use crate::table::{PoolTable, unqualified};
use arrow_schema::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::{self as logical, Expr as Logical, LogicalPlan};
use farpool_model::{Aggregate, Answer, Expr, NamedExpr, Operator, OperatorAnswer, Output, Program, SortKey};
use farpool_planner::reading::Reading;
use farpool_planner::split;
use farpool_statistics::StateForm;

/// A piece of a plan that a program can say.
pub(crate) struct Piece {
    pub table: PoolTable,
    filters: Vec<Expr>,
    /// What each column of the piece is, over the table; of an aggregation, of its input.
    columns: Vec<Expr>,
    aggregation: Option<Aggregation>,
    order: Vec<SortKey>,
    limit: Option<u64>,
    /// Whether it is more than what a scan does by itself.
    pub worth_a_node: bool,
}

/// The grouping or aggregation that a piece ends with.
struct Aggregation {
    keys: Vec<NamedExpr>,
    /// Those of the program.
    aggregates: Vec<Aggregate>,
    /// For each aggregate of the piece what it is of those.
    outcomes: Vec<Outcome>,
}

/// What an aggregate of the piece is of the aggregates of the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// The place among the aggregates of the program.
    pub aggregate: usize,
    /// What is read here from that one, if it is a state and something else is wanted.
    pub reading: Option<(StateForm, Reading)>,
}

/// Why a node is not a part of a program.
pub(crate) enum Ends {
    /// There is no table of a pool below, or the node is nothing that a program could have.
    Silently,
    /// It could be, but for this.
    Because(Box<OperatorAnswer>),
}

impl Ends {
    fn because(operator: Operator, detail: impl Into<String>, reason: impl Into<String>) -> Self {
        Ends::Because(Box::new(OperatorAnswer {
            operator,
            detail: detail.into(),
            answer: Answer::Refused,
            reason: Some(reason.into()),
        }))
    }
}

impl Piece {
    /// The piece that ends with `plan`.
    pub(crate) fn read(plan: &LogicalPlan) -> Result<Self, Ends> {
        match plan {
            LogicalPlan::TableScan(scan) => Piece::scan(scan),
            LogicalPlan::SubqueryAlias(alias) => Piece::read(&alias.input),
            LogicalPlan::Filter(filter) => Piece::read(&filter.input)?.filter(filter),
            LogicalPlan::Projection(projection) => Piece::read(&projection.input)?.project(projection),
            LogicalPlan::Aggregate(aggregate) => Piece::read(&aggregate.input)?.aggregate(aggregate),
            LogicalPlan::Limit(limit) => Piece::read(&limit.input)?.limit(limit),
            _ => Err(Ends::Silently),
        }
    }

    /// The program; its columns are named as those of `schema`, the schema of the piece.
    pub(crate) fn program(&self, schema: &DFSchema) -> Program {
        let name = |i: usize| schema.field(i).name().clone();
        let output = match &self.aggregation {
            Some(Aggregation { keys, aggregates, .. }) => {
                Output::Aggregate { keys: keys.clone(), aggregates: aggregates.clone() }
            }
            None => Output::Rows(
                self.columns
                    .iter()
                    .enumerate()
                    .map(|(i, expr)| NamedExpr { name: name(i), expr: expr.clone() })
                    .collect(),
            ),
        };
        Program {
            table: self.table.info().name.clone(),
            version: Some(self.table.info().version),
            filter: split::conjunction(self.filters.iter().cloned()),
            output,
            order: self.order.clone(),
            limit: self.limit,
        }
    }

    /// How many keys there are, and what the aggregates of the piece are of those of the program, where these
    /// are not simply the same.
    pub(crate) fn outcomes(&self) -> Option<(usize, &[Outcome])> {
        let Aggregation { keys, aggregates, outcomes } = self.aggregation.as_ref()?;
        let same = |(i, outcome): (usize, &Outcome)| outcome.aggregate == i && outcome.reading.is_none();
        let is_same = outcomes.len() == aggregates.len() && outcomes.iter().enumerate().all(same);
        (!is_same).then_some((keys.len(), outcomes))
    }

    /// Where in the program, for a piece whose schema is `schema`, the columns are that `exprs` are. What is not there yet
    /// is added at the end, if the piece is one of rows.
    pub(crate) fn sort_columns(&mut self, exprs: &[Logical], schema: &DFSchema) -> Result<Vec<usize>, Ends> {
        if self.limit.is_some() || exprs.is_empty() {
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
        if self.aggregation.is_some() {
            return Err(because("it is computed of groups"));
        }
        let named = &self.columns[..schema.fields().len()];
        let wanted = Scope { table: &self.table.info().schema, input: schema, columns: named }.value(expr);
        if let Some(reason) = wanted.opaque_reason() {
            return Err(because(reason));
        }
        let known = self.columns.iter().position(|column| *column == wanted);
        Ok(known.unwrap_or_else(|| {
            self.columns.push(wanted);
            self.columns.len() - 1
        }))
    }

    /// Where in the program a column of the piece is; `None` when it is made here.
    fn place_in_program(&self, place: usize) -> Option<usize> {
        let Some(Aggregation { keys, outcomes, .. }) = &self.aggregation else { return Some(place) };
        match place.checked_sub(keys.len()) {
            None => Some(place),
            Some(i) => outcomes[i].reading.is_none().then_some(keys.len() + outcomes[i].aggregate),
        }
    }

    /// Lets only the first `limit` rows in this order through.
    pub(crate) fn order(&mut self, order: Vec<SortKey>, limit: u64) {
        (self.order, self.limit, self.worth_a_node) = (order, Some(limit), true);
    }

    /// The types of the columns of rows from this one on.
    pub(crate) fn types_from(&self, first: usize) -> Vec<DataType> {
        let schema = &self.table.info().schema;
        let columns = if self.aggregation.is_some() { &[] } else { self.columns.get(first..).unwrap_or(&[]) };
        columns.iter().filter_map(|column| column.data_type(schema).ok()).collect()
    }

    fn scan(scan: &logical::TableScan) -> Result<Self, Ends> {
        let (table, positions) = pool_table(&scan.source).ok_or(Ends::Silently)?;
        if !table.pushdown() {
            return Err(Ends::Silently);
        }
        let mut filters = Vec::new();
        for filter in &scan.filters {
            let placed = table.place(&unqualified(filter));
            if placed.answer != Answer::Exact {
                return Err(Ends::Silently);
            }
            filters.extend(placed.sent);
        }
        let columns = match &scan.projection {
            Some(projection) => projection.iter().map(|&i| positions.get(i).copied().flatten()).collect(),
            None => positions.iter().copied().collect::<Option<Vec<usize>>>(),
        };
        let columns = columns.ok_or(Ends::Silently)?.into_iter().map(Expr::Column).collect();
        let limit = scan.fetch.map(farpool_model::cast::u64_from);
        Ok(Piece {
            table,
            filters,
            columns,
            aggregation: None,
            order: Vec::new(),
            limit,
            worth_a_node: false,
        })
    }

    fn scope<'a>(&'a self, input: &'a DFSchema) -> Scope<'a> {
        Scope { table: &self.table.info().schema, input, columns: &self.columns }
    }

    fn filter(mut self, filter: &logical::Filter) -> Result<Self, Ends> {
        if self.aggregation.is_some() || self.limit.is_some() {
            return Err(Ends::Silently);
        }
        let condition = self.scope(filter.input.schema()).condition(&filter.predicate);
        for part in split::conjuncts(condition) {
            let placed = split::place(part, &self.table.info().schema);
            if placed.answer != Answer::Exact {
                let reason = placed.reason.unwrap_or_default();
                return Err(Ends::because(
                    Operator::Filter,
                    filter.predicate.human_display().to_string(),
                    reason,
                ));
            }
            self.filters.extend(placed.sent);
        }
        Ok(self)
    }

    fn project(mut self, projection: &logical::Projection) -> Result<Self, Ends> {
        if self.aggregation.is_some() {
            return Err(Ends::Silently);
        }
        let scope = self.scope(projection.input.schema());
        let columns: Vec<Expr> = projection.expr.iter().map(|e| scope.value(e)).collect();
        if let Some(at) = columns.iter().position(|c| c.opaque_reason().is_some()) {
            let reason = columns[at].opaque_reason().unwrap_or_default();
            return Err(Ends::because(
                Operator::Project,
                projection.expr[at].human_display().to_string(),
                reason,
            ));
        }
        self.worth_a_node |= columns.iter().any(|c| !matches!(c, Expr::Column(_)));
        self.columns = columns;
        Ok(self)
    }

    fn limit(mut self, limit: &logical::Limit) -> Result<Self, Ends> {
        let (Ok(SkipType::Literal(0)), Ok(FetchType::Literal(Some(fetch)))) =
            (limit.get_skip_type(), limit.get_fetch_type())
        else {
            return Err(Ends::Silently);
        };
        let fetch = farpool_model::cast::u64_from(fetch);
        self.limit = Some(self.limit.map_or(fetch, |limit| limit.min(fetch)));
        self.worth_a_node = true;
        Ok(self)
    }

    fn aggregate(mut self, aggregate: &logical::Aggregate) -> Result<Self, Ends> {
        if self.aggregation.is_some() || self.limit.is_some() {
            return Err(Ends::Silently);
        }
        let named = |i: usize| aggregate.schema.field(i).name().clone();
        let shown = |e: &Logical| e.human_display().to_string();
        let operator = if aggregate.group_expr.is_empty() { Operator::Aggregate } else { Operator::Group };
        let scope = self.scope(aggregate.input.schema());
        let mut keys = Vec::new();
        for (i, key) in aggregate.group_expr.iter().enumerate() {
            let expr = scope.value(key);
            if let Some(reason) = expr.opaque_reason() {
                return Err(Ends::because(operator, shown(key), reason));
            }
            keys.push(NamedExpr { name: named(i), expr });
        }
        let mut calls = Calls { scope, aggregates: Vec::new(), outcomes: Vec::new() };
        for (i, call) in aggregate.aggr_expr.iter().enumerate() {
            let field = aggregate.schema.field(keys.len() + i);
            if let Err(reason) = calls.add(call, field.name(), field.data_type()) {
                return Err(Ends::because(operator, shown(call), reason));
            }
        }
        let Calls { aggregates, outcomes, .. } = calls;
        if keys.is_empty() && aggregates.is_empty() {
            return Err(Ends::Silently);
        }
        self.aggregation = Some(Aggregation { keys, aggregates, outcomes });
        self.worth_a_node = true;
        Ok(self)
    }
}
