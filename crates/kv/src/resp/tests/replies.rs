//! Tests of the writer of replies in both versions of the Redis protocol, RESP2 and RESP3.

use super::value::{Value, read_all};
use crate::resp::{Protocol, Replies};
use proptest::prelude::*;

fn written(protocol: Protocol, write: impl Fn(&mut Replies<'_>)) -> String {
    let mut out = Vec::new();
    write(&mut Replies::new(&mut out, protocol));
    String::from_utf8(out).unwrap()
}

#[test]
fn replies_of_both_versions() {
    type Write = fn(&mut Replies<'_>);
    let cases: &[(Write, &str, &str)] = &[
        (|r| r.ok(), "+OK\r\n", "+OK\r\n"),
        (|r| r.simple("QUEUED"), "+QUEUED\r\n", "+QUEUED\r\n"),
        (|r| r.error("ERR no"), "-ERR no\r\n", "-ERR no\r\n"),
        (|r| r.integer(0), ":0\r\n", ":0\r\n"),
        (|r| r.integer(10), ":10\r\n", ":10\r\n"),
        (|r| r.integer(-1), ":-1\r\n", ":-1\r\n"),
        (|r| r.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
        (|r| r.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
        (|r| r.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
        (|r| r.bulk_integer(-17), "$3\r\n-17\r\n", "$3\r\n-17\r\n"),
        (|r| r.null(), "$-1\r\n", "_\r\n"),
        (|r| r.null_array(), "*-1\r\n", "_\r\n"),
        (|r| r.array(12), "*12\r\n", "*12\r\n"),
        (|r| r.map(3), "*6\r\n", "%3\r\n"),
        (|r| r.set(3), "*3\r\n", "~3\r\n"),
        (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
        (|r| r.double(f64::INFINITY), "$3\r\ninf\r\n", ",inf\r\n"),
        (|r| r.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
        (|r| r.double(-f64::NAN), "$3\r\nnan\r\n", ",nan\r\n"),
        (|r| r.boolean(true), ":1\r\n", "#t\r\n"),
        (|r| r.boolean(false), ":0\r\n", "#f\r\n"),
        (
            |r| r.big_number("-12345678901234567890"),
            "$21\r\n-12345678901234567890\r\n",
            "(-12345678901234567890\r\n",
        ),
        (|r| r.verbatim(*b"txt", b"a\nb"), "$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n"),
    ];
    for (place, (write, resp2, resp3)) in cases.iter().enumerate() {
        assert_eq!(written(Protocol::Resp2, write), *resp2, "case {place}");
        assert_eq!(written(Protocol::Resp3, write), *resp3, "case {place}");
    }
}

#[test]
fn an_error_stays_on_its_line() {
    for (text, line) in [
        ("ERR a\r\n+OK\nb", "-ERR a  +OK b\r\n"),
        ("\r\nERR a\n", "-ERR a\r\n"),
        ("\n", "-\r\n"),
        ("", "-\r\n"),
    ] {
        assert_eq!(written(Protocol::Resp2, |replies| replies.error(text)), line);
    }
    let mut out = Vec::new();
    Replies::new(&mut out, Protocol::Resp2).error(b"ERR unknown command '\xff'");
    assert_eq!(read_all(&out), [Value::Error(b"ERR unknown command '\xff'".to_vec())]);
}

#[test]
fn a_version_may_change_between_replies() {
    let mut out = b"+first\r\n".to_vec();
    let mut replies = Replies::new(&mut out, Protocol::default());
    replies.null();
    replies.set_protocol(Protocol::of_number(3).unwrap());
    let before = replies.bytes();
    replies.array(2);
    replies.truncate(before);
    replies.map(1);
    replies.bulk_begin(3);
    assert_eq!(replies.protocol().number(), 3);
    out.extend_from_slice(b"key");
    let mut replies = Replies::new(&mut out, Protocol::Resp3);
    replies.bulk_end();
    replies.boolean(true);
    let pair = (Value::Bulk(b"key".to_vec()), Value::Boolean(true));
    assert_eq!(read_all(&out), [Value::Simple("first".to_string()), Value::Null, Value::Map(vec![pair])]);
    assert_eq!((Protocol::of_number(2), Protocol::of_number(4)), (Some(Protocol::Resp2), None));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::Integer),
        (-200..200_i64).prop_map(Value::Integer),
        proptest::collection::vec(any::<u8>(), 0..120).prop_map(Value::Bulk),
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        "[ -~]{0,20}".prop_map(Value::Simple),
        "[0-9]{1,30}".prop_map(Value::BigNumber),
        proptest::collection::vec(any::<u8>(), 0..20)
            .prop_map(|text| Value::Verbatim("mkd".to_string(), text)),
    ];
    leaf.prop_recursive(3, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..12).prop_map(Value::Array),
            proptest::collection::vec(inner.clone(), 0..12).prop_map(Value::Set),
            proptest::collection::vec((inner.clone(), inner), 0..5).prop_map(Value::Map),
        ]
    })
}

fn write(replies: &mut Replies<'_>, value: &Value) {
    match value {
        Value::Simple(text) => replies.simple(text),
        Value::Error(text) => replies.error(text),
        Value::Integer(number) => replies.integer(*number),
        Value::Bulk(bytes) => replies.bulk(bytes),
        Value::Null => replies.null(),
        Value::Array(values) => {
            replies.array(values.len());
            values.iter().for_each(|value| write(replies, value));
        }
        Value::Set(values) => {
            replies.set(values.len());
            values.iter().for_each(|value| write(replies, value));
        }
        Value::Map(pairs) => {
            replies.map(pairs.len());
            pairs.iter().for_each(|(key, value)| [key, value].into_iter().for_each(|v| write(replies, v)));
        }
        Value::Double(text) => replies.double(text.parse().unwrap()),
        Value::Boolean(is_true) => replies.boolean(*is_true),
        Value::BigNumber(digits) => replies.big_number(digits),
        Value::Verbatim(_, text) => replies.verbatim(*b"mkd", text),
    }
}

/// Returns a reply as a RESP2 client sees it.
fn in_resp2(value: &Value) -> Value {
    match value {
        Value::Array(values) | Value::Set(values) => Value::Array(values.iter().map(in_resp2).collect()),
        Value::Map(pairs) => {
            Value::Array(pairs.iter().flat_map(|(key, value)| [in_resp2(key), in_resp2(value)]).collect())
        }
        Value::Boolean(is_true) => Value::Integer((*is_true).into()),
        Value::BigNumber(text) => Value::Bulk(text.clone().into_bytes()),
        Value::Verbatim(_, text) => Value::Bulk(text.clone()),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn replies_are_read_as_they_were_written(values in proptest::collection::vec(values(), 0..5)) {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut out = Vec::new();
            let mut replies = Replies::new(&mut out, protocol);
            values.iter().for_each(|value| write(&mut replies, value));
            let expected: Vec<Value> = match protocol {
                Protocol::Resp2 => values.iter().map(in_resp2).collect(),
                Protocol::Resp3 => values.clone(),
            };
            prop_assert_eq!(read_all(&out), expected);
        }
    }
}
