//! Tests of statements that sessions carry out themselves.

use super::*;

fn read(text: &str) -> Command {
    command(text).unwrap()
}

#[test]
fn transactions_are_read_with_their_modes() {
    let modes =
        |isolation: Option<&str>, read_only| Modes { isolation: isolation.map(str::to_string), read_only };
    assert_eq!(read("BEGIN"), Command::Begin(Modes::default()));
    assert_eq!(
        read("start transaction isolation level repeatable read, read only;"),
        Command::Begin(modes(Some("repeatable read"), Some(true)))
    );
    assert_eq!(read("begin work not deferrable"), Command::Begin(Modes::default()));
    assert_eq!(read("COMMIT TRANSACTION"), Command::Commit);
    assert_eq!(read("end"), Command::Commit);
    assert_eq!(read("rollback and no chain"), Command::Rollback);
    assert_eq!(read("ROLLBACK TO SAVEPOINT \"A b\""), Command::RollbackTo("A b".into()));
    assert_eq!(read("release s"), Command::Release("s".into()));
    assert_eq!(
        read("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
        Command::SetTransaction { modes: modes(None, Some(true)), of_session: true }
    );
    for wrong in
        ["begin isolation level chaos", "commit and chain", "savepoint", "start", "begin read", "end 7"]
    {
        assert!(command(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn settings_are_read_with_their_values() {
    let set = |name: &str, value: Option<&str>| Command::Set {
        name: name.into(),
        value: value.map(str::to_string),
        is_local: false,
    };
    assert_eq!(read("SET datestyle = ISO"), set("datestyle", Some("ISO")));
    assert_eq!(read("set search_path to \"$user\", public"), set("search_path", Some("\"$user\", public")));
    assert_eq!(read("set time zone 'Europe/Oslo'"), set("time zone", Some("Europe/Oslo")));
    assert_eq!(read("SET TIME ZONE LOCAL"), set("time zone", None));
    assert_eq!(read("set extra_float_digits = -3"), set("extra_float_digits", Some("-3")));
    assert_eq!(read("set app.name to 'it''s'"), set("app.name", Some("it's")));
    assert_eq!(read("set session work_mem = '1GB'"), set("work_mem", Some("1GB")));
    assert_eq!(read("set names 'utf8'"), set("names", Some("utf8")));
    assert_eq!(
        read("set local statement_timeout = 5"),
        Command::Set { name: "statement_timeout".into(), value: Some("5".into()), is_local: true }
    );
    assert_eq!(read("reset timezone"), set("timezone", None));
    assert_eq!(read("RESET ALL"), Command::ResetAll);
    assert_eq!(read("show transaction isolation level"), Command::Show("transaction isolation level".into()));
    assert_eq!(read("show all"), Command::ShowAll);
    assert_eq!(read("show tables"), Command::Engine(Kind::Rows));
    assert!(command("set x").is_err() && command("set x =").is_err() && command("set x = 1 2").is_err());
}

#[test]
fn cursors_and_prepared_statements_are_read() {
    assert_eq!(
        read("DECLARE c1 CURSOR FOR SELECT 1; "),
        Command::Declare { name: "c1".into(), is_binary: false, is_held: false, text: "SELECT 1".into() }
    );
    assert_eq!(
        read("declare \"C\" binary no scroll cursor with hold for\n select ';' -- x"),
        Command::Declare { name: "C".into(), is_binary: true, is_held: true, text: "select ';' -- x".into() }
    );
    let fetch = |name: &str, direction| Command::Fetch { name: name.into(), direction };
    assert_eq!(read("FETCH 100 FROM c1"), fetch("c1", Direction::Forward(100)));
    assert_eq!(read("fetch forward all in c"), fetch("c", Direction::All));
    assert_eq!(read("fetch c"), fetch("c", Direction::Forward(1)));
    assert_eq!(read("fetch next from c"), fetch("c", Direction::Forward(1)));
    assert_eq!(read("fetch first"), fetch("first", Direction::Forward(1)), "a cursor of that name");
    assert_eq!(read("move 5 c"), Command::Move { name: "c".into(), direction: Direction::Forward(5) });
    for back in ["fetch -1 from c", "fetch prior from c", "fetch backward 2 from c", "move absolute 0 c"] {
        assert_eq!(command(back).unwrap_err().code, code::FEATURE_NOT_SUPPORTED, "{back}");
    }
    assert_eq!(read("close all"), Command::Close(None));
    let values = ["1", "'a, b'", "f(1, 2)", "array[1,2]"].map(str::to_string).to_vec();
    assert_eq!(
        read("execute p(1, 'a, b', f(1, 2), array[1,2])"),
        Command::Execute { name: "p".into(), values }
    );
    assert_eq!(
        read("prepare p (int, numeric(5, 2)) as select $1"),
        Command::Prepare {
            name: "p".into(),
            types: ["int", "numeric(5, 2)"].map(str::to_string).to_vec(),
            text: "select $1".into(),
        }
    );
    assert_eq!(read("execute p"), Command::Execute { name: "p".into(), values: vec![] });
    assert_eq!(read("deallocate prepare all"), Command::Deallocate(None));
    assert!(command("execute p(1,,2)").is_err() && command("execute p(1").is_err());
}

#[test]
fn other_statements_are_the_engine_s() {
    for (text, expected) in [
        ("select 1", Kind::Rows),
        ("/* c */ with x as (select 1) select * from x", Kind::Rows),
        ("(select 1)", Kind::Rows),
        ("insert into t values (1)", Kind::Changes("INSERT 0")),
        ("DELETE FROM t", Kind::Changes("DELETE")),
        ("create or replace view v as select 1", Kind::Other("CREATE VIEW")),
        ("create table t (a int)", Kind::Other("CREATE TABLE")),
        ("create table t as select 1", Kind::CreateTableAs),
        ("drop table if exists t", Kind::Other("DROP TABLE")),
        ("explain select 1", Kind::Explain),
    ] {
        assert_eq!(read(text), Command::Engine(expected), "{text}");
    }
    for empty in ["", " ; ", "-- nothing"] {
        assert_eq!(read(empty), Command::Empty, "{empty:?}");
    }
}

#[test]
fn copies_are_read_with_their_options() {
    use farpool_postgres::copies::CopyFormat;
    let out = |text: &str| match read(text) {
        Command::CopyOut { query, options } => (query, options),
        other => panic!("{other:?}"),
    };
    let (query, options) =
        out("COPY public.\"T x\" (a, b) TO STDOUT WITH (FORMAT csv, HEADER, DELIMITER ';', NULL 'nil')");
    assert_eq!(query, "SELECT a, b FROM public.\"T x\"");
    assert_eq!((options.format, options.header, options.delimiter), (CopyFormat::Csv, true, b';'));
    assert_eq!((options.null.as_str(), options.quote, options.escape), ("nil", b'"', b'"'));
    let (query, options) = out("copy (select ')' from t where (a = 1)) to stdout (format binary)");
    assert_eq!((query.as_str(), options.format), ("select ')' from t where (a = 1)", CopyFormat::Binary));
    let (_, options) = out("copy t to stdout with csv header delimiter as '|'");
    assert_eq!((options.format, options.header, options.delimiter), (CopyFormat::Csv, true, b'|'));
    let Command::CopyIn { table, columns, options } = read("COPY s.t (a) FROM STDIN") else { panic!() };
    assert_eq!((table.join("."), columns.join(",")), ("s.t".into(), "a".into()));
    assert_eq!(options.format, CopyFormat::Text);
    let Command::CopyIn { options, .. } = read("copy t from stdin (format csv, delimiter E'\\t')") else {
        panic!()
    };
    assert_eq!(options.delimiter, b'\t');
    for refused in [
        "copy t to '/tmp/x'",
        "copy t from program 'ls'",
        "copy t from stdin (format xml)",
        "copy t to stdout (delimiter 'ab')",
        "copy t to stdout (force_quote *)",
        "copy t",
    ] {
        assert!(command(refused).is_err(), "{refused}");
    }
}
