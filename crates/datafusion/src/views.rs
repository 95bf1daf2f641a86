//! Views that a pool (a store of tables) stores for all clients of a tenant. The pool stores only the text of a view's
//! query; the client that reads the view plans the query.
//!
//! A view's text can refer only to tables and views of its own pool: not to those of the session or of its other pools,
//! nor to files of this machine. Other clients do not have those, and a text that another client wrote must not get
//! access to them.
//!
//! Invariant: whatever text a pool returns for a view, the result is an error that names the view, or the plan of a
//! query of at most [`limits::VIEW_OPERATORS_MAX`] operators over at most [`limits::VIEWS_READ_MAX`] views, which are
//! nested at most [`limits::VIEW_DEPTH_MAX`] deep.

mod create;

pub(crate) use create::{created, text_for};

use crate::catalog::{self, Found, PoolCatalog};
use crate::session::{HOME, INFORMATION_SCHEMA, SCHEMA};
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider, TableProvider,
};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::SqlParserOptions;
use datafusion::error::Result;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::{Query, Statement as SqlStatement};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use farpool_model::{Error, ErrorKind, TableName, View, limits};
use farpool_sql::dialect::Grammar;
use farpool_sql::{dialect, error};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Plans the views of one pool for one statement. Each view is planned once.
pub(crate) struct Reader<'a> {
    /// The session state that views are planned with: it has the session's functions, but none of its tables.
    state: SessionState,
    pool: &'a PoolCatalog,
    read: Mutex<HashMap<TableName, Arc<ViewTable>>>,
}

impl<'a> Reader<'a> {
    /// Creates a reader of views of `pool` in the session whose state is `state`.
    pub(crate) fn new(mut state: SessionState, pool: &'a PoolCatalog) -> Self {
        let options = state.config_mut().options_mut();
        options.catalog.default_catalog = HOME.to_string();
        options.catalog.default_schema = SCHEMA.to_string();
        options.catalog.information_schema = false;
        // The meaning of a view's text must not depend on settings of the session that reads it.
        options.sql_parser = SqlParserOptions { collect_spans: true, ..SqlParserOptions::default() };
        Reader { state, pool, read: Mutex::default() }
    }

    /// Plans the view over the current tables and views of its pool, and returns it as a table. `above` are the views
    /// that lead to this one, outermost first.
    ///
    /// # Errors
    /// Fails if the view cannot be planned, with the names of the views; the pool's error if it cannot answer.
    pub(crate) fn expand<'b>(
        &'b self,
        view: &'b View,
        above: &'b [TableName],
    ) -> BoxFuture<'b, Result<Arc<ViewTable>>> {
        async move {
            let path = below(above, view.name()).map_err(error::wrap)?;
            let planned = match self.parse(view.text()) {
                Ok(query) => self.plan(query, &path).await,
                Err(error) => Err(error),
            };
            let planned = planned.map_err(|error| error::wrap(in_view(view.name(), error::unwrap(error))))?;
            let table = Arc::new(ViewTable::new(planned, Some(view.text().to_string())));
            let mut read = self.read.lock();
            read.insert(view.name().clone(), Arc::clone(&table));
            match read.len() <= limits::VIEWS_READ_MAX {
                true => Ok(table),
                false => {
                    let message = format!("more than {} views are read", limits::VIEWS_READ_MAX);
                    Err(error::wrap(Error::over_limit(message).advise("write out some of them")))
                }
            }
        }
        .boxed()
    }

    /// Parses the text of a view, which must be a single query.
    ///
    /// # Errors
    /// Fails if the text is any other statement, or several.
    fn parse(&self, text: &str) -> Result<Box<Query>> {
        check_length(text).map_err(error::wrap)?;
        if let Statement::Statement(statement) = dialect::parse(&self.state, text)?.statement
            && let SqlStatement::Query(query) = *statement
        {
            return Ok(query);
        }
        Err(error::wrap(not_a_query()))
    }

    /// Plans `query`, the query of the last view in `path`; the views before it in `path` lead to it.
    async fn plan(&self, query: Box<Query>, path: &[TableName]) -> Result<LogicalPlan> {
        let statement = Statement::Statement(Box::new(SqlStatement::Query(query)));
        let mut schemas = BTreeMap::from([(SCHEMA.to_string(), Arc::<MemorySchemaProvider>::default())]);
        for reference in resolve_table_references(&statement, true)?.0 {
            if reference.catalog().is_some() || reference.schema() == Some(INFORMATION_SCHEMA) {
                let message = format!("{reference} does not stand in the pool of the view");
                return Err(error::wrap(Error::invalid(message)));
            }
            // If there is no such table, the name may be that of a table function; otherwise DataFusion reports the
            // missing table with its position.
            let schema = catalog::schema_of(&reference, SCHEMA).map_err(error::wrap)?;
            if let Ok(name) = TableName::in_schema(&schema, reference.table())
                && let Some(table) = self.find(&name, path).await?
            {
                let provider = schemas.entry(schema.to_string()).or_default();
                provider.register_table(name.table().to_string(), table)?;
            }
        }
        let mut state = self.state.clone();
        state.register_catalog_list(only(schemas)?);
        let plan = dialect::plan(&state, statement).await?;
        check(&plan).map_err(error::wrap)?;
        Ok(plan)
    }

    async fn find(&self, name: &TableName, path: &[TableName]) -> Result<Option<Arc<dyn TableProvider>>> {
        let read = self.read.lock().get(name).cloned();
        if let Some(view) = read {
            return Ok(Some(view));
        }
        Ok(match self.pool.find(name).await.map_err(error::wrap)? {
            Some(Found::Table(table)) => Some(Arc::new(table)),
            Some(Found::View(view)) => Some(self.expand(&view, path).await?),
            None => None,
        })
    }
}

/// Returns the table that listings show for a view that cannot be planned: it has no columns.
pub(crate) fn without_columns(view: &View) -> Result<ViewTable> {
    let nothing = LogicalPlanBuilder::empty(false).build()?;
    Ok(ViewTable::new(nothing, Some(view.text().to_string())))
}

/// Returns the path of views from the outermost one down to `name`; fails if `name` is already in `above`, because a
/// view cannot read itself.
fn below(above: &[TableName], name: &TableName) -> farpool_model::Result<Vec<TableName>> {
    let path: Vec<TableName> = above.iter().chain([name]).cloned().collect();
    if above.contains(name) {
        let names: Vec<String> = path.iter().map(|name| format!("{:?}", name.as_str())).collect();
        let message = format!("views read each other in a circle: {}", names.join(", "));
        return Err(Error::invalid(message).advise("replace one of them (CREATE OR REPLACE VIEW)"));
    }
    if path.len() > limits::VIEW_DEPTH_MAX {
        let message = format!("view {:?} is more than {} views deep", name.as_str(), limits::VIEW_DEPTH_MAX);
        return Err(Error::over_limit(message).advise("write out some of the views that it reads"));
    }
    Ok(path)
}

fn check_length(text: &str) -> farpool_model::Result<()> {
    // If the tokenizer rejects the text, the parser does so as well, with a better error.
    let tokens = Tokenizer::new(&Grammar, text).tokenize().unwrap_or_default();
    let count = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).count();
    match count <= limits::VIEW_TOKENS_MAX {
        true => Ok(()),
        false => Err(Error::over_limit(format!(
            "the query of a view may have {} words and signs, this one has {count}",
            limits::VIEW_TOKENS_MAX
        ))
        .advise("put parts of it into views of their own")),
    }
}

/// Creates a list with a single catalog that has only these schemas.
fn only(schemas: BTreeMap<String, Arc<MemorySchemaProvider>>) -> Result<Arc<MemoryCatalogProviderList>> {
    let catalog = MemoryCatalogProvider::new();
    for (name, tables) in schemas {
        catalog.register_schema(&name, tables)?;
    }
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(HOME.to_string(), Arc::new(catalog));
    Ok(Arc::new(catalogs))
}

/// Checks that a plan only reads, is small enough to be part of other plans, and has columns that a table can have.
fn check(plan: &LogicalPlan) -> farpool_model::Result<()> {
    let mut operators = 0;
    let counted = plan.apply_with_subqueries(|_| {
        operators += 1;
        Ok(match operators > limits::VIEW_OPERATORS_MAX {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    counted.map_err(error::unwrap)?;
    if operators > limits::VIEW_OPERATORS_MAX {
        let most = limits::VIEW_OPERATORS_MAX;
        let message = format!("with all that it reads, it has more than {most} operators");
        return Err(Error::over_limit(message).advise("keep a part of it as a table"));
    }
    let reads_only =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    reads_only.verify_plan(plan).map_err(|_| not_a_query())?;
    if !plan.get_parameter_names().map_err(error::unwrap)?.is_empty() {
        return Err(Error::invalid("a view has no parameters, such as $1"));
    }
    check_names(plan.schema())
}

fn check_names(schema: &DFSchema) -> farpool_model::Result<()> {
    let mut seen = HashSet::new();
    match schema.fields().iter().find(|field| !seen.insert(field.name())) {
        Some(twice) => Err(Error::invalid(format!("two of its columns are called {:?}", twice.name()))
            .advise("give one of them another name with AS")),
        None => Ok(()),
    }
}

fn not_a_query() -> Error {
    Error::invalid("a view is one SELECT and nothing else")
}

/// Creates the error of a view. Control characters are escaped, because the error may quote the view's text, which
/// another client wrote.
fn in_view(name: &TableName, error: Error) -> Error {
    let escaped = |text: &str| -> String {
        let escape = |c: char| match c.is_control() && c != '\n' {
            true => c.escape_default().to_string(),
            false => c.to_string(),
        };
        text.chars().map(escape).collect()
    };
    let message = format!("in view {:?}: {}", name.as_str(), escaped(&error.message));
    let advice = error.advice.as_deref().map(escaped);
    let is_of_the_view = matches!(error.kind, ErrorKind::Invalid | ErrorKind::NotFound);
    let advice = advice.or_else(|| is_of_the_view.then(|| FIX_ADVICE.to_string()));
    Error { message, advice, ..error }
}

const FIX_ADVICE: &str = "make the view anew (CREATE OR REPLACE VIEW), or drop it (DROP VIEW)";
