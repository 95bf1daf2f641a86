//! Tests of `farpool profile` as a user runs it: files, streams and tables, every format, and errors.

#![expect(clippy::disallowed_methods, reason = "a test may wait, and find a port where nobody listens")]

use crate::cli_support::*;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn profile(args: &[&str]) -> Value {
    let done = farpool(&[&["profile", "--format", "json"], args].concat()).ok();
    serde_json::from_str(&done).unwrap()
}

fn column<'a>(report: &'a Value, name: &str) -> &'a Value {
    let columns = report["columns"].as_array().unwrap();
    columns.iter().find(|c| c["name"] == json!(name)).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Checks the report of a table of 3000 [`trips`].
#[track_caller]
fn check_trips(report: &Value) {
    assert_eq!(report["rows"], json!(3000));
    let (id, city, fare, note) =
        (column(report, "id"), column(report, "city"), column(report, "fare"), column(report, "note"));
    assert_eq!((&id["min"], &id["max"], &id["sum"]), (&json!(0), &json!(2999), &json!(4_498_500.0)));
    let distinct = &id["distinct"];
    assert!(distinct["low"].as_u64() <= Some(3000) && distinct["high"].as_u64() >= Some(3000), "{distinct}");
    assert_eq!((&city["min"], &city["mean"]), (&json!("Oslo"), &Value::Null));
    assert_eq!(city["top"].as_array().unwrap().len(), 3);
    assert_eq!(city["top"][0]["count"], json!(1000));
    assert_eq!((&fare["mean"], &note["nulls"]), (&json!(49.5), &json!(1500)));
    let counted: u64 = id["histogram"].as_array().unwrap().iter().map(|b| b["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, 3000);
    let correlation = &report["correlation"];
    assert_eq!(correlation["columns"], json!(["id", "fare", "price"]));
    assert_eq!(correlation["matrix"][0][0], json!(1.0));
    assert_eq!(correlation["matrix"][0][1], correlation["matrix"][1][0]);
}

#[test]
fn files_of_every_format_streams_and_tables_have_the_same_profile() {
    let folder = folder();
    let parquet = trips_parquet(folder.path(), "t.parquet", 3000);
    let csv = trips_csv(folder.path(), "t.csv", 3000);
    let arrow = trips_arrow(folder.path(), "t.arrow", 3000);
    for file in [&parquet, &csv, &arrow] {
        check_trips(&profile(&[text(file)]));
    }
    for file in [&csv, &arrow] {
        let input = std::fs::File::open(file).unwrap();
        let mut command = program(&["profile", "--format", "json", "-"]);
        let done = Running::start({
            command.stdin(Stdio::from(input));
            command
        });
        check_trips(&serde_json::from_str(&done.wait().ok()).unwrap());
    }
    let server = Server::with_table("trips", &parquet);
    let report: Value =
        serde_json::from_str(&server.run(&["profile", "trips", "--format", "json"]).ok()).unwrap();
    check_trips(&report);
    assert_eq!(report["source"], json!("pool"));
    assert_eq!(column(&report, "city")["distinct"]["exact"], json!(true));
    // The profile was computed while the rows were loaded (by the tap of the load), so that no program has read the
    // table.
    assert_eq!(server.status()["tenants"][0]["programs"], json!(0));
}

#[test]
fn an_append_adds_to_the_profile() {
    let folder = folder();
    let one = trips_parquet(folder.path(), "one.parquet", 1000);
    let server = Server::with_table("t", &one);
    server.run(&["load", "--append", "t", text(&one)]).ok();
    let report: Value =
        serde_json::from_str(&server.run(&["profile", "t", "--format", "json"]).ok()).unwrap();
    assert_eq!(report["rows"], json!(2000));
    assert_eq!(column(&report, "id")["sum"], json!(999_000.0));
    assert_eq!(column(&report, "note")["nulls"], json!(1000));
    assert_eq!(server.status()["tenants"][0]["programs"], json!(0));
}

#[test]
fn only_the_columns_that_are_named_in_their_order() {
    let folder = folder();
    let file = trips_parquet(folder.path(), "t.parquet", 300);
    let server = Server::with_table("t", &file);
    let names = |report: &Value| -> Vec<String> {
        let columns = report["columns"].as_array().unwrap();
        columns.iter().map(|c| c["name"].as_str().unwrap().to_string()).collect()
    };
    let of_file = profile(&[text(&file), "--columns", "price,id,city"]);
    assert_eq!(names(&of_file), ["price", "id", "city"]);
    assert_eq!(column(&of_file, "id")["max"], json!(299));
    let of_table = server.run(&["profile", "t", "--columns", "price,id,city", "--format", "json"]).ok();
    let of_table: Value = serde_json::from_str(&of_table).unwrap();
    assert_eq!(names(&of_table), ["price", "id", "city"]);
    assert_eq!(of_table["correlation"], of_file["correlation"]);
}

#[test]
fn the_table_fits_a_terminal_of_100_columns() {
    let folder = folder();
    let file = trips_parquet(folder.path(), "t.parquet", 5000);
    let out = farpool(&["profile", text(&file)]).ok();
    assert!(out.contains("5,000 rows, 6 columns") && out.contains("Zürich") && out.contains("█"), "{out}");
    assert!(out.lines().skip(1).all(|line| line.chars().count() <= 100), "too wide:\n{out}");
}

#[test]
fn empty_tables_and_columns_without_values_have_a_profile() {
    let folder = folder();
    let none: ArrayRef = Arc::new(Int64Array::new_null(5));
    let words: ArrayRef = Arc::new(StringArray::new_null(5));
    let rows = RecordBatch::try_from_iter_with_nullable([("n", none, true), ("s", words, true)]).unwrap();
    let write = |name: &str, rows: &RecordBatch| -> PathBuf {
        let path = folder.path().join(name);
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(rows).unwrap();
        writer.close().unwrap();
        path
    };
    for (name, rows) in [("null.parquet", rows.clone()), ("empty.parquet", rows.slice(0, 0))] {
        let file = write(name, &rows);
        let report = profile(&[text(&file)]);
        assert_eq!(report["rows"], json!(rows.num_rows()));
        let n = column(&report, "n");
        assert_eq!(
            (&n["nulls"], &n["min"], &n["mean"]),
            (&json!(rows.num_rows()), &Value::Null, &Value::Null)
        );
        assert_eq!(n["distinct"]["value"], json!(0));
        let server = Server::with_table("t", &file);
        for format in ["table", "html"] {
            assert!(farpool(&["profile", text(&file), "--format", format]).ok().contains("int64"));
            assert!(server.run(&["profile", "t", "--format", format]).ok().contains("int64"));
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    let folder = folder();
    let file = trips_parquet(folder.path(), "t.parquet", 10);
    farpool(&["profile", "/nonexistent/x.parquet"]).fails(1, &["/nonexistent/x.parquet", "there is no file"]);
    farpool(&["profile", text(&file), "--columns", "id,nope"]).fails(1, &["nope", "there is: id, city"]);
    farpool(&["profile", text(&file), "--columns", "id,id"]).fails(1, &["id", "twice"]);
    let server = Server::with_table("trips", &file);
    server.run(&["profile", "trip"]).fails(1, &["trip", "there is: trips"]);
    server.run(&["profile", "trips", "--columns", "x"]).fails(1, &["\"x\""]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("farpool://{}", listener.local_addr().unwrap());
    drop(listener);
    farpool(&["profile", "--pool", &dead, "t"]).fails(3, &[]);
    farpool_reading(&["profile", "-"], "").fails(1, &["standard input is empty"]);
    farpool_reading(&["profile", "-"], "a,b\n1,2\n3,4,5\n").fails(1, &["standard input"]);
    farpool_reading(&["profile", "-"], "PAR1 and so on").fails(1, &["parquet", "by its name"]);
    farpool_reading(&["profile", "-"], "ARROW1\0\0 not really").fails(1, &["arrow"]);
    assert_eq!(farpool(&["profile"]).status, Some(2));
    assert_eq!(farpool(&["profile", "x.csv", "--format", "pdf"]).status, Some(2));
}

#[test]
fn control_c_ends_the_wait_for_a_stream() {
    let mut command = program(&["profile", "-"]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take();
    // Waits until the program has installed its signal handler.
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(&child, "INT");
    assert_eq!(wait(&mut child).code(), Some(130));
    drop(stdin);
}

/// Returns the browser on this machine, if there is one.
fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success()))
}

/// Returns the page's DOM as the browser has it after loading the page.
fn seen(browser: &str, page: &Path) -> String {
    let url = format!("file://{}", text(page));
    let user = format!("--user-data-dir={}", text(&page.with_extension("browser")));
    let args = ["--headless", "--no-sandbox", "--disable-gpu", &user, "--dump-dom", &url];
    let command = Command::new(browser).args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    Running::of(command.unwrap()).wait().stdout
}

#[test]
fn a_browser_shows_the_page() {
    let folder = folder();
    let columns = (0..60).map(|i| {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..100).map(|row| row * (i + 1) % 17)));
        (format!("<b>{i}</b>\"'"), values, true)
    });
    let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let file = folder.path().join("wide.arrow");
    let mut writer =
        arrow::ipc::writer::FileWriter::try_new(std::fs::File::create(&file).unwrap(), &rows.schema())
            .unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    let page = folder.path().join("p.html");
    let html = farpool(&["profile", text(&file), "--format", "html"]).ok();
    assert_eq!(html.matches("class=\"cell\"").count(), 3600);
    let Some(browser) = browser() else { return eprintln!("no browser here: only the text was looked at") };
    // The script that measures the page is inserted for the test only.
    let script = "<script>document.body.append('cells ' + document.querySelectorAll('svg.heat rect.cell').length + \
                  ' cards ' + document.querySelectorAll('article').length + ' bold ' + \
                  document.querySelectorAll('b').length + ' wide ' + \
                  (document.documentElement.scrollWidth > innerWidth) + '.')</script></body>";
    std::fs::write(&page, html.replace("</body>", script)).unwrap();
    let seen = seen(browser, &page);
    assert!(
        seen.contains("cells 3600 cards 60 bold 4 wide false."),
        "{}",
        &seen[seen.len().saturating_sub(600)..]
    );
}
