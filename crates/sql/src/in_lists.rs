//! Members of IN lists that depend on the row.
//!
//! DataFusion 55.2 evaluates the members for an empty batch, in order to find out whether they are constants, and takes
//! the value that it gets for all rows. A CASE with a constant in one of its branches gives that constant for an empty
//! batch: `v IN (1, CASE WHEN id > 100 THEN 6 ELSE v * 100 END)` is then true for 6. Such members become calls of a
//! function that returns a value for each row, also for an empty batch. The module is obsolete once upstream looks for
//! columns in the members.

use arrow_schema::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use std::sync::Arc;

/// Returns its argument as a column with one value for each row, even if the argument is a constant. The function is
/// not registered, so that SQL cannot call it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct EachRow(Signature);

impl ScalarUDFImpl for EachRow {
    fn name(&self) -> &'static str {
        "each row"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [value] = args else { return internal_err!("it has one argument") };
        Ok(value.schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [value] = types else { return internal_err!("it has one argument") };
        Ok(value.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [value] = args.arg_fields else { return internal_err!("it has one argument") };
        Ok(Arc::clone(value))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let Some(value) = args.args.into_iter().next() else {
            return internal_err!("it has one argument");
        };
        Ok(ColumnarValue::Array(value.into_array(rows)?))
    }
}

/// Returns the plan with those members of IN lists wrapped in `EachRow` that depend on the row. It must be the last
/// change of the plan, because rules may not recognize wrapped members.
pub fn members_of_each_row(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|plan| {
        let mut has_members = false;
        plan.apply_expressions(|expr| {
            has_members |= expr.exists(|expr| match expr {
                Expr::InList(list) => {
                    list.list.iter().map(depends).try_fold(false, |any, one| Ok(any || one?))
                }
                _ => Ok(false),
            })?;
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })?;
        // Scans are left as they are: a table that has agreed to evaluate a filter must recognize the filter when it is
        // scanned.
        if !has_members || matches!(plan, LogicalPlan::TableScan(_)) {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(expr.transform_up(in_list)?.update_data(|expr| name.restore(expr)))
        })
    });
    changed.map(|plan| plan.data)
}

/// Returns an expression with the same values, in which no rule recognizes the other one.
pub(crate) fn of_each_row(expr: Expr) -> Expr {
    let func = Arc::new(ScalarUDF::from(EachRow(Signature::any(1, Volatility::Immutable))));
    Expr::ScalarFunction(ScalarFunction { func, args: vec![expr] })
}

fn in_list(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::InList(InList { expr, list, negated }) = expr else { return Ok(Transformed::no(expr)) };
    let mut is_changed = false;
    let mut members = Vec::with_capacity(list.len());
    for member in list {
        members.push(match depends(&member)? {
            true => {
                is_changed = true;
                of_each_row(member)
            }
            false => member,
        });
    }
    let list = Expr::InList(InList { expr, list: members, negated });
    Ok(Transformed::new_transformed(list, is_changed))
}

/// Returns whether a member depends on columns of the row, or on parameters of a lambda.
fn depends(member: &Expr) -> Result<bool> {
    let is_one = |expr: &Expr| matches!(expr, Expr::Column(_) | Expr::LambdaVariable(_));
    let is_done = matches!(member, Expr::ScalarFunction(call) if call.func.inner().is::<EachRow>());
    Ok(!is_one(member) && !is_done && member.exists(|expr| Ok(is_one(expr)))?)
}
