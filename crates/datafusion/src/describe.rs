//! Statements without values for their parameters, whose types and result a protocol has to know before it gets the
//! values; and statements that read the tables as of one moment, as those of a transaction do.

use crate::catalog;
use crate::pins::Versions;
use crate::query::Query;
use crate::session::{INFORMATION_SCHEMA, Session};
use arrow_array::new_null_array;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, TableReference};
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use farpool_model::Result;
use farpool_sql::checked::columns_below;
use farpool_sql::{Parameters, Statement, dialect, error, summarize};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The parameters and the result of a statement.
#[derive(Clone, Debug)]
pub struct Described {
    /// The types of `$1`, `$2`, …; `None` for one of which the type does not follow from the statement.
    pub parameters: Vec<Option<DataType>>,
    /// The columns of the result; none for a statement that returns no rows.
    pub schema: SchemaRef,
}

/// The versions of tables that several statements read. A statement that reads a table first pins its version for the
/// others, and the version exists as long as the snapshot.
#[derive(Clone, Debug, Default)]
pub struct Snapshot(Arc<Versions>);

/// A plan in which parameters have no values yet.
pub(crate) struct Unfilled {
    /// The state that the statement is planned with.
    pub state: Arc<SessionState>,
    pub plan: LogicalPlan,
    /// The parameters whose values have been inserted into the statement.
    pub used: BTreeSet<String>,
    /// The tables that the statement names.
    pub references: Vec<TableReference>,
}

impl Snapshot {
    pub(crate) fn versions(&self) -> &Arc<Versions> {
        &self.0
    }
}

impl Session {
    /// Returns the types of a statement's parameters and the columns of its result. `types` are the types of the first
    /// parameters as far as the caller knows them; the others follow from the statement.
    ///
    /// # Errors
    /// The errors of [`Session::sql`].
    pub fn describe<'a>(
        &'a self,
        statement: &'a Statement,
        types: &'a [Option<DataType>],
    ) -> BoxFuture<'a, Result<Described>> {
        async move {
            let described = async {
                let described = self.described(statement, types).await;
                self.explained(described, statement).await
            };
            self.scope().keep(described).await
        }
        .boxed()
    }

    async fn described(
        &self,
        statement: &Statement,
        types: &[Option<DataType>],
    ) -> Result<Described, DataFusionError> {
        let text = &statement.text;
        let mut state = self.context().state();
        if !statement.tables.is_empty() {
            let catalogs = catalog::with_tables(&**state.catalog_list(), &self.home, &statement.tables)?;
            state.register_catalog_list(catalogs);
        }
        let is_summary = summarize::summarized(text).is_some();
        let parsed = (!is_summary).then(|| dialect::parse(&state, text)).transpose()?;
        let Some(dialect::Parsed { statement: parsed, headers }) =
            parsed.filter(|p| can_have_parameters(&p.statement))
        else {
            let query = self.sql(statement.clone()).await.map_err(error::wrap)?;
            return Ok(Described { parameters: Vec::new(), schema: Arc::clone(query.schema()) });
        };
        let inferred = self.unfilled(state.clone(), parsed.clone(), &Parameters::None).await;
        let mut found = match &inferred {
            Ok(unfilled) => unfilled.plan.get_parameter_types()?,
            Err(_) => HashMap::new(),
        };
        if let Ok(unfilled) = &inferred {
            types_of_lists(&unfilled.plan, &mut found)?;
        }
        for (name, data_type) in dialect::types_of_casts(&parsed)? {
            // The type as the engine has it, by a constant of that type.
            let constant =
                state.create_logical_expr(&format!("CAST(NULL AS {data_type})"), &DFSchema::empty());
            if let Ok(known) = constant.and_then(|constant| constant.get_type(&DFSchema::empty())) {
                found.insert(name, Some(known));
            }
        }
        let mut parameters = by_number(found);
        if parameters.len() < types.len() && inferred.is_err() {
            parameters.resize(types.len(), None);
        }
        let known = types.iter().enumerate().filter_map(|(place, known)| Some((place, known.clone()?)));
        for (place, known) in known.filter(|(place, _)| *place < parameters.len()).collect::<Vec<_>>() {
            parameters[place] = Some(known);
        }
        if parameters.is_empty() {
            let Unfilled { state, plan, .. } = inferred?;
            return Ok(Described { parameters, schema: result(analyzed(&state, plan)?, &headers) });
        }
        // Without a type, a value is text.
        let nulls =
            parameters.iter().map(|known| new_null_array(known.as_ref().unwrap_or(&DataType::Utf8), 1));
        let nulls = Parameters::Numbered(nulls.collect());
        let Unfilled { state, plan, used, .. } = self.unfilled(state, parsed, &nulls).await?;
        let plan = nulls.fill_in(plan, &used)?;
        Ok(Described { parameters, schema: result(analyzed(&state, plan)?, &headers) })
    }

    /// Plans a statement that reads the tables as `snapshot` has them. A statement that changes something reads them as
    /// [`Session::sql`] does.
    ///
    /// # Errors
    /// The errors of [`Session::sql`].
    pub fn sql_at<'a>(
        &'a self,
        statement: impl Into<Statement>,
        snapshot: &'a Snapshot,
    ) -> BoxFuture<'a, Result<Query>> {
        self.query_at(statement.into(), snapshot)
    }

    fn query_at<'a>(&'a self, statement: Statement, snapshot: &'a Snapshot) -> BoxFuture<'a, Result<Query>> {
        let scope = self.scope();
        async move {
            if !self.is_read(&statement) {
                return self.sql(statement).await;
            }
            let planned = scope.keep(self.plan_first(&statement, Some(&snapshot.0))).await?;
            Ok(Query::new(self.clone(), statement, scope, planned).at(&snapshot.0))
        }
        .boxed()
    }

    /// Plans a parsed statement as far as that is possible without values for its parameters. The types of values that
    /// are there count.
    pub(crate) async fn unfilled(
        &self,
        mut state: SessionState,
        mut parsed: DfStatement,
        parameters: &Parameters,
    ) -> Result<Unfilled, DataFusionError> {
        let references = state.resolve_table_references(&parsed)?;
        if references.iter().any(|r| r.schema() == Some(INFORMATION_SCHEMA)) {
            self.home.all_names().await.map_err(error::wrap)?;
            state.register_catalog_list(catalog::listed(&**state.catalog_list()));
        }
        let mut used = dialect::fill_in_arguments(&mut parsed, parameters)?;
        used.extend(dialect::fill_in_lists(&mut parsed, parameters)?);
        let state = Arc::new(state);
        let again = (*parameters != Parameters::None).then(|| parsed.clone());
        let plan = match (dialect::plan(&state, parsed).await, again) {
            (Err(error), Some(mut typed)) => {
                used.extend(dialect::with_types(&mut typed, parameters)?);
                dialect::plan(&state, typed).await.map_err(|_| error)?
            }
            (planned, _) => planned?,
        };
        Ok(Unfilled { state, plan, used, references })
    }
}

/// Returns whether a statement may have parameters whose types follow from it.
fn can_have_parameters(statement: &DfStatement) -> bool {
    match statement {
        DfStatement::Statement(statement) => matches!(
            **statement,
            SqlStatement::Query(_)
                | SqlStatement::Insert(_)
                | SqlStatement::Update(_)
                | SqlStatement::Delete(_)
        ),
        DfStatement::Explain(explain) => can_have_parameters(&explain.statement),
        _ => false,
    }
}

/// Adds the types of parameters in which a value is looked for, as in `x = ANY($1)`: lists of values of its type.
fn types_of_lists(
    plan: &LogicalPlan,
    types: &mut HashMap<String, Option<DataType>>,
) -> Result<(), DataFusionError> {
    plan.apply_with_subqueries(|node| {
        let columns = columns_below(node)?;
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::ScalarFunction(call) = part
                    && call.name() == "array_has"
                    && let [Expr::Placeholder(list), value] = call.args.as_slice()
                    && let Ok(element) = value.get_type(&columns)
                {
                    let list_type = DataType::List(Arc::new(Field::new_list_field(element, true)));
                    types.insert(list.id.clone(), Some(list_type));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })
    .map(drop)
}

/// Returns the types of parameters by their numbers; those of other names are left out.
fn by_number(types: HashMap<String, Option<DataType>>) -> Vec<Option<DataType>> {
    let mut parameters = Vec::new();
    for (name, data_type) in types {
        let number = name.strip_prefix('$').and_then(|number| number.parse::<u16>().ok());
        let Some(place) = number.and_then(|number| usize::from(number).checked_sub(1)) else { continue };
        if parameters.len() <= place {
            parameters.resize(place + 1, None);
        }
        parameters[place] = data_type;
    }
    parameters
}

fn result(plan: LogicalPlan, headers: &dialect::Headers) -> SchemaRef {
    match plan {
        LogicalPlan::Ddl(_) => Arc::new(Schema::empty()),
        plan => headers.over(plan.schema().inner()),
    }
}

/// Returns the plan with the types that its columns have when it runs, which rules decide.
fn analyzed(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})
}
