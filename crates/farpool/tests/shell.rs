//! Tests of the shell in a terminal: typed input, and the resulting screen.

use crate::cli_support::terminal::Terminal;
use crate::cli_support::*;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn statements_are_typed_completed_and_cancelled() {
    let home = home();
    let server = Server::with_table("trips", &trips_parquet(home.path(), "t.parquet", 3000));
    let shell = Terminal::shell(home.path(), &["--pool", &server.url], &[]);
    shell.press("sel\t");
    shell.until("farpool> select");
    shell.press(" ci\t from tri\t where far\t = 7 lim\t 2;\r");
    let screen = shell.until("(2 rows, ");
    assert!(screen.contains("farpool> select city from trips where fare = 7 limit 2;"), "{screen}");
    assert!(screen.contains("\ncity\n──────\nRome\nRome\n") || screen.contains("\ncity\n"), "{screen}");

    // If Tab finds several completions, the shell lists them below the line, which stays as it is.
    shell.press("select * from trips where fare > co\t");
    shell.until("count(");
    shell.press("\x03");
    shell.run("select 'a;\r;b' as text;", "a;\\n;b");

    let endless =
        "select count(*) from trips a, trips b, trips c, trips d where a.fare + b.fare + c.fare = d.fare;";
    shell.press(&format!("\x0c{endless}\r"));
    shell.interrupt();
    shell.run("select 41 + 1 as answer;", "42");
    until("the end of the query", || server.status()["programs_running"] == json!(0));

    let described = shell.run("\\d trips", "(6 rows, ");
    assert!(described.contains("price       │ DECIMAL(12,2) │ YES"), "{described}");
    assert!(shell.run("\\dt", "(1 row, ").contains("trips │ table"));
    assert!(shell.run(".schema trips", "price DECIMAL(12,2)").contains("CREATE TABLE trips ("));
    shell.run(".mode markdown", "farpool>");
    let markdown = shell.run("select city, id from trips order by id limit 1;", "(1 row, ");
    assert!(markdown.contains("| city |  id |\n| ---- | --: |\n| Oslo |   0 |"), "{markdown}");
    assert!(shell.run(".receipt", "rows ").contains("exact    trips (id, city)"));
    assert!(shell.leave().success());
}

#[test]
fn formats_for_programs_show_escapes_on_a_terminal() {
    let home = home();
    let shell = Terminal::shell(home.path(), &[], &[]);
    let text = "select 'a' || chr(27) || '[8mb' || chr(8238) || 'c' as t;";
    for (mode, shown) in [
        ("csv", "a\\u{1b}[8mb\\u{202e}c"),
        ("tsv", "a\\u{1b}[8mb\\u{202e}c"),
        ("json", "{\"t\":\"a\\u001b[8mb\\u202ec\"}"),
        ("ndjson", "{\"t\":\"a\\u001b[8mb\\u202ec\"}"),
    ] {
        shell.run(&format!(".mode {mode}"), "farpool>");
        shell.run(text, shown);
    }
    shell.run("copy (select chr(27) || '[8mb' as t) to stdout (format csv);", "\\u{1b}[8mb");
    assert!(shell.leave().success());
}

#[test]
fn results_fit_the_terminal_of_the_moment() {
    let home = home();
    let shell = Terminal::shell(home.path(), &[], &[]);
    let columns: Vec<String> = (0..100).map(|i| format!("{i} as c{i}")).collect();
    std::fs::write(home.path().join("wide.sql"), format!("select {};", columns.join(", "))).unwrap();
    let narrow = shell.run(".read wide.sql", "(1 row, 100 columns, ");
    assert!(narrow.contains("c0 │ c1 │") && narrow.contains("│ … │") && narrow.contains("│ c99"), "{narrow}");
    shell.resize(24, 160);
    let wide = shell.run(".read wide.sql", "(1 row, 100 columns, ");
    let width = |screen: &str| screen.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(width(&narrow) <= 80 && width(&wide) > 140 && width(&wide) <= 160, "{wide}");
    shell.resize(60, 80);
    let long =
        "select i as n, repeat('東京', 100) as text, NULL as nothing from generate_series(1, 3000000) g(i);";
    let screen = shell.run(long, "(3,000,000 rows, 40 shown, ");
    assert!(screen.contains("\n      1 │ 東京") && screen.contains("\n3000000 │ 東京"), "{screen}");
    assert!(screen.contains("京東…") || screen.contains("京…"), "{screen}");
    let rows: Vec<&str> = screen.lines().filter(|line| line.contains('│')).collect();
    assert_eq!(rows.len(), 42, "{screen}");
    shell.run(".rows 4", "farpool>");
    shell.run(long, "(3,000,000 rows, 4 shown, ");
    // `farpool sql` at a terminal shows a wide result in the same way.
    let sql = Terminal::start(home.path(), &["sql", "-f", "wide.sql"], &[]);
    let (status, screen) = sql.end();
    assert_eq!(status, Some(0));
    assert!(screen.contains("│ … │") && screen.contains("100 columns, "), "{screen}");
}

#[test]
fn a_megabyte_is_pasted() {
    let home = home();
    let shell = Terminal::shell(home.path(), &[], &[]);
    let text = "x".repeat(1_000_000);
    shell.press(&format!("\x1b[200~select length('{text}') as long;\x1b[201~\r"));
    shell.until("1000000\n(1 row, ");
    let rows: Vec<String> = (0..30_000).map(|i| format!("({i}, 'some text here')")).collect();
    let values = format!("select count(*) as n, max(a) as most from (values\n{}) v(a, b);", rows.join(",\n"));
    shell.press(&format!("\x1b[200~{values}\x1b[201~\r"));
    shell.until("30000 │ 29999\n(1 row, ");
    // Pastes as in a terminal without bracketed paste, and sends many statements at once.
    let values = format!("select count(*) as n from (values\r{}) v(a, b);\r", rows[..20_000].join(",\r"));
    shell.press(&values);
    shell.until("20000\n(1 row, ");
    shell.press(&"select 1 as one;\r".repeat(100));
    shell.press("select 2 as two;\r");
    shell.until("two\n───\n  2\n(1 row, ");
    assert!(shell.leave().success());
}

#[test]
fn what_was_typed_is_there_the_next_time() {
    let home = home();
    let first = Terminal::shell(home.path(), &[], &[]);
    first.run("select 1 as\rone;", "(1 row, ");
    first.run(" select 'secret';", "secret");
    assert!(first.leave().success());
    let file = home.path().join(".local/state/farpool/history");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(file.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("secret"), "a blank before it keeps it out");
    let second = Terminal::shell(home.path(), &[], &[]);
    second.press("\x1b[A");
    second.until("farpool> select 1 as\none;");
    second.press("\r");
    second.until("(1 row, ");
    // Input that arrives before the prompt appears is not lost and not taken for editing keys.
    second.run("select 2 as two;", "(1 row, ");
    second.press("\x12one");
    second.until("(reverse-i-search)`one': select 1 as");
    second.press("\x03");
    // If the history cannot be written, the shell works without a history.
    let other = Terminal::shell(home.path(), &[], &[("XDG_STATE_HOME", "/proc")]);
    other.run("select 3 as three;", "(1 row, ");
}

#[test]
fn errors_leave_the_shell_as_it_was() {
    let home = home();
    std::fs::write(home.path().join("bad.sql"), ".mode csv\nselect 1 as a;\nselec 2;\nselect 3 as c;\n")
        .unwrap();
    std::fs::write(home.path().join("loop.sql"), ".read loop.sql\n").unwrap();
    let shell = Terminal::shell(home.path(), &[], &[]);
    shell.run("selec 1;", "error: syntax error");
    shell.run("select * from 'none.parquet';", "error: ");
    shell.run(".nothing", "there is no command .nothing");
    shell.run(".mode duck", "the modes are table, box");
    shell.run(".mode arrow", "not for a terminal");
    shell.run(".read none.sql", "no such file");
    let screen = shell.run(".read bad.sql", "bad.sql: syntax error");
    assert!(screen.contains("line 3") && screen.contains("a\n1\n") && !screen.contains("c\n3"), "{screen}");
    shell.run(".read loop.sql", "does it read itself?");
    shell.run("select 5 as five, 'x' as x;", "five,x\n5,x");
    shell.run("help", ".timer, \\timing [on|off]");
    shell.press("exit\r");
    assert_eq!(shell.end().0, Some(0));
    let dead = Terminal::start(home.path(), &["shell", "--pool", "farpool://127.0.0.1:1"], &[]);
    let (status, screen) = dead.end();
    assert_eq!(status, Some(3), "{screen}");
    assert!(screen.contains("127.0.0.1:1"), "{screen}");
}

/// If a node disappears while the shell runs, the shell reports it, and uses the node that is started again at the
/// address.
#[test]
fn a_node_may_come_back() {
    let home = home();
    let server = Server::start(&[]);
    let (url, address) = (server.url.clone(), server.url.strip_prefix("farpool://").unwrap().to_string());
    let shell = Terminal::shell(home.path(), &["--pool", &url], &[]);
    shell.run("create table t as select 1 as a;", "done (");
    drop(server);
    shell.run("select a from t;", "error: ");
    let _again = Server::start(&["--listen", &address]);
    shell.run("create table t as select 2 as a;", "done (");
    shell.run("select a from t;", "2\n(1 row, ");
}

/// While a pager waits for the user, nothing at the node is in use: neither a program nor the table.
#[test]
fn a_pager_that_waits_does_not_hold_the_node() {
    let home = home();
    let server = Server::with_table("trips", &trips_parquet(home.path(), "t.parquet", 200_000));
    let shell = Terminal::shell(home.path(), &["--pool", &server.url], &[]);
    let go = home.path().join("go");
    shell.run(".pager while ! test -e go; do sleep 0.05; done; tail -n 1 > last; echo paged", "farpool>");
    shell.run("select 1 as few;", "few\n───\n  1\n(1 row, ");
    shell.press("select * from trips order by id;\r");
    until("the rows", || {
        server.status()["programs_running"] == json!(0) && server.status()["rows_returned"] != json!(0)
    });
    server.run(&["drop", "trips"]).ok();
    until("free memory", || server.status()["memory_bytes_used"] == json!(0));
    std::fs::write(&go, "").unwrap();
    shell.until("(200,000 rows, ");
    let last = std::fs::read_to_string(home.path().join("last")).unwrap();
    assert!(last.starts_with("199999 │ Rome"), "{last}");
    shell.run(".pager head -n 2", "farpool>");
    shell.run("select * from generate_series(1, 100000);", "value\n──────");
    shell.run(".pager no-such-pager", "farpool>");
    shell.run("select * from generate_series(1, 100);", "cannot start the pager");
    shell.run(".pager off", "farpool>");
    shell.run("select 7 as seven;", "seven");
}

/// If its standard input is no terminal, the shell runs a script as `farpool sql` does.
#[test]
fn a_script_comes_through_a_pipe() {
    let csv = ["shell", "--format", "csv"];
    assert_eq!(farpool_reading(&csv, "select 1 as a; select 2 as b\n").ok(), "a\n1\n\nb\n2\n");
    assert_eq!(
        farpool_reading(&[], ".mode csv\nselect 1 as a;\n.mode json\nselect 2 as b;\n").ok(),
        "a\n1\n[{\"b\":2}]\n"
    );
    let failed = farpool_reading(&csv, "select 1 as a;\n\nselec 2;\nselect 3 as c;\n");
    failed.fails(1, &["syntax error", "line 3"]);
    assert_eq!(failed.stdout, "a\n1\n");
    farpool_reading(&csv, "").fails(1, &["no SQL statement"]);
    farpool_reading(&csv, ".nothing\n").fails(2, &["no command .nothing"]);
    let whole = farpool_reading(&["shell"], "select * from generate_series(1, 1000);").ok();
    assert_eq!(whole.lines().count(), 1002);
}

#[test]
fn the_configuration_file_says_how_the_shell_begins() {
    let home = home();
    let folder = home.path().join(".config/farpool");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), "[shell]\nmode = \"box\"\nmax_rows = 2\ntimer = false\n")
        .unwrap();
    let shell = Terminal::shell(home.path(), &[], &[]);
    let screen = shell.run("select * from generate_series(1, 100);", "(100 rows, 2 shown)");
    assert!(screen.contains("┌───────┐\n│ value │"), "{screen}");
    let shell = Terminal::shell(home.path(), &["--format", "csv"], &[]);
    shell.run("select 1 as a;", "a\n1\n");
    std::fs::write(folder.join("config.toml"), "[shel]\n").unwrap();
    let (status, screen) = Terminal::start(home.path(), &[], &[]).end();
    assert_eq!(status, Some(2));
    assert!(screen.contains("config.toml: line 1: unknown field `shel`"), "{screen}");
}
