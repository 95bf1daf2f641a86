//! Tests of joins: a program with lookups that is encoded and decoded again is the same, joins of other producers become
//! lookups as far as their meaning allows, and hostile ones cost little.

use super::*;
use farpool_model::{GivenRows, Lookup, LookupKey, LookupKind};

/// xorshift64* (Vigna, 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }
}

/// Returns a program over one of several tables, all with the columns of [`small_schema`]; its result begins with an
/// integer. Lookups are nested up to `depth` more levels.
fn any_side(random: &mut Random, depth: usize) -> Program {
    let table = TableName::new(random.one_of(&["t", "u", "v"])).unwrap();
    let (lookups, row) = any_lookups(random, depth, 2);
    let integers = integers(&row);
    let column = |random: &mut Random| Expr::Column(random.one_of(&integers));
    let filter = (random.below(2) == 0)
        .then(|| Expr::compare(CompareOp::Lt, column(random), Expr::Column(random.one_of(&integers))));
    let named = |random: &mut Random, at: usize| NamedExpr { name: format!("n{at}"), expr: column(random) };
    let output = if random.below(2) == 0 {
        Output::Rows((0..1 + random.below(3)).map(|at| named(random, at)).collect())
    } else {
        let count = Aggregate {
            name: "how many".to_string(),
            function: AggregateFunction::Count,
            arguments: Vec::new(),
            filter: None,
            data_type: DataType::Int64,
        };
        Output::Aggregate { keys: vec![named(random, 0)], aggregates: vec![count] }
    };
    let limit = (random.below(3) == 0).then_some(7);
    let order = match limit {
        Some(_) if random.below(2) == 0 => {
            vec![SortKey { column: 0, descending: random.below(2) == 0, nulls_first: false }]
        }
        _ => Vec::new(),
    };
    let version = (random.below(3) == 0).then_some(Version(5));
    Program { table, version, lookups, filter, output, having: None, order, limit }
}

fn integers(row: &Schema) -> Vec<usize> {
    let columns = row.fields().iter().enumerate();
    columns.filter(|(_, field)| *field.data_type() == DataType::Int64).map(|(at, _)| at).collect()
}

/// Returns up to two rows of [`small_schema`] that go along with a program.
fn any_rows(random: &mut Random) -> Arc<GivenRows> {
    let rows = random.below(3);
    let integer = |random: &mut Random| random.one_of(&[Value::Null, Value::Int(-1), Value::Int(1 << 40)]);
    let text = |random: &mut Random| random.one_of(&[Value::Null, Value::Text("ä".into())]);
    let integers = |random: &mut Random| (0..rows).map(|_| integer(random)).collect();
    let columns = vec![integers(random), integers(random), (0..rows).map(|_| text(random)).collect()];
    Arc::new(GivenRows::new(&small_schema(), rows, columns).unwrap())
}

/// Returns up to `most` lookups of rows of [`small_schema`], and the schema of the rows behind them.
fn any_lookups(random: &mut Random, depth: usize, most: usize) -> (Vec<Lookup>, Schema) {
    let mut row = small_schema().as_ref().clone();
    let count = if depth == 0 { 0 } else { random.below(most + 1) };
    let mut lookups = Vec::new();
    for _ in 0..count {
        let given = (random.below(4) == 0).then(|| any_rows(random));
        let side = any_side(random, depth - 1);
        let program = match given {
            Some(_) => Program { table: GivenRows::name().unwrap(), version: None, ..side },
            None => side,
        };
        let side_row = program.joined_schema(&small_schema()).unwrap();
        let result = program.result_schema(&side_row).unwrap();
        let kind = random.one_of(&LookupKind::ALL);
        let (left, width) = (integers(&row), row.fields().len());
        let key = |random: &mut Random| LookupKey { row: random.one_of(&left), result: 0 };
        let keys =
            (0..if kind.minds_nulls() { 1 } else { 1 + random.below(2) }).map(|_| key(random)).collect();
        let less = |random: &mut Random| {
            let op = random.one_of(&[CompareOp::Lt, CompareOp::NotEq]);
            Expr::compare(op, Expr::Column(random.one_of(&left)), Expr::Column(width))
        };
        let residual = match random.below(3) {
            _ if kind.minds_nulls() => None,
            0 => None,
            1 => Some(less(random)),
            _ => Some(Expr::And(vec![less(random), Expr::Or(vec![less(random), less(random)])])),
        };
        let mark = if kind.adds_mark() { random.one_of(&["mark", "found"]) } else { "mark" }.to_string();
        let table_schema = small_schema();
        let lookup = Lookup { kind, program, table_schema, given, keys, residual, mark };
        row = lookup.row_schema(&row, &result).unwrap();
        lookups.push(lookup);
    }
    (lookups, row)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_program_with_lookups_round_trips(seed in 1u64..) {
        let mut random = Random(seed);
        let side = any_side(&mut random, 3);
        let (lookups, row) = any_lookups(&mut random, 3, 4);
        let last = Expr::IsNull(Box::new(Expr::Column(row.fields().len() - 1)));
        let program = Program { lookups, filter: Some(last), ..side };
        let output = Output::Rows(vec![NamedExpr { name: "x".into(), expr: Expr::Column(0) }]);
        let program = Program { output, ..program };
        prop_assert_eq!(round_trip(&program, &small_schema()), program);
    }
}

#[test]
fn every_kind_of_lookup_is_the_join_type_of_the_standard_or_says_more() {
    for (kind, number, says_more) in [
        (LookupKind::Inner, 1, false),
        (LookupKind::Left, 3, false),
        (LookupKind::Semi, 5, false),
        (LookupKind::Anti, 6, false),
        (LookupKind::NotIn, 6, true),
        (LookupKind::Exists, 11, true),
        (LookupKind::In, 11, false),
        (LookupKind::Single, 7, false),
    ] {
        let (left, right) = (Bytes::from_static(b"l"), Bytes::from_static(b"r"));
        let join = super::super::joins::write(&lookup(kind), left, right, Bytes::new()).unwrap();
        assert_eq!((join.join_type, join.advanced_extension.is_some()), (number, says_more), "{kind:?}");
        let program = Program { lookups: vec![lookup(kind)], ..scan_a() };
        assert_eq!(round_trip(&program, &small_schema()), program);
    }
}

fn scan_a() -> Program {
    Program::scan(TableName::new("t").unwrap(), &small_schema(), &[0])
}

fn lookup(kind: LookupKind) -> Lookup {
    let program = Program::scan(TableName::new("u").unwrap(), &small_schema(), &[0, 1]);
    let keys = vec![LookupKey { row: 1, result: 0 }];
    Lookup {
        kind,
        program,
        table_schema: small_schema(),
        given: None,
        keys,
        residual: None,
        mark: "mark".into(),
    }
}

const FUNCTIONS: &[(&str, &str)] = &[("", "equal"), ("", "and"), ("", "lt"), ("", "divide"), ("", "strange")];

fn equal(left: i32, right: i32) -> Bytes {
    call(1, &[field(left), field(right)])
}

fn join_of(join_type: i32, left: Bytes, right: Bytes, expression: Bytes) -> proto::JoinRel {
    proto::JoinRel { left, right, expression, join_type, ..Default::default() }
}

fn join(join_type: i32, left: Bytes, right: Bytes, expression: Bytes) -> Bytes {
    relation(RelType::Join(join_of(join_type, left, right, expression)))
}

#[test]
fn joins_of_other_producers_become_lookups() {
    // SELECT … FROM (t WHERE a < b) JOIN (SELECT b, a FROM t WHERE a = b) r ON (r.b = t.b AND t.a < r.a) AND t.a = r.a
    // JOIN t AS t2 ON t2.a = r.b, with a condition on the rows of the first join.
    let right = project(vec![field(1), field(0)], Some(vec![3, 4]), filter(equal(0, 1), table()));
    let condition = call(2, &[call(2, &[equal(3, 1), call(3, &[field(0), field(4)])]), equal(0, 4)]);
    let left = filter(call(3, &[field(0), field(1)]), table());
    let first = proto::JoinRel {
        post_join_filter: Some(call(3, &[field(4), field(0)])),
        ..join_of(1, left, right, condition)
    };
    let second = join(3, relation(RelType::Join(first)), table(), equal(5, 3));
    let top = project(vec![field(5), field(4)], Some(vec![8, 9]), second);
    let program = decode(&plan(top, FUNCTIONS)).unwrap();
    let [first, second] = &program.lookups[..] else { panic!("two lookups: {program:?}") };
    assert_eq!((first.kind, second.kind), (LookupKind::Inner, LookupKind::Left));
    assert_eq!(first.keys, [LookupKey { row: 1, result: 0 }, LookupKey { row: 0, result: 1 }]);
    let lt = |left, right| Expr::compare(CompareOp::Lt, Expr::Column(left), Expr::Column(right));
    assert_eq!(first.residual, Some(lt(0, 4)));
    let names: Vec<&str> = match &first.program.output {
        Output::Rows(columns) => columns.iter().map(|column| column.name.as_str()).collect(),
        Output::Aggregate { .. } => panic!("rows"),
    };
    assert_eq!(names, ["b", "a"]);
    assert!(first.program.filter.is_some());
    assert_eq!(second.keys, [LookupKey { row: 3, result: 0 }]);
    assert_eq!(program.filter, Some(Expr::And(vec![lt(0, 1), lt(4, 0)])));
    let Output::Rows(columns) = &program.output else { panic!("rows") };
    assert_eq!(
        columns.iter().map(|column| column.expr.clone()).collect::<Vec<_>>(),
        [Expr::Column(5), Expr::Column(4)]
    );
    let row = program.joined_schema(&small_schema()).unwrap();
    assert!(program.result_schema(&row).is_ok());
}

#[test]
fn a_mark_comes_behind_the_columns_of_the_left_side() {
    let marked = join(11, project(Vec::new(), Some(vec![1, 0]), table()), table(), equal(1, 2));
    let program = decode(&plan(filter(field(2), marked), FUNCTIONS)).unwrap();
    assert_eq!(program.lookups[0].kind, LookupKind::In);
    assert_eq!(program.lookups[0].keys, [LookupKey { row: 0, result: 0 }]);
    assert_eq!(program.filter, Some(Expr::Column(3)));
    let Output::Rows(columns) = &program.output else { panic!("rows") };
    assert_eq!(columns.last().unwrap().name, "mark");
}

#[test]
fn the_right_side_of_a_join_may_aggregate_and_the_left_may_not() {
    let measure = proto::Measure {
        measure: Some(proto::AggregateFunction { function_reference: 1, ..Default::default() }),
        filter: None,
    };
    let grouping = proto::Grouping { grouping_expressions: vec![field(0)], ..Default::default() };
    let groups = relation(RelType::Aggregate(proto::AggregateRel {
        input: table(),
        groupings: vec![grouping.encode_to_vec().into()],
        measures: vec![measure.encode_to_vec().into()],
        ..Default::default()
    }));
    let functions = &[("", "count"), ("", "equal")];
    let by_key = |left: i32, right: i32| call(2, &[field(left), field(right)]);
    let program = decode(&plan(join(7, table(), groups.clone(), by_key(0, 3)), functions)).unwrap();
    assert_eq!(program.lookups[0].kind, LookupKind::Single);
    assert!(matches!(program.lookups[0].program.output, Output::Aggregate { .. }));
    let error = decode(&plan(join(1, groups, table(), by_key(0, 2)), functions)).unwrap_err();
    assert!(error.message.contains("a join after an aggregation"), "{error}");
    let cut = join(1, fetch(3, table()), table(), by_key(0, 3));
    assert!(decode(&plan(cut, functions)).unwrap_err().message.contains("a join after"));
}

fn enhanced(join_type: i32, type_url: &str, kind: u32) -> Bytes {
    let value = proto::Lookup { kind, mark: String::new() }.encode_to_vec().into();
    let enhancement = Some(proto::Any { type_url: type_url.into(), value });
    let advanced_extension = Some(proto::AdvancedExtension { enhancement });
    let join = join_of(join_type, table(), table(), equal(0, 3));
    relation(RelType::Join(proto::JoinRel { advanced_extension, ..join }))
}

#[test]
fn joins_that_no_lookup_does_say_why() {
    let divided = call(1, &[call(4, &[field(0), field(1)]), field(4)]);
    let fails = || call(2, &[equal(0, 3), divided.clone()]);
    let fails_below = || filter(call(1, &[call(4, &[field(0), field(1)]), field(1)]), table());
    let both = || call(2, &[equal(0, 3), equal(1, 4)]);
    let long = proto::Lookup { kind: 0, mark: "m".repeat(limits::NAME_BYTES_MAX + 1) };
    let any = proto::Any {
        type_url: "type.googleapis.com/farpool.Lookup".into(),
        value: long.encode_to_vec().into(),
    };
    let long = relation(RelType::Join(proto::JoinRel {
        advanced_extension: Some(proto::AdvancedExtension { enhancement: Some(any) }),
        ..join_of(11, table(), table(), equal(0, 3))
    }));
    for (input, what) in [
        (join(2, table(), table(), equal(0, 3)), "a full join"),
        (join(4, table(), table(), equal(0, 3)), "a right join"),
        (join(12, table(), table(), equal(0, 3)), "a right mark join"),
        (join(0, table(), table(), equal(0, 3)), "without a type"),
        (join(1, table(), table(), call(3, &[field(0), field(3)])), "without an equality"),
        (join(1, table(), table(), equal(0, 1)), "without an equality"),
        (join(1, table(), table(), equal(0, 6)), "refers to column 6"),
        (join(1, table(), table(), equal(0, 5)), "has type"),
        (join(1, table(), table(), call(2, &[equal(0, 3), call(5, &[field(1)])])), "function strange"),
        (join(11, table(), table(), both()), "one join key"),
        (join(1, fails_below(), table(), fails()), "may fail on a row"),
        (join(7, fails_below(), table(), equal(0, 3)), "may fail on a row"),
        (enhanced(6, "type.googleapis.com/other.Thing", 0), "other.Thing"),
        (enhanced(6, "type.googleapis.com/farpool.Lookup", 2), "no kind 2"),
        (enhanced(11, "type.googleapis.com/farpool.Lookup", 3), "no kind 3"),
        (long, "the name of a mark"),
    ] {
        let error = decode(&plan(input, FUNCTIONS)).unwrap_err();
        assert!(error.message.contains(what), "{what}: {error}");
    }
    decode(&plan(join(1, table(), table(), fails()), FUNCTIONS)).unwrap();
    decode(&plan(enhanced(6, "type.googleapis.com/farpool.Lookup", 1), FUNCTIONS)).unwrap();
}

/// Returns a scan of a table of values with the columns of [`small_schema`].
fn values_of(table: &proto::VirtualTable) -> Bytes {
    let types = [DataType::Int64, DataType::Int64, DataType::Utf8View];
    let write = |data_type| types::write_type(&data_type, proto::NULLABLE).unwrap().encode_to_vec().into();
    let r#struct = proto::Struct { types: types.map(write).into(), ..Default::default() };
    let names = ["a", "b", "s"].map(String::from).into();
    relation(RelType::Read(proto::ReadRel {
        base_schema: Some(proto::NamedStruct { names, r#struct: Some(r#struct) }),
        read_type: Some(proto::ReadType::VirtualTable(table.encode_to_vec().into())),
        ..Default::default()
    }))
}

#[test]
fn the_right_side_of_a_join_may_be_a_table_of_values() {
    let literal =
        |value: Value, data_type| types::write_literal(&Literal::new(value, data_type).unwrap()).unwrap();
    let row = |integer: Value, text: &str| {
        [
            (integer, DataType::Int64),
            (Value::Null, DataType::Int64),
            (Value::Text(text.into()), DataType::Utf8View),
        ]
        .map(|(value, data_type)| literal(value, data_type))
    };
    let plain = |row: &[proto::Literal]| -> Bytes {
        let fields = row.iter().map(|literal| literal.encode_to_vec().into()).collect();
        proto::Row { fields }.encode_to_vec().into()
    };
    let nested = |row: &[proto::Literal]| -> Bytes {
        let expression = |l: &proto::Literal| {
            proto::Expression { rex_type: Some(RexType::Literal(l.clone())) }.encode_to_vec().into()
        };
        proto::Row { fields: row.iter().map(expression).collect() }.encode_to_vec().into()
    };
    let (first, second) = (row(Value::Int(7), "x"), row(Value::Null, "y"));
    let both = proto::VirtualTable { values: vec![plain(&first)], expressions: vec![nested(&second)] };
    let program = decode(&plan(join(1, table(), values_of(&both), equal(0, 3)), FUNCTIONS)).unwrap();
    let given = program.lookups[0].given.as_ref().expect("rows");
    assert_eq!(given.columns()[0], [Value::Int(7), Value::Null]);
    assert_eq!(given.columns()[2], [Value::Text("x".into()), Value::Text("y".into())]);
    assert!(program.lookup_tables().unwrap().is_empty());

    let scanned = decode(&plan(values_of(&both), FUNCTIONS)).unwrap_err();
    assert!(scanned.message.contains("a scan of a table of values"), "{scanned}");
    let computed = proto::Row { fields: vec![field(0), field(0), field(0)] }.encode_to_vec().into();
    let many = vec![nested(&first); limits::GIVEN_VALUES_MAX / 3 + 1];
    let swapped = [first[2].clone(), first[1].clone(), first[0].clone()];
    for (expressions, what) in [
        (vec![nested(&first[..2])], "a row of values has 2"),
        (vec![nested(&swapped)], "has another type"),
        (vec![computed], "values that are computed"),
        (many, "a table of values in a plan may have"),
    ] {
        let values = proto::VirtualTable { values: Vec::new(), expressions };
        let error = decode(&plan(join(1, table(), values_of(&values), equal(0, 3)), FUNCTIONS)).unwrap_err();
        assert!(error.message.contains(what), "{what}: {error}");
    }
}

#[test]
fn tables_that_lookups_take_for_different_columns_are_not_sent() {
    let other = Arc::new(Schema::new(vec![small_schema().field(1).clone(), small_schema().field(0).clone()]));
    let program = Program { lookups: vec![lookup(LookupKind::Semi)], ..scan_a() };
    let mut twice = program.clone();
    twice.lookups.push(Lookup { table_schema: other.clone(), ..lookup(LookupKind::Semi) });
    assert_eq!(encode_program(&twice, &small_schema()).unwrap_err().kind, ErrorKind::Invalid);
    let mut of_scan = program;
    of_scan.lookups[0].program.table = TableName::new("t").unwrap();
    encode_program(&of_scan, &small_schema()).unwrap();
    of_scan.lookups[0].table_schema = other;
    assert_eq!(encode_program(&of_scan, &small_schema()).unwrap_err().kind, ErrorKind::Invalid);
}

/// Decodes a plan that must be refused for its size. One that was decoded whole would take minutes.
fn refused(input: Bytes, what: &str) {
    let plan = plan(input, FUNCTIONS);
    let error = decode(&plan).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit, "{what}: {error}");
}

#[test]
fn hostile_joins_are_refused_before_they_are_followed() {
    let deep = (0..2_000).fold(table(), |right, _| join(5, table(), right, equal(0, 3)));
    refused(deep, "joins on right sides");
    let deepest = |levels| (0..levels).fold(table(), |right, _| join(5, table(), right, equal(0, 3)));
    decode(&plan(deepest(limits::LOOKUP_DEPTH_MAX), FUNCTIONS)).unwrap();
    refused(deepest(limits::LOOKUP_DEPTH_MAX + 1), "one level more");
    let many = |count| (0..count).fold(table(), |left, _| join(5, left, table(), equal(0, 3)));
    decode(&plan(many(limits::LOOKUPS_MAX), FUNCTIONS)).unwrap();
    refused(many(limits::LOOKUPS_MAX + 1), "one join more");
    refused(many(5_000), "joins on left sides");
    // Both at once: each side has two joins.
    let bushy = (0..7).fold(table(), |side, _| join(5, side.clone(), side, equal(0, 3)));
    refused(bushy, "joins on both sides");
    // Sides of one relation above another.
    let long = (0..60).fold(table(), |input, _| filter(equal(0, 1), input));
    let sides = (0..limits::LOOKUPS_MAX).fold(table(), |left, _| join(5, left, long.clone(), equal(0, 3)));
    refused(sides, "relations of all sides together");
    // Conditions that share one limit: each of the sides has a long constant.
    let text = text(&"x".repeat(100 << 10));
    let wide = project(vec![text], None, table());
    let wide = project(vec![field(3); 30], None, wide);
    let sides = (0..limits::LOOKUPS_MAX).fold(table(), |left, _| join(5, left, wide.clone(), equal(0, 3)));
    refused(sides, "expressions of all sides together");
    // Rows that each join makes wider.
    let wide = project(vec![field(0); 4_000], None, table());
    let joined =
        |count| (0..count).fold(table(), |left, at| join(1, left, wide.clone(), equal(0, 3 + 4_003 * at)));
    decode(&plan(joined(2), FUNCTIONS)).unwrap();
    refused(joined(3), "columns of rows");
}

#[test]
fn what_the_sides_of_a_plan_take_is_told_together() {
    let list = || (0..1000).map(|value| Literal::new(Value::Int(value), DataType::Int64).unwrap()).collect();
    let listed = |column| Some(Expr::InList(Box::new(Expr::Column(column)), list()));
    let side = Program { filter: listed(0), ..lookup(LookupKind::Semi).program };
    let lookups: Vec<Lookup> =
        (0..3).map(|_| Lookup { program: side.clone(), ..lookup(LookupKind::Semi) }).collect();
    let program = Program { lookups, filter: listed(1), ..scan_a() };
    let plan = encode_program(&program, &small_schema()).unwrap();
    let told = std::cell::Cell::new(0);
    let holds = |bytes: usize| {
        told.set(bytes.max(told.get()));
        Ok(())
    };
    decode_program_within(&plan, &|_| Ok(small_schema()), &holds).unwrap();
    let of_all = program.check_size().unwrap() + 3 * side.check_size().unwrap();
    assert!(told.get() >= 2 * of_all + plan.len(), "{} for {of_all}", told.get());
}

#[test]
fn damaged_plans_with_joins_never_panic() {
    let named = Lookup { mark: "found".into(), ..lookup(LookupKind::Exists) };
    let nested = Program { lookups: vec![lookup(LookupKind::NotIn)], ..lookup(LookupKind::Semi).program };
    let lookups = vec![named, Lookup { program: nested, ..lookup(LookupKind::Inner) }];
    let plan = encode_program(&Program { lookups, ..scan_a() }, &small_schema()).unwrap();
    for at in 0..plan.len() {
        let _ = decode_program(&plan[..at], &|_| Ok(small_schema()));
        for flip in [0x01, 0x02, 0x08, 0x80, 0xff] {
            let mut damaged = plan.clone();
            damaged[at] ^= flip;
            let _ = decode_program(&damaged, &|_| Ok(small_schema()));
        }
    }
}
