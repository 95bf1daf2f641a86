//! The first eight bytes that each side sends, by which farpool peers recognise one another before
//! anything is parsed, and what to say to somebody who sent something else.

use farpool_model::{Error, Result};

/// The first bytes that each side sends. The client sends them at once; the node once it has seen the
/// client's, so that it can answer a stranger in the stranger's own language.
pub const PREFACE: [u8; 8] = *b"FARPOOL\n";

/// Looks at the first bytes that came from a peer: `true` when the preface is complete, `false` when more
/// bytes are needed. Bytes after the preface are ignored.
///
/// # Errors
/// `Corrupt` as soon as a byte differs from the preface, saying who the peer seems to be.
pub fn check_preface(received: &[u8]) -> Result<bool> {
    let compared = received.len().min(PREFACE.len());
    if received[..compared] != PREFACE[..compared] {
        return Err(Error::corrupt(format!("the peer does not speak farpool: {}", describe(received)))
            .advise("check host and port: `farpool serve` listens on 9797 unless told otherwise"));
    }
    Ok(compared == PREFACE.len())
}

/// What a node answers, before it closes the connection, to a peer whose first bytes are not the preface:
/// something that the peer shows to a person.
pub fn reply_to_stranger(received: &[u8]) -> &'static [u8] {
    match Stranger::of(received) {
        Stranger::HttpClient => {
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
              Content-Length: 64\r\n\r\nThis is a farpool memory node. It speaks farpool://, not HTTP.\r\n"
        }
        Stranger::RedisClient => b"-ERR this is a farpool memory node, not Redis\r\n",
        // A TLS alert: fatal, protocol_version (RFC 8446, section 6).
        Stranger::Tls => &[0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46],
        _ => b"FARPOOL\n",
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Stranger {
    HttpClient,
    HttpServer,
    RedisClient,
    RedisServer,
    Tls,
    Ssh,
    MariaDb,
    Unknown,
}

impl Stranger {
    fn of(received: &[u8]) -> Self {
        let starts = |prefixes: &[&str]| {
            prefixes.iter().any(|p| !received.is_empty() && received.starts_with(p.as_bytes()))
        };
        match received {
            _ if starts(&["HTTP/"]) => Stranger::HttpServer,
            _ if starts(&["GET ", "POST ", "PUT ", "HEAD ", "OPTIONS ", "DELETE ", "CONNECT ", "PRI * "]) => {
                Stranger::HttpClient
            }
            _ if starts(&["-ERR", "+PONG", "+OK", "-NOAUTH", "-DENIED"]) => Stranger::RedisServer,
            _ if starts(&["SSH-"]) => Stranger::Ssh,
            [b'*', b'0'..=b'9', ..] | [b'P', b'I', b'N', b'G', ..] => Stranger::RedisClient,
            // A TLS record: handshake or alert, then the major version 3.
            [0x15 | 0x16, 0x03, ..] => Stranger::Tls,
            // The greeting of MySQL's protocol: a 3-byte length, sequence 0, protocol version 10.
            [_, _, 0, 0, 10, ..] => Stranger::MariaDb,
            _ => Stranger::Unknown,
        }
    }
}

fn describe(received: &[u8]) -> String {
    match Stranger::of(received) {
        Stranger::HttpServer => "it is an HTTP server".into(),
        Stranger::HttpClient => "it is an HTTP client".into(),
        Stranger::RedisServer => "it is a Redis server".into(),
        Stranger::RedisClient => "it is a Redis client".into(),
        Stranger::Tls => "it speaks TLS".into(),
        Stranger::Ssh => "it is an SSH server".into(),
        Stranger::MariaDb => "it is a MySQL or MariaDB server".into(),
        Stranger::Unknown => {
            let shown = &received[..received.len().min(16)];
            format!("it began with {}", shown.escape_ascii())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_recognised_from_whatever_has_come() {
        for (bytes, who) in [
            (&b"HTTP/1.1 400"[..], "HTTP server"),
            (b"GET / HT", "HTTP client"),
            (b"-ERR unknown command", "Redis server"),
            (b"*1\r\n$4", "Redis client"),
            (&[0x15, 3, 1, 0, 2, 2, 0x46], "TLS"),
            (b"SSH-2.0-", "SSH"),
            (b"\x4a\0\0\0\x0a8.0", "MariaDB"),
            (b"\0\xff", "\\x00\\xff"),
        ] {
            let error = check_preface(bytes).unwrap_err();
            assert!(error.message.contains(who), "{error}");
        }
    }

    #[test]
    fn the_preface_may_come_in_parts() {
        for n in 0..PREFACE.len() {
            assert!(!check_preface(&PREFACE[..n]).unwrap());
        }
        assert!(check_preface(&PREFACE).unwrap());
        assert!(check_preface(b"FARPOOL\nmore").unwrap());
        assert!(check_preface(b"FARPOOL ").is_err());
    }

    #[test]
    fn the_reply_to_http_has_the_length_it_announces() {
        let reply = std::str::from_utf8(reply_to_stranger(b"GET / HTTP/1.1\r\n")).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
    }
}
