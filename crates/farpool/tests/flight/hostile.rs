//! Requests that no client should send, and those that exceed a limit.

use super::*;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, Ticket};
use farpool::model::limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread")]
async fn hostile_bytes_end_a_connection_and_nothing_else() {
    let server = open().await;
    let mut client = server.connect().await;
    for bytes in [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x00".to_vec(),
        vec![0; 1000],
        vec![22, 3, 1, 2, 0],
    ] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(&bytes).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // It may also be reset, since not all is read.
        drop(
            tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut answer))
                .await
                .expect("it ends"),
        );
    }
    let mut raw = FlightServiceClient::new(server.channel().await);
    for bytes in [Vec::new(), b"select 1".to_vec(), vec![255; 100], field(1, b"type.googleapis.com/x")] {
        assert!(raw.do_get(Ticket::new(bytes.clone())).await.is_err());
        assert!(raw.get_flight_info(FlightDescriptor::new_cmd(bytes.clone())).await.is_err());
        assert!(raw.get_schema(FlightDescriptor::new_path(vec!["items".into()])).await.is_err());
        let data = FlightData::new().with_descriptor(FlightDescriptor::new_cmd(bytes.clone()));
        let put = raw
            .do_put(futures::stream::iter([data.with_data_header(bytes.clone()), FlightData::new()]))
            .await;
        assert!(put.is_err());
        assert!(raw.do_put(futures::stream::iter([FlightData::new()])).await.is_err());
        assert!(raw.do_action(Action::new("SetSessionOptions", vec![10, 200])).await.is_err());
        assert!(raw.do_action(Action::new("CreatePreparedStatement", bytes)).await.is_err());
    }
    // A ticket that names a statement, but was not given by this server, is no more than that statement.
    let known = client.execute("select 1".into(), None).await.unwrap();
    let ticket = known.endpoint[0].ticket.clone().unwrap().ticket;
    for cut in 1..ticket.len() {
        drop(raw.do_get(Ticket::new(ticket.slice(..cut))).await);
    }
    assert_eq!(text(&mut client, "select 7").await, "7");
    server.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_or_too_many_is_refused() {
    let server = open().await;
    let mut client = server.connect().await;
    let long = format!("select '{}'", "x".repeat(limits::FLIGHT_MESSAGE_BYTES_MAX));
    let (code, _) = failure(client.execute(long, None).await.unwrap_err());
    assert!([Code::OutOfRange, Code::ResourceExhausted].contains(&code), "{code:?}");
    let mut kept = Vec::new();
    for n in 0..limits::FLIGHT_STATEMENTS_MAX {
        kept.push(client.prepare(format!("select {n}"), None).await.unwrap());
    }
    let error = client.prepare("select -1".into(), None).await.unwrap_err();
    let (code, message) = failure(error);
    assert!(code == Code::ResourceExhausted && message.contains("close those"), "{message}");
    kept.pop().unwrap().close().await.unwrap();
    client.prepare("select -1".into(), None).await.unwrap();
    assert_eq!(text(&mut client, "select 7").await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_ends_its_statements_and_connections() {
    let mut server = open().await;
    let mut client = server.connect().await;
    let info = client.execute(ENDLESS_ROWS.into(), None).await.unwrap();
    let mut rows = stream(&mut client, info).await.unwrap();
    rows.next().await.unwrap().unwrap();
    drop(server.stop.take());
    let reading = async { while let Some(Ok(_)) = rows.next().await {} };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the rows end");
    tokio::time::timeout(Duration::from_secs(30), &mut server.serving).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    drop(rows);
    server.at_rest().await;
}
