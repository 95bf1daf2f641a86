//! Tests of fairness between clients of the Redis protocol: tenants with heavy requests next to others, and clients
//! that send all their requests before they read a reply.

use super::*;

/// Returns packets of requests that take long, which one tenant sends to slow down the others.
fn heavy() -> Vec<Vec<u8>> {
    let class = format!("KEYS *[{}]", "b-z".repeat(20_000));
    let stars = format!("KEYS {}", "*k*e*y?".repeat(9) + "z");
    let many = |command: &str, word: &str| format!("{command}{}", format!(" {word}").repeat(100_000));
    let in_exec = |commands: Vec<u8>| [request("MULTI"), commands, request("EXEC")].concat();
    vec![
        request("BITCOUNT big").repeat(200),
        in_exec(request("BITCOUNT big").repeat(200)),
        in_exec(request("BITCOUNT big").repeat(100_000)),
        in_exec(request("GET key:1").repeat(100_000)),
        request(&class).repeat(20),
        request(&stars).repeat(20),
        request("COMMAND").repeat(50),
        request(&many("EXISTS", "key:1")).repeat(3),
        request(&many("PFCOUNT", "sketch")),
        request(&many("DEL", "none")).repeat(3),
        request(&format!("FP.CGET key:1 value~'{}'", "\\w{90}".repeat(4))).repeat(20),
        request("GET big").repeat(3),
        request("COPY big copy REPLACE").repeat(20),
        request("FP.SPACE CREATE key").repeat(1),
        request("FP.SPACE DROP key").repeat(1),
        request("CONFIG SET maxmemory 0").repeat(100),
        request("FLUSHALL"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_one_tenant_asks_for_others_are_answered_and_the_node_stops() {
    let redis = Redis::start(tokens(&[("as", "a"), ("bs", "b")])).await;
    let mut a = redis.connect().await;
    a.ask("AUTH as", "+OK\r\n").await;
    a.ask("SETRANGE big 20000000 x", ":20000001\r\n").await;
    a.ask("PFADD sketch 1 2 3", ":1\r\n").await;
    for start in (0..20_000).step_by(1000) {
        let pairs: Vec<String> = (start..start + 1000).map(|number| format!("key:{number} 1")).collect();
        a.ask(&format!("MSET {}", pairs.join(" ")), "+OK\r\n").await;
    }
    let mut readers = Vec::new();
    // More connections than serving threads.
    for packet in heavy() {
        let mut client = redis.connect().await;
        client.ask("AUTH as", "+OK\r\n").await;
        let (mut reading, mut writing) = client.0.into_split();
        tokio::spawn(async move {
            drop(writing.write_all(&packet).await);
            std::future::pending::<()>().await;
        });
        readers.push(tokio::spawn(async move {
            let mut replies = vec![0; 1 << 20];
            while reading.read(&mut replies).await.is_ok_and(|bytes| bytes > 0) {}
        }));
    }
    let mut others = Vec::new();
    for number in 0..4 {
        let mut client = redis.connect().await;
        client.ask("AUTH bs", "+OK\r\n").await;
        client.ask(&format!("SET mine {number}"), "+OK\r\n").await;
        others.push(client);
    }
    let native = redis.node.caller(Some("as")).unwrap();
    for _ in 0..50 {
        for client in &mut others {
            client.ask("GET mine", "$1\r\n3\r\n").await;
        }
        // Listing tables reads the counts of the busy tenant's keys, and does not wait for its long commands either.
        native.tables().unwrap();
    }
    let mut same = redis.connect().await;
    same.ask("AUTH as", "+OK\r\n").await;
    same.ask("PING", "+PONG\r\n").await;
    let Redis { stop, served, .. } = redis;
    drop(stop);
    timeout(Duration::from_secs(20), served).await.expect("it stops").unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_write_a_whole_pipeline_before_it_reads() {
    let redis = Redis::start(Access::of_everybody()).await;
    let mut client = redis.connect().await;
    let value = "v".repeat(1000);
    client.ask(&format!("SET a {value}"), "+OK\r\n").await;
    const GETS: usize = 50_000;
    let all = request("GET a").repeat(GETS);
    let sent = timeout(Duration::from_secs(20), client.0.write_all(&all)).await;
    sent.expect("what is sent is read").unwrap();
    let expected = format!("$1000\r\n{value}\r\n").repeat(100);
    for _ in 0..GETS / 100 {
        client.expect(&expected).await;
    }
    client.ask("QUIT", "+OK\r\n").await;
    assert_eq!(client.end().await, "");
    eventually("its memory is free", || redis.work_used() < 1 << 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_sends_more_than_is_kept_is_told_so_and_disconnected() {
    let redis = Redis::start(Access::of_everybody()).await;
    let mut client = redis.connect().await;
    client.ask(&format!("SET a {}", "v".repeat(100_000)), "+OK\r\n").await;
    let (mut reading, mut writing) = client.0.into_split();
    // Sends 600 MiB altogether, more than the 256 MiB of memory outside the pool that the node has for requests and
    // replies.
    let all = request(&format!("ECHO {}", "x".repeat(1 << 20)));
    let gets = request("GET a").repeat(1000);
    let sending = async {
        writing.write_all(&gets).await?;
        for _ in 0..600 {
            writing.write_all(&all).await?;
        }
        Ok::<_, std::io::Error>(())
    };
    // Further bytes are read and dropped for a while, so that the client can read its replies.
    drop(timeout(Duration::from_secs(20), sending).await.expect("it is not kept waiting"));
    let mut rest = Vec::new();
    let ended = timeout(Duration::from_secs(20), reading.read_to_end(&mut rest)).await;
    drop(ended.expect("the connection ends"));
    eventually("its memory is free", || redis.work_used() < 1 << 20).await;
    // Other clients are still served.
    redis.connect().await.ask("PING", "+PONG\r\n").await;
}
