//! Tests random changes, merges, checkpoints, crashes and disk failures against a model of the expected tables.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Put {
        table: u8,
        rows: u32,
        replaces: bool,
    },
    Append {
        table: u8,
        rows: u32,
    },
    Change {
        table: u8,
        removes: bool,
    },
    Alter {
        table: u8,
        to: u8,
        adds: bool,
    },
    Drop(u8),
    View {
        view: u8,
        drops: bool,
    },
    Schema {
        drops: bool,
        cascade: bool,
    },
    Merge,
    Checkpoint,
    Compact,
    /// Evicts values, as a shortage of memory does.
    Evict,
    /// Writes the durability mark of the log (the number of durable records).
    Mark,
    Crash(u64),
    Close,
    /// Lets the disk fail after `after` calls, followed by a loss of power.
    Fail {
        after: u64,
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let rows = prop_oneof![6 => 1..40_u32, 1 => 60_000..140_000_u32];
    prop_oneof![
        3 => (0..4_u8, rows.clone(), any::<bool>())
            .prop_map(|(table, rows, replaces)| Step::Put { table, rows, replaces }),
        10 => (0..4_u8, rows).prop_map(|(table, rows)| Step::Append { table, rows }),
        4 => (0..4_u8, any::<bool>()).prop_map(|(table, removes)| Step::Change { table, removes }),
        3 => (0..4_u8, 0..4_u8, any::<bool>()).prop_map(|(table, to, adds)| Step::Alter { table, to, adds }),
        1 => (0..4_u8).prop_map(Step::Drop),
        1 => (4..6_u8, any::<bool>()).prop_map(|(view, drops)| Step::View { view, drops }),
        2 => (prop::bool::weighted(0.2), any::<bool>())
            .prop_map(|(drops, cascade)| Step::Schema { drops, cascade }),
        3 => Just(Step::Merge),
        2 => Just(Step::Checkpoint),
        2 => Just(Step::Compact),
        3 => Just(Step::Evict),
        3 => Just(Step::Mark),
        2 => any::<u64>().prop_map(Step::Crash),
        1 => Just(Step::Close),
        2 => (0..12_u64, any::<u64>()).prop_map(|(after, seed)| Step::Fail { after, seed }),
    ]
}

impl Bench {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Put { table, rows, replaces } => {
                let (table, mode) =
                    (named(*table), if *replaces { LoadMode::Replace } else { LoadMode::Create });
                let rows = 0..i64::from(*rows);
                match self.load(&table, mode, batch(rows.clone()), None) {
                    Ok(info) => {
                        self.newest = info.version.0;
                        self.tables.insert(table, rows.map(Some).collect());
                    }
                    Err(error) => {
                        let is_taken = error.kind == ErrorKind::Exists && self.tables.contains_key(&table);
                        assert!(is_taken || self.lacks_schema(&table, &error), "{error}");
                    }
                }
            }
            Step::Append { table, rows } => {
                let table = named(*table);
                let rows = 0..i64::from(*rows);
                match self.load(&table, LoadMode::Append, batch(rows.clone()), None) {
                    Ok(info) => {
                        self.newest = info.version.0;
                        self.tables.get_mut(&table).unwrap().extend(rows.map(Some));
                    }
                    // This error is expected if the table does not exist or has other columns.
                    Err(error) => {
                        assert!([ErrorKind::NotFound, ErrorKind::Invalid].contains(&error.kind), "{error}")
                    }
                }
            }
            Step::Change { table, removes } => {
                if let Err(error) = self.change(&named(*table), *removes) {
                    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
                }
            }
            Step::Alter { table, to, adds } => self.alter(&named(*table), &named(*to), *adds),
            Step::Drop(table) => match self.catalog.drop_table(&tenant(), &named(*table)) {
                Ok(made) => {
                    made.wait().unwrap();
                    self.tables.remove(&named(*table)).unwrap();
                }
                Err(error) => assert_eq!(error.kind, ErrorKind::NotFound, "{error}"),
            },
            Step::View { view, drops: true } => match self.catalog.drop_view(&tenant(), &named(*view)) {
                Ok(made) => {
                    made.wait().unwrap();
                    self.views.remove(&named(*view)).unwrap();
                }
                Err(error) => assert_eq!(error.kind, ErrorKind::NotFound, "{error}"),
            },
            Step::View { view, drops: false } => {
                let made = View::new(named(*view), "select 1").unwrap();
                match self.catalog.create_view(&tenant(), made, true) {
                    Ok(made) => {
                        made.wait().unwrap();
                        self.views.insert(named(*view), "select 1".to_string());
                    }
                    Err(error) => assert!(self.lacks_schema(&named(*view), &error), "{error}"),
                }
            }
            Step::Schema { drops: false, .. } => match self.catalog.create_schema(&tenant(), &schema()) {
                Ok(made) => {
                    made.wait().unwrap();
                    assert!(self.schemas.insert(schema()));
                }
                Err(error) => {
                    assert!(error.kind == ErrorKind::Exists && self.schemas.contains(&schema()), "{error}");
                }
            },
            Step::Schema { drops: true, cascade } => self.drop_schema(*cascade),
            Step::Merge => self.background.run(),
            Step::Checkpoint => self.catalog.checkpoint().unwrap(),
            Step::Compact => self.catalog.compact().unwrap(),
            Step::Evict => {
                let durable = self.catalog.durable.get().unwrap();
                durable.reads.cache.reclaim(None, limits::PAGE_BYTES);
            }
            Step::Mark => self.mark(),
            Step::Crash(seed) => drop(self.again(Some(*seed))),
            Step::Close => {
                let recovery = self.again(None);
                assert_eq!((recovery.records, recovery.dropped), (0, None), "a close makes a checkpoint");
            }
            Step::Fail { after, seed } => self.fail(*after, *seed),
        }
    }

    fn lacks_schema(&self, table: &TableName, error: &Error) -> bool {
        let lacks = !table.is_public() && !self.schemas.contains(&table.schema());
        lacks && error.kind == ErrorKind::NotFound
    }

    fn drop_schema(&mut self, cascade: bool) {
        let is_inside = |name: &TableName| name.schema() == schema();
        let is_empty = !self.tables.keys().chain(self.views.keys()).any(is_inside);
        match self.catalog.drop_schema(&tenant(), &schema(), cascade) {
            Ok(made) => {
                made.wait().unwrap();
                assert!(self.schemas.remove(&schema()) && (cascade || is_empty));
                self.tables.retain(|name, _| !is_inside(name));
                self.views.retain(|name, _| !is_inside(name));
            }
            Err(error) if error.kind == ErrorKind::NotFound => assert!(!self.schemas.contains(&schema())),
            Err(error) => {
                assert!(error.kind == ErrorKind::Invalid && !cascade && !is_empty, "{error}");
            }
        }
    }

    pub(super) fn alter(&mut self, table: &TableName, to: &TableName, adds: bool) {
        let field = Arc::new(arrow_schema::Field::new("more", arrow_schema::DataType::Date32, true));
        let mut changes = vec![];
        if adds {
            changes.push(TableChange::AddColumn(field));
        }
        if table != to {
            changes.push(TableChange::Rename(to.clone()));
        }
        match self.catalog.alter_table(&tenant(), table, &changes) {
            Ok(made) => {
                self.newest = made.wait().unwrap().version.0;
                let values = self.tables.remove(table).unwrap();
                self.tables.insert(to.clone(), values);
            }
            // This error is expected if the table does not exist, or the new name or column already does.
            Err(error) => {
                let expected = [ErrorKind::NotFound, ErrorKind::Exists, ErrorKind::Invalid];
                assert!(expected.contains(&error.kind), "{error}");
            }
        }
    }

    /// Appends rows while the disk fails. Afterwards the table has all of these rows or none, and all of them if the
    /// append succeeded.
    fn fail(&mut self, after: u64, seed: u64) {
        let table = named(0);
        self.directory.set_faults(Faults { fails_after: Some(after), ..Faults::default() });
        let mut before = self.tables.get(&table).cloned();
        let mut with = before.clone();
        for i in 0..8 {
            let rows = i..i + 3;
            if self.load(&table, LoadMode::Append, batch(rows.clone()), None).is_ok() {
                with.as_mut().unwrap().extend(rows.map(Some));
                before.clone_from(&with);
            } else {
                if let Some(with) = &mut with {
                    with.extend(rows.map(Some));
                }
                break;
            }
        }
        let _ = if seed.is_multiple_of(2) { self.catalog.checkpoint() } else { self.catalog.compact() };
        self.again(Some(seed));
        let found = self.catalog.get(&tenant(), &table).ok().map(|(_, table)| values(&table));
        assert!(found == before || found == with, "neither the rows before nor those with an append");
        if let Some(found) = found {
            self.tables.insert(table, found);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_acknowledged_is_there_again(
        steps in prop::collection::vec(step(), 1..60),
        is_encrypted in any::<bool>(),
    ) {
        let mut bench = Bench::of_origin(encrypted::new_directory(is_encrypted), 1);
        let mut replica = Replica::new(&bench.directory);
        for step in &steps {
            bench.step(step);
            bench.check();
            replica.follow(&bench);
            match step {
                Step::Crash(seed) if seed % 2 == 0 => replica.crash(*seed),
                Step::Checkpoint | Step::View { .. } => replica.checkpoint(),
                _ => {}
            }
        }
        bench.again(Some(1));
        bench.check();
        bench.again(None);
        bench.check();
        // Dropped tables leave nothing in the memory of the catalog.
        for table in bench.tables.keys().cloned().collect::<Vec<_>>() {
            bench.catalog.drop_table(&tenant(), &table).unwrap().wait().unwrap();
        }
        bench.tables.clear();
        bench.again(None);
        bench.check();
        let left = bench.directory.names().unwrap();
        prop_assert!(!left.iter().any(|name| name.starts_with("segment")), "{left:?}");
        prop_assert_eq!(bench.catalog.pool().usage().bytes_used, 0);
    }
}
