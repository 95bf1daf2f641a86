//! Plans `INTERSECT ALL` and `EXCEPT ALL`, which `dialect::set_all` has rewritten to a filter condition on the rows of
//! both sides.
//!
//! Algorithm: equal rows of a side are numbered, and rows are grouped by their values and these numbers. A group then
//! has one row of the left side, one of the right side, or one of each, from which it follows whether a row remains.
//! NULLs are equal, as in the standard.

use arrow_schema::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprFunctionExt, Filter, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::prelude::SessionContext;

/// The set operation, which determines the rows that remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    InBoth,
    LeftOnly,
}

impl Kept {
    /// Returns the name of the function that stands for the operation's condition until the plan is built.
    pub fn function(self) -> &'static str {
        match self {
            Kept::InBoth => "rows_of_intersect_all",
            Kept::LeftOnly => "rows_of_except_all",
        }
    }
}

/// Registers the functions that stand for the conditions.
pub fn register(context: &SessionContext) {
    for kept in [Kept::InBoth, Kept::LeftOnly] {
        let signature = Signature::any(1, Volatility::Immutable);
        context.register_udf(ScalarUDF::from(Condition { kept, signature }));
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Condition {
    kept: Kept,
    signature: Signature,
}

impl ScalarUDFImpl for Condition {
    fn name(&self) -> &str {
        self.kept.function()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let error = farpool_model::Error::invalid(format!("{} is no function of its own", self.name()));
        Err(crate::error::wrap(error.advise("write INTERSECT ALL or EXCEPT ALL")))
    }
}

/// Replaces, in a plan, the filters whose conditions stand for INTERSECT ALL and EXCEPT ALL.
///
/// # Errors
/// Fails only on a bug in this crate.
pub fn planned(plan: LogicalPlan) -> Result<LogicalPlan> {
    let planned = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(filter) => match kept(&filter) {
            Some((kept, side)) => rows(kept, &side, &filter).map(Transformed::yes),
            None => Ok(Transformed::no(LogicalPlan::Filter(filter))),
        },
        other => Ok(Transformed::no(other)),
    })?;
    Ok(planned.data)
}

/// If the filter has such a condition, returns the operation, and the column that tells a row's side; otherwise `None`.
fn kept(filter: &Filter) -> Option<(Kept, Column)> {
    let Expr::ScalarFunction(call) = &filter.predicate else { return None };
    let condition = call.func.inner().downcast_ref::<Condition>()?;
    match call.args.as_slice() {
        [Expr::Column(side)] => Some((condition.kept, side.clone())),
        _ => None,
    }
}

/// Returns the plan of the rows that remain after the set operation, with the columns of the filter.
fn rows(kept: Kept, side: &Column, filter: &Filter) -> Result<LogicalPlan> {
    let columns = filter.input.schema().columns();
    let values: Vec<Expr> =
        columns.iter().filter(|column| *column != side).cloned().map(Expr::Column).collect();
    let side_of = Expr::Column(side.clone());
    let partition = values.iter().cloned().chain([side_of.clone()]).collect();
    let number = row_number().partition_by(partition).build()?.alias(":number");
    let number_of = Expr::Column(Column::from_name(":number"));
    let keys: Vec<Expr> = values.iter().cloned().chain([number_of]).collect();
    let least = crate::aggregates::min().call(vec![side_of.clone()]).alias(":least");
    let greatest = crate::aggregates::max().call(vec![side_of]).alias(":greatest");
    let of = |name: &str| Expr::Column(Column::from_name(name));
    let condition = match kept {
        Kept::InBoth => of(":least").not_eq(of(":greatest")),
        Kept::LeftOnly => of(":greatest").eq(lit(0_i64)),
    };
    let shown = columns.iter().map(|column| match column == side {
        true => of(":least").alias_qualified(side.relation.clone(), side.name.clone()),
        false => Expr::Column(column.clone()),
    });
    LogicalPlanBuilder::from(filter.input.as_ref().clone())
        .window(vec![number])?
        .aggregate(keys, vec![least, greatest])?
        .filter(condition)?
        .project(shown)?
        .build()
}
