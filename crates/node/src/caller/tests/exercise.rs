//! Exercises of each verb of the table of rights: as a Caller, and as a client of the native protocol.

use super::super::*;
use super::tenant;
use crate::clock::SystemClock;
use crate::rights::Reach;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field};
use farpool_model::{Aggregate, AggregateFunction, ErrorKind, LoadMode, Output, SchemaName};
use farpool_transfer::{Execution, Pool, RemotePool};
use futures::TryStreamExt;

/// Number of rows whose result exceeds what is sent to a client that does not read.
pub(super) const MANY: i64 = 400_000;

/// Returns whether a verb is about a table that is named, one of the caller's tenant.
pub(super) fn names_own_table(verb: Verb, reach: Reach) -> bool {
    let names_none = matches!(
        verb,
        Verb::Status
            | Verb::Queries
            | Verb::CancelQuery
            | Verb::LoadOutcome
            | Verb::ReadKeys
            | Verb::WriteKeys
    );
    reach == Reach::Own && !names_none
}

/// Performs a verb on the table `name` as a Caller; an error means that it was refused or nothing was found.
pub(crate) fn exercise(verb: Verb, caller: &Caller, name: &TableName) -> Result<()> {
    match verb {
        Verb::Describe => {
            let listed = caller.tables()?.iter().any(|table| table.name == *name);
            let described = caller.table(name, None);
            assert_eq!(listed, described.is_ok());
            described.map(drop)
        }
        Verb::Statistics => {
            let known = caller.known_statistics(name, &[0]).map(drop);
            assert_eq!(known.is_ok(), caller.statistics(name).is_ok());
            known
        }
        Verb::Prepare => {
            let (version, table) = caller.source(name)?;
            caller.prepare(&count(name), version, table).map(drop)
        }
        Verb::Execute => {
            let (version, table) = caller.source(name)?;
            let program = caller.prepare(&count(name), version, table)?;
            let run = caller.start(&program, None, Shape::Batches)?;
            while !matches!(run.step(&SystemClock::new())?, farpool_pipeline::Step::Done) {}
            assert_eq!(run.receipt().rows_scanned + run.receipt().rows_skipped, 3);
            Ok(())
        }
        Verb::Load => load(caller, name, LoadMode::Append),
        Verb::LoadOutcome => caller.load_outcome(LoadId(1), |_, _| {}),
        Verb::Alter => {
            let field = Arc::new(Field::new("note", DataType::Utf8View, true));
            caller.alter_table(name, &[TableChange::AddColumn(field)]).map(drop)
        }
        Verb::Change => {
            let (version, table) = caller.source(name)?;
            let program = Program::scan(name.clone(), &table.schema, &[0]);
            let program = caller.prepare(&program, version, table)?;
            let run = caller.start_change(&program)?;
            while !matches!(run.step(&SystemClock::new())?, farpool_pipeline::Step::Done) {}
            caller.publish_change(&program, &run, 3, None).map(drop)
        }
        Verb::Drop => caller.drop_table(name)?.wait(),
        Verb::CreateView => {
            let view = View::new(TableName::new("v").unwrap(), "select 1").unwrap();
            caller.create_view(view.clone(), true)?.wait()?;
            let kept = caller.relation(view.name(), None);
            assert_eq!(kept, Ok(Some(Relation::View(view))));
            // The name is taken by a table, which only its own tenant sees.
            let taken = caller.create_view(View::new(name.clone(), "select 1").unwrap(), true);
            assert_eq!(taken.is_err(), caller.table(name, None).is_ok());
            caller.table(name, None).map(drop)
        }
        Verb::DropView => match caller.drop_view(name, None) {
            Err(error) if error.message.contains("is a table") => Ok(()),
            outcome => outcome?.wait(),
        },
        Verb::ChangeSchemas => {
            let schema = SchemaName::new("s").unwrap();
            caller.create_schema(&schema)?.wait()?;
            assert_eq!(caller.create_schema(&schema).unwrap_err().kind, ErrorKind::Exists);
            caller.drop_schema(&schema, false)?.wait()?;
            // A caller with that right finds only its own table.
            caller.table(name, None).map(drop)
        }
        Verb::Status => caller.status().map(|status| {
            let others = status.tenants.iter().any(|t| t.tenant != caller.tenant().as_str());
            assert!(caller.right() == Right::Admin || !others, "others' state is shown to {caller:?}");
        }),
        Verb::DescribeOfAll => {
            let tables = caller.list(Some(&tenant("bob")))?.tables;
            assert!(tables.iter().any(|table| table.name.as_str() == "others"));
            Ok(())
        }
        Verb::DropOfAll => {
            let spare = TableName::new("spare").unwrap();
            load(&caller.node.owner(tenant("bob")), &spare, LoadMode::Create)?;
            let dropped = caller.drop_table_of(&tenant("bob"), &spare);
            // The table is left if the caller may not drop it; it is removed for the next caller.
            let left = caller.node.owner(tenant("bob")).drop_table(&spare);
            assert_eq!(left.is_ok(), dropped.is_err());
            dropped?.wait()
        }
        Verb::Queries => caller.queries().map(drop),
        Verb::CancelQuery => match caller.cancel_query(1) {
            // A caller without a connection has no queries.
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        },
        Verb::Backup => {
            let (sender, receiver) = std::sync::mpsc::channel();
            caller.begin_backup(move |begun| sender.send(begun.map(drop)).unwrap())?;
            match receiver.recv().unwrap() {
                // Nodes of these tests have no data directory.
                Err(error) if error.message.contains("no data directory") => Ok(()),
                outcome => outcome,
            }
        }
        Verb::ReadKeys => caller.keys().map(drop),
        Verb::WriteKeys => {
            assert_eq!(caller.may_write_keys(), caller.check(verb).is_ok());
            caller.check(verb)
        }
        Verb::QueriesOfAll | Verb::CancelQueryOfAll => verb.check(caller.right()),
        Verb::StatusOfAll => {
            verb.check(caller.right())?;
            let status = caller.status()?;
            assert!(["ann", "bob"].iter().all(|name| status.tenants.iter().any(|t| t.tenant == *name)));
            Ok(())
        }
    }
}

/// Performs a verb on the table `table` over a connection; verbs that reach all tenants use bob's table, and his query `query`.
pub(super) async fn exercise_over(verb: Verb, pool: &RemotePool, table: &str, query: u64) -> Result<()> {
    match verb {
        Verb::Describe => pool.table(&name(table)).await.map(drop),
        Verb::Statistics => pool.statistics(&name(table), Some(&[0])).await.map(drop),
        Verb::Prepare => {
            let schema = canonical_schema();
            pool.prepare(&scan(table), &schema).await.map(drop)
        }
        Verb::Execute => {
            let batches = collect(pool.execute(&count(&name(table)), 1).await?).await?;
            assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), MANY);
            Ok(())
        }
        Verb::Load => load_over(pool, table, LoadMode::Append, 1).await,
        Verb::LoadOutcome => pool.load_outcome(LoadId(1)).await.map(drop),
        Verb::Alter => {
            // Renamed to its own name, so that the next caller finds it.
            let change = TableChange::Rename(name(table));
            pool.alter_table(&name(table), &[change]).await.map(drop)
        }
        Verb::Change => {
            // Each row is set to its current values.
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
            // The node of this test has no data directory.
            Err(error) if error.message.contains("no data directory") => Ok(()),
            outcome => outcome.map(drop),
        },
        Verb::CancelQueryOfAll => pool.cancel_query(query).await,
        Verb::ReadKeys | Verb::WriteKeys => unreachable!("of the Redis protocol, see resp.rs"),
    }
}

/// Checks a verb that omits other tenants' data instead of being refused.
fn shown(is_shown: bool) -> Result<()> {
    if is_shown { Ok(()) } else { Err(Error::new(ErrorKind::Denied, "not shown")) }
}

/// Returns a program that stays in progress, since its rows are not read.
pub(super) async fn stuck(pool: &dyn Pool, table: &str) -> Result<Execution> {
    pool.execute(&scan(table), 1).await
}

fn count(name: &TableName) -> Program {
    let count = Aggregate {
        name: "n".into(),
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        filter: None,
        data_type: DataType::Int64,
    };
    let output = Output::Aggregate { keys: Vec::new(), aggregates: vec![count] };
    Program {
        table: name.clone(),
        version: None,
        lookups: Vec::new(),
        filter: None,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

pub(crate) fn load(caller: &Caller, name: &TableName, mode: LoadMode) -> Result<()> {
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let rows = RecordBatch::try_from_iter([("a", rows)]).unwrap();
    let mut load = caller.begin_load(name, &rows.schema(), mode.into(), None)?;
    load.push(&rows)?;
    load.commit().map(drop)
}

/// Returns rows that do not compress.
fn rows(count: i64) -> RecordBatch {
    let noise = |id: i64| id.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64) ^ (id << 17);
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..count).map(noise)));
    RecordBatch::try_from_iter(["a", "b", "c", "d", "e", "f"].map(|name| (name, values.clone()))).unwrap()
}

pub(super) async fn load_over(pool: &dyn Pool, table: &str, mode: LoadMode, count: i64) -> Result<()> {
    let (rows, most) = (rows(count), 50_000);
    let batches = (0..rows.num_rows()).step_by(most);
    let batches = batches.map(|start| Ok(rows.slice(start, most.min(rows.num_rows() - start))));
    let batches = Box::pin(futures::stream::iter(batches.collect::<Vec<_>>()));
    pool.load(&name(table), mode.into(), rows.schema(), None, batches).await.map(drop)
}

fn scan(table: &str) -> Program {
    Program::scan(name(table), &rows(0).schema(), &[0, 1, 2, 3, 4, 5])
}

fn canonical_schema() -> SchemaRef {
    farpool_model::schema::canonical_schema(&rows(0).schema()).unwrap()
}

async fn collect(mut execution: Execution) -> Result<Vec<RecordBatch>> {
    execution.streams.remove(0).try_collect().await
}

pub(super) fn name(name: &str) -> TableName {
    TableName::new(name).unwrap()
}
