//! Results as text, for tests that compare small results.

use arrow::util::pretty::pretty_format_batches;
use farpool::{Error, Session};

/// Runs a statement and returns its rows as lines of text.
pub async fn rows(session: &Session, sql: &str) -> Result<String, Error> {
    let query = session.sql(sql).await?;
    let batches = query.collect().await?;
    Ok(pretty_format_batches(&batches).unwrap().to_string())
}

/// Runs a statement that must succeed and returns its rows.
pub async fn run(session: &Session, sql: &str) -> String {
    rows(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}
