//! The SQL session: its settings, its pools (the memory nodes or embedded stores that hold compressed tables), and the
//! planning of its statements.

use crate::alter;
use crate::batch::Batch;
use crate::catalog::{self, Found, Home, HomeCatalog, PoolCatalog, SystemFunction, SystemSchema};
use crate::changes::{self, Change};
use crate::copy::{self, Copy, FileWriter};
use crate::describe::Unfilled;
use crate::environment::{config, runtime};
use crate::file::{self, FileOpener};
use crate::joins::TextsAsViews;
use crate::pins::{Pins, Versions};
use crate::plan::PoolPlanner;
use crate::plans::Plans;
use crate::query::{Command, Planned, Query};
use crate::rows::{Rows, physical_rules};
use crate::schemas::SchemaChange;
use crate::shared::Means;
use crate::spill::SpillFiles;
use crate::table::PoolTable;
use crate::views;
use crate::window::Window;
use arrow_schema::{FieldRef, Schema};
use datafusion::common::{TableReference, internal_err, not_impl_err};
use datafusion::datasource::source_as_provider;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    DdlStatement, LogicalPlan, LogicalPlanBuilder, Statement as LogicalStatement, TableType, WriteOp, col,
    lit,
};
use datafusion::optimizer::Analyzer;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{AlterTable, CreateView, ObjectType, Statement as SqlStatement};
use farpool_memory::WorkMemory;
use farpool_model::sql_name;
use farpool_model::{Error, ErrorKind, Opaque, Result, TableName};
use farpool_planner::cost::Rates;
use farpool_sql::checked::CheckedArithmetic;
use farpool_sql::dialect::Headers;
use farpool_sql::interrupt::Scope;
use farpool_sql::{
    BoundedFunctions, Exclusions, MergedKeys, NamedTypes, OneZero, OneZeroOfConstants, OperandTypes,
    Parameters, PostgresMeaning, Statement, UnnestSubqueries, dialect, error, interrupt, restricted,
    summarize,
};
use farpool_transfer::Pool;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The catalog of the session's own tables, in which names without a catalog are resolved.
pub(crate) const HOME: &str = "session";
/// The schema that names without a schema refer to; every catalog has it.
pub(crate) const SCHEMA: &str = "public";
/// The schema in which DataFusion lists its catalogs, tables and settings.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// The settings of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Whether operators are pushed down to the pools; if not, pools only return columns, and this process does all
    /// else.
    pub pushdown: bool,
    /// Number of partitions that a query runs on in this process; the number of cores if `None`.
    pub target_partitions: Option<usize>,
    /// Measured rates of this machine (such as bytes per second), from which the choice of the operators to push down
    /// is computed.
    pub rates: Rates,
    /// Memory budget for joins, sorts and groups in this process; what exceeds it spills to files. `None` means
    /// unlimited. A pool in this process may reserve from the same budget.
    pub work: Option<Arc<WorkMemory>>,
    /// Maximum duration of a statement, from its planning to its last row; unlimited if `None`.
    pub timeout: Option<Duration>,
    /// Whether the engine may open files of this machine. Those that statements name in FROM and COPY also need an opener
    /// and a writer ([`Session::set_file_opener`]).
    pub files: bool,
    /// Advice that is added to the error for a missing table if the session has no tables at all.
    pub advice_without_tables: &'static str,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            pushdown: true,
            target_partitions: None,
            rates: Rates::default(),
            work: None,
            timeout: None,
            files: true,
            advice_without_tables: "the pool has no tables yet",
        }
    }
}

/// A session that runs SQL statements over pools. Clones are the same session.
#[derive(Clone)]
pub struct Session {
    context: Opaque<SessionContext>,
    pub(crate) home: Arc<Home>,
    options: SessionOptions,
    window: Arc<Window>,
    pub(crate) plans: Opaque<Plans>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Session {
    /// Creates a session without pools.
    pub fn new(options: SessionOptions) -> Self {
        let files = Arc::new(SpillFiles::default());
        let mut analyzer = Analyzer::new();
        analyzer.rules.insert(0, Arc::new(OperandTypes));
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_analyzer_rules(analyzer.rules)
            .with_config(config(&options).with_extension(Arc::clone(&files)))
            .with_runtime_env(runtime(&options, files))
            .with_optimizer_rules(restricted::rules())
            .with_optimizer_rule(Arc::new(OneZero))
            .with_analyzer_rule(Arc::new(Exclusions))
            .with_analyzer_rule(Arc::new(UnnestSubqueries))
            .with_analyzer_rule(Arc::new(TextsAsViews))
            .with_analyzer_rule(Arc::new(CheckedArithmetic))
            .with_analyzer_rule(Arc::new(BoundedFunctions))
            .with_analyzer_rule(Arc::new(OneZeroOfConstants))
            .with_query_planner(Arc::new(PoolPlanner))
            .with_relation_planners(vec![Arc::new(MergedKeys)])
            .with_type_planner(Arc::new(NamedTypes))
            .with_physical_optimizer_rules(physical_rules(None))
            .with_statistics_registry(crate::joins::registry())
            .build();
        let context = SessionContext::new_with_state(interrupt::rules::checked(state));
        farpool_sql::register(&context);
        crate::statistics::register(&context);
        let home = Arc::new(Home::default());
        context.register_catalog(HOME, Arc::new(HomeCatalog::new(&home)));
        let context = Opaque::new(context);
        Session { context, home, options, window: Arc::default(), plans: Opaque::default() }
    }

    /// Returns a session over the same tables and pools in which names without a schema are those of `schema`.
    #[must_use]
    pub fn in_schema(&self, schema: &str) -> Session {
        self.configured(|config| config.options_mut().catalog.default_schema = schema.to_string())
    }

    /// Returns a session over the same tables and pools in which statements mean what PostgreSQL means where that differs
    /// from DuckDB ([`PostgresMeaning`]), in the database of this name. If there is a schema of computed tables called `information_schema`, it is used in
    /// place of the engine's.
    #[must_use]
    pub fn with_postgres_meaning(&self, database: &str) -> Session {
        let has_own = self.home.system(INFORMATION_SCHEMA).is_some();
        self.configured(|config| {
            let options = config.options_mut();
            options.extensions.insert(PostgresMeaning { database: database.to_string() });
            options.catalog.information_schema &= !has_own;
        })
    }

    fn configured(&self, configure: impl FnOnce(&mut SessionConfig)) -> Session {
        let mut state = self.context.state();
        configure(state.config_mut());
        let context = Opaque::new(SessionContext::new_with_state(state));
        Session { context, plans: Opaque::default(), ..self.clone() }
    }

    /// Returns DataFusion's own context.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Registers the tables of `pool` in the catalog `name`, so that statements can write `name.SCHEMA.TABLE`. They can
    /// also write `SCHEMA.TABLE`, or `TABLE` for the schema `public`, unless a pool that was registered earlier has a
    /// table of that name.
    ///
    /// # Errors
    /// `Exists` if the catalog name is taken; the pool's error if it cannot list its tables.
    pub fn register_pool<'a>(&'a self, name: &'a str, pool: Arc<dyn Pool>) -> BoxFuture<'a, Result<()>> {
        self.pool_registered(name, pool).boxed()
    }

    async fn pool_registered(&self, name: &str, pool: Arc<dyn Pool>) -> Result<()> {
        if self.context.catalog(name).is_some() {
            let message = format!("there is a catalog named {name} already");
            return Err(Error::new(ErrorKind::Exists, message).advise("choose another name for the pool"));
        }
        let catalog = PoolCatalog::new(pool, self.options.pushdown, self.context.state_weak_ref());
        catalog.refresh().await?;
        if self.options.pushdown {
            catalog.probe().await;
        }
        self.context.register_catalog(name, Arc::clone(&catalog) as _);
        self.home.add_pool(catalog);
        Ok(())
    }

    /// Lets statements name files in FROM, which `opener` opens.
    pub fn set_file_opener(&self, opener: Arc<dyn FileOpener>) {
        self.home.set_opener(opener);
    }

    /// Adds a schema of computed tables, and functions over the same facts.
    pub fn add_system_schema(&self, schema: Arc<dyn SystemSchema>, functions: Vec<SystemFunction>) {
        self.home.set_system(schema);
        functions.into_iter().for_each(|function| self.context.register_udf(function.udf()));
    }

    /// Lets COPY write files through `writer`. Without one, DataFusion's own writers are used.
    pub fn set_file_writer(&self, writer: Arc<dyn FileWriter>) {
        self.home.set_writer(writer);
    }

    /// Plans one statement.
    ///
    /// # Errors
    /// `Invalid` or `NotFound`, with the position, if the statement is at fault; the error of a pool, or of a file that
    /// cannot be read; `TimedOut`.
    pub fn sql(&self, statement: impl Into<Statement>) -> BoxFuture<'_, Result<Query>> {
        self.query(statement.into())
    }

    /// Is not generic, so that the planning of statements is compiled once.
    fn query(&self, statement: Statement) -> BoxFuture<'_, Result<Query>> {
        let scope = self.scope();
        async move {
            let _caller = self.window.enter();
            let planned = scope.keep(self.plan_first(&statement, None)).await?;
            Ok(Query::new(self.clone(), statement, scope, planned))
        }
        .boxed()
    }

    /// Plans several statements to run together, and returns their results one after the other. They read the tables as
    /// they are at one moment, some of them start before their results are requested, and rows that several of them
    /// read are read once. A statement that changes something runs alone, after those before it and before those after
    /// it.
    pub fn batch<S: Into<Statement>>(&self, statements: impl IntoIterator<Item = S>) -> Batch {
        Batch::new(self.clone(), statements.into_iter().map(Into::into).collect())
    }

    /// Returns the cost inputs for deciding which programs run as one ([`crate::shared`]).
    pub(crate) fn means(&self) -> Means {
        let memory = Arc::clone(&self.context.runtime_env().memory_pool);
        let threads = self.context.state_ref().read().config().target_partitions();
        Means { memory, rates: self.options.rates, threads }
    }

    /// Returns the [`Window`], a short time in which statements of concurrent callers wait to run as one.
    pub(crate) fn window(&self) -> &Arc<Window> {
        &self.window
    }

    /// Creates the scope (time limit and memory) of a statement that begins now.
    pub(crate) fn scope(&self) -> Arc<Scope> {
        Scope::statement(self.options.timeout, Arc::clone(&self.context.runtime_env().memory_pool))
    }

    /// Returns whether a statement only reads. Returns false if it cannot be parsed.
    pub(crate) fn is_read(&self, statement: &Statement) -> bool {
        summarize::summarized(&statement.text).is_some()
            || dialect::parse(&self.context.state(), &statement.text)
                .is_ok_and(|parsed| is_query(&parsed.statement) && !makes_a_table(&parsed.statement))
    }

    /// Plans a statement: first with cached table descriptions; then, if these turn out to be outdated, with new ones.
    /// `versions` are the table versions (a shared snapshot) of the batch that the statement belongs to; `None` if it
    /// is in no batch.
    pub(crate) async fn plan_first(
        &self,
        statement: &Statement,
        versions: Option<&Arc<Versions>>,
    ) -> Result<Planned> {
        let pins = Arc::new(Pins::at(versions));
        let planned = self.plan(statement, &pins).await;
        // Cached table descriptions may be outdated. If a pool has prepared a program, it has reported whether they
        // are.
        let is_told = |planned: &Planned| planned.asks_a_pool() || pins.are_described_anew();
        let is_new = planned.as_ref().is_ok_and(is_told) && !pins.have_drifted();
        let is_stale = planned.as_ref().is_err_and(error::is_stale);
        match is_stale || (!is_new && self.home.forget()) {
            true => self.plan_again(statement, versions).await,
            false => self.explained(planned, statement).await,
        }
    }

    /// Plans a statement after an earlier plan has failed or is outdated, with table descriptions that are fetched from
    /// the pools now. `versions` as in [`Session::plan_first`].
    ///
    /// # Errors
    /// The errors of [`Session::sql`].
    pub(crate) async fn plan_again(
        &self,
        statement: &Statement,
        versions: Option<&Arc<Versions>>,
    ) -> Result<Planned> {
        self.home.forget();
        let planned = self.plan(statement, &Arc::new(Pins::of_last_attempt(versions))).await;
        self.explained(planned, statement).await
    }

    /// Converts an error for the author of the statement: adds advice, and the error's position in the statement.
    pub(crate) async fn explained<T>(
        &self,
        outcome: Result<T, DataFusionError>,
        statement: &Statement,
    ) -> Result<T> {
        match outcome {
            Ok(planned) => Ok(planned),
            Err(error) => {
                let missing = error::missing_table(&error).map(str::to_string);
                let error = error::in_statement(error, &statement.text, statement.line);
                Err(error::lasting(match missing {
                    Some(name) => self.with_close_names(error, &name).await,
                    None => error,
                }))
            }
        }
    }

    /// Returns the unqualified names that a statement reads and that are neither tables nor views of the session and
    /// its pools, nor files: a caller that has rows with these names can pass them ([`Statement::with_table`]). Returns
    /// no names for a statement that cannot be parsed, which planning reports.
    ///
    /// # Errors
    /// Errors of a pool that cannot be asked.
    pub fn unknown_names<'a>(&'a self, statement: &'a Statement) -> BoxFuture<'a, Result<Vec<String>>> {
        self.names_unknown(statement).boxed()
    }

    async fn names_unknown(&self, statement: &Statement) -> Result<Vec<String>> {
        let state = self.context.state();
        let summarized = summarize::summarized(&statement.text);
        let text = summarized.as_deref().unwrap_or(&statement.text);
        let Ok(parsed) = dialect::parse(&state, text) else { return Ok(Vec::new()) };
        let Ok(references) = state.resolve_table_references(&parsed.statement) else { return Ok(Vec::new()) };
        let mut unknown: Vec<String> = Vec::new();
        for reference in references.iter().filter(|reference| reference.schema().is_none()) {
            let name = reference.table();
            let is_known = self.home.is_own(name)
                || match TableName::new(name) {
                    Ok(name) => self.home.find(&name).await?.is_some(),
                    Err(_) => false,
                };
            if !is_known {
                unknown.push(name.to_string());
            }
        }
        unknown.dedup();
        Ok(unknown)
    }

    async fn plan(&self, statement: &Statement, pins: &Arc<Pins>) -> Result<Planned, DataFusionError> {
        let Statement { text, parameters, tables, .. } = statement;
        let mut state = self.context.state();
        state.config_mut().set_extension(Arc::clone(pins));
        if !tables.is_empty() {
            let catalogs = catalog::with_tables(&**state.catalog_list(), &self.home, tables)?;
            state.register_catalog_list(catalogs);
        }
        if tables.is_empty()
            && let Some((plan, headers)) = self.plans.find(&state, text).await?
        {
            let plan = parameters.fill_in(plan, &BTreeSet::new())?;
            return Ok(self.planned(Arc::new(state), plan).await?.with_headers(&headers));
        }
        if let Some(query) = summarize::summarized(text) {
            let parsed = dialect::parse(&state, &query)?.statement;
            let plan = dialect::plan(&state, parsed).await?;
            let text = summarize::statement(&query, plan.schema().as_arrow());
            let statement = Statement { text, ..statement.clone() };
            return Box::pin(self.plan(&statement, pins)).await;
        }
        let dialect::Parsed { statement: mut parsed, headers } = dialect::parse(&state, text)?;
        if !is_query(&parsed) {
            self.home.forget();
            pins.describe_anew();
        }
        if let Some(altered) = alter::of(&parsed) {
            return self.altered(&state, altered).await;
        }
        if let Some(create) = views::created(&mut parsed)
            && let Some(planned) = self.view_created(&state, create).await?
        {
            return Ok(planned);
        }
        if let Some(planned) = self.dropped(&parsed).await? {
            return Ok(planned);
        }
        if let Some(change) = SchemaChange::of(&parsed)? {
            return self.schema_changed(change).await;
        }
        if let (Some(writer), DfStatement::CopyTo(copy)) = (self.home.writer(), &parsed)
            && copy.partitioned_by.is_empty()
        {
            let (target, query) = copy::taken_apart(copy)?;
            writer.check(&target).map_err(error::wrap)?;
            return match self.statement_planned(state, query, &Headers::default(), parameters, None).await? {
                Planned::Rows(rows) => Ok(Planned::Command(Command::Copy(Copy::new(writer, target, rows)))),
                Planned::Command(_) => internal_err!("COPY of a command"),
            };
        }
        catalog::check_given(self, &state, &parsed, tables).await?;
        let kept_as = (is_query(&parsed) && tables.is_empty()).then_some(text.as_str());
        self.statement_planned(state, parsed, &headers, parameters, kept_as).await
    }

    /// Plans a statement. If `kept_as` is its text, caches its plan under this text.
    async fn statement_planned(
        &self,
        state: SessionState,
        parsed: DfStatement,
        headers: &Headers,
        parameters: &Parameters,
        kept_as: Option<&str>,
    ) -> Result<Planned, DataFusionError> {
        let Unfilled { state, plan, used, references } = self.unfilled(state, parsed, parameters).await?;
        // If values were inserted into the statement, they are part of the plan, which then cannot serve other values.
        if let Some(text) = kept_as
            && used.is_empty()
        {
            self.plans.keep(&state, text, &references, &plan, headers).await?;
        }
        let plan = parameters.fill_in(plan, &used)?;
        if let LogicalPlan::DescribeTable(table) = &plan {
            let columns = described(&headers.over(&table.schema))?;
            return Rows::plan(&state, &columns).await.map(Planned::Rows);
        }
        self.open_files(&state, &plan).await?;
        Ok(self.planned(state, plan).await?.with_headers(headers))
    }

    /// Replaces the placeholders of files in the plan by tables with only the columns that the optimized plan needs.
    async fn open_files(&self, state: &SessionState, plan: &LogicalPlan) -> Result<(), DataFusionError> {
        let Some(opener) = self.home.opener() else { return Ok(()) };
        if !file::has_files(plan)? {
            return Ok(());
        }
        let optimized = state.optimize(plan)?;
        file::open_files(&optimized, &*opener, self.options.pushdown).await.map_err(error::wrap)
    }

    async fn planned(&self, state: Arc<SessionState>, plan: LogicalPlan) -> Result<Planned, DataFusionError> {
        match plan {
            LogicalPlan::Statement(LogicalStatement::Execute(_)) => {
                let frame = self.context.execute_logical_plan(plan).await?;
                Box::pin(self.planned(state, frame.logical_plan().clone())).await
            }
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => match self.pool_for(&create.name)? {
                Some(pool) => {
                    let name = self.table_name(&create.name)?;
                    let change = changes::create(&state, Arc::clone(pool.pool()), name, &create).await?;
                    Ok(Planned::Command(Command::Change(change)))
                }
                // A query: it reads tables of pools, each in one version.
                None => {
                    let plan = LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create));
                    let context = SessionContext::new_with_state(Arc::unwrap_or_clone(state));
                    Ok(Planned::Command(Command::Plan(context, plan)))
                }
            },
            LogicalPlan::Dml(dml) if dml.target.table_type() == TableType::View => {
                let message = format!("{} is a view, not a table of a pool", dml.table_name);
                let error = Error::invalid(message);
                Err(error::wrap(error.advise("change the rows of the tables that the view reads")))
            }
            LogicalPlan::Dml(dml) if !matches!(dml.op, WriteOp::Insert(_)) => {
                let provider = source_as_provider(&dml.target)?;
                let Some(table) = provider.downcast_ref::<PoolTable>() else {
                    return not_impl_err!("{} of what is not a table of a pool", dml.op.name());
                };
                let change = changes::change(&state, &dml, table.clone()).await?;
                Ok(Planned::Command(Command::Change(change)))
            }
            LogicalPlan::Explain(explain) if is_change(&explain.plan) => {
                let change =
                    Box::pin(self.planned(Arc::clone(&state), LogicalPlan::clone(&explain.plan))).await?;
                let row = vec![lit("change"), lit(change.explain())];
                let columns = [col("column1").alias("plan_type"), col("column2").alias("plan")];
                let told = LogicalPlanBuilder::values(vec![row])?.project(columns)?.build()?;
                Rows::plan(&state, &told).await.map(Planned::Rows)
            }
            LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => {
                Ok(Planned::Command(Command::Plan(self.context().clone(), plan)))
            }
            plan => Rows::plan(&state, &plan).await.map(Planned::Rows),
        }
    }

    async fn altered(&self, state: &SessionState, altered: &AlterTable) -> Result<Planned, DataFusionError> {
        let reference = alter::table(altered)?;
        let changes = alter::changes(state, &self.table_name(&reference)?, altered).await?;
        Ok(Planned::Command(match self.find(&reference).await? {
            Some((pool, Found::Table(table))) => {
                Command::AlterTable(Arc::clone(pool.pool()), table.info().name.clone(), changes)
            }
            Some((_, Found::View(view))) => {
                let message = format!("{:?} is a view, not a table", view.name().as_str());
                return Err(error::wrap(Error::invalid(message).advise("use CREATE OR REPLACE VIEW")));
            }
            None if altered.if_exists => Command::Change(Change::Nothing),
            None => {
                let error = Error::not_found(format!("there is no table {reference} in a pool"));
                return Err(error::wrap(self.with_close_names(error, &reference.to_string()).await));
            }
        }))
    }

    /// Plans CREATE SCHEMA and DROP SCHEMA.
    async fn schema_changed(&self, change: SchemaChange) -> Result<Planned, DataFusionError> {
        let pool = match &change.catalog {
            Some(catalog) if catalog != HOME => self.pool_named(catalog),
            _ => self.home.pools().into_iter().next(),
        };
        let Some(pool) = pool else { return not_impl_err!("schemas without a pool") };
        let exists = pool.has_schema(&change.schema).await.map_err(error::wrap)?;
        let is_done = change.is_lenient && exists != change.drops();
        Ok(Planned::Command(match is_done {
            true => Command::Change(Change::Nothing),
            false => Command::ChangeSchema(Arc::clone(pool.pool()), change),
        }))
    }

    /// Plans CREATE VIEW in a pool; returns `None` for a view of the session.
    async fn view_created(
        &self,
        state: &SessionState,
        create: &mut CreateView,
    ) -> Result<Option<Planned>, DataFusionError> {
        let reference = object_name_to_table_reference(create.name.clone(), true)?;
        let is_of_session = reference.catalog().is_none_or(|catalog| catalog == HOME);
        let name = self.table_name(&reference)?;
        // Views of the session are always temporary. DataFusion does not accept the word TEMPORARY, so that it is
        // removed.
        if std::mem::take(&mut create.temporary)
            || (create.or_replace && is_of_session && self.home.is_of_session(&name))
        {
            return Ok(None);
        }
        let Some(pool) = self.pool_for(&reference)? else { return Ok(None) };
        if self.default_schema() != SCHEMA {
            let message = "a view is made where names without a schema are those of public: for other clients they are, too";
            return Err(error::wrap(Error::invalid(message).advise("set the default schema back")));
        }
        let qualifies = |reference: &TableReference| {
            reference.schema() != Some(INFORMATION_SCHEMA)
                && reference.catalog().is_none_or(|catalog| {
                    catalog == HOME
                        || self.pool_named(catalog).is_some_and(|named| Arc::ptr_eq(&named, &pool))
                })
        };
        let is_own = |name: &str| self.home.is_own(name);
        match views::text_for(state, &pool, (name, create), qualifies, is_own).await? {
            Some(view) => {
                let command = Command::CreateView(Arc::clone(pool.pool()), view, create.or_replace);
                Ok(Some(Planned::Command(command)))
            }
            // A pool in this process has no other clients, so that the view can belong to the session.
            None if !pool.pool().is_remote() => Ok(None),
            None => {
                let message = "a view of a pool cannot read files, or tables and views of this session";
                let error = Error::invalid(message);
                Err(error::wrap(
                    error.advise("load them first, or make it a view of the session (CREATE TEMPORARY VIEW)"),
                ))
            }
        }
    }

    /// Plans DROP TABLE and DROP VIEW of a table or view in a pool; returns `None` for any other statement.
    async fn dropped(&self, statement: &DfStatement) -> Result<Option<Planned>, DataFusionError> {
        let DfStatement::Statement(statement) = statement else { return Ok(None) };
        let SqlStatement::Drop { object_type, names, if_exists, .. } = &**statement else { return Ok(None) };
        let ([name], ObjectType::Table | ObjectType::View) = (&names[..], object_type) else {
            return Ok(None);
        };
        let name = object_name_to_table_reference(name.clone(), true)?;
        let is_of_session = self.home.is_of_session(&self.table_name(&name)?);
        let wrong = |what: &str, drop: &str| {
            let error = Error::invalid(format!("{name} is a {what}"));
            Err(error::wrap(error.advise(format!("use {drop}"))))
        };
        let command = match (object_type, self.find(&name).await?) {
            (ObjectType::Table, Some((pool, Found::Table(table)))) => {
                Command::DropTable(Arc::clone(pool.pool()), table.info().name.clone())
            }
            (ObjectType::View, Some((pool, Found::View(view)))) => {
                Command::DropView(Arc::clone(pool.pool()), view.name().clone())
            }
            (_, Some((_, Found::View(_)))) => return wrong("view", "DROP VIEW"),
            (_, Some((_, Found::Table(_)))) => return wrong("table", "DROP TABLE"),
            (ObjectType::View, None) if !is_of_session => match if_exists {
                true => Command::Change(Change::Nothing),
                false => return Err(error::wrap(Error::not_found(format!("there is no view {name}")))),
            },
            (_, None) => return Ok(None),
        };
        Ok(Some(Planned::Command(command)))
    }

    /// Returns the pool in which a table or view called `name` is created; `None` if there is no pool.
    pub(crate) fn pool_for(
        &self,
        name: &TableReference,
    ) -> Result<Option<Arc<PoolCatalog>>, DataFusionError> {
        match name.catalog() {
            Some(catalog) if catalog != HOME => Ok(self.pool_named(catalog)),
            _ if self.home.is_of_session(&self.table_name(name)?) => {
                let message = format!("there is a view or table of the session named {}", name.table());
                let error = Error::new(ErrorKind::Exists, message);
                Err(error::wrap(error.advise("choose another name, or drop it first")))
            }
            _ => Ok(self.home.pools().into_iter().next()),
        }
    }

    /// Returns the pool that was registered under this name.
    fn pool_named(&self, name: &str) -> Option<Arc<PoolCatalog>> {
        let catalog = self.context.catalog(name)?;
        let wanted = catalog.downcast_ref::<PoolCatalog>()?;
        self.home.pools().into_iter().find(|pool| std::ptr::eq(&**pool, wanted))
    }

    /// Returns the schema that names without a schema refer to.
    fn default_schema(&self) -> String {
        self.context.state_ref().read().config_options().catalog.default_schema.clone()
    }

    /// Returns the name of a table or view within its pool.
    ///
    /// # Errors
    /// `Invalid` if it is not a valid name.
    pub(crate) fn table_name(&self, name: &TableReference) -> Result<TableName, DataFusionError> {
        let schema = catalog::schema_of(name, &self.default_schema());
        schema.and_then(|schema| TableName::in_schema(&schema, name.table())).map_err(error::wrap)
    }

    /// Finds the table or view of a pool that `name` refers to, and its pool.
    pub(crate) async fn find(
        &self,
        reference: &TableReference,
    ) -> Result<Option<(Arc<PoolCatalog>, Found)>, DataFusionError> {
        let name = self.table_name(reference)?;
        let found = match reference.catalog() {
            Some(catalog) if catalog != HOME => match self.pool_named(catalog) {
                Some(pool) => pool.find(&name).await.map(|found| found.map(|found| (pool, found))),
                None => Ok(None),
            },
            _ => self.home.find(&name).await,
        };
        found.map_err(error::wrap)
    }

    /// Adds advice to `error`: names of tables similar to `wanted`, which does not exist.
    async fn with_close_names(&self, error: Error, wanted: &str) -> Error {
        let Ok(names) = self.home.all_names().await else { return error };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if names.is_empty() {
            return error.advise(self.options.advice_without_tables);
        }
        farpool_sql::names::advise(error, wanted, &names)
    }
}

/// Plans the result of DESCRIBE: one row for each column of a table or query.
fn described(schema: &Schema) -> Result<LogicalPlan, DataFusionError> {
    let names = ["column_name", "data_type", "is_nullable"];
    let columns =
        || (1..).map(|n| col(format!("column{n}"))).zip(names).map(|(column, name)| column.alias(name));
    let row = |field: &FieldRef| {
        let is_nullable = if field.is_nullable() { "YES" } else { "NO" };
        vec![lit(field.name().as_str()), lit(sql_name(field.data_type())), lit(is_nullable)]
    };
    match schema.fields().is_empty() {
        true => LogicalPlanBuilder::values(vec![vec![lit(""); 3]])?
            .filter(lit(false))?
            .project(columns())?
            .build(),
        false => {
            let rows = schema.fields().iter().map(row).collect();
            LogicalPlanBuilder::values(rows)?.project(columns())?.build()
        }
    }
}

/// Returns whether the plan is an UPDATE, a DELETE or a TRUNCATE.
fn is_change(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Dml(dml) if !matches!(dml.op, WriteOp::Insert(_)))
}

fn is_query(statement: &DfStatement) -> bool {
    matches!(statement, DfStatement::Statement(statement) if matches!(**statement, SqlStatement::Query(_)))
}

/// Returns whether a query is a SELECT … INTO.
fn makes_a_table(statement: &DfStatement) -> bool {
    let DfStatement::Statement(statement) = statement else { return false };
    let SqlStatement::Query(query) = &**statement else { return false };
    query.body.as_select().is_some_and(|select| select.into.is_some())
}
