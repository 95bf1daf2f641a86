//! A table of a pool (the store that holds the tables) as a DataFusion table provider.
//!
//! Invariant: one `PoolTable` describes one version of a table. The programs of a statement (the parts that the pool
//! runs) read the version that the statement has pinned ([`crate::pins`]), which may be newer. A plan that is made
//! without a statement reads the version of the `PoolTable`, or fails.

use crate::convert::Scope;
use crate::estimates;
use crate::exec;
use crate::given::Given;
use crate::sink::PoolSink;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, DFSchemaRef, Statistics, not_impl_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr as Logical, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use farpool_model::compose::{Allowance, Slot};
use farpool_model::{
    Answer, Expr, GivenRows, LoadMode, NamedExpr, Operator, OperatorAnswer, Output, Program, TableInfo,
    TableName, cast, limits,
};
use farpool_planner::cost::{Link, Place};
use farpool_planner::joins::sizes::{Sketches, Source};
use farpool_planner::split::{self, Placed};
use farpool_transfer::{LinkMeter, Pool};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;

/// One version of a table of a pool, as a table provider.
#[derive(Clone, Debug)]
pub struct PoolTable {
    pool: Arc<dyn Pool>,
    info: Arc<TableInfo>,
    /// The table's schema without qualifiers, in which the columns of filters are resolved.
    columns: DFSchemaRef,
    pushdown: bool,
    joins: bool,
    meter: Arc<LinkMeter>,
    sketches: Arc<Sketches>,
    kept: Vec<OperatorAnswer>,
    /// The rows, if the pool does not hold them, and they go along with programs.
    given: Option<Arc<GivenRows>>,
}

impl PoolTable {
    /// Creates the table that `info` describes.
    pub fn new(pool: Arc<dyn Pool>, info: TableInfo) -> Self {
        // Column names of a table in a pool are unique, so that the conversion cannot fail.
        let columns = DFSchema::try_from(Arc::clone(&info.schema)).unwrap_or_else(|_| DFSchema::empty());
        let columns = Arc::new(columns);
        let (meter, sketches, kept) = <(_, _, Vec<OperatorAnswer>)>::default();
        PoolTable {
            pool,
            info: Arc::new(info),
            columns,
            pushdown: true,
            joins: true,
            meter,
            sketches,
            kept,
            given: None,
        }
    }

    /// Opens the newest version of a table.
    ///
    /// # Errors
    /// `NotFound`, or the pool's error if it cannot answer.
    pub async fn open(pool: Arc<dyn Pool>, name: &TableName) -> farpool_model::Result<Self> {
        let info = pool.table(name).await?;
        Ok(PoolTable::new(pool, info))
    }

    /// Returns the description of the table version.
    pub fn info(&self) -> &TableInfo {
        &self.info
    }

    /// Returns the pool that holds the table.
    pub fn pool(&self) -> &Arc<dyn Pool> {
        &self.pool
    }

    /// Sets whether operators are pushed down to the pool; if not, the pool only returns columns.
    #[must_use]
    pub fn with_pushdown(mut self, pushdown: bool) -> Self {
        self.pushdown = pushdown;
        self
    }

    /// Returns a table of rows that the pool of this one does not hold, and that go along with programs.
    pub(crate) fn of_given(self, given: Given) -> Self {
        let PoolTable { pool, pushdown, joins, meter, .. } = self;
        let table = PoolTable::new(pool, given.info);
        PoolTable { pushdown, joins, meter, given: Some(given.rows), ..table }
    }

    /// Returns the rows that go along with programs, if the pool does not hold them.
    pub(crate) fn given(&self) -> Option<&Arc<GivenRows>> {
        self.given.as_ref()
    }

    /// Makes the engine carry out all joins with this table.
    pub(crate) fn without_joins(mut self) -> Self {
        self.joins = false;
        self
    }

    /// Returns whether the pool may carry out joins with this table.
    pub(crate) fn takes_joins(&self) -> bool {
        self.joins && self.pool.takes().lookups
    }

    /// Sets the meter that measures the network link to the pool.
    pub(crate) fn with_meter(mut self, meter: &Arc<LinkMeter>) -> Self {
        self.meter = Arc::clone(meter);
        self
    }

    pub(crate) fn meter(&self) -> &Arc<LinkMeter> {
        &self.meter
    }

    /// Returns where a program over the table would run and what that means for its cost: the link to the pool, if it
    /// is remote, and the numbers of threads of the pool and of an engine with `threads` threads.
    pub(crate) fn run_place(&self, threads: usize, is_here: bool) -> Place {
        if is_here {
            return Place { link: None, workers: threads, threads };
        }
        let speed = self.meter.speed();
        let link = Link::measured(speed.latency_ns, speed.bytes_per_s, speed.bytes_per_s_min);
        Place { link: Some(link), workers: speed.workers.unwrap_or(threads), threads }
    }

    /// Sets the cache of the sketches of the table's columns, for join estimates.
    pub(crate) fn with_sketches(mut self, sketches: &Arc<Sketches>) -> Self {
        self.sketches = Arc::clone(sketches);
        self
    }

    /// Returns what join estimates read: the table's description and sketches.
    pub(crate) fn source(&self) -> Source {
        Source { info: Arc::clone(&self.info), sketches: Arc::clone(&self.sketches) }
    }

    /// Adds operators above the table that are not pushed down, with the reasons, for EXPLAIN.
    pub(crate) fn with_kept(mut self, kept: impl IntoIterator<Item = OperatorAnswer>) -> Self {
        self.kept.extend(kept);
        self
    }

    pub(crate) fn kept(&self) -> &[OperatorAnswer] {
        &self.kept
    }

    pub(crate) fn pushdown(&self) -> bool {
        self.pushdown
    }

    /// Returns the number of streams in which a program returns its result: `target`, but at most one for each row
    /// group.
    pub(crate) fn partitions(&self, target: usize) -> usize {
        let row_groups = cast::usize_saturating(self.info.rows).div_ceil(limits::ROW_GROUP_ROWS);
        target.min(row_groups).max(1)
    }

    /// Converts a filter without qualifiers, and returns how far the pool can evaluate it.
    pub(crate) fn place(&self, filter: &Logical) -> Placed {
        let schema = &self.info.schema;
        let column = |i: usize| Slot::new("", Expr::Column(i));
        let columns: Vec<Slot> = (0..schema.fields().len()).map(column).collect();
        let allowance = Allowance::default();
        let scope =
            Scope { table: &self.info, input: &self.columns, columns: &columns, allowance: &allowance };
        split::place(scope.condition(filter), schema)
    }

    /// Returns the program that reads `columns` of the rows that satisfy `filter`.
    pub(crate) fn scan_program(
        &self,
        columns: &[usize],
        filter: Option<Expr>,
        limit: Option<u64>,
    ) -> Program {
        let rows = columns.iter().map(|&i| NamedExpr::column(&self.info.schema, i)).collect();
        let (table, version) = (self.info.name.clone(), Some(self.info.version));
        Program {
            table,
            version,
            lookups: Vec::new(),
            filter,
            output: Output::Rows(rows),
            having: None,
            order: Vec::new(),
            limit,
        }
    }
}

#[async_trait]
impl TableProvider for PoolTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.info.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(estimates::of_table(&self.info))
    }

    fn supports_filters_pushdown(&self, filters: &[&Logical]) -> Result<Vec<TableProviderFilterPushDown>> {
        let answer = |filter: &&Logical| {
            if !self.pushdown || waits_for_others(filter) {
                return TableProviderFilterPushDown::Unsupported;
            }
            match self.place(&unqualified(filter)).answer {
                Answer::Exact => TableProviderFilterPushDown::Exact,
                // Filters that the pool refuses are passed to the scan as well, so that EXPLAIN can show the reason.
                Answer::Superset | Answer::Refused => TableProviderFilterPushDown::Inexact,
            }
        };
        Ok(filters.iter().map(answer).collect())
    }

    // Written out, as `async_trait` would write it, so that the future is made elsewhere ([`farpool_model::Opaque`] says why).
    fn scan<'life0, 'life1, 'life2, 'life3, 'async_trait>(
        &'life0 self,
        state: &'life1 dyn Session,
        projection: Option<&'life2 Vec<usize>>,
        filters: &'life3 [Logical],
        limit: Option<usize>,
    ) -> BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        'life3: 'async_trait,
        Self: 'async_trait,
    {
        self.scanned(state, projection, filters, limit)
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = match op {
            InsertOp::Append => LoadMode::Append,
            InsertOp::Overwrite => LoadMode::Replace,
            InsertOp::Replace => return not_impl_err!("REPLACE INTO a table of a pool"),
        };
        let sink = PoolSink { table: self.clone(), mode };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }
}

impl PoolTable {
    /// Scans the table, with as many of the filters as the pool can evaluate.
    fn scanned<'a>(
        &'a self,
        state: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Logical],
        limit: Option<usize>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let every: Vec<usize> = (0..self.info.schema.fields().len()).collect();
            let columns = projection.unwrap_or(&every);
            let placed: Vec<Placed> = filters.iter().map(|f| self.place(f)).collect();
            let exact = placed.iter().all(|p| p.answer == Answer::Exact);
            let kept = filters.iter().zip(&placed).filter_map(|(filter, placed)| stays(filter, placed));
            let table = self.clone().with_kept(kept);
            let filter = split::conjunction(placed.iter().filter_map(|p| p.sent.clone()));
            let limit = limit.filter(|_| exact && self.pushdown).map(cast::u64_from);
            let program = self.scan_program(columns, filter, limit);
            let schema = Arc::new(self.info.schema.project(columns)?);
            let node = exec::plan(state, &table, program, schema).await?;
            if node.prepared().is_exact() {
                return Ok(Arc::new(node) as Arc<dyn ExecutionPlan>);
            }
            table.scan_and_filter(state, columns, filters).await
        }
        .boxed()
    }

    /// Scans a pool that cannot evaluate the filters of `scan`: the engine applies all of them.
    async fn scan_and_filter(
        &self,
        state: &dyn Session,
        columns: &[usize],
        filters: &[Logical],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let filter = conjunction(filters.iter().cloned());
        let read = filter.iter().flat_map(Logical::column_refs);
        let mut needed: Vec<usize> = read.filter_map(|c| self.info.schema.index_of(&c.name).ok()).collect();
        needed.extend(columns);
        needed.sort_unstable();
        needed.dedup();
        let schema = Arc::new(self.info.schema.project(&needed)?);
        let program = self.scan_program(&needed, None, None);
        let node = exec::plan(state, self, program, Arc::clone(&schema)).await?;
        let Some(filter) = filter else { return Ok(Arc::new(node)) };
        let predicate = state.create_physical_expr(filter, &DFSchema::try_from(Arc::clone(&schema))?)?;
        let filtered = FilterExec::try_new(predicate, Arc::new(node))?;
        let wanted = columns.iter().map(|&index| {
            let name = self.info.schema.field(index).name().clone();
            Ok((datafusion::physical_expr::expressions::col(&name, &schema)?, name))
        });
        let wanted = wanted.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(wanted, Arc::new(filtered))?))
    }
}

/// Returns the filter with the reason why the engine evaluates it; `None` if the pool evaluates it exactly.
fn stays(filter: &Logical, placed: &Placed) -> Option<OperatorAnswer> {
    (placed.answer != Answer::Exact).then(|| OperatorAnswer {
        operator: Operator::Filter,
        detail: filter.human_display().to_string(),
        answer: placed.answer,
        reason: placed.reason.clone(),
    })
}

/// Removes the qualifiers from the columns of the expression.
pub(crate) fn unqualified(expr: &Logical) -> Logical {
    datafusion::logical_expr::expr_rewriter::unnormalize_col(expr.clone())
}

/// Returns whether a filter has a value that another part of the query computes first, such as a scalar subquery.
fn waits_for_others(filter: &Logical) -> bool {
    use datafusion::common::tree_node::TreeNode;
    let waits = |e: &Logical| {
        Ok(matches!(
            e,
            Logical::ScalarSubquery(_)
                | Logical::InSubquery(_)
                | Logical::Exists(_)
                | Logical::OuterReferenceColumn(..)
                | Logical::Placeholder(_)
        ))
    };
    filter.exists(waits).unwrap_or(true)
}
