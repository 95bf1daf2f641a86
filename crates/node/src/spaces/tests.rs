//! Programs over spaces: what they read, of which moment, and what is refused.

use super::*;
use crate::{Node, NodeConfig, Shape};
use arrow_array::RecordBatch;
use arrow_schema::DataType;
use farpool_kv::resp::{Protocol, Replies};
use farpool_kv::{Args, Host, Moment, Refusal, Session};
use farpool_model::{CompareOp, ErrorKind, Expr, Literal, NamedExpr, Output, Value};
use farpool_pipeline::Step;

struct Nobody;

impl Host for Nobody {
    fn knows(&self, _: &Args<'_>) -> std::result::Result<bool, Refusal> {
        Ok(false)
    }

    fn run(&mut self, _: &Args<'_>, _: &mut Replies<'_>) -> std::result::Result<(), Refusal> {
        Ok(())
    }

    fn may_write(&self) -> bool {
        true
    }
}

fn command(caller: &Caller, text: &str) {
    let mut bytes = Vec::new();
    let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
    let args: Vec<&[u8]> = text.split('|').map(str::as_bytes).collect();
    let moment = Moment { now: caller.clock().unix_ms(), random: 1 };
    Session::default().execute(&caller.keys().unwrap(), &args, moment, &mut Nobody, &mut replies);
    assert!(!bytes.starts_with(b"-"), "{}", bytes.escape_ascii());
}

/// A node with a space of rows, `n` from 0 on in each.
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
        filter,
        output: Output::Rows([("id", 0), ("n", 1)].map(column).to_vec()),
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

/// Runs a program: the number of rows that leave, and of those that were looked at.
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
    // Another program of the same statement.
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
        caller.statistics(&name).map(drop).unwrap_err(),
        caller.alter_table(&name, &[]).map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind, ErrorKind::Invalid, "{error:?}");
        assert!(error.message.contains("space of keys"), "{error:?}");
    }
}

/// A program that sets `n` where it is 7.
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

#[test]
fn a_change_is_made_unless_its_keys_have_changed() {
    let caller = with_rows(20);
    let bound = prepared(&caller, &update("n"));
    command(&caller, "HSET|t:3|s|another key");
    change(&caller, &bound, 1).unwrap();
    let of = |n| prepared(&caller, &program(Some(is(1, n, DataType::Int32))));
    assert_eq!((run(&caller, &of(7)).unwrap().0, run(&caller, &of(70)).unwrap().0), (0, 1));
    // The key has changed since the program was prepared.
    command(&caller, "HSET|t:9|n|7");
    let bound = prepared(&caller, &update("n"));
    command(&caller, "HSET|t:9|s|this key");
    assert_eq!(change(&caller, &bound, 1).unwrap_err().kind, ErrorKind::Stale);
    assert_eq!(run(&caller, &of(7)).unwrap().0, 1);
    let of_key = prepared(&caller, &update("id"));
    assert_eq!(change(&caller, &of_key, 1).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn a_change_of_a_key_that_is_looked_up_is_made_unless_it_has_changed() {
    let caller = with_rows(20);
    let by_key = |value| Program { filter: Some(is(0, value, DataType::UInt64)), ..update("n") };
    let bound = prepared(&caller, &by_key(5));
    command(&caller, "HSET|t:5|n|6");
    assert_eq!(change(&caller, &bound, 1).unwrap_err().kind, ErrorKind::Stale);
    let bound = prepared(&caller, &by_key(5));
    change(&caller, &bound, 1).unwrap();
    assert_eq!(run(&caller, &prepared(&caller, &program(Some(is(1, 70, DataType::Int32))))).unwrap().0, 1);
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
