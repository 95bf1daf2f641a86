//! The two protocols of the load generator: encodes requests, and decodes replies.

use serde::{Deserialize, Serialize};
use std::io::Write;

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// The Redis protocol, version 2.
    Resp,
    /// The text protocol of memcached.
    Memcached,
}

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The value of the key.
    Value(&'a [u8]),
    /// The key does not exist.
    Absent,
    /// The request succeeded.
    Done,
    /// Any other reply, such as an error.
    Other(&'a [u8]),
}

impl Protocol {
    /// Appends a request for the value of a key.
    pub fn get(self, key: &[u8], out: &mut Vec<u8>) {
        match self {
            Protocol::Resp => command(&[b"GET", key], out),
            Protocol::Memcached => words(&[b"get ", key], out),
        }
    }

    /// Appends a request that sets a key.
    pub fn set(self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match self {
            Protocol::Resp => command(&[b"SET", key, value], out),
            Protocol::Memcached => {
                out.extend(b"set ");
                out.extend(key);
                // Writing to a vector does not fail.
                let _ = write!(out, " 0 0 {}\r\n", value.len());
                words(&[value], out);
            }
        }
    }

    /// Appends a request that deletes a key.
    pub fn delete(self, key: &[u8], out: &mut Vec<u8>) {
        match self {
            Protocol::Resp => command(&[b"DEL", key], out),
            Protocol::Memcached => words(&[b"delete ", key], out),
        }
    }

    /// Decodes the first reply in `bytes`. Returns it and its length in bytes; `None` if it has not arrived completely.
    pub fn reply(self, bytes: &[u8]) -> Option<(Reply<'_>, usize)> {
        match self {
            Protocol::Resp => resp_reply(bytes),
            Protocol::Memcached => memcached_reply(bytes),
        }
    }
}

/// Appends a command of the Redis protocol.
pub fn command(arguments: &[&[u8]], out: &mut Vec<u8>) {
    head(b'*', arguments.len(), out);
    for argument in arguments {
        head(b'$', argument.len(), out);
        words(&[argument], out);
    }
}

/// Appends the header of an array (`*`) or of a string (`$`): its kind and its length.
fn head(kind: u8, number: usize, out: &mut Vec<u8>) {
    out.push(kind);
    if number < 10 {
        out.push(b'0' + number as u8);
    } else {
        // Writing to a vector does not fail.
        let _ = write!(out, "{number}");
    }
    out.extend(b"\r\n");
}

/// Appends byte strings and the end of a line.
fn words(parts: &[&[u8]], out: &mut Vec<u8>) {
    parts.iter().for_each(|part| out.extend(*part));
    out.extend(b"\r\n");
}

/// Decodes the first reply of the Redis protocol.
fn resp_reply(bytes: &[u8]) -> Option<(Reply<'_>, usize)> {
    let (line, end) = line(bytes)?;
    let reply = match line {
        b"+OK" | b":1" => Reply::Done,
        b":0" | b"$-1" | b"_" => Reply::Absent,
        [b'$', length @ ..] => match number(length) {
            Some(length) => return value(bytes, end, length, b"\r\n"),
            None => Reply::Other(line),
        },
        _ => Reply::Other(line),
    };
    Some((reply, end))
}

/// Decodes the first reply of memcached, which ends a value with a line `END`.
fn memcached_reply(bytes: &[u8]) -> Option<(Reply<'_>, usize)> {
    let (line, end) = line(bytes)?;
    let reply = match line {
        b"STORED" | b"DELETED" => Reply::Done,
        b"END" | b"NOT_FOUND" => Reply::Absent,
        _ if line.starts_with(b"VALUE ") => match line.rsplit(|byte| *byte == b' ').next().and_then(number) {
            Some(length) => return value(bytes, end, length, b"\r\nEND\r\n"),
            None => Reply::Other(line),
        },
        _ => Reply::Other(line),
    };
    Some((reply, end))
}

/// Decodes a value of `length` bytes that begins at `start` and is followed by the bytes `behind`.
fn value<'a>(bytes: &'a [u8], start: usize, length: usize, behind: &[u8]) -> Option<(Reply<'a>, usize)> {
    let end = start + length + behind.len();
    let all = bytes.get(start..end)?;
    let (value, rest) = all.split_at(length);
    Some((if rest == behind { Reply::Value(value) } else { Reply::Other(all) }, end))
}

/// Returns the first line without its line end, and the length with it; `None` if the line has not arrived completely.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]), end + 1))
}

/// Parses a decimal number.
fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Protocol, Reply};

    #[test]
    fn requests_are_those_of_the_protocols() {
        let made = |make: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            make(&mut out);
            String::from_utf8(out).expect("it is text")
        };
        let (resp, memcached) = (Protocol::Resp, Protocol::Memcached);
        assert_eq!(made(&|out| resp.get(b"k", out)), "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        assert_eq!(
            made(&|out| resp.set(b"k", b"0123456789", out)),
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\n0123456789\r\n"
        );
        assert_eq!(made(&|out| memcached.get(b"k", out)), "get k\r\n");
        assert_eq!(made(&|out| memcached.set(b"k", b"vv", out)), "set k 0 0 2\r\nvv\r\n");
        assert_eq!(made(&|out| memcached.delete(b"k", out)), "delete k\r\n");
    }

    #[test]
    fn replies_are_read_once_they_are_whole() {
        let cases: [(Protocol, &[u8], Reply); 11] = [
            (Protocol::Resp, b"+OK\r\n", Reply::Done),
            (Protocol::Resp, b":1\r\n", Reply::Done),
            (Protocol::Resp, b":0\r\n", Reply::Absent),
            (Protocol::Resp, b"$-1\r\n", Reply::Absent),
            (Protocol::Resp, b"$3\r\na\r\n\r\n", Reply::Value(b"a\r\n")),
            (Protocol::Resp, b"-ERR no\r\n", Reply::Other(b"-ERR no")),
            (Protocol::Memcached, b"STORED\r\n", Reply::Done),
            (Protocol::Memcached, b"END\r\n", Reply::Absent),
            (Protocol::Memcached, b"VALUE k 0 2\r\nvv\r\nEND\r\n", Reply::Value(b"vv")),
            (Protocol::Memcached, b"VALUE k 0 2\r\nvv\r\nEMD\r\n", Reply::Other(b"vv\r\nEMD\r\n")),
            (Protocol::Memcached, b"SERVER_ERROR out\r\n", Reply::Other(b"SERVER_ERROR out")),
        ];
        for (protocol, bytes, expected) in cases {
            for end in 0..bytes.len() {
                assert_eq!(protocol.reply(&bytes[..end]), None);
            }
            let more = [bytes, b"+OK\r\n"].concat();
            assert_eq!(protocol.reply(&more), Some((expected, bytes.len())));
        }
    }
}
