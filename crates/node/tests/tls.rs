//! Tests of nodes with TLS: clients that use TLS and clients that do not, and certificates that are replaced while the
//! node runs.

use crate::common::*;
use bytes::BytesMut;
use farpool_model::{Error, ErrorKind, LoadMode};
use farpool_node::{Followed, certificate};
use farpool_transfer::{ClientOptions, Pool, PoolUrl, RemotePool};
use farpool_wire::{Socket, Tls};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

async fn encrypted() -> Server {
    Server::start().await.encrypted()
}

/// Connects to `url` as a client that trusts the authority of the tests.
async fn connect(url: &str) -> farpool_model::Result<RemotePool> {
    let url: PoolUrl = url.parse().unwrap();
    let tls = Some(AUTHORITY.clients());
    RemotePool::connect(&url, ClientOptions { tls, ..ClientOptions::default() }).await
}

async fn refused(url: &str) -> Error {
    connect(url).await.map(drop).expect_err("it lets everybody in")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_as_they_do_without() {
    let (plain, encrypted) = (Server::start().await, encrypted().await);
    let mut sums = Vec::new();
    for server in [&plain, &encrypted] {
        let pool = Arc::new(server.connect().await);
        load(&*pool, "t", LoadMode::Create, 300_000).await.unwrap();
        // Several results at once, so that workers of the node write to the socket while another thread reads from it.
        let clients = (0..4).map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { integers(&run(&*pool, &scan("t")).await.unwrap(), 3) })
        });
        for client in futures::future::join_all(clients).await {
            sums.push(client.unwrap());
        }
        assert_eq!(counted(&*pool, "t", 17).await.unwrap().0, 17);
    }
    assert!(sums.iter().all(|values| values.len() == 300_000 && *values == sums[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_speaks_tls_with_one_who_does_not_is_told() {
    let (plain, encrypted) = (Server::start().await, encrypted().await);
    let url = format!("farpools://{}", plain.address);
    let error = refused(&url).await;
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.starts_with(&format!("{url}: it speaks no TLS")), "{error}");
    assert!(error.advice.unwrap().contains("use farpool://"));

    let url = format!("farpool://{}", encrypted.address);
    let error = refused(&url).await;
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.contains(&url) && error.message.contains("in the clear"), "{error}");
    assert!(error.advice.unwrap().contains("farpools://"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_for_another_name_is_not_believed() {
    let server = encrypted().await;
    let url = format!("farpools://localhost:{}", server.address.port());
    let error = refused(&url).await;
    assert_eq!(error.message, format!("{url}: its certificate is not for \"localhost\", but for 127.0.0.1"));
    // The certificate is signed only by the authority of the tests.
    let url: PoolUrl = format!("farpools://{}", server.address).parse().unwrap();
    let error = RemotePool::connect(&url, ClientOptions::default()).await.map(drop).unwrap_err();
    let is_named = |text| error.message.contains(text);
    assert!(is_named("nobody whom this program trusts") || is_named("trusts no authority"), "{error}");
    assert!(error.advice.unwrap().contains("--tls-ca"));
}

/// Sends `bytes` over `socket` and reads until the node closes it.
async fn say(socket: &dyn Socket, bytes: &[u8]) -> Vec<u8> {
    socket.write_all(bytes).await.unwrap();
    let mut answer = BytesMut::new();
    let reading = async { while socket.read(&mut answer).await.is_ok_and(|bytes| bytes > 0) {} };
    timeout(PATIENCE, reading).await.expect("the node hangs up");
    answer.to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_answered_in_their_own_protocol_with_and_without_tls() {
    let server = encrypted().await;
    for is_encrypted in [false, true] {
        for (says, answer) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], &b"HTTP/1.1 400 "[..]),
            (b"PING\r\n", b"-ERR this is a farpool memory node"),
            (b"SSH-2.0-x\r\n", b"SSH-2.0-farpool"),
        ] {
            let tcp = Arc::new(TcpStream::connect(server.address).await.unwrap());
            let socket: Arc<dyn Socket> = match is_encrypted {
                true => Arc::new(Tls::connect(tcp, "127.0.0.1", &AUTHORITY.clients()).await.unwrap()),
                false => tcp,
            };
            let heard = say(&*socket, says).await;
            assert!(heard.starts_with(answer), "{}", heard.escape_ascii());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_is_told_where_it_is_whatever_it_asks_for_first() {
    for server in [Server::start().await, encrypted().await] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let mut answer = [0];
        for request in [b"\0\0\0\x08\x04\xd2\x16\x30", b"\0\0\0\x08\x04\xd2\x16\x2f"] {
            // The request is sent in two parts, and the node must wait for the second.
            socket.write_all(&request[..5]).await.unwrap();
            socket.write_all(&request[5..]).await.unwrap();
            socket.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"N");
        }
        socket.write_all(b"\0\0\0\x13\0\x03\0\0user\0ann\0\0").await.unwrap();
        let mut error = Vec::new();
        timeout(PATIENCE, socket.read_to_end(&mut error)).await.expect("it hangs up").unwrap();
        assert_eq!(error[0], b'E');
        assert!(String::from_utf8_lossy(&error).contains("a farpool memory node"));
        // A third request for encryption (`SSLRequest` of PostgreSQL) is answered with the error for strangers.
        let socket: Arc<dyn Socket> = Arc::new(TcpStream::connect(server.address).await.unwrap());
        let heard = say(&*socket, &b"\0\0\0\x08\x04\xd2\x16\x2f".repeat(3)).await;
        assert!(heard.starts_with(b"NNE"), "{}", heard.escape_ascii());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_begins_with_tls_and_stops_keeps_nobody_waiting() {
    let server = encrypted().await;
    let mut halves = Vec::new();
    for bytes in [&[][..], &[0x16], &[0x16, 3, 1, 2, 0], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        halves.push(socket);
    }
    let client = server.connect().await;
    assert_eq!(client.tables().await.unwrap(), vec![]);
    assert_eq!(server.node.status().connections, 1, "nobody else has said who they are");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_is_an_error_that_says_so() {
    let server = encrypted().await;
    load(&server.connect().await, "t", LoadMode::Create, 200_000).await.unwrap();
    // A proxy that forwards what the node sends up to some byte within the rows, and then closes the TCP connection, as
    // an attacker could. The client must not take that for the end of the result.
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("farpools://{}", proxy.local_addr().unwrap());
    let node = server.address;
    tokio::spawn(async move {
        let (client, _) = proxy.accept().await.unwrap();
        let (mut hears, mut says) = client.into_split();
        let (node_says, mut node_hears) = TcpStream::connect(node).await.unwrap().into_split();
        tokio::spawn(async move { tokio::io::copy(&mut hears, &mut node_hears).await });
        tokio::io::copy(&mut node_says.take(300_000), &mut says).await.unwrap();
    });
    let pool = connect(&url).await.unwrap();
    let error = run(&pool, &scan("t")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(
        error.message.contains("went away while a query was running: the connection was cut off"),
        "{error}"
    );
    eventually("the node has noticed", || server.programs_running() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_replaced_while_the_node_runs() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("cert.pem"), folder.path().join("key.pem")];
    let put = |(certificate, key): (&str, &str)| {
        std::fs::write(&paths[0], certificate).unwrap();
        std::fs::write(&paths[1], key).unwrap();
    };
    let (certificate, key) = AUTHORITY.sign("127.0.0.1");
    put((&certificate, &key));
    let (files, tls) =
        Followed::open(paths.to_vec(), |paths| certificate::read(&paths[0], &paths[1])).unwrap();
    let server = Server::start().await.encrypted();
    server.node.set_tls(tls);
    let (ask, asked) = mpsc::channel(1);
    let node = server.node.clone();
    tokio::spawn(files.follow("the certificate", move |tls| node.set_tls(tls), asked));
    let before = server.connect().await;
    // A half-written certificate, and a key that does not belong to the certificate, are ignored: the old certificate
    // stays in effect.
    let (others, other_key) = AUTHORITY.sign("localhost");
    for (certificate, key) in [(&others[..100], &key), (&others, &key)] {
        put((certificate, key));
        for _ in 0..2 {
            ask.send(()).await.unwrap();
        }
        ask.reserve().await.unwrap();
        assert_eq!(server.connect().await.tables().await.unwrap(), vec![]);
    }
    // No reload is requested: the change of the files is noticed.
    put((&others, &other_key));
    let url = format!("farpools://localhost:{}", server.address.port());
    let seen = async { while connect(&url).await.is_err() {} };
    timeout(PATIENCE, seen).await.expect("the new certificate is shown");
    assert!(refused(&server.url().to_string()).await.message.contains("but for localhost"));
    assert_eq!(before.tables().await.unwrap(), vec![], "who is connected stays");
}

#[test]
fn files_of_a_certificate_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = AUTHORITY.sign("127.0.0.1");
    let (_, other_key) = AUTHORITY.sign("127.0.0.1");
    let (good, good_key) = (write("cert.pem", &certificate), write("key.pem", &key));
    assert!(certificate::read(&good, &good_key).is_ok());
    let missing = folder.path().join("missing.pem");
    let other = write("other.pem", &other_key);
    let empty = write("empty.pem", "");
    for (certificate, key, names, text) in [
        (&missing, &good_key, "missing.pem", "cannot read"),
        (&good, &missing, "missing.pem", "cannot read"),
        (&empty, &good_key, "empty.pem", "no certificate"),
        (&good, &empty, "empty.pem", "no private key"),
        (&good, &other, "cert.pem and ", "does not belong"),
    ] {
        let error = certificate::read(certificate, key).unwrap_err();
        assert!(error.message.contains(names) && error.message.contains(text), "{error}");
        assert!(error.advice.is_some(), "{error}");
    }
}
