//! Tests every verb of the table of rights with clients over TCP and over TLS: clients without the right are refused,
//! and no client reaches another tenant's data, except by the verbs for administrators of all tenants.

use crate::common::*;
use farpool_model::{
    Error, ErrorKind, LoadId, LoadMode, Relation, Result, ResultForm, SchemaName, TableChange, View,
};
use farpool_node::{Reach, Right, VERBS, Verb};
use farpool_transfer::{Execution, Pool, RemotePool};
use std::sync::Arc;

/// Number of rows of a table whose plain result is larger than the socket buffers and the credit of a client together,
/// so that its program cannot end while the client does not read.
const MANY: i64 = 400_000;

/// Performs a verb (a request that needs a right) on the table `table`. Verbs that reach all tenants use bob's table,
/// and his query with the id `query`.
async fn exercise(verb: Verb, pool: &RemotePool, table: &str, query: u64) -> Result<()> {
    match verb {
        Verb::Describe => pool.table(&name(table)).await.map(drop),
        Verb::Statistics => pool.statistics(&name(table), Some(&[0])).await.map(drop),
        Verb::Prepare => {
            let schema = canonical_schema();
            pool.prepare(&scan(table), &schema).await.map(drop)
        }
        Verb::Execute => counted(pool, table, 3).await.map(|(rows, _)| assert_eq!(rows, 3)),
        Verb::Load => load(pool, table, LoadMode::Append, 1).await.map(drop),
        Verb::LoadOutcome => pool.load_outcome(LoadId(1)).await.map(drop),
        Verb::Alter => {
            // The table is renamed to the name that it has, so that the next caller finds it.
            let change = TableChange::Rename(name(table));
            pool.alter_table(&name(table), &[change]).await.map(drop)
        }
        Verb::Change => {
            // The change sets each row to its current values, so that the next caller finds the same rows.
            let schema = canonical_schema();
            let rows = pool.table(&name(table)).await?.rows;
            let handle = pool.prepare(&scan(table), &schema).await?;
            pool.change_rows(&handle, rows).await.map(drop)
        }
        Verb::Drop => pool.drop_table(&name(table)).await,
        Verb::CreateView => {
            let view = View::new(name("view"), format!("select count(*) from {table}"))?;
            pool.create_view(&view, true).await?;
            assert_eq!(pool.relation(view.name()).await, Ok(Relation::View(view)));
            assert_eq!(pool.list(None).await?.views, [name("view")]);
            // Names of another tenant's tables are not known, so there the name is free.
            match pool.create_view(&View::new(name(table), "select 1")?, true).await {
                Err(error) if error.kind == ErrorKind::Exists => Ok(()),
                Ok(()) => {
                    pool.drop_view(&name(table), None).await?;
                    Err(Error::not_found("no such table"))
                }
                other => other,
            }
        }
        Verb::DropView => {
            let table = name(table);
            let view = View::new(name("view"), "select 1")?;
            // A caller that may not create a view has another caller create it first.
            match pool.drop_view(&table, None).await {
                Err(error) if error.message.contains("is a table") => {
                    pool.create_view(&view, true).await?;
                    pool.drop_view(view.name(), None).await
                }
                outcome => outcome,
            }
        }
        Verb::ChangeSchemas => {
            let schema = SchemaName::new("staging")?;
            pool.create_schema(&schema).await?;
            assert_eq!(pool.list(None).await?.schemas, vec![schema.clone()]);
            pool.drop_schema(&schema, false).await?;
            // A caller with that right finds only its own tables.
            pool.table(&name(table)).await.map(drop)
        }
        Verb::Status => pool.status().await.map(drop),
        Verb::StatusOfAll => {
            let status = pool.status().await?;
            shown(status.tenants.iter().any(|t| t.tenant == "bob"))
        }
        Verb::DescribeOfAll => pool.list(Some(&tenant("bob"))).await.map(drop),
        Verb::DropOfAll => pool.drop_table_of(&tenant("bob"), &name("spare")).await,
        Verb::Queries => pool.queries().await.map(drop),
        Verb::QueriesOfAll => shown(pool.queries().await?.iter().any(|q| q.tenant == "bob")),
        Verb::CancelQuery => {
            let own = stuck(pool, table).await?;
            let listed = pool.queries().await?;
            let own_query = listed.iter().find(|q| q.tenant == "ann").expect("it runs");
            pool.cancel_query(own_query.id).await?;
            assert_eq!(collect(own).await.unwrap_err().kind, ErrorKind::Cancelled);
            Ok(())
        }
        Verb::Backup => match pool.begin_backup().await {
            // The node of this test has no data directory, so this error means that the right sufficed.
            Err(error) if error.message.contains("no data directory") => Ok(()),
            outcome => outcome.map(drop),
        },
        Verb::CancelQueryOfAll => pool.cancel_query(query).await,
        Verb::ReadKeys | Verb::WriteKeys => unreachable!("of the Redis protocol, see resp.rs"),
    }
}

/// Returns an error of kind `Denied` if other tenants' data were not shown. For verbs that omit these data, instead of
/// being refused, if the right does not suffice.
fn shown(is_shown: bool) -> Result<()> {
    if is_shown { Ok(()) } else { Err(Error::new(ErrorKind::Denied, "not shown")) }
}

/// Starts a scan of `table` that stays in progress as long as the caller does not read its rows.
async fn stuck(pool: &dyn Pool, table: &str) -> Result<Execution> {
    pool.execute(&scan(table), 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_takes_its_right_over_tcp() {
    walk(Server::with(256 << 20, access()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_takes_its_right_over_tls() {
    walk(Server::with(256 << 20, access()).await.encrypted()).await;
}

/// Returns the access tokens: one of tenant bob, and one of tenant ann for each right.
fn access() -> Access {
    let mut access = tokens(&[("bobs", "bob")]);
    for right in Right::ALL {
        access = access.with_token(right.name(), tenant("ann"), right);
    }
    access
}

async fn walk(server: Server) {
    // Plain, because a packed result is so small that it would be sent as a whole, and the program would end.
    let bob = Arc::new(server.connect_as("bobs").await.unwrap().with_results(ResultForm::Plain));
    load(&*bob, "large", LoadMode::Create, MANY).await.unwrap();
    let writer = server.connect_as("write").await.unwrap();
    let of_keys = [Verb::ReadKeys, Verb::WriteKeys];
    for (verb, least, reach) in VERBS.into_iter().filter(|(verb, ..)| !of_keys.contains(verb)) {
        for right in Right::ALL {
            let what = format!("{verb:?} with {right:?}");
            if writer.table(&name("own")).await.map_or(true, |own| own.rows != MANY as u64) {
                load(&writer, "own", LoadMode::Replace, MANY).await.unwrap();
            }
            load(&*bob, "others", LoadMode::Replace, 10).await.unwrap();
            load(&*bob, "spare", LoadMode::Replace, 10).await.unwrap();
            let running = stuck(&*bob, "large").await.unwrap();
            let query = bob.queries().await.unwrap()[0].id;
            let pool = server.connect_as(right.name()).await.unwrap().with_results(ResultForm::Plain);
            let done = exercise(verb, &pool, "own", query).await;
            match (right >= least, verb) {
                (true, _) => assert_eq!(done, Ok(()), "{what}"),
                // `NotFound` rather than `Denied`, because other tenants must not learn that there is such a query.
                (false, Verb::CancelQueryOfAll) => {
                    assert_eq!(done.unwrap_err().kind, ErrorKind::NotFound, "{what}");
                }
                (false, _) => assert_eq!(done.unwrap_err().kind, ErrorKind::Denied, "{what}"),
            }
            let names_a_table =
                !matches!(verb, Verb::Status | Verb::Queries | Verb::CancelQuery | Verb::LoadOutcome)
                    && reach == Reach::Own;
            if names_a_table && right >= least {
                let error = exercise(verb, &pool, "others", query).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::NotFound, "{what}");
            }
            // No table of another tenant may be dropped, except by the verb that drops tables of all tenants.
            let left = bob.tables().await.unwrap().len();
            assert_eq!(left, if verb == Verb::DropOfAll && right >= least { 2 } else { 3 }, "{what}");
            let still_runs = bob.queries().await.unwrap().iter().any(|q| q.id == query);
            assert_eq!(still_runs, !(verb == Verb::CancelQueryOfAll && right >= least), "{what}");
            drop(running);
            while !bob.queries().await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }
}
