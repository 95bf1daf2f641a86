//! Checks that a scalar subquery has at most one row, and treats scalar subqueries that may have none.

use super::references::free_columns;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use datafusion::common::exec_err;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, lit,
};
use std::sync::{Arc, LazyLock};

/// Returns an expression with the value `value`, which fails if `rows`, the number of rows of the subquery, is greater
/// than one.
pub(super) fn one_of(rows: Expr, value: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::from(OneRow { signature: Signature::any(2, Volatility::Immutable) }))
    });
    FUNCTION.call(vec![rows, value])
}

/// Makes the values of subqueries without outer references nullable if the subquery may have no row. DataFusion assumes
/// the nullability of the subquery's column, although the value is then NULL.
pub(super) fn with_nulls(plan: LogicalPlan) -> Result<LogicalPlan> {
    let names = NamePreserver::new(&plan);
    let made = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let made = expr.transform_up(|expr| match expr {
            Expr::ScalarSubquery(subquery) if may_lack_null(&subquery.subquery)? => {
                let rows = LogicalPlan::clone(&subquery.subquery);
                let column = rows.schema().columns().swap_remove(0);
                let value = one_of(lit(1_i64), Expr::Column(column.clone()));
                let value = value.alias_qualified(column.relation, column.name);
                let rows = Arc::new(LogicalPlanBuilder::from(rows).project([value])?.build()?);
                Ok(Transformed::yes(Expr::ScalarSubquery(Subquery { subquery: rows, ..subquery })))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(made.update_data(|expr| name.restore(expr)))
    })?;
    Ok(made.data)
}

fn may_lack_null(subquery: &LogicalPlan) -> Result<bool> {
    Ok(!subquery.schema().field(0).is_nullable()
        && !always_has_row(subquery)
        && free_columns(subquery)?.is_empty())
}

fn always_has_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => always_has_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => always_has_row(&alias.input),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Sort(sort) => sort.fetch.is_none_or(|fetch| fetch > 0) && always_has_row(&sort.input),
        _ => false,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneRow {
    signature: Signature,
}

impl ScalarUDFImpl for OneRow {
    fn name(&self) -> &'static str {
        "one_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[1].clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let counts = arguments.args[0].to_array(arguments.number_rows)?;
        let has_several = counts.as_primitive::<Int64Type>().iter().flatten().any(|rows| rows > 1);
        match has_several {
            true => exec_err!("more than one row returned by a subquery used as an expression"),
            false => Ok(arguments.args[1].clone()),
        }
    }
}
