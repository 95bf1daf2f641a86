//! The last step of planning: plan fragments that a pool runs exactly become programs, and DataFusion plans the rest.
//!
//! This step runs after all of DataFusion's own optimizer rules. It is a query planner rather than another rule,
//! because a planner is async and can ask the pools: a fragment is replaced only after its pool has answered `exact`,
//! or that it returns groups in parts (partial aggregates), which [`crate::finish`] merges.
//!
//! Invariant: a replaced fragment keeps its schema, including names and qualifiers.

use crate::exec::PoolExec;
use crate::file::{with_kept, with_table};
use crate::finish;
use crate::fragment::{Ends, Fragment};
use crate::order::SortedPiece;
use crate::rows::JoinsHere;
use crate::statistics::{read_above, states_schema};
use crate::table::PoolTable;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::DFSchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr as Logical, Extension, LogicalPlan, Sort, TableScan, UserDefinedLogicalNode,
    UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use farpool_model::{Error, ErrorKind, Operator, OperatorAnswer, Program};
use farpool_planner::cost::{Estimate, Rates};
use farpool_planner::finish::Finish;
use farpool_planner::rows::Rows;
use farpool_planner::split;
use farpool_sql::error;
use farpool_transfer::Handle;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The query planner that replaces fragments of plans by programs.
#[derive(Debug, Default)]
pub(crate) struct PoolPlanner;

#[async_trait]
impl QueryPlanner for PoolPlanner {
    // Written out, as `async_trait` would write it, so that the future is made elsewhere ([`farpool_model::Opaque`] says why).
    fn create_physical_plan<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        plan: &'life1 LogicalPlan,
        session: &'life2 dyn Session,
    ) -> BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        physical(plan, session)
    }
}

fn physical<'a>(
    plan: &'a LogicalPlan,
    session: &'a dyn Session,
) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
    async move {
        let context = Context::of(session);
        let plan = farpool_sql::checked::given_back(plan.clone())?;
        let plan = match session.config().get_extension::<JoinsHere>() {
            Some(_) => without_joins(plan)?,
            None => plan,
        };
        crate::joins::prepare(&plan).await?;
        let plan = crate::joins::reorder(plan, &context.rates, context.threads)?;
        let plan = rewrite(plan, Vec::new(), context).await?;
        let plan = farpool_sql::bounded(farpool_sql::checked::guarded(plan)?)?;
        let plan = farpool_sql::members_of_each_row(plan)?;
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![
            Arc::new(PoolPlanner),
            Arc::new(farpool_sql::OncePlanner),
        ]);
        let made = match planner.create_physical_plan(&plan, session).await {
            Err(error) if is_taken_for_unsorted(&error) => match one_stream(session) {
                Some(session) => planner.create_physical_plan(&plan, &session).await?,
                None => return Err(error),
            },
            made => made?,
        };
        farpool_sql::interrupt::exec::stoppable(made)
    }
    .boxed()
}

/// Makes the engine carry out all joins of the plan.
fn without_joins(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::TableScan(scan) => Ok(match with_table(&scan.source, PoolTable::without_joins) {
            Some(source) => Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan })),
            None => Transformed::no(LogicalPlan::TableScan(scan)),
        }),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// Returns whether DataFusion has rejected a plan that it made itself. DataFusion 55.2 does not recognize that rows are
/// sorted by an expression over a computed column, such as `ORDER BY b + k` where `k` is `b - 1`, when it merges the
/// sorted streams. A plan of one stream merges none. This function is obsolete once upstream recognizes the sort order.
fn is_taken_for_unsorted(error: &DataFusionError) -> bool {
    error.strip_backtrace().contains("does not satisfy order requirements")
}

/// Returns a copy of the session that makes plans of a single stream; `None` if it is no [`SessionState`].
fn one_stream(session: &dyn Session) -> Option<SessionState> {
    let mut state = session.as_any().downcast_ref::<SessionState>()?.clone();
    state.config_mut().options_mut().execution.target_partitions = 1;
    Some(state)
}

#[async_trait]
impl ExtensionPlanner for PoolPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        _physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(pushed) = node.as_any().downcast_ref::<Pushed>() else { return Ok(None) };
        let schema = Arc::clone(pushed.schema.inner());
        let partitions = pushed.table.partitions(session.config().target_partitions());
        let (program, prepared) = (pushed.program.clone(), pushed.prepared.clone());
        let rows = pushed.rows.clone();
        let node = PoolExec::new(pushed.table.clone(), rows, program, prepared, schema, partitions);
        Ok(Some(Arc::new(node.with_estimate(pushed.estimate.clone()))))
    }
}

/// Inputs of the choice of fragments besides the pools' answers.
#[derive(Clone, Copy)]
struct Context<'a> {
    session: &'a dyn Session,
    rates: Rates,
    threads: usize,
}

impl<'a> Context<'a> {
    fn of(session: &'a dyn Session) -> Self {
        let rates = session.config().get_extension::<Rates>().map(|rates| *rates).unwrap_or_default();
        Context { session, rates, threads: session.config().target_partitions() }
    }
}

/// Replaces the largest fragments of `plan` that can be pushed down by programs. `kept` are the operators above `plan`
/// that were not pushed down, each with the reason, for EXPLAIN.
fn rewrite(
    plan: LogicalPlan,
    kept: Vec<OperatorAnswer>,
    context: Context<'_>,
) -> BoxFuture<'_, Result<LogicalPlan>> {
    Box::pin(async move {
        let mut kept = kept;
        if let LogicalPlan::Sort(sort) = &plan {
            match push_sorted(sort, &plan, &kept, context).await? {
                Ok(pushed) => return Ok(pushed),
                Err(answer) => kept.extend(answer),
            }
        }
        let ended = match Fragment::read(&plan) {
            Ok(fragment) if fragment.worth_a_node => {
                match push(&fragment, &plan, plan.schema(), &kept, context).await? {
                    Ok(pushed) => return Ok(pushed),
                    Err(answer) => answer,
                }
            }
            Ok(_) | Err(Ends::Silently) => None,
            Err(Ends::Because(answer)) => Some(*answer),
        };
        // Operators above belong to the table below only if there is one input: a join's reasons concern no single
        // table.
        let mut kept = if plan.inputs().len() > 1 { Vec::new() } else { kept };
        if let Some(answer) = ended
            && !kept.contains(&answer)
        {
            // The innermost operator that is not pushed down is the reason why those above it are not, so that only it
            // is noted.
            kept = vec![answer];
        }
        rewrite_below(plan, kept, context).await
    })
}

async fn rewrite_below(
    plan: LogicalPlan,
    kept: Vec<OperatorAnswer>,
    context: Context<'_>,
) -> Result<LogicalPlan> {
    if let LogicalPlan::TableScan(scan) = &plan
        && !kept.is_empty()
        && let Some(source) = with_kept(&scan.source, kept.clone())
    {
        return Ok(LogicalPlan::TableScan(TableScan { source, ..scan.clone() }));
    }
    let mut inputs = VecDeque::new();
    for input in plan.inputs() {
        inputs.push_back(rewrite(input.clone(), kept.clone(), context).await?);
    }
    let mut subqueries = Vec::new();
    plan.apply_subqueries(|subquery| {
        if let LogicalPlan::Subquery(subquery) = subquery {
            subqueries.push(subquery.subquery.as_ref().clone());
        }
        Ok(TreeNodeRecursion::Jump)
    })?;
    let mut rewritten = VecDeque::new();
    for subquery in subqueries {
        rewritten.push_back(rewrite(subquery, Vec::new(), context).await?);
    }
    let missing = || DataFusionError::Internal("a plan changed its inputs while it was read".to_string());
    let plan = plan.map_children(|_| inputs.pop_front().map(Transformed::yes).ok_or_else(missing))?.data;
    let plan = plan.map_subqueries(|subquery| match subquery {
        LogicalPlan::Subquery(mut subquery) => {
            subquery.subquery = Arc::new(rewritten.pop_front().ok_or_else(missing)?);
            Ok(Transformed::new(LogicalPlan::Subquery(subquery), true, TreeNodeRecursion::Jump))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan.data)
}

/// The plan that replaces a fragment; or, if the fragment is not replaced, the operator that prevents it, if that is
/// worth noting.
type Replacement = std::result::Result<LogicalPlan, Option<OperatorAnswer>>;

/// Replaces the fragment below a sort with a limit by a program that returns the first rows in that sort order.
async fn push_sorted(
    sort: &Sort,
    plan: &LogicalPlan,
    kept: &[OperatorAnswer],
    context: Context<'_>,
) -> Result<Replacement> {
    let sorted = match SortedPiece::read(sort) {
        Ok(sorted) => sorted,
        Err(Ends::Silently) => return Ok(Err(None)),
        Err(Ends::Because(answer)) => return Ok(Err(Some(*answer))),
    };
    match push(&sorted.fragment, plan, &sorted.schema, kept, context).await? {
        Ok(pushed) => Ok(Ok(sorted.rebuilt(plan.clone(), pushed)?)),
        Err(answer) => Ok(Err(answer)),
    }
}

/// Returns the node that replaces the fragment of `plan` and has the columns of `schema`; or why there is none.
async fn push(
    fragment: &Fragment,
    plan: &LogicalPlan,
    schema: &DFSchemaRef,
    kept: &[OperatorAnswer],
    context: Context<'_>,
) -> Result<Replacement> {
    let rows = &fragment.rows;
    let stays = |reason: String| {
        let detail = plan.display().to_string();
        let answer = farpool_model::Answer::Refused;
        Ok(Err(Some(OperatorAnswer { operator: Operator::Program, detail, answer, reason: Some(reason) })))
    };
    let program = match fragment.program(|i| schema.field(i).name().clone()) {
        Ok(program) => program,
        Err(error) => return stays(error.message),
    };
    let below = match (program.result_schema(&rows.info.schema), fragment.outcomes()) {
        (Err(error), _) => return stays(error.message),
        (Ok(states), Some(outcomes)) => &states_schema(&states, outcomes, schema)?,
        (Ok(_), None) => schema,
    };
    let place = fragment.table.run_place(context.threads, !fragment.table.pool().is_remote());
    let estimate = match split::worthwhile(&program, rows, place, &context.rates) {
        Ok(estimate) => estimate,
        Err(reason) => return stays(reason),
    };
    let tables = (&fragment.table, &fragment.looked_up[..]);
    let prepared = match crate::pins::prepare(context.session, tables, program.clone()).await {
        Ok(prepared) => prepared,
        // The engine joins what the pool cannot.
        Err(error) if rows.are_joined() && is_refusal(&error) => return stays(error.message),
        Err(error) => return Err(error::wrap(error)),
    };
    if let Some(finish) = Finish::of(&program, &prepared, &rows.info.schema) {
        let states = finished(fragment, below, kept, prepared, &finish, estimate)?;
        return read(fragment, states, schema).map(Ok);
    }
    if !prepared.is_exact() {
        // Groups in parts are merged, so that only what comes after them is noted.
        let refused = |a: &&OperatorAnswer| match prepared.is_partial() {
            true => a.answer == farpool_model::Answer::Refused,
            false => a.answer != farpool_model::Answer::Exact,
        };
        return Ok(Err(prepared.answers.iter().find(refused).cloned()));
    }
    let table = fragment.table.clone().with_kept(kept.iter().cloned());
    let (rows, below) = (rows.clone(), Arc::clone(below));
    let node = Arc::new(Pushed { table, rows, program, prepared, schema: below, estimate });
    read(fragment, LogicalPlan::Extension(Extension { node }), schema).map(Ok)
}

/// Returns whether a pool refused a program with lookups as it is, so that smaller ones may do; one whose tables may also
/// have versions that are gone for lookups, and not for a scan.
fn is_refusal(error: &Error) -> bool {
    use ErrorKind::{Invalid, NotFound, OverLimit, Stale};
    matches!(error.kind, Invalid | OverLimit | Stale | NotFound)
}

/// Returns the plan with schema `whole` above `program`. If the columns of the program are others, or states (sketches,
/// moments), the plan reads values from them.
fn read(fragment: &Fragment, program: LogicalPlan, whole: &DFSchemaRef) -> Result<LogicalPlan> {
    match fragment.outcomes() {
        Some(outcomes) => read_above(program, outcomes, whole),
        None => Ok(program),
    }
}

/// For a fragment with schema `whole` whose groups the pool returns in parts (partial aggregates): returns the node
/// that replaces it, below the plan that merges the parts.
fn finished(
    fragment: &Fragment,
    whole: &DFSchemaRef,
    kept: &[OperatorAnswer],
    prepared: Handle,
    finish: &Finish,
    estimate: Estimate,
) -> Result<LogicalPlan> {
    let limit = prepared.answers.iter().filter(|a| a.operator.cuts_rows()).cloned();
    let table = fragment.table.clone().with_kept(kept.iter().cloned().chain(limit));
    let schema = finish::parts_schema(finish, whole)?;
    // The effective program explicitly returns partial aggregates, so that the schema of its rows does not depend on
    // the pool's answer when it runs.
    let program = prepared.effective.clone();
    let rows = fragment.rows.clone();
    let node = Arc::new(Pushed { table, rows, program, prepared, schema, estimate });
    finish::above(finish, LogicalPlan::Extension(Extension { node }), whole)
}

/// A logical plan node for a fragment that was replaced by a program.
struct Pushed {
    table: PoolTable,
    rows: Rows,
    program: Program,
    prepared: Handle,
    schema: DFSchemaRef,
    estimate: Estimate,
}

impl fmt::Debug for Pushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        UserDefinedLogicalNodeCore::fmt_for_explain(self, f)
    }
}

impl PartialEq for Pushed {
    fn eq(&self, other: &Self) -> bool {
        self.program == other.program
            && self.schema == other.schema
            && self.table.pool().url() == other.table.pool().url()
    }
}

impl Eq for Pushed {}

impl PartialOrd for Pushed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (self == other).then_some(std::cmp::Ordering::Equal)
    }
}

impl Hash for Pushed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.program.table.hash(state);
        self.program.version.hash(state);
        self.schema.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for Pushed {
    fn name(&self) -> &'static str {
        "Pushed"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Logical> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pushed: {}", farpool_planner::explain::one_line(&self.program, &self.rows.info.schema))
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Logical>, _inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Pushed {
            table: self.table.clone(),
            rows: self.rows.clone(),
            program: self.program.clone(),
            prepared: self.prepared.clone(),
            schema: Arc::clone(&self.schema),
            estimate: self.estimate.clone(),
        })
    }
}
