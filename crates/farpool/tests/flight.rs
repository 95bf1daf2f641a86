//! Arrow Flight SQL, as an independent client speaks it (`arrow-flight`'s own), and as bytes that no client sends.

mod changes;
mod hostile;
mod secure;

use crate::support::gateway::{Here, load_items};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::util::pretty::pretty_format_batches;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, SqlInfo,
};
use arrow_flight::{Action, CancelFlightInfoRequest, FlightClient, FlightInfo};
use farpool::gateway::{Gateway, flight};
use farpool::node::{Access, Node, NodeConfig};
use farpool::{EmbeddedPool, Pool, Session, SessionOptions, TenantName, WorkMemory};
use futures::{StreamExt, TryStreamExt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

type Client = FlightSqlServiceClient<Channel>;

/// A gateway over a node in this process.
struct Server {
    address: SocketAddr,
    pool: Arc<EmbeddedPool>,
    gateway: Arc<Gateway>,
    work: Arc<WorkMemory>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<farpool::Result<()>>,
}

async fn serve(access: Access) -> Server {
    let node = Node::start(NodeConfig { memory_bytes: 256 << 20, access, ..NodeConfig::default() }).unwrap();
    let pool = EmbeddedPool::over(Arc::clone(&node), TenantName::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let work = WorkMemory::new(256 << 20);
    let options = SessionOptions { work: Some(Arc::clone(&work)), ..SessionOptions::default() };
    let gateway = Gateway::new(Arc::new(Here(node)), options);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(flight::serve(Arc::clone(&gateway), listener, async move {
        drop(stopped.await);
    }));
    Server { address, pool, gateway, work, stop: Some(stop), serving }
}

async fn open() -> Server {
    let server = serve(Access::of_everybody()).await;
    load_items(&server.pool).await;
    server
}

impl Server {
    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    async fn connect(&self) -> Client {
        Client::new(self.channel().await)
    }

    async fn connect_with(&self, token: &str) -> Client {
        let mut client = self.connect().await;
        client.set_token(token.to_string());
        client
    }

    /// Waits until no statement runs any more: neither at the node nor in the gateway.
    async fn at_rest(&self) {
        let soon = async {
            while !self.pool.queries().await.unwrap().is_empty() || self.work.usage().bytes_used > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), soon).await.expect("nothing runs soon");
    }
}

/// Returns the code and the text of a failure.
fn failure(error: FlightError) -> (Code, String) {
    match error {
        FlightError::Tonic(status) => (status.code(), status.message().to_string()),
        other => panic!("not a status: {other}"),
    }
}

async fn stream(client: &mut Client, info: FlightInfo) -> Result<FlightRecordBatchStream, FlightError> {
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    client.do_get(ticket).await
}

/// Reads all rows, which must have the columns that were announced.
async fn rows_of(client: &mut Client, info: FlightInfo) -> Result<RecordBatch, FlightError> {
    let announced = Arc::new(info.clone().try_decode_schema().unwrap());
    let mut rows = stream(client, info).await?;
    let batches: Vec<RecordBatch> = rows.by_ref().try_collect().await?;
    assert_eq!(rows.schema(), Some(&announced));
    Ok(concat_batches(&announced, &batches).unwrap())
}

async fn query(client: &mut Client, text: &str) -> Result<RecordBatch, FlightError> {
    let info = client.execute(text.to_string(), None).await?;
    rows_of(client, info).await
}

async fn text(client: &mut Client, sql: &str) -> String {
    let rows = query(client, sql).await.unwrap();
    arrow::util::display::array_value_to_string(rows.column(0), 0).unwrap()
}

async fn update(client: &mut Client, sql: &str) -> i64 {
    client.execute_update(sql.to_string(), None).await.unwrap()
}

fn shown(batch: &RecordBatch) -> String {
    pretty_format_batches(std::slice::from_ref(batch)).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_return_what_the_engine_itself_does() {
    let server = open().await;
    let mut client = server.connect().await;
    let session = Session::new(SessionOptions::default());
    session.register_pool("pool", Arc::clone(&server.pool) as Arc<dyn Pool>).await.unwrap();
    for sql in [
        "select * from items order by id",
        "select part, count(*), sum(price), max(day) from items group by part order by part nulls first",
        "select name, upper(name) as u, length(name) from items where id % 1000 = 7 order by name",
        "select a.id, b.name from items a join items b on a.id = b.id + 1 where a.id < 50 order by 1",
        "select true as b, null as n, 1::tinyint as t, 2::smallint as s, 3::int as i, 4::bigint as l",
        "select 1::utinyint as a, 2::usmallint as b, 3::uinteger as c, 4::ubigint as d, 1.5::float as e",
        "select date '2024-02-29' as d, '12:34:56.789'::time as t, timestamp '2024-02-29 01:02:03.456' as ts",
        "select timestamp '2024-02-29 01:02:03' at time zone 'UTC' as tz, interval '1 month 2 days' as i",
        "select make_array(1, 2, 3) as l, named_struct('a', 1, 'b', 'x') as s, x'00ff' as bytes",
        "select arrow_cast('x', 'Dictionary(Int32, Utf8)') as d, ['a', 'b'] as texts",
        "select id from items where false",
        "explain select count(*) from items",
    ] {
        let rows = query(&mut client, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let own = session.sql(sql).await.unwrap();
        let schema = Arc::clone(own.schema());
        let own = concat_batches(&schema, &own.collect().await.unwrap()).unwrap();
        // A plan names the partitions of the machine, and those of two sessions are told apart.
        if !sql.starts_with("explain") {
            assert_eq!(shown(&rows), shown(&own), "{sql}");
        }
        let plain = |field: &Arc<Field>| {
            let text = format!("{:?}", field.data_type());
            !text.contains("View") && !text.contains("Dictionary")
        };
        assert!(rows.schema().fields().iter().all(plain), "{sql}");
        assert_eq!(rows.num_columns(), own.num_columns());
    }
    // Rows come in messages that every client accepts.
    let info = client
        .execute("select a.name, b.x from items a, items b where b.id < 20".into(), None)
        .await
        .unwrap();
    let batches: Vec<RecordBatch> = stream(&mut client, info).await.unwrap().try_collect().await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 400_000);
    server.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_have_parameters_and_are_closed() {
    let server = open().await;
    let mut client = server.connect().await;
    let sql = "select id, name, price from items where id = $1 and name = $2";
    let mut statement = client.prepare(sql.into(), None).await.unwrap();
    let types = |schema: &Schema| -> Vec<DataType> {
        schema.fields().iter().map(|field| field.data_type().clone()).collect()
    };
    assert_eq!(types(statement.parameter_schema().unwrap()), [DataType::Int64, DataType::Utf8]);
    let expected = [DataType::Int64, DataType::Utf8, DataType::Decimal128(12, 2)];
    assert_eq!(types(statement.dataset_schema().unwrap()), expected);
    for id in [3_i64, 19_999] {
        let values = RecordBatch::try_from_iter([
            ("$1", Arc::new(Int64Array::from(vec![id])) as ArrayRef),
            ("$2", Arc::new(StringArray::from(vec![format!("name {id}")])) as ArrayRef),
        ]);
        statement.set_parameters(values.unwrap()).unwrap();
        let info = statement.execute().await.unwrap();
        let rows = rows_of(&mut client, info).await.unwrap();
        assert_eq!(rows.column(0).as_primitive::<Int64Type>(), &Int64Array::from(vec![id]));
    }
    // Without values, with too few, and with a row too many.
    let one = RecordBatch::try_from_iter([("$1", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    statement.set_parameters(one).unwrap();
    assert_eq!(failure(statement.execute().await.unwrap_err()).0, Code::InvalidArgument);
    let two =
        RecordBatch::try_from_iter([("$1", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef)]).unwrap();
    statement.set_parameters(two).unwrap();
    assert!(statement.execute().await.is_err());
    // A ticket is for the values that it was made for.
    let mut sum = client.prepare("select sum(id) from items where id < ?".into(), None).await.unwrap();
    let value = |n: i64| {
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![n])) as ArrayRef)]).unwrap()
    };
    sum.set_parameters(value(10)).unwrap();
    let first = sum.execute().await.unwrap();
    sum.set_parameters(value(3)).unwrap();
    let second = sum.execute().await.unwrap();
    assert_eq!(failure(rows_of(&mut client, first).await.unwrap_err()).0, Code::Aborted);
    assert_eq!(shown(&rows_of(&mut client, second.clone()).await.unwrap()).matches("| 3").count(), 1);
    sum.close().await.unwrap();
    assert_eq!(failure(rows_of(&mut client, second).await.unwrap_err()).0, Code::NotFound);
    // What the statement's columns are may change before its rows are asked for.
    update(&mut client, "create table t (a int)").await;
    let info = client.execute("select * from t".into(), None).await.unwrap();
    update(&mut client, "drop table t").await;
    update(&mut client, "create table t (a text)").await;
    assert_eq!(failure(rows_of(&mut client, info).await.unwrap_err()).0, Code::Aborted);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_is_told_to_drivers() {
    let server = open().await;
    let mut client = server.connect().await;
    update(&mut client, "create schema s").await;
    update(&mut client, "create table s.other (k int, v decimal(9, 2))").await;
    update(&mut client, "create view v as select id, name from items").await;
    let info = client.get_catalogs().await.unwrap();
    assert!(shown(&rows_of(&mut client, info).await.unwrap()).contains("| farpool "));
    let info = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
    assert_eq!(rows_of(&mut client, info).await.unwrap().num_rows(), 2);
    let info = client.get_table_types().await.unwrap();
    assert_eq!(rows_of(&mut client, info).await.unwrap().num_rows(), 2);
    let asked = CommandGetTables { include_schema: true, ..CommandGetTables::default() };
    let info = client.get_tables(asked).await.unwrap();
    let tables = rows_of(&mut client, info).await.unwrap();
    let names = tables.column_by_name("table_name").unwrap();
    assert_eq!(names.as_string::<i32>(), &StringArray::from(vec!["items", "v", "other"]));
    let kinds = tables.column_by_name("table_type").unwrap();
    assert_eq!(kinds.as_string::<i32>(), &StringArray::from(vec!["TABLE", "VIEW", "TABLE"]));
    let schemas = tables.column_by_name("table_schema").unwrap();
    let schemas = schemas.as_binary::<i32>();
    let columns = |row: usize| {
        let bytes = arrow_flight::IpcMessage(schemas.value(row).to_vec().into());
        Schema::try_from(bytes).unwrap()
    };
    assert_eq!(columns(0).fields().len(), 6);
    assert_eq!(columns(1).field(1).data_type(), &DataType::Utf8);
    assert_eq!(columns(2).field(1).metadata()["ARROW:FLIGHT:SQL:SCALE"], "2");
    let asked = CommandGetTables {
        db_schema_filter_pattern: Some("publi_".into()),
        table_types: vec!["TABLE".into()],
        ..CommandGetTables::default()
    };
    let info = client.get_tables(asked).await.unwrap();
    assert_eq!(rows_of(&mut client, info).await.unwrap().num_rows(), 1);
    let asked = CommandGetPrimaryKeys { table: "items".into(), ..CommandGetPrimaryKeys::default() };
    let info = client.get_primary_keys(asked).await.unwrap();
    assert_eq!(rows_of(&mut client, info).await.unwrap().num_rows(), 0);
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: Some(-5) }).await.unwrap();
    assert_eq!(rows_of(&mut client, info).await.unwrap().num_rows(), 2);
    let asked = vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerTransaction];
    let info = client.get_sql_info(asked).await.unwrap();
    let facts = shown(&rows_of(&mut client, info).await.unwrap());
    assert!(facts.contains("{string_value=farpool}") && facts.contains("{int32_bitmask=0}"), "{facts}");
    let info = client.get_sql_info(Vec::new()).await.unwrap();
    assert!(rows_of(&mut client, info).await.unwrap().num_rows() > 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_have_codes_and_say_what_to_do() {
    let server = open().await;
    let mut client = server.connect().await;
    for (sql, expected, part) in [
        ("select * from nothing", Code::NotFound, "nothing"),
        ("select nme from items", Code::NotFound, "name"),
        ("selec 1", Code::InvalidArgument, "selec"),
        ("", Code::InvalidArgument, "no statement"),
        ("select 1; select 2", Code::InvalidArgument, "one after the other"),
        ("begin", Code::Unimplemented, "transaction"),
        ("set timezone = 'UTC'", Code::Unimplemented, "SetSessionOptions"),
        ("copy items to stdout", Code::Unimplemented, "ingestion"),
        ("create function f() returns int as 'x'", Code::Unimplemented, "not done"),
        ("select * into t from items", Code::InvalidArgument, "CREATE TABLE"),
    ] {
        let error = client.execute(sql.to_string(), None).await.unwrap_err();
        let (code, message) = failure(error);
        assert!(code == expected && message.contains(part), "{sql}: {code:?} {message}");
    }
    // A failure between rows ends the stream with its status.
    let info = client.execute("select 1 / (id - 15000) from items order by id".into(), None).await.unwrap();
    let outcome: Result<Vec<_>, _> = stream(&mut client, info).await.unwrap().try_collect().await;
    assert_eq!(failure(outcome.unwrap_err()).0, Code::InvalidArgument);
    // Files of the gateway's machine are not read or written.
    for forbidden in ["select * from '/etc/passwd'", "copy (select 1) to '/tmp/farpool-flight-test.csv'"] {
        let refused = match client.execute(forbidden.to_string(), None).await {
            Ok(info) => rows_of(&mut client, info).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{forbidden}");
    }
    assert!(!std::path::Path::new("/tmp/farpool-flight-test.csv").exists());
    let error = client.begin_transaction().await.unwrap_err();
    assert_eq!(failure(error).0, Code::Unimplemented);
    let error = client.execute("select 1".into(), Some(b"tx".to_vec().into())).await.unwrap_err();
    assert_eq!(failure(error).0, Code::Unimplemented);
    assert_eq!(text(&mut client, "select 7").await, "7");
}

/// A statement that does not end by itself, and whose rows come all along.
const ENDLESS_ROWS: &str = "select a.id + b.id as n from items a cross join items b cross join items c";

/// A statement that does not end by itself, and has no rows before its end.
const ENDLESS: &str =
    "select count(*) from items a cross join items b cross join items c where a.id + b.id + c.id = -1";

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_while_they_are_computed_and_a_dropped_stream_ends_its_statement() {
    let server = open().await;
    let mut client = server.connect().await;
    let info = client.execute(ENDLESS_ROWS.into(), None).await.unwrap();
    let mut rows = stream(&mut client, info).await.unwrap();
    assert!(rows.next().await.unwrap().unwrap().num_rows() > 0);
    drop(rows);
    server.at_rest().await;
    // A client that goes before there is a row.
    let info = client.execute(ENDLESS.into(), None).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(300), stream(&mut client, info.clone()));
    drop(waiting.await);
    drop(client);
    server.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_cancelled_by_their_client_or_their_time() {
    let server = open().await;
    let mut client = server.connect().await;
    let info = client.execute(ENDLESS.into(), None).await.unwrap();
    let mut other = FlightClient::new(server.channel().await);
    let request = CancelFlightInfoRequest::new(info.clone());
    let cancel = async {
        // It may not have begun yet.
        while other.cancel_flight_info(request.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let soon = Duration::from_secs(30);
    let run = async {
        let mut rows = stream(&mut client, info).await?;
        rows.try_next().await
    };
    let (outcome, ()) = tokio::join!(tokio::time::timeout(soon, run), cancel);
    assert_eq!(failure(outcome.expect("it is cancelled soon").unwrap_err()).0, Code::Cancelled);
    // A time limit of the session.
    let mut limited = session(&server, &[("statement_timeout", "300ms")]).await;
    let info = limited.execute(ENDLESS.into(), None).await.unwrap();
    let run = async {
        let mut rows = stream(&mut limited, info).await?;
        rows.try_next().await
    };
    let outcome = tokio::time::timeout(soon, run).await.expect("it ends soon");
    assert_eq!(failure(outcome.unwrap_err()).0, Code::DeadlineExceeded);
    server.at_rest().await;
}

/// Returns a client of a session with these options.
async fn session(server: &Server, options: &[(&str, &str)]) -> Client {
    let mut client = server.connect().await;
    let cookie = set_options(&server.channel().await, None, options).await.1.expect("a session begins");
    client.set_header("cookie", cookie);
    client
}

/// Encodes a field of a protobuf message that is a text or another message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut length = bytes.len();
    let mut encoded = vec![number << 3 | 2];
    while length >= 128 {
        encoded.push(length as u8 | 128);
        length >>= 7;
    }
    encoded.push(length as u8);
    [encoded.as_slice(), bytes].concat()
}

/// Sets options of a session; returns the answer and the cookie.
async fn set_options(
    channel: &Channel,
    cookie: Option<&str>,
    options: &[(&str, &str)],
) -> (Vec<u8>, Option<String>) {
    let body: Vec<u8> = options
        .iter()
        .flat_map(|(name, value)| {
            let value = field(1, value.as_bytes());
            field(1, &[field(1, name.as_bytes()), field(2, &value)].concat())
        })
        .collect();
    let (answer, cookie) = act(channel, cookie, "SetSessionOptions", body).await.unwrap();
    (answer, cookie)
}

/// Carries out an action; returns its answer, and the cookie that came with it.
async fn act(
    channel: &Channel,
    cookie: Option<&str>,
    action: &str,
    body: Vec<u8>,
) -> Result<(Vec<u8>, Option<String>), Status> {
    let mut client = arrow_flight::flight_service_client::FlightServiceClient::new(channel.clone());
    let mut request = tonic::Request::new(Action::new(action, body));
    if let Some(cookie) = cookie {
        request.metadata_mut().insert("cookie", cookie.parse().unwrap());
    }
    let response = client.do_action(request).await?;
    let cookie = response.metadata().get("set-cookie").map(|cookie| cookie.to_str().unwrap().to_string());
    let cookie = cookie.map(|cookie| cookie.split(';').next().unwrap().to_string());
    let answers: Vec<_> = response.into_inner().try_collect().await?;
    Ok((answers.first().map(|answer| answer.body.to_vec()).unwrap_or_default(), cookie))
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_have_options() {
    let server = open().await;
    let mut plain = server.connect().await;
    update(&mut plain, "create schema s").await;
    update(&mut plain, "create table s.t (a int)").await;
    let channel = server.channel().await;
    let (answer, cookie) = set_options(&channel, None, &[("schema", "s"), ("nothing", "1")]).await;
    // The one that is not known, and that its name is wrong.
    assert_eq!(answer, field(1, &[field(1, b"nothing"), field(2, &[8, 1])].concat()));
    let cookie = cookie.unwrap();
    let mut client = server.connect().await;
    client.set_header("cookie", cookie.clone());
    assert_eq!(text(&mut client, "select count(*) from t").await, "0");
    assert_eq!(failure(plain.execute("select * from t".into(), None).await.unwrap_err()).0, Code::NotFound);
    // A ticket names the schema, so that others can read it.
    let info = client.execute("select count(*) from t".into(), None).await.unwrap();
    assert_eq!(rows_of(&mut plain, info).await.unwrap().num_rows(), 1);
    let (answer, _) = act(&channel, Some(&cookie), "GetSessionOptions", Vec::new()).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("schema"));
    let (answer, _) = act(&channel, Some(&cookie), "CloseSession", Vec::new()).await.unwrap();
    assert_eq!(answer, [8, 1]);
    // Without its options, a statement of the session could mean another table.
    assert_eq!(failure(client.execute("select 1".into(), None).await.unwrap_err()).0, Code::NotFound);
    let (answer, _) = act(&channel, None, "CloseSession", Vec::new()).await.unwrap();
    assert_eq!(answer, [8, 3]);
}
