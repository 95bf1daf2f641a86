//! Tests of the program's errors: invalid files, SQL, command lines, networks and nodes. Each error describes the
//! problem, its location and a remedy; nothing hangs, nothing panics, and a node that gets an impossible request
//! continues to serve.

#![expect(clippy::disallowed_methods, reason = "a test may guard against hanging, with a clock and threads")]

use crate::cli_support::*;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Number of rows whose values, at least 8 bytes each in any encoding, fill all buffers between a node and a client
/// that does not read: windows, socket buffers, which grow to some MiB, and the client's own.
const UNREAD_ROWS: u64 = 6_000_000;

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

static SMALL: LazyLock<PathBuf> = LazyLock::new(|| trips_parquet(FOLDER.path(), "small.parquet", 100));

static LARGE: LazyLock<PathBuf> = LazyLock::new(|| trips_parquet(FOLDER.path(), "large.parquet", 600_000));

static UNREAD: LazyLock<PathBuf> =
    LazyLock::new(|| noise_parquet(FOLDER.path(), "unread.parquet", UNREAD_ROWS));

fn sql(statement: &str) -> Done {
    farpool(&["sql", "-c", statement])
}

fn sql_on(file: &Path, statement: &str) -> Done {
    sql(&statement.replace("FILE", &format!("'{}'", text(file))))
}

/// Writes a file with the contents `bytes` to the folder of these tests. Returns its path.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = FOLDER.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Returns the address of a port on which no process listens.
fn dead_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("farpool://{}", listener.local_addr().unwrap())
}

/// Starts a query that keeps running at the node because the client does not read its rows.
fn stuck_query(server: &Server) -> std::process::Child {
    let args = ["sql", "--pool", &server.url, "--format", "csv", "-c", "select * from large"];
    let child = program(&args).spawn().unwrap();
    until("a running program", || server.status()["programs_running"] == json!(1));
    child
}

#[test]
fn what_a_terminal_would_obey_is_shown_to_people_and_given_to_programs() {
    let hostile = "\u{1b}[2J\u{202e}";
    let statement = format!("select '{hostile}' as \"{hostile}\"");
    let table = sql(&statement).ok();
    assert_eq!(table.matches("\\u{1b}[2J\\u{202e}").count(), 2, "{table}");
    assert!(!table.contains(['\u{1b}', '\u{202e}']), "{table}");
    assert_eq!(sql_csv(&statement), format!("{hostile}\n{hostile}\n"));
    let explained = sql(&format!("explain {statement}")).ok();
    assert!(explained.contains("\\u{1b}[2J") && !explained.contains('\u{1b}'), "{explained}");
    let failed = sql(&format!("select \"{hostile}\""));
    failed.fails(1, &["\\u{1b}[2J"]);
    assert!(!failed.stderr.contains(['\u{1b}', '\u{202e}']), "{}", failed.stderr);
}

#[test]
fn a_missing_file_is_named() {
    sql("select * from '/nonexistent/x.parquet'").fails(1, &["/nonexistent/x.parquet", "there is no file"]);
    sql("select * from '/nonexistent/*.parquet'").fails(1, &["/nonexistent/*.parquet"]);
    let server = Server::start(&[]);
    server.run(&["load", "t", "/nonexistent/x.csv"]).fails(1, &["/nonexistent/x.csv", "there is no file"]);
}

#[test]
fn a_broken_parquet_file_is_an_error_wherever_it_is_cut() {
    let whole = std::fs::read(&*LARGE).unwrap();
    let middle = whole.len() / 2;
    let mut damaged = whole.clone();
    damaged[middle..middle + 4096].fill(0xA5);
    let cut_in_the_middle = file("cut.parquet", &whole[..middle]);
    let without_footer = file("nofooter.parquet", &whole[..whole.len() - 1]);
    let only_magic = file("magic.parquet", b"PAR1");
    let empty = file("empty.parquet", b"");
    let text_file = file("text.parquet", b"this is not what its name says\n");
    for broken in [cut_in_the_middle, without_footer, only_magic, empty, text_file] {
        sql_on(&broken, "select count(id) from FILE").fails(1, &[text(&broken)]);
    }
    let damaged = file("damaged.parquet", &damaged);
    sql_on(&damaged, "select max(id), max(city), max(fare), max(price), max(day), max(note) from FILE")
        .fails(1, &[text(&damaged)]);
}

#[test]
fn a_load_of_a_broken_file_leaves_no_trace() {
    let whole = std::fs::read(&*LARGE).unwrap();
    let mut bytes = whole.clone();
    let late = whole.len() - whole.len() / 4;
    bytes[late..late + 4096].fill(0xA5);
    let damaged = file("late.parquet", &bytes);
    let server = Server::with_table("small", &SMALL);
    let before = server.status()["memory_bytes_used"].clone();
    server.run(&["load", "t", text(&damaged)]).fails(1, &[text(&damaged)]);
    assert_eq!(server.run(&["tables", "--format", "json"]).ok().lines().count(), 1);
    until("the return of the memory", || server.status()["memory_bytes_used"] == before);
}

#[test]
fn broken_csv_and_arrow_files_are_errors() {
    let ragged = file("ragged.csv", b"a,b\n1,2\n3,4,5\n");
    sql_on(&ragged, "select * from FILE").fails(1, &[text(&ragged), "3"]);
    let arrow = std::fs::read(trips_arrow(FOLDER.path(), "whole.arrow", 10_000)).unwrap();
    let cut = file("cut.arrow", &arrow[..arrow.len() / 2]);
    sql_on(&cut, "select count(id) from FILE").fails(1, &[text(&cut)]);
    let unknown = file("x.docx", b"PK\x03\x04 and more");
    sql_on(&unknown, "select * from FILE").fails(1, &[text(&unknown), "parquet", "csv"]);
}

#[test]
fn files_that_do_not_agree_are_not_one_table() {
    let one = file("one.csv", b"a,b\n1,2\n");
    let two = file("two.csv", b"a,c\n1,2\n");
    let server = Server::start(&[]);
    server.run(&["load", "t", text(&one), text(&two)]).fails(1, &["one.csv", "two.csv"]);
}

#[test]
fn unknown_tables_and_columns_come_with_close_names() {
    let server = Server::with_table("trips", &SMALL);
    server.run(&["sql", "-c", "select * from trps"]).fails(1, &["trps", "trips"]);
    server.run(&["sql", "-c", "select fair from trips"]).fails(1, &["fair", "fare"]);
    server.run(&["drop", "trps"]).fails(1, &["trps", "trips"]);
    server.run(&["tables", "trps"]).fails(1, &["trps", "trips"]);
    sql_on(&SMALL, "select fair from FILE").fails(1, &["fair", "fare"]);
    sql("select * from trips").fails(1, &["trips"]);
}

#[test]
fn wrong_types_are_errors() {
    sql_on(&SMALL, "select sum(city) from FILE").fails(1, &["sum"]);
    sql_on(&SMALL, "select count(*) from FILE where day > 'not a date'").fails(1, &["not a date"]);
    sql_on(&SMALL, "select cast(city as int) from FILE").fails(1, &["Oslo"]);
    sql_on(&SMALL, "select 1 / (id - id) from FILE").fails(1, &["zero"]);
    let server = Server::with_table("trips", &SMALL);
    server.run(&["sql", "-c", "select 1 / (id - id) from trips"]).fails(1, &["zero"]);
    server.run(&["sql", "-c", "select count(*) from trips where 1 / (id - 50) > 0"]).fails(1, &["zero"]);
}

#[test]
fn errors_in_sql_say_where() {
    sql("selec 1").fails(1, &["selec", "line 1", "column 1"]);
    sql("select 1;\nselect 2 fro m n").fails(1, &["line 2"]);
    sql("select 'open").fails(1, &["line 1"]);
    sql("select nosuchfunction(1)").fails(1, &["nosuchfunction"]);
    let deep = format!("select {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    sql(&deep).fails(1, &[]);
}

#[test]
fn no_sql_at_all_is_an_error() {
    sql("").fails(1, &["no SQL statement", "-c"]);
    sql(" ; -- nothing\n;").fails(1, &["no SQL statement"]);
    farpool_reading(&["sql"], "").fails(1, &["no SQL statement"]);
    farpool(&["sql", "-f", "/nonexistent/q.sql"]).fails(1, &["/nonexistent/q.sql", "no such file"]);
}

#[test]
fn command_lines_that_make_no_sense_end_with_2() {
    farpool(&["sql", "--bogus"]).fails(2, &["--bogus"]);
    farpool(&["bogus"]).fails(2, &["bogus"]);
    farpool(&["sql", "--format", "xml", "-c", "select 1"]).fails(2, &["xml", "json"]);
    farpool(&["sql", "--pool", "http://x", "-c", "select 1"]).fails(2, &["http://x", "farpool://host:port"]);
    farpool(&["serve", "--memory", "lots"]).fails(2, &["lots", "GiB"]);
    farpool(&["serve", "--listen", "nowhere"]).fails(2, &["nowhere", "HOST:PORT"]);
    farpool(&["load", "t"]).fails(2, &["FILE"]);
    farpool(&["load", "--append", "--replace", "t", "f"]).fails(2, &["--append", "--replace"]);
    farpool(&["demo", "--scale", "0"]).fails(2, &["scale"]);
    farpool(&["demo", "--scale", "nan"]).fails(2, &["scale"]);
    // If standard input is no terminal, the program reads a script from it, which is empty here.
    farpool(&[]).fails(1, &["no SQL statement", "farpool sql --help"]);
}

#[test]
fn a_receipt_that_cannot_be_written_stops_before_the_query_runs() {
    let done = farpool(&["sql", "--receipt", "/nonexistent/r.json", "-c", "select 1"]);
    done.fails(1, &["/nonexistent/r.json"]);
    assert_eq!(done.stdout, "");
}

#[test]
fn nobody_at_the_address() {
    let url = dead_url();
    let address = url.trim_start_matches("farpool://").to_string();
    for command in [
        vec!["sql", "-c", "select 1"],
        vec!["tables"],
        vec!["status"],
        vec!["drop", "t"],
        vec!["load", "t", text(&SMALL)],
    ] {
        let args = [&command[..1], &["--pool", &url], &command[1..]].concat();
        farpool(&args).fails(3, &[&address, "farpool serve"]);
    }
    farpool(&["status", "--pool", "farpool://no-such-host.invalid"]).fails(3, &["no-such-host.invalid"]);
}

#[test]
fn a_server_of_another_kind_is_recognised() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("farpool://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    farpool(&["status", "--pool", &url]).fails(3, &[url.trim_start_matches("farpool://"), "farpool"]);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("farpool://{}", listener.local_addr().unwrap());
    farpool(&["status", "--pool", &url]).fails(3, &[url.trim_start_matches("farpool://")]);
    drop(listener);
}

#[test]
fn a_client_that_speaks_nonsense_does_not_hurt_the_node() {
    let server = Server::with_table("trips", &SMALL);
    let address = server.url.trim_start_matches("farpool://");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 4096], &[0; 64], b""] {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        // The node may close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(server.csv("select count(*) as n from trips"), "n\n100\n");
}

#[test]
fn a_node_that_dies_under_a_query_is_an_error() {
    let mut server = Server::with_table("large", &UNREAD);
    let query = stuck_query(&server);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    Running::of(query).wait().fails(3, &[server.url.trim_start_matches("farpool://")]);
}

#[test]
fn ctrl_c_stops_the_query_at_the_node() {
    let server = Server::with_table("large", &UNREAD);
    let query = stuck_query(&server);
    signal(&query, "INT");
    let done = Running::of(query).wait();
    assert_eq!(done.status, Some(130), "{}", done.stderr);
    until("the end of the program", || server.status()["programs_running"] == json!(0));
    assert_eq!(server.csv("select count(*) as n from large"), format!("n\n{UNREAD_ROWS}\n"));
}

#[test]
fn a_client_that_is_killed_stops_the_query_at_the_node() {
    let server = Server::with_table("large", &UNREAD);
    let mut query = stuck_query(&server);
    query.kill().unwrap();
    query.wait().unwrap();
    until("the end of the program", || server.status()["programs_running"] == json!(0));
}

#[test]
fn a_node_stops_under_a_query_that_nobody_reads() {
    let server = Server::with_table("large", &UNREAD);
    let mut query = stuck_query(&server);
    assert_eq!(server.stop("TERM"), (Some(0), "stopped\n".to_string()));
    query.kill().unwrap();
    query.wait().unwrap();
}

#[test]
fn a_second_signal_ends_a_node_at_once() {
    for (name, status) in [("INT", 130), ("TERM", 143)] {
        let server = Server::with_table("large", &UNREAD);
        let mut query = stuck_query(&server);
        signal(&server.child, "INT");
        let address = server.url.trim_start_matches("farpool://").to_string();
        until("the first signal", || std::net::TcpStream::connect(&address).is_err());
        let (ended, stderr) = server.stop(name);
        assert_eq!(ended, Some(status), "{stderr}");
        assert!(stderr.contains("stopped at once"), "{stderr}");
        query.kill().unwrap();
        query.wait().unwrap();
    }
}

#[test]
fn a_wrong_or_missing_token_is_refused() {
    let access = Tokens::new(FOLDER.path());
    let token = access.add("ann", "read");
    let server = Server::start(&["--access", text(&access.path)]);
    server.run(&["tables"]).fails(3, &["token", "--token-file", "FARPOOL_TOKEN"]);
    let wrong = server.run(&["tables", "--token", "guess"]);
    wrong.fails(3, &["token"]);
    assert!(!wrong.stderr.contains("guess"), "a token does not belong on the screen: {}", wrong.stderr);
    server.run(&["tables", "--token", &token]).ok();
    let two = file("two-tokens", b"fp_one fp_two\n");
    let wrong = server.run(&["tables", "--token-file", text(&two)]);
    wrong.fails(1, &["two-tokens", "nothing else"]);
    assert!(!wrong.stderr.contains("fp_one"), "{}", wrong.stderr);
    server.run(&["tables", "--token-file", "/nonexistent/token"]).fails(1, &["/nonexistent/token"]);
    let bad = file("bad-access", b"[tenant.ann]\nweigth = 2\n");
    farpool(&["serve", "--access", text(&bad)]).fails(1, &["bad-access", "line 2", "weight"]);
    farpool(&["serve", "--access", "/nonexistent/access"]).fails(1, &["/nonexistent/access"]);
}

#[test]
fn a_port_in_use_is_named_with_advice() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    farpool(&["serve", "--listen", &address]).fails(3, &[&address, "in use", "--listen"]);
}

#[test]
fn a_table_that_does_not_fit_is_refused_and_the_node_goes_on() {
    let server = Server::start(&["--memory", "4MiB"]);
    server.run(&["load", "large", text(&LARGE)]).fails(1, &["MiB", "4.0 MiB"]);
    assert_eq!(server.run(&["tables"]).ok(), "");
    until("the return of the memory", || server.status()["memory_bytes_used"] == json!(0));
    server.load("small", &SMALL);
    assert_eq!(server.csv("select count(*) as n from small"), "n\n100\n");
}

#[test]
fn a_file_that_does_not_fit_is_read_as_a_stream() {
    let statement = format!("select max(note) is null as n from '{}'", text(&LARGE));
    let args = ["sql", "--memory", "2MiB", "--format", "csv", "-c", &statement];
    assert_eq!(farpool(&args).ok(), "n\nfalse\n");
}
