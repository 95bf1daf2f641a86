//! Tests of hash indexes that get keys in the order in which a scan of another index returned them, which would fill a
//! few buckets first if both indexes arranged hashes in the same way: fields copied to other hashes, keys to other
//! databases, spaces and tenants, and back to where they came from.

use super::{Client, keyspace, pool};
use crate::Keyspace;
use farpool_memory::Pool;
use farpool_model::TenantName;
use std::sync::Arc;

const FIELDS: usize = 20_000;
const KEYS: usize = 60_000;

/// Returns the texts of a reply without their lengths.
fn texts(reply: &[u8]) -> Vec<Vec<u8>> {
    let lines: Vec<&[u8]> = reply.split(|byte| *byte == b'\n').collect();
    let pairs = lines.windows(2).filter(|pair| pair[0].starts_with(b"$"));
    pairs.map(|pair| pair[1].trim_ascii_end().to_vec()).collect()
}

fn run(client: &mut Client<'_>, words: &[&[u8]]) -> String {
    let reply = client.bytes(words);
    String::from_utf8_lossy(&reply[..reply.len().min(200)]).trim_end().to_string()
}

/// Returns all keys of the selected space in the order of a scan.
fn scanned(client: &mut Client<'_>) -> Vec<Vec<u8>> {
    let (mut keys, mut cursor) = (Vec::new(), b"0".to_vec());
    loop {
        let mut step = texts(&client.bytes(&[b"SCAN", &cursor, b"COUNT", b"1000"]));
        cursor = step.remove(0);
        keys.append(&mut step);
        if cursor == b"0" {
            return keys;
        }
    }
}

fn filled(keys: &Keyspace) -> (Client<'_>, Vec<Vec<u8>>) {
    let mut client = Client::new(keys);
    for key in 0..KEYS {
        assert_eq!(client.run(&format!("SET key{key} v")), "+OK");
    }
    let order = scanned(&mut client);
    assert_eq!(order.len(), KEYS);
    (client, order)
}

fn set_in_order(client: &mut Client<'_>, order: &[Vec<u8>]) {
    for key in order {
        assert_eq!(run(client, &[b"SET", key, b"v"]), "+OK");
    }
    let mut all = scanned(client);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), order.len());
}

#[test]
fn a_large_hash_is_copied_and_renamed() {
    let pool = pool(256);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    for count in [100, 1_000, 10_000, FIELDS] {
        for field in 0..count {
            client.run(&format!("HSET h field{field} {field}"));
        }
        assert_eq!(client.run("COPY h copy REPLACE"), ":1");
        assert_eq!(client.run("COPY copy other DB 3 REPLACE"), ":1");
        assert_eq!(client.run("RENAME copy moved"), "+OK");
        assert_eq!(client.run("COPY moved again REPLACE"), ":1");
        for copy in ["moved", "again"] {
            assert_eq!(client.run(&format!("HLEN {copy}")), format!(":{count}"));
            assert_eq!(client.run(&format!("HGET {copy} field17")), "$2|17");
        }
        client.run("SELECT 3");
        assert_eq!(client.run("HLEN other"), format!(":{count}"));
        client.run("SELECT 0");
    }
}

#[test]
fn a_hash_takes_fields_in_the_order_of_another_ones() {
    let pool = pool(256);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    for field in 0..FIELDS {
        client.run(&format!("HSET h field{field} {field}"));
    }
    let order = texts(&client.bytes(&[b"HKEYS", b"h"]));
    assert_eq!(order.len(), FIELDS);
    for per_command in [1, 10, 500] {
        client.run("DEL to");
        for fields in order.chunks(per_command) {
            let mut words: Vec<&[u8]> = vec![b"HSET", b"to"];
            fields.iter().for_each(|field| words.extend([&field[..], b"v"]));
            assert_eq!(run(&mut client, &words), format!(":{}", fields.len()));
        }
        assert_eq!(client.run("HLEN to"), format!(":{FIELDS}"));
    }
    // Writes the fields back into the hash that they came from, of which a few fields were kept.
    for field in &order[10..] {
        assert_eq!(run(&mut client, &[b"HDEL", b"h", field]), ":1");
    }
    for field in &order[10..] {
        assert_eq!(run(&mut client, &[b"HSET", b"h", field, b"w"]), ":1");
    }
    assert_eq!(client.run("HLEN h"), format!(":{FIELDS}"));
}

#[test]
fn other_databases_and_the_same_one_take_keys_in_the_order_of_a_scan() {
    let pool = pool(256);
    let keys = keyspace(&pool);
    let (mut client, order) = filled(&keys);
    client.run("SELECT 1");
    set_in_order(&mut client, &order);
    // Writes keys of several shards with one command.
    client.run("SELECT 2");
    for some in order.chunks(5_000) {
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        some.iter().for_each(|key| words.extend([&key[..], b"v"]));
        assert_eq!(run(&mut client, &words), "+OK");
    }
    assert_eq!(client.run("DBSIZE"), format!(":{KEYS}"));
    client.run("SELECT 0");
    client.run("FLUSHALL");
    set_in_order(&mut client, &order);
    // Removes all keys but 20 and writes them again, so that the index never becomes empty and keeps its permutation of
    // hashes.
    for key in &order[20..] {
        run(&mut client, &[b"DEL", key]);
    }
    set_in_order(&mut client, &order[20..].iter().chain(&order[..20]).cloned().collect::<Vec<_>>());
}

#[test]
fn another_tenant_and_the_next_process_take_keys_in_the_order_of_a_scan() {
    let pool: Arc<Pool> = pool(256);
    let keys = keyspace(&pool);
    let (_, order) = filled(&keys);
    let of_other = Keyspace::new(&pool, &TenantName::new("other").unwrap(), [7; 16], 4);
    set_in_order(&mut Client::new(&of_other), &order);
    let of_next = Keyspace::new(&pool, &TenantName::default(), [8; 16], 4);
    set_in_order(&mut Client::new(&of_next), &order);
}

#[test]
fn a_named_space_takes_over_keys_and_takes_them_in_the_order_of_a_scan() {
    let pool = pool(256);
    let keys = keyspace(&pool);
    let (mut client, order) = filled(&keys);
    assert_eq!(client.run("FP.SPACE CREATE all PREFIX key"), "+OK");
    assert_eq!(client.run("DBSIZE"), format!(":{KEYS}"));
    let renamed: Vec<Vec<u8>> = scanned(&mut client);
    for key in &renamed {
        let to = [b"x:", &key[..]].concat();
        assert_eq!(run(&mut client, &[b"RENAME", key, &to]), "+OK");
    }
    assert_eq!(client.run("DBSIZE"), format!(":{KEYS}"));
    set_in_order(&mut client, &{
        let mut both = order.clone();
        both.extend(scanned(&mut Client::new(&keys)));
        both
    });
}
