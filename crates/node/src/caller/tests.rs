//! Tests of Callers: the rights of verbs, cancelled callers, the memory of a tenant, and what comes of a program.

pub(crate) mod exercise;
mod rights;

use super::*;
use crate::clock::SystemClock;
use crate::rights::{Reach, VERBS};
use crate::{Access, NodeConfig};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::DataType;
use exercise::{exercise, load};
use farpool_model::{CompareOp, ErrorKind, Literal, LoadMode, Value};
use farpool_pipeline::Step;

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

fn node() -> Arc<Node> {
    Node::start(NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() }).unwrap()
}

#[test]
fn a_caller_that_cancelled_gets_nothing_done() {
    let node = node();
    let name = TableName::new("t").unwrap();
    load(&node.owner(tenant("ann")), &name, LoadMode::Create).unwrap();
    let cancel = Cancel::new();
    let caller = node.owner(tenant("ann")).until(cancel.clone());
    assert_eq!(exercise(Verb::Execute, &caller, &name), Ok(()));
    cancel.set();
    for (verb, _, _) in VERBS.iter().filter(|(_, _, reach)| *reach == Reach::Own) {
        assert_eq!(exercise(*verb, &caller, &name).unwrap_err().kind, ErrorKind::Cancelled, "{verb:?}");
    }
    assert_eq!(node.owner(tenant("ann")).tables().unwrap().len(), 1);
}

#[test]
fn a_token_gives_its_tenant_and_its_right() {
    for right in Right::ALL {
        let access = Access::of_nobody().with_token("s3cret", tenant("ann"), right);
        let config = NodeConfig { memory_bytes: 64 << 20, access, ..NodeConfig::default() };
        let node = Node::start(config).unwrap();
        let caller = node.caller(Some("s3cret")).unwrap();
        assert_eq!((caller.tenant().as_str(), caller.right()), ("ann", right));
        assert_eq!(node.caller(None).unwrap_err().kind, ErrorKind::Denied);
    }
}

#[test]
fn a_tenant_keeps_to_the_memory_it_may_have_from_one_moment_to_the_next() {
    let node = node();
    let ann = node.owner(tenant("ann"));
    let [one, two] = ["one", "two"].map(|name| TableName::new(name).unwrap());
    let within = |pool_bytes, work_bytes| {
        let limits = TenantLimits {
            pool_bytes_max: Some(pool_bytes),
            work_bytes_max: Some(work_bytes),
            ..TenantLimits::default()
        };
        node.set_access(Access::of_everybody().with_limits(tenant("ann"), limits));
    };
    // Limits the tenant to less pool memory than one page, so that no table fits.
    within(1 << 20, 64 << 20);
    let full = load(&ann, &one, LoadMode::Create).unwrap_err();
    assert!(full.message.contains("quota"), "{full}");
    within(64 << 20, 64 << 20);
    load(&ann, &one, LoadMode::Create).unwrap();
    within(1 << 20, 1 << 10);
    let refused = ann.account().try_reserve(1 << 20).unwrap_err();
    assert!(refused.message.contains("the tenant has"), "{refused}");
    assert_eq!(ann.tables().unwrap().len(), 1, "what is there stays");
    load(&node.owner(tenant("bob")), &two, LoadMode::Create).unwrap();
    // A tenant without limits of its own has the limits of the node.
    node.set_access(Access::of_everybody());
    load(&ann, &two, LoadMode::Create).unwrap();
    drop(ann.account().try_reserve(1 << 20).unwrap());
}

#[test]
fn chunks_come_whatever_passes_the_filter_of_their_program() {
    let (caller, name) = (node().owner(TenantName::default()), TableName::new("t").unwrap());
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..10_000).map(|row| row * 2)));
    let rows = RecordBatch::try_from_iter([("v", values)]).unwrap();
    let mut loading = caller.begin_load(&name, &rows.schema(), LoadMode::Create.into(), None).unwrap();
    loading.push(&rows).unwrap();
    loading.commit().unwrap();
    let (version, table) = caller.source(&name).unwrap();
    let number = |value| Expr::Literal(Literal::new(Value::Int(value), DataType::Int64).unwrap());
    // No row passes this filter, but zone maps (minimum and maximum per row group) cannot exclude any row group.
    let filter = Expr::compare(CompareOp::Eq, Expr::Column(0), number(7_777));
    let program = Program { filter: Some(filter), ..Program::scan(name, &table.schema, &[0]) };
    let program = caller.prepare(&program, version, table).unwrap();
    let steps = |run: &Run| {
        let mut fetched = 0;
        loop {
            match run.step(&SystemClock::new()).unwrap() {
                Step::Fetched(_, group) => fetched += group.rows,
                Step::Done => return fetched,
                _ => {}
            }
        }
    };
    for skipped in [0, 0, 10_000] {
        let run = caller.start(&program, None, Shape::Batches).unwrap();
        steps(&run);
        assert_eq!(run.receipt().rows_skipped, skipped);
    }
    assert_eq!(steps(&caller.start_fetching(&program, &[0], vec![0]).unwrap()), 10_000);
}
