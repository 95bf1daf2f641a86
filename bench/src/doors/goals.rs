//! Compares the results of the suite `doors` with its goals. A missed goal is reported and does not fail the run.

use super::definition::Goals;
use super::measure::Results;
use super::sides::Server;
use crate::suite;

/// Returns the goals of the fetch, if it ran.
pub fn of(results: &Results, goals: &Goals) -> suite::Goals {
    let mut checked = suite::Goals::default();
    if !results.queries.iter().any(|query| query.is_fetch) {
        return checked;
    }
    let faster = |(client, server), (rival, rival_server)| {
        Some(results.fetch_ms(rival, rival_server)? / results.fetch_ms(client, server)?)
    };
    let flight = faster(("ADBC Flight SQL", Server::Farpool), ("DuckDB behind Flight", Server::Duckdb));
    let what = "fetch by Flight SQL (ADBC): times faster than DuckDB behind Flight".to_string();
    checked.at_least(what, goals.flight_of_duckdb_flight, flight);
    let copy = faster(("psycopg COPY", Server::Farpool), ("psycopg COPY", Server::Postgres));
    let what = "fetch by PostgreSQL's binary COPY: times faster than PostgreSQL".to_string();
    checked.at_least(what, goals.copy_of_postgres_copy, copy);
    checked
}
