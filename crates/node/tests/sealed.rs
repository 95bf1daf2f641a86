//! Tests of sealed answers (answers encrypted end to end for one client): with a man in the middle who reads and
//! changes frames, with wrong keys and tokens, with many answers, and with clients that disconnect.

use crate::common::*;
use arrow_array::RecordBatch;
use farpool_model::{
    CompareOp, ErrorKind, Expr, Literal, LoadMode, Program, Result, ResultForm, Value, limits,
};
use farpool_node::{PrivateKey, PublicKey};
use farpool_transfer::{BatchStream, ClientOptions, Pool, PoolUrl, Proof, RemotePool, TokenKey};
use farpool_wire::sealed::{self, Digest, Opener};
use farpool_wire::{FRAME_HEADER_BYTES, FrameKind, Message, Request, Response};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Starts a node with a private key and a table of `rows` rows, and a man in the middle before it. Returns both, and
/// the node's public key.
async fn node(rows: i64) -> (Server, Middle, PublicKey) {
    let server = Server::start().await;
    let key = PrivateKey::random().unwrap();
    let public = key.public();
    server.node.set_node_key(key);
    load(&server.connect().await, "t", LoadMode::Create, rows).await.unwrap();
    let middle = Middle::of(&server).await;
    (server, middle, public)
}

async fn connect(url: &PoolUrl, key: PublicKey, form: ResultForm) -> Result<RemotePool> {
    let options = ClientOptions { sealed: Some(Proof::NodeKey(key)), ..ClientOptions::default() };
    Ok(RemotePool::connect(url, options).await?.with_results(form))
}

/// Returns a program that selects the rows with an id below `below`.
fn first(below: i64) -> Program {
    let literal = Literal::new(Value::Int(below.into()), arrow_schema::DataType::Int64).unwrap();
    let filter = Some(Expr::compare(CompareOp::Lt, Expr::Column(0), Expr::Literal(literal)));
    Program { filter, ..scan("t") }
}

/// Returns the ids of the rows, sorted.
fn ids(batches: &[RecordBatch]) -> Vec<i64> {
    integers(batches, 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_in_the_middle_sees_nothing_of_the_rows_and_the_receipt() {
    let (_server, middle, key) = node(70_000).await;
    // Strings that occur in the rows, in the operators of the receipt (execution statistics), and in the description of
    // the table. The man in the middle must see none of them.
    let secrets: [&[u8]; 3] = [b"word number 42", b"id < 500", b"noise"];
    for form in [ResultForm::Plain, ResultForm::Packed, ResultForm::Auto] {
        for (sealed, bound) in [(false, 500), (true, 500), (true, 70_000)] {
            middle.forget();
            let pool = match sealed {
                true => connect(&middle.url(), key, form).await.unwrap(),
                false => RemotePool::connect(&middle.url(), ClientOptions::default())
                    .await
                    .unwrap()
                    .with_results(form),
            };
            let execution = pool.execute(&first(bound), 2).await.unwrap();
            let receipt = execution.receipt.clone();
            let batches = collect(execution).await.unwrap();
            assert_eq!(ids(&batches), (0..bound).collect::<Vec<_>>());
            let receipt = receipt.get().unwrap();
            assert_eq!((receipt.encrypted, receipt.rows_returned as i64), (sealed, bound));
            let seen: u64 = middle.seen.lock().iter().map(|frame| frame.len() as u64).sum();
            assert!(receipt.bytes_on_wire <= seen + 2_000);
            let found = secrets.map(|secret| middle.has_seen(secret));
            if sealed {
                assert_eq!(found, [false; 3], "{form:?}");
            } else if form == ResultForm::Plain {
                assert_eq!(found, [true; 3], "the search finds what is there");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_come_sealed_and_as_they_are() {
    let (server, middle, key) = node(1000).await;
    let pool = connect(&middle.url(), key, ResultForm::Auto).await.unwrap();
    let plain = server.connect().await;
    for wrong in [scan("no_such_table"), Program { filter: Some(Expr::Column(1)), ..scan("t") }] {
        middle.forget();
        let error = run(&pool, &wrong).await.unwrap_err();
        let expected = run(&plain, &wrong).await.unwrap_err();
        assert_eq!((error.kind, &error.message), (expected.kind, &expected.message));
        assert!(!middle.has_seen(error.message.as_bytes()));
    }
    // The connection can still be used after these errors.
    assert_eq!(counted(&pool, "t", 100).await.unwrap(), (100, Some(4950)));
}

/// Executes `program` through the man in the middle. Returns the ids of the rows, or an error; `None` if the client
/// still waits for frames after five seconds.
async fn outcome(
    middle: &Middle,
    key: PublicKey,
    program: &Program,
    form: ResultForm,
) -> Option<Result<Vec<i64>>> {
    let asked = async {
        let pool = connect(&middle.url(), key, form).await?;
        run(&pool, program).await.map(|batches| ids(&batches))
    };
    timeout(Duration::from_secs(5), asked).await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_that_is_changed_is_noticed() {
    let (_server, middle, key) = node(10).await;
    let program = first(3);
    outcome(&middle, key, &program, ResultForm::Plain).await.unwrap().unwrap();
    let frames: Vec<usize> = middle.seen.lock().iter().map(Vec::len).collect();
    // The frames: the description of the table, the node's answers for each operator, the rows, and the receipt.
    assert_eq!(frames.len(), 4);
    let (mut noticed, mut harmless) = (0, 0);
    for (place, bytes) in frames.into_iter().enumerate() {
        for at in 0..bytes {
            middle.change(move |number, mut frame| {
                if number != place {
                    return (vec![frame], false);
                }
                let at = at.min(frame.len() - 1);
                frame[at] ^= 1 << (at % 8);
                // The connection is closed after a change of a header, because with a wrong length each side would wait
                // for the other.
                (vec![frame], at < FRAME_HEADER_BYTES)
            });
            match outcome(&middle, key, &program, ResultForm::Plain).await {
                Some(Err(_)) => noticed += 1,
                Some(Ok(rows)) => {
                    assert_eq!(rows, [0, 1, 2], "byte {at} of frame {place}");
                    harmless += 1;
                }
                None => panic!("byte {at} of frame {place} makes the client wait"),
            }
        }
    }
    assert!(noticed > 1000 && harmless == 0, "{noticed} were noticed, {harmless} were not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_are_dropped_repeated_exchanged_or_cut_off_are_noticed() {
    let (_server, middle, key) = node(300_000).await;
    let program = scan("t");
    for form in [ResultForm::Plain, ResultForm::Packed] {
        middle.change(|_, frame| (vec![frame], false));
        middle.forget();
        let all = outcome(&middle, key, &program, form).await.unwrap().unwrap();
        assert_eq!(all.len(), 300_000);
        // Frames after the end of the result have no effect.
        let is_end = |frame: &Vec<u8>| FrameKind::from_number(frame[4]) == Some(FrameKind::Receipt);
        let count = middle.seen.lock().iter().rposition(is_end).unwrap() + 1;
        assert!(count > 5, "{count} frames");
        let (mut noticed, mut harmless, mut waiting) = (0, Vec::new(), 0);
        let places: Vec<usize> = (0..count).filter(|place| *place < 8 || *place + 8 >= count).collect();
        for place in places {
            for way in 0..5 {
                let held = parking_lot::Mutex::new(None);
                middle.change(move |number, frame| match way {
                    // Way 0 drops the frame. The connection is closed after a frame of unknown kind, so that the client
                    // does not wait.
                    0 if number == place => (vec![], FrameKind::from_number(frame[4]).is_none()),
                    1 if number == place => (vec![frame.clone(), frame], false),
                    // Way 2 swaps the frame with the next one.
                    2 if number == place => {
                        *held.lock() = Some(frame);
                        (vec![], false)
                    }
                    2 => (std::iter::once(frame).chain(held.lock().take()).collect(), false),
                    3 if number == place => (vec![], true),
                    // Way 4 changes the kind of the frame: rows become the end of the result, and the end becomes rows.
                    4 if number == place => {
                        let mut frame = frame;
                        let kind = match FrameKind::from_number(frame[4]).unwrap() {
                            FrameKind::Batch => FrameKind::Parcel,
                            FrameKind::Parcel => FrameKind::Receipt,
                            FrameKind::Receipt => FrameKind::Batch,
                            _ => FrameKind::Unchanged,
                        };
                        frame[4] = kind.number();
                        (vec![frame], false)
                    }
                    _ => (vec![frame], false),
                });
                // If the last frame is missing, the client waits for it as long as the connection lasts.
                let outcome = outcome_soon(&middle, key, &program, form).await;
                match outcome {
                    Some(Err(_)) => noticed += 1,
                    None => waiting += 1,
                    // A frame may be repeated once its stream has ended.
                    Some(Ok(rows)) => {
                        assert!(rows == all, "other rows: way {way}, frame {place} of {count}");
                        harmless.push((way, place, count));
                    }
                }
            }
        }
        // The numbers of changes without effect, and of missing last frames, depend on how the result was divided into
        // frames.
        assert!(
            noticed >= 3 * (harmless.len() + waiting),
            "{noticed} noticed, {waiting} waiting, harmless are (way, frame, frames) {harmless:?}"
        );
    }
}

async fn outcome_soon(
    middle: &Middle,
    key: PublicKey,
    program: &Program,
    form: ResultForm,
) -> Option<Result<Vec<i64>>> {
    timeout(Duration::from_millis(1500), outcome(middle, key, program, form)).await.ok().flatten()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_is_noticed_even_if_it_says_that_it_is_the_one() {
    let (server, middle, key) = node(100).await;
    let other = PrivateKey::random().unwrap().public();
    let error = connect(&middle.url(), other, ResultForm::Auto).await.map(drop).unwrap_err();
    assert!(error.kind == ErrorKind::Denied && error.message.contains(&key.to_string()), "{error}");
    // The node gets another private key after the client has checked the public key.
    let pool = connect(&middle.url(), key, ResultForm::Auto).await.unwrap();
    server.node.set_node_key(PrivateKey::random().unwrap());
    let error = run(&pool, &scan("t")).await.unwrap_err();
    assert!(error.kind == ErrorKind::Denied && error.message.contains("in the clear"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_proves_who_the_node_is_where_it_is_not_sent_in_the_clear() {
    let (mine, others) = (format!("fp_{}", "17".repeat(32)), format!("fp_{}", "18".repeat(32)));
    let access = tokens(&[(&mine, "a"), (&others, "b"), ("short", "c")]);
    let server = Server::with(256 << 20, access.clone()).await.encrypted();
    load(&server.connect_as(&mine).await.unwrap(), "t", LoadMode::Create, 1000).await.unwrap();
    let connect = |url: PoolUrl, token: &str, proof: &str| {
        let tls = url.is_encrypted().then(|| AUTHORITY.clients());
        let sealed = Some(Proof::Token(Arc::new(TokenKey::of(proof).unwrap())));
        let (token, timeout) = (Some(token.to_string()), None);
        async move { RemotePool::connect(&url, ClientOptions { token, timeout, tls, sealed }).await }
    };
    let pool = connect(server.url(), &mine, &mine).await.unwrap();
    assert_eq!(counted(&pool, "t", 100).await.unwrap(), (100, Some(4950)));
    // The client expects proof by another token than the one that it has sent to the node.
    let pool = connect(server.url(), &mine, &others).await.unwrap();
    let error = counted(&pool, "t", 100).await.unwrap_err();
    assert!(error.kind == ErrorKind::Denied && error.message.contains("in the clear"), "{error}");
    // A guessable token admits the client, but cannot seal answers.
    let pool = connect(server.url(), "short", &mine).await.unwrap();
    assert_eq!(counted(&pool, "t", 100).await.unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(TokenKey::of("short").unwrap_err().kind, ErrorKind::Invalid);
    let server = Server::with(256 << 20, access).await;
    let error = connect(server.url(), &mine, &mine).await.map(drop).unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("in the clear"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_programs_run_and_are_prepared_again() {
    let (_server, middle, key) = node(1000).await;
    let pool = connect(&middle.url(), key, ResultForm::Auto).await.unwrap();
    let schema = canonical_schema();
    let handle = pool.prepare(&scan("t"), &schema).await.unwrap();
    let condition = first(20).filter.unwrap();
    for _ in 0..3 {
        let execution = pool.execute_prepared(&handle, Some(&condition), 2).await.unwrap();
        assert_eq!(ids(&collect(execution).await.unwrap()), (0..20).collect::<Vec<_>>());
    }
    // The node evicts the first handle and reports that in a sealed answer, so the man in the middle does not learn it.
    let mut others = Vec::new();
    for below in 0..limits::HANDLES_PER_CONNECTION_MAX as i64 {
        others.push(pool.prepare(&first(below), &schema).await.unwrap());
    }
    let execution = pool.execute_prepared(&handle, Some(&condition), 2).await.unwrap();
    assert_eq!(ids(&collect(execution).await.unwrap()), (0..20).collect::<Vec<_>>());
    assert!(!middle.has_seen(b"nothing is kept"));
    // The answers to changes of rows are sealed, too.
    let schema = canonical_schema();
    let removing = pool.prepare(&removing("t", 10), &schema).await.unwrap();
    assert_eq!(pool.change_rows(&removing, 10).await.unwrap().rows, 990);
    assert_eq!(pool.tables().await.unwrap().len(), 1);
    assert!(!middle.has_seen(b"word number 42"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_and_thousands_of_frames() {
    let (server, middle, key) = node(1_000_000).await;
    let pool = Arc::new(connect(&middle.url(), key, ResultForm::Plain).await.unwrap());
    let queries = (0..8).map(|n| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let streams = 1 + n % 3;
            let execution = pool.execute(&scan("t"), streams).await?;
            let read = |mut stream: BatchStream| async move {
                let mut rows = 0;
                while let Some(batch) = stream.next().await {
                    rows += batch?.num_rows();
                }
                Result::<usize>::Ok(rows)
            };
            let reading = execution.streams.into_iter().map(|stream| tokio::spawn(read(stream)));
            let reading: Vec<JoinHandle<Result<usize>>> = reading.collect();
            let mut rows = 0;
            for read in reading {
                rows += read.await.unwrap()?;
            }
            Result::<usize>::Ok(rows)
        })
    });
    for query in queries.collect::<Vec<_>>() {
        assert_eq!(query.await.unwrap().unwrap(), 1_000_000);
    }
    let frames = middle.seen.lock().len();
    assert!(frames > 500, "{frames} frames");
    eventually("all programs end", || server.programs_running() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_leaves_behind_is_given_back() {
    let (server, middle, key) = node(1_000_000).await;
    let work = || server.node.status().work_bytes_used;
    eventually("the load's profile is done", || work() < 20 << 20).await;
    for leaves in [true, false] {
        let pool = connect(&middle.url(), key, ResultForm::Plain).await.unwrap();
        let mut execution = pool.execute(&scan("t"), 1).await.unwrap();
        execution.streams[0].next().await.unwrap().unwrap();
        assert_eq!(server.programs_running(), 1);
        if leaves {
            drop(execution);
            assert_eq!(counted(&pool, "t", 100).await.unwrap(), (100, Some(4950)));
        } else {
            drop((pool, execution));
        }
        eventually("the program ends", || server.programs_running() == 0).await;
        eventually("its memory is given back", || work() < 20 << 20).await;
    }
}

/// Sends a request that asks for sealed answers, on the stream `stream`; returns what decrypts its answers.
async fn send_sealed(
    raw: &mut Raw,
    stream: u32,
    request: &Request,
    key: PublicKey,
    (token, prepared): (Option<&str>, Option<Digest>),
) -> Opener {
    let plain = request.encode().unwrap().pop().unwrap();
    let proof = Proof::NodeKey(key);
    let (message, opener) = Opener::new(plain, &proof, sealed::shown(token), prepared).unwrap();
    raw.socket.write_all(&message.frames(stream).concat()).await.unwrap();
    opener
}

async fn open_next(raw: &mut Raw, opener: &Opener) -> Result<Message> {
    let message = raw.next().await.expect("an answer");
    opener.check(&message)?;
    opener.open(message)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_was_given_to_another_program_gives_no_rows() {
    let (server, _middle, key) = node(100).await;
    let mut raw = Raw::connect(&server).await;
    let Request::Execute { plan, .. } = execute("t") else { panic!() };
    let prepare = Request::Prepare { plan, schema: None };
    let opener = send_sealed(&mut raw, 1, &prepare, key, (None, None)).await;
    let prepared = open_next(&mut raw, &opener).await.unwrap();
    assert_eq!(prepared.kind, FrameKind::Prepared);
    let bound = Some(opener.bind(&prepared));
    let run = Request::ExecutePrepared { handle: 1, conditions: None, results: ResultForm::Plain };
    let opener = send_sealed(&mut raw, 3, &run, key, (None, bound)).await;
    assert_eq!(open_next(&mut raw, &opener).await.unwrap().kind, FrameKind::Unchanged);
    while open_next(&mut raw, &opener).await.unwrap().kind != FrameKind::Receipt {}
    // A man in the middle prepares another program under the same handle, first unsealed, then sealed. The client
    // detects both.
    let schema = canonical_schema();
    let plan = farpool_wire::substrait::encode_program(&first(3), &schema).unwrap();
    let other = Request::Prepare { plan, schema: None };
    raw.send(1, &Request::Cancel).await;
    raw.send(1, &other).await;
    assert_eq!(raw.next().await.unwrap().kind, FrameKind::Prepared);
    let opener = send_sealed(&mut raw, 5, &run, key, (None, bound)).await;
    assert_eq!(open_next(&mut raw, &opener).await.unwrap_err().kind, ErrorKind::Corrupt);
    raw.send(1, &Request::Cancel).await;
    send_sealed(&mut raw, 1, &other, key, (None, None)).await;
    while raw.next().await.unwrap().kind != FrameKind::Prepared {}
    let opener = send_sealed(&mut raw, 7, &run, key, (None, bound)).await;
    assert_eq!(open_next(&mut raw, &opener).await.unwrap_err().kind, ErrorKind::Corrupt);
    // A sealed execution of a released handle is answered with a sealed error.
    raw.send(1, &Request::Cancel).await;
    let opener = send_sealed(&mut raw, 9, &run, key, (None, bound)).await;
    let gone = loop {
        let message = raw.next().await.expect("an answer");
        if message.stream == 9 {
            break opener.open(message).unwrap();
        }
    };
    let Response::Error(gone) = Response::decode(&gone, None).unwrap() else { panic!("{gone:?}") };
    assert_eq!(gone.kind, ErrorKind::Stale);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_for_another_tenant_are_for_nobody_else() {
    let server = Server::with(256 << 20, tokens(&[("mine", "a"), ("theirs", "b")])).await;
    let key = PrivateKey::random().unwrap();
    let public = key.public();
    server.node.set_node_key(key);
    for token in ["mine", "theirs"] {
        load(&server.connect_as(token).await.unwrap(), "t", LoadMode::Create, 100).await.unwrap();
    }
    // "theirs": a man in the middle has sent the node a token of another tenant instead of the client's. The client
    // must not be able to open the answers, because they are about that tenant's table.
    for (shown, opens) in [("mine", true), ("theirs", false)] {
        let socket = Arc::new(tokio::net::TcpStream::connect(server.address).await.unwrap());
        let mut raw = Raw::with_token(socket, Some(shown)).await;
        let opener = send_sealed(&mut raw, 1, &execute("t"), public, (Some("mine"), None)).await;
        assert_eq!(open_next(&mut raw, &opener).await.is_ok(), opens);
    }
}
