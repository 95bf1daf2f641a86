//! Plans that no rule of the physical optimizer changes: the unchanged result of a program (the part of a query that a
//! pool runs), or one row of constants. The rules are skipped for them, which saves a tenth of the time of a small
//! statement.

use crate::exec::PoolExec;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use std::sync::Arc;

/// A physical optimizer rule that leaves such plans as they are, and otherwise runs the wrapped rule.
#[derive(Debug)]
pub(crate) struct UnlessPlain(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for UnlessPlain {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if is_plain(&plan) { Ok(plan) } else { self.0.optimize(plan, config) }
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if is_plain(&plan) { Ok(plan) } else { self.0.optimize_with_context(plan, context) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn is_plain(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let rows = plan.downcast_ref::<ProjectionExec>().map_or(plan, ProjectionExec::input);
    rows.is::<PoolExec>() || rows.is::<PlaceholderRowExec>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::rules_of_all_plans;
    use crate::tests::{Fake, filled, session};
    use datafusion::physical_plan::displayable;

    fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
        displayable(&**plan).indent(true).to_string()
    }

    #[tokio::test]
    async fn rules_leave_plain_plans_as_they_are() {
        let pool = filled(Fake::default()).await;
        let session = session(&pool, true).await;
        let state = session.context().state();
        for text in [
            "SELECT 1 + 2, now()",
            "SELECT * FROM t",
            "SELECT k + 1, upper(s) FROM t WHERE id = 5",
            "SELECT count(*), sum(d) FROM t WHERE k > 3",
            "SELECT k AS key, count(*) + 1 FROM t GROUP BY k",
            "SELECT id FROM t WHERE k = 2",
        ] {
            let logical = state.create_logical_plan(text).await.unwrap();
            let plan = state.create_physical_plan(&logical).await.unwrap();
            assert!(is_plain(&plan), "{text}:\n{}", shown(&plan));
            let mut after = Arc::clone(&plan);
            for rule in rules_of_all_plans(None) {
                after = rule.optimize(after, state.config_options()).unwrap();
            }
            assert_eq!(shown(&plan), shown(&after), "{text}");
        }
    }

    #[tokio::test]
    async fn others_are_optimized() {
        let pool = filled(Fake::default()).await;
        let session = session(&pool, true).await;
        let state = session.context().state();
        for text in ["SELECT median(d) FROM t", "SELECT upper(s) AS u FROM t ORDER BY u", "VALUES (1), (2)"] {
            let logical = state.create_logical_plan(text).await.unwrap();
            let plan = state.create_physical_plan(&logical).await.unwrap();
            assert!(!is_plain(&plan), "{text}:\n{}", shown(&plan));
        }
    }
}
