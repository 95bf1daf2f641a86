//! Tests of commands by random sequences, whose replies are compared with those of maps of keys and values.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A command on a hash whose fields, values and number of fields make it small or large.
#[derive(Clone, Debug)]
enum OfHash {
    Set(u8, u16, u8),
    Del(u8, u16),
    Drop(u8),
    Rename(u8, u8),
    Copy(u8, u8),
    Tidy,
}

fn steps_of_hashes() -> impl Strategy<Value = Vec<OfHash>> {
    let (key, field) = (0..4_u8, prop_oneof![3 => 0..10_u16, 2 => 0..300_u16]);
    let step = prop_oneof![
        20 => (key.clone(), field.clone(), any::<u8>()).prop_map(|(key, field, bytes)| OfHash::Set(key, field, bytes / 3)),
        8 => (key.clone(), field).prop_map(|(key, field)| OfHash::Del(key, field)),
        1 => key.clone().prop_map(OfHash::Drop),
        1 => (key.clone(), key.clone()).prop_map(|(from, to)| OfHash::Rename(from, to)),
        1 => (key.clone(), key).prop_map(|(from, to)| OfHash::Copy(from, to)),
        1 => Just(OfHash::Tidy)
    ];
    prop::collection::vec(step, 1..600)
}

proptest! {
    #[test]
    fn random_commands_of_hashes_do_what_maps_do(steps in steps_of_hashes()) {
        let pool = pool(64);
        let keys = keyspace(&pool);
        let mut client = Client::new(&keys);
        let mut model = BTreeMap::<u8, BTreeMap<u16, Vec<u8>>>::new();
        for step in steps {
            let (command, expected) = match step {
                OfHash::Set(key, field, bytes) => {
                    let value = vec![b'a' + bytes % 26; usize::from(bytes)];
                    let is_new = model.entry(key).or_default().insert(field, value.clone()).is_none();
                    let reply = client.bytes(&[b"HSET", &[key], field.to_string().as_bytes(), &value]);
                    prop_assert_eq!(reply, format!(":{}\r\n", i32::from(is_new)).into_bytes());
                    continue;
                }
                OfHash::Del(key, field) => {
                    let removed = model.get_mut(&key).and_then(|fields| fields.remove(&field));
                    model.retain(|_, fields| !fields.is_empty());
                    (vec![b"HDEL".to_vec(), vec![key], field.to_string().into_bytes()], i32::from(removed.is_some()))
                }
                OfHash::Drop(key) => (vec![b"DEL".to_vec(), vec![key]], i32::from(model.remove(&key).is_some())),
                OfHash::Rename(from, to) => {
                    if from == to || !model.contains_key(&from) {
                        continue;
                    }
                    let is_free = !model.contains_key(&to);
                    if is_free {
                        let fields = model.remove(&from).unwrap();
                        model.insert(to, fields);
                    }
                    (vec![b"RENAMENX".to_vec(), vec![from], vec![to]], i32::from(is_free))
                }
                OfHash::Copy(from, to) => {
                    if from == to {
                        continue;
                    }
                    let copied = model.get(&from).cloned();
                    let is_there = copied.is_some();
                    copied.into_iter().for_each(|fields| drop(model.insert(to, fields)));
                    (vec![b"COPY".to_vec(), vec![from], vec![to], b"REPLACE".to_vec()], i32::from(is_there))
                }
                OfHash::Tidy => {
                    keys.tidy(client.now);
                    continue;
                }
            };
            let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(client.bytes(&args), format!(":{expected}\r\n").into_bytes());
        }
        for key in 0..4 {
            let fields = model.get(&key);
            let expected = format!(":{}\r\n", fields.map_or(0, BTreeMap::len));
            prop_assert_eq!(client.bytes(&[b"HLEN", &[key]]), expected.into_bytes());
            let all = client.bytes(&[b"HGETALL", &[key]]);
            let count = all.split(|byte| *byte == b'\n').filter(|line| line.first() == Some(&b'$')).count();
            prop_assert_eq!(count, 2 * fields.map_or(0, BTreeMap::len));
            for (field, value) in fields.into_iter().flatten() {
                let reply = client.bytes(&[b"HGET", &[key], field.to_string().as_bytes()]);
                prop_assert_eq!(reply, [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat());
            }
        }
        client.run("FLUSHDB");
        while keys.tidy(client.now) {}
        prop_assert_eq!(pool.bytes_used(), 0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, Vec<u8>),
    SetFor(u8, Vec<u8>, u16),
    Append(u8, Vec<u8>),
    SetRange(u8, u16, Vec<u8>),
    Del(u8),
    Rename(u8, u8),
    Expire(u8, u16),
    Persist(u8),
    Get(u8),
    Wait(u16),
    Tidy,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..100),
        2 => prop::collection::vec(any::<u8>(), 100..3000),
        1 => prop::collection::vec(any::<u8>(), 30_000..70_000)
    ];
    let value = value.boxed();
    let key = 0..40_u8;
    let step = prop_oneof![
        4 => (key.clone(), value.clone()).prop_map(|(key, value)| Step::Set(key, value)),
        2 => (key.clone(), value.clone(), 1..500_u16).prop_map(|(key, value, ms)| Step::SetFor(key, value, ms)),
        3 => (key.clone(), value.clone()).prop_map(|(key, value)| Step::Append(key, value)),
        2 => (key.clone(), 0..2000_u16, value).prop_map(|(key, at, value)| Step::SetRange(key, at, value)),
        3 => key.clone().prop_map(Step::Del),
        2 => (key.clone(), key.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => (key.clone(), 1..500_u16).prop_map(|(key, ms)| Step::Expire(key, ms)),
        1 => key.clone().prop_map(Step::Persist),
        4 => key.prop_map(Step::Get),
        2 => (1..200_u16).prop_map(Step::Wait),
        2 => Just(Step::Tidy)
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn random_commands_do_what_a_map_does(steps in steps()) {
        let pool = pool(64);
        let keys = keyspace(&pool);
        let mut client = Client::new(&keys);
        let mut model = BTreeMap::<Vec<u8>, (Vec<u8>, Option<u64>)>::new();
        let name = |key: u8| format!("key{key}").into_bytes();
        for step in steps {
            let now = client.now;
            model.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
            let (reply, expected) = match step {
                Step::Set(key, value) => {
                    model.insert(name(key), (value.clone(), None));
                    (client.bytes(&[b"SET", &name(key), &value]), "+OK".to_string())
                }
                Step::SetFor(key, value, ms) => {
                    model.insert(name(key), (value.clone(), Some(now + u64::from(ms))));
                    (client.bytes(&[b"PSETEX", &name(key), ms.to_string().as_bytes(), &value]), "+OK".into())
                }
                Step::Append(key, value) => {
                    let (kept, _) = model.entry(name(key)).or_default();
                    kept.extend(&value);
                    (client.bytes(&[b"APPEND", &name(key), &value]), format!(":{}", kept.len()))
                }
                Step::SetRange(key, at, value) => {
                    let bytes = model.get(&name(key)).map_or(0, |(value, _)| value.len());
                    let end = if value.is_empty() { bytes } else { bytes.max(usize::from(at) + value.len()) };
                    if !value.is_empty() {
                        let (kept, _) = model.entry(name(key)).or_default();
                        kept.resize(end, 0);
                        kept[usize::from(at)..][..value.len()].copy_from_slice(&value);
                    }
                    let at = at.to_string();
                    (client.bytes(&[b"SETRANGE", &name(key), at.as_bytes(), &value]), format!(":{end}"))
                }
                Step::Del(key) => {
                    let gone = i32::from(model.remove(&name(key)).is_some());
                    (client.bytes(&[b"DEL", &name(key)]), format!(":{gone}"))
                }
                Step::Rename(from, to) => {
                    let expected = match model.remove(&name(from)) {
                        Some(kept) => {
                            model.insert(name(to), kept);
                            "+OK"
                        }
                        None => "-ERR no such key",
                    };
                    (client.bytes(&[b"RENAME", &name(from), &name(to)]), expected.into())
                }
                Step::Expire(key, ms) => {
                    let there = model.get_mut(&name(key));
                    let expected = format!(":{}", i32::from(there.is_some()));
                    there.into_iter().for_each(|(_, expiry)| *expiry = Some(now + u64::from(ms)));
                    (client.bytes(&[b"PEXPIRE", &name(key), ms.to_string().as_bytes()]), expected)
                }
                Step::Persist(key) => {
                    let before = model.get_mut(&name(key)).and_then(|(_, expiry)| expiry.take());
                    (client.bytes(&[b"PERSIST", &name(key)]), format!(":{}", i32::from(before.is_some())))
                }
                Step::Get(key) => {
                    let reply = client.bytes(&[b"GET", &name(key)]);
                    let expected = match model.get(&name(key)) {
                        Some((value, _)) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
                        None => b"$-1\r\n".to_vec(),
                    };
                    prop_assert_eq!(reply, expected);
                    continue;
                }
                Step::Wait(ms) => {
                    client.now += u64::from(ms);
                    continue;
                }
                Step::Tidy => {
                    keys.tidy(now);
                    continue;
                }
            };
            prop_assert_eq!(String::from_utf8_lossy(&reply).trim_end().to_string(), expected);
        }
        let now = client.now;
        model.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
        for (key, (value, expiry)) in &model {
            let expected = [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
            prop_assert_eq!(client.bytes(&[b"GET", key]), expected);
            let expected = expiry.map_or(-1, |expiry| expiry as i64);
            prop_assert_eq!(client.bytes(&[b"PEXPIRETIME", key]), format!(":{expected}\r\n").into_bytes());
        }
        client.run("FLUSHDB");
        while keys.tidy(now) {}
        prop_assert_eq!(pool.bytes_used(), 0);
    }
}
