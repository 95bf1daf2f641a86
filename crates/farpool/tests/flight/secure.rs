//! Tokens, what users may not see of each other, and encryption.

use super::*;
use farpool::node::{Right, ServerTls};
use farpool_wire::{ClientTls, Socket, Tls};
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn token(digit: &str) -> String {
    format!("fp_{}", digit.repeat(64))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_the_bearer_s_or_the_password_and_its_right_counts() {
    let access = Access::of_nobody().with_token(&token("1"), TenantName::default(), Right::Read);
    let server = serve(access).await;
    load_items(&server.pool).await;
    for refused in [None, Some(token("2")), Some(String::new())] {
        let mut client = server.connect().await;
        if let Some(token) = refused {
            client.set_token(token);
        }
        let error = client.execute("select 1".into(), None).await.unwrap_err();
        assert_eq!(failure(error).0, Code::Unauthenticated);
        let error = client.prepare("select 1".into(), None).await.err().unwrap();
        assert_eq!(failure(error).0, Code::Unauthenticated);
    }
    let mut client = server.connect_with(&token("1")).await;
    assert_eq!(text(&mut client, "select count(*) from items").await, "20000");
    let (code, _) = failure(client.execute_update("create table t (a int)".into(), None).await.unwrap_err());
    assert_eq!(code, Code::PermissionDenied);
    // A password, for which the token comes back.
    let mut client = server.connect().await;
    assert!(client.handshake("ann", &token("2")).await.is_err());
    client.handshake("ann", &token("1")).await.unwrap();
    assert_eq!(client.token(), Some(&token("1")));
    assert_eq!(text(&mut client, "select count(*) from items").await, "20000");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_do_not_reach_what_belongs_to_others() {
    let other = TenantName::new("other").unwrap();
    let access = Access::of_nobody().with_token(&token("1"), TenantName::default(), Right::Write).with_token(
        &token("2"),
        other,
        Right::Write,
    );
    let server = serve(access).await;
    load_items(&server.pool).await;
    let (mut mine, mut theirs) =
        (server.connect_with(&token("1")).await, server.connect_with(&token("2")).await);
    let info = mine.execute("select * from items".into(), None).await.unwrap();
    // The ticket is a statement, which runs with the rights of whoever presents it.
    assert_eq!(failure(rows_of(&mut theirs, info.clone()).await.unwrap_err()).0, Code::NotFound);
    let mut statement = mine.prepare("select count(*) from items".into(), None).await.unwrap();
    let prepared = statement.execute().await.unwrap();
    assert_eq!(failure(rows_of(&mut theirs, prepared.clone()).await.unwrap_err()).0, Code::NotFound);
    assert_eq!(rows_of(&mut mine, prepared).await.unwrap().num_rows(), 1);
    assert_eq!(rows_of(&mut mine, info).await.unwrap().num_rows(), 20_000);
    // Nor do they stop it.
    let running = mine.execute(ENDLESS_ROWS.into(), None).await.unwrap();
    let mut rows = stream(&mut mine, running.clone()).await.unwrap();
    rows.next().await.unwrap().unwrap();
    let mut client = FlightClient::new(server.channel().await);
    client.add_header("authorization", &format!("Bearer {}", token("2"))).unwrap();
    let error = client.cancel_flight_info(CancelFlightInfoRequest::new(running)).await.unwrap_err();
    assert_eq!(failure(error).0, Code::NotFound);
    rows.next().await.unwrap().unwrap();
}

/// Copies bytes between a plain connection and an encrypted one.
async fn relay(mut plain: TcpStream, tls: Tls) {
    let tls: Arc<dyn Socket> = Arc::new(tls);
    let (mut from, mut to) = plain.split();
    let up = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if tls.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut buffer = bytes::BytesMut::new();
        while let Ok(1..) = tls.read(&mut buffer).await {
            if to.write_all(&buffer).await.is_err() {
                return;
            }
            buffer.clear();
        }
    };
    tokio::join!(up, down);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_encrypted_with_the_gateway_s_certificate() {
    let server = open().await;
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(["127.0.0.1".to_string()]).unwrap().self_signed(&key).unwrap().pem();
    let chain = ServerTls::chain(certificate.as_bytes()).unwrap();
    server
        .gateway
        .set_tls(ServerTls::new(chain, ServerTls::key(key.serialize_pem().as_bytes()).unwrap()).unwrap());
    let trust = ClientTls::trusting(certificate.as_bytes()).unwrap();
    let connect = async |tls: &ClientTls| {
        let socket: Arc<dyn Socket> = Arc::new(TcpStream::connect(server.address).await.unwrap());
        Tls::connect(socket, "127.0.0.1", tls).await
    };
    // A client in the clear, and one that speaks another protocol.
    let plain = Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect().await;
    let refused = match plain {
        Ok(channel) => Client::new(channel).execute("select 1".into(), None).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
    assert!(connect(&trust).await.is_err());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = connect(&trust.of_protocol(b"h2")).await.unwrap();
    tokio::spawn(async move { relay(listener.accept().await.unwrap().0, tls).await });
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = Client::new(channel);
    let rows =
        query(&mut client, "select a.* from items a, items b where b.id < 10 order by a.id").await.unwrap();
    assert_eq!(rows.num_rows(), 200_000);
}
