//! Tests of the memory of a node while clients misbehave: incomplete messages, rows that inflate, results that are not
//! read, groups without end, patterns. Ordinary requests of other clients must succeed. Also tests the engine with less
//! memory than a statement would use.

#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "a test may guard against hanging, with a clock and threads")]

use crate::cli_support::{self, Server, farpool as program, text, trips_parquet};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Schema};
use farpool::model::schema::canonical_schema;
use farpool::model::{
    Aggregate, AggregateFunction, Compression, Expr, NamedExpr, Output, Pattern, TableInfo,
};
use farpool::{Execution, LoadMode, Program, TableName};
use farpool_wire::{FrameHeader, FrameKind, PREFACE, Request, encode_batch};
use futures::StreamExt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const POOL_MIB: u64 = 256;
const WORK_MIB: u64 = 128;

/// Resident memory that a node may use in addition to its pool and its work memory, in MiB: the program itself, and
/// allocations of threads between two checks of the memory budget.
const SLACK_MIB: u64 = 256;

/// Duration for which the attackers continue to reconnect.
const ATTACK: Duration = Duration::from_secs(12);

/// Returns the peak resident memory of a process, in MiB.
fn most_resident_mib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

fn frames(stream: u32, request: &Request) -> Vec<u8> {
    let messages = request.encode().unwrap();
    messages.into_iter().flat_map(|message| message.frames(stream)).flatten().collect()
}

/// Connects a client to the node's protocol. The client reads only the answers that it needs in order to proceed.
fn dial(url: &str) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(url.trim_start_matches("farpool://"))?;
    socket.set_write_timeout(Some(Duration::from_millis(300)))?;
    socket.set_read_timeout(Some(Duration::from_millis(300)))?;
    let hello = Request::Hello {
        version_min: 1,
        version_max: 1,
        token: None,
        timeout_ms: None,
        client: "attacker".into(),
    };
    socket.write_all(&[&PREFACE[..], &frames(0, &hello)].concat())?;
    Ok(socket)
}

fn begin_load(stream: u32, table: String, schema: &Schema) -> Vec<u8> {
    let (table, schema) = (TableName::new(table).unwrap(), canonical_schema(schema).unwrap());
    frames(
        stream,
        &Request::LoadBegin { table, options: LoadMode::Replace.into(), schema, rows_hint: None, id: None },
    )
}

/// Sends incomplete messages on all streams of a connection.
fn incomplete(url: &str, attacker: usize) -> std::io::Result<TcpStream> {
    let mut socket = dial(url)?;
    let schema = rows(1).schema();
    for stream in 1..=30 {
        socket.write_all(&begin_load(stream, format!("i{attacker}_{stream}"), &schema))?;
    }
    let payload = vec![7; 512 << 10];
    let kind = FrameKind::LoadBatch;
    for _ in 0..8 {
        for stream in 1..=30 {
            let header = FrameHeader { length: 512 << 10, kind, more: true, stream };
            socket.write_all(&header.encode())?;
            socket.write_all(&payload)?;
        }
    }
    Ok(socket)
}

/// Creates rows with equal strings, so that a compressed message of some hundred KiB inflates to 48 MiB.
fn rows(count: i64) -> RecordBatch {
    let long = "x".repeat(3000);
    let columns: [ArrayRef; 2] = [
        Arc::new(Int64Array::from_iter_values(0..count)),
        Arc::new(StringViewArray::from_iter_values((0..count).map(|_| &long))),
    ];
    RecordBatch::try_from_iter(["id", "text"].into_iter().zip(columns)).unwrap()
}

/// Sends loads whose rows inflate, and then nothing more.
fn inflating(url: &str, attacker: usize) -> std::io::Result<TcpStream> {
    let mut socket = dial(url)?;
    let batch = rows(16_000);
    let messages = encode_batch(FrameKind::LoadBatch, &batch, Some(Compression::Lz4)).unwrap().messages;
    for stream in 1..=20 {
        socket.write_all(&begin_load(stream, format!("b{attacker}_{stream}"), &batch.schema()))?;
        for message in messages.iter().cloned() {
            socket.write_all(&message.frames(stream).concat())?;
        }
    }
    // Reads until the node closes the connection, so that only the node decides when.
    let mut buffer = vec![0; 64 << 10];
    while socket.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    Ok(socket)
}

/// Starts attackers that reconnect until they are stopped.
fn attack(
    url: &str,
    attackers: usize,
    attack: fn(&str, usize) -> std::io::Result<TcpStream>,
    stop: &Arc<AtomicBool>,
) -> Vec<JoinHandle<()>> {
    let start = |attacker| {
        let (url, stop) = (url.to_string(), stop.clone());
        std::thread::spawn(move || {
            let mut held = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                held.extend(attack(&url, attacker));
                held.drain(..held.len().saturating_sub(4));
                std::thread::sleep(Duration::from_millis(50));
            }
        })
    };
    (0..attackers).map(start).collect()
}

fn group(info: &TableInfo, keys: &[usize], filter: Option<Expr>) -> Program {
    let schema = &info.schema;
    let keys = keys.iter().map(|column| NamedExpr::column(schema, *column)).collect();
    let count = Aggregate {
        name: "n".to_string(),
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        filter: None,
        data_type: DataType::Int64,
    };
    Program {
        filter,
        output: Output::Aggregate { keys, aggregates: vec![count] },
        ..Program::scan(info.name.clone(), schema, &[])
    }
}

/// Runs programs that return many groups, or all rows, and reads none of their results.
async fn unread(url: &str) -> Vec<Execution> {
    let Ok(pool) = farpool::connect(url, None).await else { return Vec::new() };
    let Ok(info) = pool.table(&TableName::new("trips").unwrap()).await else { return Vec::new() };
    let schema = &info.schema;
    let text = schema.fields().iter().position(|field| *field.data_type() == DataType::Utf8View);
    let pattern = |place: usize| Expr::Regex {
        value: Box::new(Expr::Column(text.unwrap())),
        pattern: Pattern::new(&format!("\\w{{1,{place}}}x"), false).unwrap(),
    };
    let mut open = Vec::new();
    for round in 0..40 {
        let program = match round % 3 {
            0 => Program::scan(info.name.clone(), schema, &(0..schema.fields().len()).collect::<Vec<_>>()),
            1 => group(&info, &[0, 5], None),
            _ => group(&info, &[0], Expr::all((20..24).map(pattern).collect())),
        };
        // The node refuses some of the programs, as expected.
        let execution = tokio::time::timeout(Duration::from_millis(100), pool.execute(&program, 1)).await;
        open.extend(execution.into_iter().flatten());
    }
    open
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_keeps_to_its_memory_under_the_worst_that_clients_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = trips_parquet(folder.path(), "trips.parquet", 400_000);
    let sizes = [POOL_MIB, WORK_MIB].map(|mib| format!("{mib}MiB"));
    let server = Server::start(&["--memory", &sizes[0], "--work-memory", &sizes[1], "--workers", "2"]);
    server.load("trips", &file);
    let calm_mib = most_resident_mib(server.child.id());

    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = attack(&server.url, 6, incomplete, &stop);
    threads.extend(attack(&server.url, 4, inflating, &stop));
    let attacked = async {
        let mut held = Vec::new();
        loop {
            held.push(unread(&server.url).await);
            held.drain(..held.len().saturating_sub(3));
        }
    };
    let honest = async {
        let mut answered = 0;
        let pool = farpool::connect(&server.url, None).await.unwrap();
        loop {
            let info = pool.table(&TableName::new("trips").unwrap()).await.unwrap();
            let counted = pool.execute(&group(&info, &[1], None), 1).await;
            if let Ok(execution) = counted {
                let rows = futures::stream::iter(execution.streams).flatten().collect::<Vec<_>>().await;
                answered += usize::from(rows.iter().all(Result::is_ok));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            if stop.load(Ordering::Relaxed) {
                return answered;
            }
        }
    };
    let ended = async {
        tokio::time::sleep(ATTACK).await;
        stop.store(true, Ordering::Relaxed);
    };
    let (answered, ()) = tokio::select! {
        both = async { tokio::join!(honest, ended) } => both,
        () = attacked => unreachable!(),
    };
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    let status = server.status();
    let most = most_resident_mib(server.child.id());
    println!("{most} MiB at most, {calm_mib} before, {answered} answers beside");
    assert!(most < POOL_MIB + WORK_MIB + SLACK_MIB, "{most} MiB resident: {status}");
    assert!(answered > 0, "nobody else was served: {status}");
    // All memory is released once the attackers have gone, and ordinary queries work as before.
    cli_support::until("the return of the memory", || {
        server.status()["work_bytes_used"].as_u64().unwrap() < 4 << 20
    });
    assert_eq!(server.csv("select count(*) from trips").lines().last(), Some("400000"));
}

/// Runs a statement on a file, with `work_memory` as the limit of the memory for joins, sorts and groups.
fn sql_within(work_memory: &str, statement: &str) -> cli_support::Done {
    program(&["sql", "--format", "csv", "--work-memory", work_memory, "-c", statement])
}

#[test]
fn joins_sorts_and_groups_that_do_not_fit_go_to_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = trips_parquet(folder.path(), "trips.parquet", 1_000_000);
    let file = text(&file);
    // Sorts a million rows of some 100 bytes by keys whose order differs from that of the file.
    let sorted = format!(
        "select count(*), sum(p) from (select id % 1000 + 0.5 * row_number() over (order by note, fare, price, id) as p \
         from '{file}')"
    );
    let grouped = format!(
        "select count(*), max(c) from (select note || id as k, count(*) as c from '{file}' group by k)"
    );
    let joined = |join: &str| {
        let on = "a.note || a.id = b.note || b.id and a.fare is not distinct from b.fare";
        format!(
            "select count(*), count(a.id), sum(b.id), max(a.note || b.city || b.note) from '{file}' a {join} \
             (select * from '{file}' where id % 3 > 0) b on {on}"
        )
    };
    let joins = ["join", "left join", "right join", "full join"].map(joined);
    for statement in [sorted, grouped].into_iter().chain(joins) {
        let ample = sql_within("4GiB", &statement).ok();
        assert_eq!(sql_within("64MiB", &statement).ok(), ample, "{statement}");
    }
    let joined = format!(
        "select count(*), max(a.note || b.city || b.note) from '{file}' a join '{file}' b on a.note || a.id = b.note || b.id"
    );
    for size in ["4GiB", "64MiB"] {
        let answer = sql_within(size, &joined).ok();
        assert_eq!(
            answer.lines().last().map(|line| line.starts_with("500000,")),
            Some(true),
            "{size}: {answer}"
        );
    }
    // The values of a NOT IN over a column must fit in memory, those of NOT EXISTS, and of an expression, need not.
    let within = format!("(select b.note || b.id from '{file}' b)");
    let without = format!("select count(*) from '{file}' a where a.note || a.id not in {within}");
    assert_eq!(sql_within("64MiB", &without).ok(), "count(*)\n0\n");
    let keys = format!("(select note || id as k from '{file}') a");
    let without = format!("select count(*) from {keys} where k not in {within}");
    sql_within("64MiB", &without).fails(1, &["--work-memory", "NOT EXISTS"]);
    sql_within("1MiB", &format!("select max(id) from '{file}'")).fails(1, &["64.0 MiB of memory for work"]);
}
