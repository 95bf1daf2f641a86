//! What one request does to its connection, over a pipe.

use super::*;
use crate::{Node, NodeConfig};
use farpool_model::{TableName, TenantName, limits};
use farpool_pipeline::{Attempt, Class};
use farpool_wire::socket::{Pipe, pipe};

fn connection() -> (Arc<Connection>, Pipe) {
    let node = Node::start(NodeConfig { memory_bytes: 4 << 20, ..NodeConfig::default() }).unwrap();
    connect(&node, TenantName::default())
}

fn connect(node: &Arc<Node>, tenant: TenantName) -> (Arc<Connection>, Pipe) {
    let (client, socket) = pipe(64 << 10);
    (Connection::new(node.owner(tenant), Arc::new(socket)), client)
}

/// Waits until something comes to the client.
async fn readable(client: &Pipe) -> io::Result<()> {
    let client: &dyn Socket = client;
    client.ready(Interest::Readable).await
}

/// The messages that have come to the client.
fn received(client: &Pipe) -> Vec<(u32, Response)> {
    let mut buffer = BytesMut::with_capacity(64 << 10);
    drop(client.try_read(&mut buffer));
    let mut assembler = Assembler::new();
    let mut responses = Vec::new();
    while let Some((header, payload)) = split_frame(&mut buffer).unwrap() {
        let message = assembler.push(header, payload).unwrap().unwrap();
        responses.push((message.stream, Response::decode(&message, None).unwrap()));
    }
    responses
}

fn message(stream: u32, request: &Request) -> Message {
    let body = request.encode().unwrap().remove(0).frames(stream)[1..].concat();
    Message { kind: request.kind(), stream, body: body.into(), bytes_on_wire: 0 }
}

#[test]
fn a_panic_ends_its_request_alone() {
    let (connection, client) = connection();
    let open = |stream| connection.outbox.open(stream, 0, Work::Request(Cancel::new())).unwrap();
    open(1);
    open(2);
    connection.guarded(1, || panic!("a defect")).unwrap();
    connection.outbox.flush();
    let answers = received(&client);
    let [(1, Response::Error(error))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(error.kind, farpool_model::ErrorKind::Internal);
    connection.outbox.with(|lanes| assert!(lanes.work(1).is_none() && lanes.work(2).is_some()));
    // The connection takes requests as before, on the same stream too.
    connection.receive(message(1, &Request::Tables), &mut Assembler::new()).unwrap();
    let scheduler = connection.caller.node().scheduler();
    assert_eq!(scheduler.try_work(Class::Foreground), Attempt::Worked);
    assert_eq!(received(&client), [(1, Response::Tables(vec![]))]);
    // Where no stream can be told, the connection is.
    let error = connection.guarded(7, || panic!("a defect")).unwrap_err();
    assert_eq!(error.kind, farpool_model::ErrorKind::Internal);
}

#[test]
fn whatever_ends_a_stream_cancels_its_request() {
    let (connection, _client) = connection();
    let cancels: Vec<Cancel> = (0..3).map(|_| Cancel::new()).collect();
    for (stream, cancel) in (1..).zip(&cancels) {
        connection.outbox.open(stream, 0, Work::Request(cancel.clone())).unwrap();
    }
    connection.receive(message(1, &Request::Cancel), &mut Assembler::new()).unwrap();
    connection.give_up(2, Error::internal("enough"));
    assert_eq!(cancels.iter().map(Cancel::is_set).collect::<Vec<_>>(), [true, true, false]);
    connection.close(None);
    assert!(cancels[2].is_set());
}

#[test]
fn a_flood_of_pings_makes_one_pong() {
    let (connection, client) = connection();
    for _ in 0..1000 {
        connection.receive(message(0, &Request::Ping), &mut Assembler::new()).unwrap();
    }
    connection.outbox.flush();
    assert_eq!(received(&client), [(0, Response::Pong)]);
    connection.receive(message(0, &Request::Pong), &mut Assembler::new()).unwrap();
    connection.outbox.flush();
    assert_eq!(received(&client), []);
}

#[tokio::test]
async fn a_tenant_that_waits_for_profiles_does_not_keep_another_from_its_own() {
    let (ann, to_ann) = connection();
    let node = ann.caller.node().clone();
    let (bob, to_bob) = connect(&node, TenantName::new("bob").unwrap());
    let turns = ann.caller.profile_turns();
    let all = turns.acquire_many(limits::PROFILES_AWAITED_MAX as u32).await.unwrap();
    let request = Request::Statistics { table: TableName::new("t").unwrap(), columns: None };
    for connection in [&ann, &bob] {
        connection.receive(message(1, &request), &mut Assembler::new()).unwrap();
    }
    while node.scheduler().try_work(Class::Foreground) == Attempt::Worked {}
    readable(&to_bob).await.unwrap();
    assert!(matches!(&received(&to_bob)[..], [(1, Response::Error(_))]));
    assert_eq!(received(&to_ann), []);
    drop(all);
    readable(&to_ann).await.unwrap();
    assert!(matches!(&received(&to_ann)[..], [(1, Response::Error(_))]));
}
