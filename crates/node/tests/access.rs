//! Tests of access control while clients are connected: tokens that are removed, changed or expire, and the limits of
//! tenants on memory and on concurrent programs.

use crate::common::*;
use farpool_model::{Clock, Error, ErrorKind, LoadMode, QueryInfo, QueryState, ResultForm, limits};
use farpool_node::access::TokenDigest;
use farpool_node::{Environment, Followed, Node, NodeConfig, Right, TenantLimits};
use farpool_transfer::Pool;
use farpool_wire::{FrameKind, Request, Response};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Number of rows of a table whose plain result is larger than the socket buffers and the credit of a client together,
/// so that its program cannot end while the client does not read.
const MANY: i64 = 400_000;

/// Sends requests until one is refused; returns the error.
async fn refused(pool: &dyn Pool) -> Error {
    let asking = async {
        loop {
            match pool.tables().await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    };
    timeout(PATIENCE, asking).await.expect("it is still served")
}

/// Returns the access settings of a node that requires no token, with these limits of the default tenant.
fn within(limits: TenantLimits) -> Access {
    Access::of_everybody().with_limits(tenant("default"), limits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_token_ends_its_connections_and_no_others() {
    let access = |token| tokens(&[("bobs", "bob"), (token, "ann")]);
    let server = Server::with(64 << 20, access("anns")).await;
    // Plain, because a packed result is so small that it would be sent as a whole, and the program would end.
    let ann = server.connect_as("anns").await.unwrap().with_results(ResultForm::Plain);
    let bob = server.connect_as("bobs").await.unwrap();
    load(&ann, "t", LoadMode::Create, MANY).await.unwrap();
    let running = ann.execute(&scan("t"), 1).await.unwrap();
    server.node.set_access(access("new"));
    let error = timeout(PATIENCE, collect(running)).await.expect("it is still served").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.contains("was removed"), "{error}");
    let error = refused(&ann).await;
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    eventually("what it ran is gone", || server.programs_running() == 0).await;
    assert_eq!(bob.tables().await.unwrap().len(), 0);
    assert_eq!(server.connect_as("new").await.unwrap().tables().await.unwrap().len(), 1);
    eventually("its connection is gone", || server.node.status().connections == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_role_counts_at_once_and_its_client_connects_anew() {
    let access = |right| Access::of_nobody().with_token("anns", tenant("ann"), right);
    let server = Server::with(64 << 20, access(Right::Write)).await;
    let ann = server.connect_as("anns").await.unwrap();
    load(&ann, "t", LoadMode::Create, 10).await.unwrap();
    server.node.set_access(access(Right::Read));
    let denied = async {
        loop {
            match ann.drop_table(&name("none")).await.unwrap_err() {
                error if error.kind == ErrorKind::Denied => return error,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let error = timeout(PATIENCE, denied).await.expect("it may still drop tables");
    assert!(error.message.contains("the right to write, and the token is for read"), "{error}");
    assert_eq!(counted(&ann, "t", 5).await.unwrap().0, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_is_followed_and_mistakes_in_it_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.toml");
    let line = |token: &str| {
        let digest = TokenDigest::of(token);
        format!("[[token]]\ntenant = \"ann\"\nrole = \"read\"\nsha256 = \"{digest}\"\n")
    };
    std::fs::write(&path, format!("[tenant.ann]\n{}", line("one"))).unwrap();
    let (file, access) = Followed::open(vec![path.clone()], |paths| Access::read(&paths[0])).unwrap();
    let server = Server::with(64 << 20, access).await;
    let (ask, asked) = mpsc::channel(1);
    let node = server.node.clone();
    tokio::spawn(file.follow("who may connect", move |access| node.set_access(access), asked));
    let one = server.connect_as("one").await.unwrap();
    std::fs::write(&path, "[tenant.ann]\n[[tok").unwrap();
    ask.send(()).await.unwrap();
    ask.send(()).await.unwrap();
    ask.reserve().await.unwrap();
    assert_eq!(one.tables().await.unwrap().len(), 0);
    // The node notices the change of the access file by itself; the test requests no reload. The last reload that it
    // requested may still be reading, and must not see a file that is half written.
    let new = folder.path().join("new");
    std::fs::write(&new, format!("[tenant.ann]\n{}", line("two"))).unwrap();
    std::fs::rename(&new, &path).unwrap();
    assert_eq!(refused(&one).await.kind, ErrorKind::Denied);
    server.connect_as("two").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_beyond_the_limit_wait_and_beyond_that_are_told_when_to_come_back() {
    let limits =
        TenantLimits { programs_max: NonZero::new(1), programs_waiting_max: 1, ..Default::default() };
    let server = Server::with(128 << 20, within(limits.clone())).await;
    let pool = Arc::new(server.connect().await);
    load(&*pool, "t", LoadMode::Create, MANY).await.unwrap();
    let [mut first, mut second, mut third] =
        [Raw::connect(&server).await, Raw::connect(&server).await, Raw::connect(&server).await];
    first.execute(1, "t").await;
    eventually("the first one runs", || server.programs_running() == 1).await;
    assert_eq!(first.next().await.unwrap().kind, FrameKind::Prepared);
    second.execute(1, "t").await;
    let stands_in_line = async {
        let waits = |query: &QueryInfo| query.state == QueryState::WaitingForTurn;
        while !pool.queries().await.unwrap().iter().any(waits) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, stands_in_line).await.expect("the second one waits");
    third.execute(1, "t").await;
    let refused = Response::decode(&third.next().await.unwrap(), None).unwrap();
    let Response::Error(error) = refused else { panic!("it is not refused") };
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(limits::RETRY_AFTER_MS.contains(&error.retry_after_ms.unwrap()), "{error:?}");
    assert!(error.message.contains("tenant default has 1 programs running and 1 waiting"), "{error}");
    // A client that gets `Busy` sends the program again by itself until it is executed.
    let asking = {
        let pool = pool.clone();
        tokio::spawn(async move { counted(&*pool, "t", 7).await })
    };
    first.send(1, &Request::Cancel).await;
    assert_eq!(second.next().await.unwrap().kind, FrameKind::Prepared, "its turn has come");
    drop(second);
    assert_eq!(timeout(PATIENCE, asking).await.unwrap().unwrap().unwrap().0, 7);
    eventually("all turns are given back", || server.programs_running() == 0).await;
    // A lowered limit on waiting programs applies to later requests; programs that wait already stay.
    server.node.set_access(within(TenantLimits { programs_waiting_max: 0, ..limits }));
    first.execute(2, "t").await;
    eventually("it runs", || server.programs_running() == 1).await;
    third.execute(2, "t").await;
    assert_eq!(third.next().await.unwrap().kind, FrameKind::Error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_tenant_are_limited() {
    let limits = TenantLimits { connections_max: NonZero::new(2), ..Default::default() };
    let access = tokens(&[("anns", "ann"), ("bobs", "bob")]).with_limits(tenant("ann"), limits);
    let server = Server::with(64 << 20, access).await;
    let first = server.connect_as("anns").await.unwrap();
    let _second = server.connect_as("anns").await.unwrap();
    let error = server.connect_as("anns").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(error.message.contains("tenant ann may have 2 connections"), "{error}");
    server.connect_as("bobs").await.unwrap();
    drop(first);
    let again = async { while server.connect_as("anns").await.is_err() {} };
    timeout(PATIENCE, again).await.expect("its place is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_a_tenant_are_limited() {
    let limits = TenantLimits { result_bytes_max: Some(1 << 20), ..Default::default() };
    let server = Server::with(128 << 20, within(limits)).await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, MANY).await.unwrap();
    let error = run(&pool, &scan("t")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(error.message.contains("may have 1.0 MiB for tenant default"), "{error}");
    assert_eq!(counted(&pool, "t", 9).await.unwrap().0, 9);
    eventually("it has ended", || server.programs_running() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_drops_what_a_removed_tenant_left() {
    let admin = |access: Access| access.with_token("root", tenant("ops"), Right::Admin);
    let server = Server::with(64 << 20, admin(tokens(&[("anns", "ann")]))).await;
    let ann = server.connect_as("anns").await.unwrap();
    load(&ann, "t", LoadMode::Create, 1000).await.unwrap();
    let denied = ann.list(Some(&tenant("ops"))).await.unwrap_err();
    assert_eq!(denied.kind, ErrorKind::Denied);
    assert_eq!(ann.drop_table_of(&tenant("ops"), &name("t")).await.unwrap_err().kind, ErrorKind::Denied);
    server.node.set_access(admin(Access::of_nobody()));
    assert_eq!(refused(&ann).await.kind, ErrorKind::Denied);
    let root = server.connect_as("root").await.unwrap();
    assert_eq!(root.tables().await.unwrap().len(), 0);
    let left = root.list(Some(&tenant("ann"))).await.unwrap().tables;
    assert_eq!(left.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["t"]);
    root.drop_table_of(&tenant("ann"), &name("t")).await.unwrap();
    assert_eq!(root.list(Some(&tenant("ann"))).await.unwrap().tables.len(), 0);
    eventually("its memory is free", || server.memory_used() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_is_listed_and_ended_within_ones_rights() {
    let limits = TenantLimits { programs_max: NonZero::new(1), ..Default::default() };
    let access = tokens(&[("anns", "ann"), ("bobs", "bob")])
        .with_token("reader", tenant("ann"), Right::Read)
        .with_token("root", tenant("ops"), Right::Admin)
        .with_limits(tenant("ann"), limits);
    let server = Server::with(128 << 20, access).await;
    let [ann, reader, bob, root] = ["anns", "reader", "bobs", "root"].map(|token| server.connect_as(token));
    // Plain, because a packed result is so small that it would be sent as a whole, and the program would end.
    let (ann, reader) = (ann.await.unwrap(), reader.await.unwrap().with_results(ResultForm::Plain));
    let (bob, root) = (bob.await.unwrap(), root.await.unwrap());
    load(&ann, "t", LoadMode::Create, MANY).await.unwrap();
    assert_eq!(root.queries().await.unwrap(), []);

    // The result of the first program is not read, so the program occupies the tenant's only turn and the second
    // program waits.
    let first = reader.execute(&scan("t"), 1).await.unwrap();
    let (second, listed) = {
        let ann = Arc::new(server.connect_as("anns").await.unwrap());
        let second = tokio::spawn(async move { counted(&*ann, "t", 7).await });
        let both = async {
            loop {
                let listed = reader.queries().await.unwrap();
                let states: Vec<QueryState> = listed.iter().map(|query| query.state).collect();
                if states == [QueryState::WaitingForReader, QueryState::WaitingForTurn] {
                    return listed;
                }
            }
        };
        (second, timeout(PATIENCE, both).await.expect("both are there"))
    };
    assert!(listed[0].rows > 0 && listed[0].bytes > 0 && listed[1].rows == 0, "{listed:?}");
    for query in &listed {
        assert_eq!((query.tenant.as_str(), query.table.as_str()), ("ann", "t"));
        assert!(query.client.starts_with("farpool ") && query.peer.starts_with("127.0.0.1:"), "{query:?}");
    }
    let ids: Vec<u64> = listed.iter().map(|query| query.id).collect();
    let all: Vec<u64> = root.queries().await.unwrap().iter().map(|query| query.id).collect();
    assert_eq!(all, ids);

    // Another tenant can neither list nor cancel these queries, and gets `NotFound` as for ids that do not exist.
    assert_eq!(bob.queries().await.unwrap(), []);
    assert_eq!(bob.cancel_query(ids[0]).await.unwrap_err().kind, ErrorKind::NotFound);
    root.cancel_query(ids[1]).await.unwrap();
    let error = second.await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Cancelled);
    assert!(error.message.contains("was cancelled by tenant ops"), "{error}");
    ann.cancel_query(ids[0]).await.unwrap();
    let error = collect(first).await.unwrap_err();
    assert!(error.message.contains("was cancelled by tenant ann"), "{error}");
    eventually("it has ended", || server.programs_running() == 0).await;
    assert_eq!(root.queries().await.unwrap(), []);
    assert_eq!(root.cancel_query(ids[0]).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(counted(&reader, "t", 7).await.unwrap().0, 7);
}

/// A time of day for tests of expiry dates, which changes only when the test sets it.
#[derive(Debug, Default)]
struct Day {
    unix_s: AtomicU64,
}

impl Clock for Day {
    fn now_ns(&self) -> u64 {
        0
    }

    fn thread_cpu_ns(&self) -> u64 {
        0
    }

    fn unix_s(&self) -> u64 {
        self.unix_s.load(Ordering::Relaxed)
    }
}

/// Reads until the node disconnects the client. Returns the time that this took, on tokio's paused clock, and the error
/// that the node sent.
async fn told_to_leave(client: &mut Raw) -> (Duration, Error) {
    let from = tokio::time::Instant::now();
    let message = client.next().await.expect("it is told");
    assert_eq!(message.stream, 0);
    let Response::Error(error) = Response::decode(&message, None).unwrap() else { panic!("{message:?}") };
    (from.elapsed(), error)
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_removed_or_over_ends_its_connections_within_a_second() {
    // The last second of 2027-03-31 in UTC, in seconds since 1970; a token that expires on this day is still valid
    // then.
    const LAST_SECOND: u64 = 1_806_537_599;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.toml");
    let line = |token: &str, more: &str| {
        let digest = TokenDigest::of(token);
        format!("[[token]]\ntenant = \"ann\"\nrole = \"read\"\nsha256 = \"{digest}\"\n{more}")
    };
    let lasting = format!("[tenant.ann]\n{}", line("ending", "name = \"short\"\nuntil = 2027-03-31\n"));
    std::fs::write(&path, format!("{lasting}{}", line("removed", ""))).unwrap();
    let (file, access) = Followed::open(vec![path.clone()], |paths| Access::read(&paths[0])).unwrap();
    let day = Arc::new(Day::default());
    day.unix_s.store(LAST_SECOND, Ordering::Relaxed);
    let environment = Environment { clock: day.clone(), background_threads: 0, ..Environment::of_system() };
    let config = NodeConfig { memory_bytes: 4 << 20, access, ..NodeConfig::default() };
    let local = Local::of(Node::assemble(config, environment).unwrap(), Duration::from_secs(5));
    let node = local.node.clone();
    let (_ask, asked) = mpsc::channel(1);
    tokio::spawn(file.follow("who may connect", move |access| node.set_access(access), asked));

    let mut removed = Raw::with_token(local.dial(), Some("removed")).await;
    let mut ending = Raw::with_token(local.dial(), Some("ending")).await;
    std::fs::write(&path, &lasting).unwrap();
    let (waited, error) = told_to_leave(&mut removed).await;
    assert!(waited <= Duration::from_secs(1), "{waited:?}");
    assert!(error.kind == ErrorKind::Denied && error.message.contains("was removed"), "{error}");

    day.unix_s.store(LAST_SECOND + 1, Ordering::Relaxed);
    let (waited, error) = told_to_leave(&mut ending).await;
    assert!(waited <= Duration::from_secs(1), "{waited:?}");
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.contains("\"short\" is over: it was for use until 2027-03-31"), "{error}");
    assert_eq!(local.node.caller(Some("ending")).map(drop).unwrap_err(), error);
}
