//! Tests that each verb (kind of request in the table of rights) is refused to callers without the right, and that no
//! caller sees another tenant's data.

use super::*;
use crate::clock::SystemClock;
use crate::rights::{Reach, VERBS};
use crate::{Access, NodeConfig};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field};
use farpool_model::{
    Aggregate, AggregateFunction, CompareOp, ErrorKind, Literal, LoadMode, Output, SchemaName, Value,
};
use farpool_pipeline::Step;

/// Performs a verb on the table `name`. Returns an error if the node refuses it or finds no such table.
pub(crate) fn exercise(verb: Verb, caller: &Caller, name: &TableName) -> Result<()> {
    match verb {
        Verb::Describe => {
            let listed = caller.tables()?.iter().any(|table| table.name == *name);
            let described = caller.table(name, None);
            assert_eq!(listed, described.is_ok());
            described.map(drop)
        }
        Verb::Statistics => {
            let known = caller.known_statistics(name, &[0]).map(drop);
            assert_eq!(known.is_ok(), caller.statistics(name).is_ok());
            known
        }
        Verb::Prepare => {
            let (version, table) = caller.source(name)?;
            caller.prepare(&count(name), version, table).map(drop)
        }
        Verb::Execute => {
            let (version, table) = caller.source(name)?;
            let program = caller.prepare(&count(name), version, table)?;
            let run = caller.start(&program, None, Shape::Batches)?;
            while !matches!(run.step(&SystemClock::new())?, farpool_pipeline::Step::Done) {}
            assert_eq!(run.receipt().rows_scanned + run.receipt().rows_skipped, 3);
            Ok(())
        }
        Verb::Load => load(caller, name, LoadMode::Append),
        Verb::LoadOutcome => caller.load_outcome(LoadId(1), |_, _| {}),
        Verb::Alter => {
            let field = Arc::new(Field::new("note", DataType::Utf8View, true));
            caller.alter_table(name, &[TableChange::AddColumn(field)]).map(drop)
        }
        Verb::Change => {
            let (version, table) = caller.source(name)?;
            let program = Program::scan(name.clone(), &table.schema, &[0]);
            let program = caller.prepare(&program, version, table)?;
            let run = caller.start_change(&program)?;
            while !matches!(run.step(&SystemClock::new())?, farpool_pipeline::Step::Done) {}
            caller.publish_change(&program, &run, 3, None).map(drop)
        }
        Verb::Drop => caller.drop_table(name)?.wait(),
        Verb::CreateView => {
            let view = View::new(TableName::new("v").unwrap(), "select 1").unwrap();
            caller.create_view(view.clone(), true)?.wait()?;
            let kept = caller.relation(view.name(), None);
            assert_eq!(kept, Ok(Some(Relation::View(view))));
            // A view cannot have the name of a table of the same tenant; tables of other tenants do not matter.
            let taken = caller.create_view(View::new(name.clone(), "select 1").unwrap(), true);
            assert_eq!(taken.is_err(), caller.table(name, None).is_ok());
            caller.table(name, None).map(drop)
        }
        Verb::DropView => match caller.drop_view(name, None) {
            Err(error) if error.message.contains("is a table") => Ok(()),
            outcome => outcome?.wait(),
        },
        Verb::ChangeSchemas => {
            let schema = SchemaName::new("s").unwrap();
            caller.create_schema(&schema)?.wait()?;
            assert_eq!(caller.create_schema(&schema).unwrap_err().kind, ErrorKind::Exists);
            caller.drop_schema(&schema, false)?.wait()?;
            // Returns an error if `name` is a table of another tenant, as the other verbs do.
            caller.table(name, None).map(drop)
        }
        Verb::Status => caller.status().map(|status| {
            let others = status.tenants.iter().any(|t| t.tenant != caller.tenant().as_str());
            assert!(caller.right() == Right::Admin || !others, "others' state is shown to {caller:?}");
        }),
        Verb::DescribeOfAll => {
            let tables = caller.list(Some(&tenant("bob")))?.tables;
            assert!(tables.iter().any(|table| table.name.as_str() == "others"));
            Ok(())
        }
        Verb::DropOfAll => {
            let spare = TableName::new("spare").unwrap();
            load(&caller.node.owner(tenant("bob")), &spare, LoadMode::Create)?;
            let dropped = caller.drop_table_of(&tenant("bob"), &spare);
            // Drops the table for the next caller. This succeeds only if the call before was refused and has left the
            // table.
            let left = caller.node.owner(tenant("bob")).drop_table(&spare);
            assert_eq!(left.is_ok(), dropped.is_err());
            dropped?.wait()
        }
        Verb::Queries => caller.queries().map(drop),
        Verb::CancelQuery => match caller.cancel_query(1) {
            // A caller without a connection has no queries to cancel, so `NotFound` means that the right sufficed.
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        },
        Verb::Backup => {
            let (sender, receiver) = std::sync::mpsc::channel();
            caller.begin_backup(move |begun| sender.send(begun.map(drop)).unwrap())?;
            match receiver.recv().unwrap() {
                // The nodes of these tests have no data directory, so this error means that the right sufficed.
                Err(error) if error.message.contains("no data directory") => Ok(()),
                outcome => outcome,
            }
        }
        Verb::ReadKeys => caller.keys().map(drop),
        Verb::WriteKeys => {
            assert_eq!(caller.may_write_keys(), caller.check(verb).is_ok());
            caller.check(verb)
        }
        Verb::QueriesOfAll | Verb::CancelQueryOfAll => verb.check(caller.right()),
        Verb::StatusOfAll => {
            verb.check(caller.right())?;
            let status = caller.status()?;
            assert!(["ann", "bob"].iter().all(|name| status.tenants.iter().any(|t| t.tenant == *name)));
            Ok(())
        }
    }
}

fn count(name: &TableName) -> Program {
    let count = Aggregate {
        name: "n".into(),
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        filter: None,
        data_type: DataType::Int64,
    };
    let output = Output::Aggregate { keys: Vec::new(), aggregates: vec![count] };
    Program { table: name.clone(), version: None, filter: None, output, order: Vec::new(), limit: None }
}

pub(crate) fn load(caller: &Caller, name: &TableName, mode: LoadMode) -> Result<()> {
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let rows = RecordBatch::try_from_iter([("a", rows)]).unwrap();
    let mut load = caller.begin_load(name, &rows.schema(), mode.into(), None)?;
    load.push(&rows)?;
    load.commit().map(drop)
}

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

fn node() -> Arc<Node> {
    Node::start(NodeConfig { memory_bytes: 64 << 20, ..NodeConfig::default() }).unwrap()
}

#[test]
fn every_verb_takes_its_right_and_reaches_the_callers_own_tables_only() {
    let (own, others) = (TableName::new("own").unwrap(), TableName::new("others").unwrap());
    for (verb, least, reach) in VERBS {
        for right in Right::ALL {
            let node = node();
            load(&node.owner(tenant("ann")), &own, LoadMode::Create).unwrap();
            load(&node.owner(tenant("bob")), &others, LoadMode::Create).unwrap();
            let caller = Caller::new(node.clone(), tenant("ann"), right);
            let done = exercise(verb, &caller, &own);
            match right >= least {
                true => assert_eq!(done, Ok(()), "{verb:?} with {right:?}"),
                false => assert_eq!(done.unwrap_err().kind, ErrorKind::Denied, "{verb:?} with {right:?}"),
            }
            // With any right, verbs that name a table do not find another tenant's table, and this table must still
            // exist afterwards.
            let names_a_table = !matches!(
                verb,
                Verb::Status
                    | Verb::Queries
                    | Verb::CancelQuery
                    | Verb::LoadOutcome
                    | Verb::ReadKeys
                    | Verb::WriteKeys
            );
            if reach == Reach::Own && names_a_table && right >= least {
                let kind = exercise(verb, &caller, &others).unwrap_err().kind;
                assert_eq!(kind, ErrorKind::NotFound, "{verb:?}");
            }
            assert_eq!(node.owner(tenant("bob")).tables().unwrap().len(), 1, "{verb:?}");
        }
    }
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
