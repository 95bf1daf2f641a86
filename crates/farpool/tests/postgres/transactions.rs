//! Transactions: which versions they read, and how their changes take effect.

use super::{code, open, text};

#[tokio::test(flavor = "multi_thread")]
async fn transactions_read_one_version_and_end_as_they_should() {
    let server = open().await;
    let (client, other) = (server.connect().await, server.connect().await);
    other.batch_execute("create table t (a int); insert into t values (1)").await.unwrap();
    client.batch_execute("begin isolation level repeatable read").await.unwrap();
    assert_eq!(text(&client, "select count(*) from t").await, "1");
    other.batch_execute("insert into t values (2)").await.unwrap();
    assert_eq!(text(&client, "select count(*) from t").await, "1");
    assert_eq!(text(&client, "show transaction isolation level").await, "repeatable read");
    client.batch_execute("commit").await.unwrap();
    assert_eq!(text(&client, "select count(*) from t").await, "2");
    // A failure ends what a transaction can do.
    client.batch_execute("begin").await.unwrap();
    assert!(client.batch_execute("select 1 / 0").await.is_err());
    assert_eq!(code(&client.batch_execute("select 1").await.unwrap_err()), "25P02");
    client.batch_execute("rollback").await.unwrap();
    client.batch_execute("begin; savepoint s").await.unwrap();
    assert!(client.batch_execute("select nothing").await.is_err());
    client.batch_execute("rollback to s; select 1; commit").await.unwrap();
    // Settings of a transaction that is rolled back were never made.
    client.batch_execute("begin; set timezone = 'Asia/Tokyo'; rollback").await.unwrap();
    assert_eq!(text(&client, "show timezone").await, "UTC");
    client.batch_execute("begin; set local timezone = 'Asia/Tokyo'").await.unwrap();
    assert_eq!(text(&client, "select timestamptz '2024-01-01 00:00:00Z'").await, "2024-01-01 09:00:00+09");
    client.batch_execute("commit").await.unwrap();
    assert_eq!(text(&client, "show timezone").await, "UTC");
    let error = client.batch_execute("begin read only; insert into t values (3)").await.unwrap_err();
    assert_eq!(code(&error), "25006");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_transaction_appear_at_its_end() {
    let server = open().await;
    let (client, other) = (server.connect().await, server.connect().await);
    other.batch_execute("create table t (a int, b text); insert into t values (1, 'x')").await.unwrap();
    client.batch_execute("begin; insert into t values (2, 'y'), (3, null)").await.unwrap();
    assert_eq!(text(&client, "select sum(a) from t").await, "6");
    assert_eq!(text(&client, "select sum(a) from public.t").await, "6");
    assert_eq!(text(&other, "select sum(a) from t").await, "1");
    client.batch_execute("savepoint s; insert into t select a + 10, b from t").await.unwrap();
    assert_eq!(text(&client, "select count(*) from t").await, "6");
    client.batch_execute("rollback to s").await.unwrap();
    let sink = client.copy_in("copy t (b, a) from stdin").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    futures::SinkExt::send(&mut sink, bytes::Bytes::from_static(b"z\t4\n")).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 1);
    assert_eq!(text(&client, "select max(b) from t where a > 2").await, "z");
    assert!(
        client.batch_execute("select * from farpool.public.t").await.is_err(),
        "it would not see the rows"
    );
    client.batch_execute("rollback; begin; insert into t values (5, 'w'); commit").await.unwrap();
    assert_eq!(text(&other, "select sum(a) from t").await, "6");
    // A table that is created, filled and read before it is there for others.
    client.batch_execute("begin; create table made (k bigint, v text)").await.unwrap();
    let insert = client.prepare("insert into made values ($1, $2)").await.unwrap();
    for n in 0..3_i64 {
        assert_eq!(client.execute(&insert, &[&n, &"v"]).await.unwrap(), 1);
    }
    assert_eq!(text(&client, "select sum(k) from made").await, "3");
    assert_eq!(code(&other.batch_execute("select * from made").await.unwrap_err()), "42P01");
    client.batch_execute("commit").await.unwrap();
    assert_eq!(text(&other, "select sum(k) from made").await, "3");
    // What cannot be kept is refused, and ends the transaction.
    for refused in
        ["insert into made values (9, 'x')", "update t set a = 1", "drop table t", "create table t2 (a int)"]
    {
        client.batch_execute("begin; insert into t values (7, 'v')").await.unwrap();
        assert_eq!(code(&client.batch_execute(refused).await.unwrap_err()), "0A000", "{refused}");
        client.batch_execute("rollback").await.unwrap();
    }
    assert_eq!(text(&other, "select sum(a) from t").await, "6");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_change_of_a_transaction_is_carried_out_at_its_end() {
    let server = open().await;
    let (client, other) = (server.connect().await, server.connect().await);
    let fill = "create table t (a int, b text); insert into t values (1, 'x'), (2, 'y'), (3, null)";
    other.batch_execute(fill).await.unwrap();
    let sum = async || text(&other, "select sum(a) from t").await;
    for (change, count, after) in [
        ("update t set a = a + 10 where b is not null", 2, "26"),
        ("delete from t where a in (select max(a) from t)", 1, "14"),
        ("update t set a = 1", 2, "2"),
        ("update t set a = 9 where b = 'nobody'", 0, "2"),
    ] {
        let before = sum().await;
        for end in ["rollback", "commit"] {
            client.batch_execute("begin").await.unwrap();
            assert_eq!(client.execute(change, &[]).await.unwrap(), count, "{change}");
            assert_eq!(sum().await, before, "{change}");
            client.batch_execute(end).await.unwrap();
        }
        assert_eq!(sum().await, after, "{change}");
    }
    // What it changes is not read, nor is more changed; a rollback to a savepoint undoes it.
    other.batch_execute("create view seen as select a from t").await.unwrap();
    for refused in [
        "select * from t",
        "select * from seen",
        "insert into t values (1, 'x')",
        "delete from t",
        "drop view seen",
    ] {
        client.batch_execute("begin; savepoint s; update t set a = 0").await.unwrap();
        assert_eq!(text(&client, "select count(*) from items where id < 5").await, "5");
        assert_eq!(code(&client.batch_execute(refused).await.unwrap_err()), "0A000", "{refused}");
        client.batch_execute("rollback to s").await.unwrap();
        assert_eq!(text(&client, "select sum(a) from t").await, "2");
        client.batch_execute("commit").await.unwrap();
    }
    // Rows in place of all others, which the transaction sees.
    client
        .batch_execute("begin; truncate t continue identity restrict; insert into t values (5, 'n')")
        .await
        .unwrap();
    assert_eq!((text(&client, "select sum(a) from t").await.as_str(), sum().await.as_str()), ("5", "2"));
    client.batch_execute("commit").await.unwrap();
    assert_eq!(sum().await, "5");
    client
        .batch_execute("begin; drop table t; create table t (a bigint); insert into t values (7)")
        .await
        .unwrap();
    assert_eq!((text(&client, "select max(a) from t").await.as_str(), sum().await.as_str()), ("7", "5"));
    client.batch_execute("commit").await.unwrap();
    assert_eq!(sum().await, "7");
    client.batch_execute("begin; alter table t add column c text; commit; begin; drop view if exists gone; drop view seen; commit").await.unwrap();
    assert_eq!(text(&other, "select count(c) from t").await, "0");
    assert_eq!(code(&other.batch_execute("select * from seen").await.unwrap_err()), "42P01");
    // Another change comes first: nothing is done, and the client is told to try again.
    for (change, first) in [
        ("update t set a = a + 1 where a = 7", "update t set a = 8"),
        ("delete from t", "insert into t values (1, 'late')"),
    ] {
        client.batch_execute(&format!("begin isolation level repeatable read; {change}")).await.unwrap();
        other.batch_execute(first).await.unwrap();
        let before = sum().await;
        assert_eq!(code(&client.batch_execute("commit").await.unwrap_err()), "40001", "{change}");
        assert_eq!(sum().await, before);
    }
    // Rows that the transaction does not see are not removed.
    for change in ["delete from t", "truncate t"] {
        client.batch_execute("begin isolation level repeatable read; select max(a) from t").await.unwrap();
        other.batch_execute("insert into t values (2, 'unseen')").await.unwrap();
        let before = sum().await;
        assert_eq!(code(&client.batch_execute(change).await.unwrap_err()), "40001", "{change}");
        client.batch_execute("rollback").await.unwrap();
        assert_eq!(sum().await, before, "{change}");
    }
    client
        .batch_execute("begin; select max(a) from t; delete from t; insert into t values (4, 'w'); commit")
        .await
        .unwrap();
    assert_eq!(sum().await, "4");
    client.batch_execute("begin; drop table t; commit").await.unwrap();
    assert_eq!(code(&other.batch_execute("select * from t").await.unwrap_err()), "42P01");
}
