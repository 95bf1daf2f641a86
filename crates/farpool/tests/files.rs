//! Tests of files as tables: options of readers, compressed text, JSON, reading without loading, and COPY.

use crate::cli_support::*;
use std::io::Write;
use std::path::Path;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        text(&self.0.path().join(name)).to_string()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn sql(statement: &str) -> Done {
    farpool(&["sql", "--format", "csv", "-c", statement])
}

const FLIGHTS: &str = "origin,dep_delay\nJFK,10\nJFK,NA\nEWR,-5\nEWR,\n";

#[test]
fn options_hold_in_sql_and_on_the_command_line() {
    let folder = Folder::new();
    let file = folder.write("flights.csv.gz", gzip(FLIGHTS.as_bytes()));
    let by = "select origin, avg(dep_delay) as d, count(dep_delay) as n from";
    let expected = "origin,d,n\nEWR,-5.0,1\nJFK,10.0,1\n";
    let call = format!("{by} read_csv('{file}', nullstr = ['NA', '']) group by all order by all");
    assert_eq!(sql(&call).ok(), expected);
    let named = format!("{by} '{file}' group by all order by all");
    let args = ["sql", "--format", "csv", "--null", "NA", "--null", "", "-c", &named];
    assert_eq!(farpool(&args).ok(), expected);
    let profile = farpool(&["profile", "--null", "NA", "--null", "", "--format", "json", &file]).ok();
    let profile: serde_json::Value = serde_json::from_str(&profile).unwrap();
    assert_eq!(profile["columns"][1]["nulls"], 2);
    sql(&format!("from read_csv('{file}', nulstr = 'NA')")).fails(1, &["nulstr", "nullstr", "sample_size"]);
    let two = format!(
        "select a.origin from read_csv('{file}', nullstr = 'NA') a, '{file}' b where a.origin = 'EWR' limit 1"
    );
    assert_eq!(sql(&two).ok(), "origin\nEWR\n");
}

#[test]
fn a_late_value_that_does_not_fit_gives_a_query_other_types_and_ends_a_load() {
    let folder = Folder::new();
    let mut rows = "id,qty\n".to_string();
    (0..30_000).for_each(|i| rows.push_str(&format!("{i},{}\n", i % 10)));
    let late = folder.write("late.csv", rows.clone() + "30000,many\n");
    assert_eq!(sql(&format!("select max(id) as i, max(qty) as q from '{late}'")).ok(), "i,q\n30000,many\n");
    let half = folder.write("half.csv", rows + "30000,0.5\n");
    assert_eq!(sql(&format!("select sum(qty) as q from '{half}'")).ok(), "q\n135000.5\n");
    // Types that were guessed again from all rows also apply to the statements that follow.
    let twice =
        format!("select max(qty) as q from '{late}'; select count(*) as n from '{late}' where qty = 'many'");
    assert!(sql(&twice).ok().ends_with("n\n1\n"));
    let server = Server::start(&[]);
    let parts = ["late.csv, line 30002", "\"many\"", "has type BIGINT", "--types qty=text", "sample_size"];
    server.run(&["load", "t", &late]).fails(1, &parts);
    server.run(&["load", "t", &late, "--types", "qty=text"]).ok();
    server.run(&["load", "u", &late, "--ignore-errors"]).ok();
    assert_eq!(server.csv("select count(*) as n from t"), "n\n30001\n");
    assert_eq!(server.csv("select sum(qty) as n from u"), "n\n135000\n");
}

#[test]
fn looking_does_not_load() {
    let folder = Folder::new();
    let mut rows = "id,t\n".to_string();
    (0..400_000).for_each(|i| {
        rows.push_str(&format!(
            "{i},{:032x}\n",
            u128::from(i as u32).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
        ))
    });
    // A statement that needs only the first rows succeeds, although a later line would make a load of the file fail.
    let file = folder.write("large.csv", rows.clone() + "1,2,3\n");
    assert_eq!(sql(&format!("select id from '{file}' limit 2")).ok(), "id\n0\n1\n");
    assert_eq!(sql(&format!("select id from '{file}' where id = 8 limit 1")).ok(), "id\n8\n");
    assert!(sql(&format!("describe '{file}'")).ok().contains("id,"));
    sql(&format!("select max(id) from '{file}'")).fails(1, &["large.csv, line 400002: 3 fields"]);
    // A file that does not fit in the pool's memory is read as a stream.
    let file = folder.write("whole.csv", rows);
    let statement = format!("select max(t) > 'e' as t, max(id) as i, count(*) as n from '{file}'");
    let args = ["sql", "--memory", "4MiB", "--format", "csv", "-c", &statement];
    assert_eq!(farpool(&args).ok(), "t,i,n\ntrue,399999,400000\n");
}

#[test]
fn json_is_read_with_its_nested_columns() {
    let folder = Folder::new();
    let file =
        folder.write("t.json", "[{\"id\": 1, \"tags\": [\"a\", \"b\"], \"o\": {\"x\": 2}},\n {\"id\": 2}]");
    assert_eq!(sql(&format!("select sum(id) as s from '{file}'")).ok(), "s\n3\n");
    let nested = format!("select id, tags, array_length(tags) as n, o['x'] as x from '{file}' order by id");
    assert_eq!(sql(&nested).ok(), "id,tags,n,x\n1,\"[a, b]\",2,2\n2,,,\n");
    let server = Server::start(&[]);
    let done = server.run(&["load", "t", &file]);
    assert!(done.stderr.contains("left out") && done.stderr.contains("\"tags\" (nested)"), "{}", done.stderr);
    done.ok();
    assert_eq!(server.csv("select * from t order by id"), "id\n1\n2\n");
}

#[test]
fn a_load_takes_columns_a_stream_or_a_query() {
    let folder = Folder::new();
    let file = folder.write("f.csv", FLIGHTS);
    let server = Server::start(&[]);
    server.run(&["load", "a", &file, "--columns", "origin"]).ok();
    assert_eq!(server.csv("select * from a limit 1"), "origin\nJFK\n");
    let query = format!("select origin, count(*) as n from '{file}' group by origin");
    server.run(&["load", "b", "--query", &query]).ok();
    assert_eq!(server.csv("select sum(n) as n from b"), "n\n4\n");
    let input = "{\"x\": 1}\n{\"x\": 2}\n";
    farpool_reading(&["load", "--pool", &server.url, "c", "-"], input).ok();
    assert_eq!(server.csv("select sum(x) as x from c"), "x\n3\n");
    server.run(&["load", "d", &file, "--columns", "nobody"]).fails(1, &["nobody", "origin"]);
}

#[test]
fn copy_writes_each_format_whole() {
    let folder = Folder::new();
    let file = folder.write("weather.csv", "id,city,t\n1,Oslo,\n2,\"a;\"\"b\",7.5\n");
    let copy = |to: &str| sql(&format!("copy (from '{file}') to {to}"));
    assert_eq!(copy("stdout (format csv, header)").ok(), "id,city,t\n1,Oslo,\n2,\"a;\"\"b\",7.5\n");
    assert_eq!(
        copy("stdout (format csv, header false, delimiter ';', null 'NA')").ok(),
        "1;Oslo;NA\n2;\"a;\"\"b\";7.5\n"
    );
    assert_eq!(copy("stdout (format json)").ok().lines().count(), 2);
    let targets =
        ["o.csv", "o.csv.gz", "o.tsv", "o.json", "o.ndjson.zst", "o.parquet", "o.arrow", "o.arrows"];
    for name in targets {
        let path = folder.path(name);
        assert_eq!(copy(&format!("'{path}'")).ok(), "count\n2\n", "{name}");
        let back = sql(&format!("select id, city, t from '{path}' order by id")).ok();
        assert_eq!(back, "id,city,t\n1,Oslo,\n2,\"a;\"\"b\",7.5\n", "{name}");
    }
    let path = folder.path("o.parquet");
    copy(&format!("'{path}' (format parquet, compression zstd)")).ok();
    copy(&format!("'{path}' stored as parquet")).ok();
    let lists =
        format!("copy (select array_agg(id order by id) as ids from '{file}') to stdout (format csv)");
    assert_eq!(sql(&lists).ok(), "ids\n\"[1, 2]\"\n");
    let into = format!(
        "create table w (id bigint, city varchar, t double); copy w from '{path}'; copy w (id, city, t) from '{file}' (header true); select count(*) as n, sum(t) as t from w"
    );
    assert!(sql(&into).ok().ends_with("n,t\n4,15.0\n"));
}

#[test]
fn copy_leaves_no_half_files_and_says_why() {
    let folder = Folder::new();
    let bad = folder.write("bad.csv", "id\n".to_string() + &"1\n".repeat(50_000) + "1,2\n");
    let old = folder.write("old.csv", "what was there\n");
    let copy = |from: &str, to: &str| sql(&format!("copy (from '{from}') to '{to}'"));
    copy(&bad, &old).fails(1, &["bad.csv, line 50002"]);
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "what was there\n");
    let good = folder.write("good.csv", "id\n1\n");
    let nowhere = folder.path("no/such/x.csv");
    copy(&good, &nowhere).fails(1, &["there is no folder", "no/such", "mkdir"]);
    assert!(!Path::new(&folder.path("no")).exists());
    let null = format!("copy (from '{good}') to '/dev/null' (format csv)");
    sql(&null).fails(1, &["/dev/null is no regular file"]);
    copy(&good, "/proc/farpool.csv").fails(1, &["/proc/farpool.csv cannot be written"]);
    copy(&good, &folder.path("x.odd")).fails(1, &["x.odd", "format csv"]);
    let option = format!("copy (from '{good}') to stdout (format csv, delimitr ';')");
    sql(&option).fails(1, &["delimitr", "header, delimiter"]);
    assert_eq!(folder.names(), ["bad.csv", "good.csv", "old.csv"]);
}

#[test]
fn damaged_text_is_an_error_with_its_line() {
    let folder = Folder::new();
    let open = folder.write("open.csv", "a,b\n1,\"x\n2,y\n");
    sql(&format!("select count(a) from '{open}'")).fails(1, &["open.csv, line 2", "quote"]);
    let ragged = folder.write("ragged.csv", "a,b\n1,x\n2\n");
    sql(&format!("select * from '{ragged}'"))
        .fails(1, &["line 3: 1 field, and the file has 2 columns", "--ignore-errors"]);
    let cut = gzip(FLIGHTS.as_bytes());
    let cut = folder.write("cut.csv.gz", &cut[..cut.len() - 6]);
    sql(&format!("select max(origin) from '{cut}'")).fails(1, &["cut.csv.gz", "cut off"]);
    sql("select * from '/dev/zero'").fails(1, &["/dev/zero is no regular file"]);
}

#[test]
fn a_table_leaves_a_node_as_a_file() {
    let folder = Folder::new();
    let file = folder.write("f.csv", FLIGHTS);
    let server = Server::start(&[]);
    server.run(&["load", "Flights", &file, "--null", "NA", "--null", ""]).ok();
    let target = folder.path("out.csv.gz");
    assert!(server.run(&["export", "Flights", &target]).ok().contains("out.csv.gz: 4 rows"));
    assert_eq!(sql(&format!("from '{target}'")).ok(), "origin,dep_delay\nJFK,10\nJFK,\nEWR,-5\nEWR,\n");
    let query = "select origin from \"Flights\" where dep_delay > 0";
    let args = ["export", "--query", query, "-", "--format", "csv", "--option", "header false"];
    assert_eq!(server.run(&args).ok(), "JFK\n");
    server.run(&["export", "nothing", &target]).fails(1, &["nothing"]);
    server.run(&["export", "Flights"]).fails(2, &["farpool export TABLE FILE"]);
}

#[test]
fn all_threads_read_what_one_reads() {
    let folder = Folder::new();
    let mut rows = "id,text,half\n".to_string();
    for i in 0..40_000 {
        let text = match i % 5 {
            0 => format!("\"two\nlines, {i}\""),
            1 => format!("\"a \"\"quoted\"\" {i}\""),
            2 => format!("caf\u{e9} {i}\r"),
            _ => format!("in\"side {i}"),
        };
        rows.push_str(&format!("{i},{},{}\n", text.trim_end_matches('\r'), f64::from(i) / 2.0));
    }
    let csv = folder.write("rows.csv", &rows);
    let sums = "select count(*) as n, sum(id) as i, sum(half) as h, sum(length(text)) as l, \
                count(distinct text) as d from";
    let expected = sql(&format!("{sums} '{csv}'")).ok();
    assert!(expected.ends_with("\n40000,799980000,399990000.0,532890,40000\n"), "{expected}");
    // Reads files with `--memory` too small to hold their rows, in every format that COPY writes.
    let small = ["sql", "--memory", "2MiB", "--format", "csv", "-c", &format!("{sums} '{csv}'")];
    assert_eq!(farpool(&small).ok(), expected);
    for name in ["x.csv", "x.csv.gz", "x.csv.zst", "x.json", "x.json.gz", "x.parquet", "x.arrow"] {
        let file = folder.path(name);
        assert_eq!(sql(&format!("copy (from '{csv}') to '{file}'")).ok(), "count\n40000\n");
        assert_eq!(sql(&format!("{sums} '{file}'")).ok(), expected, "{name}");
        let in_order = format!("select id from '{file}' limit 3 offset 39000");
        assert_eq!(sql(&in_order).ok(), "id\n39000\n39001\n39002\n", "{name}");
    }
    let array = folder.path("array.json");
    sql(&format!("copy (from '{csv}') to '{array}' (array true)")).ok();
    assert_eq!(sql(&format!("{sums} '{array}'")).ok(), expected);
    let groups = folder.path("groups.parquet");
    sql(&format!("copy (from '{csv}') to '{groups}' (row_group_size 7000)")).ok();
    assert_eq!(sql(&format!("{sums} '{groups}'")).ok(), expected);
    // An error in the middle is reported with its line, without any rows.
    let broken = folder.write("broken.csv", rows.clone() + "1,2\n" + &rows);
    sql(&format!("select max(half) from '{broken}'")).fails(1, &["broken.csv, line 48002: 2 fields"]);
}

#[test]
fn files_of_too_many_columns_say_so() {
    let folder = Folder::new();
    let names = |count: usize| (0..count).map(|i| format!("c{i}")).collect::<Vec<_>>().join(",");
    for (count, part) in [
        (5_000, "wide.csv has 5000 columns"),
        (300_000, "wide.csv, line 1: this record has more than 65536 fields"),
    ] {
        let wide = folder.write("wide.csv", format!("{0}\n{0}\n", names(count)));
        sql(&format!("from '{wide}' limit 1")).fails(1, &[part]);
        farpool(&["profile", &wide]).fails(1, &[part]);
    }
    // A record with too many fields is an error also after valid records.
    let late = folder.write("late.csv", format!("a,b\n1,2\n{}\n", ",".repeat(3_000_000)));
    sql(&format!("select count(*) from '{late}'"))
        .fails(1, &["late.csv, line 3: this record has more than 65536 fields"]);
    let members: Vec<String> = (0..5_000).map(|i| format!("\"c{i}\": 1")).collect();
    let json = folder.write("wide.json", format!("{{{}}}\n", members.join(",")));
    sql(&format!("select count(*) from '{json}'")).fails(1, &["wide.json, line 1", "4096 different names"]);
}

#[test]
fn standard_input_fills_a_table() {
    let make = "create table t (a int, b text)";
    let ask = "select a, b from t order by a nulls last";
    let copy = |statement: &str, input: &str| {
        farpool_reading(&["sql", "--format", "csv", "-c", make, "-c", statement, "-c", ask], input)
    };
    let csv = "a;b\n2;\"x\ny\"\n1;NA\n";
    let done = copy("copy t from stdin (format csv, header, delimiter ';', null 'NA')", csv).ok();
    assert!(done.ends_with("a,b\n1,\n2,\"x\ny\"\n"), "{done}");
    assert!(copy("COPY t (b) FROM STDIN (FORMAT json)", "{\"b\": \"z\"}\n").ok().ends_with("a,b\n,z\n"));
    let late: String = (0..30_000).map(|i| format!("{i},1\n")).collect::<String>() + "1,x\n";
    let all = "select count(*) as n, count(distinct b) as d from t";
    let args = ["sql", "--format", "csv", "-c", make, "-c", "copy t from stdin", "-c", all];
    assert!(farpool_reading(&args, &format!("a,b\n{late}")).ok().ends_with("n,d\n30001,2\n"));
    copy("copy t from stdin", "").fails(1, &["standard input is empty"]);
    copy("copy t from stdin", "a,b\n1,2\n3\n").fails(1, &["error: standard input, line 3: 1 field"]);
}

#[test]
fn nested_columns_are_loaded_as_text() {
    let folder = Folder::new();
    let rows = "{\"a\": 1, \"l\": [1, null], \"s\": {\"x\": \"y\"}}\n{\"a\": 2, \"l\": null, \"s\": {\"x\": null}}\n";
    let file = folder.write("rows.json", rows);
    let server = Server::start(&[]);
    let without = server.run(&["load", "t", &file]);
    assert!(without.stderr.contains("\"l\" (nested)") && without.stderr.contains("--nested json"));
    server.run(&["load", "u", "--nested", "json", &file]).ok();
    assert_eq!(
        server.csv("select a, l, s from u order by a"),
        "a,l,s\n1,\"[1,null]\",\"{\"\"x\"\":\"\"y\"\"}\"\n2,,\"{\"\"x\"\":null}\"\n"
    );
    let some = server.run(&["load", "v", "--nested", "json", "--columns", "s", &file]);
    some.ok();
    assert_eq!(server.csv("select s from v limit 1"), "s\n\"{\"\"x\"\":\"\"y\"\"}\"\n");
}

#[test]
fn flags_about_files_are_not_ignored_where_there_is_none() {
    let folder = Folder::new();
    let server = Server::with_table("t", Path::new(&folder.write("t.csv", "a\n1\n")));
    server.run(&["profile", "t", "--null", "NA"]).fails(2, &["t, a table of the node, is no file", "--null"]);
    let done = server.run(&["sql", "--null", "NA", "-c", "select a from t"]);
    assert!(done.stderr.contains("did nothing"), "{}", done.stderr);
    let file = folder.write("u.csv", "a\nNA\n2\n");
    let done = server.run(&["sql", "--null", "NA", "-c", &format!("select sum(a) from '{file}'")]);
    assert!(!done.stderr.contains("did nothing"), "{}", done.stderr);
}

/// Returns rows for each hour of 2024 in UTC; in New York one day of that year has no hour 2 and one has hour 1 twice.
fn hours() -> String {
    let mut rows = "id,t\n".to_string();
    for (month, days) in (1..).zip([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
        for (day, hour) in (1..=days).flat_map(|day| (0..24).map(move |hour| (day, hour))) {
            rows.push_str(&format!("{},2024-{month:02}-{day:02}T{hour:02}:00:00Z\n", month * 100 + day));
        }
    }
    rows
}

#[test]
fn instants_of_text_keep_their_zone() {
    let folder = Folder::new();
    let file = folder.write("hours.csv", hours());
    let server = Server::start(&[]);
    server.run(&["load", "hours", &file]).ok();
    let count = |hour| match hour {
        1 => 367,
        2 => 365,
        _ => 366,
    };
    let counted: String = (0..24).map(|hour| format!("{hour},{}\n", count(hour))).collect();
    let by_hour = "select extract(hour from t at time zone 'America/New_York') as h, count(*) as n from {} group by h order by h";
    let on_clocks = "select count(t::timestamp at time zone 'America/New_York') as n, typeof(min(t)) as a, \
                     typeof(min(t at time zone 'UTC')) as b from {} where t >= '2024-03-10T02:00:00+02:00'";
    let types = "7128,TIMESTAMP WITH TIME ZONE,TIMESTAMP\n";
    let quoted = format!("'{file}'");
    for run in [&|text: &str| sql(&text.replace("{}", &quoted)).ok() as String, &|text: &str| {
        server.csv(&text.replace("{}", "hours"))
    }] as [&dyn Fn(&str) -> String; 2]
    {
        assert_eq!(run(by_hour), format!("h,n\n{counted}"));
        assert_eq!(run(on_clocks), format!("n,a,b\n{types}"));
        assert_eq!(run("select max(t) as t from {}"), "t\n2024-12-31T23:00:00Z\n");
    }
    // COPY writes the rows to files of each format, from which they are read again.
    for name in ["copy.csv", "copy.json", "copy.parquet"] {
        let copy = folder.path(name);
        sql(&format!("copy (select t from {quoted} where id = 704) to '{copy}'")).ok();
        let read = sql(&format!("select min(t) as t, typeof(min(t)) as type from '{copy}'")).ok();
        assert_eq!(read, "t,type\n2024-07-04T00:00:00Z,TIMESTAMP WITH TIME ZONE\n", "{name}");
    }
    let profile = farpool(&["profile", "--format", "json", &file]).ok();
    assert!(profile.contains("2024-12-31T23:00:00Z"), "{profile}");
    // One of the times has no zone.
    let late =
        folder.write("late.csv", hours().repeat(3).replace("\nid,t\n", "\n") + "1,2025-01-01T00:00:00\n");
    assert_eq!(sql(&format!("select typeof(max(t)) as t from '{late}'")).ok(), "t\nVARCHAR\n");
    server
        .run(&["load", "late", &late])
        .fails(1, &["late.csv, line 26354", "\"2025-01-01T00:00:00\" is not a value"]);
    server.run(&["load", "late", &late, "--types", "t=timestamptz"]).ok();
    assert_eq!(server.csv("select max(t) as t from late"), "t\n2025-01-01T00:00:00Z\n");
}
