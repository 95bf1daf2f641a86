//! Tests of loads (rows that a client sends to make a new version of a table), step by step: the test's own thread is
//! the only worker.

use super::*;
use crate::{Environment, Node, NodeConfig};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bytes::BytesMut;
use farpool_model::limits::ROW_GROUP_ROWS;
use farpool_model::{ErrorKind, LoadMode, TableName, TenantName, limits};
use farpool_pipeline::{Attempt, Class};
use farpool_wire::socket::{Pipe, pipe};
use farpool_wire::{Assembler, Socket, split_frame};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of scheduler steps of a test, after which it fails as hung.
const STEPS_MAX: usize = 1_000_000;

fn node() -> Arc<Node> {
    let node = Node::start(NodeConfig { memory_bytes: 256 << 20, ..NodeConfig::default() }).unwrap();
    // Stops profiling, so that only loads and tables hold pages of the pool.
    node.close_taps();
    node
}

fn connect(node: &Arc<Node>, tenant: &str) -> (Arc<Connection>, Pipe) {
    let (client, socket) = pipe(64 << 10);
    let caller = node.owner(TenantName::new(tenant).unwrap());
    (Connection::new(caller, Arc::new(socket)), client)
}

/// Returns `count` rows of two columns, with values that do not repeat.
fn rows(count: usize) -> RecordBatch {
    let column = |factor: i64| -> ArrayRef {
        Arc::new((0..count as i64).map(|row| row.wrapping_mul(factor)).collect::<Int64Array>())
    };
    RecordBatch::try_from_iter([("a", column(7_919_191_919)), ("b", column(-104_729_104_729))]).unwrap()
}

/// Sends a request to the node; returns its size on the wire.
fn send(connection: &Arc<Connection>, stream: u32, request: &Request) -> u64 {
    let (mut bytes, mut assembler) = (0, Assembler::new());
    for outgoing in request.encode().unwrap() {
        bytes += outgoing.bytes_on_wire();
        let mut frames = BytesMut::from(&outgoing.frames(stream).concat()[..]);
        while let Some((header, payload)) = split_frame(&mut frames).unwrap() {
            if let Some(message) = assembler.push(header, payload).unwrap() {
                connection.receive(message, &mut Assembler::new()).unwrap();
            }
        }
    }
    bytes
}

fn begin_load(connection: &Arc<Connection>, stream: u32, table: &str) {
    let (table, schema) = (TableName::new(table).unwrap(), rows(0).schema());
    send(
        connection,
        stream,
        &Request::LoadBegin { table, options: LoadMode::Replace.into(), schema, rows_hint: None, id: None },
    );
}

/// Returns the messages that the client has received since the last call.
fn received(client: &Pipe) -> Vec<Response> {
    let mut buffer = BytesMut::with_capacity(64 << 10);
    drop(client.try_read(&mut buffer));
    let mut assembler = Assembler::new();
    let mut responses = Vec::new();
    while let Some((header, payload)) = split_frame(&mut buffer).unwrap() {
        let message = assembler.push(header, payload).unwrap().unwrap();
        responses.push(Response::decode(&message, None).unwrap());
    }
    responses
}

/// Executes scheduler steps until `done` returns true; returns false if no steps are left before that.
fn work_until(node: &Arc<Node>, mut done: impl FnMut() -> bool) -> bool {
    for _ in 0..STEPS_MAX {
        if done() {
            return true;
        }
        if node.scheduler().try_work(Class::Foreground) != Attempt::Worked {
            return done();
        }
    }
    panic!("no end after {STEPS_MAX} steps");
}

fn work(node: &Arc<Node>) {
    work_until(node, || false);
}

fn bytes_used(node: &Node) -> u64 {
    node.status().memory_bytes_used
}

#[test]
fn credit_comes_back_when_the_row_groups_of_a_message_were_encoded() {
    let node = node();
    let (connection, client) = connect(&node, "ann");
    begin_load(&connection, 1, "t");
    work(&node);
    let sent = send(&connection, 1, &Request::LoadBatch(rows(ROW_GROUP_ROWS)));
    let mut granted = Vec::new();
    let mut used_before = Vec::new();
    work_until(&node, || {
        let before = bytes_used(&node);
        granted.extend(received(&client));
        used_before.push(before);
        !granted.is_empty()
    });
    let [Response::Credit { bytes }] = &granted[..] else { panic!("{granted:?}") };
    assert_eq!(*bytes, sent);
    assert!(used_before.last() > Some(&0), "the row group is in the pool by then");
    // Four steps found the pool empty: one to decode the message, one to encode each of the two columns, and one to
    // place the row group in the pool.
    assert_eq!(used_before.iter().filter(|bytes| **bytes == 0).count(), 4);

    // Credit for rows that do not fill a row group is returned at once. Otherwise the client might not have enough
    // credit to send the rows that fill it.
    let sent = send(&connection, 1, &Request::LoadBatch(rows(10)));
    work(&node);
    assert_eq!(received(&client), [Response::Credit { bytes: sent }]);
    send(&connection, 1, &Request::LoadEnd);
    work(&node);
    let answers = received(&client);
    let [Response::Loaded(table)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(table.rows, ROW_GROUP_ROWS as u64 + 10);
}

#[test]
fn a_client_that_goes_away_while_its_rows_are_encoded_leaves_nothing_behind() {
    for cancels in [true, false] {
        let node = node();
        let (connection, client) = connect(&node, "ann");
        begin_load(&connection, 1, "t");
        send(&connection, 1, &Request::LoadBatch(rows(3 * ROW_GROUP_ROWS)));
        assert!(work_until(&node, || bytes_used(&node) > 0));
        if cancels {
            send(&connection, 1, &Request::Cancel);
        } else {
            connection.close(None);
        }
        work(&node);
        assert_eq!((bytes_used(&node), node.scheduler().running()), (0, 0));
        assert_eq!(received(&client), []);
    }
}

#[test]
fn a_load_that_waits_for_rows_ends_with_its_client() {
    let node = node();
    let (connection, _client) = connect(&node, "ann");
    begin_load(&connection, 1, "t");
    send(&connection, 1, &Request::LoadBatch(rows(ROW_GROUP_ROWS)));
    work(&node);
    assert!(bytes_used(&node) > 0 && node.scheduler().running() == 1);
    connection.close(None);
    work(&node);
    assert_eq!((bytes_used(&node), node.scheduler().running()), (0, 0));
}

#[test]
fn what_is_wrong_with_a_load_is_told_on_its_stream_when_its_pages_are_free() {
    let node = node();
    let (connection, client) = connect(&node, "ann");
    begin_load(&connection, 1, "t");
    send(&connection, 1, &Request::LoadBatch(rows(ROW_GROUP_ROWS)));
    work(&node);
    let other = RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    send(&connection, 1, &Request::LoadBatch(other));
    received(&client);
    work(&node);
    let answers = received(&client);
    assert!(matches!(&answers[..], [Response::Error(_)]), "{answers:?}");
    assert_eq!((bytes_used(&node), node.scheduler().running()), (0, 0));
}

#[test]
fn an_append_too_far_ahead_of_profiles_works_on_them_before_it_is_published() {
    let config = NodeConfig { memory_bytes: 256 << 20, ..NodeConfig::default() };
    let environment = Environment { background_threads: 0, ..Environment::of_system() };
    let node = Node::assemble(config, environment).unwrap();
    let (connection, client) = connect(&node, "ann");
    let table = TableName::new("t").unwrap();
    let profiled = || connection.caller.table(&table, None).unwrap().unwrap().rows_profiled;
    let append = |stream, mode: LoadMode| {
        let (table, schema) = (table.clone(), rows(0).schema());
        send(
            &connection,
            stream,
            &Request::LoadBegin { table, options: mode.into(), schema, rows_hint: None, id: None },
        );
        // Appends this many rows because smaller row groups are profiled only after they were merged.
        send(&connection, stream, &Request::LoadBatch(rows(limits::LARGE_GROUP_ROWS)));
        send(&connection, stream, &Request::LoadEnd);
    };
    let loaded = || received(&client).iter().filter(|answer| matches!(answer, Response::Loaded(_))).count();
    append(1, LoadMode::Create);
    work(&node);
    assert_eq!(loaded(), 1);
    let ahead = limits::TAPS_WAITING_MAX as u32;
    for stream in 2..2 + ahead {
        append(stream, LoadMode::Append);
        work(&node);
        assert_eq!((loaded(), profiled()), (1, Some(0)), "{stream}");
    }
    // Of two more appends, one is cancelled while it computes profiles of earlier rows.
    append(1_000, LoadMode::Append);
    append(1_001, LoadMode::Append);
    assert!(work_until(&node, || profiled() != Some(0)));
    send(&connection, 1_000, &Request::Cancel);
    work(&node);
    let info = connection.caller.table(&table, None).unwrap().unwrap();
    let rows = |loads: u32| u64::from(loads) * limits::LARGE_GROUP_ROWS as u64;
    assert_eq!((loaded(), info.rows, info.rows_profiled), (1, rows(ahead + 2), Some(rows(ahead + 1))));
    while node.scheduler().try_work(Class::Background) != Attempt::Idle(None) {}
    assert_eq!((profiled(), node.scheduler().running()), (None, 0));
}

#[test]
fn neither_a_flood_of_loads_nor_one_of_requests_stops_another_tenant() {
    let node = node();
    let (flood, _client) = connect(&node, "ann");
    for stream in 1..=8 {
        begin_load(&flood, stream, &format!("t{stream}"));
        for _ in 0..3 {
            send(&flood, stream, &Request::LoadBatch(rows(ROW_GROUP_ROWS)));
        }
        send(&flood, stream, &Request::LoadEnd);
    }
    let (other, _client) = connect(&node, "bob");
    let answered = Arc::new(AtomicUsize::new(0));
    ask_for_ever(&other.caller, &answered);
    let loaded = || flood.caller.tables().unwrap().len();
    assert!(work_until(&node, || answered.load(Ordering::Relaxed) == 3));
    assert!(loaded() < 8, "the requests waited for all loads");
    assert!(work_until(&node, || loaded() == 8), "the loads waited for the requests");
    node.shutdown();
}

/// Sends a request, and another one when it is answered, and so on. Each takes a worker about as long as a step of a
/// load.
fn ask_for_ever(caller: &crate::Caller, answered: &Arc<AtomicUsize>) {
    let (again, counted) = (caller.clone(), answered.clone());
    let work = |_: &crate::Caller| Ok((0..1_000_000).fold(0_u64, |sum, i| black_box(sum + i)));
    caller.spawn(work, move |sum| {
        if sum.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
            ask_for_ever(&again, &counted);
        }
    });
}

#[test]
fn a_create_that_is_cancelled_gives_its_name_back_before_a_worker_sees_it() {
    let node = node();
    let (connection, client) = connect(&node, "ann");
    let create = |stream| {
        let (table, schema) = (TableName::new("t").unwrap(), rows(0).schema());
        let mode = LoadMode::Create;
        send(
            &connection,
            stream,
            &Request::LoadBegin { table, options: mode.into(), schema, rows_hint: None, id: None },
        );
    };
    create(1);
    create(3);
    work(&node);
    assert!(matches!(&received(&client)[..], [Response::Error(error)] if error.kind == ErrorKind::Exists));
    // The next load of the same name begins before a worker has handled the cancellation.
    send(&connection, 1, &Request::Cancel);
    create(5);
    send(&connection, 5, &Request::LoadEnd);
    work(&node);
    assert!(matches!(&received(&client)[..], [Response::Loaded(_)]));
    // A load whose connection is closed releases the name of its table, too, before a worker handles that.
    connection.caller.drop_table(&TableName::new("t").unwrap()).unwrap().wait().unwrap();
    create(7);
    work(&node);
    connection.close(None);
    let (connection, client) = connect(&node, "ann");
    let (table, schema) = (TableName::new("t").unwrap(), rows(0).schema());
    send(
        &connection,
        1,
        &Request::LoadBegin { table, options: LoadMode::Create.into(), schema, rows_hint: None, id: None },
    );
    send(&connection, 1, &Request::LoadEnd);
    work(&node);
    assert!(matches!(&received(&client)[..], [Response::Loaded(_)]));
}
