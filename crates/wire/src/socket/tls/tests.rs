//! Tests of TLS over pipes: the same bytes arrive as without it, however they are split, and every failed
//! handshake is explained.

use super::*;
use crate::socket::{Pipe, pipe};
use farpool_model::{Error, Result};
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Bytes that a pipe holds in tests in which it never becomes full.
const ROOM: usize = 100_000;

/// A certificate authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// Creates a certificate with parameters altered by `change`, and signs it; returns it and its private key as PEM
    /// text.
    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let mut params = CertificateParams::new(["node7".into(), "127.0.0.1".into()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn client(&self) -> ClientTls {
        ClientTls::trusting(self.pem.as_bytes()).unwrap()
    }
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("ours"));

static CLIENT: LazyLock<ClientTls> = LazyLock::new(|| AUTHORITY.client());

static NODE: LazyLock<ServerTls> = LazyLock::new(|| {
    let (certificate, key) = AUTHORITY.sign(|_| {});
    server(&certificate, &key).unwrap()
});

fn server(certificate: &str, key: &str) -> Result<ServerTls> {
    ServerTls::new(ServerTls::chain(certificate.as_bytes())?, ServerTls::key(key.as_bytes())?)
}

/// Returns the configuration of a client that supports only one version of TLS.
fn client_of(version: &'static SupportedProtocolVersion) -> ClientTls {
    let mut roots = RootCertStore::empty();
    roots.add(ServerTls::chain(AUTHORITY.pem.as_bytes()).unwrap().remove(0)).unwrap();
    let config = ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientTls(Arc::new(config))
}

/// Performs the TLS handshake of a client, which connects to the name `host`, with a node, over a pipe that holds
/// `room` bytes. Returns the client's result and the node's.
fn meet(room: usize, client: &ClientTls, node: &ServerTls, host: &str) -> (Result<Tls>, Result<Tls>) {
    let (left, right) = pipe(room);
    let both = async {
        tokio::join!(
            Tls::connect(Arc::new(left), host, client),
            Tls::accept(Arc::new(right), BytesMut::new(), node)
        )
    };
    let limited = async { timeout(Duration::from_secs(60), both).await };
    Runtime::new().unwrap().block_on(limited).expect("both sides wait for each other")
}

fn pair(room: usize) -> (Tls, Tls) {
    let (left, right) = meet(room, &CLIENT, &NODE, "node7");
    (left.unwrap(), right.unwrap())
}

fn read(end: &dyn Socket, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut buffer = BytesMut::with_capacity(bytes_max);
    end.try_read(&mut (&mut buffer).limit(bytes_max))?;
    Ok(buffer.to_vec())
}

/// A script of writes and reads: for each step, the bytes to write, and how many bytes to read then.
type Steps = Vec<(Vec<u8>, usize)>;

/// Executes the script: writes to `left` and reads from `right`; returns the bytes read. Asserts that all bytes
/// reported as written arrive although nothing is written after them.
fn play(left: &dyn Socket, right: &dyn Socket, steps: &Steps) -> Vec<u8> {
    let (mut queue, mut reported, mut received) = (Vec::new(), 0, Vec::new());
    for (bytes, most) in steps {
        queue.extend_from_slice(bytes);
        let (front, back) = queue[reported..].split_at(bytes.len().min(queue.len() - reported) / 2);
        match left.try_write_vectored(&[IoSlice::new(front), IoSlice::new(back)]) {
            Ok(written) => reported += written,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        match read(right, *most) {
            Ok(bytes) => received.extend(bytes),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(received.len() <= queue.len());
    }
    while received.len() < reported {
        received.extend(read(right, 100).expect("what was reported arrives"));
    }
    while reported < queue.len() {
        match left.try_write_vectored(&[IoSlice::new(&queue[reported..])]) {
            Ok(written) => reported += written,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        received.extend(read(right, 1000).unwrap_or_default());
    }
    left.end_writing().unwrap();
    loop {
        match read(right, 100) {
            Ok(bytes) if bytes.is_empty() => return received,
            Ok(bytes) => received.extend(bytes),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        // Reading makes `left` send the rest of its `close_notify` (the end of a TLS stream), for which the pipe had no
        // room.
        drop(read(left, 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_arrives_is_what_arrives_without_tls(
        room in 1..40_000usize,
        is_old in any::<bool>(),
        there in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60_000), 1..90_000usize), 1..12),
        back in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 1..300usize), 1..12),
    ) {
        let client = client_of(if is_old { &TLS12 } else { &TLS13 });
        let (left, right) = meet(room, &client, &NODE, "node7");
        let (left, right) = (left.unwrap(), right.unwrap());
        let (plain_left, plain_right) = pipe(room);
        prop_assert!(play(&left, &right, &there) == play(&plain_left, &plain_right, &there));
        // Bytes arrive in the other direction, too, although this one was closed.
        prop_assert!(play(&right, &left, &back) == play(&plain_right, &plain_left, &back));
    }
}

#[test]
fn sides_that_both_have_more_to_send_than_there_is_room_agree() {
    for room in 1..20 {
        for version in [&TLS12, &TLS13] {
            let (left, right) = meet(room, &client_of(version), &NODE, "node7");
            left.unwrap();
            right.unwrap();
        }
    }
}

#[test]
fn an_end_that_finds_no_room_leaves_with_reads_behind_the_end_of_the_other_side() {
    let (left, right) = pair(3000);
    left.end_writing().unwrap();
    while !read(&right, 100).is_ok_and(|bytes| bytes.is_empty()) {}
    while right.try_write_vectored(&[IoSlice::new(&[7; 1000])]).is_ok() {}
    right.end_writing().unwrap();
    for _ in 0..100_000 {
        if read(&left, 100).is_ok_and(|bytes| bytes.is_empty()) {
            return;
        }
        assert_eq!(read(&right, 1).unwrap(), b"");
    }
    panic!("the end does not come");
}

#[test]
fn an_end_that_finds_no_room_is_sent_later() {
    let (left, right) = pair(3000);
    let mut sent = 0;
    // Writes until the pipe and the queue of encrypted bytes are both full.
    while let Ok(written) = left.try_write_vectored(&[IoSlice::new(&[7; 1000])]) {
        sent += written;
    }
    left.end_writing().unwrap();
    let mut received = 0;
    for _ in 0..100_000 {
        match read(&right, 100) {
            Ok(bytes) if bytes.is_empty() => {
                assert!(received >= sent, "{received} bytes of {sent}");
                return;
            }
            Ok(bytes) => received += bytes.len(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        // Reading finds nothing, but makes `left` send its queued bytes.
        assert_eq!(read(&left, 1).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    panic!("the end does not come after {received} bytes");
}

#[test]
fn waiting_ends_when_there_is_something_to_read() {
    let (left, right) = pair(ROOM);
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert!(right.poll_ready(&mut context, Interest::Readable).is_pending());
    let sent = vec![7; 60_000];
    assert_eq!(left.try_write_vectored(&[IoSlice::new(&sent)]).unwrap(), sent.len());
    // The socket must be readable until the last byte, whether the remaining bytes are decrypted already or not.
    for _ in 0..sent.len() / 1000 {
        assert!(right.poll_ready(&mut context, Interest::Readable).is_ready());
        assert_eq!(read(&right, 1000).unwrap().len(), 1000);
    }
    assert_eq!(read(&right, 1000).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(right.poll_ready(&mut context, Interest::Readable).is_pending());
}

#[test]
fn what_a_connection_holds_is_bounded_and_counted() {
    let (left, right) = pair(ROOM);
    assert!(left.bytes_held() < 64 << 10);
    let sent = vec![7; 10 << 20];
    let blocked = left.try_write_vectored(&[IoSlice::new(&sent)]);
    assert_eq!(blocked.unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!((WRITE_BYTES..WRITE_BYTES + (32 << 10)).contains(&left.bytes_held()));
    assert_eq!(read(&right, 1).unwrap().len(), 1);
    assert!((READ_BYTES..2 * READ_BYTES).contains(&right.bytes_held()));
    while read(&right, 50_000).is_ok() {}
    assert!(right.bytes_held() <= STATE_BYTES, "nothing waits");
}

#[test]
fn an_end_without_a_word_is_a_cut() {
    // The connection breaks in the middle of a TLS record, or between two records.
    for (room, bytes) in [(1000, 5000), (ROOM, 5000)] {
        let (left, right) = pair(room);
        drop(left.try_write_vectored(&[IoSlice::new(&vec![7; bytes])]));
        left.socket.end_writing().unwrap();
        let error = loop {
            match read(&right, ROOM) {
                Ok(bytes) => assert!(!bytes.is_empty(), "taken for an end"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("close_notify"), "{error}");
    }
}

#[test]
fn who_goes_says_so() {
    let (left, right) = pair(ROOM);
    left.try_write_vectored(&[IoSlice::new(b"last words")]).unwrap();
    drop(left);
    assert_eq!(read(&right, 100).unwrap(), b"last words");
    assert_eq!(read(&right, 100).unwrap(), b"");
}

#[test]
fn bytes_that_were_changed_are_no_bytes() {
    let (below, node) = pipe(ROOM);
    let below = Arc::new(below);
    let both = async {
        tokio::join!(
            Tls::connect(below.clone(), "node7", &CLIENT),
            Tls::accept(Arc::new(node), BytesMut::new(), &NODE)
        )
    };
    let (client, node) = Runtime::new().unwrap().block_on(both);
    let (client, node) = (client.unwrap(), node.unwrap());
    client.try_write_vectored(&[IoSlice::new(b"first")]).unwrap();
    below.try_write_vectored(&[IoSlice::new(&[0x17, 3, 3, 0, 32]), IoSlice::new(&[0; 32])]).unwrap();
    assert_eq!(read(&node, 100).unwrap(), b"first");
    for _ in 0..2 {
        let error = read(&node, 100).unwrap_err();
        assert!(error.to_string().contains("changed on their way"), "{error}");
    }
    let error = read(&client, 100).unwrap_err();
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
}

/// Performs a handshake that must fail; returns the error of the client and that of the node.
fn quarrel(client: &ClientTls, certificate: (String, String), host: &str) -> (Error, Error) {
    let node = server(&certificate.0, &certificate.1).unwrap();
    let (client, node) = meet(ROOM, client, &node, host);
    (client.expect_err("agrees"), node.expect_err("agrees"))
}

#[test]
fn each_reason_not_to_agree_has_its_words_at_both_ends() {
    let others = Authority::new("others");
    let namesake = Authority::new("ours");
    let sign = |change: fn(&mut CertificateParams)| AUTHORITY.sign(change);
    for (client, certificate, host, at_client, advice, at_node) in [
        (
            &*CLIENT,
            sign(|_| {}),
            "node8",
            "is not for \"node8\", but for node7, 127.0.0.1",
            "have one made",
            "another name",
        ),
        (&*CLIENT, sign(|_| {}), "127.0.0.2", "is not for \"127.0.0.2\"", "have one made", "another name"),
        (
            &*CLIENT,
            sign(|p| (p.not_before, p.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 2, 1))),
            "node7",
            "has expired",
            "new certificate",
            "has expired",
        ),
        (
            &*CLIENT,
            sign(|p| (p.not_before, p.not_after) = (date_time_ymd(3020, 1, 1), date_time_ymd(3021, 1, 1))),
            "node7",
            "not valid yet",
            "clock",
            "not valid yet",
        ),
        (
            &*CLIENT,
            sign(|p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
            "node7",
            "that of an authority",
            "basicConstraints",
            "",
        ),
        (&others.client(), sign(|_| {}), "node7", "nobody whom this program trusts", "--tls-ca", "--tls-ca"),
        (
            &namesake.client(),
            sign(|_| {}),
            "node7",
            "another of the same name",
            "--tls-ca",
            "another authority",
        ),
    ] {
        let (client, node) = quarrel(client, certificate, host);
        assert!(client.message.contains(at_client), "{client}");
        assert!(client.advice.as_ref().is_some_and(|a| a.contains(advice)), "{client:?}");
        assert!(node.message.contains(at_node), "{at_client}: {node}");
    }
}

/// Returns the error of a client whose peer answers the handshake with the bytes `answer` and closes the connection.
fn hears(answer: &[u8]) -> Error {
    let (left, right) = pipe(ROOM);
    right.try_write_vectored(&[IoSlice::new(answer)]).unwrap();
    right.end_writing().unwrap();
    let connecting = Tls::connect(Arc::new(left), "node7", &CLIENT);
    Runtime::new().unwrap().block_on(connecting).expect_err("agrees")
}

#[test]
fn somebody_who_speaks_no_tls_is_named() {
    for (answer, text) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "does not speak TLS: it is an HTTP server"),
        (b"FARPOOL\n", "a farpool pool without a certificate"),
        (&crate::reply_to_stranger(&[0x16, 3, 1]), "speaks no TLS, or an older version"),
        (b"", "hangs up"),
    ] {
        let error = hears(answer);
        assert!(error.message.contains(text), "{error}");
        assert!(error.advice.is_some());
    }
}

#[test]
fn files_that_cannot_be_used_say_why() {
    let (certificate, key) = AUTHORITY.sign(|_| {});
    let (_, other_key) = AUTHORITY.sign(|_| {});
    let cut = &certificate[..certificate.len() - 40];
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    for (certificate, key, text) in [
        (&certificate[..], &other_key[..], "does not belong"),
        ("", &key, "no certificate in this file"),
        (&key, &certificate, "no certificate in this file but a private key"),
        (cut, &key, "cannot be read as PEM"),
        (&certificate, "", "no private key in this file"),
        (&certificate, &certificate, "no private key in this file but a certificate"),
        (&certificate, &key[..key.len() - 40], "cannot be read as PEM"),
        (&certificate, &encrypted, "is encrypted"),
        (
            &certificate,
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "the private key cannot be used",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &key,
            "certificate cannot be used",
        ),
    ] {
        let error = server(certificate, key).expect_err(text);
        assert!(error.message.contains(text), "{error}");
        assert!(error.advice.is_some(), "{error}");
    }
    let error = ClientTls::trusting(b"nothing").unwrap_err();
    assert!(error.message.contains("no certificate in this file"), "{error}");
    let error = ClientTls::trusting_those_of([]).unwrap_err();
    assert!(error.advice.unwrap().contains("--tls-ca"));
}

#[test]
fn a_pipe_is_no_place_for_secrets() {
    let (left, right) = pipe(ROOM);
    let (left, right) = (Arc::new(left), Arc::new(right));
    let spy: Arc<Pipe> = right.clone();
    let both = async {
        tokio::join!(Tls::connect(left, "127.0.0.1", &CLIENT), Tls::accept(right, BytesMut::new(), &NODE))
    };
    let (client, _node) = Runtime::new().unwrap().block_on(both);
    let client = client.unwrap();
    client.try_write_vectored(&[IoSlice::new(b"a token"), IoSlice::new(b" and more")]).unwrap();
    let seen = read(&*spy, ROOM).unwrap();
    assert!(!seen.windows(5).any(|window| window == b"token"));
}
