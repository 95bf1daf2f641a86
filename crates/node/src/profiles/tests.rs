//! Tests of profiles (statistics of a table's columns) at a node without worker threads: the test itself executes the
//! scheduler's steps, with a clock that makes each step compute one column.

#![expect(clippy::disallowed_methods, reason = "a test has threads of its own")]

use super::*;
use crate::{Access, Caller, Environment, Node, NodeConfig, TenantLimits};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use farpool_memory::{Reservation, WorkMemory};
use farpool_model::{ErrorKind, LoadMode, TableInfo, TableName, TenantName};
use farpool_pipeline::Attempt;
use farpool_pipeline::Class;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::yield_now;

/// A clock that advances by the maximum duration of a step each time it is read, so that a step ends after its first
/// column.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(limits::STEP_NS, SeqCst)
    }
    fn thread_cpu_ns(&self) -> u64 {
        self.now_ns()
    }
}

impl Ticking {
    /// Advances the clock far enough that rows loaded before count as old, because profiles of fresh rows are
    /// postponed.
    fn pass(&self) {
        self.0.fetch_add(10_000_000_000, SeqCst);
    }
}

fn node(weights: &[(&str, u32)]) -> (Arc<Node>, Arc<Ticking>) {
    node_within(limits::WORK_BYTES_DEFAULT, weights)
}

fn node_within(work_bytes: usize, weights: &[(&str, u32)]) -> (Arc<Node>, Arc<Ticking>) {
    let (clock, work) = (Arc::new(Ticking::default()), WorkMemory::new(work_bytes));
    let access = weights.iter().fold(Access::of_everybody(), |access, (name, weight)| {
        let limits = TenantLimits { weight: *weight, ..TenantLimits::default() };
        access.with_limits(TenantName::new(*name).unwrap(), limits)
    });
    let config = NodeConfig { memory_bytes: 256 << 20, work, access, ..NodeConfig::default() };
    let environment = Environment { clock: clock.clone(), background_threads: 0, ..Environment::of_system() };
    (Node::assemble(config, environment).unwrap(), clock)
}

fn caller(node: &Arc<Node>, tenant: &str) -> Caller {
    node.owner(TenantName::new(tenant).unwrap())
}

fn name(name: &str) -> TableName {
    TableName::new(name).unwrap()
}

fn load(caller: &Caller, table: &str, mode: LoadMode, columns: usize) {
    let column = |factor: usize| -> ArrayRef {
        Arc::new((0..1_000).map(|row| row * factor as i64).collect::<Int64Array>())
    };
    let columns = (1..=columns).map(|factor| (format!("c{factor}"), column(factor)));
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let mut load = caller.begin_load(&name(table), &rows.schema(), mode.into(), None).unwrap();
    load.push(&rows).unwrap();
    load.commit().unwrap();
}

fn info(caller: &Caller, table: &str) -> TableInfo {
    caller.table(&name(table), None).unwrap().unwrap()
}

fn is_profiled(caller: &Caller, table: &str) -> bool {
    info(caller, table).rows_profiled.is_none()
}

fn work(node: &Node, class: Class) -> bool {
    node.scheduler().try_work(class) == Attempt::Worked
}

/// Requests statistics of a table without blocking. The result is `None` until they have been computed.
fn ask(caller: &Caller, table: &str) -> Arc<Mutex<Option<Result<TableStatistics>>>> {
    let answer = Arc::new(Mutex::new(None));
    let to = answer.clone();
    let statistics = caller.await_statistics(&name(table)).unwrap();
    let runtime = Handle::try_current().ok();
    caller.submit_statistics(statistics, runtime, move |outcome| *to.lock() = Some(outcome));
    answer
}

#[test]
fn nobody_need_ask_for_a_profile_and_what_is_asked_for_goes_first() {
    let (node, clock) = node(&[]);
    let ann = caller(&node, "ann");
    load(&ann, "t", LoadMode::Create, 3);
    load(&ann, "u", LoadMode::Create, 3);
    clock.pass();
    assert!(!work(&node, Class::Foreground));
    let answer = ask(&ann, "u");
    while work(&node, Class::Foreground) {}
    let statistics = answer.lock().take().unwrap().unwrap();
    assert_eq!((statistics.table.rows_profiled, statistics.columns.len()), (None, 3));
    assert!(!is_profiled(&ann, "t"));
    while work(&node, Class::Background) {}
    assert!(is_profiled(&ann, "t"));
    assert_eq!(node.scheduler().running(), 0);
}

#[test]
fn profiles_of_a_tenant_are_made_one_after_the_other_and_rest_while_rows_come() {
    let (node, clock) = node(&[]);
    let ann = caller(&node, "ann");
    let tables = ["a", "b", "c"];
    for table in tables {
        load(&ann, table, LoadMode::Create, 3);
        assert!(!work(&node, Class::Background), "rows have just come");
    }
    clock.pass();
    let mut done = Vec::new();
    while work(&node, Class::Background) {
        let begun = tables.iter().filter(|table| info(&ann, table).rows_profiled == Some(1_000)).count();
        assert!(begun <= 1);
        done.push(tables.map(|table| is_profiled(&ann, table)));
    }
    done.dedup();
    assert_eq!(done, [[false; 3], [true, false, false], [true, true, false], [true; 3]]);
}

#[test]
fn tenants_share_the_background_by_weight() {
    let (node, clock) = node(&[("ann", 3)]);
    let (ann, bob) = (caller(&node, "ann"), caller(&node, "bob"));
    let tables: Vec<String> = (0..40).map(|table| format!("t{table}")).collect();
    for table in &tables {
        load(&ann, table, LoadMode::Create, 2);
        load(&bob, table, LoadMode::Create, 2);
    }
    clock.pass();
    let profiled = |caller| tables.iter().filter(|table| is_profiled(caller, table)).count();
    while profiled(&ann) < 30 {
        assert!(work(&node, Class::Background));
    }
    assert!(profiled(&bob).abs_diff(10) <= 1, "{}", profiled(&bob));
}

#[test]
fn requests_beyond_a_number_wait_for_their_turns_and_none_of_another_tenant_does() {
    let (node, clock) = node(&[]);
    let (ann, bob) = (caller(&node, "ann"), caller(&node, "bob"));
    let tables: Vec<String> = (0..=limits::PROFILES_AWAITED_MAX).map(|table| format!("t{table}")).collect();
    tables.iter().for_each(|table| load(&ann, table, LoadMode::Create, 20));
    load(&bob, "t", LoadMode::Create, 20);
    clock.pass();
    let cancels: Vec<Cancel> = tables.iter().map(|_| Cancel::new()).collect();
    let until = |(table, cancel): (&String, &Cancel)| ask(&ann.until(cancel.clone()), table);
    let answers: Vec<_> = tables.iter().zip(&cancels).map(until).collect();
    let of_bob = ask(&bob, "t");
    // Enough steps to begin all profiles, but not to finish one.
    (0..20).for_each(|_| assert!(work(&node, Class::Foreground)));
    let begun = |table: &String| info(&ann, table).rows_profiled != Some(0);
    let statistics = |table: &String| ann.known_statistics(&name(table), &[0]).unwrap();
    assert!(tables.iter().all(|table| statistics(table).columns[0].sketch.is_none() && !begun(table)));
    // The first request is cancelled, so that the last one, which waits for a turn, can begin before the others have
    // ended.
    cancels[0].set();
    ann.wake();
    while answers[0].lock().is_none() {
        assert!(work(&node, Class::Foreground));
    }
    assert_eq!(answers[0].lock().take().unwrap().unwrap_err().kind, ErrorKind::Cancelled);
    while work(&node, Class::Foreground) {}
    assert!(answers[1..].iter().chain([&of_bob]).all(|answer| answer.lock().take().unwrap().is_ok()));
    // The profile that the cancelled request had begun is completed as background work.
    assert!(!is_profiled(&ann, &tables[0]));
    while work(&node, Class::Background) {}
    assert!(is_profiled(&ann, &tables[0]));
    assert_eq!(node.scheduler().running(), 0);
}

#[test]
fn two_who_wait_for_the_same_profile_both_get_it() {
    let (node, clock) = node(&[]);
    let (one, other) = (caller(&node, "ann"), caller(&node, "ann"));
    load(&one, "t", LoadMode::Create, 5);
    load(&one, "t", LoadMode::Append, 5);
    clock.pass();
    let answers = [ask(&one, "t"), ask(&other, "t")];
    while work(&node, Class::Foreground) {}
    for answer in answers {
        assert_eq!(answer.lock().take().unwrap().unwrap().table.rows, 2_000);
    }
}

/// Reserves all the memory that `caller` could use.
fn take_all(caller: &Caller) -> Reservation {
    caller.account().try_reserve(caller.account().free()).unwrap()
}

/// Yields until other tasks that can continue, such as those that wait for memory, have run.
async fn others_go_on() {
    for _ in 0..10 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_a_profile_waits_for_its_memory_and_not_without_end() {
    let (node, clock) = node_within(limits::WORK_BYTES_MIN, &[]);
    let ann = caller(&node, "ann");
    load(&ann, "t", LoadMode::Create, 5);
    clock.pass();
    for in_vain in [true, false] {
        let others = take_all(&ann);
        let answer = ask(&ann, "t");
        while work(&node, Class::Foreground) {}
        others_go_on().await;
        assert!(node.work().is_short() && answer.lock().is_none() && !work(&node, Class::Foreground));
        if in_vain {
            tokio::time::advance(Duration::from_millis(limits::WORK_WAIT_MS_MAX + 1)).await;
            others_go_on().await;
        }
        drop(others);
        others_go_on().await;
        while work(&node, Class::Foreground) {}
        let outcome = answer.lock().take().unwrap();
        match outcome {
            Ok(statistics) => assert!(!in_vain && statistics.table.rows_profiled.is_none()),
            Err(error) => assert!(in_vain && error.message.contains("waited 30 s"), "{error:?}"),
        }
        assert!(!node.work().is_short());
    }
    while work(&node, Class::Background) {}
    assert_eq!(node.scheduler().running(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_memory_of_a_profile_and_goes_is_out_of_the_way() {
    let (node, clock) = node_within(limits::WORK_BYTES_MIN, &[]);
    let ann = caller(&node, "ann");
    load(&ann, "t", LoadMode::Create, 5);
    clock.pass();
    let others = take_all(&ann);
    let cancel = Cancel::new();
    let answer = ask(&ann.until(cancel.clone()), "t");
    while work(&node, Class::Foreground) {}
    others_go_on().await;
    assert!(node.work().is_short());
    cancel.set();
    ann.wake();
    while work(&node, Class::Foreground) {}
    others_go_on().await;
    assert!(!node.work().is_short());
    assert_eq!(answer.lock().take().unwrap().unwrap_err().kind, ErrorKind::Cancelled);
    drop(others);
}

#[test]
fn profiles_that_lack_memory_rest_and_keep_nobody_from_going_on() {
    let (node, clock) = node_within(limits::WORK_BYTES_MIN, &[]);
    let (ann, bob) = (caller(&node, "ann"), caller(&node, "bob"));
    for (of, table) in [(&ann, "a"), (&ann, "b"), (&bob, "c"), (&bob, "d")] {
        load(of, table, LoadMode::Create, 5);
    }
    clock.pass();
    // The first step begins one of the profiles, which gets memory.
    assert!(work(&node, Class::Background));
    let others = take_all(&ann);
    let rounds = (0..200).take_while(|_| work(&node, Class::Background)).count();
    assert!(rounds < 200, "where all lack memory, they rest");
    let made =
        || [(&ann, "a"), (&ann, "b"), (&bob, "c"), (&bob, "d")].map(|(of, table)| is_profiled(of, table));
    // The profile that has memory is completed, and its memory then suffices for the others, one after the other.
    for _ in 0..1000 {
        clock.pass();
        work(&node, Class::Background);
    }
    assert!(made().contains(&true), "{:?}", made());
    drop(others);
    for _ in 0..1000 {
        clock.pass();
        work(&node, Class::Background);
    }
    assert_eq!(made(), [true; 4]);
    assert!(!node.work().is_short());
    assert_eq!(node.scheduler().running(), 0);
}

#[test]
fn a_table_that_is_dropped_has_no_profile_made_but_for_who_waits() {
    let (node, clock) = node(&[]);
    let ann = caller(&node, "ann");
    for table in ["waited for", "not"] {
        load(&ann, table, LoadMode::Create, 5);
    }
    clock.pass();
    assert!(work(&node, Class::Background));
    let answer = ask(&ann, "waited for");
    ann.drop_table(&name("waited for")).unwrap().wait().unwrap();
    ann.drop_table(&name("not")).unwrap().wait().unwrap();
    while work(&node, Class::Foreground) {}
    assert_eq!(answer.lock().take().unwrap().unwrap().table.rows, 1_000);
    while work(&node, Class::Background) {}
    assert_eq!((node.status().memory_bytes_used, node.scheduler().running()), (0, 0));
}

#[test]
fn when_the_node_ends_who_waits_is_told() {
    let (node, clock) = node(&[]);
    let ann = caller(&node, "ann");
    load(&ann, "t", LoadMode::Create, 5);
    load(&ann, "u", LoadMode::Create, 5);
    clock.pass();
    let answer = ask(&ann, "t");
    assert!(work(&node, Class::Foreground) && work(&node, Class::Background));
    node.shutdown();
    assert_eq!(answer.lock().take().unwrap().unwrap_err().kind, ErrorKind::Unavailable);
    // A caller within the node's process can still compute the profile on its own thread.
    load(&ann, "v", LoadMode::Create, 5);
    assert_eq!(ann.statistics(&name("u")).unwrap().table.rows, 1_000);
    assert_eq!(node.scheduler().running(), 0);
}

/// Does steps until the profile of a table, which nobody has requested, is complete.
fn await_profile(caller: &Caller, table: &str) {
    for _ in 0..60_000 {
        if is_profiled(caller, table) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("there is no profile");
}

#[test]
fn threads_make_profiles_that_nobody_asks_for() {
    for workers in [0, 2] {
        let config = NodeConfig { memory_bytes: 256 << 20, workers, ..NodeConfig::default() };
        let node = Node::start(config).unwrap();
        let ann = caller(&node, "ann");
        for table in ["t", "u", "v"] {
            load(&ann, table, LoadMode::Create, 5);
        }
        ["t", "u", "v"].into_iter().for_each(|table| await_profile(&ann, table));
        node.shutdown();
    }
}

#[test]
fn workers_clients_and_those_who_drop_meet_over_the_same_tables() {
    let config = NodeConfig { memory_bytes: 256 << 20, workers: 2, ..NodeConfig::default() };
    let node = Node::start(config).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let answered = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..3 {
            let (node, asked, answered) = (&node, asked.clone(), answered.clone());
            scope.spawn(move || {
                let cancel = Cancel::new();
                let caller = caller(node, "ann").until(cancel.clone());
                for round in 0..30 {
                    let table = format!("t{}", (client + round) % 2);
                    load(&caller, &table, LoadMode::Replace, 1 + round % 3);
                    if let Ok(statistics) = caller.await_statistics(&name(&table)) {
                        asked.fetch_add(1, SeqCst);
                        let answered = answered.clone();
                        caller.submit_statistics(statistics, None, move |outcome| {
                            let is_fine = outcome.as_ref().map_or_else(
                                |error| error.kind == ErrorKind::Cancelled,
                                |statistics| statistics.columns.iter().all(|column| column.sketch.is_some()),
                            );
                            assert!(is_fine, "{outcome:?}");
                            answered.fetch_add(1, SeqCst);
                        });
                    }
                    if round % 4 == 3 {
                        drop(caller.drop_table(&name(&table)));
                    }
                }
                cancel.set();
                caller.wake();
            });
        }
    });
    let ann = caller(&node, "ann");
    for table in ann.tables().unwrap() {
        drop(ann.drop_table(&table.name));
    }
    for _ in 0..60_000 {
        let is_over = node.scheduler().running() == 0 && node.status().memory_bytes_used == 0;
        if is_over && answered.load(SeqCst) == asked.load(SeqCst) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} of {} were answered, {:?}", answered.load(SeqCst), asked.load(SeqCst), node.status());
}
