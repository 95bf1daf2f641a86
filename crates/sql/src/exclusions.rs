//! Frames of windows that exclude rows near the current one: `EXCLUDE CURRENT ROW | GROUP | TIES`. Frames in DataFusion
//! 55.2 have no exclusion; this module is obsolete once they do.
//!
//! A call over such a window becomes a call of a function that gets every row's frame from the engine, and that
//! evaluates the original call over those rows of the frame that are not excluded. The cost of each row is proportional
//! to the size of its frame.

use crate::interrupt::current;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_ord::partition::partition;
use arrow_schema::{FieldRef, Schema};
use arrow_select::concat::concat;
use arrow_select::filter::filter;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::function::{AccumulatorArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, Expr, LogicalPlan, PartitionEvaluator, Signature, Volatility,
    WindowFunctionDefinition, WindowUDF, WindowUDFImpl,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use std::ops::Range;
use std::sync::Arc;

/// Window functions (other than aggregates) whose result depends on the frame.
const OF_FRAMES: [&str; 3] = ["first_value", "last_value", "nth_value"];

/// The rows that are excluded from a frame (SQL:2016, 7.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exclusion {
    CurrentRow,
    /// The current row and its peers, which are equal to it in the window's sort order.
    Group,
    /// The peers of the current row, but not the row itself.
    Ties,
}

impl Exclusion {
    const ALL: [Exclusion; 3] = [Exclusion::CurrentRow, Exclusion::Group, Exclusion::Ties];

    /// Returns the constant string that marks the exclusion in PARTITION BY.
    pub fn mark(self) -> &'static str {
        match self {
            Exclusion::CurrentRow => "\u{1}EXCLUDE CURRENT ROW",
            Exclusion::Group => "\u{1}EXCLUDE GROUP",
            Exclusion::Ties => "\u{1}EXCLUDE TIES",
        }
    }

    fn of(expr: &Expr) -> Option<Exclusion> {
        match expr {
            Expr::Cast(cast) => Exclusion::of(&cast.expr),
            Expr::Literal(value, _) => {
                let text = value.try_as_str().flatten()?;
                Exclusion::ALL.into_iter().find(|exclusion| exclusion.mark() == text)
            }
            _ => None,
        }
    }

    /// Returns the rows of `frame` that are not excluded for the row `row`, as three ranges. `peers` are the row's
    /// peers, including itself.
    fn left(self, frame: &Range<usize>, row: usize, peers: &Range<usize>) -> [Range<usize>; 3] {
        let within = |rows: Range<usize>| {
            let start = rows.start.clamp(frame.start, frame.end);
            start..rows.end.clamp(start, frame.end)
        };
        let out = if self == Exclusion::CurrentRow { row..row + 1 } else { peers.clone() };
        let current = if self == Exclusion::Ties { row..row + 1 } else { row..row };
        [within(0..out.start), within(current), within(out.end..usize::MAX)]
    }
}

/// Returns whether a text is the mark of an exclusion.
pub fn is_mark(text: &str) -> bool {
    Exclusion::ALL.into_iter().any(|exclusion| exclusion.mark() == text)
}

/// The analyzer rule: replaces the calls over marked windows. It runs after type coercion, which converts the arguments
/// to the types that the function takes. Columns keep their names.
#[derive(Debug)]
pub struct Exclusions;

impl AnalyzerRule for Exclusions {
    fn name(&self) -> &'static str {
        "exclusions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let planned = plan.transform_up_with_subqueries(|plan| {
            if !matches!(plan, LogicalPlan::Window(_)) {
                return Ok(Transformed::no(plan));
            }
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let excluded = expr.transform_up(|expr| Ok(excluded(expr)))?;
                Ok(excluded.update_data(|expr| name.restore(expr)))
            })
        });
        planned.map(|plan| plan.data)
    }
}

fn excluded(expr: Expr) -> Transformed<Expr> {
    let mut call = match expr {
        Expr::WindowFunction(call) => call,
        other => return Transformed::no(other),
    };
    let Some(exclusion) = call.params.partition_by.iter().find_map(Exclusion::of) else {
        return Transformed::no(Expr::WindowFunction(call));
    };
    call.params.partition_by.retain(|expr| Exclusion::of(expr).is_none());
    let call = match &call.fun {
        // Functions such as row_number() do not depend on frames.
        WindowFunctionDefinition::WindowUDF(function) if !OF_FRAMES.contains(&function.name()) => call,
        _ => Box::new(over_what_is_left(*call, exclusion)),
    };
    Transformed::yes(Expr::WindowFunction(call))
}

fn over_what_is_left(mut call: WindowFunction, exclusion: Exclusion) -> WindowFunction {
    let condition = call.params.filter.take();
    let has_filter = condition.is_some();
    call.params.args.extend(condition.map(|condition| *condition));
    let signature = Signature::any(call.params.args.len(), Volatility::Immutable);
    let is_distinct = std::mem::take(&mut call.params.distinct);
    let excluding = Excluding { inner: call.fun, exclusion, has_filter, is_distinct, signature };
    call.fun = WindowFunctionDefinition::WindowUDF(Arc::new(WindowUDF::from(excluding)));
    call
}

/// A window function that evaluates another one over the rows of a frame that are not excluded.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Excluding {
    inner: WindowFunctionDefinition,
    exclusion: Exclusion,
    /// Whether the last argument is the condition of FILTER.
    has_filter: bool,
    is_distinct: bool,
    signature: Signature,
}

impl Excluding {
    fn own<'a, T>(&self, arguments: &'a [T]) -> &'a [T] {
        &arguments[..arguments.len().saturating_sub(usize::from(self.has_filter))]
    }
}

impl WindowUDFImpl for Excluding {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let fields = self.own(args.input_fields());
        match &self.inner {
            WindowFunctionDefinition::AggregateUDF(function) => {
                let field = function.return_field(fields)?;
                Ok(Arc::new(field.as_ref().clone().with_name(args.name()).with_nullable(true)))
            }
            WindowFunctionDefinition::WindowUDF(function) => {
                function.field(WindowUDFFieldArgs::new(fields, args.name()))
            }
        }
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        let (exprs, fields) = (self.own(args.input_exprs()), self.own(args.input_fields()));
        let computed = match &self.inner {
            WindowFunctionDefinition::AggregateUDF(function) => Computed::Aggregate(Box::new(
                Aggregate::new(function, exprs, fields, self.is_distinct, &args)?,
            )),
            WindowFunctionDefinition::WindowUDF(function) => {
                let args =
                    PartitionEvaluatorArgs::new(exprs, fields, args.is_reversed(), args.ignore_nulls());
                Computed::Function(function.partition_evaluator_factory(args)?)
            }
        };
        let arguments = args.input_exprs().len();
        let (exclusion, has_filter) = (self.exclusion, self.has_filter);
        Ok(Box::new(Evaluator { computed, exclusion, has_filter, arguments, row: 0, peers: None }))
    }
}

/// An aggregate with the arguments from which its accumulators are created.
#[derive(Debug)]
struct Aggregate {
    function: Arc<AggregateUDF>,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    fields: Vec<FieldRef>,
    schema: Schema,
    return_field: FieldRef,
    is_distinct: bool,
    ignore_nulls: bool,
}

impl Aggregate {
    fn new(
        function: &Arc<AggregateUDF>,
        exprs: &[Arc<dyn PhysicalExpr>],
        fields: &[FieldRef],
        is_distinct: bool,
        args: &PartitionEvaluatorArgs<'_>,
    ) -> Result<Self> {
        // Constants may be options of the function, and stay as they are. Other arguments become columns of a schema of
        // their own.
        let own = |(place, expr): (usize, &Arc<dyn PhysicalExpr>)| match expr.downcast_ref::<Literal>() {
            Some(_) => Arc::clone(expr),
            None => Arc::new(Column::new(fields[place].name(), place)) as Arc<dyn PhysicalExpr>,
        };
        Ok(Aggregate {
            function: Arc::clone(function),
            exprs: exprs.iter().enumerate().map(own).collect(),
            fields: fields.to_vec(),
            schema: Schema::new(fields.to_vec()),
            return_field: function.return_field(fields)?,
            is_distinct,
            ignore_nulls: args.ignore_nulls(),
        })
    }

    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &[],
            is_reversed: false,
            name: self.function.name(),
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.fields,
        })
    }
}

/// Function over the rows that are not excluded: an aggregate or a window function.
#[derive(Debug)]
enum Computed {
    Aggregate(Box<Aggregate>),
    Function(Box<dyn PartitionEvaluator>),
}

/// Evaluates a partition of the window, row by row.
#[derive(Debug)]
struct Evaluator {
    computed: Computed,
    exclusion: Exclusion,
    has_filter: bool,
    /// Number of argument columns; the columns of the window's sort order follow them.
    arguments: usize,
    /// The index of the row that is evaluated next.
    row: usize,
    /// The ranges of rows that are equal in the sort order, and the index of the current range.
    peers: Option<(Vec<Range<usize>>, usize)>,
}

impl Evaluator {
    /// Returns the peers of the current row: the rows that are equal to it in the window's sort order, including
    /// itself.
    fn peers(&mut self, order: &[ArrayRef], rows: usize) -> Result<Range<usize>> {
        if self.peers.is_none() {
            // Without a sort order, all rows are equal.
            let ranges = match order {
                [] => std::iter::once(0..rows).collect(),
                order => partition(order)?.ranges(),
            };
            self.peers = Some((ranges, 0));
        }
        let Some((ranges, at)) = &mut self.peers else { return internal_err!("no ranges") };
        while ranges.get(*at).is_some_and(|range| range.end <= self.row) {
            *at += 1;
        }
        Ok(ranges.get(*at).cloned().unwrap_or(self.row..self.row + 1))
    }

    /// Returns the arguments of those of the rows that satisfy the condition of FILTER.
    fn rows(&self, arguments: &[ArrayRef], rows: &Range<usize>) -> Result<Vec<ArrayRef>> {
        let slices: Vec<ArrayRef> = arguments.iter().map(|a| a.slice(rows.start, rows.len())).collect();
        if !self.has_filter {
            return Ok(slices);
        }
        let Some((condition, slices)) = slices.split_last() else { return internal_err!("no condition") };
        let Some(passes) = condition.as_any().downcast_ref::<BooleanArray>() else {
            return internal_err!("a condition that is none");
        };
        slices.iter().map(|slice| Ok(filter(slice, passes)?)).collect()
    }
}

impl PartitionEvaluator for Evaluator {
    fn uses_window_frame(&self) -> bool {
        true
    }

    fn evaluate(&mut self, values: &[ArrayRef], frame: &Range<usize>) -> Result<ScalarValue> {
        current::check()?;
        let (arguments, order) = values.split_at(self.arguments);
        let rows = values.first().map_or(0, |values| values.len());
        let peers = self.peers(order, rows)?;
        let left = self.exclusion.left(frame, self.row, &peers);
        self.row += 1;
        let left = left.iter().filter(|rows| !rows.is_empty());
        let left = left.map(|rows| self.rows(arguments, rows)).collect::<Result<Vec<_>>>()?;
        match &mut self.computed {
            Computed::Aggregate(aggregate) => {
                let mut accumulator = aggregate.accumulator()?;
                left.iter().try_for_each(|rows| accumulator.update_batch(rows))?;
                accumulator.evaluate()
            }
            Computed::Function(function) => {
                let columns = arguments.len().saturating_sub(usize::from(self.has_filter));
                let column = |place: usize| match left.as_slice() {
                    [] => Ok(arguments[place].slice(0, 0)),
                    left => {
                        let parts: Vec<&dyn Array> = left.iter().map(|rows| &*rows[place] as _).collect();
                        Ok(concat(&parts)?)
                    }
                };
                let columns = (0..columns).map(column).collect::<Result<Vec<ArrayRef>>>()?;
                let rows = columns.first().map_or(0, |column| column.len());
                function.evaluate(&columns, &(0..rows))
            }
        }
    }
}
