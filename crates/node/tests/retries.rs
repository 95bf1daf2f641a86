//! Tests of loads whose connection breaks before the answer: the client asks for the outcome by the load's id on
//! another connection, and no rows are loaded twice.

use crate::common::*;
use farpool_model::{
    ErrorKind, LoadId, LoadMode, LoadOutcome, Result, TableInfo, TableName, TenantName, Version, limits,
};
use farpool_transfer::{ClientOptions, Pool, RemotePool};
use farpool_wire::{FrameKind, Request, Response};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A proxy between clients and a node, which can lose bytes and break connections.
struct Between {
    address: SocketAddr,
    node: Mutex<SocketAddr>,
    /// For the connections open now: whether bytes to the node are dropped, and whether bytes to the clients are.
    loses: Mutex<Arc<[AtomicBool; 2]>>,
    lost: AtomicUsize,
    breaks: Notify,
}

impl Between {
    async fn start(server: &Server) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let between = Arc::new(Between {
            address: listener.local_addr().unwrap(),
            node: Mutex::new(server.address),
            loses: Mutex::default(),
            lost: AtomicUsize::new(0),
            breaks: Notify::new(),
        });
        let accepting = between.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let between = accepting.clone();
                tokio::spawn(async move { between.connect(client).await });
            }
        });
        between
    }

    async fn connect(&self, client: TcpStream) {
        let (node, loses) = (*self.node.lock(), self.loses.lock().clone());
        let (from_client, to_client) = client.into_split();
        let (from_node, to_node) = TcpStream::connect(node).await.unwrap().into_split();
        tokio::select! {
            () = self.breaks.notified() => {}
            () = self.pass(&loses[0], from_client, to_node) => {}
            () = self.pass(&loses[1], from_node, to_client) => {}
        }
    }

    async fn pass(&self, loses: &AtomicBool, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let Ok(count) = from.read(&mut bytes).await else { return };
            if loses.load(SeqCst) {
                self.lost.fetch_add(count, SeqCst);
            } else if count == 0 || to.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }

    fn lose_rows(&self) {
        self.loses.lock()[0].store(true, SeqCst);
    }

    fn lose_answers(&self) {
        self.loses.lock()[1].store(true, SeqCst);
    }

    /// Breaks all connections; new ones work again.
    fn break_off(&self) {
        *self.loses.lock() = Arc::default();
        self.breaks.notify_waiters();
    }

    async fn client(&self) -> Arc<RemotePool> {
        let url = self.address.to_string().parse().unwrap();
        Arc::new(RemotePool::connect(&url, ClientOptions::default()).await.unwrap())
    }
}

fn table(server: &Server, name: &TableName) -> Option<TableInfo> {
    server.node.owner(TenantName::default()).table(name, None).ok().flatten()
}

fn newest(server: &Server) -> Option<(Version, u64)> {
    table(server, &name("t")).map(|info| (info.version, info.rows))
}

/// Starts a load of `rows` rows into the table `t` in a task of its own.
fn begin(pool: &Arc<RemotePool>, mode: LoadMode, rows: i64) -> tokio::task::JoinHandle<Result<TableInfo>> {
    let pool = pool.clone();
    tokio::spawn(async move { load(&*pool, "t", mode, rows).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_whose_answer_is_lost_is_loaded_once() {
    let server = Server::start().await;
    let between = Between::start(&server).await;
    let pool = between.client().await;
    for (mode, rows) in [(LoadMode::Create, 10), (LoadMode::Append, 5), (LoadMode::Replace, 7)] {
        let before = newest(&server);
        between.lose_answers();
        let loading = begin(&pool, mode, rows);
        eventually("the rows are there", || newest(&server) != before).await;
        between.break_off();
        let info = loading.await.unwrap().unwrap();
        assert_eq!(newest(&server), Some((info.version, info.rows)), "{mode:?}");
        assert_eq!(pool.table(&name("t")).await.unwrap().version, info.version);
    }
    let version = newest(&server).unwrap().0;
    between.lose_answers();
    let loading = begin(&pool, LoadMode::ReplaceVersion(version), 3);
    eventually("the rows are there", || newest(&server).unwrap().0 > version).await;
    // The outcome of the load stays the same although the table is dropped afterwards.
    server.node.owner(TenantName::default()).drop_table(&name("t")).unwrap().wait().unwrap();
    between.break_off();
    let info = loading.await.unwrap().unwrap();
    assert_eq!((info.rows, info.columns.len(), newest(&server)), (3, 4, None));
}

/// Removes the five rows of `t` with an id below 5 in the background, after running `what` between preparing
/// and the change.
async fn begin_removing(
    pool: &Arc<RemotePool>,
    what: impl FnOnce(),
) -> tokio::task::JoinHandle<Result<TableInfo>> {
    let handle = pool.prepare(&removing("t", 5), &canonical_schema()).await.unwrap();
    what();
    let pool = pool.clone();
    tokio::spawn(async move { pool.change_rows(&handle, 5).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_is_lost_is_made_once_and_one_that_is_lost_is_not() {
    let server = Server::start().await;
    let between = Between::start(&server).await;
    let pool = between.client().await;
    load(&*pool, "t", LoadMode::Create, 20).await.unwrap();
    let before = newest(&server);
    let changing = begin_removing(&pool, || between.lose_answers()).await;
    eventually("the rows are gone", || newest(&server) != before).await;
    between.break_off();
    let info = changing.await.unwrap().unwrap();
    assert_eq!((newest(&server), info.rows), (Some((info.version, 15)), 15));

    load(&*pool, "t", LoadMode::Replace, 10).await.unwrap();
    let (before, lost) = (newest(&server), between.lost.load(SeqCst));
    let changing = begin_removing(&pool, || between.lose_rows()).await;
    eventually("the request is lost", || between.lost.load(SeqCst) > lost).await;
    between.break_off();
    assert_eq!(changing.await.unwrap().unwrap_err().kind, ErrorKind::Stale);
    assert_eq!(newest(&server), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_lost_are_sent_again() {
    let server = Server::start().await;
    let between = Between::start(&server).await;
    let pool = between.client().await;
    for (mode, rows, all) in
        [(LoadMode::Create, 10, 10), (LoadMode::Append, 5, 15), (LoadMode::Replace, 7, 7)]
    {
        between.lose_rows();
        let loading = begin(&pool, mode, rows);
        let lost = between.lost.load(SeqCst);
        eventually("rows are lost", || between.lost.load(SeqCst) > lost).await;
        between.break_off();
        assert_eq!(loading.await.unwrap().unwrap().rows, all);
        assert_eq!(newest(&server).unwrap().1, all);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_rows_than_a_client_keeps_are_not_sent_again_and_the_error_says_so() {
    let server = Server::start().await;
    let between = Between::start(&server).await;
    let pool = between.client().await;
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let batches = Box::pin(futures::stream::poll_fn(move |context| receiver.poll_recv(context)));
    let loading = {
        let pool = pool.clone();
        let schema = batch(0, 0).schema();
        tokio::spawn(
            async move { pool.load(&name("t"), LoadMode::Create.into(), schema, None, batches).await },
        )
    };
    for part in batches_of(2 * limits::LOAD_REPEAT_BYTES_MAX) {
        sender.send(part).await.unwrap();
    }
    eventually("rows have come", || server.memory_used() > 0).await;
    between.lose_rows();
    let lost = between.lost.load(SeqCst);
    drop(sender);
    eventually("the end is lost", || between.lost.load(SeqCst) > lost).await;
    between.break_off();
    let error = loading.await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(error.message.contains("nothing of it was loaded"), "{error}");
    assert_eq!(error.advice.as_deref(), Some("load it again"));
    eventually("the pages come back", || server.memory_used() == 0).await;
    // A failed create has released the table name, so the next create succeeds.
    load(&*pool, "t", LoadMode::Create, 3).await.unwrap();
}

/// Batches of at least `bytes` bytes in total; a row has 32 bytes or more.
fn batches_of(bytes: usize) -> Vec<Result<arrow_array::RecordBatch>> {
    batches(i64::try_from(bytes / 32).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_does_not_know_what_became_of_a_load() {
    let (server, other) = (Server::start().await, Server::start().await);
    let between = Between::start(&server).await;
    let pool = between.client().await;
    between.lose_answers();
    let loading = begin(&pool, LoadMode::Create, 10);
    eventually("the rows are there", || newest(&server).is_some()).await;
    *between.node.lock() = other.address;
    between.break_off();
    let error = loading.await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("another process") && error.message.contains("not known"), "{error}");
    assert!(error.advice.as_ref().unwrap().contains("whether the table has the rows"), "{error}");
    assert_eq!(newest(&other), None, "it is not guessed");
}

fn begin_with(id: u128, table: &str, mode: LoadMode) -> Request {
    let schema = canonical_batch(0, 0).schema();
    Request::LoadBegin {
        table: name(table),
        options: mode.into(),
        schema,
        rows_hint: None,
        id: Some(LoadId(id)),
    }
}

async fn send_load(raw: &mut Raw, stream: u32, id: u128, table: &str, mode: LoadMode) {
    raw.send(stream, &begin_with(id, table, mode)).await;
    raw.send(stream, &Request::LoadBatch(canonical_batch(0, 4))).await;
    raw.send(stream, &Request::LoadEnd).await;
}

async fn response(raw: &mut Raw) -> Response {
    loop {
        let message = raw.next().await.expect("an answer");
        if message.kind != FrameKind::Credit {
            return Response::decode(&message, None).unwrap();
        }
    }
}

async fn loaded(raw: &mut Raw) -> (Version, u64) {
    match response(raw).await {
        Response::Loaded(info) => (info.version, info.rows),
        other => panic!("{other:?}"),
    }
}

async fn outcome(raw: &mut Raw, stream: u32, id: u128) -> LoadOutcome {
    raw.send(stream, &Request::LoadOutcome { id: LoadId(id) }).await;
    match response(raw).await {
        Response::LoadEnded { outcome, .. } => outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_comes_twice_makes_one_version() {
    let server = Server::start().await;
    let [mut raw, mut other] = [Raw::connect(&server).await, Raw::connect(&server).await];
    send_load(&mut raw, 1, 1, "t", LoadMode::Create).await;
    let made = loaded(&mut raw).await;
    for (stream, mode, id) in [(3, LoadMode::Append, 2), (7, LoadMode::Replace, 3)] {
        send_load(&mut raw, stream, id, "t", mode).await;
        let made = loaded(&mut raw).await;
        send_load(&mut other, stream, id, "t", mode).await;
        assert_eq!((loaded(&mut other).await, newest(&server)), (made, Some(made)), "{mode:?}");
    }
    // A failed load stays failed, and repeats its error.
    send_load(&mut raw, 11, 4, "t", LoadMode::Create).await;
    let Response::Error(first) = response(&mut raw).await else { panic!("it is there") };
    assert_eq!(first.kind, ErrorKind::Exists);
    server.node.owner(TenantName::default()).drop_table(&name("t")).unwrap().wait().unwrap();
    send_load(&mut other, 11, 4, "t", LoadMode::Create).await;
    assert_eq!(response(&mut other).await, Response::Error(first.clone()));
    assert_eq!(outcome(&mut other, 13, 4).await, LoadOutcome::Failed(first));
    // The repeated load gets the first answer even after the table was dropped, and loads nothing.
    send_load(&mut other, 15, 1, "t", LoadMode::Create).await;
    assert_eq!(loaded(&mut other).await, made);
    let LoadOutcome::Loaded(told) = outcome(&mut other, 17, 1).await else { panic!("it was loaded") };
    assert_eq!((told.version, told.rows), made);
    assert_eq!(newest(&server), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_comes_again_while_it_is_under_way_waits_for_the_first() {
    let server = Server::start().await;
    let [mut raw, mut other] = [Raw::connect(&server).await, Raw::connect(&server).await];
    raw.send(1, &begin_with(1, "t", LoadMode::Create)).await;
    raw.send(1, &Request::LoadBatch(canonical_batch(0, 9))).await;
    eventually("it begins", || server.node.remembered_bytes() > 0).await;
    send_load(&mut other, 1, 1, "t", LoadMode::Create).await;
    raw.send(1, &Request::LoadEnd).await;
    let made = loaded(&mut raw).await;
    assert_eq!((loaded(&mut other).await, newest(&server)), (made, Some(made)));
    assert_eq!(made.1, 9, "the rows of the first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_ask_for_the_outcome_ends_a_load_whose_rows_have_not_all_come() {
    let server = Server::start().await;
    let [mut raw, mut other] = [Raw::connect(&server).await, Raw::connect(&server).await];
    raw.send(1, &begin_with(1, "t", LoadMode::Create)).await;
    raw.send(1, &Request::LoadBatch(canonical_batch(0, 9))).await;
    assert_eq!(outcome(&mut other, 1, 1).await, LoadOutcome::NotLoaded);
    // When the client learns that nothing was loaded, the table name is released already.
    send_load(&mut other, 3, 2, "t", LoadMode::Create).await;
    let made = loaded(&mut other).await;
    // The load whose outcome was asked for can neither be continued nor begun again with the same id.
    raw.send(1, &Request::LoadEnd).await;
    let Response::Error(error) = response(&mut raw).await else { panic!("it goes on") };
    assert_eq!(error.kind, ErrorKind::Cancelled);
    send_load(&mut raw, 3, 1, "t", LoadMode::Replace).await;
    let Response::Error(error) = response(&mut raw).await else { panic!("it begins again") };
    assert_eq!(error.kind, ErrorKind::Cancelled);
    assert_eq!(newest(&server), Some(made));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loads_of_another_tenant_are_not_told_of_nor_ended() {
    let server = Server::with(256 << 20, tokens(&[("anns", "ann"), ("bobs", "bob")])).await;
    let ann = server.connect_as("anns").await.unwrap().with_load_seed(7);
    let bob = server.connect_as("bobs").await.unwrap().with_load_seed(7);
    // Two tenants use the same load id, and neither sees the outcome of the other's load.
    for (rows, pool) in [(3, &ann), (4, &bob)] {
        assert_eq!(load(pool, "t", LoadMode::Create, rows).await.unwrap().rows, rows as u64);
    }
}
