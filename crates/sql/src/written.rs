//! A function that gives an expression the column name that was written in the statement. DataFusion 55.2 leaves casts
//! out of the names of expressions, so that `sum(id)` and `sum(id::double)` have the same name.
//! `dialect::distinct_names` writes the casts as calls of this function, and they are removed from the plan again.
//! Column names do not change.

use arrow_schema::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;

/// Name of the function. Its arguments are an expression and the name of the expression.
pub const FUNCTION: &str = "as_written";

/// Registers the function [`FUNCTION`] in `context`.
pub fn register(context: &SessionContext) {
    let signature = Signature::any(2, Volatility::Immutable);
    context.register_udf(ScalarUDF::from(AsWritten { signature }));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsWritten {
    signature: Signature,
}

impl ScalarUDFImpl for AsWritten {
    fn name(&self) -> &str {
        FUNCTION
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [_, Expr::Literal(ScalarValue::Utf8(Some(text)), _)] => Ok(text.clone()),
            _ => Ok(FUNCTION.to_string()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [written, _] => Ok(written.clone()),
            _ => internal_err!("{FUNCTION} of {} arguments", types.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.into_iter().next() {
            Some(written) => Ok(written),
            None => internal_err!("{FUNCTION} of nothing"),
        }
    }
}

/// Replaces the calls in a plan by their first argument. Names of columns do not change.
///
/// # Errors
/// Fails only on a bug in this crate.
pub fn planned(plan: LogicalPlan) -> Result<LogicalPlan> {
    let planned = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        let changed = node.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.transform_up(|expr| Ok(expression(expr)))?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        })?;
        match changed.transformed {
            true => changed.map_data(LogicalPlan::recompute_schema),
            false => Ok(changed),
        }
    })?;
    Ok(planned.data)
}

fn expression(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, mut args })
            if func.inner().is::<AsWritten>() && args.len() == 2 =>
        {
            Transformed::yes(args.swap_remove(0))
        }
        other => Transformed::no(other),
    }
}
