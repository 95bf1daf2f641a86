//! PostgreSQL's protocol, as an independent client speaks it (`tokio-postgres`), and as bytes that no client sends.

mod hostile;
mod lost_node;
mod transactions;

use crate::support::gateway::{Here, load_items};
use farpool::gateway::{Door, Gateway, postgres};
use farpool::node::access::TokenDigest;
use farpool::node::access::scram::Verifier;
use farpool::node::{Access, Node, NodeConfig, Right};
use farpool::{EmbeddedPool, SessionOptions, TenantName, WorkMemory};
use futures::TryStreamExt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// A gateway over a node in this process.
struct Server {
    address: SocketAddr,
    pool: Arc<EmbeddedPool>,
}

async fn serve(access: Access) -> Server {
    let node = Node::start(NodeConfig { memory_bytes: 256 << 20, access, ..NodeConfig::default() }).unwrap();
    node.allow_tickets([5; 32]);
    let pool = EmbeddedPool::over(Arc::clone(&node), TenantName::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = SessionOptions { work: Some(WorkMemory::new(256 << 20)), ..SessionOptions::default() };
    let gateway = Gateway::new(Arc::new(Here(node)), options);
    tokio::spawn(postgres::serve(gateway, listener, std::future::pending()));
    Server { address, pool }
}

async fn open() -> Server {
    let server = serve(Access::of_everybody()).await;
    load_items(&server.pool).await;
    server
}

impl Server {
    async fn connect(&self) -> Client {
        self.connect_as("host=127.0.0.1 user=ann dbname=farpool").await.unwrap()
    }

    async fn connect_as(&self, settings: &str) -> std::result::Result<Client, tokio_postgres::Error> {
        let settings = format!("{settings} port={}", self.address.port());
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }
}

/// Returns the rows of a simple query as texts.
async fn texts(client: &Client, text: &str) -> Vec<Vec<Option<String>>> {
    let messages = client.simple_query(text).await.unwrap();
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|place| row.get(place).map(str::to_string)).collect())
        }
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}

async fn text(client: &Client, query: &str) -> String {
    texts(client, query).await.remove(0).remove(0).unwrap_or_else(|| "NULL".into())
}

fn code(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("", SqlState::code)
}

#[tokio::test(flavor = "multi_thread")]
async fn simple_queries_return_texts_and_tags() {
    let server = open().await;
    let client = server.connect().await;
    let rows = texts(&client, "select part, count(*), sum(price), max(day) from items group by part order by part nulls first limit 2").await;
    let shown: Vec<Vec<&str>> =
        rows.iter().map(|row| row.iter().map(|v| v.as_deref().unwrap_or("NULL")).collect()).collect();
    assert_eq!(
        shown,
        [["NULL", "2858", "7144642.75", "1972-09-26"], ["1", "2857", "7140357.25", "1972-09-26"]]
    );
    let messages = client.simple_query("create table t (a int, b text); insert into t values (1, 'x'), (2, null); update t set a = 5 where b is null; select * from t order by a; delete from t; drop table t").await.unwrap();
    let tags: Vec<u64> = messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
            _ => None,
        })
        .collect();
    assert_eq!(tags, [0, 2, 1, 2, 2, 0]);
    assert_eq!(text(&client, "select 1.5::double precision / 3").await, "0.5");
    assert_eq!(text(&client, "select 'a' || 'b'").await, "ab");
    // Two statements, of which the first fails: the second does not run, and the session goes on.
    let error = client.simple_query("select 1 / 0; create table never (a int)").await.unwrap_err();
    assert_eq!(code(&error), "22012");
    assert_eq!(code(&client.simple_query("select * from never").await.unwrap_err()), "42P01");
    assert_eq!(text(&client, "select 7").await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_have_types_and_values_in_binary() {
    let server = open().await;
    let client = server.connect().await;
    let statement = client
        .prepare("select id, price, name, day, x, part is null from items where id = $1 and name = $2")
        .await
        .unwrap();
    assert_eq!(statement.params(), [Type::INT8, Type::TEXT]);
    let types: Vec<Type> = statement.columns().iter().map(|column| column.type_().clone()).collect();
    assert_eq!(types, [Type::INT8, Type::NUMERIC, Type::TEXT, Type::DATE, Type::FLOAT8, Type::BOOL]);
    for id in [3_i64, 14, 19_999] {
        let row = client.query_one(&statement, &[&id, &format!("name {id}")]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, f64>(4)), (id, id as f64 / 4.0));
        assert_eq!((row.get::<_, &str>(2), row.get::<_, bool>(5)), (&*format!("name {id}"), id % 7 == 0));
    }
    assert!(client.query_opt(&statement, &[&3_i64, &"other"]).await.unwrap().is_none());
    // NULL, types that the client names, and a statement without a table.
    let typed = client.prepare_typed("select $1, $2", &[Type::INT4, Type::TEXT]).await.unwrap();
    let row = client.query_one(&typed, &[&Some(5_i32), &None::<&str>]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, Option<&str>>(1)), (5, None));
    let count = client.execute("create table t (a bigint, b text)", &[]).await.unwrap();
    assert_eq!(count, 0);
    let insert = client.prepare("insert into t values ($1, $2)").await.unwrap();
    assert_eq!(insert.params(), [Type::INT8, Type::TEXT]);
    for n in 0..3_i64 {
        assert_eq!(client.execute(&insert, &[&n, &format!("b{n}")]).await.unwrap(), 1);
    }
    let sum: i64 =
        client.query_one("select sum(a)::bigint from t where b like $1", &[&"b%"]).await.unwrap().get(0);
    assert_eq!(sum, 3);
    let rows = client.query("select array[1, 2, null]::bigint[]", &[]).await.unwrap();
    assert_eq!(rows[0].get::<_, Vec<Option<i64>>>(0), [Some(1), Some(2), None]);
    let error =
        client.query("select * from items where id = $1 and nothing = 1", &[&1_i64]).await.unwrap_err();
    assert_eq!(code(&error), "42703");
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_and_cursors_return_rows_in_parts() {
    let server = open().await;
    let mut client = server.connect().await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("select id from items order by id", &[]).await.unwrap();
    let mut next = 0;
    for _ in 0..5 {
        let rows = transaction.query_portal(&portal, 1000).await.unwrap();
        assert_eq!(rows.len(), 1000);
        for row in rows {
            assert_eq!(row.get::<_, i64>(0), next);
            next += 1;
        }
    }
    let rest: Vec<_> = transaction.query_portal_raw(&portal, 0).await.unwrap().try_collect().await.unwrap();
    assert_eq!(rest.len(), 15_000);
    transaction.rollback().await.unwrap();

    client
        .batch_execute("begin; declare c cursor for select id from items where id < 10 order by id")
        .await
        .unwrap();
    assert_eq!(texts(&client, "fetch 3 from c").await.len(), 3);
    client.batch_execute("move 2 from c").await.unwrap();
    assert_eq!(text(&client, "fetch c").await, "5");
    assert_eq!(texts(&client, "fetch all from c").await.len(), 4);
    assert_eq!(texts(&client, "fetch 1 from c").await.len(), 0);
    client.batch_execute("close c; commit").await.unwrap();
    assert_eq!(code(&client.batch_execute("fetch c").await.unwrap_err()), "34000");
    assert_eq!(code(&client.batch_execute("declare c cursor for select 1").await.unwrap_err()), "25P01");
    client.batch_execute("declare h cursor with hold for select 1 as one").await.unwrap();
    assert_eq!(text(&client, "fetch h").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_cancelled_and_one_that_takes_too_long_ends() {
    let server = open().await;
    let client = server.connect().await;
    let endless =
        "select count(*) from items a cross join items b cross join items c where a.id + b.id + c.id = -1";
    let cancel = client.cancel_token();
    let soon = Duration::from_secs(20);
    let (outcome, ()) = tokio::join!(tokio::time::timeout(soon, client.simple_query(endless)), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancel.cancel_query(NoTls).await.unwrap();
    });
    assert_eq!(code(&outcome.expect("it is cancelled soon").unwrap_err()), "57014");
    client.batch_execute("set statement_timeout = '300ms'").await.unwrap();
    let outcome = tokio::time::timeout(soon, client.simple_query(endless)).await;
    assert_eq!(code(&outcome.expect("it ends soon").unwrap_err()), "57014");
    assert_eq!(text(&client, "select 1").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_lists_tables_columns_and_types() {
    let server = open().await;
    let client = server.connect().await;
    client.batch_execute("create schema s; create table s.other (k int, v text); create view public.v as select id from items").await.unwrap();
    let listed = texts(&client, "SELECT n.nspname, c.relname, c.relkind FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r','v') AND n.nspname OPERATOR(pg_catalog.!~) '^pg_' ORDER BY 1, 2").await;
    let listed: Vec<String> =
        listed.iter().map(|row| row.iter().flatten().cloned().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(listed, ["public items r", "public v v", "s other r"]);
    let visible = texts(&client, "select relname from pg_class where pg_catalog.pg_table_is_visible(oid) and relname ~ '^(items|other)$'").await;
    assert_eq!(visible.len(), 1);
    let columns = texts(&client, "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_catalog.pg_attribute a WHERE a.attrelid = 'items'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum").await;
    let columns: Vec<String> =
        columns.iter().map(|row| row.iter().flatten().cloned().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(columns[..3], ["id bigint f", "part integer f", "price numeric(12,2) f"]);
    assert_eq!(
        text(&client, "select 'public.items'::regclass = c.oid from pg_class c where relname = 'items'")
            .await,
        "t"
    );
    assert_eq!(
        text(&client, "select c.oid::regclass::text from pg_class c where relname = 'other'").await,
        "s.other"
    );
    assert!(text(&client, "select version()").await.starts_with("PostgreSQL 15"));
    assert_eq!(text(&client, "select typname from pg_type where oid = 1700").await, "numeric");
    assert_eq!(code(&client.batch_execute("select 'nothing'::regclass").await.unwrap_err()), "42P01");
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_and_lists_and_settings_are_as_tools_expect_them() {
    let server = open().await;
    let (client, other) = (server.connect().await, server.connect().await);
    let plan = texts(&client, "explain select part, count(*) from items where id < 100 group by part").await;
    let first = plan[0][0].clone().unwrap();
    let (_, numbers) = first.rsplit_once("(cost=").unwrap();
    let rows = numbers.split_once("rows=").unwrap().1.split_once(' ').unwrap().0.parse::<u64>().unwrap();
    assert!((1..=100).contains(&rows) && numbers.contains("width="), "{first}");
    assert!(plan.iter().any(|line| line[0].as_deref().unwrap().contains("At the pool")), "{plan:?}");
    // As `postgres_fdw` asks: a value that is not known yet, and rows that are sorted.
    let estimates = async |query: &str| {
        let first = text(&client, &format!("explain {query}")).await;
        let (_, numbers) = first.rsplit_once("(cost=").unwrap();
        let (costs, rest) = numbers.split_once(" rows=").unwrap();
        let (begin, end) = costs.split_once("..").unwrap();
        let rows = rest.split_once(' ').unwrap().0;
        [begin, end, rows].map(|number| number.parse::<f64>().unwrap())
    };
    let [.., rows] =
        estimates("select name from items where (((select null::bigint)::bigint) = id) and part <> 5").await;
    assert!(rows <= 2.0, "{rows}");
    let ([begin, end, _], [begin_sorted, end_sorted, _]) =
        (estimates("select name from items").await, estimates("select name from items order by name").await);
    assert!(end_sorted > end && begin_sorted > begin, "{begin_sorted}..{end_sorted}");
    assert_eq!(text(&client, "explain (costs off, verbose) select 1").await, "Farpool");
    assert!(client.batch_execute("explain (format json) select 1").await.is_err());
    let prepared = client.prepare("explain select * from items where id = $1").await.unwrap();
    assert_eq!(prepared.columns()[0].name(), "QUERY PLAN");
    assert!(texts(&client, "explain (analyze, timing off) select count(*) from items").await.len() > 1);
    // A text next to a list has PostgreSQL's form of a list.
    assert_eq!(
        text(&client, "select array[1, 2] = '{1,2}', '{3,NULL}'::int[], '{}'::text[] = array['x']").await,
        "t"
    );
    assert_eq!(text(&client, "select ('{3,NULL,\"a b\"}'::text[])[3]").await, "a b");
    assert!(client.batch_execute("select '{1,x}'::int[]").await.is_err());
    assert!(client.batch_execute("select name::int[] from items").await.is_err());
    let places = texts(&client, "select generate_subscripts(array['a', 'b', 'c'], 1) order by 1").await;
    assert_eq!(places.len(), 3);
    // Settings are those of the session that asks.
    assert_eq!(text(&client, "select set_config('application_name', 'it''s', false)").await, "it's");
    assert_eq!(text(&client, "select current_setting('application_name')").await, "it's");
    assert_eq!(text(&other, "select current_setting('application_name')").await, "");
    assert_eq!(text(&client, "select current_setting('no.such', true) is null").await, "t");
    assert_ne!(text(&client, "select pg_backend_pid()").await, text(&other, "select pg_backend_pid()").await);
    let named =
        client.prepare("select current_setting('application_name'), 'items'::text::regclass").await.unwrap();
    assert_eq!(named.columns()[0].name(), "current_setting");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_mean_what_postgresql_means() {
    let server = open().await;
    let client = server.connect().await;
    // Answers of PostgreSQL 15.
    for (query, answer) in [
        ("select 1.5::int, (-1.5)::int, 2.5::int", "2 -2 3"),
        ("select 2.5::float8::int, 3.5::float8::int, round(2.5::float8)", "2 4 2"),
        ("select x::int, (price / 3)::int from items where id = 1", "0 0"),
        (
            "select 0.1 + 0.2 = 0.3, sum(3.60), 1.0 / 3 > 0.333333333333333 from items where id < 2",
            "t 7.20 t",
        ),
        ("select (2 / 3.0)::numeric(20, 6), (-2 / 3.0)::numeric(20, 6)", "0.666667 -0.666667"),
        ("select 1::numeric, '3.60'::numeric, (-2.50)::numeric", "1 3.60 -2.50"),
        ("select timestamp '2024-02-29 12:34:56.5'::text, 35::float8::text", "2024-02-29 12:34:56.5 35"),
        (
            "select interval '1 month 2 days 03:04:05'::text, array[1, null]::text",
            "1 mon 2 days 03:04:05 {1,NULL}",
        ),
        ("select '\\x6162'::bytea::text, encode('a'::bytea, 'base64')", "\\x6162 YQ=="),
        ("select 'O''Brien'::varchar(3), 'a'::varchar(3)", "O'B a"),
        ("select - interval '1 month 2 days 03:04:05'", "-1 mons -2 days -03:04:05"),
        ("select extract(second from timestamp '2024-02-29 12:34:56.5')", "56.500000"),
        ("select count(*) from items where name = any('{\"name 1\",\"name 2\",x}'::text[])", "2"),
        ("select count(*) from items where id <> all('{1,2}'::int[]) and id = any(array[1, 2, 3])", "1"),
        ("select 1 = any('{}'::int[]), 1 <> all('{}'::int[])", "f t"),
        ("select count(*) from items where day <= timestamp '1970-01-02 12:00'", "40"),
        ("select count(*) from items where day < '1970-01-02 00:00:00'::timestamp without time zone", "20"),
        ("select date '0001-01-01' < min(day)::timestamp from items", "t"),
        ("select count(*) from items where day < date '1970-01-31' - interval '10 days'", "400"),
        (
            "select date '2024-01-31' + interval '1 month', date '2024-03-01' + 1",
            "2024-02-29 00:00:00 2024-03-02",
        ),
        ("select timestamp '2024-03-01' - timestamp '2024-01-01 12:00'", "59 days 12:00:00"),
        (
            "select avg(x), avg(y), sum(x) from (values (1, 1.50), (2, 2.50), (2, 2.75)) v(x, y)",
            "1.6666666666666667 2.2500000000000000 5",
        ),
        (
            "select avg(x) filter (where x > 1), avg(distinct x) from (values (1), (2), (2)) v(x)",
            "2.0000000000000000 1.5000000000000000",
        ),
        (
            "select variance(x), stddev_pop(x), var_pop(x), stddev(x) from (values (1), (2), (4)) v(x)",
            "2.3333333333333333 1.2472191289246471 1.5555555555555556 1.5275252316519467",
        ),
        ("select avg(x) over (order by x rows 1 preceding) from (values (2)) v(x)", "2.0000000000000000"),
        ("select avg(y) from (select avg(x) as y from (values (2), (3)) v(x)) w", "2.5000000000000000"),
        (
            "select avg(part) > 3.01, avg(price)::numeric(12, 4) from items where part is not null",
            "t 2499.8750",
        ),
        ("select x # x, x # 3 # x from (values (null::int)) v(x)", "NULL NULL"),
        ("select (x # y) # (x # y), x # y # x, (x + 1) # (x + 1) from (values (5, 9)) v(x, y)", "0 9 0"),
        ("select x / 2 from (values (1.5)) v(x)", "0.75000000000000000000"),
        ("select count(*) from unnest(array[1, 2]) x where x > 1", "1"),
        ("select sum(s) from pg_catalog.generate_series(0, 3) s, pg_catalog.unnest(array[1, 2]) x", "12"),
        ("select (information_schema._pg_expandarray(array[7, 8])).n order by 1 limit 1", "1"),
        ("select current_schemas(true), array_upper(current_schemas(false), 1)", "{pg_catalog,public} 1"),
        ("select pg_relation_is_publishable('123'), count(*) from pg_index where indkey = '{1}'", "f 0"),
        ("select format('%I.%L', 'A b', 'it''s')", "\"A b\".'it''s'"),
        (
            "select '2024-03-01' - day, date '2024-03-01' - '2024-02-01', '2024-03-01 12:00' - timestamp '2024-02-29' from items where id = 0",
            "19783 29 1 day 12:00:00",
        ),
        (
            "select string_agg(x || n, ',' order by n) from unnest(array['a', 'b']) with ordinality u(x, n)",
            "a1,b2",
        ),
        (
            "select sum(i.id * u.ordinality), count(*) from items i, unnest(array[i.id, i.part]) with ordinality u where i.id in (2, 3)",
            "15 4",
        ),
        ("select s, ordinality from generate_series(5, 7) with ordinality s where s = 7", "7 3"),
        ("select count(*) from unnest(null::int[]) with ordinality", "0"),
        (
            "select data_type, ordinal_position, numeric_precision, is_nullable, udt_name from farpool.information_schema.columns where table_schema = 'public' and table_name = 'items' and column_name = 'price'",
            "numeric 3 12 YES numeric",
        ),
        (
            "select count(*) from information_schema.table_constraints natural join information_schema.key_column_usage",
            "0",
        ),
    ] {
        let row = texts(&client, query).await.remove(0);
        let row: Vec<String> = row.into_iter().map(|value| value.unwrap_or_else(|| "NULL".into())).collect();
        assert_eq!(row.join(" "), answer, "{query}");
    }
    let named = client
        .prepare("select count(*), max(id)::int, 'x'::varchar, case when true then 1 end, 1 + 1, array[1], (select id from items limit 1) from items")
        .await
        .unwrap();
    let names: Vec<&str> = named.columns().iter().map(tokio_postgres::Column::name).collect();
    assert_eq!(names, ["count", "max", "varchar", "case", "?column?", "array", "id"]);
    assert!(client.batch_execute("select 'a'::char(3)").await.is_err());
    for (query, expected) in [
        ("select 1.0 / 0", "22012"),
        ("select x / (x - x) from items where id = 5", "22012"),
        ("select ln(x) from items where id = 0", "2201E"),
        ("select sqrt(-x) from items where id = 5", "2201F"),
        ("select power(-x, 0.5) from items where id = 5", "2201F"),
        ("select exp(x * 1000) from items where id = 5000", "22003"),
        ("select 1e300::float8::float4", "22003"),
        ("select avg((select max(id) from items)) from items", "0A000"),
    ] {
        assert_eq!(code(&client.batch_execute(query).await.unwrap_err()), expected, "{query}");
    }
    // Elements of parameters.
    for (query, count) in [
        ("select count(*) from items where id = any($1)", 2_i64),
        ("select count(*) from items where id = any($1::bigint[])", 2),
    ] {
        let prepared = client.prepare(query).await.unwrap();
        assert_eq!(prepared.params(), [Type::INT8_ARRAY], "{query}");
        let rows = client.query(&prepared, &[&vec![1_i64, 2, 50_000]]).await.unwrap();
        assert_eq!(rows[0].get::<_, i64>(0), count, "{query}");
        let none: Vec<i64> = Vec::new();
        assert_eq!(client.query(&prepared, &[&none]).await.unwrap()[0].get::<_, i64>(0), 0, "{query}");
    }
    let names = client.prepare("select count(*) from items where name = any($1)").await.unwrap();
    assert_eq!(names.params(), [Type::TEXT_ARRAY]);
    let rows = client.query(&names, &[&vec!["name 1", "it's"]]).await.unwrap();
    assert_eq!(rows[0].get::<_, i64>(0), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_several_pools_is_a_database() {
    let node =
        |access| Node::start(NodeConfig { memory_bytes: 64 << 20, access, ..NodeConfig::default() }).unwrap();
    let closed = Access::of_nobody().with_token("secret", TenantName::default(), Right::Read);
    let nodes = [
        ("sales", node(Access::of_everybody())),
        ("web", node(Access::of_everybody())),
        ("hidden", node(closed)),
    ];
    load_items(&EmbeddedPool::over(Arc::clone(&nodes[1].1), TenantName::default())).await;
    let doors = nodes.map(|(name, node)| (name.to_string(), Arc::new(Here(node)) as Arc<dyn Door>));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let gateway = Gateway::over(doors, SessionOptions::default());
    tokio::spawn(postgres::serve(gateway, listener, std::future::pending()));
    let connect = async |settings: &str| {
        let settings = format!("host=127.0.0.1 port={port} {settings}");
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok::<Client, tokio_postgres::Error>(client)
    };
    let (sales, web) = (connect("user=ann dbname=sales").await.unwrap(), connect("user=web").await.unwrap());
    sales.batch_execute("create table orders (id bigint); insert into orders values (3), (4)").await.unwrap();
    assert_eq!(text(&sales, "select current_database()").await, "sales");
    assert_eq!(text(&web, "select catalog_name from web.information_schema.schemata limit 1").await, "web");
    assert_eq!(text(&web, "select count(*) from pg_tables").await, "1");
    assert_eq!(text(&web, "select tablename from pg_tables").await, "items");
    let joined = "select sum(part) from items join sales.public.orders using (id)";
    assert_eq!(text(&web, joined).await, "7");
    web.batch_execute("insert into sales.public.orders select id from items where id < 2").await.unwrap();
    assert_eq!(text(&sales, "select sum(id) from orders").await, "8");
    // Rows of a transaction go to its own database.
    web.batch_execute("begin").await.unwrap();
    let error = web.batch_execute("insert into sales.public.orders values (1)").await.unwrap_err();
    assert_eq!(code(&error), "0A000");
    web.batch_execute("rollback").await.unwrap();
    assert_eq!(text(&sales, "select count(*) from orders").await, "4");
    // A database that there is not, and one that refuses the token.
    for database in ["user=ann", "user=ann dbname=nothing"] {
        assert_eq!(code(&connect(database).await.map(drop).unwrap_err()), "3D000", "{database}");
    }
    assert!(connect("user=ann dbname=hidden password=wrong").await.is_err());
    assert!(web.batch_execute("select * from hidden.public.orders").await.is_err());
    let hidden = connect("user=ann dbname=hidden password=secret").await.unwrap();
    assert_eq!(text(&hidden, "select count(*) from sales.public.orders").await, "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_the_password_and_its_right_counts() {
    let (reader, other) = (format!("fp_{}", "1".repeat(64)), format!("fp_{}", "2".repeat(64)));
    let access = Access::of_nobody().with_token(&reader, TenantName::default(), Right::Read);
    let server = serve(access).await;
    let refused = |outcome: std::result::Result<Client, tokio_postgres::Error>| match outcome {
        Ok(_) => panic!("nobody was refused"),
        Err(error) => code(&error).to_string(),
    };
    assert_eq!(
        refused(server.connect_as(&format!("host=127.0.0.1 user=ann password={other}")).await),
        "28P01"
    );
    let client = server.connect_as(&format!("host=127.0.0.1 user=ann password={reader}")).await.unwrap();
    assert_eq!(text(&client, "select 1").await, "1");
    assert_eq!(code(&client.batch_execute("create table t (a int)").await.unwrap_err()), "42501");
    for forbidden in [
        "copy (select 1) to '/tmp/farpool-test.csv'",
        "select * from '/etc/passwd'",
        "explain analyze copy (select 1) to '/tmp/farpool-test.csv' stored as csv",
    ] {
        assert!(client.batch_execute(forbidden).await.is_err(), "{forbidden}");
    }
    assert!(!std::path::Path::new("/tmp/farpool-test.csv").exists());
}

/// Returns how the server asks a user to authenticate: the code in its first message.
async fn asked(server: &Server, user: &str) -> u32 {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let mut startup = 196_608_u32.to_be_bytes().to_vec();
    startup.extend([b"user\0", user.as_bytes(), b"\0\0"].concat());
    let length = u32::try_from(startup.len() + 4).unwrap();
    socket.write_all(&[&length.to_be_bytes(), startup.as_slice()].concat()).await.unwrap();
    let mut message = [0; 9];
    socket.read_exact(&mut message).await.unwrap();
    assert_eq!(message[0], b'R');
    u32::from_be_bytes(message[5..].try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_proves_that_it_has_its_token_without_sending_it() {
    let token = |name: &str, scram: &str| {
        let digest = TokenDigest::of(&format!("{name}s token"));
        format!(
            "[[token]]\ntenant = \"default\"\nrole = \"read\"\nname = \"{name}\"\nsha256 = \"{digest}\"\n{scram}"
        )
    };
    let verifier = format!("scram = \"{}\"\n", Verifier::of("anns token", [3; 16]).unwrap());
    let file = format!("[tenant.default]\n{}{}", token("ann", &verifier), token("bob", ""));
    let server = serve(Access::parse(&file).unwrap()).await;
    let connect = async |user: &str, password: &str| {
        server.connect_as(&format!("host=127.0.0.1 user={user} password='{password}'")).await
    };
    for user in ["ann", "bob"] {
        let client = connect(user, &format!("{user}s token")).await.unwrap();
        assert_eq!(text(&client, "select 1").await, "1");
        assert_eq!(code(&client.batch_execute("create table t (a int)").await.unwrap_err()), "42501");
    }
    // Another's token, and a name that nobody has.
    for (user, password) in [("ann", "bobs token"), ("ann", ""), ("eve", "anns token"), ("bob", "eves token")]
    {
        let error = connect(user, password).await.map(drop).unwrap_err();
        let is_refused = code(&error) == "28P01" || password.is_empty();
        assert!(is_refused, "{user}, {password}: {error}");
    }
    // 10 asks for a proof, also of a user whom nobody knows, and 3 for the token.
    let asked = [asked(&server, "ann").await, asked(&server, "eve").await, asked(&server, "bob").await];
    assert_eq!(asked, [10, 10, 3]);
    let unnamed = format!("[tenant.default]\n{}", token("x", &verifier).replace("name = \"x\"\n", ""));
    assert!(Access::parse(&unnamed).unwrap_err().message.contains("needs a name"));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_shown_and_what_cannot_be_is_refused() {
    let server = open().await;
    let client = server
        .connect_as("host=127.0.0.1 user=ann application_name=test options='-c statement_timeout=5s'")
        .await
        .unwrap();
    assert_eq!(text(&client, "show application_name").await, "test");
    assert_eq!(text(&client, "show statement_timeout").await, "5s");
    assert_eq!(text(&client, "show server_encoding").await, "UTF8");
    for refused in [
        "set datestyle = 'German'",
        "set client_encoding = 'LATIN1'",
        "set nothing = 1",
        "set search_path = a, b",
    ] {
        assert!(client.batch_execute(refused).await.is_err(), "{refused}");
    }
    let nested = (0..20).fold("array[1]".to_string(), |list, _| {
        format!("array(select x from unnest({list}) with ordinality u(x, n))")
    });
    assert!(client.batch_execute(&format!("select {nested}")).await.is_err());
    client.batch_execute("create schema s; create table s.t (a int); set search_path = s").await.unwrap();
    assert_eq!(text(&client, "select count(*) from t").await, "0");
    client.batch_execute("discard all").await.unwrap();
    assert_eq!(code(&client.batch_execute("select count(*) from t").await.unwrap_err()), "42P01");
    client.batch_execute("prepare p (int) as select id + $1 from items where id = $1").await.unwrap();
    assert_eq!(text(&client, "execute p(5)").await, "10");
    client.batch_execute("deallocate p").await.unwrap();
    assert_eq!(code(&client.batch_execute("execute p(5)").await.unwrap_err()), "26000");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_copied_out_and_in() {
    let server = open().await;
    let client = server.connect().await;
    for format in ["text", "csv", "binary"] {
        let out = client
            .copy_out(&format!("copy (select * from items where id < 5000) to stdout (format {format})"))
            .await
            .unwrap();
        let rows: Vec<bytes::Bytes> = out.try_collect().await.unwrap();
        client.batch_execute("create table copied (id bigint, part int, price decimal(12, 2), name text, day date, x double precision)").await.unwrap();
        let sink = client.copy_in(&format!("copy copied from stdin (format {format})")).await.unwrap();
        let mut sink = std::pin::pin!(sink);
        for piece in rows {
            futures::SinkExt::send(&mut sink, piece).await.unwrap();
        }
        assert_eq!(sink.finish().await.unwrap(), 5000);
        assert_eq!(
            text(&client, "select count(*) from (select * from copied except select * from items)").await,
            "0"
        );
        assert_eq!(text(&client, "select count(*) from copied where part is null").await, "715");
        client.batch_execute("drop table copied").await.unwrap();
    }
    // Rows that are wrong leave nothing behind, and the session goes on.
    client.batch_execute("create table t (a int, b text)").await.unwrap();
    let sink = client.copy_in("copy t (a) from stdin").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    futures::SinkExt::send(&mut sink, bytes::Bytes::from_static(b"1\nx\n")).await.unwrap();
    let error = sink.finish().await.unwrap_err();
    assert_eq!(code(&error), "22P02");
    assert_eq!(text(&client, "select count(*) from t").await, "0");
}
