//! Many clients at once at both doors of one gateway: writers beside readers, clients that vanish, and guesses of a
//! password.

use crate::support::gateway::Here;
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use farpool::gateway::{Gateway, flight, postgres};
use farpool::node::access::TokenDigest;
use farpool::node::access::scram::Verifier;
use farpool::node::{Access, Node, NodeConfig};
use farpool::{EmbeddedPool, Pool, SessionOptions, TenantName, WorkMemory};
use futures::{SinkExt, StreamExt, TryStreamExt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls};
use tonic::transport::{Channel, Endpoint};

type FlightClient = FlightSqlServiceClient<Channel>;

struct Server {
    postgres: SocketAddr,
    flight: SocketAddr,
    pool: Arc<EmbeddedPool>,
    work: Arc<WorkMemory>,
}

async fn serve(access: Access) -> Server {
    let node = Node::start(NodeConfig { memory_bytes: 256 << 20, access, ..NodeConfig::default() }).unwrap();
    node.allow_tickets([5; 32]);
    let pool = EmbeddedPool::over(Arc::clone(&node), TenantName::default());
    let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (of_postgres, of_flight) = (listen().await, listen().await);
    let work = WorkMemory::new(256 << 20);
    let options = SessionOptions { work: Some(Arc::clone(&work)), ..SessionOptions::default() };
    let gateway = Gateway::new(Arc::new(Here(node)), options);
    let (postgres, flight) = (of_postgres.local_addr().unwrap(), of_flight.local_addr().unwrap());
    tokio::spawn(postgres::serve(Arc::clone(&gateway), of_postgres, std::future::pending()));
    tokio::spawn(flight::serve(gateway, of_flight, std::future::pending()));
    Server { postgres, flight, pool, work }
}

impl Server {
    async fn postgres(&self, user: &str, password: &str) -> Result<Client, tokio_postgres::Error> {
        let port = self.postgres.port();
        let settings = format!("host=127.0.0.1 port={port} user={user} password='{password}' dbname=farpool");
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    async fn flight(&self) -> FlightClient {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.flight)).unwrap();
        FlightClient::new(endpoint.connect().await.unwrap())
    }

    /// Waits until no statement runs any more, and no memory is held.
    async fn at_rest(&self) {
        let soon = async {
            while !self.pool.queries().await.unwrap().is_empty() || self.work.usage().bytes_used > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), soon).await.expect("nothing runs soon");
    }
}

/// The balance sheet: each change adds rows whose values cancel each other out.
const LEDGER: &str = "create table ledger (writer bigint, amount bigint)";

fn entries(writer: i64) -> RecordBatch {
    let column = |values: [i64; 4]| Arc::new(Int64Array::from_iter_values(values)) as ArrayRef;
    let columns = [("writer", column([writer; 4])), ("amount", column([5, -5, writer, -writer]))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).unwrap()
}

fn appended() -> CommandStatementIngest {
    CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_exists: TableExistsOption::Append.into(),
            if_not_exist: TableNotExistOption::Fail.into(),
        }),
        table: "ledger".into(),
        ..CommandStatementIngest::default()
    }
}

/// Returns the number of rows and the sum of their values.
async fn balance(client: &mut FlightClient) -> (i64, i64) {
    let sql = "select count(*) as n, coalesce(sum(amount), 0) as total from ledger";
    let info = client.execute(sql.into(), None).await.unwrap();
    let rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    let batch = rows.try_collect::<Vec<_>>().await.unwrap().remove(0);
    let value = |column: usize| batch.column(column).as_primitive::<Int64Type>().value(0);
    (value(0), value(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_whole_changes_of_many_writers_at_both_doors() {
    const WRITERS: i64 = 8;
    const CHANGES: i64 = 60;
    let server = serve(Access::of_everybody()).await;
    server.postgres("ann", "").await.unwrap().batch_execute(LEDGER).await.unwrap();
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (sql, mut arrow) = (server.postgres("ann", "").await.unwrap(), server.flight().await);
        writers.push(tokio::spawn(async move {
            for _ in 0..CHANGES {
                match writer % 2 {
                    0 => {
                        let rows = format!("({writer}, 5), ({writer}, -5), ({writer}, 7), ({writer}, -7)");
                        sql.batch_execute(&format!("insert into ledger values {rows}")).await.unwrap();
                    }
                    _ => {
                        let rows = futures::stream::iter([Ok(entries(writer))]);
                        assert_eq!(arrow.execute_ingest(appended(), rows).await.unwrap(), 4);
                    }
                }
            }
        }));
    }
    let (sql, mut arrow) = (server.postgres("ann", "").await.unwrap(), server.flight().await);
    let mut seen = 0;
    while writers.iter().any(|writer| !writer.is_finished()) {
        let (count, total) = balance(&mut arrow).await;
        assert!(count >= seen && count % 4 == 0 && total == 0, "{count} rows, {total}, after {seen}");
        let row = sql.query_one("select count(*), sum(amount)::bigint from ledger", &[]).await.unwrap();
        assert!(row.get::<_, i64>(0) >= count && row.get::<_, Option<i64>>(1).unwrap_or(0) == 0);
        seen = row.get(0);
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(balance(&mut arrow).await, (WRITERS * CHANGES * 4, 0));
    server.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_of_clients_that_vanish_leave_nothing() {
    let server = serve(Access::of_everybody()).await;
    server.postgres("ann", "").await.unwrap().batch_execute(LEDGER).await.unwrap();
    let mut uploads = Vec::new();
    for writer in 0..20_i64 {
        let (sql, mut arrow) = (server.postgres("ann", "").await.unwrap(), server.flight().await);
        uploads.push(tokio::spawn(async move {
            match writer % 2 {
                0 => {
                    let copy = sql.copy_in::<_, bytes::Bytes>("copy ledger from stdin").await.unwrap();
                    let mut copy = Box::pin(copy);
                    for _ in 0..100 {
                        copy.send(bytes::Bytes::from("1\t5\n".repeat(1000))).await.unwrap();
                    }
                    std::future::pending::<()>().await;
                }
                _ => {
                    let sent = futures::stream::iter((0..50).map(move |_| Ok(entries(writer))));
                    let rows = sent.chain(futures::stream::pending());
                    drop(arrow.execute_ingest(appended(), rows).await);
                }
            }
        }));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    for upload in &uploads {
        upload.abort();
    }
    for upload in uploads {
        assert!(upload.await.unwrap_err().is_cancelled());
    }
    server.at_rest().await;
    assert_eq!(balance(&mut server.flight().await).await, (0, 0));
    server.postgres("ann", "").await.unwrap().batch_execute("drop table ledger").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_of_a_password_keep_nobody_out() {
    let (digest, verifier) = (TokenDigest::of("right"), Verifier::of("right", [3; 16]).unwrap());
    let token = format!("name = \"ann\"\nsha256 = \"{digest}\"\nscram = \"{verifier}\"\n");
    let file = format!("[tenant.default]\n[[token]]\ntenant = \"default\"\nrole = \"write\"\n{token}");
    let server = Arc::new(serve(Access::parse(&file).unwrap()).await);
    let mut guesses = Vec::new();
    for guess in 0..200 {
        let server = Arc::clone(&server);
        guesses.push(tokio::spawn(async move {
            let user = if guess % 2 == 0 { "ann" } else { "eve" };
            let start = Instant::now();
            let error = server.postgres(user, &format!("guess {guess}")).await.map(drop).unwrap_err();
            assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("28P01"), "{error}");
            start.elapsed()
        }));
    }
    let start = Instant::now();
    for _ in 0..5 {
        let client = server.postgres("ann", "right").await.unwrap();
        assert_eq!(client.query_one("select 1::bigint", &[]).await.unwrap().get::<_, i64>(0), 1);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    for guess in guesses {
        assert!(guess.await.unwrap() >= Duration::from_millis(400), "a wrong password is answered late");
    }
    server.at_rest().await;
}
