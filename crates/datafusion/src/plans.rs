//! A cache of logical plans by the text of their queries. A repeated query, possibly with other values of its
//! parameters, is not parsed and its names are not resolved again, which saves a quarter of the time of a small
//! statement.
//!
//! Invariant: a cached plan is the plan that the text would get now. The plan depends on the session's options, on the
//! functions that the text names, and on the columns of its tables, so that all of these are compared at each use.
//! Tables are looked up at each use, so that a statement reads their newest versions. Only queries over tables of pools
//! are cached; one that names a view, a file or a table of the session is not.

use crate::catalog;
use crate::table::PoolTable;
use arrow_schema::SchemaRef;
use datafusion::common::TableReference;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::WindowFunctionDefinition;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, ScalarUDF, TableScan, WindowUDF};
use farpool_model::limits;
use farpool_sql::dialect::Headers;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The cached plans of a session, the most recently used first; the last one is dropped if there are too many.
#[derive(Default)]
pub(crate) struct Plans(Mutex<VecDeque<Arc<Kept>>>);

struct Kept {
    text: String,
    plan: LogicalPlan,
    headers: Headers,
    options: Arc<ConfigOptions>,
    functions: Vec<Named>,
    tables: Vec<Columns>,
}

/// A table as named in a query, with its columns.
type Columns = (TableReference, SchemaRef);

impl Plans {
    /// Returns the cached plan of `text` over the current table versions, without values for its parameters, and the
    /// names of the result's columns. Returns `None` if there is no valid cached plan.
    ///
    /// # Errors
    /// Errors of a pool that cannot be asked for a table.
    pub(crate) async fn find(
        &self,
        state: &SessionState,
        text: &str,
    ) -> Result<Option<(LogicalPlan, Headers)>> {
        let Some(kept) = self.used(text) else { return Ok(None) };
        if !Arc::ptr_eq(&kept.options, state.config_options())
            || !kept.functions.iter().all(|named| named.is_of(state))
        {
            return Ok(None);
        }
        let mut now = HashMap::with_capacity(kept.tables.len());
        for (name, schema) in &kept.tables {
            match catalog::pool_table(state, name).await? {
                Some(table) if table.info().schema == *schema => now.insert(name, table),
                _ => return Ok(None),
            };
        }
        let plan = kept.plan.clone().transform_down_with_subqueries(|node| {
            let LogicalPlan::TableScan(scan) = node else { return Ok(Transformed::no(node)) };
            Ok(match now.get(&scan.table_name) {
                Some(table) => {
                    let source = provider_as_source(Arc::new(table.clone()));
                    Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan }))
                }
                None => Transformed::no(LogicalPlan::TableScan(scan)),
            })
        })?;
        Ok(Some((plan.data, kept.headers.clone())))
    }

    fn used(&self, text: &str) -> Option<Arc<Kept>> {
        let mut plans = self.0.lock();
        let at = plans.iter().position(|kept| kept.text == text)?;
        let kept = plans.remove(at)?;
        plans.push_front(Arc::clone(&kept));
        Some(kept)
    }

    /// Caches the plan of `text`, which names the tables `references`, if it can be cached. The plan must be neither
    /// optimized nor have values for its parameters, because both depend on the single execution.
    ///
    /// # Errors
    /// Errors of a pool that cannot be asked for a table.
    pub(crate) async fn keep(
        &self,
        state: &SessionState,
        text: &str,
        references: &[TableReference],
        plan: &LogicalPlan,
        headers: &Headers,
    ) -> Result<()> {
        if text.len() > limits::PLAN_KEPT_TEXT_BYTES_MAX {
            return Ok(());
        }
        let Some(seen) = Seen::of(plan, state)? else { return Ok(()) };
        // A name that is not among the scans is that of a view, in whose place the plan has the scans of the view's
        // query.
        if !references.iter().all(|name| seen.scans.iter().any(|(scan, _)| scan == name)) {
            return Ok(());
        }
        let mut tables = Vec::with_capacity(references.len());
        for name in references {
            match catalog::pool_table(state, name).await? {
                Some(table) => tables.push((name.clone(), Arc::clone(&table.info().schema))),
                None => return Ok(()),
            }
        }
        if !seen.scans.iter().all(|scan| tables.contains(scan)) {
            return Ok(());
        }
        let kept = Kept {
            text: text.to_string(),
            plan: plan.clone(),
            headers: headers.clone(),
            options: Arc::clone(state.config_options()),
            functions: seen.functions,
            tables,
        };
        let mut plans = self.0.lock();
        plans.retain(|other| other.text != text);
        plans.push_front(Arc::new(kept));
        plans.truncate(limits::PLANS_KEPT_MAX);
        Ok(())
    }
}

/// The contents of a plan on which its validity depends: its scans and the functions it names.
#[derive(Default)]
struct Seen {
    expressions: usize,
    functions: Vec<Named>,
    scans: Vec<Columns>,
}

impl Seen {
    /// Collects the scans and the functions of `plan`; returns `None` for a plan that cannot be cached.
    fn of(plan: &LogicalPlan, state: &SessionState) -> Result<Option<Self>> {
        let mut seen = Seen::default();
        let visited = plan.apply_with_subqueries(|node| match seen.add(node, state)? {
            true => Ok(TreeNodeRecursion::Continue),
            false => Ok(TreeNodeRecursion::Stop),
        })?;
        Ok((visited != TreeNodeRecursion::Stop).then_some(seen))
    }

    /// Adds what a plan node contains; returns false if a plan with this node cannot be cached.
    fn add(&mut self, node: &LogicalPlan, state: &SessionState) -> Result<bool> {
        match node {
            LogicalPlan::TableScan(scan) => {
                let provider = source_as_provider(&scan.source)?;
                let Some(table) = provider.downcast_ref::<PoolTable>() else { return Ok(false) };
                self.scans.push((scan.table_name.clone(), Arc::clone(&table.info().schema)));
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Distinct(_) => {}
            _ => return Ok(false),
        }
        let visited = node.apply_expressions(|expr| {
            expr.apply(|expr| match self.add_expression(expr, state) {
                true => Ok(TreeNodeRecursion::Continue),
                false => Ok(TreeNodeRecursion::Stop),
            })
        })?;
        Ok(visited != TreeNodeRecursion::Stop)
    }

    fn add_expression(&mut self, expr: &Expr, state: &SessionState) -> bool {
        self.expressions += 1;
        let named = match expr {
            Expr::ScalarFunction(call) => Some(Named::Scalar(Arc::clone(&call.func))),
            Expr::AggregateFunction(call) => Some(Named::Aggregate(Arc::clone(&call.func))),
            Expr::WindowFunction(call) => Some(match &call.fun {
                WindowFunctionDefinition::AggregateUDF(function) => Named::Aggregate(Arc::clone(function)),
                WindowFunctionDefinition::WindowUDF(function) => Named::Window(Arc::clone(function)),
            }),
            // Values of variables and higher-order functions are not compared at each use, so that plans with them are
            // not cached.
            Expr::ScalarVariable(..)
            | Expr::HigherOrderFunction(_)
            | Expr::Lambda(_)
            | Expr::LambdaVariable(_) => return false,
            _ => None,
        };
        let is_of_session = named.iter().all(|named| named.is_of(state));
        self.functions.extend(named);
        is_of_session && self.expressions <= limits::PLAN_KEPT_EXPRS_MAX
    }
}

/// A function that a cached query refers to, with its name.
enum Named {
    Scalar(Arc<ScalarUDF>),
    Aggregate(Arc<AggregateUDF>),
    Window(Arc<WindowUDF>),
}

impl Named {
    /// Returns whether the session still resolves the function's names to this function.
    fn is_of(&self, state: &SessionState) -> bool {
        fn has<F>(
            functions: &HashMap<String, Arc<F>>,
            function: &Arc<F>,
            name: &str,
            aliases: &[String],
        ) -> bool {
            let is_it = |name: &str| functions.get(name).is_some_and(|known| Arc::ptr_eq(known, function));
            is_it(name) && aliases.iter().all(|alias| is_it(alias))
        }
        match self {
            Named::Scalar(f) => has(state.scalar_functions(), f, f.name(), f.aliases()),
            Named::Aggregate(f) => has(state.aggregate_functions(), f, f.name(), f.aliases()),
            Named::Window(f) => has(state.window_functions(), f, f.name(), f.aliases()),
        }
    }
}
