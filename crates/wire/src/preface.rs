//! The preface: eight bytes that each side of a connection sends first, so that farpool peers recognise one another
//! before anything is parsed; and the replies to peers that speak another protocol.

use farpool_model::{Error, Result};

/// The preface. The client sends it at once. The node sends it only after it has seen the client's, so that it can
/// answer a client of another protocol in that protocol.
pub const PREFACE: [u8; 8] = *b"FARPOOL\n";

/// Checks the first bytes received from a peer. Returns `true` if the preface is complete, `false` if more bytes are
/// needed. Ignores bytes after the preface.
///
/// # Errors
/// `Corrupt` as soon as a byte differs from the preface, with a guess at the peer's protocol.
pub fn check_preface(received: &[u8]) -> Result<bool> {
    let compared = received.len().min(PREFACE.len());
    if received[..compared] != PREFACE[..compared] {
        return Err(Error::corrupt(format!("the peer does not speak farpool: {}", describe(received)))
            .advise("check host and port: `farpool serve` listens on 9797 unless told otherwise"));
    }
    Ok(compared == PREFACE.len())
}

/// The protocol of a connection, which a node detects from the first bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum DetectedProtocol {
    /// More bytes are needed to decide.
    Incomplete,
    /// farpool's own protocol: the preface is complete.
    Farpool,
    /// The first record of a TLS connection.
    Tls,
    /// A PostgreSQL client's request for TLS or GSSAPI encryption. If the answer is [`NO_ENCRYPTION`], the client
    /// continues unencrypted, and its next message can be answered by an error that the client shows.
    PostgresEncryption {
        /// Length of the request in bytes.
        bytes: usize,
    },
    /// Another protocol, which the error describes.
    Stranger(Error),
}

/// The answer to [`DetectedProtocol::PostgresEncryption`]: there is no encryption.
pub const NO_ENCRYPTION: &[u8] = b"N";

/// Detects the protocol of a peer from the first bytes received.
pub fn opening(received: &[u8]) -> DetectedProtocol {
    match check_preface(received) {
        Ok(true) => DetectedProtocol::Farpool,
        Ok(false) => DetectedProtocol::Incomplete,
        Err(error) => match received {
            [HANDSHAKE, 0x03, ..] => DetectedProtocol::Tls,
            [HANDSHAKE] => DetectedProtocol::Incomplete,
            _ => postgres_encryption(received).unwrap_or(DetectedProtocol::Stranger(error)),
        },
    }
}

fn postgres_encryption(received: &[u8]) -> Option<DetectedProtocol> {
    let requests = POSTGRES_ENCRYPTION.map(|code| [[0, 0, 0, 8], code].concat());
    if let Some(request) = requests.iter().find(|request| received.starts_with(request)) {
        return Some(DetectedProtocol::PostgresEncryption { bytes: request.len() });
    }
    requests.iter().any(|request| request.starts_with(received)).then_some(DetectedProtocol::Incomplete)
}

/// Message to the users of other programs that have connected to the node by mistake.
const NO_SERVER: &str = "this is a farpool memory node: reach it with farpool://HOST:PORT, or farpools:// where it has a certificate";

/// Returns the node's answer to a peer of another protocol, by the peer's first bytes. It is in the peer's protocol, so
/// that the peer can show it to its user. The connection is closed after it.
pub fn reply_to_stranger(received: &[u8]) -> Vec<u8> {
    match Stranger::of(received) {
        Stranger::SshPeer => ssh_disconnect(),
        Stranger::PostgresClient => postgres_error(),
        other => plain_reply(other).to_vec(),
    }
}

/// Encodes an ErrorResponse (PostgreSQL, "Message Formats"): fields with a letter each, all of which end in a
/// zero byte.
fn postgres_error() -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C08P01\0M{NO_SERVER}\0\0");
    let length = (4 + fields.len()) as u32;
    [b"E", &length.to_be_bytes()[..], fields.as_bytes()].concat()
}

/// Encodes an identification string (RFC 4253, section 4.2) and SSH_MSG_DISCONNECT (sections 6 and 11.1) with
/// a description, which clients show.
fn ssh_disconnect() -> Vec<u8> {
    const DISCONNECT: u8 = 1;
    const PROTOCOL_ERROR: u32 = 2;
    let mut payload = vec![DISCONNECT];
    payload.extend(PROTOCOL_ERROR.to_be_bytes());
    payload.extend((NO_SERVER.len() as u32).to_be_bytes());
    payload.extend(NO_SERVER.as_bytes());
    // The language tag of the description, which is empty.
    payload.extend(0_u32.to_be_bytes());
    // The whole packet must be a multiple of eight bytes, at least four of them padding.
    let unpadded = 4 + 1 + payload.len();
    let padding = (unpadded + 4).next_multiple_of(8) - unpadded;
    let length = (1 + payload.len() + padding) as u32;
    let packet = [&length.to_be_bytes()[..], &[padding as u8], &payload, &vec![0; padding]].concat();
    [&b"SSH-2.0-farpool\r\n"[..], &packet].concat()
}

fn plain_reply(stranger: Stranger) -> &'static [u8] {
    match stranger {
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

/// The first byte of a TLS connection: the type of a handshake record (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 0x16;

/// The codes by which PostgreSQL clients request encryption, in place of a protocol version: TLS, and GSSAPI.
const POSTGRES_ENCRYPTION: [[u8; 4]; 2] = [80_877_103_u32.to_be_bytes(), 80_877_104_u32.to_be_bytes()];

#[derive(Clone, Copy, PartialEq)]
enum Stranger {
    HttpClient,
    HttpServer,
    RedisClient,
    RedisServer,
    Tls,
    SshPeer,
    PostgresClient,
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
            _ if starts(&["SSH-"]) => Stranger::SshPeer,
            [b'*', b'0'..=b'9', ..] | [b'P', b'I', b'N', b'G', ..] => Stranger::RedisClient,
            // A TLS record: handshake or alert, then the major version 3.
            [0x15 | HANDSHAKE, 0x03, ..] => Stranger::Tls,
            // A startup packet: its length, then the version 3 or a code.
            [0, 0, _, _, 0, 3, _, _, ..] => Stranger::PostgresClient,
            [0, 0, 0, 8, code @ ..] if POSTGRES_ENCRYPTION.iter().any(|known| code.starts_with(known)) => {
                Stranger::PostgresClient
            }
            // The greeting of MySQL's protocol: a 3-byte length, sequence 0, protocol version 10.
            [_, _, 0, 0, 10, ..] => Stranger::MariaDb,
            _ => Stranger::Unknown,
        }
    }
}

/// Describes a peer's protocol, as far as it can be recognised from the first bytes.
pub(crate) fn describe(received: &[u8]) -> String {
    match Stranger::of(received) {
        Stranger::HttpServer => "it is an HTTP server".into(),
        Stranger::HttpClient => "it is an HTTP client".into(),
        Stranger::RedisServer => "it is a Redis server".into(),
        Stranger::RedisClient => "it is a Redis client".into(),
        Stranger::Tls => "it speaks TLS".into(),
        Stranger::SshPeer => "it speaks SSH".into(),
        Stranger::PostgresClient => "it is a PostgreSQL client".into(),
        Stranger::MariaDb => "it is a MySQL or MariaDB server".into(),
        Stranger::Unknown if received.starts_with(&PREFACE) => {
            "it is a farpool pool without a certificate".into()
        }
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
            (b"\0\0\0\x54\0\x03\0\0user", "PostgreSQL client"),
            (b"\0\0\0\x08\x04\xd2\x16\x2f", "PostgreSQL client"),
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
    fn the_reply_to_postgres_is_an_error_that_ends_where_it_says() {
        let startup = reply_to_stranger(b"\0\0\0\x54\0\x03\0\0user");
        let length = u32::from_be_bytes(startup[1..5].try_into().unwrap()) as usize;
        assert_eq!((startup[0], startup.len()), (b'E', 1 + length));
        assert!(startup.ends_with(b"\0\0") && startup[5..].starts_with(b"SFATAL\0"));
    }

    #[test]
    fn an_opening_is_what_it_will_be_wherever_it_is_cut() {
        let asks = DetectedProtocol::PostgresEncryption { bytes: 8 };
        for (bytes, whole) in [
            (&PREFACE[..], DetectedProtocol::Farpool),
            (&[0x16, 3], DetectedProtocol::Tls),
            (b"\0\0\0\x08\x04\xd2\x16\x2f", asks.clone()),
            (b"\0\0\0\x08\x04\xd2\x16\x30", asks),
        ] {
            assert_eq!(opening(bytes), whole);
            assert_eq!(opening(&[bytes, b"more"].concat()), whole);
            for cut in 0..bytes.len() {
                assert_eq!(opening(&bytes[..cut]), DetectedProtocol::Incomplete, "{cut} of {bytes:?}");
            }
        }
        for stranger in
            [&b"\0\0\0\x54\0\x03\0\0user"[..], b"\0\0\0\x08\x04\xd3", b"GET / ", &[0x16, 4], &[0x15, 3]]
        {
            assert!(matches!(opening(stranger), DetectedProtocol::Stranger(_)), "{stranger:?}");
        }
    }

    #[test]
    fn the_reply_to_ssh_is_a_packet_that_disconnects() {
        let reply = reply_to_stranger(b"SSH-2.0-OpenSSH_9.9\r\n");
        let packet = reply.strip_prefix(b"SSH-2.0-farpool\r\n").unwrap();
        let length = u32::from_be_bytes(packet[..4].try_into().unwrap()) as usize;
        let padding = usize::from(packet[4]);
        assert_eq!((packet.len(), packet.len() % 8), (4 + length, 0));
        assert!((4..12).contains(&padding));
        let payload = &packet[5..packet.len() - padding];
        assert_eq!(payload[..5], [1, 0, 0, 0, 2]);
        let text = u32::from_be_bytes(payload[5..9].try_into().unwrap()) as usize;
        assert_eq!(&payload[9..9 + text], NO_SERVER.as_bytes());
        assert_eq!(payload[9 + text..], [0; 4]);
    }

    #[test]
    fn the_reply_to_http_has_the_length_it_announces() {
        let reply = String::from_utf8(reply_to_stranger(b"GET / HTTP/1.1\r\n")).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
    }
}
