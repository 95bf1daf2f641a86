//! One planned SQL statement: the schema of its result, its execution, and its execution statistics.

use crate::batch::{self, Ahead, HeadStart};
use crate::changes::Change;
use crate::copy::Copy;
use crate::exec::PoolExec;
use crate::expected::Expected;
use crate::pins::Versions;
use crate::rows::Rows;
use crate::schemas::SchemaChange;
use crate::session::Session;
use crate::window::Window;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::displayable;
use datafusion::prelude::SessionContext;
use farpool_model::{Error, Receipt, Result, TableChange, TableName, View, limits};
use farpool_sql::dialect::Headers;
use farpool_sql::interrupt::Scope;
use farpool_sql::{Statement, error};
use farpool_transfer::{BatchStream, Pool};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::fmt::{self, Write};
use std::sync::Arc;

/// A planned SQL statement.
///
/// The store that holds its tables (the [`Pool`]) may drop the prepared push-down programs or the table versions that
/// the plan refers to. If an execution fails for that reason before its first batch, the statement is planned and run
/// again: once for a query or an INSERT, up to [`limits::CHANGE_REPETITIONS_MAX`] times for an UPDATE, DELETE, TRUNCATE
/// or CREATE TABLE.
pub struct Query {
    schema: SchemaRef,
    state: Arc<State>,
    /// The batch that the statement belongs to, if there is one.
    in_batch: Option<InBatch>,
}

struct State {
    session: Session,
    statement: Statement,
    /// The scope within which the statement runs; it ends at the time limit.
    scope: Arc<Scope>,
    /// The plan that runs next or ran last.
    planned: Mutex<Planned>,
    /// The table versions (snapshot) that all statements of a batch or a transaction share; `None` for a statement that
    /// is in none.
    versions: Option<Arc<Versions>>,
}

/// A statement's link to its batch: the executions of the batch that started early, and the statement's own one among
/// them (`head_start`).
struct InBatch {
    ahead: Arc<Ahead>,
    head_start: Mutex<Option<Arc<HeadStart>>>,
}

/// The plan of a statement: a query, or a command.
#[derive(Clone)]
pub(crate) enum Planned {
    /// A plan that returns rows.
    Rows(Rows),
    /// A statement that changes something when it runs.
    Command(Command),
}

/// A statement that changes something when it runs, such as a table or a file.
#[derive(Clone)]
pub(crate) enum Command {
    /// A command that DataFusion runs itself, such as INSERT (into a table provider), SET or CREATE VIEW of the
    /// session.
    Plan(SessionContext, LogicalPlan),
    /// Drops a table of a pool.
    DropTable(Arc<dyn Pool>, TableName),
    /// Changes the columns or the name of a table of a pool.
    AlterTable(Arc<dyn Pool>, TableName, Vec<TableChange>),
    /// Creates a view in a pool; the flag tells whether it may replace an existing one.
    CreateView(Arc<dyn Pool>, View, bool),
    /// Drops a view of a pool.
    DropView(Arc<dyn Pool>, TableName),
    /// Creates or drops a schema of a pool.
    ChangeSchema(Arc<dyn Pool>, SchemaChange),
    /// Creates a table, or changes a table's rows (UPDATE, DELETE, TRUNCATE).
    Change(Change),
    /// Writes rows to a file.
    Copy(Copy),
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Planned {
    /// Returns whether the plan contains a program (for which a pool has been asked to prepare it).
    pub(crate) fn asks_a_pool(&self) -> bool {
        !self.programs(|_| ()).is_empty()
    }

    /// Returns the same plan, with `headers` as the column names of its result; a command keeps its own.
    pub(crate) fn with_headers(self, headers: &Headers) -> Self {
        match self {
            Planned::Rows(rows) => Planned::Rows(rows.with_headers(headers)),
            Planned::Command(command) => Planned::Command(command),
        }
    }

    fn schema(&self) -> SchemaRef {
        match self {
            Planned::Rows(rows) => rows.schema(),
            Planned::Command(Command::Change(change)) => change.schema(),
            Planned::Command(Command::Copy(copy)) => copy.schema(),
            // Creating a table or view returns no columns.
            Planned::Command(Command::Plan(_, LogicalPlan::Ddl(_))) => {
                Arc::new(arrow_schema::Schema::empty())
            }
            Planned::Command(Command::Plan(_, plan)) => Arc::clone(plan.schema().inner()),
            Planned::Command(_) => Arc::new(arrow_schema::Schema::empty()),
        }
    }

    /// Returns the plans that compute rows within this plan: the plan itself, or those from which a change or a COPY
    /// reads.
    fn rows(&self) -> Vec<&Rows> {
        match self {
            Planned::Rows(rows) => vec![rows],
            Planned::Command(Command::Change(change)) => change.rows(),
            Planned::Command(Command::Copy(copy)) => vec![copy.rows()],
            Planned::Command(_) => Vec::new(),
        }
    }

    /// Applies `f` to each program of the plan.
    pub(crate) fn programs<T>(&self, f: impl Fn(&PoolExec) -> T) -> Vec<T> {
        self.rows().into_iter().flat_map(|rows| rows.programs(&f)).collect()
    }

    /// Describes, for EXPLAIN, the parts that run at the pool, with the pool's answers, and those that run in this
    /// process.
    pub(crate) fn explain(&self) -> String {
        let rows = self.rows();
        if rows.is_empty() {
            return "nothing is computed\n".to_string();
        }
        let mut text = String::new();
        let changed = match self {
            Planned::Command(Command::Change(change)) => change.explain(),
            Planned::Command(_) | Planned::Rows(_) => None,
        };
        let programs: Vec<String> = self.programs(PoolExec::explain).into_iter().chain(changed).collect();
        text.push_str(if programs.is_empty() { "Nothing runs at a pool.\n" } else { "At the pool:\n" });
        for program in programs {
            program.lines().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
        }
        text.push_str("Here:\n");
        for rows in rows {
            for line in displayable(&*rows.operators()).indent(false).to_string().lines() {
                let _ = writeln!(text, "  {line}");
            }
        }
        text
    }

    /// Starts the statement, and returns the stream of its result. A command without rows has finished when this
    /// returns. Dropping the stream cancels the programs at the pool.
    pub(crate) async fn start(&self) -> Result<BatchStream> {
        match self {
            Planned::Rows(rows) => rows.start(),
            Planned::Command(Command::Change(change)) => change.run().await,
            Planned::Command(Command::Copy(copy)) => copy.run().await,
            Planned::Command(Command::Plan(context, plan)) => {
                let frame = context.execute_logical_plan(plan.clone()).await.map_err(error::unwrap)?;
                let batches = frame.execute_stream().await.map_err(error::unwrap)?;
                Ok(batches.map_err(error::unwrap).boxed())
            }
            Planned::Command(Command::AlterTable(pool, name, changes)) => {
                pool.alter_table(name, changes).await?;
                Ok(futures::stream::empty().boxed())
            }
            Planned::Command(Command::DropTable(pool, name)) => {
                pool.drop_table(name).await?;
                Ok(futures::stream::empty().boxed())
            }
            Planned::Command(Command::CreateView(pool, view, replace)) => {
                pool.create_view(view, *replace).await?;
                Ok(futures::stream::empty().boxed())
            }
            Planned::Command(Command::ChangeSchema(pool, change)) => {
                change.run(&**pool).await?;
                Ok(futures::stream::empty().boxed())
            }
            Planned::Command(Command::DropView(pool, name)) => {
                pool.drop_view(name, None).await?;
                Ok(futures::stream::empty().boxed())
            }
        }
    }
}

impl State {
    fn planned(&self) -> Planned {
        self.planned.lock().clone()
    }

    /// Makes a new physical plan of the statement, because one that has started cannot run again. A command is left as
    /// it is.
    async fn renew(&self) -> Result<()> {
        match self.planned() {
            Planned::Rows(rows) => rows.renew().await.map_err(error::unwrap),
            Planned::Command(_) => Ok(()),
        }
    }

    /// Returns the first batch of `started`, and the stream of the others. Plans and runs the statement again if it
    /// fails before its first batch for one of two reasons: the pool has lost a prepared program or version (up to
    /// `repetitions_max` times), or the memory did not suffice and statements of the batch that started early (`ahead`)
    /// could release some.
    async fn first(
        &self,
        started: Result<BatchStream>,
        ahead: Option<&Ahead>,
    ) -> Result<(Option<RecordBatch>, BatchStream)> {
        let mut outcome = first(started).await;
        if let (Err(error), Some(ahead)) = (&outcome, ahead)
            && batch::is_short_of_memory(error)
            && ahead.end().await
        {
            self.renew().await?;
            outcome = first(self.planned().start().await).await;
        }
        for _ in 0..self.repetitions_max() {
            match &outcome {
                Err(error) if error::is_gone(error) => {}
                _ => break,
            }
            let planned = self.session.plan_again(&self.statement, self.versions.as_ref()).await?;
            error::same_columns(&self.planned().schema(), &planned.schema())?;
            *self.planned.lock() = planned.clone();
            outcome = first(planned.start().await).await;
        }
        outcome
    }

    /// Runs the statement. If the memory does not suffice, cancels those statements of the batch that started early
    /// (`ahead`).
    async fn execute(self: Arc<Self>, ahead: Option<Arc<Ahead>>) -> Result<BatchStream> {
        // A statement of a batch may be planned long before it runs, so that its time limit starts now.
        let scope = match &self.versions {
            Some(_) => self.session.scope(),
            None => Arc::clone(&self.scope),
        };
        let run = scope.run();
        let stop = run.stop_on_drop();
        let window = Arc::clone(self.session.window());
        let caller = window.enter();
        let begun = async {
            if self.versions.is_none() {
                self.meet(&window).await;
            }
            self.begin(ahead).await
        };
        let batches = run.keep(begun).await?.inspect(move |_| {
            let _ = &caller;
        });
        Ok(stop.keep_stream(batches.boxed()))
    }

    /// If the statement is expected to take long enough, waits for a short time for concurrent callers of the session
    /// whose programs can run as one with those of this statement.
    async fn meet(&self, window: &Arc<Window>) {
        let planned = self.planned();
        if !window.has_others() || !matches!(planned, Planned::Rows(_)) {
            return;
        }
        let means = self.session.means();
        let expected = planned.programs(|program| program.expected_ns(&means)).into_iter().sum();
        if Window::is_worth(expected) {
            let places = planned.programs(PoolExec::share_place).into_iter().flatten().collect();
            window.wait(places, means).await;
        }
    }

    async fn begin(self: Arc<Self>, ahead: Option<Arc<Ahead>>) -> Result<BatchStream> {
        let planned = self.planned();
        let started = planned.start().await;
        let is_command = matches!(planned, Planned::Command(_));
        drop(planned);
        let begun = async move {
            let (first, rest) = self.first(started, ahead.as_deref()).await?;
            Ok::<_, Error>(futures::stream::iter(first.map(Ok)).chain(rest))
        };
        // A command is carried out before this function returns; a query runs as its stream is read.
        let batches = match is_command {
            true => begun.await?.boxed(),
            false => futures::stream::once(begun).try_flatten().boxed(),
        };
        Ok(batches.map_err(error::lasting).boxed())
    }

    /// Returns how many times the statement may be planned and run again if a prepared program or version is gone
    /// before its first batch. Nothing has taken effect by then: rows become visible only after all of them have been
    /// loaded.
    fn repetitions_max(&self) -> usize {
        match *self.planned.lock() {
            Planned::Command(Command::Change(_)) => limits::CHANGE_REPETITIONS_MAX,
            Planned::Rows(_) | Planned::Command(Command::Plan(..)) => 1,
            Planned::Command(_) => 0,
        }
    }
}

/// Returns the first batch and the stream of the others.
async fn first(started: Result<BatchStream>) -> Result<(Option<RecordBatch>, BatchStream)> {
    let mut batches = started?;
    let first = batches.try_next().await?;
    Ok((first, batches))
}

/// Estimates of a statement.
#[derive(Clone, Copy, Debug)]
pub struct Estimated {
    /// Nanoseconds until all rows are there.
    pub ns: f64,
    /// Nanoseconds until the first row is there.
    pub first_ns: f64,
    /// Rows of the result.
    pub rows: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
}

/// Returns the bytes of a value, with a guess for values without a fixed length.
fn width(data_type: &DataType) -> usize {
    const OF_TEXT: usize = 32;
    data_type.primitive_width().unwrap_or(OF_TEXT)
}

impl Query {
    pub(crate) fn new(session: Session, statement: Statement, scope: Arc<Scope>, planned: Planned) -> Self {
        let schema = planned.schema();
        let state = State { session, statement, scope, planned: Mutex::new(planned), versions: None };
        Query { schema, state: Arc::new(state), in_batch: None }
    }

    /// Returns the statement with table versions that other statements read, too.
    pub(crate) fn at(mut self, versions: &Arc<Versions>) -> Self {
        if let Some(state) = Arc::get_mut(&mut self.state) {
            state.versions = Some(Arc::clone(versions));
        }
        self
    }

    /// Returns the statement as part of a batch, with the table versions and early executions of the batch.
    pub(crate) fn in_batch(self, versions: &Arc<Versions>, ahead: &Arc<Ahead>) -> Self {
        let in_batch = InBatch { ahead: Arc::clone(ahead), head_start: Mutex::default() };
        Query { in_batch: Some(in_batch), ..self.at(versions) }
    }

    /// Starts a statement of a batch before its result is requested. Does nothing if it has started, or is in no batch.
    pub(crate) fn run_ahead(&self) {
        let Some(InBatch { ahead, head_start }) = &self.in_batch else { return };
        head_start.lock().get_or_insert_with(|| ahead.start(Arc::clone(&self.state).execute(None)));
    }

    /// Returns the schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns whether the statement changes something when it runs, instead of only reading. An INSERT takes effect
    /// only when its result, the number of rows, has been read.
    pub fn is_command(&self) -> bool {
        match self.state.planned() {
            Planned::Command(_) => true,
            Planned::Rows(rows) => rows.operators().is::<DataSinkExec>(),
        }
    }

    /// Runs the statement. Dropping the stream cancels the programs at the pool.
    ///
    /// # Errors
    /// Errors that occur before the stream is returned.
    pub fn execute(&self) -> BoxFuture<'_, Result<BatchStream>> {
        self.executed().boxed()
    }

    async fn executed(&self) -> Result<BatchStream> {
        let state = Arc::clone(&self.state);
        let Some(InBatch { ahead, head_start }) = &self.in_batch else {
            return state.execute(None).await;
        };
        let begun = head_start.lock().take();
        if let Some(begun) = begun {
            if let Some(rows) = begun.rows().await {
                return Ok(rows);
            }
            state.renew().await?;
        }
        state.execute(Some(Arc::clone(ahead))).await
    }

    /// Runs the statement and collects all batches.
    ///
    /// # Errors
    /// Fails if the statement fails.
    pub fn collect(&self) -> BoxFuture<'_, Result<Vec<RecordBatch>>> {
        async { self.execute().await?.try_collect().await }.boxed()
    }

    /// Describes the parts that run at the pool, with the pool's answers, and those that run here.
    pub fn explain(&self) -> String {
        self.state.planned().explain()
    }

    /// Returns the estimated size of the result, and the time that it takes; zero where nothing is known.
    pub fn estimated(&self) -> Estimated {
        let (planned, means) = (self.state.planned(), self.state.session.means());
        let operators = planned.rows().first().map(|rows| rows.operators());
        let Expected { ns, first_ns, rows } =
            operators.map_or_else(Expected::default, |operators| Expected::of(&operators, &means));
        let row_bytes = self.schema.fields().iter().map(|field| width(field.data_type())).sum();
        Estimated { ns, first_ns, rows: rows.ceil() as usize, row_bytes }
    }

    /// Compares estimates and actual figures of the programs and joins that have run, one line each.
    pub fn outcome(&self) -> String {
        let planned = self.state.planned();
        let programs: String = planned.programs(PoolExec::outcome).into_iter().flatten().collect();
        planned
            .rows()
            .into_iter()
            .fold(programs, |text, rows| text + &crate::joins::outcomes(&rows.operators()))
    }

    /// Returns the sum of the execution statistics (see [`Receipt`]) of the statement's programs that have ended.
    pub fn receipt(&self) -> Receipt {
        let mut total = Receipt::default();
        self.state.planned().rows().into_iter().for_each(|rows| total.merge(&rows.receipt()));
        total
    }
}
