//! Tests of the program from the user's point of view: each command, each format, in-process and against a node.

use crate::cli_support::*;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use serde_json::{Value, json};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn help_and_version_are_there_for_every_command() {
    assert!(farpool(&["--version"]).ok().starts_with("farpool 0."));
    let help = farpool(&["--help"]).ok();
    for command in [
        "demo",
        "shell",
        "sql",
        "serve",
        "load",
        "export",
        "profile",
        "tables",
        "drop",
        "status",
        "check",
        "queries",
        "cancel",
        "token",
        "calibrate",
        "completions",
        "man",
        "help",
    ] {
        assert!(help.contains(command), "{command} is missing in:\n{help}");
        let own = farpool(&[command, "--help"]).ok();
        assert!(own.contains("Example"), "no example in:\n{own}");
        assert!(own.lines().all(|line| line.chars().count() <= 110), "too wide:\n{own}");
    }
}

#[test]
fn files_of_every_format_are_tables() {
    let folder = folder();
    let files = [
        trips_parquet(folder.path(), "t.parquet", 1000),
        trips_csv(folder.path(), "t.csv", 1000),
        trips_arrow(folder.path(), "t.arrow", 1000),
    ];
    for file in files {
        let sql = format!(
            "select city, count(*) as n, sum(fare) as s, count(note) as notes from '{}' \
             where id >= 100 group by city order by city",
            text(&file)
        );
        let expected = "city,n,s,notes\nOslo,300,14850.0,150\nRome,300,14850.0,150\nZürich,300,14850.0,150\n";
        assert_eq!(sql_csv(&sql), expected, "{}", file.display());
    }
}

#[test]
fn patterns_join_files_and_files_join_each_other() {
    let folder = folder();
    trips_parquet(folder.path(), "part-1.parquet", 10);
    trips_parquet(folder.path(), "part-2.parquet", 5);
    let pattern = folder.path().join("part-*.parquet");
    assert_eq!(sql_csv(&format!("select count(*) as n from '{}'", text(&pattern))), "n\n15\n");
    let one = folder.path().join("part-1.parquet");
    let two = folder.path().join("part-2.parquet");
    let sql = format!(
        "select sum(a.id + b.id) as s from '{}' a join '{}' b on a.id = b.id",
        text(&one),
        text(&two)
    );
    assert_eq!(sql_csv(&sql), "s\n20\n");
}

#[test]
fn a_table_is_printed_for_people() {
    let done = farpool(&["sql", "-c", "select 'a' as name, 7 as n union all select NULL, 1000 order by n"]);
    assert!(done.stderr.contains("(2 rows, "), "{}", done.stderr);
    let expected = "name │    n\n─────┼─────\na    │    7\nNULL │ 1000\n";
    assert_eq!(done.ok(), expected);
}

#[test]
fn long_results_come_whole_in_every_format() {
    let sql = "select * from generate_series(1, 30000)";
    let rows = |format: &str| farpool(&["sql", "--format", format, "-c", sql]).ok().lines().count();
    assert_eq!(rows("table"), 30_002);
    assert_eq!(rows("csv"), 30_001);
    assert_eq!(rows("json"), 30_000);
    assert_eq!(rows("ndjson"), 30_000);
    assert_eq!(rows("tsv"), 30_001);
    assert_eq!(rows("box"), 30_004);
    assert_eq!(rows("markdown"), 30_002);
    assert_eq!(rows("line"), 59_999);
}

#[test]
fn a_statement_that_takes_longer_than_it_may_is_ended() {
    let endless = "select max(value) from generate_series(1, 1000000000000)";
    let pairs = "select count(*) from generate_series(1, 400000) a, generate_series(1, 400000) b";
    let likes = "select count(*) from generate_series(1, 100000) a(n) join generate_series(1, 100000) b(n) \
                 on a.n::text like '%' || b.n::text || 'x'";
    for text in [endless, pairs, likes] {
        farpool(&["sql", "--timeout", "300ms", "-c", text]).fails(1, &["longer than the 300ms", "--timeout"]);
    }
    assert_eq!(
        farpool(&["sql", "--timeout", "1min", "--format", "csv", "-c", "select 1 as a"]).ok(),
        "a\n1\n"
    );
    farpool(&["sql", "--timeout", "3 weeks", "-c", "select 1"]).fails(2, &["is not a time", "30s"]);
}

#[test]
fn one_interrupt_ends_a_statement_that_computes() {
    let pairs = "select count(*) from generate_series(1, 400000) a, generate_series(1, 400000) b";
    let running = Running::start(program(&["sql", "--local", "-c", pairs]));
    // Before the handler is installed, the signal would end the process by itself.
    #[expect(
        clippy::disallowed_methods,
        reason = "what the program has installed cannot be seen from outside"
    )]
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal(&running.child, "INT");
    let run = running.wait();
    assert_eq!((run.status, run.stderr.trim()), (Some(130), "interrupted"));
}

#[test]
fn a_value_that_json_has_no_text_for_is_an_error() {
    let text = "select arrow_cast(9223372036854775807, 'Timestamp(Microsecond, None)') as t";
    for format in ["json", "ndjson"] {
        farpool(&["sql", "--format", format, "-c", text]).fails(1, &["\"t\"", "cannot be written"]);
    }
}

#[test]
fn tables_can_be_made_and_changed_without_a_node() {
    let folder = folder();
    let file = trips_csv(folder.path(), "trips.csv", 1000);
    let sql = format!(
        "create table d as select * from '{}'; delete from d where true is not null; \
         create table e as select i, i % 2 as odd from generate_series(1, 10) g(i); \
         update e set i = 0 where odd = 1; select (select count(*) from d) as d, sum(i) as e from e",
        file.display()
    );
    assert_eq!(
        farpool(&["sql", "--format", "csv", "-c", &sql]).ok(),
        "count\n1000\n\ncount\n5\n\nd,e\n0,30\n"
    );
}

#[test]
fn csv_has_a_header_even_without_rows() {
    assert_eq!(sql_csv("select 1 as a, 'x,\"y\"' as b, NULL as c"), "a,b,c\n1,\"x,\"\"y\"\"\",\n");
    assert_eq!(sql_csv("select 1 as a where false"), "a\n");
}

#[test]
fn json_is_an_object_on_a_line_for_each_row() {
    let sql =
        "select 1 as a, 'x\ny' as b, NULL as c, date '2024-02-29' as d, cast(1.50 as decimal(9,2)) as e";
    let out = farpool(&["sql", "--format", "ndjson", "-c", sql]).ok();
    assert_eq!(out.lines().count(), 1);
    let row: Value = serde_json::from_str(&out).unwrap();
    let array: Value = serde_json::from_str(&farpool(&["sql", "--format", "json", "-c", sql]).ok()).unwrap();
    assert_eq!(array, json!([row]));
    let none = farpool(&["sql", "--format", "json", "-c", "select 1 as a where false"]).ok();
    assert_eq!(none, "[]\n");
    assert_eq!(row["a"], json!(1));
    assert_eq!(row["b"], json!("x\ny"));
    assert_eq!(row["c"], Value::Null);
    assert!(row.as_object().unwrap().contains_key("c"), "NULL is null, not left out");
    assert_eq!(row["d"], json!("2024-02-29"));
}

#[test]
fn floats_that_json_has_no_number_for_are_texts() {
    let floats = "'nan'::double as a, 'inf'::double as b, [1.5, '-inf'::double] as c, null::double as d";
    let out = farpool(&["sql", "--format", "ndjson", "-c", &format!("select {floats}")]).ok();
    let expected = json!({ "a": "NaN", "b": "Infinity", "c": [1.5, "-Infinity"], "d": null });
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), expected);
}

#[test]
fn results_are_fitted_where_that_is_asked_for() {
    let sql = "select value as n, repeat('ab', 50) as text, count(*) over () from generate_series(1, 1000)";
    let done = farpool(&["sql", "--max-rows", "4", "--max-width", "40", "-c", sql]);
    assert!(done.stderr.contains("(1,000 rows, 4 shown, "), "{}", done.stderr);
    let out = done.ok();
    assert!(out.contains("abababa…bababab") && out.contains("⋮"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 40), "{out}");
    assert_eq!(out.lines().count(), 7);
}

#[test]
fn the_command_line_is_completed_and_has_manual_pages() {
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef farpool"), ("fish", "complete -c farpool")]
    {
        let script = farpool(&["completions", shell]).ok();
        assert!(
            script.contains(sign) && script.contains("rotate-key") && script.contains("max-width"),
            "{script}"
        );
    }
    farpool(&["completions", "tcl"]).fails(2, &["tcl", "bash"]);
    let page = farpool(&["man"]).ok();
    assert!(page.contains(".TH farpool 1") && page.contains("farpool\\-sql(1)"), "{page}");
    assert!(farpool(&["man", "sql"]).ok().contains(".TH farpool-sql 1"));
    farpool(&["man", "nothing"]).fails(2, &["no command nothing", "the commands are demo, shell, sql"]);
    let folder = folder();
    let pages = folder.path().join("man1");
    farpool(&["man", "--dir", text(&pages)]).ok();
    for name in ["farpool.1", "farpool-shell.1", "farpool-rotate-key.1"] {
        assert!(pages.join(name).is_file(), "{name}");
    }
    assert!(farpool(&["help", "sql"]).ok().contains("--max-width"));
    farpool(&["help", "--help"]).ok();
}

#[test]
fn a_node_does_not_promise_memory_that_the_machine_does_not_have() {
    for flag in ["--memory", "--work-memory"] {
        farpool(&["serve", "--listen", "127.0.0.1:0", flag, "100TiB"])
            .fails(2, &[&format!("{flag} 100.0 TiB is more than"), "this machine has"]);
    }
}

/// Options take precedence over environment variables, and these over the configuration file, whose token is sent only
/// to the pool that the file names.
#[test]
fn the_pool_and_the_token_are_named_in_one_order() {
    let folder = folder();
    let tokens = Tokens::new(folder.path());
    let (ann, bob) = (tokens.add("ann", "write"), tokens.add("bob", "write"));
    let one = Server::start(&["--access", text(&tokens.path)]);
    let other = Server::start(&["--access", text(&tokens.path)]);
    let open = Server::start(&[]);
    let run = |config: &str, variables: &[(&str, &str)], args: &[&str]| {
        let place = folder.path().join("farpool");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("config.toml"), config).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(place.join("config.toml"), private).unwrap();
        let mut command = program(args);
        command.env("XDG_CONFIG_HOME", folder.path()).envs(variables.iter().copied());
        Running::start(command).wait()
    };
    let of = |server: &Server| server.url.strip_prefix("farpool://").unwrap().to_string();
    let url = |done: Done| done.ok().lines().next().unwrap_or_default().to_string();
    let named = format!("pool = \"{}\"\ntoken = \"{ann}\"\n", one.url);
    let status =
        |variables: &[(&str, &str)], args: &[&str]| run(&named, variables, &[&["status"], args].concat());
    assert!(url(status(&[], &[])).contains(&of(&one)));
    assert!(url(status(&[("FARPOOL_POOL", &open.url)], &[])).contains(&of(&open)));
    assert!(url(status(&[("FARPOOL_POOL", &one.url)], &["--pool", &open.url])).contains(&of(&open)));
    status(&[], &["--pool", &other.url]).fails(3, &["token"]);
    status(&[("FARPOOL_TOKEN", &bob)], &["--pool", &other.url]).ok();
    let sql = |variables: &[(&str, &str)], args: &[&str]| {
        let command = ["sql", "--format", "csv", "-c"];
        run(&named, variables, &[&command, args].concat())
    };
    sql(&[], &["create table t as select 1 as a"]).ok();
    assert_eq!(sql(&[], &["select a from t"]).ok(), "a\n1\n");
    sql(&[("FARPOOL_TOKEN", &bob)], &["select a from t"]).fails(1, &["no table t"]);
    sql(&[], &["select a from t", "--token", &bob]).fails(1, &["no table t"]);
    sql(&[], &["select a from t", "--local"]).fails(1, &["no table t"]);
    let gone = ("FARPOOL_POOL", "farpool://127.0.0.1:1");
    sql(&[gone], &["select 1"]).fails(3, &["127.0.0.1:1", "the variable FARPOOL_POOL names this node"]);
    sql(&[("FARPOOL_POOL", "http://x")], &["select 1"])
        .fails(2, &["the variable FARPOOL_POOL", "not the address"]);
    run("pool = \"farpool://127.0.0.1:1\"", &[], &["status"]).fails(3, &["config.toml names this node"]);
    run("pol = 1", &[], &["status"]).fails(2, &["config.toml: line 1", "unknown field `pol`"]);
}

#[test]
fn an_arrow_stream_has_plain_strings() {
    let folder = folder();
    let file = trips_parquet(folder.path(), "t.parquet", 20_000);
    let sql = format!("select id, city, note from '{}'", text(&file));
    let done = farpool(&["sql", "--format", "arrow", "-c", &sql]);
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    let reader = arrow::ipc::reader::StreamReader::try_new(done.stdout_bytes.as_slice(), None).unwrap();
    assert_eq!(reader.schema().field(1).data_type(), &arrow::datatypes::DataType::Utf8);
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_000);
    let ids: i64 =
        batches.iter().map(|b| b.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>()).sum();
    assert_eq!(ids, 19_999 * 20_000 / 2);
    assert_eq!(batches.iter().map(|b| b.column(2).null_count()).sum::<usize>(), 10_000);
}

#[test]
fn statements_come_from_commands_a_file_or_standard_input() {
    let expected = "a\n1\n\nb\n2\n";
    let csv = ["sql", "--format", "csv"];
    let with = |more: &[&str]| farpool(&[&csv, more].concat()).ok();
    assert_eq!(with(&["-c", "select 1 as a; select 2 as b"]), expected);
    assert_eq!(with(&["-c", "select 1 as a", "-c", "select 2 as b;"]), expected);
    let folder = folder();
    let file = folder.path().join("q.sql");
    std::fs::write(&file, "-- one\nselect 1 as a;\n-- two\nselect 2 as b;\n").unwrap();
    assert_eq!(with(&["-f", text(&file)]), expected);
    assert_eq!(farpool_reading(&csv, "select 1 as a;\nselect 2 as b\n").ok(), expected);
}

#[test]
fn explain_and_receipt_go_together() {
    let folder = folder();
    let file = trips_parquet(folder.path(), "t.parquet", 1000);
    let receipt = folder.path().join("r.json");
    let sql = format!("select sum(fare) as s from '{}' where id < 100", text(&file));
    let args = ["sql", "--explain", "--receipt", text(&receipt), "--format", "csv", "-c", &sql];
    let done = farpool(&args);
    assert!(done.stderr.contains("exact"), "no answers in:\n{}", done.stderr);
    assert!(done.stderr.contains("cost       push"), "no estimate in:\n{}", done.stderr);
    assert!(
        done.stderr.contains("expected; ") && done.stderr.contains(" seen"),
        "no outcome in:\n{}",
        done.stderr
    );
    assert_eq!(done.ok(), "s\n4950.0\n");
    let receipt: Value = serde_json::from_str(&std::fs::read_to_string(&receipt).unwrap()).unwrap();
    assert_eq!(receipt["rows_scanned"], json!(1000));
    assert_eq!(receipt["rows_returned"], json!(1));
    assert_eq!(receipt["bytes_on_wire"], json!(0));
    for name in ["bytes_scanned", "bytes_skipped", "cpu_ns", "elapsed_ns"] {
        assert!(receipt[name].is_u64(), "{name} in {receipt}");
    }
    let operators = receipt["operators"].as_array().unwrap();
    assert!(!operators.is_empty());
    for operator in operators {
        assert!(operator["name"].is_string() && operator["answer"] == json!("exact"), "{operator}");
        assert!(operator.as_object().unwrap().contains_key("reason"), "{operator}");
    }
}

#[test]
fn calibration_is_kept_with_the_machine() {
    let folder = folder();
    let mut command = program(&["calibrate", "--format", "json"]);
    command.env("XDG_CACHE_HOME", folder.path());
    let printed: Value = serde_json::from_str(&Running::start(command).wait().ok()).unwrap();
    let kept = folder.path().join("farpool").join("calibration.json");
    let read = || std::fs::read_to_string(&kept).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&read()).unwrap(), printed);
    assert!(printed.as_object().unwrap().values().all(|rate| rate.as_f64().unwrap() > 0.0), "{printed}");
    std::fs::write(&kept, "damaged").unwrap();
    let mut command = program(&["sql", "--format", "csv", "-c", "select 1 as a"]);
    command.env("XDG_CACHE_HOME", folder.path());
    let done = Running::start(command).wait();
    assert!(done.stderr.contains("damaged") && done.stderr.contains("farpool calibrate"), "{}", done.stderr);
    assert_eq!(done.ok(), "a\n1\n");
}

#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "a service manager has a socket")]
#[test]
fn a_service_manager_hears_that_the_node_is_ready_and_that_it_stops() {
    let folder = folder();
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let next = || {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let server = Server::start_with(&[], &[("NOTIFY_SOCKET", &path)]);
    assert_eq!(next(), format!("READY=1\nSTATUS={}", server.ready_line.trim_end()));
    assert_eq!(server.stop("TERM"), (Some(0), "stopped\n".into()));
    assert_eq!(next(), "STOPPING=1\nSTATUS=stopping");

    let server = Server::start_with(&[], &[("NOTIFY_SOCKET", &folder.path().join("nobody"))]);
    server.run(&["tables"]).ok();
    let (status, said) = server.stop("TERM");
    assert_eq!(status, Some(0));
    assert!(said.contains("warning: cannot tell the service manager at "), "{said}");
}

#[test]
fn a_node_takes_tables_answers_and_drops_them() {
    let folder = folder();
    let file = trips_parquet(folder.path(), "t.parquet", 100_000);
    let server = Server::start(&[]);
    assert!(server.ready_line.starts_with("listening on farpool://127.0.0.1:"), "{}", server.ready_line);
    assert!(server.ready_line.contains("memory 256.0 MiB and "), "{}", server.ready_line);

    let loaded = server.load("trips", &file);
    assert!(loaded.starts_with("trips: 100,000 rows in "), "{loaded}");
    assert!(loaded.contains("plain") && loaded.contains("encoded"), "{loaded}");

    let listed = server.run(&["tables"]).ok();
    assert!(listed.contains("trips") && listed.contains("100,000"), "{listed}");
    let columns = server.run(&["tables", "trips"]).ok();
    assert!(columns.contains("DECIMAL(12,2)") && columns.contains("│ Zürich "), "{columns}");
    let json: Value = serde_json::from_str(&server.run(&["tables", "--format", "json"]).ok()).unwrap();
    assert_eq!((&json["name"], &json["rows"]), (&json!("trips"), &json!(100_000)));
    assert_eq!(json["columns"][5]["null_count"], json!(50_000));
    let bounds = |column: usize| [&json["columns"][column]["min"], &json["columns"][column]["max"]];
    assert_eq!(bounds(0), [&json!(0), &json!(99_999)]);
    assert_eq!(bounds(1), [&json!("Oslo"), &json!("Zürich")]);
    assert_eq!(bounds(4), [&json!("2022-01-08"), &json!("2035-09-16")]);

    let make = "create view cities as select city, count(*) as n from trips group by city";
    server.run(&["sql", "-c", make]).ok();
    assert_eq!(server.csv("select sum(n) as n from cities"), "n\n100000\n");
    let listed = server.run(&["tables"]).ok();
    assert!(listed.contains("trips") && listed.contains("cities (view)"), "{listed}");
    let json = server.run(&["tables", "--format", "json"]).ok();
    assert!(json.contains(r#"{"name":"cities","schema":"public","view":true}"#), "{json}");
    let view = server.run(&["tables", "cities"]).ok();
    assert!(view.contains("cities: a view") && view.contains("GROUP BY city"), "{view}");
    let shown = server.csv("select table_name, table_type from information_schema.tables where table_type = 'VIEW' and table_schema = 'public'");
    assert_eq!(shown, "table_name,table_type\ncities,VIEW\n");
    server.run(&["load", "cities", text(&file)]).fails(1, &["there is a view \"cities\"", "DROP VIEW"]);
    server.run(&["load", "--append", "cities", text(&file)]).fails(1, &["\"cities\" is a view"]);
    server.run(&["drop", "cities"]).fails(1, &["\"cities\" is a view", "farpool drop --view"]);
    server.run(&["drop", "--view", "trips"]).fails(1, &["\"trips\" is a table", "farpool drop"]);
    assert_eq!(server.run(&["drop", "--view", "cities"]).ok(), "dropped cities\n");

    let sql_on = |table: &str| {
        format!("select city, count(*) as n from {table} where price > 50 group by city order by city")
    };
    let sql = &sql_on("trips");
    assert_eq!(server.csv(sql), sql_csv(&sql_on(&format!("'{}'", text(&file)))));
    let without = server.run(&["sql", "--no-pushdown", "--format", "csv", "-c", sql]).ok();
    assert_eq!(server.csv(sql), without);

    let status = server.status();
    assert_eq!(status["tables"], json!(1));
    assert_eq!(status["programs_running"], json!(0));
    assert!(status["memory_bytes_used"].as_u64().unwrap() > 0);
    let people = server.run(&["status"]).ok();
    assert!(people.contains("programs running  0") && people.contains("default"), "{people}");

    assert_eq!(server.run(&["drop", "trips"]).ok(), "dropped trips\n");
    assert_eq!(server.run(&["tables"]).ok(), "");
    await_free(&server);
}

#[test]
fn push_down_saves_bytes_on_the_wire() {
    let folder = folder();
    let server = Server::with_table("trips", &trips_parquet(folder.path(), "t.parquet", 200_000));
    let bytes = |more: &[&str]| {
        let file = folder.path().join("r.json");
        let sql = "select count(*) as n, sum(price) as s from trips where fare < 3";
        let args = [&["sql", "--format", "csv", "--receipt", text(&file), "-c", sql], more].concat();
        let rows = server.run(&args).ok();
        let receipt: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        (rows, receipt["bytes_on_wire"].as_u64().unwrap())
    };
    let (with, on) = bytes(&[]);
    let (without, off) = bytes(&["--no-pushdown"]);
    assert_eq!(with, without);
    assert!(on > 0 && on * 100 < off, "{on} bytes with push-down, {off} without");
}

/// Waits until the pool has no tables' pages. Pages are freed when their last reader is done, such as the computation
/// of a profile of a table that was just dropped.
#[expect(clippy::disallowed_methods, reason = "a test may wait")]
fn await_free(server: &Server) {
    let is_free = |_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        server.status()["memory_bytes_used"] == json!(0)
    };
    assert!((0..1000).any(is_free), "{}", server.status());
}

#[test]
fn a_replacement_without_room_says_so_before_and_after() {
    let folder = folder();
    let server = Server::start(&["--memory", "6MiB"]);
    let file = noise_parquet(folder.path(), "noise.parquet", 500_000);
    server.load("t", &file);
    let replaced = server.run(&["load", "--replace", "t", text(&file)]);
    replaced.fails(1, &["note: both versions of t", "the old one takes", "the new one needs about"]);
    replaced.fails(1, &["no room for table \"t\" and its replacement", "are free for that", "farpool drop"]);
    server.run(&["drop", "t"]).ok();
    await_free(&server);
    server.load("t", &file);
}

#[test]
fn append_and_replace_do_what_they_say() {
    let folder = folder();
    let server = Server::with_table("t", &trips_parquet(folder.path(), "a.parquet", 70));
    let more = trips_csv(folder.path(), "b.csv", 30);
    let twice = trips_parquet(folder.path(), "c.parquet", 30);
    server
        .run(&["load", "t", text(&twice)])
        .fails(1, &["there is a table \"t\" already", "--replace", "--append"]);
    let out = server.run(&["load", "--append", "t", text(&twice)]).ok();
    assert!(out.contains("30 rows") && out.contains("100 rows in all"), "{out}");
    assert_eq!(server.csv("select count(*) as n, max(id) as m from t"), "n,m\n100,69\n");
    server.run(&["load", "--replace", "t", text(&twice), text(&twice)]).ok();
    assert_eq!(server.csv("select count(*) as n, max(id) as m from t"), "n,m\n60,29\n");
    server.run(&["load", "csv", text(&more)]).ok();
    assert_eq!(server.csv("select count(*) as n, sum(fare) as s from csv"), "n,s\n30,435.0\n");
}

#[test]
fn a_node_and_a_file_meet_in_one_query() {
    let folder = folder();
    let server = Server::with_table("trips", &trips_parquet(folder.path(), "t.parquet", 300));
    let cities = folder.path().join("cities.csv");
    std::fs::write(&cities, "name,country\nOslo,Norway\nRome,Italy\n").unwrap();
    let sql = format!(
        "select country, count(*) as n from trips join '{}' on city = name group by country order by 1",
        text(&cities)
    );
    assert_eq!(server.csv(&sql), "country,n\nItaly,100\nNorway,100\n");
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let mut child = program(&["sql", "--format", "csv", "-c", "select * from generate_series(1, 3000000)"])
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let done = Running::of(child).wait();
    assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_node_stops_when_it_is_told_to() {
    for name in ["INT", "TERM"] {
        let (status, stderr) = Server::start(&[]).stop(name);
        assert_eq!((status, stderr.as_str()), (Some(0), "stopped\n"));
    }
}

#[test]
fn an_open_address_takes_a_word() {
    farpool(&["serve", "--listen", "0.0.0.0:0"])
        .fails(2, &["anyone who can reach", "--access FILE", "--open"]);
    let server = Server::start(&["--listen", "0.0.0.0:0", "--open"]);
    assert_eq!(server.stop("INT"), (Some(0), "stopped\n".to_string()));
}

#[test]
fn tokens_keep_tenants_apart() {
    let folder = folder();
    let access = Tokens::new(folder.path());
    let [ann, bob, reader, admin] = [("ann", "write"), ("bob", "write"), ("ann", "read"), ("ops", "admin")]
        .map(|(t, r)| access.add(t, r));
    let file = trips_parquet(folder.path(), "t.parquet", 10);
    let server = Server::start(&["--access", text(&access.path), "--listen", "0.0.0.0:0"]);
    let by = |token: &str, args: &[&str]| {
        std::fs::write(folder.path().join("token"), format!("{token}\n")).unwrap();
        server.run(&[args, &["--token-file", text(&folder.path().join("token"))]].concat())
    };
    let count = ["sql", "--format", "csv", "-c", "select count(*) as n from t"];
    by(&reader, &["load", "t", text(&file)]).fails(3, &["the right to write"]);
    by(&ann, &["load", "t", text(&file)]).ok();
    assert_eq!(by(&reader, &count).ok(), "n\n10\n");
    by(&bob, &count).fails(1, &["t"]);
    by(&bob, &["tables", "--tenant", "ann"]).fails(3, &["the right to admin"]);
    assert!(by(&admin, &["tables", "--tenant", "ann"]).ok().contains('t'));
    let mut command = program(&["tables", "--pool", &server.url]);
    command.env("FARPOOL_TOKEN", &reader);
    assert!(Running::start(command).wait().ok().contains('t'));
    // A node reads the access file again when it has changed.
    access.remove(&reader);
    until("the end of a token", || by(&reader, &count).status == Some(3));
    assert_eq!(by(&ann, &count).ok(), "n\n10\n");
    std::fs::write(&access.path, "[tenant.ann").unwrap();
    signal(&server.child, "HUP");
    until("the mistake is named", || server.said().contains("line 1"));
    assert_eq!(by(&ann, &count).ok(), "n\n10\n");
    assert_eq!(by(&admin, &["drop", "--tenant", "ann", "t"]).ok(), "dropped t\n");
    let (status, stderr) = server.stop("TERM");
    assert_eq!(status, Some(0));
    assert!(stderr.contains("who may connect stays as it was") && stderr.contains("line 1"), "{stderr}");
    assert!([ann, bob, reader, admin].iter().all(|token| !stderr.contains(token.as_str())), "{stderr}");
}

#[test]
fn the_limits_of_tenants_stand_in_the_status() {
    let folder = folder();
    let access = Tokens::new(folder.path());
    let (ann, admin) = (access.add("ann", "read"), access.add("ops", "admin"));
    let text_of = std::fs::read_to_string(&access.path).unwrap();
    let limits = "weight = 2\npool_memory = \"8MiB\"\nprograms = 4\nprograms_waiting = 1\nconnections = 32\n";
    std::fs::write(&access.path, text_of.replace("[tenant.ann]\n", &format!("[tenant.ann]\n{limits}")))
        .unwrap();
    let server = Server::start(&["--access", text(&access.path)]);
    let shown = server.run(&["status", "--token", &admin]).ok();
    assert!(
        shown.contains("weight 2, memory 8.0 MiB, 4 programs at once and 1 waiting, 32 connections"),
        "{shown}"
    );
    let own: Value =
        serde_json::from_str(&server.run(&["status", "--token", &ann, "--format", "json"]).ok()).unwrap();
    assert_eq!(own["tenants"][0]["weight"], 2);
    assert_eq!(own["tenants"][0]["memory_bytes_limit"], 8 << 20);
    assert_eq!(own["tenants"][0]["result_bytes_limit"], Value::Null);
}

#[test]
fn queries_are_listed_and_cancelled() {
    let folder = folder();
    let access = Tokens::new(folder.path());
    let [ann, reader, bob, admin] = [("ann", "write"), ("ann", "read"), ("bob", "write"), ("ops", "admin")]
        .map(|(tenant, role)| access.add(tenant, role));
    let file = trips_parquet(folder.path(), "t.parquet", 600_000);
    let server = Server::start(&["--access", text(&access.path)]);
    server.run(&["load", "--token", &ann, "t", text(&file)]).ok();
    let listed = |token: &str| -> Vec<Value> {
        let lines = server.run(&["queries", "--token", token, "--format", "json"]).ok();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert!(server.run(&["queries", "--token", &ann]).ok().is_empty());
    // The query runs as long as its rows are not read.
    let stuck = || {
        let args =
            ["sql", "--pool", &server.url, "--token", &reader, "--format", "csv", "-c", "select * from t"];
        let child = program(&args).spawn().unwrap();
        until("its rows wait", || listed(&ann).iter().any(|q| q["state"] == json!("waiting_for_reader")));
        child
    };
    for (token, others) in [(&ann, 0), (&admin, 1)] {
        let child = stuck();
        let query = &listed(&admin)[0];
        assert_eq!((&query["tenant"], &query["table"]), (&json!("ann"), &json!("t")));
        assert!(query["rows"].as_u64().unwrap() > 0 && query["bytes"].as_u64().unwrap() > 0, "{query}");
        assert!(query["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{query}");
        let people = server.run(&["queries", "--token", token]).ok();
        assert!(people.contains("waiting for its reader") && people.contains("ann"), "{people}");
        let id = query["id"].to_string();
        assert!(listed(&bob).is_empty());
        server.run(&["cancel", "--token", &bob, &id]).fails(1, &["there is no query"]);
        assert_eq!(server.run(&["cancel", "--token", token, &id]).ok(), format!("cancelled {id}\n"));
        let done = Running::of(child).wait();
        let by = if others == 1 { "tenant ops" } else { "tenant ann" };
        done.fails(1, &["was cancelled by", by]);
        until("it is gone", || listed(&admin).is_empty());
    }
    server.run(&["tables", "--token", "guessed"]).fails(3, &["token"]);
    let (_, stderr) = server.stop("TERM");
    assert!(stderr.contains("a connection was refused") && stderr.contains("127.0.0.1:"), "{stderr}");
    assert!(!stderr.contains("guessed"), "{stderr}");
}

#[test]
fn a_new_token_is_printed_once_and_its_lines_apart() {
    let args =
        ["token", "new", "--tenant", "sales", "--role", "read", "--name", "n", "--until", "2999-12-31"];
    let (one, two) = (farpool(&args), farpool(&args));
    let token = one.stdout.trim_end();
    assert!(token.starts_with("fp_") && token.len() == 67 && one.stdout.lines().count() == 1, "{token}");
    assert_ne!(one.stdout, two.stdout);
    assert!(
        one.stderr.contains("[tenant.sales]") && one.stderr.contains("until = 2999-12-31"),
        "{}",
        one.stderr
    );
    assert!(!one.stderr.contains(token), "{}", one.stderr);
    for (wrong, part) in
        [("--role", "read, write and admin"), ("--until", "2027-03-31"), ("--tenant", "empty")]
    {
        let mut args = args.map(str::to_string);
        let place = args.iter().position(|arg| arg == wrong).unwrap();
        args[place + 1] = String::new();
        let done = farpool(&args.each_ref().map(String::as_str));
        assert_eq!(done.status, Some(2));
        assert!(done.stderr.contains(part), "{wrong}: {}", done.stderr);
    }
}

#[test]
fn the_demo_runs_and_its_answers_agree() {
    let out = farpool(&["demo", "--scale", "0.01", "--runs", "1", "--memory", "512MiB"]).ok();
    for part in ["Q1", "Q6", "Q3", "LIKE", "network", "Try next", "farpool serve"] {
        assert!(out.contains(part), "{part} is missing in:\n{out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 100), "too wide:\n{out}");
}
