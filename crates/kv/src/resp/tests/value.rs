//! A simple and strict parser of replies of the Redis protocol, with which tests check the writer of replies.

/// A reply of the Redis protocol as a client decodes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Simple(String),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Double(String),
    Boolean(bool),
    BigNumber(String),
    Verbatim(String, Vec<u8>),
}

/// Reads all replies in some bytes. Panics if they are not whole replies.
pub(super) fn read_all(mut bytes: &[u8]) -> Vec<Value> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        values.push(read(&mut bytes));
    }
    values
}

fn read(bytes: &mut &[u8]) -> Value {
    let line = take_line(bytes);
    let (kind, rest) = line.split_first().expect("a line is not empty");
    let text = || String::from_utf8(rest.to_vec()).unwrap();
    match kind {
        b'+' => Value::Simple(text()),
        b'-' => Value::Error(rest.to_vec()),
        b':' => Value::Integer(text().parse().unwrap()),
        b'$' | b'*' if rest == b"-1" => Value::Null,
        b'$' => Value::Bulk(take_bulk(bytes, length(rest))),
        b'*' => Value::Array((0..length(rest)).map(|_| read(bytes)).collect()),
        b'_' if rest.is_empty() => Value::Null,
        b'%' => Value::Map((0..length(rest)).map(|_| (read(bytes), read(bytes))).collect()),
        b'~' => Value::Set((0..length(rest)).map(|_| read(bytes)).collect()),
        b',' => Value::Double(text()),
        b'#' => Value::Boolean(
            rest == b"t" || {
                assert_eq!(rest, b"f");
                false
            },
        ),
        b'(' => Value::BigNumber(text()),
        b'=' => {
            let bulk = take_bulk(bytes, length(rest));
            assert_eq!(bulk[3], b':');
            Value::Verbatim(String::from_utf8(bulk[..3].to_vec()).unwrap(), bulk[4..].to_vec())
        }
        other => panic!("{} begins no reply", char::from(*other)),
    }
}

fn length(text: &[u8]) -> usize {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

fn take_line(bytes: &mut &[u8]) -> Vec<u8> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n").expect("a line ends");
    let line = bytes[..end].to_vec();
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
    *bytes = &bytes[end + 2..];
    line
}

fn take_bulk(bytes: &mut &[u8], length: usize) -> Vec<u8> {
    let bulk = bytes[..length].to_vec();
    assert_eq!(&bytes[length..length + 2], b"\r\n");
    *bytes = &bytes[length + 2..];
    bulk
}
