//! Statements that change something, and rows that are loaded.

use super::*;
use arrow::array::{DictionaryArray, Float64Array, Int32Array, NullArray};
use arrow::datatypes::Int8Type;
use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};

fn into(table: &str, exists: TableExistsOption, absent: TableNotExistOption) -> CommandStatementIngest {
    CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_exists: exists.into(),
            if_not_exist: absent.into(),
        }),
        table: table.into(),
        ..CommandStatementIngest::default()
    }
}

async fn ingest(
    client: &mut Client,
    command: CommandStatementIngest,
    batches: Vec<RecordBatch>,
) -> Result<i64, FlightError> {
    client.execute_ingest(command, futures::stream::iter(batches.into_iter().map(Ok))).await
}

fn numbers(range: std::ops::Range<i64>) -> RecordBatch {
    let names = range.clone().map(|n| format!("n{n}"));
    RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(Int64Array::from_iter_values(range)) as ArrayRef, true),
        ("name", Arc::new(StringArray::from_iter_values(names)) as ArrayRef, true),
    ])
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_tell_how_many_rows_they_changed() {
    let server = open().await;
    let mut client = server.connect().await;
    assert_eq!(update(&mut client, "create table t (a int, b text)").await, 0);
    assert_eq!(update(&mut client, "insert into t values (1, 'x'), (2, null)").await, 2);
    assert_eq!(update(&mut client, "update t set a = 5 where b is null").await, 1);
    assert_eq!(text(&mut client, "select sum(a) from t").await, "6");
    assert_eq!(update(&mut client, "delete from t").await, 2);
    let error = client.execute_update("select 1".into(), None).await.unwrap_err();
    assert_eq!(failure(error).0, Code::InvalidArgument);
    // As a query, a change runs once for its ticket, and returns the number of rows.
    let info = client.execute("insert into t values (7, 'y')".into(), None).await.unwrap();
    assert_eq!(text(&mut client, "select count(*) from t").await, "0", "nothing runs before it is asked for");
    assert!(shown(&rows_of(&mut client, info.clone()).await.unwrap()).contains("| 1 "));
    assert_eq!(failure(rows_of(&mut client, info).await.unwrap_err()).0, Code::InvalidArgument);
    assert_eq!(text(&mut client, "select count(*) from t").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_change_runs_for_each_row_of_values() {
    let server = open().await;
    let mut client = server.connect().await;
    update(&mut client, "create table t (n bigint not null, name text)").await;
    let mut insert = client.prepare("insert into t values ($1, $2)".into(), None).await.unwrap();
    assert!(
        insert.dataset_schema().unwrap().fields().is_empty(),
        "by this, drivers tell a change from a query"
    );
    insert.set_parameters(numbers(0..3000)).unwrap();
    assert_eq!(insert.execute_update().await.unwrap(), 3000);
    assert_eq!(text(&mut client, "select sum(n) from t where name = 'n' || n").await, "4498500");
    // The last row cannot be inserted, so that none is.
    let wrong = RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(Int64Array::from(vec![Some(5000), Some(5001), None])) as ArrayRef, true),
        ("name", Arc::new(StringArray::from(vec!["a", "b", "c"])) as ArrayRef, true),
    ]);
    insert.set_parameters(wrong.unwrap()).unwrap();
    assert!(insert.execute_update().await.is_err());
    assert_eq!(text(&mut client, "select count(*) from t").await, "3000");
    let mut update = client.prepare("update t set name = $2 where n = $1".into(), None).await.unwrap();
    update.set_parameters(numbers(10..13)).unwrap();
    assert_eq!(update.execute_update().await.unwrap(), 3);
    let mut delete = client.prepare("delete from t where n >= 100".into(), None).await.unwrap();
    assert_eq!(delete.execute_update().await.unwrap(), 2900);
    // A value without a type is a NULL of the parameter's.
    let null = RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(Int64Array::from(vec![77])) as ArrayRef, true),
        ("name", Arc::new(NullArray::new(1)) as ArrayRef, true),
    ]);
    insert.set_parameters(null.unwrap()).unwrap();
    assert_eq!(insert.execute_update().await.unwrap(), 1);
    assert_eq!(text(&mut client, "select count(*) from t where name is null").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_loaded_at_once_or_not_at_all() {
    let server = open().await;
    let mut client = server.connect().await;
    let (fail, append, replace) =
        (TableExistsOption::Fail, TableExistsOption::Append, TableExistsOption::Replace);
    let (create, refuse) = (TableNotExistOption::Create, TableNotExistOption::Fail);
    let new = into("t", fail, create);
    let batches = vec![numbers(0..100_000), numbers(100_000..150_000)];
    assert_eq!(ingest(&mut client, new.clone(), batches).await.unwrap(), 150_000);
    assert_eq!(text(&mut client, "select sum(n) from t where name = 'n' || n").await, "11249925000");
    let error = ingest(&mut client, new, vec![numbers(0..1)]).await.unwrap_err();
    assert_eq!(failure(error).0, Code::AlreadyExists);
    let error = ingest(&mut client, into("u", append, refuse), vec![numbers(0..1)]).await.unwrap_err();
    assert_eq!(failure(error).0, Code::NotFound);
    // Columns are found by their names, converted, and NULL where there are none; dictionaries are values.
    let names: DictionaryArray<Int8Type> = [Some("red"), None, Some("red")].into_iter().collect();
    let others = RecordBatch::try_from_iter_with_nullable([
        ("name", Arc::new(names) as ArrayRef, true),
        ("n", Arc::new(Int32Array::from(vec![-1, -2, -3])) as ArrayRef, true),
    ]);
    assert_eq!(ingest(&mut client, into("t", append, create), vec![others.unwrap()]).await.unwrap(), 3);
    assert_eq!(text(&mut client, "select sum(n) from t where name = 'red'").await, "-4");
    let only = RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(vec![-9])) as ArrayRef)]).unwrap();
    assert_eq!(ingest(&mut client, into("t", append, create), vec![only]).await.unwrap(), 1);
    assert_eq!(text(&mut client, "select count(*) from t where name is null").await, "2");
    let before = text(&mut client, "select count(*) from t").await;
    // The second batch does not fit; the first is not seen either.
    let wrong =
        RecordBatch::try_from_iter([("n", Arc::new(Float64Array::from(vec![1e300])) as ArrayRef)]).unwrap();
    let right =
        RecordBatch::try_from_iter([("n", Arc::new(Float64Array::from(vec![1.0])) as ArrayRef)]).unwrap();
    let error = ingest(&mut client, into("t", append, create), vec![right, wrong]).await.unwrap_err();
    assert_eq!(failure(error).0, Code::InvalidArgument);
    let unknown =
        RecordBatch::try_from_iter([("m", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]).unwrap();
    let error = ingest(&mut client, into("t", append, create), vec![unknown]).await.unwrap_err();
    assert!(failure(error).1.contains("it has n, name"));
    assert_eq!(text(&mut client, "select count(*) from t").await, before);
    // A client that goes in the middle of its rows.
    let endless = futures::stream::iter([Ok(numbers(0..10))]).chain(futures::stream::pending());
    let sent = client.execute_ingest(into("t", append, create), endless);
    assert!(tokio::time::timeout(Duration::from_millis(300), sent).await.is_err());
    server.at_rest().await;
    assert_eq!(text(&mut client, "select count(*) from t").await, before);
    assert_eq!(ingest(&mut client, into("t", replace, create), vec![numbers(0..7)]).await.unwrap(), 7);
    assert_eq!(text(&mut client, "select count(*) from t").await, "7");
    assert_eq!(ingest(&mut client, into("e", fail, create), vec![numbers(0..0)]).await.unwrap(), 0);
    assert_eq!(text(&mut client, "select count(*) from e").await, "0");
    update(&mut client, "create schema s").await;
    let there = CommandStatementIngest { schema: Some("s".into()), ..into("t", fail, create) };
    assert_eq!(ingest(&mut client, there, vec![numbers(0..5)]).await.unwrap(), 5);
    assert_eq!(text(&mut client, "select count(*) from s.t").await, "5");
    let temporary = CommandStatementIngest { temporary: true, ..into("x", fail, create) };
    let error = ingest(&mut client, temporary, vec![numbers(0..5)]).await.unwrap_err();
    assert_eq!(failure(error).0, Code::Unimplemented);
    let elsewhere = CommandStatementIngest { catalog: Some("other".into()), ..into("x", fail, create) };
    let error = ingest(&mut client, elsewhere, vec![numbers(0..5)]).await.unwrap_err();
    assert_eq!(failure(error).0, Code::NotFound);
    server.at_rest().await;
}
