//! Statements: what they are, their plans, and their results.

use super::answers::{Sent, schema_fingerprint};
use super::convert::sent_schema;
use super::options::Options;
use super::running::Running;
use super::status::{not_done, of_failure, status};
use super::users::User;
use crate::postgres::catalog::names_objects;
use crate::postgres::commands::{Command, Kind, command};
use arrow_schema::SchemaRef;
use farpool_datafusion::{Parameters, Query, Statement, split_statements};
use farpool_model::{Error, ErrorKind, Result};
use farpool_transfer::Pool;
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use tonic::Status;

/// One statement, and what it does.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub text: String,
    pub kind: Kind,
    /// The schema that names without one refer to, if it is another one than `public`.
    pub in_schema: Option<String>,
}

impl Asked {
    /// Returns the statement of a text.
    pub fn of(text: &str, options: &Options) -> std::result::Result<Self, Status> {
        let failed = |error: Error| status(&error);
        let mut statements = split_statements(text).map_err(failed)?;
        let statement = match (statements.pop(), statements.is_empty()) {
            (Some(statement), true) => statement.text,
            (None, _) => return Err(failed(Error::invalid("there is no statement"))),
            (Some(_), false) => {
                let error = Error::invalid("there are several statements");
                return Err(failed(error.advise("send them one after the other")));
            }
        };
        let kind = match command(&statement).map_err(|failure| failed(of_failure(failure)))? {
            Command::Engine(Kind::Refused) => {
                let advice = "tables, views and schemas can be made, and plans shown of queries";
                return Err(not_done("this statement is not done", advice));
            }
            Command::Engine(kind) => kind,
            Command::Empty => return Err(failed(Error::invalid("there is no statement"))),
            Command::Begin(_)
            | Command::Commit
            | Command::Rollback
            | Command::Savepoint(_)
            | Command::Release(_)
            | Command::RollbackTo(_)
            | Command::SetTransaction { .. } => return Err(no_transactions()),
            Command::Set { .. }
            | Command::ResetAll
            | Command::Show(_)
            | Command::ShowAll
            | Command::Discard(_)
            | Command::Nothing(_) => {
                let advice = "set options of the session: schema and statement_timeout (SetSessionOptions)";
                return Err(not_done("settings in SQL are not done over Flight SQL", advice));
            }
            Command::CopyOut { .. } | Command::CopyIn { .. } => {
                let advice = "ask for the rows by a query, and load rows by bulk ingestion";
                return Err(not_done("COPY is not done over Flight SQL", advice));
            }
            Command::Deallocate(_)
            | Command::Prepare { .. }
            | Command::Execute { .. }
            | Command::Declare { .. }
            | Command::Fetch { .. }
            | Command::Move { .. }
            | Command::Close(_) => {
                let advice = "use prepared statements of Flight SQL, and read results as streams";
                return Err(not_done(
                    "prepared statements and cursors in SQL are not done over Flight SQL",
                    advice,
                ));
            }
        };
        Ok(Asked { text: statement, kind, in_schema: options.in_schema.clone() })
    }

    /// Returns whether the statement returns rows, rather than to change something.
    pub fn returns_rows(&self) -> bool {
        self.kind.returns_rows()
    }
}

/// Returns the status of a request for a transaction.
pub(super) fn no_transactions() -> Status {
    not_done(
        "transactions are not done over Flight SQL",
        "each statement and each ingestion is a transaction of its own; PostgreSQL's protocol has more",
    )
}

/// Refuses a request that belongs to a transaction.
pub(super) fn outside_of_transactions(transaction: Option<&[u8]>) -> std::result::Result<(), Status> {
    match transaction {
        Some(id) if !id.is_empty() => Err(no_transactions()),
        _ => Ok(()),
    }
}

/// Returns the pool of a catalog; without a name, the first.
pub(super) fn pool_of(user: &User, catalog: Option<&str>) -> std::result::Result<Arc<dyn Pool>, Status> {
    let Some(catalog) = catalog.filter(|catalog| !catalog.is_empty()) else {
        return Ok(Arc::clone(user.engine.catalog.pool()));
    };
    user.engine.pool(catalog).ok_or_else(|| {
        let known: Vec<String> = user.engine.pools().into_iter().map(|(name, _)| name).collect();
        let error = Error::not_found(format!("there is no catalog {catalog:?}"));
        status(&error.advise(format!("there are: {}", known.join(", "))))
    })
}

/// Plans a statement.
pub(super) async fn plan(user: &User, asked: &Asked, values: Parameters, running: &Running) -> Result<Query> {
    if names_objects(&asked.text) {
        running.guard(user.engine.catalog.refresh()).await?;
    }
    let session = user.session_in(asked.in_schema.as_deref());
    let statement = Statement::from(asked.text.as_str()).with_parameters(values);
    let query = running.guard(async move { session.sql(statement).await }).await?;
    if query.is_command() && asked.returns_rows() {
        // Such as SELECT … INTO, of which only a name that changes something lets clients know.
        return Err(
            Error::invalid("a change in this form is not done").advise("write CREATE TABLE … AS, or INSERT")
        );
    }
    Ok(query)
}

/// Returns the schema of the rows that a planned statement is told to return.
pub(super) fn told_schema(query: &Query) -> SchemaRef {
    sent_schema(query.schema())
}

/// Runs a planned statement, and returns its rows. One that changes something has ended when this returns.
///
/// # Errors
/// `Stale` if the rows have other columns than those with the fingerprint `expected`.
pub(super) async fn run(
    user: &User,
    asked: &Asked,
    query: Query,
    running: Running,
    expected: Option<u64>,
) -> Result<Sent> {
    let schema = told_schema(&query);
    if expected.is_some_and(|expected| expected != schema_fingerprint(&schema)) {
        return Err(Error::new(ErrorKind::Stale, "the columns of the result are others by now")
            .advise("ask for the statement's result anew"));
    }
    let executed = async move {
        let rows = query.execute().await?;
        match query.is_command() {
            true => {
                let rows: Vec<_> = rows.try_collect().await?;
                Ok(stream::iter(rows.into_iter().map(Ok)).boxed())
            }
            false => Ok(rows),
        }
    };
    let executed = running.guard(executed).await;
    if !asked.returns_rows() {
        user.engine.catalog.forget();
    }
    Ok(Sent { schema, rows: executed?, running: Some(running) })
}
