//! Fuzz body that runs an untrusted plan over a small table with columns of every type and encoding.
//!
//! There are no expected results. Instead, equivalent ways to run a plan must give the same result: a program (decoded
//! plan) that is prepared twice; one that runs in steps of one batch; the same rows split into other row groups, which
//! are encoded differently; a filter that is added later; a filter that is computed as a column, by the general
//! evaluator. Lookups of a plan are over the same table.

mod rows;
mod table;

use farpool_columns::Table;
use farpool_model::{
    Accumulation, Clock, ErrorKind, Expr, Facts, Lookup, LookupKind, NamedExpr, Output, Program, Result,
    TableName, Version,
};
use farpool_pipeline::{BoundProgram, Budget, Run, Step};
use farpool_wire::substrait::decode_program;
use rows::Rows;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use table::table_schema;
use table::{ID, cut, encrypted, whole};

/// Memory for groups, in bytes: a few sketches of each kind fit, many do not.
const GROUP_BYTES_MAX: usize = 16 << 20;

/// Maximal number of steps of a run, which has some thousand rows: each is a row group, a batch, a dictionary, or a
/// part of groups.
const STEPS_MAX: usize = 1 << 20;

/// Runs a plan in every way and compares the results.
pub fn prepare_and_run(data: &[u8]) {
    let schema_of = |_: &TableName| Ok(table_schema().clone());
    let Ok(program) = decode_program(data, &schema_of) else { return };
    if multiplies(&program) {
        return;
    }
    let Ok(bound) = bind(&program, whole()) else { return };
    let again = bind(&program, whole()).expect("it was prepared before");
    // Compared as text, because NaN does not equal itself.
    assert_eq!(format!("{:?}", again.prepared()), format!("{:?}", bound.prepared()));
    let effective = &bound.prepared().effective;
    let once = run(&bound, Pace::Standing, false);
    if bound.prepared().is_partial() || !has_one_result(&program) {
        // Which groups are returned in parts, and which rows of a lookup are within its limit, depends on the way in
        // which the plan is run, so that results are compared only for plans where all are.
        return drop(run(&bound, Pace::Racing, true));
    }
    let fails = may_fail(effective);
    agree(effective, fails, &once, &run(&again, Pace::Racing, false), "in small steps");
    agree(
        effective,
        fails,
        &once,
        &run(&bound, Pace::Racing, true),
        "in small steps, row groups as they lie",
    );
    for (table, how) in [(cut(), "in other row groups"), (encrypted(), "encrypted in memory")] {
        if let Ok(other) = bind(effective, table)
            && !other.prepared().is_partial()
            && other.prepared().is_exact()
        {
            agree(effective, fails, &once, &run(&other, Pace::Standing, false), how);
        }
    }
    if let Some(filter) = effective.filter.as_ref().filter(|_| effective.lookups.is_empty()) {
        added_later(effective, filter, &once);
        as_column(filter);
    }
}

/// Checks that a condition added for one run has the same effect as in the program.
fn added_later(program: &Program, filter: &Expr, once: &Result<Rows>) {
    let base = bind(&Program { filter: None, ..program.clone() }, whole()).expect("less of a sound program");
    let may_fail = Facts::of(filter, table_schema()).expect("a sound filter").may_fail;
    match base.narrowed(filter) {
        Ok(narrowed) if !base.prepared().is_partial() && base.prepared().is_exact() => {
            let fails = self::may_fail(program);
            agree(program, fails, once, &run(&narrowed, Pace::Standing, false), "narrowed");
        }
        Ok(narrowed) => drop(run(&narrowed, Pace::Standing, false)),
        Err(error) => assert!(may_fail || error.kind == ErrorKind::OverLimit, "{error}"),
    }
}

/// Checks that a filter passes the rows for which it is true when computed as a column.
fn as_column(filter: &Expr) {
    let id = NamedExpr::column(table_schema(), ID);
    let scan = Program::scan(TableName::new("items").expect("a name"), table_schema(), &[ID]);
    let filtered = Program { filter: Some(filter.clone()), ..scan.clone() };
    let computed = NamedExpr { name: "holds".to_string(), expr: filter.clone() };
    let computed = Program { output: Output::Rows(vec![id, computed]), ..scan };
    let (Ok(filtered), Ok(computed)) = (bind(&filtered, whole()), bind(&computed, whole())) else { return };
    let filtered = run(&filtered, Pace::Standing, false);
    let Ok(computed) = run(&computed, Pace::Standing, false) else {
        let may_fail = Facts::of(filter, table_schema()).expect("a sound filter").may_fail;
        return assert!(may_fail, "a filter that cannot fail does");
    };
    // The filter did not fail on any row when it was computed as a column.
    let filtered = filtered.expect("a filter that does not fail");
    assert_eq!(filtered.integers(0), computed.integers_where(0, 1), "rows that pass {filter:?}");
}

fn bind(program: &Program, table: &Arc<Table>) -> Result<BoundProgram> {
    let version = program.version.unwrap_or(Version(1));
    let budget = Budget { state_bytes_max: GROUP_BYTES_MAX, ..Budget::default() };
    let sides = program.lookups.iter().map(|lookup| match &lookup.given {
        Some(rows) => bind(&lookup.program, &table::given(rows, &lookup.table_schema)?).map(Arc::new),
        None => bind(&lookup.program, table).map(Arc::new),
    });
    let sides = sides.collect::<Result<Vec<_>>>()?;
    let bound = BoundProgram::prepare_joined(program, table.clone(), version, budget, sides);
    bound.inspect_err(|error| assert_ne!(error.kind, ErrorKind::Internal, "{error}"))
}

/// Returns whether lookups may give several rows for a row: with a few of them, there would be billions.
fn multiplies(program: &Program) -> bool {
    let is_unique = |lookup: &Lookup| match &lookup.program.output {
        Output::Rows(_) if lookup.given.is_some() => false,
        Output::Rows(columns) => lookup
            .keys
            .iter()
            .any(|key| columns.get(key.result).is_some_and(|column| column.expr == Expr::Column(ID))),
        Output::Aggregate { keys, .. } => keys.len() == 1 && lookup.keys.iter().any(|key| key.result == 0),
    };
    let adds_rows = |lookup: &Lookup| matches!(lookup.kind, LookupKind::Inner | LookupKind::Left);
    program
        .lookups
        .iter()
        .any(|lookup| multiplies(&lookup.program) || (adds_rows(lookup) && !is_unique(lookup)))
}

/// Returns whether the results of all lookups are the same each time.
fn has_one_result(program: &Program) -> bool {
    program.lookups.iter().all(|lookup| {
        let side = &lookup.program;
        side.limit.is_none() && matches!(side.output, Output::Rows(_)) && has_one_result(side)
    })
}

/// Returns whether a value, or a sum, may make the program fail.
fn may_fail(program: &Program) -> bool {
    // The programs and conditions of lookups may fail, too, and a scalar subquery with several rows does.
    if !program.lookups.is_empty() {
        return true;
    }
    let fails = |expr: &&Expr| Facts::of(expr, table_schema()).is_ok_and(|facts| facts.may_fail);
    // Groups with sums of floats, which depend on the order of rows, may pass a condition in one way only.
    program.having.is_some()
        || program.expressions().iter().any(fails)
        || matches!(&program.output, Output::Aggregate { aggregates, .. } if aggregates.iter().any(
            |a| !matches!(a.function.accumulation(), Accumulation::Count | Accumulation::Fold(_))))
}

/// Controls when the steps of a run end, by a simulated clock.
#[derive(Clone, Copy)]
enum Pace {
    /// The clock stands still: a step ends with its row group.
    Standing,
    /// The clock races: a step ends each time it reads the clock.
    Racing,
}

#[derive(Debug, Default)]
struct TestClock(AtomicU64, u64);

impl Clock for TestClock {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(self.1, Ordering::Relaxed)
    }

    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

/// Runs the program to completion and returns its rows. A panic, or a run that does not end, is a bug.
///
/// # Errors
/// An error that a value causes.
fn run(program: &BoundProgram, pace: Pace, ships: bool) -> Result<Rows> {
    let clock = match pace {
        Pace::Standing => TestClock::default(),
        Pace::Racing => TestClock(AtomicU64::new(0), 1 << 30),
    };
    let run = if ships { Run::start_shipping(program) } else { Run::start(program) }?;
    let mut rows = Rows::new(run.schema());
    for _ in 0..STEPS_MAX {
        match run.step(&clock) {
            Ok(Step::Batches(batches)) => batches.iter().for_each(|batch| rows.add(batch)),
            Ok(Step::Encoded(group) | Step::Fetched(_, group)) => rows.add_encoded(&group),
            Ok(Step::Worked) => {}
            Ok(Step::Busy) => panic!("a run waits for nobody"),
            Ok(Step::Done) => {
                assert_eq!(run.receipt().rows_returned, rows.count() as u64);
                return Ok(rows);
            }
            Err(error) => {
                assert_ne!(error.kind, ErrorKind::Internal, "{error}");
                return Err(error);
            }
        }
    }
    panic!("a run that does not end");
}

/// Checks that two ways gave the same result. A program that fails on some row may fail in one way only, since it is
/// undefined on which rows an expression is evaluated.
fn agree(program: &Program, may_fail: bool, one: &Result<Rows>, other: &Result<Rows>, way: &str) {
    match (one, other) {
        (Ok(one), Ok(other)) => one.assert_same(other, program, way),
        (one, other) => {
            assert!(may_fail, "{way}: {:?} and {:?}", one.as_ref().err(), other.as_ref().err());
        }
    }
}
