//! Formats the results of the suite `doors` as tables.

use super::measure::{QueryResult, Results, SideName};
use super::sides::Server;
use super::small::SmallResult;
use crate::suite::{self, Table};
use crate::text;

/// Returns the whole report.
pub fn text(results: &Results) -> String {
    let about = format!(
        "{} rows · median of {} runs, {} of the fetch · {} threads a side",
        results.rows, results.runs, results.fetch_runs, results.threads
    );
    let settings: Vec<String> =
        results.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let head = format!(
        "{}{}\n{}PostgreSQL: {}\n\
         Milliseconds of each client from sending a statement to its last row. \"PostgreSQL/farpool\" is the time with\n\
         PostgreSQL as the server by that with farpool, through the same client; \"/native\" the time by that of farpool's\n\
         own client.\n{}",
        results.head.text(about),
        results.postgres.text(),
        suite::list(&results.rivals),
        settings.join(", "),
        text::lines(&results.notes)
    );
    let queries = text::section(&results.queries, |queries| times(results, queries));
    let small = text::section(&results.small, |small| format!("small statements\n{}", statements(small)));
    let goals = (!results.goals.is_empty()).then(|| results.goals.table());
    text::report(&head, [queries, small, goals])
}

/// Formats the times of all queries, a table for each client.
fn times(results: &Results, queries: &[QueryResult]) -> String {
    let mut clients: Vec<&str> = results.sides.iter().map(|side| side.client.as_str()).collect();
    clients.dedup();
    let native = 0;
    let ms = |query: &QueryResult, side: usize| Some(query.sides[side].as_ref()?.median_ms);
    let tables = clients.iter().map(|client| {
        let of = |server: Server| {
            let is_side = |side: &SideName| side.client == *client && side.server == server;
            results.sides.iter().position(is_side)
        };
        let ran = queries.iter().filter(|query| {
            results
                .sides
                .iter()
                .zip(&query.sides)
                .any(|(side, times)| side.client == *client && times.is_some())
        });
        let mut table =
            Table::of(ran).column(*client, |query| &query.name).column("rows", |query| query.rows);
        for server in [Server::Postgres, Server::Farpool, Server::Duckdb] {
            let Some(side) = of(server) else { continue };
            table = table.number(format!("{} ms", server.name()), 2, |query| ms(query, side));
            if side != native {
                table = table.ratio("/native", 2, |query| Some(ms(query, side)? / ms(query, native)?));
            }
        }
        if let Some((postgres, farpool)) = of(Server::Postgres).zip(of(Server::Farpool)) {
            table = table
                .ratio("PostgreSQL/farpool", 2, |query| Some(ms(query, postgres)? / ms(query, farpool)?));
        }
        table.to_string()
    });
    tables.collect::<Vec<_>>().join("\n\n")
}

fn statements(small: &[SmallResult]) -> String {
    let table = Table::of(small)
        .column("client", |result| &result.client)
        .column("server", |result| result.server.name())
        .column("clients", |result| result.clients)
        .number("statements/s", 0, |result| result.per_second)
        .number("median ms", 3, |result| result.p50_ms)
        .number("p99 ms", 3, |result| result.p99_ms)
        .number("mean ms", 3, |result| result.mean_ms)
        .ratio("farpool/PostgreSQL", 3, |result| {
            let other = small.iter().find(|other| {
                (other.client == result.client)
                    && other.clients == result.clients
                    && other.server == Server::Postgres
            });
            other
                .filter(|_| result.server == Server::Farpool)
                .map(|other| result.per_second / other.per_second)
        });
    table.to_string()
}
