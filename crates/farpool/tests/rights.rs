//! Tests of rights in the embedded pool: one that was opened with a token refuses what the node refuses the same client
//! over TCP, in the same words. At the doors of other protocols, statements are refused alike.

use crate::support::gateway::Here;
use crate::versions::load;
use arrow::array::{Int64Array, RecordBatch};
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use farpool::gateway::{Gateway, flight, postgres};
use farpool::model::{SchemaName, TableChange, View};
use farpool::node::{Access, Node, NodeConfig, Right, native};
use farpool::{
    EmbeddedPool, Error, ErrorKind, LoadMode, Pool, Program, Result, SessionOptions, TableName, TenantName,
    connect,
};
use futures::StreamExt;
use std::sync::Arc;
use tonic::Code;
use tonic::transport::Endpoint;

fn name(name: &str) -> TableName {
    TableName::new(name).unwrap()
}

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

fn rows() -> RecordBatch {
    let id = Arc::new(Int64Array::from_iter_values(0..3));
    RecordBatch::try_from_iter_with_nullable([("id", id as _, true)]).unwrap()
}

/// The requests whose result depends on the rights of the client's token.
const REQUESTS: [&str; 15] = [
    "describe",
    "read",
    "load",
    "change",
    "alter",
    "drop",
    "create view",
    "drop view",
    "create schema",
    "drop schema",
    "list another's",
    "drop another's",
    "status of all",
    "cancel",
    "queries",
];

/// Makes a request of a pool. Returns `Denied` also if the answer omits what belongs to other tenants.
async fn ask(pool: &dyn Pool, request: &str) -> Result<()> {
    let schema = rows().schema();
    let scan = Program::scan(name("t"), &schema, &[0]);
    match request {
        "describe" => pool.table(&name("t")).await.map(drop),
        "read" => {
            let handle = pool.prepare(&scan, &schema).await?;
            let mut execution = pool.execute_prepared(&handle, None, 1).await?;
            let rows = execution.streams.remove(0).map(|batch| batch.map(|batch| batch.num_rows()));
            let rows: Vec<usize> = rows.collect::<Vec<_>>().await.into_iter().collect::<Result<_>>()?;
            assert_eq!(rows.into_iter().sum::<usize>(), 3);
            Ok(())
        }
        "load" => {
            let batches = futures::stream::iter([Ok(rows())]).boxed();
            pool.load(&name("t"), LoadMode::Append.into(), schema, None, batches).await.map(drop)
        }
        "change" => {
            let handle = pool.prepare(&scan, &schema).await?;
            pool.change_rows(&handle, 3).await.map(drop)
        }
        "alter" => pool.alter_table(&name("t"), &[TableChange::Rename(name("t"))]).await.map(drop),
        "drop" => pool.drop_table(&name("t")).await,
        "create view" => pool.create_view(&View::new(name("v"), "select 1")?, true).await,
        "drop view" => pool.drop_view(&name("v"), None).await,
        "create schema" => pool.create_schema(&SchemaName::new("new")?).await,
        "drop schema" => pool.drop_schema(&SchemaName::new("old")?, true).await,
        "list another's" => pool.list(Some(&tenant("bob"))).await.map(drop),
        "drop another's" => pool.drop_table_of(&tenant("bob"), &name("t")).await,
        "status of all" => {
            let tenants = pool.status().await?.tenants;
            match tenants.iter().any(|of| of.tenant == "bob") {
                true => Ok(()),
                false => Err(Error::new(ErrorKind::Denied, "left out")),
            }
        }
        "cancel" => pool.cancel_query(1 << 40).await,
        "queries" => pool.queries().await.map(drop),
        other => unreachable!("{other}"),
    }
}

/// Creates a table for each of the two tenants, a view for ann, and the schema that a request is about to drop.
async fn furnish(node: &Arc<Node>) {
    for owner in ["ann", "bob"] {
        let pool = EmbeddedPool::over(node.clone(), tenant(owner));
        load(&*pool, LoadMode::Replace, rows()).await;
    }
    let anns = EmbeddedPool::over(node.clone(), tenant("ann"));
    anns.create_view(&View::new(name("v"), "select 1").unwrap(), true).await.unwrap();
    drop(anns.create_schema(&SchemaName::new("old").unwrap()).await);
    drop(anns.drop_schema(&SchemaName::new("new").unwrap(), true).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_may_do_the_same_in_this_process_as_over_tcp() {
    let tokens = |access: Access, right: Right| access.with_token(right.name(), tenant("ann"), right);
    let access = Right::ALL.into_iter().fold(Access::of_nobody(), tokens);
    let config = NodeConfig { memory_bytes: 256 << 20, workers: 2, access, ..NodeConfig::default() };
    let node = Node::start(config).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("farpool://{}", listener.local_addr().unwrap());
    tokio::spawn(native::serve(node.clone(), listener, std::future::pending()));
    let mut denied = Vec::new();
    for right in Right::ALL {
        let embedded = EmbeddedPool::for_token(node.clone(), Some(right.name())).unwrap();
        let remote = connect(&url, Some(right.name())).await.unwrap();
        for request in REQUESTS {
            furnish(&node).await;
            let over_tcp = ask(&*remote, request).await;
            furnish(&node).await;
            assert_eq!(ask(&*embedded, request).await, over_tcp, "{request} with {right:?}");
            denied.extend(over_tcp.is_err_and(|e| e.kind == ErrorKind::Denied).then_some((right, request)));
        }
    }
    assert_eq!(denied.iter().filter(|(right, _)| *right == Right::Read).count(), 11);
    assert_eq!(denied.iter().filter(|(right, _)| *right == Right::Write).count(), 3);
    assert!(denied.contains(&(Right::Read, "drop")));
}

/// The statements of the requests that a statement can make.
const STATEMENTS: [(&str, &str); 10] = [
    ("describe", "select * from t limit 0"),
    ("read", "select sum(id) from t"),
    ("load", "insert into t values (7)"),
    ("change", "update t set id = id + 1 where id > 0"),
    ("alter", "alter table t rename to t"),
    ("drop", "drop table t"),
    ("create view", "create or replace view v as select id from t"),
    ("drop view", "drop view v"),
    ("create schema", "create schema new"),
    ("drop schema", "drop schema old"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_may_do_the_same_at_the_doors_of_other_protocols() {
    let tokens = |access: Access, right: Right| access.with_token(right.name(), tenant("ann"), right);
    let access = Right::ALL.into_iter().fold(Access::of_nobody(), tokens);
    let config = NodeConfig { memory_bytes: 256 << 20, workers: 2, access, ..NodeConfig::default() };
    let node = Node::start(config).unwrap();
    let listen = async || {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        (listener.local_addr().unwrap().port(), listener)
    };
    let ((port_postgres, of_postgres), (port_flight, of_flight)) = (listen().await, listen().await);
    let gateway = Gateway::new(Arc::new(Here(node.clone())), SessionOptions::default());
    tokio::spawn(postgres::serve(gateway.clone(), of_postgres, std::future::pending()));
    tokio::spawn(flight::serve(gateway, of_flight, std::future::pending()));
    furnish(&node).await;
    let bobs = EmbeddedPool::over(node.clone(), tenant("bob"));
    bobs.create_view(&View::new(name("only_bobs"), "select 1").unwrap(), true).await.unwrap();
    let mut denied = 0;
    for right in Right::ALL {
        let embedded = EmbeddedPool::for_token(node.clone(), Some(right.name())).unwrap();
        let settings = format!("host=127.0.0.1 port={port_postgres} user=ann password={}", right.name());
        let (sql, connection) = tokio_postgres::connect(&settings, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port_flight}")).unwrap();
        let mut arrow = FlightSqlServiceClient::new(endpoint.connect().await.unwrap());
        arrow.set_token(right.name().to_string());
        for (request, statement) in STATEMENTS {
            furnish(&node).await;
            let is_denied = ask(&*embedded, request).await.is_err_and(|e| e.kind == ErrorKind::Denied);
            furnish(&node).await;
            let outcome = sql.batch_execute(statement).await;
            let code = outcome.err().map(|error| error.code().unwrap().code().to_string());
            assert_eq!(code, is_denied.then(|| "42501".to_string()), "{request} with {right:?}");
            furnish(&node).await;
            let outcome = match statement.starts_with("select") {
                true => arrow.execute(statement.to_string(), None).await.map(drop),
                false => arrow.execute_update(statement.to_string(), None).await.map(drop),
            };
            let code = match outcome {
                Ok(()) => None,
                Err(FlightError::Tonic(status)) => Some(status.code()),
                Err(other) => panic!("{request} with {right:?}: {other}"),
            };
            assert_eq!(code, is_denied.then_some(Code::PermissionDenied), "{request} with {right:?}");
            denied += usize::from(is_denied);
        }
        // Another tenant's is not there.
        let error = sql.batch_execute("select * from only_bobs").await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42P01");
        let rows = sql.query("select 1 from pg_class where relname = 'only_bobs'", &[]).await.unwrap();
        assert!(rows.is_empty());
        assert!(arrow.execute("select * from only_bobs".into(), None).await.is_err());
    }
    assert_eq!(denied, 8, "what a reader may not do");
}

#[tokio::test]
async fn a_pool_is_not_opened_with_a_token_that_the_node_does_not_know() {
    let access = Access::of_nobody().with_token("known", tenant("ann"), Right::Read);
    let node = Node::start(NodeConfig { memory_bytes: 64 << 20, access, ..NodeConfig::default() }).unwrap();
    for token in [None, Some("unknown")] {
        let refused = EmbeddedPool::for_token(node.clone(), token).map(drop);
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Denied);
    }
    let pool = EmbeddedPool::for_token(node, Some("known")).unwrap();
    let error = pool.drop_table(&name("t")).await.unwrap_err();
    assert_eq!(error.message, "this takes the right to write, and the token is for read");
}

/// The embedded pool must implement every method of the trait `Pool`: the trait's defaults pass the call to a pool
/// behind this one, and there is none.
#[test]
fn the_embedded_pool_has_every_method_of_a_pool() {
    let (pool, embedded) = (include_str!("../../transfer/src/pool.rs"), include_str!("../src/embedded.rs"));
    let methods = pool.split("async fn ").skip(1).filter_map(|rest| rest.split('(').next());
    // The method `tables` is implemented by another one.
    let missing =
        methods.filter(|method| *method != "tables" && !embedded.contains(&format!("async fn {method}(")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}
