//! Wraps rules of the planner so that they fail if the statement has been stopped. The optimizer applies most of its
//! rules to one operator at a time, so that planning stops within the work for one operator.

use super::check;
use super::sizes::check_expressions;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// A rule that first checks whether the statement has been stopped.
#[derive(Debug)]
struct Checked<R: ?Sized>(Arc<R>);

type Analyzer = dyn AnalyzerRule + Send + Sync;
type Optimizer = dyn OptimizerRule + Send + Sync;
type Physical = dyn PhysicalOptimizerRule + Send + Sync;

/// Wraps all rules for logical plans in the session state.
pub fn checked(state: SessionState) -> SessionState {
    let mut builder = SessionStateBuilder::new_from_existing(state);
    if let Some(analyzer) = builder.analyzer() {
        let rules = std::mem::take(&mut analyzer.rules);
        analyzer.rules = rules.into_iter().map(|rule| Arc::new(Checked(rule)) as _).collect();
    }
    if let Some(optimizer) = builder.optimizer() {
        let rules = std::mem::take(&mut optimizer.rules);
        optimizer.rules = rules.into_iter().map(|rule| Arc::new(Checked(rule)) as _).collect();
    }
    builder.build()
}

/// Wraps a rule for physical plans.
pub fn physical(rule: Arc<Physical>) -> Arc<Physical> {
    Arc::new(Checked(rule))
}

impl AnalyzerRule for Checked<Analyzer> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check()?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for Checked<Optimizer> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        check()?;
        let rewritten = self.0.rewrite(plan, config)?;
        if rewritten.transformed {
            check_expressions(&rewritten.data)?;
            // Also checks the filter below, if the rule has swapped a filter with a projection.
            rewritten.data.inputs().into_iter().try_for_each(check_expressions)?;
        }
        Ok(rewritten)
    }
}

impl PhysicalOptimizerRule for Checked<Physical> {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        self.0.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
