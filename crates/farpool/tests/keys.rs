//! Tests of a node through the Redis protocol.

#![expect(clippy::disallowed_methods, reason = "a test has sockets and threads of its own")]

use crate::cli_support::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of times that a node is killed while clients change keys, unless `FARPOOL_KILLS` is set.
const KILLS: usize = 8;

/// Number of clients that change keys until the node is killed.
const CLIENTS: usize = 4;

fn serve(data: &Path, fsync: &str) -> Server {
    Server::start(&["--resp", "127.0.0.1:0", "--data-dir", text(data), "--fsync", fsync])
}

pub fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.ready_line.trim_end().split("; redis://").nth(1).expect("it says where"))
        .unwrap()
}

pub fn ask(stream: &mut TcpStream, commands: &str, expected: &str) {
    stream.write_all(commands.as_bytes()).unwrap();
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

#[test]
fn a_node_serves_clients_of_both_protocols() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--resp", "127.0.0.1:0", "--data-dir", text(folder.path())]);
    let mut client = connect(&server);
    ask(&mut client, "SET a 1\r\nINCR a\r\nGET a\r\n", "+OK\r\n:2\r\n$1\r\n2\r\n");
    server.run(&["sql", "-c", "create table t as select 1 as a"]).ok();
    assert_eq!(server.csv("select a from t"), "a\n1\n");
    until("what there was", || server.said().contains("0 changes read from the log of keys"));
    assert!(!server.said().contains("warning"), "{}", server.said());
    let pool_used = |server: &Server| server.status()["memory_bytes_used"].as_u64().unwrap();
    assert!(pool_used(&server) >= 2 << 20, "keys lie in the pool");
    let (status, _) = server.stop("TERM");
    assert_eq!(status, Some(0));
    assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0);
}

#[test]
fn an_address_for_the_redis_protocol_that_does_not_work_is_an_error() {
    farpool(&["serve", "--listen", "127.0.0.1:0", "--resp", "6380"]).fails(2, &["HOST:PORT", "--resp"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    farpool(&["serve", "--listen", "127.0.0.1:0", "--resp", &address]).fails(3, &["cannot listen", &address]);
    farpool(&["serve", "--listen", "127.0.0.1:0", "--resp", "0.0.0.0:0"]).fails(2, &["--access"]);
}

#[test]
fn keys_are_there_again_after_a_stop_and_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d");
    let server = serve(&data, "always");
    let mut client = connect(&server);
    ask(&mut client, "SET a 1\r\nHSET h f v\r\nSET b x PX 1\r\nSELECT 3\r\n", "+OK\r\n:1\r\n+OK\r\n+OK\r\n");
    ask(&mut client, "MULTI\r\nAPPEND c one\r\nAPPEND c two\r\n", "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    ask(
        &mut client,
        "EXEC\r\nCONFIG GET appendfsync\r\n",
        "*2\r\n:3\r\n:6\r\n*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n",
    );
    assert_eq!(server.stop("KILL").0, None);
    for (signal, fsync) in [("TERM", "everysec"), ("KILL", "no"), ("TERM", "always")] {
        let server = serve(&data, fsync);
        until("what there was", || server.said().contains("keys and values: "));
        let mut client = connect(&server);
        ask(&mut client, "GET a\r\nHGET h f\r\nGET b\r\n", "$1\r\n1\r\n$1\r\nv\r\n$-1\r\n");
        ask(&mut client, "SELECT 3\r\nGET c\r\n", "+OK\r\n$6\r\nonetwo\r\n");
        server.stop(signal);
    }
    let checked = farpool(&["check", "--data-dir", text(&data)]).ok();
    assert!(checked.contains("keys and values: a snapshot of "), "{checked}");
    // A node that serves no Redis clients still has the keys of its data directory.
    let without = Server::start(&["--data-dir", text(&data)]);
    // The number of keys may include an expired key that has not been removed yet.
    until("what there was", || ["3 keys", "4 keys"].iter().any(|keys| without.said().contains(keys)));
    without.stop("TERM");
    farpool(&["serve", "--resp", "127.0.0.1:0", "--fsync", "always"]).fails(2, &["--data-dir"]);
}

/// Each client repeatedly sets two keys in one command to increasing numbers, with several commands in flight, until
/// the node is killed.
#[test]
fn no_key_that_was_acknowledged_is_lost_when_a_node_is_killed_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d");
    let kills = std::env::var("FARPOOL_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let told = [const { AtomicU64::new(0) }; CLIENTS];
    let begun = [const { AtomicU64::new(0) }; CLIENTS];
    for round in 0..kills {
        let server = serve(&data, "always");
        let mut client = connect(&server);
        for at in 0..CLIENTS {
            let (told, begun) = (told[at].load(Ordering::Relaxed), begun[at].load(Ordering::Relaxed));
            client.write_all(format!("MGET a{at} b{at}\r\n").as_bytes()).unwrap();
            let mut lines = BufReader::new(client.try_clone().unwrap()).lines().map(Result::unwrap);
            lines.next();
            let mut number = || match &*lines.next().unwrap() {
                "$-1" => 0,
                _ => lines.next().unwrap().parse::<u64>().unwrap(),
            };
            let found = (number(), number());
            assert_eq!(found.0, found.1, "both or none");
            assert!((told..=begun).contains(&found.0), "{found:?} of {told} that were acknowledged");
        }
        std::thread::scope(|scope| {
            for at in 0..CLIENTS {
                let (server, told, begun) = (&server, &told[at], &begun[at]);
                scope.spawn(move || {
                    let mut client = connect(server);
                    let mut replies = BufReader::new(client.try_clone().unwrap());
                    loop {
                        let first = begun.load(Ordering::Relaxed) + 1;
                        let numbers = first..first + 1 + first % 5;
                        let commands: String =
                            numbers.clone().map(|n| format!("MSET a{at} {n} b{at} {n}\r\n")).collect();
                        begun.store(numbers.end - 1, Ordering::Relaxed);
                        if client.write_all(commands.as_bytes()).is_err() {
                            return;
                        }
                        for number in numbers {
                            let mut line = String::new();
                            if !replies.read_line(&mut line).is_ok_and(|_| line == "+OK\r\n") {
                                return;
                            }
                            told.store(number, Ordering::Relaxed);
                        }
                    }
                });
            }
            let sum = || told.iter().map(|told| told.load(Ordering::Relaxed)).sum::<u64>();
            let before = sum();
            until("some changes", || sum() > before + 100 + 300 * round as u64);
            signal(&server.child, "KILL");
        });
    }
}

/// Sends a command and returns the reply, whose lines are joined by `|`.
fn reply(stream: &mut TcpStream, args: &[&str]) -> String {
    let mut command = format!("*{}\r\n", args.len());
    args.iter().for_each(|arg| command += &format!("${}\r\n{arg}\r\n", arg.len()));
    // The reply to PING marks the end of the reply.
    command += "PING\r\n";
    stream.write_all(command.as_bytes()).unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"+PONG\r\n") {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "the connection was closed");
        got.extend_from_slice(&bytes[..count]);
    }
    let text = String::from_utf8_lossy(&got[..got.len() - 7]).into_owned();
    text.trim_end().replace("\r\n", "|")
}

fn redis(server: &Server) -> TcpStream {
    let address = server.ready_line.trim_end().split("; redis://").nth(1).expect("it says where");
    TcpStream::connect(address).unwrap()
}

/// Starts a server with a keyspace `users`, whose entries are rows, and a table `plain` with the same rows.
fn with_users(count: usize) -> (Server, TcpStream) {
    let server = Server::start(&["--resp", "127.0.0.1:0"]);
    let mut client = redis(&server);
    let schema =
        "id u64, name utf8, age u32, city utf8, score f64, joined date, seen timestamp, vip bool, n i16";
    assert_eq!(reply(&mut client, &["FP.SPACE", "CREATE", "users", schema]), "+OK");
    for id in 0..count {
        let key = format!("users:{id}");
        let (name, age) =
            (format!("{}{}", ["Ada", "Bob", "Åsa", "Eve"][id % 4], id / 7), (id * 13 % 90).to_string());
        let (score, n) = (format!("{}", id as f64 / 8.0), (id as i64 * 37 % 2001 - 1000).to_string());
        let joined = format!("20{:02}-0{}-1{}", id % 30, id % 9 + 1, id % 10);
        let seen = format!("2026-01-0{}T12:{:02}:00.5", id % 9 + 1, id % 60);
        let mut args = vec!["HSET", &key, "name", &name, "score", &score, "n", &n];
        if !id.is_multiple_of(5) {
            args.extend(["age", &age, "vip", if id.is_multiple_of(2) { "true" } else { "false" }]);
        }
        if !id.is_multiple_of(3) {
            args.extend([
                "city",
                ["London", "Paris", "", "Rome"][id / 3 % 4],
                "joined",
                &joined,
                "seen",
                &seen,
            ]);
        }
        assert!(reply(&mut client, &args).starts_with(':'));
    }
    server.run(&["sql", "-c", "create table plain as select * from users"]).ok();
    (server, client)
}

/// Queries over a table `T`, ordered if there are several rows.
const QUERIES: &[&str] = &[
    "select count(*), count(age), sum(age), avg(age), min(name), max(name), min(n), max(n) from T",
    "select city, count(*), avg(age) from T where age > 30 and name like 'A%' group by city order by city",
    "select * from T order by id",
    "select id, upper(name), age + 1 as a from T where n between -500 and 500 and not vip order by id",
    "select distinct city from T order by city",
    "select id from T order by score desc, id limit 7",
    "select count(*) from T where city is null",
    "select count(*) from T where regexp_like(name, '^(Ada|Eve)[0-9]*1$')",
    "select joined, count(*), max(seen) from T where joined >= date '2015-01-01' group by joined order by joined",
    "select vip, sum(score), round(stddev(score), 6), approx_distinct(name) > 0 from T group by vip order by vip",
    "select a.id, b.name from T a join T b on a.id = b.age where b.vip order by a.id, b.name",
    "select id, sum(n) over (partition by city order by id) as s from T order by id",
    "select name, age from T where id = 17",
    "select name, age from T where id in (3, 5, 99999999, 7) and age is not null order by name",
    "select count(*) from T where id = 17 or age = 3",
    "select count(*) from T where id < 0",
    "select count(*) from T where name = 'Åsa1' and id + 0 > 3",
];

#[test]
fn sql_reads_the_rows_of_a_space_as_those_of_a_table() {
    let (server, _client) = with_users(700);
    assert_eq!(server.csv("select count(*) as c from users"), "c\n700\n");
    for query in QUERIES {
        let (live, plain) = (query.replace('T', "users"), query.replace('T', "plain"));
        assert_eq!(server.csv(&live), server.csv(&plain), "{query}");
    }
    // A join of the keyspace with the table.
    let joined =
        "select count(*) as c from users join plain on users.id = plain.id and users.name = plain.name";
    assert_eq!(server.csv(joined), "c\n700\n");
    let explained = server.run(&[
        "sql",
        "--explain",
        "-c",
        "select city, count(*) from users where age > 30 and name like 'A%' group by city",
    ]);
    for operator in ["filter     exact", "group      exact"] {
        assert!(explained.stderr.contains(operator), "{}", explained.stderr);
    }
}

#[test]
fn sql_reads_keys_and_values() {
    let server = Server::start(&["--resp", "127.0.0.1:0"]);
    let mut client = redis(&server);
    assert_eq!(server.csv("select count(*) as c from \"default\""), "c\n0\n");
    server.run(&["sql", "-c", "select * from db1"]).fails(1, &["db1"]);
    reply(&mut client, &["MSET", "cart:1", "{\"sum\": 3}", "cart:2", "{\"sum\": 5}", "other", "x"]);
    reply(&mut client, &["SET", "session:1", "abc", "EX", "1000"]);
    reply(&mut client, &["HSET", "h", "f", "1"]);
    let all = "select key, value, ttl > 990 as t from \"default\" order by key";
    let expected = "key,value,t\ncart:1,\"{\"\"sum\"\": 3}\",\ncart:2,\"{\"\"sum\"\": 5}\",\nh,,\nother,x,\nsession:1,abc,true\n";
    assert_eq!(server.csv(all), expected);
    assert_eq!(reply(&mut client, &["FP.SPACE", "CREATE", "cart"]), "+OK");
    assert_eq!(server.csv("select count(*) as c from cart where value like '%sum%5%'"), "c\n1\n");
    assert_eq!(
        server.csv("select value from cart where key in ('cart:2', 'other')"),
        "value\n\"{\"\"sum\"\": 5}\"\n"
    );
    assert_eq!(server.csv("select count(*) as c from \"default\""), "c\n3\n");
    client.write_all(b"*3\r\n$3\r\nSET\r\n$6\r\ncart:3\r\n$1\r\n\xff\r\n").unwrap();
    assert_eq!(reply(&mut client, &["DBSIZE"]), "+OK|:6");
    server.run(&["sql", "-c", "select value from cart"]).fails(1, &["key 'cart:3'", "not text", "BINARY"]);
    assert_eq!(server.csv("select count(*) as c from cart where key > 'cart:2'"), "c\n1\n");
    // A value that a statement does not read need not be text, even if the statement's condition names its key.
    assert_eq!(server.csv("select count(*) as c from cart where key = 'cart:3'"), "c\n1\n");
    assert_eq!(reply(&mut client, &["FP.SPACE", "DROP", "cart"]), "+OK");
    assert_eq!(reply(&mut client, &["FP.SPACE", "CREATE", "cart", "BINARY"]), "+OK");
    assert_eq!(server.csv("select count(value) as c from cart"), "c\n3\n");
    assert_eq!(reply(&mut client, &["SELECT", "3"]), "+OK");
    assert_eq!(reply(&mut client, &["SET", "a", "3"]), "+OK");
    assert_eq!(server.csv("select key, value from db3"), "key,value\na,3\n");
    let tables = server.run(&["tables", "--format", "json"]).ok();
    assert!(tables.contains("\"db3\"") && tables.contains("\"cart\""), "{tables}");
    server.run(&["sql", "-c", "drop table cart"]).fails(1, &["space of keys"]);
    server.run(&["sql", "-c", "create table cart as select 1 as a"]).fails(1, &["cart"]);
}

#[test]
fn sql_changes_the_rows_of_a_space() {
    let (server, mut client) = with_users(200);
    let counts = |server: &Server, condition: &str| {
        let found = |table: &str| {
            server.csv(&format!("select count(*) as c, sum(n) as n from {table} where {condition}"))
        };
        (found("users"), found("plain"))
    };
    for statement in [
        "update T set age = 99, city = 'L' where city like 'L%'",
        "update T set score = score * 2, vip = null where n > 300 and vip",
        "delete from T where age is null and n < 0",
        "update T set n = 7 where id in (3, 4, 5)",
        "delete from T where id = 3",
    ] {
        for table in ["users", "plain"] {
            server.run(&["sql", "-c", &statement.replace('T', table)]).ok();
        }
        for query in ["select * from T order by id", "select count(*) from T where age = 99"] {
            assert_eq!(
                server.csv(&query.replace('T', "users")),
                server.csv(&query.replace('T', "plain")),
                "{statement}"
            );
        }
    }
    let (live, plain) = counts(&server, "n > 0");
    assert_eq!(live, plain);
    assert_eq!(reply(&mut client, &["HGET", "users:4", "n"]), "$1|7");
    // Rows can be inserted into a keyspace from a table, but fail if a key exists already.
    server
        .run(&[
            "sql",
            "-c",
            "insert into users select id + 1000, name, age, city, score, joined, seen, vip, n from plain",
        ])
        .ok();
    assert_eq!(server.csv("select count(*) = 2 * (select count(*) from plain) as c from users"), "c\ntrue\n");
    assert_eq!(reply(&mut client, &["HGET", "users:1004", "n"]), "$1|7");
    server
        .run(&["sql", "-c", "insert into users (id, name) values (1004, 'again')"])
        .fails(1, &["users:1004", "is there already"]);
    server.run(&["sql", "-c", "insert into users (id, name) values (5000, 'new')"]).ok();
    assert_eq!(reply(&mut client, &["HGETALL", "users:5000"]), "*2|$4|name|$3|new");
    server.run(&["sql", "-c", "update users set id = 1 where id = 5000"]).fails(1, &["cannot be changed"]);
    server.run(&["sql", "-c", "delete from users"]).ok();
    assert_eq!(reply(&mut client, &["DBSIZE"]), ":0");
    assert_eq!(server.csv("select count(*) as c from users"), "c\n0\n");
}

#[test]
fn sql_changes_keys_and_values() {
    let server = Server::start(&["--resp", "127.0.0.1:0"]);
    let mut client = redis(&server);
    reply(&mut client, &["FP.SPACE", "CREATE", "s"]);
    reply(&mut client, &["SET", "other", "1"]);
    server.run(&["sql", "-c", "insert into s values ('s:1', 'one', null), ('s:2', 'two', 1000)"]).ok();
    assert_eq!(reply(&mut client, &["GET", "s:1"]), "$3|one");
    assert!(["*:1000", ":999"].iter().any(|ttl| reply(&mut client, &["TTL", "s:2"]).ends_with(&ttl[1..])));
    server.run(&["sql", "-c", "update s set value = 'TWO' where key = 's:2'"]).ok();
    server
        .run(&["sql", "-c", "update s set value = upper(value) where key = 's:2'"])
        .fails(1, &["space \"s\"", "does not carry out"]);
    assert_eq!(reply(&mut client, &["GET", "s:2"]), "$3|TWO");
    assert!(reply(&mut client, &["TTL", "s:2"]) != ":-1");
    server.run(&["sql", "-c", "update s set ttl = null"]).ok();
    assert_eq!(reply(&mut client, &["TTL", "s:2"]), ":-1");
    server
        .run(&["sql", "-c", "insert into s values ('x:1', 'one', null)"])
        .fails(1, &["x:1", "begin with", "s:"]);
    server.run(&["sql", "-c", "delete from s where value = 'one'"]).ok();
    assert_eq!(reply(&mut client, &["MGET", "s:1", "s:2", "other"]), "*3|$-1|$3|TWO|$1|1");
}

#[test]
fn conditions_on_columns_are_those_of_sql() {
    let (server, mut client) = with_users(900);
    for condition in ["age > 80 and name like 'A%'", "city is null or city = 'Rome'", "name ~ '^(Bob|Eve)1'"]
    {
        let sql = condition.replace("name ~ '^(Bob|Eve)1'", "regexp_like(name, '^(Bob|Eve)1')");
        let expected = server.csv(&format!("select count(*) as c from users where {sql}"));
        let (mut cursor, mut keys) = ("0".to_string(), std::collections::BTreeSet::new());
        loop {
            let reply =
                reply(&mut client, &["FP.SCAN", "users", condition, "LIMIT", "100", "CURSOR", &cursor]);
            let lines: Vec<&str> = reply.split('|').collect();
            cursor = lines[2].to_string();
            keys.extend(lines.iter().filter(|line| line.starts_with("users:")).map(ToString::to_string));
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(format!("c\n{}\n", keys.len()), expected, "{condition}");
    }
    assert_eq!(
        reply(&mut client, &["FP.CGET", "users:1", "age < 14 and not vip"]).split('|').next(),
        Some("*8")
    );
    assert_eq!(reply(&mut client, &["FP.CGET", "users:1", "age > 14"]), "$-1");
    assert!(reply(&mut client, &["FP.CGET", "users:1", "size > 14"]).contains("size"));
}

#[test]
fn hyperloglogs_are_counted_and_merged_as_redis_does() {
    let server = Server::start(&["--resp", "127.0.0.1:0"]);
    let mut client = redis(&server);
    assert_eq!(reply(&mut client, &["FP.SPACE", "CREATE", "visits", "BINARY"]), "+OK");
    // The HyperLogLogs are sparse or dense, and some of them share elements.
    let sizes = [0, 3, 600, 900, 4000, 20];
    for (day, size) in sizes.iter().enumerate() {
        let key = format!("visits:{day}");
        let users: Vec<String> = (0..*size).map(|user| format!("user{}", user + day * 100)).collect();
        let mut args = vec!["PFADD", &key];
        args.extend(users.iter().map(String::as_str));
        assert_eq!(reply(&mut client, &args), ":1");
    }
    let mut pfcount = |days: &[usize]| {
        let keys: Vec<String> = days.iter().map(|day| format!("visits:{day}")).collect();
        let args: Vec<&str> = std::iter::once("PFCOUNT").chain(keys.iter().map(String::as_str)).collect();
        reply(&mut client, &args)[1..].to_string()
    };
    let lines = |head: &str, values: &[String]| format!("{head}\n{}\n", values.join("\n"));
    let each: Vec<String> = (0..6).map(|day| pfcount(&[day])).collect();
    let counts = "select hll_count(value) as c from visits order by key";
    assert_eq!(server.csv(counts), lines("c", &each));
    let all = pfcount(&[0, 1, 2, 3, 4, 5]);
    let whole = "select hll_count(hll_merge(value)) as c from visits";
    assert_eq!(server.csv(whole), lines("c", std::slice::from_ref(&all)));
    // HyperLogLogs are merged by groups, in a window, above a join, for some rows only, and in a filter.
    let halves = [pfcount(&[0, 2, 4]), pfcount(&[1, 3, 5])];
    let grouped = "select hll_count(hll_merge(value)) as c from visits group by ascii(right(arrow_cast(key, 'Utf8'), 1)) \
                   % 2 order by min(key)";
    assert_eq!(server.csv(grouped), lines("c", &halves));
    let until: Vec<String> = (0..6).map(|day| pfcount(&(0..=day).collect::<Vec<_>>())).collect();
    let window = "select hll_count(hll_merge(value) over (order by key rows between unbounded preceding and current \
                  row)) as c from visits order by key";
    assert_eq!(server.csv(window), lines("c", &until));
    let joined = "select hll_count(hll_merge(a.value)) as c from visits a join visits b on a.key = b.key";
    assert_eq!(server.csv(joined), lines("c", std::slice::from_ref(&all)));
    let some = "select hll_count(hll_merge(value) filter (where hll_count(value) between 500 and 2000)) as c from visits";
    assert_eq!(server.csv(some), lines("c", &[pfcount(&[2, 3])]));
    let few = "select count(*) as c from visits where hll_count(value) < 100";
    assert_eq!(server.csv(few), "c\n3\n");
    assert_eq!(server.csv("select hll_count(null) is null as n"), "n\ntrue\n");
    assert_eq!(server.csv("select hll_merge(value) is null as n from visits where key = 'x'"), "n\ntrue\n");
    // Redis clients can read values that SQL has merged and created.
    let insert =
        "insert into visits select arrow_cast('visits:6', 'Binary'), hll_merge(value), null from visits";
    server.run(&["sql", "-c", insert]).ok();
    let make = "insert into visits select arrow_cast('visits:7', 'Binary'), hll('user' || value), null from \
                generate_series(400, 1299)";
    server.run(&["sql", "-c", make]).ok();
    assert_eq!(pfcount(&[6]), all);
    let same = [pfcount(&[7]), pfcount(&[2, 7]), pfcount(&[5, 7])];
    let users: Vec<String> = (400..1300).map(|user| format!("user{user}")).collect();
    let args: Vec<&str> = ["PFADD", "visits:8"].into_iter().chain(users.iter().map(String::as_str)).collect();
    assert_eq!(reply(&mut client, &args), ":1");
    for (days, expected) in [["8", "8"], ["2", "8"], ["5", "8"]].iter().zip(&same) {
        let keys = days.map(|day| format!("visits:{day}"));
        assert_eq!(&reply(&mut client, &["PFCOUNT", &keys[0], &keys[1]])[1..], expected);
    }
    // A value that is not a HyperLogLog is an error.
    reply(&mut client, &["SET", "visits:9", "abc"]);
    for query in [counts, whole] {
        server.run(&["sql", "-c", query]).fails(1, &["3 bytes", "no HyperLogLog", "PFADD"]);
    }
    reply(&mut client, &["FP.SPACE", "CREATE", "texts"]);
    reply(&mut client, &["SET", "texts:1", "abc"]);
    for query in ["select hll_count(value) from texts", "select hll_merge(value) from texts"] {
        server.run(&["sql", "-c", query]).fails(1, &["takes HyperLogLogs", "BINARY"]);
    }
    server.run(&["sql", "-c", "select hll(1.5)"]).fails(1, &["hll does not take"]);
}

#[test]
fn a_backup_has_the_keys_of_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let (data, target, again) = (folder.path().join("d"), folder.path().join("b"), folder.path().join("d2"));
    let server = serve(&data, "everysec");
    let mut client = connect(&server);
    assert_eq!(reply(&mut client, &["FP.SPACE", "CREATE", "users", "id u64, name utf8"]), "+OK");
    assert_eq!(reply(&mut client, &["HSET", "users:1", "name", "Ada"]), ":1");
    assert_eq!(reply(&mut client, &["SET", "short", "x", "PX", "1"]), "+OK");
    assert_eq!(reply(&mut client, &["SET", "long", "x", "EX", "1000"]), "+OK");
    for first in (0..40_000).step_by(1000) {
        let pairs: Vec<String> =
            (first..first + 1000).flat_map(|at| [format!("k{at}"), at.to_string()]).collect();
        let args: Vec<&str> = ["MSET"].into_iter().chain(pairs.iter().map(String::as_str)).collect();
        assert_eq!(reply(&mut client, &args), "+OK");
    }
    server.run(&["sql", "-c", "create table t as select 7 as a"]).ok();
    let (told, has_ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut least = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = connect(&server);
            while has_ended.load(Ordering::Relaxed) == 0 {
                let number = told.load(Ordering::Relaxed) + 1;
                let text = number.to_string();
                assert_eq!(reply(&mut client, &["MSET", "a", &text, "b", &text]), "+OK");
                assert_eq!(reply(&mut client, &["APPEND", "grows", "."]), format!(":{number}"));
                told.store(number, Ordering::Relaxed);
            }
        });
        for _ in 0..3 {
            until("something was set", || told.load(Ordering::Relaxed) > least);
            least = told.load(Ordering::Relaxed);
            farpool(&["backup", "--pool", &server.url, text(&target)]).ok();
        }
        has_ended.store(1, Ordering::Relaxed);
    });
    let most = told.load(Ordering::Relaxed);
    let said = farpool(&["restore", text(&target), "--data-dir", text(&again)]).ok();
    assert!(said.contains("keys and values: a snapshot of "), "{said}");
    for round in 0..2 {
        let restored = serve(&again, "always");
        until("what there was", || restored.said().contains("keys and values: "));
        let mut client = connect(&restored);
        let [a, b] = ["a", "b"].map(|key| reply(&mut client, &["GET", key]));
        assert_eq!(a, b, "all of a command is there, or nothing");
        let number: u64 = a.split('|').nth(1).unwrap().parse().unwrap();
        let grown: u64 = reply(&mut client, &["STRLEN", "grows"])[1..].parse().unwrap();
        assert!(
            (least..=most).contains(&number) && (grown == number || grown + 1 == number),
            "{number} {grown}"
        );
        assert_eq!(reply(&mut client, &["GET", "k39999"]), "$5|39999");
        assert_eq!(reply(&mut client, &["GET", "short"]), "$-1");
        assert!(reply(&mut client, &["TTL", "long"]).len() >= 4);
        assert_eq!(restored.csv("select id, name from users"), "id,name\n1,Ada\n");
        assert_eq!(restored.csv("select a from t"), "a\n7\n");
        let expected = if round == 0 { "$-1" } else { "$3|new" };
        assert_eq!(reply(&mut client, &["GET", "later"]), expected);
        assert_eq!(reply(&mut client, &["SET", "later", "new"]), "+OK");
        restored.stop("KILL");
    }
}

#[test]
fn spaces_are_in_schemas() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--resp", "127.0.0.1:0", "--data-dir", text(directory.path())];
    let server = Server::start(&options);
    let mut client = redis(&server);
    let absent = reply(&mut client, &["FP.SPACE", "CREATE", "staging.users", "id u64, name utf8"]);
    assert!(absent.starts_with("-ERR there is no schema \"staging\""), "{absent}");
    server.run(&["sql", "-c", "create schema staging"]).ok();
    assert_eq!(reply(&mut client, &["FP.SPACE", "CREATE", "staging.users", "id u64, name utf8"]), "+OK");
    // A keyspace of the same name in the schema `public`, and one whose quoted name contains a dot that is no
    // separator.
    assert_eq!(reply(&mut client, &["FP.SPACE", "CREATE", "users", "id u64, name utf8"]), "+OK");
    assert_eq!(reply(&mut client, &["FP.SPACE", "CREATE", "\"other.users\"", "PREFIX", "o:"]), "+OK");
    assert_eq!(
        reply(&mut client, &["FP.SPACE", "CREATE", "staging.users"]),
        "-ERR there is a space 'staging.users'"
    );
    assert_eq!(
        reply(&mut client, &["FP.SPACE", "LIST"]),
        "*3|$13|\"other.users\"|$13|staging.users|$5|users"
    );
    reply(&mut client, &["HSET", "staging.users:1", "name", "Ada"]);
    reply(&mut client, &["HSET", "users:2", "name", "Bob"]);
    reply(&mut client, &["SET", "o:3", "Eve"]);
    let rows = |server: &Server| {
        server.csv("select id, name from staging.users") + &server.csv("select id, name from users")
    };
    let both = "id,name\n1,Ada\nid,name\n2,Bob\n";
    assert_eq!(rows(&server), both);
    assert_eq!(server.csv("select value from \"other.users\""), "value\nEve\n");
    server.run(&["sql", "-c", "insert into staging.users values (5, 'Liz')"]).ok();
    server.run(&["sql", "-c", "update staging.users set name = 'Lisa' where id = 5"]).ok();
    assert_eq!(reply(&mut client, &["HGET", "staging.users:5", "name"]), "$4|Lisa");
    server.run(&["sql", "-c", "delete from staging.users where id = 5"]).ok();
    for drop in ["drop schema staging", "drop schema staging cascade"] {
        server.run(&["sql", "-c", drop]).fails(1, &["spaces of keys in it: 1 (staging.users)"]);
    }
    server.stop("TERM");
    let server = Server::start(&options);
    assert_eq!(rows(&server), both);
    let mut client = redis(&server);
    assert_eq!(reply(&mut client, &["FP.SPACE", "DROP", "staging.users"]), "+OK");
    assert_eq!(reply(&mut client, &["HGET", "staging.users:1", "name"]), "$3|Ada");
    server.run(&["sql", "-c", "drop schema staging"]).ok();
}
