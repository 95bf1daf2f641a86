//! Tests of the commands on named spaces (namespaces of keys with a common prefix), on their rows, and with conditions
//! on entries (`FP.SCAN`).

use super::*;

#[test]
fn whoever_watches_a_key_of_a_named_space_is_told_whichever_space_the_other_has_selected() {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let (mut first, mut second, mut other) = (Client::new(&keys), Client::new(&keys), Client::new(&keys));
    first.run("SET s:1 a");
    second.run("SELECT 1");
    other.run("SELECT 1");
    for change in ["FP.SPACE CREATE s", "FP.SPACE DROP s"] {
        for client in [&mut first, &mut second] {
            client.run("WATCH s:1");
            client.run("MULTI");
            client.run("PING");
        }
        assert_eq!(other.run(change), "+OK");
        assert_eq!((first.run("EXEC"), second.run("EXEC")), ("*-1".into(), "*1|+PONG".into()), "{change}");
    }
}

#[test]
fn spaces_own_the_keys_with_their_prefix() {
    check(&[
        ("SET users:1 a", "+OK"),
        ("SET users:vip:1 b", "+OK"),
        ("SET other 1", "+OK"),
        ("FP.SPACE CREATE users", "+OK"),
        ("FP.SPACE CREATE users", "-ERR there is a space 'users'"),
        ("FP.SPACE CREATE default", "-ERR this is the name of what SELECT chooses: choose another one"),
        ("FP.SPACE CREATE db3", "-ERR this is the name of what SELECT chooses: choose another one"),
        ("FP.SPACE CREATE s.users", "-ERR there are no schemas here"),
        (
            "FP.SPACE CREATE \"s.users",
            "-ERR \"\\\"s.users\" is not the name of a table; write TABLE or SCHEMA.TABLE, and a part that has dots in double quotes (\"a.b\")",
        ),
        ("FP.SPACE CREATE again PREFIX users:", "-ERR the prefix is that of space 'users'"),
        ("FP.SPACE CREATE vips PREFIX users:vip:", "+OK"),
        ("FP.SPACE CREATE x COMPRESSION", "-ERR syntax error"),
        ("FP.SPACE CREATE x COMPRESSION lz4 COMPRESSION lz4", "-ERR syntax error"),
        (
            "FP.SPACE CREATE x COMPRESSION zip",
            "-ERR there is no compression 'zip': use fsst for short texts, lz4, deflate for long values, or none",
        ),
        (
            "FP.SPACE INFO vips",
            "*14|$4|name|$4|vips|$6|prefix|$10|users:vip:|$6|schema|$-1|$11|compression|$-1|$16|dictionary_bytes|:0|\
             $4|keys|:1|$5|bytes|:2304",
        ),
        ("GET users:1", "$1|a"),
        ("GET users:vip:1", "$1|b"),
        ("DBSIZE", ":3"),
        ("KEYS users:*", "*2|$7|users:1|$11|users:vip:1"),
        ("RENAME users:vip:1 users:2", "+OK"),
        ("GET users:2", "$1|b"),
        ("FP.SPACE DROP users", "+OK"),
        ("FP.SPACE LIST", "*1|$4|vips"),
        ("FP.SPACE DROP users", "-ERR no space 'users': FP.SPACE LIST tells all, FP.SPACE CREATE makes one"),
        ("MGET users:1 users:2 other", "*3|$1|a|$1|b|$1|1"),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn rows_are_hashes_of_typed_fields() {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    client.run("HSET users:1 name Ada age 36");
    client.run("PEXPIREAT users:1 1700000001000");
    let create = [&b"FP.SPACE"[..], b"CREATE", b"users", b"id u64, name utf8, age u32, city utf8"];
    assert_eq!(client.bytes(&create), b"+OK\r\n");
    for (command, expected) in [
        ("HGETALL users:1", "*4|$4|name|$3|Ada|$3|age|$2|36"),
        ("PTTL users:1", ":1000"),
        ("PERSIST users:1", ":1"),
        ("TYPE users:1", "+hash"),
        ("GET users:1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("SET users:1 x", "-ERR the keys of space 'users' have rows: use HSET, FP.ROWSET or SQL"),
        ("APPEND users:9 x", "-ERR the keys of space 'users' have rows: use HSET, FP.ROWSET or SQL"),
        ("HSET users:1 city London age x", "-ERR 'x' is not a u32, as field age has them"),
        ("HGET users:1 city", "$-1"),
        ("HSET users:1 size 1", "-ERR no field 'size' in this space: it has name, age, city"),
        ("HSET users:01 age 1", "-ERR '01', the key's id, is not a u64 as it is written here"),
        ("HSET users:2 age 1 city Paris", ":2"),
        ("HSET users:2 age 2", ":0"),
        ("HMGET users:2 age city name", "*3|$1|2|$5|Paris|$-1"),
        ("HINCRBY users:2 age 40", ":42"),
        ("HINCRBY users:2 age -50", "-ERR '-8' is not a u32, as field age has them"),
        ("HLEN users:2", ":2"),
        ("HDEL users:2 age city name", ":2"),
        ("EXISTS users:2", ":0"),
        ("FP.ROWSET users 3 Bob 7 Rome 4 Eve 8 Oslo", ":2"),
        ("FP.ROWSET users 5 Bob 7", "-ERR rows of this space have 4 values: 3 make no rows"),
        ("FP.ROWSET users 5 Bob x Rome", "-ERR 'x' is not a u32, as field age has them"),
        ("HVALS users:3", "*3|$3|Bob|$1|7|$4|Rome"),
        ("RENAME users:3 bob", "+OK"),
        ("HGETALL bob", "*6|$3|age|$1|7|$4|city|$4|Rome|$4|name|$3|Bob"),
        ("COPY bob users:6", ":1"),
        ("HGET users:6 city", "$4|Rome"),
        ("COPY bob users:x", "-ERR 'x', the key's id, is not a u64 as it is written here"),
        ("FP.SPACE DROP users", "+OK"),
        ("HGET users:1 age", "$2|36"),
        ("SET users:x 1", "+OK"),
    ] {
        assert_eq!(client.run(command), expected, "{command}");
    }
    let refused = String::from_utf8(client.bytes(&create)).unwrap();
    assert!(refused.starts_with("-ERR the key 'users:x', which is there, does not fit: "), "{refused}");
    assert_eq!(client.run("HGET users:1 age"), "$2|36");
}

#[test]
fn keys_of_all_spaces_are_scanned_once() {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    for space in ["a", "b", "c"] {
        client.run(&format!("FP.SPACE CREATE {space}"));
    }
    client.run("FP.SPACE DROP b");
    for key in 0..300 {
        client.run(&format!("SET {}:{key} 1", ["a", "b", "c", "d"][key % 4]));
    }
    let (mut cursor, mut seen) = ("0".to_string(), Vec::new());
    loop {
        let reply = client.run(&format!("SCAN {cursor} COUNT 7"));
        let lines: Vec<&str> = reply.split('|').collect();
        cursor = lines[2].to_string();
        seen.extend(lines[4..].iter().skip(1).step_by(2).map(ToString::to_string));
        if cursor == "0" {
            break;
        }
    }
    seen.sort();
    let count = seen.len();
    seen.dedup();
    assert_eq!((seen.len(), count), (300, 300));
}

#[test]
fn spaces_are_told_to_those_who_may_only_read() {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    client.run("FP.SPACE CREATE a");
    client.may_write = false;
    assert_eq!(client.run("FP.SPACE LIST"), "*1|$1|a");
    assert!(client.run("FP.SPACE DROP a").starts_with("-NOPERM"));
}

#[test]
fn values_are_read_and_changed_on_conditions() {
    check(&[
        ("SET a abcd", "+OK"),
        ("FP.CGET a u8@0=97", "$4|abcd"),
        ("FP.CGET a u8@0=98", "$-1"),
        ("FP.CGET a u8@0=97\nand\nbytes[1:3]='bc'", "$4|abcd"),
        ("FP.CGET a u32@1>0", "$-1"),
        ("FP.CGET none u8@0=97", "$-1"),
        ("FP.CGET a u8@", "-ERR predicate, at character 4: the end stands where an offset is expected"),
        ("FP.UPDATE a xy", "+OK"),
        ("FP.UPDATE none xy", "-ERR no such key"),
        ("FP.CAS a abcd z", ":0"),
        ("FP.CAS a xy z", ":1"),
        ("FP.CAS none xy z", "$-1"),
        ("GET a", "$1|z"),
        ("EXPIRE a 100", ":1"),
        ("FP.UPDATE a zz", "+OK"),
        ("TTL a", ":100"),
        ("HSET h f 1", ":1"),
        ("FP.UPDATE h zz", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("FP.SCAN default u8@0=122", "*2|$1|0|*1|*2|$1|a|$2|zz"),
        ("FP.SCAN default u8@0=1", "*2|$1|0|*0"),
        ("FP.SCAN none u8@0=1", "-ERR no space 'none': FP.SPACE LIST tells all, FP.SPACE CREATE makes one"),
    ]);
}

#[test]
fn a_scan_with_a_condition_finds_every_entry_once() {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    client.run("FP.SPACE CREATE s");
    for key in 0..5000_u32 {
        let value = (key % 10).to_le_bytes();
        client.bytes(&[b"SET", format!("s:{key}").as_bytes(), &value]);
    }
    let (mut cursor, mut found, mut steps) = ("0".to_string(), Vec::new(), 0);
    loop {
        let reply = client.run(&format!("FP.SCAN s u32@0=3 LIMIT 50 CURSOR {cursor}"));
        let lines: Vec<&str> = reply.split('|').collect();
        cursor = lines[2].to_string();
        found.extend(lines.iter().filter(|line| line.starts_with("s:")).map(ToString::to_string));
        steps += 1;
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    let count = found.len();
    found.dedup();
    assert_eq!((count, found.len()), (500, 500));
    assert!(steps > 5, "a step looks at some entries only");
}
