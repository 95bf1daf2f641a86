//! Tests of programs (SQL) over key spaces, namespaces of keys whose entries are read as rows: which rows they return,
//! as of which moment, and the errors of unsupported operations.

use super::*;
use crate::{Node, NodeConfig, Shape};
use arrow_array::RecordBatch;
use arrow_schema::DataType;
use farpool_disk::{Faults, SimulatedDirectory};
use farpool_keystore::{Fsync, SteppedKeys};
use farpool_kv::resp::{Protocol, Replies};
use farpool_kv::{NoHost, Session, TimeAndRandom};
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, CompareOp, ErrorKind, Expr, Literal, NamedExpr, Output,
    Pattern, Value,
};
use farpool_pipeline::Step;

fn command(caller: &Caller, text: &str) {
    let mut bytes = Vec::new();
    let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
    let args: Vec<&[u8]> = text.split('|').map(str::as_bytes).collect();
    let moment = TimeAndRandom { now: caller.clock().unix_ms(), random: 1 };
    Session::default().execute(&caller.keys().unwrap(), &args, moment, &mut NoHost, &mut replies);
    assert!(!bytes.starts_with(b"-"), "{}", bytes.escape_ascii());
}

/// Starts a node with a space of `count` rows (keys with hash-like values), whose column `n` counts from 0.
fn with_rows(count: u64) -> Caller {
    let node = Node::start(NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() }).unwrap();
    let caller = node.owner(TenantName::default());
    command(&caller, "FP.SPACE|CREATE|t|id u64, n i32, s utf8");
    for id in 0..count {
        command(&caller, &format!("HSET|t:{id}|n|{id}|s|text {id}"));
    }
    caller
}

fn program(filter: Option<Expr>) -> Program {
    let column = |(name, at): (&str, usize)| NamedExpr { name: name.to_string(), expr: Expr::Column(at) };
    Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter,
        output: Output::Rows([("id", 0), ("n", 1)].map(column).to_vec()),
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

fn is(column: usize, value: i128, data_type: DataType) -> Expr {
    let literal = Literal::new(Value::Int(value), data_type).unwrap();
    Expr::Compare(CompareOp::Eq, Box::new(Expr::Column(column)), Box::new(Expr::Literal(literal)))
}

fn prepared(caller: &Caller, program: &Program) -> farpool_pipeline::BoundProgram {
    let (version, table) = caller.source(&program.table).unwrap();
    caller.prepare(program, version, table).unwrap()
}

/// Runs a program; returns the number of rows returned and of rows scanned.
fn run(caller: &Caller, bound: &farpool_pipeline::BoundProgram) -> Result<(usize, u64)> {
    let run = caller.start(bound, None, Shape::Batches)?;
    let mut rows = 0;
    loop {
        match run.step(&**caller.clock())? {
            Step::Batches(batches) => rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
            Step::Done => return Ok((rows, run.receipt().rows_scanned)),
            _ => {}
        }
    }
}

#[test]
fn a_program_that_names_keys_reads_these_alone() {
    let caller = with_rows(1000);
    let all = run(&caller, &prepared(&caller, &program(None))).unwrap();
    assert_eq!(all, (1000, 1000));
    let of_key = |id| is(0, id, DataType::UInt64);
    let one = prepared(&caller, &program(Some(of_key(7))));
    assert_eq!(run(&caller, &one).unwrap(), (1, 1));
    // A condition on another column is checked as well.
    let both = Expr::And(vec![of_key(7), is(1, 8, DataType::Int32)]);
    assert_eq!(run(&caller, &prepared(&caller, &program(Some(both)))).unwrap().0, 0);
    let none = prepared(&caller, &program(Some(of_key(5000))));
    assert_eq!(run(&caller, &none).unwrap(), (0, 0));
    let either = Expr::Or(vec![of_key(7), is(1, 8, DataType::Int32)]);
    assert_eq!(run(&caller, &prepared(&caller, &program(Some(either)))).unwrap().0, 2);
}

#[test]
fn a_prepared_program_sees_its_moment_again_and_again() {
    let caller = with_rows(500);
    let bound = prepared(&caller, &program(None));
    command(&caller, "DEL|t:1|t:2|t:3");
    command(&caller, "HSET|t:777|n|1");
    for _ in 0..2 {
        assert_eq!(run(&caller, &bound).unwrap().0, 500);
    }
    assert_eq!(run(&caller, &prepared(&caller, &program(None))).unwrap().0, 498);
    // Another program of the same SQL statement reads the same version, so it does not see the later changes.
    let same = program(Some(is(1, 2, DataType::Int32)));
    let again = caller.prepare(&same, bound.prepared().version, bound.table().clone()).unwrap();
    assert_eq!(run(&caller, &again).unwrap().0, 1);
}

#[test]
fn what_tables_can_and_spaces_cannot_is_refused() {
    let caller = with_rows(3);
    let name = TableName::new("t").unwrap();
    let refused = [
        caller.drop_table(&name).map(drop).unwrap_err(),
        caller.drop_view(&name, None).map(drop).unwrap_err(),
        caller.statistics(&name).map(drop).unwrap_err(),
        caller.alter_table(&name, &[]).map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind, ErrorKind::Invalid, "{error:?}");
        assert!(error.message.contains("space of keys"), "{error:?}");
    }
}

/// Returns an UPDATE program that sets the column `name` to 70 in rows with `n = 7`.
fn update(name: &str) -> Program {
    let value = Expr::Literal(Literal::new(Value::Int(70), DataType::Int32).unwrap());
    let output = Output::Rows(vec![NamedExpr { name: name.to_string(), expr: value }]);
    Program { output, ..program(Some(is(1, 7, DataType::Int32))) }
}

fn change(caller: &Caller, bound: &farpool_pipeline::BoundProgram, rows: u64) -> Result<TableInfo> {
    let run = caller.start_change(bound)?;
    while !matches!(run.step(&**caller.clock())?, Step::Done) {}
    caller.publish_change(bound, &run, rows, None)?.wait()
}

/// Returns an UPDATE program that adds 1 to `n` in rows with `s = text`.
fn add(text: &str) -> Program {
    let one = Expr::Literal(Literal::new(Value::Int(1), DataType::Int32).unwrap());
    let sum = Expr::Arithmetic(ArithmeticOp::Add, Box::new(Expr::Column(1)), Box::new(one));
    let output = Output::Rows(vec![NamedExpr { name: "n".to_string(), expr: sum }]);
    let text = Literal::new(Value::Text(text.to_string()), DataType::Utf8View).unwrap();
    let is_text = Expr::Compare(CompareOp::Eq, Box::new(Expr::Column(2)), Box::new(Expr::Literal(text)));
    Program { output, ..program(Some(is_text)) }
}

/// Clients change rows between the moment that an UPDATE reads and the moment at which it writes.
#[test]
fn rows_that_have_changed_since_are_computed_again() {
    let caller = with_rows(0);
    (0..20).for_each(|id| command(&caller, &format!("HSET|t:{id}|n|{id}|s|x")));
    let bound = prepared(&caller, &add("x"));
    for id in 5..15 {
        command(&caller, &format!("HINCRBY|t:{id}|n|100"));
    }
    command(&caller, "HSET|t:30|n|7|s|x");
    change(&caller, &bound, 20).unwrap();
    let count =
        |n: i128| run(&caller, &prepared(&caller, &program(Some(is(1, n, DataType::Int32))))).unwrap().0;
    for id in 0..20 {
        let expected = if (5..15).contains(&id) { id + 101 } else { id + 1 };
        assert!(count(expected) > 0, "row {id} is {expected}");
    }
    // A row that matches the condition only since a change after the statement's moment is not updated.
    assert_eq!(count(7), 1);
    // If a row no longer matches the condition, or was deleted, the statement fails with `Stale`, so that it is planned
    // again, and changes nothing.
    for gone in ["HSET|t:3|s|y", "DEL|t:3"] {
        command(&caller, "HSET|t:3|s|x|n|1000");
        let bound = prepared(&caller, &add("x"));
        command(&caller, gone);
        assert_eq!(change(&caller, &bound, 21).unwrap_err().kind, ErrorKind::Stale);
        assert_eq!(count(1001), 0);
    }
    // A DELETE of rows that have changed since is computed again in the same way.
    let removal = Program { output: Output::Rows(Vec::new()), ..add("x") };
    let bound = prepared(&caller, &removal);
    command(&caller, "HINCRBY|t:4|n|1");
    change(&caller, &bound, 20).unwrap();
    assert_eq!(run(&caller, &prepared(&caller, &add("x"))).unwrap().0, 0);
}

#[test]
fn a_change_is_made_unless_its_keys_do_not_pass_any_more() {
    let caller = with_rows(20);
    let bound = prepared(&caller, &update("n"));
    command(&caller, "HSET|t:3|s|another key");
    change(&caller, &bound, 1).unwrap();
    let of = |n| prepared(&caller, &program(Some(is(1, n, DataType::Int32))));
    assert_eq!((run(&caller, &of(7)).unwrap().0, run(&caller, &of(70)).unwrap().0), (0, 1));
    // The key has changed since the program was prepared.
    command(&caller, "HSET|t:9|n|7");
    let bound = prepared(&caller, &update("n"));
    command(&caller, "HSET|t:9|n|8");
    assert_eq!(change(&caller, &bound, 1).unwrap_err().kind, ErrorKind::Stale);
    command(&caller, "HSET|t:9|n|7");
    let bound = prepared(&caller, &update("n"));
    command(&caller, "HSET|t:9|s|this key");
    change(&caller, &bound, 1).unwrap();
    command(&caller, "HSET|t:9|n|7");
    let of_key = prepared(&caller, &update("id"));
    assert_eq!(change(&caller, &of_key, 1).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn a_change_of_a_key_that_is_looked_up_is_made_unless_it_is_gone() {
    let caller = with_rows(20);
    let by_key = |value| Program { filter: Some(is(0, value, DataType::UInt64)), ..update("n") };
    let bound = prepared(&caller, &by_key(5));
    command(&caller, "HSET|t:5|n|6");
    change(&caller, &bound, 1).unwrap();
    assert_eq!(run(&caller, &prepared(&caller, &program(Some(is(1, 70, DataType::Int32))))).unwrap().0, 1);
    let bound = prepared(&caller, &by_key(5));
    command(&caller, "DEL|t:5");
    assert_eq!(change(&caller, &bound, 1).unwrap_err().kind, ErrorKind::Stale);
}

#[test]
fn a_space_that_compresses_its_values_is_read_and_changed_as_any_other() {
    for codec in ["lz4", "deflate", "fsst"] {
        let caller = with_rows(0);
        command(&caller, "FP.SPACE|DROP|t");
        command(&caller, &format!("FP.SPACE|CREATE|t|id u64, n i32, s utf8|COMPRESSION|{codec}"));
        let plain = "a text that says the same again: ".repeat(9);
        for id in 0..600 {
            command(&caller, &format!("HSET|t:{id}|n|{id}|s|{plain}{id}"));
        }
        let keys = caller.keys().unwrap();
        while keys.tidy(caller.clock().unix_ms()) {}
        let taken = caller.space_info(&TableName::new("t").unwrap()).unwrap().bytes_encoded;
        assert!(taken < 600 * plain.len() as u64, "{codec}: {taken}");
        assert_eq!(run(&caller, &prepared(&caller, &program(None))).unwrap(), (600, 600));
        let text = Literal::new(Value::Text(format!("{plain}7")), DataType::Utf8View).unwrap();
        let of_text = Expr::Compare(CompareOp::Eq, Box::new(Expr::Column(2)), Box::new(Expr::Literal(text)));
        assert_eq!(run(&caller, &prepared(&caller, &program(Some(of_text)))).unwrap().0, 1);
        assert_eq!(
            run(&caller, &prepared(&caller, &program(Some(is(0, 7, DataType::UInt64))))).unwrap(),
            (1, 1)
        );
        change(&caller, &prepared(&caller, &update("n")), 1).unwrap();
        let by_key = Program { filter: Some(is(0, 5, DataType::UInt64)), ..update("n") };
        change(&caller, &prepared(&caller, &by_key), 1).unwrap();
        let of_new = prepared(&caller, &program(Some(is(1, 70, DataType::Int32))));
        assert_eq!(run(&caller, &of_new).unwrap().0, 3);
    }
}

/// The reference implementation: rows of a space that are all copied, and not filtered in place before that.
#[derive(Debug)]
struct Unfiltered(Arc<dyn LiveRows>);

impl LiveRows for Unfiltered {
    fn row_group(&self, place: usize, columns: &[usize]) -> Result<LiveGroup> {
        self.0.row_group(place, columns)
    }
}

/// Executes a program with filtering in place, and with the reference implementation [`Unfiltered`]. Returns for both
/// the rows, as sorted text, and the numbers of rows scanned and skipped.
fn rows_of(caller: &Caller, program: &Program) -> [(Vec<String>, u64, u64); 2] {
    let bound = prepared(caller, program);
    let rows = bound.table().live_rows().unwrap().clone();
    let any: &dyn Any = &*rows;
    let space = any.downcast_ref::<SpaceRows>().unwrap();
    let schema = &space.space.schema;
    let RowSource::Cut(cut) = &space.what else { panic!("a cut was wanted") };
    let parts = cut.parts.iter().map(|part| plain_part(schema, part.entries(), part.bytes()));
    let parts: Vec<LiveGroupBounds> = parts.collect();
    let table = Arc::new(Table::live(schema.clone(), &parts, Arc::new(Unfiltered(rows.clone()))));
    // Changes after the moment that the program reads, which must not affect the rows.
    command(caller, "DEL|t:3|t:30|t:300");
    command(caller, "HSET|t:5|n|77|s|text 12");
    let twin = caller.prepare(program, Version(0), table).unwrap();
    [bound, twin].map(|bound| {
        let run = caller.start(&bound, None, Shape::Batches).unwrap();
        let mut rows = Vec::new();
        loop {
            match run.step(&**caller.clock()).unwrap() {
                Step::Batches(batches) => {
                    for batch in batches {
                        let text = |row: usize| format!("{:?}", batch.slice(row, 1).columns());
                        rows.extend((0..batch.num_rows()).map(text));
                    }
                }
                Step::Done => break,
                _ => {}
            }
        }
        rows.sort();
        (rows, run.receipt().rows_scanned, run.receipt().rows_skipped)
    })
}

#[test]
fn programs_give_the_same_whether_rows_are_judged_where_they_lie_or_not() {
    let caller = with_rows(3000);
    command(&caller, "HSET|t:9000|s|no number");
    command(&caller, "HSET|t:9001|n|12");
    let int = |op, value| {
        let literal = Literal::new(Value::Int(value), DataType::Int32).unwrap();
        Expr::compare(op, Expr::Column(1), Expr::Literal(literal))
    };
    let like = |pattern: &str| Expr::Like {
        value: Box::new(Expr::Column(2)),
        pattern: pattern.to_string(),
        case_insensitive: false,
    };
    let regex = Expr::Regex {
        value: Box::new(Expr::Column(2)),
        pattern: farpool_model::Pattern::new("1.*2", false).unwrap(),
    };
    let id = |op, value| {
        let literal = Literal::new(Value::Int(value), DataType::UInt64).unwrap();
        Expr::compare(op, Expr::Column(0), Expr::Literal(literal))
    };
    let filters = [
        int(CompareOp::Lt, 40),
        int(CompareOp::Lt, 0),
        int(CompareOp::GtEq, 0),
        like("%12%"),
        Expr::not(like("%1%")),
        Expr::IsNull(Box::new(Expr::Column(1))),
        Expr::Or(vec![int(CompareOp::Eq, 7), like("text 29_9")]),
        Expr::And(vec![int(CompareOp::Gt, 100), regex.clone()]),
        Expr::Or(vec![int(CompareOp::Gt, 2990), regex]),
        Expr::And(vec![like("text 1%"), id(CompareOp::Lt, 1500)]),
        Expr::not(Expr::Or(vec![int(CompareOp::NotEq, 12), like("%3")])),
    ];
    let of = |aggregates: Vec<Aggregate>| Output::Aggregate { keys: Vec::new(), aggregates };
    let aggregate = |function, arguments| Aggregate {
        name: "a".to_string(),
        function,
        arguments,
        filter: None,
        data_type: DataType::Int64,
    };
    let count = aggregate(AggregateFunction::Count, Vec::new());
    let sum = aggregate(AggregateFunction::Sum, vec![Expr::Column(1)]);
    let columns = [2, 0].map(|at| NamedExpr { name: format!("c{at}"), expr: Expr::Column(at) });
    for filter in filters {
        let outputs = [
            (Output::Rows(columns.to_vec()), None),
            (Output::Rows(vec![]), None),
            (of(vec![count.clone()]), None),
            (of(vec![sum.clone()]), None),
            (Output::Rows(columns[..1].to_vec()), Some(5)),
        ];
        for (output, limit) in outputs {
            let program = Program { output, limit, ..program(Some(filter.clone())) };
            let [(rows, scanned, skipped), (expected, scanned_plain, skipped_plain)] =
                rows_of(&caller, &program);
            assert_eq!(scanned + skipped, scanned_plain + skipped_plain, "{program:?}");
            match limit {
                None => {
                    assert_eq!(rows, expected, "{program:?}");
                    // Rows that filtering in place has dropped count as scanned. The reference may skip more rows, by
                    // the minimum and maximum values of copied row groups.
                    assert!(scanned >= scanned_plain, "{scanned} of {scanned_plain} in {program:?}");
                }
                Some(_) => assert_eq!(rows.len(), expected.len(), "{program:?}"),
            }
            command(&caller, "HSET|t:3|n|3|s|text 3");
            command(&caller, "HSET|t:30|n|30|s|text 30");
        }
    }
}

#[test]
fn a_value_that_is_no_text_is_an_error_where_its_row_may_pass() {
    let node = Node::start(NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() }).unwrap();
    let caller = node.owner(TenantName::default());
    command(&caller, "SET|a|text");
    let keys = caller.keys().unwrap();
    let mut bytes = Vec::new();
    let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
    let moment = TimeAndRandom { now: caller.clock().unix_ms(), random: 1 };
    Session::default().execute(&keys, &[b"SET", b"b", b"no \xff text"], moment, &mut NoHost, &mut replies);
    let like = |pattern: &str| Expr::Like {
        value: Box::new(Expr::Column(1)),
        pattern: pattern.to_string(),
        case_insensitive: false,
    };
    let of = |filter, columns: &[usize]| {
        let column = |at: &usize| NamedExpr { name: format!("c{at}"), expr: Expr::Column(*at) };
        let output = Output::Rows(columns.iter().map(column).collect());
        let table = TableName::new("default").unwrap();
        let program = Program { table, output, ..program(Some(filter)) };
        run(&caller, &prepared(&caller, &program))
    };
    // The row with the invalid value does not match the pattern and is dropped in place, so its value is not examined
    // further.
    assert_eq!(of(like("te%"), &[0, 1]).unwrap(), (1, 2));
    for columns in [&[0, 1][..], &[0]] {
        assert_eq!(of(like("%text"), columns).unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(of(Expr::not(like("x%")), columns).unwrap_err().kind, ErrorKind::Invalid);
    }
}

#[test]
fn large_conditions_are_not_kept_behind_their_command() {
    let caller = with_rows(1);
    let (keys, mut last) = (caller.keys().unwrap(), LastCondition::default());
    let mut is_kept = |text: &str| {
        let condition =
            Expr::Regex { value: Box::new(Expr::Column(2)), pattern: Pattern::new(text, false).unwrap() };
        let spaces = keys.spaces();
        last.judge((&caller, &keys), (&condition, spaces.named("t")), &[], 0).unwrap();
        last.end_command();
        last.is_some()
    };
    assert!(is_kept("^text [0-9]+$"));
    assert!(!is_kept(r"\w{30}"));
}

/// Log records become durable only when the test calls `log.write()`.
#[test]
fn no_statement_tells_of_a_change_that_is_not_durable() {
    let caller = with_rows(50);
    let keyspaces = caller.node().keyspaces();
    let disk = SimulatedDirectory::new();
    let log = SteppedKeys::open(keyspaces, disk.clone(), Fsync::Always, 4 << 20).unwrap();
    let waits = |run: &farpool_pipeline::Run| {
        (0..20).all(|_| !matches!(run.step(&**caller.clock()).unwrap(), Step::Batches(_) | Step::Done))
    };
    let rows = |run: &farpool_pipeline::Run| {
        let mut rows = 0;
        loop {
            match run.step(&**caller.clock()).unwrap() {
                Step::Batches(batches) => rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
                Step::Done => return rows,
                _ => {}
            }
        }
    };
    // No log record has changed a key yet, so the rows wait for none.
    assert_eq!(run(&caller, &prepared(&caller, &program(None))).unwrap().0, 50);
    let programs = [
        program(None),
        program(Some(is(1, 7, DataType::Int32))),
        program(Some(is(0, 7, DataType::UInt64))),
        program(Some(is(0, 700, DataType::UInt64))),
    ];
    for (change, expected) in [("HSET|t:50|n|7", [51, 2, 1, 0]), ("FLUSHALL", [0; 4])] {
        command(&caller, change);
        let bounds = programs.each_ref().map(|program| prepared(&caller, program));
        let runs = bounds.each_ref().map(|bound| caller.start(bound, None, Shape::Batches).unwrap());
        assert!(runs.iter().all(|run| waits(run)), "{change}");
        log.write();
        assert_eq!(runs.each_ref().map(|run| rows(run)), expected, "{change}");
    }
    // If the disk fails, rows that depend on the unwritten record are not returned at all.
    command(&caller, "HSET|t:1|n|1");
    let bound = prepared(&caller, &program(None));
    let run = caller.start(&bound, None, Shape::Batches).unwrap();
    disk.set_faults(Faults { fails_after: Some(0), ..Faults::default() });
    log.write();
    let told = (0..20).find_map(|_| run.step(&**caller.clock()).err());
    assert_eq!(told.map(|error| error.kind), Some(ErrorKind::Unavailable));
}
