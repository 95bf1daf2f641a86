//! Converts string columns below joins and UNNEST to string views (Arrow's `Utf8View`). These operators repeat the rows
//! of their inputs; a view is repeated as 16 bytes, whereas a string would be copied: a string of 10 MB in each of
//! 5,000 rows is more than a batch can hold.
//!
//! Invariant: columns keep their names and values. The rule runs after correlated subqueries have been rewritten,
//! because it would have to change the types of references to outer columns as well.

use arrow_schema::DataType;
use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use farpool_sql::repeats_rows;
use std::sync::Arc;

/// The analyzer rule; see the documentation of this module.
#[derive(Debug)]
pub(crate) struct TextsAsViews;

impl AnalyzerRule for TextsAsViews {
    fn name(&self) -> &'static str {
        "texts_as_views"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) => in_join(join),
            LogicalPlan::Unnest(mut unnest) => match as_views(&unnest.input)? {
                Some(input) => {
                    unnest.input = Arc::new(input);
                    LogicalPlan::Unnest(unnest).recompute_schema().map(Transformed::yes)
                }
                None => Ok(Transformed::no(LogicalPlan::Unnest(unnest))),
            },
            other => Ok(Transformed::no(other)),
        })?;
        match rewritten.transformed {
            true => TypeCoercion::new().analyze(rewritten.data, config),
            false => Ok(rewritten.data),
        }
    }
}

fn in_join(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    if !repeats_rows(join.join_type) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let (left, right) = (as_views(&join.left)?, as_views(&join.right)?);
    if left.is_none() && right.is_none() {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    join.left = left.map_or(join.left, Arc::new);
    join.right = right.map_or(join.right, Arc::new);
    LogicalPlan::Join(join).recompute_schema().map(Transformed::yes)
}

/// Returns the plan with its string columns converted to views; `None` if all its strings are views already.
fn as_views(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let schema = plan.schema();
    if schema.fields().iter().all(|field| view(field.data_type()).is_none()) {
        return Ok(None);
    }
    let columns = schema.iter().map(|(table, field)| {
        let column = Expr::Column(Column::new(table.cloned(), field.name()));
        match view(field.data_type()) {
            Some(view) => cast(column, view).alias_qualified(table.cloned(), field.name()),
            None => column,
        }
    });
    LogicalPlanBuilder::from(plan.clone()).project(columns.collect::<Vec<_>>())?.build().map(Some)
}

fn view(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        _ => None,
    }
}
