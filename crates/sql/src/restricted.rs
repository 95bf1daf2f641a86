//! Rules of DataFusion's optimizer that produce incorrect plans for some operators, and are not applied to these.
//!
//! - `extract_equijoin_predicate` turns `a.y = b.y` into a key of a join whose keys are equal if both are NULL (`a.x IS
//!   NOT DISTINCT FROM b.x AND a.y = b.y`, semi joins of this crate, INTERSECT); found in review of
//!   apache/datafusion#12458.
//! - `eliminate_cross_join` merges several joins into one and takes the treatment of NULL from one of them.
//! - `push_down_filter` pushes a condition without columns below an aggregate without GROUP BY, which then has a row
//!   where it should have none: `SELECT count(*) FROM t HAVING random() < 0`. It pushes a volatile condition below
//!   groups and windows, where it removes other rows. No condition may be pushed below rows that several readers share.
//!
//! `tests/upstream.rs` of `crates/datafusion` fails once DataFusion has fixed one of them.

use crate::subqueries;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::sync::Arc;

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// Returns DataFusion's optimizer rules; those above are wrapped so that they are not applied to the operators for
/// which they are incorrect.
pub fn rules() -> Vec<Rule> {
    let restricted = |rule: Rule| -> Rule {
        let is_wrong_for: fn(&LogicalPlan) -> bool = match rule.name() {
            "extract_equijoin_predicate" => has_null_keys,
            "eliminate_cross_join" => has_inner_null_keys_below,
            "push_down_filter" => filters_to_stay,
            _ => return rule,
        };
        Arc::new(Restricted { rule, is_wrong_for })
    };
    Optimizer::new().rules.into_iter().map(restricted).collect()
}

#[derive(Debug)]
struct Restricted {
    rule: Rule,
    is_wrong_for: fn(&LogicalPlan) -> bool,
}

impl OptimizerRule for Restricted {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match (self.is_wrong_for)(&plan) {
            true => Ok(Transformed::no(plan)),
            false => self.rule.rewrite(plan, config),
        }
    }
}

fn has_null_keys(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join)
        if join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty())
}

fn has_inner_null_keys_below(plan: &LogicalPlan) -> bool {
    let is_such = |plan: &LogicalPlan| {
        Ok(has_null_keys(plan)
            && matches!(plan, LogicalPlan::Join(join) if join.join_type == JoinType::Inner))
    };
    plan.exists(is_such).unwrap_or(true)
}

fn filters_to_stay(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(filter) = plan else { return false };
    match &*filter.input {
        LogicalPlan::Aggregate(aggregate) => {
            matches!(aggregate.group_expr.as_slice(), [] | [Expr::GroupingSet(_)])
                || filter.predicate.is_volatile()
        }
        LogicalPlan::Window(_) | LogicalPlan::Distinct(_) => filter.predicate.is_volatile(),
        LogicalPlan::Extension(extension) => subqueries::are_shared(extension),
        _ => false,
    }
}
