//! Tests of the commands `CLIENT LIST`, `CLIENT KILL` and `CLIENT PAUSE` of the Redis protocol, and of the counters
//! that `INFO` reports.

use super::*;

impl Client {
    /// Sends a command whose reply is a bulk string; returns the string.
    async fn bulk(&mut self, command: &str) -> String {
        self.send(request(command)).await;
        let mut header = Vec::new();
        while !header.ends_with(b"\r\n") {
            let byte = timeout(Duration::from_secs(20), self.0.read_u8()).await.expect("it replies");
            header.push(byte.unwrap());
        }
        let length = text(&header[1..header.len() - 2]).parse::<usize>();
        let mut reply = vec![0; length.unwrap_or_else(|_| panic!("{}", text(&header))) + 2];
        self.0.read_exact(&mut reply).await.unwrap();
        reply.truncate(reply.len() - 2);
        text(&reply)
    }

    async fn id(&mut self) -> String {
        let line = self.bulk("CLIENT INFO").await;
        field(&line, "id").to_string()
    }

    /// Returns the value of the field `key` of a section of `INFO`.
    pub(super) async fn info(&mut self, section: &str, key: &str) -> String {
        let told = self.bulk(&format!("INFO {section}")).await;
        let value = told.split("\r\n").find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.unwrap_or_default().to_string()
    }

    /// Waits until this many clients are blocked.
    async fn until_blocked(&mut self, count: usize) {
        for _ in 0..2000 {
            if self.info("clients", "blocked_clients").await == count.to_string() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{} wait", self.info("clients", "blocked_clients").await);
    }
}

/// Returns a field of a line of `CLIENT LIST`.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    line.trim_end().split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap()
}

fn of_two() -> Access {
    Access::of_nobody()
        .with_token("anns", tenant("ann"), Right::Write)
        .with_token("reads", tenant("ann"), Right::Read)
        .with_token("bobs", tenant("bob"), Right::Write)
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_tenant_see_one_another() {
    let redis = Redis::start(of_two()).await;
    let (mut ann, mut other, mut bob) = (redis.connect().await, redis.connect().await, redis.connect().await);
    ann.ask("AUTH anns", "+OK\r\n").await;
    other.ask("AUTH reads", "+OK\r\n").await;
    bob.ask("AUTH bobs", "+OK\r\n").await;
    other.ask("CLIENT SETNAME other", "+OK\r\n").await;
    other.ask("SELECT 3", "+OK\r\n").await;
    other.ask("MULTI", "+OK\r\n").await;
    other.ask("GET a", "+QUEUED\r\n").await;
    let list = ann.bulk("CLIENT LIST").await;
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 2, "{list}");
    let (own, others) = (lines[0], lines[1]);
    assert_eq!(field(own, "addr"), ann.0.local_addr().unwrap().to_string());
    assert_eq!(field(own, "laddr"), redis.address.to_string());
    let told = ["name", "db", "multi", "flags", "cmd", "resp", "qbuf", "sub", "redir"];
    assert_eq!(told.map(|name| field(own, name)), ["", "0", "-1", "N", "client|list", "2", "26", "0", "-1"]);
    let expected = ["other", "3", "1", "x", "multi", "2", "0", "0", "-1"];
    assert_eq!(told.map(|name| field(others, name)), expected);
    // The fields of a line are in the order of Redis 7.0.15.
    let names: Vec<&str> = own.split(' ').map(|pair| pair.split('=').next().unwrap()).collect();
    let of_redis = "id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free argv-mem multi-mem rbs \
                    rbp obl oll omem tot-mem events cmd user redir resp";
    assert_eq!(names.join(" "), of_redis);
    let id = field(others, "id");
    assert_eq!(field(&ann.bulk(&format!("CLIENT LIST ID 999 {id}")).await, "id"), id);
    assert_eq!(ann.bulk("CLIENT LIST TYPE normal").await.lines().count(), 2);
    assert_eq!(ann.bulk("CLIENT LIST TYPE pubsub").await, "");
    assert_eq!(bob.bulk(&format!("CLIENT LIST ID {id}")).await, "");
    assert_eq!(bob.info("clients", "connected_clients").await, "1");
    // Redis 7.0.15 gives the same replies to the following commands.
    for (command, reply) in [
        ("CLIENT LIST TYPE x", "-ERR Unknown client type 'x'\r\n"),
        ("CLIENT LIST ID", "-ERR syntax error\r\n"),
        ("CLIENT LIST ID x", "-ERR Invalid client ID\r\n"),
        ("CLIENT LIST x", "-ERR syntax error\r\n"),
        ("CLIENT INFO x", "-ERR wrong number of arguments for 'client|info' command\r\n"),
        ("CLIENT", "-ERR wrong number of arguments for 'client' command\r\n"),
        ("CLIENT nope", "-ERR unknown subcommand 'nope'. Try CLIENT HELP.\r\n"),
        ("CLIENT NO-EVICT ON", "+OK\r\n"),
        ("CLIENT NO-EVICT x", "-ERR syntax error\r\n"),
        ("CLIENT GETREDIR", ":-1\r\n"),
        (
            "CLIENT TRACKINGINFO",
            "*6\r\n$5\r\nflags\r\n*1\r\n$3\r\noff\r\n$8\r\nredirect\r\n:-1\r\n$8\r\nprefixes\r\n*0\r\n",
        ),
        ("CLIENT TRACKING OFF", "+OK\r\n"),
        ("CLIENT UNBLOCK 1", ":0\r\n"),
        ("CLIENT UNBLOCK 1 x", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR\r\n"),
    ] {
        ann.ask(command, reply).await;
    }
    // A client that authenticates as another tenant is then listed among the clients of that tenant.
    other.ask("DISCARD", "+OK\r\n").await;
    other.ask("AUTH bobs", "+OK\r\n").await;
    assert_eq!(ann.info("clients", "connected_clients").await, "1");
    assert_eq!(bob.bulk("CLIENT LIST").await.lines().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_end_those_of_their_tenant() {
    let redis = Redis::start(of_two()).await;
    let mut clients = Vec::new();
    for token in ["anns", "anns", "anns", "reads", "bobs"] {
        let mut client = redis.connect().await;
        client.ask(&format!("AUTH {token}"), "+OK\r\n").await;
        clients.push(client);
    }
    let [mut ann, mut first, mut second, mut reader, mut bob] = clients.try_into().ok().unwrap();
    // Redis 7.0.15 gives the same replies to the following commands.
    for (command, reply) in [
        ("CLIENT KILL", "-ERR wrong number of arguments for 'client|kill' command\r\n"),
        ("CLIENT KILL id 10 wrong_arg", "-ERR syntax error\r\n"),
        ("CLIENT KILL id str", "-ERR client-id should be greater than 0\r\n"),
        ("CLIENT KILL id 0", "-ERR client-id should be greater than 0\r\n"),
        ("CLIENT KILL type wrong_type", "-ERR Unknown client type 'wrong_type'\r\n"),
        ("CLIENT KILL user wrong_user", "-ERR No such user 'wrong_user'\r\n"),
        ("CLIENT KILL skipme yes_or_no", "-ERR syntax error\r\n"),
        ("CLIENT KILL 1.1.1.1:1", "-ERR No such client\r\n"),
        ("CLIENT KILL TYPE master", ":0\r\n"),
    ] {
        ann.ask(command, reply).await;
    }
    let id = first.id().await;
    bob.ask(&format!("CLIENT KILL ID {id}"), ":0\r\n").await;
    let refused = "-NOPERM this token may not write: use one with the role write\r\n";
    reader.ask(&format!("CLIENT KILL ID {id}"), refused).await;
    ann.ask(&format!("CLIENT KILL ID {id}"), ":1\r\n").await;
    assert_eq!(first.end().await, "");
    let address = second.0.local_addr().unwrap();
    second.ask("PING", "+PONG\r\n").await;
    ann.ask(&format!("CLIENT KILL {address}"), "+OK\r\n").await;
    assert_eq!(second.end().await, "");
    ann.ask(&format!("CLIENT KILL LADDR {} ID 999", redis.address), ":0\r\n").await;
    ann.ask(&format!("CLIENT KILL LADDR {}", redis.address), ":1\r\n").await;
    assert_eq!(reader.end().await, "");
    ann.ask("CLIENT KILL SKIPME no", ":1\r\n").await;
    assert_eq!(ann.end().await, "", "it gets its reply before");
    bob.ask("PING", "+PONG\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_has_clients_of_the_tenant_wait() {
    let redis = Redis::start(of_two()).await;
    let mut clients = Vec::new();
    for token in ["anns", "anns", "reads", "bobs"] {
        let mut client = redis.connect().await;
        client.ask(&format!("AUTH {token}"), "+OK\r\n").await;
        clients.push(client);
    }
    let [mut ann, mut writer, mut reader, mut bob] = clients.try_into().ok().unwrap();
    for (command, reply) in [
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range\r\n"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative\r\n"),
        ("CLIENT PAUSE 1 foo", "-ERR CLIENT PAUSE mode must be WRITE or ALL\r\n"),
        ("CLIENT PAUSE 600001", "-ERR timeout is more than 600000 milliseconds\r\n"),
        ("CLIENT PAUSE 0", "+OK\r\n"),
        ("CLIENT PAUSE 60000 WRITE", "+OK\r\n"),
    ] {
        ann.ask(command, reply).await;
    }
    reader.ask("CLIENT UNPAUSE", "-NOPERM this token may not write: use one with the role write\r\n").await;
    // The pause of writes does not delay commands that read, that are refused, or that belong to another tenant.
    reader.ask("GET a", "$-1\r\n").await;
    writer.ask("SET a", "-ERR wrong number of arguments for 'set' command\r\n").await;
    bob.ask("SET a 1", "+OK\r\n").await;
    // An inline command is parsed only once, whatever its quotes contain.
    writer.send("GET a\r\nset a \"x \\\"y\\\"\"\r\nget a\r\n").await;
    writer.expect("$-1\r\n").await;
    ann.until_blocked(1).await;
    assert_eq!(ann.bulk("CLIENT LIST").await.lines().filter(|line| field(line, "flags") == "b").count(), 1);
    ann.ask("CLIENT UNPAUSE", "+OK\r\n").await;
    writer.expect("+OK\r\n$5\r\nx \"y\"\r\n").await;
    assert_eq!(ann.info("clients", "blocked_clients").await, "0");
    // `EXEC` of a transaction with a command that writes waits for the end of the pause.
    for client in [&mut writer, &mut reader] {
        client.ask("MULTI", "+OK\r\n").await;
    }
    writer.ask("SET a 2", "+QUEUED\r\n").await;
    reader.ask("GET a", "+QUEUED\r\n").await;
    ann.ask("CLIENT PAUSE 60000 WRITE", "+OK\r\n").await;
    reader.ask("EXEC", "*1\r\n$5\r\nx \"y\"\r\n").await;
    writer.send(request("EXEC")).await;
    ann.until_blocked(1).await;
    ann.ask("CLIENT UNPAUSE", "+OK\r\n").await;
    writer.expect("*1\r\n+OK\r\n").await;
    // A pause also ends by its timeout, and a blocked client can be killed.
    let id = reader.id().await;
    ann.ask("CLIENT PAUSE 60000 WRITE", "+OK\r\n").await;
    writer.send(request("PFCOUNT a")).await;
    ann.until_blocked(1).await;
    ann.ask(&format!("CLIENT KILL ID {id}"), ":1\r\n").await;
    assert_eq!(reader.end().await, "");
    ann.ask("CLIENT UNPAUSE", "+OK\r\n").await;
    writer.expect("-WRONGTYPE Key is not a valid HyperLogLog string value.\r\n").await;
    ann.ask("CLIENT PAUSE 300", "+OK\r\n").await;
    writer.ask("GET a", "$1\r\n2\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_are_left_out_where_a_client_wants_none() {
    let redis = Redis::start(Access::of_everybody()).await;
    let mut client = redis.connect().await;
    for command in ["CLIENT REPLY OFF", "PING", "NOPE", "SET a 1", "CLIENT REPLY SKIP"] {
        client.send(request(command)).await;
    }
    client.ask("CLIENT REPLY ON", "+OK\r\n").await;
    client.send([request("CLIENT REPLY SKIP"), request("PING")].concat()).await;
    client.ask("GET a", "$1\r\n1\r\n").await;
    client.send(request("CLIENT REPLY SKIP")).await;
    client.ask("CLIENT REPLY ON", "+OK\r\n").await;
    client.ask("PING", "+PONG\r\n").await;
    client.ask("CLIENT REPLY x", "-ERR syntax error\r\n").await;
    client.send(request("CLIENT REPLY OFF")).await;
    client.ask("RESET", "+RESET\r\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_counted_for_their_tenant() {
    let redis = Redis::start(of_two()).await;
    let (mut ann, mut bob) = (redis.connect().await, redis.connect().await);
    ann.ask("AUTH anns", "+OK\r\n").await;
    bob.ask("AUTH bobs", "+OK\r\n").await;
    ann.ask("GET none", "$-1\r\n").await;
    ann.ask("CONFIG RESETSTAT", "+OK\r\n").await;
    assert_eq!(ann.info("stats", "keyspace_misses").await, "0");
    ann.ask("SET a 1", "+OK\r\n").await;
    ann.ask("set a", "-ERR wrong number of arguments for 'set' command\r\n").await;
    ann.ask("HGET a b", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n").await;
    ann.ask("OBJECT REFCOUNT a", ":1\r\n").await;
    ann.ask("NOPE", "-ERR unknown command 'NOPE', with args beginning with: \r\n").await;
    ann.ask("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command\r\n").await;
    ann.ask("MULTI", "+OK\r\n").await;
    ann.ask("EXPIRE a 100", "+QUEUED\r\n").await;
    ann.ask("HGET a b", "+QUEUED\r\n").await;
    ann.ask("PING", "+QUEUED\r\n").await;
    ann.ask(
        "EXEC",
        "*3\r\n:1\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n+PONG\r\n",
    )
    .await;
    let stats = ann.bulk("INFO commandstats").await;
    let counts = |name: &str| {
        let line = stats.split("\r\n").find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(name));
        let numbers = line.and_then(|line| line.strip_prefix(":calls="))?.split(',');
        let value = |pair: &str| pair.rsplit('=').next().unwrap_or_default().to_string();
        let all: Vec<String> = numbers.map(value).collect();
        Some([all[0].clone(), all[3].clone(), all[4].clone()].map(|number| number.parse::<u32>().unwrap()))
    };
    // The counts of `set`: calls, rejected calls, failed calls.
    assert_eq!(counts("set"), Some([1, 1, 0]), "{stats}");
    assert_eq!(counts("hget"), Some([2, 0, 2]), "{stats}");
    assert_eq!(counts("object|refcount"), Some([1, 0, 0]), "{stats}");
    assert_eq!(counts("config|get"), Some([0, 1, 0]), "{stats}");
    for name in ["multi", "expire", "ping", "exec"] {
        assert_eq!(counts(name), Some([1, 0, 0]), "{name}: {stats}");
    }
    assert_eq!(counts("get"), None, "{stats}");
    let other = bob.bulk("INFO all").await;
    assert!(other.contains("cmdstat_auth:") && !other.contains("cmdstat_set:"), "{other}");
    for (section, wanted, others) in
        [("default", "used_cpu_user:", "rejected_calls="), ("CPU", "used_cpu_user:", "used_memory:")]
    {
        let told = ann.bulk(&format!("INFO {section}")).await;
        assert!(told.contains(wanted) && !told.contains(others), "{told}");
    }
    let before: u64 = ann.info("stats", "total_commands_processed").await.parse().unwrap();
    ann.ask("PING", "+PONG\r\n").await;
    assert_eq!(ann.info("stats", "total_commands_processed").await, (before + 2).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_change_settings_and_are_refused_where_memory_has_ended() {
    let redis = Redis::start(Access::of_everybody()).await;
    let (mut client, mut other) = (redis.connect().await, redis.connect().await);
    client.ask("SET x value", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET foo bar", "+QUEUED\r\n").await;
    client.ask("CONFIG SET maxmemory bla", "+QUEUED\r\n").await;
    client.ask("CONFIG SET maxmemory-policy allkeys-lru", "+QUEUED\r\n").await;
    client.ask("CONFIG RESETSTAT", "+QUEUED\r\n").await;
    client
        .ask(
            "EXEC",
            "*4\r\n+OK\r\n-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory \
             value\r\n+OK\r\n+OK\r\n",
        )
        .await;
    let policy = "*2\r\n$16\r\nmaxmemory-policy\r\n$11\r\nallkeys-lru\r\n";
    client.ask("CONFIG GET maxmemory-policy", policy).await;
    let twice = "CONFIG SET maxmemory 1mb maxmemory 2mb";
    let refused =
        "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter\r\n";
    client.ask(twice, refused).await;
    client.ask("CONFIG SET maxmemory-policy noeviction", "+OK\r\n").await;
    // When memory is full at `EXEC`, a transaction that only reads is executed; one with a command that needs memory is
    // not.
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("GET x", "+QUEUED\r\n").await;
    other.ask("CONFIG SET maxmemory 1", "+OK\r\n").await;
    client.ask("EXEC", "*1\r\n$5\r\nvalue\r\n").await;
    other.ask("CONFIG SET maxmemory 0", "+OK\r\n").await;
    let full = "OOM command not allowed when used memory > 'maxmemory'.\r\n";
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET x 1", "+QUEUED\r\n").await;
    other.ask("CONFIG SET maxmemory 1", "+OK\r\n").await;
    client.ask("EXEC", format!("-EXECABORT Transaction discarded because of: {full}")).await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET x 1", format!("-{full}")).await;
    client.ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("GET x", format!("-{full}")).await;
    client.ask("DISCARD", "+OK\r\n").await;
    client.ask("GET x", "$5\r\nvalue\r\n").await;
}
