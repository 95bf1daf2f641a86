//! Tests of schemas: a statement accesses the table in the schema that it names, and no other.

use crate::support::pools::{Pools, Way};
use crate::support::text::{rows, run};
use farpool::{ErrorKind, Session};

const WAYS: [(Way, bool); 3] = [(Way::Embedded, true), (Way::Remote, true), (Way::Plain, false)];

/// Asserts that a statement fails with an error of this kind that contains the text.
async fn refused(session: &Session, sql: &str, kind: ErrorKind, said: &str) {
    let error = rows(session, sql).await.expect_err(sql);
    assert!(error.kind == kind && error.to_string().contains(said), "{sql}: {error}");
}

/// Returns the only value of a result of one row and one column.
async fn value(session: &Session, sql: &str) -> String {
    let text = run(session, sql).await;
    let row = text.lines().nth(3).unwrap_or_else(|| panic!("{sql}: no row")).to_string();
    row.trim_matches(['|', ' ']).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_not_there_is_an_error_and_no_other_table() {
    for (way, pushdown) in WAYS {
        let pools = Pools::start(128 << 20).await;
        let session = pools.session(way, pushdown).await;
        run(&session, "create table victim as select 1 as a").await;
        for statement in [
            "create table staging.victim as select 2 as a",
            "create or replace table staging.victim as select 2 as a",
            "create table if not exists staging.other (a int)",
            "create view staging.v as select 1 as a",
            "create or replace view staging.victim as select 1 as a",
            "drop table staging.victim",
            "drop table if exists staging.victim",
            "drop view staging.victim",
            "alter table staging.victim add column b int",
            "alter table staging.victim rename to victim2",
            "alter table victim rename to staging.victim",
            "insert into staging.victim values (3)",
            "update staging.victim set a = 3",
            "delete from staging.victim",
            "truncate table staging.victim",
            "select * from staging.victim",
            "select * from farpool.staging.victim",
            "drop schema staging",
        ] {
            refused(&session, statement, ErrorKind::NotFound, "there is no schema \"staging\"").await;
            assert_eq!(value(&session, "select a from victim").await, "1", "{statement}");
        }
        run(&session, "drop schema if exists staging").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_reaches_the_table_of_its_schema() {
    for (way, pushdown) in WAYS {
        let pools = Pools::start(128 << 20).await;
        let session = pools.session(way, pushdown).await;
        for statement in [
            "create table t as select i as a from generate_series(1, 10) g(i)",
            "create schema staging",
            "create schema if not exists staging",
            "create table staging.t as select i as a from generate_series(1, 3) g(i)",
            "insert into staging.t values (100), (200)",
            "update staging.t set a = a + 1 where a = 100",
            "delete from staging.t where a = 200",
            "alter table staging.t add column b varchar",
            "create view staging.v as select t.a, s.a as other from t join farpool.staging.t s on t.a = s.a",
            "create view v as select count(*) as n from staging.v",
        ] {
            run(&session, statement).await;
        }
        let others = [pools.session(Way::Remote, true).await, pools.session(Way::Embedded, true).await];
        for session in others.iter().chain([&session]) {
            assert_eq!(value(session, "select count(*) from t").await, "10");
            assert_eq!(value(session, "select sum(a) from staging.t").await, "107");
            assert_eq!(value(session, "select count(b) from farpool.staging.t").await, "0");
            assert_eq!(value(session, "select n from v").await, "3");
            let names = "select string_agg(table_schema || '.' || table_name, ' ' order by table_schema, table_name) \
                         from information_schema.tables where table_schema in ('public', 'staging') and table_catalog = 'farpool'";
            assert_eq!(value(session, names).await, "public.t public.v staging.t staging.v");
        }
        run(&session, "alter table staging.t rename to u").await;
        refused(&session, "alter table staging.u rename to public.t", ErrorKind::Exists, "\"t\"").await;
        run(&session, "alter table staging.u rename to public.u").await;
        assert_eq!(value(&session, "select sum(a) from u").await, "107");
        refused(&session, "drop schema staging", ErrorKind::Invalid, "staging.v").await;
        run(&session, "drop schema staging cascade").await;
        refused(&session, "select * from v", ErrorKind::NotFound, "in view \"v\"").await;
        assert!(pools.remote.list(None).await.unwrap().schemas.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_keep_their_dots_and_their_case() {
    let pools = Pools::start(128 << 20).await;
    let session = pools.session(Way::Remote, true).await;
    run(&session, "create schema \"A.b\"").await;
    run(&session, "create table \"A.b\".\"C.d\" as select 7 as x").await;
    run(&session, "create table \"A.b.C.d\" as select 8 as x").await;
    assert_eq!(value(&session, "select x from \"A.b\".\"C.d\"").await, "7");
    assert_eq!(value(&session, "select x from \"A.b.C.d\"").await, "8");
    run(&session, "create view w as select x from \"A.b\".\"C.d\"").await;
    assert_eq!(value(&session, "select x from w").await, "7");
    refused(&session, "create schema information_schema", ErrorKind::Invalid, "reserved").await;
    refused(&session, "drop schema public cascade", ErrorKind::Invalid, "cannot be dropped").await;
    refused(
        &session,
        "create view i as select * from information_schema.tables",
        ErrorKind::Invalid,
        "elsewhere",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_two_tables_is_of_neither() {
    let pools = Pools::start(128 << 20).await;
    let session = pools.session(Way::Remote, true).await;
    run(&session, "create schema s").await;
    run(&session, "create table t as select 1 as a").await;
    run(&session, "create table s.t as select 2 as a").await;
    for sql in [
        "select t.a from s.t, t",
        "select T.* from t cross join s.t",
        "select 1 from public.t join s.t on t.a = 1",
        "select s.t.a from t, s.t",
        "select 1 from public.t, s.t where exists (select 1 from s.t u where u.a = t.a)",
    ] {
        refused(&session, sql, ErrorKind::Invalid, "t may be either of two tables").await;
    }
    for sql in [
        "select s.t.a from public.t, s.t",
        "select s.t.a from s.t cross join public.t",
        "select s.t.* from public.t, s.t where public.t.a = 1",
        "select t.a from s.t, t as u",
        "select t.a from s.t where exists (select 1 from t)",
    ] {
        assert_eq!(value(&session, sql).await.split(' ').next(), Some("2"), "{sql}");
    }
}
