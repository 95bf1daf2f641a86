//! A node that dies under a gateway, and comes back.

use super::{code, text};
use farpool::gateway::{Door, Gateway, postgres};
use farpool::node::{Node, NodeConfig, native};
use farpool::{Pool, Result, SessionOptions, connect};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// The way to a node over TCP.
#[derive(Debug)]
struct There(String);

#[async_trait::async_trait]
impl Door for There {
    async fn open(&self, token: Option<&str>) -> Result<Arc<dyn Pool>> {
        connect(&self.0, token).await
    }
}

/// A node that can be reached, until it cannot.
struct Reached {
    node: Arc<Node>,
    port: u16,
    serving: JoinHandle<Result<()>>,
}

impl Reached {
    async fn new() -> Self {
        let config = NodeConfig { memory_bytes: 64 << 20, workers: 1, ..NodeConfig::default() };
        let node = Node::start(config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(native::serve(Arc::clone(&node), listener, std::future::pending()));
        Reached { node, port, serving }
    }

    /// Ends all connections, and takes no more.
    async fn goes(&mut self) {
        self.serving.abort();
        drop((&mut self.serving).await);
    }

    async fn comes_back(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.serving = tokio::spawn(native::serve(Arc::clone(&self.node), listener, std::future::pending()));
    }
}

async fn fails(client: &Client, statement: &str) {
    let soon = tokio::time::timeout(Duration::from_secs(20), client.batch_execute(statement));
    let error = soon.await.expect("an answer comes soon").unwrap_err();
    assert_eq!(code(&error), "08006", "{statement}: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_committed_is_gone_with_the_node_and_the_session_goes_on() {
    let mut node = Reached::new().await;
    let door = Arc::new(There(format!("farpool://127.0.0.1:{}", node.port)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = format!("host=127.0.0.1 port={} user=ann", listener.local_addr().unwrap().port());
    tokio::spawn(postgres::serve(
        Gateway::new(door, SessionOptions::default()),
        listener,
        std::future::pending(),
    ));
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client.batch_execute("create table t (a int); insert into t values (1), (2)").await.unwrap();
    for change in [
        "update t set a = a + 10",
        "delete from t where a = 1",
        "delete from t; insert into t values (5)",
        "insert into t values (3)",
        "drop table t",
        "drop table t; create table t (a int); insert into t values (4)",
    ] {
        client.batch_execute(&format!("begin; {change}")).await.unwrap();
        node.goes().await;
        fails(&client, "commit").await;
        fails(&client, "select count(*) from t").await;
        node.comes_back().await;
        assert_eq!(text(&client, "select sum(a) from t").await, "3", "{change}");
    }
    // While rows are being sent.
    let sink = client.copy_in("copy t from stdin").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    futures::SinkExt::send(&mut sink, bytes::Bytes::from("7\n".repeat(200_000))).await.unwrap();
    node.goes().await;
    let ended =
        tokio::time::timeout(Duration::from_secs(20), sink.finish()).await.expect("an answer comes soon");
    assert_eq!(code(&ended.unwrap_err()), "08006");
    node.comes_back().await;
    assert_eq!(text(&client, "select sum(a) from t").await, "3");
}
