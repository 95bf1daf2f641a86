//! Subqueries in the condition of a change: evaluated once and replaced by their values.

use crate::rows::Rows;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, exec_err, not_impl_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{Exists, InList, InSubquery};
use datafusion::logical_expr::{Expr, Subquery, lit};
use farpool_model::limits;
use farpool_sql::error;
use futures::TryStreamExt;
use std::sync::Arc;

/// Returns the condition with its subqueries replaced by their values.
pub(super) async fn computed(state: &Arc<SessionState>, condition: Expr) -> Result<Expr> {
    let mut subqueries = Vec::new();
    condition.apply(|expr| {
        if is_subquery(expr) {
            subqueries.push(expr.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut values = Vec::new();
    for subquery in subqueries {
        let value = compute(state, &subquery).await?;
        values.push((subquery, value));
    }
    let put = |expr: Expr| match values.iter().find(|(subquery, _)| *subquery == expr) {
        Some((_, value)) => Ok(Transformed::yes(value.clone())),
        None => Ok(Transformed::no(expr)),
    };
    condition.transform_up(put).map(|condition| condition.data)
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::Exists(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_))
}

async fn compute(state: &Arc<SessionState>, expr: &Expr) -> Result<Expr> {
    match expr {
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let operand = Box::pin(computed(state, (**expr).clone())).await?;
            let list = values(state, subquery).await?.into_iter().map(lit).collect();
            Ok(Expr::InList(InList { expr: Box::new(operand), list, negated: *negated }))
        }
        Expr::Exists(Exists { subquery, negated }) => {
            let is_there = any_row(state, subquery).await?;
            Ok(lit(is_there != *negated))
        }
        Expr::ScalarSubquery(subquery) => match values(state, subquery).await?.as_slice() {
            [] => Ok(lit(ScalarValue::try_from(subquery.subquery.schema().field(0).data_type())?)),
            [value] => Ok(lit(value.clone())),
            _ => exec_err!("a subquery that stands for one value gives several rows"),
        },
        _ => not_impl_err!("this kind of subquery in the condition of UPDATE or DELETE"),
    }
}

/// Returns the values of a subquery's single column.
async fn values(state: &Arc<SessionState>, subquery: &Subquery) -> Result<Vec<ScalarValue>> {
    let mut batches = plan(state, subquery).await?.start().map_err(error::wrap)?;
    let mut values = Vec::new();
    while let Some(batch) = batches.try_next().await.map_err(error::wrap)? {
        let most = limits::CHANGE_VALUES_MAX;
        if values.len() + batch.num_rows() > most {
            return not_impl_err!("a subquery of more than {most} rows in the condition of UPDATE or DELETE");
        }
        for row in 0..batch.num_rows() {
            values.push(ScalarValue::try_from_array(batch.column(0), row)?);
        }
    }
    Ok(values)
}

async fn any_row(state: &Arc<SessionState>, subquery: &Subquery) -> Result<bool> {
    let mut batches = plan(state, subquery).await?.start().map_err(error::wrap)?;
    while let Some(batch) = batches.try_next().await.map_err(error::wrap)? {
        if batch.num_rows() > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn plan(state: &Arc<SessionState>, subquery: &Subquery) -> Result<Rows> {
    if !subquery.outer_ref_columns.is_empty() {
        return not_impl_err!(
            "a subquery in the condition of UPDATE or DELETE that depends on the row that is changed"
        );
    }
    Rows::plan(state, &subquery.subquery).await
}
