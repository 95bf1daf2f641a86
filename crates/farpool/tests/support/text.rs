//! Results as text, for tests that compare a few of them.

use arrow::util::pretty::pretty_format_batches;
use farpool::{Error, Session};

/// The rows that a statement gives, as lines of text.
pub async fn rows(session: &Session, sql: &str) -> Result<String, Error> {
    let query = session.sql(sql).await?;
    let batches = query.collect().await?;
    Ok(pretty_format_batches(&batches).unwrap().to_string())
}

/// The rows of a statement that has to succeed.
pub async fn run(session: &Session, sql: &str) -> String {
    rows(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}
