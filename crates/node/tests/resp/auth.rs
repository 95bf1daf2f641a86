//! Tests of `AUTH` on connections that are authenticated already: what stays of the session (selected database, watched
//! keys, queued commands) with a token of the same tenant or of another one.

use super::*;
use farpool_node::access::TenantLimits;
use std::num::NonZero;

fn access() -> Access {
    Access::of_nobody()
        .with_token("anns", tenant("ann"), Right::Write)
        .with_token("anns-next", tenant("ann"), Right::Write)
        .with_token("anns-reader", tenant("ann"), Right::Read)
        .with_token("bobs", tenant("bob"), Right::Write)
}

async fn client_of(redis: &Redis, token: &str) -> Client {
    let mut client = redis.connect().await;
    client.ask(&format!("AUTH {token}"), "+OK\r\n").await;
    client
}

const UNKNOWN: &str = "-WRONGPASS the pool does not know this token\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_token_of_the_tenant_leaves_database_watch_and_transaction() {
    let redis = Redis::start(access()).await;
    let mut other = client_of(&redis, "anns").await;
    for (command, reply) in [
        ("AUTH anns", "+OK\r\n"),
        ("AUTH anns-next", "+OK\r\n"),
        ("AUTH somebody anns-next", "+OK\r\n"),
        ("AUTH wrong", UNKNOWN),
        ("AUTH a b c", "-ERR syntax error\r\n"),
        ("HELLO 2 AUTH x wrong", UNKNOWN),
    ] {
        let mut client = client_of(&redis, "anns").await;
        client.ask("SELECT 3", "+OK\r\n").await;
        client.ask("SET k 1", "+OK\r\n").await;
        client.ask("WATCH k", "+OK\r\n").await;
        client.ask(command, reply).await;
        client.ask("GET k", "$1\r\n1\r\n").await;
        other.ask("SELECT 3", "+OK\r\n").await;
        other.ask("SET k 2", "+OK\r\n").await;
        client.ask("MULTI", "+OK\r\n").await;
        client.ask("SET k 3", "+QUEUED\r\n").await;
        client.ask("EXEC", "*-1\r\n").await;
        // `AUTH` inside a transaction leaves the database, the watched keys and the transaction as they are, too.
        client.ask("MULTI", "+OK\r\n").await;
        client.ask("SET k 4", "+QUEUED\r\n").await;
        client.ask("AUTH anns-next", "+QUEUED\r\n").await;
        client.ask("AUTH wrong", "+QUEUED\r\n").await;
        client.ask("GET k", "+QUEUED\r\n").await;
        client.ask("EXEC", format!("*4\r\n+OK\r\n+OK\r\n{UNKNOWN}$1\r\n4\r\n")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_before_authentication_ends_no_later_transaction() {
    let redis = Redis::start(access()).await;
    let mut client = client_of(&redis, "anns").await;
    client.ask("RESET", "+RESET\r\n").await;
    client.ask("RESET", "+RESET\r\n").await;
    client.ask("GET k", "-NOAUTH Authentication required.\r\n").await;
    client.ask("AUTH anns", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET k 1", "+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n+OK\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_without_the_right_to_write_counts_at_once() {
    let redis = Redis::start(access()).await;
    let mut client = client_of(&redis, "anns").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET k 1", "+QUEUED\r\n").await;
    client.ask("AUTH anns-reader", "+QUEUED\r\n").await;
    client.ask("SET k 2", "+QUEUED\r\n").await;
    let refused = "-NOPERM this token may not write: use one with the role write\r\n";
    client.ask("EXEC", format!("*3\r\n+OK\r\n+OK\r\n{refused}")).await;
    client.ask("GET k", "$1\r\n1\r\n").await;
    client.ask("SET k 2", refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tenant_gets_nothing_of_what_the_one_before_has_begun() {
    let redis = Redis::start(access()).await;
    let mut client = client_of(&redis, "anns").await;
    let mut bob = client_of(&redis, "bobs").await;
    client.ask("SELECT 2", "+OK\r\n").await;
    client.ask("SET k anns", "+OK\r\n").await;
    client.ask("WATCH k", "+OK\r\n").await;
    client.ask("AUTH bobs", "+OK\r\n").await;
    client.ask("GET k", "$-1\r\n").await;
    // The number of the selected database belongs to the connection and stays.
    client.ask("SET k bobs", "+OK\r\n").await;
    bob.ask("GET k", "$-1\r\n").await;
    bob.ask("SELECT 2", "+OK\r\n").await;
    bob.ask("GET k", "$4\r\nbobs\r\n").await;
    // Changing the tenant has dropped the watches, so a transaction that relies on them must fail.
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET k 3", "+QUEUED\r\n").await;
    client.ask("EXEC", "*-1\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET k 4", "+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n+OK\r\n").await;
    // `AUTH` as another tenant is refused in a transaction, because all queued commands must use the keys of one
    // tenant.
    let refused = "-ERR this token is one of another tenant: AUTH with it before MULTI\r\n";
    for command in ["AUTH anns", "AUTH x anns", "HELLO 3 AUTH x anns", "HELLO 2 SETNAME n AUTH x anns"] {
        client.ask("MULTI", "+OK\r\n").await;
        client.ask(command, refused).await;
        client.ask("SET k anns", "+QUEUED\r\n").await;
        client.ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
        client.ask("GET k", "$1\r\n4\r\n").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lasts_for_as_long_as_its_latest_token() {
    let redis = Redis::start(access()).await;
    let mut client = client_of(&redis, "anns").await;
    client.ask("AUTH anns-next", "+OK\r\n").await;
    // The earlier token is revoked while the client is silent.
    redis.node.set_access(Access::of_nobody().with_token("anns-next", tenant("ann"), Right::Write));
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.ask("SET k 1", "+OK\r\n").await;
    redis.node.set_access(Access::of_nobody());
    assert!(client.end().await.starts_with("-NOAUTH "), "it is told");
}

/// A node without tokens gives the same replies to `AUTH` as a Redis without a password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_node_knows_the_default_user_only() {
    let redis = Redis::start(Access::of_everybody()).await;
    let mut client = redis.connect().await;
    client.ask("SELECT 1", "+OK\r\n").await;
    client.send(request("AUTH whatever")).await;
    client.expect("-ERR AUTH <password> called without any password configured").await;
    let mut client = redis.connect().await;
    client.ask("AUTH default x", "+OK\r\n").await;
    let refused = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.ask("AUTH user x", refused).await;
    client.ask("HELLO 3 AUTH user x", refused).await;
    client.ask("GET k", "$-1\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_too_many_is_told_as_redis_tells_it() {
    let most = |name: &str| {
        (tenant(name), TenantLimits { connections_max: NonZero::new(1), ..TenantLimits::default() })
    };
    let (name, limits) = most("default");
    let open = Redis::start(Access::of_everybody().with_limits(name, limits)).await;
    let mut first = open.connect().await;
    first.ask("PING", "+PONG\r\n").await;
    let second = open.connect().await;
    assert_eq!(second.end().await, "-ERR max number of clients reached\r\n");
    let (name, limits) = most("ann");
    let closed = Redis::start(access().with_limits(name, limits)).await;
    let mut first = client_of(&closed, "anns").await;
    let mut second = closed.connect().await;
    second.ask("AUTH anns", "-ERR max number of clients reached\r\n").await;
    // A node with the maximum number of clients still lets a connected client authenticate again.
    first.ask("AUTH anns-next", "+OK\r\n").await;
    first.ask("PING", "+PONG\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_shown_a_token() {
    let token = farpool_node::access::new_token([7; 32]);
    let access = access().with_token(&token, tenant("ann"), Right::Admin);
    let redis = Redis::start(access).await;
    let (mut client, mut reader) = (redis.connect().await, client_of(&redis, "anns-reader").await);
    let name_refused = "-ERR this name has a token in it, and others see names: choose another one\r\n";
    client.ask(&format!("AUTH {token}"), "+OK\r\n").await;
    client.ask("CONFIG SET slowlog-log-slower-than 0", "+OK\r\n").await;
    for secret in [&*token, "anns", &format!("x:{token}:y")] {
        for command in [
            "AUHT {}",
            "AUTH a b {}",
            "AUTH {} x y",
            "AUTHENTICATE x {}",
            "COMMAND GETKEYS AUTH {}",
            "COMMAND GETKEYS HELLO 3 AUTH u {}",
            "HELLO 3 AUTH {}",
            "HELLO 9 AUTH u {}",
            "CLIENT AUTH {}",
            "CLIENT KILL USER {}",
            "ECHO {}",
            "{}",
            "{} x",
            "GET {}",
            "SET k {}",
            "CONFIG SET requirepass {}",
            "CONFIG GET {}",
            "ACL SETUSER x >{}",
            "MULTI",
            "AUTH {}",
            "GET {}",
            "DISCARD",
            "CLIENT SETINFO LIB-NAME {}",
        ] {
            client.send(request(&command.replace("{}", secret))).await;
        }
        client.send(request("CLIENT SETNAME end")).await;
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"+OK\r\n") || !text(&bytes).contains("QUEUED") {
            let mut some = [0; 4096];
            let read = timeout(Duration::from_secs(20), client.0.read(&mut some)).await.unwrap().unwrap();
            assert!(read > 0, "{}", text(&bytes));
            bytes.extend_from_slice(&some[..read]);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(client.0.try_read(&mut [0; 1 << 16]));
    }
    client.ask("CONFIG SET slowlog-log-slower-than -1", "+OK\r\n").await;
    client.ask(&format!("CLIENT SETNAME {token}"), name_refused).await;
    client.ask("CLIENT SETNAME anns", name_refused).await;
    client.ask(&format!("HELLO 2 SETNAME a-{token}"), name_refused).await;
    for told in ["SLOWLOG GET -1", "CLIENT LIST", "INFO everything"] {
        reader.send(request(told)).await;
        reader.send(request("ECHO end-of-it")).await;
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"end-of-it\r\n") {
            let mut some = [0; 4096];
            let read = timeout(Duration::from_secs(20), reader.0.read(&mut some)).await.unwrap().unwrap();
            bytes.extend_from_slice(&some[..read]);
        }
        let told = text(&bytes);
        let has_name = told.contains("\r\nanns\r\n") || told.contains("anns ");
        assert!(!told.contains(&token[..24]) && !has_name, "{told}");
    }
}
