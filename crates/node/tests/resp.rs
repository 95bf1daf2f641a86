//! Tests of the server of the Redis protocol (RESP), with clients that send bytes and compare the bytes of the replies.

mod auth;
mod clients;
mod fairness;

use crate::common::*;
use bytes::BytesMut;
use farpool_memory::WorkMemory;
use farpool_model::limits;
use farpool_node::{Access, Node, NodeConfig, Right, resp};
use farpool_pipeline::Class;
use farpool_wire::{Socket, Tls};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A node that speaks the Redis protocol on a port of its own.
struct Redis {
    node: Arc<Node>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<farpool_model::Result<()>>,
}

impl Redis {
    async fn start(access: Access) -> Redis {
        let work = WorkMemory::new(256 << 20);
        let config = NodeConfig { memory_bytes: 64 << 20, work, workers: 1, access, ..NodeConfig::default() };
        let node = Node::start(config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async { drop(stopped.await) };
        let served = tokio::spawn(resp::serve(node.clone(), listener, 2, stopped));
        Redis { node, address, stop: Some(stop), served }
    }

    async fn connect(&self) -> Client {
        Client::at(self.address).await
    }

    fn work_used(&self) -> u64 {
        self.node.work().usage().bytes_used
    }
}

struct Client(TcpStream);

impl Client {
    async fn at(address: SocketAddr) -> Client {
        Client(TcpStream::connect(address).await.unwrap())
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads as many bytes as `expected` has and asserts that they are equal.
    async fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut got = vec![0; expected.len()];
        timeout(Duration::from_secs(20), self.0.read_exact(&mut got)).await.expect("it replies").unwrap();
        assert!(got == expected, "{:?} and not {:?}", text(&got), text(expected));
    }

    /// Sends a command, given as words separated by spaces, and asserts that the reply is `expected`.
    async fn ask(&mut self, command: &str, expected: impl AsRef<[u8]>) {
        self.send(request(command)).await;
        self.expect(expected).await;
    }

    /// Reads until the server closes the connection; returns the received bytes.
    async fn end(mut self) -> String {
        let mut rest = Vec::new();
        let ended = timeout(Duration::from_secs(20), self.0.read_to_end(&mut rest)).await;
        drop(ended.expect("the connection ends"));
        text(&rest)
    }
}

fn request(command: &str) -> Vec<u8> {
    let words: Vec<&str> = command.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    bytes.into_bytes()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_come_in_one_packet_or_byte_by_byte_are_answered_in_order() {
    let redis = Redis::start(Access::of_everybody()).await;
    let mut client = redis.connect().await;
    let commands = ["SET a 1", "INCR a", "GET a", "NOPE", "MGET a b", "ECHO hi"];
    let all: Vec<u8> = commands.iter().flat_map(|command| request(command)).collect();
    let expected = "+OK\r\n:2\r\n$1\r\n2\r\n-ERR unknown command 'NOPE', with args beginning with: \r\n\
                    *2\r\n$1\r\n2\r\n$-1\r\n$2\r\nhi\r\n";
    client.send(&all).await;
    client.expect(expected).await;
    for byte in &all {
        client.send([*byte]).await;
    }
    client.expect(expected).await;
    client.send("PING\r\nset b \"x y\"\r\n").await;
    client.expect("+PONG\r\n+OK\r\n").await;
    // Many requests at once, whose replies are more than one batch.
    let value = "v".repeat(100_000);
    client.ask(&format!("SET large {value}"), "+OK\r\n").await;
    let many = request("GET large").repeat(50);
    let sent = client.0.write_all(&many).await;
    sent.unwrap();
    for _ in 0..50 {
        client.expect(format!("$100000\r\n{value}\r\n")).await;
    }
    client.ask("QUIT", "+OK\r\n").await;
    assert_eq!(client.end().await, "");
}

/// Connections that arrive while all threads are busy are accepted together later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_come_all_at_once_stay() {
    let redis = Redis::start(Access::of_everybody()).await;
    let mut busy = vec![redis.connect().await, redis.connect().await];
    for start in (0..100_000).step_by(1000) {
        let pairs: Vec<String> = (start..start + 1000).map(|number| format!("key:{number} 1")).collect();
        busy[0].ask(&format!("MSET {}", pairs.join(" ")), "+OK\r\n").await;
    }
    for client in &mut busy {
        client.send(request("KEYS *z*z*").repeat(5)).await;
    }
    let mut clients = Vec::new();
    for _ in 0..400 {
        clients.push(redis.connect().await);
    }
    for client in &mut clients {
        client.ask("PING", "+PONG\r\n").await;
    }
    for client in &mut busy {
        client.expect("*0\r\n".repeat(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newer_protocol_is_spoken_where_it_is_asked_for() {
    let redis = Redis::start(Access::of_everybody()).await;
    let mut client = redis.connect().await;
    client.ask("GET none", "$-1\r\n").await;
    client.ask("HELLO 4", "-NOPROTO unsupported protocol version\r\n").await;
    client
        .ask(
            "HELLO 3 SETNAME me",
            "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n\
             $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        )
        .await;
    client.ask("GET none", "_\r\n").await;
    client.ask("CLIENT GETNAME", "$2\r\nme\r\n").await;
    let most = limits::RESP_CLIENT_NAME_BYTES_MAX;
    let (long, longer) = ("n".repeat(most), "n".repeat(most + 1));
    let refused = format!("-ERR a client name of {} bytes: names have at most {most}\r\n", most + 1);
    client.ask(&format!("CLIENT SETNAME {long}"), "+OK\r\n").await;
    client.ask(&format!("CLIENT SETNAME {longer}"), &refused).await;
    client.ask(&format!("HELLO 3 SETNAME {longer}"), &refused).await;
    client.ask("CLIENT GETNAME", format!("${most}\r\n{long}\r\n")).await;
    client.ask("SLOWLOG GET a", "-ERR count should be greater than or equal to -1\r\n").await;
    client.ask("CONFIG SET maxmemory 0 foo", "-ERR syntax error\r\n").await;
    client.ask("CONFIG GET data*", "%1\r\n$9\r\ndatabases\r\n$2\r\n16\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("PING", "+QUEUED\r\n").await;
    client.ask("RESET", "+RESET\r\n").await;
    // `INFO` is refused in a transaction because it would wait for shards (locked parts of the keys) that the
    // transaction itself holds.
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET a 1", "+QUEUED\r\n").await;
    client.ask("INFO", "-ERR INFO is not allowed inside a transaction\r\n").await;
    let refused = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    client.ask("EXEC", refused).await;
    client.ask("EXEC", "-ERR EXEC without MULTI\r\n").await;
    client.ask("GET none", "$-1\r\n").await;
    client.ask("COMMAND GETKEYS MSET a 1 b 2", "*2\r\n$1\r\na\r\n$1\r\nb\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_say_whose_keys_a_client_sees_and_whether_it_may_change_them() {
    let access = || {
        Access::of_nobody()
            .with_token("anns", tenant("ann"), Right::Write)
            .with_token("reader", tenant("ann"), Right::Read)
            .with_token("bobs", tenant("bob"), Right::Admin)
    };
    let redis = Redis::start(access()).await;
    let mut ann = redis.connect().await;
    for command in ["GET a", "MULTI", "SELECT 1", "INFO", "NOPE"] {
        ann.ask(command, "-NOAUTH Authentication required.\r\n").await;
    }
    ann.ask("AUTH wrong", "-WRONGPASS the pool does not know this token\r\n").await;
    ann.ask("AUTH anns", "+OK\r\n").await;
    ann.ask("SET a 1", "+OK\r\n").await;
    let mut reader = redis.connect().await;
    reader.ask("AUTH somebody reader", "+OK\r\n").await;
    reader.ask("GET a", "$1\r\n1\r\n").await;
    let refused = "-NOPERM this token may not write: use one with the role write\r\n";
    reader.ask("SET a 2", refused).await;
    reader.ask("FLUSHDB", refused).await;
    reader.ask("MULTI", "+OK\r\n").await;
    reader.ask("DEL a", refused).await;
    reader.ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    let mut bob = redis.connect().await;
    bob.ask("AUTH bobs", "+OK\r\n").await;
    bob.ask("DBSIZE", ":0\r\n").await;
    bob.ask("SET a 3", "+OK\r\n").await;
    bob.ask("FLUSHDB", "+OK\r\n").await;
    ann.ask("GET a", "$1\r\n1\r\n").await;
    // Authenticating as another tenant has ended the transaction that `MULTI` began, so `MULTI` is allowed again.
    ann.ask("MULTI", "+OK\r\n").await;
    ann.ask("GET a", "+QUEUED\r\n").await;
    ann.ask("DISCARD", "+OK\r\n").await;
    ann.ask("AUTH bobs", "+OK\r\n").await;
    ann.ask("GET a", "$-1\r\n").await;
    // Removing a token closes the connections that were authenticated with it.
    redis.node.set_access(Access::of_nobody().with_token("bobs", tenant("bob"), Right::Admin));
    assert!(reader.end().await.starts_with("-NOAUTH "), "it is told");
    bob.ask("GET a", "$-1\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_in_one_packet_is_done_in_its_order_whoever_sends_it() {
    let access = Access::of_nobody().with_token("anns", tenant("ann"), Right::Write).with_token(
        "bobs",
        tenant("bob"),
        Right::Write,
    );
    let redis = Redis::start(access).await;
    let mut client = redis.connect().await;
    let commands = [
        ("AUTH anns", "+OK\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("GET a", "$1\r\n1\r\n"),
        ("AUTH bobs", "+OK\r\n"),
        ("GET a", "$-1\r\n"),
        ("SET a 2", "+OK\r\n"),
        ("MGET a a", "*2\r\n$1\r\n2\r\n$1\r\n2\r\n"),
        ("DEL a", ":1\r\n"),
        ("RESET", "+RESET\r\n"),
        ("GET a", "-NOAUTH Authentication required.\r\n"),
        ("AUTH anns", "+OK\r\n"),
        ("GET a", "$1\r\n1\r\n"),
    ];
    let packet = |commands: &[(&str, &str)]| -> Vec<u8> {
        commands.iter().flat_map(|(command, _)| request(command)).collect()
    };
    let replies: String = commands.iter().map(|(_, reply)| *reply).collect();
    client.send(packet(&commands)).await;
    client.expect(&replies).await;
    // More requests at once than are parsed and looked up in advance.
    let many = commands.repeat(30);
    client.send(packet(&many)).await;
    client.expect(replies.repeat(30)).await;
    // Requests before a malformed request are executed; requests after a malformed one or after `QUIT`, which close the
    // connection, are not.
    client
        .send([request("INCR a"), request("INCR a"), b"*1\r\n!".to_vec(), request("INCR a")].concat())
        .await;
    assert_eq!(client.end().await, ":2\r\n:3\r\n-ERR Protocol error: expected '$', got '!'\r\n");
    let mut client = redis.connect().await;
    client.send([request("AUTH anns"), request("INCR a"), request("QUIT"), request("INCR a")].concat()).await;
    assert_eq!(client.end().await, "+OK\r\n:4\r\n+OK\r\n");
    let mut client = redis.connect().await;
    client.ask("AUTH anns", "+OK\r\n").await;
    client.ask("GET a", "$1\r\n4\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_pauses_does_not_keep_others_of_its_thread_waiting() {
    let redis = Redis::start(Access::of_everybody()).await;
    // More connections than serving threads, each with more pending bytes than one read of a socket returns.
    let many = request("SET a 1").repeat(10_000);
    for _ in 0..4 {
        let (mut reading, mut writing) = redis.connect().await.0.into_split();
        let many = many.clone();
        tokio::spawn(async move { while writing.write_all(&many).await.is_ok() {} });
        tokio::spawn(async move {
            let mut replies = vec![0; 1 << 20];
            while reading.read(&mut replies).await.is_ok_and(|bytes| bytes > 0) {}
        });
    }
    for _ in 0..20 {
        let mut client = redis.connect().await;
        client.ask("SET b 1", "+OK\r\n").await;
        client.ask("GET b", "$1\r\n1\r\n").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_clients_counts_as_part_of_their_tenants_share() {
    let redis = Redis::start(Access::of_everybody()).await;
    let charged = || -> i128 {
        redis.node.scheduler().shares(Class::Foreground).iter().map(|share| share.charged_ns).sum()
    };
    let mut client = redis.connect().await;
    client.ask("SET a 1", "+OK\r\n").await;
    let before = charged();
    let value = "v".repeat(1 << 20);
    for _ in 0..20 {
        client.ask(&format!("SET large {value}"), "+OK\r\n").await;
        client.ask("GETRANGE large 0 1", "$2\r\nvv\r\n").await;
    }
    // Copying a MiB takes at least some 50 microseconds.
    assert!(charged() - before >= 200_000, "{} ns", charged() - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_take_little_and_are_closed() {
    let redis = Redis::start(Access::of_nobody()).await;
    for (bytes, expected) in [
        ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
        ("*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
        ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", ""),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "-NOAUTH Authentication required.\r\n"),
    ] {
        let mut client = redis.connect().await;
        client.send(bytes).await;
        assert_eq!(client.end().await, expected, "{bytes:?}");
    }
    // When there are too many unauthenticated connections, the oldest silent ones are closed for new ones.
    let mut silent = Vec::new();
    for _ in 0..limits::GREETINGS_MAX {
        silent.push(redis.connect().await);
    }
    let mut last = redis.connect().await;
    last.ask("AUTH x", "-WRONGPASS the pool does not know this token\r\n").await;
    assert_eq!(silent.remove(0).end().await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_send_is_charged_before_it_is_kept() {
    let redis = Redis::start(Access::of_everybody()).await;
    let before = redis.work_used();
    let mut client = redis.connect().await;
    // An announced length of 512 MiB reserves no memory before the bytes arrive.
    client.send("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870912\r\n").await;
    let mut other = redis.connect().await;
    other.ask("PING", "+PONG\r\n").await;
    assert!(redis.work_used() - before < 1 << 20, "{}", redis.work_used());
    // The tenant's memory outside the pool is exhausted before the announced value has arrived completely.
    let chunk = vec![b'x'; 1 << 20];
    let mut sent = 0;
    while sent < 512 && client.0.write_all(&chunk).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 512, "all of it was kept");
    drop(client);
    eventually("its memory is free", || redis.work_used() - before < 1 << 20).await;
    // A value that does not fit into the pool is refused with `OOM`.
    let value = "v".repeat(80 << 20);
    let mut client = redis.connect().await;
    client.send(request(&format!("SET a {value}"))).await;
    let mut reply = [0; 5];
    client.0.read_exact(&mut reply).await.unwrap();
    assert_eq!(text(&reply), "-OOM ");
    other.ask("SET a 1", "+OK\r\n").await;
    // A reply larger than the memory that is left is refused.
    let value = "v".repeat(10 << 20);
    other.ask(&format!("SET large {value}"), "+OK\r\n").await;
    let refused = "-ERR the reply is larger than this client may have in memory: ask for less at once\r\n";
    other.ask(&format!("MGET{}", " large".repeat(100)), refused).await;
    other.ask("STRLEN large", ":10485760\r\n").await;
    // The watches (`WATCH`) of clients that disconnect are removed.
    let mut watcher = redis.connect().await;
    watcher.ask("WATCH a", "+OK\r\n").await;
    watcher.ask("MULTI", "+OK\r\n").await;
    watcher.ask("SET a 2", "+QUEUED\r\n").await;
    drop((watcher, client));
    other.ask("GET a", "$1\r\n1\r\n").await;
    drop(other);
    eventually("all memory is free", || redis.work_used() == before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_expire_without_being_asked_for() {
    let redis = Redis::start(Access::of_everybody()).await;
    let mut client = redis.connect().await;
    for number in 0..1000 {
        client.ask(&format!("SET key:{number} x PX 50"), "+OK\r\n").await;
    }
    client.ask("SET stays x", "+OK\r\n").await;
    for _ in 0..400 {
        client.send(request("DBSIZE")).await;
        let mut reply = [0; 64];
        let bytes = client.0.read(&mut reply).await.unwrap();
        if &reply[..bytes] == b":1\r\n" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("they are still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transactions_of_many_clients_are_atomic() {
    let redis = Redis::start(Access::of_everybody()).await;
    let writers = (0..4).map(|writer| {
        let address = redis.address;
        async move {
            let mut client = Client::at(address).await;
            for number in 0..300 {
                let value = format!("{writer}:{number}");
                match number % 3 {
                    0 => client.ask(&format!("MSET a {value} b {value} c {value}"), "+OK\r\n").await,
                    1 => {
                        let commands = [
                            "MULTI".to_string(),
                            format!("SET a {value}"),
                            format!("MSET c {value} b {value}"),
                        ];
                        let sent: Vec<u8> = commands.iter().flat_map(|command| request(command)).collect();
                        client.send(sent).await;
                        client.send(request("EXEC")).await;
                        client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n").await;
                    }
                    _ => {
                        client.send([request("INCR count"), request("MGET a b c")].concat()).await;
                        let mut reply = BytesMut::new();
                        // The complete reply has 8 line ends: a counter, then an array of three values.
                        while reply.iter().filter(|byte| **byte == b'\n').count() < 8 {
                            client.0.read_buf(&mut reply).await.unwrap();
                        }
                        let reply = text(&reply);
                        let lines: Vec<&str> = reply.split("\r\n").collect();
                        assert!(lines[3] == lines[5] && lines[5] == lines[7], "{reply:?}");
                    }
                }
            }
        }
    });
    let writers: Vec<_> = writers.map(tokio::spawn).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    redis.connect().await.ask("GET count", "$3\r\n400\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_speak_tls_where_the_node_does_and_a_shutdown_ends_them() {
    let mut redis = Redis::start(Access::of_everybody()).await;
    redis.node.set_tls(AUTHORITY.node("localhost"));
    let socket: Arc<dyn Socket> = Arc::new(TcpStream::connect(redis.address).await.unwrap());
    let tls = Tls::connect(socket, "localhost", &AUTHORITY.clients()).await.unwrap();
    let tls: Arc<dyn Socket> = Arc::new(tls);
    tls.write_all(&request("SET a 1")).await.unwrap();
    let mut reply = BytesMut::with_capacity(64);
    tls.read(&mut reply).await.unwrap();
    assert_eq!(&reply[..], b"+OK\r\n");
    // A node with TLS does not serve clients that connect without TLS.
    let mut plain = redis.connect().await;
    plain.send("PING\r\n").await;
    assert!(!plain.end().await.contains("PONG"));
    redis.stop.take().unwrap().send(()).unwrap();
    timeout(Duration::from_secs(20), &mut redis.served).await.expect("it ends").unwrap().unwrap();
    reply.clear();
    assert_eq!(tls.read(&mut reply).await.unwrap_or(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_those_of_the_keys_of_a_tenant() {
    let redis = Redis::start(Access::of_everybody()).await;
    let mut client = redis.connect().await;
    client
        .ask(
            "CONFIG GET maxmemory*",
            "*4\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n",
        )
        .await;
    client.ask("CONFIG SET maxmemory 4mb maxmemory-policy ALLKEYS-LFU", "+OK\r\n").await;
    client
        .ask(
            "CONFIG GET maxmemory*",
            "*4\r\n$9\r\nmaxmemory\r\n$7\r\n4194304\r\n$16\r\nmaxmemory-policy\r\n$11\r\nallkeys-lfu\r\n",
        )
        .await;
    let refused = [
        ("CONFIG SET port 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'port'\r\n"),
        (
            "CONFIG SET databases 1",
            "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config\r\n",
        ),
        (
            "CONFIG SET maxmemory-policy noeviction maxmemory 1.5gb",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value\r\n",
        ),
        ("CONFIG SET maxmemory", "-ERR wrong number of arguments for 'config|set' command\r\n"),
    ];
    for (command, reply) in refused {
        client.ask(command, reply).await;
    }
    client.ask("CONFIG GET maxmemory", "*2\r\n$9\r\nmaxmemory\r\n$7\r\n4194304\r\n").await;
    let value = "v".repeat(1000);
    for key in 0..10_000 {
        client.ask(&format!("SET key{key} {value}"), "+OK\r\n").await;
    }
    client.ask("GET none", "$-1\r\n").await;
    let evicted: u64 = client.info("stats", "evicted_keys").await.parse().unwrap();
    assert!(evicted > 5000, "{evicted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_commands_are_told_to_their_tenant() {
    let access = Access::of_nobody().with_token("anns", tenant("ann"), Right::Write).with_token(
        "bobs",
        tenant("bob"),
        Right::Read,
    );
    let redis = Redis::start(access).await;
    let (mut ann, mut bob) = (redis.connect().await, redis.connect().await);
    ann.ask("AUTH anns", "+OK\r\n").await;
    bob.ask("AUTH bobs", "+OK\r\n").await;
    ann.ask("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2", "+OK\r\n").await;
    ann.ask("SET a 1", "+OK\r\n").await;
    ann.ask("AUTH anns", "+OK\r\n").await;
    ann.ask("GET a", "$1\r\n1\r\n").await;
    ann.ask("CONFIG SET slowlog-log-slower-than -1", "+OK\r\n").await;
    ann.ask("SLOWLOG LEN", ":2\r\n").await;
    ann.send(request("SLOWLOG GET 1")).await;
    // The reply begins with one entry of six fields.
    ann.expect("*1\r\n*6\r\n").await;
    bob.ask("SLOWLOG LEN", ":0\r\n").await;
    bob.ask("SLOWLOG RESET", "-NOPERM this token may not write: use one with the role write\r\n").await;
    bob.ask("LATENCY LATEST", "*0\r\n").await;
    bob.ask("LATENCY DOCTOR", "-ERR unknown subcommand 'DOCTOR'. Try LATENCY HELP.\r\n").await;
    let mut again = redis.connect().await;
    again.ask("AUTH anns", "+OK\r\n").await;
    again.ask("SLOWLOG RESET", "+OK\r\n").await;
    again.ask("SLOWLOG GET", "*0\r\n").await;
}
