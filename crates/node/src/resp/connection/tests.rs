//! Tests of clients of the Redis protocol that disconnect, or keep sending, while their connection waits: for a thread
//! for long commands, for the log, or for the end of a pause.

use super::*;
use crate::access::Access;
use crate::node::NodeConfig;
use crate::rights::Right;
use farpool_disk::SimulatedDirectory;
use farpool_keystore::{Fsync, SteppedKeys};
use farpool_wire::socket::{Pipe, pipe};
use std::sync::mpsc;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(20);

/// A command that always runs on a thread for long commands.
const LONG: &str = "CONFIG SET slowlog-max-len 7";

/// A node whose connections of the Redis protocol are served by the test's own thread.
struct Served {
    node: Arc<Node>,
    shared: LaneContext,
    unauthenticated: Arc<Unauthenticated>,
    ending: watch::Sender<bool>,
}

impl Served {
    fn start() -> Self {
        let tenant = TenantName::new("ann").unwrap();
        let access = Access::of_nobody().with_token("anns", tenant, Right::Write);
        let node = Node::start(NodeConfig { memory_bytes: 64 << 20, access, ..NodeConfig::default() });
        let shared = LaneContext {
            turns: Arc::default(),
            long: LongCommands::start().unwrap(),
            tenants: Arc::default(),
        };
        let unauthenticated = Arc::default();
        Served { node: node.unwrap(), shared, unauthenticated, ending: watch::channel(false).0 }
    }

    /// Connects and authenticates a client; returns it with the task of its connection.
    async fn connect(&self) -> (Client, JoinHandle<()>) {
        let (client, socket) = pipe(16 << 10);
        let log = self.node.keyspaces().log().map(|log| log.follow());
        let connection = Connection::new(&self.node, Arc::new(socket), 1, log, self.shared.clone());
        let serving = connection.serve(Arc::clone(&self.unauthenticated), self.ending.subscribe());
        let (client, ended) = (Client(Arc::new(client)), tokio::spawn(serving));
        client.ask("AUTH anns", "+OK\r\n").await;
        (client, ended)
    }

    /// Occupies the tenant's turn on the threads for long commands until the returned sender is dropped.
    fn hold_up(&self) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel();
        let work = move || _ = released.recv();
        self.shared.long.submit(&TenantName::new("ann").unwrap(), Box::new(work));
        release
    }

    fn work_used(&self) -> u64 {
        self.node.work().usage().bytes_used
    }
}

struct Client(Arc<Pipe>);

impl Client {
    async fn send(&self, commands: &str) {
        let socket: &dyn Socket = &*self.0;
        socket.write_all(commands.as_bytes()).await.unwrap();
    }

    async fn expect(&self, expected: &str) {
        let (socket, mut got): (&dyn Socket, _) = (&*self.0, BytesMut::new());
        let reading = async {
            while got.len() < expected.len() {
                got.reserve(READ_BYTES);
                assert!(socket.read(&mut got).await.unwrap() > 0, "the connection has ended");
            }
        };
        timeout(PATIENCE, reading).await.expect("it replies");
        assert!(got == expected.as_bytes(), "{got:?}");
    }

    /// Asserts that the server sends nothing for a while.
    async fn expect_silence(&self) {
        let (socket, mut got): (&dyn Socket, _) = (&*self.0, BytesMut::with_capacity(READ_BYTES));
        let came = timeout(Duration::from_millis(50), socket.read(&mut got)).await;
        assert!(came.is_err(), "a reply that should wait: {got:?}");
    }

    async fn ask(&self, command: &str, expected: &str) {
        self.send(&format!("{command}\r\n")).await;
        self.expect(expected).await;
    }
}

async fn ends(connection: JoinHandle<()>) {
    timeout(PATIENCE, connection).await.expect("the connection ends").unwrap();
}

#[tokio::test]
async fn a_client_that_goes_while_its_command_waits_keeps_nothing() {
    let served = Served::start();
    let (other, _other) = served.connect().await;
    let release = served.hold_up();
    let mut gone = Vec::new();
    for what in ["", "WATCH a b\r\n", "MULTI\r\n"] {
        let (client, ended) = served.connect().await;
        client.send(&format!("{what}{LONG}\r\nEXEC\r\n")).await;
        if what.starts_with("MULTI") {
            // The transaction is long because of its number of commands, so it is executed on a thread for long
            // commands.
            client.send(&format!("MULTI\r\n{}EXEC\r\n", "GET a\r\n".repeat(600))).await;
        }
        gone.push((client, ended));
    }
    for (client, ended) in gone {
        drop(client);
        ends(ended).await;
    }
    // The connections have ended although the earlier long command is still running.
    assert_eq!(served.node.status().connections, 1);
    drop(release);
    other.ask("CONFIG GET slowlog-max-len", "*2\r\n$15\r\nslowlog-max-len\r\n$3\r\n128\r\n").await;
    // Executed after the threads for long commands have cleaned up after the other clients.
    other.ask(LONG, "+OK\r\n").await;
}

#[tokio::test]
async fn requests_that_come_while_replies_are_sent_are_answered() {
    let served = Served::start();
    let (client, _connection) = served.connect().await;
    // The reply is larger than the buffer between client and server, so that it is only partly sent when the next
    // request arrives.
    let value = "v".repeat(64 << 10);
    client.ask(&format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$65536\r\n{value}"), "+OK\r\n").await;
    client.send("GET a\r\n").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.send("GET a\r\n").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let reply = format!("$65536\r\n{value}\r\n");
    client.expect(&format!("{reply}{reply}")).await;
}

#[tokio::test]
async fn a_client_that_goes_during_a_pause_is_noticed() {
    let served = Served::start();
    let (pausing, _pausing) = served.connect().await;
    pausing.ask("CLIENT PAUSE 600000 ALL", "+OK\r\n").await;
    let (client, ended) = served.connect().await;
    client.send("GET a\r\n").await;
    drop(client);
    ends(ended).await;
    assert_eq!(served.node.status().connections, 1);
}

#[tokio::test]
async fn what_a_client_sends_while_its_command_waits_is_carried_out_behind_it() {
    let served = Served::start();
    let release = served.hold_up();
    let (client, _connection) = served.connect().await;
    // More bytes than the read-ahead keeps, so that the rest stays in the client.
    let count = 2 * limits::RESP_WAITING_BYTES_MAX / 1000;
    let value = "v".repeat(1000);
    client.send(&format!("{LONG}\r\nGET a\r\n")).await;
    let sending = {
        let client = Client(Arc::clone(&client.0));
        let many: String = (0..count).map(|_| format!("APPEND a {value}\r\n")).collect();
        tokio::spawn(async move { client.send(&many).await })
    };
    // Waits until half of the maximum is charged, which means that the read-ahead is full.
    let read = async {
        while served.work_used() < limits::RESP_WAITING_BYTES_MAX as u64 / 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, read).await.expect("it is read");
    assert!(served.work_used() < 2 * limits::RESP_WAITING_BYTES_MAX as u64);
    drop(release);
    let replies: String = (1..=count).map(|number| format!(":{}\r\n", number * 1000)).collect();
    client.expect(&format!("+OK\r\n$-1\r\n{replies}")).await;
    sending.await.unwrap();
}

/// Log records become durable only when the test writes the log, so that changes are in memory only, as while a disk is
/// slow.
#[tokio::test]
async fn no_reply_tells_of_a_change_that_is_not_durable() {
    let served = Served::start();
    let disk = SimulatedDirectory::new();
    let log = SteppedKeys::open(served.node.keyspaces(), disk, Fsync::Always, 4 << 20).unwrap();
    let (writer, _writer) = served.connect().await;
    // Reads of keys that no record has changed wait for nothing.
    writer.ask("GET a", "$-1\r\n").await;
    let watch = "WATCH a\r\nMULTI\r\nGET b\r\n";
    let (watching, _watching) = served.connect().await;
    watching.send(watch).await;
    watching.expect("+OK\r\n+OK\r\n+QUEUED\r\n").await;
    writer.send("SET a 1\r\n").await;
    let readers = [
        ("GET a", "$1\r\n1\r\n"),
        ("GETRANGE a 0 5", "$1\r\n1\r\n"),
        ("HGET a f", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
        ("MULTI\r\nEXISTS a\r\nEXEC", "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n"),
        ("DBSIZE", ":1\r\n"),
        ("KEYS *", "*1\r\n$1\r\na\r\n"),
        ("SCAN 0 COUNT 100000", "*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n"),
        ("INFO keyspace", "$44\r\n# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n\r\n"),
    ];
    writer.expect_silence().await;
    watching.send("EXEC\r\n").await;
    watching.expect_silence().await;
    let mut waiting = Vec::new();
    for (command, reply) in readers {
        let (reader, connection) = served.connect().await;
        reader.send(&format!("{command}\r\n")).await;
        reader.expect_silence().await;
        waiting.push((reader, reply, connection));
    }
    log.write();
    writer.expect("+OK\r\n").await;
    watching.expect("*-1\r\n").await;
    for (reader, reply, _) in &waiting {
        reader.expect(reply).await;
    }
    // Changes that are durable are returned at once, by reads and by a long command.
    let (reader, _reader) = served.connect().await;
    reader.ask("GET a", "$1\r\n1\r\n").await;
    writer.send("FLUSHDB\r\n").await;
    writer.expect_silence().await;
    reader.send("GET a\r\n").await;
    reader.expect_silence().await;
    log.write();
    reader.expect("$-1\r\n").await;
    writer.expect("+OK\r\n").await;
}
