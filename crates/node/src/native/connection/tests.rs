//! Tests of failed and cancelled requests on a connection to a node: the connection continues. The client is a pipe in
//! memory.

use super::*;
use crate::{Environment, Node, NodeConfig};
use arrow_array::{Int64Array, RecordBatch};
use farpool_model::{Listing, LoadMode, TableName, TenantName};
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

/// Returns the messages that the client has received.
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
    let open =
        |stream| connection.outbox.open(stream, 0, StreamWork::Request(RequestCancel::default())).unwrap();
    open(1);
    open(2);
    connection.guarded(1, || panic!("a defect")).unwrap();
    connection.outbox.flush();
    let answers = received(&client);
    let [(1, Response::Error(error))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(error.kind, farpool_model::ErrorKind::Internal);
    connection.outbox.with(|lanes| assert!(lanes.work(1).is_none() && lanes.work(2).is_some()));
    // The connection still accepts requests, also on the same stream.
    connection
        .receive(message(1, &Request::Tables { tenant: None, with_schemas: true }), &mut Assembler::new())
        .unwrap();
    let scheduler = connection.caller.node().scheduler();
    assert_eq!(scheduler.try_work(Class::Foreground), Attempt::Worked);
    assert_eq!(received(&client), [(1, Response::Tables(Listing::default()))]);
    // If the stream on which the error would be reported is not open, the error is returned instead.
    let error = connection.guarded(7, || panic!("a defect")).unwrap_err();
    assert_eq!(error.kind, farpool_model::ErrorKind::Internal);
}

#[test]
fn whatever_ends_a_stream_cancels_its_request() {
    let (connection, _client) = connection();
    let cancel_signal: Vec<RequestCancel> = (0..3).map(|_| RequestCancel::default()).collect();
    for (stream, cancel_signal) in (1..).zip(&cancel_signal) {
        connection.outbox.open(stream, 0, StreamWork::Request(cancel_signal.clone())).unwrap();
    }
    connection.receive(message(1, &Request::Cancel), &mut Assembler::new()).unwrap();
    connection.give_up(2, Error::internal("enough"));
    assert_eq!(
        cancel_signal.iter().map(|cancel_signal| cancel_signal.cancel.is_set()).collect::<Vec<_>>(),
        [true, true, false]
    );
    connection.close(None);
    assert!(cancel_signal[2].cancel.is_set());
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

#[test]
fn a_request_that_waits_for_a_profile_ends_with_its_stream_or_is_answered() {
    let config = NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() };
    let environment = Environment { background_threads: 0, ..Environment::of_system() };
    let node = Node::assemble(config, environment).unwrap();
    let (connection, client) = connect(&node, TenantName::default());
    let rows = RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1, 2])) as _)]).unwrap();
    let table = TableName::new("t").unwrap();
    let mut load =
        connection.caller.begin_load(&table, &rows.schema(), LoadMode::Create.into(), None).unwrap();
    load.push(&rows).unwrap();
    load.commit().unwrap();
    let step = || node.scheduler().try_work(Class::Foreground) == Attempt::Worked;
    let ask = |stream, columns| {
        let request = Request::Statistics { table: table.clone(), columns };
        connection.receive(message(stream, &request), &mut Assembler::new()).unwrap();
    };
    // The request is cancelled after a worker has decoded it, and before its profile is begun.
    ask(1, None);
    assert!(step());
    connection.receive(message(1, &Request::Cancel), &mut Assembler::new()).unwrap();
    while step() {}
    assert_eq!(
        (received(&client), node.scheduler().running()),
        (vec![], 1),
        "the profile is left to the background"
    );
    ask(2, Some(vec![0]));
    ask(3, None);
    while step() {}
    ask(4, None);
    while step() {}
    let answers = received(&client);
    let [
        (2, Response::Statistics(known)),
        (3, Response::Statistics(first)),
        (4, Response::Statistics(again)),
    ] = &answers[..]
    else {
        panic!("{answers:?}")
    };
    assert!(known.columns[0].sketch.is_none() && first.columns[0].sketch.is_some());
    assert_eq!(first, again);
}
