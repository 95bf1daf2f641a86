//! Bytes that no client sends.

use super::{open, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Reads messages until `kind` has come; returns the kinds.
async fn read_until(socket: &mut TcpStream, kind: u8) -> String {
    let mut kinds = String::new();
    loop {
        let mut head = [0; 5];
        if socket.read_exact(&mut head).await.is_err() {
            return kinds + "|";
        }
        kinds.push(char::from(head[0]));
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length - 4];
        socket.read_exact(&mut body).await.unwrap();
        if head[0] == kind {
            return kinds;
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind][..], &length, body].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_bytes_end_a_session_and_nothing_else() {
    let server = open().await;
    let startup = |body: &[u8]| [&u32::try_from(body.len() + 4).unwrap().to_be_bytes()[..], body].concat();
    let begin = startup(b"\0\x03\0\0user\0ann\0\0");
    let connect = async || {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(&begin).await.unwrap();
        assert!(read_until(&mut socket, b'Z').await.ends_with('Z'));
        socket
    };
    for hostile in [
        &b"Q\xff\xff\xff\xff"[..],
        b"Q\0\0\0\x02",
        b"?\0\0\0\x04",
        b"B\0\0\0\x08\0\0\xff\xff",
        b"Q\0\0\0\x06\xff\0",
    ] {
        let mut socket = connect().await;
        socket.write_all(hostile).await.unwrap();
        assert_eq!(read_until(&mut socket, 0).await, "E|", "{hostile:?}");
    }
    // After an error in the extended protocol, everything up to Sync is skipped.
    let mut socket = connect().await;
    let pipeline = [
        message(b'P', b"\0select nothing\0\0\0"),
        message(b'B', b"\0\0\0\0\0\0\0\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
        message(b'P', b"\0select 1\0\0\0"),
        message(b'B', b"\0\0\0\0\0\0\0\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ];
    socket.write_all(&pipeline.concat()).await.unwrap();
    assert_eq!(read_until(&mut socket, b'Z').await, "EZ");
    assert_eq!(read_until(&mut socket, b'Z').await, "12DCZ");
    // Statements without end, of which the names are limited.
    let mut socket = connect().await;
    let parses: Vec<u8> =
        (0..1100).flat_map(|n| message(b'P', format!("s{n}\0select 1\0\0\0").as_bytes())).collect();
    socket.write_all(&parses).await.unwrap();
    socket.write_all(&message(b'S', b"")).await.unwrap();
    let kinds = read_until(&mut socket, b'Z').await;
    assert_eq!((kinds.matches('1').count(), kinds.matches('E').count()), (1024, 1));
    // A client that goes in the middle of a long result.
    let mut socket = connect().await;
    socket.write_all(&message(b'Q', b"select a.id from items a cross join items b\0")).await.unwrap();
    assert!(read_until(&mut socket, b'D').await.starts_with('T'));
    drop(socket);
    let client = server.connect().await;
    assert_eq!(text(&client, "select count(*) from items").await, "20000");
}
